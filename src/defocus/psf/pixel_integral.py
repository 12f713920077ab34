"""Light waves integrated over pixels exactly, by FFTs: what ever more points per pixel come to.

The sum over the pupil's cells is periodic on the sensor, with periods λ/Δs; its intensity is a trigonometric polynomial
of twice the pupil's degree. Twice as many samples per period and axis as the pupil has cells determine it. Its mean
over a pixel follows from its Fourier coefficients, each times sinc(width / its wavelength):

    I(x) = Σ_q c_q exp(2πi q x / P),   ⟨I⟩ over b around x = Σ_q c_q sinc(q b / P) exp(2πi q x / P).

Points (`propagate.intensity`) cost their number times that of the samples and are cheaper in small windows, or where
few suffice; where a pixel holds dozens of fringes this takes a hundredth of their work.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .propagate import Intensity, unbend, window_axis
from .pupil_function import PupilFunction, sample_pupil

PARTS = 3  # of a pixel, along each axis: a slant of the light moves them between pixels
MOST_CELLS = 4096  # across the pupil: waves of 0.5 GiB


def is_cheaper(
    samples: Int[np.ndarray, "*any"], points: Int[np.ndarray, "*any"], size: int
) -> Bool[np.ndarray, "*any"]:
    """Whether this costs less than so many points per pixel and axis by matrix products.

    Those take 8 N M (N + M) operations for M points across the window. FFTs take as long as about 8000 N², measured on
    two cores and on an H200, and the means 24 N² per pixel across.
    """
    across = points * size
    return (samples <= MOST_CELLS) & (across * (samples + across) > samples * (1000 + 3 * size))


def pixel_intensity(
    pupil: PupilFunction,
    pixel: Float[Array, ""],
    *,
    samples: int,
    size: int,
    parts: int = PARTS,
    dtype: jnp.dtype = jnp.float32,
) -> Intensity:
    """One PSF: `pixel` in mm, `samples` cells across the pupil; `parts` of a pixel are integrated on their own."""
    cells, energy, amplitude = sample_pupil(pupil, samples, dtype)
    length = 2 * samples
    # |F⁻¹|² is |F|² turned by 180°: the forward transform spares a pass that divides. The barrier keeps a GPU from
    # sampling the pupil wherever it fills up with zeros; one axis after the other, half of the lines are not there.
    cells = jax.lax.optimization_barrier(cells)  # type: ignore[no-untyped-call]
    wave = jnp.fft.fft(jnp.fft.fft(cells, length, axis=1).T, length, axis=1).T
    density = wave.real**2 + wave.imag**2
    strehl = jnp.max(density) / amplitude**2
    x = window_axis(size, pixel, parts)
    y = -x
    step = pixel / parts
    turns = -pupil.half * 2.0 / (samples * pupil.wavelength)  # −Δs / λ: one over the period
    means = _means(_means(density, x, step, turns[0]).T, y, step, turns[1]).T
    cell = 4.0 * pupil.half[0] * pupil.half[1] / samples**2
    total = pupil.wavelength**2 * energy
    fine = unbend(means, x, y, step, pupil.bend) * (cell * step**2 / total).astype(dtype)
    pixels = jnp.maximum(fine.reshape(size, parts, size, parts).sum(axis=(1, 3)), 0.0)
    return Intensity(pixels, jnp.sum(pixels, dtype=jnp.float64), strehl, energy * cell)


def _means(
    density: Float[Array, "lines length"], x: Float[Array, " points"], step: Float[Array, ""], turns: Float[Array, ""]
) -> Float[Array, "lines points"]:
    """Means over `step` mm around each x, of lines that hold one period 1 / `turns` each.

    The way to a line's coefficients and back to its means is one matrix.
    """
    length = density.shape[1]
    q = jnp.arange(length // 2)
    waves = x[:, None] * turns * q
    angle = (2.0 * jnp.pi * (waves - jnp.round(waves))).astype(density.dtype)
    weight = jnp.sinc(q * (step * turns)).astype(density.dtype)
    matrix = jnp.fft.irfft(jax.lax.complex(weight * jnp.cos(angle), -weight * jnp.sin(angle)), length, axis=1)
    return density @ matrix.T
