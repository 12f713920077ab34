"""Scenes under the sky: what stands where, in metres, and how it is painted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .balls import face, knitted, mottled, striped
from .cutouts import Cut, branch, foliage, leaves, pickets, scattered, segments, wire_mesh
from .fractal_noise import Grid, fractal
from .shapes import Card, SceneShape
from .studio import COVER, Studio
from .textures import AUTUMN, GREENS, WARM, brick, grass, hex_colour, lamps, planks, sky, smooth, stone


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
