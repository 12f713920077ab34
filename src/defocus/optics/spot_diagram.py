"""Spot diagrams: where real rays of a point meet the sensor.

Rays fill the vignetted pupil evenly: a hexagonal lattice on the plane normal to the chief ray. All wavelengths come
from the same object point, so lateral and longitudinal colour show. The sensor stands in one plane for all fields: by
default at the best focus of the axial beam at the d line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import TraceError
from ..lens.prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, Lens
from .apertures import with_clear_apertures
from .beams import COUNT, Beam, BeamTracer, LitBeam
from .system import pack_one

FIELDS = (0.0, 0.5, 0.7, 0.85, 1.0)
WAVELENGTHS_NM = (F_LINE_NM, D_LINE_NM, C_LINE_NM)
LATTICE = 420  # points over the rectangle that holds the pupil
SEARCH = 24  # points across, in the search for that rectangle
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Spot:
    """The rays of one field point behind the lens, y away from the axis."""

    lit: LitBeam
    landing: tuple[Float[np.ndarray, "2 _"], ...]  # mm, on the prescription's image plane, for each wavelength
    slope: tuple[Float[np.ndarray, "2 _"], ...]  # mm per mm

    def at(self, z: float) -> list[Float[np.ndarray, "2 _"]]:
        """Points (mm) on the plane z mm behind the prescription's image plane, from their common centroid."""
        points = [p + z * s for p, s in zip(self.landing, self.slope, strict=True)]
        centre = np.concatenate(points, axis=1).mean(axis=1, keepdims=True)
        return [p - centre for p in points]

    def rms(self, z: float) -> float:
        """RMS distance (mm) of the rays of all wavelengths from their centroid."""
        return float(np.sqrt(np.mean(np.sum(np.concatenate(self.at(z), axis=1) ** 2, axis=0))))


@dataclass(frozen=True, slots=True)
class SpotDiagram:
    """Spots on a common sensor plane."""

    spots: tuple[Spot, ...]
    wavelengths_nm: tuple[float, ...]
    focus_mm: float  # the sensor, from the prescription's image plane
    is_best_focus: bool
    airy_radius_mm: float  # of the axial beam at the d line


def spot_diagram(
    lens: Lens,
    *,
    fields: Sequence[float] = FIELDS,
    wavelengths_nm: Sequence[float] = WAVELENGTHS_NM,
    at_best_focus: bool = True,
) -> SpotDiagram:
    """Trace the spots of some fields (fractions of the image radius) at some wavelengths (nm).

    A field that no light reaches is replaced by the outermost one with light. Raises `TraceError` where not even the
    axis has light.
    """
    tracer = BeamTracer.of(with_clear_apertures(lens))
    if not float(tracer.first_order.na) > 0.0:
        raise TraceError(f"{lens.name}: its focal length is infinite, so a distant point has no image and no spot")
    beams = tracer.lit_beams(fields)
    focus = 0.0
    if at_best_focus:
        axis = tracer.lit_beam(0.0)
        half = COUNT // 2
        radius = axis.high * np.sqrt((np.arange(half) + 0.5) / half)  # rings of equal area
        y = np.concatenate([-radius, radius])
        focus = tracer.rays(axis, np.zeros_like(y), y).focus
    airy = 0.61 * D_LINE_NM * 1e-6 / float(tracer.first_order.na)
    spots = tuple(_spot(tracer, lit, wavelengths_nm) for lit in beams)
    return SpotDiagram(spots, tuple(wavelengths_nm), focus, at_best_focus, airy)


def _pupil(tracer: BeamTracer, beam: Beam) -> tuple[Float[np.ndarray, " rays"], Float[np.ndarray, " rays"]]:
    """A hexagonal lattice of points (mm from the chief ray) over the rectangle that just holds what passes."""
    across = max(2.2 * tracer.pupil_radius, beam.high - beam.low)
    box = np.array([[-across, across], [1.5 * beam.low - 0.5 * beam.high, 1.5 * beam.high - 0.5 * beam.low]])
    cell = 1.0 / (SEARCH - 1)
    for _ in range(ROUNDS):
        steps = np.linspace(0.0, 1.0, SEARCH)
        unit = np.stack([g.ravel() for g in np.meshgrid(steps, steps)])
        x, y = box[:, :1] + unit * np.diff(box)
        passes = tracer.rays(beam, x, y).passes
        if not passes.any():
            break
        low, high = unit[:, passes].min(axis=1) - cell, unit[:, passes].max(axis=1) + cell
        box = box[:, :1] + np.stack([low, high], axis=1) * np.diff(box)
    width, height = np.diff(box)[:, 0]
    pitch = math.sqrt(width * height / LATTICE * 2.0 / math.sqrt(3.0))
    rows = max(3, round(height / (pitch * math.sqrt(3.0) / 2.0)))
    columns = max(3, min(round(width / pitch), COUNT // rows))
    j, i = (g.ravel() for g in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    x = box[0, 0] + width * (i + 0.25 + 0.5 * (j % 2)) / columns
    return x, box[1, 0] + height * (j + 0.5) / rows


def _spot(tracer: BeamTracer, lit: LitBeam, wavelengths_nm: Sequence[float]) -> Spot:
    x, y = _pupil(tracer, lit.beam)
    places, slopes = [], []
    for wavelength in wavelengths_nm:
        # Only the indices change: the stop stays as wide as it is at the d line.
        index = pack_one(tracer.lens, wavelength).index
        system = eqx.tree_at(lambda s: s.index, tracer.system, jnp.asarray(index))
        rays = tracer.rays(lit.beam, x, y, system=system)
        places.append(rays.landing[:, rays.passes])
        slopes.append(rays.slope[:, rays.passes])
    heights = np.concatenate(places, axis=1)[1]
    if not len(heights):
        tried = ", ".join(f"{wavelength:g}" for wavelength in wavelengths_nm)
        raise TraceError(
            f"{tracer.lens.name}: of the rays tried at field {lit.beam.field:g} none passes at {tried} nm; "
            "check its aperture and clear apertures, or choose other wavelengths"
        )
    turn = np.array([[1.0], [-1.0 if heights.mean() < 0.0 else 1.0]])
    return Spot(lit, tuple(turn * p for p in places), tuple(turn * s for s in slopes))
