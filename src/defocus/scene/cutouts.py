"""Outlines for the procedural scenes: fences, wire, twigs, leaves, letters.

Each gives a field over a texture's grid, in metres, positive inside and about the distance to the outline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from .fractal_noise import Grid, fractal, hashed, noise
from .textures import hex_colour, ramp, smooth

Plane = Float[np.ndarray, "height width"]
Rgb = Float[np.ndarray, "height width 3"]
FAR = -1e3  # well outside everything


def pickets(grid: Grid, spacing_m: float, board_m: float, top_m: float, rails_m: tuple[float, ...] = ()) -> Plane:
    """A picket fence: pointed boards up to `top_m`, and rails at the given heights."""
    number = np.floor(grid.columns / spacing_m)
    own = hashed(number.astype(int), 0 * number.astype(int), grid.seed)
    x = np.abs(grid.columns - (number + 0.5) * spacing_m + 0.03 * spacing_m * (own - 0.5))
    tip = top_m + 0.2 * board_m * (own - 0.5)
    point = (tip - grid.rows - x) / math.sqrt(2.0)
    boards = np.minimum(board_m / 2.0 + 0.02 * board_m * noise(grid, 0.5, 0.1, 3) - x, point)
    for rail in rails_m:
        boards = np.maximum(boards, 0.22 * board_m - np.abs(grid.rows - rail))
    return boards


def wire_mesh(grid: Grid, mesh_m: float, wire_m: float) -> Plane:
    """Chain-link fence: diagonal wires of thickness `wire_m`, slightly bent at the knots."""
    p = (grid.columns + grid.rows) / (math.sqrt(2.0) * mesh_m)
    q = (grid.columns - grid.rows) / (math.sqrt(2.0) * mesh_m)
    # Each wire sways to one side and the other between the knots, as woven wire does.
    sway = 0.035 * np.sin(2.0 * math.pi * (p + q)), 0.035 * np.sin(2.0 * math.pi * (p - q))
    distance = np.minimum(np.abs((p + sway[0]) % 1.0 - 0.5), np.abs((q + sway[1]) % 1.0 - 0.5)) * mesh_m
    return wire_m / 2.0 - distance


def segments(grid: Grid, lines: Float[np.ndarray, "lines 6"]) -> Plane:
    """Tapered strokes: rows of x0, y0, radius0, x1, y1, radius1."""
    field = np.full((len(grid.v), len(grid.u)), FAR)
    for x0, y0, r0, x1, y1, r1 in lines:
        margin = max(r0, r1) + 3.0 * grid.pitch
        i = np.flatnonzero((grid.u > min(x0, x1) - margin) & (grid.u < max(x0, x1) + margin))
        j = np.flatnonzero((grid.v > min(y0, y1) - margin) & (grid.v < max(y0, y1) + margin))
        if not (i.size and j.size):
            continue
        u, v = grid.u[i][None, :] - x0, grid.v[j][:, None] - y0
        along = np.clip((u * (x1 - x0) + v * (y1 - y0)) / max((x1 - x0) ** 2 + (y1 - y0) ** 2, 1e-12), 0.0, 1.0)
        inside = r0 + along * (r1 - r0) - np.hypot(u - along * (x1 - x0), v - along * (y1 - y0))
        part = field[j[0] : j[-1] + 1, i[0] : i[-1] + 1]
        np.maximum(part, inside, out=part)
    return field


def branch(
    seed: int, start: tuple[float, float], heading_deg: float, length_m: float, radius_m: float, forks: int = 3
) -> Float[np.ndarray, "lines 6"]:
    """The strokes of a twig that bends and forks, from `start` on; heading from the right, counter-clockwise."""
    rng = np.random.default_rng([seed, 31])
    lines: list[tuple[float, ...]] = []

    def grow(x: float, y: float, heading: float, length: float, radius: float, order: int) -> None:
        steps = max(3, round(9 * length / length_m) + 3)
        for step in range(steps):
            heading += rng.normal(0.0, 0.13) + (0.02 if order else 0.0)
            x1, y1 = x + length / steps * math.cos(heading), y + length / steps * math.sin(heading)
            r1 = radius * (1.0 - 0.6 / steps)
            lines.append((x, y, radius, x1, y1, r1))
            x, y, radius = x1, y1, r1
            if order < forks and step > 0 and rng.uniform() < 0.75:
                side = math.copysign(rng.uniform(0.45, 0.95), rng.normal())
                grow(x, y, heading + side, length * rng.uniform(0.3, 0.6), radius * 0.62, order + 1)

    grow(*start, math.radians(heading_deg), length_m, radius_m, 0)
    return np.array(lines)


@dataclass(frozen=True)
class Cut:
    """An outline and the paint inside it."""

    field: Plane
    paint: Rgb


def leaves(
    grid: Grid,
    places: Float[np.ndarray, "leaves 2"],
    length_m: float,
    palette: tuple[str, ...],
    *,
    heading_deg: float = -90.0,
    spread_deg: float = 60.0,
    slim: float = 0.42,
) -> Cut:
    """Pointed leaves at the given places, later ones over earlier ones, each with its own tone, veins and gloss."""
    rng = np.random.default_rng([grid.seed, 53])
    field = np.full((len(grid.v), len(grid.u)), FAR)
    paint = np.zeros((len(grid.v), len(grid.u), 3))
    speckle = fractal(grid, 0.15 * length_m, gain=0.8, tag=71)
    for x0, y0 in places:
        half = 0.5 * length_m * rng.uniform(0.65, 1.25)
        angle = math.radians(heading_deg + spread_deg * rng.normal())
        width = half * slim * rng.uniform(0.7, 1.15)
        tone, fold = rng.uniform(), rng.uniform(-1.0, 1.0)
        i = np.flatnonzero(np.abs(grid.u - x0) < 1.1 * half + 2 * grid.pitch)
        j = np.flatnonzero(np.abs(grid.v - y0) < 1.1 * half + 2 * grid.pitch)
        if not (i.size and j.size):
            continue
        u, v = grid.u[i][None, :] - x0, grid.v[j][:, None] - y0
        s = (u * math.cos(angle) + v * math.sin(angle)) / half
        t = (v * math.cos(angle) - u * math.sin(angle)) / half + 0.12 * (s * s - 1.0) * fold
        profile = width / half * np.clip(1.0 - s * s, 0.0, 1.0) ** 0.85 * (1.0 - 0.28 * s)
        inside = half * np.where(np.abs(s) < 1.0, profile - np.abs(t), -np.abs(t) - (np.abs(s) - 1.0))
        window = (slice(j[0], j[-1] + 1), slice(i[0], i[-1] + 1))
        # The rim keeps the leaf's colour one texel out, so that bilinear reading finds no black line.
        on_leaf = inside > -2.5 * grid.pitch
        own_field, own_paint = field[window], paint[window]
        inside_leaf, s, t = inside[on_leaf], s[on_leaf], t[on_leaf]
        veins = smooth(np.abs(t), 0.012, 0.012 + max(0.03, 2.0 * grid.pitch / half))
        ribs = 1.0 + 0.10 * np.sin(22.0 * (s - 0.9 * np.abs(t)))
        light = (0.80 + 0.35 * fold * np.sign(t) * (0.4 + np.abs(t))) * ribs * (0.78 + 0.22 * veins)
        colour = ramp(np.clip(tone + 0.07 * speckle[window][on_leaf], 0.0, 1.0), palette) * light[..., None]
        colour = colour * (0.55 + 0.45 * smooth(inside_leaf, 0.0, 0.08 * half))[..., None]
        over = smooth(inside_leaf, -grid.pitch, grid.pitch)[..., None]
        fresh = own_field[on_leaf] < -2.0 * grid.pitch
        before = np.where(fresh[..., None], colour, own_paint[on_leaf])
        own_paint[on_leaf] = before + over * (colour - before)
        np.maximum(own_field, inside, out=own_field)
    return Cut(field, np.clip(paint, 0.0, None))


def scattered(grid: Grid, count: int, tag: int = 0) -> Float[np.ndarray, "leaves 2"]:
    """Random places on the card."""
    rng = np.random.default_rng([grid.seed, 11, tag])
    return np.stack([rng.uniform(grid.u[0], grid.u[-1], count), rng.uniform(grid.v[-1], grid.v[0], count)], axis=1)


def foliage(grid: Grid, count: int, length_m: float, palette: tuple[str, ...], dark: str = "0c140a") -> Rgb:
    """A wall of leaves, darker in the depth."""
    ground = hex_colour(dark) * np.exp(0.4 * fractal(grid, length_m, gain=0.8, tag=5))[..., None]
    low = leaves(grid, scattered(grid, count, 1), length_m, palette)
    mask = smooth(low.field, -grid.pitch, grid.pitch)[..., None]
    ground = ground * (1.0 - mask) + 0.35 * mask * low.paint
    high = leaves(grid.reseeded(3), scattered(grid, count // 2, 2), length_m, palette)
    mask = smooth(high.field, -grid.pitch, grid.pitch)[..., None]
    light = np.exp(0.35 * fractal(grid, 5.0 * length_m, gain=0.6, tag=6))[..., None]
    return (ground * (1.0 - mask) + mask * high.paint) * light


GLYPHS = {  # strokes on a 4 × 6 box, as "x y" pairs, pen up at a bar
    "A": "00 26 40|12 32", "B": "00 06 36 45 44 33 03|33 42 41 30 00", "C": "45 36 16 05 01 10 30 41",
    "D": "00 06 26 44 42 20 00", "E": "46 06 00 40|03 33", "F": "46 06 00|03 33", "G": "45 36 16 05 01 10 30 41 43 23",
    "H": "00 06|40 46|03 43", "I": "20 26|10 30|16 36", "K": "00 06|46 03 40", "L": "06 00 40",
    "M": "00 06 23 46 40", "N": "00 06 40 46", "O": "10 01 05 16 36 45 41 30 10", "P": "00 06 36 45 44 33 03",
    "R": "00 06 36 45 44 33 03|23 40", "S": "45 36 16 05 04 13 33 42 41 30 10 01", "T": "06 46|26 20",
    "U": "06 01 10 30 41 46", "V": "06 20 46", "W": "06 10 23 30 46", "X": "00 46|06 40", "Y": "06 23 46|23 20",
    "Z": "06 46 00 40",
}  # fmt: skip


def lettering(text: str, centre: tuple[float, float], height_m: float, pen_m: float) -> Float[np.ndarray, "lines 6"]:
    """Strokes of a line of capitals about `centre`; what has no glyph is a space."""
    unit = height_m / 6.0
    advance = 5.6 * unit
    left = centre[0] - (advance * len(text) - 1.6 * unit) / 2.0
    lines = []
    for k, letter in enumerate(text):
        for stroke in filter(None, GLYPHS.get(letter, "").split("|")):
            points = [
                (left + k * advance + int(p[0]) * unit, centre[1] + (int(p[1]) - 3) * unit) for p in stroke.split()
            ]
            lines += [(*p, pen_m / 2, *q, pen_m / 2) for p, q in pairwise(points)]
    return np.array(lines).reshape(-1, 6)
