"""Which pictures of a folder belong together."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus.errors import DatasetError
from defocus.files.pair_folders import (
    PairReader,
    PictureFile,
    find_pairs,
    find_sides,
    match_names,
    read_lines,
    shard_index,
)
from defocus.files.stores import open_store


def picture(path: Path, size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).save(path)


@pytest.mark.parametrize(
    ("blurred", "sharp", "pairs"),
    [
        (["a", "b"], ["a", "b"], [("a", "a"), ("b", "b")]),
        (["1P03", "1P09"], ["1P02", "1P08"], [("1P03", "1P02"), ("1P09", "1P08")]),
        (["I/7", "I/8", "K_2_3"], ["I", "K_2"], [("I/7", "I"), ("I/8", "I"), ("K_2_3", "K_2")]),
    ],
)
def test_names_that_belong_together(blurred: list[str], sharp: list[str], pairs: list[tuple[str, str]]) -> None:
    matching = match_names(blurred, sharp)
    assert (matching.pairs, matching.blurred_alone, matching.sharp_alone) == (pairs, [], [])


def test_names_that_belong_to_none() -> None:
    matching = match_names(["a", "b", "c"], ["a", "d", "e"])
    assert (matching.pairs, matching.blurred_alone, matching.sharp_alone) == ([("a", "a")], ["b", "c"], ["d", "e"])
    assert match_names(["a", "b"], ["c"]).pairs == []


@pytest.mark.parametrize(
    ("blurred", "sharp"),
    [
        ("train_c/source", "train_c/target"),
        ("train/input", "train/target"),
        ("data/train/blur", "data/train/sharp"),
        ("train/image", "train/sharp"),
        ("input", "gt"),
        ("source", "ground_truth"),
    ],
)
def test_layouts_of_others(blurred: str, sharp: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture(tmp_path / blurred / f"{name}.png")
        picture(tmp_path / sharp / f"{name}.jpg")
    _, pairs = find_pairs(tmp_path, "train")
    assert [pair.id for pair in pairs] == [f"{blurred}/a", f"{blurred}/b"]
    assert pairs[1].pictures == {
        "blurred": PictureFile(f"{blurred}/b.png"),
        "sharp": PictureFile(f"{sharp}/b.jpg"),
    }
    if "train" in blurred:
        with pytest.raises(DatasetError, match="no pairs of the split 'test'"):
            find_pairs(tmp_path, "test")


def test_views_of_dual_pixels(tmp_path: Path) -> None:
    for folder in ("train_c/source", "train_c/target", "train_l/source", "train_r/source"):
        picture(tmp_path / "dpdd" / folder / "a.png")
    (pair,) = find_pairs(tmp_path / "dpdd", "train")[1]
    assert {role: file.path for role, file in pair.pictures.items()} == {
        "blurred": "train_c/source/a.png",
        "sharp": "train_c/target/a.png",
        "left": "train_l/source/a.png",
        "right": "train_r/source/a.png",
    }
    sides = find_sides(open_store(tmp_path / "dpdd"), eyes=True)
    assert [(side.blurred, side.sharp) for side in sides] == [
        (f"train_{eye}/source", "train_c/target") for eye in ("c", "l", "r")
    ]
    for folder in ("input", "target", "left", "right"):
        picture(tmp_path / "pairs" / "train" / folder / "a.png")
    (pair,) = find_pairs(tmp_path / "pairs", "train")[1]
    assert sorted(pair.pictures) == ["blurred", "left", "right", "sharp"]


def test_sides_that_are_missing_are_named(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "input" / "a.png")
    with pytest.raises(DatasetError, match="train/input: there is no folder train/target"):
        find_pairs(tmp_path, "train")
    picture(tmp_path / "train" / "target" / "a.png")
    picture(tmp_path / "train" / "target" / "b.png")
    with pytest.raises(DatasetError, match=r"train/input: 1 pictures, but 2 sharp ones; .*\(b\)"):
        find_pairs(tmp_path, "train")
    picture(tmp_path / "images" / "c.png")  # a folder of anything
    assert [side.blurred for side in find_sides(open_store(tmp_path))] == ["train/input"]


# --- records and shards that are damaged or meant to do harm ---


def recorded(folder: Path, **about: object) -> None:
    """A data set of one pair that is read by its lines."""
    folder.mkdir(exist_ok=True)
    files = {role: {"path": f"{role}.png", "sha256": "0" * 64, "bytes": 3} | about for role in ("blurred", "sharp")}
    (folder / "plan.json").write_text("{}")
    (folder / "pairs.jsonl").write_text(json.dumps({"id": "train-000000", "split": "train", "files": files}) + "\n")


@pytest.mark.parametrize("member", ["", "000000.blurred.png"])
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd"])
def test_paths_of_records_stay_within_the_folder(path: str, member: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "secret", "w") as tar:
        tar.addfile(tarfile.TarInfo("000000.blurred.png"))
    recorded(tmp_path / "set", path=path, **({"member": member} if member else {}))
    store, (pair,) = find_pairs(tmp_path / "set", "train")
    for look in (PairReader(store).read, PairReader(store).size):
        with pytest.raises(DatasetError, match="not a path within a data set"):
            look(pair.pictures["blurred"])


@pytest.mark.parametrize(
    "line", ["[]", "{", '{"id": 3}', '{"id": "a", "split": "train", "files": {"sharp": {"path": 5}}}', "[" * 100_000]
)
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    recorded(tmp_path / "set")
    with (tmp_path / "set" / "pairs.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DatasetError, match=r"set/pairs\.jsonl: line 2 is "):
        find_pairs(tmp_path / "set", "train")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_a_shard_that_promises_more_than_it_holds(kind: bytes, tmp_path: Path) -> None:
    """Two kilobytes that say they are terabytes are read as two kilobytes."""
    info = tarfile.TarInfo("000000.blurred.png")
    info.type, info.size = kind, 2**40
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1536))
    with pytest.raises(DatasetError, match=r"a\.tar: the shard cannot be read: "):
        shard_index(open_store(tmp_path), "a.tar")


def test_lines_without_end_are_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "set")
    os.truncate(tmp_path / "set" / "pairs.jsonl", 2**36)  # a hole, which takes no room on the disk
    with pytest.raises(DatasetError, match="line 2 is no JSON"):
        list(read_lines(open_store(tmp_path / "set")))
