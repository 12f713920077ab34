"""A lens before its sensor, to first order: what pixel pitches, blur radii and defocus follow from.

One camera, or many with leading axes on every leaf; arithmetic alone, so that arrays of numpy and of JAX do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .paraxial import FirstOrder, blur_and_defocus, image_position

MM = np.float64(1e3)  # per metre; in double precision, whatever depths come in


@jax.tree_util.register_dataclass
@dataclass(frozen=True)  # no eqx.Module: these are made a hundred thousand times when a data set is drawn
class ParaxialCamera:
    """First-order numbers of a camera; lengths in mm."""

    data: FirstOrder
    sensor: Float[Any, "..."] | float  # behind the last surface
    pixel: Float[Any, "..."] | float
    image_radius: Float[Any, "..."] | float

    def focused(self, focus_m: Any) -> ParaxialCamera:
        """The camera with its sensor where a point at `focus_m` is sharp."""
        return ParaxialCamera(self.data, image_position(self.data, focus_m * MM), self.pixel, self.image_radius)

    def filled(self, diagonal_px: Any) -> ParaxialCamera:
        """The camera with pixels of which so many fill the diameter of its image circle."""
        return ParaxialCamera(self.data, self.sensor, filling_pitch(self.image_radius, diagonal_px), self.image_radius)

    def blur(self, depth_m: Any) -> tuple[Any, Any]:
        """Signed blur radius (pixels, positive beyond the focus) and way from the image to the sensor (mm)."""
        radius, defocus = blur_and_defocus(self.data, depth_m * MM, self.sensor)
        return radius / self.pixel, defocus

    def circle_of_confusion_px(self, depth_m: Any) -> Any:
        """Signed blur radius in pixels of points at `depth_m`, positive beyond the focus."""
        return self.blur(depth_m)[0]


def filling_pitch(image_radius: Any, diagonal_px: Any) -> Any:
    """Pixel pitch (unit of the radius) at which so many pixels fill the diameter of the image circle."""
    return 2.0 * image_radius / diagonal_px
