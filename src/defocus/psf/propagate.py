"""Pupils to the sensor: plane waves summed on any grid, intensities on each PSF's own pixels.

    E[k, l] = Σ_ij P[i, j] exp(2πi (s_y,i y_k + s_x,j x_l) / λ)

`matrix_dft` is two matrix products, exact on any grid and the fastest on a GPU. `chirp_z` writes the product of index
and index as a convolution (Bluestein) and uses FFTs. Both compute the same sum. A pixel is the mean of its points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from ..optics.batch import over_lenses
from ..stored_program import StoredProgram, shape_of, stored_program
from .pupil_function import PupilFunction, grid_axis, pupil_mask, pupil_shapes, sample_pupil

SUPERSAMPLE = 5

Transform = Callable[..., Any]  # pupil, s_x, s_y, x, y, wavelength → field on the sensor


def _phasor(waves: Float[Array, "*any"], like: Complex[Array, "*pupil"]) -> Complex[Array, "*any"]:
    """exp(2πi waves) in the pupil's precision; the phase is reduced in the precision that it comes in."""
    angle = (2.0 * jnp.pi * (waves - jnp.round(waves))).astype(like.real.dtype)
    return jax.lax.complex(jnp.cos(angle), jnp.sin(angle))


def matrix_dft(
    pupil: Complex[Array, "samples samples"],
    sx: Float[Array, " samples"],
    sy: Float[Array, " samples"],
    x: Float[Array, " points"],
    y: Float[Array, " points"],
    wavelength: Float[Array, ""],
    precision: str = "high",
) -> Complex[Array, "points points"]:
    """The sum by two matrix products; rows along y. s in direction cosines, x, y and wavelength in mm, float64.

    `precision` is JAX's: what a GPU's matrix units may do to float32. "high" costs 4e-5 in relative L1 there.
    """
    across = _product(pupil, _phasor(sx[:, None] * (x / wavelength), pupil), precision)
    return _product(_phasor((y / wavelength)[:, None] * sy, pupil), across, precision)


def _product(
    a: Complex[Array, "rows inner"], b: Complex[Array, "inner columns"], precision: str
) -> Complex[Array, "rows columns"]:
    """The matrix product; on a processor by three real ones, which together take half the time of a complex one and
    round a few times as coarsely.

    The barrier keeps the compiler from computing what is multiplied once for each of the three.
    """
    if jax.default_backend() != "cpu":
        return jnp.matmul(a, b, precision=precision)
    real, imaginary, both, low, difference, total = jax.lax.optimization_barrier(  # type: ignore[no-untyped-call]
        (a.real, a.imag, a.real + a.imag, b.real, b.imag - b.real, b.real + b.imag)
    )
    shared = both @ low
    return jax.lax.complex(shared - imaginary @ total, shared + real @ difference)


def chirp_z(
    pupil: Complex[Array, "samples samples"],
    sx: Float[Array, " samples"],
    sy: Float[Array, " samples"],
    x: Float[Array, " points"],
    y: Float[Array, " points"],
    wavelength: Float[Array, ""],
) -> Complex[Array, "points points"]:
    """The same sum for equally spaced s, x and y, by FFTs."""
    across = _chirp_rows(pupil, sx, x, wavelength)
    return _chirp_rows(across.T, sy, y, wavelength).T


def _chirp_rows(
    rows: Complex[Array, "lines samples"],
    s: Float[Array, " samples"],
    x: Float[Array, " points"],
    wavelength: Float[Array, ""],
) -> Complex[Array, "lines points"]:
    samples, points = s.shape[0], x.shape[0]
    length = 1 << (samples + points - 2).bit_length()
    ds, dx = s[1] - s[0], x[1] - x[0]
    rate = ds * dx / wavelength
    m, n = jnp.arange(samples), jnp.arange(points)
    # s_m x_n = s_m x_0 + n dx s_0 + m n ds dx, and m n = (m² + n² − (n − m)²) / 2. The chirps' phases grow with the
    # square of the index: they are reduced in float64.
    start = _phasor(s * (x[0] / wavelength) + rate * m**2 / 2.0, rows)
    end = _phasor(n * (dx * s[0] / wavelength) + rate * n**2 / 2.0, rows)
    lag = jnp.arange(length)
    lag = jnp.where(lag < points, lag, lag - length)
    chirp = _phasor(-rate * lag**2 / 2.0, rows)
    folded = jnp.fft.ifft(jnp.fft.fft(rows * start, length) * jnp.fft.fft(chirp))
    return folded[:, :points] * end


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
    one_period: bool = False,
    dtype: jnp.dtype = jnp.float32,
    rows: int | None = None,
) -> Intensity:
    """One PSF: `pixel` in mm, `samples` cells across the pupil. The sum repeats itself λ / Δs apart; with `one_period`
    it is dark beyond half of that from the window's centre. `rows` as for `sample_pupil`."""
    samples_of_pupil, energy, amplitude = sample_pupil(pupil, samples, dtype, rows=rows)
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
    if one_period:
        reach = pupil.wavelength * samples / (4.0 * pupil.half)
        density = jnp.where((jnp.abs(y)[:, None] <= reach[1]) & (jnp.abs(x)[None, :] <= reach[0]), density, 0.0)
    fine = unbend(density, x, y, step, pupil.bend) * (cell * step**2 / total).astype(dtype)
    pixels = fine.reshape(size, supersample, size, supersample).sum(axis=(1, 3))
    strehl = jnp.max(density) / amplitude**2
    return Intensity(pixels, jnp.sum(pixels, dtype=jnp.float64), strehl, energy * cell)


def unbend(
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


def intensity_batch(
    pupils: PupilFunction,
    pixel: Float[Any, " batch"],
    count: int | None = None,
    *,
    of: Callable[..., Intensity] = intensity,
    at_once: int = 1,
    window: int | None = None,
    **options: Any,
) -> Intensity:
    """`intensity`, or another function `of` a pupil and a pixel, over the first `count` of a batch, others dark.

    An accelerator takes them `at_once`, in a loop. `options` are those of the function, as is a `window`, which makes
    no program of its own.
    """
    number = np.asarray(len(pixel) if count is None else count)
    more = () if window is None else (np.asarray(window),)
    return _program(of, at_once, tuple(sorted(options.items())))(pupils, pixel, number, *more)


def compile_intensity(rows: int, *, of: Callable[..., Intensity] = intensity, at_once: int = 1, **options: Any) -> None:
    """Have the program of `intensity_batch` for batches of `rows` before it is called."""
    program = _program(of, at_once, tuple(sorted(options.items())))
    if isinstance(program, StoredProgram):
        program.compile(pupil_shapes(rows), shape_of(rows), shape_of(kind=int))


@cache
def _program(
    of: Callable[..., Intensity], at_once: int, options: tuple[tuple[str, Any], ...]
) -> Callable[..., Intensity]:
    """One program for each function and its options."""

    def intensities(
        pupils: PupilFunction, pixel: Float[Array, " batch"], count: Int[Array, ""], *window: Int[Array, ""]
    ) -> Intensity:
        return over_lenses(lambda p, d: of(p, d, *window, **dict(options)), pupils, pixel, count=count, at_once=at_once)

    facts = {"at_once": at_once, **dict(options)}
    transform = facts.pop("transform", matrix_dft)
    return stored_program(intensities, of, transform, **facts)


@partial(jax.jit, static_argnames=("samples",))
def pupil_light(pupils: PupilFunction, *, samples: int = 256) -> Float[Array, "requests waves"]:
    """∬|A|² ds of pupils [request, wavelength], without propagation: mm² of the incoming beam that they pass."""

    def one(pupil: PupilFunction) -> Float[Array, ""]:
        _, amplitude, mask = pupil_mask(pupil, samples)
        return jnp.sum(amplitude**2 * mask, dtype=jnp.float64) * 4.0 * pupil.half[0] * pupil.half[1] / samples**2

    return jax.lax.map(lambda row: jax.lax.map(one, row), pupils)
