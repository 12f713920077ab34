"""The figures of an evaluation: pictures as each row has them, with enlarged parts, and measures by blur level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.ndimage import uniform_filter

from ..errors import DefocusError
from ..files.ownership import OwnedFolder
from .images import Image
from .measures import KINDS
from .results import LEVELLED, PictureRecord, Problem, Results, level_means, number_text, picture_count
from .table_file import TableRow, Test, slug
from .test_sets import TestImage, TestSet, failure_noted, from_the_middle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Source = Callable[[TableRow, Test, TestImage], Image | None]
Box = tuple[int, int, int]  # top, left, side: pixels
MEASURES = 3  # below a picture
FADED = 0.4  # contrast of the truth where it does not count


def draw_figures(
    results: Results, sets: Sequence[TestSet], source: Source, folder: OwnedFolder, place: str
) -> list[Problem]:
    """Draw `table.figures` pictures of each test set, and the blur levels, at a place of the folder; the problems that
    are new, by picture."""
    from ..draw import figure_bytes

    problems: list[Problem] = []
    reported = {(problem.test, problem.image) for problem in results.problems}
    for test, opened in zip(results.table.tests, sets, strict=True):
        for item in picture_choice(results, test, opened):
            failures: list[tuple[str, str]] = []
            with failure_noted(failures, item.id):
                figure = _picture_figure(results, test, item, source)
                folder.write(f"{place}/{test.key}-{slug(item.id)}.png", figure_bytes(figure))
            if (test.key, item.id) not in reported:
                problems += [Problem(test.key, "figure", *failure) for failure in failures]
        draw_levels(results, test, folder, f"{place}/")
    return problems


def picture_choice(results: Results, test: Test, opened: TestSet) -> list[TestImage]:
    """Pictures spread evenly from the least to the most blurred: by blur, else by PSNR of the first row, else as they
    come."""
    images = list(opened.images)
    first = results.values(test.key, "psnr").get(results.table.rows[0].key, {})
    if blur := results.blur(test.key):
        images.sort(key=lambda item: blur.get(item.id, 0.0))
    elif first:
        images.sort(key=lambda item: -first.get(item.id, math.inf))
    return from_the_middle(images, results.table.figures)


def choose_crops(
    one: Float[np.ndarray, "rows cols 3"], other: Float[np.ndarray, "rows cols 3"], count: int, side: int | None = None
) -> list[Box]:
    """Squares with the largest variance of the difference that do not overlap, strongest first. The variance, because a
    mean difference is one of exposure or colour, not of sharpness.

    `side`: pixels; by default a fifth of the shorter side of the picture, at least 32 where there is room.
    """
    rows, cols = one.shape[:2]
    side = min(rows, cols, side if side is not None else max(32, min(rows, cols) // 5))
    difference = np.asarray(one, np.float64) - other

    def mean(values: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "tops lefts"]:
        """Means of the squares by their first pixel; the filter puts it in the middle."""
        return uniform_filter(values, side, mode="constant", origin=-(side // 2))[: rows - side + 1, : cols - side + 1]

    variance = np.sum([mean(plane**2) - mean(plane) ** 2 for plane in np.moveaxis(difference, -1, 0)], axis=0)
    crops: list[Box] = []
    for _ in range(count):
        top, left = (int(i) for i in np.unravel_index(int(np.argmax(variance)), variance.shape))
        if not np.isfinite(variance[top, left]):
            break
        crops.append((top, left, side))
        variance[max(0, top - side + 1) : top + side, max(0, left - side + 1) : left + side] = -np.inf
    return crops


def draw_levels(results: Results, test: Test, folder: OwnedFolder, place: str = "") -> None:
    """Draw each measure that has a table by blur level, for all rows, as `TEST-MEASURE-by-blur.png`."""
    from ..draw import BlurLine, draw_blur_levels, figure_bytes

    for metric in LEVELLED:
        levels = level_means(results, test, metric)
        if len(levels) < 2:
            continue
        lines = []
        for row in results.table.rows:
            means = [one.get(row.key) for one in levels.values()]
            finite = [mean if mean is not None and math.isfinite(mean.value) else None for mean in means]
            if any(finite):
                values = [None if m is None else m.value for m in finite]
                intervals = [None if m is None else m.interval for m in finite]
                lines.append(BlurLine(row.title, values, intervals, faint=row.kind == "input"))
        names = [f"{level}\n({picture_count(means)})" for level, means in levels.items()]
        kind, unit = KINDS[metric], " (dB)" if metric == "psnr" else ""
        chart = draw_blur_levels(lines, names, f"{kind.label}{unit} {kind.arrow}", f"{test.label}, by blur")
        folder.write(f"{place}{test.key}-{metric}-by-blur.png", figure_bytes(chart))


def _picture_figure(results: Results, test: Test, item: TestImage, source: Source) -> Figure:
    from ..draw import Panel, draw_comparison

    records = {r.row: r for r in results.records if r.test == test.key and r.image == item.id}
    blurred = item.input.read()
    panels = []
    if not any(row.kind == "input" for row in results.table.rows):
        panels.append(Panel("Input", "", blurred))
    for row in results.table.rows:
        try:
            picture = source(row, test, item)
        except DefocusError:  # a picture that another program did not make; that is a problem of the row
            continue
        if picture is not None:
            below = _measures(records[row.key], results.table.metrics) if row.key in records else ""
            panels.append(Panel(row.title, below, picture.read()))
    compared = panels[-1].picture
    if item.truth is not None:
        truth = compared = item.truth.read()
        below = ""
        if (mask := item.mask) is not None:
            compared = np.where(mask[..., None], truth, blurred)
            truth = np.where(mask[..., None], truth, FADED * truth + (1.0 - FADED) * 0.5)
            below = f"{100.0 * float(mask.mean()):.0f} % of it counts, the rest is faded"
        panels.append(Panel("Truth", below, truth))
    boxes = choose_crops(blurred, compared, results.table.crops)
    blur = "" if item.blur_px is None else f", blur up to {item.blur_px:.1f} px"
    return draw_comparison(panels, boxes, f"{test.label}: {item.id}{blur}")


def _measures(record: PictureRecord, metrics: Sequence[str]) -> str:
    """The first measures of a picture in words."""
    names = [m for m in metrics if m in record.values][:MEASURES]
    return "   ".join(f"{KINDS[m].label} {number_text(record.values[m], KINDS[m].decimals)}" for m in names)
