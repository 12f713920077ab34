"""Models × training sets × test sets: restore and save all pictures, then measure the saved ones.

Everything that can be wrong with the table is said before the long work: test sets are opened and checked, weights
read, measures made. Then a picture that cannot be restored or measured is named, and the others go on. A second run
makes only what is not there yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DatasetError, DefocusError, MissingPackageError
from ..files.image_files import PICTURES
from ..files.stores import open_store
from .datasets import open_test_set
from .figures import draw_figures
from .measures import Measure, make_measure
from .pictures import FileImage, Image, TestImage, TestSet
from .results import Problem, Record, Results
from .saved import SavedPictures, fingerprint
from .table_file import EvaluationTable, Row, Test, load_table
from .tables import compare, latex

Values = Float[np.ndarray, "rows cols 3"]
Restorer = Callable[[Values], Values]  # display values 0..1 to the same, not clipped
MakeRestorer = Callable[[Row, EvaluationTable], Restorer]
Progress = Callable[[str, float], Any]  # a stage, and the part of it that is done
MEASURED, IMAGES, FIGURES = "measured.jsonl", "images", "figures"
CSV, SUMMARY, MARKDOWN, LATEX = "images.csv", "summary.json", "results.md", "table.tex"


def evaluate_matrix(
    table: EvaluationTable,
    out: str | Path,
    progress: Progress | None = None,
    *,
    make_restorer: MakeRestorer | None = None,
) -> Results:
    """Carry out a table and write everything to the folder `out`; what was found.

    `make_restorer` takes the place of the networks, for tests and for methods that are none.
    """
    out = Path(out)
    told = progress or (lambda stage, part: None)
    work = _Work(table, out, make_restorer or network_restorer, told)
    problems = work.restore()
    records, more = work.measure()
    notes = {test.key: opened.notes for test, opened in zip(table.tests, work.sets, strict=True)}
    results = Results(table, tuple(records), tuple(problems + more), notes)
    write_results(results, out)
    if table.figures:
        told("drawing", 0.0)
        drawn = draw_figures(results, work.sets, work.source, out / FIGURES)
        if drawn:
            results = replace(results, problems=(*results.problems, *drawn))
            write_results(results, out)
    return results


def network_restorer(row: Row, table: EvaluationTable) -> Restorer:
    """The network of a row, run over a picture in tiles."""
    from ..restore.deblurring import choose_device  # says so if torch is missing
    from ..restore.models.checkpoints import load_model
    from ..restore.tiles import deblur, plan_tiles

    assert row.weights is not None
    device = choose_device(table.device)
    import torch

    model = load_model(row.weights, row.model or None, **row.options).to(device)
    plan_tiles((table.tile_px, table.tile_px), table.tile_px, table.overlap_px, model.multiple)

    def restore(image: Values) -> Values:
        try:
            return deblur(
                model, image, tile_px=table.tile_px, overlap_px=table.overlap_px, device=device, precision=row.precision
            )
        except torch.OutOfMemoryError as error:
            advice = f"not enough memory on {device} for tiles of {table.tile_px} pixels; lower tile_px"
            raise DefocusError(advice) from error

    return restore


def write_results(results: Results, out: Path) -> None:
    """The values of all pictures, the summary, and the tables as Markdown and LaTeX."""
    out.mkdir(parents=True, exist_ok=True)
    (out / CSV).write_text(results.as_csv(), encoding="utf-8")
    (out / SUMMARY).write_text(json.dumps(results.as_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    (out / MARKDOWN).write_text(compare(results), encoding="utf-8")
    (out / LATEX).write_text(latex(results), encoding="utf-8")


@dataclass
class _Work:
    table: EvaluationTable
    out: Path
    make_restorer: MakeRestorer
    told: Progress

    def __post_init__(self) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise DatasetError("is a file; results go to a folder", file=self.out)
        table = self.table
        self.sets = [opened_set(test) for test in table.tests]
        self.measures = ready_measures(table, self.sets)
        self.saved: dict[tuple[str, str], SavedPictures] = {}
        for row in table.rows:
            folders = [row_folder(row, test) for test in table.tests] if row.kind == "folder" else []
            if folders and not any(folder.is_dir() for folder in folders):
                raise DatasetError(f"there is no such folder (row {row.label})", file=folders[0])
            if row.kind != "model":
                continue
            assert row.weights is not None
            if not row.weights.is_file():
                raise DatasetError(f"there are no such weights (row {row.label})", file=row.weights)
            settings = {
                "model": row.model, "options": row.options, "precision": row.precision, "bits": table.bits,
                "tile_px": table.tile_px, "overlap_px": table.overlap_px,
            }  # fmt: skip
            made_by = fingerprint(row.weights, settings)
            for test in table.tests:
                folder = self.out / IMAGES / row.key / test.key
                self.saved[row.key, test.key] = SavedPictures(folder, made_by, table.bits)
        open_store(self.out).check_writable()

    def restore(self) -> list[Problem]:
        """Make and save what is missing."""
        self.told("looking for what is done", 0.0)
        missing = {
            (row.key, test.key): [item for item in opened.images if not self.saved[row.key, test.key].has(item)]
            for row in self.table.rows
            if row.kind == "model"
            for test, opened in zip(self.table.tests, self.sets, strict=True)
        }
        rows = [row for row in self.table.rows if any(missing.get((row.key, t.key)) for t in self.table.tests)]
        if len(rows) > 1:  # weights that do not fit are said before the first hour, not after it
            for row in rows:
                self.make_restorer(row, self.table)
        problems: list[Problem] = []
        total, done = sum(map(len, missing.values())), 0
        for row in rows:
            restorer = self.make_restorer(row, self.table)
            for test in self.table.tests:
                for item in missing[row.key, test.key]:
                    self.told(f"{row.label}: {test.label}, {item.id}", done / total)
                    save = partial(_restore_and_save, restorer, item, self.saved[row.key, test.key])
                    problems += self._guarded(row, test, item, save)
                    done += 1
        return problems

    def measure(self) -> tuple[list[Record], list[Problem]]:
        """The values of all saved pictures; those that were measured before are taken from the file."""
        known = _Measured(self.out / MEASURED)
        records: list[Record] = []
        problems: list[Problem] = []
        total = sum(len(opened.images) for opened in self.sets)
        for number, (test, item) in enumerate(self._items()):
            self.told(f"measuring {test.label}, {item.id}", number / total)
            truth = _Once(item.truth) if item.truth is not None else None
            for row in self.table.rows:
                values: dict[str, float] = {}
                try:
                    source = self.source(row, test, item)
                except DefocusError as error:
                    problems.append(Problem(test.key, row.key, item.id, str(error)))
                    continue
                if source is None:  # could not be restored, which was told
                    continue
                image = _Once(source)
                for measure in self.measures:
                    if truth is not None or not measure.kind.needs_truth:
                        take = partial(known.value, measure, image, truth, values)
                        problems += self._guarded(row, test, item, take)
                if values:
                    records.append(Record(test.key, row.key, item.id, item.blur_px, values))
        return records, problems

    def source(self, row: Row, test: Test, item: TestImage) -> Image | None:
        """Where the picture of a row lies; None if it could not be made."""
        if row.kind == "input":
            return item.input
        if row.kind == "model":
            saved = self.saved[row.key, test.key]
            return saved.image(item) if saved.has(item) else None
        folder = row_folder(row, test)
        for name in item.names:
            for suffix in (*PICTURES, ".bmp"):
                for spelled in (suffix, suffix.upper()):
                    if (folder / f"{name}{spelled}").is_file():
                        return FileImage(folder / f"{name}{spelled}")
        raise DatasetError(f"holds no picture {' or '.join(item.names)}", file=folder)

    def _items(self) -> Iterator[tuple[Test, TestImage]]:
        for test, opened in zip(self.table.tests, self.sets, strict=True):
            for item in opened.images:
                yield test, item

    def _guarded(self, row: Row, test: Test, item: TestImage, action: Callable[[], Any]) -> list[Problem]:
        """A fault of one picture shall not cost the others."""
        try:
            action()
        except (DefocusError, OSError) as error:
            return [Problem(test.key, row.key, item.id, str(error))]
        except Exception as error:
            return [Problem(test.key, row.key, item.id, f"unexpected {type(error).__name__}: {error}")]
        return []


def row_folder(row: Row, test: Test) -> Path:
    """Where another program put its pictures of a test set."""
    return Path(str(row.folder).replace("{test}", test.label))


def opened_set(test: Test) -> TestSet:
    """The test set that a table names, checked."""
    return open_test_set(
        test.kind, test.folder, name=test.label, split=test.split, partial=test.partial, limit=test.limit
    )


def ready_measures(table: EvaluationTable, sets: Sequence[TestSet]) -> list[Measure]:
    """The measures of a table, with their weights and parameters; what is missing to measure and to draw is said."""
    if table.figures and find_spec("matplotlib") is None:
        raise MissingPackageError("drawing figures (figures = 0 leaves them out)", "matplotlib")
    files = {key: path for key in ("lpips", "niqe") if (path := getattr(table.files, key)) is not None}
    device = None if table.device == "auto" else table.device
    measures = [make_measure(metric, files=files, device=device) for metric in table.metrics]
    for test in sets:
        if not any(test.has_truth or not measure.kind.needs_truth for measure in measures):
            raise DatasetError(f"{test.name} has no truth, and every measure needs one; add niqe or another")
    return measures


def _restore_and_save(restorer: Restorer, item: TestImage, saved: SavedPictures) -> None:
    saved.save(item, restorer(item.input.read()))


class _Once:
    """A picture that is read, and its bytes summed up, at most once."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._values: Values | None = None
        self._digest = ""

    def values(self) -> Values:
        if self._values is None:
            self._values = self._image.read()
        return self._values

    def digest(self) -> str:
        if not self._digest:
            self._digest = self._image.digest()[:32]
        return self._digest


class _Measured:
    """Values by measure, picture and truth, in a file of lines of JSON."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._values: dict[str, float] = {}
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, KeyError, TypeError):  # the last line of a run that was killed
                    told = json.loads(line)
                    self._values[told["key"]] = float(told["value"])

    def value(self, measure: Measure, image: _Once, truth: _Once | None, values: dict[str, float]) -> None:
        """Put the value of a measure among `values`."""
        used = truth if measure.kind.needs_truth else None
        key = f"{measure.version}:{image.digest()}:{used.digest() if used else ''}"
        if key not in self._values:
            value = measure(image.values(), used.values() if used else None)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "value": repr(float(value))}) + "\n")
            self._values[key] = float(value)
        values[measure.kind.name] = self._values[key]


__all__ = ["EvaluationTable", "Results", "compare", "evaluate_matrix", "load_table", "network_restorer"]
