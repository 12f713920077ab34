"""Sensor noise on a normalised mosaic: I' = β₁·Poisson(I / β₁) + β₂·Normal(0, 1), in every pixel anew (section S4).

β₁ is the signal that one electron makes (at full scale 1), and β₂ the standard deviation of the read noise, so that the
variance is β₁·I + β₂². The paper writes Normal(0, β₂) and follows RSBlur (Rim et al., 2022), where β₂ multiplies a
normal number. Both are drawn from U(0.5, 1.5)·1e-5 for each photograph: nearly all of the noise is the light's own.

The Poisson numbers come from the inverse of their distribution at one normal number per pixel: an asymptotic series
(Giles, ACM TOMS 42, 2016) for means above 8, the sum of probabilities below. Their distribution function
differs from the exact one by less than 2e-4 (tested from mean 0 to 3e4). The usual rejection takes several times
longer, and in float32 loses accuracy for the means of 1e5 that β₁ = 1e-5 makes.

The noise of a photograph is estimated from its own mosaic. Each colour plane is freed of its content by the filter
[1 −2 1]ᵀ[1 −2 1]/6, which leaves white noise its variance and no straight gradient anything (Immerkær, 1996). In blocks
of 16×16 pixels the mean signal and the variance of the residual are taken. Texture only ever adds variance, so at each
signal level the flattest blocks tell the noise: a line variance = β₁·I + β₂² through the levels' lowest tenths,
corrected for what the lowest tenth of pure noise would show, tells which blocks are flat; the line through those tells
it again, until it rests. Both coefficients are at least 0.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Key, Shaped
from scipy.special import gammaincinv

from ..errors import PhotoError
from ..srgb import check_floats
from ..tracing import check_number

REFERENCE = 1e-5  # the paper's, of β₁ and of β₂
SMALL_MEAN = 8.0
TERMS = 30  # a Poisson number of mean 8 exceeds this once in 1e10
KERNEL = np.outer([1.0, -2.0, 1.0], [1.0, -2.0, 1.0]) / 6.0
BLOCK = 16
LEVELS = 24
FEWEST = 12  # blocks at one level
QUANTILE = 0.1
ROUNDS = 6
BRIGHTEST = 0.9  # above, the white level may cut the noise


class Noise(eqx.Module):
    """The noise of one photograph: its variance at signal I is `shot`·I + `read_deviation`²."""

    shot: Float[Array | np.ndarray, "*batch"]  # β₁
    read_deviation: Float[Array | np.ndarray, "*batch"]  # β₂

    @classmethod
    def make(cls, shot: float, read_deviation: float) -> Noise:
        """Checked; 0 switches a part off."""
        for name, value in (("shot", shot), ("read", read_deviation)):
            if not isinstance(value, int | float | np.number) or not 0.0 <= value <= 1.0:
                raise PhotoError(f"{name} noise {value!r}; expected 0 to 1, in units of the white level")
        return cls(np.asarray(shot, np.float32), np.asarray(read_deviation, np.float32))


def draw_noise(key: Key[Array, ""], reference: float = REFERENCE) -> Noise:
    """The noise of one photograph, both numbers from U(0.5, 1.5)·reference."""
    check_number("a reference noise of", reference, "", "a positive number below 0.5", 0.5)
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
    return shot + noise.read_deviation * jax.random.normal(read_key, mosaic.shape, jnp.float32)


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


def estimate_noise(mosaic: Shaped[np.ndarray, "h w"]) -> Noise:
    """`Noise` of a normalised mosaic. Best of a photograph that is flat and sharp in places, dark to bright."""
    check_floats(mosaic, "a mosaic")
    from scipy.ndimage import convolve  # slow to import, and most commands estimate nothing

    means, variances = [], []
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        plane = np.asarray(mosaic[row::2, column::2], np.float64)
        residual = convolve(plane, KERNEL, mode="reflect")
        blocks, rest = _blocks(plane), _blocks(residual)
        # A block that touches black or white has lost part of its noise.
        whole = (blocks.max(axis=1) < BRIGHTEST) & (np.count_nonzero(blocks == 0.0, axis=1) < 0.01 * BLOCK**2)
        means.append(blocks.mean(axis=1)[whole])
        variances.append(np.mean(rest**2, axis=1)[whole])
    mean, variance = np.concatenate(means), np.concatenate(variances)
    if mean.size < FEWEST * 2:
        raise PhotoError(
            f"noise cannot be estimated: {mean.size} blocks of {2 * BLOCK}×{2 * BLOCK} pixels are neither black nor "
            f"saturated, {FEWEST * 2} are needed; give it as two numbers instead"
        )
    levels = np.array_split(np.argsort(mean), min(LEVELS, mean.size // FEWEST))
    signal = np.array([mean[level].mean() for level in levels])
    lowest = np.array([np.quantile(variance[level], QUANTILE) for level in levels]) / _quantile_of_noise()
    shot, read = _line(signal, lowest, lowest)
    scatter = np.sqrt(2.0 / _freedom())
    for _ in range(ROUNDS):
        expected = shot * mean + read
        flat = variance < expected * (1.0 + 2.0 * scatter)
        # a normal number below +2 has the mean −0.0552
        shot, read = _line(mean[flat], variance[flat] / (1.0 - 0.0552 * scatter), expected[flat])
    return Noise.make(shot, read**0.5)


def _line(
    signal: Float[np.ndarray, "points"], variance: Float[np.ndarray, "points"], scale: Float[np.ndarray, "points"]
) -> tuple[float, float]:
    """β₁ and β₂²; each point counts with 1 / `scale`, for estimates of a variance scatter in proportion to it."""
    from scipy.optimize import nnls  # slow to import, too

    weight = 1.0 / np.maximum(scale, 1e-12)
    fit, _ = nnls(np.stack([signal, np.ones_like(signal)], axis=1) * weight[:, None], variance * weight)
    return float(fit[0]), float(fit[1])


def _blocks(plane: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "blocks pixels"]:
    rows, columns = plane.shape[0] // BLOCK, plane.shape[1] // BLOCK
    cut = plane[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK)
    return cut.transpose(0, 2, 1, 3).reshape(rows * columns, BLOCK * BLOCK)


def _quantile_of_noise() -> float:
    """The lowest-tenth variance of blocks of pure noise of variance 1."""
    freedom = _freedom()
    return float(2.0 * gammaincinv(freedom / 2.0, QUANTILE) / freedom)  # of χ²; scipy.stats is slow to import


def _freedom() -> float:
    """Degrees of freedom of a block's variance; fewer than its pixels, because the residuals are correlated.

    A quadratic form of normal numbers is nearly a scaled χ² with the same mean and variance: for correlation c, the
    relative variance of a block's mean square is 2·Σc²/pixels.
    """
    spectrum = np.abs(np.fft.fft2(np.pad(KERNEL, 4))) ** 2
    correlation = np.real(np.fft.ifft2(spectrum))
    return BLOCK**2 / float(np.sum(correlation**2) / correlation[0, 0] ** 2)
