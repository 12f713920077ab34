"""Patches cut from photographs: turned, scaled and mirrored in one resampling.

Light is interpolated by Catmull–Rom cubics within the range of the four pixels around, which leaves pixels alone where
the patch lies straight on them; a patch that shows the photograph smaller takes the mean of 2 × 2 of them, spread over
its pixels. Depth takes the nearest pixel: between two surfaces there is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..scene.layers import by_label
from ..scene.surface_stack import SurfaceStack
from ..srgb import to_srgb
from .plan import Augment
from .recipe import Placement

SCALES = (1, 2, 4)  # pixels that the sharpness measure takes together
CELLS = 128  # clusters of depth that a patch can have


class Place(eqx.Module):
    """Where a patch lies in its photograph, as it is cut; for many patches a batch."""

    centre: Float[Array | np.ndarray, "*batch 2"]  # x to the right, y down
    rotation: Float[Array | np.ndarray, "*batch"]  # radians, in which way rows go down to the left
    scale: Float[Array | np.ndarray, "*batch"]
    mirror: Float[Array | np.ndarray, "*batch"]  # −1: left and right are exchanged
    exposure: Float[Array | np.ndarray, "*batch"]
    # Of what the patch shows, to the left and up, in its own pixels: x and y, of the whole patch or of each pixel.
    shift: Float[Array | np.ndarray, "*shape"]

    @classmethod
    def batch(cls, placements: Sequence[Placement], shifts: Sequence[Any] | None = None) -> Self:
        """Many placements in arrays, each with a shift (x, y) of the patch, or arrays of its pixels."""
        centre, rotation, scale, flip, exposure = zip(*placements, strict=True)
        mirror = [-1.0 if f else 1.0 for f in flip]
        shifts = shifts if shifts is not None else [(0.0, 0.0)] * len(placements)
        return cls(*(np.asarray(v, np.float32) for v in (centre, rotation, scale, mirror, exposure, shifts)))

    def row(self, index: int | np.ndarray | Int[Array, "*rows"]) -> Self:
        """One place of a batch, or a batch of some."""
        return jax.tree.map(lambda leaf: leaf[index], self)


class PatchMeasures(eqx.Module):
    """What the draws of a candidate need to know of its patch."""

    sharpness: Float[Array, "*batch scales"]
    nearest_m: Float[Array, "*batch"]
    farthest_m: Float[Array, "*batch"]
    occupied: Bool[Array, "*batch cells"]  # clusters of t = 1 / (d − nearest focus + 1), from that of the farthest


def fitting_place(
    size: int, shape: tuple[int, int], augment: Augment | None, random: np.random.Generator
) -> Placement | None:
    """A random placement of a patch inside a photograph of `shape`; None if it is too small.

    Where the drawn rotation and scale need more room than there is, the scale grows to the least that fits, up to the
    largest that may be drawn.
    """
    rows, cols = shape
    rotation, scale, flip, exposure = 0.0, 1.0, False, 1.0
    if augment is not None:
        turn = math.radians(augment.rotation_deg)
        rotation = float(random.uniform(-turn, turn))
        scale = math.exp(random.uniform(*np.log(augment.scale)))
        flip = bool(augment.flip and random.random() < 0.5)
        exposure = math.exp(random.uniform(*np.log(augment.exposure)))
    across = (size - 1) / 2.0 * (abs(math.cos(rotation)) + abs(math.sin(rotation)))  # half of what the patch spans
    room = (min(rows, cols) - 1) / 2.0
    largest = 1.0 if augment is None else max(1.0, augment.scale[1])
    scale = max(scale, across / room if room > 0.0 else math.inf)
    if scale > largest * (1.0 + 1e-9):
        return None
    half = across / scale
    x, y = (half + random.random() * max(n - 1 - 2.0 * half, 0.0) for n in (cols, rows))
    if augment is None:  # whole pixels
        first = [round(v - (size - 1) / 2.0) for v in (x, y)]
        x, y = (f + (size - 1) / 2.0 for f in first)
    return Placement((float(x), float(y)), rotation, float(scale), flip, exposure)


def depth_at(depth_m: Float[np.ndarray, "rows cols"], placement: Placement, size: int, column: int, row: int) -> float:
    """Depth of one pixel of a patch."""
    u, v = ((-1.0 if placement.flip else 1.0) * (column - (size - 1) / 2.0), row - (size - 1) / 2.0)
    cos, sin = (f(placement.rotation_rad) / placement.scale for f in (math.cos, math.sin))
    x, y = placement.centre[0] + cos * u - sin * v, placement.centre[1] + sin * u + cos * v
    rows, cols = depth_m.shape
    return float(depth_m[min(max(round(y), 0), rows - 1), min(max(round(x), 0), cols - 1)])


@partial(jax.jit, static_argnames=("size", "smaller"))
def cut_patch(
    linear: Float[Array, "rows cols channels"],
    depth_m: Float[Array, "rows cols"],
    place: Place,
    *,
    size: int,
    smaller: bool | None = None,
) -> tuple[Float[Array, "size size channels"], Float[Array, "size size"]]:
    """Light and depth of one patch (`jax.vmap` over places for many).

    `smaller` says whether the patch shows the photograph smaller than it is, where that is known beforehand: a GPU
    would stop to find out.
    """
    x, y = patch_coordinates(place, size, 0.0, 0.0)
    row, col = _nearest(x, y, depth_m.shape)
    # A pixel of the patch is wider than one of the photograph by so much; two points have the spread of that width.
    spread = jnp.maximum(1.0 / place.scale - 1.0, 0.0) / math.sqrt(12.0)

    def several(_: None) -> Float[Array, "size size channels"]:
        return sum(  # type: ignore[return-value]
            _cubic(linear, *patch_coordinates(place, size, dx * spread, dy * spread))
            for dx in (-1.0, 1.0)
            for dy in (-1.0, 1.0)
        ) / jnp.float32(4.0)

    def once(_: None) -> Float[Array, "size size channels"]:
        return _cubic(linear, x, y)

    if smaller is None:
        light = jax.lax.cond(spread > 0.0, several, once, None)
    else:
        light = several(None) if smaller else once(None)
    return jnp.maximum(light, 0.0) * place.exposure, depth_m[row, col]


@partial(jax.jit, static_argnames=("size", "shape"))
def depth_pixels(
    place: Place, *, size: int, shape: tuple[int, int]
) -> tuple[Int[Array, "size size"], Int[Array, "size size"]]:
    """Row and column of the pixel of a depth map of `shape` that each pixel of a patch takes its depth from."""
    return _nearest(*patch_coordinates(place, size, 0.0, 0.0), shape)


@partial(jax.jit, static_argnames=("size", "smaller"))
def cut_twice(
    linear: Float[Array, "rows cols 3"],
    depth_m: Float[Array, "rows cols"],
    places: tuple[Place, Place],
    row: Int[Array, ""],
    *,
    size: int,
    smaller: bool,
) -> tuple[Float[Array, "size size 3"], Float[Array, "size size"], Float[Array, "size size 3"]]:
    """Light and depth at one place of the first batch, and light at that of the second."""
    first, second = (batch.row(row) for batch in places)
    light, depth = cut_patch(linear, depth_m, first, size=size, smaller=smaller)
    return light, depth, cut_patch(linear, depth_m, second, size=size, smaller=smaller)[0]


@partial(jax.jit, static_argnames=("size", "smaller"))
def cut_stack(stack: SurfaceStack, places: Place, row: Int[Array, ""], *, size: int, smaller: bool) -> SurfaceStack:
    """The surfaces of a scene in the patch at one place of a batch."""
    place = places.row(row)
    maps = jnp.concatenate([stack.colour, stack.opacity[..., None]], axis=-1)
    light, depth = jax.vmap(lambda own, metres: cut_patch(own, metres, place, size=size, smaller=smaller))(
        maps, stack.depth_m
    )
    # Opacity is not brighter where the exposure is longer.
    return SurfaceStack(light[..., :3], jnp.clip(light[..., 3] / place.exposure, 0.0, 1.0), depth)


def patch_coordinates(
    place: Place, size: int, dx: float | Float[Array, ""] = 0.0, dy: float | Float[Array, ""] = 0.0
) -> tuple[Float[Array, "size size"], Float[Array, "size size"]]:
    """Where the patch's pixels lie in the photograph; (dx, dy) moves them by pixels of the photograph."""
    step = jnp.arange(size, dtype=jnp.float32) - (size - 1) / 2.0
    u, v = place.mirror * (step[None, :] + place.shift[0]), step[:, None] + place.shift[1]
    cos, sin = jnp.cos(place.rotation) / place.scale, jnp.sin(place.rotation) / place.scale
    return place.centre[0] + cos * u - sin * v + dx, place.centre[1] + sin * u + cos * v + dy


def _nearest(
    x: Float[Array, "size size"], y: Float[Array, "size size"], shape: tuple[int, ...]
) -> tuple[Int[Array, "size size"], Int[Array, "size size"]]:
    """Row and column of the nearest pixel."""
    row, col = (jnp.clip(jnp.round(v).astype(jnp.int32), 0, n - 1) for v, n in ((y, shape[0]), (x, shape[1])))
    return row, col


def _cubic(
    image: Float[Array, "rows cols channels"], x: Float[Array, "size size"], y: Float[Array, "size size"]
) -> Float[Array, "size size channels"]:
    rows, cols = image.shape[:2]

    def taps(v: Float[Array, "size size"], n: int) -> tuple[list[Array], list[Array]]:
        first = jnp.floor(v)
        t = v - first
        weights = [
            ((-0.5 * t + 1.0) * t - 0.5) * t,
            (1.5 * t - 2.5) * t * t + 1.0,
            ((-1.5 * t + 2.0) * t + 0.5) * t,
            (0.5 * t - 0.5) * t * t,
        ]
        return [jnp.clip(first.astype(jnp.int32) + k, 0, n - 1) for k in (-1, 0, 1, 2)], weights

    (row, down), (col, right) = taps(y, rows), taps(x, cols)
    total = jnp.zeros((*x.shape, image.shape[-1]), jnp.float32)
    near = []
    for i, (r, wy) in enumerate(zip(row, down, strict=True)):
        for j, (c, wx) in enumerate(zip(col, right, strict=True)):
            value = image[r, c]
            total = total + (wy * wx)[..., None] * value
            if i in (1, 2) and j in (1, 2):
                near.append(value)
    # No further than the four pixels around: beside a highlight of thirty times white, cubics swing below black.
    low, high = (combine(jnp.stack(near), axis=0) for combine in (jnp.min, jnp.max))
    return jnp.clip(total, low, high)


@partial(jax.jit, static_argnames=("size", "cluster", "nearest_focus_m", "farthest_focus_m"))
def measure_patch(
    linear: Float[Array, "rows cols 3"],
    depth_m: Float[Array, "rows cols"],
    place: Place,
    *,
    size: int,
    cluster: float,
    nearest_focus_m: float,
    farthest_focus_m: float,
) -> PatchMeasures:
    """Sharpness and depths of one patch."""
    light, depth = cut_patch(linear, depth_m, place, size=size)
    t = 1.0 / (jnp.clip(depth, nearest_focus_m, farthest_focus_m) - nearest_focus_m + 1.0)
    cell = jnp.clip(((t - t.min()) / cluster).astype(jnp.int32), 0, CELLS - 1)
    pixels = by_label(jnp.sum, jnp.ones(cell.shape, jnp.int32), cell, CELLS)
    return PatchMeasures(sharpness(light), depth.min(), depth.max(), pixels > 0)


@partial(jax.jit, static_argnames=("size", "cluster", "nearest_focus_m", "farthest_focus_m"))
def measure_patches(
    linear: Float[Array, "rows cols 3"], depth_m: Float[Array, "rows cols"], places: Place, **options: Any
) -> PatchMeasures:
    """`measure_patch` of many places in one photograph."""
    return jax.vmap(lambda place: measure_patch(linear, depth_m, place, **options))(places)


def sharpness(linear: Float[Array, "rows cols 3"]) -> Float[Array, "scales"]:
    """Mean Sobel magnitude of the grey picture in display values, at several scales."""
    light = jnp.clip(linear @ jnp.asarray([0.2126, 0.7152, 0.0722], jnp.float32), 0.0, 1.0)
    grey = to_srgb(light, jnp)

    def edges(image: Float[Array, "h w"]) -> Float[Array, ""]:
        across = image[:, 2:] - image[:, :-2]
        down = image[2:] - image[:-2]
        gx = across[:-2] + 2.0 * across[1:-1] + across[2:]
        gy = down[:, :-2] + 2.0 * down[:, 1:-1] + down[:, 2:]
        return jnp.sqrt(gx * gx + gy * gy).mean()

    def reduced(scale: int) -> Float[Array, "h w"]:
        rows, cols = (n // scale * scale for n in grey.shape)
        return grey[:rows, :cols].reshape(rows // scale, scale, cols // scale, scale).mean((1, 3))

    return jnp.stack([edges(reduced(scale)) for scale in SCALES])


def sharpest(measures: Float[np.ndarray, "candidates scales"], count: int) -> np.ndarray:
    """Numbers of the `count` sharpest candidates, the sharpest first: the paper's rule.

    Each scale is stretched to 0..1 over the pool, and the scales are multiplied. Equal ones stay in their order.
    """
    low, high = measures.min(0), measures.max(0)
    score = np.prod((measures - low) / np.maximum(high - low, 1e-12), axis=1)
    return np.argsort(-score, kind="stable")[:count]
