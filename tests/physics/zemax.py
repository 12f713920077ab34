"""How far two PSFs are apart, when their orientation and their place to a fraction of a pixel are not agreed upon."""

from __future__ import annotations

import numpy as np
from scipy import ndimage, optimize


def relative_l1(ours: np.ndarray, theirs: np.ndarray, blur_px: float = 0.0) -> float:
    """Σ|a − b| of two PSFs that sum to 1, least over the flips and sub-pixel shifts; both blurred first if asked."""
    theirs = theirs / theirs.sum()
    frequency = np.meshgrid(*(np.fft.fftfreq(n) for n in ours.shape), indexing="ij")
    blurred = (
        (lambda image: ndimage.gaussian_filter(image, blur_px, mode="constant")) if blur_px else (lambda image: image)
    )
    target = blurred(theirs)

    def distance(spectrum: np.ndarray, shift: np.ndarray) -> float:
        ramp = np.exp(-2j * np.pi * (frequency[0] * shift[0] + frequency[1] * shift[1]))
        moved = np.fft.ifft2(spectrum * ramp).real
        return float(np.abs(blurred(moved / moved.sum()) - target).sum())

    best = np.inf
    for flip in (np.s_[:, :], np.s_[::-1, :], np.s_[:, ::-1], np.s_[::-1, ::-1]):
        image = ours[flip] / ours.sum()
        spectrum = np.fft.fft2(image)
        correlation = np.fft.ifft2(np.conj(spectrum) * np.fft.fft2(theirs)).real
        start = np.array(np.unravel_index(np.argmax(correlation), correlation.shape), float)
        start -= np.where(start > np.array(ours.shape) / 2, ours.shape, 0)
        found = optimize.minimize(
            lambda shift, s=spectrum: distance(s, shift),
            start,
            method="Nelder-Mead",
            options={"initial_simplex": start + np.array([[0, 0], [0.5, 0], [0, 0.5]]), "xatol": 1e-3, "fatol": 1e-5},
        )
        best = min(best, float(found.fun))
    return best
