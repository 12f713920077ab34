"""How far blocks of a picture have moved under a blur that is not known.

Blur is taken for a symmetric point spread function: B(f) = H(|f|) · S(f) · exp(−2πi f·d) with a real H of either sign
(that of a disc changes it) that is unknown, and free in each ring of frequencies. With C = B·S* and

    A_r(d) = Σ_{f in ring r} Re[C(f) exp(2πi f·d)],        γ_r² = A_r² / (Σ|S|² Σ|B|²),

the logarithm of the likelihood of a shift d, with H_r and the level of noise in each ring at their best values, is
−Σ_r n_r ln(1 − γ_r²): rings count by how well one picture explains the other there. It is maximised by Newton's method
from a coarse search, over all blocks at once; its curvature tells the uncertainty. Blocks are under a Hann window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Complex64, Float

HIGHEST = 0.35  # cycles per pixel: beyond, interpolation, mosaics and JPEG speak
RING = 1.5  # width of a ring, in samples of the spectrum
CORRELATED = 2.25  # neighbouring samples of a spectrum under a Hann window are not independent: 1.5 along each axis
LARGEST_COHERENCE = 1.0 - 1e-4
CONTRAST = 0.004  # least standard deviation, of linear light 0..1, under the window, that can be told from noise
COARSE = 0.08  # cycles per pixel: larger things


class SpectrumRings(NamedTuple):
    """The samples of a half spectrum that are used, their frequencies (right, down) and rings, and the rings' mean
    frequencies; cycles per pixel."""

    used: Bool[np.ndarray, "n half"]
    frequencies: Float[np.ndarray, "k 2"]
    member: Float[np.ndarray, "k rings"]
    middles: Float[np.ndarray, "rings"]


@lru_cache(maxsize=8)
def spectrum_rings(block: int) -> SpectrumRings:
    """The rings of blocks of so many pixels a side."""
    fy, fx = np.meshgrid(np.fft.fftfreq(block), np.fft.rfftfreq(block), indexing="ij")
    radius = np.hypot(fx, fy)
    used = (radius > 0.5 / block) & (radius <= HIGHEST) & ((fx > 0.0) | (fy > 0.0))  # each sample once
    ring = np.floor((radius[used] * block - 0.5) / RING).astype(int)
    member = np.zeros((ring.size, ring.max() + 1), np.float32)
    member[np.arange(ring.size), ring] = 1.0
    middles = (member * radius[used][:, None]).sum(0) / member.sum(0)
    return SpectrumRings(used, np.stack([fx[used], fy[used]], axis=-1), member, middles)


@dataclass(frozen=True)
class BlockShifts:
    """Of each block: where it went (right, down), how certain that is, and how well blur explains it."""

    shift: Float[np.ndarray, "blocks 2"]
    spread: Float[np.ndarray, "blocks"]
    explained: Float[np.ndarray, "blocks"]
    explained_unmoved: Float[np.ndarray, "blocks"]  # without the shift
    transfer: Float[np.ndarray, "blocks rings"]
    textured: Bool[np.ndarray, "blocks"]
    coarse: Float[np.ndarray, "blocks"]  # contrast of coarse things in the sharp one
    strange: Float[np.ndarray, "blocks"]  # and of those in the blurred one that are not explained


def block_shifts(
    sharp: Float[np.ndarray, "blocks n n"],
    blurred: Float[np.ndarray, "blocks n n"],
    search_px: float,
    start: Float[np.ndarray, "blocks 2"] | None = None,
) -> BlockShifts:
    """The shifts of blocks, near the start; without one they are searched for."""
    block = sharp.shape[-1]
    rings = spectrum_rings(block)
    window = _window(block)
    centred = [_centred(one, window) for one in (sharp, blurred)]
    s, b = (np.fft.rfft2(one)[:, rings.used] for one in centred)
    power_s, power_b = (np.square(np.abs(one)) @ rings.member for one in (s, b))
    floor = 1e-12 * max(float(power_s.max(initial=0.0)), float(power_b.max(initial=0.0)), 1e-30)
    power_s, power_b = power_s + floor, power_b + floor
    cross = _CrossSpectra((b * np.conj(s)).astype(np.complex64), power_s * power_b, rings.frequencies, rings.member)
    shift = cross.search(search_px) if start is None else start
    curvature = np.zeros((len(shift), 2, 2))
    for steps, highest in ((4, 0.15), (6, HIGHEST)) if start is None else ((4, HIGHEST),):
        below = cross.below(highest)
        for _ in range(steps):
            slope, curvature = below.derivatives(shift)
            shift = np.clip(shift + _newton(slope, curvature), -2.0 * search_px, 2.0 * search_px)
    alignment, unmoved = cross.alignment(shift), cross.alignment(np.zeros_like(shift))
    with np.errstate(divide="ignore"):
        spread = np.sqrt(CORRELATED / np.maximum(np.linalg.eigvalsh(-curvature)[:, 0], 1e-12))
    coarse = rings.middles <= max(COARSE, rings.middles[0])
    missing = np.clip(power_b - floor - alignment**2 / power_s, 0.0, None)
    energy = float(np.square(window).sum())
    scale = 2.0 / (block**2 * energy)  # from half a spectrum to a variance
    contrasts = [np.sqrt(np.square(one).sum((1, 2)) / energy) for one in centred]
    explained, before = ((a**2 / power_s).sum(1) / power_b.sum(1) for a in (alignment, unmoved))
    return BlockShifts(
        shift=shift,
        spread=spread,
        explained=explained,
        explained_unmoved=before,
        transfer=alignment / power_s,
        textured=np.minimum(*contrasts) > CONTRAST,
        coarse=np.sqrt(scale * (power_s - floor)[:, coarse].sum(1)),
        strange=np.sqrt(scale * missing[:, coarse].sum(1)),
    )


@dataclass(frozen=True)
class _CrossSpectra:
    """C = B·S* of blocks, and the products of both powers in each ring."""

    cross: Complex64[np.ndarray, "blocks k"]
    powers: Float[np.ndarray, "blocks rings"]
    frequencies: Float[np.ndarray, "k 2"]
    member: Float[np.ndarray, "k rings"]

    def below(self, highest: float) -> _CrossSpectra:
        """The whole rings of frequencies up to `highest`."""
        low = np.hypot(self.frequencies[:, 0], self.frequencies[:, 1]) <= highest
        rings = self.member[low].sum(0) == self.member.sum(0)
        low &= self.member[:, rings].any(axis=1)
        member = self.member[low][:, rings]
        return _CrossSpectra(self.cross[:, low], self.powers[:, rings], self.frequencies[low], member)

    def turned(self, shift: Float[np.ndarray, "blocks 2"]) -> Complex64[np.ndarray, "blocks k"]:
        """C·exp(2πi f·d), from the few values that f has along each axis."""
        turned = self.cross
        for axis in (0, 1):
            values, place = np.unique(self.frequencies[:, axis], return_inverse=True)
            line = np.exp(2j * np.pi * shift[:, axis : axis + 1] * values).astype(np.complex64)
            turned = turned * line[:, place]
        return turned

    def alignment(self, shift: Float[np.ndarray, "blocks 2"]) -> Float[np.ndarray, "blocks rings"]:
        return self.turned(shift).real @ self.member

    def search(self, search_px: float) -> Float[np.ndarray, "blocks 2"]:
        """The best of a grid of shifts, by low frequencies alone; of equals the smallest."""
        low = self.below(0.12)
        shift = np.zeros((len(self.cross), 2))
        if not low.member.size:
            return shift
        count = low.member.sum(0) / CORRELATED
        steps = np.arange(-math.ceil(search_px / 1.5), math.ceil(search_px / 1.5) + 1) * 1.5
        best = np.full(len(shift), -np.inf)
        for right in steps:
            for down in steps:
                here = np.broadcast_to(np.array([right, down]), shift.shape)
                coherence = np.minimum(low.alignment(here) ** 2 / low.powers, LARGEST_COHERENCE)
                value = -(np.log1p(-coherence) @ count) - 0.5 * (right**2 + down**2) / max(search_px, 1.0) ** 2
                better = value > best
                best[better], shift[better] = value[better], here[better]
        return shift

    def derivatives(
        self, shift: Float[np.ndarray, "blocks 2"]
    ) -> tuple[Float[np.ndarray, "blocks 2"], Float[np.ndarray, "blocks 2 2"]]:
        """Slope and curvature of the likelihood's logarithm."""
        turned = self.turned(shift)
        omega = (2.0 * np.pi * self.frequencies).astype(np.float32)
        a = turned.real @ self.member
        first = [(-omega[:, i] * turned.imag) @ self.member for i in (0, 1)]
        coherence = np.minimum(a**2 / self.powers, LARGEST_COHERENCE)
        weight = 2.0 * self.member.sum(0) / (1.0 - coherence) / self.powers
        slope = np.stack([(weight * a * one).sum(1) for one in first], axis=-1)
        curvature = np.empty((len(a), 2, 2))
        for i, j in ((0, 0), (0, 1), (1, 1)):
            second = (-omega[:, i] * omega[:, j] * turned.real) @ self.member
            curvature[:, i, j] = curvature[:, j, i] = (weight * (first[i] * first[j] + a * second)).sum(1)
        return slope, curvature


def _window(block: int) -> Float[np.ndarray, "n n"]:
    line = 0.5 - 0.5 * np.cos(2.0 * np.pi * (np.arange(block) + 0.5) / block)
    return line[:, None] * line[None, :]


def _centred(blocks: Float[np.ndarray, "blocks n n"], window: Float[np.ndarray, "n n"]) -> np.ndarray:
    """Blocks under the window, without their means."""
    mean = (blocks * window).sum((1, 2), keepdims=True) / window.sum()
    return (blocks - mean) * window


def _newton(slope: Float[np.ndarray, "blocks 2"], curvature: Float[np.ndarray, "blocks 2 2"]) -> np.ndarray:
    """A step uphill, at most a pixel; where the surface is not a hill, along the slope."""
    values, vectors = np.linalg.eigh(-curvature)
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-12)
    values = np.maximum(np.abs(values), 1e-3 * largest)
    along = np.einsum("bij,bi->bj", vectors, slope) / values
    step = np.einsum("bij,bj->bi", vectors, along)
    length = np.hypot(step[:, 0], step[:, 1])[:, None]
    return step * np.minimum(1.0, 1.0 / np.maximum(length, 1e-12))
