"""From the pupil to the sensor: two interchangeable ways to sum a plane-wave spectrum on any output grid.

    E[k, l] = Σ_ij P[i, j] exp(2πi (s_y,i y_k + s_x,j x_l) / λ)

`matrix_dft` is two matrix products, exact on any grid and the fastest on a GPU. `chirp_z` writes the product of index
and index as a convolution (Bluestein) and uses FFTs. Both compute the same sum.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float


def _kernel(
    s: Float[Array, " samples"], x: Float[Array, " points"], wavelength: Float[Array, ""]
) -> Complex[Array, "samples points"]:
    waves = s[:, None] * (x / wavelength)[None, :]
    waves = waves - jnp.round(waves)
    angle = 2.0 * jnp.pi * waves
    return jax.lax.complex(jnp.cos(angle), jnp.sin(angle))


def matrix_dft(
    pupil: Complex[Array, "samples samples"],
    sx: Float[Array, " samples"],
    sy: Float[Array, " samples"],
    x: Float[Array, " points"],
    y: Float[Array, " points"],
    wavelength: Float[Array, ""],
) -> Complex[Array, "points points"]:
    """The sum by two matrix products; rows along y. s in direction cosines, x, y and wavelength in mm."""
    across = jnp.matmul(pupil, _kernel(sx, x, wavelength), precision="highest")
    return jnp.matmul(_kernel(sy, y, wavelength).T, across, precision="highest")


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
    rate = (ds * dx / wavelength).astype(jnp.float64)
    m, n = jnp.arange(samples), jnp.arange(points)

    def phasor(waves: Float[Array, " any"]) -> Complex[Array, " any"]:
        waves = waves - jnp.round(waves)
        angle = (2.0 * jnp.pi * waves).astype(s.dtype)
        return jax.lax.complex(jnp.cos(angle), jnp.sin(angle))

    # s_m x_n = s_0 x_0 + m ds x_0 + n dx s_0 + m n ds dx, and m n = (m² + n² − (n − m)²) / 2. The chirps are reduced in
    # float64: their phases grow with the square of the index.
    start = phasor(s.astype(jnp.float64) * (x[0] / wavelength).astype(jnp.float64) + rate * m**2 / 2.0)
    end = phasor(n * (dx * s[0] / wavelength).astype(jnp.float64) + rate * n**2 / 2.0)
    lag = jnp.arange(length)
    lag = jnp.where(lag < points, lag, lag - length)
    chirp = phasor(-rate * lag**2 / 2.0)
    folded = jnp.fft.ifft(jnp.fft.fft(rows * start, length) * jnp.fft.fft(chirp))
    return folded[:, :points] * end
