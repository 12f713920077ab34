"""Demosaicing: three colours in every pixel from one.

`malvar` is the gradient-corrected linear interpolation of Malvar, He and Cutler (ICASSP 2004): 5×5 filters that
estimate a missing colour from its neighbours and correct it by the Laplacian of the known one.

`directional` follows Pekkucuksen and Altunbasak (ICIP 2010), gradient-based and free of thresholds: along rows and
along columns the difference between green and the other colour is estimated in every pixel; the differences to the
north, south, west and east are averaged with weights that fall with the differences' own change in that direction, so
that no interpolation crosses an edge. Colour differences are smooth where colours are not, so they also carry red and
blue to the remaining pixels. All this is done on the square root of the light (`_compress`), where a colour's
difference to green changes less with the brightness, and noise is as strong in bright parts as in dark ones: 0.8 dB
better in linear light than on the light itself, and 2.7 dB in sRGB values. Every step is differentiable.

Both expect white-balanced values: the differences of unbalanced colours follow the brightness.

A Bayer pattern is told by where its red pixel lies in the 2×2 tile: phase = 2·row + column, so that RGGB is 0, GRBG 1,
GBRG 2 and BGGR 3. The phase is data, not a constant of the program: one program serves all four.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from ..errors import PhotoError
from ..files.pictures import turned
from ..srgb import check_floats

AnyArray = Array | np.ndarray  # reading a file makes numpy arrays, so that it starts no device
PATTERNS = ("RGGB", "GRBG", "GBRG", "BGGR")  # in the order of their phases
Method = Literal["directional", "malvar"]
METHODS: tuple[Method, ...] = get_args(Method)

OFFSET = 0.01  # of white; keeps the root's slope, and so the noise about black, bounded
KINK = math.sqrt(OFFSET / 2.0)
MARGIN = 12  # even, so that the padded mosaic has the same phase; the farthest a value travels


def phase_of(pattern: str) -> int:
    """The phase of a pattern's name."""
    if str(pattern).upper() not in PATTERNS:
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


@partial(jax.jit, static_argnames="method")
def demosaic(
    mosaic: Shaped[Array, "h w"], phase: Int[Array, ""] | int, method: Method = "directional"
) -> Float[Array, "h w 3"]:
    """Camera RGB from a white-balanced mosaic of at least 2×2 pixels."""
    check_floats(mosaic, "a mosaic")
    if method not in METHODS:
        raise PhotoError(f"demosaicing {method!r}; known are {', '.join(METHODS)}")
    height, width = mosaic.shape
    if min(height, width) < 2:
        raise PhotoError(f"a mosaic of {width}×{height} pixels; at least 2×2 are needed to find every colour")
    # Mirroring about the border pixels keeps the colours in their places.
    padded = jnp.pad(mosaic, MARGIN, mode="reflect")
    number = jnp.asarray(phase, jnp.int32)
    rgb = _malvar(padded, number) if method == "malvar" else _expand(_directional(_compress(padded), number))
    return rgb[MARGIN : MARGIN + height, MARGIN : MARGIN + width]


def _compress(light: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√(light + c), and below −c/2, where only noise reaches, its tangent."""
    root = jnp.sqrt(jnp.maximum(light + OFFSET, OFFSET / 2.0))
    return jnp.where(light > -OFFSET / 2.0, root, KINK + (light + OFFSET / 2.0) / (2.0 * KINK))


def _expand(value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The inverse of `_compress`."""
    return jnp.where(value > KINK, value * value - OFFSET, 2.0 * KINK * (value - KINK) - OFFSET / 2.0)


def _views(image: Float[Array, "h w"], reach: int) -> Callable[[int, int], Float[Array, "h w"]]:
    """A function (down, right) that gives each pixel the image's value that far away from it.

    The image is laid down in memory once, with a border of zeros, and every view is a window of it: otherwise XLA
    fuses the stages and computes the inner ones again for every neighbour of every neighbour.
    """
    height, width = image.shape
    laid = jax.lax.optimization_barrier(jnp.pad(image, reach))  # type: ignore[no-untyped-call]
    return lambda down, right: jax.lax.slice(
        laid, (reach + down, reach + right), (reach + down + height, reach + right + width)
    )


def _total(images: Iterable[Float[Array, "h w"]]) -> Float[Array, "h w"]:
    return reduce(jnp.add, images)


def _malvar(m: Float[Array, "h w"], phase: Int[Array, ""]) -> Float[Array, "h w 3"]:
    red, green, blue = colour_planes(m.shape, phase)
    at = _views(m, 2)
    row2, column2 = at(0, 2) + at(0, -2), at(2, 0) + at(-2, 0)
    row1, column1 = at(0, 1) + at(0, -1), at(1, 0) + at(-1, 0)
    diagonal = at(1, 1) + at(1, -1) + at(-1, 1) + at(-1, -1)
    cross = (2.0 * (row1 + column1) + 4.0 * m - row2 - column2) / 8.0  # green from the other two
    along_row = (4.0 * row1 + 5.0 * m - diagonal - row2 + 0.5 * column2) / 8.0  # its row's other colour, at green
    along_column = (4.0 * column1 + 5.0 * m - diagonal - column2 + 0.5 * row2) / 8.0
    opposite = (2.0 * diagonal + 6.0 * m - 1.5 * (row2 + column2)) / 8.0  # red at blue, blue at red
    in_red_row = jnp.any(red, axis=1, keepdims=True)
    at_green = (jnp.where(in_red_row, along_row, along_column), jnp.where(in_red_row, along_column, along_row))
    r = jnp.where(red, m, jnp.where(blue, opposite, at_green[0]))
    b = jnp.where(blue, m, jnp.where(red, opposite, at_green[1]))
    return jnp.stack([r, jnp.where(green, m, cross), b], axis=-1)


def _directional(m: Float[Array, "h w"], phase: Int[Array, ""]) -> Float[Array, "h w 3"]:
    red, green, blue = colour_planes(m.shape, phase)
    difference = _green_minus_other(m, green)
    g = jnp.where(green, m, m + difference)
    # At red pixels the difference is green − red, at blue ones green − blue; each is needed at the other and at green.
    at = _views(difference, 3)
    diagonals = _total(at(i, j) for i in (-1, 1) for j in (-1, 1))
    far = _total(at(i, j) + at(j, i) for i in (-3, 3) for j in (-1, 1))
    swapped = (10.0 * diagonals - far) / 32.0
    others = []
    for own in (red, blue):
        at_filters = jnp.where(own, difference, swapped)  # at red and blue pixels
        at = _views(at_filters, 1)
        between = (at(0, 1) + at(0, -1) + at(1, 0) + at(-1, 0)) / 4.0
        others.append(jnp.where(own, m, g - jnp.where(green, between, at_filters)))
    return jnp.stack([others[0], g, others[1]], axis=-1)


def _green_minus_other(m: Float[Array, "h w"], green: Bool[Array, "h w"]) -> Float[Array, "h w"]:
    """Green minus the pixel's own colour, at red and blue pixels; what stands at green ones is not used."""
    sums, weights = [], []
    at = _views(m, 2)
    for i, j in ((1, 0), (0, 1)):  # along columns, along rows
        other = (at(i, j) + at(-i, -j)) / 2.0 + (2.0 * m - at(2 * i, 2 * j) - at(-2 * i, -2 * j)) / 4.0
        d = _views(jnp.where(green, m - other, other - m), 4)
        change = _views(jnp.abs(d(i, j) - d(-i, -j)), 2)
        band = _views(_total(change(k * j, k * i) for k in range(-2, 3)), 4)  # five pixels across the direction
        for way in (1, -1):  # five pixels to either side, this one being the first
            sums.append(_total(d(way * k * i, way * k * j) for k in range(5)) / 5.0)
            roughness = _total(band(way * k * i, way * k * j) for k in range(5))
            weights.append(1.0 / (roughness**2 + 1e-10))
    return _total(w * s for w, s in zip(weights, sums, strict=True)) / _total(weights)
