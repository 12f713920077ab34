"""Models × training sets × test sets: restore and save all pictures, then measure the saved ones.

Everything that can be wrong with the table is said before the long work: test sets are opened and checked, weights
read, measures made. Then a picture that cannot be restored or measured is named, and the others go on. A second run
makes only what is not there yet. `compare_pictures` measures pictures that are there, without a table.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import DatasetError, DefocusError, MissingPackageError
from ..files.journal import Journal
from ..files.ownership import OwnedFolder
from ..files.pair_folders import PairReader, PictureFile
from ..files.pictures import PICTURES, quantise
from ..files.png import png_bytes
from .figures import draw_figures
from .images import FileImage, Image, StoredImage
from .measures import Display, Measure, make_measure
from .results import PictureRecord, Problem, Results, compare, latex
from .table_file import EvaluationTable, TableRow, Test
from .test_sets import (
    Progress,
    TestImage,
    TestSet,
    each_in_turn,
    failure_noted,
    open_test_set,
    pair_folders,
    photographs,
)

Restorer = Callable[[Display], Float[np.ndarray, "rows cols 3"]]  # display values 0..1 to the same, not clipped
MakeRestorer = Callable[[TableRow, EvaluationTable], Restorer]
MEASURED, IMAGES, FIGURES = "measured.jsonl", "images", "figures"
CSV, SUMMARY, MARKDOWN, LATEX = "images.csv", "summary.json", "results.md", "table.tex"


def evaluate_table(
    table: EvaluationTable, out: str | Path, progress: Progress | None = None, make_restorer: MakeRestorer | None = None
) -> Results:
    """The results of a table, with everything written to the folder `out`, which is new, empty or an evaluation's.

    `make_restorer` takes the place of the networks, for tests and for methods that are none.
    """
    progress = progress or (lambda stage, part: None)
    run = _Run(table, Path(out), make_restorer or network_restorer, progress)
    with run.folder.locked():
        problems = run.restore()
        records, more = run.measure()
        notes = {
            test.key: (*opened.notes, *measure_notes(opened, run.measures), *run.tile_notes(test, opened))
            for test, opened in zip(table.tests, run.sets, strict=True)
        }
        results = Results(table, tuple(records), tuple(problems + more), notes)
        write_results(results, run.folder)
        if table.figures:
            progress("drawing", 0.0)
            if undrawn := draw_figures(results, run.sets, run.source, run.folder, FIGURES):
                results = replace(results, problems=(*results.problems, *undrawn))
                write_results(results, run.folder)
    return results


def network_restorer(row: TableRow, table: EvaluationTable) -> Restorer:
    """The network of a row, run over a picture as a whole, or in tiles: see `picture_tile`."""
    from ..restore.deblurring import choose_device  # says so if torch is missing
    from ..restore.models.checkpoints import load_model
    from ..restore.tiles import TILE_PX, deblur, plan_tiles

    assert row.weights is not None
    device = choose_device(table.device)
    import torch

    model = load_model(row.weights, row.model or None, **row.options).to(device)
    tile = table.tile_px or TILE_PX
    plan_tiles((tile, tile), tile, table.overlap_px, model.multiple)

    def restore(image: Display) -> Float[np.ndarray, "rows cols 3"]:
        tile_px = picture_tile(table, image.shape[:2])
        try:
            return deblur(
                model, image, tile_px=tile_px, overlap_px=table.overlap_px, device=device, precision=row.precision
            )
        except torch.OutOfMemoryError as error:
            size = "a whole picture" if tile_px is None else f"tiles of {tile_px} pixels"
            advice = (
                f"not enough memory on {device} for {size}; give a smaller tile_px than {tile_px or max(image.shape)}"
            )
            raise DefocusError(advice) from error

    return restore


def picture_tile(table: EvaluationTable, shape: tuple[int, int]) -> int | None:
    """Side of the tiles in which a picture of (rows, cols) is restored; None as a whole, as the paper's authors do."""
    from ..restore.deblurring import choose_device
    from ..restore.tiles import fitting_tile

    return table.tile_px or fitting_tile(shape, choose_device(table.device))


def write_results(results: Results, folder: OwnedFolder) -> None:
    """Write the values of all pictures, the summary, and the tables as Markdown and LaTeX."""
    folder.write(CSV, results.as_csv().encode())
    folder.write(SUMMARY, json.dumps(results.as_json(), indent=1, allow_nan=False).encode() + b"\n")
    folder.write(MARKDOWN, compare(results).encode())
    folder.write(LATEX, latex(results).encode())


def opened_set(test: Test, progress: Progress | None = None) -> TestSet:
    """The test set that a table names, checked."""
    options = test.model_dump(include={"split", "partial", "limit", "reduce"})
    return open_test_set(test.kind, test.folder, name=test.label, progress=progress, **options)


def has_value(measure: Measure, test: TestSet) -> bool:
    """Whether a measure can be taken of the pictures of a test set: with their truths, and within their masks."""
    return (test.has_truth or not measure.kind.needs_truth) and (measure.kind.takes_mask or not test.has_masks)


def measure_notes(test: TestSet, measures: Sequence[Measure]) -> list[str]:
    """Which measures a test set with masks leaves out, in a sentence."""
    names = [measure.kind.label for measure in measures if test.has_masks and not measure.kind.takes_mask]
    return [f"of whole pictures alone, so not measured here: {', '.join(names)}"] if names else []


def ready_measures(table: EvaluationTable, sets: Sequence[TestSet]) -> list[Measure]:
    """The measures of a table, with weights and parameters loaded. Raises `DefocusError` for what is missing to measure
    and to draw."""
    if table.figures and find_spec("matplotlib") is None:
        raise MissingPackageError("drawing figures (figures = 0 leaves them out)", "matplotlib")
    files = {key: path for key, path in table.files if path is not None}
    device = None if table.device == "auto" else table.device
    measures = [make_measure(metric, files=files, device=device) for metric in table.metrics]
    for test in sets:
        if not any(has_value(measure, test) for measure in measures):
            if test.has_masks:
                raise DatasetError(
                    f"{test.name} has truths for parts of pictures, and every measure is of whole ones; add psnr, ssim "
                    "or lpips"
                )
            raise DatasetError(f"{test.name} has no truth, and every measure needs one; add niqe or another")
    return measures


@dataclass
class _Run:
    """A table on its way: its test sets and measures, and where the restored pictures lie."""

    table: EvaluationTable
    out: Path
    make_restorer: MakeRestorer
    progress: Progress

    def __post_init__(self) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise DatasetError("is a file; results go to a folder", file=self.out)
        table = self.table
        self.sets = [opened_set(test, self.progress) for test in table.tests]
        self.measures = ready_measures(table, self.sets)
        digests: dict[str, str] = {}
        for row in table.rows:
            folders = [row_folder(row, test) for test in table.tests] if row.kind == "folder" else []
            if folders and not any(folder.is_dir() for folder in folders):
                raise DatasetError(f"there is no such folder (row {row.label})", file=folders[0])
            if row.kind != "model":
                continue
            assert row.weights is not None
            if not row.weights.is_file():
                raise DatasetError(f"there are no such weights (row {row.label})", file=row.weights)
            settings = row.model_dump(include={"model", "options", "precision"})
            settings |= table.model_dump(include={"bits", "tile_px", "overlap_px"})
            settings["colours"] = "as the weights learnt them"  # pictures of older versions were made otherwise
            with row.weights.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
            digests[row.key] = digest.hexdigest()[:32]
        self.folder = OwnedFolder(self.out, "evaluation")
        self.folder.require(CSV, SUMMARY, MARKDOWN, LATEX)
        self.saved = {
            (row, test.key): SavedPictures(self.folder, f"{IMAGES}/{row}/{test.key}", digest, table.bits)
            for row, digest in digests.items()
            for test in table.tests
        }

    def items(self) -> list[tuple[Test, TestImage]]:
        return [(t, item) for t, opened in zip(self.table.tests, self.sets, strict=True) for item in opened.images]

    def measures_of(self, test: Test) -> list[Measure]:
        opened = self.sets[self.table.tests.index(test)]
        return [measure for measure in self.measures if has_value(measure, opened)]

    def restore(self) -> list[Problem]:
        """Restore and save what is missing; the problems."""
        self.progress("looking for what is done", 0.0)
        missing = {
            row.key: [(test, item) for test, item in self.items() if not self.saved[row.key, test.key].has(item)]
            for row in self.table.rows
            if row.kind == "model"
        }
        rows = [row for row in self.table.rows if missing.get(row.key)]
        if len(rows) > 1:  # weights that do not fit are said before the first hour, not after it
            for row in rows:
                self.make_restorer(row, self.table)
        problems: list[Problem] = []
        total, done = sum(map(len, missing.values())), 0
        for row in rows:
            restorer = self.make_restorer(row, self.table)
            for test, item in missing[row.key]:
                self.progress(f"{row.label}: {test.label}, {item.id}", done / total)
                with _listed(problems, test, row, item):
                    image = item.input.read()
                    tile = picture_tile(self.table, image.shape[:2]) if self.make_restorer is network_restorer else None
                    self.saved[row.key, test.key].save(item, restorer(image), tile)
                done += 1
        return problems

    def tile_notes(self, test: Test, opened: TestSet) -> list[str]:
        """Whether the networks had whole pictures or tiles of them, in a sentence."""
        tiles = Counter(
            self.saved[row.key, test.key].tile_px(item)
            for row in self.table.rows
            if row.kind == "model"
            for item in opened.images
            if self.saved[row.key, test.key].has(item)
        )
        sizes = [f"{count} {'whole' if tile is None else f'in tiles of {tile} px'}" for tile, count in tiles.items()]
        return [f"restored pictures: {', '.join(sizes)}"] if sizes else []

    def measure(self) -> tuple[list[PictureRecord], list[Problem]]:
        """The values of all pictures, and the problems; values that were measured before are taken from the file."""
        journal = Journal(self.out / MEASURED, "key")
        records: list[PictureRecord] = []
        problems: list[Problem] = []
        items = self.items()
        for number, (test, item) in enumerate(items):
            self.progress(f"measuring {test.label}, {item.id}", number / len(items))
            truth = _Picture(item.truth) if item.truth is not None else None
            for row in self.table.rows:
                source, values = None, {}
                with _listed(problems, test, row, item):
                    source = self.source(row, test, item)
                if source is None:  # could not be restored: a problem by then
                    continue
                image = _Picture(source)
                for measure in self.measures_of(test):
                    with _listed(problems, test, row, item):
                        values[measure.kind.name] = _value(journal, measure, image, truth, item)
                if values:
                    records.append(PictureRecord(test.key, row.key, item.id, item.blur_px, values, item.scene))
        return records, problems

    def source(self, row: TableRow, test: Test, item: TestImage) -> Image | None:
        """The picture of a row; None if it could not be restored."""
        if row.kind == "input":
            return item.input
        if row.kind == "model":
            saved = self.saved[row.key, test.key]
            return saved.image(item) if saved.has(item) else None
        folder = row_folder(row, test)
        for name in item.names:
            for suffix in (*PICTURES, ".bmp"):
                for file in (folder / f"{name}{suffix}", folder / f"{name}{suffix.upper()}"):
                    if file.is_file():
                        return FileImage(file)
        raise DatasetError(f"holds no picture {' or '.join(item.names)}", file=folder)


def row_folder(row: TableRow, test: Test) -> Path:
    """The folder of another program's pictures of a test set."""
    return Path(str(row.folder).replace("{test}", test.label))


@contextmanager
def _listed(problems: list[Problem], test: Test, row: TableRow, item: TestImage) -> Iterator[None]:
    """A failure of one picture becomes one of the problems."""
    failures: list[tuple[str, str]] = []
    with failure_noted(failures, item.id):
        yield
    problems += [Problem(test.key, row.key, *failure) for failure in failures]


@dataclass
class _Picture:
    """A picture that is read, and its bytes summed up, at most once."""

    image: Image

    @cached_property
    def values(self) -> Display:
        return self.image.read()

    @cached_property
    def digest(self) -> str:
        return self.image.digest()[:32]


def _value(journal: Journal, measure: Measure, image: _Picture, truth: _Picture | None, item: TestImage) -> float:
    """The value of a measure: noted in the journal by version, picture and truth, else computed and noted."""
    truth = truth if measure.kind.needs_truth else None
    key = f"{measure.version}:{image.digest}:{truth.digest if truth else ''}"
    with suppress(KeyError, TypeError, ValueError):
        return float((journal.get(key) or {})["value"])
    value = measure(image.values, truth.values, item.mask) if truth else measure(image.values)
    journal.write(key, value=repr(value))  # as text: JSON has no infinite PSNR
    return value


@dataclass
class SavedPictures:
    """The pictures that a row made of a test set: PNG files at `place`, and a journal that says of which input each was
    made, and by what. `fingerprint` is that of the weights and settings."""

    folder: OwnedFolder
    place: str
    fingerprint: str
    bits: int

    def __post_init__(self) -> None:
        self._journal = Journal(self.folder.path / self.place / "made.jsonl", "id")

    def name(self, item: TestImage) -> str:
        return f"{self.place}/{item.id}.png"

    def image(self, item: TestImage) -> StoredImage:
        """The saved picture of a test image."""
        return StoredImage(PairReader(self.folder.store), PictureFile(self.name(item)))

    def has(self, item: TestImage) -> bool:
        """Whether it was made of the same input by the same weights and settings."""
        return (
            self._journal.is_done(item.id, by=self.fingerprint)
            and (self.folder.path / self.name(item)).is_file()
            and self._journal.is_done(item.id, input=item.input.digest())
        )

    def save(self, item: TestImage, display: Display, tile_px: int | None = None) -> None:
        """Write a picture of display values 0..1 (clipped), then its line. `PhotoError` for values not finite."""
        self.folder.write(self.name(item), png_bytes(quantise(display, self.bits)))
        self._journal.write(item.id, input=item.input.digest(), by=self.fingerprint, tile_px=tile_px)

    def tile_px(self, item: TestImage) -> int | None:
        """Side of the tiles in which a picture was restored; None as a whole."""
        return (self._journal.get(item.id) or {}).get("tile_px")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Values of each picture by measure, and the pictures that could not be measured with the reasons."""

    values: dict[str, dict[str, float]]
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def means(self) -> dict[str, float]:
        """Means by measure over the pictures."""
        metrics = next(iter(self.values.values()), {})
        return {m: float(np.mean([values[m] for values in self.values.values()])) for m in metrics}


def compare_pictures(
    images: str | Path,
    truth: str | Path | None,
    metrics: Sequence[str] = ("psnr", "ssim"),
    *,
    files: Mapping[str, Path] | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Values of a picture, or of all of a folder, against its truth; without one, by measures that need none."""
    measures = [make_measure(metric, files=files, device=device) for metric in metrics]
    needing = [m.kind.name for m in measures if m.kind.needs_truth]
    if truth is None and needing:
        raise DefocusError(f"{', '.join(needing)} need a truth: give a second file or folder")
    items = _items(Path(images), None if truth is None else Path(truth))
    values: dict[str, dict[str, float]] = {}
    problems: list[tuple[str, str]] = []
    for item in each_in_turn(items, "", progress):
        with failure_noted(problems, item.id):
            pair = item.input.read(), item.truth.read() if item.truth is not None else None
            values[item.id] = {m.kind.name: m(*pair) for m in measures}
    return Comparison(values, tuple(problems))


def _items(images: Path, truth: Path | None) -> list[TestImage]:
    for path in (images, truth):
        if path is not None and not path.exists():
            raise DatasetError("no such file or folder", file=path)
    if truth is None:
        return photographs(images) if images.is_dir() else [TestImage(images.stem, FileImage(images))]
    if images.is_dir() != truth.is_dir():
        raise DatasetError(f"and {truth}: expected two pictures or two folders", file=images)
    if images.is_dir():
        return pair_folders(images, truth)
    return [TestImage(images.stem, FileImage(images), FileImage(truth))]
