"""Exact sequential ray tracing.

Rays are components-first arrays `[3, rays]`. `trace` takes one lens and any number of rays; batches of lenses and
wavelengths are mapped over it. A ray that misses a surface, is totally reflected or does
not converge is dead from there on: it keeps its last finite values, so that nothing non-finite reaches a sum or a
gradient, and its clipping is +inf.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .batch import any_lens
from .surfaces import Shape, bending, intersect
from .system import System

BLOCK = 16  # surfaces that an accelerator decides on together


class Rays(eqx.Module):
    """Rays in some frame: positions (mm), unit directions, optical path so far (mm)."""

    position: Float[Array, "*batch 3 rays"]
    direction: Float[Array, "*batch 3 rays"]
    path: Float[Array, "*batch rays"]


class Moved(eqx.Module):
    """Derivatives of rays by the place (x, y) in the launch plane where they start; x or y first."""

    position: Float[Array, "*batch 2 3 rays"]
    direction: Float[Array, "*batch 2 3 rays"]
    stop_position: Float[Array, "*batch 2 2 rays"]


class Trace(eqx.Module):
    """Rays behind the last surface, in the frame of the image plane's vertex.

    A ray passes when it is `alive` and `clip` < 0. `stop_position` is where it meets the stop, in the stop's frame.
    """

    position: Float[Array, "*batch 3 rays"]  # mm, on the last surface
    direction: Float[Array, "*batch 3 rays"]
    path: Float[Array, "*batch rays"]  # mm, optical path up to `position`
    alive: Bool[Array, "*batch rays"]
    clip: Float[Array, "*batch rays"]  # largest r²/semi_diameter² − 1 over the surfaces; inf for dead rays
    clip_surface: Int[Array, "*batch rays"]  # the surface of that maximum, or where the ray died
    stop_position: Float[Array, "*batch 2 rays"]  # mm
    clips: Float[Array, "*batch surfaces rays"] | None  # r²/semi_diameter² − 1 per surface, if recorded
    points: Float[Array, "*batch surfaces 3 rays"] | None  # mm, intersections in each surface's frame, if recorded
    moved: Moved | None = None  # if asked for

    @property
    def passes(self) -> Bool[Array, "*batch rays"]:
        return self.alive & (self.clip < 0.0)


def trace(system: System, rays: Rays, *, record: bool = False, moved: Moved | None = None) -> Trace:
    """Trace rays, given in the frame of the first surface's vertex, through one lens to the image plane's frame.

    `record` keeps the clipping functions and the intersection points of every surface; `moved` are derivatives of the
    rays at their start, which are carried along.
    """
    count = rays.path.shape[-1]
    surfaces = (
        system.active,
        system.shapes,
        system.thickness,
        system.semi_diameter,
        system.index[:-1],
        system.index[1:],
        jnp.arange(system.surfaces),
    )
    start = (
        rays.position,
        rays.direction,
        rays.path,
        jnp.ones(count, bool),
        jnp.full(count, -1.0),
        jnp.full(count, -1),
        jnp.zeros((2, count)),
        moved,
    )

    # Gradients compute a crossing again on their way back: its two hundred intermediate arrays, kept for each surface,
    # would make their program twice as large and four times as slow.
    @partial(jax.checkpoint, prevent_cse=False)
    def cross(carry, surface):  # type: ignore[no-untyped-def]
        position, direction, path, alive, worst, worst_at, at_stop, moved = carry
        shape, thickness, semi_diameter, index, next_index, number = surface
        t, slope, hits = intersect(shape, position, direction)
        point = position + t * direction
        ratio, is_stop = index / next_index, number == system.stop
        refracted, transmits = refract(point, direction, slope, ratio)
        lives = alive & hits & transmits
        r2 = point[0] ** 2 + point[1] ** 2
        # A ray that meets the surface and is then totally reflected has a place on it, but does not pass it.
        clip = jnp.where(alive & hits, r2 / semi_diameter**2 - 1.0, jnp.inf)
        clip_or_death = jnp.where(lives, clip, jnp.inf)
        is_worse = clip_or_death > worst
        place = jnp.where(lives, point, position)
        carry = (
            place - jnp.array([0.0, 0.0, 1.0])[:, None] * thickness,
            jnp.where(lives, refracted, direction),
            jnp.where(lives, path + index * t, path),
            lives,
            jnp.where(is_worse, clip_or_death, worst),
            jnp.where(is_worse, number, worst_at),
            jnp.where(is_stop, point[:2], at_stop),
            None if moved is None else _crossed(moved, shape, direction, t, point, slope, ratio, lives, is_stop),
        )
        return carry, ((clip, place) if record else None)

    def skip(carry, _surface):  # type: ignore[no-untyped-def]
        return carry, ((jnp.full(count, -1.0), carry[0]) if record else None)

    def step(carry, surface):  # type: ignore[no-untyped-def]
        active, *surface = surface
        return jax.lax.cond(active, cross, skip, carry, tuple(surface))

    def steps(carry, block):  # type: ignore[no-untyped-def]
        return jax.lax.scan(step, carry, block)

    def none(carry, _block):  # type: ignore[no-untyped-def]
        untouched = jnp.full((BLOCK, count), -1.0), jnp.broadcast_to(carry[0], (BLOCK, 3, count))
        return carry, untouched if record else None

    def some(carry, block):  # type: ignore[no-untyped-def]
        return jax.lax.cond(any_lens(jnp.any(block[0])), steps, none, carry, block)

    if jax.default_backend() == "cpu" or system.surfaces % BLOCK:
        end, records = jax.lax.scan(step, start, surfaces)
    else:
        # An accelerator stops at every branch to learn which way it goes: it asks for several surfaces at once.
        shape = system.surfaces // BLOCK, BLOCK
        blocks = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), surfaces)
        end, records = jax.lax.scan(some, start, blocks)
        records = jax.tree.map(lambda leaf: leaf.reshape(system.surfaces, *leaf.shape[2:]), records)
    position, direction, path, alive, clip, clip_surface, at_stop, moved = end
    clips, points = records if record else (None, None)
    return Trace(position, direction, path, alive, clip, clip_surface, at_stop, clips, points, moved)


def _crossed(
    moved: Moved,
    shape: Shape,
    direction: Float[Array, "3 rays"],
    t: Float[Array, " rays"],
    point: Float[Array, "3 rays"],
    slope: Float[Array, " rays"],
    ratio: Float[Array, ""],
    lives: Bool[Array, " rays"],
    is_stop: Bool[Array, ""],
) -> Moved:
    """The derivatives of rays behind a surface that they meet at `point`, after t mm along `direction`.

    By hand up to the refraction: the meeting's derivative follows from the normal, and its second one is the slope's.
    """
    normal = jnp.stack([-slope * point[0], -slope * point[1], jnp.ones_like(slope)])
    rate = jnp.sum(normal * direction, axis=0)
    at = moved.position + t * moved.direction
    at = at - jnp.sum(normal * at, axis=1, keepdims=True) / jnp.where(jnp.abs(rate) > 1e-9, rate, 1.0) * direction
    steeper = 2.0 * bending(shape, point[0] ** 2 + point[1] ** 2) * (point[0] * at[:, 0] + point[1] * at[:, 1])

    def turned(*change: Array) -> Float[Array, "3 rays"]:
        return jax.jvp(lambda p, d, s: refract(p, d, s, ratio)[0], (point, direction, slope), change)[1]

    return Moved(
        jnp.where(lives, at, moved.position),
        jnp.where(lives, jax.vmap(turned)(at, moved.direction, steeper), moved.direction),
        jnp.where(is_stop, at[:, :2], moved.stop_position),
    )


def refract(
    point: Float[Array, "3 *rays"],
    direction: Float[Array, "3 *rays"],
    slope: Float[Array, "*rays"],
    ratio: Float[Array, ""],
) -> tuple[Float[Array, "3 *rays"], Bool[Array, "*rays"]]:
    """Snell's law at points where (dz/dr)/r = `slope`; `ratio` is index before over index behind.

    Returns the new unit directions and whether each ray is transmitted (not totally reflected).
    """
    (x, y, z), (l, m, n) = point, direction
    steepness = jnp.sqrt(1.0 + slope**2 * (x**2 + y**2))
    cosine = (n - slope * (x * l + y * m)) / steepness
    argument = 1.0 - ratio**2 * (1.0 - cosine**2)
    transmits = (argument > 0.0) & (cosine > 0.0)
    cosine_behind = jnp.sqrt(jnp.where(transmits, argument, 1.0))
    bend = (cosine_behind - ratio * cosine) / steepness
    # The normal is (−slope x, −slope y, 1); written so, no array is put together.
    upright = jnp.array([0.0, 0.0, 1.0]).reshape(3, *[1] * slope.ndim)
    return ratio * direction + bend * (upright * (1.0 + slope * z) - slope * point), transmits


def to_plane(traced: Trace, z: Float[Array, ""] | float = 0.0) -> Float[Array, "2 rays"]:
    """Where rays meet the plane at z (mm) in the image plane's frame: x and y in mm."""
    t = (z - traced.position[2]) / forward_part(traced)
    return traced.position[:2] + t * traced.direction[:2]


def forward_part(traced: Trace) -> Float[Array, " rays"]:
    """The direction's z, and 1 for the dead rays that have none: they must not put a nan into a gradient."""
    z = traced.direction[2]
    return jnp.where(jnp.abs(z) > 1e-9, z, 1.0)


def mirrored(traced: Trace) -> Trace:
    """The rays of half a pupil together with their mirror images about the meridian; without records and `moved`."""

    def both(leaf: Float[Array, "*more rays"], *signs: float) -> Float[Array, "*more both"]:
        return jnp.concatenate([leaf, leaf * jnp.array(signs)[:, None]], axis=-1)

    path, alive, clip, clip_surface = (
        jnp.tile(leaf, 2) for leaf in (traced.path, traced.alive, traced.clip, traced.clip_surface)
    )
    position, direction = (both(leaf, -1.0, 1.0, 1.0) for leaf in (traced.position, traced.direction))
    stop_position = both(traced.stop_position, -1.0, 1.0)
    return Trace(position, direction, path, alive, clip, clip_surface, stop_position, None, None)
