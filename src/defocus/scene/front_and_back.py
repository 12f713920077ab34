"""A photograph as two surfaces: what is seen, and what continues behind it.

Each pixel holds a front surface with an opacity and, near a depth edge, an opaque back surface: found and filled in by
`inpaint`. A third surface behind both is not kept.

A pixel on an edge is a mixture C = a F + (1 − a) B of two surfaces, though the depth map gives it to one of them. Where
F and B are known, `a` is the place of C between them; the front then has the colour F and the opacity a, the back the
colour B, whichever side of the edge the depth map chose. What the mixture leaves unexplained stays with the larger
share, so that a F + (1 − a) B is C again. Left mixed, such pixels show as a thin line of the wrong colour along
everything in focus, and thin things out of focus keep a sharp ghost.

F is the mean of its pixels nearby that touch no edge; a thing too thin to have such pixels is known by the one that
differs most from B. B is the filled-in back (near side of an edge) or the mean of its pixels nearby that touch no edge
(far side). A light source that ends at the edge is in neither: where C does not lie between F and B, the brightest
neighbour behind takes B's place; if that does not explain C either, the pixel is left as it is.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .inpaint import EDGE_PX, beside_farther, beside_nearer, fill_hidden, find_hidden
from .layers import Layers

AROUND = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)]
CONTRAST = 0.02  # squared colour difference below which two surfaces are too alike to tell a mixture from texture
MISFIT = 0.5  # squared distance from the line between two colours, over theirs, up to which a pixel is their mixture


class Surfaces(eqx.Module):
    """Front and back surface of each pixel; positions count layers from the far end, as `Layers.position`."""

    front: Float[Array, "*batch rows cols 3"]  # linear RGB
    front_position: Float[Array, "*batch rows cols"]
    opacity: Float[Array, "*batch rows cols"]  # of the front
    back: Float[Array, "*batch rows cols 3"]  # opaque where it is
    back_position: Float[Array, "*batch rows cols"]
    has_back: Bool[Array, "*batch rows cols"]


class _Nearby(eqx.Module):
    """Sums over a pixel's neighbourhood: red, green, blue, position, weight; and the brightest neighbour behind."""

    own: Float[Array, "rows cols 5"]
    nearer: Float[Array, "rows cols 5"]
    bright: Float[Array, "rows cols 3"]


@partial(jax.jit, static_argnames="split")
def find_surfaces(
    linear: Float[Array, "rows cols 3"], coc_px: Float[Array, "rows cols"], layers: Layers, *, split: bool = True
) -> Surfaces:
    """Front and back of one photograph (`jax.vmap` for many); `split` takes mixed pixels apart."""
    seed, hidden = find_hidden(coc_px)
    position = layers.position
    behind = jnp.where(hidden, position.ravel()[seed], 0.0)
    back = fill_hidden(linear, coc_px, position, behind, layers=layers.coc_px.shape[-1])
    plain = Surfaces(linear, position, jnp.ones_like(position), back, behind, hidden)
    return split_mixed(plain, coc_px) if split else plain


def split_mixed(plain: Surfaces, coc_px: Float[Array, "rows cols"]) -> Surfaces:
    """Surfaces whose mixed pixels are taken apart; `plain` has opaque fronts."""
    rows, cols = coc_px.shape
    far_side, near_side = beside_nearer(coc_px), beside_farther(coc_px)
    colour, position = plain.front, plain.front_position
    values = jnp.concatenate([colour, position[..., None], jnp.ones((rows, cols, 1), jnp.float32)], -1)
    wide = jnp.pad(values, [(2, 2), (2, 2), (0, 0)])
    wide_coc = jnp.pad(coc_px, 2, constant_values=jnp.nan)  # nan: neither nearer nor farther nor alike
    wide_clean = jnp.pad(~(far_side | near_side), 2)

    def there(image: Array, offset: Int[Array, "2"]) -> Array:
        at = (offset[0] + 2, offset[1] + 2, *[jnp.int32(0)] * (image.ndim - 2))
        return jax.lax.dynamic_slice(image, at, (rows, cols, *image.shape[2:]))

    def sum_up(near: _Nearby, offset: Int[Array, "2"]) -> tuple[_Nearby, None]:
        other, value = there(wide_coc, offset), there(wide, offset)
        close = (1.0 / jnp.maximum((offset**2).sum(), 1)).astype(jnp.float32) * there(wide_clean, offset)
        alike, nearer = jnp.abs(other - coc_px) <= EDGE_PX, other < coc_px - EDGE_PX
        touches = (jnp.abs(offset).max() <= 1) & (other > coc_px + EDGE_PX)
        brighter = touches & (value[..., :3].sum(-1) > near.bright.sum(-1))
        return _Nearby(
            near.own + (close * alike)[..., None] * value,
            near.nearer + (close * nearer)[..., None] * value,
            jnp.where(brighter[..., None], value[..., :3], near.bright),
        ), None

    offsets = jnp.asarray(AROUND, jnp.int32)
    none = jnp.zeros((rows, cols, 5), jnp.float32)
    near, _ = jax.lax.scan(sum_up, _Nearby(none, none, none[..., :3]), offsets)
    own, nearer = (s[..., :4] / jnp.maximum(s[..., 4:], 1e-9) for s in (near.own, near.nearer))
    has_own, has_nearer = near.own[..., 4] > 0.0, near.nearer[..., 4] > 0.0

    # On the near side the front is the pixel's own surface and the back its hidden one; on the far side the front is
    # the nearer surface and the back the pixel's own.
    is_near = near_side & plain.has_back
    is_far = far_side & ~is_near & has_own
    back = jnp.where(is_near[..., None], plain.back, own[..., :3])

    def most_different(
        best: tuple[Float[Array, "rows cols"], Float[Array, "rows cols 5"]], offset: Int[Array, "2"]
    ) -> tuple[tuple[Float[Array, "rows cols"], Float[Array, "rows cols 5"]], None]:
        other, value = there(wide_coc, offset), there(wide, offset)
        in_front = jnp.where(is_near, jnp.abs(other - coc_px) <= EDGE_PX, other < coc_px - EDGE_PX)
        difference = jnp.where(in_front, ((value[..., :3] - back) ** 2).sum(-1), -1.0)
        better = difference > best[0]
        return (jnp.where(better, difference, best[0]), jnp.where(better[..., None], value, best[1])), None

    start = (jnp.full((rows, cols), -1.0, jnp.float32), none)
    (_, thin), _ = jax.lax.scan(most_different, start, offsets)
    front = jnp.where(is_near[..., None], own, nearer)
    front = jnp.where(jnp.where(is_near, has_own, has_nearer)[..., None], front, thin[..., :4])
    front, front_position = front[..., :3], front[..., 3]

    # The depth map looks at the middle of a pixel: a straight edge leaves the surface that it found at least half.
    least = jnp.where(is_near, jnp.float32(0.5), jnp.float32(0.0))
    share, explained = _mixture(colour, front, back, least)
    lit_share, lit = _mixture(colour, front, near.bright, least)
    lit &= is_near & ~explained
    share = jnp.where(lit, lit_share, share)
    back = jnp.where(lit[..., None], near.bright, back)
    apart = (is_near | is_far) & (explained | lit)

    left = colour - (share[..., None] * front + (1.0 - share[..., None]) * back)
    left = left / jnp.maximum(share, 1.0 - share)[..., None]
    own_front = is_near[..., None]  # also at a share of just a half, where the depth map and the picture disagree
    front = jnp.maximum(front + jnp.where(own_front, left, 0.0), 0.0)
    back = jnp.maximum(back + jnp.where(own_front, 0.0, left), 0.0)
    is_far &= apart
    return Surfaces(
        front=jnp.where(apart[..., None], front, colour),
        front_position=jnp.where(is_far, front_position, position),
        opacity=jnp.where(apart, share, 1.0),
        back=jnp.where(apart[..., None], back, plain.back),
        back_position=jnp.where(is_far, position, plain.back_position),
        has_back=plain.has_back | is_far,
    )


def _mixture(
    colour: Float[Array, "rows cols 3"],
    front: Float[Array, "rows cols 3"],
    back: Float[Array, "rows cols 3"],
    least: Float[Array, "rows cols"],
) -> tuple[Float[Array, "rows cols"], Bool[Array, "rows cols"]]:
    """The front's share in a mixture, from `least` to a half more, and whether it is one: the colour must lie nearer to
    the line between the two than they are apart."""
    across = front - back
    contrast = (across**2).sum(-1)
    share = jnp.clip(((colour - back) * across).sum(-1) / jnp.maximum(contrast, 1e-9), least, least + 0.5)
    left = colour - (share[..., None] * front + (1.0 - share[..., None]) * back)
    return share, (contrast > CONTRAST) & ((left**2).sum(-1) < MISFIT * contrast)
