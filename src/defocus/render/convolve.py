"""Convolution of photographs with point spread functions, by FFT, right up to the border.

A photograph is continued beyond its border by reflection (the border's pixel is repeated: … c b a | a b c …), far
enough for the kernel; a light source outside the frame is not known, a dark frame would be wrong. The transform is as
long as the continued image, so what wraps around falls on the continuation and is cut off. Kernels hold the point in
pixel size // 2, sum to what the light should sum to, and may differ per band.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int, Shaped
from scipy.fft import next_fast_len


def margins(size: int) -> tuple[int, int]:
    """Pixels before and after an image that a kernel of `size` pixels can reach."""
    return size - 1 - size // 2, size // 2


def transform_length(pixels: int, size: int) -> int:
    """Length of the FFT for an image of so many pixels and a kernel of `size`."""
    return next_fast_len(pixels + size - 1, real=True)


def mirror_index(index: Int[np.ndarray, " n"], pixels: int) -> Int[np.ndarray, " n"]:
    """For each pixel number, inside or outside an image, the pixel whose value it repeats."""
    index = index % (2 * pixels)
    return np.minimum(index, 2 * pixels - 1 - index)


def extend(image: Shaped[Array, "rows cols *channels"], size: int) -> Shaped[Array, "more_rows more_cols *channels"]:
    """The image continued by reflection, for kernels of `size` pixels."""
    before, after = margins(size)
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
