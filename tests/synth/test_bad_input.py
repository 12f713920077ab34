"""Plans, photographs, lenses and folders that are wrong: what is said, what is left behind, and what goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import tokenize
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from defocus.cli import run
from defocus.errors import PhotoError, PlanError
from defocus.files.pair_folders import LEDGER
from defocus.scene.depth_files import read_depth
from defocus.synth.ledger import Ledger
from defocus.synth.lens_pool import find_lenses
from defocus.synth.pairs import make_pairs
from defocus.synth.plan import make_plan
from defocus.synth.recipe import Outcome, pair_id
from defocus.synth.show import show_pair
from defocus.synth.sources import find_sources, read_source
from defocus.synth.tasks import make_tasks, plan_shards

from ..dng import write_dng
from .conftest import contents, write_plan

WIDTH, HEIGHT = 120, 80
SPLITS = {"train": "p[0-3].*", "validation": "p4.*", "test": "p5.*"}


def write_photo(folder: Path, stem: str, seed: int, depth_size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """A picture of texture and, beside it, a slope from 1 to 8 m."""
    random = np.random.default_rng(seed)
    blocks = random.integers(20, 235, (HEIGHT // 4, WIDTH // 4, 3), np.uint8)
    Image.fromarray(np.kron(blocks, np.ones((4, 4, 1), np.uint8))).save(folder / f"{stem}.png")
    depth = np.geomspace(1.0, 8.0, depth_size[0])[None] * np.ones((depth_size[1], 1))
    np.savez(folder / f"{stem}.npz", depth_m=depth.astype(np.float32))
    return folder / f"{stem}.png"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for k in range(6):
        write_photo(folder, f"p{k}", k)
    return folder


@pytest.fixture
def photo_plan(photos: Path, tiny_plan: dict[str, Any]) -> dict[str, Any]:
    """Pairs from six photographs: four to train with, one each to validate and to test."""
    plan = tiny_plan | {"sources": [{"kind": "rgb", "folder": str(photos)}]}
    plan["lenses"] = {"only": ["canon-rf-*", "phone-us9*"], "survey": False}
    for split, pattern in SPLITS.items():
        plan[split] = plan[split] | {"images": [pattern]}
    for split, pattern in (("train", "canon-*"), ("validation", "phone-us92*"), ("test", "phone-us93*")):
        plan[split]["lenses"] = [pattern]
    plan["train"]["pairs"], plan["validation"]["pairs"], plan["test"]["pairs"] = 6, 1, 1
    return plan


def refusal(capsys: pytest.CaptureFixture) -> str:
    """What a command said in refusing: one line that begins with its name."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("defocus: ")]
    assert len(lines) == 1, lines
    return lines[0]


def items(folder: Path) -> list[tuple[str, str, str, dict[str, Any]]]:
    with Ledger(folder / LEDGER, read_only=True) as ledger:
        return list(ledger.items())


# --- plans ---


def test_a_typo_on_the_command_line(tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    tiny_plan["patch"]["sizes"] = tiny_plan["patch"].pop("size")
    file = write_plan(tmp_path / "plan.toml", tiny_plan)
    for command in (["check", str(file)], ["run", str(file), "--out", str(tmp_path / "out")]):
        assert run(["synth", *command]) == 2
        assert refusal(capsys) == f"defocus: {file}: unknown key 'patch.sizes': did you mean 'size'?"
    assert not (tmp_path / "out").exists()
    assert run(["synth", "check", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: cannot be read: No such file" in refusal(capsys)
    assert run(["synth", "run", str(file)]) == 2
    assert "--out" in refusal(capsys)


def test_check_says_what_will_be_made(
    tmp_path: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    file = write_plan(tmp_path / "plan.toml", photo_plan)
    assert run(["synth", "check", str(file), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "train: 6 pairs of 9 candidates, 4 images," in shown
    assert "test: 1 pairs of 2 candidates, 1 images, 1 lenses" in shown
    assert re.search(r"largest blur radius of \d+ candidates, median [\d.]+ px", shown)
    assert "█" in shown
    assert "warning" not in shown
    assert " free" in shown
    assert not (tmp_path / "out").exists()


def test_check_warns_of_pairs_that_are_nearly_sharp_and_of_empty_depth(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    with np.load(photos / "p1.npz") as file:
        depth = file["depth_m"].copy()
    depth[: int(0.8 * len(depth))] = np.nan
    np.savez(photos / "p1.npz", depth_m=depth)
    file = write_plan(tmp_path / "plan.toml", photo_plan | {"sensor": {"pixel_um": 900.0}})  # a few pixels in all
    assert run(["synth", "check", str(file)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"warning: half of the pairs will be blurred by less than 0\.\d+ px", shown)
    assert re.search(r"warning: 1 of 6 depth maps are mostly empty \(p1\.\w+: (79|80)%\)", shown)


# --- sources ---


def test_folders_without_photographs(tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for kind, folder, words in (
        ("rgb", empty, f"sources.0.folder: no photograph with depth in {empty} (.png, "),
        ("raw", empty, "(.dng, "),
        ("rgb", tmp_path / "none", "is not a folder"),
    ):
        file = write_plan(tmp_path / "plan.toml", tiny_plan | {"sources": [{"kind": kind, "folder": str(folder)}]})
        assert run(["synth", "check", str(file)]) == 2
        assert words in refusal(capsys)
    write_photo(empty, "p", 0)
    (empty / "p.npz").unlink()
    file = write_plan(tmp_path / "plan.toml", tiny_plan | {"sources": [{"kind": "rgb", "folder": str(empty)}]})
    assert run(["synth", "check", str(file)]) == 2
    assert f"{empty / 'p.npz'} is missing" in refusal(capsys)


def test_a_photograph_without_depth_is_named(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    (photos / "p2.npz").unlink()
    assert run(["synth", "check", str(write_plan(tmp_path / "plan.toml", photo_plan))]) == 0
    shown = capsys.readouterr().out
    assert f"left out: {photos / 'p2.png'}: no depth file" in shown
    assert "9 candidates, 3 images" in shown


def test_a_depth_file_that_breaks_its_reader_fails_alone(
    tmp_path: Path,
    photos: Path,
    photo_plan: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def read(path: Path, **options: Any) -> Any:
        if path.name == "p2.npz":
            raise tokenize.TokenError("EOF in multi-line statement", (1, 0))
        return read_depth(path, **options)

    monkeypatch.setattr("defocus.scene.depth_files.read_depth", read)
    assert run(["synth", "check", str(write_plan(tmp_path / "plan.toml", photo_plan))]) == 0
    assert (
        f"left out: {photos / 'p2.png'}: cannot be read with its depth {photos / 'p2.npz'}" in capsys.readouterr().out
    )
    with pytest.raises(PhotoError, match=r"p2\.npz: TokenError"):
        read_source(
            next(s for s in find_sources(make_plan(photo_plan))["train"] if s.name == "p2.png"), make_plan(photo_plan)
        )


def test_depth_of_another_size(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    write_photo(photos, "p4", 4, depth_size=(60, 40))
    file = write_plan(tmp_path / "plan.toml", photo_plan)
    assert run(["synth", "check", str(file)]) == 0  # resized, as the plan says by default
    capsys.readouterr()
    photo_plan["sources"][0]["resize_depth"] = False
    write_plan(file, photo_plan)
    assert run(["synth", "check", str(file)]) == 2  # nothing to validate with
    message = refusal(capsys)
    assert "validation: none of its 1 photographs can be read" in message
    assert "60×40" in message
    assert "120×80" in message


def test_depth_as_whole_numbers(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    """Millimetres in a PNG among the photographs; without its scale the file is named."""
    for npz in photos.glob("*.npz"):
        with np.load(npz) as stored:
            Image.fromarray((stored["depth_m"] * 1e3).astype(np.uint16)).save(photos / f"{npz.stem}_mm.png")
        npz.unlink()
    source = photo_plan["sources"][0]
    source["depth"] = "{stem}_mm.png"
    file = write_plan(tmp_path / "plan.toml", photo_plan)
    assert run(["synth", "check", str(file)]) == 2
    assert "say how many metres one is" in refusal(capsys)
    source["depth_scale_m"] = 0.001
    assert run(["synth", "check", str(write_plan(file, photo_plan))]) == 0
    shown = capsys.readouterr().out
    assert "train: 6 pairs of 9 candidates, 4 images," in shown
    assert "left out" not in shown
    (named,) = find_sources(make_plan(photo_plan))["test"]
    depth = read_source(named, make_plan(photo_plan)).depth_m
    assert (float(depth.min()), float(depth.max())) == pytest.approx((1.0, 8.0), abs=1e-3)


def test_a_corrupt_raw_file(tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    for k in range(3):
        write_dng(folder / f"r{k}.dng", np.random.default_rng(k).integers(600, 9000, (HEIGHT, WIDTH)))
        np.savez(folder / f"r{k}.npz", depth_m=np.full((HEIGHT, WIDTH), 2.0 + k, np.float32))
    file = write_plan(tmp_path / "plan.toml", tiny_plan | {"sources": [{"kind": "raw", "folder": str(folder)}]})
    assert run(["synth", "check", str(file)]) == 0  # whole, it can be read
    assert "left out" not in capsys.readouterr().out
    broken = folder / "r1.dng"
    for content in (broken.read_bytes()[:3000], b"", b"not a photograph at all" * 50):
        broken.write_bytes(content)
        assert run(["synth", "check", str(file)]) == 2
        message = refusal(capsys)
        assert "none of its 1 photographs can be read, the first: " in message
        assert str(broken) in message


def test_unreadable_sources_fail_alone(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    """One before the run, one in its middle: each is recorded with its reason, and others take the places."""
    out = tmp_path / "out"
    file = write_plan(tmp_path / "plan.toml", photo_plan)
    (photos / "p1.png").write_bytes((photos / "p1.png").read_bytes()[:900])
    photo_plan["select"] = {"surplus": 1.0}
    write_plan(file, photo_plan)
    assert run(["synth", "run", str(file), "--out", str(out), "--limit", "1"]) == 0
    assert "stopped at the limit" in capsys.readouterr().out
    failed = [(reason, record) for _, status, reason, record in items(out) if status == "failed"]
    assert len(failed) == 3  # of 12 candidates, a quarter
    assert all(reason.startswith("p1.png: ") and not record for reason, record in failed)  # by its place in the plan
    done = {one for one, status, _, _ in items(out) if status == "done"}
    assert done

    (photos / "p2.png").write_bytes(b"gone")
    assert run(["synth", "run", str(file), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "train: 6 of 6 pairs" in shown
    assert "6 failed, most often because (numbers may differ):" in shown
    assert "damaged or truncated" in shown
    after = items(out)
    failures = [(reason, record) for _, status, reason, record in after if status == "failed" and record]
    assert failures
    assert all("p2.png" in reason and record["source"] == "p2.png" for reason, record in failures)
    pairs = [record for _, status, _, record in after if status == "done"]
    assert done <= {record["id"] for record in pairs}
    fresh = {record["source"] for record in pairs if record["id"] not in done}
    assert not fresh & {"p1.png", "p2.png"}
    for record in pairs:
        assert all((out / f["path"]).is_file() for f in record["files"].values())
    assert run(["synth", "verify", str(out)]) == 0


def test_mended_sources_come_back(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    """The pairs that stood in for theirs go: as if nothing had ever failed."""
    file = write_plan(tmp_path / "plan.toml", photo_plan)
    whole = (photos / "p1.png").read_bytes()
    (photos / "p1.png").write_bytes(whole[:900])
    mended, never = tmp_path / "mended", tmp_path / "never"
    assert run(["synth", "run", str(file), "--out", str(mended)]) == 0
    first = {one for one, status, _, _ in items(mended) if status == "done"}
    (photos / "p1.png").write_bytes(whole)
    for out in (mended, never):
        assert run(["synth", "run", str(file), "--out", str(out)]) == 0
    after = {one for one, status, _, _ in items(mended) if status == "done"}
    assert after != first
    stages = capsys.readouterr().err.partition("drawing candidates: 11 of 13")  # two of p1.png failed, others stay
    assert re.findall(r"(?:making pairs|metadata): (\d+ of \d+)", stages[2])[:2] == ["6 of 8", "8 of 8"], stages
    files = [contents(out) for out in (mended, never)]
    assert len(files[0]) > 2 * 8
    assert files[0] == files[1]


def test_an_error_that_nobody_expected_fails_its_task_alone(
    tmp_path: Path,
    tiny_plan: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make(plan: Any, recipes: Any, *rest: Any) -> Any:
        if recipes[0].split == "test":
            raise ZeroDivisionError("of all things")
        return make_pairs(plan, recipes, *rest)

    monkeypatch.setattr("defocus.synth.worker.make_pairs", make)
    out = tmp_path / "out"
    command = ["synth", "run", str(write_plan(tmp_path / "plan.toml", tiny_plan)), "--out", str(out)]
    assert run(command) == 1
    shown = capsys.readouterr()
    assert "train: 6 of 6 pairs" in shown.out
    assert "test: 0 of 2 pairs" in shown.out
    assert "Traceback" in caplog.text
    failed = {(one.partition("-")[0], reason) for one, status, reason, _ in items(out) if status == "failed"}
    assert failed == {("test", "ZeroDivisionError: of all things")}
    monkeypatch.undo()
    assert run(command) == 0


def test_failed_pairs_of_a_finished_shard_are_tried_again(tmp_path: Path, tiny_plan: dict[str, Any]) -> None:
    plan = make_plan(tiny_plan | {"output": {"layout": "webdataset"}, "select": {"sharpness": False}})
    names = [pair_id("train", k) for k in range(plan.candidates("train"))]
    records = {one: {"id": one, "source": "s", "index": k} for k, one in enumerate(names)}
    with Ledger(tmp_path / LEDGER) as ledger:
        ledger.take("draw/train/0", [Outcome(one, "drawn", record=records[one]) for one in names])
        assert plan_shards(plan, ledger)
        (task,) = make_tasks(plan, ledger)
        assert task.ids == names[:6]
        outcomes = [Outcome(one, "failed" if one == names[2] else "done", "", records[one]) for one in task.ids]
        ledger.take(task.name, outcomes)
        assert plan_shards(plan, ledger)
        (again,) = make_tasks(plan, ledger)
        assert (again.shard, again.ids) == (1, names[6:7])
        ledger.take(again.name, [Outcome(names[6], "failed", "", records[names[6]])])
        ledger.reopen()  # the next run
        assert plan_shards(plan, ledger)
        (retried,) = make_tasks(plan, ledger)
        assert (retried.shard, retried.ids) == (2, names[2:3])


def test_a_split_that_cannot_be_filled(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    (photos / "p5.npz").write_bytes(b"no archive")
    out = tmp_path / "out"
    photo_plan["train"]["pairs"] = 1
    assert run(["synth", "run", str(write_plan(tmp_path / "p.toml", photo_plan)), "--out", str(out)]) == 1
    shown = capsys.readouterr().out
    assert "test: 0 of 1 pairs" in shown
    assert "train: 1 of 1 pairs" in shown
    assert "fewer than wanted" in shown
    assert all("p5.npz" in reason for _, status, reason, _ in items(out) if status == "failed")


# --- lenses ---


def test_lens_folders(tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "lenses"
    folder.mkdir()
    (folder / "bad.zmx").write_text("VERS 1\nNAME nothing\n")
    (folder / "worse.zmx").write_bytes(b"\x00\x01")
    tiny_plan["lenses"] = {"builtin": False, "folders": [str(folder)], "survey": False}
    file = write_plan(tmp_path / "plan.toml", tiny_plan)
    assert run(["synth", "check", str(file)]) == 2
    message = refusal(capsys)
    assert "lenses: all 2 were rejected" in message
    assert "bad.zmx" in message
    for lenses, words in (
        ({"builtin": False}, "there are none"),
        ({"only": ["no-such-*"]}, "there are none"),
        ({"folders": [str(tmp_path / "none")]}, "lenses.folders"),
        ({"only": ["leica-summicron*"], "survey": False}, "no lenses are left for it of 1"),
    ):
        tiny_plan["lenses"] = lenses
        assert run(["synth", "check", str(write_plan(file, tiny_plan))]) == 2
        assert words in refusal(capsys)


def test_all_lenses_outside_the_survey(tiny_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's limits are those of the survey, whose measurements have tests of their own."""
    monkeypatch.setattr("defocus.synth.lens_pool.measure", lambda lenses, progress: [lens.name for lens in lenses])
    monkeypatch.setattr(
        "defocus.synth.lens_pool.judge",
        lambda name, limits: SimpleNamespace(kept=False, reasons=[f"{name} above f/{limits.max_f_number}"]),
    )
    tiny_plan["lenses"] = {"only": ["phone-us9316811"], "max_f_number": 1.0}
    with pytest.raises(PlanError, match=r"all 1 were rejected, the first: phone-us9316811: .* above f/1\.0"):
        find_lenses(make_plan(tiny_plan))


def test_copies_of_a_lens_count_once(tmp_path: Path, tiny_plan: dict[str, Any]) -> None:
    from defocus.lens import load_lens
    from defocus.lens.formats import write_lens

    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    write_lens(load_lens("phone-us9316811"), one / "copy.json")
    plan = {"only": ["phone-us9*", "copy*"], "survey": False, "folders": [str(one)]}
    pool = find_lenses(make_plan(tiny_plan | {"lenses": plan}))
    assert "copy.json" not in pool.lenses
    assert ("copy.json", "the same prescription as phone-us9316811") in pool.rejected
    shutil.copy(one / "copy.json", two / "copy.json")
    plan["folders"] = [str(one), str(two)]
    with pytest.raises(PlanError, match=r"copy\.json is there twice"):
        find_lenses(make_plan(tiny_plan | {"lenses": plan}))


# --- folders to write to ---


def test_folders_that_cannot_be_written(
    tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    file = write_plan(tmp_path / "plan.toml", tiny_plan)
    (tmp_path / "file").write_text("in the way")
    assert run(["synth", "run", str(file), "--out", str(tmp_path / "file" / "out")]) == 2
    assert str(tmp_path / "file") in refusal(capsys)
    assert run(["synth", "run", str(file), "--out", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file") in refusal(capsys)
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    assert run(["synth", "run", str(file), "--out", str(full)]) == 2
    assert f"{full}: holds thesis.tex and was not made for a data set" in refusal(capsys)
    assert [p.name for p in full.iterdir()] == ["thesis.tex"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert run(["synth", "run", str(write_plan(tmp_path / "plan.toml", tiny_plan)), "--out", str(locked)]) == 2
    assert "no permission" in refusal(capsys)


def test_a_changed_plan_is_refused(
    reference_folder: Path, tmp_path: Path, tiny_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out"
    shutil.copytree(reference_folder, out)
    before = {p: p.read_bytes() for p in out.rglob("*.png")}
    tiny_plan["train"]["pairs"], tiny_plan["seed"] = 2, 5
    file = write_plan(tmp_path / "plan.toml", tiny_plan)
    assert run(["synth", "run", str(file), "--out", str(out)]) == 2
    message = refusal(capsys)
    assert "seed: 3 -> 5; train.pairs: 6 -> 2" in message
    assert "--replan" in message
    assert {p: p.read_bytes() for p in out.rglob("*.png")} == before
    assert run(["synth", "run", str(file), "--out", str(out), "--replan"]) == 0
    assert "train: 2 of 2 pairs" in capsys.readouterr().out
    listed = {out / f["path"] for _, status, _, r in items(out) if status == "done" for f in r["files"].values()}
    assert set(out.rglob("*_c/*/*.png")) == listed  # nothing of the old plan is left among the pictures
    assert run(["synth", "verify", str(out)]) == 0


def test_photographs_that_are_gone_are_refused_or_forgotten(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out"
    command = ["synth", "run", str(write_plan(tmp_path / "plan.toml", photo_plan)), "--out", str(out)]
    assert run([*command, "--limit", "1"]) == 0
    (photos / "p0.png").unlink()
    assert run(command) == 2
    assert "p0.png is gone" in refusal(capsys)
    assert run([*command, "--replan"]) == 0
    every = [(one, record) for one, _, _, record in items(out)]
    assert [one for one, _ in every if one.startswith("train")] == [pair_id("train", k) for k in range(9)]
    assert "p0.png" not in {record.get("source") for _, record in every}
    assert run(["synth", "verify", str(out)]) == 0


def test_folders_that_were_moved(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    """A data set goes on wherever it and its photographs lie, if they are the same, and tells nobody where they lay."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    photos.rename(old / "photos")
    photo_plan["sources"] = [{"kind": "rgb", "folder": "photos"}]  # from the plan's file
    write_plan(old / "plan.toml", photo_plan)

    def go_on(folder: Path, *more: str) -> int:
        return run(["synth", "run", str(folder / "plan.toml"), "--out", str(folder / "sets" / "out"), *more])

    assert go_on(old, "--limit", "2") == 0
    old.rename(new)
    out = new / "sets" / "out"
    done = {p: p.read_bytes() for p in out.rglob("*_c/*/*.png")}
    assert len(done) == 4
    # One pair again, before and without a run that goes on.
    pair = json.loads((out / "pairs.jsonl").read_text().splitlines()[0])["id"]
    assert show_pair(out, pair).same
    # Another photograph under the name of one that was drawn from, then the right one again.
    capsys.readouterr()
    right = (new / "photos" / "p0.png").read_bytes()
    write_photo(new / "photos", "p0", 99)
    (new / "photos").rename(new / "pictures")
    photo_plan["sources"] = [{"kind": "rgb", "folder": "pictures"}]
    write_plan(new / "plan.toml", photo_plan)
    assert go_on(new) == 2
    assert "lie elsewhere than when this folder was begun, and p0.png is another one there" in refusal(capsys)
    assert go_on(new) == 2  # not taken for looked at
    capsys.readouterr()
    (new / "pictures" / "p0.png").write_bytes(right)
    shown = ["synth", "show", str(out), pair, "--out", str(tmp_path / "pair.png")]
    assert run(shown) == 2
    assert "photos is not a folder: if its files lie elsewhere now, give the plan (--plan)" in refusal(capsys)
    assert run([*shown, "--plan", str(new / "plan.toml")]) == 0
    assert go_on(new) == 0
    assert {p: p.read_bytes() for p in done} == done
    assert run(["synth", "verify", str(out)]) == 0
    with Ledger(out / LEDGER) as ledger:
        ledger.take("broken", [Outcome("train-000900", "failed", f"{new}/pictures/more/p9.png: cannot be decoded")])
    assert run(["synth", "report", str(out)]) == 0
    assert ">more/p9.png: cannot be decoded<" in (out / "report.html").read_text()
    published = json.loads((out / "plan.json").read_text())
    assert published["plan"]["sources"][0]["folder"] == "../../pictures"
    for name in ("plan.json", "README.md", "pairs.jsonl", "report.html"):
        assert str(tmp_path) not in (out / name).read_text()
    (out / LEDGER).unlink()  # as it is passed on
    assert show_pair(out, pair).same
    # A plan that differs in more is another.
    write_plan(new / "plan.toml", photo_plan | {"seed": 5})
    assert run([*shown, "--plan", str(new / "plan.toml")]) == 2
    assert "was made by another plan than the given one (seed: 3 -> 5)" in refusal(capsys)


def test_photographs_changed_in_their_place(
    tmp_path: Path, photos: Path, photo_plan: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    """A run that has begun cannot go on with them, and says what to do; `--replan` does it, and only where needed."""
    file, out = write_plan(tmp_path / "plan.toml", photo_plan | {"psf": {"kind": "disk"}}), tmp_path / "out"
    command = ["synth", "run", str(file), "--out", str(out)]
    assert run([*command, "--limit", "1"]) == 0
    first = [record["source_sha256"] for _, status, _, record in items(out) if status == "done"]
    assert run([*command, "--limit", "1", "--replan"]) == 0  # nothing has changed: nothing is made anew
    assert [record["source_sha256"] for _, status, _, record in items(out) if status == "done"] == first
    for k in range(6):
        write_photo(photos, f"p{k}", 100 + k)
    capsys.readouterr()
    assert run(command) == 2
    message = refusal(capsys)
    assert "is not the one that it was planned with; what is finished is safe" in message
    assert "--replan" in message
    assert run([*command, "--replan"]) == 0
    assert "train: 6 of 6 pairs" in capsys.readouterr().out
    assert not {record["source_sha256"] for _, _, _, record in items(out) if record} & set(first)
    assert run(["synth", "verify", str(out)]) == 0


# --- other commands ---


def test_what_the_other_commands_refuse(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for command in ("verify", "report"):
        assert run(["synth", command, str(tmp_path / "none")]) == 2
        assert str(tmp_path / "none") in refusal(capsys)
    assert run(["synth", "show", str(tmp_path), "train-000000"]) == 2
    assert "no data set" in refusal(capsys)
    assert run(["synth", "run", "x.toml", "--out", str(tmp_path / "o"), "--engine", "cloud"]) == 2
    refusal(capsys)
    assert run(["synth", "run", "x.toml", "--out", str(tmp_path / "o"), "--workers", "0"]) == 2
    assert "workers" in refusal(capsys)
