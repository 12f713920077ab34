"""Paint for balls: functions of the unit normal (x right, y up, z away from the camera), light painted in.

The light does not depend on where the eye is, gloss included: the surface then looks the same from every point of the
pupil, and a picture of it is a function of the surface alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from .fractal_noise import fractal_3d, hashed
from .textures import hex_colour, ramp, smooth

Normals = Float[np.ndarray, "3 rows columns"]
Rgb = Float[np.ndarray, "rows columns 3"]
BallPaint = Callable[[Normals], Rgb]
KEY = np.array([-0.55, 0.65, -0.52])  # from the upper left, behind the camera
HALF = np.array([-0.36, 0.42, -0.83])  # where a lamp there would mirror


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
