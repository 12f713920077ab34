"""NIQE (Mittal, Soundararajan and Bovik, 2013): how far the statistics of a picture are from those of good photographs.

The grey picture (0 to 255) is normalised by local mean and deviation under a Gaussian of 7×7 pixels, σ = 7/6. In blocks
of 96×96 pixels the normalised values, and their products with the neighbours in four directions, are fitted by
asymmetric generalised Gaussians: 18 numbers. The same on the picture of half the size (bicubic, with MATLAB's weights),
in blocks of 48×48: 36 numbers for each block. The quality is the distance of their mean μ and covariance Σ from those
of pristine photographs,

    sqrt((μ − μ₀)ᵀ ((Σ + Σ₀)/2)⁺ (μ − μ₀)),  less is better.

μ₀ and Σ₀ are the authors' own, as BasicSR (`niqe_pris_params.npz`) and pyiqa ship them; they are not part of this
package. Grey is 0.299 R + 0.587 G + 0.114 B rounded to whole values, as MATLAB's `rgb2gray` of 8-bit pictures.

Where a picture is flat, what is left after its mean was subtracted is rounding error, and the authors' fit counts how
many such values lie below and above 0: their own number depends on the order of additions there (in the second digit
after the point, for a picture with large flat parts). Here values below 1e-9 are 0, as they are in exact arithmetic.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped
from scipy.ndimage import correlate, correlate1d
from scipy.special import gammaln

from ..errors import DefocusError, FileError
from ..files.arrays import read_npz
from ..restore.similarity import display_values, grey

BLOCK = 96
FEATURES = 36
ENVIRONMENT = "DEFOCUS_NIQE"
FILE = "niqe_pris_params.npz"
MEMBERS = ("mu_pris_param", "cov_pris_param")
ROUNDING = 1e-9  # of values up to 255: less is no texture
NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))
# Keys' cubic (a = −1/2), stretched to twice its width, at the eight pixels around the middle of a half-size pixel.
HALF_SIZE = np.array([-3.0, -9.0, 29.0, 111.0, 111.0, 29.0, -9.0, -3.0]) / 256.0
SHAPES = np.arange(200, 10_001) / 1000.0  # of the generalised Gaussian


@dataclass(frozen=True)
class Pristine:
    """Mean and covariance of the features of pristine photographs."""

    mean: Float[np.ndarray, "features"]
    covariance: Float[np.ndarray, "features features"]


def niqe(image: Shaped[np.ndarray, "rows cols 3"], pristine: Pristine) -> float:
    """NIQE of display values 0..1; at least 96×192 pixels, since a covariance needs two blocks."""
    image = display_values(image, np.float64)
    if image.ndim != 3 or image.shape[2] != 3 or not np.isfinite(image).all():
        raise DefocusError(f"a picture of shape {list(image.shape)}, or values that are not finite, for NIQE")
    features = niqe_features(grey(image))
    textured = features[~np.isnan(features).any(axis=1)]
    if len(textured) < 2:
        raise DefocusError(f"only {len(textured)} of {len(features)} blocks have any texture: NIQE is not defined")
    mean = np.nanmean(features, axis=0)
    covariance = np.cov(textured, rowvar=False)
    difference = mean - pristine.mean
    inverse = np.linalg.pinv((pristine.covariance + covariance) / 2.0)
    return float(np.sqrt(difference @ inverse @ difference))


def niqe_features(picture: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "blocks 36"]:
    """The 36 numbers of each block of a grey picture with values 0 to 255; NaN where a block has no texture."""
    down, right = (n // BLOCK for n in picture.shape)
    if down * right < 2:
        raise DefocusError(
            f"{picture.shape[1]}×{picture.shape[0]} pixels; NIQE needs two blocks of {BLOCK}×{BLOCK} or more to compare"
        )
    plane = np.asarray(picture, np.float64)[: down * BLOCK, : right * BLOCK]
    scales = []
    for size in (BLOCK, BLOCK // 2):
        blocks = normalised(plane).reshape(down, size, right, size).transpose(0, 2, 1, 3).reshape(-1, size, size)
        scales.append(np.array([block_features(block) for block in blocks]))
        plane = half_size(plane)
    return np.concatenate(scales, axis=1)


def half_size(plane: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "half_rows half_cols"]:
    """The plane, of even sides, resampled to half of them; pixels beyond the border mirror those within."""
    for axis in (0, 1):
        taps = correlate1d(plane, HALF_SIZE, axis=axis, mode="reflect", origin=-1)
        plane = taps[::2] if axis == 0 else taps[:, ::2]
    return plane


def normalised(plane: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "rows cols"]:
    """The plane without its local mean, in units of its local deviation plus 1."""
    line = np.exp(-0.5 * np.square(np.arange(-3, 4) / (7.0 / 6.0)))
    window = np.outer(line, line) / line.sum() ** 2
    mean = correlate(plane, window, mode="nearest")
    deviation = np.sqrt(np.abs(correlate(plane**2, window, mode="nearest") - mean**2))
    rest = plane - mean
    return np.where(np.abs(rest) < ROUNDING, 0.0, rest) / (deviation + 1.0)


def block_features(block: Float[np.ndarray, "size size"]) -> list[float]:
    """Shape and width of the values; shape, mean and both widths of their products in four directions."""
    shape, left, right = fit_asymmetric(block)
    features = [shape, (left + right) / 2.0]
    for shift in NEIGHBOURS:
        shape, left, right = fit_asymmetric(block * np.roll(block, shift, axis=(0, 1)))
        mean = (right - left) * np.exp(gammaln(2.0 / shape) - gammaln(1.0 / shape))
        features += [shape, mean, left, right]
    return features


def fit_asymmetric(values: Float[np.ndarray, "..."]) -> tuple[float, float, float]:
    """Shape α and the widths β of both sides of an asymmetric generalised Gaussian, from moments; NaN for flat values.

    The density is proportional to exp(−(|x|/β)^α), with its own β on each side of 0.
    """
    below, above = values[values < 0.0], values[values > 0.0]
    if not (below.size and above.size):
        return (np.nan,) * 3
    left, right = np.sqrt(np.mean(below**2)), np.sqrt(np.mean(above**2))
    ratio = left / right
    measured = np.mean(np.abs(values)) ** 2 / np.mean(values**2)
    measured *= (ratio**3 + 1.0) * (ratio + 1.0) / (ratio**2 + 1.0) ** 2
    table = _moments()
    after = int(np.clip(np.searchsorted(table, measured), 1, len(table) - 1))  # the table ascends
    nearer = after - 1 if measured - table[after - 1] <= table[after] - measured else after
    shape = float(SHAPES[nearer])
    width = float(np.exp(0.5 * (gammaln(1.0 / shape) - gammaln(3.0 / shape))))
    return shape, float(left) * width, float(right) * width


@lru_cache(maxsize=1)
def _moments() -> Float[np.ndarray, "shapes"]:
    """Γ(2/α)² / (Γ(1/α) Γ(3/α)) for all shapes."""
    inverse = 1.0 / SHAPES
    return np.exp(2.0 * gammaln(2.0 * inverse) - gammaln(inverse) - gammaln(3.0 * inverse))


def load_pristine(path: str | Path | None = None) -> Pristine:
    """Read the parameters: from a file; else from the one that DEFOCUS_NIQE names; else of an installed BasicSR."""
    file = Path(path) if path is not None else find_parameters()
    if not file.is_file():
        raise FileError("there is no such file with the parameters of NIQE", file=file)
    mean, covariance = read_npz(file, MEMBERS).values()
    if mean.size != FEATURES or covariance.shape != (FEATURES, FEATURES):
        raise FileError(
            f"a mean of {mean.shape} and a covariance of {covariance.shape}, no parameters of NIQE; expected 36 each, "
            f"as in {FILE} of BasicSR",
            file=file,
        )
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise FileError("parameters of NIQE that are no finite numbers", file=file)
    return Pristine(mean.reshape(-1).astype(np.float64), covariance.astype(np.float64))


def find_parameters() -> Path:
    """The file of parameters on this machine. Raises `DefocusError` that says how to get it."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    package = find_spec("basicsr")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "metrics" / FILE
        if file.is_file():
            return file
    raise DefocusError(
        f"the parameters of NIQE are not part of defocus: take {FILE} from BasicSR (basicsr/metrics, Apache-2.0) and "
        f"name it in {ENVIRONMENT} or in the table file (files.niqe)"
    )
