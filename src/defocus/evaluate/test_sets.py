"""Test sets and their pictures: DPDD, RealDOF, RTF, LFDOF, SYNDOF, folders of our own, photographs of scenes that are
focused differently, photographs without a truth.

Each says what it found against what the set should hold. Counts: DPDD 76 (Abuolaim and Brown, 2020), RealDOF 50 (Lee et
al., 2021), RTF 22 (D'Andrès et al., 2016), LFDOF 725 for testing (Ruan et al., 2021), SYNDOF 8,231 without a published
split (Lee et al., 2019). Another count is an error unless the table says `partial = true`; what we are not certain of
(some sizes, and SYNDOF's count) is told and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..errors import DatasetError, DefocusError, FileError
from ..files.ownership import listed
from ..files.pair_folders import (
    BLURRED,
    SHARP,
    SPLITS,
    PairReader,
    existing_store,
    find_pairs,
    is_pair_folder,
    matched_names,
    pictures_by_name,
    read_records,
)
from ..files.pictures import PICTURES
from ..files.stores import open_store
from ..restore.similarity import Mask
from .images import FileImage, Image, ReducedImage, StoredImage
from .multi_focus import MultiFocusTruth, find_scenes

Progress = Callable[[str, float], Any]  # a stage, and the part of it that is done
TestKind = Literal["dpdd", "realdof", "rtf", "lfdof", "syndof", "pairs", "multi_focus", "photographs"]
SUFFIXES = (*PICTURES, ".bmp")


@dataclass(frozen=True, slots=True)
class TestImage:
    """A blurred picture and, where there is one, the sharp one; `blur_px` is the largest blur radius, if known.

    `scene` names what several pictures show, where they are no independent samples.
    """

    __test__ = False  # not what pytest looks for

    id: str
    input: Image
    truth: Image | None = None
    blur_px: float | None = None
    scene: str | None = None

    @property
    def mask(self) -> Mask | None:
        """Pixels where the truth counts; None: everywhere."""
        return self.truth.mask if isinstance(self.truth, MultiFocusTruth) else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names that a restored copy may have in a folder: the id, or what the blurred file is called."""
        return tuple(dict.fromkeys((self.id, Path(self.input.place.split(" (")[0]).stem)))


@dataclass(frozen=True, slots=True)
class TestSet:
    """The pictures of a column of a table, and what is to be said of them."""

    __test__ = False

    name: str
    kind: str
    images: tuple[TestImage, ...]
    notes: tuple[str, ...] = ()

    @property
    def has_truth(self) -> bool:
        return all(image.truth is not None for image in self.images)

    @property
    def has_masks(self) -> bool:
        """Whether truths count in parts of the pictures alone."""
        return any(isinstance(image.truth, MultiFocusTruth) for image in self.images)


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
    "rtf": Facts(
        "RTF", "image_01, sharp_01, … in one folder, or source and target", ("", "test"), {"test": 22}, size=(360, 360)
    ),
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
    reduce: int = 1,
    progress: Progress | None = None,
) -> TestSet:
    """A test set, checked. `limit`: only so many pictures, evenly spread; `reduce`: at this fraction of their size.
    Raises `DatasetError`. Pictures of kind "multi_focus" are registered, which takes seconds for each."""
    if split not in SPLITS:
        raise DatasetError(f"the split {split!r}; expected {', '.join(SPLITS)}", file=folder)
    notes: list[str] = []
    if kind == "photographs":
        images = photographs(folder)
    elif kind == "pairs":
        images = own_pairs(folder, split)
    elif kind == "multi_focus":
        images, notes = multi_focus_pictures(folder)
    elif kind in FACTS:
        images = published_pairs(kind, folder, split)
        notes = _count_notes(FACTS[kind], len(images), split, folder, partial)
    else:
        raise DatasetError(f"kind {kind!r}; known are {', '.join(get_args(TestKind))}", file=folder)
    if limit is not None and limit < len(images):
        notes.append(f"{limit} of {len(images)} pictures, evenly spread")
        images = evenly_spread(images, limit)
    # Both pictures of a pair that we made have one size; elsewhere they would have to be fetched for it.
    if kind != "pairs" or (open_store(folder).is_local and not is_pair_folder(open_store(folder))):
        sizes = check_sizes(tuple(images))
        if kind in FACTS:
            notes += _size_notes(FACTS[kind], sizes, folder, partial)
    if reduce > 1:
        notes.append(f"pictures at 1/{reduce} of their size")
        images = [_reduced(image, reduce) for image in images]
    if kind == "multi_focus":
        images, more = judged_pictures(images, folder, progress)
        notes += more
    return TestSet(name or (FACTS[kind].title if kind in FACTS else kind), kind, tuple(images), tuple(notes))


def _reduced(image: TestImage, factor: int) -> TestImage:
    truth: Image | None
    if isinstance(image.truth, MultiFocusTruth):
        truth = image.truth.reduced(factor)
    else:
        truth = image.truth and ReducedImage(image.truth, factor)
    blur_px = image.blur_px and image.blur_px / factor
    return replace(image, input=ReducedImage(image.input, factor), truth=truth, blur_px=blur_px)


def find_real_pairs(
    folder: str | Path,
    *,
    sharp: str | Path | None = None,
    kind: str | None = None,
    split: str = "test",
    limit: int | None = None,
) -> list[TestImage]:
    """The pairs of a folder: those of two folders where `sharp` names the other; a published set by its `kind`, however
    complete; else input and target, DPDD's layout, or what `defocus synth run` made.

    `limit`: so many, evenly spread.
    """
    if kind == "photographs":
        raise DatasetError("photographs without a truth cannot be compared with it", file=folder)
    if kind == "multi_focus":
        message = "multi-focus photographs have truths for parts of them alone, which `defocus evaluate` judges by"
        raise DatasetError(message, file=folder)
    if sharp is not None:
        return evenly_spread(pair_folders(_existing(folder), _existing(sharp)), limit)
    return list(open_test_set(kind or "pairs", folder, split=split, partial=True, limit=limit).images)  # type: ignore[arg-type]


def photographs(folder: str | Path) -> list[TestImage]:
    """All pictures of a folder, without a truth."""
    root = _existing(folder)
    by_name = pictures_by_name(open_store(root), suffixes=SUFFIXES)
    if not by_name:
        raise DatasetError(f"no photographs here ({', '.join(PICTURES)})", file=root)
    ids = unique_ids(list(by_name))
    return [TestImage(i, FileImage(root / path)) for i, path in zip(ids, by_name.values(), strict=True)]


def multi_focus_pictures(folder: str | Path) -> tuple[list[TestImage], list[str]]:
    """The pictures of scenes that were photographed more than once, with truths that are still to be found; and notes
    on the pictures that belong to none."""
    root = _existing(folder)
    by_name = pictures_by_name(open_store(root), suffixes=SUFFIXES)
    scenes = find_scenes(by_name)
    images, alone = [], []
    for scene, names in scenes.items():
        files = [FileImage(root / by_name[name]) for name in names]
        if len(files) == 1:
            alone += names
            continue
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            others = (*files[max(number - 1, 0) : number], *files[number + 1 : number + 2])
            images.append(TestImage(name, file, MultiFocusTruth(file, others), scene=scene))
    if not images:
        alone_text = f" ({listed(alone)} alone in a scene)" if alone else ""
        raise DatasetError(
            f"no scene with two pictures here{alone_text}: expected pictures of one scene, focused differently, "
            "whose names differ in their last number alone, such as table_1.jpg and table_2.jpg",
            file=root,
        )
    unnumbered = sorted(set(by_name) - {name for names in scenes.values() for name in names})
    left_out = (("alone in a scene", alone), ("no number at the end of the name", unnumbered))
    ids = unique_ids([image.id for image in images])
    images = [replace(image, id=short) for short, image in zip(ids, images, strict=True)]
    return images, [f"left out, {reason}: {listed(names)}" for reason, names in left_out if names]


def judged_pictures(
    images: Sequence[TestImage], folder: str | Path, progress: Progress | None = None
) -> tuple[list[TestImage], list[str]]:
    """The pictures whose truths are found and count somewhere, and notes on them and on the others."""
    judged: list[TestImage] = []
    truths: list[MultiFocusTruth] = []
    faults: dict[str, list[str]] = {}
    for image in each_in_turn(images, "registering ", progress):
        assert isinstance(image.truth, MultiFocusTruth)
        try:
            fault = image.truth.fault
        except DefocusError as error:  # which names the file
            fault = str(error)
        if fault:
            faults.setdefault(fault, []).append(image.id)
        else:
            judged.append(image)
            truths.append(image.truth)
    left_out = [f"left out, {fault}: {listed(names)}" for fault, names in faults.items()]
    if not judged:
        raise DatasetError(
            f"no picture can be judged ({'; '.join(left_out)}): expected photographs of one scene from one place, "
            "focused differently, each sharp where another is not",
            file=folder,
        )
    scenes, share = len({image.scene for image in judged}), float(np.mean([truth.share for truth in truths]))
    notes = [
        f"{len(judged)} pictures of {scenes} scene{'s' * (scenes > 1)}, measured where they are blurred and another "
        f"picture of the scene is sharp: {100.0 * share:.0f} % of the pixels"
    ]
    if ceilings := [truth.fit.both_sharp_db for truth in truths if truth.fit.both_sharp_db is not None]:
        notes.append(
            f"where both pictures are equally sharp, PSNR is {float(np.mean(ceilings)):.2f} dB (in {len(ceilings)} of "
            "them): what noise, light and registration leave of a perfect restoration"
        )
    return judged, notes + left_out


def own_pairs(folder: str | Path, split: str) -> list[TestImage]:
    """The pairs that `defocus synth run` made, with their blur; or those of a folder with input and target."""
    store, pairs = find_pairs(folder, split)
    blur_px: dict[str, float] = {}
    if is_pair_folder(store):
        blur_px = {str(r["id"]): blur for r in read_records(store) if (blur := _blur_px(r)) is not None}
    reader = PairReader(store)
    images = []
    for name, pair in zip(unique_ids([pair.id for pair in pairs]), pairs, strict=True):
        blurred, sharp = (StoredImage(reader, pair.pictures[role]) for role in ("blurred", "sharp"))
        images.append(TestImage(name, blurred, sharp, blur_px.get(pair.id)))
    return images


def published_pairs(kind: str, folder: str | Path, split: str) -> list[TestImage]:
    """The pairs of a published set, in two folders as its authors call them, or as others do."""
    facts, root = FACTS[kind], _existing(folder)
    parents = [root / p.format(split=s) for p in facts.parents for s in SPLITS[split]]
    for parent in dict.fromkeys(parents):
        sides = ([parent / name for name in names if (parent / name).is_dir()] for names in (BLURRED, SHARP))
        blurred, sharp = (folders[0] if folders else None for folders in sides)
        if blurred and sharp:
            return pair_folders(blurred, sharp)
        if side := blurred or sharp:
            other = " or ".join((SHARP if blurred else BLURRED)[:3])
            raise DatasetError(f"beside it there is no folder {other}; {facts.title} is {facts.arrange}", file=side)
    if images := _prefixed_pairs(root):
        return images
    raise DatasetError(f"no pairs of {facts.title} ({split}) here: expected {facts.arrange}", file=root)


def _prefixed_pairs(root: Path) -> list[TestImage]:
    """Pairs of one folder whose names begin with what their sides are called, as RTF's do: image_01, sharp_01."""
    sides: dict[str, dict[str, Path]] = {"blurred": {}, "sharp": {}}
    for path in pictures_by_name(open_store(root), suffixes=SUFFIXES).values():
        head, _, rest = Path(path).stem.partition("_")
        side = "blurred" if head in BLURRED else "sharp" if head in SHARP else ""
        if rest and side:
            sides[side][(Path(path).parent / rest).as_posix()] = root / path
    names = matched_names(sides["blurred"], sides["sharp"], root)
    return [
        TestImage(short, FileImage(sides["blurred"][name]), FileImage(sides["sharp"][names[name]]))
        for short, name in zip(unique_ids(list(names)), names, strict=True)
    ]


def pair_folders(blurred: Path, sharp: Path) -> list[TestImage]:
    """Pairs of two folders; see `matched_names`. Raises `DatasetError` where a picture belongs to none."""
    inputs, truths = (pictures_by_name(open_store(side), suffixes=SUFFIXES) for side in (blurred, sharp))
    if not inputs or not truths:
        raise DatasetError("there are no pictures in it", file=blurred if not inputs else sharp)
    truth_names = matched_names(inputs, truths, blurred)
    return [
        TestImage(short, FileImage(blurred / inputs[name]), FileImage(sharp / truths[truth_names[name]]))
        for short, name in zip(unique_ids(list(inputs)), inputs, strict=True)
    ]


def _count_notes(facts: Facts, count: int, split: str, folder: str | Path, partial: bool) -> list[str]:
    expected = facts.counts.get(split)
    if expected is None or count == expected:
        return []
    purpose = "validation" if split == "validation" else f"{split}ing"
    message = f"{count} pairs; {facts.title} has {expected:,} for {purpose}"
    if facts.certain and not partial:
        advice = f"complete it ({facts.arrange}), or write partial = true where the table names it"
        raise DatasetError(f"{message}: {advice}", file=folder)
    return [message + ("" if facts.certain else ", as far as we know")]


def _size_notes(facts: Facts, sizes: Mapping[str, tuple[int, int]], folder: str | Path, partial: bool) -> list[str]:
    if facts.size is None:
        return []
    other = [(name, *size) for name, size in sizes.items() if sorted(size) != sorted(facts.size)]
    if not other:
        return []
    example = "{} of {}×{}".format(*other[0])
    message = f"{len(other)} of {len(sizes)} pictures, such as {example}, do not have the "
    message += f"{facts.size[0]}×{facts.size[1]} pixels of {facts.title}"
    if facts.size_certain and not partial:
        advice = "were they resized? partial = true in the table takes them as they are"
        raise DatasetError(f"{message}: {advice}", file=folder)
    return [message + ("" if facts.size_certain else " (as far as we know its size)")]


def _blur_px(record: Mapping[str, Any]) -> float | None:
    """Largest blur radius of the layers of a pair."""
    radii = record.get("layer_coc_px") or record.get("coc_px")
    return float(max(abs(float(r)) for r in radii)) if radii else None


def _existing(folder: str | Path) -> Path:
    store = existing_store(folder)
    if store.folder is None:
        raise DatasetError("this kind of test set is read from a folder, not from an address", file=folder)
    return store.folder


def check_sizes(images: tuple[TestImage, ...]) -> dict[str, tuple[int, int]]:
    """Width and height of each picture by its id. Raises `DatasetError` where a truth has another size.

    A file that cannot be opened is left out: the run will name it, and go on with the others.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for image in images:
        try:
            size = image.input.size()
            truth = size if image.truth is None else image.truth.size()
        except FileError:
            continue
        if truth != size:
            sides = " and ".join(f"{w}×{h}" for w, h in (size, truth))
            assert image.truth is not None
            raise DatasetError(
                f"input and truth have {sides} pixels (the truth is {image.truth.place}): they do not belong together, "
                "or one was resized",
                file=image.input.place,
            )
        sizes[image.id] = size
    return sizes


def evenly_spread(images: Sequence[TestImage], count: int | None) -> list[TestImage]:
    """So many of the images, from the first on; all of them without a count."""
    count = min(count or len(images), len(images))
    return [images[number * len(images) // count] for number in range(count)]


def from_the_middle(images: Sequence[TestImage], count: int) -> list[TestImage]:
    """So many of the images, each from the middle of an equal part of them."""
    count = min(count, len(images))
    return [images[(2 * number + 1) * len(images) // (2 * count)] for number in range(count)]


def each_in_turn(images: Sequence[TestImage], action: str, progress: Progress | None) -> Iterator[TestImage]:
    """The images, each announced before its turn."""
    for number, image in enumerate(images):
        if progress is not None:
            progress(f"{action}{image.id}", number / len(images))
        yield image


@contextmanager
def failure_noted(failures: list[tuple[str, str]], name: str) -> Iterator[None]:
    """Add a name and the reason where the block fails: what is wrong with one picture shall not cost the others."""
    try:
        yield
    except (DefocusError, OSError) as error:
        failures.append((name, str(error)))
    except Exception as error:
        failures.append((name, f"unexpected {type(error).__name__}: {error}"))


def unique_ids(paths: list[str]) -> list[str]:
    """Short names for paths with "/": their last part where that is unique, else all of it with "__"."""
    last = [path.rpartition("/")[2] for path in paths]
    if len(set(last)) == len(last):
        return last
    return [path.strip("/").replace("/", "__") for path in paths]
