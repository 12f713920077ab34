"""The camera of the procedural scenes: a pinhole for the sharp picture, a thin lens for the blurred one.

The frame has its origin in the middle of the entrance pupil, x to the right, y up, z into the scene; depth is z, in
metres. Both pictures have the same field of view, given by the distance of the sensor behind the pupil in pixels
(`focal_px`), which stays when the focus moves. The ray of a pixel with the slopes t = (x/z, y/z) that leaves the pupil
at the point A meets the others of its pixel on the plane in focus:

    P(z) = A + (t − A / focus) z

so that a point at depth z spreads over the pupil's shape scaled by the signed circle of confusion

    c(z) = focal_px · pupil_radius · (1 / focus − 1 / z)      (pixels; positive beyond the focus, negative nearer)

in the photograph: with a pupil as seen from behind the camera, farther points show it upright and nearer ones turned by
180°.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DefocusError


@dataclass(frozen=True, slots=True)
class PinholeView:
    """A picture's size in pixels and its field of view: `focal_px` is the pupil's distance from the sensor."""

    width: int
    height: int
    focal_px: float

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise DefocusError(f"a picture of {self.width}×{self.height} pixels; expected at least 1×1")
        if not 0.0 < self.focal_px < math.inf:
            raise DefocusError(f"focal length {self.focal_px} px; expected a positive number")

    def padded(self, margin_px: int) -> PinholeView:
        """The same camera with `margin_px` more pixels on each side: what lies beyond the frame."""
        return PinholeView(self.width + 2 * margin_px, self.height + 2 * margin_px, self.focal_px)

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy in pixels, the middle of pixel (0, 0) at (0, 0)."""
        return self.focal_px, self.focal_px, (self.width - 1) / 2.0, (self.height - 1) / 2.0


@dataclass(frozen=True, slots=True)
class ThinLens:
    """An entrance pupil of `pupil_radius_mm`, in focus at `focus_m` (inf is allowed)."""

    pupil_radius_mm: float
    focus_m: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.pupil_radius_mm < math.inf:
            raise DefocusError(f"pupil radius {self.pupil_radius_mm} mm; expected a number from 0")
        if not self.focus_m > 0.0:
            raise DefocusError(f"focus distance {self.focus_m} m; expected a positive number or inf")

    def circle_of_confusion_px(self, depth_m: Any, focal_px: float) -> Any:
        """Signed blur radius in pixels of points at `depth_m`."""
        return circle_of_confusion_px(depth_m, self.focus_m, self.pupil_radius_mm, focal_px)


def circle_of_confusion_px(depth_m: Any, focus_m: Any, pupil_radius_mm: Any, focal_px: Any) -> Any:
    """Signed blur radius in pixels, positive beyond the focus; numbers, numpy or JAX arrays, inf included."""
    return focal_px * (1e-3 * pupil_radius_mm) * (1.0 / focus_m - 1.0 / depth_m)


def near_depth_edge(
    coc_px: Float[np.ndarray, "height width"], step_px: float = 1.0, margin_px: float = 1.0
) -> Bool[np.ndarray, "height width"]:
    """Pixels that lie within one circle of confusion of a depth edge.

    A depth edge runs between two neighbours (also diagonal ones) whose signed circles of confusion differ by more than
    `step_px`. The larger blur of the two reaches that far from it, `margin_px` more for the width of a pixel.
    """
    from scipy.ndimage import distance_transform_edt

    coc = np.asarray(coc_px, dtype=np.float32)
    reach = np.zeros_like(coc)
    height, width = coc.shape
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        here = (slice(0, height - down), slice(max(0, -right), width - max(0, right)))
        there = (slice(down, height), slice(max(0, right), width - max(0, -right)))
        a, b = coc[here], coc[there]
        blur = np.where(np.abs(a - b) > step_px, np.maximum(np.abs(a), np.abs(b)), 0.0)
        np.maximum(reach[here], blur, out=reach[here])
        np.maximum(reach[there], blur, out=reach[there])
    near = np.zeros(coc.shape, dtype=bool)
    for level in np.unique(np.ceil(reach[reach > 0.0])):
        near |= distance_transform_edt(reach <= level - 1.0) <= level + margin_px
    return near
