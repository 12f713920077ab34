"""How much light falls within a circle, and how bright its brightest point is: light waves of all wavelengths together.

Light waves are integrated over the cells of a window that holds the rays and some rings of the diffraction pattern, and
summed on points around the brightest of them. Light is counted against all that leaves the pupil, in the window or not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..optics.batch import over_lenses
from ..psf.pixel_integral import pixel_intensity
from ..psf.propagate import matrix_dft
from ..psf.pupil_function import PupilFunction, grid_axis, sample_pupil
from ..psf.sampling import needed_samples
from ..stored_program import stored_program

CELLS = 201  # across the window; odd: one in the middle
POINTS = 64  # across the five brightest
SAMPLES = (256, 384, 512, 768, 1024, 1536, 2048)  # across the pupil
RIM = 26.0  # as of `needed_samples`; against 1536 samples light in a circle was off by 8e-3 at most (median 7e-4)
RINGS = 6.0  # Airy radii around the rays


@cache
def _program(samples: int) -> Callable[..., Any]:
    def densities(
        pupil: PupilFunction, x: Float[Array, " points"], y: Float[Array, " points"], weights: Float[Array, " waves"]
    ) -> tuple[Float[Array, "points points"], Float[Array, ""]]:
        """Light per mm², of all that leaves the pupil, and the most that it could be without aberrations."""

        def wave(pupil: PupilFunction) -> tuple[Array, Array]:
            cells, energy, amplitude = sample_pupil(pupil, samples)
            sx, sy = (pupil.centre[i] + pupil.half[i] * grid_axis(samples) for i in (0, 1))
            scale = 4.0 * pupil.half[0] * pupil.half[1] / samples**2 / (pupil.wavelength**2 * energy)
            light = matrix_dft(cells, sx, sy, x, y, pupil.wavelength)
            return (light.real**2 + light.imag**2) * scale, amplitude**2 * scale

        light, best = over_lenses(wave, pupil)
        return jnp.tensordot(weights, light, axes=1), weights @ best

    return stored_program(densities, sample_pupil, samples=samples)


@cache
def _cell_program(samples: int) -> Callable[..., Any]:
    def cells(
        pupil: PupilFunction, cell: Float[Array, ""], weights: Float[Array, " waves"]
    ) -> Float[Array, "cells cells"]:
        """Light in each cell, of all that leaves the pupil; rows from the top."""
        waves = over_lenses(lambda own: pixel_intensity(own, cell, samples=samples, size=CELLS, parts=1).pixels, pupil)
        return jnp.tensordot(weights, waves, axes=1)

    return stored_program(cells, pixel_intensity, samples=samples)


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
    window, half = 2.0 * reach[:, None], pupil.half.max(axis=2)
    need = needed_samples(half, blur, window, pupil.wavelength, RIM, margin=0.0).max(axis=1)
    within, strehl = np.full((len(blur), len(radius)), np.nan), np.full(len(blur), np.nan)
    for row in range(len(blur)):
        samples = next((n for n in SAMPLES if n >= need[row]), SAMPLES[-1])
        own = jax.tree.map(lambda leaf, at=row: leaf[at], pupil)
        cell = 2.0 * reach[row] / CELLS
        share = np.asarray(_cell_program(samples)(own, np.asarray(cell), weights), float)
        x = (np.arange(CELLS) - CELLS // 2) * cell
        y = -x[:, None]
        middle = [np.sum(share * part) / share.sum() for part in (x, y)]
        distance = np.hypot(x - middle[0], y - middle[1])
        order = np.argsort(distance, axis=None)
        within[row] = np.interp(
            radius, np.append(0.0, distance.ravel()[order]), np.append(0.0, np.cumsum(share.ravel()[order]))
        )
        peak = np.unravel_index(np.argmax(share), share.shape)
        near = ((np.arange(POINTS) + 0.5) / POINTS * 5.0 - 2.5) * cell
        fine, best = _program(samples)(own, x[peak[1]] + near, y[peak[0], 0] + near, weights)
        strehl[row] = _peak(np.asarray(fine, float)) / float(best)
    return within, strehl


def _peak(light: Float[np.ndarray, "rows columns"]) -> float:
    """The top of the parabolas through the brightest point and its neighbours, of either axis."""
    row, column = np.unravel_index(np.argmax(light), light.shape)
    peak = light[row, column]
    for line, at in ((light[:, column], row), (light[row], column)):
        if 0 < at < len(line) - 1:
            before, here, after = line[at - 1 : at + 2]
            peak += (after - before) ** 2 / (8.0 * max(2.0 * here - before - after, 1e-12 * here))
    return float(peak)
