"""Some pairs of a data set in one figure: blurred and sharp side by side, with a line below each pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import DefocusError
from . import style

Pair = tuple[Shaped[np.ndarray, "h w 3"], Shaped[np.ndarray, "h w 3"], str]

SIDE = 1.5  # inches of a picture
MARGIN, GAP, BETWEEN, CAPTION = 0.2, 0.025, 0.2, 0.24  # inches: around, within a pair, between pairs, a line of text


def draw_samples(pairs: Sequence[Pair], file: str | Path) -> None:
    """Write (blurred, sharp, caption) as a figure; pictures are uint8, uint16, or display values 0..1."""
    style.save(sample_figure(pairs), file)


def sample_figure(pairs: Sequence[Pair]) -> Figure:
    """About as many columns as rows of pairs; pictures fill squares of one size."""
    if not pairs:
        raise DefocusError("no pairs to draw: the data set holds none")
    columns = max(1, min(4, round(math.sqrt(len(pairs)))))
    rows = -(-len(pairs) // columns)
    cell = 2.0 * SIDE + GAP, SIDE + CAPTION
    width = 2.0 * MARGIN + columns * (cell[0] + BETWEEN) - BETWEEN
    height = 2.0 * MARGIN + rows * (cell[1] + BETWEEN / 2.0) - BETWEEN / 2.0
    with style.look():
        figure = Figure(figsize=(width, height))
        size = min(style.fitted_size(caption, style.SMALL, 0.97 * cell[0]) for _, _, caption in pairs)
        for number, (blurred, sharp, caption) in enumerate(pairs):
            row, column = divmod(number, columns)
            left = MARGIN + column * (cell[0] + BETWEEN)
            bottom = height - MARGIN - SIDE - row * (cell[1] + BETWEEN / 2.0)
            for place, picture in enumerate((blurred, sharp)):
                x = left + place * (SIDE + GAP)
                axes = style.bare_axes(figure, (x / width, bottom / height, SIDE / width, SIDE / height))
                _show(axes, picture)
            figure.text(left / width, (bottom - 0.14) / height, caption, fontsize=size, color=style.FAINT)
    return figure


def _show(axes: Axes, picture: Shaped[np.ndarray, "h w 3"]) -> None:
    if picture.dtype == np.uint16:
        picture = (picture >> 8).astype(np.uint8)
    elif picture.dtype != np.uint8:
        picture = np.clip(picture, 0.0, 1.0)
    axes.imshow(picture, interpolation="antialiased", aspect="equal")
