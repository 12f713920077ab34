"""The noise of a photograph, estimated from its own mosaic.

Each colour plane of the mosaic is freed of its content by the filter [1 −2 1]ᵀ[1 −2 1]/6, which leaves white noise its
variance and no straight gradient anything (Immerkær, 1996). In blocks of 16×16 pixels the mean signal and the variance
of the residual are taken. Texture only ever adds variance, so at each signal level the flattest blocks tell the noise:
a line variance = β₁·I + β₂ through the levels' lowest tenths, corrected for what the lowest tenth of pure noise would
show, tells which blocks are flat; the line through those tells it again, until it rests. Both coefficients are at
least 0.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import gammaincinv

from ..errors import PhotoError
from ..srgb import check_floats
from .noise import Noise

KERNEL = np.outer([1.0, -2.0, 1.0], [1.0, -2.0, 1.0]) / 6.0
BLOCK = 16
LEVELS = 24
FEWEST = 12  # blocks at one level
QUANTILE = 0.1
ROUNDS = 6
BRIGHTEST = 0.9  # above, the white level may cut the noise


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
    return Noise.make(shot, read)


def _line(
    signal: Float[np.ndarray, "points"], variance: Float[np.ndarray, "points"], scale: Float[np.ndarray, "points"]
) -> tuple[float, float]:
    """β₁ and β₂; each point counts with 1 / `scale`, for estimates of a variance scatter in proportion to it."""
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
