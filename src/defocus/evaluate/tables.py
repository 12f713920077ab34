"""The tables of an evaluation as the paper has them: Markdown with the best in bold and the second underlined, LaTeX
with the best, the second and the third coloured.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .measures import KINDS
from .results import FEW, FEWEST, BlurLevel, Mean, Results, grouped, ranks
from .table_file import TableRow, Test

COLOURS = {1: "red!30", 2: "orange!25", 3: "yellow!25"}
LEVELLED = ("psnr", "ssim", "lpips")  # measures that have a table by blur level
SHOWN = 5  # names of pictures with a problem
NOTHING = "–"


def number_text(value: float, decimals: int, *, signed: bool = False) -> str:
    """A number with a true minus, infinity as a sign, NaN as a dash, and no sign before what is written as zero."""
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:z.{decimals}f}"
    plus = "+" if signed and float(text) > 0.0 else ""
    return plus + text.replace("-", "−")


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of one set of keys as CSV: numbers with six digits, NaN as nothing."""
    rows = list(rows)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
        writer.writerow({key: "" if cell == "nan" else cell for key, cell in cells.items()})
    return buffer.getvalue()


def compare(results: Results) -> str:
    """The whole evaluation in Markdown: tables, intervals, differences, blur levels, notes and problems."""
    parts = [f"# {results.table.title}"]
    for test in results.table.tests:
        parts += [
            f"## {test.label}",
            main_table(results, test),
            "\n".join(f"- {note}" for note in results.notes.get(test.key, ())),
            "Means with 95 % intervals (bootstrap over pictures):",
            interval_table(results, test),
            _few(results, test),
            difference_table(results, test),
            *(level_table(results, test, metric) for metric in LEVELLED),
        ]
    if results.problems:
        parts += [f"## {len(results.problems)} problems", "\n".join(f"- {line}" for line in problem_lines(results))]
    parts.append("Arrows say which way is better. **Best**, <u>second</u> and *third* are of the values as written.")
    return "\n\n".join(part for part in parts if part) + "\n"


def main_table(results: Results, test: Test) -> str:
    """A row for each model and training set; the input takes no part in the ranking."""
    metrics = results.metrics(test.key)
    means = {metric: results.means(test.key, metric) for metric in metrics}
    places = {metric: _ranks(results, means[metric], metric) for metric in metrics}
    rows = []
    for row in results.table.rows:
        counts = sorted({means[m][row.key].count for m in metrics if row.key in means[m]})
        cells = [_ranked(means[m].get(row.key), m, places[m].get(row.key)) for m in metrics]
        rows.append([row.label, row.trained_on or NOTHING, "/".join(map(str, counts)) or "0", *cells])
    return markdown_table(["Model", "Trained on", "Pictures", *(KINDS[m].heading for m in metrics)], rows)


def interval_table(results: Results, test: Test) -> str:
    """Means and the ends of their intervals."""
    metrics = results.metrics(test.key)
    means = {metric: results.means(test.key, metric) for metric in metrics}
    rows = [[row.title, *(_interval(means[m].get(row.key), m) for m in metrics)] for row in results.table.rows]
    return markdown_table(["Row", *(KINDS[m].heading for m in metrics)], rows)


def difference_table(results: Results, test: Test) -> str:
    """Differences of each row to the best one by the first measure; empty with less than two rows."""
    metrics = results.metrics(test.key)
    rivals = {row.key for row in results.table.rows if row.kind != "input"}
    first = results.means(test.key, metrics[0]) if metrics else {}
    rivals &= first.keys()
    if len(rivals) < 2:
        return ""
    better = max if KINDS[metrics[0]].higher_is_better else min
    best = better((row for row in results.table.rows if row.key in rivals), key=lambda row: first[row.key].value)
    means = {metric: results.means(test.key, metric, minus=best.key) for metric in metrics}
    rows = [
        [row.title, *(_interval(means[m].get(row.key), m, signed=True) for m in metrics)]
        for row in results.table.rows
        if row is not best
    ]
    above = f"Differences to {best.title}, of the same pictures, with 95 % intervals (one that holds 0 may be chance):"
    return above + "\n\n" + markdown_table(["Row", *(f"Δ {KINDS[m].label}" for m in metrics)], rows)


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
        rows.append([row.title, *cells])
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


def latex(results: Results, *, label: str = "tab:evaluation") -> str:
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
        f"\\label{{{label}}}",
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
    """A warning about intervals that few pictures give, blur levels included."""
    counts = {
        mean.count
        for metric in results.metrics(test.key)
        for level in (None, *results.levels(test.key))
        for mean in results.means(test.key, metric, level=level).values()
    }
    warnings = []
    if any(FEWEST <= count < FEW for count in counts):
        warnings.append(f"Intervals of fewer than {FEW} pictures are narrower than they should be.")
    if any(count < FEWEST for count in counts):
        warnings.append(f"Fewer than {FEWEST} pictures are too few for an interval.")
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
    """A table in Markdown; bars within cells are escaped."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(heads), *lines[1:]])


def _multirow(text: str, count: int) -> str:
    return f"\\multirow{{{count}}}{{*}}{{{text}}}" if count > 1 else text


def _tex(text: str) -> str:
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
