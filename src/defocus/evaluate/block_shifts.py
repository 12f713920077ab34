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

import numpy as np
from jaxtyping import Bool, Float

HIGHEST = 0.35  # cycles per pixel: beyond, interpolation, mosaics and JPEG speak
RING = 1.5  # width of a ring, in samples of the spectrum
CORRELATED = 2.25  # neighbouring samples of a spectrum under a Hann window are not independent: 1.5 along each axis
LARGEST_COHERENCE = 1.0 - 1e-4
CONTRAST = 0.004  # least standard deviation, of linear light 0..1, under the window, that can be told from noise
COARSE = 0.08  # cycles per pixel: larger things


@lru_cache(maxsize=8)
def spectrum_rings(
    block: int,
) -> tuple[
    Bool[np.ndarray, "n half"], Float[np.ndarray, "k 2"], Float[np.ndarray, "k rings"], Float[np.ndarray, "rings"]
]:
    """Which samples of a half spectrum are used, their frequencies (right, down), their rings, those' frequencies."""
    fy, fx = np.meshgrid(np.fft.fftfreq(block), np.fft.rfftfreq(block), indexing="ij")
    radius = np.hypot(fx, fy)
    used = (radius > 0.5 / block) & (radius <= HIGHEST) & ((fx > 0.0) | (fy > 0.0))  # each sample once
    ring = np.floor((radius[used] * block - 0.5) / RING).astype(int)
    member = np.zeros((ring.size, ring.max() + 1), np.float32)
    member[np.arange(ring.size), ring] = 1.0
    middle = (member * radius[used][:, None]).sum(0) / member.sum(0)
    return used, np.stack([fx[used], fy[used]], axis=-1), member, middle


@dataclass(frozen=True)
class BlockShifts:
    """Of each block: where it went (right, down), how well that is known, and how well blur explains it."""

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
    """Without a start the blocks are searched for."""
    block = sharp.shape[-1]
    used, frequencies, member, _ = spectrum_rings(block)
    s, b = (_spectrum(one, block)[:, used] for one in (sharp, blurred))
    cross = (b * np.conj(s)).astype(np.complex64)
    power_s, power_b = (np.square(np.abs(one)) @ member for one in (s, b))
    floor = 1e-12 * max(float(power_s.max(initial=0.0)), float(power_b.max(initial=0.0)), 1e-30)
    both = (power_s + floor) * (power_b + floor)
    shift = _search(cross, both, frequencies, member, search_px) if start is None else start
    curvature = np.zeros((len(shift), 2, 2))
    for steps, highest in ((4, 0.15), (6, HIGHEST)) if start is None else ((4, HIGHEST),):
        low = np.hypot(frequencies[:, 0], frequencies[:, 1]) <= highest
        rings = member[low].sum(0) == member.sum(0)  # whole ones
        low &= member[:, rings].any(axis=1)
        for _ in range(steps):
            slope, curvature = _derivatives(
                cross[:, low], both[:, rings], frequencies[low], member[low][:, rings], shift
            )
            shift = np.clip(shift + _newton(slope, curvature), -2.0 * search_px, 2.0 * search_px)
    alignment = _alignment(cross, frequencies, member, shift)
    unmoved = _alignment(cross, frequencies, member, np.zeros_like(shift))
    with np.errstate(divide="ignore"):
        spread = np.sqrt(CORRELATED / np.maximum(np.linalg.eigvalsh(-curvature)[:, 0], 1e-12))
    rough = spectrum_rings(block)[3] <= max(COARSE, spectrum_rings(block)[3][0])
    missing = np.clip(power_b - alignment**2 / (power_s + floor), 0.0, None)
    scale = 2.0 / (block**2 * float(np.square(_window(block)).sum()))  # from half a spectrum to a variance
    explained, before = ((a**2 / (power_s + floor)).sum(1) / (power_b + floor).sum(1) for a in (alignment, unmoved))
    return BlockShifts(
        shift=shift,
        spread=spread,
        explained=explained,
        explained_unmoved=before,
        transfer=alignment / (power_s + floor),
        textured=np.minimum(_contrast(sharp, block), _contrast(blurred, block)) > CONTRAST,
        coarse=np.sqrt(scale * power_s[:, rough].sum(1)),
        strange=np.sqrt(scale * missing[:, rough].sum(1)),
    )


def _window(block: int) -> Float[np.ndarray, "n n"]:
    line = 0.5 - 0.5 * np.cos(2.0 * np.pi * (np.arange(block) + 0.5) / block)
    return line[:, None] * line[None, :]


def _centred(blocks: Float[np.ndarray, "blocks n n"], block: int) -> Float[np.ndarray, "blocks n n"]:
    window = _window(block)
    mean = (blocks * window).sum((1, 2), keepdims=True) / window.sum()
    return (blocks - mean) * window


def _spectrum(blocks: Float[np.ndarray, "blocks n n"], block: int) -> np.ndarray:
    return np.fft.rfft2(_centred(blocks, block))


def _contrast(blocks: Float[np.ndarray, "blocks n n"], block: int) -> Float[np.ndarray, "blocks"]:
    return np.sqrt(np.square(_centred(blocks, block)).sum((1, 2)) / np.square(_window(block)).sum())


def _alignment(
    cross: np.ndarray, frequencies: Float[np.ndarray, "k 2"], member: np.ndarray, shift: Float[np.ndarray, "blocks 2"]
) -> Float[np.ndarray, "blocks rings"]:
    return (cross * _turns(frequencies, shift)).real @ member


def _turns(frequencies: Float[np.ndarray, "k 2"], shift: Float[np.ndarray, "blocks 2"]) -> np.ndarray:
    """exp(2πi f·d), from the few values that f has along each axis."""
    made: np.ndarray | None = None
    for axis in (0, 1):
        values, place = np.unique(frequencies[:, axis], return_inverse=True)
        line = np.exp(2j * np.pi * shift[:, axis : axis + 1] * values).astype(np.complex64)[:, place]
        made = line if made is None else made * line
    assert made is not None
    return made


def _likelihood(alignment: np.ndarray, both: np.ndarray, count: np.ndarray) -> Float[np.ndarray, "blocks"]:
    coherence = np.minimum(alignment**2 / both, LARGEST_COHERENCE)
    return -(np.log1p(-coherence) @ count)


def _search(
    cross: np.ndarray, both: np.ndarray, frequencies: np.ndarray, member: np.ndarray, search_px: float
) -> Float[np.ndarray, "blocks 2"]:
    """The best of a grid of shifts, by low frequencies alone; of equals the smallest."""
    low = np.hypot(frequencies[:, 0], frequencies[:, 1]) <= 0.12
    rings = member[low].sum(0) == member.sum(0)
    if not rings.any():
        return np.zeros((len(cross), 2))
    low &= member[:, rings].any(axis=1)
    cross, both, frequencies, member = cross[:, low], both[:, rings], frequencies[low], member[low][:, rings]
    count = member.sum(0) / CORRELATED
    steps = np.arange(-math.ceil(search_px / 1.5), math.ceil(search_px / 1.5) + 1) * 1.5
    best = np.full(len(cross), -np.inf)
    shift = np.zeros((len(cross), 2))
    for right in steps:
        for down in steps:
            here = np.broadcast_to(np.array([right, down]), shift.shape)
            value = _likelihood(_alignment(cross, frequencies, member, here), both, count)
            value = value - 0.5 * (right**2 + down**2) / max(search_px, 1.0) ** 2
            better = value > best
            best[better], shift[better] = value[better], here[better]
    return shift


def _derivatives(
    cross: np.ndarray,
    both: np.ndarray,
    frequencies: np.ndarray,
    member: np.ndarray,
    shift: Float[np.ndarray, "blocks 2"],
) -> tuple[Float[np.ndarray, "blocks 2"], Float[np.ndarray, "blocks 2 2"]]:
    """Slope and curvature of the likelihood's logarithm."""
    turned = cross * _turns(frequencies, shift)
    omega = (2.0 * np.pi * frequencies).astype(np.float32)
    a = turned.real @ member
    first = [(-omega[:, i] * turned.imag) @ member for i in (0, 1)]
    pairs = ((0, 0), (0, 1), (1, 1))
    second = {(i, j): (-omega[:, i] * omega[:, j] * turned.real) @ member for i, j in pairs}
    coherence = np.minimum(a**2 / both, LARGEST_COHERENCE)
    weight = member.sum(0) / (1.0 - coherence) / both
    slope = np.stack([(2.0 * weight * a * one).sum(1) for one in first], axis=-1)
    curvature = np.empty((len(a), 2, 2))
    for i, j in pairs:
        value = (2.0 * weight * (first[i] * first[j] + a * second[i, j])).sum(1)
        curvature[:, i, j] = curvature[:, j, i] = value
    return slope, curvature


def _newton(slope: Float[np.ndarray, "blocks 2"], curvature: Float[np.ndarray, "blocks 2 2"]) -> np.ndarray:
    """Uphill, at most a pixel; where the surface is not a hill, along the slope."""
    values, vectors = np.linalg.eigh(-curvature)
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-12)
    values = np.maximum(np.abs(values), 1e-3 * largest)
    along = np.einsum("bij,bi->bj", vectors, slope) / values
    step = np.einsum("bij,bj->bi", vectors, along)
    length = np.hypot(step[:, 0], step[:, 1])[:, None]
    return step * np.minimum(1.0, 1.0 / np.maximum(length, 1e-12))
