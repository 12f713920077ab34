"""A photograph as two surfaces: what is seen, and what continues behind it.

Each pixel holds a front surface with an opacity and, near a depth edge, an opaque back surface: found and filled in by
`inpaint`, with the mixed pixels of edges taken apart by `mixed`. A third surface behind both is not kept.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .inpaint import fill_hidden, find_hidden
from .layers import Layers
from .mixed import Surfaces, split_mixed

__all__ = ["Surfaces", "find_surfaces"]


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
