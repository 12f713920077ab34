"""Which parts of a picture to show enlarged: where two pictures differ most, other than in brightness and colour."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.ndimage import uniform_filter

Box = tuple[int, int, int]  # top, left, side: pixels


def choose_crops(
    one: Float[np.ndarray, "rows cols 3"], other: Float[np.ndarray, "rows cols 3"], count: int, side: int | None = None
) -> list[Box]:
    """Squares with the largest variance of the difference that do not overlap, strongest first. The variance, because a
    mean difference is one of exposure or colour, not of sharpness.

    `side`: pixels; by default a fifth of the shorter side of the picture, at least 32 where there is room.
    """
    rows, cols = one.shape[:2]
    side = min(rows, cols, side if side is not None else max(32, min(rows, cols) // 5))
    apart = np.asarray(one, np.float64) - other

    def mean(values: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "tops lefts"]:
        """Of the squares by their first pixel; the filter puts it in the middle."""
        return uniform_filter(values, side, mode="constant", origin=-(side // 2))[: rows - side + 1, : cols - side + 1]

    means = sum(mean(apart[..., c] ** 2) - mean(apart[..., c]) ** 2 for c in range(3))
    assert isinstance(means, np.ndarray)
    found: list[Box] = []
    for _ in range(count):
        top, left = (int(i) for i in np.unravel_index(int(np.argmax(means)), means.shape))
        if not np.isfinite(means[top, left]):
            break
        found.append((top, left, side))
        means[max(0, top - side + 1) : top + side, max(0, left - side + 1) : left + side] = -np.inf
    return found
