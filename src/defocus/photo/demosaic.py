"""Demosaicing: three colours in every pixel from one.

`malvar` is the gradient-corrected linear interpolation of Malvar, He and Cutler (ICASSP 2004): 5×5 filters that
estimate a missing colour from its neighbours and correct it by the Laplacian of the known one.

`directional` follows Pekkucuksen and Altunbasak (ICIP 2010), gradient-based and free of thresholds: along rows and
along columns the difference between green and the other colour is estimated in every pixel; the differences to the
north, south, west and east are averaged with weights that fall with the differences' own change in that direction, so
that no interpolation crosses an edge. Colour differences are smooth where colours are not, so they also carry red and
blue to the remaining pixels. Every step is differentiable.

Both expect white-balanced values: the differences of unbalanced colours follow the brightness.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..errors import PhotoError
from .bayer import colour_planes

Method = Literal["directional", "malvar"]
METHODS: tuple[Method, ...] = get_args(Method)

MARGIN = 12  # even, so that the padded mosaic has the same phase; the farthest a value travels


@partial(jax.jit, static_argnames="method")
def demosaic(
    mosaic: Float[Array, "h w"], phase: Int[Array, ""] | int, method: Method = "directional"
) -> Float[Array, "h w 3"]:
    """Camera RGB from a white-balanced mosaic of at least 2×2 pixels."""
    if method not in METHODS:
        raise PhotoError(f"demosaicing {method!r}; known are {', '.join(METHODS)}")
    height, width = mosaic.shape
    if min(height, width) < 2:
        raise PhotoError(f"a mosaic of {width}×{height} pixels; at least 2×2 are needed to find every colour")
    # Mirroring about the border pixels keeps the colours in their places.
    padded = jnp.pad(mosaic, MARGIN, mode="reflect")
    rgb = (_malvar if method == "malvar" else _directional)(padded, jnp.asarray(phase, jnp.int32))
    return rgb[MARGIN : MARGIN + height, MARGIN : MARGIN + width]


def _at(image: Float[Array, "h w"], down: int, right: int) -> Float[Array, "h w"]:
    """The image's value `down` rows below and `right` columns to the right of each pixel."""
    return jnp.roll(image, (-down, -right), axis=(0, 1))


def _malvar(m: Float[Array, "h w"], phase: Int[Array, ""]) -> Float[Array, "h w 3"]:
    red, green, blue = colour_planes(m.shape, phase)
    row2, column2 = _at(m, 0, 2) + _at(m, 0, -2), _at(m, 2, 0) + _at(m, -2, 0)
    row1, column1 = _at(m, 0, 1) + _at(m, 0, -1), _at(m, 1, 0) + _at(m, -1, 0)
    diagonal = _at(m, 1, 1) + _at(m, 1, -1) + _at(m, -1, 1) + _at(m, -1, -1)
    cross = (2.0 * (row1 + column1) + 4.0 * m - row2 - column2) / 8.0  # green from the other two
    along_row = (4.0 * row1 + 5.0 * m - diagonal - row2 + 0.5 * column2) / 8.0  # its row's other colour, at green
    along_column = (4.0 * column1 + 5.0 * m - diagonal - column2 + 0.5 * row2) / 8.0
    opposite = (2.0 * diagonal + 6.0 * m - 1.5 * (row2 + column2)) / 8.0  # red at blue, blue at red
    in_red_row = red | jnp.roll(red, 1, axis=1)
    at_green = (jnp.where(in_red_row, along_row, along_column), jnp.where(in_red_row, along_column, along_row))
    r = jnp.where(red, m, jnp.where(blue, opposite, at_green[0]))
    b = jnp.where(blue, m, jnp.where(red, opposite, at_green[1]))
    return jnp.stack([r, jnp.where(green, m, cross), b], axis=-1)


def _directional(m: Float[Array, "h w"], phase: Int[Array, ""]) -> Float[Array, "h w 3"]:
    red, green, blue = colour_planes(m.shape, phase)
    difference = _green_minus_other(m, green)
    g = jnp.where(green, m, m + difference)
    # At red pixels the difference is green − red, at blue ones green − blue; each is needed at the other and at green.
    diagonals = _total(_at(difference, i, j) for i in (-1, 1) for j in (-1, 1))
    far = _total(_at(difference, i, j) + _at(difference, j, i) for i in (-3, 3) for j in (-1, 1))
    swapped = (10.0 * diagonals - far) / 32.0
    green_red = jnp.where(red, difference, swapped)  # at red and blue pixels
    green_blue = jnp.where(blue, difference, swapped)
    steps = ((0, 1), (0, -1), (1, 0), (-1, 0))
    r = g - jnp.where(green, _total(_at(green_red, *s) for s in steps) / 4.0, green_red)
    b = g - jnp.where(green, _total(_at(green_blue, *s) for s in steps) / 4.0, green_blue)
    return jnp.stack([jnp.where(red, m, r), g, jnp.where(blue, m, b)], axis=-1)


def _green_minus_other(m: Float[Array, "h w"], green: Array) -> Float[Array, "h w"]:
    """Green minus the pixel's own colour, at red and blue pixels; what stands at green ones is not used."""
    sums, weights = [], []
    sign = jnp.where(green, 1.0, -1.0).astype(m.dtype)
    for down, right in ((1, 0), (0, 1)):
        side = partial(_step, down=down, right=right)
        other = (side(m, 1) + side(m, -1)) / 2.0 + (2.0 * m - side(m, 2) - side(m, -2)) / 4.0
        d = sign * (m - other)
        change = jnp.abs(side(d, 1) - side(d, -1))
        band = _total(_step(change, k, right, down) for k in range(-2, 3))  # across the direction
        for way in (1, -1):
            sums.append(_total(side(d, way * k) for k in range(5)) / 5.0)
            roughness = _total(side(band, way * k) for k in range(5))
            weights.append(1.0 / (roughness**2 + 1e-10))
    return _total(w * s for w, s in zip(weights, sums, strict=True)) / _total(weights)


def _total(images: Iterable[Float[Array, "h w"]]) -> Float[Array, "h w"]:
    return reduce(jnp.add, images)


def _step(image: Float[Array, "h w"], distance: int, down: int, right: int) -> Float[Array, "h w"]:
    return _at(image, distance * down, distance * right)
