"""Whole photographs with PSFs that change over the field.

PSFs are known on a grid of nodes that spans the photograph. Between four nodes the picture is the bilinear mean of the
four pictures that the nodes' PSFs would give; the weights sum to 1 and change continuously, so there are no seams.
Memory is bounded by tiles: each lies in one cell of the grid and sees a margin of a whole kernel (half for the blur,
half for what the blur shows from behind edges), the photograph being reflected at its borders. Surfaces are found for
the whole photograph, or for a row of tiles of a large one: tiles agree on what is hidden. A layer is
blurred in the window of its own PSF, and only in tiles that it reaches into: a layer near the focus has a small
transform, whatever the largest blur is. One program serves each size of window, however many layers there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import DefocusError
from ..psf.wavefronts import backend_kind
from ..scene.front_and_back import Surfaces, find_surfaces
from ..scene.layers import Layers
from ..srgb import check_floats
from ..stored_program import StoredProgram, stored_program
from .composite import Canvas, embedded, kernel_reach, mirror_index, require_kernel

TILE_PX = {"cpu": 512, "gpu": 1024}  # at least; with a kernel of 128 pixels, an FFT of 640
TILE_KERNELS = 2  # a tile is at least so many of its largest kernels wide: its FFT has 2.25 times its pixels
SURFACE_PIXELS = 2**22  # of a photograph whose surfaces are found at once; in larger ones, along a row of tiles

NodeKernels = Sequence[Float[np.ndarray, "bands _ _"]]  # of each layer, in a window of its own
PsfsAtNode = Callable[[int, int], NodeKernels]
NodePlace = tuple[int, int]  # row, column


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
    tile_px: int | None = None,
    parts: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Float[np.ndarray, "rows cols 3"]:
    """The defocused photograph, linear RGB, of light [rows, cols, 3] and blur radii [rows, cols].

    `psfs` is an array [node rows, node columns, layers, bands, size, size], or a function of a node's row and column
    that is called once for each of `nodes` = (rows, columns) and gives each layer's PSF [bands, size, size] in a window
    of its own; no more than two rows of nodes are kept. Nodes stand at `node_places`. Tiles of `tile_px` are by default
    as large as the kernels want.
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
    if (tile_px is not None and tile_px < 16) or parts < 1:
        raise DefocusError(f"tiles of {tile_px} px, {parts} parts; expected tiles of 16 px or more and a part or more")

    kernels, blur = _Kernels(psfs, layers), np.asarray(layers.coc_px)
    places = tuple(node_places(n, count) for n, count in zip(coc.shape, nodes, strict=True))
    spans = tuple(_cells(n, at) for n, at in zip(coc.shape, places, strict=True))
    blurred = np.empty_like(photo)
    done, strip = 0, slice(0)  # rows whose surfaces are known
    for i, down in enumerate(spans[0]):
        kernels.forget_before(i)
        node_rows = range(i, min(i + 2, nodes[0]))
        margin = max(psf.shape[-1] for node in product(node_rows, range(nodes[1])) for psf in kernels.at(node))
        tile = tuple(_tile_pixels(max(end - start for start, end in span), tile_px, margin) for span in spans)
        for top, (j, across) in product(range(*down, tile[0]), enumerate(spans[1])):
            rows = _surface_rows(top - margin, tile[0] + 2 * margin, coc.shape)
            if rows != strip:
                strip = rows
                surfaces = _surfaces(jnp.asarray(photo[rows]), jnp.asarray(coc[rows]), _cut(layers, rows))
            corners = list(product(node_rows, range(j, min(j + 2, nodes[1]))))
            at_corners = list(zip(*map(kernels.at, corners), strict=True))  # [layer][corner]
            sizes = [max(psf.shape[-1] for psf in layer) for layer in at_corners]
            for left in range(*across, tile[1]):
                near_tile, away = _around_tile(margin, len(blur))(
                    surfaces,
                    mirror_index(np.arange(top - margin, top + tile[0] + margin), coc.shape[0]) - rows.start,
                    mirror_index(np.arange(left - margin, left + tile[1] + margin), coc.shape[1]),
                )
                bands = at_corners[0][0].shape[0]
                canvas = Canvas.empty((len(corners), *tile), bands=bands, parts=parts)
                for layer in np.flatnonzero(np.asarray(away) <= [max(kernel_reach(size)) for size in sizes])[::-1]:
                    own = [kernels.on_device(node, int(layer), sizes[layer]) for node in corners]
                    canvas = _with_layer(margin)(canvas, near_tile, np.float32(layer), own, blur[layer])
                picture = _blended(canvas, jnp.asarray(_blend(places, corners, (top, left), tile)))
                bottom, right = min(top + tile[0], down[1]), min(left + tile[1], across[1])
                blurred[top:bottom, left:right] = np.asarray(picture)[: bottom - top, : right - left]
                done += (bottom - top) * (right - left)
                if progress is not None:
                    progress(done / coc.size)
    return blurred


class _Kernels:
    """The layers' PSFs at the nodes: asked for once at each, and brought to the device once in each window."""

    def __init__(self, psfs: np.ndarray | PsfsAtNode, layers: Layers) -> None:
        self._psfs, self._layers = psfs, layers
        self._nodes: dict[NodePlace, NodeKernels] = {}
        self._arrays: dict[tuple[NodePlace, int, int], Float[Array, "bands size size"]] = {}

    def at(self, node: NodePlace) -> NodeKernels:
        """Each layer's PSF at a node, on the host. Raises `DefocusError` where a blur does not fit its window."""
        if node not in self._nodes:
            own = self._psfs(*node) if callable(self._psfs) else self._psfs[node]
            count = len(self._layers.coc_px)
            if len(own) != count or any(psf.ndim != 3 for psf in own):
                raise DefocusError(
                    f"PSFs of shapes {sorted({psf.shape for psf in own})} at node {node}, {len(own)} for {count} "
                    "layers; expected [bands, size, size] for each layer"
                )
            sizes = np.array([psf.shape[-1] for psf in own])
            for size in np.unique(sizes).tolist():
                require_kernel(self._layers.coc_px, self._layers.used & (sizes == size), size)
            self._nodes[node] = list(own)
        return self._nodes[node]

    def on_device(self, node: NodePlace, layer: int, size: int) -> Float[Array, "bands size size"]:
        """A node's PSF of a layer in a window of `size`."""
        key = node, layer, size
        if key not in self._arrays:
            self._arrays[key] = jnp.asarray(embedded([self.at(node)[layer]], size)[0])
        return self._arrays[key]

    def forget_before(self, row: int) -> None:
        """Keep nothing of the nodes above a row."""
        self._nodes = {node: own for node, own in self._nodes.items() if node[0] >= row}
        self._arrays = {key: psf for key, psf in self._arrays.items() if key[0][0] >= row}


def _tile_pixels(cell: int, most: int | None, kernel: int) -> int:
    """Pixels along one side of all tiles of a row of cells: an even part of the largest cell, no more than `most`."""
    usual = max(TILE_PX[backend_kind()], TILE_KERNELS * kernel)
    count = -(-cell // most) if most is not None else max(round(cell / usual), 1)
    tile = -(-cell // (16 * count)) * 16
    return tile if most is None else min(tile, most)


def _surface_rows(first: int, count: int, shape: tuple[int, ...]) -> slice:
    """Rows of a photograph of `shape` whose surfaces are found together, for tiles that see `count` rows of them."""
    count = shape[0] if math.prod(shape) <= SURFACE_PIXELS else min(count, shape[0])
    first = min(max(first, 0), shape[0] - count)
    return slice(first, first + count)


def _cut(layers: Layers, rows: slice) -> Layers:
    return Layers(layers.coc_px, layers.depth_m, layers.used, layers.position[rows], layers.step_px)


@StoredProgram
def _surfaces(linear: Float[Array, "rows cols 3"], coc_px: Float[Array, "rows cols"], layers: Layers) -> Surfaces:
    return find_surfaces(linear, coc_px, layers)


@cache
def _around_tile(margin: int, layers: int) -> Callable[..., tuple[Surfaces, Int[Array, "layers"]]]:
    """`_cut_tile` for these numbers."""

    def around_tile(*arrays: Any) -> tuple[Surfaces, Int[Array, "layers"]]:
        return _cut_tile(*arrays, margin=margin, layers=layers)

    return stored_program(around_tile, margin=margin, layers=layers)


def _cut_tile(
    surfaces: Surfaces, rows: Int[Array, " rows"], cols: Int[Array, " cols"], *, margin: int, layers: int
) -> tuple[Surfaces, Int[Array, "layers"]]:
    """Front and back of a tile with its margin, and how many pixels outside the tile each layer begins."""
    near = jax.tree.map(lambda leaf: leaf[rows[:, None], cols], surfaces)
    steps = [np.arange(n) for n in near.opacity.shape]
    outside = [np.maximum(margin - at, at - (len(at) - 1 - margin)).clip(0) for at in steps]
    distance = jnp.asarray(np.maximum(outside[0][:, None], outside[1]).astype(np.int32).ravel())
    away = jnp.full(layers, np.iinfo(np.int32).max, jnp.int32)
    behind = jnp.where(near.has_back, near.back_position, near.front_position)
    for position in (near.front_position, behind):
        for edge in (jnp.floor(position), jnp.ceil(position)):
            away = away.at[edge.astype(jnp.int32).ravel()].min(distance)
    return near, away


@cache
def _with_layer(margin: int) -> Callable[..., Canvas]:
    """`_add_layer` for surfaces with this margin."""

    def with_layer(*arrays: Any) -> Canvas:
        return _add_layer(*arrays, margin=margin)

    return stored_program(with_layer, margin=margin)


def _add_layer(
    canvas: Canvas,
    surfaces: Surfaces,
    layer: Float[Array, ""],
    psfs: list[Float[Array, "bands size size"]],
    coc_px: Float[Array, ""],
    *,
    margin: int,
) -> Canvas:
    """The canvases of the cell's corners with one more layer; surfaces have a margin of so many pixels."""
    rows, cols = canvas.light.shape[-2:]
    before, after = kernel_reach(psfs[0].shape[-1])
    inner = slice(margin - before, margin + rows + after), slice(margin - before, margin + cols + after)
    wide = jax.tree.map(lambda leaf: leaf[inner], surfaces)
    return jax.vmap(lambda canvas, psf: canvas.with_layer(wide, layer, psf, coc_px))(canvas, jnp.stack(psfs))


@StoredProgram
def _blended(
    canvas: Canvas, weights: Float[Array, "corners tile_rows tile_cols"]
) -> Float[Array, "tile_rows tile_cols 3"]:
    """The mean of the pictures that the PSFs of the cell's corners give."""
    # Added one by one, for the compiler's sake: see `Canvas.with_layer`.
    return sum((w[..., None] * p for w, p in zip(weights, canvas.picture, strict=True)), jnp.float32(0.0))


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
