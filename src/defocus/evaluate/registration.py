"""Where the content of a sharp photograph lies in the blurred one of the same scene, to a small fraction of a pixel.

In a block, blur is taken for a symmetric point spread function: B(f) = H(|f|) · S(f) · exp(−2πi f·d) with a real H of
either sign (that of a disc changes it) that is unknown, and free in each ring of frequencies. With C = B·S* and

    A_r(d) = Σ_{f in ring r} Re[C(f) exp(2πi f·d)],        γ_r² = A_r² / (Σ|S|² Σ|B|²),

the logarithm of the likelihood of a shift d, with H_r and the level of noise in each ring at their best values, is
−Σ_r n_r ln(1 − γ_r²): rings count by how well one picture explains the other there. It is maximised by Newton's method
from a coarse search, over all blocks at once; its curvature tells the uncertainty. Blocks of linear light, weighted
by a Hann window, from a sharp picture that was already moved by what is known: what is left to find is small.

A similarity (shift, rotation, scale) is fitted to the blocks with weights that fall off for outliers. What remains in
blocks that agree is local misalignment (parallax, lens distortion that changed); blocks that stand out, or whose
blurred content no blur of the sharp one explains, are what moved, appeared or went.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import ndimage

from ..errors import DefocusError

HIGHEST = 0.35  # cycles per pixel: beyond, interpolation, mosaics and JPEG speak
RING = 1.5  # width of a ring, in samples of the spectrum
CORRELATED = 2.25  # neighbouring samples of a spectrum under a Hann window are not independent: 1.5 along each axis
LARGEST_COHERENCE = 1.0 - 1e-4
MOVED_PX = 0.5  # blocks that differ less from their neighbourhood have not moved
UNCERTAIN_PX = 0.25
EXPLAINED = 0.75  # of the blurred content, for a shift to be believed
# A block has moved if its content is explained much better where it is said to be than where the whole has it. Blur
# wider than a block, or two depths in it, are misfits that no shift mends: a far shift is not believed then.
MENDED = 0.5
# It holds something else if what is not explained is of this contrast, and not small against what is there in the sharp
# one. Coarse things count: fine ones may be missing in a truth that is not sharp.
ELSE_CONTRAST, ELSE_SHARE, COARSE = 0.02, 0.3, 0.08
CONTRAST = 0.004  # least standard deviation, of linear light 0..1, under the window, that can be told from noise


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
        """To the right and down, at places x, y."""
        u, v = x - middle[0], y - middle[1]
        return (
            self.right_px + self.scale * u - self.rotation * v,
            self.down_px + self.rotation * u + self.scale * v,
        )

    def scaled(self, factor: float) -> Similarity:
        """Of pictures that are `factor` times as large."""
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
    known: Bool[np.ndarray, "rows cols"]  # there is texture enough to tell
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
        """Blocks that tell something, and have not moved on their own."""
        return self.known & ~self.moved & ~self.differs


def middle_of(size: tuple[int, int]) -> tuple[float, float]:
    """Of a picture of this width and height."""
    return (size[0] - 1) / 2.0, (size[1] - 1) / 2.0


def register(
    sharp: Float[np.ndarray, "h w"],
    blurred: Float[np.ndarray, "h w"],
    *,
    block_px: int = 128,
    step_px: int | None = None,
    search_px: float = 6.0,
    rounds: int = 3,
) -> Registration:
    """Register two grey pictures of linear light. Blocks are looked for up to `search_px` beyond the whole's shift."""
    if sharp.shape != blurred.shape:
        raise DefocusError(f"pictures of {_size(sharp)} and {_size(blurred)} pixels cannot be a pair")
    height, width = sharp.shape
    block = min(block_px, *(n - n % 2 for n in sharp.shape))
    if block < 16:
        raise DefocusError(f"{_size(sharp)} pixels; at least 16×16 are needed to register pictures")
    found = _whole_shift(sharp, blurred)
    for factor in (8, 4, 2):  # a scale moves the corners far: what small copies tell makes the search short
        if min(height, width) // factor >= 2 * block:
            small = _Blocks(_reduced(sharp, factor), _reduced(blurred, factor), block, block // 2)
            found = small.fitted(found.scaled(1.0 / factor), search_px, 2)[0].scaled(factor)
    blocks = _Blocks(sharp, blurred, block, step_px or block // 2)
    found, local, shifts, known, inside = blocks.fitted(found, search_px, rounds)
    rows, cols = blocks.rows, blocks.cols
    rest = shifts - blocks.displacement(found)
    grid = (len(rows), len(cols))
    lengths = np.hypot(rest[:, 0], rest[:, 1])
    typical = 1.4826 * float(np.median(lengths[known])) if known.any() else 0.0
    differs = inside & (local.strange > ELSE_CONTRAST) & (local.strange > ELSE_SHARE * local.coarse)
    far = lengths > max(MOVED_PX, 3.0 * typical)
    mended = 1.0 - local.explained < MENDED * (1.0 - local.explained_unmoved)
    moved_blocks = known & ~differs & far & mended & (lengths > 4.0 * local.spread)
    known = known & (~far | mended)
    return Registration(
        size=(width, height), block_px=block,
        x=cols + (block - 1) / 2.0, y=rows + (block - 1) / 2.0,
        right_px=shifts[:, 0].reshape(grid), down_px=shifts[:, 1].reshape(grid),
        spread_px=local.spread.reshape(grid), explained=local.explained.reshape(grid),
        transfer=local.transfer.reshape(*grid, -1), frequencies=_rings(block)[3],
        known=known.reshape(grid), moved=moved_blocks.reshape(grid), differs=differs.reshape(grid),
        similarity=found,
    )  # fmt: skip


class _Blocks:
    """Two pictures in blocks."""

    def __init__(
        self, sharp: Float[np.ndarray, "h w"], blurred: Float[np.ndarray, "h w"], block: int, step: int
    ) -> None:
        self.block, self.shape = block, sharp.shape
        self.rows, self.cols = (_starts(n, block, step) for n in sharp.shape)
        middle = (block - 1) / 2.0
        self.x, self.y = (m.ravel() for m in np.meshgrid(self.cols + middle, self.rows + middle))
        self._sharp = ndimage.spline_filter(np.asarray(sharp, np.float64), 3, mode="mirror")
        self._blurred = _cut(np.asarray(blurred, np.float64), self.rows, self.cols, block)

    def displacement(self, found: Similarity) -> Float[np.ndarray, "blocks 2"]:
        return np.stack(found.displacement(self.x, self.y, middle_of(self.shape[::-1])), axis=-1)

    def fitted(
        self, found: Similarity, search_px: float, rounds: int
    ) -> tuple[Similarity, _Local, np.ndarray, np.ndarray, np.ndarray]:
        """The similarity, and of the blocks: what was found about it, where they went, whether that can be told, and
        whether they lie within. All rounds search but the last, which starts where they ended."""
        rest: Float[np.ndarray, "blocks 2"] | None = None
        for number in range(rounds):
            moved = _cut(_warped(self._sharp, found), self.rows, self.cols, self.block)
            local = _local_shifts(moved, self._blurred, search_px, rest if number == rounds - 1 else None)
            shifts = self.displacement(found) + local.shift
            inside = _inside(self.rows, self.cols, self.block, self.shape, found)
            known = (local.spread < UNCERTAIN_PX) & local.textured & (local.explained > EXPLAINED) & inside
            found = _fit(shifts, local.spread, known, (self.x, self.y), self.shape[::-1]) or found
            rest = shifts - self.displacement(found)
        return found, local, shifts, known, inside


def warped(image: Float[np.ndarray, "h w *channels"], found: Similarity) -> Float[np.ndarray, "h w *channels"]:
    """The sharp picture where its content lies in the blurred one; beyond its edges mirrored."""
    planes = image[..., None] if image.ndim == 2 else image
    made = [
        _warped(ndimage.spline_filter(np.asarray(planes[..., c], np.float64), 3, mode="mirror"), found)
        for c in range(planes.shape[2])
    ]
    return np.stack(made, axis=-1).reshape(image.shape).astype(np.float32)


def _warped(coefficients: Float[np.ndarray, "h w"], found: Similarity) -> Float[np.ndarray, "h w"]:
    """Of spline coefficients. A similarity is undone to second order of its small numbers: rotations of a degree err
    by 3e-4 of the shift."""
    height, width = coefficients.shape
    y, x = np.meshgrid(np.arange(height, dtype=np.float64), np.arange(width, dtype=np.float64), indexing="ij")
    middle = middle_of((width, height))
    right, down = found.displacement(x, y, middle)
    right, down = found.displacement(x - right, y - down, middle)
    return ndimage.map_coordinates(coefficients, [y - down, x - right], order=3, mode="mirror", prefilter=False)


def _starts(length: int, block: int, step: int) -> Int[np.ndarray, "n"]:
    count = max(1, math.ceil((length - block) / step) + 1)
    return np.round(np.linspace(0, length - block, count)).astype(int)


def _cut(
    image: Float[np.ndarray, "h w"], rows: Int[np.ndarray, "r"], cols: Int[np.ndarray, "c"], block: int
) -> Float[np.ndarray, "blocks n n"]:
    return np.stack([image[r : r + block, c : c + block] for r in rows for c in cols])


def _inside(
    rows: Int[np.ndarray, "r"],
    cols: Int[np.ndarray, "c"],
    block: int,
    shape: tuple[int, int],
    found: Similarity,
) -> Bool[np.ndarray, "blocks"]:
    """Blocks that see no mirrored content: all but a fringe of them comes from within the sharp picture."""
    fringe = block / 16.0
    right, down = found.right_px, found.down_px
    good_rows = (rows - down > -fringe) & (rows + block - down < shape[0] + fringe)
    good_cols = (cols - right > -fringe) & (cols + block - right < shape[1] + fringe)
    return (good_rows[:, None] & good_cols[None, :]).ravel()


@lru_cache(maxsize=8)
def _rings(
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
class _Local:
    shift: Float[np.ndarray, "blocks 2"]
    spread: Float[np.ndarray, "blocks"]
    explained: Float[np.ndarray, "blocks"]
    explained_unmoved: Float[np.ndarray, "blocks"]  # without the shift
    transfer: Float[np.ndarray, "blocks rings"]
    textured: Bool[np.ndarray, "blocks"]
    coarse: Float[np.ndarray, "blocks"]  # contrast of coarse things in the sharp one
    strange: Float[np.ndarray, "blocks"]  # and of those in the blurred one that are not explained


def _local_shifts(
    sharp: Float[np.ndarray, "blocks n n"],
    blurred: Float[np.ndarray, "blocks n n"],
    search_px: float,
    start: Float[np.ndarray, "blocks 2"] | None = None,
) -> _Local:
    """Without a start the blocks are searched for."""
    block = sharp.shape[-1]
    used, frequencies, member, _ = _rings(block)
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
    rough = _rings(block)[3] <= max(COARSE, _rings(block)[3][0])
    missing = np.clip(power_b - alignment**2 / (power_s + floor), 0.0, None)
    scale = 2.0 / (block**2 * float(np.square(_window(block)).sum()))  # from half a spectrum to a variance
    explained, before = ((a**2 / (power_s + floor)).sum(1) / (power_b + floor).sum(1) for a in (alignment, unmoved))
    return _Local(
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


def _whole_shift(sharp: Float[np.ndarray, "h w"], blurred: Float[np.ndarray, "h w"]) -> Similarity:
    """The shift of the whole picture, to a few pixels, from a small copy of its middle."""
    side = min(sharp.shape)
    factor = max(1, side // 128)
    small = [_reduced(image, factor) for image in (sharp, blurred)]
    block = min(*small[0].shape)
    block -= block % 2
    corner = [(n - block) // 2 for n in small[0].shape]
    parts = [one[corner[0] : corner[0] + block, corner[1] : corner[1] + block][None] for one in small]
    local = _local_shifts(parts[0], parts[1], min(12.0, block / 6.0))
    if not (local.textured[0] and local.spread[0] < 1.0 and local.explained[0] > 0.3):
        return Similarity()
    return Similarity(float(local.shift[0, 0]) * factor, float(local.shift[0, 1]) * factor)


def _reduced(image: Float[np.ndarray, "h w"], factor: int) -> Float[np.ndarray, "h2 w2"]:
    rows, cols = (n // factor for n in image.shape)
    part = np.asarray(image[: rows * factor, : cols * factor], np.float64)
    return part.reshape(rows, factor, cols, factor).mean((1, 3))


def _fit(
    shifts: Float[np.ndarray, "blocks 2"],
    spread: Float[np.ndarray, "blocks"],
    known: Bool[np.ndarray, "blocks"],
    places: tuple[Float[np.ndarray, "blocks"], Float[np.ndarray, "blocks"]],
    size: tuple[int, int],
) -> Similarity | None:
    """The similarity that most blocks follow; a mere shift where few are known; None without any."""
    if not known.any():
        return None
    centre = middle_of(size)
    u, v = (place[known] - c for place, c in zip(places, centre, strict=True))
    d = shifts[known]
    base = 1.0 / (spread[known] ** 2 + 0.02**2)
    if known.sum() < 6 or np.ptp(u) + np.ptp(v) < 0.25 * max(size):
        return Similarity(*(float(np.median(d[:, i])) for i in (0, 1)))
    one, zero = np.ones_like(u), np.zeros_like(u)
    design = np.concatenate([np.stack([one, zero, -v, u], -1), np.stack([zero, one, u, v], -1)])
    target = np.concatenate([d[:, 0], d[:, 1]])
    # From the shift that half of the blocks share: outliers count nothing from the start.
    found = np.array([np.median(d[:, 0]), np.median(d[:, 1]), 0.0, 0.0])
    for number in range(20):
        rest = (target - design @ found).reshape(2, -1)
        length = np.hypot(*rest)
        width = max(4.685 * 1.4826 * float(np.median(length)) / 1.18, 0.1) * (3.0 if number < 3 else 1.0)
        weight = base * np.square(np.maximum(1.0 - np.square(length / width), 0.0))
        root = np.sqrt(np.concatenate([weight, weight]))
        found = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
    return Similarity(*(float(value) for value in found))


def _size(image: np.ndarray) -> str:
    return f"{image.shape[1]}×{image.shape[0]}"
