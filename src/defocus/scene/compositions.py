"""The named scenes: the studio in which their surfaces are made, what stands where, and the lens that suits each.

Lengths are in metres. Places are given in half heights of the picture at their depth where they frame the picture, so
that a composition holds for upright, square and wide pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .cutouts import Cut, branch, foliage, leaves, lettering, pickets, scattered, segments, wire_mesh
from .fractal_noise import Grid, fractal
from .shapes import Backdrop, Ball, Card, Paint, SceneShape, painted, texel_grid
from .textures import (
    AUTUMN,
    GREENS,
    OAK,
    WARM,
    BallPaint,
    brick,
    city_at_night,
    cloth,
    face,
    grass,
    hex_colour,
    knitted,
    lamps,
    mottled,
    planks,
    sky,
    smooth,
    stone,
    striped,
    swirled,
)  # fmt: skip
from .thin_lens import PinholeView

FRAME_DIAGONAL_MM = 43.267  # 24 × 36 mm
COVER = 1.45  # surfaces that fill the picture are this much wider: for blur and margins
FLOOR_COVER = 1.25
STRIP_RATIO = 1.7  # depth of a floor strip's far end over its near end
STRIP_OVERLAP_M = 1e-4  # so that no ray slips between two
TEXEL_PX = 0.8  # a texel's size in pixels of the picture, where the surface is nearest


@dataclass(frozen=True)
class Studio:
    """Makes surfaces for one picture."""

    view: PinholeView
    seed: int

    def half_height(self, depth_m: float) -> float:
        """Half the height of the picture at a depth, in metres."""
        return 0.5 * self.view.height / self.view.focal_px * depth_m

    def half_width(self, depth_m: float) -> float:
        return 0.5 * self.view.width / self.view.focal_px * depth_m

    def pitch(self, depth_m: float) -> float:
        return TEXEL_PX * depth_m / self.view.focal_px

    def sheet(self, depth_m: float, tag: int, paint: Paint, cut: Paint | None = None) -> Card:
        """A card parallel to the sensor that fills the picture."""
        size = (2 * COVER * self.half_width(depth_m), 2 * COVER * self.half_height(depth_m))
        return Card.make((0.0, 0.0, depth_m), size, self.pitch(depth_m), self.seed * 101 + tag, paint, cut)

    def cut_sheet(self, depth_m: float, tag: int, make: Callable[[Grid], Cut]) -> Card:
        """Likewise, with an outline and a paint that are made together."""
        size = (2 * COVER * self.half_width(depth_m), 2 * COVER * self.half_height(depth_m))
        cut = make(texel_grid(*size, self.pitch(depth_m), self.seed * 101 + tag))
        right, up = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
        return Card((0.0, 0.0, depth_m), right, up, *size, painted(cut.paint), painted(cut.field))

    def card(
        self,
        centre: tuple[float, float, float],
        size_m: tuple[float, float],
        tag: int,
        paint: Paint,
        cut: Paint | None = None,
    ) -> Card:
        """A card parallel to the sensor."""
        return Card.make(centre, size_m, self.pitch(centre[2]), self.seed * 101 + tag, paint, cut)

    def floor(
        self, level_m: float, near_m: float, far_m: float, tag: int, paint: Paint, rise: float = 0.0
    ) -> tuple[Card, ...]:
        """A floor at height `level_m` at `near_m`, rising by `rise` per metre; its grid's v runs into the depth.

        It is laid in strips, coarser ones farther away: one texture for all would be as fine everywhere as in front.
        """
        slope = math.hypot(1.0, rise)
        up = (0.0, rise / slope, 1.0 / slope)
        middle = (near_m + far_m) / 2
        entry = max(near_m, (level_m - rise * near_m) / (-self.half_height(1.0) - rise))  # where the picture begins
        count = math.ceil(math.log(far_m / entry) / math.log(STRIP_RATIO))
        ends = [near_m, *(entry * (far_m / entry) ** (k / count) for k in range(1, count)), far_m]
        strips = []
        for k, (start, end) in enumerate(pairwise(ends)):
            depth = (start + end) / 2
            size = (2 * FLOOR_COVER * self.half_width(end), (end - start) * slope + STRIP_OVERLAP_M)
            grid = texel_grid(*size, 1.5 * self.pitch(entry if k == 0 else start), self.seed * 101 + tag)
            texture = paint(Grid(grid.u, grid.v + (depth - middle) * slope, grid.seed))
            centre = (0.0, level_m + rise * (depth - near_m), depth)
            strips.append(Card(centre, (1.0, 0.0, 0.0), up, *size, painted(texture)))
        return tuple(strips)

    @staticmethod
    def on_floor(
        x: float, z: float, radius_m: float, level_m: float, near_m: float, rise: float
    ) -> tuple[float, float, float]:
        """The centre of a ball that rests at (x, z) on a rising floor."""
        tilt = np.array([0.0, 1.0, -rise]) / np.hypot(1.0, rise)
        centre = np.array([x, level_m + rise * (z - near_m), z]) + radius_m * tilt
        return float(centre[0]), float(centre[1]), float(centre[2])

    def ball(self, centre: tuple[float, float, float], radius_m: float, paint: BallPaint) -> Ball:
        return Ball.make(centre, radius_m, self.pitch(centre[2] - radius_m), paint)

    def backdrop(self, tag: int, paint: Paint) -> Backdrop:
        half = COVER * 2.0 * self.half_width(1.0), COVER * 2.0 * self.half_height(1.0)
        return Backdrop.make(half, TEXEL_PX / self.view.focal_px, self.seed * 101 + tag, paint)


def portrait(s: Studio) -> tuple[SceneShape, ...]:
    ground = -0.30

    def garden(grid: Grid) -> np.ndarray:
        glow = np.exp(0.5 * fractal(grid, 1.6, gain=0.5, tag=9))[..., None]
        light = lamps(grid, 70, 0.020, 30.0, WARM, region=(-2.0, 2.0, 0.0, 1.2), tag=1)
        return 0.55 * glow * foliage(grid, 900, 0.22, GREENS) + light

    def fence(grid: Grid) -> np.ndarray:
        return planks(grid, 0.09, ("8f8474", "b9ad9b", "d8cfc0", "e8e2d6"), upright=True) * 0.8

    return (
        s.ball((-0.03, 0.055, 1.60), 0.088, face(s.seed, ("c98f5c", "dba571", "e9bf8f"))),
        s.ball((-0.03, 0.112, 1.61), 0.074, knitted(s.seed + 1, ("a3202c", "efe6d6", "a3202c", "1f3c5c"))),
        s.ball((-0.03, 0.192, 1.61), 0.023, mottled(s.seed + 2, ("d8d0c2", "f6f2ea"), largest=0.2)),
        s.ball(
            (-0.03, -0.145, 1.63),
            0.155,
            knitted(s.seed + 3, ("20425f", "2d6a86", "e6ddc8", "20425f", "b8342f"), rows=40),
        ),
        s.sheet(2.7, 1, fence, lambda g: pickets(g, 0.115, 0.085, 0.10, (-0.02, -0.30))),
        *s.floor(ground, 1.25, 6.0, 2, grass),
        s.sheet(6.0, 3, garden),
    )


def wire(s: Studio) -> tuple[SceneShape, ...]:
    def wall(grid: Grid) -> np.ndarray:
        colour = brick(grid)
        door = smooth(0.42 - np.abs(grid.columns - 0.75), 0.0, 0.01) * smooth(0.75 - grid.rows, 0.0, 0.01)
        wood = planks(grid, 0.13, ("123036", "1b4a50", "2a666a", "3c8084"), upright=True)
        frame = smooth(0.47 - np.abs(grid.columns - 0.75), 0.0, 0.01) * smooth(0.80 - grid.rows, 0.0, 0.01)
        colour = colour * (1 - frame[..., None]) + 0.6 * frame[..., None] * hex_colour("d9d2c0")
        colour = colour * (1 - door[..., None]) + door[..., None] * wood
        knob = smooth(-np.hypot(grid.columns - 0.43, grid.rows + 0.1), -0.03, -0.018)[..., None]
        return colour * (1 - knob) + knob * hex_colour("ffe3a0") * 3.0

    def wire(grid: Grid) -> np.ndarray:
        return stone(grid, ("5c6064", "8a9095", "b9c0c4"), 0.02)

    def paving(grid: Grid) -> np.ndarray:
        colour = stone(grid, ("4c4a46", "77736b", "9c978c"), 0.4)
        for x, z, radius in ((-0.42, 2.7, 0.16), (-0.02, 2.85, 0.10)):
            shadow = np.hypot(grid.columns - x - 0.3 * radius, grid.rows - (z - 2.4)) / radius
            colour = colour * (1.0 - 0.7 * np.exp(-1.3 * shadow**2))[..., None]
        return colour

    return (
        s.sheet(0.55, 1, wire, lambda g: wire_mesh(g, 0.046, 0.0036)),
        s.ball((-0.42, -0.42, 2.7), 0.16, striped(s.seed, ("d8352a", "f2c230", "2b6fb5", "f4efe2"))),
        s.ball(
            (-0.02, -0.48, 2.85), 0.10, mottled(s.seed + 4, ("a03c14", "c9621c", "dd8a35"), largest=0.15, gloss=1.5)
        ),
        *s.floor(-0.58, 1.6, 3.2, 2, paving),
        s.sheet(3.2, 3, wall),
    )


def twigs(s: Studio) -> tuple[SceneShape, ...]:
    def twig_card(z: float, tag: int, seed: int, lines: np.ndarray, count: int, palette: tuple[str, ...]) -> Card:
        def make(grid: Grid) -> Cut:
            wood = segments(grid, lines)
            rng = np.random.default_rng([seed, 3])
            ends = lines[rng.choice(len(lines), size=count)][:, 3:5] + rng.normal(0, 0.004, (count, 2))
            leaf = leaves(grid, ends, 0.05 * z / 0.9, palette, spread_deg=55.0)
            bark = stone(grid, ("2a1c12", "4b3623", "6f553b", "8b7355"), 0.01, gain=0.9)
            bark = bark * (0.45 + 0.75 * smooth(wood, 0.0, 0.004))[..., None]
            on_leaf = (leaf.field > wood) | (leaf.field > 0.0)
            return Cut(np.maximum(wood, leaf.field), np.where(on_leaf[..., None], leaf.paint, bark))

        return s.cut_sheet(z, tag, make)

    w, h = s.half_width(0.9), s.half_height(0.9)
    main = np.concatenate(
        [
            branch(s.seed + 1, (-1.25 * w, -0.35 * h), 22.0, 2.1 * w, 0.0055),
            branch(s.seed + 2, (-1.2 * w, 0.65 * h), -12.0, 1.3 * w, 0.0032),
        ]
    )
    back = branch(s.seed + 5, (1.3 * s.half_width(1.5), 0.2), 165.0, 1.7 * s.half_width(1.5), 0.006)
    near = branch(s.seed + 9, (1.2 * s.half_width(0.6), -1.15 * s.half_height(0.6)), 128.0, 0.13, 0.0022, forks=1)
    return (
        twig_card(0.60, 1, s.seed + 21, near, 9, GREENS),
        twig_card(0.90, 2, s.seed + 22, main, 46, AUTUMN),
        twig_card(1.50, 3, s.seed + 23, back, 26, AUTUMN),
        s.backdrop(
            4, lambda g: sky(g, horizon=-0.03) + lamps(g, 1, 0.012, 40.0, ("fff2d8",), region=(0.06, 0.07, 0.06, 0.07))
        ),
    )


def street(s: Studio) -> tuple[SceneShape, ...]:
    def wall(grid: Grid) -> np.ndarray:
        colour = brick(grid, (0.24, 0.085))
        step_u = 1.6
        place = grid.columns / step_u - np.floor(grid.columns / step_u) - 0.5
        inside = np.minimum(0.40 - np.abs(place * step_u), 0.62 - np.abs(grid.rows - 0.45))
        frame, pane = smooth(inside, -0.09, -0.08)[..., None], smooth(inside, 0.0, 0.01)[..., None]
        bars = smooth(np.minimum(np.abs(place * step_u), np.abs(grid.rows - 0.6)), 0.015, 0.03)[..., None]
        glass = hex_colour("2a3d4c") * np.exp(0.5 * fractal(grid, 0.8, gain=0.5, tag=9))[..., None]
        colour = (
            colour * (1 - frame) + frame * hex_colour("cfc7b4") * np.exp(0.08 * fractal(grid, 0.1, tag=8))[..., None]
        )
        return colour * (1 - pane * bars) + pane * bars * glass

    def cobbles(grid: Grid) -> np.ndarray:
        shadow = np.hypot(grid.columns - 0.06, grid.rows - (2.4 - (1.4 + 9.5) / 2)) / 0.11
        shade = 1.0 - 0.7 * np.exp(-1.3 * shadow**2)
        return brick(grid, (0.16, 0.11), ("45433f", "5c5852", "726d64", "87817a", "5a5650")) * shade[..., None]

    x = -1.05 * s.half_height(3.0)
    along = (math.sin(math.radians(12.0)), 0.0, math.cos(math.radians(12.0)))
    length, high = 6.5, 3.4
    centre = (x - 0.35 + along[0] * length / 2, 0.35, 1.5 + along[2] * length / 2)
    post = s.half_height(3.0)
    return (
        Card.make(centre, (length, high), s.pitch(2.2) * 1.3, s.seed * 101 + 1, wall, right=along),
        s.card(
            (0.42, 0.0, 3.0),
            (0.10, 2 * COVER * post),
            2,
            lambda g: stone(g, ("10181a", "1d2b2c", "3a4c4c"), 0.05),
            lambda g: 0.022 - np.abs(g.columns) + 0 * g.rows,
        ),
        s.ball((0.42, 0.55 * post, 2.99), 0.085, mottled(s.seed + 3, ("fff0d0", "fffaf0"), largest=0.5, gloss=3.0)),
        s.ball((0.02, -0.50, 2.4), 0.11, striped(s.seed + 6, ("c8281e", "f0ece0"), count=6, tilt_deg=-25.0)),
        *s.floor(-0.62, 1.4, 9.5, 3, cobbles),
        s.backdrop(4, lambda g: sky(g, horizon=-0.05)),
    )


def sprays(s: Studio) -> tuple[SceneShape, ...]:
    def spray(
        z: float,
        tag: int,
        count: int,
        length: float,
        palette: tuple[str, ...],
        where: Callable[[np.ndarray], np.ndarray],
    ) -> Card:
        def make(grid: Grid) -> Cut:
            half = np.array([COVER * s.half_width(z), COVER * s.half_height(z)])
            places = scattered(grid, 6 * count)
            cut = leaves(grid, places[where(places / half)][:count], length, palette, spread_deg=40.0)
            dew = lamps(grid, 14 if tag == 2 else 0, 0.0016, 16.0, ("ffffff",), tag=tag)
            return Cut(cut.field, cut.paint + dew)

        return s.cut_sheet(z, tag, make)

    def wood(grid: Grid) -> np.ndarray:
        sun = lamps(grid, 60, 0.018, 14.0, ("fff4c8", "f2ffd0", "dff0b0"), tag=5)
        return foliage(grid, 700, 0.3, GREENS) * 0.7 + sun

    return (
        spray(0.55, 1, 16, 0.085, GREENS, lambda p: (p[:, 0] < -0.35) & (p[:, 1] < 0.2)),
        spray(0.95, 2, 30, 0.085, AUTUMN, lambda p: np.abs(p[:, 1] - 0.25 * p[:, 0]) < 0.28),
        spray(1.60, 3, 60, 0.12, GREENS, lambda p: p[:, 1] > 0.2 * np.sin(4 * p[:, 0]) + 0.05),
        s.sheet(5.0, 4, wood),
    )


def table(s: Studio) -> tuple[SceneShape, ...]:
    level, near, far, rise = -0.165, 0.62, 2.1, 0.145
    things = (
        (-0.105, 0.78, 0.036, mottled(s.seed + 1, ("b8480c", "dd7414", "ee9a2e"), largest=0.12, gloss=1.2)),
        (0.045, 1.02, 0.048, mottled(s.seed + 2, ("6e0f14", "a51c1c", "c4452a", "d9a441"), largest=0.8, gloss=2.5)),
        (-0.10, 1.32, 0.055, mottled(s.seed + 3, ("4a6b1c", "7f9a2e", "b4bf4e"), largest=0.7, gloss=1.5)),
        (0.25, 1.62, 0.060, swirled(s.seed + 4, ("17324f", "3f7fa6", "e8e2d0"))),
    )
    balls = [(s.on_floor(x, z, radius, level, near, rise), radius, paint) for x, z, radius, paint in things]

    def wood(grid: Grid) -> np.ndarray:
        colour = planks(grid, 0.11, OAK)
        for (x, _, z), radius, _ in balls:
            along = (z - (near + far) / 2) * np.hypot(1.0, rise)
            u, v = (grid.columns - x - 0.35 * radius) / 1.25, grid.rows - along - 0.1 * radius
            shadow = np.hypot(u, v) / radius
            colour = colour * (1.0 - 0.72 * np.exp(-(shadow**2) * 1.3))[..., None]
        return colour

    return (
        *(s.ball(*ball) for ball in balls),
        *s.floor(level, near, far, 1, wood, rise),
        s.sheet(2.2, 2, lambda g: 0.8 * cloth(g, ("23405e", "b9b3a2", "7b2230", "d9cfb8"), 0.05, folds_m=0.16)),
    )


def letters(s: Studio) -> tuple[SceneShape, ...]:
    def word(text: str, x: float, y: float, z: float, height: float, tag: int, paint: Paint, pen: float = 0.2) -> Card:
        size = (1.15 * height * len(text), 1.5 * height)
        lines = lettering(text, (0.0, 0.0), height, pen * height)
        return s.card((x, y, z), size, tag, paint, lambda g: segments(g, lines))

    def enamel(code: str) -> Paint:
        return lambda g: hex_colour(code) * np.exp(0.12 * fractal(g, 0.05, gain=0.9, tag=3))[..., None]

    h = s.half_height
    return (
        word("NEAR", -0.30 * h(0.75), -0.62 * h(0.75), 0.75, 0.44 * h(0.75), 1, enamel("f2c230")),
        word("FOCUS", 0.05 * h(1.2), 0.02, 1.2, 0.42 * h(1.2), 2, lambda g: planks(g, 0.02, OAK)),
        word("FAR AWAY", 0.10 * h(2.2), 0.60 * h(2.2), 2.2, 0.30 * h(2.2), 3, enamel("f4efe2"), 0.17),
        s.sheet(3.2, 4, lambda g: brick(g, (0.24, 0.08), ("2f4a52", "3e5f66", "54777a", "6e8f8c", "47646a"))),
    )


def night(s: Studio) -> tuple[SceneShape, ...]:
    def city(grid: Grid) -> np.ndarray:
        colour = city_at_night(grid, -0.05)
        street = lamps(grid, 60, 0.0042, 36.0, WARM, region=(-0.32, 0.32, -0.12, -0.02), tag=2)
        signs = lamps(
            grid, 26, 0.0050, 24.0, ("ff3b2f", "3bd16f", "4aa3ff", "ffd24a"), region=(-0.32, 0.32, -0.10, 0.05), tag=3
        )
        return colour + street + signs

    def iron(grid: Grid) -> np.ndarray:
        return stone(grid, ("0e0f12", "1d1f24", "34373d"), 0.03) * 0.8

    def railing(grid: Grid) -> np.ndarray:
        top = -0.095
        bars = 0.0030 - np.abs((grid.columns / 0.034) % 1.0 - 0.5) * 0.034
        bars = np.minimum(bars, top - grid.rows)
        ring = 0.0028 - np.abs(
            np.hypot(((grid.columns / 0.068 + 0.25) % 1.0 - 0.5) * 0.068, grid.rows - top + 0.032) - 0.02
        )
        return np.maximum(np.maximum(bars, ring), 0.006 - np.abs(grid.rows - top))

    return (
        s.ball(
            (0.10, -0.030, 1.16),
            0.060,
            swirled(s.seed + 2, ("3a1426", "8e2b3f", "e0a24a", "f2d7a0"), turns=1.6, gloss=9.0),
        ),
        s.ball(
            (-0.135, -0.052, 1.14), 0.036, swirled(s.seed + 7, ("0f2d33", "1d6a6e", "8fd0c0"), turns=2.4, gloss=9.0)
        ),
        s.sheet(1.2, 1, iron, railing),
        s.backdrop(2, city),
    )


def swatches(s: Studio) -> tuple[SceneShape, ...]:
    palettes = (
        ("7b2230", "d9cfb8", "23405e"), ("1f4d3a", "c9b458", "efe9d8"), ("3b2f63", "b98bb0", "e9e1ea"),
        ("a3521e", "efd9a8", "5a2a20"), ("1d5c74", "e8e2d0", "c7412f"),
    )  # fmt: skip
    depths = (0.70, 0.85, 1.05, 1.40, 2.00)

    def strip(index: int) -> Card:
        z = depths[index]
        w, h = s.half_width(z), s.half_height(z)
        left = (-1.02 + 0.40 * index) * w
        width = 0.56 * w
        return s.card(
            (left + width / 2, (-0.85 + 0.13 * index) * h, z), (width, 2.7 * h), 10 + index,
            lambda g: cloth(g, palettes[index], 0.022 * z, thread_m=0.0028 * z),
        )  # fmt: skip

    return (
        *(strip(k) for k in range(len(depths))),
        s.sheet(3.2, 1, lambda g: stone(g, ("8f8778", "b7ae9c", "d5cdbb"), 0.9)),
    )


def marbles(s: Studio) -> tuple[SceneShape, ...]:
    level, near, far, rise = -0.115, 0.45, 1.6, 0.17
    palettes = (
        ("0c2f5c", "2f7fc4", "dff0ff"), ("5c0c18", "d1352f", "ffe0c0"), ("0d3b22", "2f9a58", "e4f7d0"),
        ("3c1458", "9a4fc0", "f0dcff"), ("5a3a08", "e0a022", "fff2c0"), ("101418", "5a6a78", "eef2f4"),
    )  # fmt: skip
    rng = np.random.default_rng([s.seed, 5])
    placed: list[tuple[float, float, float]] = []
    for _ in range(4000):
        z, radius = 0.52 + 0.95 * rng.uniform() ** 1.3, rng.uniform(0.016, 0.026)
        x = rng.uniform(-0.85, 0.85) * s.half_width(z)
        if all(np.hypot(x - px, z - pz) > radius + pr + 0.008 for px, pz, pr in placed):
            placed.append((x, z, radius))
        if len(placed) == 15:
            break

    def felt(grid: Grid) -> np.ndarray:
        colour = (
            stone(grid, ("4f1420", "6b1f2c", "86303a"), 0.25) * np.exp(0.12 * fractal(grid, 0.01, tag=7))[..., None]
        )
        for x, z, radius in placed:
            along = (z - (near + far) / 2) * np.hypot(1.0, rise)
            shadow = np.hypot(grid.columns - x - 0.5 * radius, grid.rows - along) / radius
            colour = colour * (1.0 - 0.75 * np.exp(-(shadow**2) * 1.2))[..., None]
        return colour

    def glass(k: int) -> BallPaint:
        return swirled(s.seed * 31 + k, palettes[k % len(palettes)], turns=1.0 + k % 3, gloss=8.0)

    return (
        *(s.ball(s.on_floor(x, z, r, level, near, rise), r, glass(k)) for k, (x, z, r) in enumerate(placed)),
        *s.floor(level, near, far, 1, felt, rise),
        s.sheet(
            1.7,
            2,
            lambda g: planks(g, 0.14, OAK) * 0.5 + lamps(g, 12, 0.012, 10.0, WARM, region=(-0.6, 0.6, 0.05, 0.4)),
        ),
    )


@dataclass(frozen=True)
class Composition:
    """A recipe: `build` makes the shapes; the lens is in mm, its focus in metres."""

    about: str
    focal_length_mm: float
    pupil_radius_mm: float
    focus_m: float
    build: Callable[[Studio], tuple[SceneShape, ...]]


COMPOSITIONS = {
    "portrait": Composition("a wooden doll before a picket fence, garden lights behind", 85.0, 30.0, 1.52, portrait),
    "wire": Composition("a brick wall with a door seen through chain-link wire", 50.0, 14.0, 3.0, wire),
    "twigs": Composition("autumn twigs before hills and a low sun", 85.0, 16.0, 0.9, twigs),
    "table": Composition("fruit on an oak table, a curtain behind", 60.0, 17.0, 0.98, table),
    "letters": Composition("words cut out of sheet metal and wood before bricks", 60.0, 18.0, 1.2, letters),
    "night": Composition("glass balls on a balcony, the lights of a city behind", 70.0, 18.0, 1.12, night),
    "street": Composition("a wall running into the distance, a lamp post, a ball", 35.0, 36.0, 2.3, street),
    "leaves": Composition("three sprays of leaves with dew before a sunlit wood", 70.0, 16.0, 0.95, sprays),
    "swatches": Composition("strips of tartan hung one behind the other", 60.0, 17.0, 1.05, swatches),
    "marbles": Composition("glass marbles on felt, from near to far", 60.0, 12.0, 0.75, marbles),
}
