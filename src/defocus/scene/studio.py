"""Where the procedural scenes are built: surfaces that fill the picture, floors, balls, and what a composition is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .balls import BallPaint
from .cutouts import Cut
from .noise import Grid
from .shapes import Backdrop, Ball, Card, Paint, Surface, texel_grid
from .thin_lens import View

FRAME_DIAGONAL_MM = 43.267  # 24 × 36 mm
COVER = 1.45  # surfaces that fill the picture are this much wider: for blur and margins
FLOOR_COVER = 1.25
TEXEL_PX = 0.8  # a texel's size in pixels of the picture, where the surface is nearest


@dataclass(frozen=True)
class Studio:
    """Makes surfaces for one picture."""

    view: View
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
        made = make(texel_grid(*size, self.pitch(depth_m), self.seed * 101 + tag))
        texture, field = (np.ascontiguousarray(v, dtype=np.float32) for v in (made.paint, made.field))
        return Card((0.0, 0.0, depth_m), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), *size, texture, field)

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

    def floor(self, level_m: float, near_m: float, far_m: float, tag: int, paint: Paint, rise: float = 0.0) -> Card:
        """A floor at height `level_m` at `near_m`, rising by `rise` per metre; its grid's v runs into the depth."""
        slope = np.hypot(1.0, rise)
        up = (0.0, rise / slope, 1.0 / slope)
        length = (far_m - near_m) * slope
        centre = (0.0, level_m + rise * (far_m - near_m) / 2, (near_m + far_m) / 2)
        size = (2 * FLOOR_COVER * self.half_width(far_m), length)
        entry = max(near_m, (level_m - rise * near_m) / (-self.half_height(1.0) - rise))  # where the picture begins
        return Card.make(centre, size, 1.5 * self.pitch(entry), self.seed * 101 + tag, paint, up=up)

    def ball(self, centre: tuple[float, float, float], radius_m: float, paint: BallPaint) -> Ball:
        return Ball.make(centre, radius_m, self.pitch(centre[2] - radius_m), paint)

    def backdrop(self, tag: int, paint: Paint) -> Backdrop:
        half = COVER * 2.0 * self.half_width(1.0), COVER * 2.0 * self.half_height(1.0)
        return Backdrop.make(half, TEXEL_PX / self.view.focal_px, self.seed * 101 + tag, paint)


@dataclass(frozen=True)
class Composition:
    """A recipe: `build` makes the surfaces."""

    about: str
    focal_length_mm: float
    pupil_radius_mm: float
    focus_m: float
    build: Callable[[Studio], tuple[Surface, ...]]
