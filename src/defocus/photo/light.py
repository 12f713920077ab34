"""Linear light as an array: what every function that blurs, records or develops a photograph takes.

Linear sRGB, floats, [rows, columns, 3]; 1 is the sensor's white and highlights may lie above. Whole numbers are display
values in common use, never light: they are refused with advice (`srgb.check_floats`), not guessed at.

What clipped highlights held is made up for the blur to spread (the paper's section S4): with
M = clip(20·min over the colours of (I − 0.95), 0, 1), the light becomes I + αM, α drawn from U(0, 4) for each
photograph. A pixel is taken for saturated as its *darkest* colour comes near white, and all three colours gain alike,
so that nothing coloured grows brighter. The paper clips the sum as well. It cannot mean 1: the light above 1 is the
purpose, and the sensor cuts it only after the blur (`inverse_isp`). Here the sum is clipped at 0 from below.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from ..errors import PhotoError
from ..srgb import check_floats
from ..tracing import check_number

THRESHOLD = 0.95
SLOPE = 20.0
GREATEST_POWER = 4.0
AUTO_POWER = 2.0  # the mean of what the paper draws
MOST_HIGHLIGHTS = 0.05  # of the pixels; where more are white it is a page or a sky, not a lamp
POWER_LIMIT = 1e4  # more is a mistake, and leaves float32 no room for the light beside it


def as_linear_light(picture: Any, what: str = "a photograph") -> Float[np.ndarray, "rows cols 3"]:
    """The picture as float32 linear light; `PhotoError` for whole numbers, another shape, values not finite, or a
    negative mean."""
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
    if (mean := float(light.mean(dtype=np.float64))) < 0.0:  # noise about black may be, but not a whole picture
        raise PhotoError(f"{what}: its mean is {mean:.3g}; expected light, which is not negative")
    return light


def reduced(linear: Shaped[np.ndarray, "h w 3"], size: tuple[int, int]) -> Float[np.ndarray, "height width 3"]:
    """The picture made smaller, as larger pixels would see it: means of linear light; `size` = (width, height)."""
    from PIL import Image

    check_floats(linear, "linear light")
    bands = [Image.fromarray(np.ascontiguousarray(linear[..., c], dtype=np.float32)) for c in range(3)]
    return np.stack([np.asarray(band.resize(size, Image.Resampling.BOX)) for band in bands], axis=-1)


def draw_saturation(key: Key[Array, ""]) -> Float[Array, ""]:
    """The power α of one photograph, from U(0, 4)."""
    return jax.random.uniform(key, dtype=jnp.float32, maxval=GREATEST_POWER)


@jax.jit
def saturation_mask(linear: Shaped[Array, "h w 3"]) -> Float[Array, "h w"]:
    """How far each pixel is taken for saturated, 0..1."""
    check_floats(linear, "linear light")
    return jnp.clip(SLOPE * jnp.min(linear - THRESHOLD, axis=-1), 0.0, 1.0)


def highlight_power(white: float) -> float:
    """The power of highlights that a picture gets of which a share `white` is clipped, where nothing else is said."""
    return AUTO_POWER if 0.0 < white <= MOST_HIGHLIGHTS else 0.0


def synthesise_saturation(
    linear: Shaped[Array | np.ndarray, "h w 3"], power: Float[Array | np.ndarray, ""] | float
) -> Float[Array, "h w 3"]:
    """Linear light with highlights of up to 1 + `power`."""
    check_power("a power of highlights of", power)
    return _brightened(linear, power)


def check_power(name: str, power: Any) -> None:
    """Raise `DefocusError` for a power of highlights that is none."""
    check_number(name, power, "", f"a number from 0, below {POWER_LIMIT:,.0f}", POWER_LIMIT, -math.ulp(0.0))


@jax.jit
def _brightened(linear: Shaped[Array, "h w 3"], power: Float[Array, ""] | float) -> Float[Array, "h w 3"]:
    return jnp.maximum(linear + power * saturation_mask(linear)[..., None], 0.0).astype(linear.dtype)
