"""The cross-section of a lens as plain polygons, and real rays through it: what a layout shows.

Lengths are in mm; z counts from the first surface's vertex, y is up. Rays lie in the meridional plane and reach the
image plane; objects are above the axis and their images below, as in the camera.

A prescription gives surfaces; glass has edges too. Here an element is as wide as the larger of its two clear
apertures. The smaller surface continues to that edge: a convex sphere and a cemented one with their own curve, as they
are ground, anything else with a flat annulus, or with a cone where the flat would leave no glass. An asphere is never
evaluated outside its clear aperture. Where a flat would run into a neighbour, it gives way and keeps a clearance. All
surfaces are sampled at the same radii, so that two profiles cross if and only if they change order at a node: that they
never do is by construction.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..glass import Medium
from ..lens.prescription import Lens
from ..optics.apertures import STEEPEST, with_clear_apertures
from ..optics.beams import BeamTracer, LitBeam, refracting
from ..optics.pupil import field_radius
from ..optics.surfaces import sag
from ..optics.system import System, pack_one

FIELDS = (0.0, 0.7, 1.0)
RAYS = 7
LEAD = 0.16  # of the lens's length: how far ahead of the glass rays begin
NODES = 256  # radii over the widest element
RIM_NODES = 12  # more of them towards the rim of a steep surface
CLEARANCE = 0.025  # of a surface's semi-diameter, between its continuation and a neighbour
THINNEST_EDGE = 0.004  # of a surface's semi-diameter, between its continuation and the other side of its element
STEEPEST_GROUND = 1.2  # dz/dr up to which a sphere is continued past its clear aperture

_GRID = 1024  # radii per call of `_sag`: one shape, one compilation per bucket
_FAR = 1e12  # mm; beyond anything, and still a number that can be halved

Profile = Float[np.ndarray, " nodes"]
Part = Float[np.ndarray, " part"]  # of a profile: outside its clear aperture
Mask = Bool[np.ndarray, " nodes"]


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


def vertices(lens: Lens) -> Float[np.ndarray, " surfaces_and_image"]:
    """z (mm) of each surface's vertex, and of the image plane."""
    return np.concatenate([[0.0], np.cumsum([s.thickness for s in lens.surfaces])])


@jax.jit
def _sag(
    system: System, radius: Float[Array, " nodes"]
) -> tuple[Float[Array, "surfaces nodes"], Float[Array, "surfaces nodes"]]:
    z, slope, exists = jax.vmap(sag, in_axes=(0, None))(system.shapes, radius**2)
    return jnp.where(exists, z, jnp.nan), slope * radius


def sag_at(
    system: System, radius: Profile
) -> tuple[Float[np.ndarray, "surfaces nodes"], Float[np.ndarray, "surfaces nodes"]]:
    """Sag (mm; nan where the surface is not) and slope dz/dr of every surface at up to 1024 radii (mm)."""
    padded = np.concatenate([radius, np.zeros(_GRID - len(radius))])
    z, slope = _sag(system, jnp.asarray(padded))
    return np.asarray(z)[:, : len(radius)], np.asarray(slope)[:, : len(radius)]


class Way(enum.Enum):
    """How a surface continues past its clear aperture."""

    CURVE = enum.auto()
    FLAT = enum.auto()
    CONE = enum.auto()


class Profiles:
    """The refracting surfaces of a lens as profiles z(r) on common radii, in order and never crossing.

    The lens must have all its clear apertures. Rows count the refracting surfaces; `numbers` are their own numbers.
    Where the last medium is glass, the image plane ends it and is a row too.
    """

    def __init__(self, lens: Lens, system: System, image_radius: float) -> None:
        self.numbers = refracting(lens)
        self.media: list[Medium] = [lens.surfaces[i].medium for i in self.numbers]
        self.glass = [m.nd > 1.0 for m in self.media]  # whether the space behind each surface is glass
        self.semi = np.array([lens.surfaces[i].semi_diameter or 0.0 for i in self.numbers])
        if lens.stop in self.numbers:
            at = self.numbers.index(lens.stop)
            self.semi[at] = max(self.semi[at], float(system.semi_diameter[lens.stop]))
        self.widest = float(self.semi.max(initial=0.0))
        self.narrowed: dict[int, float] = {}  # surface number → the radius that it was reduced to
        self.edge: dict[int, float] = {}  # row of the front surface → radius of the element
        self._lens = lens
        z0 = vertices(lens)
        self.radii = np.unique(np.concatenate([np.linspace(0.0, self.widest, NODES), self.semi]))
        depth, self._slope = (values[self.numbers] for values in sag_at(system, self.radii))
        steep = self._rims_of_steep_surfaces()
        if len(steep):
            self.radii = np.unique(np.concatenate([self.radii, steep]))[-_GRID:]
            depth, self._slope = (values[self.numbers] for values in sag_at(system, self.radii))
        self._own = depth + z0[self.numbers][:, None]
        if self.glass and self.glass[-1]:
            self.numbers.append(len(lens.surfaces))
            self.glass.append(False)
            self.semi = np.append(self.semi, self.semi[-1])
            self._own = np.vstack([self._own, np.full(len(self.radii), z0[-1])])
            self._slope = np.vstack([self._slope, np.zeros(len(self.radii))])
        self._narrow()
        self.z = np.where(self.radii <= self.semi[:, None], self._own, np.nan)
        self._extend()

    def spaces(self) -> list[tuple[int, int]]:
        """Pairs of rows with glass between them."""
        return [(i, i + 1) for i, glass in enumerate(self.glass) if glass]

    def upto(self, row: int, radius: float) -> tuple[Profile, Profile]:
        """Radii up to the given one, and z there."""
        inside = self.radii <= radius
        return self.radii[inside], self.z[row, inside]

    def is_aspheric(self, row: int) -> bool:
        number = self.numbers[row]
        return number < len(self._lens.surfaces) and self._lens.surfaces[number].is_aspheric

    def _rims_of_steep_surfaces(self) -> Profile:
        """A few more radii inside the rims of steep surfaces."""
        at_rim = np.searchsorted(self.radii, self.semi)
        steep = np.abs(self._slope[np.arange(len(self.semi)), at_rim]) > 1.0
        return np.outer(self.semi[steep], np.cos(np.linspace(0.0, 0.5, RIM_NODES))).ravel()

    def _narrow(self) -> None:
        """Reduce clear apertures to where a surface exists, and where two of them would cross."""
        count = len(self.numbers)
        for i in range(count):
            missing = ~np.isfinite(self._own[i])
            if self.is_aspheric(i):
                missing |= np.abs(self._slope[i]) > STEEPEST
            self._end(i, missing)
        for apart in range(1, count):
            if not self._any_cross():
                break
            for i in range(count - apart):
                j = i + apart
                crossed = (self.radii <= min(self.semi[i], self.semi[j])) & (self._own[j] < self._own[i])
                self._end(i, crossed)
                self._end(j, crossed)
        for i, j in self.spaces():
            self.edge[i] = self._close(i, j)

    def _close(self, i: int, j: int) -> float:
        """Radius of the element between two surfaces: that of the wider one, if the other can be continued so far.

        If not, the element ends where a flat from the narrower one meets the wider one. That one ends there too, unless
        it is cemented and belongs to another element as well.
        """
        small, large = (i, j) if self.semi[i] < self.semi[j] else (j, i)
        outside = (self.radii > self.semi[small]) & (self.radii <= self.semi[large])
        is_cemented = len(self._partners(large)) > 1
        if outside.any():
            ways = [w for w in self._continuations(small, outside) if not (is_cemented and w[1] is Way.CONE)]
            if not any(self._clears(small, outside, way) for way, _ in ways):
                met = outside & ((self._own[large] - self._rim(small)) * (large - small) <= 0.0)
                if is_cemented:
                    return float(self.radii[np.argmax(met) - 1])
                self._end(large, met)
        return float(max(self.semi[i], self.semi[j]))

    def _any_cross(self) -> bool:
        """Whether any two surfaces are out of order inside their clear apertures."""
        z = np.where(self.radii <= self.semi[:, None], self._own, np.nan)[:, 1:]
        ahead = np.maximum.accumulate(np.nan_to_num(z, nan=-_FAR), axis=0)
        return bool(np.any(z[1:] < ahead[:-1]))

    def _end(self, i: int, where: Mask) -> None:
        """End a surface before the first of the marked nodes, if it gets there. Vertices are not touched."""
        marked = np.flatnonzero(where[1:] & (self.radii[1:] <= self.semi[i]))
        if len(marked):
            self.semi[i] = self.radii[max(int(marked[0]), 1)]
            if self.numbers[i] < len(self._lens.surfaces):
                self.narrowed[self.numbers[i]] = float(self.semi[i])

    def _rim(self, i: int) -> float:
        """z at the edge of the clear aperture."""
        return float(self._own[i, np.flatnonzero(self.radii <= self.semi[i])[-1]])

    def _partners(self, i: int) -> list[int]:
        """The other surfaces of the one or two elements that a surface belongs to."""
        return [*([i - 1] if i > 0 and self.glass[i - 1] else []), *([i + 1] if self.glass[i] else [])]

    def _continuations(self, i: int, outside: Mask) -> Iterator[tuple[Part, Way]]:
        """z of the ways to continue a surface past its clear aperture, best first."""
        radii, rim = self.radii[outside], self._rim(i)
        curve, flat = self._own[i, outside], np.full(len(radii), rim)
        is_curve = not self.is_aspheric(i) and bool(
            np.all(np.isfinite(curve) & (np.abs(self._slope[i, outside]) <= STEEPEST_GROUND))
        )
        if is_curve and self._is_ground(i):
            yield curve, Way.CURVE
        yield flat, Way.FLAT
        if is_curve and not self._is_ground(i):
            yield curve, Way.CURVE
        wider = [k for k in self._partners(i) if self.semi[k] > self.semi[i]]
        edges = [self._rim(k) + (i - k) * THINNEST_EDGE * self.semi[k] for k in wider]
        if edges:
            yield rim + (np.mean(edges) - rim) * (radii - self.semi[i]) / (radii[-1] - self.semi[i]), Way.CONE

    def _is_ground(self, i: int) -> bool:
        """Whether the surface's own curve goes on to the edge: spheres that bulge out of the glass, or are cemented."""
        number = self.numbers[i]
        if number >= len(self._lens.surfaces):
            return False
        curvature = self._lens.surfaces[number].curvature
        behind, before = self.glass[i], i > 0 and self.glass[i - 1]
        return (behind and before) or (curvature > 0.0 if behind else curvature < 0.0)

    def _clears(self, i: int, outside: Mask, way: Part) -> bool:
        """Whether a continuation leaves glass between it and the clear apertures of its own elements."""
        for k in self._partners(i):
            there = self.radii[outside] <= self.semi[k]
            if np.any(((self._own[k, outside] - way) * (k - i))[there] <= 0.0):
                return False
        return True

    def _extend(self) -> None:
        """Continue each surface to the edge of its element, or of the wider of two cemented ones."""
        reach = self.semi.copy()
        for i, j in self.spaces():
            reach[i], reach[j] = max(reach[i], self.edge[i]), max(reach[j], self.edge[i])
        optical = self.z.copy()
        rims = np.array([self._rim(k) for k in range(len(self.numbers))])
        flats = (self.radii > self.semi[:, None]) & (self.radii <= reach[:, None])
        with_flats = np.where(flats, rims[:, None], optical)
        for i in range(len(self.numbers)):
            outside = (self.radii > self.semi[i]) & (self.radii <= reach[i])
            if not outside.any():
                continue
            gaps = self._gaps(i)
            low, high = _largest(self.z[:i, outside]), _smallest(optical[i + 1 :, outside])
            middle = (low + high) / 2.0
            low = np.minimum(_largest(self.z[:i, outside] + gaps[:i]), middle)
            high = np.maximum(_smallest(optical[i + 1 :, outside] - gaps[i + 1 :]), middle)
            ways = list(self._continuations(i, outside))
            if ways[0][1] is Way.CURVE:  # it must have room without anybody's giving way
                curve, _ = ways.pop(0)
                later = _smallest(with_flats[i + 1 :, outside] - gaps[i + 1 :])
                if np.all((curve >= low) & (curve <= np.minimum(high, later))):
                    self.z[i, outside] = curve
                    continue
            way, kind = next((w for w in ways if self._clears(i, outside, w[0])), ways[0])
            way = np.clip(way, low, high)
            self.z[i, outside] = self._give_way(i, way, low, high) if kind is Way.FLAT else way

    def _gaps(self, i: int) -> Float[np.ndarray, "rows 1"]:
        """Distance (mm) that the continuation of a surface keeps from each of the others."""
        gaps = np.full((len(self.numbers), 1), CLEARANCE * self.semi[i])
        gaps[self._partners(i)] = THINNEST_EDGE * self.semi[i]
        return gaps

    def _give_way(self, i: int, flat: Part, low: Part, high: Part) -> Part:
        """A flat that has given way does not come back: that would be a hook around the neighbour's edge."""
        behind, before = self.glass[i], i > 0 and self.glass[i - 1]
        if before and not behind:
            return np.maximum(np.minimum.accumulate(flat), np.minimum(low, flat))
        if behind and not before:
            return np.minimum(np.maximum.accumulate(flat), np.maximum(high, flat))
        return flat


def _largest(profiles: Float[np.ndarray, "some part"]) -> Part:
    """Largest z of the profiles at each node; −_FAR where there is none."""
    return np.max(np.nan_to_num(profiles, nan=-_FAR), axis=0, initial=-_FAR)


def _smallest(profiles: Float[np.ndarray, "some part"]) -> Part:
    return np.min(np.nan_to_num(profiles, nan=_FAR), axis=0, initial=_FAR)
