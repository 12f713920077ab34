"""How far two PSFs are apart, when their orientation and their place to a fraction of a pixel are not agreed upon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import ndimage, optimize

FLIPS = (np.s_[:, :], np.s_[::-1, :], np.s_[:, ::-1], np.s_[::-1, ::-1])

Pixels = Float[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class Agreement:
    """Two PSFs that sum to 1, the first one flipped and shifted to the other, and how far they are apart."""

    ours: Pixels
    theirs: Pixels
    l1: float  # Σ|a − b|: 0 best, 2 worst
    blurred_l1: float  # after a blur of both by σ = 1 pixel, which takes away the fringes that point samples alias
    correlation: float


def compare_psfs(ours: Pixels, theirs: Pixels) -> Agreement:
    """The agreement of two PSFs on the same pixels, over the flips and the best sub-pixel shift."""
    theirs = theirs / theirs.sum()
    distance, moved = _nearest(ours, theirs, 0.0)
    correlation = float(np.corrcoef(moved.ravel(), theirs.ravel())[0, 1])
    return Agreement(moved, theirs, distance, _nearest(ours, theirs, 1.0)[0], correlation)


def _nearest(ours: Pixels, theirs: Pixels, blur_px: float) -> tuple[float, Pixels]:
    """The least Σ|a − b| over flips and shifts, both blurred by a Gaussian, and our PSF as it then is."""
    frequency = np.meshgrid(*(np.fft.fftfreq(n) for n in ours.shape), indexing="ij")

    def blurred(image: Pixels) -> Pixels:
        return ndimage.gaussian_filter(image, blur_px, mode="constant") if blur_px else image

    target = blurred(theirs)

    def moved(spectrum: np.ndarray, shift: np.ndarray) -> Pixels:
        ramp = np.exp(-2j * np.pi * (frequency[0] * shift[0] + frequency[1] * shift[1]))
        image = np.fft.ifft2(spectrum * ramp).real
        return blurred(image / image.sum())

    best: tuple[float, Pixels] = np.inf, ours
    for flip in FLIPS:
        spectrum = np.fft.fft2(ours[flip] / ours.sum())
        correlation = np.fft.ifft2(np.conj(spectrum) * np.fft.fft2(theirs)).real
        start = np.array(np.unravel_index(np.argmax(correlation), correlation.shape), float)
        start -= np.where(start > np.array(ours.shape) / 2, ours.shape, 0)
        least = optimize.minimize(
            lambda shift, s=spectrum: float(np.abs(moved(s, shift) - target).sum()),
            start,
            method="Nelder-Mead",
            options={"initial_simplex": start + np.array([[0, 0], [0.5, 0], [0, 0.5]]), "xatol": 1e-3, "fatol": 1e-5},
        )
        if least.fun < best[0]:
            best = float(least.fun), moved(spectrum, least.x)
    return best
