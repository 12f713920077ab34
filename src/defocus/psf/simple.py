"""What others take for a PSF: a Gaussian and a disc. For comparison.

Both know the lens only by its paraxial circle of confusion: no aberrations, no vignetting, no chief ray. Each is pixel
integrated and sums to 1; the point sits in pixel size // 2.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import erf


def gaussian(radius_px: float, size: int) -> Float[np.ndarray, "size size"]:
    """A Gaussian whose σ is half the radius of the circle of confusion (pixels)."""
    sigma = max(abs(radius_px) / 2.0, 1e-6)
    edges = (np.arange(size + 1) - 0.5 - size // 2) / (np.sqrt(2.0) * sigma)
    share = np.diff(erf(edges)) / 2.0
    psf = np.outer(share, share)
    return psf / psf.sum()


def disk(radius_px: float, size: int) -> Float[np.ndarray, "size size"]:
    """A uniform disc with the radius of the circle of confusion (pixels), each pixel by its covered area."""
    radius = max(abs(radius_px), 1e-6)
    edges = np.arange(size + 1) - 0.5 - size // 2
    # Along x exactly, from the chords; along y by the midpoints of fine rows.
    rows = 256
    y = edges[0] + (np.arange(size * rows) + 0.5) / rows
    chords = radius * np.sqrt(np.maximum(1.0 - (y / radius) ** 2, 0.0)).reshape(size, rows, 1)
    psf = np.zeros((size, size))
    for row in np.flatnonzero(chords.any(axis=1)):  # one at a time: all would be a gigabyte for 512 pixels
        psf[row] = np.diff(np.clip(edges, -chords[row], chords[row]), axis=1).mean(axis=0)
    if psf.sum() <= 0.0:  # a disc far smaller than a row
        psf[size // 2, size // 2] = 1.0
    return psf / psf.sum()


def gaussian_outside(radius_px: float, window: int) -> float:
    """Part of a Gaussian about pixel window // 2 that a square window does not hold."""
    edges = (np.array([0, window]) - 0.5 - window // 2) / (np.sqrt(2.0) * max(abs(radius_px) / 2.0, 1e-6))
    return 1.0 - float(np.diff(erf(edges))[0] / 2.0) ** 2


def disk_outside(radius_px: float, window: int) -> float:
    """Part of a disc about pixel window // 2 that a square window does not hold."""
    if 2.0 * abs(radius_px) <= window:
        return 0.0
    half = window / (2.0 * abs(radius_px))  # in radii, which may be huge
    x = (np.arange(2048) + 0.5) / 2048 * half
    return 1.0 - 4.0 / math.pi * half * float(np.minimum(np.sqrt(1.0 - x**2), half).mean())
