"""Pairs without end for a training: the PSFs of a plan's lenses, computed once, over scenes that are new at each step.

A bank is a folder of arrays of one split of a plan: PSFs of some thousand settings (a lens with its pixels, its focus
and a place in the field) at `RUNGS` depths each, the plan's photographs and some cloth, outlines and lamps. A setting's
rungs stand at equal steps of blur radius between two radii, one more stands in the focus; all are moved by what the
lens moves the focus, as pairs of `synth` are. A scene has one to three surfaces, flat or slanted, one of them where its
setting blurs most, so that a plan's `blur.weights` are those of the pairs; each step composes, blurs and exposes a
whole batch in one program (`render.stack_composite`, `photo.isp`), on the device and beside whatever else runs there.
What a full synthesis has beyond it: curved surfaces, more of them, PSFs at each layer's own depth.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8
from scipy import ndimage

from ..errors import DatasetError
from ..files.pictures import quantise, read_picture
from ..files.randomness import generator, seed_for
from ..files.stores import write_file
from ..photo import Noise, SensorColour
from ..photo.isp import expose, expose_sharp
from ..render.composite import embedded
from ..render.stack_composite import composite_stack
from ..scene.fractal_noise import Grid
from ..scene.photo_scenes import FINE_OUTLINES, LARGE_OUTLINES, LIGHT_OF_DISPLAY, pixel_grid
from ..scene.surface_stack import StackLayers, SurfaceStack
from ..scene.textures import WARM, cloth, lamps
from ..srgb import to_srgb
from .layer_psfs import LayerBlur, find_layer_psfs, highest
from .lens_pool import LensPool, PoolLens
from .plan import Plan, PlanLike, SplitName, as_plan
from .sources import find_sources

RUNGS = 12  # depths of a setting
SURFACES, EACH = 3, 2  # of a scene; layers of a surface
SHARES = (0.35, 0.4, 0.25)  # of scenes with one, two and three surfaces
RIM_PX = 16  # around a crop: what the blur mirrors in at the border is cut off
OUTLINE_PX = 320
LEAST_PX = 288  # a side, of a photograph
NEAREST_M = 0.3
REDUCTIONS = (1.0, 0.7)  # sizes of the photographs
CLOTHS = 10  # pictures of cloth: photographs with sharp regular patterns are rare, and a network takes them for blur
THREAD_PX = (2.5, 10.0)  # of cloth
AT_ONCE_PAIRS = 16  # pairs whose layers are in memory together
ARRAYS = ("psfs", "coc_px", "pixels", "places", "outlines", "lamps")


class Bank(eqx.Module):
    """The arrays of a bank."""

    psfs: Float[Array | np.ndarray, "settings rungs 3 kernel kernel"]  # from far to near, each of sum 1
    coc_px: Float[Array | np.ndarray, "settings rungs"]
    pixels: UInt8[Array | np.ndarray, "pixels 3"]  # of all photographs, one after the other
    places: Int[Array | np.ndarray, "photographs 3"]  # first pixel, rows, columns
    outlines: UInt8[Array | np.ndarray, "outlines rows cols"]
    lamps: Float[Array | np.ndarray, "some rows cols 3"]

    @classmethod
    def load(cls, folder: Path) -> Bank:
        """Read a folder. Raises `DatasetError` where it is none."""
        try:
            return cls(**{name: np.load(folder / f"{name}.npy") for name in ARRAYS})
        except (OSError, ValueError, EOFError) as error:
            raise DatasetError(f"no bank of PSFs: {error}", file=folder) from error

    def save(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the arrays, and what they are of (bank.json)."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", np.asarray(getattr(self, name)))
        digest = hashlib.sha256(np.asarray(self.psfs).tobytes()).hexdigest()
        (folder / "bank.json").write_text(json.dumps(facts | {"psfs_sha256": digest}, indent=1) + "\n")


class SettingPsfs(eqx.Module):
    """PSFs of settings, and their blur radii: what takes long in making a bank."""

    psfs: Float[np.ndarray, "settings rungs 3 kernel kernel"]  # from far to near, each of sum 1
    coc_px: Float[np.ndarray, "settings rungs"]

    @classmethod
    def load(cls, files: Sequence[Path]) -> SettingPsfs:
        """Those of several files, one after the other. Raises `DatasetError` without files, and for one that holds
        none."""
        if not files:
            raise DatasetError("no files with PSFs of settings")
        parts = []
        for file in files:
            try:
                with np.load(file) as content:
                    parts.append(cls(content["psfs"], content["coc_px"]))
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                raise DatasetError(f"holds no PSFs of settings: {error}", file=file) from error
        return cast("SettingPsfs", jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts))

    def save(self, file: Path) -> None:
        """Write a compressed file, each pixel to 0.8 % of its light: half as many bytes, and less than any noise."""
        buffer, unused = io.BytesIO(), 4  # of the ten bits after a number's first
        bits = self.psfs.astype(np.float16).view(np.uint16) + np.uint16(1 << (unused - 1))
        np.savez_compressed(buffer, psfs=(bits >> unused << unused).view(np.float16), coc_px=self.coc_px)
        write_file(file, buffer.getvalue())


def find_setting_psfs(
    plan: PlanLike, split: SplitName, numbers: Sequence[int], *, pixels_across: Sequence[float], pool: LensPool
) -> SettingPsfs:
    """PSFs of the settings with these numbers, through the lenses of a split. A setting whose PSFs the lens or the
    kernel refuses is left out. `pixels_across`: pixels across the image circle, one of them for each setting."""
    plan = as_plan(plan)
    lenses = [pool.lenses[name] for name in pool.of_split[split]]
    if not lenses:
        raise DatasetError(f"the plan has no lenses of the split {split!r}")
    if not plan.blur.levels_px:
        raise DatasetError("the plan has no blur.levels_px, by which the radii of a bank's settings are drawn")
    blurs = [blur for number in numbers if (blur := _setting(plan, lenses, number, pixels_across)) is not None]
    kernels, radii = [], []
    for blur, patch in zip(blurs, find_layer_psfs(plan, blurs)[None], strict=True):
        if patch.refusal:
            continue
        window = embedded([patch.psfs[rung] for rung in range(RUNGS)], plan.patch.kernel)
        right, down = highest(window[int(np.argmin(np.abs(blur.coc_px)))].mean(0))
        moved = _moved(_moved(window, -down, -2), -right, -1)
        colours = np.repeat(moved, 3 // moved.shape[1], axis=1)  # discs have one band for all
        kernels.append((colours / colours.sum((-2, -1), keepdims=True)).astype(np.float16))
        radii.append(blur.coc_px.astype(np.float32))
    empty = np.zeros((0, RUNGS, 3, plan.patch.kernel, plan.patch.kernel), np.float16), np.zeros((0, RUNGS), np.float32)
    return SettingPsfs(np.stack(kernels), np.stack(radii)) if kernels else SettingPsfs(*empty)


def make_bank(plan: PlanLike, split: SplitName, settings: SettingPsfs) -> Bank:
    """A bank of some settings and of a split's photographs, those of `composed` sources."""
    plan = as_plan(plan)
    sources = [source for source in find_sources(plan)[split] if source.textures]
    files = sorted({file for source in sources for file in source.textures})
    if not files or not len(settings.psfs):
        raise DatasetError(f"no settings with PSFs, or no composed scenes of the split {split!r} in the plan")
    prefilter_px, *others = sorted({source.prefilter_px for source in sources})
    if others:
        numbers = " and ".join(f"{number:g}" for number in (prefilter_px, *others))
        raise DatasetError(f"sources with prefilter_px {numbers}: a bank has one for all of its photographs")
    with ThreadPoolExecutor() as threads:
        textures = threads.map(lambda file: _reduced(quantise(read_picture(file)[0], 8), prefilter_px), files)
        cloths = threads.map(lambda k: _reduced(_cloth((plan.seed, k)), prefilter_px), range(CLOTHS))
        shapes = threads.map(_outline, [(plan.seed, k) for k in range(384)])
        glows = threads.map(_lamps, [(plan.seed, k) for k in range(48)])
        pictures = [picture for several in textures for picture in several]
    if not pictures:
        raise DatasetError(f"of {len(files)} photographs none has {LEAST_PX} pixels a side", file=files[0].parent)
    pictures += [picture for several in cloths for picture in several]
    starts = np.cumsum([0, *(p.shape[0] * p.shape[1] for p in pictures)])
    places = np.array([[start, *p.shape[:2]] for start, p in zip(starts, pictures, strict=False)], np.int32)
    pixels = np.concatenate([p.reshape(-1, 3) for p in pictures])
    arrays = pixels, places, np.stack(list(shapes)), np.stack(list(glows))
    return Bank(settings.psfs, settings.coc_px, *arrays)


def _setting(plan: Plan, lenses: Sequence[PoolLens], number: int, pixels_across: Sequence[float]) -> LayerBlur | None:
    """A lens, its pixels, its focus, a place in the field and the depths of its rungs; None where there are none."""
    random = generator(plan.seed, "bank", number)
    lens = lenses[int(random.integers(len(lenses)))]
    across = pixels_across[number % len(pixels_across)]
    front_m = float(lens.camera.paraxial.data.front_focus) / 1e3  # nothing nearer has an image
    focus_m = float(np.exp(random.uniform(math.log(max(0.6, 1.5 * front_m)), math.log(max(20.0, 3.0 * front_m)))))
    radius, turn = math.sqrt(random.random()), random.uniform(0.0, 2.0 * math.pi)
    pixel_um = 2e3 * float(lens.camera.image_radius_mm) / across
    camera = lens.camera_for(pixel_um, focus_m)
    far = float(camera.circle_of_confusion_px(math.inf))
    slope = float(camera.circle_of_confusion_px(1.0)) - far
    weights = np.array(plan.blur.weights) / sum(plan.blur.weights)
    level = int(random.choice(len(weights), p=weights))
    ends_px = (0.0, *plan.blur.levels_px)
    most = random.uniform(ends_px[level], ends_px[level + 1])
    # The radius falls from infinity's through none in the focus to the nearest point's.
    high, low = min(far, most), max(far + slope / max(NEAREST_M, 1.1 * front_m), -most)
    if not (low < high and math.isfinite(high - low)):
        return None
    one = high if random.random() < high / max(high - low, 1e-9) else low
    other = random.uniform(low, high)
    spread = np.linspace(max(one, other), min(one, other), RUNGS - 1)
    coc = np.sort(np.append(spread, 0.0))[::-1]
    inverse = np.maximum((coc - far) / slope, 0.0)
    depth = 1.0 / np.maximum(inverse, 1e-6)
    place = (radius * math.cos(turn), radius * math.sin(turn))
    return LayerBlur(lens.name, place, camera, coc, depth, np.ones(RUNGS, bool))


def _moved(psfs: Float[np.ndarray, "*n"], shift: float, axis: int) -> Float[np.ndarray, "*n"]:
    """PSFs moved along an axis by a part of a pixel or more: cubic interpolation, no less than nothing."""
    whole = math.floor(shift)
    t = shift - whole
    weights = (
        -0.5 * t**3 + t**2 - 0.5 * t,
        1.5 * t**3 - 2.5 * t**2 + 1.0,
        -1.5 * t**3 + 2.0 * t**2 + 0.5 * t,
        0.5 * t**3 - 0.5 * t**2,
    )
    # The value at x comes from x − whole − t, which lies between x − whole − 1 and x − whole.
    moved = sum(weight * np.roll(psfs, whole + k, axis) for weight, k in zip(weights, (-1, 0, 1, 2), strict=True))
    return np.maximum(moved, 0.0)


def _reduced(picture: UInt8[np.ndarray, "rows cols 3"], prefilter_px: float) -> list[UInt8[np.ndarray, "rows cols 3"]]:
    """A photograph in several sizes, no sharper than the prefilter leaves it."""
    from PIL import Image

    sizes = []
    for factor in REDUCTIONS:
        size = tuple(round(n * factor) for n in picture.shape[1::-1])
        if min(size) < LEAST_PX:
            continue
        own = picture if factor == 1.0 else np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
        if prefilter_px > 0.0:
            own = ndimage.gaussian_filter(own.astype(np.float32), (prefilter_px, prefilter_px, 0.0)).round()
        sizes.append(own.astype(np.uint8))
    return sizes


def _cloth(name: tuple[int, int]) -> UInt8[np.ndarray, "rows cols 3"]:
    """Tartan of random colours, stripes and threads, in display values."""
    seed, number = name
    random = np.random.default_rng(seed_for(seed, "cloth", number))
    thread_m, side = 0.004, math.ceil(LEAST_PX / min(REDUCTIONS)) + 1
    pitch_m = thread_m / random.uniform(*THREAD_PX)
    at = pitch_m * np.arange(side)
    codes = [f"{code:06x}" for code in random.integers(0, 2**24, int(random.integers(2, 5)))]
    stripe_m = thread_m * random.uniform(3.0, 14.0)
    light = cloth(Grid(at, -at, int(random.integers(2**31))), codes, stripe_m, thread_m=thread_m)
    return quantise(to_srgb(np.clip(light, 0.0, 1.0)), 8)


def _outline(name: tuple[int, int]) -> UInt8[np.ndarray, "rows cols"]:
    seed, number = name
    random = np.random.default_rng(seed_for(seed, "outline", number))
    grid = pixel_grid((OUTLINE_PX, OUTLINE_PX), int(random.integers(2**31)))
    kinds = LARGE_OUTLINES if random.random() < 0.7 else FINE_OUTLINES
    return np.round(255.0 * kinds[int(random.integers(len(kinds)))](grid, random).opacity).astype(np.uint8)


def _lamps(name: tuple[int, int]) -> Float[np.ndarray, "rows cols 3"]:
    seed, number = name
    random = np.random.default_rng(seed_for(seed, "lamps", number))
    grid = pixel_grid((OUTLINE_PX, OUTLINE_PX), int(random.integers(2**31)))
    count, radius = int(random.integers(1, 12)), random.uniform(1.2, 4.0)
    light = lamps(grid, count, radius, math.exp(random.uniform(0.5, 3.5)), (*WARM, "ffffff", "bcd6ff"))
    return light.astype(np.float16)


@partial(jax.jit, static_argnames=("count", "crop"))
def bank_batch(bank: Bank, seed: Array | int, *, count: int, crop: int) -> tuple[Array, Array]:
    """So many blurred and sharp pictures, uint8 [count, crop, crop, 3]: a pure function of the bank and the seed."""
    most = min(bank.outlines.shape[1], bank.lamps.shape[1], LEAST_PX) - 2 * RIM_PX
    if crop > most:
        raise DatasetError(f"crops of {crop} pixels; the scenes of this bank hold {most} at most")
    own, pairs = partial(_pair, bank, crop), (jax.random.split(jax.random.key(seed), count), _surfaces(seed, count))
    if count <= AT_ONCE_PAIRS:
        return jax.vmap(own)(*pairs)
    return jax.lax.map(lambda pair: own(*pair), pairs, batch_size=AT_ONCE_PAIRS)


def _surfaces(seed: Array | int, count: int) -> Int[Array, " count"]:
    """How many surfaces each scene of a batch has, the fewest first: a layer that none beside it has costs nothing."""
    places = (jnp.arange(count) + jax.random.uniform(jax.random.fold_in(jax.random.key(seed), count))) / count
    return 1 + jnp.searchsorted(jnp.cumsum(jnp.array(SHARES)), places, side="right").clip(0, SURFACES - 1)


def _pair(bank: Bank, crop: int, key: Array, surfaces: Int[Array, ""]) -> tuple[Array, Array]:
    """A scene of so many surfaces, blurred and sharp."""
    side = crop + 2 * RIM_PX
    which, scene, levels, grain, turn = jax.random.split(key, 5)
    setting = jax.random.randint(which, (), 0, bank.psfs.shape[0])
    stack, position, rung = _scene(bank, side, scene, surfaces, jnp.abs(bank.coc_px[setting]).argmax())
    coc, surface = bank.coc_px[setting][rung], jnp.repeat(jnp.arange(SURFACES), EACH)
    layers = StackLayers(coc, coc, jnp.ones(SURFACES * EACH, bool), surface, position)
    light = composite_stack(stack, layers, bank.psfs[setting][rung].astype(jnp.float32))
    shot, read = jax.random.uniform(levels, (2,), jnp.float32, 0.5, 1.5) * 1e-5
    colour = jax.tree.map(jnp.asarray, SensorColour.make())
    _, blurred = expose(light, colour, noise=Noise(shot, read), key=grain)
    inner = slice(RIM_PX, RIM_PX + crop)
    pictures = (p[inner, inner] for p in (blurred, expose_sharp(jnp.asarray(stack.picture()), colour)))
    view = jax.random.randint(turn, (), 0, 8)  # the lens turned, since the photographs were
    blurred, sharp = (_turned(jnp.round(jnp.clip(p, 0.0, 1.0) * 255.0).astype(jnp.uint8), view) for p in pictures)
    return blurred, sharp


def _scene(
    bank: Bank, side: int, key: Array, surfaces: Int[Array, ""], strongest: Int[Array, ""]
) -> tuple[SurfaceStack, Array, Array]:
    """Surfaces from far to near, one of them at the rung `strongest`; the layer that each of their pixels is in, and
    the rung of each layer."""
    rungs, slant, turn, paints, shapes = jax.random.split(key, 5)
    index = jnp.arange(SURFACES)[:, None, None]
    colour = jax.vmap(partial(_paint, bank, side))(jax.random.split(paints, SURFACES))
    outlines = jax.vmap(partial(_window, bank.outlines, side))(jax.random.split(shapes, SURFACES)) / 255.0
    opacity = jnp.where(index == 0, 1.0, jnp.where(index < surfaces, outlines, 0.0)).astype(jnp.float32)
    # Each surface stands at a rung, or is slanted over some of them; those that are not there come last.
    begin = jax.random.randint(rungs, (SURFACES,), 0, RUNGS).at[0].set(strongest)
    begin = jnp.sort(jnp.where(jnp.arange(SURFACES) < surfaces, begin, RUNGS))
    stride = jax.random.randint(slant, (SURFACES,), -2, 4).clip(0)
    rung = jnp.minimum(begin[:, None] + stride[:, None] * jnp.arange(EACH), RUNGS - 1)
    turns = jax.random.uniform(turn, (SURFACES, 1, 1), jnp.float32, 0.0, 2.0 * math.pi)
    x = (jnp.arange(side) - (side - 1) / 2.0) / (side / 2.0)
    slope = (jnp.cos(turns) * x + jnp.sin(turns) * x[:, None]) / (jnp.abs(jnp.cos(turns)) + jnp.abs(jnp.sin(turns)))
    part = jnp.where(stride[:, None, None] > 0, (0.5 + 0.5 * slope) * (EACH - 1), 0.0)
    position = (EACH * index + part).astype(jnp.float32)
    return SurfaceStack(colour, opacity, opacity), position, rung.ravel()


def _paint(bank: Bank, side: int, key: Array) -> Array:
    """A part of a photograph as linear light, with highlights and sometimes lamps."""
    pick, row, col, turn, gain, bright, raised, lit, glow = jax.random.split(key, 9)
    first, rows, cols = bank.places[jax.random.randint(pick, (), 0, bank.places.shape[0])]
    top, left = jax.random.randint(row, (), 0, rows - side + 1), jax.random.randint(col, (), 0, cols - side + 1)
    y, x = jnp.arange(side)[:, None], jnp.arange(side)
    own = jnp.asarray(LIGHT_OF_DISPLAY)[bank.pixels[first + (top + y) * cols + left + x]]
    own = _turned(own, jax.random.randint(turn, (), 0, 8))
    own = own * jnp.exp(jax.random.uniform(gain, (), jnp.float32, math.log(0.5), math.log(1.5)))
    t = jnp.clip((own.min(-1, keepdims=True) - 0.85) / 0.15, 0.0, 1.0)
    power = jnp.where(jax.random.bernoulli(raised), jax.random.uniform(bright, (), jnp.float32, 0.0, 4.0), 0.0)
    own = own * (1.0 + power * t * t * (3.0 - 2.0 * t))
    lamps_here = jnp.where(jax.random.bernoulli(lit, 0.1), _window(bank.lamps, side, glow), 0.0)
    return (own + lamps_here).astype(jnp.float32)


def _window(images: Any, side: int, key: Array) -> Array:
    """A part of one of several images, mirrored and turned by chance."""
    pick, row, col, turn = jax.random.split(key, 4)
    number = jax.random.randint(pick, (), 0, images.shape[0])
    top, left = (jax.random.randint(k, (), 0, images.shape[1] - side + 1) for k in (row, col))
    size = (1, side, side, *images.shape[3:])
    part = jax.lax.dynamic_slice(images, (number, top, left, *[0] * (images.ndim - 3)), size)[0]
    return _turned(part, jax.random.randint(turn, (), 0, 8))


def _turned(image: Array, turn: Array) -> Array:
    """One of the eight mirrored and turned views of a square."""
    image = jnp.where(turn & 1, image[::-1], image)
    image = jnp.where(turn & 2, image[:, ::-1], image)
    return jnp.where(turn & 4, image.swapaxes(0, 1), image)
