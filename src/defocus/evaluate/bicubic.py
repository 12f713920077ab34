"""Bicubic resampling as MATLAB's `imresize` has it: Keys' cubic (a = −1/2), widened by the scale where the picture
becomes smaller, so that it does not alias; pixels beyond the border mirror those within it.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError


def bicubic(image: Float[np.ndarray, "rows cols"], scale: float) -> Float[np.ndarray, "new_rows new_cols"]:
    """A plane `scale` times as large, each side rounded up to whole pixels."""
    if not scale > 0.0 or min(image.shape) < 1:
        raise DefocusError(f"scale {scale} of {list(image.shape)} pixels; expected a positive scale and some pixels")
    values = np.asarray(image, np.float64)
    for axis in (0, 1):
        values = _along(values, scale, axis)
    return values


def keys_cubic(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Keys' interpolation kernel with a = −1/2."""
    t = np.abs(x)
    near = 1.5 * t**3 - 2.5 * t**2 + 1.0
    far = -0.5 * t**3 + 2.5 * t**2 - 4.0 * t + 2.0
    return np.where(t <= 1.0, near, np.where(t <= 2.0, far, 0.0))


def _along(values: Float[np.ndarray, "rows cols"], scale: float, axis: int) -> Float[np.ndarray, "new_rows new_cols"]:
    count = values.shape[axis]
    widened = min(scale, 1.0)
    places = (np.arange(math.ceil(count * scale)) + 0.5) / scale - 0.5  # centres of the new pixels in the old grid
    half = 2.0 / widened
    first = np.floor(places - half).astype(int)
    taps = first[:, None] + np.arange(math.ceil(2.0 * half) + 2)
    weights = keys_cubic(widened * (places[:, None] - taps))
    weights /= weights.sum(axis=1, keepdims=True)
    around = np.mod(taps, 2 * count)
    mirrored = np.minimum(around, 2 * count - 1 - around)
    moved = np.moveaxis(values, axis, 0)
    made = np.einsum("nt,nt...->n...", weights, moved[mirrored], optimize=True)
    return np.moveaxis(made, 0, axis)
