"""Where a bundle of rays comes together, and how well: best focus, spot size, wavefront about the focus.

Rays that pass count; they all weigh the same, unless they come with weights.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .trace import Trace, forward_part, to_plane


def _mean(values: Float[Array, "*more rays"], weight: Shaped[Array, " rays"]) -> Float[Array, "*more"]:
    total = jnp.sum(weight)
    return jnp.sum(jnp.where(weight > 0, values * weight, 0.0), axis=-1) / jnp.where(total > 0, total, 1)


def best_focus(traced: Trace, weight: Float[Array, " rays"] | float = 1.0) -> Float[Array, ""]:
    """z (mm, in the image plane's frame) of the plane on which the rays' RMS distance from their centroid is least."""
    share = traced.passes * weight
    slope = traced.direction[:2] / forward_part(traced)
    at_zero = to_plane(traced)
    slope = slope - _mean(slope, share)[:, None]
    offset = at_zero - _mean(at_zero, share)[:, None]
    across = jnp.sum(_mean(slope * offset, share))
    along = jnp.sum(_mean(slope * slope, share))
    return -across / jnp.where(along > 0.0, along, 1.0)


def rms_spot(
    traced: Trace, z: Float[Array, ""] | float = 0.0, weight: Float[Array, " rays"] | float = 1.0
) -> Float[Array, ""]:
    """RMS distance (mm) of the rays from their centroid on the plane at z (mm)."""
    share = traced.passes * weight
    at = to_plane(traced, z)
    offset = at - _mean(at, share)[:, None]
    square = jnp.sum(_mean(offset**2, share))
    return jnp.sqrt(jnp.where(square > 0.0, square, 1.0)) * (square > 0.0)


def meeting_point(traced: Trace, weight: Float[Array, " rays"] | float = 1.0) -> Float[Array, "3"]:
    """The point (mm, in the image plane's frame) whose summed squared distance from the rays is least."""
    s, share = traced.direction, traced.passes * weight
    across = jnp.eye(3)[:, :, None] - s[:, None, :] * s[None, :, :]
    matrix = _mean(across, share)
    target = _mean(jnp.einsum("ijr,jr->ir", across, traced.position), share)
    # Cramer's rule: the general solver costs a second of compilation for three unknowns.
    a, b, c = matrix.T
    determinant = jnp.dot(a, jnp.cross(b, c))
    unknowns = jnp.stack(
        [jnp.dot(target, jnp.cross(b, c)), jnp.dot(a, jnp.cross(target, c)), jnp.dot(a, jnp.cross(b, target))]
    )
    return unknowns / jnp.where(determinant == 0.0, 1.0, determinant)


def optical_path_differences(
    traced: Trace, focus: Float[Array, "3"], image_index: Float[Array, ""]
) -> Float[Array, " rays"]:
    """W = L + n s·(F − p) in mm, about its mean: the optical path of each ray to the plane through F normal to it."""
    w = traced.path + image_index * jnp.sum(traced.direction * (focus[:, None] - traced.position), axis=0)
    return w - _mean(w, traced.passes)


def path_range(
    traced: Trace, image_index: Float[Array, ""], weight: Float[Array, " rays"] | float = 1.0
) -> Float[Array, ""]:
    """Largest minus smallest optical path difference (mm) of the rays that pass, about their meeting point."""
    w = optical_path_differences(traced, meeting_point(traced, weight), image_index)
    passes = traced.passes
    return jnp.max(jnp.where(passes, w, -jnp.inf)) - jnp.min(jnp.where(passes, w, jnp.inf))
