"""Noise with the statistics of natural images, the same at every resolution.

Random numbers sit on square lattices that cover the whole plane (a hash of the node's integer coordinates and a seed)
and are joined by cubic B-splines. Sums over octaves with nearly equal contrast have the 1/f amplitude spectrum of
photographs. A finer grid sees the same pattern with more detail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

FINEST = 1.5  # texels per lattice step of the finest octave
SPREAD = np.sqrt(151.0 / 315.0) ** 2 / np.sqrt(3.0)  # rms of B-spline noise from nodes uniform in −1..1


@dataclass(frozen=True)
class Grid:
    """The middles of a rectangle's texels: u to the right, v up (row 0 on top), in metres; `seed` for its noise."""

    u: Float[np.ndarray, " width"]
    v: Float[np.ndarray, " height"]
    seed: int

    @property
    def pitch(self) -> float:
        return float(self.u[1] - self.u[0])

    @property
    def columns(self) -> Float[np.ndarray, "1 width"]:
        return self.u[None, :]

    @property
    def rows(self) -> Float[np.ndarray, "height 1"]:
        return self.v[:, None]

    def reseeded(self, tag: int) -> Grid:
        """The same rectangle with noise of its own."""
        return Grid(self.u, self.v, self.seed * 1009 + tag + 1)


def hashed(i: Int[np.ndarray, "*shape"], j: Int[np.ndarray, "*shape"], seed: int) -> Float[np.ndarray, "*shape"]:
    """A number in 0..1 for each pair of integers, evenly spread and without visible pattern."""
    with np.errstate(over="ignore"):
        h = np.asarray(i, dtype=np.int64).astype(np.uint32) * np.uint32(0x9E3779B1)
        h = h ^ (np.asarray(j, dtype=np.int64).astype(np.uint32) * np.uint32(0x85EBCA77) + np.uint32(0x165667B1))
        h = h ^ np.uint32((seed * 0xC2B2AE3D + 0x27D4EB2F) & 0xFFFFFFFF)
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
        h = h ^ (h >> np.uint32(16))
    return (h.astype(np.float64) + 0.5) / 2.0**32


def _spline(axis: Float[np.ndarray, " n"], period: float) -> tuple[sparse.csr_array, int]:
    """Matrix from lattice nodes to the points of an axis, and the first node's number."""
    position = axis / period
    base = np.floor(position).astype(np.int64)
    f = position - base
    weights = np.stack([(1 - f) ** 3, 3 * f**3 - 6 * f**2 + 4, -3 * f**3 + 3 * f**2 + 3 * f + 1, f**3], axis=1) / 6.0
    first = int(base.min()) - 1
    columns = base[:, None] - 1 - first + np.arange(4)
    rows = np.repeat(np.arange(len(axis)), 4)
    shape = (len(axis), int(columns.max()) + 1)
    return sparse.csr_array((weights.ravel().astype(np.float32), (rows, columns.ravel())), shape=shape), first


def noise(grid: Grid, period_u: float, period_v: float, tag: int) -> Float[np.ndarray, "height width"]:
    """One octave: smooth noise of rms 1 whose blobs are about 2 periods wide."""
    across, i0 = _spline(grid.u, period_u)
    down, j0 = _spline(grid.v, period_v)
    i = i0 + np.arange(across.shape[1])[None, :]
    j = j0 + np.arange(down.shape[1])[:, None]
    i, j = np.broadcast_arrays(i, j)
    nodes = (2.0 * hashed(i, j, grid.seed * 131 + tag) - 1.0) / SPREAD
    # Rows last: their product is the large one, and it runs along the memory.
    return down @ np.ascontiguousarray((across @ nodes.T.astype(np.float32)).T)


def fractal(
    grid: Grid,
    largest_m: float,
    *,
    gain: float = 0.8,
    octaves: int = 12,
    stretch: float = 1.0,
    tag: int = 0,
) -> Float[np.ndarray, "height width"]:
    """Octaves of noise from `largest_m` down to the texels, each `gain` times the contrast of the one before; rms 1.

    `stretch` draws the pattern out along u.
    """
    total = np.zeros((len(grid.v), len(grid.u)), dtype=np.float32)
    power = 0.0
    for octave in range(octaves):
        period = largest_m * 0.5**octave
        power += gain ** (2 * octave)
        if period >= FINEST * grid.pitch:  # finer ones average out in the texels, but keep their share of the contrast
            total += np.float32(gain**octave) * noise(grid, period * stretch, period, tag * 37 + octave)
    return total / np.float32(np.sqrt(power))


def fractal_3d(
    points: Float[np.ndarray, "3 rows columns"], largest_m: float, seed: int, *, gain: float = 0.7, octaves: int = 6
) -> Float[np.ndarray, "rows columns"]:
    """Noise in space, for what is painted on spheres; rms about 1."""
    total = np.zeros(points.shape[1:])
    power = 0.0
    for octave in range(octaves):
        position = points * (2.0**octave / largest_m) + 0.37 * octave
        base = np.floor(position).astype(np.int64)
        f = position - base
        f = f * f * (3.0 - 2.0 * f)
        value = np.zeros_like(total)
        for corner in range(8):
            di, dj, dk = corner & 1, corner >> 1 & 1, corner >> 2
            weight = (f[0] if di else 1 - f[0]) * (f[1] if dj else 1 - f[1]) * (f[2] if dk else 1 - f[2])
            node = hashed(base[0] + di + 7919 * (base[2] + dk), base[1] + dj, seed * 131 + octave)
            value += weight * (2.0 * node - 1.0)
        total += gain**octave * value * 3.2
        power += gain ** (2 * octave)
    return total / np.sqrt(power)
