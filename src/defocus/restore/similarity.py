"""Peak signal-to-noise ratio and structural similarity of two pictures: for `defocus evaluate` in double precision, and
for a batch of PyTorch tensors while a network learns.

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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.ndimage import correlate1d

from ..errors import DefocusError

if TYPE_CHECKING:
    from torch import Tensor

Channels = Literal["rgb", "grey"]
Window = Literal["gaussian", "uniform"]
RgbPicture = Float[np.ndarray, "..."]  # of any shape: others than [rows, columns, 3], or two, are refused

LUMA = (0.299, 0.587, 0.114)
SIGMA, WINDOW_PX = 1.5, 11  # of the Gaussian window
UNIFORM_PX = 7  # of the uniform window


def psnr(image: RgbPicture, truth: RgbPicture, *, data_range: float = 1.0, channels: Channels = "rgb") -> float:
    """PSNR in dB; infinite for equal pictures."""
    a, b = _checked(image, truth, data_range, channels)
    error = float(np.mean(np.square(a - b)))
    return math.inf if error == 0.0 else 10.0 * math.log10(data_range**2 / error)


def ssim(
    image: RgbPicture,
    truth: RgbPicture,
    *,
    data_range: float = 1.0,
    channels: Channels = "grey",
    window: Window = "gaussian",
) -> float:
    """SSIM from −1 to 1; 1 for equal pictures."""
    a, b = _checked(image, truth, data_range, channels)
    weights, unbiased = _window(window)
    if min(a.shape[:2]) < len(weights):
        raise DefocusError(f"a picture of {a.shape[1]}×{a.shape[0]} pixels is smaller than the window of SSIM")
    inner = slice(len(weights) // 2, -(len(weights) // 2))

    def mean(values: np.ndarray) -> np.ndarray:
        return correlate1d(correlate1d(values, weights, axis=0), weights, axis=1)[inner, inner]

    return float(np.mean(_similarity(a, b, mean, data_range, unbiased)))


def grey(image: Float[np.ndarray, "rows cols 3"], data_range: float = 1.0) -> Float[np.ndarray, "rows cols"]:
    """0.299 R + 0.587 G + 0.114 B, rounded to whole values from 0 to 255."""
    return np.round(np.asarray(image, np.float64) @ np.array(LUMA) * (255.0 / data_range))


def batch_psnr(a: Tensor, b: Tensor) -> Tensor:
    """PSNR in dB of each picture of a batch [batch, channels, rows, cols], values 0..1; 100 at most, for equal ones."""
    return -10.0 * (a - b).square().mean((1, 2, 3)).clamp_min(1e-10).log10()


def batch_ssim(a: Tensor, b: Tensor) -> Tensor:
    """SSIM of each picture of a batch [batch, channels, rows, cols], values 0..1, under the Gaussian window."""
    from torch.nn.functional import conv2d

    if min(a.shape[-2:]) < WINDOW_PX:
        raise DefocusError(f"SSIM needs pictures of {WINDOW_PX} pixels or more; these have {list(a.shape[-2:])}")
    channels = a.shape[1]
    line = a.new_tensor(_window("gaussian")[0]).expand(channels, 1, 1, -1)

    def mean(values: Tensor) -> Tensor:
        return conv2d(conv2d(values, line.mT, groups=channels), line, groups=channels)

    return _similarity(a, b, mean, 1.0, 1.0).mean((1, 2, 3))


def batch_grey(pictures: Tensor) -> Tensor:
    """Luma of each picture of a batch [batch, 3, rows, cols], values 0..1, rounded to 8 bits."""
    luma = pictures.new_tensor(LUMA).view(1, 3, 1, 1)
    return ((pictures * luma).sum(1, keepdim=True) * 255.0).round() / 255.0


def _checked(
    image: RgbPicture, truth: RgbPicture, data_range: float, channels: Channels
) -> tuple[Float[np.ndarray, "rows cols channels"], Float[np.ndarray, "rows cols channels"]]:
    """Both pictures in double precision, of the channels to compare."""
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


def _window(kind: Window) -> tuple[Float[np.ndarray, "pixels"], float]:
    """Weights along one axis, and the factor that makes population variances those of samples."""
    if kind == "gaussian":
        weights = np.exp(-0.5 * np.square((np.arange(WINDOW_PX) - WINDOW_PX // 2) / SIGMA))
        return weights / weights.sum(), 1.0
    if kind == "uniform":
        return np.full(UNIFORM_PX, 1.0 / UNIFORM_PX), UNIFORM_PX**2 / (UNIFORM_PX**2 - 1.0)
    raise DefocusError(f"window {kind!r}; expected gaussian or uniform")


def _similarity(a: Any, b: Any, mean: Callable[[Any], Any], data_range: float, unbiased: float) -> Any:
    """SSIM at each place, of arrays of either library; `mean` is their mean under the window."""
    middle = 0.5 * data_range  # sums of squares lose digits; of values near 0 they lose fewer
    a, b = a - middle, b - middle
    mean_a, mean_b = mean(a), mean(b)
    variances = unbiased * (mean(a * a) - mean_a**2 + mean(b * b) - mean_b**2)
    covariance = unbiased * (mean(a * b) - mean_a * mean_b)
    mean_a, mean_b = mean_a + middle, mean_b + middle
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    return (2.0 * mean_a * mean_b + c1) * (2.0 * covariance + c2) / ((mean_a**2 + mean_b**2 + c1) * (variances + c2))
