"""What others take for a PSF: a Gaussian, a disc, and the paraxial Fraunhofer pattern. For comparison.

All know the lens only by its paraxial circle of confusion or its numerical aperture: no aberrations, no vignetting, no
chief ray. Each is pixel integrated and sums to 1; the point sits in pixel size // 2.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import erf

from ..errors import DefocusError
from .propagate import SUPERSAMPLE

MOST_POINTS = 2**14  # across the window of a Fraunhofer pattern
FFT_SAMPLES = 2048  # most that the Fraunhofer pattern is computed with
PUPIL_SAMPLES = 16  # across the pupil, at least: a single one would be a pattern without end


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
    chord = radius * np.sqrt(np.maximum(1.0 - (y / radius) ** 2, 0.0))[:, None]
    reach = np.clip(edges[None, :], -chord, chord)
    psf = np.diff(reach, axis=1).reshape(size, rows, size).mean(axis=1)
    if psf.sum() <= 0.0:  # a disc far smaller than a row
        psf[size // 2, size // 2] = 1.0
    return psf / psf.sum()


def fraunhofer(
    na: float, defocus_mm: float, wavelength_nm: float, pixel_um: float, size: int, supersample: int = SUPERSAMPLE
) -> Float[np.ndarray, "size size"]:
    """The pattern of a round pupil with a parabolic defocus, by one FFT.

    The FFT fixes the step on the sensor to λ / (2 NA · padding): it is chosen as an integer part of a pixel, with at
    least `supersample` points in each.
    """
    wavelength, pixel = wavelength_nm * 1e-6, pixel_um * 1e-3
    points = max(supersample, int(np.ceil(2.0 * pixel * 2.0 * na / wavelength)))
    points += 1 - points % 2  # odd: a sample in the middle of each pixel
    if size * points > MOST_POINTS:
        raise DefocusError(f"{size} pixels take {size * points} points across, more than {MOST_POINTS}: take fewer")
    step = pixel / points
    if 2.0 * na * step * 4 * FFT_SAMPLES < PUPIL_SAMPLES * wavelength:
        raise DefocusError(
            f"a numerical aperture of {na:.3g} spreads its light over far more than {size} pixels of {pixel_um:g} µm: "
            "take larger pixels or a smaller f-number"
        )
    window = max(size * pixel + 2.0 * abs(defocus_mm) * na, PUPIL_SAMPLES * wavelength / (2.0 * na))
    count = int(min(2 ** np.ceil(np.log2(window / step + 1.0)), FFT_SAMPLES * 4))
    s = np.fft.fftfreq(count) * wavelength / step  # direction cosines of the FFT's frequencies
    s2 = s[:, None] ** 2 + s[None, :] ** 2
    pupil = np.where(s2 <= na**2, np.exp(-1j * np.pi * s2 * defocus_mm / wavelength), 0.0)
    intensity = np.fft.fftshift(np.abs(np.fft.fft2(pupil)) ** 2)
    # Point p of the FFT lies at (p − count/2) steps; pixel k covers `points` of them about (k − size // 2) pixels.
    first = count // 2 - (size // 2) * points - points // 2
    fine = np.zeros((size * points, size * points))
    low, high = max(first, 0), min(first + size * points, count)
    fine[low - first : high - first, low - first : high - first] = intensity[low:high, low:high]
    psf = fine.reshape(size, points, size, points).sum(axis=(1, 3))
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
