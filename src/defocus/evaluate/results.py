"""What an evaluation found: a value for each picture, row and measure, and means with their uncertainty.

Rows are compared over the same pictures: a mean is over those of a test set for which every row that has any value has
one. Intervals are of the bootstrap: pictures are drawn with replacement, the same draws for all rows, so that the
interval of a difference is that of paired pictures.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from .measures import KINDS
from .table_file import EvaluationTable, Row

CONFIDENCE = 0.95
# The bootstrap knows no more spread than its pictures show: of normal values its intervals of 95 % hold the truth in
# 80 % of cases for 4 pictures, 85 % for 5, 90 % for 10. With fewer than the first number there is none, and below the
# second the tables say so.
FEWEST, FEW = 5, 10


@dataclass(frozen=True, slots=True)
class Record:
    """One picture of one row."""

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
class Estimate:
    """A mean over pictures and its interval of 95 %; the interval is None for few pictures or infinite values."""

    mean: float
    interval: tuple[float, float] | None
    count: int


@dataclass(frozen=True)
class Results:
    table: EvaluationTable
    records: tuple[Record, ...]
    problems: tuple[Problem, ...] = ()
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each test set

    def values(self, test: str, metric: str) -> dict[str, dict[str, float]]:
        """By row and picture."""
        found: dict[str, dict[str, float]] = {}
        for record in self.records:
            if record.test == test and metric in record.values:
                found.setdefault(record.row, {})[record.image] = record.values[metric]
        return found

    def common(self, test: str, metric: str, level: tuple[float, float] | None = None) -> list[str]:
        """The pictures that every row with any value has; `level`: those with a largest blur above the first number and
        up to the second, in pixels."""
        found = [set(by_image) for by_image in self.values(test, metric).values()]
        shared = set.intersection(*found) if found else set()
        if level is not None:
            shared &= {image for image, blur in self.blur(test).items() if level[0] < blur <= level[1]}
        return sorted(shared)

    def blur(self, test: str) -> dict[str, float]:
        """The largest blur radius of the pictures, pixels, where it is known."""
        return {r.image: r.blur_px for r in self.records if r.test == test and r.blur_px is not None}

    def estimates(self, test: str, metric: str, level: tuple[float, float] | None = None) -> dict[str, Estimate]:
        """Mean and interval of each row that has values."""
        images = self.common(test, metric, level)
        if not images:
            return {}
        rows = self.values(test, metric)
        draws = bootstrap_weights(len(images), self.table.bootstrap, self.table.seed)
        return {row: _estimate(np.array([by[i] for i in images]), draws) for row, by in rows.items()}

    def differences(
        self, test: str, metric: str, base: str, level: tuple[float, float] | None = None
    ) -> dict[str, Estimate]:
        """Mean over pictures of each row's value minus that of the row `base`, with its interval."""
        images = self.common(test, metric, level)
        rows = self.values(test, metric)
        if not images or base not in rows:
            return {}
        draws = bootstrap_weights(len(images), self.table.bootstrap, self.table.seed)
        first = np.array([rows[base][i] for i in images])
        with np.errstate(invalid="ignore"):  # of two infinite values
            return {
                row: _estimate(np.array([by[i] for i in images]) - first, draws)
                for row, by in rows.items()
                if row != base
            }

    def levels(self, test: str) -> list[tuple[float, float]]:
        """The blur levels of a test set that have pictures: above the first number, up to the second."""
        blur = list(self.blur(test).values())
        if not blur:
            return []
        ends = (-1.0, *self.table.blur_levels_px, math.inf)
        return [(low, high) for low, high in pairwise(ends) if any(low < b <= high for b in blur)]

    def as_json(self) -> dict[str, Any]:
        """All means, intervals, levels, notes and problems; numbers that are infinite as text."""
        tests = {}
        for test in self.table.tests:
            rows = {}
            for row in self.table.rows:
                rows[row.key] = {
                    "name": row.label,
                    "trained_on": row.trained_on,
                    "metrics": {
                        metric: _plain(found[row.key])
                        for metric in self.table.metrics
                        if row.key in (found := self.estimates(test.key, metric))
                    },
                    "levels": [
                        {
                            "blur_px": [max(level[0], 0.0), None if math.isinf(level[1]) else level[1]],
                            "metrics": {
                                metric: _plain(found[row.key])
                                for metric in self.table.metrics
                                if row.key in (found := self.estimates(test.key, metric, level))
                            },
                        }
                        for level in self.levels(test.key)
                    ],
                }
            tests[test.key] = {"name": test.label, "rows": rows, "notes": list(self.notes.get(test.key, ()))}
        return {
            "title": self.table.title,
            "directions": {name: "up" if KINDS[name].higher_is_better else "down" for name in self.table.metrics},
            "confidence": CONFIDENCE,
            "tests": tests,
            "problems": [{"test": p.test, "row": p.row, "image": p.image, "reason": p.reason} for p in self.problems],
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


def pooled(results: Results, groups: Sequence[tuple[Row, Sequence[Row]]]) -> Results:
    """Several rows as one: a picture's values are the means over them, where all have one. Rows of no group stay."""
    member = {row.key for _, rows in groups for row in rows}
    kept = tuple(row for row in results.table.rows if row.key not in member)
    found = {(r.test, r.image, r.row): r for r in results.records}
    records = [r for r in results.records if r.row not in member]
    for row, rows in groups:
        for first in (r for r in results.records if r.row == rows[0].key):
            places = [(first.test, first.image, one.key) for one in rows]
            alike = [found[place].values for place in places if place in found]
            if len(alike) == len(rows):
                shared = [metric for metric in first.values if all(metric in values for values in alike)]
                means = {metric: float(np.mean([values[metric] for values in alike])) for metric in shared}
                records.append(Record(first.test, row.key, first.image, first.blur_px, means))
    table = results.table.model_copy(update={"rows": (*kept, *(row for row, _ in groups))})
    return Results(table, tuple(records), results.problems, results.notes)


@lru_cache(maxsize=8)
def bootstrap_weights(count: int, draws: int, seed: int) -> Float[np.ndarray, "draws count"]:
    """The share of each of `count` pictures in each draw of as many with replacement."""
    random = np.random.default_rng(seed)
    return (random.multinomial(count, np.full(count, 1.0 / count), size=draws) / count).astype(np.float32)


def _estimate(values: Float[np.ndarray, "count"], weights: Float[np.ndarray, "draws count"]) -> Estimate:
    mean = float(np.mean(values))
    if len(values) < FEWEST or not np.isfinite(values).all():
        return Estimate(mean, None, len(values))
    means = mean + weights @ (values - mean).astype(np.float32)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(means, (tail, 100.0 - tail))
    return Estimate(mean, (float(low), float(high)), len(values))


def _plain(estimate: Estimate) -> dict[str, Any]:
    mean = estimate.mean if math.isfinite(estimate.mean) else str(estimate.mean)
    return {"mean": mean, "interval": estimate.interval, "count": estimate.count}


def ranks(values: Mapping[str, float], higher_is_better: bool, decimals: int) -> dict[str, int]:
    """1 for the best, 2, 3, ... as they are written: equal texts have equal ranks. What is no number has no rank."""
    shown = {key: round(value, decimals) for key, value in values.items() if not math.isnan(value)}
    ordered: Sequence[float] = sorted(set(shown.values()), reverse=higher_is_better)
    return {key: 1 + ordered.index(value) for key, value in shown.items()}


def grouped(items: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Second parts by their first ones, in order."""
    found: dict[str, list[str]] = {}
    for first, second in items:
        found.setdefault(first, []).append(second)
    return found
