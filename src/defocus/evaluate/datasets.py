"""Readers of the test sets: DPDD, RealDOF, RTF, LFDOF, SYNDOF, folders of our own, and photographs without a truth.

Each says what it found against what the set should hold. Counts: DPDD 76 (Abuolaim and Brown, 2020), RealDOF 50 (Lee et
al., 2021), RTF 22 (D'Andrès et al., 2016), LFDOF 725 for testing (Ruan et al., 2021), SYNDOF 8,231 without a published
split (Lee et al., 2019). Another count is an error unless the table says `partial = true`; what we are not certain of
(some sizes, and SYNDOF's count) is told and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import DatasetError
from ..files.pictures import PICTURES
from ..files.stores import open_store
from ..restore.pair_files import SPLITS, PairReader, Picture, find_pairs
from ..synth.folder import is_pair_folder, open_folder
from .pictures import FileImage, StoredImage, TestImage, TestSet, check_sizes, unique_ids

TestKind = Literal["dpdd", "realdof", "rtf", "lfdof", "syndof", "pairs", "photographs"]
BLURRED = ("source", "input", "blur", "blurred", "image", "images", "defocused")
SHARP = ("target", "ground_truth", "gt", "sharp", "truth", "all_in_focus", "image_sharp")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a data set should hold, and how its folder looks."""

    title: str
    arrange: str
    parents: tuple[str, ...] = ("",)  # where its two folders may lie, with {split} for the split's names
    counts: Mapping[str, int] = field(default_factory=dict)  # by split
    certain: bool = True  # whether another count is an error
    size: tuple[int, int] | None = None  # width and height, either way up
    size_certain: bool = False


FACTS: dict[str, Facts] = {
    "dpdd": Facts(
        "DPDD",
        "test_c/source and test_c/target, as the archive dd_dp_dataset_png holds them",
        ("{split}_c", "", "dd_dp_dataset_png/{split}_c", "dd_dp_dataset_canon/{split}_c"),
        {"test": 76, "validation": 74, "train": 350},
        size=(1680, 1120),
        size_certain=True,
    ),
    "realdof": Facts("RealDOF", "source and target", ("", "RealDOF", "test"), {"test": 50}, size=(2320, 1536)),
    "rtf": Facts("RTF", "source and target (or input and ground_truth)", ("", "test"), {"test": 22}, size=(360, 360)),
    "lfdof": Facts(
        "LFDOF",
        "test_data/input and test_data/ground_truth",
        ("{split}_data", "{split}", ""),
        {"test": 725, "train": 11_261},
        size=(1008, 688),
        size_certain=True,
    ),
    "syndof": Facts(
        "SYNDOF",
        "image (or input) with the defocused pictures and sharp (or target) with the pictures they were made from",
        ("{split}", ""),
        {"test": 8_231},
        certain=False,
    ),
}


def open_test_set(
    kind: TestKind,
    folder: str | Path,
    *,
    name: str | None = None,
    split: str = "test",
    partial: bool = False,
    limit: int | None = None,
) -> TestSet:
    """A test set, checked. `limit`: only so many pictures, evenly spread. Raises `DatasetError`."""
    if split not in SPLITS:
        raise DatasetError(f"the split {split!r}; expected {', '.join(SPLITS)}", file=folder)
    notes: list[str] = []
    if kind == "photographs":
        images = photographs(folder)
    elif kind == "pairs":
        images = own_pairs(folder, split)
    elif kind in FACTS:
        images = published_pairs(kind, folder, split)
        notes = _check_count(FACTS[kind], len(images), split, folder, partial)
    else:
        raise DatasetError(f"kind {kind!r}; known are {', '.join((*FACTS, 'pairs', 'photographs'))}", file=folder)
    if limit is not None and limit < len(images):
        notes.append(f"{limit} of {len(images)} pictures, evenly spread")
        images = [images[i * len(images) // limit] for i in range(limit)]
    if kind != "pairs" or _is_foreign(folder):  # both pictures of a pair that we made have one size
        sizes = check_sizes(tuple(images))
        if kind in FACTS:
            notes += _check_size(FACTS[kind], sizes, folder, partial)
    return TestSet(name or (FACTS[kind].title if kind in FACTS else kind), kind, tuple(images), tuple(notes))


def photographs(folder: str | Path) -> list[TestImage]:
    """All pictures of a folder, without a truth."""
    root = _existing(folder)
    by_name = _by_name(root)
    if not by_name:
        raise DatasetError(f"no photographs here ({', '.join(PICTURES)})", file=root)
    return [TestImage(i, FileImage(path)) for i, path in zip(unique_ids(list(by_name)), by_name.values(), strict=True)]


def own_pairs(folder: str | Path, split: str) -> list[TestImage]:
    """The pairs that `defocus synth run` made, with their blur; or those of a folder with input and target."""
    store, pairs = find_pairs(folder, split)
    blur: dict[str, float] = {}
    if is_pair_folder(store):
        opened = open_folder(folder)
        try:
            blur = {str(record["id"]): found for record in opened.records() if (found := _blur_px(record)) is not None}
        finally:
            opened.close()
    reader = PairReader(store)

    def stored(picture: Picture) -> StoredImage:
        whole_file = store.folder is not None and not picture.member
        return StoredImage(reader, picture, Path(store.place(picture.path)) if whole_file else None)

    ids = unique_ids([pair.id for pair in pairs])
    return [
        TestImage(name, stored(pair.pictures["blurred"]), stored(pair.pictures["sharp"]), blur.get(pair.id))
        for name, pair in zip(ids, pairs, strict=True)
    ]


def _is_foreign(folder: str | Path) -> bool:
    """Whether it is a folder of this machine with pairs that others made: their sizes stand in the files' headers."""
    store = open_store(folder)
    return store.folder is not None and not is_pair_folder(store)


def published_pairs(kind: str, folder: str | Path, split: str) -> list[TestImage]:
    """The pairs of a published set, in two folders as its authors call them, or as others do."""
    facts, root = FACTS[kind], _existing(folder)
    parents = [root / p.format(split=s) for p in facts.parents for s in SPLITS[split]]
    for parent in dict.fromkeys(parents):
        sides = [next((parent / n for n in names if (parent / n).is_dir()), None) for names in (BLURRED, SHARP)]
        if sides[0] is not None and sides[1] is not None:
            return pair_folders(sides[0], sides[1])
        if sides[0] is not None or sides[1] is not None:
            there = sides[0] or sides[1]
            other = " or ".join((SHARP if sides[0] is not None else BLURRED)[:3])
            raise DatasetError(f"beside it there is no folder {other}; {facts.title} is {facts.arrange}", file=there)
    raise DatasetError(f"no pairs of {facts.title} ({split}) here: expected {facts.arrange}", file=root)


def pair_folders(blurred: Path, sharp: Path) -> list[TestImage]:
    """Pairs by name; several blurred pictures of one sharp one by its name as their folder's or their beginning; by
    order where no names agree and there are as many, as in DPDD."""
    inputs, truths = _by_name(blurred), _by_name(sharp)
    if not inputs or not truths:
        raise DatasetError("there are no pictures in it", file=blurred if not inputs else sharp)
    belongs = {name: _truth_of(name, truths) for name in inputs}
    if len(inputs) == len(truths) and not any(belongs.values()):
        belongs = dict(zip(inputs, truths, strict=True))
    alone = sorted(name for name, truth in belongs.items() if truth is None)
    unused = sorted(truths.keys() - set(belongs.values()))
    if alone or unused:
        told = [f"{len(names)} {what} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
                for names, what in ((alone, "without a sharp one"), (unused, "sharp ones without a blurred one"))
                if names]  # fmt: skip
        raise DatasetError(
            f"{len(inputs)} pictures, {len(truths)} in {sharp.name}; unpaired are {' and '.join(told)}", file=blurred
        )
    ids = unique_ids(list(inputs))
    return [
        TestImage(short, FileImage(inputs[name]), FileImage(truths[truth]))
        for short, (name, truth) in zip(ids, belongs.items(), strict=True)
        if truth is not None
    ]


def _truth_of(name: str, truths: Mapping[str, Any]) -> str | None:
    if name in truths:
        return name
    parent, _, last = name.rpartition("/")
    if parent in truths:
        return parent
    stem = last
    while "_" in stem or "-" in stem:  # IMG_2162_3 of IMG_2162
        stem = stem[: max(stem.rfind("_"), stem.rfind("-"))]
        for found in (f"{parent}/{stem}".lstrip("/"), stem):
            if found in truths:
                return found
    return None


def _check_count(facts: Facts, count: int, split: str, folder: str | Path, partial: bool) -> list[str]:
    wanted = facts.counts.get(split)
    if wanted is None or count == wanted:
        return []
    told = f"{count} pairs; {facts.title} has {wanted:,} for {split}ing" if split != "validation" else (
        f"{count} pairs; {facts.title} has {wanted:,} for validation")  # fmt: skip
    if facts.certain and not partial:
        raise DatasetError(
            f"{told}: complete it ({facts.arrange}), or write partial = true where the table names it", file=folder
        )
    return [told + ("" if facts.certain else ", as far as we know")]


def _check_size(facts: Facts, sizes: Mapping[str, tuple[int, int]], folder: str | Path, partial: bool) -> list[str]:
    if facts.size is None:
        return []
    other = {name: size for name, size in sizes.items() if sorted(size) != sorted(facts.size)}
    if not other:
        return []
    name, (width, height) = next(iter(other.items()))
    told = (
        f"{len(other)} of {len(sizes)} pictures, such as {name} of {width}×{height}, do not have the "
        f"{facts.size[0]}×{facts.size[1]} pixels of {facts.title}"
    )
    if facts.size_certain and not partial:
        raise DatasetError(
            f"{told}: were they resized? partial = true in the table takes them as they are", file=folder
        )
    return [told + ("" if facts.size_certain else " (as far as we know its size)")]


def _blur_px(record: Mapping[str, Any]) -> float | None:
    """The largest blur radius of the layers of a pair."""
    radii = record.get("layer_coc_px") or record.get("coc_px")
    return float(max(abs(float(r)) for r in radii)) if radii else None


def _by_name(folder: Path) -> dict[str, Path]:
    """The pictures of a folder and of those in it by their names without endings, in order; not hidden ones."""
    found: dict[str, Path] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in (*PICTURES, ".bmp") and p.is_file()):
        inner = path.relative_to(folder)
        if any(part.startswith(".") for part in inner.parts):
            continue
        name = inner.with_suffix("").as_posix()
        if name in found:
            raise DatasetError(f"{found[name].name} has the same name but for its ending; rename one", file=path)
        found[name] = path
    return found


def _existing(folder: str | Path) -> Path:
    store = open_store(folder)
    if store.folder is None:
        raise DatasetError("this kind of test set is read from a folder, not from an address", file=folder)
    if not store.folder.is_dir():
        raise DatasetError("there is no such folder", file=store.folder)
    return store.folder
