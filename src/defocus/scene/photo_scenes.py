"""Scenes composed of photographs: painted surfaces one behind the other, with exact depth and nothing hidden unknown.

A photograph without depth is a good texture. Up to six surfaces stand one behind the other: a background that fills the
picture, plane, slanted or curved, sometimes a ground before it, and cut-outs. As in most photographs, these are few and
large: half of the scenes are plain, one to three surfaces whose cut-outs are figures and cards. The others have more of
them, and a part of those have fine ones, of the procedural scenes' outlines (leaves, twigs, fences, wire, letters) or
tufts. Edges are hard, soft or hairy. Each surface shows a part of a photograph as the camera sees it painted there, no
finer than its own pixels. A plane's 1/depth is linear over the
picture, so slanted ones are exact. Light is linear: lamps are added and highlights raised before anything is blurred.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

from ..srgb import from_srgb
from .cutouts import branch, leaves, lettering, pickets, scattered, segments, wire_mesh
from .fractal_noise import Grid, fractal, noise
from .surface_stack import MOST_SURFACES, SurfaceStack
from .textures import AUTUMN, GREENS, WARM, lamps, smooth

Plane = Float[np.ndarray, "rows cols"]
Rgb = Float[np.ndarray, "rows cols 3"]
Picture = UInt8[np.ndarray, "height width 3"]  # display values
LIGHT_OF_DISPLAY = from_srgb(np.arange(256, dtype=np.float32) / 255.0).astype(np.float32)
LARGEST_REDUCTION = 2.0  # pixels of a photograph that become one of the scene
NEAREST_M, FARTHEST_M = (0.35, 4.0), 120.0
PLAIN = 0.5  # of all scenes
FINE = 0.36  # of the others: fine parts in less than a fifth of all
LETTERS = "ABCDEFGHIKLMNOPRSTUVWXYZ"


class Outline(NamedTuple):
    """A cut-out: opacity, and a paint of its own where it has one."""

    opacity: Plane
    paint: Rgb | None = None


def compose_scene(
    photographs: Callable[[int], Picture], size: tuple[int, int], seed: int, prefilter_px: float = 0.0
) -> SurfaceStack:
    """A scene of `size` = (width, height), in float32; its surface k is painted with `photographs(k)`.

    A pure function of its arguments. `prefilter_px` is the σ of a Gaussian that tames photographs that were sharpened.
    """
    random = np.random.default_rng(seed)
    grid = pixel_grid(size, int(random.integers(2**31)))
    plain, fine = random.random() < PLAIN, random.random() < FINE
    number = int(random.choice((1, 2, 3), p=(0.3, 0.4, 0.3)) if plain else random.integers(2, MOST_SURFACES + 1))
    inverse = _inverse_depths(number, random)
    shape = (number, size[1], size[0])
    colour, opacity, depth = np.empty((*shape, 3), np.float32), np.ones(shape, np.float32), np.empty(shape, np.float32)
    with_ground = number > 1 and random.random() < 0.3
    delicate = int(random.integers(1, number)) if fine and not plain else 0  # the surface with fine parts
    for k in range(number):
        texture = _texture(photographs(k), size, prefilter_px, random)
        gaps = [abs(inverse[j] - inverse[k]) for j in (k - 1, k + 1) if 0 <= j < number]
        own = _inverse_map(grid, inverse[k], 0.42 * min(gaps, default=inverse[k]), random)
        if k == 1 and with_ground:
            opacity[k], own = _ground(grid, inverse[0], inverse[-1], random)
        elif k:
            outlines = FINE_OUTLINES if k == delicate else LARGE_OUTLINES
            outline = outlines[int(random.integers(len(outlines)))](grid.reseeded(k), random)
            opacity[k] = outline.opacity
            if outline.paint is not None and random.random() < 0.3:
                texture = outline.paint.astype(np.float32)
        colour[k], depth[k] = _lit(texture, grid.reseeded(100 + k), random), 1.0 / own
    return SurfaceStack(colour, opacity, np.clip(depth, NEAREST_M[0] / 2.0, FARTHEST_M))


def filled_up(stack: SurfaceStack) -> SurfaceStack:
    """The stack with `MOST_SURFACES` surfaces, the last ones nowhere: all scenes have one shape then."""
    missing = MOST_SURFACES - len(stack.opacity)
    if missing == 0:
        return stack
    shape = (missing, *stack.opacity.shape[1:])
    none, depth = np.zeros(shape, np.float32), np.broadcast_to(stack.depth_m[-1:], shape)
    colour = np.concatenate([stack.colour, np.zeros((*shape, 3), np.float32)])
    return SurfaceStack(colour, np.concatenate([stack.opacity, none]), np.concatenate([stack.depth_m, depth]))


def pixel_grid(size: tuple[int, int], seed: int) -> Grid:
    """A grid whose metres are pixels of the picture."""
    width, height = size
    return Grid(np.arange(width) - (width - 1) / 2.0, (height - 1) / 2.0 - np.arange(height), seed)


def _inverse_depths(number: int, random: np.random.Generator) -> Float[np.ndarray, " surfaces"]:
    """1/depth of the surfaces from far to near, well apart."""
    nearest = math.exp(random.uniform(*np.log(NEAREST_M)))
    farthest = min(nearest * math.exp(random.uniform(math.log(1.15), math.log(15.0))), FARTHEST_M)
    if number == 1:
        return np.array([1.0 / random.uniform(nearest, farthest)])
    between = np.cumsum(random.uniform(0.4, 1.0, number - 1))
    share = np.concatenate([[0.0], between / between[-1]])
    return 1.0 / farthest + share * (1.0 / nearest - 1.0 / farthest)


def _inverse_map(grid: Grid, middle: float, most: float, random: np.random.Generator) -> Plane:
    """1/depth over the picture, within `most` of `middle`: plane, slanted, or curved."""
    kind = random.random()
    reach = most * random.uniform(0.3, 1.0)
    x, y = grid.columns / (0.5 * len(grid.u)), grid.rows / (0.5 * len(grid.v))
    if kind < 0.45:
        return np.full((len(grid.v), len(grid.u)), middle)
    if kind < 0.75:
        turn = random.uniform(0.0, 2.0 * math.pi)
        return middle + reach * (math.cos(turn) * x + math.sin(turn) * y) / (abs(math.cos(turn)) + abs(math.sin(turn)))
    if kind < 0.88:  # a ball or a hollow
        px, py = random.uniform(-0.5, 0.5, 2)
        bulge = np.exp(-((x - px) ** 2 + (y - py) ** 2) / random.uniform(0.3, 1.5))
        return middle + reach * random.choice((-1.0, 1.0)) * (2.0 * bulge - 1.0)
    folds = noise(grid, 0.35 * len(grid.u), 0.35 * len(grid.u), int(random.integers(1000)))
    return middle + reach * np.clip(folds / 2.0, -1.0, 1.0)


def _ground(grid: Grid, far: float, near: float, random: np.random.Generator) -> tuple[Plane, Plane]:
    """Opacity and 1/depth of a ground from a horizon to the lower edge."""
    height = 0.5 * len(grid.v)
    horizon = height * random.uniform(-0.5, 0.5)
    below = horizon - grid.rows + 0.03 * height * noise(grid, 0.2 * len(grid.u), 1e6, 3)
    reach = 0.9 * (near - far)
    return np.clip(below + 0.5, 0.0, 1.0), far + reach * np.clip(below / (horizon + height), 0.0, 1.0)


def _texture(picture: Picture, size: tuple[int, int], prefilter_px: float, random: np.random.Generator) -> Rgb:
    """A part of a photograph as linear light, reduced and mirrored by chance, never enlarged."""
    from PIL import Image

    width, height = size
    picture = np.rot90(picture) if random.random() < 0.25 else picture
    if random.random() < 0.5:
        picture = picture[:, ::-1]
    most = min(picture.shape[1] / width, picture.shape[0] / height, LARGEST_REDUCTION)
    reduction = 1.0 if most <= 1.0 or random.random() < 0.4 else random.uniform(1.0, most)
    part = min(round(width * reduction), picture.shape[1]), min(round(height * reduction), picture.shape[0])
    left, top = (int(random.integers(n - m + 1)) for n, m in ((picture.shape[1], part[0]), (picture.shape[0], part[1])))
    light = LIGHT_OF_DISPLAY[picture[top : top + part[1], left : left + part[0]]]
    if reduction > 1.0:
        bands = (Image.fromarray(np.ascontiguousarray(light[..., c])) for c in range(3))
        light = np.stack([np.asarray(band.resize(size, Image.Resampling.HAMMING)) for band in bands], axis=-1)
    if light.shape[:2] != (height, width):  # a photograph that is smaller than the scene is mirrored on
        light = np.pad(light, ((0, height - light.shape[0]), (0, width - light.shape[1]), (0, 0)), mode="symmetric")
    if prefilter_px > 0.0:
        light = ndimage.gaussian_filter(light, (prefilter_px, prefilter_px, 0.0), truncate=4.0)
    return np.maximum(light, 0.0)


def _lit(light: Rgb, grid: Grid, random: np.random.Generator) -> Rgb:
    """The paint under its own light: brighter or darker, highlights raised, sometimes with lamps on it."""
    light = light * np.float32(math.exp(random.uniform(math.log(0.5), math.log(1.5))))
    if random.random() < 0.5:
        bright = smooth(light.min(-1), 0.85, 1.0)[..., None]
        light = light * (1.0 + random.uniform(0.0, 4.0) * bright)
    if random.random() < 0.12:
        count, radius = int(random.integers(1, 25)), random.uniform(1.2, 4.0)  # discs, of some pixels at least
        light = light + lamps(grid, count, radius, math.exp(random.uniform(0.5, 3.5)), (*WARM, "ffffff", "bcd6ff"))
    return light.astype(np.float32)


def _edged(field: Plane, random: np.random.Generator, grid: Grid, *, hair: bool = True) -> Plane:
    """Opacity of an outline's field in pixels: hard, soft or hairy."""
    kind = random.random()
    opacity = np.clip(field + 0.5, 0.0, 1.0)
    if kind < 0.5:
        return opacity
    if kind < 0.75 or not hair:
        width = random.uniform(1.0, 4.0)
        return smooth(field, -width, width)
    rim_rows, rim_cols = np.nonzero(np.abs(field) < 1.5)
    if not rim_rows.size:
        return opacity
    pick = random.integers(rim_rows.size, size=int(random.integers(150, 500)))
    down, right = np.gradient(ndimage.gaussian_filter(field, 3.0))
    at = rim_rows[pick], rim_cols[pick]
    outwards = np.arctan2(down[at], -right[at]) + random.normal(0.0, 0.5, len(pick))
    length, radius = random.uniform(6.0, 30.0, len(pick)), random.uniform(0.3, 0.8, len(pick))
    bend = outwards + random.normal(0.0, 0.4, len(pick))
    turns = [(np.cos(angle), np.sin(angle)) for angle in (outwards, bend)]
    return np.maximum(opacity, _bent_strokes(grid, (grid.u[at[1]], grid.v[at[0]]), turns, 0.55 * length, radius, 0.4))


def _bent_strokes(
    grid: Grid,
    start: tuple[np.ndarray, np.ndarray],
    directions: list[tuple[np.ndarray, np.ndarray]],
    half: np.ndarray,
    radius: np.ndarray,
    tip: float,
) -> Plane:
    """Opacity of hairs or blades: each two strokes long, `half` a stroke, in its two directions, down to a `tip` of its
    radius."""
    (x, y), ((dx, dy), (ex, ey)) = start, directions
    mx, my = x + half * dx, y + half * dy
    lower = np.stack([x, y, radius, mx, my, 0.8 * radius], axis=1)
    upper = np.stack([mx, my, 0.8 * radius, mx + half * ex, my + half * ey, tip * radius], axis=1)
    return np.clip(segments(grid, np.concatenate([lower, upper])) + 0.5, 0.0, 1.0)


def _figure(grid: Grid, random: np.random.Generator) -> Outline:
    """A head on shoulders, or a stone: round parts with an uneven rim."""
    scale = random.uniform(0.3, 0.8) * min(len(grid.u), len(grid.v))
    x, y = random.uniform(-0.35, 0.35) * len(grid.u), random.uniform(-0.5, 0.1) * len(grid.v)
    field = 0.45 * scale - np.hypot(grid.columns - x, (grid.rows - y) / random.uniform(0.8, 1.4))
    if random.random() < 0.5:
        below = 0.9 * scale - np.hypot(grid.columns - x, (grid.rows - y + 1.15 * scale) / 0.9)
        field = np.maximum(field, below)
    return Outline(_edged(field + 0.04 * scale * fractal(grid, 0.4 * scale, gain=0.6, tag=4), random, grid))


def _card(grid: Grid, random: np.random.Generator) -> Outline:
    turn = random.uniform(-0.6, 0.6)
    half = random.uniform(0.15, 0.5, 2) * (len(grid.u), len(grid.v))
    x, y = random.uniform(-0.4, 0.4) * len(grid.u), random.uniform(-0.4, 0.4) * len(grid.v)
    u, v = grid.columns - x, grid.rows - y
    across, along = math.cos(turn) * u + math.sin(turn) * v, math.cos(turn) * v - math.sin(turn) * u
    return Outline(_edged(np.minimum(half[0] - np.abs(across), half[1] - np.abs(along)), random, grid))


def _leaf_spray(grid: Grid, random: np.random.Generator) -> Outline:
    places = scattered(grid, int(random.integers(4, 40)))
    length = random.uniform(0.08, 0.35) * len(grid.v)
    cut = leaves(grid, places, length, GREENS if random.random() < 0.6 else AUTUMN, spread_deg=70.0)
    return Outline(_edged(cut.field, random, grid, hair=False), cut.paint)


def _twig(grid: Grid, random: np.random.Generator) -> Outline:
    half_u, half_v = 0.5 * len(grid.u), 0.5 * len(grid.v)
    strokes = []
    for _ in range(int(random.integers(1, 4))):
        start = random.choice((-1.1, 1.1)) * half_u, random.uniform(-0.8, 0.8) * half_v
        heading = (0.0 if start[0] < 0.0 else 180.0) + random.uniform(-35.0, 35.0)
        length, radius = random.uniform(0.8, 2.0) * half_u, random.uniform(1.5, 6.0)
        strokes.append(branch(int(random.integers(2**31)), start, heading, length, radius, int(random.integers(1, 3))))
    return Outline(_edged(segments(grid, np.concatenate(strokes)), random, grid, hair=False))


def _fence(grid: Grid, random: np.random.Generator) -> Outline:
    board = random.uniform(6.0, 40.0)
    top = random.uniform(-0.2, 0.6) * len(grid.v)
    rails = tuple(random.uniform(-0.5, 0.3, 2) * len(grid.v))
    return Outline(_edged(pickets(grid, board * random.uniform(1.3, 3.0), board, top, rails), random, grid, hair=False))


def _wire(grid: Grid, random: np.random.Generator) -> Outline:
    field = wire_mesh(grid, random.uniform(18.0, 90.0), random.uniform(1.0, 6.0))
    return Outline(_edged(field, random, grid, hair=False))


def _word(grid: Grid, random: np.random.Generator) -> Outline:
    field = np.full((len(grid.v), len(grid.u)), -1e3)
    for _ in range(int(random.integers(1, 5))):
        text = "".join(random.choice(list(LETTERS), int(random.integers(1, 7))))
        centre = random.uniform(-0.4, 0.4) * len(grid.u), random.uniform(-0.4, 0.4) * len(grid.v)
        height = random.uniform(0.06, 0.5) * len(grid.v)
        field = np.maximum(field, segments(grid, lettering(text, centre, height, random.uniform(0.1, 0.28) * height)))
    return Outline(_edged(field, random, grid))


def _tuft(grid: Grid, random: np.random.Generator) -> Outline:
    """Grass or fur: many thin strokes from below."""
    count, high = int(random.integers(60, 300)), random.uniform(0.2, 0.8) * len(grid.v)
    x = random.normal(random.uniform(-0.3, 0.3), random.uniform(0.05, 0.4), count) * len(grid.u)
    y = -0.52 * len(grid.v) + random.uniform(0.0, 0.15, count) * len(grid.v)
    lean, tall = random.normal(0.0, 0.25, (2, count)), high * random.uniform(0.5, 1.0, count)
    radius = random.uniform(0.4, 2.5) * random.uniform(0.6, 1.3, count)
    turns = [(np.sin(angle), np.cos(angle)) for angle in (lean[0], lean[0] + lean[1])]
    return Outline(_bent_strokes(grid, (x, y), turns, 0.5 * tall, radius, 0.2))


LARGE_OUTLINES = (_figure, _figure, _card)
FINE_OUTLINES = (_leaf_spray, _leaf_spray, _twig, _fence, _wire, _word, _tuft)
