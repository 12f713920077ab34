"""A lens before its sensor, to first order: what pixel pitches, blur radii and defocus follow from.

One camera, or many with leading axes on every leaf; arithmetic alone, so that arrays of numpy and of JAX do.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .paraxial import FirstOrder, blur_radius, image_position

MM = np.float64(1e3)  # per metre; in double precision, whatever depths come in


class ParaxialCamera(eqx.Module):
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

    def circle_of_confusion_px(self, depth_m: Any) -> Any:
        """Signed blur radius in pixels of points at `depth_m`, positive beyond the focus."""
        return blur_radius(self.data, depth_m * MM, self.sensor) / self.pixel

    def defocus_mm(self, depth_m: Any) -> Any:
        """Distance from the image of a point at `depth_m` to the sensor."""
        return self.sensor - image_position(self.data, depth_m * MM)

    @property
    def front_focus_m(self) -> Any:
        """Distance of the front focal point from the entrance pupil; nearer points have no image. Negative: none is."""
        return (self.data.entrance_pupil - self.data.front_focal_distance) * 1e-3


def filling_pitch(image_radius: Any, diagonal_px: Any) -> Any:
    """Pixel pitch (unit of the radius) at which so many pixels fill the diameter of the image circle."""
    return 2.0 * image_radius / diagonal_px
