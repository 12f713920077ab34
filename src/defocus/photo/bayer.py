"""The colour filter array: where red, green and blue pixels lie, as numbers that a compiled program can take.

A Bayer pattern is told by where its red pixel lies in the 2×2 tile: phase = 2·row + column, so that RGGB is 0, GRBG 1,
GBRG 2 and BGGR 3. The phase is data, not a constant of the program: one program serves all four.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import PhotoError
from ..files.pictures import turned

AnyArray = Array | np.ndarray  # reading a file makes numpy arrays, so that it starts no device
PATTERNS = ("RGGB", "GRBG", "GBRG", "BGGR")  # in the order of their phases


def phase_of(pattern: str) -> int:
    """The phase of a pattern's name."""
    if pattern.upper() not in PATTERNS:
        raise PhotoError(f"Bayer pattern {pattern!r}; expected one of {', '.join(PATTERNS)}")
    return PATTERNS.index(pattern.upper())


def colour_planes(
    shape: tuple[int, ...], phase: Int[AnyArray, ""]
) -> tuple[Bool[Array, "h w"], Bool[Array, "h w"], Bool[Array, "h w"]]:
    """Where the red, green and blue pixels lie in a mosaic of this shape."""
    height, width = shape
    rows = (jnp.arange(height, dtype=jnp.int32)[:, None] + phase // 2) % 2 == 0
    columns = (jnp.arange(width, dtype=jnp.int32)[None, :] + phase % 2) % 2 == 0
    return rows & columns, rows != columns, ~rows & ~columns


def sample_mosaic(rgb: Float[Array, "h w 3"], phase: Int[AnyArray, ""]) -> Float[Array, "h w"]:
    """What the pixels behind the filters see of an image."""
    red, green, _ = colour_planes(rgb.shape[:2], phase)
    return jnp.where(red, rgb[..., 0], jnp.where(green, rgb[..., 1], rgb[..., 2]))


def spread(values: Float[AnyArray, "3"], shape: tuple[int, ...], phase: Int[AnyArray, ""]) -> Float[Array, "h w"]:
    """One number for each colour, laid out over a mosaic of this shape."""
    red, green, _ = colour_planes(shape, phase)
    return jnp.where(red, values[0], jnp.where(green, values[1], values[2]))


def turned_pattern(pattern: str, shape: tuple[int, ...], orientation: int) -> str:
    """The Bayer pattern of a turned mosaic that was stored in this shape."""
    height, width = shape
    tile = np.array([*pattern]).reshape(2, 2)
    small = np.tile(tile, (2, 2))[: 2 + height % 2, : 2 + width % 2]  # only odd and even matter
    return "".join(turned(small, orientation)[:2, :2].ravel())
