"""Light on a sensor: the one exposure of photographs and pairs.

The blurred picture goes through mosaic, noise and development. The sharp one, the truth that a network learns, is what
the same sensor would show with all three colours in every pixel and without noise: what demosaicing leaves behind
belongs into the input of a restoration, not into its target.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .isp import SensorColour, forward_isp, inverse_isp, without_mosaic
from .noise import Noise, add_noise
from .response import SRGB, Response, encode

SMALLEST = 4  # pixels of a picture whose mosaic can be developed


def expose(
    linear: Float[Array, "rows cols 3"],
    colour: SensorColour,
    response: Response = SRGB,
    noise: Noise | None = None,
    key: Array | None = None,
) -> tuple[Float[Array, "rows cols"], Float[Array, "rows cols 3"]]:
    """The sensor's mosaic (0..1) of linear sRGB light, with noise drawn by `key`, and the picture developed from it."""
    rows, cols = linear.shape[:2]
    mosaic = inverse_isp(linear, colour)
    if noise is not None and key is not None:
        mosaic = jnp.minimum(add_noise(key, mosaic, noise), 1.0)
    # A mosaic of a few pixels has no neighbours to find colours from: it is continued by reflection and cut again.
    # The border is even, so the pattern keeps its phase.
    border = [(0, 2 * max(0, math.ceil((SMALLEST - n) / 2))) for n in (rows, cols)]
    wide = jnp.pad(mosaic, border, mode="symmetric") if any(after for _, after in border) else mosaic
    return mosaic, forward_isp(wide, colour, response)[:rows, :cols]


def expose_sharp(
    linear: Float[Array, "rows cols 3"], colour: SensorColour, response: Response = SRGB
) -> Float[Array, "rows cols 3"]:
    """The picture (display values) that the sensor would show without mosaic and noise."""
    return encode(without_mosaic(linear, colour), response)


def noise_key(seed: Array | int, picture: Array | int) -> Array:
    """The random key of the noise of one of the pictures of a pair."""
    return jax.random.fold_in(jax.random.key(seed), picture)
