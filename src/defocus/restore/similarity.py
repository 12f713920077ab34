"""Peak signal-to-noise ratio and structural similarity of two pictures: for `defocus evaluate` in double precision, and
for a batch of PyTorch tensors while a network learns.

PSNR = −10 log10(mean squared difference) over all pixels and channels. SSIM (Wang et al., 2004) compares local
means, variances and the covariance under a window w,

    SSIM = (2 μa μb + C1)(2 σab + C2) / ((μa² + μb² + C1)(σa² + σb² + C2)),  C1 = 0.01², C2 = 0.03²,

averaged over the places where the window lies within the picture. The default window is the paper's own, a Gaussian of
σ = 1.5 pixels on 11×11 pixels; `window="uniform"` is scikit-image's, 7×7 equal weights and variances of samples. Both
equal `skimage.metrics` to 1e-6.

Which channels: PSNR is over RGB; SSIM over the grey picture 0.299 R + 0.587 G + 0.114 B, rounded to 8 bits as MATLAB's
`rgb2gray` does. So has pyiqa both, which the paper measured with. `channels` offers the other for each ("rgb" of SSIM:
the mean over the three). Pictures are display values 0..1, or whole numbers up to the white of their type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.ndimage import correlate1d

from ..errors import DefocusError

if TYPE_CHECKING:
    from torch import Tensor

Channels = Literal["rgb", "grey"]
Window = Literal["gaussian", "uniform"]
Mask = Bool[np.ndarray, "rows cols"]
RgbPicture = Shaped[np.ndarray, "..."]  # of any shape: others than [rows, columns, 3], or two, are refused

LUMA = (0.299, 0.587, 0.114)
SIGMA, WINDOW_PX = 1.5, 11  # of the Gaussian window
UNIFORM_PX = 7  # of the uniform window
C1, C2 = 0.01**2, 0.03**2


def psnr(image: RgbPicture, truth: RgbPicture, *, channels: Channels = "rgb", mask: Mask | None = None) -> float:
    """PSNR in dB, over the pixels of a mask if one is given; infinite for equal pictures."""
    a, b = _checked(image, truth, channels)
    squares = np.square(a - b)
    error = float(np.mean(squares if mask is None else squares[mask]))
    return math.inf if error == 0.0 else -10.0 * math.log10(error)


def ssim(
    image: RgbPicture,
    truth: RgbPicture,
    *,
    channels: Channels = "grey",
    window: Window = "gaussian",
    mask: Mask | None = None,
) -> float:
    """SSIM from −1 to 1; 1 for equal pictures. With a mask, the mean over windows whose middle is one of its pixels."""
    similarity = ssim_map(image, truth, channels=channels, window=window)
    if mask is not None:
        rows, cols = (int(total - inner) // 2 for total, inner in zip(mask.shape, similarity.shape, strict=False))
        similarity = similarity[mask[rows : mask.shape[0] - rows, cols : mask.shape[1] - cols]]
    return float(np.mean(similarity))


def ssim_map(
    image: RgbPicture, truth: RgbPicture, *, channels: Channels = "grey", window: Window = "gaussian"
) -> Float[np.ndarray, "inner_rows inner_cols channels"]:
    """SSIM at each place where the window lies within the picture."""
    a, b = _checked(image, truth, channels)
    weights, unbiased = _window(window)
    if min(a.shape[:2]) < len(weights):
        raise DefocusError(f"a picture of {a.shape[1]}×{a.shape[0]} pixels is smaller than the window of SSIM")
    inner = slice(len(weights) // 2, -(len(weights) // 2))

    def mean(values: np.ndarray) -> np.ndarray:
        return correlate1d(correlate1d(values, weights, axis=0), weights, axis=1)[inner, inner]

    return _similarity(a, b, mean, unbiased)


def grey(image: Float[np.ndarray, "rows cols 3"]) -> Float[np.ndarray, "rows cols"]:
    """0.299 R + 0.587 G + 0.114 B of display values, rounded to whole values from 0 to 255."""
    return np.round(np.asarray(image, np.float64) @ np.array(LUMA) * 255.0)


def display_values(picture: RgbPicture, kind: type[np.floating] = np.float32) -> Float[np.ndarray, "..."]:
    """A picture as display values of a `kind`: floating-point numbers, or whole numbers of 8 or 16 bits by their white.

    Raises `DefocusError` for other kinds of numbers, whose white nobody knows.
    """
    if np.issubdtype(picture.dtype, np.floating):
        return picture.astype(kind, copy=False)
    if picture.dtype not in (np.uint8, np.uint16):
        raise DefocusError(
            f"a picture of {picture.dtype}; expected display values 0..1, or whole numbers as uint8 or uint16"
        )
    return picture / kind(np.iinfo(picture.dtype).max)


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

    return _similarity(a, b, mean, 1.0).mean((1, 2, 3))


def batch_grey(pictures: Tensor) -> Tensor:
    """Luma of each picture of a batch [batch, 3, rows, cols], values 0..1, rounded to 8 bits."""
    luma = pictures.new_tensor(LUMA).view(1, 3, 1, 1)
    return ((pictures * luma).sum(1, keepdim=True) * 255.0).round() / 255.0


def _checked(
    image: RgbPicture, truth: RgbPicture, channels: Channels
) -> tuple[Float[np.ndarray, "rows cols channels"], Float[np.ndarray, "rows cols channels"]]:
    """Both pictures in double precision, of the channels to compare."""
    if image.shape != truth.shape:
        sizes = [f"{shape[1]}×{shape[0]}" if len(shape) == 3 else str(shape) for shape in (image.shape, truth.shape)]
        raise DefocusError(f"the picture has {sizes[0]} pixels, its truth {sizes[1]}: crop or align them first")
    if image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise DefocusError(f"a picture of shape {list(image.shape)}; expected [rows, columns, 3]")
    if channels not in ("rgb", "grey"):
        raise DefocusError(f"channels {channels!r}; expected rgb or grey")
    a, b = (display_values(picture, np.float64) for picture in (image, truth))
    for what, values in (("picture", a), ("truth", b)):
        if not np.isfinite(values).all():
            raise DefocusError(f"{int((~np.isfinite(values)).sum())} values of the {what} are no finite numbers")
    return (a, b) if channels == "rgb" else (grey(a)[..., None] / 255.0, grey(b)[..., None] / 255.0)


def _window(kind: Window) -> tuple[Float[np.ndarray, "pixels"], float]:
    """Weights along one axis, and the factor that makes population variances those of samples."""
    if kind == "gaussian":
        weights = np.exp(-0.5 * np.square((np.arange(WINDOW_PX) - WINDOW_PX // 2) / SIGMA))
        return weights / weights.sum(), 1.0
    if kind == "uniform":
        return np.full(UNIFORM_PX, 1.0 / UNIFORM_PX), UNIFORM_PX**2 / (UNIFORM_PX**2 - 1.0)
    raise DefocusError(f"window {kind!r}; expected gaussian or uniform")


def _similarity(a: Any, b: Any, mean: Callable[[Any], Any], unbiased: float) -> Any:
    """SSIM at each place, of arrays of either library; `mean` is their mean under the window."""
    a, b = a - 0.5, b - 0.5  # sums of squares lose digits; of values near 0 they lose fewer
    mean_a, mean_b = mean(a), mean(b)
    variances = unbiased * (mean(a * a) - mean_a**2 + mean(b * b) - mean_b**2)
    covariance = unbiased * (mean(a * b) - mean_a * mean_b)
    mean_a, mean_b = mean_a + 0.5, mean_b + 0.5
    return (2.0 * mean_a * mean_b + C1) * (2.0 * covariance + C2) / ((mean_a**2 + mean_b**2 + C1) * (variances + C2))
