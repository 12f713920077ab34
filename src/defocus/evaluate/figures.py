"""The figures of an evaluation: pictures as each row has them, with enlarged parts, and measures by blur level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import DefocusError
from .crops import choose_crops
from .measures import KINDS
from .number_text import number_text
from .pictures import Image, TestImage, TestSet
from .results import Problem, Record, Results
from .table_file import Row, Test, slug
from .tables import LEVELLED, level_name, name

Source = Callable[[Row, Test, TestImage], Image | None]
TOLD = 3  # measures below a picture


def draw_figures(results: Results, sets: Sequence[TestSet], source: Source, folder: Path) -> list[Problem]:
    """Draw `table.figures` pictures of each test set, and the blur levels; what could not be drawn, unless the picture
    has a problem that was told before."""
    folder.mkdir(parents=True, exist_ok=True)
    problems: list[Problem] = []
    known = {(problem.test, problem.image) for problem in results.problems}
    for test, opened in zip(results.table.tests, sets, strict=True):
        for item in chosen(results, test, opened):
            try:
                _draw_picture(results, test, item, source, folder / f"{test.key}-{slug(item.id)}.png")
            except (DefocusError, OSError) as error:
                if (test.key, item.id) not in known:
                    problems.append(Problem(test.key, "figure", item.id, str(error)))
        draw_levels(results, test, folder)
    return problems


def chosen(results: Results, test: Test, opened: TestSet) -> list[TestImage]:
    """Evenly spread from the least to the most blurred: by blur, else by PSNR of the first row, else as they come."""
    images = list(opened.images)
    first = results.values(test.key, "psnr").get(results.table.rows[0].key, {})
    blur = results.blur(test.key)
    if blur:
        images.sort(key=lambda item: blur.get(item.id, 0.0))
    elif first:
        images.sort(key=lambda item: -first.get(item.id, math.inf))
    count = min(results.table.figures, len(images))
    return [images[(2 * i + 1) * len(images) // (2 * count)] for i in range(count)]


def _draw_picture(results: Results, test: Test, item: TestImage, source: Source, file: Path) -> None:
    from ..draw.comparison import Panel, draw_comparison
    from ..draw.style import save

    records = {r.row: r for r in results.records if r.test == test.key and r.image == item.id}
    blurred = item.input.read()
    truth = item.truth.read() if item.truth is not None else None
    panels = []
    if not any(row.kind == "input" for row in results.table.rows):
        panels.append(Panel("Input", "", blurred))
    for row in results.table.rows:
        place = _found(source, row, test, item)
        if place is not None:
            told = _told(records[row.key], results.table.metrics) if row.key in records else ""
            panels.append(Panel(name(row), told, place.read()))
    if truth is not None:
        panels.append(Panel("Truth", "", truth))
    boxes = choose_crops(blurred, panels[-1].picture, results.table.crops)
    blur = "" if item.blur_px is None else f", blur up to {item.blur_px:.1f} px"
    save(draw_comparison(panels, boxes, f"{test.label}: {item.id}{blur}"), file)


def _found(source: Source, row: Row, test: Test, item: TestImage) -> Image | None:
    try:
        return source(row, test, item)
    except DefocusError:  # a picture that another program did not make; it was told
        return None


def _told(record: Record, metrics: Sequence[str]) -> str:
    shown = [m for m in metrics if m in record.values][:TOLD]
    return "   ".join(f"{KINDS[m].label} {number_text(record.values[m], KINDS[m].decimals)}" for m in shown)


def draw_levels(results: Results, test: Test, folder: Path) -> None:
    """Each measure that is told for blur levels, for all rows, as `TEST-MEASURE-by-blur.png`."""
    from ..draw.blur_levels import Line, draw_blur_levels
    from ..draw.style import save

    levels = results.levels(test.key)
    if len(levels) < 2:
        return
    for metric in LEVELLED:
        found = [results.estimates(test.key, metric, level) for level in levels]
        if metric not in results.table.metrics or not any(found):
            continue
        names = [
            f"{level_name(level)}\n({next(iter(one.values())).count if one else 0})"
            for level, one in zip(levels, found, strict=True)
        ]
        lines = []
        for row in results.table.rows:
            mine = [one.get(row.key) for one in found]
            finite = [e if e is not None and math.isfinite(e.mean) else None for e in mine]
            if any(finite):
                lines.append(
                    Line(
                        name(row),
                        [None if e is None else e.mean for e in finite],
                        [None if e is None else e.interval for e in finite],
                        faint=row.kind == "input",
                    )
                )
        kind = KINDS[metric]
        unit = " (dB)" if metric == "psnr" else ""
        file = folder / f"{test.key}-{metric}-by-blur.png"
        save(draw_blur_levels(lines, names, f"{kind.label}{unit} {kind.arrow}", f"{test.label}, by blur"), file)
