"""Scenes whose surfaces are all there: one behind the other from far to near, hidden parts included.

A photograph with a depth map tells what is seen, and what lies behind has to be filled in (`inpaint`). Where a scene is
put together from surfaces, each has its colour, its opacity and its depth at every pixel, and nothing is filled in. The
farthest is opaque everywhere; the sharp picture is each surface over those behind it,

    C ← a_k C_k + (1 − a_k) C.

Layers of equal blur are those of each surface by itself: a surface parallel to the sensor takes one, a slanted one as
many as its blur radii span. The radius is a linear function of 1/depth, so is the depth of a layer. A pixel belongs to
the two layers of its surface around its own blur in proportion, and to no layer of another surface.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

MOST_SURFACES = 6
LEAST_OPACITY = 1e-3  # below it a pixel is not there


class SurfaceStack(eqx.Module):
    """Surfaces from far to near, of JAX or numpy. Those that are nowhere (opacity 0) fill the stack up."""

    colour: Float[Array | np.ndarray, "*batch surfaces rows cols 3"]  # linear RGB
    opacity: Float[Array | np.ndarray, "*batch surfaces rows cols"]
    depth_m: Float[Array | np.ndarray, "*batch surfaces rows cols"]

    def picture(self) -> Float[Array | np.ndarray, "rows cols 3"]:
        """What a pinhole sees, linear RGB."""
        light = self.colour[0]
        for colour, opacity in zip(self.colour[1:], self.opacity[1:], strict=True):
            light = light + opacity[..., None] * (colour - light)
        return light

    def visible_depth(self) -> Float[np.ndarray, "rows cols"]:
        """Depth of the nearest surface that covers at least half of each pixel, in metres."""
        depth = np.asarray(self.depth_m[0])
        for own, opacity in zip(self.depth_m[1:], self.opacity[1:], strict=True):
            depth = np.where(np.asarray(opacity) >= 0.5, own, depth)
        return depth


class StackLayers(eqx.Module):
    """The layers of a stack from far to near, those of one surface next to each other."""

    coc_px: Float[Array, "*batch layers"]  # signed blur radius
    depth_m: Float[Array, "*batch layers"]
    used: Bool[Array, "*batch layers"]  # has pixels
    surface: Int[Array, "*batch layers"]  # whose layer it is
    position: Float[Array, "*batch surfaces rows cols"]  # 2.25: three quarters in layer 2, a quarter in layer 3


@partial(jax.jit, static_argnames="layers")
def quantise_stack(
    coc_px: Float[Array, "surfaces rows cols"],
    depth_m: Float[Array, "surfaces rows cols"],
    opacity: Float[Array, "surfaces rows cols"],
    *,
    layers: int,
    step_px: Float[Array, ""] | float = 1.0,
) -> StackLayers:
    """Layers of one stack (`jax.vmap` for many), `step_px` apart or less; more only where `layers` are too few."""
    surfaces = coc_px.shape[0]
    there = opacity > LEAST_OPACITY

    def ends(values: Array) -> tuple[Array, Array]:
        low, high = jnp.where(there, values, jnp.inf).min((-2, -1)), jnp.where(there, values, -jnp.inf).max((-2, -1))
        return jnp.where(anywhere, low, 0.0), jnp.where(anywhere, high, 0.0)

    anywhere = there.any((-2, -1))
    (near, far), (inverse_far, inverse_near) = ends(coc_px), ends(1.0 / depth_m)
    extent = far - near
    # Each surface takes up to two layers more than its extent has steps.
    step = jnp.maximum(step_px, extent.sum() / max(layers - 2 * surfaces, 1)).astype(jnp.float32)
    count = jnp.where(anywhere, jnp.ceil(extent / step - 1e-3) + 1, 0).astype(jnp.int32)
    end = jnp.cumsum(count)
    begin, gaps = end - count, jnp.maximum(count - 1, 1).astype(jnp.float32)
    share = (far[:, None, None] - coc_px) / jnp.maximum(extent, 1e-6)[:, None, None]
    place = jnp.clip(share, 0.0, 1.0) * jnp.maximum(count - 1, 0)[:, None, None]
    position = begin[:, None, None] + jnp.where(count[:, None, None] > 1, place, 0.0)

    index = jnp.arange(layers)
    surface = jnp.clip(jnp.searchsorted(end, index, side="right"), 0, surfaces - 1).astype(jnp.int32)
    part = jnp.clip((index - begin[surface]) / gaps[surface], 0.0, 1.0).astype(jnp.float32)
    inverse = inverse_far[surface] + part * (inverse_near - inverse_far)[surface]
    used = jnp.zeros(layers, bool)
    for neighbour in (jnp.floor(position), jnp.ceil(position)):
        used = used.at[neighbour.astype(jnp.int32).ravel()].max(there.ravel(), mode="drop")
    # Unused layers take a depth that a lens can image.
    depth = jnp.where(used, 1.0 / jnp.maximum(inverse, 1e-9), depth_m[0, 0, 0])
    return StackLayers(far[surface] - part * extent[surface], depth, used, surface, position)
