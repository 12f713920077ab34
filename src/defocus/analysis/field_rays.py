"""Real rays of every field point and wavelength of a camera: what distortion, curvature, fans, colour and spots are
made of.

All wavelengths come from the object point whose chief ray at the d line lands at the field's height, and fill the pupil
of the main one up to its traced rim, by Gauss' rule in the square of the radius and evenly in angle: sums over a
thousand rays are converged, where a grid with a jagged rim has errors of per cents. Each wavelength's chief ray crosses
the stop's centre itself. Its sagittal and tangential foci are where rays next to it cross it, from exact derivatives
(Coddington's equations, surface by surface). A stop with blades counts as the round one of the same area.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..optics.batch import over_lenses
from ..optics.paraxial import FirstOrder, first_order
from ..optics.pupil import ChiefRay, launch
from ..optics.reference_sphere import on_sphere, sphere_radius, trace_differentials
from ..optics.rim import Rim, find_rim
from ..optics.system import System
from ..optics.trace import forward_part, to_plane, trace
from ..stored_program import StoredProgram

RINGS = 16
EVERY = 2  # one in so many of the rim's directions has rays
FAN = 65  # rays of a fan; odd: the middle one is the chief ray
FIELDS_AT_ONCE, WAVES_AT_ONCE = 16, 9  # of one program
AIMS = 6  # Newton's steps from the d line's chief ray to another wavelength's


class FieldRays(eqx.Module):
    """Rays on the sensor, y away from the axis; lengths in mm. Leading axes: fields, wavelengths."""

    found: Bool[Any, "*batch"]  # whether any light passes
    chief: Float[Any, "*batch"]  # where the chief ray lands
    sagittal_focus: Float[Any, "*batch"]  # z from the sensor of the foci of rays next to the chief ray
    tangential_focus: Float[Any, "*batch"]
    filled: Float[Any, "*batch"]  # part of the stop's area that light passes
    landing: Float[Any, "*batch 2 rays"]  # of half the pupil; the other half mirrors x
    slope: Float[Any, "*batch 2 rays"]  # dx/dz, dy/dz
    weight: Float[Any, "*batch rays"]  # sums to 1
    stop: Float[Any, "*batch 2 fan"]  # fans, sagittal and tangential: place in the stop, of its radius
    aberration: Float[Any, "*batch 2 fan"]  # dx of the sagittal, dy of the tangential, from the chief ray
    fan_slope: Float[Any, "*batch 2 fan"]  # dx/dz of the sagittal, dy/dz of the tangential
    path: Float[Any, "*batch 2 fan"]  # optical path more than the chief ray's, to the sphere about its landing
    passes: Bool[Any, "*batch 2 fan"]


def _trace_field(
    system: System,
    data: FirstOrder,
    chief: ChiefRay,
    rim: Rim,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
) -> FieldRays:
    """The rays of one field point and wavelength that fill a rim."""

    own, foci = _aim(system, chief, vergence)
    radius, angle = rim.radius[::EVERY], rim.angle[::EVERY]
    node, share = np.polynomial.legendre.leggauss(RINGS)
    ring = jnp.sqrt(jnp.asarray(node + 1.0) / 2.0)[:, None] * radius
    ends = np.ones(len(angle))
    ends[[0, -1]] = 0.5
    # Fans through this wavelength's chief ray, up to the rim in y and as far in x.
    step = jnp.linspace(-1.0, 1.0, FAN)
    low, high = rim.centre - rim.radius[-1] - own, rim.centre + rim.radius[0] - own
    tangential = own + jnp.where(step < 0.0, -step * low, step * high) * (1.0 - 1e-9)
    sagittal = step * jnp.max(rim.radius * jnp.sin(rim.angle))
    x = jnp.concatenate([(ring * jnp.sin(angle)).ravel(), sagittal, 0.0 * step, rim.radius * jnp.sin(rim.angle)])
    y = jnp.concatenate(
        [
            (rim.centre + ring * jnp.cos(angle)).ravel(),
            own + 0.0 * step,
            tangential,
            rim.centre + rim.radius * jnp.cos(rim.angle),
        ]
    )
    count = RINGS * len(angle)
    rays, fans, edge = slice(0, count), slice(count, count + 2 * FAN), slice(count + 2 * FAN, None)
    middle = count + FAN // 2
    traced = trace(system, launch(chief, x, y, vergence, system.index[0]))
    at = to_plane(traced, sensor_z)
    slope = traced.direction[:2] / forward_part(traced)
    origin = jnp.stack([jnp.zeros(()), at[1, middle], sensor_z])
    exit_pupil = jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane])
    _, way = on_sphere(traced.position, traced.direction, origin, sphere_radius(origin, exit_pupil))
    path = traced.path + system.index[-1] * way
    weight = (share[:, None] * radius**2 * ends).ravel()
    weight = weight * (1.0 + (x[rays] ** 2 + y[rays] ** 2) * vergence**2) ** -1.5
    stop_radius = system.semi_diameter[system.stop]
    return FieldRays(
        found=rim.found & chief.found & jnp.all(traced.alive[rays]),
        chief=at[1, middle],
        sagittal_focus=foci[0] - sensor_z,
        tangential_focus=foci[1] - sensor_z,
        filled=_area(traced.stop_position[:, edge]) / (jnp.pi * stop_radius**2),
        landing=at[:, rays],
        slope=slope[:, rays],
        weight=weight / jnp.sum(weight),
        stop=_own_part(traced.stop_position[:, fans]) / stop_radius,
        aberration=_own_part(at[:, fans] - origin[:2, None]),
        fan_slope=_own_part(slope[:, fans]),
        path=(path[fans] - path[middle]).reshape(2, FAN),
        passes=traced.passes[fans].reshape(2, FAN) | (jnp.arange(FAN) == FAN // 2),
    )


def _aim(system: System, chief: ChiefRay, vergence: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, "2"]]:
    """y (mm, in the launch plane) of the ray through the stop's centre, and z (mm, in the image plane's frame) of the
    foci, sagittal and tangential, where rays next to it cross it.

    Those in the sagittal plane do where x + t k_x = 0, those in the meridional plane where their distance across the
    chief ray vanishes.
    """

    def step(_: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        y, _ = state
        traced, moved = trace_differentials(system, chief, jnp.stack([jnp.zeros(1), y[None]]), vergence)
        rate = moved.stop_position[1, 1, 0]
        _, k_y, k_z = traced.direction[:, 0]
        (shift_x, shift_y), (turn_x, turn_y) = moved.position[..., 0], moved.direction[..., 0]
        across = jnp.stack([jnp.zeros(()), k_z, -k_y])
        ways = jnp.stack([-shift_x[0] / turn_x[0], -(across @ shift_y) / (across @ turn_y)])
        y = y - traced.stop_position[1, 0] / jnp.where(jnp.abs(rate) > 1e-9, rate, 1.0)
        return y, traced.position[2, 0] + ways * k_z

    return jax.lax.fori_loop(0, AIMS, step, (jnp.zeros(()), jnp.zeros(2)))


def _area(rim: Float[Array, "2 points"]) -> Float[Array, ""]:
    """Area within half a rim and its mirror image: from polygons of all points and of every second, extrapolated."""

    def polygon(p: Float[Array, "2 points"]) -> Float[Array, ""]:
        return jnp.abs(jnp.sum(p[0, :-1] * p[1, 1:] - p[0, 1:] * p[1, :-1]))

    return (4.0 * polygon(rim) - polygon(rim[:, ::2])) / 3.0


def _own_part(values: Float[Array, "2 fans"]) -> Float[Array, "2 fan"]:
    """x of the sagittal fan and y of the tangential."""
    x, y = values.reshape(2, 2, FAN)
    return jnp.stack([x[0], y[1]])


def _trace_all(
    system: System,
    index: Float[Array, "waves media"],
    chief: ChiefRay,
    vergence: Float[Array, " fields"],
    sensor_z: Float[Array, ""],
    main: Int[Array, ""],
    counts: Int[Array, "2"],
) -> tuple[FieldRays, FirstOrder]:
    coloured = jax.vmap(lambda index: eqx.tree_at(lambda s: s.index, system, index))(index)
    data = jax.vmap(first_order)(coloured)
    of_rims = jax.tree.map(lambda leaf: leaf[main], coloured)

    def field(chief: ChiefRay, vergence: Float[Array, ""]) -> FieldRays:
        rim = find_rim(of_rims, chief, vergence)

        def wave(own: System, data: FirstOrder) -> FieldRays:
            return _trace_field(own, data, chief, rim, vergence, sensor_z)

        return over_lenses(wave, coloured, data, count=counts[1])

    return over_lenses(field, chief, vergence, count=counts[0]), data


_PROGRAM = StoredProgram(_trace_all)


def trace_fields(
    system: System,
    index: Float[np.ndarray, "waves media"],
    chief: ChiefRay,
    vergence: Float[np.ndarray, " fields"],
    sensor_z: float,
    main: int,
) -> tuple[FieldRays, FirstOrder]:
    """The rays of all fields and wavelengths on the host, and first-order data at each wavelength.

    `main` is the number of the wavelength that makes the rims; `vergence` (1/mm) is that of the object at each field.
    """
    fields, waves = len(vergence), len(index)

    def padded(leaf: np.ndarray, size: int) -> np.ndarray:
        return np.concatenate([leaf, np.repeat(leaf[-1:], -len(leaf) % size, axis=0)])  # one program serves most

    chief, vergence = jax.tree.map(lambda leaf: padded(np.asarray(leaf), FIELDS_AT_ONCE), (chief, vergence))
    index, counts = padded(index, WAVES_AT_ONCE), np.array([fields, waves])
    arrays = _PROGRAM(system, index, chief, vergence, np.asarray(sensor_z), np.asarray(main), counts)
    rays, data = jax.device_get(arrays)
    return jax.tree.map(lambda leaf: leaf[:fields, :waves], rays), jax.tree.map(lambda leaf: leaf[:waves], data)
