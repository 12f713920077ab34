"""What of a picture is learnt from: a square of it, mirrored or turned. Drawn on the host from random numbers, applied
there or on the GPU, with the same pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from ..errors import DatasetError


class View(NamedTuple):
    """A window; then mirrored left to right, flipped top to bottom, rows and columns exchanged, in this order."""

    top: int
    left: int
    rows: int
    cols: int
    mirrored: bool
    flipped: bool
    turned: bool


def draw_view(
    random: np.random.Generator, size: tuple[int, int], crop: int | None, name: str, *, flip: bool, turn: bool
) -> View:
    """One of a picture of `size` rows and columns. Flips with an exchange of rows and columns make all quarter turns.

    Raises `DatasetError` with the pair's `name` where the picture is smaller than the crop.
    """
    rows, cols = size
    top = left = 0
    if crop is not None:
        if min(rows, cols) < crop:
            raise DatasetError(f"{name}: {cols}×{rows} pixels do not hold a crop of {crop}: lower crop")
        top, left = (int(random.integers(n - crop + 1)) for n in (rows, cols))
        rows = cols = crop
    mirrored, flipped = (bool(x) for x in random.random(2) < 0.5) if flip else (False, False)
    turned = bool(random.random() < 0.5) if turn else False
    return View(top, left, rows, cols, mirrored, flipped, turned)


def seen(picture: Shaped[np.ndarray, "rows cols 3"], view: View) -> Shaped[np.ndarray, "rows2 cols2 3"]:
    """A view of a picture; nothing is copied."""
    part = picture[view.top : view.top + view.rows, view.left : view.left + view.cols]
    if view.mirrored:
        part = part[:, ::-1]
    if view.flipped:
        part = part[::-1]
    return part.swapaxes(0, 1) if view.turned else part
