"""First-order optics: y–nu ray traces and what follows from them.

A paraxial ray is (y, ν) with height y in mm and reduced angle ν = n·u. At a surface ν' = ν − y·φ, φ = (n' − n)·c;
through a space y' = y + ν·t/n. Distances are in mm along +z. All functions take one lens and are meant for `vmap`.

Depth is measured from the entrance pupil, in mm inside this package. The sign of the circle of confusion is positive
for points beyond the plane in focus (their image lies in front of the sensor), negative for nearer points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lens.prescription import Lens
from ..stored_program import StoredProgram
from .batch import on_host
from .system import System

MM = np.float64(1e3)  # per metre; in double precision, whatever depths come in


class FirstOrder(eqx.Module):
    """First-order data of one lens; lengths in mm.

    Positions on the object side count from the first surface's vertex, on the image side from the last surface's.
    """

    focal_length: Float[Array, "*batch"]  # rear focal length: −1/Φ in air is positive for a converging lens
    back_focal_distance: Float[Array, "*batch"]  # last surface to the rear focal point
    front_focal_distance: Float[Array, "*batch"]  # first surface to the front focal point, usually negative
    front_principal: Float[Array, "*batch"]
    rear_principal: Float[Array, "*batch"]
    entrance_pupil: Float[Array, "*batch"]
    entrance_pupil_radius: Float[Array, "*batch"]
    exit_pupil: Float[Array, "*batch"]
    exit_pupil_radius: Float[Array, "*batch"]
    stop_radius: Float[Array, "*batch"]
    f_number: Float[Array, "*batch"]  # |focal length| / entrance pupil diameter
    na: Float[Array, "*batch"]  # sin(arctan(exit pupil radius / its distance to the focal point))
    image_plane: Float[Array, "*batch"]  # last surface to the prescription's image plane
    total_track: Float[Array, "*batch"]  # foremost refracting surface to the image plane
    object_index: Float[Array, "*batch"]
    image_index: Float[Array, "*batch"]

    @property
    def front_focus(self) -> Any:
        """Distance of the front focal point before the entrance pupil; nearer points have no image. Negative: none."""
        return self.entrance_pupil - self.front_focal_distance

    @property
    def nearest_m(self) -> float:
        """Depth (m) beyond which points have an image: that of the front focal point, 0 where all have one."""
        return max(float(self.front_focus) * 1e-3, 0.0)

    @property
    def inverse_pupil_magnification(self) -> Any:
        """Size of the entrance pupil over that of the exit pupil, zero for an exit pupil at infinity."""
        return self.focal_length / (self.back_focal_distance - self.exit_pupil)


def _matrices(system: System) -> tuple[Float[Array, "2 2"], Float[Array, "2 2"], Float[Array, "2 2"]]:
    """Matrices on (y, ν): first to last vertex; first vertex to the stop's; the stop's to the last.

    Refraction at the stop itself counts as behind it: its centre is the same point either way.
    """
    power = (system.index[1:] - system.index[:-1]) * system.vertex_curvature
    number = jnp.arange(system.surfaces)
    last = jnp.max(jnp.where(system.active, number, 0))
    distance = jnp.where(number == last, 0.0, system.thickness / system.index[1:])

    def step(matrices, surface):  # type: ignore[no-untyped-def]
        phi, reduced, i = surface
        refraction = jnp.array([[1.0, 0.0], [-phi, 1.0]])
        matrix = jnp.array([[1.0, reduced], [0.0, 1.0]]) @ refraction
        whole, before, behind = matrices
        is_before = i < system.stop
        return (
            matrix @ whole,
            jnp.where(is_before, matrix @ before, before),
            jnp.where(is_before, behind, matrix @ behind),
        ), None

    unit = jnp.eye(2)
    matrices, _ = jax.lax.scan(step, (unit, unit, unit), (power, distance, number))
    return matrices


def heights_and_angles(
    system: System, y: Float[Array, ""], nu: Float[Array, ""]
) -> tuple[Float[Array, " surfaces"], Float[Array, " surfaces"], Float[Array, " surfaces"]]:
    """A paraxial ray's height y (mm) at each surface, and its reduced angles ν before and behind it.

    The ray is given at the first surface's vertex plane.
    """
    power = (system.index[1:] - system.index[:-1]) * system.vertex_curvature

    def step(ray, surface):  # type: ignore[no-untyped-def]
        y, nu = ray
        phi, distance, index = surface
        bent = nu - y * phi
        return (y + bent * distance / index, bent), (y, nu, bent)

    _, rays = jax.lax.scan(step, (y, nu), (power, system.thickness, system.index[1:]))
    return rays


@StoredProgram
def first_order(system: System) -> FirstOrder:
    """First-order data of one lens."""
    n, n_image = system.index[0], system.index[-1]
    whole, before, behind = _matrices(system)
    (a, _), (c, d) = whole
    (a1, b1), _ = before
    (a2, b2), (c2, d2) = behind
    power = -c
    focal_length = n_image / power
    back_focal = n_image * a / power
    front_focal = -n * d / power

    stop_radius = system.semi_diameter[system.stop]
    entrance = n * b1 / a1  # a ray from the axis there crosses the stop's centre
    entrance_radius = jnp.abs(stop_radius / a1)
    exit_ = -n_image * b2 / d2
    exit_radius = jnp.abs(stop_radius * (a2 - b2 * c2 / d2))
    # A ray through the stop's rim parallel to the axis in object space leaves with angle −Φ·(entrance radius): for a
    # telecentric lens the ratio of radius and distance of the exit pupil stays finite in this form.
    tangent = jnp.abs(entrance_radius * power / n_image)

    number = jnp.arange(system.surfaces)
    powered = system.active & (system.index[1:] != system.index[:-1])
    vertex = jnp.cumsum(system.thickness) - system.thickness
    last = jnp.max(jnp.where(system.active, number, 0))
    end = jnp.sum(system.thickness)
    foremost = jnp.min(jnp.where(powered, vertex, jnp.inf))
    return FirstOrder(
        focal_length=focal_length,
        back_focal_distance=back_focal,
        front_focal_distance=front_focal,
        front_principal=front_focal + n / power,
        rear_principal=back_focal - focal_length,
        entrance_pupil=entrance,
        entrance_pupil_radius=entrance_radius,
        exit_pupil=exit_,
        exit_pupil_radius=exit_radius,
        stop_radius=stop_radius,
        f_number=jnp.abs(focal_length) / (2.0 * entrance_radius),
        na=n_image * jnp.sin(jnp.arctan(tangent)),
        image_plane=end - vertex[last],
        total_track=end - foremost,
        object_index=n,
        image_index=n_image,
    )


def image_position(lens: FirstOrder, depth: Float[Any, "*#d"]) -> Float[Any, "*#d"]:
    """Where a point at `depth` (mm in front of the entrance pupil, inf allowed) is imaged: mm from the last surface.

    Arithmetic alone, so numpy arrays do as well.
    """
    # Newton: x x' = −f f', with x counted from the front focal point and x' from the rear one.
    from_focus = depth - lens.entrance_pupil + lens.front_focal_distance
    return lens.back_focal_distance + lens.focal_length**2 * lens.object_index / lens.image_index / from_focus


def blur_and_defocus(
    lens: FirstOrder, depth: Float[Any, "*#d"], sensor: Float[Any, "*#d"]
) -> tuple[Float[Any, "*#d"], Float[Any, "*#d"]]:
    """Signed blur radius (mm) of a point at `depth`, and the way (mm) from its image to the sensor.

    `sensor` is its place, mm behind the last surface. The radius is the paper's R (d_sensor − d_image) / d_image, with
    R / d_image written as the marginal ray's slope in image space: it stays finite for an exit pupil at infinity.
    """
    defocus = sensor - image_position(lens, depth)
    power = lens.image_index / lens.focal_length
    reduced = lens.entrance_pupil_radius * (power - lens.object_index * lens.inverse_pupil_magnification / depth)
    return reduced / lens.image_index * defocus, defocus


@StoredProgram
def _pupil_scale(system: System) -> tuple[Float[Array, " lenses"], FirstOrder]:
    """Stop radius per entrance pupil radius, and first-order data with a unit stop."""
    unit = eqx.tree_at(lambda s: s.semi_diameter, system, jnp.ones_like(system.semi_diameter))
    data = jax.vmap(first_order)(unit)
    return 1.0 / data.entrance_pupil_radius, data


def stop_radius_for(system: System, lenses: Sequence[Lens]) -> Float[np.ndarray, " lenses"]:
    """Stop radius (mm) that each lens's aperture definition asks for, paraxially; nan where it is given directly."""
    scale, data = on_host(_pupil_scale, system)
    radii = np.full(len(lenses), np.nan)
    for i, lens in enumerate(lenses):
        value = lens.aperture.value
        if lens.aperture.kind == "entrance_pupil_diameter":
            pupil = value / 2.0
        elif lens.aperture.kind == "f_number":
            pupil = abs(float(data.focal_length[i])) / value / 2.0
        elif lens.aperture.kind == "object_na":
            sine = value / float(data.object_index[i])
            pupil = sine / np.sqrt(1.0 - sine**2) * (lens.object_distance + float(data.entrance_pupil[i]))
        else:
            continue
        radii[i] = pupil * float(scale[i])
    return radii


@jax.tree_util.register_dataclass
@dataclass(frozen=True)  # no eqx.Module: these are made a hundred thousand times when a data set is drawn
class ParaxialCamera:
    """A lens before its sensor, to first order: what pixel pitches, blur radii and defocus follow from; lengths in mm.

    One camera, or many with leading axes on every leaf; arithmetic alone, so that arrays of numpy and of JAX do.
    """

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

    @property
    def image_scale(self) -> Any:
        """Height (mm) at which chief rays meet the sensor, for each unit of their tangent before the lens.

        It grows as the sensor moves away from the exit pupil to focus nearer: the lens breathes.
        """
        data = self.data
        behind_focus = self.sensor - data.back_focal_distance
        height = data.focal_length + data.inverse_pupil_magnification * behind_focus
        return data.object_index / data.image_index * height


def filling_pitch(image_radius: Any, diagonal_px: Any) -> Any:
    """Pixel pitch (unit of the radius) at which so many pixels fill the diameter of the image circle."""
    return 2.0 * image_radius / diagonal_px
