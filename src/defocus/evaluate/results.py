"""Results of an evaluation: a value for each picture, row and measure, and means with their uncertainty.

Rows are compared over the same pictures: a mean is over those of a test set for which every row that has any value has
one. Intervals are of the bootstrap: pictures are drawn with replacement, the same draws for all rows, so that the
interval of a difference is that of paired pictures.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .measures import KINDS
from .table_file import EvaluationTable, TableRow

CONFIDENCE = 0.95
# The bootstrap knows no more spread than its pictures show: of normal values its intervals of 95 % hold the truth in
# 80 % of cases for 4 pictures, 85 % for 5, 90 % for 10. With fewer than the first number there is none, and below the
# second the tables say so.
FEWEST, FEW = 5, 10


@dataclass(frozen=True, slots=True)
class PictureRecord:
    """The values of one picture of one row, by measure."""

    test: str  # keys of test and row
    row: str
    image: str
    blur_px: float | None
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Problem:
    """A picture that could not be restored or measured, and why."""

    test: str
    row: str
    image: str
    reason: str


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over `count` pictures and its 95 % interval, which is None for few pictures or infinite values."""

    value: float
    interval: tuple[float, float] | None
    count: int


class BlurLevel(NamedTuple):
    """Pictures whose largest blur radius, in pixels, is above `low` and up to `high`."""

    low: float
    high: float

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"> {self.low:g}"
        return f"≤ {self.high:g}" if self.low < 0.0 else f"{self.low:g}–{self.high:g}"


@dataclass(frozen=True)
class Results:
    """All values of a table's pictures, the problems, and notes on each test set."""

    table: EvaluationTable
    records: tuple[PictureRecord, ...]
    problems: tuple[Problem, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, test: str, metric: str) -> dict[str, dict[str, float]]:
        """Values of a measure by row and picture."""
        values: dict[str, dict[str, float]] = {}
        for record in self.records:
            if record.test == test and metric in record.values:
                values.setdefault(record.row, {})[record.image] = record.values[metric]
        return values

    def metrics(self, test: str) -> list[str]:
        """The measures that any row of the test set has."""
        return [metric for metric in self.table.metrics if self.values(test, metric)]

    def blur(self, test: str) -> dict[str, float]:
        """The largest blur radius of the pictures, pixels, where it is known."""
        return {r.image: r.blur_px for r in self.records if r.test == test and r.blur_px is not None}

    def levels(self, test: str) -> list[BlurLevel]:
        """The blur levels of a test set that have pictures."""
        blur = self.blur(test).values()
        levels = [BlurLevel(*ends) for ends in pairwise((-1.0, *self.table.blur_levels_px, math.inf))]
        return [level for level in levels if any(level.low < b <= level.high for b in blur)]

    def means(
        self, test: str, metric: str, *, level: BlurLevel | None = None, minus: str | None = None
    ) -> dict[str, Mean]:
        """Mean of each row that has values; `level`: over its pictures alone; `minus`: of the differences to this row,
        picture by picture."""
        rows = self.values(test, metric)
        images = sorted(set.intersection(*map(set, rows.values()))) if rows else []
        if level is not None:
            blur = self.blur(test)
            images = [image for image in images if level.low < blur.get(image, -math.inf) <= level.high]
        if not images or (minus is not None and minus not in rows):
            return {}
        draws = bootstrap_weights(len(images), self.table.bootstrap, self.table.seed)
        values = {row: np.array([of_row[image] for image in images]) for row, of_row in rows.items()}
        if minus is not None:
            base = values.pop(minus)
            with np.errstate(invalid="ignore"):  # of two infinite values
                values = {row: of_row - base for row, of_row in values.items()}
        return {row: _mean(of_row, draws) for row, of_row in values.items()}

    def as_json(self) -> dict[str, Any]:
        """All means, intervals, levels, notes and problems; numbers that are infinite as text."""

        def plain(test: str, row: str, level: BlurLevel | None = None) -> dict[str, Any]:
            means = {metric: self.means(test, metric, level=level).get(row) for metric in self.table.metrics}
            return {
                metric: {
                    "mean": one.value if math.isfinite(one.value) else str(one.value),
                    "interval": one.interval,
                    "count": one.count,
                }
                for metric, one in means.items()
                if one is not None
            }

        tests = {}
        for test in self.table.tests:
            rows = {}
            for row in self.table.rows:
                levels = [
                    {
                        "blur_px": [max(level.low, 0.0), None if math.isinf(level.high) else level.high],
                        "metrics": plain(test.key, row.key, level),
                    }
                    for level in self.levels(test.key)
                ]
                names = {"name": row.label, "trained_on": row.trained_on}
                rows[row.key] = names | {"metrics": plain(test.key, row.key), "levels": levels}
            tests[test.key] = {"name": test.label, "rows": rows, "notes": list(self.notes.get(test.key, ()))}
        return {
            "title": self.table.title,
            "directions": {name: "up" if KINDS[name].higher_is_better else "down" for name in self.table.metrics},
            "confidence": CONFIDENCE,
            "tests": tests,
            "problems": [asdict(problem) for problem in self.problems],
        }

    def as_csv(self) -> str:
        """One line for each picture and row."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["test", "row", "model", "trained_on", "image", "blur_px", *self.table.metrics])
        names = {row.key: (row.label, row.trained_on) for row in self.table.rows}
        for r in self.records:
            blur = "" if r.blur_px is None else f"{r.blur_px:.4g}"
            values = [repr(r.values[m]) if m in r.values else "" for m in self.table.metrics]
            writer.writerow([r.test, r.row, *names[r.row], r.image, blur, *values])
        return out.getvalue()


def pooled(results: Results, groups: Sequence[tuple[TableRow, Sequence[TableRow]]]) -> Results:
    """Several rows as one: a picture's values are the means over them, where all have one. Rows of no group stay."""
    members = {row.key for _, rows in groups for row in rows}
    by_place = {(r.test, r.image, r.row): r for r in results.records}
    records = [r for r in results.records if r.row not in members]
    for row, rows in groups:
        for first in (r for r in results.records if r.row == rows[0].key):
            places = [(first.test, first.image, one.key) for one in rows]
            values = [by_place[place].values for place in places if place in by_place]
            if len(values) == len(rows):
                metrics = [metric for metric in first.values if all(metric in one for one in values)]
                means = {metric: float(np.mean([one[metric] for one in values])) for metric in metrics}
                records.append(PictureRecord(first.test, row.key, first.image, first.blur_px, means))
    others = tuple(row for row in results.table.rows if row.key not in members)
    table = results.table.model_copy(update={"rows": (*others, *(row for row, _ in groups))})
    return Results(table, tuple(records), results.problems, results.notes)


@lru_cache(maxsize=8)
def bootstrap_weights(count: int, draws: int, seed: int) -> Float[np.ndarray, "draws count"]:
    """The share of each of `count` pictures in each draw of as many with replacement."""
    random = np.random.default_rng(seed)
    return (random.multinomial(count, np.full(count, 1.0 / count), size=draws) / count).astype(np.float32)


def _mean(values: Float[np.ndarray, "count"], weights: Float[np.ndarray, "draws count"]) -> Mean:
    mean = float(np.mean(values))
    if len(values) < FEWEST or not np.isfinite(values).all():
        return Mean(mean, None, len(values))
    means = mean + weights @ (values - mean).astype(np.float32)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(means, (tail, 100.0 - tail))
    return Mean(mean, (float(low), float(high)), len(values))


def ranks(values: Mapping[str, float], higher_is_better: bool, decimals: int) -> dict[str, int]:
    """1 for the best, 2, 3, ... as they are written: equal texts have equal ranks. What is no number has no rank."""
    rounded = {key: round(value, decimals) for key, value in values.items() if not math.isnan(value)}
    ordered = sorted(set(rounded.values()), reverse=higher_is_better)
    return {key: 1 + ordered.index(value) for key, value in rounded.items()}


def grouped(items: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Second parts by their first ones, in order."""
    groups: dict[str, list[str]] = {}
    for first, second in items:
        groups.setdefault(first, []).append(second)
    return groups
