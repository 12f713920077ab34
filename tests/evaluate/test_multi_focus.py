"""Scenes photographed twice, focused differently: registration, masks, measures within them, and tables."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from defocus.cli import run
from defocus.errors import DatasetError, DefocusError
from defocus.evaluate.evaluation import evaluate_table
from defocus.evaluate.measures import KINDS, make_measure
from defocus.evaluate.multi_focus import LEAST_PIXELS, MARGIN_PX, MultiFocusTruth, find_scenes
from defocus.evaluate.registration import Similarity, warped
from defocus.evaluate.results import PictureRecord, Results
from defocus.evaluate.table_file import EvaluationTable, load_table
from defocus.evaluate.test_sets import TestImage, find_real_pairs, open_test_set
from defocus.restore.perceptual import Lpips

torch.set_num_threads(1)
ROWS, COLS = 192, 288
LEFT, RIGHT = 96, 192  # columns: the first picture is sharp up to the second, the other from the first on
MOVE = Similarity(2.3, -1.4, 0.004, 0.006)  # of the second picture
LIGHT = np.array([0.9, 0.93, 0.96], np.float32)
SOFT_PX = 4.0


def sharp_scene(seed: int) -> np.ndarray:
    """Texture of several sizes, the finest of which a spline interpolates well."""
    random = np.random.default_rng(seed)
    layers = [gaussian_filter(random.standard_normal((ROWS, COLS, 3)), (s, s, 0)) for s in (0.9, 2.0, 6.0)]
    return (0.5 + 0.09 * sum(layer / layer.std() for layer in layers)).clip(0.02, 0.98).astype(np.float32)


def focused(sharp: np.ndarray, first: int, last: int) -> np.ndarray:
    """The scene with some columns in focus."""
    columns = np.arange(COLS)[None, :, None]
    return np.where((columns >= first) & (columns < last), sharp, gaussian_filter(sharp, (SOFT_PX, SOFT_PX, 0)))


def save(path: Path, picture: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((255.0 * picture.clip(0.0, 1.0) + 0.5).astype(np.uint8)).save(path)


def save_scene(folder: Path, name: str, seed: int) -> None:
    """Two pictures: one focused on the left, and one on the right that is moved and darker."""
    sharp = sharp_scene(seed)
    save(folder / f"{name}_1.png", focused(sharp, 0, RIGHT))
    save(folder / f"{name}_2.png", LIGHT * warped(focused(sharp, LEFT, COLS), MOVE))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("multi-focus") / "photos"
    save_scene(folder, "table", 1)
    return folder


@pytest.fixture(scope="module")
def first(photos: Path) -> TestImage:
    """The picture that is blurred on the right, with its truth."""
    return open_test_set("multi_focus", photos, limit=1).images[0]


def truth_of(picture: TestImage) -> MultiFocusTruth:
    assert isinstance(picture.truth, MultiFocusTruth)
    return picture.truth


def test_pictures_by_scene_and_number() -> None:
    names = ["a/pcb_10", "a/pcb_9", "b/pcb_1", "b/fused", "b/c_01_2", "b/c_01_1"]
    assert find_scenes(names) == {
        "a/pcb": ["a/pcb_9", "a/pcb_10"],
        "b/pcb": ["b/pcb_1"],
        "b/c_01": ["b/c_01_1", "b/c_01_2"],
    }


def test_the_other_picture_is_laid_on_this_one(first: TestImage) -> None:
    """Shift, rotation and scale are those that the second picture was moved by, undone."""
    (similarity,) = truth_of(first).fit.similarities
    assert similarity is not None
    assert [similarity.right_px, similarity.down_px] == pytest.approx([-MOVE.right_px, -MOVE.down_px], abs=0.03)
    assert [similarity.rotation, similarity.scale] == pytest.approx([-MOVE.rotation, -MOVE.scale], abs=2e-4)
    assert truth_of(first).moved_px == pytest.approx(3.9, abs=0.3)
    assert truth_of(first).fit.gains == pytest.approx(1.0 / LIGHT, rel=0.01)


def test_the_mask_lies_where_this_picture_is_blurred(first: TestImage) -> None:
    mask = first.mask
    assert mask is not None
    assert mask.shape == (ROWS, COLS)
    assert not mask[:, : RIGHT + MARGIN_PX].any(), "there this picture is sharp"
    assert not mask[:MARGIN_PX].any()
    inner = mask[2 * MARGIN_PX : -2 * MARGIN_PX, RIGHT + 3 * MARGIN_PX : -2 * MARGIN_PX]
    assert inner.mean() > 0.95
    assert truth_of(first).fit.pixels == mask.sum() > LEAST_PIXELS
    assert truth_of(first).share == pytest.approx(mask.mean())


def test_nothing_counts_that_the_other_picture_does_not_see(tmp_path: Path) -> None:
    """What lies beyond its edge is mirrored there, and no truth."""
    sharp = sharp_scene(1)
    save(tmp_path / "a_1.png", focused(sharp, 0, RIGHT))
    save(tmp_path / "a_2.png", warped(focused(sharp, LEFT, COLS), Similarity(15.0)))
    mask = open_test_set("multi_focus", tmp_path, limit=1).images[0].mask
    assert mask is not None
    assert np.flatnonzero(mask.any(0))[-1] in (COLS - 17, COLS - 16)


def test_a_perfect_restoration_reaches_the_ceiling(first: TestImage) -> None:
    """As far as both pictures agree where both are sharp; and what is wrong is told."""
    truth, mask, sharp = truth_of(first).read(), first.mask, sharp_scene(1)
    ceiling = truth_of(first).fit.both_sharp_db
    assert ceiling is not None
    pictures = {"perfect": sharp, "input": first.input.read(), "worse": gaussian_filter(sharp, (5.0, 5.0, 0.0))}
    for metric in ("psnr", "ssim", "ssim-rgb"):
        measure = make_measure(metric)
        values = {name: measure(picture, truth, mask) for name, picture in pictures.items()}
        assert values["perfect"] > values["input"] > values["worse"], metric
        if metric == "psnr":
            assert values["perfect"] == pytest.approx(ceiling, abs=1.5)
            assert values["perfect"] > values["input"] + 10.0
        else:
            assert values["perfect"] > 0.98


def test_pixels_outside_of_the_mask_do_not_matter(first: TestImage, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Lpips()
    for head in network.heads:
        head.weight.abs_()
    torch.save(network.state_dict(), tmp_path / "lpips.pt")
    truth, mask, image = truth_of(first).read(), first.mask, first.input.read()
    assert mask is not None
    other = np.where(mask[..., None], image, np.random.default_rng(0).random(image.shape, np.float32))
    inside = np.where(mask[..., None], truth, other)
    for metric in ("psnr", "ssim", "lpips"):
        measure = make_measure(metric, files={"lpips": tmp_path / "lpips.pt"}, device="cpu")
        value = measure(image, truth, mask)
        if metric != "ssim":  # whose windows reach 5 pixels beyond
            assert measure(other, truth, mask) == pytest.approx(value, rel=1e-5), metric
            assert measure(inside, truth, mask) == (np.inf if metric == "psnr" else 0.0)
        assert measure(other, truth) != pytest.approx(value, rel=0.01)
    with pytest.raises(DefocusError, match="is of whole pictures, and has no value within a mask"):
        replace(make_measure("psnr"), kind=KINDS["niqe"])(image, truth, mask)
    pair = [torch.from_numpy(one.transpose(2, 0, 1)[None].copy()) for one in (image, truth)]
    whole = network.within(*pair, torch.ones(ROWS, COLS, dtype=torch.bool))
    with pytest.raises(DefocusError, match="LPIPS needs two alike"):
        network.within(pair[0][..., :100], pair[1], torch.from_numpy(mask))
    assert float(whole) == pytest.approx(float(network(*pair)), rel=0.05), "interpolation weighs edges differently"


def test_pictures_at_half_their_size(photos: Path, first: TestImage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered at that size, not afterwards."""
    monkeypatch.setattr("defocus.evaluate.multi_focus.LEAST_PIXELS", 500)
    half = open_test_set("multi_focus", photos, limit=1, reduce=2)
    mask, (similarity,) = half.images[0].mask, truth_of(half.images[0]).fit.similarities
    assert mask is not None
    assert similarity is not None
    assert similarity.right_px == pytest.approx(-MOVE.right_px / 2.0, abs=0.1)
    assert half.notes[1] == "pictures at 1/2 of their size"
    assert mask.shape == half.images[0].input.read().shape[:2] == (ROWS // 2, COLS // 2)
    assert not mask[:, : RIGHT // 2].any()
    assert truth_of(half.images[0]).digest() != truth_of(first).digest()


def test_folders_that_hold_no_test_set(tmp_path: Path) -> None:
    sharp, soft = sharp_scene(2), gaussian_filter(sharp_scene(2), (SOFT_PX, SOFT_PX, 0))

    def message(name: str, **pictures: np.ndarray) -> str:
        for stem, picture in pictures.items():
            save(tmp_path / name / f"{stem}.png", picture)
        with pytest.raises(DatasetError) as caught:
            open_test_set("multi_focus", tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        return str(caught.value)

    assert "no scene with two pictures here: expected" in message("unnumbered", a=soft, b=soft)
    assert "(a_1, b_1 alone in a scene): expected pictures of one scene" in message("alone", a_1=soft, b_1=soft)
    different = message("different", a_1=sharp, a_2=sharp_scene(3))
    assert "(left out, no other picture of the scene lies on it: a_1, a_2): expected" in different
    assert "fewer than 2,000 pixels are blurred where another picture is sharp: a_1, a_2" in message(
        "same", a_1=sharp, a_2=sharp
    )
    assert "288×192 and 280×192 pixels" in message("sizes", a_1=sharp, a_2=sharp[:, :280])
    with pytest.raises(DatasetError, match="truths for parts of them alone"):
        find_real_pairs(tmp_path / "same", kind="multi_focus")


def test_a_file_that_cannot_be_read_costs_its_neighbours_alone(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    sharp = sharp_scene(4)
    save(tmp_path / "photos" / "board_1.png", sharp)
    save(tmp_path / "photos" / "board_2.png", sharp)
    damaged = tmp_path / "photos" / "board_2.png"
    damaged.write_bytes(damaged.read_bytes()[:-4000])
    found = open_test_set("multi_focus", tmp_path / "photos")
    assert [image.id for image in found.images] == ["table_1", "table_2"]
    (note,) = (note for note in found.notes if note.startswith("left out"))
    assert note.startswith(f"left out, {damaged}: ")
    assert note.endswith(": board_1, board_2")


TABLE = """
title = "Trial"
metrics = ["psnr", "ssim", "niqe"]
bootstrap = 200
figures = 1

[[rows]]
kind = "input"

[[rows]]
kind = "folder"
name = "Perfect"
folder = "perfect"

[[rows]]
kind = "folder"
name = "Worse"
folder = "worse"

[[tests]]
name = "Twice"
kind = "multi_focus"
folder = "photos"

[files]
niqe = "niqe.npz"
"""


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_scene(tmp_path / "photos", "table", 1)
    save(tmp_path / "photos" / "fused.png", sharp_scene(1))
    save(tmp_path / "perfect" / "table_1.png", sharp_scene(1))
    save(tmp_path / "perfect" / "table_2.png", LIGHT * warped(sharp_scene(1), MOVE))
    for number in (1, 2):
        save(tmp_path / "worse" / f"table_{number}.png", np.full((ROWS, COLS, 3), 0.5, np.float32))
    np.savez(tmp_path / "niqe.npz", mu_pris_param=np.zeros((1, 36)), cov_pris_param=np.eye(36))
    table = tmp_path / "table.toml"
    table.write_text(TABLE)
    assert run(["evaluate", str(table), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "Twice: left out, no number at the end of the name: fused" in printed
    assert "Twice: 2 pictures of 1 scene, measured where they are blurred and another picture of the scene" in printed
    assert "Twice: where both pictures are equally sharp, PSNR is " in printed
    assert "Twice: of whole pictures alone, so not measured here: NIQE" in printed

    text = (tmp_path / "out/results.md").read_text()
    assert "Means with 95 % intervals (bootstrap over scenes):" in text
    assert "Fewer than 5 scenes are too few for an interval." in text
    rows = list(csv.DictReader((tmp_path / "out/images.csv").read_text().splitlines()))
    assert {(row["image"], row["scene"], row["niqe"]) for row in rows} == {
        ("table_1", "table", ""),
        ("table_2", "table", ""),
    }
    psnr = {(row["row"], row["image"]): float(row["psnr"]) for row in rows}
    for name in ("table_1", "table_2"):
        assert psnr["perfect", name] > 10.0 + psnr["input", name] > 10.0 + psnr["worse", name]
    gains = [psnr["perfect", name] - psnr["input", name] for name in ("table_1", "table_2")]
    of_rows = json.loads((tmp_path / "out/summary.json").read_text())["tests"]["twice"]["rows"]
    assert "gain" not in of_rows["input"]
    assert of_rows["perfect"]["gain"]["psnr"]["mean"] == pytest.approx(np.mean(gains))
    _, _, gain_table = text.partition("Gain over Input, of the same pictures")
    assert f"| Perfect | +{np.mean(gains):.2f} |" in gain_table
    (figure,) = (tmp_path / "out/figures").iterdir()
    assert figure.name in ("twice-table-1.png", "twice-table-2.png")

    # Values that were measured stay; another truth is another value.
    measured = (tmp_path / "out/measured.jsonl").read_text()
    results = evaluate_table(load_table(table), tmp_path / "out")
    assert (tmp_path / "out/measured.jsonl").read_text() == measured
    assert results.values("twice", "psnr")["input"]["table_1"] == psnr["input", "table_1"]

    table.write_text(TABLE.replace('"psnr", "ssim", ', ""))
    assert run(["evaluate", str(table), "--out", str(tmp_path / "other")]) == 2
    assert "every measure is of whole ones; add psnr, ssim or lpips" in capsys.readouterr().err


def results_of(scenes: list[str | None], gains: np.ndarray) -> Results:
    """Pictures that one row has better by so much than the input."""
    rows = [{"kind": "input"}, {"kind": "folder", "name": "Net", "folder": "x"}]
    table = EvaluationTable(rows=rows, tests=[{"kind": "multi_focus", "folder": "t"}], metrics=("psnr",))  # type: ignore[arg-type]
    records = [
        PictureRecord("t", row, f"{number:02d}", None, {"psnr": 20.0 + (gain if row == "net" else 0.0)}, scene)
        for row in ("input", "net")
        for number, (scene, gain) in enumerate(zip(scenes, gains, strict=True))
    ]
    return Results(table, tuple(records))


def test_intervals_are_over_scenes() -> None:
    """Ten copies of a picture are no more evidence than one."""
    gains = np.random.default_rng(4).normal(1.0, 0.5, 8)
    single = results_of([None] * 8, gains).means("t", "psnr", minus="input")["net"]
    copies = results_of([f"s{n // 10}" for n in range(80)], np.repeat(gains, 10)).means("t", "psnr", minus="input")[
        "net"
    ]
    assert (single.samples, single.count, copies.samples, copies.count) == (8, 8, 8, 80)
    assert copies.value == pytest.approx(single.value)
    assert single.interval is not None
    assert copies.interval == pytest.approx(single.interval, abs=1e-5)
    # A scene of many pictures has all of them in a draw, or none.
    uneven = results_of(["s0"] * 40 + [f"s{n}" for n in range(1, 8)], np.repeat(gains, [40] + [1] * 7))
    mean = uneven.means("t", "psnr", minus="input")["net"]
    assert mean.value == pytest.approx((40.0 * gains[0] + gains[1:].sum()) / 47.0)
    assert mean.interval is not None
    assert mean.interval[0] < mean.value < mean.interval[1]
    assert mean.samples == 8
    assert results_of(["a", "a", "b", "b", "c"], gains[:5]).means("t", "psnr")["net"].interval is None
