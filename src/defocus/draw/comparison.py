"""One photograph as several restorations have it, side by side, with the same parts of each enlarged below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..errors import DefocusError
from . import style

WIDTH = 2.3  # inches of a picture
MARGIN, GAP, INNER, BELOW = 0.25, 0.14, 0.05, 0.2  # inches: around, between, between crops, between bands
HEAD, TITLE = 0.36, 0.45  # inches: two lines above a picture, and the figure's title
LARGEST_ASPECT = 1.6  # of height to width; taller pictures are made narrower
COLOURS = (style.YELLOW, style.SKY, style.PURPLE, style.GREEN)  # of the crops


@dataclass(frozen=True)
class Panel:
    """A picture of display values 0..1, its name, and a line below the name such as its measures."""

    name: str
    below: str
    picture: Float[np.ndarray, "rows cols 3"]


def draw_comparison(
    panels: Sequence[Panel], boxes: Sequence[tuple[int, int, int]], title: str, *, columns: int = 6
) -> Figure:
    """`boxes`: top, left and side of the parts to enlarge, pixels. Panels of one size, at most `columns` in a band."""
    if not panels:
        raise DefocusError("no pictures to compare")
    shape = panels[0].picture.shape
    if any(panel.picture.shape != shape for panel in panels):
        sizes = ", ".join(f"{p.name}: {p.picture.shape[1]}×{p.picture.shape[0]}" for p in panels)
        raise DefocusError(f"pictures of several sizes cannot be compared: {sizes}")
    columns = min(columns, len(panels))
    bands = -(-len(panels) // columns)
    aspect = shape[0] / shape[1]
    picture = (WIDTH, WIDTH * aspect) if aspect <= LARGEST_ASPECT else (WIDTH * LARGEST_ASPECT / aspect, WIDTH * 1.6)
    crop = (WIDTH - INNER * (len(boxes) - 1)) / max(len(boxes), 1)
    band = HEAD + picture[1] + (INNER + crop if boxes else 0.0)
    size = (
        2 * MARGIN + columns * (WIDTH + GAP) - GAP,
        TITLE + bands * (band + BELOW) - BELOW + MARGIN,
    )
    with style.look():
        figure = Figure(figsize=size)
        room = size[0] - 2 * MARGIN
        figure.text(
            MARGIN / size[0], 1.0 - 0.28 / size[1], title, fontweight="bold",
            fontsize=style.fitted_size(title, style.LARGE, room, bold=True),
        )  # fmt: skip
        for number, panel in enumerate(panels):
            left = MARGIN + (number % columns) * (WIDTH + GAP)
            top = size[1] - TITLE - (number // columns) * (band + BELOW)
            _panel(figure, panel, boxes, (left, top), picture, crop)
    return figure


def _panel(
    figure: Figure,
    panel: Panel,
    boxes: Sequence[tuple[int, int, int]],
    corner: tuple[float, float],
    picture: tuple[float, float],
    crop: float,
) -> None:
    """One picture with its names above and its parts below; `corner`: its upper left, inches from the lower left."""
    (left, top), (width, height) = corner, figure.get_size_inches()
    name = style.fitted_size(panel.name, style.NORMAL, WIDTH, bold=True)
    below = style.fitted_size(panel.below, style.SMALL, WIDTH)
    figure.text(left / width, (top - 0.13) / height, panel.name, fontsize=name, fontweight="bold")
    figure.text(left / width, (top - 0.28) / height, panel.below, fontsize=below, color=style.FAINT)
    bottom = top - HEAD - picture[1]
    x = left + (WIDTH - picture[0]) / 2.0
    axes = style.bare_axes(figure, (x / width, bottom / height, picture[0] / width, picture[1] / height))
    values = np.clip(panel.picture, 0.0, 1.0)
    axes.imshow(values, interpolation="antialiased", aspect="auto")
    for number, (row, column, side) in enumerate(boxes):
        colour = COLOURS[number % len(COLOURS)]
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), side, side, fill=False, edgecolor=colour, linewidth=1.0))
        at = left + number * (crop + INNER), bottom - INNER - crop
        inner = figure.add_axes((at[0] / width, at[1] / height, crop / width, crop / height))
        inner.imshow(values[row : row + side, column : column + side], interpolation="nearest", aspect="auto")
        _frame(inner, colour)


def _frame(axes: Axes, colour: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(colour)
        spine.set_linewidth(1.4)
