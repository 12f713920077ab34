"""Sensor noise on a normalised mosaic: I' = β₁·Poisson(I / β₁) + Normal(0, β₂), in every pixel anew (section S4).

β₁ is the signal that one electron makes (at full scale 1), and β₂ is the *variance* of the read noise. The paper does
not say whether variance or deviation; it names both alike, gives both the same reference 1e-5, and cites the model of
Foi et al. (2008), whose variance is β₁·I + β₂. As a deviation, 1e-5 would be a sixth of one step of a 14-bit converter:
no noise at all. Both are drawn from U(0.5, 1.5)·1e-5 for each photograph.

The Poisson numbers come from the inverse of their distribution at one normal number per pixel: an asymptotic series
(Giles, ACM TOMS 42, 2016) for means above 8, the sum of probabilities below. Their distribution function
differs from the exact one by less than 2e-4 (tested from mean 0 to 3e4). The usual rejection takes several times
longer, and in float32 loses accuracy for the means of 1e5 that β₁ = 1e-5 makes.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Key, Shaped

from ..errors import PhotoError
from ..srgb import check_floats

REFERENCE = 1e-5  # the paper's, of β₁ and of β₂
SMALL_MEAN = 8.0
TERMS = 30  # a Poisson number of mean 8 exceeds this once in 1e10


class Noise(eqx.Module):
    """The noise of one photograph: its variance at signal I is `shot`·I + `read_variance`."""

    shot: Float[Array | np.ndarray, "*batch"]  # β₁
    read_variance: Float[Array | np.ndarray, "*batch"]  # β₂

    @classmethod
    def make(cls, shot: float, read_variance: float) -> Noise:
        """Checked; 0 switches a part off."""
        for name, value in (("shot", shot), ("read variance", read_variance)):
            if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                raise PhotoError(f"{name} noise {value}; expected 0 to 1, in units of the white level")
        return cls(np.asarray(shot, np.float32), np.asarray(read_variance, np.float32))


def draw_noise(key: Key[Array, ""], reference: float = REFERENCE) -> Noise:
    """The noise of one photograph, both numbers from U(0.5, 1.5)·reference."""
    shot, read = jax.random.uniform(key, (2,), jnp.float32, 0.5, 1.5) * reference
    return Noise(shot, read)


@jax.jit
def add_noise(key: Key[Array, ""], mosaic: Shaped[Array, "h w"], noise: Noise) -> Float[Array, "h w"]:
    """The mosaic with noise; signals below 0 count as 0. Not clipped: values below 0 and above 1 occur."""
    check_floats(mosaic, "a mosaic")
    shot_key, read_key = jax.random.split(key)
    signal = jnp.maximum(mosaic, 0.0)
    step = jnp.maximum(noise.shot, 1e-12)
    electrons = poisson(jax.random.normal(shot_key, mosaic.shape, jnp.float32), signal / step)
    shot = jnp.where(noise.shot > 0.0, step * electrons, signal)
    return shot + jnp.sqrt(noise.read_variance) * jax.random.normal(read_key, mosaic.shape, jnp.float32)


def poisson(normal: Float[Array, "*shape"], mean: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Poisson numbers from standard normal ones: the smallest k whose distribution function reaches Φ(normal)."""
    w, large = normal, jnp.maximum(mean, SMALL_MEAN)
    root = jnp.sqrt(large)
    series = (
        (1.0 / 3.0 + w * w / 6.0)
        - (w / 36.0 + w**3 / 72.0) / root
        + (-8.0 / 405.0 + 7.0 * w * w / 810.0 + w**4 / 270.0) / large
    )
    by_series = jnp.floor(large + root * w + series)
    small = jnp.minimum(mean, SMALL_MEAN)
    u = ndtr(w)
    probability = jnp.exp(-small)
    cumulative, by_sum = probability, jnp.zeros_like(mean)
    for k in range(1, TERMS + 1):
        by_sum = by_sum + (u > cumulative)
        probability = probability * (small / k)
        cumulative = cumulative + probability
    return jnp.maximum(jnp.where(mean > SMALL_MEAN, by_series, by_sum), 0.0)
