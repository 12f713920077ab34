"""Where the procedural scenes are built: surfaces that fill the picture, floors and balls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .balls import BallPaint
from .cutouts import Cut
from .fractal_noise import Grid
from .shapes import Backdrop, Ball, Card, Paint, painted, texel_grid
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
