"""Clear apertures for a prescription that has none.

Patents rarely print semi-diameters. The rule here is the designer's: a surface is as large as the beams that it must
pass. On the axis that is the whole beam that the stop lets through. Towards the edge of the field a lens may vignette:
at image height h the rays that cross the stop within a fraction

    f(h) = 1 − (1 − edge_fraction) · h / image_radius

of its radius must pass. Each surface gets the largest radius that any such ray needs, a little more than the axial
beam needs, so that nothing but the stop limits it, and no more than glass allows: two surfaces of an element never
cross inside their clear aperture.

A beam is what hangs together with its chief ray. Rays from far outside the pupil may come back through the stop,
bent by aberrations that no designer cared for; they belong to no image and ask for nothing. Hence each beam is walked
from the chief ray outwards, in many directions, and ends at the first ray that does not reach the wanted part of the
stop. Where glass ends before the beam does, that side of the beam is lost, as it is in the real lens.
"""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import TraceError
from ..lens.prescription import Lens
from .batch import over_lenses
from .paraxial import first_order, heights_and_angles
from .pupil import chief_ray, image_radius_of, launch, pupil_half_widths
from .surfaces import sag
from .system import System, pack_one
from .trace import trace

EDGE_FRACTION = 0.6
MARGIN = 1.01
FIELDS = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0)  # of the image radius
DIRECTIONS = 13  # from the bottom of the pupil over its side to its top; the other half is the mirror image
STEPS = 65  # rays per direction and round, from the chief ray to FARTHEST pupil half widths
FARTHEST = 2.5
STEEPEST = 20.0  # dz/dr; the hemispheres of fisheyes are used up to 87°, and there polishing gives up


def solve_clear_apertures(lens: Lens, *, edge_fraction: float = EDGE_FRACTION, margin: float = MARGIN) -> Lens:
    """The lens with every semi-diameter replaced by the smallest that the rule asks for; its stop stays as it is.

    `edge_fraction` is the part of the stop's radius, 0 to 1, that the beam at the edge of the field must fill;
    `margin` is a factor on what the axial beam needs. Raises `TraceError` where no ray reaches the edge of the field.
    """
    if not 0.0 < edge_fraction <= 1.0:
        raise ValueError(f"edge_fraction is {edge_fraction}; expected more than 0 and at most 1")
    bare = replace(lens, surfaces=tuple(replace(s, semi_diameter=None) for s in lens.surfaces))
    system = pack_one(bare)
    image_radius = image_radius_of(lens, system)
    fractions = 1.0 - (1.0 - edge_fraction) * jnp.array(FIELDS)
    needed, found, reach = _needed(system, jnp.array(FIELDS) * image_radius, fractions)
    if not bool(jnp.all(found)):
        lost = image_radius * FIELDS[int(jnp.argmin(found))]
        raise TraceError(
            f"{lens.name}: no ray through the stop's centre lands {lost:.4g} mm from the axis (the farthest lands at "
            f"{float(jnp.max(reach)):.4g} mm); the image radius of {image_radius:.4g} mm is too large for this lens"
        )
    axial = np.asarray(needed[0])
    outermost = np.maximum(axial * margin, np.asarray(jnp.max(needed, axis=0)))
    limit = np.asarray(_crossing_radius(system, jnp.asarray(outermost)))
    radii = np.maximum(axial, np.minimum(outermost, limit))
    semi = {i: float(radii[i]) for i in range(len(lens.surfaces))}
    semi[lens.stop] = float(system.semi_diameter[lens.stop])
    return lens.with_semi_diameters(semi)


def with_clear_apertures(lens: Lens) -> Lens:
    """The lens with all clear apertures: its own where it has one, the solver's where not."""
    if lens.has_clear_apertures:
        return lens
    solution = solve_clear_apertures(lens)
    missing = {
        i: new.semi_diameter
        for i, (old, new) in enumerate(zip(lens.surfaces, solution.surfaces, strict=True))
        if old.semi_diameter is None and new.semi_diameter is not None
    }
    return lens.with_semi_diameters(missing)


def solved_if_bare(lens: Lens) -> Lens:
    """The lens, or where not one of its clear apertures is known, the lens with those of the solver."""
    bare = all(s.semi_diameter is None for s in lens.surfaces)
    return solve_clear_apertures(lens) if bare else lens


@jax.jit
def _needed(
    system: System, heights: Float[Array, " fields"], fractions: Float[Array, " fields"]
) -> tuple[Float[Array, "fields surfaces"], Bool[Array, " fields"], Float[Array, " fields"]]:
    """Radius (mm) that each field's beam needs on each surface; whether its chief ray exists; how far they reach."""
    stop_radius = system.semi_diameter[system.stop]
    is_stop = jnp.arange(system.surfaces) == system.stop
    open_system = eqx.tree_at(
        lambda s: (s.semi_diameter, s.scale),
        system,
        (jnp.where(is_stop, stop_radius, jnp.inf), _paraxial_radii(system, jnp.max(heights))),
    )
    angle = jnp.linspace(-jnp.pi / 2.0, jnp.pi / 2.0, DIRECTIONS)
    walk = jnp.linspace(0.0, 1.0, STEPS)

    def one(
        height: Float[Array, ""], fraction: Float[Array, ""]
    ) -> tuple[Float[Array, " surfaces"], Bool[Array, ""], Float[Array, ""]]:
        chief = chief_ray(open_system, height, "image_height")
        half = FARTHEST * pupil_half_widths(open_system, chief)
        direction = jnp.stack([half[0] * jnp.cos(angle), half[1] * jnp.sin(angle)])

        def beam(
            distance: Float[Array, "directions steps"],
        ) -> tuple[Float[Array, " surfaces"], Int[Array, "directions"]]:
            """Largest radius of the beam's rays on each surface, and how many of each direction belong to it."""
            x, y = (jnp.ravel(component[:, None] * distance) for component in direction)
            traced = trace(open_system, launch(chief, x, y), record=True)
            inside = jnp.hypot(traced.stop_position[0], traced.stop_position[1]) <= fraction * stop_radius
            reaches = traced.alive | (traced.clip_surface > system.stop)
            belongs = jnp.cumprod(jnp.reshape(reaches & inside, distance.shape).astype(int), axis=-1)
            assert traced.points is not None
            radius = jnp.hypot(traced.points[:, 0], traced.points[:, 1])
            counts = traced.alive & (jnp.ravel(belongs) == 1)
            return jnp.max(jnp.where(counts, radius, 0.0), axis=-1), jnp.sum(belongs, axis=-1)

        def narrow(_: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
            """Once more, between the last ray that belongs and the next; as a loop it is compiled once."""
            distance, largest = state
            radius, count = beam(distance)
            last = jnp.maximum(count - 1, 0)[:, None]
            return (last + walk) * (walk[1] - walk[0]), jnp.maximum(largest, radius)

        outwards = jnp.broadcast_to(walk, (DIRECTIONS, STEPS))
        _, radius = jax.lax.fori_loop(0, 2, narrow, (outwards, jnp.zeros(system.surfaces)))
        return radius, chief.found, chief.reach

    return over_lenses(one, heights, fractions)


def _paraxial_radii(system: System, image_radius: Float[Array, ""]) -> Float[Array, " surfaces"]:
    """Radii (mm) that a paraxial beam would need: the size of the surfaces, for want of a better one."""
    data = first_order(system)
    zero = jnp.zeros_like(image_radius)
    marginal, _, _ = heights_and_angles(system, data.entrance_pupil_radius, zero)
    slope = jnp.clip(image_radius / data.focal_length, -1.0, 1.0)
    chief, _, _ = heights_and_angles(system, -slope * data.entrance_pupil, slope * system.index[0])
    return jnp.maximum(jnp.abs(marginal) + jnp.abs(chief), 1e-3 * data.entrance_pupil_radius)


@jax.jit
def _crossing_radius(system: System, largest: Float[Array, " surfaces"]) -> Float[Array, " surfaces"]:
    """Largest radius (mm) up to `largest` at which a surface exists and glass in front of and behind it has thickness.

    Air spaces count too: two surfaces that touch at their rims limit each other.
    """
    steps = jnp.linspace(0.0, 1.0, 100)
    number = jnp.arange(system.surfaces)
    solid = system.active & (system.index[1:] != system.index[:-1])

    def along(radius: Float[Array, " steps"]) -> Float[Array, "surfaces steps"]:
        z, slope, exists = jax.vmap(sag, in_axes=(0, None))(system.shapes, radius**2)
        return jnp.where(exists & (jnp.abs(slope) * radius < STEEPEST), z, jnp.nan)

    def limit(i: Int[Array, ""]) -> Float[Array, ""]:
        def clear(radius: Float[Array, " steps"]) -> Bool[Array, " steps"]:
            z = along(radius)
            ok = jnp.isfinite(z[i])
            for front, back in ((i, i + 1), (i - 1, i)):
                # Surfaces that refract nothing (the stop, dummies) limit nobody, and behind a space of no or negative
                # length there is nothing to run into.
                f, b = jnp.clip(front, 0, system.surfaces - 1), jnp.clip(back, 0, system.surfaces - 1)
                gap = system.thickness[f]
                counts = solid[f] & solid[b] & (f == front) & (b == back) & (gap > 0.0)
                shared = (radius <= largest[f]) & (radius <= largest[b]) & jnp.isfinite(z[f]) & jnp.isfinite(z[b])
                ok &= ~counts | ~shared | (z[b] + gap > z[f])
            return jnp.cumprod(ok).astype(bool)

        low, high = jnp.zeros(()), largest[i]
        for _ in range(2):  # the second time between the last clear radius and the next
            radius = low + (high - low) * steps
            last = jnp.maximum(jnp.sum(clear(radius)) - 1, 0)
            low, high = radius[last], radius[jnp.minimum(last + 1, steps.size - 1)]
        return low

    return jax.vmap(limit)(number)
