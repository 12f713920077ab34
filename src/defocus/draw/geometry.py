"""The cross-section of a lens as plain polygons, and real rays through it: what a layout shows.

Lengths are in mm; z counts from the first surface's vertex, y is up. Rays lie in the meridional plane and reach the
image plane; objects are above the axis and their images below, as in the camera.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..glass import Medium
from ..lens.prescription import Lens
from ..optics.beams import BeamTracer, LitBeam, field_radius, refracting, with_clear_apertures
from ..optics.system import pack_one
from .profiles import Profiles, sag_at, vertices

FIELDS = (0.0, 0.7, 1.0)
RAYS = 7
LEAD = 0.16  # of the lens's length: how far ahead of the glass rays begin


@dataclass(frozen=True, slots=True)
class Element:
    """One piece of glass between two surfaces."""

    front: int  # surface numbers
    back: int
    medium: Medium
    outline: Float[np.ndarray, "points 2"]  # (z, y) in mm, a simple polygon, not repeated at its end
    is_plate: bool  # plane on both sides: a filter or the sensor's cover glass


@dataclass(frozen=True, slots=True)
class Geometry:
    """The cross-section of a lens: everything of a layout but the rays."""

    elements: tuple[Element, ...]
    aspheres: tuple[Float[np.ndarray, "_ 2"], ...]  # (z, y) of each aspheric surface within its clear aperture
    stop: tuple[float, float]  # z, radius
    stop_reach: float  # y to which the stop's blades extend
    image: tuple[float, float]  # z, image radius; 0 for a lens without a field
    narrowed: dict[int, float]  # surface → drawn radius, where it would meet a neighbour inside its clear aperture

    @property
    def front(self) -> float:
        """Smallest z of glass or stop."""
        return min([self.stop[0], *(float(e.outline[:, 0].min()) for e in self.elements)])

    @property
    def back(self) -> float:
        """Largest z of glass or image."""
        return max([self.image[0], *(float(e.outline[:, 0].max()) for e in self.elements)])

    @property
    def height(self) -> float:
        """Largest y of glass, stop or image."""
        return max([self.stop_reach, self.image[1], *(float(e.outline[:, 1].max()) for e in self.elements)])


def cross_section(lens: Lens) -> Geometry:
    """Elements, aspheric surfaces, stop and image plane of a lens. Missing clear apertures are solved for."""
    lens = with_clear_apertures(lens)
    system = pack_one(lens)
    stop_radius = float(system.semi_diameter[lens.stop])
    image_radius = field_radius(lens, system)
    z0 = vertices(lens)
    profiles = Profiles(lens, system, image_radius)
    elements = []
    for i, j in profiles.spaces():
        ends = profiles.numbers[i], profiles.numbers[j]
        surfaces = [lens.surfaces[n] for n in ends if n < len(lens.surfaces)]
        plate = all(s.curvature == 0.0 and not s.aspheric for s in surfaces)
        front, back = (_mirrored(*profiles.upto(k, profiles.edge[i])) for k in (i, j))
        elements.append(Element(*ends, profiles.media[i], np.concatenate([front, back[::-1]]), plate))
    stop = lens.surfaces[lens.stop]
    is_plane = stop.curvature == 0.0 and not stop.aspheric
    stop_sag = 0.0 if is_plane else float(sag_at(system, np.array([stop_radius]))[0][lens.stop, 0])
    return Geometry(
        elements=tuple(elements),
        aspheres=tuple(
            _mirrored(*profiles.upto(k, profiles.semi[k]))
            for k in range(len(profiles.numbers))
            if profiles.is_aspheric(k)
        ),
        stop=(float(z0[lens.stop]) + (stop_sag if np.isfinite(stop_sag) else 0.0), stop_radius),
        stop_reach=stop_radius + max(0.25 * stop_radius, 0.06 * profiles.widest),
        image=(float(z0[-1]), image_radius),
        narrowed=profiles.narrowed,
    )


def _mirrored(radii: Float[np.ndarray, " nodes"], z: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, "points 2"]:
    """(z, y) from −r to +r; points inside a stretch of equal z are left out."""
    needed = np.ones(len(z), bool)
    needed[1:-1] = (z[1:-1] != z[:-2]) | (z[1:-1] != z[2:])
    r, z = radii[needed], z[needed]
    upper = np.stack([z, r], axis=1)
    return np.concatenate([(upper * [1.0, -1.0])[:0:-1], upper])


@dataclass(frozen=True, slots=True)
class Fan:
    """The rays of one field point."""

    lit: LitBeam
    paths: Float[np.ndarray, "rays points 2"]  # (z, y) in mm, from in front of the lens to the image plane


def ray_paths(lens: Lens, fields: Sequence[float] = FIELDS, *, rays: int = RAYS) -> list[Fan]:
    """Traced meridional rays, `rays` of each field (fractions of the image radius), at the d line.

    They run from in front of the lens to the prescription's image plane, through glass as it is drawn. A field that no
    light reaches is replaced by the outermost one inside it that has a beam; fields that come to the same are drawn
    once. Raises `TraceError` where not even the axis has light.
    """
    if rays < 2:
        raise ValueError(f"{rays} rays per field; expected at least 2, the rims of the beam")
    lens = with_clear_apertures(lens)
    tracer = BeamTracer.of(lens.with_semi_diameters(cross_section(lens).narrowed))
    return [_fan(tracer, lit, rays) for lit in tracer.lit_beams(fields)]


def _fan(tracer: BeamTracer, lit: LitBeam, rays: int) -> Fan:
    beam = lit.beam
    y = np.linspace(beam.low, beam.high, rays)
    if beam.chief_passes and rays > 2:
        y[1 + np.argmin(np.abs(y[1:-1]))] = 0.0  # the chief ray itself
    traced = tracer.rays(beam, np.zeros_like(y), y)
    z0 = vertices(tracer.lens)
    # A dummy or a stop that stands behind the next vertex lies on the line but not on the light's way.
    hits = np.stack([traced.points[i, 1:] + [[0.0], [z0[i]]] for i in refracting(tracer.lens)])
    end = np.stack([traced.landing[1], np.full(len(y), z0[-1])])
    chief, lead = np.asarray(beam.chief.direction)[1:], LEAD * float(np.ptp(z0))
    start = _starts(tracer.lens, hits[0], traced.heading[1:], chief, lead)
    paths = np.concatenate([start[None], hits, end[None]]).transpose(2, 0, 1)[traced.passes]
    below = -1.0 if paths[:, -1, 0].mean() > 0.0 else 1.0
    return Fan(lit, paths[:, :, ::-1] * [1.0, below])


def _starts(
    lens: Lens,
    hits: Float[np.ndarray, "2 rays"],
    heading: Float[np.ndarray, "2 rays"],
    chief: Float[np.ndarray, "2"],
    lead: float,
) -> Float[np.ndarray, "2 rays"]:
    """Where the drawn rays begin: on a line across the beam, `lead` mm ahead of the first of them to meet the glass."""
    along = chief @ hits
    before = along.min() - lead
    if math.isfinite(lens.object_distance):
        before = max(before, along.min() - 0.98 * lens.object_distance)
    return hits + (before - along) / (chief @ heading) * heading
