"""How much light falls within a circle, and how bright its brightest point is: light waves of all wavelengths together.

The waves are summed on points of a window that holds the rays and some rings of the diffraction pattern, and again
around the brightest of them. Light is counted against all that leaves the pupil, in the window or not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..optics.batch import over_lenses
from ..psf.propagate import matrix_dft
from ..psf.pupil_function import PupilFunction, grid_axis, sample_pupil
from ..stored_program import stored_program

POINTS = 128  # across the window
SAMPLES = (128, 256, 512, 1024, 2048)  # across the pupil
RINGS = 6.0  # Airy radii around the rays


@cache
def _program(samples: int) -> Callable[..., Any]:
    def densities(
        pupil: PupilFunction,
        x: Float[Array, "fields points"],
        y: Float[Array, "fields points"],
        weights: Float[Array, " waves"],
        count: Int[Array, ""],
    ) -> tuple[Float[Array, "fields points points"], Float[Array, " fields"]]:
        """Light per mm², of all that leaves the pupil, and the most that it could be without aberrations."""

        def wave(pupil: PupilFunction, x: Float[Array, " points"], y: Float[Array, " points"]) -> tuple[Array, Array]:
            cells, energy, amplitude = sample_pupil(pupil, samples)
            sx, sy = (pupil.centre[i] + pupil.half[i] * grid_axis(samples) for i in (0, 1))
            scale = 4.0 * pupil.half[0] * pupil.half[1] / samples**2 / (pupil.wavelength**2 * energy)
            light = matrix_dft(cells, sx, sy, x, y, pupil.wavelength)
            return (light.real**2 + light.imag**2) * scale, amplitude**2 * scale

        def field(pupil: PupilFunction, x: Float[Array, " points"], y: Float[Array, " points"]) -> tuple[Array, Array]:
            light, best = over_lenses(lambda own: wave(own, x, y), pupil)
            return jnp.tensordot(weights, light, axes=1), weights @ best

        return over_lenses(field, pupil, x, y, count=count)

    return stored_program(densities, sample_pupil, samples=samples)


def light_in_circles(
    pupil: PupilFunction,
    blur: Float[np.ndarray, "fields waves 2 2"],
    weights: Float[np.ndarray, " waves"],
    radius: Float[np.ndarray, " radii"],
) -> tuple[Float[np.ndarray, "fields radii"], Float[np.ndarray, " fields"]]:
    """The part of the light within circles (mm) about its centroid, and the Strehl ratio, of each field.

    Pupils have axes of fields and wavelengths, numpy leaves; `blur` is the rays' extent on the sensor (mm).
    """
    airy = 0.61 * pupil.wavelength.max() / pupil.half.min(axis=(1, 2))
    reach = np.maximum(np.abs(blur).max(axis=(1, 2, 3)) + RINGS * airy, 1.1 * radius.max())
    need = (4.0 * pupil.half.max(axis=2) * reach[:, None] / pupil.wavelength).max(axis=1) * 1.1
    steps = (np.arange(POINTS) + 0.5) / POINTS * 2.0 - 1.0
    within, strehl = np.full((len(blur), len(radius)), np.nan), np.full(len(blur), np.nan)
    for row in range(len(blur)):
        samples = next((n for n in SAMPLES if n >= need[row]), SAMPLES[-1])
        own = jax.tree.map(lambda leaf, at=row: leaf[at : at + 1], pupil)

        def light(x: Any, y: Any, own: Any = own, samples: int = samples) -> tuple[np.ndarray, float]:
            density, best = _program(samples)(own, x[None], y[None], weights, np.asarray(1))
            return np.asarray(density[0], float), float(best[0])

        x = steps * reach[row]
        density, _ = light(x, x)
        share = density * (x[1] - x[0]) ** 2
        middle = [np.sum(share * part) / share.sum() for part in (x, x[:, None])]
        distance = np.hypot(x - middle[0], x[:, None] - middle[1])
        order = np.argsort(distance, axis=None)
        within[row] = np.interp(
            radius, np.append(0.0, distance.ravel()[order]), np.append(0.0, np.cumsum(share.ravel()[order]))
        )
        peak = np.unravel_index(np.argmax(density), density.shape)
        near = steps * 2.5 * (x[1] - x[0])
        fine, best = light(x[peak[1]] + near, x[peak[0]] + near)
        strehl[row] = max(density.max(), fine.max()) / best
    return within, strehl
