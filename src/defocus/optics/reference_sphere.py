"""The reference sphere: where rays meet it, how they spread over it, and which sphere they do not cross before.

A sphere about a point C of the sensor's neighbourhood, R in front of it, parts the two halves of the work: rays lead to
the sphere, waves lead on from it. Direction cosines s point from the sphere to C. That is exact enough as long as no
caustic touches the sphere, where ds_x ds_y / dA changes its sign for neighbouring rays that start in dA.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .pupil import ChiefRay, launch
from .system import System
from .trace import Moved, Rays, Trace, trace

FLATTER = (1.0, 0.75, 0.5, 0.25, 0.0)  # the sphere's 1 / R, over that of the sphere through the exit pupil
APART = 0.15  # ds / dA over its median: where it is less, a caustic is near
FARTHEST_PUPIL = 1e5  # mm; a sphere of this radius is flat enough, and rounding errors are still far below a wave


def trace_differentials(
    system: System, chief: ChiefRay, offset: Float[Array, "2 rays"], vergence: Float[Array, ""]
) -> tuple[Trace, Moved]:
    """The rays that start at `offset` (mm, in the launch plane), with their exact derivatives."""

    def start(offset: Float[Array, "2 rays"]) -> Rays:
        return launch(chief, offset[0], offset[1], vergence, system.index[0])

    def change(tangent: Float[Array, "2"]) -> Rays:
        return jax.jvp(start, (offset,), (jnp.broadcast_to(tangent[:, None], offset.shape),))[1]

    change_by_x_and_y = jax.vmap(change)(jnp.eye(2))
    at_stop = jnp.zeros((2, *offset.shape))
    traced = trace(system, start(offset), moved=Moved(change_by_x_and_y.position, change_by_x_and_y.direction, at_stop))
    assert traced.moved is not None
    return eqx.tree_at(lambda t: t.moved, traced, None), traced.moved


def open_radius(traced: Trace, moved: Moved, centre: Float[Array, "3"], pupil: Float[Array, "3"]) -> Float[Array, ""]:
    """R (mm) of the sphere about `centre` on which the rays stay apart: through `pupil` if that will do.

    The signed area ds_x ds_y / dA changes its sign at a caustic.
    """
    exit_radius = sphere_radius(centre, pupil)
    radii = jnp.stack([_limited(exit_radius / max(flatter, 1e-9)) for flatter in FLATTER])

    fixed = jax.lax.stop_gradient((traced, moved, centre, radii))

    def least(radius: Float[Array, ""]) -> Float[Array, ""]:
        return least_stretch(stretch_on_sphere(*fixed[:3], radius))

    apart = jax.vmap(least)(fixed[3])
    return radii[jnp.where(jnp.any(apart > APART), jnp.argmax(apart > APART), jnp.argmax(apart))]


def least_stretch(stretch: Float[Array, " rays"]) -> Float[Array, ""]:
    """The least ds_x ds_y / dA over the median: a judgement, without derivatives."""
    stretch = jax.lax.stop_gradient(stretch)
    return jnp.min(stretch / jnp.median(stretch))


def stretch_on_sphere(
    traced: Trace, moved: Moved, centre: Float[Array, "3"], radius: Float[Array, ""]
) -> Float[Array, " rays"]:
    """ds_x ds_y / dA of each ray on the sphere (R infinite: of its own direction), with its sign; 1/mm²."""

    def s(position: Float[Array, "3 rays"], direction: Float[Array, "3 rays"]) -> Float[Array, "2 rays"]:
        return on_sphere(position, direction, centre, _limited(radius))[0][:2]

    def push(position: Float[Array, "3 rays"], direction: Float[Array, "3 rays"]) -> Float[Array, "2 rays"]:
        return jax.jvp(s, (traced.position, traced.direction), (position, direction))[1]

    a, b = jax.vmap(push)(moved.position, moved.direction)
    return signed_area(a, b)


def signed_area(a: Float[Array, "2 rays"], b: Float[Array, "2 rays"]) -> Float[Array, " rays"]:
    return a[0] * b[1] - a[1] * b[0]


def on_sphere(
    position: Float[Array, "3 rays"],
    direction: Float[Array, "3 rays"],
    centre: Float[Array, "3"],
    radius: Float[Array, ""],
) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
    """Where rays meet the sphere about `centre`: direction from there to the centre, and the way to there (mm).

    A pupil behind the sensor, or at infinity, is as good: then R is negative, or merely large.
    """
    offset = position - centre[:, None]
    along = jnp.sum(direction * offset, axis=0)
    square = along**2 - jnp.sum(offset**2, axis=0) + radius**2
    t = -along - jnp.sign(radius) * jnp.sqrt(jnp.where(square > 0.0, square, 1.0))
    return -(offset + t * direction) / radius, t


def sphere_radius(centre: Float[Array, "3"], pupil: Float[Array, "3"]) -> Float[Array, ""]:
    """R of the sphere about `centre` through `pupil`, mm; negative where the pupil lies behind."""
    away = centre - pupil
    return _limited(jnp.where(away[2] < 0.0, -1.0, 1.0) * jnp.linalg.norm(away))


def _limited(radius: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.clip(radius, -FARTHEST_PUPIL, FARTHEST_PUPIL)
