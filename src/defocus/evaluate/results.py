"""Results of an evaluation: a value for each picture, row and measure, means with their uncertainty, and their tables.

Rows are compared over the same pictures: a mean is over those of a test set for which every row that has any value has
one. Intervals are of the bootstrap: pictures are drawn with replacement, the same draws for all rows, so that the
interval of a difference is that of paired pictures. Where several pictures show one scene, scenes are drawn, each with
all of its pictures.

Tables are as the paper has them: Markdown with the best in bold and the second underlined, LaTeX with the best, the
second and the third coloured.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..draw.pages import markdown_words as words
from .measures import KINDS
from .paper_tables import published_values
from .table_file import EvaluationTable, TableRow, Test

CONFIDENCE = 0.95
# The bootstrap knows no more spread than its pictures show: of normal values its intervals of 95 % hold the truth in
# 80 % of cases for 4 pictures, 85 % for 5, 90 % for 10. With fewer than the first number there is none, and below the
# second the tables say so. Scenes count where they are known.
FEWEST, FEW = 5, 10
COLOURS = {1: "red!30", 2: "orange!25", 3: "yellow!25"}
LEVELLED = ("psnr", "ssim", "lpips")  # measures that have a table by blur level
SHOWN = 5  # names of pictures with a problem
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class PictureRecord:
    """The values of one picture of one row, by measure."""

    test: str  # keys of test and row
    row: str
    image: str
    blur_px: float | None
    values: dict[str, float]
    scene: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A picture that could not be restored or measured, and why."""

    test: str
    row: str
    image: str
    reason: str


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over `count` pictures and its 95 % interval, which is None for few samples or infinite values. Samples are
    pictures or, where they are known, scenes."""

    value: float
    interval: tuple[float, float] | None
    count: int
    samples: int


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

    def scenes(self, test: str) -> dict[str, str]:
        """The scene of the pictures, where it is known."""
        return {r.image: r.scene for r in self.records if r.test == test and r.scene is not None}

    def samples(self, test: str) -> str:
        """What the bootstrap draws."""
        return "scenes" if self.scenes(test) else "pictures"

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
        scenes = self.scenes(test)
        samples, sample_of = np.unique([scenes.get(image, image) for image in images], return_inverse=True)
        draws = bootstrap_weights(len(samples), self.table.bootstrap, self.table.seed)
        values = {row: np.array([of_row[image] for image in images]) for row, of_row in rows.items()}
        if minus is not None:
            base = values.pop(minus)
            with np.errstate(invalid="ignore"):  # of two infinite values
                values = {row: of_row - base for row, of_row in values.items()}
        return {row: _mean(of_row, sample_of, draws) for row, of_row in values.items()}

    def all_means(self, test: str, *, minus: str | None = None) -> dict[str, dict[str, Mean]]:
        """Means of each row by measure, of the measures that any row of the test set has."""
        return {metric: self.means(test, metric, minus=minus) for metric in self.metrics(test)}

    def as_json(self) -> dict[str, Any]:
        """All means, intervals, levels, notes and problems; numbers that are infinite as text."""

        def plain(test: str, row: str, **choice: Any) -> dict[str, Any]:
            means = {metric: self.means(test, metric, **choice).get(row) for metric in self.table.metrics}
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
                        "metrics": plain(test.key, row.key, level=level),
                    }
                    for level in self.levels(test.key)
                ]
                names: dict[str, Any] = {"name": row.label, "trained_on": row.trained_on}
                if self.table.paper:
                    names["paper"] = published_values(row, test)
                rows[row.key] = names | {"metrics": plain(test.key, row.key), "levels": levels}
                if (blurred := self.table.input_row) is not None and row is not blurred:
                    rows[row.key]["gain"] = plain(test.key, row.key, minus=blurred.key)
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
        heads = ("test", "row", "model", "trained_on", "image", "scene", "blur_px", *self.table.metrics)
        names = {row.key: (row.label, row.trained_on) for row in self.table.rows}
        rows = []
        for r in self.records:
            blur = "" if r.blur_px is None else f"{r.blur_px:.4g}"
            values = [repr(r.values[m]) if m in r.values else "" for m in self.table.metrics]
            cells = (r.test, r.row, *names[r.row], r.image, r.scene or "", blur, *values)
            rows.append(dict(zip(heads, cells, strict=True)))
        return csv_text(rows, heads)


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
                records.append(replace(first, row=row.key, values=means))
    others = tuple(row for row in results.table.rows if row.key not in members)
    table = results.table.model_copy(update={"rows": (*others, *(row for row, _ in groups))})
    return Results(table, tuple(records), results.problems, results.notes)


@lru_cache(maxsize=8)
def bootstrap_weights(count: int, draws: int, seed: int) -> Float[np.ndarray, "draws count"]:
    """The share of each of `count` samples in each draw of as many with replacement."""
    random = np.random.default_rng(seed)
    return (random.multinomial(count, np.full(count, 1.0 / count), size=draws) / count).astype(np.float32)


def _mean(
    values: Float[np.ndarray, "count"], sample_of: Int[np.ndarray, "count"], weights: Float[np.ndarray, "draws samples"]
) -> Mean:
    """The mean of values and its interval by draws of the samples that they belong to."""
    mean, samples = float(np.mean(values)), weights.shape[1]
    if samples < FEWEST or not np.isfinite(values).all():
        return Mean(mean, None, len(values), samples)
    sums, sizes = (np.bincount(sample_of, one).astype(np.float32) for one in (values - mean, np.ones_like(values)))
    means = mean + (weights @ sums) / (weights @ sizes)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(means, (tail, 100.0 - tail))
    return Mean(mean, (float(low), float(high)), len(values), samples)


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


def number_text(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with a true minus, infinity as a sign, NaN as a dash, and no sign before what is written as zero."""
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:z.{decimals}f}"
    plus = "+" if signed and float(text) > 0.0 else ""
    return plus + text.replace("-", "−")


def csv_text(rows: Sequence[Mapping[str, Any]], heads: Sequence[str] | None = None) -> str:
    """Rows of one set of keys, the heads, as CSV: floats with six digits, NaN as nothing."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, heads or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
        writer.writerow({key: "" if cell == "nan" else cell for key, cell in cells.items()})
    return buffer.getvalue()


def compare(results: Results) -> str:
    """The whole evaluation in Markdown: tables, intervals, differences, blur levels, notes and problems."""
    parts = [f"# {words(results.table.title)}"]
    for test in results.table.tests:
        parts += [
            f"## {words(test.label)}",
            main_table(results, test),
            paper_comparison(results, test),
            "\n".join(f"- {words(note)}" for note in results.notes.get(test.key, ())),
            f"Means with 95 % intervals (bootstrap over {results.samples(test.key)}):",
            interval_table(results, test),
            _few(results, test),
            gain_table(results, test),
            difference_table(results, test),
            *(level_table(results, test, metric) for metric in LEVELLED),
        ]
    if results.problems:
        parts += [
            f"## {len(results.problems)} problems",
            "\n".join(f"- {words(line)}" for line in problem_lines(results)),
        ]
    parts.append("Arrows say which way is better. **Best**, <u>second</u> and *third* are of the values as written.")
    return "\n\n".join(part for part in parts if part) + "\n"


def main_table(results: Results, test: Test) -> str:
    """A row for each model and training set; the input takes no part in the ranking."""
    means = results.all_means(test.key)
    places = {metric: _ranks(results, of_metric, metric) for metric, of_metric in means.items()}
    rows = []
    for row in results.table.rows:
        counts = sorted({of_metric[row.key].count for of_metric in means.values() if row.key in of_metric})
        cells = [_ranked(means[m].get(row.key), m, places[m].get(row.key)) for m in means]
        rows.append([words(row.label), words(row.trained_on) or NOTHING, "/".join(map(str, counts)) or "0", *cells])
    return markdown_table(["Model", "Trained on", "Pictures", *_headings(means)], rows)


def paper_comparison(results: Results, test: Test) -> str:
    """Our means beside those that the paper prints; empty where the table does not ask for them, or it has none."""
    if not results.table.paper:
        return ""
    means = results.all_means(test.key)
    rows = []
    for row in results.table.rows:
        if paper := published_values(row, test):
            theirs = {m: number_text(paper.get(m, math.nan), KINDS[m].decimals) for m in means}
            cells = [f"{_number(means[m].get(row.key), m)} / {theirs[m]}" for m in means]
            rows.append([words(row.title), *cells])
    return "Ours / the paper's:\n\n" + markdown_table(["Row", *_headings(means)], rows) if rows else ""


def interval_table(results: Results, test: Test) -> str:
    """Means and the ends of their intervals."""
    means = results.all_means(test.key)
    rows = [[words(row.title), *(_interval(means[m].get(row.key), m) for m in means)] for row in results.table.rows]
    return markdown_table(["Row", *_headings(means)], rows)


def _headings(metrics: Iterable[str]) -> list[str]:
    return [KINDS[metric].heading for metric in metrics]


def difference_table(results: Results, test: Test) -> str:
    """Differences of each row to the best one by the first measure; empty with less than two rows."""
    metric = next(iter(results.metrics(test.key)), "")
    first = results.means(test.key, metric)
    rivals = [row for row in results.table.rows if row.kind != "input" and row.key in first]
    if len(rivals) < 2:
        return ""
    better = max if KINDS[metric].higher_is_better else min
    return _differences(results, test, "Differences to", better(rivals, key=lambda row: first[row.key].value))


def gain_table(results: Results, test: Test) -> str:
    """Differences of each row to the blurred pictures; empty where they are no row, or the only one."""
    blurred = results.table.input_row
    if blurred is None or not any(results.all_means(test.key, minus=blurred.key).values()):
        return ""
    return _differences(results, test, "Gain over", blurred)


def _differences(results: Results, test: Test, what: str, base: TableRow) -> str:
    """Differences of the other rows to one, with their intervals."""
    means = results.all_means(test.key, minus=base.key)
    rows = [
        [words(row.title), *(_interval(means[m].get(row.key), m, signed=True) for m in means)]
        for row in results.table.rows
        if row is not base
    ]
    title = words(base.title)
    above = f"{what} {title}, of the same pictures, with 95 % intervals (one that holds 0 may be chance):"
    return above + "\n\n" + markdown_table(["Row", *(f"Δ {KINDS[m].label}" for m in means)], rows)


def level_table(results: Results, test: Test, metric: str) -> str:
    """A measure by the largest blur of the pictures; empty where that is not known."""
    levels = level_means(results, test, metric)
    if not levels:
        return ""
    kind = KINDS[metric]
    places = [_ranks(results, means, metric) for means in levels.values()]
    rows = []
    for row in results.table.rows:
        cells = []
        for means, place in zip(levels.values(), places, strict=True):
            mean = means.get(row.key)
            text = _ranked(mean, metric, place.get(row.key))
            if mean is not None and mean.interval is not None:
                text += f" ± {(mean.interval[1] - mean.interval[0]) / 2.0:.{kind.decimals}f}"
            cells.append(text)
        rows.append([words(row.title), *cells])
    above = f"{kind.heading} by the largest blur radius of a picture, pixels (and how many pictures):"
    heads = [f"{level} ({picture_count(means)})" for level, means in levels.items()]
    return above + "\n\n" + markdown_table(["Row", *heads], rows)


def level_means(results: Results, test: Test, metric: str) -> dict[BlurLevel, dict[str, Mean]]:
    """Means of the rows by blur level; empty where the test set has no levels or no such values."""
    if metric not in results.metrics(test.key):
        return {}
    return {level: results.means(test.key, metric, level=level) for level in results.levels(test.key)}


def picture_count(means: Mapping[str, Mean]) -> int:
    """How many pictures the means of rows are over."""
    return next(iter(means.values())).count if means else 0


def seed_table(results: Results, test: Test, groups: Mapping[str, Sequence[TableRow]], seeds: Sequence[int]) -> str:
    """Means of trainings that differ in nothing but their seeds, and how far they are from the first group's."""
    metrics = results.metrics(test.key)
    base = next(iter(groups.values()))
    rows = []
    for title, trainings in groups.items():
        cells = []
        for metric in metrics:
            means = results.means(test.key, metric)
            for row, first in zip(trainings, base, strict=True):
                difference = results.means(test.key, metric, minus=first.key).get(row.key)
                bracket = f" ({_number(difference, metric, signed=True)})" if difference is not None else ""
                cells.append(_number(means.get(row.key), metric) + bracket)
        rows.append([title, *cells])
    return markdown_table(["Row", *(f"{KINDS[m].heading}, seed {seed}" for m in metrics for seed in seeds)], rows)


def problem_lines(results: Results) -> list[str]:
    """Problems of a row and a test set with the same reason in one line, with the names of the first pictures."""
    alike = grouped((f"{p.test}, {p.row}: {p.reason.replace(p.image, '…')}", p.image) for p in results.problems)
    return [
        f"{reason} ({', '.join(images[:SHOWN])}{f' and {len(images) - SHOWN} more' * (len(images) > SHOWN)})"
        for reason, images in alike.items()
    ]


def latex(results: Results) -> str:
    """One table over all test sets, as in the paper's supplement. Needs booktabs, multirow and xcolor[table]."""
    table, metrics = results.table, results.table.metrics
    heads = [f"{_tex(KINDS[m].label)}$\\{'up' if KINDS[m].higher_is_better else 'down'}arrow$" for m in metrics]
    places = ("best", "second best", "third best")
    boxes = [f"\\colorbox{{{COLOURS[rank]}}}{{{text}}}" for rank, text in enumerate(places, 1)]
    lines = [
        "% needs \\usepackage{booktabs,multirow} and \\usepackage[table]{xcolor}",
        "\\begin{table}[t]",
        "\\centering",
        "\\setlength{\\tabcolsep}{2pt}",
        f"\\caption{{{_tex(table.title)}. The {boxes[0]}, {boxes[1]}, and {boxes[2]} are highlighted.}}",
        "\\label{tab:evaluation}",
        f"\\begin{{tabular}}{{lll{'c' * len(metrics)}}}",
        "\\toprule",
        " & ".join(["Test set", "Model", "Train", *heads]) + " \\\\",
    ]
    for test in table.tests:
        means = {m: results.means(test.key, m) for m in metrics}
        ranked = {m: _ranks(results, means[m], m) for m in metrics}
        lines.append("\\midrule")
        title = _multirow(_tex(test.label), len(table.rows))
        trained_on = {row.key: row.trained_on for row in table.rows}
        for model, keys in grouped((row.label, row.key) for row in table.rows).items():
            name = _multirow(_tex(model), len(keys))
            for key in keys:
                cells = [title, name, _tex(trained_on[key]) or "--"]
                for metric in metrics:
                    text = _number(means[metric].get(key), metric)
                    for sign, tex in ((NOTHING, "--"), ("∞", "$\\infty$"), ("−", "$-$")):
                        text = text.replace(sign, tex)
                    colour = COLOURS.get(ranked[metric].get(key, 0))
                    cells.append(f"\\cellcolor{{{colour}}}{text}" if colour else text)
                lines.append(" & ".join(cells) + " \\\\")
                title = name = ""
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def _few(results: Results, test: Test) -> str:
    """A warning about intervals that few samples give, blur levels included."""
    counts = {
        mean.samples
        for metric in results.metrics(test.key)
        for level in (None, *results.levels(test.key))
        for mean in results.means(test.key, metric, level=level).values()
    }
    warnings, samples = [], results.samples(test.key)
    if any(FEWEST <= count < FEW for count in counts):
        warnings.append(f"Intervals of fewer than {FEW} {samples} are narrower than they should be.")
    if any(count < FEWEST for count in counts):
        warnings.append(f"Fewer than {FEWEST} {samples} are too few for an interval.")
    return " ".join(warnings)


def _ranks(results: Results, means: Mapping[str, Mean], metric: str) -> dict[str, int]:
    """Ranks 1 to 3 of the rows but the input, among all or those of one model; none in a group of one."""
    kind, by_model = KINDS[metric], results.table.marks == "model"
    rows = [row for row in results.table.rows if row.kind != "input" and row.key in means]
    places: dict[str, int] = {}
    for keys in grouped((row.label if by_model else "", row.key) for row in rows).values():
        if len(keys) > 1:
            places |= ranks({key: means[key].value for key in keys}, kind.higher_is_better, kind.decimals)
    return {key: rank for key, rank in places.items() if rank <= 3}


def _number(mean: Mean | None, metric: str, *, signed: bool = False) -> str:
    return NOTHING if mean is None else number_text(mean.value, KINDS[metric].decimals, signed=signed)


def _ranked(mean: Mean | None, metric: str, rank: int | None) -> str:
    text = _number(mean, metric)
    return {1: f"**{text}**", 2: f"<u>{text}</u>", 3: f"*{text}*"}.get(rank or 0, text)


def _interval(mean: Mean | None, metric: str, *, signed: bool = False) -> str:
    text = _number(mean, metric, signed=signed)
    if mean is None or mean.interval is None:
        return text
    low, high = (number_text(end, KINDS[metric].decimals, signed=signed) for end in mean.interval)
    return f"{text} [{low}, {high}]"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; cells with words from elsewhere are those of `markdown_words`."""
    lines = ["| " + " | ".join(row) + " |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(heads), *lines[1:]])


def _multirow(text: str, count: int) -> str:
    return f"\\multirow{{{count}}}{{*}}{{{text}}}" if count > 1 else text


def _tex(text: str) -> str:
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
