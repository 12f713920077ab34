"""Whole photographs with PSFs that change over the field.

PSFs are known on a grid of nodes that spans the photograph. Between four nodes the picture is the bilinear mean of the
four pictures that the nodes' PSFs would give; the weights sum to 1 and change continuously, so there are no seams.
Memory is bounded by tiles: each lies in one cell of the grid and is rendered with a margin of a whole kernel (half for
the blur, half for what the blur shows from behind edges), the photograph being reflected at its borders. Of the scene's
layers a tile renders only those that occur in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import DefocusError
from ..scene.front_and_back import Surfaces, find_surfaces
from ..scene.layers import BUCKET, Layers
from ..srgb import check_floats
from .composite import composite, mirror_index, require_kernel

TILE_PX = 512  # with a kernel of 128 pixels, an FFT of 900

PsfsAtNode = Callable[[int, int], Float[np.ndarray, "layers bands size size"]]


def node_places(pixels: int, nodes: int) -> Float[np.ndarray, "nodes"]:
    """Rows or columns of the nodes: from the middle of the first pixel to that of the last; one node in the middle."""
    return np.linspace(0.0, pixels - 1.0, nodes) if nodes > 1 else np.array([(pixels - 1.0) / 2.0])


def render_photograph(
    linear: np.ndarray,
    coc_px: np.ndarray,
    layers: Layers,
    psfs: np.ndarray | PsfsAtNode,
    nodes: tuple[int, int] | None = None,
    *,
    tile_px: int = TILE_PX,
    parts: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Float[np.ndarray, "rows cols 3"]:
    """The defocused photograph, linear RGB, of light [rows, cols, 3] and blur radii [rows, cols].

    `psfs` is an array [node rows, node columns, layers, bands, size, size], or a function of a node's row and column
    that is called once for each of `nodes` = (rows, columns); no more than two rows of nodes are kept. Nodes stand at
    `node_places`.
    """
    check_floats(linear, "linear light")
    photo, coc = np.asarray(linear, np.float32), np.asarray(coc_px, np.float32)
    if photo.shape != (*coc.shape, 3) or layers.position.shape != coc.shape:
        raise DefocusError(
            f"a photograph of shape {photo.shape}, blur radii of {coc.shape} and layers of {layers.position.shape}; "
            "expected one size"
        )
    if not callable(psfs):
        if nodes is not None and nodes != psfs.shape[:2]:
            raise DefocusError(f"{nodes} nodes asked for, PSFs given on {psfs.shape[:2]}")
        nodes = (psfs.shape[0], psfs.shape[1])
    if nodes is None or min(nodes) < 1:
        raise DefocusError(f"nodes {nodes}; expected the numbers of rows and columns at which the PSFs are to be known")
    if tile_px < 16 or parts < 1:
        raise DefocusError(f"tiles of {tile_px} px, {parts} parts; expected tiles of 16 px or more and a part or more")

    kernels: dict[tuple[int, int], Float[Array, "layers bands size size"]] = {}

    def at_node(node: tuple[int, int]) -> Float[Array, "layers bands size size"]:
        if node not in kernels:
            kernel = jnp.asarray(psfs(*node) if callable(psfs) else psfs[node], jnp.float32)
            if kernel.ndim != 4 or kernel.shape[0] != layers.coc_px.shape[0]:
                raise DefocusError(
                    f"PSFs of shape {kernel.shape} at node {node} for {layers.coc_px.shape[0]} layers; expected "
                    "[layers, bands, size, size]"
                )
            require_kernel(layers.coc_px, layers.used, kernel.shape[-1])
            kernels[node] = kernel
        return kernels[node]

    position = np.asarray(layers.position)
    places = tuple(node_places(n, count) for n, count in zip(coc.shape, nodes, strict=True))
    spans = tuple(_cells(n, at) for n, at in zip(coc.shape, places, strict=True))
    # One shape for all tiles: as large as the largest cell, up to tile_px.
    tile = tuple(min(tile_px, -(-max(end - start for start, end in span) // 16) * 16) for span in spans)
    blurred = np.empty_like(photo)
    done = 0
    for i, down in enumerate(spans[0]):
        for key in [key for key in kernels if key[0] < i]:
            del kernels[key]
        for j, across in enumerate(spans[1]):
            corners = list(product(range(i, min(i + 2, nodes[0])), range(j, min(j + 2, nodes[1]))))
            for top, left in product(range(*down, tile[0]), range(*across, tile[1])):
                margin = at_node(corners[0]).shape[-1]
                at_rows = mirror_index(np.arange(top - margin, top + tile[0] + margin), coc.shape[0])
                at_cols = mirror_index(np.arange(left - margin, left + tile[1] + margin), coc.shape[1])
                window = np.ix_(at_rows, at_cols)
                cut = Layers(layers.coc_px, layers.depth_m, layers.used, jnp.asarray(position[window]), layers.step_px)
                surfaces, occurs = _tile_surfaces(jnp.asarray(photo[window]), jnp.asarray(coc[window]), cut)
                present, renumbered = _present(np.asarray(occurs))
                weights = _blend(places, corners, (top, left), tile)
                picture = _render_tile(
                    surfaces,
                    jnp.stack([at_node(corner)[present] for corner in corners]),
                    layers.coc_px[present],
                    jnp.asarray(renumbered),
                    jnp.asarray(weights),
                    parts=parts,
                )
                bottom, right = min(top + tile[0], down[1]), min(left + tile[1], across[1])
                blurred[top:bottom, left:right] = np.asarray(picture)[: bottom - top, : right - left]
                done += (bottom - top) * (right - left)
                if progress is not None:
                    progress(done / coc.size)
    return blurred


@jax.jit
def _tile_surfaces(
    linear: Float[Array, "rows cols 3"], coc_px: Float[Array, "rows cols"], layers: Layers
) -> tuple[Surfaces, Bool[Array, "layers"]]:
    """Front and back of a tile with its margin, and which layers occur in them."""
    surfaces = find_surfaces(linear, coc_px, layers)
    occurs = jnp.zeros(layers.coc_px.shape, bool)
    behind = jnp.where(surfaces.has_back, surfaces.back_position, surfaces.front_position)
    for position in (surfaces.front_position, behind):
        for edge in (jnp.floor(position), jnp.ceil(position)):
            occurs = occurs.at[edge.astype(jnp.int32).ravel()].set(True)
    return surfaces, occurs


@partial(jax.jit, static_argnames="parts")
def _render_tile(
    surfaces: Surfaces,
    psfs: Float[Array, "corners layers bands size size"],
    coc_px: Float[Array, "layers"],
    renumbered: Float[Array, "all_layers"],
    weights: Float[Array, "corners tile_rows tile_cols"],
    *,
    parts: int,
) -> Float[Array, "tile_rows tile_cols 3"]:
    """The mean of the pictures that the PSFs of the cell's corners give, without the margin."""

    def number(position: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        whole = jnp.floor(position)
        return renumbered[whole.astype(jnp.int32)] + (position - whole)

    inner = Surfaces(
        surfaces.front,
        number(surfaces.front_position),
        surfaces.opacity,
        surfaces.back,
        number(surfaces.back_position),
        surfaces.has_back,
    )
    pictures = jax.vmap(lambda psf: composite(inner, psf, coc_px, parts=parts))(psfs)
    margin = psfs.shape[-1]
    rows, cols = weights.shape[1:]
    inside = pictures[:, margin : margin + rows, margin : margin + cols]
    # Added one by one, for the compiler's sake: see `composite`.
    return sum((w[..., None] * p for w, p in zip(weights, inside, strict=True)), jnp.float32(0.0))


def _present(occurs: Bool[np.ndarray, "layers"]) -> tuple[Int[np.ndarray, "present"], Float[np.ndarray, "layers"]]:
    """The layers that occur, padded with the last of them to a whole bucket, and every layer's new number."""
    present = np.flatnonzero(occurs)
    # Padding layers stand before the far end, where no pixel is.
    padding = -len(present) % BUCKET
    renumbered = np.cumsum(occurs) - 1.0 + padding
    return np.concatenate([np.repeat(present[:1], padding), present]), renumbered.astype(np.float32)


def _cells(pixels: int, places: Float[np.ndarray, "nodes"]) -> list[tuple[int, int]]:
    """First pixel and end of each cell between two nodes."""
    if len(places) == 1:
        return [(0, pixels)]
    edges = [0, *(int(np.ceil(p)) for p in places[1:-1]), pixels]
    return [(start, end) for start, end in pairwise(edges)]


def _blend(
    places: tuple[Float[np.ndarray, "_"], ...],
    corners: list[tuple[int, int]],
    start: tuple[int, int],
    tile: tuple[int, ...],
) -> Float[np.ndarray, "corners tile_rows tile_cols"]:
    """Bilinear weight of each corner at each pixel of a tile; they sum to 1."""

    def along(axis: int, node: int) -> Float[np.ndarray, "tile_pixels"]:
        at = places[axis]
        if len(at) == 1:
            return np.ones(tile[axis], np.float32)
        pixel = np.clip(np.arange(start[axis], start[axis] + tile[axis]), at[0], at[-1])
        hat = np.interp(pixel, at, np.arange(len(at)) == node)
        return hat.astype(np.float32)

    # A tile may reach beyond its cell: those pixels are not used.
    return np.stack([along(0, r)[:, None] * along(1, c)[None, :] for r, c in corners])
