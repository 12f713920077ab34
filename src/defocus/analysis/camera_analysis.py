"""A camera as lens people look at it: MTF, distortion, field curvature, fans, colour, illumination, spots.

Wavefronts and rays of all fields and wavelengths are traced once, when they are first asked for; all curves follow from
them. Points lie where the camera is focused, or at `depth_m`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..camera import Camera
from ..errors import DefocusError, TraceError
from ..psf.bands import Bands
from ..psf.pupil_function import PupilFunction
from .curves import (
    Curves,
    Distortion,
    FieldCurvature,
    FocalShift,
    Illumination,
    LateralColour,
    LightInCircles,
    LongitudinalAberration,
    Mtf,
    RayFans,
    SpotSizes,
    ThroughFocusMtf,
)
from .encircled_energy import light_in_circles
from .field_rays import FieldRays, trace_fields
from .pupil_overlap import SAGITTAL, TANGENTIAL, transfer

# The eye's sensitivity by day (CIE 1924) at five wavelengths; the usual choice of lens design programs.
PHOTOPIC = Bands(
    ("photopic",),
    ((470.0, 510.0, 555.0, 610.0, 650.0),),
    (tuple(v / 2.204 for v in (0.091, 0.503, 1.0, 0.503, 0.107)),),
)
FIELDS = (0.0, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the image radius
FREQUENCIES = (10.0, 20.0, 30.0, 40.0)  # lp/mm; what makers print
LONGEST_MM = 1e5  # focal length; beyond it a lens is afocal
FARTHEST = 0.05  # of the focal length, that a sensor is moved through focus
SELECTION = (0.0, 0.5, 0.7, 1.0)  # of the fields, for curves over something else


class Analysis:
    """Curves of one camera; each method returns one kind.

    `fields` are fractions of the image radius from the centre upwards, the axis first. `bands` is one band of
    wavelengths with weights; the heaviest is the main one.
    """

    def __init__(
        self, camera: Camera, *, fields: Sequence[float] = FIELDS, bands: Bands = PHOTOPIC, depth_m: float | None = None
    ) -> None:
        if not fields or fields[0] != 0.0 or not all(0.0 <= f <= 1.0 for f in fields) or sorted(fields) != [*fields]:
            raise DefocusError(f"fields {tuple(fields)}; expected fractions of the image radius from 0 up to 1")
        if len(bands.names) != 1:
            raise DefocusError(f"{len(bands.names)} bands; an analysis is of one, with as many wavelengths as you like")
        self.camera, self.bands = camera, bands
        self.field = np.array(fields)
        self.depth_m = float(camera.focus_m) if depth_m is None else depth_m
        self.wavelengths_nm, self.weights = np.array(bands.wavelengths_nm[0]), np.array(bands.weights[0])
        self.main = int(np.argmax(self.weights))

    @property
    def field_mm(self) -> Float[np.ndarray, " fields"]:
        """Heights on the sensor."""
        return self.field * float(self.camera.image_radius_mm)

    @cached_property
    def wavefronts(self) -> Any:
        """`psf.wavefronts.Wavefronts` [field, wavelength] on the host; `TraceError` without an image or light there."""
        focal = float(self.camera.first_order.focal_length)
        if not 0.0 < focal < LONGEST_MM:
            raise TraceError(f"{self.camera.lens.name}: a focal length of {focal:.4g} mm makes no real image")
        waves = self.camera.wavefronts(
            [self.depth_m] * len(self.field), [(0.0, f) for f in self.field], list(self.wavelengths_nm)
        )
        if not waves.wavefront.found[0].all():
            raise TraceError(f"{self.camera.lens.name}: no light on the axis; check its aperture and clear apertures")
        return waves

    @cached_property
    def lit(self) -> Bool[np.ndarray, " fields"]:
        """Fields with light at every wavelength."""
        return self.wavefronts.wavefront.found.all(axis=1) & self.rays.found.all(axis=1)

    @cached_property
    def _traced(self) -> tuple[FieldRays, Any]:
        pose = self.wavefronts.pose
        first = jax.tree.map(lambda leaf: leaf[0], pose)
        distance = self.depth_m * 1e3 - float(first.data.entrance_pupil)
        vergence = np.asarray(pose.chief.direction[:, 2] / (distance + pose.chief.position[:, 2]))
        optics = self.camera.optics
        index = optics.indices(list(self.wavelengths_nm))
        return trace_fields(optics.system, index, pose.chief, vergence, float(first.sensor_z), self.main)

    @property
    def rays(self) -> FieldRays:
        """Rays [field, wavelength] on the host."""
        return self._traced[0]

    def _rows(self, fields: Sequence[float] | None) -> Int[np.ndarray, " rows"]:
        """Numbers of the traced fields that lie nearest to `fields`; all for None."""
        if fields is None:
            return np.arange(len(self.field))
        return np.unique([int(np.argmin(np.abs(self.field - f))) for f in fields])

    def _masked(self, values: Float[np.ndarray, "fields *more"], rows: Any = slice(None)) -> np.ndarray:
        """The values with nan for fields without light."""
        lit = self.lit[rows].reshape(-1, *[1] * (values.ndim - 1))
        return np.where(lit, values, np.nan)

    def _contrast(
        self,
        rows: Int[np.ndarray, " rows"],
        frequency: Float[np.ndarray, " columns"],
        shift: Float[np.ndarray, " columns"],
    ) -> tuple[np.ndarray, np.ndarray]:
        """MTF of rows × columns, sagittal and tangential; a column is a frequency (1/mm) and a sensor's shift (mm)."""
        waves, count = self.wavefronts, len(self.wavelengths_nm)
        pupil, wavefront = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (waves.pupil, waves.wavefront))
        lit = rows[self.lit[rows]]
        row, wave, along, column = (
            grid.ravel()
            for grid in np.meshgrid(lit, range(count), (SAGITTAL, TANGENTIAL), range(len(frequency)), indexing="ij")
        )
        values = transfer(pupil, wavefront, row * count + wave, along, frequency[column], shift[column])
        otf = np.einsum("w,rwac->arc", self.weights, values.reshape(len(lit), count, 2, len(frequency)))
        full = np.full((2, len(rows), len(frequency)), np.nan)
        full[:, self.lit[rows]] = np.abs(otf)
        return full[SAGITTAL], full[TANGENTIAL]

    def mtf(self, frequency_lp_mm: Sequence[float] = FREQUENCIES, fields: Sequence[float] | None = None) -> Mtf:
        """Diffraction MTF of all wavelengths together, over field and frequency."""
        rows, frequency = self._rows(fields), np.array(frequency_lp_mm, float)
        curves = self._contrast(rows, frequency, np.zeros(len(frequency)))
        return Mtf(frequency, self.field[rows], self.field_mm[rows], "diffraction", *curves)

    def geometric_mtf(
        self, frequency_lp_mm: Sequence[float] = FREQUENCIES, fields: Sequence[float] | None = None
    ) -> Mtf:
        """MTF of rays alone at the main wavelength, for comparison."""
        rows, frequency = self._rows(fields), np.array(frequency_lp_mm, float)
        x, y = np.moveaxis(self.rays.landing[rows, self.main] * 2.0 * np.pi, 1, 0)
        weight = self.rays.weight[rows, self.main]
        waves = [np.exp(1j * place[..., None] * frequency) for place in (x, y)]  # x stands for −x, too
        sagittal, tangential = (np.einsum("hr,hrf->hf", weight, w) for w in (waves[0].real, waves[1]))
        curves = (self._masked(np.abs(values), rows) for values in (sagittal, tangential))
        return Mtf(frequency, self.field[rows], self.field_mm[rows], "geometric", *curves)

    def through_focus(
        self,
        frequency_lp_mm: float = 30.0,
        shift_mm: Sequence[float] | None = None,
        fields: Sequence[float] | None = SELECTION,
    ) -> ThroughFocusMtf:
        """MTF over the sensor's place, by default over eight times the depth of focus at that frequency."""
        focal = float(self.camera.first_order.focal_length)
        reach = min(4.0 * float(self.camera.f_number) / frequency_lp_mm / 2.0, FARTHEST * focal)
        shift = np.linspace(-reach, reach, 17) if shift_mm is None else np.array(shift_mm, float)
        rows = self._rows(fields)
        curves = self._contrast(rows, np.full(len(shift), float(frequency_lp_mm)), shift)
        return ThroughFocusMtf(shift, float(frequency_lp_mm), self.field[rows], *curves)

    def distortion(self) -> Distortion:
        """Heights of the d line's chief rays against first order."""
        pose = self.wavefronts.pose
        data = jax.tree.map(lambda leaf: float(leaf[0]), pose.data)
        defocus = data.image_plane + float(pose.sensor_z[0]) - data.back_focal_distance
        n, n_image, f = data.object_index, data.image_index, data.focal_length
        # A paraxial ray of slope u through the entrance pupil's centre lands at u · scale.
        scale = abs(f * n / n_image + defocus * data.front_focus / f)
        chief = pose.chief
        slope = np.abs(chief.direction[:, 1]) / np.where(chief.direction[:, 2] > 0.0, chief.direction[:, 2], np.nan)
        if math.isfinite(self.depth_m):  # of a ray to the entrance pupil's centre, from the height of the point
            depth = self.depth_m * 1e3
            behind = chief.position[:, 2] + depth - data.entrance_pupil  # from the object to the first surface
            height = chief.position[:, 1] - behind * chief.direction[:, 1] / chief.direction[:, 2]
            slope = np.abs(height) / depth
        reference = scale * slope
        reference = self._masked(reference)
        percent = 100.0 * (pose.landing / np.where(reference > 0.0, reference, np.nan) - 1.0)
        percent[0] = 0.0
        return Distortion(self.field, pose.landing, np.degrees(chief.angle), reference, percent)

    def field_curvature(self) -> FieldCurvature:
        """Sagittal and tangential foci of each wavelength."""
        rays = self.rays
        foci = (self._masked(focus) for focus in (rays.sagittal_focus, rays.tangential_focus))
        return FieldCurvature(self.wavelengths_nm, self.field_mm, *foci)

    def ray_fans(self, fields: Sequence[float] | None = SELECTION) -> RayFans:
        """Transverse aberration and optical path difference across the pupil."""
        rows, rays = self._rows(fields), self.rays
        passes = rays.passes[rows] & self.lit[rows][:, None, None, None]
        wavelength = self.wavelengths_nm[:, None, None] * 1e-6
        values = (rays.stop[rows], rays.aberration[rows], rays.path[rows] / wavelength)
        return RayFans(self.wavelengths_nm, self.field[rows], *(np.where(passes, v, np.nan) for v in values))

    def lateral_colour(self) -> LateralColour:
        """Heights of chief rays against that of the main wavelength."""
        shift = self.rays.chief - self.rays.chief[:, self.main : self.main + 1]
        return LateralColour(self.wavelengths_nm, self.field_mm, self._masked(shift))

    def longitudinal_aberration(self) -> LongitudinalAberration:
        """Where the axial rays of each wavelength cross the axis."""
        half = self.rays.stop.shape[-1] // 2
        radius, landing, slope = (
            values[0, :, 1, half + 1 :] for values in (self.rays.stop, self.rays.aberration, self.rays.fan_slope)
        )
        pupil = np.linspace(0.05, 1.0, 20) * radius[self.main].max()
        focus = np.stack([np.interp(pupil, r, -y / s) for r, y, s in zip(radius, landing, slope, strict=True)])
        return LongitudinalAberration(self.wavelengths_nm, pupil, focus)

    def focal_shift(self) -> FocalShift:
        """Paraxial focus of each wavelength against the main one's."""
        focus = self._traced[1].back_focal_distance
        return FocalShift(self.wavelengths_nm, focus - focus[self.main])

    def illumination(self) -> Illumination:
        """Relative illumination and vignetting of each field."""
        area = self.wavefronts.wavefront.area[:, self.main]
        values = (self._masked(v) for v in (area / area[0], self.rays.filled[:, self.main]))
        return Illumination(self.field, self.field_mm, *values)

    def spot_sizes(self) -> SpotSizes:
        """RMS and largest radius of the spots, and where each would be smallest."""
        rays = self.rays
        weight = rays.weight * self.weights[:, None]  # [field, wave, ray]

        def centred(values: np.ndarray) -> np.ndarray:
            mean = np.einsum("fwr,fwr->f", weight, values[:, :, 1])
            return values - np.stack([0.0 * mean, mean], axis=1)[:, None, :, None]

        place, slope = centred(rays.landing), centred(rays.slope)
        square, mixed, steep = (
            np.einsum("fwr,fwcr,fwcr->f", weight, a, b) for a, b in ((place, place), (place, slope), (slope, slope))
        )
        largest = np.hypot(place[:, :, 0], place[:, :, 1]).max(axis=(1, 2))
        values = (self._masked(v) for v in (np.sqrt(square), largest, -mixed / steep))
        axial = jax.tree.map(lambda leaf: leaf[0, self.main], self.wavefronts.wavefront)
        airy = 0.61 * float(axial.wavelength / axial.radius)  # of the beam as it is focused, not at infinity
        return SpotSizes(airy, self.field, self.field_mm, *values)

    def encircled_energy(self, fields: Sequence[float] | None = SELECTION) -> LightInCircles:
        """Light within circles, and the Strehl ratio."""
        rows = self._rows(fields)
        lit = rows[self.lit[rows]]
        spots = self.spot_sizes()
        radius = np.linspace(0.0, max(2.0 * np.max(spots.rms_mm[lit]), 4.0 * spots.airy_radius_mm), 41)
        waves = self.wavefronts
        pupil: PupilFunction = jax.tree.map(lambda leaf: leaf[lit], waves.pupil)
        within, strehl = light_in_circles(pupil, waves.wavefront.blur[lit], self.weights, radius)
        place = self.rays.landing[lit]
        weight = (self.rays.weight * self.weights[:, None])[lit]
        mean = np.einsum("fwr,fwr->f", weight, place[:, :, 1])
        distance = np.hypot(place[:, :, 0], place[:, :, 1] - mean[:, None, None])
        geometric = np.stack([np.einsum("fwr,fwr->f", weight, distance <= r) for r in radius], axis=1)
        full = [np.full((len(rows), *v.shape[1:]), np.nan) for v in (within, geometric, strehl)]
        for target, values in zip(full, (within, geometric, strehl), strict=True):
            target[self.lit[rows]] = values
        return LightInCircles(self.field[rows], radius, *full)

    def curves(self) -> dict[str, Curves]:
        """Every kind of curves by name, as the figure and the JSON have them."""
        fine = np.linspace(0.0, 100.0, 17)[1:]
        return {
            "mtf": self.mtf(),
            "geometric_mtf": self.geometric_mtf(),
            "mtf_over_frequency": self.mtf(fine.tolist(), SELECTION),
            "through_focus": self.through_focus(),
            "distortion": self.distortion(),
            "field_curvature": self.field_curvature(),
            "ray_fans": self.ray_fans(),
            "lateral_colour": self.lateral_colour(),
            "longitudinal_aberration": self.longitudinal_aberration(),
            "focal_shift": self.focal_shift(),
            "illumination": self.illumination(),
            "spot_sizes": self.spot_sizes(),
            "encircled_energy": self.encircled_energy(),
        }

    def numbers(self) -> dict[str, Any]:
        """The camera and every curve as JSON has them."""
        camera = self.camera
        about = {
            "lens": camera.lens.name,
            "f_number": float(camera.f_number),
            "focus_m": None if math.isinf(camera.focus_m) else float(camera.focus_m),
            "depth_m": None if math.isinf(self.depth_m) else self.depth_m,
            "image_radius_mm": float(camera.image_radius_mm),
            "sensor_z_mm": float(self.wavefronts.pose.sensor_z[0]),
            "wavelengths_nm": self.wavelengths_nm.tolist(),
            "weights": self.weights.tolist(),
        }
        return about | {name: curves.numbers() for name, curves in self.curves().items()}
