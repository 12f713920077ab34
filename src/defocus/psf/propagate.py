"""Pupils to the sensor: intensities on each one's own pixel grid, each pixel the mean of the points in it."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..optics.batch import over_lenses
from .fourier import Transform, matrix_dft
from .pupil_function import PupilFunction, grid_axis, pupil_mask, sample_pupil

SUPERSAMPLE = 5


class Intensity(eqx.Module):
    """Intensity per pixel, as a part of all the light that leaves the pupil; rows from the top."""

    pixels: Float[Array, "*batch size size"]
    inside: Float[Array, "*batch"]  # their sum: what lands in the window
    strehl: Float[Array, "*batch"]  # brightest sample, over what the same pupil would give without aberrations
    light: Float[Array, "*batch"]  # ∬|A|² ds: mm² of the incoming beam that it comes from


def window_axis(size: int, pixel: Float[Array, ""], supersample: int) -> Float[Array, " points"]:
    """Coordinates (mm) of the samples: `supersample` per pixel, `size` pixels, pixel size // 2 at 0.

    One sample per pixel is a point sample at its centre.
    """
    fine = (jnp.arange(size * supersample) + 0.5) / supersample - 0.5
    return (fine - size // 2) * pixel


def intensity(
    pupil: PupilFunction,
    pixel: Float[Array, ""],
    *,
    samples: int,
    size: int,
    supersample: int = SUPERSAMPLE,
    transform: Transform = matrix_dft,
    dtype: jnp.dtype = jnp.float32,
) -> Intensity:
    """One PSF: `pixel` in mm, `samples` cells across the pupil."""
    samples_of_pupil, energy, amplitude = sample_pupil(pupil, samples, dtype)
    g = grid_axis(samples)
    sx, sy = (pupil.centre[i] + pupil.half[i] * g for i in (0, 1))
    x = window_axis(size, pixel, supersample)
    y = -x  # row 0 on top, y up; the point in row and column size // 2
    wave = transform(samples_of_pupil, sx, sy, x, y, pupil.wavelength)
    cell = 4.0 * pupil.half[0] * pupil.half[1] / samples**2
    # Parseval: over a full period Σ|E|² dx dy · cell² = λ² Σ|P|² · cell.
    total = pupil.wavelength**2 * energy
    step = pixel / supersample
    density = wave.real**2 + wave.imag**2
    fine = _unbend(density, x, y, step, pupil.bend) * (cell * step**2 / total).astype(dtype)
    pixels = fine.reshape(size, supersample, size, supersample).sum(axis=(1, 3))
    strehl = jnp.max(density) / amplitude**2
    return Intensity(pixels, jnp.sum(pixels, dtype=jnp.float64), strehl, energy * cell)


def _unbend(
    fine: Float[Array, "points points"],
    x: Float[Array, " points"],
    y: Float[Array, " points"],
    step: Float[Array, ""],
    bend: Float[Array, "2"],
) -> Float[Array, "points points"]:
    """Where light comes in at a slant, the sphere from which it comes is not as far from all points of the window.

    With d the distance from the window's centre, s̄ the mean direction and R the radius of the sphere, the second order
    of |x − q| has the term −(s̄·d)(s·d) / R: a point sees the sum that belongs to d (1 − s̄·d / R). The area changes by
    the determinant of that map, which keeps the energy.
    """
    dtype = fine.dtype
    place = jnp.arange(len(x), dtype=dtype)
    x, y, step, bend = (v.astype(dtype) for v in (x[None, :], y[:, None], step, bend))
    slant = bend[0] * x + bend[1] * y
    column, row = place[None, :] - slant * x / step, place[:, None] + slant * y / step
    moved = jax.scipy.ndimage.map_coordinates(fine, [row, column], order=1, mode="nearest")
    return moved * (1.0 - slant) * (1.0 - 2.0 * slant)


@partial(jax.jit, static_argnames=("samples", "size", "supersample", "dtype"))
def intensity_batch(
    pupils: PupilFunction,
    pixel: Float[Array, " batch"],
    count: Int[Array, ""] | int | None = None,
    *,
    samples: int,
    size: int,
    supersample: int = SUPERSAMPLE,
    dtype: jnp.dtype = jnp.float32,
) -> Intensity:
    """`intensity` over a batch, or on a processor over its first `count`."""
    return over_lenses(
        lambda p, d: intensity(p, d, samples=samples, size=size, supersample=supersample, dtype=dtype),
        pupils,
        pixel,
        count=count,
    )


@partial(jax.jit, static_argnames=("samples",))
def pupil_light(pupils: PupilFunction, *, samples: int = 256) -> Float[Array, "requests waves"]:
    """∬|A|² ds of pupils [request, wavelength], without propagation: mm² of the incoming beam that they pass."""

    def one(pupil: PupilFunction) -> Float[Array, ""]:
        _, amplitude, mask = pupil_mask(pupil, samples)
        return jnp.sum(amplitude**2 * mask, dtype=jnp.float64) * 4.0 * pupil.half[0] * pupil.half[1] / samples**2

    return jax.lax.map(lambda row: jax.lax.map(one, row), pupils)
