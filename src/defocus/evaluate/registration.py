"""Where the content of a sharp photograph lies in the blurred one of the same scene, to a small fraction of a pixel.

Blocks of linear light are compared, the sharp picture already moved by the similarity so far: what is left to find is
small, and small copies of both pictures go first. Blur is taken for a symmetric point spread function:
B(f) = H(|f|) · S(f) · exp(−2πi f·d) with a real H of either sign (that of a disc changes it) that is unknown, and free
in each ring of frequencies. With C = B·S* and

    A_r(d) = Σ_{f in ring r} Re[C(f) exp(2πi f·d)],        γ_r² = A_r² / (Σ|S|² Σ|B|²),

the logarithm of the likelihood of a shift d, with H_r and the level of noise in each ring at their best values, is
−Σ_r n_r ln(1 − γ_r²): rings count by how well one picture explains the other there. It is maximised by Newton's method
from a coarse search, over all blocks at once; its curvature tells the uncertainty. Blocks are under a Hann window.

A similarity (shift, rotation, scale) is fitted to the blocks with weights that fall off for outliers. What remains in
blocks that agree is local misalignment (parallax, lens distortion that changed); blocks that stand out, or whose
blurred content no blur of the sharp one explains, are what moved, appeared or went.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Complex64, Float
from scipy import ndimage

from ..errors import DefocusError
from .photometry import cell_means

SEARCH_PX = 6.0  # beyond the whole's shift, that blocks are looked for
MOVED_PX = 0.5  # blocks that differ less from their neighbourhood have not moved
UNCERTAIN_PX = 0.25
EXPLAINED = 0.75  # of the blurred content, for a shift to be believed
# A block has moved if its content is explained much better where it is said to be than where the whole has it. Blur
# wider than a block, or two depths in it, are misfits that no shift mends: a far shift is not believed then.
MENDED = 0.5
# It holds something else if what is not explained is of this contrast, and not small against what is there in the sharp
# one. Coarse things count: fine ones may be missing in a truth that is not sharp.
ELSE_CONTRAST, ELSE_SHARE = 0.02, 0.3
HIGHEST = 0.35  # cycles per pixel: beyond, interpolation, mosaics and JPEG speak
RING = 1.5  # width of a ring, in samples of the spectrum
CORRELATED = 2.25  # neighbouring samples of a spectrum under a Hann window are not independent: 1.5 along each axis
LARGEST_COHERENCE = 1.0 - 1e-4
CONTRAST = 0.004  # least standard deviation, of linear light 0..1, under the window, that can be told from noise
COARSE = 0.08  # cycles per pixel: larger things


@dataclass(frozen=True)
class Similarity:
    """Where a pixel of the sharp picture appears in the blurred one: x + shift + [[s, −r], [r, s]]·(x − middle).

    Pixels count to the right and down; rotation in radians, positive from right towards down.
    """

    right_px: float = 0.0
    down_px: float = 0.0
    rotation: float = 0.0
    scale: float = 0.0  # 0: none; 0.01: the blurred picture is larger by a hundredth

    def displacement(
        self, x: Float[np.ndarray, "*n"], y: Float[np.ndarray, "*n"], middle: tuple[float, float]
    ) -> tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]]:
        """Displacement to the right and down at places x, y."""
        u, v = x - middle[0], y - middle[1]
        return (
            self.right_px + self.scale * u - self.rotation * v,
            self.down_px + self.rotation * u + self.scale * v,
        )

    def scaled(self, factor: float) -> Similarity:
        """The similarity of pictures that are `factor` times as large."""
        return Similarity(factor * self.right_px, factor * self.down_px, self.rotation, self.scale)


@dataclass(frozen=True)
class Registration:
    """How a blurred picture lies on a sharp one. Blocks are [rows, cols] of a grid."""

    size: tuple[int, int]  # width and height of the pictures
    block_px: int
    x: Float[np.ndarray, "cols"]  # middles of the blocks, pixels of the sharp picture
    y: Float[np.ndarray, "rows"]
    right_px: Float[np.ndarray, "rows cols"]  # where the content went
    down_px: Float[np.ndarray, "rows cols"]
    spread_px: Float[np.ndarray, "rows cols"]  # standard deviation of that
    explained: Float[np.ndarray, "rows cols"]  # share of the blurred content that a blur of the sharp one explains
    transfer: Float[np.ndarray, "rows cols rings"]  # contrast that is left, by spatial frequency
    frequencies: Float[np.ndarray, "rings"]  # cycles per pixel
    reliable: Bool[np.ndarray, "rows cols"]  # textured, and the shift is certain
    moved: Bool[np.ndarray, "rows cols"]  # stands out from the similarity
    differs: Bool[np.ndarray, "rows cols"]  # textured, but not explained
    similarity: Similarity

    @property
    def residual_px(self) -> Float[np.ndarray, "rows cols 2"]:
        """What the similarity leaves, to the right and down."""
        x, y = np.meshgrid(self.x, self.y)
        right, down = self.similarity.displacement(x, y, middle_of(self.size))
        return np.stack([self.right_px - right, self.down_px - down], axis=-1)

    @property
    def agreeing(self) -> Bool[np.ndarray, "rows cols"]:
        """Reliable blocks that have not moved on their own."""
        return self.reliable & ~self.moved & ~self.differs


def middle_of(size: tuple[int, int]) -> tuple[float, float]:
    """Middle (x, y) of a picture of this width and height."""
    return (size[0] - 1) / 2.0, (size[1] - 1) / 2.0


def register(
    sharp: Float[np.ndarray, "h w"], blurred: Float[np.ndarray, "_ _"], *, block_px: int = 128
) -> Registration:
    """How the blurred picture lies on the sharp one, both grey, of linear light."""
    if sharp.shape != blurred.shape:
        raise DefocusError(f"pictures of {_size(sharp)} and {_size(blurred)} pixels cannot be a pair")
    height, width = sharp.shape
    block = min(block_px, *(n - n % 2 for n in sharp.shape))
    if block < 16:
        raise DefocusError(f"{_size(sharp)} pixels; at least 16×16 are needed to register pictures")
    start = _whole_shift(sharp, blurred)
    for factor in (8, 4, 2):  # a scale moves the corners far: what small copies tell makes the search short
        if min(height, width) // factor >= 2 * block:
            small = _Blocks(cell_means(sharp, factor), cell_means(blurred, factor), block)
            start = small.fit(start.scaled(1.0 / factor), 2).similarity.scaled(factor)
    blocks = _Blocks(sharp, blurred, block)
    fit = blocks.fit(start, 3)
    local = fit.local
    lengths = np.hypot(*(fit.shifts - blocks.displacement(fit.similarity)).T)
    typical = 1.4826 * float(np.median(lengths[fit.reliable])) if fit.reliable.any() else 0.0
    differs = fit.inside & (local.strange > ELSE_CONTRAST) & (local.strange > ELSE_SHARE * local.coarse)
    far = lengths > max(MOVED_PX, 3.0 * typical)
    mended = 1.0 - local.explained < MENDED * (1.0 - local.explained_unmoved)
    moved = fit.reliable & ~differs & far & mended & (lengths > 4.0 * local.spread)
    grid = (len(blocks.rows), len(blocks.cols))
    middle = (block - 1) / 2.0
    return Registration(
        size=(width, height), block_px=block, x=blocks.cols + middle, y=blocks.rows + middle,
        right_px=fit.shifts[:, 0].reshape(grid), down_px=fit.shifts[:, 1].reshape(grid),
        spread_px=local.spread.reshape(grid), explained=local.explained.reshape(grid),
        transfer=local.transfer.reshape(*grid, -1), frequencies=spectrum_rings(block).middles,
        reliable=(fit.reliable & (~far | mended)).reshape(grid), moved=moved.reshape(grid),
        differs=differs.reshape(grid), similarity=fit.similarity,
    )  # fmt: skip


@dataclass(frozen=True)
class _Fit:
    """A similarity, and of each block: its shift beyond that, where it went, whether that is certain, and whether it
    lies within the sharp picture."""

    similarity: Similarity
    local: BlockShifts
    shifts: Float[np.ndarray, "blocks 2"]
    reliable: Bool[np.ndarray, "blocks"]
    inside: Bool[np.ndarray, "blocks"]


class _Blocks:
    """Two pictures in blocks that overlap by half."""

    def __init__(self, sharp: Float[np.ndarray, "h w"], blurred: Float[np.ndarray, "h w"], block: int) -> None:
        self.block, self.shape = block, sharp.shape
        counts = (max(1, math.ceil((n - block) / (block // 2)) + 1) for n in sharp.shape)
        self.rows, self.cols = (
            np.round(np.linspace(0, n - block, count)).astype(int) for n, count in zip(sharp.shape, counts, strict=True)
        )
        middle = (block - 1) / 2.0
        self.x, self.y = (m.ravel() for m in np.meshgrid(self.cols + middle, self.rows + middle))
        self._sharp = ndimage.spline_filter(np.asarray(sharp, np.float64), 3, mode="mirror")
        self._blurred = self._cut(np.asarray(blurred, np.float64))

    def displacement(self, whole: Similarity) -> Float[np.ndarray, "blocks 2"]:
        return np.stack(whole.displacement(self.x, self.y, middle_of(self.shape[::-1])), axis=-1)

    def fit(self, whole: Similarity, rounds: int) -> _Fit:
        """The fit that starts from a similarity. All rounds search but the last, which starts where they ended."""
        residual: Float[np.ndarray, "blocks 2"] | None = None
        for number in range(rounds):
            moved = self._cut(_warped(self._sharp, whole))
            local = block_shifts(moved, self._blurred, SEARCH_PX, residual if number == rounds - 1 else None)
            shifts = self.displacement(whole) + local.shift
            inside = self._inside(whole)
            certain = (local.spread < UNCERTAIN_PX) & local.textured & (local.explained > EXPLAINED) & inside
            whole = self._similarity(shifts, local.spread, certain) or whole
            residual = shifts - self.displacement(whole)
        return _Fit(whole, local, shifts, certain, inside)

    def _cut(self, image: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "blocks n n"]:
        return np.stack([image[r : r + self.block, c : c + self.block] for r in self.rows for c in self.cols])

    def _inside(self, whole: Similarity) -> Bool[np.ndarray, "blocks"]:
        """Blocks that see no mirrored content: all but a fringe of them comes from within the sharp picture."""
        fringe = self.block / 16.0
        inside = [
            (starts - shift > -fringe) & (starts + self.block - shift < length + fringe)
            for starts, shift, length in zip(
                (self.rows, self.cols), (whole.down_px, whole.right_px), self.shape, strict=True
            )
        ]
        return np.logical_and.outer(*inside).ravel()

    def _similarity(
        self,
        shifts: Float[np.ndarray, "blocks 2"],
        spread: Float[np.ndarray, "blocks"],
        certain: Bool[np.ndarray, "blocks"],
    ) -> Similarity | None:
        """The similarity that most blocks follow; a mere shift where few are certain; None without any."""
        if not certain.any():
            return None
        size = self.shape[::-1]
        u, v = (place[certain] - c for place, c in zip((self.x, self.y), middle_of(size), strict=True))
        d = shifts[certain]
        base = 1.0 / (spread[certain] ** 2 + 0.02**2)
        if certain.sum() < 6 or np.ptp(u) + np.ptp(v) < 0.25 * max(size):
            return Similarity(*(float(np.median(d[:, i])) for i in (0, 1)))
        one, zero = np.ones_like(u), np.zeros_like(u)
        design = np.concatenate([np.stack([one, zero, -v, u], -1), np.stack([zero, one, u, v], -1)])
        target = np.concatenate([d[:, 0], d[:, 1]])
        # From the shift that half of the blocks share: outliers count nothing from the start.
        solution = np.array([np.median(d[:, 0]), np.median(d[:, 1]), 0.0, 0.0])
        for number in range(20):
            length = np.hypot(*(target - design @ solution).reshape(2, -1))
            width = max(4.685 * 1.4826 * float(np.median(length)) / 1.18, 0.1) * (3.0 if number < 3 else 1.0)
            weight = base * np.square(np.maximum(1.0 - np.square(length / width), 0.0))
            root = np.sqrt(np.concatenate([weight, weight]))
            solution = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
        return Similarity(*(float(value) for value in solution))


def warped(image: Float[np.ndarray, "h w *channels"], whole: Similarity) -> Float[np.ndarray, "h w *channels"]:
    """The sharp picture where its content lies in the blurred one; beyond its edges mirrored."""
    planes = np.asarray(image, np.float64).reshape(*image.shape[:2], -1)
    moved = [_warped(ndimage.spline_filter(plane, 3, mode="mirror"), whole) for plane in np.moveaxis(planes, -1, 0)]
    return np.stack(moved, axis=-1).reshape(image.shape).astype(np.float32)


def _warped(coefficients: Float[np.ndarray, "h w"], whole: Similarity) -> Float[np.ndarray, "h w"]:
    """A plane of spline coefficients, moved. A similarity is undone to second order of its small numbers: rotations of
    a degree err by 3e-4 of the shift."""
    height, width = coefficients.shape
    y, x = np.meshgrid(np.arange(height, dtype=np.float64), np.arange(width, dtype=np.float64), indexing="ij")
    middle = middle_of((width, height))
    right, down = whole.displacement(x, y, middle)
    return displaced(coefficients, *whole.displacement(x - right, y - down, middle))


def displaced(
    coefficients: Float[np.ndarray, "h w"], right: Float[np.ndarray, "h w"], down: Float[np.ndarray, "h w"]
) -> Float[np.ndarray, "h w"]:
    """A plane of spline coefficients whose content was moved by so many pixels, which change slowly."""
    y, x = np.indices(coefficients.shape, np.float64)
    return ndimage.map_coordinates(coefficients, [y - down, x - right], order=3, mode="mirror", prefilter=False)


def _whole_shift(sharp: Float[np.ndarray, "h w"], blurred: Float[np.ndarray, "h w"]) -> Similarity:
    """The shift of the whole picture, to a few pixels, from a small copy of its middle."""
    side = min(sharp.shape)
    factor = max(1, side // 128)
    small = [cell_means(image, factor) for image in (sharp, blurred)]
    block = min(*small[0].shape)
    block -= block % 2
    corner = [(n - block) // 2 for n in small[0].shape]
    parts = [one[corner[0] : corner[0] + block, corner[1] : corner[1] + block][None] for one in small]
    local = block_shifts(parts[0], parts[1], min(12.0, block / 6.0))
    if not (local.textured[0] and local.spread[0] < 1.0 and local.explained[0] > 0.3):
        return Similarity()
    return Similarity(float(local.shift[0, 0]) * factor, float(local.shift[0, 1]) * factor)


def _size(image: np.ndarray) -> str:
    return f"{image.shape[1]}×{image.shape[0]}"


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
