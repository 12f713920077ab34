"""Readers of test sets: what they find, what they miss, and what they say of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus.errors import DatasetError, PhotoError
from defocus.evaluate import test_sets
from defocus.evaluate.images import FileImage
from defocus.evaluate.test_sets import FACTS, TestImage, open_test_set, unique_ids
from defocus.files.pair_folders import find_pairs

from ..synth.fake_folder import fake_folder


def picture(path: Path, size: tuple[int, int] = (40, 32), seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(values).save(path)
    return path


def few(monkeypatch: pytest.MonkeyPatch, kind: str, count: int, size: tuple[int, int] = (40, 32)) -> None:
    """A data set that should hold only so many."""
    facts = dataclasses.replace(FACTS[kind], counts={"test": count}, size=size)
    monkeypatch.setitem(test_sets.FACTS, kind, facts)


@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("dpdd", ("test_c/source", "test_c/target")),
        ("realdof", ("source", "target")),
        ("rtf", ("input", "ground_truth")),
        ("lfdof", ("test_data/input", "test_data/ground_truth")),
        ("syndof", ("image", "sharp")),
    ],
)
def test_published_sets(kind: str, sides: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, kind, 3)
    for n in range(3):
        for seed, side in enumerate(sides):
            picture(tmp_path / side / f"{n}.png", seed=seed + 2 * n)
    found = open_test_set(kind, tmp_path)  # type: ignore[arg-type]
    assert (found.name, found.notes, found.has_truth) == (FACTS[kind].title, (), True)
    assert [image.id for image in found.images] == ["0", "1", "2"]
    for image in found.images:
        assert isinstance(image.input, FileImage)
        assert image.truth is not None
        assert image.input.path == tmp_path / sides[0] / f"{image.id}.png"
        assert image.truth.place == str(tmp_path / sides[1] / f"{image.id}.png")
    limited = open_test_set(kind, tmp_path, limit=2)  # type: ignore[arg-type]
    assert [image.id for image in limited.images] == ["0", "1"]
    assert limited.notes == ("2 of 3 pictures, evenly spread",)


def test_rtf_as_it_is_distributed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides in one folder, told apart by how their names begin."""
    few(monkeypatch, "rtf", 2)
    for n in range(2):
        for seed, side in enumerate(("image", "sharp")):
            picture(tmp_path / f"{side}_{n:02d}.bmp", seed=seed + 2 * n)
    images = open_test_set("rtf", tmp_path).images
    assert [image.id for image in images] == ["00", "01"]
    assert [Path(image.input.place).name for image in images] == ["image_00.bmp", "image_01.bmp"]
    assert [Path(image.truth.place).name for image in images if image.truth] == ["sharp_00.bmp", "sharp_01.bmp"]
    (tmp_path / "sharp_01.bmp").unlink()
    with pytest.raises(DatasetError, match=r"1 without a sharp one \(01\)"):
        open_test_set("rtf", tmp_path)


def test_folders_of_image_and_sharp_are_training_pairs(tmp_path: Path) -> None:
    """SYNDOF and others like it have no splits: whatever is asked for is all of them."""
    for side in ("image", "sharp"):
        picture(tmp_path / side / "a.png")
    _, pairs = find_pairs(tmp_path, "train")
    assert [pair.pictures["sharp"].path for pair in pairs] == ["sharp/a.png"]


def test_pictures_at_half_their_size(tmp_path: Path) -> None:
    """Means of 2×2 pixels, as the paper has photographs of a phone."""
    file = picture(tmp_path / "a.png", (41, 32))
    test = open_test_set("photographs", tmp_path, reduce=2)
    assert test.notes == ("pictures at 1/2 of their size",)
    image = test.images[0].input
    assert image.size() == (20, 16)
    whole = np.asarray(Image.open(file), np.float64)[:, :40] / 255.0
    np.testing.assert_allclose(image.read(), whole.reshape(16, 2, 20, 2, 3).mean((1, 3)), atol=1e-6)
    assert image.digest() != FileImage(file).digest()


def test_the_published_numbers() -> None:
    counts = {kind: facts.counts["test"] for kind, facts in FACTS.items()}
    assert counts == {"dpdd": 76, "realdof": 50, "rtf": 22, "lfdof": 725, "syndof": 8231}


def names(images: tuple[TestImage, ...]) -> list[tuple[str, str]]:
    return [(image.id, Path(image.truth.place).stem) for image in images if image.truth is not None]


def test_pairs_by_order_as_in_dpdd_and_several_of_one_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, "dpdd", 2)
    for n in (3, 9):
        picture(tmp_path / "a/test_c/source" / f"1P0A{n:04d}.png")
        picture(tmp_path / "a/test_c/target" / f"1P0A{n - 1:04d}.png")
    pairs = open_test_set("dpdd", tmp_path / "a").images
    assert names(pairs) == [("1P0A0003", "1P0A0002"), ("1P0A0009", "1P0A0008")]
    few(monkeypatch, "lfdof", 3)
    for name in ("IMG_1/7", "IMG_1/8", "IMG_22_3"):
        picture(tmp_path / "b/input" / f"{name}.png")
    for name in ("IMG_1", "IMG_22"):
        picture(tmp_path / "b/ground_truth" / f"{name}.png")
    images = open_test_set("lfdof", tmp_path / "b").images
    assert names(images) == [("7", "IMG_1"), ("8", "IMG_1"), ("IMG_22_3", "IMG_22")]


def test_counts_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for side in ("source", "target"):
        picture(tmp_path / "test_c" / side / "a.png")
    with pytest.raises(DatasetError, match=r"1 pairs; DPDD has 76 for testing: complete it .*partial = true"):
        open_test_set("dpdd", tmp_path)
    found = open_test_set("dpdd", tmp_path, partial=True)
    assert found.notes[0] == "1 pairs; DPDD has 76 for testing"
    assert "such as a of 40×32, do not have the 1680×1120 pixels" in found.notes[1]
    few(monkeypatch, "dpdd", 1, size=(80, 60))
    with pytest.raises(DatasetError, match="were they resized"):
        open_test_set("dpdd", tmp_path)
    few(monkeypatch, "dpdd", 1, size=(32, 40))  # upright
    assert open_test_set("dpdd", tmp_path).notes == ()
    few(monkeypatch, "realdof", 1)
    for side in ("source", "target"):
        picture(tmp_path / "r" / side / "a.png", (50, 32))
    assert "as far as we know" in open_test_set("realdof", tmp_path / "r").notes[0]


def test_what_is_not_paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, "rtf", 2)
    for name in ("a", "b"):
        picture(tmp_path / "source" / f"{name}.png")
    with pytest.raises(DatasetError, match="there is no folder target or ground_truth or gt"):
        open_test_set("rtf", tmp_path)
    for name in ("a", "c", "d"):
        picture(tmp_path / "target" / f"{name}.png")
    with pytest.raises(
        DatasetError, match=r"1 without a sharp one \(b\) and 2 sharp ones without a blurred one \(c, d\)"
    ):
        open_test_set("rtf", tmp_path)
    for name in ("c", "d"):
        (tmp_path / "target" / f"{name}.png").unlink()
    picture(tmp_path / "target" / "b.png", (40, 31))
    with pytest.raises(DatasetError, match=r"source/b.png: input and truth have 40×32 and 40×31 pixels"):
        open_test_set("rtf", tmp_path)
    picture(tmp_path / "target" / "b.png")
    picture(tmp_path / "target" / "b.jpg")
    with pytest.raises(DatasetError, match="same name but for its ending"):
        open_test_set("rtf", tmp_path)
    with pytest.raises(DatasetError, match=r"no pairs of RealDOF .* expected source and target"):
        open_test_set("realdof", tmp_path / "source")
    with pytest.raises(DatasetError, match="there is no such folder"):
        open_test_set("rtf", tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="known are dpdd"):
        open_test_set("dpd", tmp_path)  # type: ignore[arg-type]


def test_a_damaged_file_is_left_for_the_run_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, "rtf", 2)
    for side in ("source", "target"):
        for name in ("a", "b"):
            picture(tmp_path / side / f"{name}.png")
    (tmp_path / "source/b.png").write_bytes(b"no picture")
    found = open_test_set("rtf", tmp_path)
    assert [image.id for image in found.images] == ["a", "b"]
    with pytest.raises(PhotoError, match=r"b\.png: cannot be decoded"):
        found.images[1].input.size()


@pytest.mark.parametrize("layout", ["dpdd", "webdataset"])
def test_our_own_folders(layout: str, tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "pairs", layout, pairs=(1, 1, 3), side=32)
    found = open_test_set("pairs", folder)
    assert len(found.images) == 3
    for image in found.images:
        assert image.blur_px is not None
        assert 0.0 < image.blur_px <= 20.0
        assert image.truth is not None
        assert image.input.read().shape == image.truth.read().shape == (32, 32, 3)
        assert image.input.read().dtype == np.float32
        assert image.input.digest() != image.truth.digest()
        assert image.input.size() == (32, 32)
    with pytest.raises(DatasetError, match="the split 'tests'"):
        open_test_set("pairs", folder, split="tests")


def test_pairs_that_others_made_are_measured_by_their_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for side in ("input", "target"):
        for name in ("a", "b"):
            picture(tmp_path / side / f"{name}.png")
    assert len(open_test_set("pairs", tmp_path).images) == 2
    picture(tmp_path / "target" / "b.png", (32, 40))
    monkeypatch.setattr("defocus.files.pictures.decode_picture", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DatasetError, match=r"input/b.png: input and truth have 40×32 and 32×40 pixels"):
        open_test_set("pairs", tmp_path)
    (tmp_path / "target" / "b.png").write_bytes(b"no picture")  # left for the run to tell
    assert len(open_test_set("pairs", tmp_path).images) == 2


def test_photographs_without_a_truth(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "day" / "b.jpg")
    picture(tmp_path / ".hidden" / "c.png")
    found = open_test_set("photographs", tmp_path, name="Phone")
    assert [image.id for image in found.images] == ["a", "b"]
    assert not found.has_truth
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="no photographs here"):
        open_test_set("photographs", tmp_path / "empty")
    assert unique_ids(["x/a", "y/a"]) == ["x__a", "y__a"]
