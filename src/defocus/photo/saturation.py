"""Light beyond the sensor's white: what clipped highlights held, made up for the blur to spread.

The paper's section S4: with M = clip(20·min over the colours of (I − 0.95), 0, 1), the light becomes I + αM, α drawn
from U(0, 4) for each photograph. A pixel is taken for saturated as its *darkest* colour comes near white, and all three
colours gain alike, so that nothing coloured grows brighter.

The paper clips the sum as well. It cannot mean 1: the light above 1 is the purpose, and the sensor cuts it only after
the blur (`inverse_isp`). Here the sum is clipped at 0 from below.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from ..srgb import check_floats

THRESHOLD = 0.95
SLOPE = 20.0
GREATEST_POWER = 4.0


def draw_saturation(key: Key[Array, ""]) -> Float[Array, ""]:
    """The power α of one photograph, from U(0, 4)."""
    return jax.random.uniform(key, dtype=jnp.float32, maxval=GREATEST_POWER)


@jax.jit
def saturation_mask(linear: Shaped[Array, "h w 3"]) -> Float[Array, "h w"]:
    """How far each pixel is taken for saturated, 0..1."""
    check_floats(linear, "linear light")
    return jnp.clip(SLOPE * jnp.min(linear - THRESHOLD, axis=-1), 0.0, 1.0)


@jax.jit
def synthesise_saturation(linear: Shaped[Array, "h w 3"], power: Float[Array, ""] | float) -> Float[Array, "h w 3"]:
    """Linear light with highlights of up to 1 + `power`."""
    return jnp.maximum(linear + power * saturation_mask(linear)[..., None], 0.0).astype(linear.dtype)
