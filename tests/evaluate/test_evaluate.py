"""The matrix of models, training sets and test sets: saved, resumed, measured, tabulated, drawn."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from defocus import evaluate
from defocus.cli import run
from defocus.errors import ConfigError, DatasetError, DefocusError, OwnershipError
from defocus.evaluate.evaluation import evaluate_table
from defocus.evaluate.figures import choose_crops
from defocus.evaluate.results import (
    BlurLevel,
    PictureRecord,
    Problem,
    Results,
    compare,
    latex,
    level_table,
    main_table,
    number_text,
    ranks,
)
from defocus.evaluate.table_file import EvaluationTable, TableRow, load_table
from defocus.restore.similarity import psnr

from ..synth.fake_folder import fake_folder

torch.set_num_threads(1)
SIDE = 48

TABLE = """
title = "Trial & error"
metrics = ["psnr", "ssim"]
figures = 1
blur_levels_px = [5, 10, 40]
bootstrap = 200
bits = 16

[[rows]]
kind = "input"

[[rows]]
name = "Net"
trained_on = "A"
weights = "a.pth"

[[rows]]
name = "Net"
trained_on = "B"
weights = "b.pth"

[[rows]]
kind = "folder"
name = "Other"
folder = "other/{test}"

[[tests]]
name = "Ours"
kind = "pairs"
folder = "pairs"

[[tests]]
name = "Phone"
kind = "photographs"
folder = "phone"
"""


class Sharpener:
    """Stands for networks: unsharp masks of a strength that the weights file holds."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, row: TableRow, table: EvaluationTable) -> Any:
        assert row.weights is not None
        strength = float(row.weights.read_text())

        def restore(image: np.ndarray) -> np.ndarray:
            self.runs += 1
            if image.shape[0] == 33:
                raise DefocusError("does not like 33 rows")
            return image + strength * (image - gaussian_filter(image, (1, 1, 0)))

        return restore


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A table file with its data: five pairs, two photographs, one of them damaged."""
    fake_folder(tmp_path / "pairs", pairs=(1, 1, 5), side=SIDE)
    random = np.random.default_rng(0)
    (tmp_path / "phone").mkdir()
    for name, rows in (("good", 120), ("odd", 33)):
        Image.fromarray(random.integers(0, 256, (rows, 200, 3), np.uint8)).save(tmp_path / "phone" / f"{name}.png")
    other = tmp_path / "other" / "Ours"
    other.mkdir(parents=True)
    for file in sorted((tmp_path / "pairs" / "test_c" / "target").glob("*.png"))[:4]:
        (other / file.name).write_bytes(file.read_bytes())
    (tmp_path / "a.pth").write_text("0.5")
    (tmp_path / "b.pth").write_text("-0.5")
    (tmp_path / "table.toml").write_text(TABLE)
    return tmp_path


def without_phone(trial: Path) -> EvaluationTable:
    table = load_table(trial / "table.toml")
    return table.model_copy(update={"tests": table.tests[:1], "figures": 0})


def test_the_whole_matrix(trial: Path) -> None:
    pristine = {"mu_pris_param": np.zeros((1, 36)), "cov_pris_param": np.eye(36)}
    np.savez(trial / "niqe.npz", **pristine)
    text = TABLE.replace('["psnr", "ssim"]', '["psnr", "ssim", "niqe"]') + '\n[files]\nniqe = "niqe.npz"\n'
    (trial / "table.toml").write_text(text)
    table = load_table(trial / "table.toml")
    sharpener, stages = Sharpener(), []
    results = evaluate_table(table, trial / "out", lambda stage, part: stages.append((stage, part)),
                              make_restorer=sharpener)  # fmt: skip
    assert sharpener.runs == 2 * 7
    assert all(0.0 <= part <= 1.0 for _, part in stages)

    # Saved first, measured as saved.
    values = results.values("ours", "psnr")
    assert set(values) == {"input", "net-a", "net-b", "other"}
    assert len(values["net-a"]) == 5
    assert len(values["other"]) == 4
    name = sorted(values["net-a"])[0]
    with pytest.raises(OSError, match="No such file"):
        Image.open(trial / "out/images/net-a/phone/odd.png")
    from defocus.files.pictures import read_picture

    saved = read_picture(trial / f"out/images/net-a/ours/{name}.png")[0]
    truth = read_picture(trial / f"pairs/test_c/target/{name.rpartition('-')[2]}.png")[0]
    assert values["net-a"][name] == psnr(saved, truth)
    assert values["other"][name] == math.inf

    # Every row over the same four pictures; the others are named.
    estimates = results.means("ours", "psnr")
    assert {e.count for e in estimates.values()} == {4}
    assert estimates["net-b"].value < estimates["input"].value
    reasons = {(p.test, p.row, p.image): p.reason for p in results.problems}
    missing = max(values["net-a"])
    assert "holds no picture" in reasons["ours", "other", missing]
    assert reasons["phone", "net-a", "odd"] == "does not like 33 rows"
    assert "NIQE needs two blocks" in reasons["phone", "input", "odd"]
    assert results.values("phone", "psnr") == {}
    assert set(results.values("phone", "niqe")) == {"input", "net-a", "net-b"}

    # Files.
    out = trial / "out"
    rows = list(csv.DictReader((out / "images.csv").read_text().splitlines()))
    assert len(rows) == len(results.records)
    mine = next(r for r in rows if (r["row"], r["image"]) == ("net-a", name))
    assert float(mine["psnr"]) == values["net-a"][name]
    assert float(mine["blur_px"]) > 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["directions"] == {"psnr": "up", "ssim": "up", "niqe": "down"}
    assert summary["tests"]["ours"]["rows"]["other"]["metrics"]["psnr"]["mean"] == "inf"
    assert len(summary["problems"]) == len(results.problems)
    assert (out / "results.md").read_text() == compare(results)
    assert (out / "table.tex").read_text() == latex(results)
    drawn = sorted(p.name for p in (out / "figures").iterdir())
    assert "phone-odd.png" in drawn or "phone-good.png" in drawn
    assert sum(name.startswith("ours-test") for name in drawn) == 1
    assert "ours-psnr-by-blur.png" in drawn


def test_files_of_others_are_left_as_they_are(trial: Path) -> None:
    table, out = without_phone(trial), trial / "out"
    out.mkdir()
    own = {name: f"my {name}" for name in ("results.md", "summary.json", "table.tex", "images.csv")}
    for name, text in own.items():
        (out / name).write_text(text)
    sharpener = Sharpener()
    with pytest.raises(OwnershipError, match="was not made for an evaluation"):
        evaluate_table(table, out, make_restorer=sharpener)
    assert {name: (out / name).read_text() for name in own} == own

    evaluate_table(table, trial / "new", make_restorer=sharpener)
    runs = sharpener.runs
    (trial / "new" / "results.md").write_text("my own words")  # in a folder of ours
    with pytest.raises(OwnershipError, match=r"results\.md: was not made by this program, or was changed since"):
        evaluate_table(table, trial / "new", make_restorer=sharpener)
    assert sharpener.runs == runs
    assert (trial / "new" / "results.md").read_text() == "my own words"


def test_names_are_words_in_markdown_not_html() -> None:
    name = "<img src=x onerror=alert(1)> [a](b) *c* `d`"
    results = made_results(title=name, tests=[{"kind": "pairs", "folder": "x", "name": "T"}])
    problems = (Problem("t", "input", "p7", f"{name} is bad"),)
    text = compare(Results(results.table, results.records, problems, {"t": (name,)}))
    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt; \\[a\\](b) \\*c\\* \\`d\\`") == 3


def test_only_what_is_missing_is_made(trial: Path) -> None:
    table = without_phone(trial)
    out, sharpener = trial / "out", Sharpener()
    first = evaluate_table(table, out, make_restorer=sharpener)
    assert sharpener.runs == 10
    again = evaluate_table(table, out, make_restorer=sharpener)
    assert sharpener.runs == 10
    assert again.records == first.records
    measured = (out / "measured.jsonl").read_text()

    (trial / "a.pth").write_text("0.7")  # other weights
    sharper = evaluate_table(table, out, make_restorer=sharpener)
    assert sharpener.runs == 15
    assert sharper.values("ours", "psnr")["net-a"] != first.values("ours", "psnr")["net-a"]
    assert sharper.values("ours", "psnr")["net-b"] == first.values("ours", "psnr")["net-b"]
    assert (out / "measured.jsonl").read_text().startswith(measured)

    # A picture that is gone, another input, and a line that was cut.
    folder = out / "images" / "net-b" / "ours"
    sorted(folder.glob("*.png"))[0].unlink()
    lines = (folder / "made.jsonl").read_text().splitlines()
    (folder / "made.jsonl").write_text("\n".join([*lines[:4], lines[4][:20]]))
    evaluate_table(table, out, make_restorer=sharpener)
    assert sharpener.runs == 17
    blurred = sorted((trial / "pairs/test_c/source").glob("*.png"))[2]
    Image.fromarray(np.asarray(Image.open(blurred))[::-1]).save(blurred)
    evaluate_table(table, out, make_restorer=sharpener)
    assert sharpener.runs == 19


def test_a_real_network(trial: Path) -> None:
    from defocus.restore.models import build_model, model_options
    from defocus.restore.models.checkpoints import save_weights

    small = {"width": 8, "encoder_blocks": (1,), "decoder_blocks": (1,), "middle_blocks": 1}
    torch.manual_seed(0)
    model = build_model("nafnet", "small", **small)
    options = model_options("nafnet", "small", **small).model_dump()
    save_weights(trial / "a.pth", "nafnet", options, model.state_dict())
    table = without_phone(trial).model_copy(update={"device": "cpu", "tile_px": 32, "overlap_px": 8})
    table = table.model_copy(update={"rows": table.rows[:2]})
    results = evaluate_table(table, trial / "out")
    assert not results.problems
    assert len(results.values("ours", "ssim")["net-a"]) == 5

    model.multiple = 8  # what this network would need if it were deeper: 40 and 24 pixels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("defocus.restore.models.checkpoints.load_model", lambda *_, **__: model)
        with pytest.raises(DefocusError, match="of 36 pixels that share 18 "):
            evaluate_table(table.model_copy(update={"tile_px": 36, "overlap_px": 18}), trial / "fresh")

    (trial / "b.pth").write_bytes(b"rubbish")
    with pytest.raises(DefocusError, match=r"b\.pth"):
        evaluate_table(without_phone(trial), trial / "fresh")
    assert not list((trial / "fresh").rglob("*.png"))  # said before any work


def test_what_is_wrong_is_said_at_once(trial: Path) -> None:
    table = load_table(trial / "table.toml")
    with pytest.raises(DatasetError, match="Phone has no truth, and every measure needs one"):
        evaluate_table(table, trial / "out", make_restorer=Sharpener())
    (trial / "a.pth").unlink()
    with pytest.raises(DatasetError, match=r"a\.pth: there are no such weights \(row Net\)"):
        evaluate_table(without_phone(trial), trial / "out", make_restorer=Sharpener())
    (trial / "a.pth").write_text("0.5")
    (trial / "file").write_text("")
    sharpener = Sharpener()
    with pytest.raises(DatasetError, match="is a file"):
        evaluate_table(without_phone(trial), trial / "file", make_restorer=sharpener)
    with pytest.raises(DatasetError, match="cannot be written: a file stands where a folder is needed"):
        evaluate_table(without_phone(trial), trial / "file" / "inner", make_restorer=sharpener)
    (trial / "other").rename(trial / "others")
    with pytest.raises(DatasetError, match=r"other/Ours: there is no such folder \(row Other\)"):
        evaluate_table(without_phone(trial), trial / "out", make_restorer=sharpener)
    assert not sharpener.runs


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('kind = "input"', 'kind = "inputs"'), "rows.0.kind"),
        (('metrics = ["psnr", "ssim"]', 'metrics = ["psnr", "sim"]'), "'sim'; did you mean 'ssim'"),
        (('metrics = ["psnr", "ssim"]', 'metrics = ["psnr", "psnr"]'), "two of them are called 'psnr'"),
        (('metrics = ["psnr", "ssim"]', "metrics = []"), "metrics: .* at least 1 item"),
        (("bits = 16", "tile_px = 64\noverlap_px = 33"), "tile_px = 64 and overlap_px = 33; tiles may share half"),
        (('weights = "a.pth"', 'wights = "a.pth"'), "did you mean 'weights'"),
        (('weights = "a.pth"\n', ""), "needs weights"),
        (('trained_on = "B"', 'trained_on = "A"'), "two of them are called 'net-a'"),
        (('kind = "photographs"', 'kind = "photos"'), "tests.1.kind"),
        (("[5, 10, 40]", "[10, 5]"), "expected ascending"),
        (('folder = "other/{test}"\n', ""), "needs a folder"),
    ],
)
def test_tables_that_cannot_be(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    assert change[0] in TABLE
    (tmp_path / "table.toml").write_text(TABLE.replace(*change))
    with pytest.raises(ConfigError, match=told) as caught:
        load_table(tmp_path / "table.toml")
    assert "table.toml" in str(caught.value)


def test_public_names() -> None:
    assert all(getattr(evaluate, name) is not None for name in evaluate.__all__)


def made_results(metrics: tuple[str, ...] = ("psnr", "lpips"), **changes: Any) -> Results:
    """Three rows and an input with values that are known: 100 pictures with a blur of 1 to 20 pixels."""
    names = (("M|1", "A_1"), ("M|1", "B"), ("N", "A_1"))
    rows = [{"kind": "input"}, *({"name": n, "trained_on": t, "weights": "w"} for n, t in names)]
    given = {"rows": rows, "tests": [{"kind": "pairs", "folder": "x", "name": "T"}], "metrics": metrics} | changes
    table = EvaluationTable.model_validate(given)
    random = np.random.default_rng(4)
    level = random.normal(0.0, 3.0, 100)
    records = []
    for row, (mean, spread) in zip(table.rows, ((25, 0.5), (30, 0.5), (30.6, 0.5), (28, 0.5)), strict=True):
        noise = random.normal(0.0, spread, 100)
        for i in range(100):
            values = {"psnr": mean + level[i] + noise[i], "lpips": 1.0 - mean / 100 + 0.001 * noise[i]}
            records.append(PictureRecord("t", row.key, f"{i:03d}", 1.0 + i % 20, values))
    return Results(table, tuple(records))


def test_means_intervals_and_paired_differences() -> None:
    results = made_results()
    values = np.array(list(results.values("t", "psnr")["m-1-b"].values()))
    found = results.means("t", "psnr")["m-1-b"]
    assert found.value == pytest.approx(values.mean())
    assert found.interval is not None
    half = 1.96 * values.std(ddof=1) / math.sqrt(100)
    assert found.interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    # The pictures differ more than the rows do: the difference of pairs is known far better than the means.
    apart = results.means("t", "psnr", minus="m-1-a-1")["m-1-b"]
    assert apart.interval is not None
    assert 0.0 < apart.interval[0] < apart.value < apart.interval[1] < 0.9
    assert apart.interval[1] - apart.interval[0] < 0.3 * (found.interval[1] - found.interval[0])
    assert results.means("t", "psnr") == results.means("t", "psnr")

    # Coverage: of many samples, about 95 % of the intervals hold the truth.
    random = np.random.default_rng(9)
    held = 0
    for _ in range(300):
        records = [
            PictureRecord("t", "input", str(i), None, {"psnr": float(v)}) for i, v in enumerate(random.normal(0, 1, 60))
        ]
        low, high = Results(results.table, tuple(records)).means("t", "psnr")["input"].interval or (0, 0)
        held += low < 0.0 < high
    assert 0.90 < held / 300 < 0.98


def test_few_pictures_have_no_interval_or_one_with_a_warning() -> None:
    results = made_results()

    def text(count: int) -> str:
        some = tuple(record for record in results.records if int(record.image) < count)
        return compare(Results(results.table, some))

    narrow, none = "Intervals of fewer than 10 pictures are narrower", "Fewer than 5 pictures are too few for an inter"
    assert narrow not in text(100)
    assert none not in text(100)
    assert narrow in text(9)
    assert "[" not in text(4)
    assert "±" not in text(4)
    assert none in text(4)
    assert narrow not in text(4)


def test_numbers_as_they_are_written() -> None:
    assert [number_text(v, 2) for v in (-0.004, 1.005, -1.5, math.inf, -math.inf, math.nan)] == [
        "0.00", "1.00", "−1.50", "∞", "−∞", "–"
    ]  # fmt: skip
    assert [number_text(v, 2, signed=True) for v in (-0.004, 0.004, 0.006, -1.5)] == ["0.00", "0.00", "+0.01", "−1.50"]


def test_a_wrong_part_is_told_alone(tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text(TABLE.replace('kind = "photographs"', 'knd = "photographs"'))
    with pytest.raises(ConfigError) as caught:
        load_table(tmp_path / "table.toml")
    assert "'tests.1.knd': did you mean 'kind'?" in str(caught.value)
    one = TABLE[: TABLE.index('[[tests]]\nname = "Phone"')].replace('kind = "pairs"', 'kind = "pair"')
    (tmp_path / "table.toml").write_text(one)
    with pytest.raises(ConfigError) as caught:
        load_table(tmp_path / "table.toml")
    assert "tests.0.kind" in str(caught.value)
    assert "at least" not in str(caught.value)


def test_levels_of_blur() -> None:
    results = made_results(blur_levels_px=(5.0, 10.0))
    assert results.levels("t") == [(-1.0, 5.0), (5.0, 10.0), (10.0, math.inf)]
    found = results.means("t", "psnr", level=BlurLevel(5.0, 10.0))["input"]
    wanted = [r.values["psnr"] for r in results.records if r.row == "input" and 5.0 < (r.blur_px or 0) <= 10.0]
    assert found.count == len(wanted) == 25
    assert found.value == pytest.approx(np.mean(wanted))
    text = level_table(results, results.table.tests[0], "psnr")
    assert "| ≤ 5 (25) | 5–10 (25) | > 10 (50) |" in text
    bare = Results(results.table, tuple(PictureRecord(r.test, r.row, r.image, None, r.values) for r in results.records))
    assert level_table(bare, results.table.tests[0], "psnr") == ""


def test_marks_follow_the_direction_and_the_written_values() -> None:
    assert ranks({"a": 0.3004, "b": 0.2996, "c": 0.4, "d": math.nan}, False, 3) == {"a": 1, "b": 1, "c": 2}
    results = made_results()
    lines = main_table(results, results.table.tests[0]).splitlines()
    assert lines[0] == "| Model | Trained on | Pictures | PSNR ↑ | LPIPS ↓ |"
    means = {
        metric: {row: f"{e.value:.{decimals}f}" for row, e in results.means("t", metric).items()}
        for metric, decimals in (("psnr", 2), ("lpips", 3))
    }
    assert lines[2].endswith(f"| Input | – | 100 | {means['psnr']['input']} | {means['lpips']['input']} |")  # no rank
    a, b, n = lines[3:6]
    assert a.startswith("| M\\|1 | A_1 |")
    assert f"<u>{means['psnr']['m-1-a-1']}</u> | <u>{means['lpips']['m-1-a-1']}</u>" in a
    assert f"**{means['psnr']['m-1-b']}** | **{means['lpips']['m-1-b']}**" in b
    assert f"*{means['psnr']['n-a-1']}* | *{means['lpips']['n-a-1']}*" in n
    tex = latex(results)
    assert f"\\cellcolor{{red!30}}{means['psnr']['m-1-b']}" in tex
    assert f"\\cellcolor{{orange!25}}{means['psnr']['m-1-a-1']}" in tex
    assert f"\\cellcolor{{yellow!25}}{means['psnr']['n-a-1']}" in tex
    assert "PSNR$\\uparrow$ & LPIPS$\\downarrow$" in tex
    assert "A\\_1" in tex
    assert "\\multirow{2}{*}{M|1}" in tex
    for line in tex.splitlines():
        if line.endswith("\\\\"):
            assert line.count(" & ") + line.count("& &") >= 4

    # Within each model: the only row of N has no mark.
    own = main_table(made_results(marks="model"), results.table.tests[0]).splitlines()
    assert "**" not in own[5]
    assert "**" in own[4]


def test_problems_alike_are_told_once() -> None:
    results = made_results()
    problems = [Problem("t", "input", f"im{i}", f"im{i} is too small") for i in range(8)]
    text = compare(Results(results.table, results.records, tuple(problems), {"t": ("a note",)}))
    assert "## 8 problems" in text
    assert "- t, input: … is too small (im0, im1, im2, im3, im4 and 3 more)" in text
    assert "- a note" in text


def test_crops_are_where_the_sharpness_differs() -> None:
    sharp = np.zeros((100, 140, 3))
    sharp[70:90, 100:120] = np.indices((20, 20)).sum(0)[..., None] % 2
    sharp[10:20, 10:20] = 0.5 * (np.indices((10, 10)).sum(0)[..., None] % 2)
    blurred = gaussian_filter(sharp, (2, 2, 0)) + 0.4  # and another exposure
    first, second = choose_crops(blurred, sharp, 2, 30)
    assert first[0] <= 70
    assert first[0] + 30 >= 90
    assert first[1] <= 100
    assert first[1] + 30 >= 120
    assert second[0] < 20
    assert second[1] < 20
    assert choose_crops(np.zeros((8, 8, 3)), np.ones((8, 8, 3)), 3) == [(0, 0, 8)]


def test_on_the_command_line(trial: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        TABLE[: TABLE.index("[[rows]]\nname")] + '[[rows]]\nkind = "folder"\nname = "Other"\nfolder = "other/{test}"\n'
    )
    tests = TABLE[TABLE.index("[[tests]]") : TABLE.index('[[tests]]\nname = "Phone"')]
    (trial / "quick.toml").write_text(rows + tests)
    assert run(["evaluate", str(trial / "quick.toml"), "--out", str(trial / "out")]) == 1  # one picture is missing
    told = capsys.readouterr().out
    assert "Other" in told
    assert "∞" in told
    assert "inf" not in told
    assert "problem: ours, other: " in told
    assert (trial / "out" / "results.md").is_file()

    source, target = trial / "pairs/test_c/source", trial / "pairs/test_c/target"
    assert run(["evaluate", "--images", str(source), str(target), "--metrics", "psnr,ssim"]) == 0
    assert "mean of 5: PSNR" in capsys.readouterr().out
    one = next(iter(source.glob("*.png")))
    assert run(["evaluate", "--images", str(one), str(one)]) == 0
    assert "PSNR ∞  SSIM 1.0000" in capsys.readouterr().out
    (source / one.name).write_bytes(b"rubbish")
    assert run(["evaluate", "--images", str(source), str(target)]) == 1
    assert f"problem: {one.stem}: " in capsys.readouterr().out

    for arguments, message in (
        ([], "give one of"),
        ([str(trial / "quick.toml")], "--out"),
        ([str(trial / "none.toml"), "--out", "x"], "cannot be read"),
        (["--images", str(source), str(one)], "two pictures or two folders"),
        (["--images", str(source), str(target), "--metrics", "psn"], "did you mean 'psnr'?"),
    ):
        assert run(["evaluate", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert run(["evaluate", "--template", str(trial / "new.toml")]) == 0
    assert load_table(trial / "new.toml").rows[1].model == "nrknet"
    assert run(["evaluate", "--template", str(trial / "new.toml")]) == 2
    assert "defocus evaluate new.toml" in (trial / "new.toml").read_text()
