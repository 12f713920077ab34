"""What lies behind: the hidden surface next to each depth edge, and its colours.

Seen from all of the pupil, a little of the surface behind an edge shows that a pinhole at its centre does not see: a
strip as wide as the two blur radii together. `find_hidden` says which pixels of the nearer surface have such a strip
behind them and which visible pixel it continues from: the nearest one beside an edge that lies farther away (jump
flooding: Rong and Tan, 2006; here a pixel takes only seeds that lie behind it). Its depth is that pixel's. Its colours
come from a push-pull pyramid (Gortler et al., 1996) over the visible pixels of about that depth, one pyramid for each
layer: averages are pushed to coarser levels where pixels are known and pulled back into the gaps, so
that a gap is filled the more smoothly the wider it is. That is the estimate of least squared error, not an invented
texture.

A step in depth counts as an edge where neighbouring pixels differ in signed blur radius by more than `EDGE_PX`; smaller
steps are slanted surfaces.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

EDGE_PX = 1.5  # signed blur radii of neighbouring pixels that differ by more belong to two surfaces
REACH_PX = 127  # how far behind an edge the search can go; never less than two of the paper's largest blur radii
LEVELS = 7  # of the pyramid: its coarsest cells are 128 pixels wide
NEIGHBOURS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def shifted(image: Array, dy: int, dx: int, fill: float) -> Array:
    """The image's value at (row + dy, column + dx), `fill` outside it."""
    rows, cols = image.shape[:2]
    wide = jnp.pad(image, [(1, 1), (1, 1)], constant_values=fill)
    return wide[1 + dy : 1 + dy + rows, 1 + dx : 1 + dx + cols]


def beside_nearer(coc_px: Float[Array, "rows cols"]) -> Bool[Array, "rows cols"]:
    """Pixels on the far side of an edge."""
    near = jnp.stack([shifted(coc_px, dy, dx, jnp.inf) for dy, dx in NEIGHBOURS]).min(0)
    return near < coc_px - EDGE_PX


def beside_farther(coc_px: Float[Array, "rows cols"]) -> Bool[Array, "rows cols"]:
    """Pixels on the near side of an edge."""
    far = jnp.stack([shifted(coc_px, dy, dx, -jnp.inf) for dy, dx in NEIGHBOURS]).max(0)
    return far > coc_px + EDGE_PX


@partial(jax.jit, static_argnames="reach_px")
def find_hidden(
    coc_px: Float[Array, "rows cols"], reach_px: int = REACH_PX
) -> tuple[Int[Array, "rows cols"], Bool[Array, "rows cols"]]:
    """For each pixel the flat index of the visible pixel that continues behind it, and whether there is one."""
    rows, cols = coc_px.shape
    reach = min(reach_px, max(rows, cols))
    jumps = [1] + [2**k for k in reversed(range(max(reach.bit_length(), 1)))]
    margin = max(jumps)
    # A place is a row and a column in one number: shifts take them apart, where a division takes ten times as long.
    bits = cols.bit_length()
    row, col = jnp.arange(rows, dtype=jnp.int32)[:, None], jnp.arange(cols, dtype=jnp.int32)[None, :]
    place = (row << bits) | col

    def apart(places: Int[Array, "rows cols"]) -> tuple[Int[Array, "rows cols"], Int[Array, "rows cols"]]:
        return places >> bits, places & ((1 << bits) - 1)

    def around(image: Array, fill: float) -> Array:
        return jnp.pad(image, margin, constant_values=fill)

    def better(
        seed: Array, seed_coc: Array, other: Array, other_coc: Array
    ) -> tuple[Int[Array, "rows cols"], Float[Array, "rows cols"]]:
        def squared_distance(s: Array) -> Array:
            s_row, s_col = apart(s)
            return (s_row - row) ** 2 + (s_col - col) ** 2

        new = squared_distance(other)
        take = (other >= 0) & (other_coc > coc_px + EDGE_PX)
        # Farther away, no point of the pupil sees it.
        take &= new.astype(jnp.float32) <= (jnp.abs(coc_px) + jnp.abs(other_coc) + 2.0) ** 2
        take &= (seed < 0) | (new < squared_distance(seed))
        return jnp.where(take, other, seed), jnp.where(take, other_coc, seed_coc)

    inside = (slice(margin, margin + rows), slice(margin, margin + cols))

    def take(state: tuple[Array, Array], offers: tuple[Array, Array], jump: Array) -> tuple[Array, Array]:
        at = (margin + jump[0], margin + jump[1])
        other, other_coc = (jax.lax.dynamic_slice(a, at, (rows, cols)) for a in offers)
        seed, seed_coc = better(state[0][inside], state[1][inside], other, other_coc)
        return state[0].at[inside].set(seed), state[1].at[inside].set(seed_coc)

    # First every pixel offers itself to its neighbours, so that only pixels beside an edge become seeds; then its seed.
    pixels = (around(place, -1), around(coc_px, -jnp.inf))
    state = (jnp.full_like(pixels[0], -1), jnp.full_like(pixels[1], -jnp.inf))
    near = jnp.asarray(NEIGHBOURS, jnp.int32)
    state, _ = jax.lax.scan(lambda s, jump: (take(s, pixels, jump), None), state, near)
    far = jnp.asarray([(j * dy, j * dx) for j in jumps for dy, dx in NEIGHBOURS], jnp.int32)
    state, _ = jax.lax.scan(lambda s, jump: (take(s, s, jump), None), state, far)
    seed = state[0][inside]
    seed_row, seed_col = apart(seed)
    return jnp.maximum(seed_row * cols + seed_col, 0), seed >= 0


def _halve(image: Float[Array, "rows cols channels"]) -> Float[Array, "half_rows half_cols channels"]:
    rows, cols, channels = image.shape
    return image.reshape(rows // 2, 2, cols // 2, 2, channels).sum((1, 3))


def _double(image: Float[Array, "rows cols channels"]) -> Float[Array, "two_rows two_cols channels"]:
    """Linear interpolation to twice the size; pixel centres stay where they are."""
    for axis in (0, 1):
        n = image.shape[axis]
        before = jnp.concatenate([jax.lax.slice_in_dim(image, a, b, axis=axis) for a, b in ((0, 1), (0, n - 1))], axis)
        after = jnp.concatenate([jax.lax.slice_in_dim(image, a, b, axis=axis) for a, b in ((1, n), (n - 1, n))], axis)
        pair = jnp.stack([0.75 * image + 0.25 * before, 0.75 * image + 0.25 * after], axis + 1)
        image = pair.reshape(*image.shape[:axis], 2 * n, *image.shape[axis + 1 :])
    return image


@jax.jit
def push_pull(
    colour: Float[Array, "rows cols channels"], weight: Float[Array, "rows cols"]
) -> Float[Array, "rows cols channels"]:
    """Fill an image where its weight (0 to 1) is less than 1; where it is 1 everywhere, nothing changes.

    With no weight anywhere the result is 0.
    """
    rows, cols, channels = colour.shape
    levels = min(max(max(rows, cols) - 1, 1).bit_length(), LEVELS)
    image = jnp.concatenate([colour * weight[..., None], weight[..., None]], -1)
    # Whole cells on every level; beyond the image nothing is known.
    image = jnp.pad(image, [*((0, -n % 2**levels) for n in (rows, cols)), (0, 0)])
    pushed = [image]
    for _ in range(levels):
        image = _halve(image)
        image = image / jnp.maximum(image[..., -1:], 1.0)  # at most certain
        pushed.append(image)
    total = image.sum((0, 1))
    filled = jnp.broadcast_to(total[:-1] / jnp.maximum(total[-1], 1e-12), (*image.shape[:2], channels))
    filled = image[..., :-1] + (1.0 - image[..., -1:]) * filled
    for image in reversed(pushed[:-1]):
        filled = image[..., :-1] + (1.0 - image[..., -1:]) * _double(filled)
    return filled[:rows, :cols]


@partial(jax.jit, static_argnames="layers")
def fill_hidden(
    linear: Float[Array, "rows cols 3"],
    coc_px: Float[Array, "rows cols"],
    position: Float[Array, "rows cols"],
    hidden_position: Float[Array, "rows cols"],
    *,
    layers: int,
) -> Float[Array, "rows cols 3"]:
    """Colours at the depth of layer `hidden_position`, seen from the visible pixels of about that depth.

    Pixels nearer by a layer take no part, pixels farther by three or more hardly any (weight 1e-6, so that a hidden
    surface always has some colour), and pixels beside a nearer one little: part of them may be its colour. Light beyond
    white counts in inverse proportion: lamps are small, and what is hidden beside one is seldom another; a sky beyond
    white has nothing darker beside it and stays.
    """
    clean = jnp.where(beside_nearer(coc_px), jnp.float32(0.02), jnp.float32(1.0))
    clean /= jnp.maximum(linear.max(-1), 1.0)
    nearest = jnp.round(hidden_position)

    def one(result: Float[Array, "rows cols 3"], layer: Float[Array, ""]) -> tuple[Float[Array, "rows cols 3"], None]:
        here = nearest == layer

        def fill(result: Float[Array, "rows cols 3"]) -> Float[Array, "rows cols 3"]:
            farther = jnp.maximum(layer - position, 0.0)
            weight = jnp.where(position < layer + 1.0, jnp.maximum(1.0 - farther / 3.0, 1e-6), 0.0)
            return jnp.where(here[..., None], push_pull(linear, weight * clean), result)

        return jax.lax.cond(jnp.any(here), fill, lambda result: result, result), None

    return jax.lax.scan(one, linear, jnp.arange(layers, dtype=jnp.float32))[0]
