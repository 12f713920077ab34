"""Linear light as an array: what every function that blurs, records or develops a photograph takes.

Linear sRGB, floats, [rows, columns, 3]; 1 is the sensor's white and highlights may lie above. Whole numbers are display
values in common use, never light: they are refused with advice (`srgb.check_floats`), not guessed at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from ..errors import PhotoError
from ..srgb import check_floats


def as_linear_light(picture: Any, what: str = "a photograph") -> Float[np.ndarray, "rows cols 3"]:
    """The picture as float32 linear light; `PhotoError` for whole numbers, another shape, or values not finite."""
    array = np.asarray(picture)
    check_floats(array, what)
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0 or array.dtype.kind != "f":
        raise PhotoError(
            f"{what} of shape {array.shape} and type {array.dtype}; expected linear light as floats [rows, columns, 3]"
        )
    light = array.astype(np.float32, copy=False)
    if not np.isfinite(light).all():
        row, column, _ = np.argwhere(~np.isfinite(light))[0].tolist()
        raise PhotoError(f"{what}: its pixel in row {row}, column {column} is not a finite number")
    return light


def reduced(linear: Shaped[np.ndarray, "h w 3"], size: tuple[int, int]) -> Float[np.ndarray, "height width 3"]:
    """The picture made smaller, as larger pixels would see it: means of linear light; `size` = (width, height)."""
    from PIL import Image

    check_floats(linear, "linear light")
    bands = [Image.fromarray(np.ascontiguousarray(linear[..., c], dtype=np.float32)) for c in range(3)]
    return np.stack([np.asarray(band.resize(size, Image.Resampling.BOX)) for band in bands], axis=-1)
