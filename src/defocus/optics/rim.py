"""The shape of a pupil, found by tracing its rim.

Seen from a point inside, the vignetted pupil of a photographic lens is star shaped: along each direction there is one
ray that just grazes some aperture, or just is not totally reflected. That ray is searched for along each of many
directions, on the plane normal to the chief ray. No clipping function has to be fitted, whichever surface clips and
for whatever reason, and every ray that is traced later lies inside.

The pupil is mirror symmetric about the meridian, so half the directions do.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .paraxial import FirstOrder
from .pupil import ChiefRay, find_bundle, launch
from .system import System
from .trace import trace

DIRECTIONS = 129  # over half a turn
STEPS = 9  # radii per round
ROUNDS = 5


class Rim(eqx.Module):
    """The rim of a pupil on the plane normal to the chief ray: centre + radius · (sin ψ, cos ψ), ψ from 0 to π."""

    centre: Float[Array, "*batch"]  # mm, along the meridian from the chief ray
    angle: Float[Array, "*batch directions"]  # radians from the meridian of +y
    radius: Float[Array, "*batch directions"]  # mm
    found: Bool[Array, "*batch"]  # whether any light gets through


def find_rim(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""] | float = 0.0,
    *,
    data: FirstOrder | None = None,
    directions: int = DIRECTIONS,
) -> Rim:
    """The rim of the pupil of one object point."""
    bundle = find_bundle(system, chief, vergence, samples=25, rounds=2, data=data)
    passes = bundle.traced.passes
    count = jnp.maximum(jnp.sum(passes), 1)
    centre = jnp.sum(jnp.where(passes, bundle.y, 0.0)) / count
    angle = jnp.linspace(0.0, jnp.pi, directions)
    reach = 2.0 * jnp.hypot(bundle.half[0], bundle.half[1])
    fractions = jnp.linspace(0.0, 1.0, STEPS)[:, None]

    def narrow(_: Int[Array, ""], bounds: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        low, high, _low_clip, _high_clip = bounds
        radius = low + (high - low) * fractions
        x, y = radius * jnp.sin(angle), centre + radius * jnp.cos(angle)
        traced = trace(system, launch(chief, x.ravel(), y.ravel(), vergence))
        clip = jnp.where(traced.alive, traced.clip, jnp.inf).reshape(radius.shape)
        inside = jnp.cumprod((clip < 0.0).astype(int), axis=0).astype(bool)
        upper = jnp.clip(jnp.sum(inside, axis=0), 1, STEPS - 1)

        def pick(
            values: Float[Array, "steps directions"], row: Int[Array, " directions"]
        ) -> Float[Array, " directions"]:
            return jnp.take_along_axis(values, row[None], axis=0)[0]

        return pick(radius, upper - 1), pick(radius, upper), pick(clip, upper - 1), pick(clip, upper)

    start = (jnp.zeros(directions), jnp.full(directions, reach), -jnp.ones(directions), jnp.ones(directions))
    low, high, low_clip, high_clip = jax.lax.fori_loop(0, ROUNDS, narrow, start)
    # The clipping function is smooth between the last two radii, unless the outer ray died.
    smooth = jnp.isfinite(high_clip) & (high_clip > low_clip)
    part = jnp.where(smooth, -low_clip / jnp.where(smooth, high_clip - low_clip, 1.0), 0.0)
    radius = low + (high - low) * jnp.clip(part, 0.0, 1.0)
    return Rim(centre, angle, radius, bundle.found & jnp.all(radius > 0.0))
