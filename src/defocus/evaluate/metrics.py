"""Peak signal-to-noise ratio and structural similarity of two pictures, by their definitions, in double precision.

PSNR = 10 log10(range² / mean squared difference) over all pixels and channels. SSIM (Wang et al., 2004) compares local
means, variances and the covariance under a window w,

    SSIM = (2 μa μb + C1)(2 σab + C2) / ((μa² + μb² + C1)(σa² + σb² + C2)),  C1 = (0.01 range)², C2 = (0.03 range)²,

averaged over the places where the window lies within the picture. The default window is the paper's own, a Gaussian of
σ = 1.5 pixels on 11×11 pixels; `window="uniform"` is scikit-image's, 7×7 equal weights and variances of samples. Both
equal `skimage.metrics` to 1e-6.

Which channels: PSNR is over RGB; SSIM over the grey picture 0.299 R + 0.587 G + 0.114 B, rounded to 8 bits as MATLAB's
`rgb2gray` does. So has pyiqa both, which the paper measured with. `channels` offers the other for each ("rgb" of SSIM:
the mean over the three).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.ndimage import correlate1d

from ..errors import DefocusError

Channels = Literal["rgb", "grey"]
Window = Literal["gaussian", "uniform"]
Picture = Float[np.ndarray, "rows cols 3"]
Plane = Float[np.ndarray, "rows cols"]

LUMA = (0.299, 0.587, 0.114)
SIGMA, RADIUS = 1.5, 5  # of the Gaussian window, pixels
UNIFORM = 7  # pixels of the uniform window


def psnr(image: Picture, truth: Picture, *, data_range: float = 1.0, channels: Channels = "rgb") -> float:
    """In dB; infinite for equal pictures."""
    a, b = _pair(image, truth, data_range, channels)
    error = float(np.mean(np.square(a - b)))
    return math.inf if error == 0.0 else 10.0 * math.log10(data_range**2 / error)


def ssim(
    image: Picture,
    truth: Picture,
    *,
    data_range: float = 1.0,
    channels: Channels = "grey",
    window: Window = "gaussian",
) -> float:
    """From −1 to 1; 1 for equal pictures."""
    a, b = _pair(image, truth, data_range, channels)
    radius = RADIUS if window == "gaussian" else UNIFORM // 2
    if min(a.shape[:2]) <= 2 * radius:
        raise DefocusError(f"a picture of {a.shape[1]}×{a.shape[0]} pixels is smaller than the window of SSIM")
    return float(np.mean([np.mean(_similarity(a[..., c], b[..., c], data_range, window)) for c in range(a.shape[2])]))


def grey(image: Float[np.ndarray, "rows cols 3"], data_range: float = 1.0) -> Float[np.ndarray, "rows cols"]:
    """0.299 R + 0.587 G + 0.114 B, rounded to whole values from 0 to 255."""
    return np.round(np.asarray(image, np.float64) @ np.array(LUMA) * (255.0 / data_range))


def _pair(
    image: Picture, truth: Picture, data_range: float, channels: Channels
) -> tuple[Float[np.ndarray, "rows cols channels"], Float[np.ndarray, "rows cols channels"]]:
    if image.shape != truth.shape:
        sizes = [f"{shape[1]}×{shape[0]}" if len(shape) == 3 else str(shape) for shape in (image.shape, truth.shape)]
        raise DefocusError(f"the picture has {sizes[0]} pixels, its truth {sizes[1]}: crop or align them first")
    if image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise DefocusError(f"a picture of shape {list(image.shape)}; expected [rows, columns, 3]")
    if not data_range > 0.0:
        raise DefocusError(f"data_range = {data_range}; expected a positive number")
    for what, values in (("picture", image), ("truth", truth)):
        if not np.isfinite(values).all():
            raise DefocusError(f"{int((~np.isfinite(values)).sum())} values of the {what} are no finite numbers")
    if channels == "grey":
        a, b = (grey(values, data_range) * (data_range / 255.0) for values in (image, truth))
        return a[..., None], b[..., None]
    if channels != "rgb":
        raise DefocusError(f"channels {channels!r}; expected rgb or grey")
    return np.asarray(image, np.float64), np.asarray(truth, np.float64)


def _similarity(a: Plane, b: Plane, data_range: float, window: Window) -> Float[np.ndarray, "inner_rows inner_cols"]:
    if window == "gaussian":
        weights = np.exp(-0.5 * np.square(np.arange(-RADIUS, RADIUS + 1) / SIGMA))
        weights /= weights.sum()
        unbiased = 1.0
    elif window == "uniform":
        weights = np.full(UNIFORM, 1.0 / UNIFORM)
        unbiased = UNIFORM**2 / (UNIFORM**2 - 1.0)  # variances of samples
    else:
        raise DefocusError(f"window {window!r}; expected gaussian or uniform")
    inner = slice(len(weights) // 2, -(len(weights) // 2))

    def mean(values: Plane) -> Plane:
        return correlate1d(correlate1d(values, weights, axis=0), weights, axis=1)[inner, inner]

    mean_a, mean_b = mean(a), mean(b)
    variance_a, variance_b = unbiased * (mean(a * a) - mean_a**2), unbiased * (mean(b * b) - mean_b**2)
    covariance = unbiased * (mean(a * b) - mean_a * mean_b)
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    return ((2.0 * mean_a * mean_b + c1) * (2.0 * covariance + c2)) / (
        (mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2)
    )
