"""One pair made again from its metadata alone, compared with what the folder holds, and drawn; which pairs it holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from defocus.cli import run
from defocus.draw import draw_pair
from defocus.files.pair_folders import LEDGER
from defocus.synth.engines.local import LocalEngine
from defocus.synth.ledger import Ledger
from defocus.synth.plan import SPLITS, make_plan
from defocus.synth.run import run_plan
from defocus.synth.show import show_pair


def first_of(folder: Path, split: str = "train") -> dict[str, Any]:
    lines = (folder / "pairs.jsonl").read_text().splitlines()
    return next(record for record in map(json.loads, lines) if record["split"] == split)


def made(tmp_path: Path, plan: dict[str, Any], **parts: Any) -> Path:
    """A folder of two pairs to train with."""
    nothing = {"validation": {"pairs": 0}, "test": {"pairs": 0}}
    assert run_plan(
        make_plan(plan | nothing | {"train": {"pairs": 2}} | parts), tmp_path / "o", LocalEngine(1)
    ).complete
    return tmp_path / "o"


def shown(folder: Path, identity: str, out: Path, capsys: pytest.CaptureFixture) -> tuple[int, str]:
    code = run(["synth", "show", str(folder), identity, "--out", str(out)])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("split", SPLITS)
def test_the_dpdd_layout(reference_folder: Path, split: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "pair.png"
    assert shown(reference_folder, first_of(reference_folder, split)["id"], out, capsys) == (
        0,
        f"wrote {out}; the same bytes\n",
    )
    with Image.open(out) as figure:
        assert figure.width > 1000


@pytest.mark.parametrize(
    ("layout", "parts"),
    [("pairs", {"sensor": {"dual_pixel": True}}), ("webdataset", {"labels": {"depth": True, "focal_stack": 2}})],
)
def test_other_layouts(
    layout: str, parts: dict[str, Any], tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    folder = made(tmp_path, tiny_plan, output={"layout": layout}, **parts)
    record = first_of(folder)
    out = tmp_path / "pair.png"
    assert shown(folder, record["id"], out, capsys) == (0, f"wrote {out}; the same bytes\n")
    # One bit of one picture.
    about = record["files"]["sharp"]
    file = folder / about["path"]
    data = bytearray(file.read_bytes())
    place = (
        data.index(b"IDAT", data.index(f"{record['index']:06d}.sharp.png".encode()) if "member" in about else 0) + 40
    )
    data[place] ^= 1
    file.write_bytes(data)
    assert shown(folder, record["id"], out, capsys) == (1, f"wrote {out}; sharp DIFFER\n")


def test_a_picture_that_was_changed(
    reference_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(reference_folder, folder)
    record = first_of(folder)
    file = folder / record["files"]["blurred"]["path"]
    with Image.open(file) as picture:
        values = np.array(picture)
    values[7, 5, 1] ^= 1
    Image.fromarray(values).save(file)
    monkeypatch.chdir(tmp_path)  # by default the figure is ID.png, here
    assert run(["synth", "show", str(folder), record["id"], "--json"]) == 1
    text = capsys.readouterr().out
    assert text.endswith(f"wrote {record['id']}.png; blurred DIFFER\n")
    assert json.loads(text[: text.rindex("}") + 1]) == record
    assert (tmp_path / f"{record['id']}.png").is_file()
    file.unlink()
    assert run(["synth", "show", str(folder), record["id"]]) == 2
    assert str(file) in capsys.readouterr().err


def test_pairs_that_are_not_there(reference_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["synth", "show", str(reference_folder), "train-999999", "--out", str(tmp_path / "x.png")]) == 2
    assert "no pair 'train-999999'; there are train-" in capsys.readouterr().err
    assert run(["synth", "show", str(reference_folder), "train-999999", "--out", str(tmp_path / "x.bmp")]) == 2
    assert ".png, .svg, .pdf" in capsys.readouterr().err


def test_the_figure_says_what_the_pair_is_made_of(reference_folder: Path) -> None:
    pair = show_pair(reference_folder, first_of(reference_folder)["id"])
    count = len(pair.layer_coc_px)
    assert pair.psfs.shape[0] == count == len(pair.record["layer_coc_px"])
    assert pair.layer_coc_px == pytest.approx(pair.record["layer_coc_px"], abs=1e-3)
    record = pair.record | {"stack_m": [1.0, 2.5]}
    stack = {"stack_00": pair.pictures["sharp"], "stack_01": pair.pictures["blurred"]}
    figure = draw_pair(
        record, pair.pictures | stack, depth_m=pair.depth_m, coc_px=pair.coc_px, layer_depth_m=pair.layer_depth_m,
        layer_coc_px=pair.layer_coc_px, psfs=pair.psfs, verdict="checked",
    )  # fmt: skip
    written = " ".join(
        t.get_text() for axes in (figure, *figure.axes) for t in axes.findobj(lambda a: hasattr(a, "get_text"))
    )
    for word in (
        pair.record["id"],
        pair.record["lens"].partition("@")[0],
        f"{count} layers",
        "blurred",
        "sharp",
        "focused at 2.5 m",
        "checked",
    ):
        assert word in written
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    np.testing.assert_array_equal(pictures[0], pair.pictures["blurred"])
    np.testing.assert_array_equal(pictures[1], pair.pictures["sharp"])
    np.testing.assert_array_equal(pictures[3], pair.pictures["blurred"])
    np.testing.assert_array_equal(pictures[4], pair.depth_m)
    assert len(pictures) == 6 + min(count, 12)
    # Every pixel has the blur of the layer that is nearest to its own.
    assert set(np.unique(pictures[5])) <= set(pair.layer_coc_px)
    assert np.abs(pictures[5] - pair.coc_px).max() <= 1.0  # a layer is no wider than a pixel of blur


def test_the_sharpest_two_thirds_of_a_run_are_kept(reference_folder: Path, tiny_plan: dict[str, Any]) -> None:
    """Pairs are those that the rule picks from everything that was drawn, split by split."""
    plan = make_plan(tiny_plan)
    with Ledger(reference_folder / LEDGER, read_only=True) as ledger:
        for split in SPLITS:
            items = list(ledger.items(split))
            drawn = [(one, record) for one, _, _, record in items if record]
            assert len(items) == round(1.5 * plan.split(split).pairs)
            measures = np.array([record["sharpness"] for _, record in drawn])
            low, high = measures.min(0), measures.max(0)
            order = np.argsort(-((measures - low) / (high - low)).prod(1), kind="stable")
            best = {drawn[i][0] for i in order[: plan.split(split).pairs]}
            assert {one for one, status, _, _ in items if status == "done"} == best
