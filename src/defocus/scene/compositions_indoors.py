"""Scenes at a table, at a wall and at a window: what stands where, in metres, and how it is painted."""

from __future__ import annotations

import numpy as np

from .balls import BallPaint, mottled, swirled
from .cutouts import lettering, segments
from .fractal_noise import Grid, fractal
from .shapes import Card, Paint, SceneShape
from .studio import Studio
from .textures import OAK, WARM, brick, city_at_night, cloth, hex_colour, lamps, planks, stone


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
