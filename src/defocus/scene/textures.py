"""Paint for the procedural scenes: walls, wood, cloth, stone, grass, skies, lamps, and balls. Linear RGB.

Each paint of a texture's grid is fractal noise under a pattern, with the light and shadow of its relief painted in.
Patterns finer than the texels fade out instead of aliasing.

Paint of balls is a function of the unit normal (x right, y up, z away from the camera), light painted in. The light
does not depend on where the eye is, gloss included: the surface then looks the same from every point of the pupil, and
a picture of it is a function of the surface alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from ..srgb import from_srgb
from .fractal_noise import Grid, fractal, fractal_3d, hashed, noise

Rgb = Float[np.ndarray, "height width 3"]
Plane = Float[np.ndarray, "height width"]
Normals = Float[np.ndarray, "3 rows columns"]
BallPaint = Callable[[Normals], Rgb]
RAMP_STEPS = 4096
SUN = (-0.55, 0.6)  # light falls on reliefs from the upper left

KEY = np.array([-0.55, 0.65, -0.52])  # from the upper left, behind the camera
HALF = np.array([-0.36, 0.42, -0.83])  # where a lamp there would mirror

# Colours that several scenes share, as sRGB codes from dark to light.
GREENS = ("1c3312", "2f4f1b", "47702a", "6d9438", "a3b85a")
AUTUMN = ("7a2416", "a8431c", "c9701f", "d99a2b", "8a7a2a")
OAK = ("3b2414", "5e3a20", "865732", "a9764a", "c89a6c")
WARM = ("ffb35c", "ffd08a", "ffe7c4", "ff8f4d")


def hex_colour(code: str) -> Float[np.ndarray, "3"]:
    """Linear RGB of an sRGB colour such as "c68642"."""
    value = np.array([int(code[i : i + 2], 16) for i in (0, 2, 4)]) / 255.0
    return from_srgb(value)


def ramp(t: Float[np.ndarray, "*shape"], codes: Sequence[str]) -> Float[np.ndarray, "*shape 3"]:
    """Colours along a list of sRGB codes, t from 0 to 1."""
    return _ramp_table(tuple(codes)).take((t * (RAMP_STEPS - 1) + 0.5).astype(np.int32), axis=0, mode="clip")


@lru_cache
def _ramp_table(codes: tuple[str, ...]) -> Float[np.ndarray, "steps 3"]:
    """The colours of a ramp: kept, because a scene has hundreds of leaves in the same few."""
    stops = np.stack([hex_colour(code) for code in codes])
    at, steps = np.linspace(0.0, 1.0, len(codes)), np.linspace(0.0, 1.0, RAMP_STEPS)
    return np.stack([np.interp(steps, at, stops[:, band]) for band in range(3)], axis=-1).astype(np.float32)


def smooth(x: Float[np.ndarray, "*shape"], low: float, high: float) -> Float[np.ndarray, "*shape"]:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((x - low) / (high - low), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def relief(height_m: Plane, pitch_m: float, strength: float = 1.0) -> Plane:
    """Brightness of a surface of that height (metres) under a slanting sun; 1 where it is flat."""
    down, right = np.gradient(height_m, pitch_m)
    return np.clip(1.0 - strength * (SUN[0] * right - SUN[1] * down), 0.15, 2.5)


def resolved(period_m: float, pitch_m: float) -> float:
    """How much of a pattern of that period the texels can show: 1 from five texels on, 0 at two."""
    return float(np.clip((period_m / pitch_m - 2.0) / 3.0, 0.0, 1.0))


def brick(grid: Grid, brick_m: tuple[float, float] = (0.21, 0.07), palette: Sequence[str] = ()) -> Rgb:
    """A wall in running bond."""
    wide, high = brick_m
    rows = grid.rows + 0.004 * noise(grid, 0.3, 0.3, 1)
    row = np.floor(rows / high)
    columns = grid.columns + 0.003 * noise(grid, 0.3, 0.3, 2) + 0.5 * wide * (row % 2)
    column = np.floor(columns / wide)
    edge_u = wide / 2 - np.abs(columns - (column + 0.5) * wide)
    edge_v = high / 2 - np.abs(rows - (row + 0.5) * high)
    rough = fractal(grid, 0.05, gain=0.8, tag=3)
    joint = 0.07 * high
    inside = np.minimum(edge_u, edge_v) - joint * (1.0 + 0.35 * rough)
    stone = smooth(inside, -0.5 * max(joint, grid.pitch), max(0.6 * joint, grid.pitch))
    own = hashed(row.astype(int), column.astype(int), grid.seed)
    tone = np.clip(own + 0.12 * rough + 0.08 * fractal(grid, 0.8, tag=4), 0.0, 1.0)
    clay = ramp(tone, palette or ("5a2a20", "7d3b2a", "94492f", "a5573a", "6e3a30", "b87352"))
    mortar = hex_colour("a39a8c") * (1.0 + 0.18 * rough)[..., None]
    colour = mortar + stone[..., None] * (clay - mortar)
    height = 0.010 * stone + 0.0012 * rough
    weather = np.exp(0.16 * fractal(grid, 1.5, gain=0.7, tag=5))
    return np.clip(colour * (relief(height, grid.pitch, 0.5) * weather)[..., None], 0.0, None)


def planks(grid: Grid, board_m: float, palette: Sequence[str], *, gap: float = 0.025, upright: bool = False) -> Rgb:
    """Wooden boards along u (or along v)."""
    if upright:
        turned = planks(Grid(-grid.v, grid.u[::-1], grid.seed), board_m, palette, gap=gap)
        return turned.transpose(1, 0, 2)[:, ::-1]
    board = np.floor(grid.rows / board_m) + 0.0 * grid.columns
    within = grid.rows / board_m - board - 0.5
    own = hashed(board.astype(int), 0 * board.astype(int), grid.seed)
    fibre = fractal(grid, 0.02, gain=0.85, stretch=14.0, tag=1)
    bend = noise(grid, 3.0 * board_m, 0.5 * board_m, 2) + 0.5 * fractal(grid, board_m, stretch=6.0, gain=0.5, tag=3)
    rings = np.sin(2.0 * math.pi * (7.0 * own + 2.2 * within + 0.9 * bend))
    tone = 0.5 + 0.16 * rings + 0.13 * fibre + 0.4 * (own - 0.5)
    seam = smooth(0.5 - np.abs(within), 0.0, max(gap, 1.5 * grid.pitch / board_m))
    stain = np.exp(0.12 * fractal(grid, 0.6, gain=0.7, tag=4))
    return ramp(np.clip(tone, 0.0, 1.0), palette) * (stain * (0.15 + 0.85 * seam))[..., None]


def cloth(grid: Grid, codes: Sequence[str], stripe_m: float, *, folds_m: float = 0.0, thread_m: float = 0.004) -> Rgb:
    """Tartan weave of the given colours; `folds_m` is the width of hanging folds, 0 for none."""
    sag = 0.15 * stripe_m * noise(grid, 0.4, 0.6, 9)
    u = grid.columns + sag + (0.25 * folds_m * noise(grid, folds_m, 4.0 * folds_m, 8) if folds_m else 0.0)
    v = grid.rows + 0.5 * sag

    def stripes(x: Plane, seed: int) -> Float[np.ndarray, "height width 3"]:
        sett = hashed(np.arange(12), np.full(12, seed), grid.seed)
        which = (sett * len(codes)).astype(int) % len(codes)
        table = np.stack([hex_colour(code) for code in codes])[which]
        place = (x / stripe_m) % 12.0
        left = np.floor(place).astype(int)
        blend = smooth(place - left, 1.0 - max(0.08, grid.pitch / stripe_m), 1.0)[..., None]
        return table[left] * (1.0 - blend) + table[(left + 1) % 12] * blend

    warp, weft = stripes(u, 1), stripes(v, 1)
    turns = 2.0 * math.pi / thread_m
    shown = resolved(thread_m, grid.pitch)
    over = 0.5 + 0.5 * shown * np.sin(turns * (u + v))
    colour = over[..., None] * warp + (1.0 - over[..., None]) * weft
    knit = 1.0 + 0.22 * shown * (np.sin(turns * (u - v) * 1.0) * np.sin(turns * (u + v) * 0.5))
    light = knit * np.exp(0.10 * fractal(grid, 0.08, gain=0.9, tag=1))
    if folds_m:
        light = light * np.exp(
            0.42 * noise(grid, folds_m, 6.0 * folds_m, 4) + 0.15 * noise(grid, folds_m / 2, 3.0 * folds_m, 5)
        )
    return colour * light[..., None]


def stone(grid: Grid, palette: Sequence[str], largest_m: float = 0.6, gain: float = 0.8) -> Rgb:
    """Plaster, stone, paper or clouds: fractal noise through a palette."""
    f = fractal(grid, largest_m, gain=gain, tag=1)
    colour = ramp(np.clip(0.5 + 0.2 * f, 0.0, 1.0), palette)
    return (
        colour * relief(0.02 * largest_m * fractal(grid, largest_m / 4, gain=0.7, tag=2), grid.pitch, 0.25)[..., None]
    )


def grass(grid: Grid, palette: Sequence[str] = ("1d2b0e", "3c5a1c", "5d7f2a", "8fa84a")) -> Rgb:
    """A meadow seen from above."""
    blades = 0.6 * fractal(grid, 0.03, gain=0.95, tag=1) + 0.6 * fractal(grid, 0.5, gain=0.8, tag=2)
    patches = fractal(grid, 2.5, gain=0.6, tag=3)
    dry = smooth(patches, 0.3, 2.0)[..., None]
    green = ramp(np.clip(0.45 + 0.2 * blades, 0.0, 1.0), palette)
    return green * (1.0 - 0.5 * dry) + 0.5 * dry * ramp(np.clip(0.5 + 0.2 * blades, 0, 1), ("4a3d1c", "b7a15c"))


def sky(grid: Grid, *, horizon: float = 0.0, palette: Sequence[str] = ("dfe6ea", "9fc0de", "4f86c6")) -> Rgb:
    """A sky with clouds above a horizon (slopes as metres), hills below."""
    up = grid.rows - horizon + 0.0 * grid.columns
    height = np.clip(up / 0.5, 0.0, 1.0)
    colour = ramp(height**0.7, palette)
    clouds = smooth(fractal(grid, 0.25, gain=0.62, stretch=2.2, tag=1), 0.0, 2.2)[..., None]
    shade = np.exp(0.12 * fractal(grid, 0.1, gain=0.7, stretch=2.0, tag=2))[..., None]
    colour = colour * (1.0 - clouds) + clouds * shade * hex_colour("fbf3e8") * 1.15
    for k, (rise, roll, code) in enumerate(
        ((0.055, 0.030, "9db3c4"), (0.025, 0.022, "6f8c93"), (-0.01, 0.016, "47644f"), (-0.045, 0.012, "2c4527"))
    ):
        ridge = rise + roll * (noise(grid, 0.14, 1e6, 20 + k) + 0.35 * noise(grid, 0.03, 1e6, 30 + k))
        trees = (0.004 + 0.002 * k) * np.abs(fractal(grid, 0.012 + 0.006 * k, gain=0.8, tag=10 + k))
        mask = smooth(ridge + trees - up, -grid.pitch, grid.pitch)[..., None]
        texture = np.exp((0.05 + 0.07 * k) * fractal(grid, 0.06, gain=0.85, tag=14 + k))[..., None]
        colour = colour * (1.0 - mask) + mask * hex_colour(code) * texture
    return colour


def city_at_night(grid: Grid, horizon: float = 0.0) -> Rgb:
    """Houses with lit windows under a dusk sky, for a backdrop."""
    up = grid.rows - horizon + 0.0 * grid.columns
    colour = ramp(np.clip(0.15 + up / 0.6, 0.0, 1.0), ("d9825b", "8a5a78", "3a3a68", "161c3c", "0b1024")) * 0.35
    colour = colour * np.exp(0.12 * fractal(grid, 0.3, stretch=3.0, gain=0.6, tag=1))[..., None]
    for k, (block, tall, code) in enumerate(
        ((0.055, 0.12, "2a2c44"), (0.075, 0.075, "1b1d30"), (0.1, 0.035, "0f101c"))
    ):
        house = np.floor(grid.columns / block + 0.37 * k).astype(int)
        top = tall * (0.35 + 1.1 * hashed(house, np.full_like(house, 50 + k), grid.seed))
        mask = smooth(top - up, -grid.pitch, grid.pitch)[..., None]
        wall = hex_colour(code) * np.exp(0.15 * fractal(grid, 0.1, tag=60 + k))[..., None]
        step = 0.011 + 0.003 * k
        i, j = np.floor(grid.columns / step).astype(int), np.floor(grid.rows / step).astype(int)
        cell_u, cell_v = grid.columns / step - i - 0.5, grid.rows / step - j - 0.5
        i, j = np.broadcast_arrays(i, j)
        lit = hashed(i, j, grid.seed + 7 * k) > 0.72
        pane = smooth(0.33 - np.maximum(np.abs(cell_u), np.abs(cell_v)), 0.0, max(0.1, grid.pitch / step))
        tint = ramp(hashed(j, i, grid.seed + 90 + k), ("ffb35c", "ffd9a0", "ffe9c9", "bcd6ff"))
        wall = wall + (lit * pane * (0.3 + 1.4 * hashed(i + 5, j, grid.seed + k)))[..., None] * tint
        colour = colour * (1.0 - mask) + mask * wall
    return colour


def lamps(
    grid: Grid,
    count: int,
    radius_m: float,
    brightest: float,
    codes: Sequence[str],
    *,
    region: tuple[float, float, float, float] | None = None,
    tag: int = 0,
) -> Rgb:
    """Small round lamps, brighter than white, to be added to a paint; `region` is left, right, bottom, top."""
    rng = np.random.default_rng([grid.seed, 77, tag])
    left, right, bottom, top = region or (grid.u[0], grid.u[-1], grid.v[-1], grid.v[0])
    light = np.zeros((len(grid.v), len(grid.u), 3))
    for _ in range(count):
        x, y = rng.uniform(left, right), rng.uniform(bottom, top)
        radius = radius_m * rng.uniform(0.7, 1.3)
        power = brightest * rng.uniform(0.15, 1.0) ** 1.5
        colour = hex_colour(codes[int(rng.integers(len(codes)))])
        i = np.flatnonzero(np.abs(grid.u - x) < 2.5 * radius)
        j = np.flatnonzero(np.abs(grid.v - y) < 2.5 * radius)
        if i.size and j.size:
            distance = np.hypot(grid.u[i][None, :] - x, grid.v[j][:, None] - y) / radius
            core = smooth(-distance, -1.3, -0.3) + 0.04 * smooth(-distance, -2.5, 0.0)
            light[j[0] : j[-1] + 1, i[0] : i[-1] + 1] += power * core[..., None] * (0.25 + 0.75 * colour)
    return light


def _along(n: Normals, direction: Sequence[float] | np.ndarray) -> Float[np.ndarray, "rows columns"]:
    d = np.asarray(direction, dtype=float)
    return np.tensordot(d / np.linalg.norm(d), n, axes=1)


def lit(n: Normals, albedo: Rgb, *, gloss: float = 0.0, bounce: str = "6b5a48") -> Rgb:
    """Albedo under a warm sun, a blue sky and light from the ground; `gloss` is the brightness of a mirrored lamp."""
    sun = 1.15 * np.clip(_along(n, KEY), 0.0, 1.0)[..., None] * hex_colour("fff1dc")
    sky = (0.5 + 0.5 * n[1])[..., None] ** 1.5 * 0.42 * hex_colour("cfe0f5")
    ground = np.clip(0.5 - 0.5 * n[1], 0.0, 1.0)[..., None] ** 2 * 0.5 * hex_colour(bounce)
    mirrored = _along(n, HALF)
    spark = gloss * smooth(mirrored, 0.985, 0.993) + 0.12 * (gloss > 0.0) * np.clip(mirrored, 0.0, 1.0) ** 24
    rim = 0.10 * (1.0 - np.clip(-n[2], 0.0, 1.0)) ** 3
    return albedo * (sun + sky + ground) + (spark + rim * (gloss > 0.0))[..., None]


def mottled(seed: int, palette: Sequence[str], *, largest: float = 0.6, gloss: float = 0.0) -> BallPaint:
    """Stone, fruit or clay."""

    def paint(n: Normals) -> Rgb:
        tone = np.clip(0.5 + 0.22 * fractal_3d(n, largest, seed, gain=0.75), 0.0, 1.0)
        return lit(n, ramp(tone, palette), gloss=gloss)

    return paint


def swirled(seed: int, palette: Sequence[str], *, turns: float = 2.0, gloss: float = 4.0) -> BallPaint:
    """A glass marble with ribbons of colour."""

    def paint(n: Normals) -> Rgb:
        axis = hashed(np.arange(3), np.arange(3) + 5, seed) - 0.5
        phase = turns * 3.0 * _along(n, axis) + 0.55 * fractal_3d(n, 0.8, seed, gain=0.5)
        tone = 0.5 + 0.5 * np.sin(3.0 * phase)
        speck = 0.05 * fractal_3d(n, 0.12, seed + 1, octaves=3)
        return lit(n, ramp(np.clip(tone + speck, 0.0, 1.0), palette), gloss=gloss)

    return paint


def striped(
    seed: int, palette: Sequence[str], *, count: int = 8, tilt_deg: float = 20.0, gloss: float = 2.0
) -> BallPaint:
    """A beach ball: gores about a tilted axis."""

    def paint(n: Normals) -> Rgb:
        t = np.radians(tilt_deg)
        x, y = np.cos(t) * n[0] - np.sin(t) * n[1], np.sin(t) * n[0] + np.cos(t) * n[1]
        place = (np.arctan2(n[2], x) / (2.0 * np.pi) + 0.5) * count
        gore = np.floor(place)
        edge = 0.5 - np.abs(place - gore - 0.5)
        colours = np.stack([hex_colour(code) for code in palette])
        albedo = colours[gore.astype(int) % len(palette)]
        seam = smooth(edge * np.sqrt(np.clip(1 - y**2, 0, 1)), 0.0, 0.05)
        cap = smooth(np.abs(y), 0.955, 0.965)[..., None]
        albedo = (albedo * (1 - cap) + cap * hex_colour("f4efe2")) * (0.7 + 0.3 * seam)[..., None]
        return lit(n, albedo * np.exp(0.06 * fractal_3d(n, 0.2, seed))[..., None], gloss=gloss)

    return paint


def knitted(seed: int, palette: Sequence[str], *, rows: int = 26) -> BallPaint:
    """A jumper: rows of stitches with coloured bands."""

    def paint(n: Normals) -> Rgb:
        latitude = np.arcsin(np.clip(n[1], -1.0, 1.0)) / np.pi + 0.5
        longitude = np.arctan2(n[0], -n[2]) / np.pi
        band = (latitude * 11.0).astype(int)
        colours = np.stack([hex_colour(code) for code in palette])
        albedo = colours[(hashed(band, 0 * band, seed) * len(palette)).astype(int) % len(palette)]
        across = longitude * rows * 1.3
        lean = np.abs(across % 1.0 - 0.5)
        stitch = np.sin(2 * np.pi * (latitude * rows + 0.8 * lean))
        wool = np.exp(0.22 * stitch - 0.5 * np.exp(-((lean * 9.0) ** 2)) + 0.10 * fractal_3d(n, 0.1, seed, octaves=3))
        return lit(n, albedo * wool[..., None])

    return paint


def face(seed: int, skin: Sequence[str]) -> BallPaint:
    """A doll's head: eyes, cheeks and a smile on wood."""

    def paint(n: Normals) -> Rgb:
        grain = fractal_3d(np.stack([n[0] * 0.35, n[1] * 2.5, n[2] * 0.35]), 0.8, seed, gain=0.7)
        albedo = ramp(np.clip(0.5 + 0.16 * grain, 0, 1), skin)
        gloss = np.zeros(albedo.shape[:2])
        for side in (-1.0, 1.0):
            cheek = smooth(_along(n, (0.50 * side, -0.28, -0.8)), 0.955, 0.995)[..., None] * 0.55
            albedo = albedo * (1 - cheek) + cheek * hex_colour("e0674f")
            eye = smooth(_along(n, (0.30 * side, 0.08, -0.92)), 0.9905, 0.9925)[..., None]
            albedo = albedo * (1 - eye) + eye * hex_colour("17120f")
            gloss += 3.0 * smooth(_along(n, (0.30 * side - 0.035, 0.125, -0.92)), 0.9990, 0.9994)
        ring = np.abs(np.arccos(np.clip(_along(n, (0.0, 0.06, -0.95)), -1.0, 1.0)) - 0.46)
        mouth = smooth(-ring, -0.034, -0.022) * smooth(-np.abs(n[0]), -0.33, -0.30) * (n[1] < -0.05)
        albedo = albedo * (1 - mouth[..., None]) + mouth[..., None] * hex_colour("8d2f2a")
        return lit(n, albedo, gloss=0.35) + gloss[..., None]

    return paint
