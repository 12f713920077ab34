"""The field of view: image radius, and the object-side distance of a field point."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import TraceError
from ..lens.prescription import Lens
from .paraxial import first_order
from .pupil import ChiefRay, chief_ray
from .system import System


@jax.jit
def _chief_at_angle(system: System, angle: Float[Array, ""]) -> ChiefRay:
    return chief_ray(system, angle, "angle")


def image_radius_of(lens: Lens, system: System) -> float:
    """Half diagonal of the image (mm): the prescription's own, or what its outermost field point gives.

    Angles are traced by the real chief ray, object heights by the paraxial magnification.
    """
    if lens.image_radius is not None:
        return lens.image_radius
    if lens.field is None or lens.field.radius == 0.0:
        raise TraceError(f"{lens.name}: no image radius and no field away from the axis; give one in the prescription")
    radius = lens.field.radius
    if lens.field.kind in ("real_image_height", "paraxial_image_height"):
        return radius
    if lens.field.kind == "object_height":
        data = first_order(system)
        from_focus = lens.object_distance + float(data.front_focal_distance)
        return abs(radius * float(data.focal_length) / from_focus)
    chief = _chief_at_angle(system, jnp.array(math.radians(radius)))
    if not bool(chief.found):
        raise TraceError(
            f"{lens.name}: no ray of the outermost field, {radius:.4g}°, crosses the stop's centre; "
            f"the widest that does comes from {math.degrees(float(chief.reach)):.4g}°"
        )
    return float(chief.image_height)


def vergence_of(chief: ChiefRay, object_distance: Float[Array, ""] | float) -> Float[Array, ""]:
    """1 / distance (1/mm) along the chief ray from its point on the first surface to an object plane.

    `object_distance` is in mm from the object plane to the first vertex; inf gives 0.
    """
    return chief.direction[2] / (object_distance + chief.position[2])
