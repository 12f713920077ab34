"""Defocus of a layered scene: each layer blurred by its own PSF, put together from near to far in linear light.

The usual rule, from far to near, is C ← P∗(αC_i) + (1 − P∗α) C. It takes what a layer covers of the layers behind it as
independent of where those layers are. That is right for one surface behind another and wrong for two layers of the same
slanted surface, which never cover each other: the pupil sees one where it does not see the other. With opacities that
end at the layer's own pixels the rule lets the background shine through slanted surfaces; with opacities that go on
behind everything nearer, near layers win over far ones. Here, therefore, from near to far,

    w = P∗α,   k = min(1, T / w),   N ← N + k P∗(αC_i),   T ← T − k w,     picture N / (1 − T),

with T, at first 1, the part of the pupil that is still free: a layer takes what it covers, as far as there is room (the
"disjoint over" of image compositing). For a surface before a complete background both rules agree; a slanted surface is
the plain sum of its layers, without gaps. A layer's α holds its visible pixels and what continues behind nearer
surfaces (`scene.front_and_back`). Colours are never clipped: a highlight keeps its energy and shows the PSF.

What remains is that the part of a layer that is covered and the layer's texture are taken as independent within the
pupil. `parts` cuts each PSF into sectors, seen through the same sector of the pupil in every layer (mirrored in front
of the focus), and composites each by itself: the more parts, the nearer to following every ray, at their price.

Blurring is by FFT, right up to the border. A photograph is continued beyond its border by reflection (the border's
pixel is repeated: … c b a | a b c …), far enough for the kernel; a light source outside the frame is not known, a dark
frame would be wrong. The transform is as long as the continued image, so what wraps around falls on the continuation
and is cut off. Kernels hold the point in pixel size // 2, sum to what the light should sum to, and may differ per band.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int, Shaped
from scipy.fft import next_fast_len

from ..errors import DefocusError
from ..optics.batch import any_lens
from ..scene.front_and_back import Surfaces, find_surfaces
from ..scene.layers import Layers

SECTOR_FROM_PX = 2.0  # blur radius from which on a PSF's sectors are those of the pupil


def transform_length(pixels: int, size: int) -> int:
    """Length of the FFT for an image of so many pixels and a kernel of `size`."""
    return next_fast_len(pixels + size - 1, real=True)


def mirror_index(index: Int[np.ndarray, " n"], pixels: int) -> Int[np.ndarray, " n"]:
    """For each pixel number, inside or outside an image, the pixel whose value it repeats."""
    index = index % (2 * pixels)
    return np.minimum(index, 2 * pixels - 1 - index)


def kernel_reach(size: int) -> tuple[int, int]:
    """Pixels before and behind a pixel from which a kernel of `size` can bring light to it."""
    return size - 1 - size // 2, size // 2


def embedded(
    psfs: Sequence[Float[np.ndarray, "bands _ _"]], kernel_px: int
) -> Float[np.ndarray, "psfs bands kernel kernel"]:
    """PSFs of different windows as kernels of one size, the point in pixel kernel_px // 2."""
    kernels = np.zeros((len(psfs), psfs[0].shape[0], kernel_px, kernel_px), np.float32)
    for kernel, psf in zip(kernels, psfs, strict=True):
        first = kernel_px // 2 - psf.shape[-1] // 2
        kernel[:, first : first + psf.shape[-1], first : first + psf.shape[-1]] = psf
    return kernels


def extend(image: Shaped[Array, "rows cols *channels"], size: int) -> Shaped[Array, "more_rows more_cols *channels"]:
    """The image continued by reflection, for kernels of `size` pixels."""
    before, after = kernel_reach(size)
    rows, cols = (mirror_index(np.arange(-before, n + after), n) for n in image.shape[:2])
    return image[rows][:, cols]


def transform(
    planes: Float[Array, "*planes rows cols"], lengths: tuple[int, int]
) -> Complex[Array, "*planes frequency_rows frequency_cols"]:
    """Spectra of images or kernels, filled with zeros at their ends."""
    return jnp.fft.rfft2(planes, s=lengths)


def valid_part(
    spectrum: Complex[Array, "*planes frequency_rows frequency_cols"],
    lengths: tuple[int, int],
    shape: tuple[int, int],
    size: int,
) -> Float[Array, "*planes rows cols"]:
    """The image of `shape` from the product of an extended image's spectrum and that of a kernel of `size`."""
    first = size - 1  # where the whole kernel first lies on the extended image
    return jnp.fft.irfft2(spectrum, s=lengths)[..., first : first + shape[0], first : first + shape[1]]


def convolve(
    image: Float[Array, "rows cols bands"], psf: Float[Array, "bands size size"]
) -> Float[Array, "rows cols bands"]:
    """One photograph with one kernel per band."""
    rows, cols, _ = image.shape
    size = psf.shape[-1]
    lengths = (transform_length(rows, size), transform_length(cols, size))
    planes = jnp.moveaxis(extend(image, size), -1, 0)
    product = transform(planes, lengths) * transform(psf, lengths)
    return jnp.moveaxis(valid_part(product, lengths, (rows, cols), size), 0, -1)


def require_kernel(coc_px: Float[Array, "layers"], used: Bool[Array, "layers"], size: int) -> None:
    """Raise `DefocusError` where a layer's circle of confusion does not fit a kernel of `size` pixels."""
    widest = float(np.where(np.asarray(used), np.abs(np.asarray(coc_px)), 0.0).max())
    if widest > size / 2 - 1:
        raise DefocusError(
            f"a layer has a blur radius of {widest:.1f} px, a kernel of {size} px holds {size / 2 - 1:g}: use PSFs of "
            f"{2 * math.ceil(widest + 1)} px or more, stop the lens down, or render a smaller picture"
        )


class Canvas(eqx.Module):
    """What the layers so far, from the nearest on, have put together."""

    light: Float[Array, "*batch 3 rows cols"]  # N
    seen: Float[Array, "*batch bands rows cols"]  # 1 − T
    room: Float[Array, "*batch parts bands rows cols"]  # T, of each part of the pupil

    @staticmethod
    def empty(shape: tuple[int, ...], *, bands: int, parts: int) -> Canvas:
        """A canvas of `shape` = (*batch, rows, cols) with nothing on it."""
        *batch, rows, cols = shape
        return Canvas(
            jnp.zeros((*batch, 3, rows, cols), jnp.float32),
            jnp.zeros((*batch, bands, rows, cols), jnp.float32),
            jnp.ones((*batch, parts, bands, rows, cols), jnp.float32),
        )

    def with_layer(
        self, wide: Surfaces, index: Float[Array, ""], psf: Float[Array, "bands size size"], coc_px: Float[Array, ""]
    ) -> Canvas:
        """The canvas with the next layer behind; `wide` are the surfaces as far around it as the kernel reaches."""
        (parts, _, rows, cols), size = self.room.shape, psf.shape[-1]
        lengths = (transform_length(rows, size), transform_length(cols, size))
        here = wide.opacity * jnp.maximum(1.0 - jnp.abs(wide.front_position - index), 0.0)
        behind = jnp.where(wide.has_back, jnp.maximum(1.0 - jnp.abs(wide.back_position - index), 0.0), 0.0)
        front, back = jnp.moveaxis(wide.front, -1, 0), jnp.moveaxis(wide.back, -1, 0)
        planes = jnp.concatenate([here * front + behind * back, (here + behind)[None]])
        kernels = _in_parts(psf, coc_px, parts)  # [parts, bands, size, size]
        kernel_spectra = transform(kernels, lengths)
        spectra = transform(planes, lengths)
        colour = valid_part(kernel_spectra * spectra[:3], lengths, (rows, cols), size)  # [parts, 3, rows, cols]
        cover = valid_part(kernel_spectra * spectra[3], lengths, (rows, cols), size)
        part_sum = kernels.sum((-2, -1), keepdims=True)
        cover = jnp.maximum(cover / jnp.maximum(part_sum, 1e-20), 0.0)
        kept = jnp.where(cover > self.room, self.room / jnp.maximum(cover, 1e-20), 1.0)
        share = part_sum / jnp.maximum(part_sum.sum(0), 1e-20)
        # Added one by one: XLA on the CPU (jax 0.10.2) compiles (kept * colour).sum(0) with one band wrongly.
        return Canvas(
            self.light + sum(kept[part] * colour[part] for part in range(parts)),
            self.seen + sum(share[part] * kept[part] * cover[part] for part in range(parts)),
            jnp.maximum(self.room - kept * cover, 0.0),
        )

    @property
    def picture(self) -> Float[Array, "*batch rows cols 3"]:
        """What a sensor sees of it, linear RGB."""
        return jnp.moveaxis(self.light / jnp.maximum(self.seen, 1e-6), -3, -1)


def _is_held(surfaces: Surfaces, index: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether any pixel has a share in a layer, by its front or its back."""
    front = (surfaces.opacity > 0.0) & (jnp.abs(surfaces.front_position - index) < 1.0)
    return jnp.any(front | (surfaces.has_back & (jnp.abs(surfaces.back_position - index) < 1.0)))


@partial(jax.jit, static_argnames="parts")
def composite(
    surfaces: Surfaces,
    psfs: Float[Array, "layers bands size size"],
    coc_px: Float[Array, "layers"],
    *,
    parts: int = 1,
) -> Float[Array, "rows cols 3"]:
    """The defocused picture, linear RGB (`jax.vmap` for many). One band serves all three colours, or each has its own.

    `psfs` belong to the layers, far to near, in photograph orientation; `coc_px` (signed) only says which way round the
    pupil shows in them. A PSF's sum is kept: less than 1 darkens the picture.
    """
    layers, bands, size, _ = psfs.shape
    wide = jax.tree.map(lambda leaf: extend(leaf, size), surfaces)

    def add(
        canvas: Canvas, layer: tuple[Float[Array, ""], Float[Array, "bands size size"], Float[Array, ""]]
    ) -> tuple[Canvas, None]:
        # Many layers hold nothing, and add nothing: their transforms of zeros are left out.
        return jax.lax.cond(
            any_lens(_is_held(surfaces, layer[0])), lambda: canvas.with_layer(wide, *layer), lambda: canvas
        ), None

    start = Canvas.empty(surfaces.opacity.shape, bands=bands, parts=parts)
    index = jnp.arange(layers, dtype=jnp.float32)
    return jax.lax.scan(add, start, (index, psfs, coc_px), reverse=True)[0].picture


@jax.jit
def render_layers(
    linear: Float[Array, "rows cols 3"],
    coc_px: Float[Array, "rows cols"],
    layers: Layers,
    psfs: Float[Array, "layers bands size size"],
) -> Float[Array, "rows cols 3"]:
    """A sharp photograph with its blur radii and layers, defocused: hidden parts filled in, then composited."""
    return composite(find_surfaces(linear, coc_px, layers), psfs, layers.coc_px)


@jax.jit
def render_far_to_near(
    linear: Float[Array, "rows cols 3"],
    coc_px: Float[Array, "rows cols"],
    layers: Layers,
    psfs: Float[Array, "layers bands size size"],
) -> Float[Array, "rows cols 3"]:
    """The same by the paper's rule: C ← P∗(αC_i) + (1 − P∗α) C from far to near.

    Each pixel belongs to one layer. α is 1 in a layer's own pixels and behind all that is nearer, where the colour is
    what `find_surfaces` fills in.
    """
    size, (rows, cols) = psfs.shape[-1], coc_px.shape
    lengths = (transform_length(rows, size), transform_length(cols, size))
    surfaces, nearest = find_surfaces(linear, coc_px, layers), jnp.round(layers.position)
    hidden = jnp.where(surfaces.has_back[..., None], surfaces.back, linear)

    def add(
        light: Float[Array, "3 rows cols"],
        layer: tuple[Float[Array, ""], Float[Array, "bands size size"], Bool[Array, ""]],
    ) -> tuple[Array, None]:
        index, psf, used = layer
        opacity = (nearest >= index)[..., None].astype(linear.dtype)
        colour = jnp.where((nearest == index)[..., None], linear, hidden)
        planes = extend(jnp.concatenate([opacity * colour, opacity], axis=-1), size)
        spectra = transform(jnp.moveaxis(planes, -1, 0), lengths)
        kernel = transform(psf, lengths)
        own = valid_part(kernel * spectra[:3], lengths, (rows, cols), size)
        cover = valid_part(kernel * spectra[3], lengths, (rows, cols), size)
        return jnp.where(used, own + (1.0 - cover) * light, light), None

    index = jnp.arange(len(psfs), dtype=jnp.float32)
    light, _ = jax.lax.scan(add, jnp.zeros((3, rows, cols), jnp.float32), (index, psfs, layers.used))
    return jnp.moveaxis(light, 0, -1)


def _sectors(size: int, parts: int, fine: int = 4) -> Float[np.ndarray, "parts size size"]:
    """How much of each pixel around the point lies in each of equal sectors."""
    place = (np.arange(size * fine) + 0.5) / fine - 0.5 - size // 2
    turn = np.arctan2(-place[:, None], place[None, :]) / (2.0 * np.pi)
    which = np.floor(np.mod(turn, 1.0) * parts).astype(np.int64).clip(0, parts - 1)
    share = [(which == part).reshape(size, fine, size, fine).mean((1, 3)) for part in range(parts)]
    return np.stack(share).astype(np.float32)


def _in_parts(
    psf: Float[Array, "bands size size"], coc_px: Float[Array, ""], parts: int
) -> Float[Array, "parts bands size size"]:
    """A layer's PSF in sectors of the pupil. Near the focus there are none to tell apart: equal parts of all of it."""
    if parts == 1:
        return psf[None]
    cut = jnp.asarray(_sectors(psf.shape[-1], parts))
    # Light of points in front of the focus crosses the sensor before it comes together: the pupil is turned by 180°.
    turned = jnp.roll(jnp.flip(cut, (1, 2)), 1 - cut.shape[-1] % 2, (1, 2))
    cut = jnp.where(coc_px < 0.0, turned, cut)
    strength = jnp.clip(jnp.abs(coc_px) / SECTOR_FROM_PX, 0.0, 1.0)
    return (strength * cut + (1.0 - strength) / parts)[:, None] * psf[None]
