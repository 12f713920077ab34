"""Clear apertures for a prescription that has none.

Patents rarely print semi-diameters. The rule here is the designer's: a surface is as large as the beams that it must
pass. On the axis that is the whole beam that the stop lets through. Towards the edge of the field a lens may vignette:
at image height h the rays that cross the stop within a fraction

    f(h) = 1 − (1 − edge_fraction) · h / image_radius

of its radius must pass. Each surface gets the largest radius that any such ray needs, a little margin, and no more
than glass allows: two surfaces of an element never cross inside their clear aperture.
"""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import TraceError
from ..lens.prescription import Lens
from .field import image_radius_of
from .pupil import chief_ray, launch, pupil_half_widths
from .surfaces import Shape, sag
from .system import System, pack_one
from .trace import trace

EDGE_FRACTION = 0.6
MARGIN = 1.01
FIELDS = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0)  # of the image radius
FAN = 801  # rays
STEEPEST = 5.0  # dz/dr; no surface is used beyond the slope of 79° at which polishing and light both give up


def solve_clear_apertures(lens: Lens, *, edge_fraction: float = EDGE_FRACTION, margin: float = MARGIN) -> Lens:
    """The lens with every semi-diameter replaced by the smallest that the rule asks for; its stop stays as it is.

    `edge_fraction` is the part of the stop's radius, 0 to 1, that the beam at the edge of the field must fill.
    Raises `TraceError` where no ray reaches the edge of the field.
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
    axial = np.asarray(needed[0]) * margin
    wanted = np.asarray(jnp.max(needed, axis=0)) * margin
    limit = np.asarray(_crossing_radius(system, jnp.asarray(wanted)))
    radii = np.maximum(axial, np.minimum(wanted, limit))
    semi = {i: float(radii[i]) for i in range(len(lens.surfaces))}
    semi[lens.stop] = float(system.semi_diameter[lens.stop])
    return lens.with_semi_diameters(semi)


@jax.jit
def _needed(
    system: System, heights: Float[Array, " fields"], fractions: Float[Array, " fields"]
) -> tuple[Float[Array, "fields surfaces"], Bool[Array, " fields"], Float[Array, " fields"]]:
    """Radius (mm) that each field's beam needs on each surface; whether its chief ray exists; how far they reach."""
    open_system = eqx.tree_at(
        lambda s: s.semi_diameter,
        system,
        jnp.where(jnp.arange(system.surfaces) == system.stop, system.semi_diameter, jnp.inf),
    )
    stop_radius = system.semi_diameter[system.stop]

    def one(
        height: Float[Array, ""], fraction: Float[Array, ""]
    ) -> tuple[Float[Array, " surfaces"], Bool[Array, ""], Float[Array, ""]]:
        chief = chief_ray(open_system, height, "image_height")
        half = 2.0 * pupil_half_widths(open_system, chief)
        g, zero = jnp.linspace(-1.0, 1.0, FAN), jnp.zeros(FAN)
        x, y = jnp.concatenate([half[0] * g, zero]), jnp.concatenate([zero, half[1] * g])
        traced = trace(open_system, launch(chief, x, y), record=True)
        at_stop = jnp.hypot(traced.stop_position[0], traced.stop_position[1])
        needed = traced.alive & (at_stop <= fraction * stop_radius)
        assert traced.points is not None
        radius = jnp.hypot(traced.points[:, 0], traced.points[:, 1])
        return jnp.max(jnp.where(needed, radius, 0.0), axis=-1), chief.found, chief.reach

    return jax.vmap(one)(heights, fractions)


@jax.jit
def _crossing_radius(system: System, wanted: Float[Array, " surfaces"]) -> Float[Array, " surfaces"]:
    """Largest radius (mm) up to `wanted` at which a surface exists and glass in front of and behind it has thickness.

    Air spaces count too: two surfaces that touch at their rims limit each other.
    """
    steps = jnp.linspace(0.0, 1.0, 400)[1:]
    shapes = Shape(system.curvature, system.conic, system.even, system.odd, system.scale)
    number = jnp.arange(system.surfaces)
    solid = system.active & (system.index[1:] != system.index[:-1])

    def along(radius: Float[Array, " steps"]) -> Float[Array, "surfaces steps"]:
        z, slope, exists = jax.vmap(sag, in_axes=(0, None))(shapes, radius**2)
        return jnp.where(exists & (jnp.abs(slope) * radius < STEEPEST), z, jnp.nan)

    def limit(i: Float[Array, ""]) -> Float[Array, ""]:
        radius = steps * wanted[i]
        z = along(radius)
        ok = jnp.isfinite(z[i])
        for front, back in ((i, i + 1), (i - 1, i)):
            # Surfaces that refract nothing (the stop, dummies) limit nobody, and behind a space of no or negative
            # length there is nothing to run into.
            f, b = jnp.clip(front, 0, system.surfaces - 1), jnp.clip(back, 0, system.surfaces - 1)
            gap = system.thickness[f]
            counts = solid[f] & solid[b] & (f == front) & (b == back) & (gap > 0.0)
            shared = (radius <= wanted[f]) & (radius <= wanted[b]) & jnp.isfinite(z[f]) & jnp.isfinite(z[b])
            ok &= ~counts | ~shared | (z[b] + gap > z[f])
        clear = jnp.cumprod(ok.astype(int))
        return jnp.max(jnp.where(clear == 1, radius, 0.0))

    return jax.vmap(limit)(number)
