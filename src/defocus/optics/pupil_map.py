"""A wavefront over its pupil: W(s) of `defocus.optics.wavefront` on a grid of direction cosines, in waves.

Piston means nothing; a tilt a + b·s moves the PSF by −b·λ, and a term c·s_z is what a shift of the sensor by −c·λ takes
away: both can be removed by least squares over the pupil. s_y points along the meridian, from the centre of the
photograph to the point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import DefocusError
from .wavefront import AMPLITUDE_DEGREE, DEGREE, Wavefront
from .zernike import basis

Remove = Literal["piston", "tilt", "defocus"]  # each with those before it
TERMS: dict[Remove, int] = {"piston": 1, "tilt": 3, "defocus": 4}
GRID = 241  # points across a pupil

Grid = Float[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class PupilMap:
    """A wavefront on a grid of direction cosines, rows along +y."""

    field: float  # of the image radius
    found: bool  # whether any light passes
    x: Float[np.ndarray, " columns"]  # direction cosines
    y: Float[np.ndarray, " rows"]
    inside: Bool[np.ndarray, "rows columns"]
    wave: Grid  # waves; a little beyond the rim it is what the fit says
    amplitude: Grid  # relative to its largest value inside
    rim: Float[np.ndarray, "2 points"]
    area: float  # of the pupil, in direction cosines
    defocus_mm: float  # the sensor shift that would take the removed defocus away

    @property
    def centre(self) -> Float[np.ndarray, "2"]:
        """Middle of the pupil's extent, in direction cosines; zero without light."""
        return (self.rim.max(axis=1) + self.rim.min(axis=1)) / 2.0 if self.found else np.zeros(2)

    @property
    def rms(self) -> float:
        """Root mean square of the shown wavefront over the pupil, waves."""
        values = self.wave[self.inside]
        return float(np.sqrt(np.mean((values - values.mean()) ** 2)))

    @property
    def peak_to_valley(self) -> float:
        """Range of the shown wavefront over the pupil, waves."""
        return float(np.ptp(self.wave[self.inside]))


@jax.jit
def _on_grid(
    x: Float[Array, "rows columns"], y: Float[Array, "rows columns"], wavefront: Wavefront
) -> tuple[Float[Array, "rows columns"], Float[Array, "rows columns"]]:
    """Phase (waves) and amplitude at points of the unit disk."""
    return basis(x, y, DEGREE) @ wavefront.phase, basis(x, y, AMPLITUDE_DEGREE) @ wavefront.amplitude


def pupil_map(wavefront: Wavefront, field: float, remove: Remove = "tilt") -> PupilMap:
    """One wavefront (no batch axes) on a grid, less piston and what else is to be removed."""
    if remove not in get_args(Remove):
        raise DefocusError(f"remove {remove!r}; known are {', '.join(get_args(Remove))}")
    centre, radius = np.asarray(wavefront.centre), float(wavefront.radius)
    table = np.asarray(wavefront.rim)
    turn = np.linspace(-math.pi, math.pi, len(table))
    rim = np.stack([table * np.sin(turn), table * np.cos(turn)])
    low, high = rim.min(axis=1), rim.max(axis=1)
    x, y = (np.linspace(low[i], high[i], GRID) for i in (0, 1))
    across, along = np.meshgrid(x, y)
    inside = np.hypot(across, along) <= np.interp(np.arctan2(across, along), turn, table)
    wave, amplitude = (np.asarray(values) for values in _on_grid(across / radius, along / radius, wavefront))
    found = bool(wavefront.found) and bool(inside.any()) and bool(np.isfinite(wave[inside]).all())
    defocus = 0.0
    if found:
        sx, sy = across + centre[0], along + centre[1]
        sz = np.sqrt(np.maximum(1.0 - sx**2 - sy**2, 0.0))
        terms = np.stack([np.ones_like(sx), sx, sy, sz])[: TERMS[remove]]
        best, *_ = np.linalg.lstsq(terms[:, inside].T, wave[inside], rcond=None)
        wave = wave - np.tensordot(best, terms, axes=1)
        amplitude = amplitude / amplitude[inside].max()
        defocus = -float(best[3] * wavefront.wavelength) if remove == "defocus" else 0.0
    return PupilMap(
        field, found, x + centre[0], y + centre[1], inside, wave, amplitude, rim + centre[:, None],
        float(wavefront.area), defocus,
    )  # fmt: skip
