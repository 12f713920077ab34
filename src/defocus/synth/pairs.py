"""From recipes to pairs of pictures: patch, layers, PSFs, compositing, sensor, whole numbers.

Patches with room for equally many layers are rendered together, always in the same shapes: a pair is the same bytes
whichever others are made with it. A processor renders one patch after the other, a GPU batches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt

from ..errors import DatasetError
from ..optics.paraxial import FirstOrder, blur_radius, image_position
from ..photo import (
    SRGB,
    Noise,
    SensorColour,
    add_noise,
    encode,
    forward_isp,
    inverse_isp,
    stack_colours,
    without_mosaic,
)
from ..photo import synthesise_saturation as brighten
from ..psf.compute import Side
from ..render.composite import render_layers
from ..render.photograph import photo_bands
from ..scene.layers import Layers, quantise
from .candidates import place_arrays
from .layer_psfs import PatchPsfs, find_layer_psfs
from .lens_pool import PoolLens
from .patches import cut_patch
from .plan import Plan
from .recipe import Recipe
from .sources import Sharp

GPU_BATCH = 16
Role = Literal["blurred", "sharp", "left", "right"]


@dataclass
class Made:
    """One pair: pictures as whole numbers, and its record without files; or why there is none."""

    recipe: Recipe
    pictures: dict[Role, UInt[np.ndarray, "rows cols 3"]] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    refused: str = ""


@dataclass
class Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def roles(plan: Plan) -> tuple[Role, ...]:
    return ("blurred", "sharp", "left", "right") if plan.sensor.dual_pixel else ("blurred", "sharp")


def make_pairs(
    plan: Plan,
    recipes: Sequence[Recipe],
    sharps: dict[str, Sharp],
    lenses: dict[str, PoolLens],
    watch: Stopwatch | None = None,
) -> list[Made]:
    """A pair for each recipe, in their order. `sharps` and `lenses` hold what the recipes name."""
    watch = watch or Stopwatch()
    for recipe in recipes:
        _require_same(recipe, sharps[recipe.source], lenses[recipe.lens])
    at_once = 1 if jax.default_backend() == "cpu" else GPU_BATCH
    made: dict[str, Made] = {}
    for room in sorted({r.layers for r in recipes}):
        group = [r for r in recipes if r.layers == room]
        cut = [
            _prepare(plan, group[start : start + at_once], room, sharps, lenses, at_once)
            for start in range(0, len(group), at_once)
        ]
        small = jax.device_get([(c.layers.coc_px, c.layers.depth_m, c.layers.used) for c in cut])
        coc, depth, used = (np.concatenate(parts)[: len(group)] for parts in zip(*small, strict=True))
        watch.lap("patches")
        chosen = [lenses[r.lens] for r in group]
        sides: dict[Role, Side | None] = {"blurred": None}
        if plan.sensor.dual_pixel:
            sides |= {"left": "left", "right": "right"}
        psfs = {role: find_layer_psfs(plan, group, chosen, coc, depth, used, side) for role, side in sides.items()}
        watch.lap("psfs")
        for number, batch in enumerate(cut):
            start = number * at_once
            rows = range(start, min(start + at_once, len(group)))
            pictures = _expose(
                plan, batch, [group[i] for i in rows], {r: [p[i] for i in rows] for r, p in psfs.items()}
            )
            for i in rows:
                told = {role: psfs[role][i].refused for role in psfs}
                refused = next((text for text in told.values() if text), "")
                one = Made(group[i], refused=refused)
                if not refused:
                    one.pictures = {role: array[i - start] for role, array in pictures.items()}
                    one.record = _record(
                        plan, group[i], sharps[group[i].source], psfs["blurred"][i], coc[i], depth[i], used[i]
                    )
                made[group[i].id] = one
        watch.lap("render")
    return [made[r.id] for r in recipes]


def _require_same(recipe: Recipe, sharp: Sharp, lens: PoolLens) -> None:
    if recipe.source_sha256 != sharp.sha256:
        raise DatasetError(f"{recipe.id}: the source {sharp.name} is not the one that it was planned with")
    if recipe.lens_sha256 != lens.sha256:
        raise DatasetError(f"{recipe.id}: the lens {lens.name} is not the one that it was planned with")


@dataclass
class _Batch:
    """Patches on the device, padded to a full batch."""

    linear: Float[Array, "batch rows cols 3"]
    coc: Float[Array, "batch rows cols"]
    layers: Layers
    colour: SensorColour
    padding: int


def _prepare(
    plan: Plan,
    recipes: Sequence[Recipe],
    room: int,
    sharps: dict[str, Sharp],
    lenses: dict[str, PoolLens],
    at_once: int,
) -> _Batch:
    padded = [*recipes, *[recipes[-1]] * (at_once - len(recipes))]
    place = place_arrays([(r.centre, r.rotation_rad, r.scale, r.flip, r.exposure) for r in padded])
    cut = [
        cut_patch(
            jnp.asarray(sharps[r.source].linear), jnp.asarray(sharps[r.source].depth_m),
            jax.tree.map(lambda leaf, k=k: leaf[k], place), size=plan.patch.size,
        )
        for k, r in enumerate(padded)
    ]  # fmt: skip
    data = jax.tree.map(lambda *leaves: np.stack(leaves), *(lenses[r.lens].data for r in padded))
    focus = np.array([r.focus_m * 1e3 for r in padded])
    pitch = np.array([r.pixel_um * 1e-3 for r in padded])
    power = np.array([r.saturation for r in padded], np.float32)
    linear, coc, layers = _layered(
        jnp.stack([light for light, _ in cut]), jnp.stack([depth for _, depth in cut]), data, focus, pitch, power,
        room=room, step=plan.depth.step_px, single=plan.depth.mode == "single", srgb=not plan.sensor.isp,
    )  # fmt: skip
    colour = stack_colours([sharps[r.source].colour for r in padded])
    return _Batch(linear, coc, layers, colour, at_once - len(recipes))


def patch_of(
    plan: Plan, recipe: Recipe, sharp: Sharp, lens: PoolLens
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Layers]:
    """Light, depth, blur radii and layers of one recipe, to look at."""
    place = place_arrays([(recipe.centre, recipe.rotation_rad, recipe.scale, recipe.flip, recipe.exposure)])
    one = jax.tree.map(lambda leaf: leaf[0], place)
    _, depth = cut_patch(jnp.asarray(sharp.linear), jnp.asarray(sharp.depth_m), one, size=plan.patch.size)
    batch = _prepare(plan, [recipe], recipe.layers, {sharp.name: sharp}, {lens.name: lens}, 1)
    linear, coc, layers = jax.tree.map(lambda leaf: leaf[0], (batch.linear, batch.coc, batch.layers))
    return np.asarray(linear), np.asarray(depth), np.asarray(coc), layers


@partial(jax.jit, static_argnames=("room", "step", "single", "srgb"))
def _layered(
    linear: Float[Array, "batch rows cols 3"],
    depth_m: Float[Array, "batch rows cols"],
    data: FirstOrder,
    focus: Float[Array, " batch"],
    pitch: Float[Array, " batch"],
    power: Float[Array, " batch"],
    *,
    room: int,
    step: float,
    single: bool,
    srgb: bool,
) -> tuple[Array, Array, Layers]:
    """Light with its highlights, signed blur radii and layers. Without a sensor the "light" is the sRGB picture."""

    def one(
        linear: Array, depth: Array, data: FirstOrder, focus: Array, pitch: Array, power: Array
    ) -> tuple[Array, Array, Layers]:
        if single:
            depth = jnp.full_like(depth, 2.0 / (1.0 / depth.min() + 1.0 / depth.max()))
        sensor = image_position(data, focus)
        coc = (blur_radius(data, depth.astype(jnp.float64) * 1e3, sensor) / pitch).astype(jnp.float32)
        light = encode(linear, SRGB) if srgb else brighten(linear, power)
        return light, coc, quantise(coc, depth, layers=room, step_px=step)

    return jax.vmap(one)(linear, depth_m, data, focus, pitch, power)


def _expose(
    plan: Plan, batch: _Batch, recipes: Sequence[Recipe], psfs: dict[Role, list[PatchPsfs]]
) -> dict[Role, UInt[np.ndarray, "batch rows cols 3"]]:
    """The pictures of one batch: through the lens and the sensor, and past the lens."""
    again = [0] * batch.padding
    shot, read = (np.array([r.noise[k] for r in recipes] + [0.0] * batch.padding, np.float32) for k in (0, 1))
    seeds = np.array([r.seed for r in recipes] + again, np.uint32)
    options = {"isp": plan.sensor.isp, "bits": plan.output.bits}
    out: dict[Role, Any] = {}
    for number, (role, patches) in enumerate(psfs.items()):
        kernels = np.stack([p.psfs for p in patches] + [patches[-1].psfs] * batch.padding)
        out[role] = _blurred(
            batch.linear, batch.coc, batch.layers, jnp.asarray(kernels), batch.colour, Noise(shot, read),
            seeds, number, **options,
        )  # fmt: skip
    out["sharp"] = _sharp(batch.linear, batch.colour, **options)
    return jax.device_get(out)


@partial(jax.jit, static_argnames=("isp", "bits"))
def _blurred(
    linear: Float[Array, "batch rows cols 3"],
    coc: Float[Array, "batch rows cols"],
    layers: Layers,
    psfs: Float[Array, "batch layers bands size size"],
    colour: SensorColour,
    noise: Noise,
    seeds: Array,
    number: Array | int,
    *,
    isp: bool,
    bits: int,
) -> Array:
    def one(
        linear: Array, coc: Array, layers: Layers, psfs: Array, colour: SensorColour, noise: Noise, seed: Array
    ) -> Array:
        picture = render_layers(linear, coc, layers, psfs)
        if not isp:
            return _whole(picture, bits)
        key = jax.random.fold_in(jax.random.key(seed), number)
        mosaic = jnp.minimum(add_noise(key, inverse_isp(picture, colour), noise), 1.0)
        return _whole(forward_isp(mosaic, colour), bits)

    return _each(one)(linear, coc, layers, psfs, colour, noise, seeds)


@partial(jax.jit, static_argnames=("isp", "bits"))
def _sharp(linear: Float[Array, "batch rows cols 3"], colour: SensorColour, *, isp: bool, bits: int) -> Array:
    def one(linear: Array, colour: SensorColour) -> Array:
        return _whole(encode(without_mosaic(linear, colour), SRGB) if isp else linear, bits)

    return _each(one)(linear, colour)


def _each(function: Any) -> Any:
    """Over a batch: a processor's holds one patch."""
    if jax.default_backend() != "cpu":
        return jax.vmap(function)
    return lambda *batch: function(*jax.tree.map(lambda leaf: leaf[0], batch))[None]


def _whole(display: Float[Array, "rows cols 3"], bits: int) -> Array:
    top = 2**bits - 1
    return jnp.round(jnp.clip(display, 0.0, 1.0) * top).astype(jnp.uint8 if bits == 8 else jnp.uint16)


def _record(
    plan: Plan,
    recipe: Recipe,
    sharp: Sharp,
    psfs: PatchPsfs,
    coc: Float[np.ndarray, " layers"],
    depth: Float[np.ndarray, " layers"],
    used: np.ndarray,
) -> dict[str, Any]:
    return recipe.to_json() | {
        "source_kind": sharp.kind,
        "psf": psfs.told(plan, photo_bands(plan.psf.bands)),
        "layer_depth_m": [float(f"{v:.6g}") for v in depth[used]],
        "layer_coc_px": [round(float(v), 4) for v in coc[used]],
        "notes": list(sharp.notes),
    }


__all__ = ["Made", "Role", "Stopwatch", "make_pairs", "roles"]
