"""Where the light of a PSF lies: its centroid, cross sections, and encircled energy.

Encircled energy counts from the centroid; light that fell outside the window counts as missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

FINE = 1024  # subdivided pixels across the window
UP = math.pi / 2.0


@dataclass(frozen=True, slots=True)
class EncircledEnergy:
    """Share of the light within a radius (µm) of the centroid, as far as the window surrounds it."""

    radius_um: Float[np.ndarray, " radii"]
    share: Float[np.ndarray, "bands radii"]

    def radius_of(self, share: float) -> float:
        """The radius (µm) that holds this share of the light of all bands; nan where the window does not."""
        mean = self.share.mean(axis=0)
        if not mean[-1] >= share:
            return math.nan
        at = int(np.argmax(mean >= share))
        if at == 0:
            return float(self.radius_um[0])
        return float(np.interp(share, mean[at - 1 : at + 1], self.radius_um[at - 1 : at + 1]))


def centroid(psf: Float[np.ndarray, "bands rows columns"]) -> tuple[float, float]:
    """Row and column of the centre of all light, in pixels; pixel centres are whole numbers."""
    light = np.asarray(psf, float).sum(axis=0)
    rows, columns = np.arange(light.shape[0]), np.arange(light.shape[1])
    return float(light.sum(axis=1) @ rows / light.sum()), float(light.sum(axis=0) @ columns / light.sum())


def sections(
    psf: Float[np.ndarray, "bands rows columns"], azimuth: float = UP
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, "bands steps"], Float[np.ndarray, "bands steps"]]:
    """Places (pixels from the centroid) and the PSF there, along the azimuth (radians from +x to +y) and across it.

    Values are bilinear; nan outside the window.
    """
    row, column = centroid(psf)
    size = max(psf.shape[-2:])
    place = np.arange(-size, size + 0.25, 0.25)

    def line(angle: float) -> Float[np.ndarray, "bands steps"]:
        return _bilinear(psf, row - place * math.sin(angle), column + place * math.cos(angle))

    return place, line(azimuth), line(azimuth - UP)


def _bilinear(
    psf: Float[np.ndarray, "bands rows columns"], row: Float[np.ndarray, " steps"], column: Float[np.ndarray, " steps"]
) -> Float[np.ndarray, "bands steps"]:
    """Values between pixel centres, nan beyond the outermost; ours: importing SciPy takes 0.3 s of a PSF's 3."""
    rows, columns = psf.shape[-2:]
    upper, left = (np.clip(np.floor(v), 0, n - 1).astype(int) for v, n in ((row, rows), (column, columns)))
    lower, right = np.minimum(upper + 1, rows - 1), np.minimum(left + 1, columns - 1)
    down, along = row - upper, column - left
    above = psf[:, upper, left] * (1.0 - along) + psf[:, upper, right] * along
    below = psf[:, lower, left] * (1.0 - along) + psf[:, lower, right] * along
    inside = (row >= 0) & (row <= rows - 1) & (column >= 0) & (column <= columns - 1)
    return np.where(inside, above * (1.0 - down) + below * down, np.nan)


def encircled_energy(
    psf: Float[np.ndarray, "bands rows columns"], pixel_um: float, inside: Float[np.ndarray, " bands"] | None = None
) -> EncircledEnergy:
    """Encircled energy about the common centroid; `inside` is the share of each band's light that fell on the window.

    Every pixel is divided into equal parts, each inside or outside a circle as its centre is.
    """
    bands, rows, columns = psf.shape
    row, column = centroid(psf)
    parts = max(1, min(9, FINE // max(rows, columns)))
    offset = (np.arange(parts) + 0.5) / parts - 0.5
    y = (np.arange(rows)[:, None] + offset).ravel() - row
    x = (np.arange(columns)[:, None] + offset).ravel() - column
    r = np.hypot(y[:, None], x[None, :])
    reach = max(min(row + 0.5, rows - 0.5 - row, column + 0.5, columns - 0.5 - column), 0.5)
    edges = np.linspace(0.0, reach, 1 + max(16, math.ceil(4 * reach)))
    sums = []
    for band, part in zip(psf, np.ones(bands) if inside is None else inside, strict=True):
        fine = np.repeat(np.repeat(np.asarray(band, float), parts, axis=0), parts, axis=1) / parts**2
        within, _ = np.histogram(r, edges, weights=fine)
        sums.append(part * np.concatenate([[0.0], np.cumsum(within)]) / max(float(band.sum()), 1e-30))
    return EncircledEnergy(edges * pixel_um, np.stack(sums))
