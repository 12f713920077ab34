"""What an analysis gives: arrays with their axes, units in their names; nan where a field has no light.

Fields are fractions of the image radius, `field_mm` heights on the sensor. Sagittal: the pattern's lines point to the
centre of the picture; tangential: they lie across that direction. Focus counts from the sensor, away from the lens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from .._lazy import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Fields = Float[np.ndarray, " fields"]
Waves = Float[np.ndarray, " waves"]
PerFrequency = Float[np.ndarray, "fields frequencies"]
PerWave = Float[np.ndarray, "fields waves"]


@dataclass(frozen=True)
class Curves:
    """Arrays with their axes, that can be drawn and written down."""

    def plot(self, **options: Any) -> Figure:
        """A figure of the curves."""
        return drawn("plot_curves", self, **options)

    def numbers(self) -> dict[str, Any]:
        """Names and values as JSON has them: lists for arrays, None for nan."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value.tolist()]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Mtf(Curves):
    """Contrast of patterns of lines over field and frequency."""

    frequency_lp_mm: Float[np.ndarray, " frequencies"]
    field: Fields
    field_mm: Fields
    kind: str  # "diffraction" of all wavelengths, or "geometric" at one
    sagittal: PerFrequency
    tangential: PerFrequency


@dataclass(frozen=True)
class ThroughFocusMtf(Curves):
    """Contrast at one frequency over the sensor's place."""

    shift_mm: Float[np.ndarray, " shifts"]
    frequency_lp_mm: float
    field: Fields
    sagittal: Float[np.ndarray, "fields shifts"]
    tangential: Float[np.ndarray, "fields shifts"]


@dataclass(frozen=True)
class Distortion(Curves):
    """Heights of chief rays against those of a picture in true perspective, which first order gives."""

    field: Fields
    field_mm: Fields
    angle_deg: Fields  # in object space
    reference_mm: Fields  # nan from 90° on
    percent: Fields

    def grid(self, lines: int = 11) -> Float[np.ndarray, "2 lines lines"]:
        """Where crossings of a square grid (of half diagonal 1) appear, x and y in units of the image radius."""
        step = np.linspace(-1.0, 1.0, lines) / math.sqrt(2.0)
        x, y = np.meshgrid(step, step)
        ok = np.isfinite(self.reference_mm)
        ideal = np.hypot(x, y) * self.field_mm[-1]
        return np.stack([x, y]) * (1.0 + np.interp(ideal, self.reference_mm[ok], self.percent[ok]) / 100.0)


@dataclass(frozen=True)
class FieldCurvature(Curves):
    """Where rays next to the chief ray come together."""

    wavelengths_nm: Waves
    field_mm: Fields
    sagittal_mm: PerWave
    tangential_mm: PerWave

    @property
    def astigmatism_mm(self) -> PerWave:
        """Way from the sagittal to the tangential focus."""
        return self.tangential_mm - self.sagittal_mm


@dataclass(frozen=True)
class RayFans(Curves):
    """Aberrations across the pupil; the axis before the last has the sagittal fan (x) and the tangential fan (y)."""

    wavelengths_nm: Waves
    field: Fields
    pupil: Float[np.ndarray, "fields waves 2 rays"]  # place in the stop, of its radius
    transverse_mm: Float[np.ndarray, "fields waves 2 rays"]  # from the chief ray of the wavelength
    opd_waves: Float[np.ndarray, "fields waves 2 rays"]  # optical path more than the chief ray's


@dataclass(frozen=True)
class LateralColour(Curves):
    """Heights of chief rays against that of the main wavelength."""

    wavelengths_nm: Waves
    field_mm: Fields
    shift_mm: PerWave


@dataclass(frozen=True)
class LongitudinalAberration(Curves):
    """Where rays from the axis cross it, over their height in the stop."""

    wavelengths_nm: Waves
    pupil: Float[np.ndarray, " rays"]
    focus_mm: Float[np.ndarray, "waves rays"]


@dataclass(frozen=True)
class FocalShift(Curves):
    """Paraxial focus over wavelength, from that of the main wavelength."""

    wavelength_nm: Waves
    shift_mm: Waves


@dataclass(frozen=True)
class Illumination(Curves):
    """Light over the field, and what the rims of the lenses leave of the stop."""

    field: Fields
    field_mm: Fields
    relative: Fields  # to the axis, of the main wavelength: area of the pupil in direction cosines
    unvignetted: Fields  # part of the stop's area that light passes


@dataclass(frozen=True)
class SpotSizes(Curves):
    """Spots of all wavelengths, weighted, about their common centroid."""

    airy_radius_mm: float  # of the axial beam at the main wavelength
    field: Fields
    field_mm: Fields
    rms_mm: Fields
    largest_mm: Fields  # distance of the farthest ray
    best_focus_mm: Fields  # where the RMS is least


@dataclass(frozen=True)
class LightInCircles(Curves):
    """Light within a circle about the centroid: of waves, and of rays alone."""

    field: Fields
    radius_mm: Float[np.ndarray, " radii"]
    diffraction: Float[np.ndarray, "fields radii"]
    geometric: Float[np.ndarray, "fields radii"]
    strehl: Fields  # brightest point over that of the same pupil without aberrations
