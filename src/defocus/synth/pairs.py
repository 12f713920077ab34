"""From recipes to pairs of pictures: patch, layers, PSFs, compositing, sensor, whole numbers; and to their labels.

Patches with room for equally many layers are rendered together, always in the same shapes: a pair is the same bytes
whichever others are made with it. A processor renders one patch after the other, a GPU batches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped, UInt

from ..camera import Camera
from ..errors import DatasetError
from ..files.pair_folders import PLANES, stack_role
from ..files.randomness import seed_for
from ..optics.paraxial import ParaxialCamera
from ..photo import Noise, Response, SensorColour, encode, parse_response, stack_colours
from ..photo import synthesise_saturation as brighten
from ..photo.isp import expose, expose_sharp, noise_key
from ..psf.engine import Side
from ..psf.poses import PoseCache
from ..render.composite import render_far_to_near, render_layers
from ..render.distortion import patch_shifts
from ..render.stack_composite import composite_stack
from ..scene.layers import Layers, quantise
from ..scene.surface_stack import StackLayers, SurfaceStack, quantise_stack
from .candidates import layer_room
from .layer_psfs import LayerBlur, PatchPsfs, find_layer_psfs, find_offsets
from .lens_pool import PoolLens
from .patches import Place, cut_patch, cut_stack, cut_twice, depth_pixels, patch_coordinates
from .plan import Labels, Plan
from .recipe import Recipe
from .sources import Sharp

GPU_BATCH = 16
RULES = {"near-to-far": render_layers, "far-to-near": render_far_to_near}  # of `depth.compositing`
Role = Literal["blurred", "sharp", "left", "right"]
_Value = TypeVar("_Value")


@dataclass
class Pair:
    """Pictures as whole numbers and planes of floats, and their record without files; or why there are none."""

    recipe: Recipe
    pictures: dict[str, Shaped[np.ndarray, "rows cols *colours"]] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""


@dataclass
class Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.perf_counter)

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True)
class _Draft:
    """A recipe and what it is made of."""

    recipe: Recipe
    sharp: Sharp
    camera: Camera
    offset: tuple[float, float] | None  # in pixels, by which the lens moves what is in focus; None: not known
    aside: Float[np.ndarray, "2 rows cols"] | None = None  # in pixels, by which the lens draws the patch otherwise
    refusal: str = ""


def make_pairs(
    plan: Plan,
    recipes: Sequence[Recipe],
    sharps: dict[str, Sharp],
    lenses: dict[str, PoolLens],
    watch: Stopwatch | None = None,
) -> list[Pair]:
    """A pair for each recipe, in their order. `sharps` and `lenses` hold what the recipes name."""
    watch = watch or Stopwatch()
    poses = PoseCache()  # a lens stands to its sensor as it does for the offset
    drafts = _drafts(plan, recipes, sharps, lenses, poses)
    watch.lap("offsets")
    batches = _batched(plan, drafts)
    numbers = jax.device_get([(b.layers.coc_px, b.layers.depth_m, b.layers.used) for b in batches])
    blurs = [
        LayerBlur(draft.recipe.lens, draft.recipe.field, draft.camera, coc[i], depth[i], used[i])
        for batch, (coc, depth, used) in zip(batches, numbers, strict=True)
        for i, draft in enumerate(batch.drafts)
    ]
    watch.lap("patches")
    sides: dict[Role, Side | None] = {"blurred": None}
    if plan.sensor.dual_pixel:
        sides |= {"left": "left", "right": "right"}
    # The PSFs of all patches together: the more there are, the fuller their batches.
    psfs_of_side = find_layer_psfs(plan, blurs, [*sides.values()], poses)
    psfs = {role: psfs_of_side[side] for role, side in sides.items()}
    watch.lap("psfs")
    pairs: dict[str, Pair] = {}
    for batch in batches:
        rows = slice(len(pairs), len(pairs) + len(batch.drafts))
        own = {role: patches[rows] for role, patches in psfs.items()}
        pictures, fine = _expose(plan, batch, own)
        for number, (draft, blur) in enumerate(zip(batch.drafts, blurs[rows], strict=True)):
            recipe = draft.recipe
            refusals = [draft.refusal, *(patches[number].refusal for patches in own.values())]
            refusal = next((reason for reason in refusals if reason), "")
            if not refusal and not fine[number]:
                refusal = f"{recipe.lens}: a pixel is not a finite number"
            pair = Pair(recipe, refusal=refusal)
            if not refusal:
                pair.pictures = {role: array[number] for role, array in pictures.items()} | _planes(plan, draft)
                pair.record = _record(plan, draft, blur, own["blurred"][number])
            pairs[recipe.id] = pair
    watch.lap("render")
    _add_stacks(plan, [pair for pair in pairs.values() if not pair.refusal], sharps, lenses, watch)
    return [pairs[r.id] for r in recipes]


def _planes(plan: Plan, draft: _Draft) -> dict[str, Float[np.ndarray, "rows cols"]]:
    """Depth, signed blur radius and shift of the pixels of a pair, as far as the plan asks for them.

    The first two lie as the target does: where the light was moved against the lens's offset, the blurred picture does,
    too. The shift lies as the blurred picture does.
    """
    roles = set(PLANES) & set(plan.labels.roles)
    if not roles:
        return {}
    recipe, depth_map = draft.recipe, draft.sharp.depth_m
    place = Place.batch([recipe.placement]).row(0)
    depth = depth_map[jax.device_get(depth_pixels(place, size=recipe.patch_px, shape=depth_map.shape))]
    if recipe.single_m is not None:
        depth = np.full_like(depth, recipe.single_m)
    radius = draft.camera.circle_of_confusion_px(depth.astype(np.float64))
    planes = {"depth": depth, "blur_radius": np.asarray(radius, np.float32)}
    planes |= {} if draft.aside is None else dict(zip(("shift_x", "shift_y"), draft.aside, strict=True))
    return {role: plane for role, plane in planes.items() if role in roles}


def _add_stacks(
    plan: Plan, pairs: Sequence[Pair], sharps: dict[str, Sharp], lenses: dict[str, PoolLens], watch: Stopwatch
) -> None:
    """Give each pair the pictures of its focal stack: same patch and lens, focused elsewhere, with noise of their own.

    One distance after the other, of all pairs at once: as many patches at a time as there are pairs.
    """
    sensor = plan.sensor.model_copy(update={"dual_pixel": False})
    plain = plan.model_copy(update={"labels": Labels(distortion=plan.labels.distortion), "sensor": sensor})
    for number in range(max((len(pair.recipe.stack_m) for pair in pairs), default=0)):
        role = stack_role(number)
        whole = [pair for pair in pairs if not pair.refusal]
        recipes = [_refocused(plan, p.recipe, lenses[p.recipe.lens], sharps[p.recipe.source], number) for p in whole]
        for pair, member in zip(whole, make_pairs(plain, recipes, sharps, lenses, watch), strict=True):
            pair.refusal = member.refusal
            if not member.refusal:
                pair.pictures[role] = member.pictures["blurred"]
                facts = {key: member.record[key] for key in ("focus_m", "coc_px", "seed", "offset_px")}
                facts["magnification"] = _magnification(pair.recipe, lenses[pair.recipe.lens], number)
                pair.record.setdefault("stack", []).append(facts)


def _refocused(plan: Plan, recipe: Recipe, lens: PoolLens, sharp: Sharp, number: int) -> Recipe:
    """The recipe of one picture of a pair's focal stack."""
    focus_m, role = recipe.stack_m[number], stack_role(number)
    coc = lens.camera_for(recipe.pixel_um, focus_m).circle_of_confusion_px(np.array(recipe.rendered_m))
    return replace(
        recipe,
        id=f"{recipe.id}.{role}",
        seed=seed_for(recipe.seed, role),
        focus_m=focus_m,
        coc_px=(float(coc.min()), float(coc.max())),
        layers=layer_room(plan, coc, 0 if sharp.stack is None else len(sharp.stack.opacity)),
        stack_m=(),
    )


def _magnification(recipe: Recipe, lens: PoolLens, number: int) -> float:
    """How large the lens shows things in one picture of a focal stack, against the first, to first order.

    All pictures of the stack are drawn with one magnification.
    """
    first, own = (lens.camera_for(recipe.pixel_um, recipe.stack_m[k]).paraxial.image_scale for k in (0, number))
    return float(own / first)


def _drafts(
    plan: Plan,
    recipes: Sequence[Recipe],
    sharps: dict[str, Sharp],
    lenses: dict[str, PoolLens],
    poses: PoseCache | None = None,
) -> list[_Draft]:
    """Recipes with photograph and camera. Raises `DatasetError` for a photograph or lens that is another one now."""
    for recipe in recipes:
        sharp, lens = sharps[recipe.source], lenses[recipe.lens]
        for what, planned, now in (("source", recipe.source_sha256, sharp), ("lens", recipe.lens_sha256, lens)):
            if planned != now.sha256:
                raise DatasetError(f"{recipe.id}: the {what} {now.name} is not the one that it was planned with")
    cameras = [lenses[r.lens].camera_for(r.pixel_um, r.focus_m) for r in recipes]
    offsets = find_offsets(plan, recipes, cameras, poses)
    drafts = [_Draft(r, sharps[r.source], c, o) for r, c, o in zip(recipes, cameras, offsets, strict=True)]
    return [_distorted(draft) for draft in drafts] if plan.labels.distortion else drafts


def _distorted(draft: _Draft) -> _Draft:
    """The draft with the lens's distortion, or refused where it shows more than the photograph holds."""
    recipe, size = draft.recipe, draft.recipe.patch_px
    aside = patch_shifts(draft.camera, recipe.field, size)
    refusal = ""
    if aside is None:
        refusal = (
            f"{recipe.lens}: at field ({recipe.field[0]:.2f}, {recipe.field[1]:.2f}) it compresses the patch too much"
        )
        aside = np.zeros((2, size, size), np.float32)
    else:
        place = Place.batch([recipe.placement], [aside]).row(0)
        x, y = (np.asarray(v) for v in patch_coordinates(place, size))
        rows, cols = draft.sharp.depth_m.shape
        if min(x.min(), y.min()) < -0.5 or x.max() > cols - 0.5 or y.max() > rows - 0.5:
            refusal = f"{recipe.lens}: its distortion shows what lies beyond the photograph {recipe.source}"
    return replace(draft, aside=aside, refusal=refusal)


@dataclass
class PatchBatch:
    """Patches on the device, padded to a full batch."""

    drafts: Sequence[_Draft]
    linear: Float[Array, "batch rows cols 3"]
    coc: Float[Array, "batch rows cols"]
    layers: Layers | StackLayers
    stack: SurfaceStack | None  # of composed scenes: what is blurred in place of `linear`
    target: Float[Array, "batch rows cols 3"]  # what a lens without blur and offset would show
    colour: SensorColour


def _batched(plan: Plan, drafts: Sequence[_Draft]) -> list[PatchBatch]:
    """Patches with room for equally many layers together; those of composed scenes by themselves.

    Those that blur alike are next to each other: a batch pays for every layer that any of its patches has.
    """
    at_once = 1 if jax.default_backend() == "cpu" else GPU_BATCH

    def kind(draft: _Draft) -> tuple[bool, int]:
        return draft.sharp.stack is not None, draft.recipe.layers

    batches = []
    for own in sorted({kind(draft) for draft in drafts}):
        group = sorted((draft for draft in drafts if kind(draft) == own), key=_blur_range)
        parts = (group[start : start + at_once] for start in range(0, len(group), at_once))
        batches += [_prepare(plan, part, at_once) for part in parts]
    return batches


def _blur_range(draft: _Draft) -> float:
    """Pixels between the largest and the smallest signed blur radius of a patch."""
    low, high = draft.recipe.coc_px
    return abs(high - low)


def _prepare(plan: Plan, drafts: Sequence[_Draft], at_once: int) -> PatchBatch:
    """Two cuts of each patch: one as it is, and one moved against the lens's offset, which is then blurred."""
    padded = _padded(drafts, at_once)
    placements = [draft.recipe.placement for draft in padded]
    offsets = [np.array(draft.offset or (0.0, 0.0), np.float32) for draft in padded]
    shifts = [o if d.aside is None else o[:, None, None] + d.aside for o, d in zip(offsets, padded, strict=True)]
    # Sent to a GPU together: a dozen numbers each would take longer than the cutting.
    moved, straight = jax.device_put((Place.batch(placements, shifts), Place.batch(placements)))
    photographs = {d.sharp.name: d.sharp for d in drafts}
    light_of = {name: sharp.on_device for name, sharp in photographs.items()}
    own = [(d.sharp.name, np.int32(k), d.recipe.scale < 1.0) for k, d in enumerate(padded)]
    cuts = [
        cut_twice(*light_of[name], (moved, straight), k, size=plan.patch.size, smaller=smaller)
        for name, k, smaller in own
    ]
    light, depth, target = _stacked(cuts)
    paraxial = jax.tree.map(lambda *leaves: np.stack(leaves), *(draft.camera.paraxial for draft in padded))
    power = np.array([draft.recipe.saturation for draft in padded], np.float32)
    single = None
    if plan.depth.mode == "single":
        single = np.array([draft.recipe.single_m for draft in padded], np.float32)
    options = {"room": drafts[0].recipe.layers, "step": plan.depth.step_px, "display": not plan.sensor.isp}
    response = plan_response(plan)
    linear, coc, layers, target = _layered(light, depth, target, paraxial, power, single, response, **options)
    colour = stack_colours([draft.sharp.colour for draft in padded])
    if drafts[0].sharp.stack is None:
        return PatchBatch(drafts, linear, coc, layers, None, target, colour)
    stack_of = {name: jax.device_put(sharp.stack) for name, sharp in photographs.items()}
    surfaces = [cut_stack(stack_of[name], moved, k, size=plan.patch.size, smaller=smaller) for name, k, smaller in own]
    stack = _stacked(surfaces)
    ends = np.array([draft.recipe.rendered_m for draft in padded], np.float32)
    stack, stack_layers = _stack_layers(stack, ends, paraxial, response, **options)
    return PatchBatch(drafts, linear, coc, stack_layers, stack, target, colour)


@jax.jit
def _stacked(values: Sequence[Any]) -> Any:
    """Equal structures of arrays as one batch, by one program: eagerly each array would be two."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *values)


def _padded(values: Sequence[_Value], count: int) -> list[_Value]:
    """So many values: the last one again where there are fewer."""
    return [*values, *[values[-1]] * (count - len(values))]


def patch_of(
    plan: Plan, recipe: Recipe, sharp: Sharp, lens: PoolLens
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Layers | StackLayers]:
    """Light, depth, blur radii and layers of one recipe, to look at."""
    _, depth = cut_patch(*sharp.on_device, Place.batch([recipe.placement]).row(0), size=plan.patch.size)
    batch = _prepare(plan, _drafts(plan, [recipe], {sharp.name: sharp}, {lens.name: lens}), 1)
    linear, coc, layers = jax.tree.map(lambda leaf: leaf[0], (batch.linear, batch.coc, batch.layers))
    return np.asarray(linear), np.asarray(depth), np.asarray(coc), layers


def plan_response(plan: Plan) -> Response:
    """The curve from light to display values."""
    curve = plan.sensor.response
    return parse_response(curve) if isinstance(curve, str) else Response.table(*zip(*curve, strict=True))


@partial(jax.jit, static_argnames=("room", "step", "display"))
def _layered(
    linear: Float[Array, "batch rows cols 3"],
    depth_m: Float[Array, "batch rows cols"],
    target: Float[Array, "batch rows cols 3"],
    paraxial: ParaxialCamera,
    power: Float[Array, " batch"],
    single_m: Float[Array, " batch"] | None,
    response: Response,
    *,
    room: int,
    step: float,
    display: bool,
) -> tuple[Array, Array, Layers, Array]:
    """Light with its highlights, signed blur radii, layers and target; with `display` light is the developed picture.

    With `single_m` all of a patch has that depth.
    """

    def shown(light: Array, power: Array) -> Array:
        return encode(light, response) if display else brighten(light, power)

    def one(
        linear: Array, depth: Array, target: Array, paraxial: ParaxialCamera, power: Array, single: Array | None
    ) -> tuple[Array, Array, Layers, Array]:
        if single is not None:
            depth = jnp.full_like(depth, single)
        coc = paraxial.circle_of_confusion_px(depth.astype(jnp.float64)).astype(jnp.float32)
        layers = quantise(coc, depth, layers=room, step_px=step)
        return shown(linear, power), coc, layers, shown(target, power)

    return jax.vmap(one)(linear, depth_m, target, paraxial, power, single_m)


@partial(jax.jit, static_argnames=("room", "step", "display"))
def _stack_layers(
    stack: SurfaceStack,
    ends_m: Float[Array, "batch 2"],
    paraxial: ParaxialCamera,
    response: Response,
    *,
    room: int,
    step: float,
    display: bool,
) -> tuple[SurfaceStack, StackLayers]:
    """The surfaces of composed scenes and their layers.

    Surfaces that are hidden in all of a patch may lie beyond its nearest and farthest depth, `ends_m`, for which its
    lens was chosen: they are taken to these.
    """

    def one(stack: SurfaceStack, ends: Array, paraxial: ParaxialCamera) -> tuple[SurfaceStack, StackLayers]:
        depth = jnp.clip(stack.depth_m, ends[0], ends[1])
        coc = paraxial.circle_of_confusion_px(depth.astype(jnp.float64)).astype(jnp.float32)
        colour = encode(stack.colour, response) if display else stack.colour
        layers = quantise_stack(coc, depth, stack.opacity, layers=room, step_px=step)
        return SurfaceStack(colour, stack.opacity, depth), layers

    return jax.vmap(one)(stack, ends_m, paraxial)


def _expose(
    plan: Plan, batch: PatchBatch, psfs: dict[Role, list[PatchPsfs]]
) -> tuple[dict[Role, UInt[np.ndarray, "batch rows cols 3"]], Bool[np.ndarray, " batch"]]:
    """The pictures of one batch, through the lens and the sensor and past the lens; and whether all is finite."""
    at_once = batch.target.shape[0]
    recipes = [draft.recipe for draft in _padded(batch.drafts, at_once)]
    shot, read = (np.array([r.noise[k] for r in recipes], np.float32) for k in (0, 1))
    seeds = np.array([r.seed for r in recipes], np.uint32)
    options = {"isp": plan.sensor.isp, "bits": plan.output.bits, "response": plan_response(plan)}
    layers = batch.layers.coc_px.shape[-1]
    out: dict[Role, Any] = {}
    fine: list[Array] = []
    for number, (role, patches) in enumerate(psfs.items()):
        kernels = np.stack([p.kernels(layers) for p in _padded(patches, at_once)])
        out[role], ok = _blurred(
            batch.linear, batch.coc, batch.layers, batch.stack, jnp.asarray(kernels), batch.colour,
            role_noise(role, shot, read), seeds, number, rule=plan.depth.compositing, **options,
        )  # fmt: skip
        fine.append(ok)
    out["sharp"] = _sharp(batch.target, batch.colour, **options)
    pictures, finite = jax.device_get((out, fine))
    return pictures, np.logical_and.reduce(finite)


def role_noise(role: Role, shot: Float[np.ndarray, " batch"], read: Float[np.ndarray, " batch"]) -> Noise:
    """Half a pixel has half the electrons and as much noise of its own, and is shown twice as bright."""
    return Noise(2.0 * shot, 2.0 * read) if role in ("left", "right") else Noise(shot, read)


@partial(jax.jit, static_argnames=("isp", "bits", "rule"))
def _blurred(
    linear: Float[Array, "batch rows cols 3"],
    coc: Float[Array, "batch rows cols"],
    layers: Layers | StackLayers,
    stack: SurfaceStack | None,
    psfs: Float[Array, "batch layers bands size size"],
    colour: SensorColour,
    noise: Noise,
    seeds: Array,
    number: Array | int,
    *,
    isp: bool,
    bits: int,
    response: Response,
    rule: str,
) -> tuple[Array, Array]:
    def one(
        linear: Array,
        coc: Array,
        layers: Layers | StackLayers,
        stack: SurfaceStack | None,
        psfs: Array,
        colour: SensorColour,
        noise: Noise,
        seed: Array,
    ) -> tuple[Array, Array]:
        if stack is None:
            picture = RULES[rule](linear, coc, layers, psfs)
        else:
            assert isinstance(layers, StackLayers)
            picture = composite_stack(stack, layers, psfs)
        finite = jnp.isfinite(picture).all()
        if not isp:
            return _whole(picture, bits), finite
        _, developed = expose(picture, colour, response, noise, noise_key(seed, number))
        return _whole(developed, bits), finite

    return _each(one)(linear, coc, layers, stack, psfs, colour, noise, seeds)


@partial(jax.jit, static_argnames=("isp", "bits"))
def _sharp(
    linear: Float[Array, "batch rows cols 3"], colour: SensorColour, *, isp: bool, bits: int, response: Response
) -> Array:
    def one(linear: Array, colour: SensorColour) -> Array:
        return _whole(expose_sharp(linear, colour, response) if isp else linear, bits)

    return _each(one)(linear, colour)


def _each(function: Any) -> Any:
    """Over a batch: a processor's holds one patch."""
    if jax.default_backend() != "cpu":
        return jax.vmap(function)
    return lambda *batch: jax.tree.map(lambda leaf: leaf[None], function(*jax.tree.map(lambda leaf: leaf[0], batch)))


def _whole(display: Float[Array, "rows cols 3"], bits: int) -> Array:
    top = 2**bits - 1
    return jnp.round(jnp.clip(display, 0.0, 1.0) * top).astype(jnp.uint8 if bits == 8 else jnp.uint16)


def _record(plan: Plan, draft: _Draft, blur: LayerBlur, psfs: PatchPsfs) -> dict[str, Any]:
    return draft.recipe.to_json() | {
        # by which the lens moves what is in focus, and which was taken back; null: it could not be found
        "offset_px": None if draft.offset is None else list(draft.offset),
        "source_kind": draft.sharp.kind,
        "psf": psfs.record(plan),
        "layer_depth_m": [float(f"{v:.6g}") for v in blur.depth_m[blur.used]],
        "layer_coc_px": [round(float(v), 4) for v in blur.coc_px[blur.used]],
        "notes": list(draft.sharp.notes),
    }
