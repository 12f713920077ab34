"""Defocus of a stack of surfaces whose hidden parts are there (`scene.surface_stack`).

The layers of one surface never cover each other: their blurred light and cover add up. One surface covers those behind
it by its own blurred cover A_k, whatever these are: from near to far

    N ← N + T Σ P∗(a_k C_k),   A_k = Σ P∗a_k,   T ← T (1 − A_k),     picture N / (1 − T).

What is approximate is that A_k and what is seen beside it are taken as independent within the pupil, as in
`composite`; nothing is filled in.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..optics.batch import any_lens
from ..scene.surface_stack import StackLayers, SurfaceStack
from .composite import extend, transform, transform_length, valid_part

# Light, the part of the pupil that is seen, what the surfaces before this one leave free, this one's cover, its number.
_Canvas = tuple[Array, Array, Array, Array, Array]


@jax.jit
def composite_stack(
    stack: SurfaceStack, layers: StackLayers, psfs: Float[Array, "layers bands size size"]
) -> Float[Array, "rows cols 3"]:
    """The defocused picture, linear RGB (`jax.vmap` for many). One band serves all three colours, or each has its own.

    A PSF's sum is part: less than 1 darkens the picture.
    """
    (_, rows, cols), (count, bands, size, _) = stack.opacity.shape, psfs.shape
    lengths = transform_length(rows, size), transform_length(cols, size)
    maps = stack.colour, stack.opacity, layers.position
    wide = jax.vmap(lambda own: jax.tree.map(lambda leaf: extend(leaf, size), own))(maps)

    def add(canvas: _Canvas, layer: tuple[Array, Array, Array]) -> tuple[_Canvas, None]:
        index, surface, _ = layer
        own = (stack.opacity[surface] > 0.0) & (jnp.abs(layers.position[surface] - index) < 1.0)
        # Many layers hold nothing, and add nothing: their transforms of zeros are left out.
        return jax.lax.cond(any_lens(jnp.any(own)), with_layer, lambda canvas, _: canvas, canvas, layer), None

    def with_layer(canvas: _Canvas, layer: tuple[Array, Array, Array]) -> _Canvas:
        light, before, room, cover, last = canvas
        index, surface, psf = layer
        colour, opacity, position = jax.tree.map(lambda leaf: leaf[surface], wide)
        weight = opacity * jnp.maximum(1.0 - jnp.abs(position - index), 0.0)
        planes = jnp.concatenate([weight * jnp.moveaxis(colour, -1, 0), weight[None]])
        kernel, spectra = transform(psf, lengths), transform(planes, lengths)
        own_light = valid_part(kernel * spectra[:3], lengths, (rows, cols), size)
        own_cover = valid_part(kernel * spectra[3], lengths, (rows, cols), size)
        own_cover = jnp.maximum(own_cover / jnp.maximum(psf.sum((-2, -1), keepdims=True), 1e-20), 0.0)
        behind = surface != last  # the first layer of the next surface
        room = jnp.where(behind, room * (1.0 - cover), room)
        cover = jnp.where(behind, 0.0, cover)
        part = pupil_share(own_cover, cover)
        share = room * part
        return light + share * own_light, before + share * own_cover, room, cover + part * own_cover, surface

    plane = jnp.zeros((bands, rows, cols), jnp.float32)
    start = jnp.zeros((3, rows, cols), jnp.float32), plane, plane + 1.0, plane, layers.surface[-1]
    index = jnp.arange(count, dtype=jnp.float32)
    canvas, _ = jax.lax.scan(add, start, (index, layers.surface, psfs), reverse=True)
    return jnp.moveaxis(canvas[0] / jnp.maximum(canvas[1], 1e-6), 0, -1)


def pupil_share(own_cover: Array, cover: Array) -> Array:
    """The part of a layer's cover that there is room for beside its surface's other layers, 0 to 1.

    Blurs that grow along a surface may add up to a little more than all of the pupil. By rounding there may be less
    than nothing left: divided by a cover that is rounding, too, it would be seen as specks.
    """
    left = jnp.maximum(1.0 - cover, 0.0)
    return jnp.where(own_cover > left, left / jnp.maximum(own_cover, 1e-20), 1.0)
