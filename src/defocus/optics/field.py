"""The field of view: image radius, half field angle, and the object-side distance of a field point."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..errors import TraceError
from ..lens.prescription import Lens
from .paraxial import first_order
from .pupil import ChiefRay, chief_ray
from .system import System


@jax.jit
def _chief(system: System, target: Float[Array, ""], by_angle: Bool[Array, ""]) -> ChiefRay:
    """One program for heights and angles."""
    return chief_ray(system, target, by_angle)


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
    chief = _chief(system, jnp.array(math.radians(radius)), jnp.array(True))
    if not bool(chief.found):
        raise TraceError(
            f"{lens.name}: no ray of the outermost field, {radius:.4g}°, crosses the stop's centre; "
            f"the widest that does comes from {math.degrees(float(chief.reach)):.4g}°"
        )
    return float(chief.image_height)


def half_field(lens: Lens, system: System) -> float:
    """Angle (radians) in object space of the real chief ray that lands at the image radius."""
    height = image_radius_of(lens, system)
    chief = _chief(system, jnp.array(height), jnp.array(False))
    if not bool(chief.found):
        raise TraceError(
            f"{lens.name}: no ray through the stop's centre lands {height:.4g} mm from the axis; "
            f"the farthest lands at {float(chief.reach):.4g} mm"
        )
    return float(chief.angle)


def vergence_of(chief: ChiefRay, object_distance: Float[Array, ""] | float) -> Float[Array, ""]:
    """1 / distance (1/mm) along the chief ray from its point on the first surface to an object plane.

    `object_distance` is in mm from the object plane to the first vertex; inf gives 0.
    """
    return chief.direction[2] / (object_distance + chief.position[2])


def rotate(azimuth: Float[Array, ""] | float) -> Float[Array, "3 3"]:
    """Rotation about z that takes the meridian of +y images to `azimuth` (radians from +x, counter-clockwise)."""
    angle = jnp.asarray(azimuth) - jnp.pi / 2.0
    c, s = jnp.cos(angle), jnp.sin(angle)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    return jnp.stack([jnp.stack([c, -s, zero]), jnp.stack([s, c, zero]), jnp.stack([zero, zero, one])])
