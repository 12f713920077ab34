"""How sharp a picture is that is taken for the truth: the width of its edges, block by block.

At a step that was blurred by a Gaussian of σ, the slope seen through a Gaussian of σᵢ is proportional to
1 / √(σ² + σᵢ²). The ratio R of the slopes at two such scales gives the blur without knowing the step (Zhuo and Sim,
2011, with both scales known): σ² = (σ₂² − R² σ₁²) / (R² − 1). It is taken in linear light, at places where the slope
is largest along its own direction and stands out from noise. Steps narrower than a pixel, lines and sharpened edges
count as 0. What counts in a block is the median of its edges. A pixel's own area is σ = 0.29, and a good lens with a
mosaic sensor gives 0.5 to 0.9; a disc of radius r seems like σ = 0.55 r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import ndimage

SCALES = (1.0, 2.0)  # σ₁ and σ₂, pixels
ABOVE_NOISE = 8.0
LEAST_CONTRAST = 0.02  # of a step, linear light 0..1
FEWEST = 24  # edge pixels of a block
WIDEST = 6.0  # pixels: beyond, the two scales see the same
BLURRED_PX = 1.5  # a truth whose sharpest edges are wider than this is not sharp


@dataclass(frozen=True)
class BlurMap:
    """Median σ of the edges in blocks [rows, cols], in pixels; NaN where there are too few edges."""

    sigma_px: Float[np.ndarray, "rows cols"]

    @property
    def with_edges(self) -> Float[np.ndarray, "blocks"]:
        """σ of the blocks that have edges."""
        return self.sigma_px[np.isfinite(self.sigma_px)]

    def quantile(self, part: float) -> float:
        """A quantile of σ over the blocks with edges; NaN without any."""
        return float(np.quantile(self.with_edges, part)) if self.with_edges.size else float("nan")

    @property
    def blurred_share(self) -> float:
        """The share of the blocks with edges that are not sharp; NaN without any."""
        return float((self.with_edges > BLURRED_PX).mean()) if self.with_edges.size else float("nan")


def blur_map(grey: Float[np.ndarray, "h w"], *, block_px: int = 64) -> BlurMap:
    """The blur of a grey picture of linear light, block by block."""
    values = np.asarray(grey, np.float32)
    (y, x), sigma = edge_widths(values)
    block = max(8, min(block_px, *values.shape))
    rows, cols = (max(1, n // block) for n in values.shape)
    index = (y * rows // values.shape[0]) * cols + x * cols // values.shape[1]
    medians = np.full(rows * cols, np.nan)
    with_edges = np.flatnonzero(np.bincount(index, minlength=rows * cols) >= FEWEST)
    if with_edges.size:
        medians[with_edges] = ndimage.median(sigma, index, with_edges)
    return BlurMap(medians.reshape(rows, cols))


def edge_widths(
    values: Float[np.ndarray, "h w"],
) -> tuple[tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]], Float[np.ndarray, "n"]]:
    """Rows and columns of the pixels on edges, and σ there."""
    fine = [ndimage.gaussian_filter(values, SCALES[0], order) for order in ((0, 1), (1, 0))]
    slope = np.hypot(*fine)
    on_edge = _ridges(slope, fine[0], fine[1])
    noise = noise_level(values) / (np.sqrt(8.0 * np.pi) * SCALES[0] ** 2)
    # A step of height h that is blurred by σ has the slope h / (√(2π) · √(σ² + σ₁²)).
    least = LEAST_CONTRAST / (np.sqrt(2.0 * np.pi) * np.hypot(WIDEST, SCALES[0]))
    on_edge &= slope > max(ABOVE_NOISE * noise, least)
    edge = 4 * int(SCALES[1]) // 2  # filters see what is not there beyond the picture's own edge
    on_edge[:edge] = on_edge[-edge:] = False
    on_edge[:, :edge] = on_edge[:, -edge:] = False
    rows, cols = np.nonzero(on_edge)
    coarse = np.hypot(*(ndimage.gaussian_filter(values, SCALES[1], order) for order in ((0, 1), (1, 0))))
    ratio2 = np.square(slope[rows, cols] / np.maximum(coarse[rows, cols], 1e-12))
    with np.errstate(divide="ignore", invalid="ignore"):
        sigma2 = (SCALES[1] ** 2 - ratio2 * SCALES[0] ** 2) / (ratio2 - 1.0)
    sigma = np.sqrt(np.clip(np.where(ratio2 > 1.0, sigma2, WIDEST**2), 0.0, WIDEST**2))
    return (rows, cols), sigma


def noise_level(values: Float[np.ndarray, "h w"]) -> float:
    """Standard deviation of the noise, from second differences along both axes, which smooth things do not have."""
    if min(values.shape) < 3:
        return 0.0
    kernel = np.array([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]], np.float32)
    differences = ndimage.convolve(values, kernel, mode="mirror")
    return float(1.4826 * np.median(np.abs(differences)) / 6.0)


def _ridges(
    slope: Float[np.ndarray, "h w"], right: Float[np.ndarray, "h w"], down: Float[np.ndarray, "h w"]
) -> Bool[np.ndarray, "h w"]:
    """Where the slope is no less than its neighbours before and after, along the nearest of four directions."""
    octant = np.round(np.arctan2(down, right) / (np.pi / 4.0)).astype(int) % 4
    padded = np.pad(slope, 1)
    best = np.zeros(slope.shape, bool)
    for number, (dy, dx) in enumerate(((0, 1), (1, 1), (1, 0), (1, -1))):
        height, width = slope.shape
        after = padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
        before = padded[1 - dy : 1 - dy + height, 1 - dx : 1 - dx + width]
        best |= (octant == number) & (slope >= after) & (slope > before)
    return best
