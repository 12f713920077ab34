"""Cut a scene into layers of nearly equal blur: quantisation of the signed circle of confusion.

A layer holds the pixels whose signed blur radius (pixels, positive beyond the focus) lies within one step. Layers are
counted from the far end: layer 0 is the farthest. A layer's own blur is the mean over its pixels, its depth the mean of
their inverse depths, in which the circle of confusion of a lens is linear and infinity is an ordinary number, 0. So a
scene made of planes gets exactly the planes' blurs. Between the means of two neighbouring layers that both hold pixels
a pixel belongs to both in proportion (`Layers.position`): blur then changes smoothly over a slanted surface instead of
in steps, and the weights of a pixel sum to 1 whatever happens.

The number of layers is part of the compiled program, so it is padded: layers without pixels cost time and nothing else.
If the scene needs more layers than there are, the step grows until it fits; `cut_layers` refuses that unless asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from ..errors import DefocusError

MOST_LAYERS = 96  # ±32 px of blur, the paper's limit, in steps of less than a pixel, and room
BUCKET = 8  # numbers of layers are rounded up to a multiple, so that few programs are compiled


class Layers(eqx.Module):
    """A scene in layers, from far to near. Unused layers stand between or behind the used ones."""

    coc_px: Float[Array, "*batch layers"]  # signed blur radius
    depth_m: Float[Array, "*batch layers"]  # inf is allowed
    used: Bool[Array, "*batch layers"]  # has pixels
    position: Float[Array, "*batch rows cols"]  # 2.25: three quarters in layer 2, a quarter in layer 3
    step_px: Float[Array, "*batch"]  # distance of the layers' nominal blurs

    def weight(self, layer: Float[Array, ""] | int) -> Float[Array, "*batch rows cols"]:
        """Each pixel's share in a layer."""
        return jnp.maximum(1.0 - jnp.abs(self.position - layer), 0.0)


@partial(jax.jit, static_argnames="layers")
def quantise(
    coc_px: Float[Array, "rows cols"],
    depth_m: Float[Array, "rows cols"],
    *,
    layers: int,
    step_px: Float[Array, ""] | float = 1.0,
) -> Layers:
    """Layers of one scene (`jax.vmap` for many), `step_px` apart or less; more only where `layers` are too few."""
    far, near = coc_px.max(), coc_px.min()
    extent = far - near
    # One step fewer than there are layers; a hair of slack so that a whole number of steps is not rounded up.
    steps = jnp.clip(jnp.ceil(extent / step_px - 1e-3), 1, max(layers - 1, 1))
    step = jnp.maximum(extent / steps, 1e-6).astype(jnp.float32)
    nearest = jnp.clip(jnp.round((far - coc_px) / step), 0, layers - 1).astype(jnp.int32)

    count = by_label(jnp.sum, jnp.ones(coc_px.shape, jnp.int32), nearest, layers)

    def mean(values: Float[Array, "rows cols"]) -> Float[Array, "layers"]:
        """In whole parts above the least of the layer.

        So a layer of equal pixels has exactly their value, and a GPU, which adds in any order, the same sum each time.
        """
        part = jnp.maximum(values.max() - values.min(), 1e-30).astype(jnp.float32) * 2.0**-30
        least = jnp.where(count > 0, -by_label(jnp.max, -values, nearest, layers), 0.0)
        above = jnp.round((values - least[nearest]) / part).astype(jnp.int64)
        total = by_label(jnp.sum, above, nearest, layers)
        return least + (total / jnp.maximum(count, 1)).astype(jnp.float32) * part

    used = count > 0
    index = jnp.arange(layers, dtype=jnp.float32)
    nominal = far - index * step
    coc = jnp.where(used, mean(coc_px), nominal)
    inverse = mean(1.0 / depth_m)
    # Unused layers borrow the depth of the nearest used one: a number that a lens can image.
    closest = jnp.argmin(jnp.abs(index[:, None] - index[None, :]) + jnp.where(used, 0.0, 1e9)[None, :], axis=1)
    depth = 1.0 / inverse[closest]

    offset = coc_px - coc[nearest]
    towards = jnp.clip(nearest - jnp.sign(offset).astype(jnp.int32), 0, layers - 1)  # a larger blur lies farther
    gap = jnp.abs(coc[towards] - coc[nearest])
    shared = used[towards] & (towards != nearest)
    share = jnp.where(shared, jnp.abs(offset) / jnp.maximum(gap, 1e-6), 0.0)
    share = jnp.where(share < 1e-5, 0.0, jnp.minimum(share, 1.0))
    return Layers(coc, depth, used, nearest + (towards - nearest) * share, step)


def by_label(
    reduce: Callable[..., Array], values: Shaped[Array, "rows cols"], labels: Int[Array, "rows cols"], count: int
) -> Shaped[Array, " labels"]:
    """The sum or the largest (`jnp.sum`, `jnp.max`) of the values of each label; any number where a label has none.

    A processor goes through the pixels once. On a GPU thousands of them would wait for one and the same sum: it goes
    through them for each label.
    """
    if jax.default_backend() == "cpu":
        segments = jax.ops.segment_sum if reduce is jnp.sum else jax.ops.segment_max
        return segments(values.ravel(), labels.ravel(), count)
    nothing = 0 if reduce is jnp.sum else values.min()
    index = jnp.arange(count)[:, None, None]
    return reduce(jnp.where(labels == index, values, nothing), axis=(1, 2))


def layers_needed(coc_px: Float[Array, "*batch rows cols"] | np.ndarray, step_px: float = 1.0) -> int:
    """How many layers no more than `step_px` apart the scene needs; of a batch, the most."""
    values = np.asarray(coc_px)
    extent = float((values.max((-2, -1)) - values.min((-2, -1))).max())
    return max(math.ceil(extent / step_px - 1e-3), 0) + 1


def cut_layers(
    coc_px: Float[Array, "rows cols"] | np.ndarray,
    depth_m: Float[Array, "rows cols"] | np.ndarray,
    *,
    step_px: float = 1.0,
    most: int = MOST_LAYERS,
    merge: bool = False,
) -> Layers:
    """`quantise` with as many layers as the scene needs, and with its input checked.

    Raises `DefocusError` where more than `most` layers are needed, unless `merge`: then the step grows to
    extent / (most − 1) and each layer takes in more blur than `step_px`.
    """
    coc, depth = np.asarray(coc_px, np.float32), np.asarray(depth_m, np.float32)
    if coc.shape != depth.shape or coc.ndim != 2 or coc.size == 0:
        raise DefocusError(f"blur radii of shape {coc.shape} and depths of shape {depth.shape}; expected one image")
    if not step_px > 0.0 or most < 2:
        raise DefocusError(f"layers every {step_px} px, at most {most}; expected a positive step and 2 layers or more")
    if not np.isfinite(coc).all():
        bad = np.argwhere(~np.isfinite(coc))[0]
        raise DefocusError(
            f"the blur radius of pixel {tuple(map(int, bad))} is {coc[tuple(bad)]}; expected finite numbers"
        )
    if not (depth > 0.0).all():
        bad = np.argwhere(~(depth > 0.0))[0]
        raise DefocusError(
            f"the depth of pixel {tuple(map(int, bad))} is {depth[tuple(bad)]} m; expected a positive number or inf: "
            "fill the holes of the depth map first"
        )
    needed = layers_needed(coc, step_px)
    if needed > most and not merge:
        extent = float(coc.max() - coc.min())
        raise DefocusError(
            f"blur radii from {coc.min():.1f} to {coc.max():.1f} px take {needed} layers at {step_px:g} px; at most "
            f"{most} are allowed: use a step of {extent / (most - 1):.2g} px, allow merging, or stop the lens down"
        )
    count = min(-(-needed // BUCKET) * BUCKET, most)
    return quantise(jnp.asarray(coc), jnp.asarray(depth), layers=count, step_px=step_px)
