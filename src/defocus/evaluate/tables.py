"""The paper's tables of an evaluation: Markdown with the best in bold and the second underlined, LaTeX with the best,
the second and the third coloured, as the paper has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .measures import KINDS
from .number_text import NOTHING, number_text
from .results import FEW, FEWEST, Estimate, Results, grouped, ranks
from .table_file import Row, Test

COLOURS = {1: "red!30", 2: "orange!25", 3: "yellow!25"}
LEVELLED = ("psnr", "ssim", "lpips")  # measures that are told for each blur level
SHOWN = 5  # names of pictures with a problem


def compare(results: Results) -> str:
    """The whole evaluation in Markdown: tables, intervals, differences, blur levels, notes and problems."""
    parts = [f"# {results.table.title}", ""]
    for test in results.table.tests:
        parts += [f"## {test.label}", "", *_lines(main_table(results, test))]
        notes = results.notes.get(test.key, ())
        parts += ["", *(f"- {note}" for note in notes)] if notes else []
        parts += [
            "",
            "Means with 95 % intervals (bootstrap over pictures):",
            "",
            *_lines(interval_table(results, test)),
            *_few(results, test),
        ]
        differences = difference_table(results, test)
        if differences:
            parts += ["", *_lines(differences)]
        for metric in LEVELLED:
            levels = level_table(results, test, metric)
            if levels:
                parts += ["", *_lines(levels)]
        parts.append("")
    if results.problems:
        parts += [f"## {len(results.problems)} problems", "", *(f"- {line}" for line in problem_lines(results)), ""]
    parts.append("Arrows say which way is better. **Best**, <u>second</u> and *third* are of the values as written.")
    return "\n".join(parts) + "\n"


def _few(results: Results, test: Test) -> list[str]:
    """What is to be said of intervals that few pictures give, blur levels included."""
    counts = {
        estimate.count
        for metric in _measured(results, test)
        for level in (None, *results.levels(test.key))
        for estimate in results.estimates(test.key, metric, level).values()
    }
    told = []
    if any(FEWEST <= count < FEW for count in counts):
        told.append(f"Intervals of fewer than {FEW} pictures are narrower than they should be.")
    if any(count < FEWEST for count in counts):
        told.append(f"Fewer than {FEWEST} pictures are too few for an interval.")
    return ["", " ".join(told)] if told else []


def problem_lines(results: Results) -> list[str]:
    """Problems of a row and a test set with the same reason in one line, with the names of the first pictures."""
    alike = grouped((f"{p.test}, {p.row}: {p.reason.replace(p.image, '…')}", p.image) for p in results.problems)
    return [
        f"{reason} ({', '.join(images[:SHOWN])}{f' and {len(images) - SHOWN} more' * (len(images) > SHOWN)})"
        for reason, images in alike.items()
    ]


def main_table(results: Results, test: Test) -> str:
    """A row for each model and training set; the input takes no part in the ranking."""
    metrics = _measured(results, test)
    estimates = {metric: results.estimates(test.key, metric) for metric in metrics}
    marks = {metric: _marks(results, estimates[metric], metric) for metric in metrics}
    lines = [_header("Model", "Trained on", "Pictures", *(f"{KINDS[m].label} {KINDS[m].arrow}" for m in metrics))]
    for row in results.table.rows:
        counts = {estimates[m][row.key].count for m in metrics if row.key in estimates[m]}
        count = "/".join(str(n) for n in sorted(counts)) or "0"
        cells = [_marked(estimates[m].get(row.key), m, marks[m].get(row.key)) for m in metrics]
        lines.append(_row(row.label, row.trained_on or NOTHING, count, *cells))
    return "\n".join(lines)


def interval_table(results: Results, test: Test) -> str:
    """Means and the ends of their intervals."""
    metrics = _measured(results, test)
    estimates = {metric: results.estimates(test.key, metric) for metric in metrics}
    lines = [_header("Row", *(f"{KINDS[m].label} {KINDS[m].arrow}" for m in metrics))]
    lines += [_row(name(r), *(_interval(estimates[m].get(r.key), m) for m in metrics)) for r in results.table.rows]
    return "\n".join(lines)


def difference_table(results: Results, test: Test) -> str:
    """Of each row to the best one by the first measure, over the same pictures; empty with less than two rows."""
    metrics = _measured(results, test)
    if not metrics:
        return ""
    found = {key: e for key, e in results.estimates(test.key, metrics[0]).items() if _ranked(results).get(key)}
    if len(found) < 2:
        return ""
    kind = KINDS[metrics[0]]
    best = (max if kind.higher_is_better else min)(found, key=lambda key: found[key].mean)
    title = next(name(row) for row in results.table.rows if row.key == best)
    lines = [
        f"Differences to {title}, of the same pictures, with 95 % intervals (one that holds 0 may be chance):",
        "",
        _header("Row", *(f"Δ {KINDS[m].label}" for m in metrics)),
    ]
    apart = {metric: results.differences(test.key, metric, best) for metric in metrics}
    for row in results.table.rows:
        if row.key != best:
            lines.append(_row(name(row), *(_interval(apart[m].get(row.key), m, signed=True) for m in metrics)))
    return "\n".join(lines)


def level_table(results: Results, test: Test, metric: str) -> str:
    """A column for each blur level; empty where the blur is not known."""
    levels = results.levels(test.key)
    if not levels or metric not in _measured(results, test):
        return ""
    kind = KINDS[metric]
    estimates = [results.estimates(test.key, metric, level) for level in levels]
    marks = [_marks(results, one, metric) for one in estimates]
    heads = []
    for level, one in zip(levels, estimates, strict=True):
        count = next(iter(one.values())).count if one else 0
        heads.append(f"{level_name(level)} ({count})")
    lines = [
        f"{kind.label} {kind.arrow} by the largest blur radius of a picture, pixels (and how many pictures):",
        "",
        _header("Row", *heads),
    ]
    for row in results.table.rows:
        cells = []
        for one, mark in zip(estimates, marks, strict=True):
            text = _marked(one.get(row.key), metric, mark.get(row.key))
            found = one.get(row.key)
            half = (found.interval[1] - found.interval[0]) / 2.0 if found is not None and found.interval else None
            cells.append(text if half is None else f"{text} ± {half:.{kind.decimals}f}")
        lines.append(_row(name(row), *cells))
    return "\n".join(lines)


def seed_table(results: Results, test: Test, groups: Mapping[str, Sequence[Row]], seeds: Sequence[int]) -> str:
    """Means of trainings that differ in nothing but their seeds, and how far they are from the first group's."""
    metrics = _measured(results, test)
    heads = [f"{KINDS[m].label} {KINDS[m].arrow}, seed {seed}" for m in metrics for seed in seeds]
    lines = [_header("Row", *heads)]
    base = next(iter(groups.values()))
    for title, rows in groups.items():
        cells = []
        for metric in metrics:
            means = results.estimates(test.key, metric)
            for row, first in zip(rows, base, strict=True):
                apart = results.differences(test.key, metric, first.key).get(row.key)
                told = f" ({_number(apart, metric, signed=True)})" if apart is not None else ""
                cells.append(_number(means.get(row.key), metric) + told)
        lines.append(_row(title, *cells))
    return "\n".join(lines)


def latex(results: Results, *, label: str = "tab:evaluation") -> str:
    """One table over all test sets, as in the paper's supplement. Needs booktabs, multirow and xcolor[table]."""
    metrics = results.table.metrics
    heads = [f"{_tex(KINDS[m].label)}${chr(92)}{'up' if KINDS[m].higher_is_better else 'down'}arrow$" for m in metrics]
    lines = [
        "% needs \\usepackage{booktabs,multirow} and \\usepackage[table]{xcolor}",
        "\\begin{table}[t]",
        "\\centering",
        "\\setlength{\\tabcolsep}{2pt}",
        f"\\caption{{{_tex(results.table.title)}. The \\colorbox{{{COLOURS[1]}}}{{best}}, "
        f"\\colorbox{{{COLOURS[2]}}}{{second best}}, and \\colorbox{{{COLOURS[3]}}}{{third best}} are highlighted.}}",
        f"\\label{{{label}}}",
        f"\\begin{{tabular}}{{lll{'c' * len(metrics)}}}",
        "\\toprule",
        " & ".join(["Test set", "Model", "Train", *heads]) + " \\\\",
    ]
    for test in results.table.tests:
        estimates = {m: results.estimates(test.key, m) for m in metrics}
        marks = {m: _marks(results, estimates[m], m) for m in metrics}
        lines.append("\\midrule")
        models = grouped((row.label, row.key) for row in results.table.rows)
        by_key = {row.key: row for row in results.table.rows}
        first = True
        for model, keys in models.items():
            for number, key in enumerate(keys):
                cells = [_multirow(_tex(test.label), len(results.table.rows)) if first else ""]
                cells.append(_multirow(_tex(model), len(keys)) if number == 0 else "")
                cells.append(_tex(by_key[key].trained_on) or "--")
                for metric in metrics:
                    text = _number(estimates[metric].get(key), metric)
                    for sign, tex in ((NOTHING, "--"), ("∞", "$\\infty$"), ("−", "$-$")):
                        text = text.replace(sign, tex)
                    colour = COLOURS.get(marks[metric].get(key, 0))
                    cells.append(f"\\cellcolor{{{colour}}}{text}" if colour else text)
                lines.append(" & ".join(cells) + " \\\\")
                first = False
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def name(row: Row) -> str:
    """Model and training set in one."""
    return f"{row.label} ({row.trained_on})" if row.trained_on else row.label


def level_name(level: tuple[float, float]) -> str:
    low, high = level
    if math.isinf(high):
        return f"> {low:g}"
    return f"≤ {high:g}" if low < 0.0 else f"{low:g}–{high:g}"


def _measured(results: Results, test: Test) -> list[str]:
    """The measures that any row of the test set has."""
    return [metric for metric in results.table.metrics if results.values(test.key, metric)]


def _ranked(results: Results) -> dict[str, str]:
    """Rows that are ranked, and within which group."""
    by_model = results.table.marks == "model"
    return {r.key: f"model {r.label}" if by_model else "all" for r in results.table.rows if r.kind != "input"}


def _marks(results: Results, estimates: Mapping[str, Estimate], metric: str) -> dict[str, int]:
    """Ranks 1 to 3 of the rows; none in a group of one."""
    kind = KINDS[metric]
    marked: dict[str, int] = {}
    groups = grouped((group, key) for key, group in _ranked(results).items() if key in estimates)
    for keys in groups.values():
        if len(keys) > 1:
            marked |= ranks({k: estimates[k].mean for k in keys}, kind.higher_is_better, kind.decimals)
    return {key: rank for key, rank in marked.items() if rank <= 3}


def _number(estimate: Estimate | None, metric: str, *, signed: bool = False) -> str:
    return NOTHING if estimate is None else number_text(estimate.mean, KINDS[metric].decimals, signed=signed)


def _marked(estimate: Estimate | None, metric: str, rank: int | None) -> str:
    text = _number(estimate, metric)
    return {1: f"**{text}**", 2: f"<u>{text}</u>", 3: f"*{text}*"}.get(rank or 0, text)


def _interval(estimate: Estimate | None, metric: str, *, signed: bool = False) -> str:
    text = _number(estimate, metric, signed=signed)
    if estimate is None or estimate.interval is None:
        return text
    ends = [_number(Estimate(end, None, 1), metric, signed=signed) for end in estimate.interval]
    return f"{text} [{ends[0]}, {ends[1]}]"


def _multirow(text: str, count: int) -> str:
    return f"\\multirow{{{count}}}{{*}}{{{text}}}" if count > 1 else text


def _header(*cells: str) -> str:
    return _row(*cells) + "\n|" + " --- |" * len(cells)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _lines(text: str) -> Sequence[str]:
    return text.split("\n")


def _tex(text: str) -> str:
    special = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
