"""What the procedural scenes are built of: flat cards, balls, and a backdrop at infinity, each with a painted surface.

A surface answers for bundles of rays that leave one point (a_x, a_y, 0) of the pupil with the slopes (dx/dz, dy/dz): at
which depth each ray meets it, and which colour it has there. Its paint is a picture read by bilinear interpolation,
so that surface and colour are functions of the point alone: every ray, from whatever point of the pupil, sees the same
scene. A card with a cut-out (fences, twigs, letters, leaves) is there where its bilinear field is positive.

Colours are linear RGB, float32, light and shadow painted in; they may exceed 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from .fractal_noise import Grid

MOST_TEXELS = 10000  # across a texture
Paint = Callable[[Grid], np.ndarray]
Slopes = Float[np.ndarray, "#rows #columns"]
Texels = Float[np.ndarray, "#rows #columns"]


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a bundle meets a surface: depth (inf: it misses), and where on the texture, in texels."""

    depth_m: Float[np.ndarray, "#rows #columns"]
    column: Texels
    row: Texels


@runtime_checkable
class SceneShape(Protocol):
    """One surface of a scene."""

    @property
    def nearest_m(self) -> float:
        """A depth before which it surely does not lie."""

    def outline(self) -> Float[np.ndarray, "points 3"] | None:
        """Points whose convex hull holds the surface; None where it fills every picture."""

    def hit(self, a: tuple[float, float], dx: Slopes, dy: Slopes) -> Hit:
        """Where the rays from pupil point `a` meet it."""

    def colour(self, column: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Its colour at texture positions, as `bilinear` takes them."""


def bilinear(texture: np.ndarray, column: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Read a texture [height, width] or [height, width, 3] at fractional positions, clamped to its edge.

    Positions are arrays of one shape, or a row of columns and a column of rows, which go faster.
    """
    height, width = texture.shape[:2]
    column = np.clip(column, 0.0, width - 1.001)
    row = np.clip(row, 0.0, height - 1.001)
    i, j = column.astype(np.int32), row.astype(np.int32)
    fi, fj = column - i, row - j
    if column.ndim == 2 and column.shape[0] == 1 and row.shape[1] == 1:
        return _bilinear_by_rows(texture, i[0], j[:, 0], fi[0], fj)
    flat = texture.reshape(height * width, *texture.shape[2:])
    if texture.ndim == 3:
        fi, fj = fi[..., None], fj[..., None]
    corner = j * width + i
    top = flat.take(corner, axis=0, mode="clip")
    top += fi * (flat.take(corner + 1, axis=0, mode="clip") - top)
    bottom = flat.take(corner + width, axis=0, mode="clip")
    bottom += fi * (flat.take(corner + (width + 1), axis=0, mode="clip") - bottom)
    bottom -= top
    bottom *= fj
    top += bottom
    return top


def _bilinear_by_rows(texture: np.ndarray, i: np.ndarray, j: np.ndarray, fi: np.ndarray, fj: np.ndarray) -> np.ndarray:
    """Bilinear where all pixels of a column share i and fi, all of a row j and fj: rows first, then columns."""
    first, last = int(i.min()), int(i.max()) + 2
    bands = math.prod(texture.shape[2:])
    part = texture.reshape(texture.shape[0], -1)[:, first * bands : last * bands]  # a view: no copy
    rows = part[j]
    rows += fj * (part[j + 1] - rows)
    at = ((i - first)[:, None] * bands + np.arange(bands)).ravel()
    left = rows.take(at, axis=1)
    left += np.repeat(fi, bands) * (rows.take(at + bands, axis=1) - left)
    return left.reshape(len(j), len(i), *texture.shape[2:])


class _Painted:
    """What the shapes share: numbers of their own, and a texture that is read by bilinear interpolation."""

    texture: Float[np.ndarray, "texel_rows texel_columns 3"]

    def __post_init__(self) -> None:
        # Python's own numbers: numpy's would turn float32 arrays into float64 ones.
        for name, value in vars(self).items():
            if not isinstance(value, np.ndarray | None):
                plain = tuple(float(v) for v in value) if isinstance(value, tuple) else float(value)
                object.__setattr__(self, name, plain)

    def texels(self, u: np.ndarray, v: np.ndarray, width: float, height: float) -> tuple[Texels, Texels]:
        """Columns and rows of the texture at places (u right, v up) about the middle of its `width` × `height`."""
        rows, columns = self.texture.shape[:2]
        return u * (columns / width) + (columns - 1) / 2.0, v * (-rows / height) + (rows - 1) / 2.0

    def colour(self, column: np.ndarray, row: np.ndarray) -> np.ndarray:
        return bilinear(self.texture, column, row)


def painted(values: np.ndarray) -> np.ndarray:
    """Paint as a texture holds it."""
    return np.ascontiguousarray(values, dtype=np.float32)


def texel_grid(width_m: float, height_m: float, pitch_m: float, seed: int) -> Grid:
    """Texels that fill a rectangle about the origin, `pitch_m` or a little finer."""
    columns, rows = max(2, math.ceil(width_m / pitch_m)), max(2, math.ceil(height_m / pitch_m))
    if max(columns, rows) > MOST_TEXELS:
        raise DefocusError(
            f"a texture of {columns}×{rows} texels; at most {MOST_TEXELS} fit: ask for a smaller picture"
        )
    u = ((np.arange(columns) + 0.5) / columns - 0.5) * width_m
    v = (0.5 - (np.arange(rows) + 0.5) / rows) * height_m
    return Grid(u, v, seed)


@dataclass(frozen=True)
class Card(_Painted):
    """A flat rectangle about `centre`, spanned by the unit vectors `right` and `up`, all in metres."""

    centre: tuple[float, float, float]
    right: tuple[float, float, float]
    up: tuple[float, float, float]
    width_m: float
    height_m: float
    texture: Float[np.ndarray, "texel_rows texel_columns 3"]
    field: Float[np.ndarray, "texel_rows texel_columns"] | None = None  # there where positive; None: everywhere

    @classmethod
    def make(
        cls,
        centre: tuple[float, float, float],
        size_m: tuple[float, float],
        pitch_m: float,
        seed: int,
        paint: Paint,
        cut: Paint | None = None,
        *,
        right: tuple[float, float, float] = (1.0, 0.0, 0.0),
        up: tuple[float, float, float] = (0.0, 1.0, 0.0),
    ) -> Card:
        """Paint a card with texels of `pitch_m`; `cut` gives the field that is positive where the card is."""
        grid = texel_grid(*size_m, pitch_m, seed)
        field = None if cut is None else painted(cut(grid))
        return cls(centre, right, up, *size_m, painted(paint(grid)), field)

    @property
    def nearest_m(self) -> float:
        return float(self.outline()[:, 2].min())

    def outline(self) -> Float[np.ndarray, "4 3"]:
        half_u = np.array(self.right) * self.width_m / 2.0
        half_v = np.array(self.up) * self.height_m / 2.0
        return np.array(self.centre) + np.array([half_u + half_v, half_u - half_v, -half_u + half_v, -half_u - half_v])

    def hit(self, a: tuple[float, float], dx: Slopes, dy: Slopes) -> Hit:
        (cx, cy, cz), (rx, ry, rz), (ux, uy, uz) = self.centre, self.right, self.up
        nx, ny, nz = ry * uz - rz * uy, rz * ux - rx * uz, rx * uy - ry * ux
        if nx == 0.0 and ny == 0.0:  # parallel to the sensor: rows and columns part
            depth: np.ndarray = np.full((1, 1), cz, dtype=np.float32)
        else:
            depth = (nx * (cx - a[0]) + ny * (cy - a[1]) + nz * cz) / (nx * dx + ny * dy + nz)
        x, y, z = a[0] - cx + dx * depth, a[1] - cy + dy * depth, depth - cz
        if (nx, ny, ry, ux) == (0.0, 0.0, 0.0, 0.0):
            u, v = x * rx, y * uy
        else:
            u, v = x * rx + y * ry + z * rz, x * ux + y * uy + z * uz
        column, row = self.texels(u, v, self.width_m, self.height_m)
        there = (np.abs(u) <= self.width_m / 2.0) & (np.abs(v) <= self.height_m / 2.0) & (depth > 0.0)
        if self.field is not None:
            there &= bilinear(self.field, column, row) > 0.0
        return Hit(np.where(there, depth, np.float32(np.inf)), column, row)


@dataclass(frozen=True)
class Ball(_Painted):
    """A sphere, painted by longitude (columns, from the side that faces the camera) and latitude (rows)."""

    centre: tuple[float, float, float]
    radius_m: float
    texture: Float[np.ndarray, "texel_rows texel_columns 3"]

    LONGITUDE = 0.6 * math.pi  # the texture reaches this far to each side: the camera sees less than half a turn

    @classmethod
    def make(
        cls,
        centre: tuple[float, float, float],
        radius_m: float,
        pitch_m: float,
        paint: Callable[[Float[np.ndarray, "3 rows columns"]], np.ndarray],
    ) -> Ball:
        """Paint a ball: `paint` gets the unit normals (x right, y up, z away from the camera)."""
        rows = max(8, math.ceil(math.pi * radius_m / pitch_m))
        columns = max(8, math.ceil(2.0 * cls.LONGITUDE * radius_m / pitch_m))
        latitude = ((0.5 - (np.arange(rows) + 0.5) / rows) * math.pi)[:, None]
        longitude = (((np.arange(columns) + 0.5) / columns - 0.5) * 2.0 * cls.LONGITUDE)[None, :]
        normals = np.stack(
            [
                np.cos(latitude) * np.sin(longitude),
                np.broadcast_to(np.sin(latitude), (rows, columns)),
                -np.cos(latitude) * np.cos(longitude),
            ]
        )
        return cls(centre, radius_m, painted(paint(normals)))

    @property
    def nearest_m(self) -> float:
        return self.centre[2] - self.radius_m

    def outline(self) -> Float[np.ndarray, "8 3"]:
        corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
        return np.array(self.centre) + self.radius_m * corners

    def hit(self, a: tuple[float, float], dx: Slopes, dy: Slopes) -> Hit:
        ox, oy, oz = a[0] - self.centre[0], a[1] - self.centre[1], -self.centre[2]
        # |o + d z|² = r², with the closest approach split off: b²/a − c would cancel in float32.
        square = dx * dx + dy * dy + 1.0
        closest = -(dx * ox + dy * oy + oz) / square
        px, py, pz = ox + dx * closest, oy + dy * closest, oz + closest
        inside = (self.radius_m**2 - (px * px + py * py + pz * pz)) / square
        there = inside > 0.0
        depth = closest - np.sqrt(np.maximum(inside, 0.0))
        x, y, z = ((p / self.radius_m) for p in (ox + dx * depth, oy + dy * depth, oz + depth))
        longitude, latitude = np.arctan2(x, -z), np.arcsin(np.clip(y, -1.0, 1.0))
        place = self.texels(longitude, latitude, 2.0 * self.LONGITUDE, math.pi)
        return Hit(np.where(there, depth, np.float32(np.inf)), *place)


@dataclass(frozen=True)
class Backdrop(_Painted):
    """What lies infinitely far: a picture over the slopes of the rays, `width` × `height` about the axis."""

    width: float
    height: float
    texture: Float[np.ndarray, "texel_rows texel_columns 3"]

    @classmethod
    def make(cls, size: tuple[float, float], pitch: float, seed: int, paint: Paint) -> Backdrop:
        """Paint it with texels of `pitch`; the grid's metres are slopes here."""
        return cls(*size, painted(paint(texel_grid(*size, pitch, seed))))

    @property
    def nearest_m(self) -> float:
        return math.inf

    def outline(self) -> None:
        return None

    def hit(self, a: tuple[float, float], dx: Slopes, dy: Slopes) -> Hit:
        there = (np.abs(dx) <= self.width / 2.0) & (np.abs(dy) <= self.height / 2.0)
        depth = np.where(there, np.float32(np.finfo(np.float32).max), np.float32(np.inf))
        return Hit(depth, *self.texels(dx, dy, self.width, self.height))
