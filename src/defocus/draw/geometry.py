"""The cross-section of a lens as plain polygons: what a layout draws, before anything is drawn.

A prescription gives surfaces; glass has edges too. Here an element is as wide as the larger of its two clear
apertures. The smaller surface continues to that edge: a convex sphere and a cemented one with their own curve, as they
are ground, anything else with a flat annulus. An asphere is never evaluated outside its clear aperture. Where a flat
would run into a neighbour, it gives way and keeps a small clearance.

All surfaces are sampled at the same radii, so that two profiles cross if and only if they change order at a node:
that they never do is by construction. Lengths are in mm; z counts from the first surface's vertex, y is up.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from ..glass import Medium
from ..lens.prescription import Lens
from ..optics.apertures import STEEPEST, solve_clear_apertures
from ..optics.field import image_radius_of
from ..optics.surfaces import Shape, sag
from ..optics.system import System, pack_one

NODES = 256  # radii over the widest element
RIM_NODES = 12  # more of them towards the rim of a steep surface
CLEARANCE = 0.012  # of the widest semi-diameter, between a flat and what it gives way to
STEEPEST_GROUND = 1.2  # dz/dr up to which a sphere is continued past its clear aperture

_FAR = 1e12  # mm; beyond anything, and still a number that can be halved

Profile = Float[np.ndarray, " nodes"]


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
    """Everything of a layout but the rays."""

    elements: tuple[Element, ...]
    aspheres: tuple[Float[np.ndarray, "points 2"], ...]  # (z, y) of each aspheric surface within its clear aperture
    stop: tuple[float, float]  # z, radius
    stop_reach: float  # y to which the stop's blades extend
    image: tuple[float, float]  # z, image radius
    narrowed: dict[int, float]  # surface → drawn radius, where it would meet a neighbour inside its clear aperture

    @property
    def front(self) -> float:
        """Smallest z of glass or stop."""
        return min([self.stop[0], *(float(e.outline[:, 0].min()) for e in self.elements)])

    @property
    def height(self) -> float:
        """Largest y of glass, stop or image."""
        return max([self.stop_reach, self.image[1], *(float(e.outline[:, 1].max()) for e in self.elements)])


def with_clear_apertures(lens: Lens) -> Lens:
    """The lens with every clear aperture known: its own where it has one, the solver's where not."""
    if lens.has_clear_apertures:
        return lens
    solved = solve_clear_apertures(lens)
    missing = {
        i: new.semi_diameter
        for i, (old, new) in enumerate(zip(lens.surfaces, solved.surfaces, strict=True))
        if old.semi_diameter is None and new.semi_diameter is not None
    }
    return lens.with_semi_diameters(missing)


def vertices(lens: Lens) -> Float[np.ndarray, " surfaces_and_image"]:
    """z (mm) of each surface's vertex, and of the image plane."""
    return np.concatenate([[0.0], np.cumsum([s.thickness for s in lens.surfaces])])


def refracting(lens: Lens) -> list[int]:
    """Numbers of the surfaces that part two media: a stop in air and dummies are none."""
    media = (lens.object_medium, *(s.medium for s in lens.surfaces))
    return [i for i in range(len(lens.surfaces)) if not _same(media[i], media[i + 1])]


def _same(a: Medium, b: Medium) -> bool:
    return a == b or (a.nd == b.nd and a.vd == b.vd)


def element_outlines(lens: Lens) -> list[Element]:
    """The lens's pieces of glass, front to back. Missing clear apertures are solved for."""
    return list(cross_section(lens).elements)


def cross_section(lens: Lens) -> Geometry:
    """Elements, aspheric surfaces, stop and image plane of a lens. Missing clear apertures are solved for."""
    lens = with_clear_apertures(lens)
    system = pack_one(lens)
    stop_radius = float(system.semi_diameter[lens.stop])
    image_radius = image_radius_of(lens, system)
    z0 = vertices(lens)
    stack = _Stack(lens, system, z0, image_radius)
    stack.narrow()
    stack.extend()
    stop_sag = float(np.asarray(_sag(system, np.full(_GRID, stop_radius))[0])[lens.stop, 0])
    near = [e for e in stack.elements() if e.back >= lens.stop - 1 and e.front <= lens.stop + 1]
    around = max([float(e.outline[:, 1].max()) for e in near], default=stop_radius)
    reach = max(1.25 * stop_radius, min(around, 1.6 * stop_radius), stop_radius + 0.06 * stack.widest)
    return Geometry(
        elements=tuple(stack.elements()),
        aspheres=tuple(stack.aspheres()),
        stop=(float(z0[lens.stop]) + (stop_sag if np.isfinite(stop_sag) else 0.0), stop_radius),
        stop_reach=reach,
        image=(float(z0[-1]), image_radius),
        narrowed=stack.narrowed,
    )


_GRID = 1024  # radii per call of `_sag`: one shape, one compilation per bucket


@jax.jit
def _sag(
    system: System, radius: Float[Array, " nodes"]
) -> tuple[Float[Array, "surfaces nodes"], Float[Array, "surfaces nodes"], Bool[Array, "surfaces nodes"]]:
    """Sag (mm), slope dz/dr and existence of every surface at the given radii (mm)."""
    shapes = Shape(system.curvature, system.conic, system.even, system.odd, system.scale)
    z, slope, exists = jax.vmap(sag, in_axes=(0, None))(shapes, radius**2)
    return z, slope * radius, exists


class _Stack:
    """The refracting surfaces of a lens as profiles z(r) on common radii; built up in the order of its methods."""

    def __init__(self, lens: Lens, system: System, z0: Float[np.ndarray, " surfaces"], image_radius: float) -> None:
        self.lens = lens
        self.numbers = refracting(lens)
        given = np.array([lens.surfaces[i].semi_diameter or 0.0 for i in self.numbers])
        if lens.stop in self.numbers:
            at = self.numbers.index(lens.stop)
            given[at] = max(given[at], float(system.semi_diameter[lens.stop]))
        media = [lens.surfaces[i].medium for i in self.numbers]
        ends_in_glass = bool(media) and media[-1].nd > 1.0
        if ends_in_glass:  # the image plane closes the last element
            given = np.append(given, max(image_radius, given[-1]))
        self.glass = [m.nd > 1.0 for m in media]  # whether the space behind each surface is glass
        self.media = media
        self.semi = given
        self.narrowed: dict[int, float] = {}
        self.widest = float(given.max(initial=0.0))
        self.radii = self._nodes(system)
        padded = np.concatenate([self.radii, np.zeros(_GRID - len(self.radii))])
        depth, slope, exists = (np.asarray(v)[self.numbers, : len(self.radii)] for v in _sag(system, padded))
        self.own = np.where(exists, depth + z0[self.numbers][:, None], np.nan)
        self.slope = slope
        if ends_in_glass:
            self.numbers.append(len(lens.surfaces))
            self.glass.append(False)
            self.own = np.vstack([self.own, np.full(len(self.radii), z0[-1])])
            self.slope = np.vstack([self.slope, np.zeros(len(self.radii))])
        self.profile = np.full_like(self.own, np.nan)

    def _nodes(self, system: System) -> Profile:
        """Radii: even ones, the rims themselves, and a few more before the rims of steep surfaces."""
        rims = sorted({float(a) for a in self.semi})
        padded = np.concatenate([rims, np.zeros(_GRID - len(rims))])
        slope = np.abs(np.asarray(_sag(system, padded)[1]))
        nodes = [np.linspace(0.0, self.widest, NODES), np.array(rims)]
        for i, a in zip(self.numbers, self.semi, strict=False):
            if slope[i, rims.index(float(a))] > 1.0:
                nodes.append(a * np.cos(np.linspace(0.0, 0.5, RIM_NODES)))
        return np.unique(np.concatenate(nodes))[-_GRID:]

    def narrow(self) -> None:
        """Place the surfaces within their clear apertures; where two would cross, both end there."""
        count = len(self.numbers)
        for i in range(count):
            missing = ~np.isfinite(self.own[i])
            if self._is_aspheric(i):
                missing |= np.abs(self.slope[i]) > STEEPEST
            missing &= self.radii <= self.semi[i]
            if missing.any():
                self._end(i, int(np.argmax(missing)))
        for apart in range(1, count):
            for i in range(count - apart):
                j = i + apart
                shared = self.radii <= min(self.semi[i], self.semi[j])
                crossed = shared & (self.own[j] < self.own[i])
                crossed[0] = False  # vertices out of order cannot be drawn in order
                if crossed.any():
                    self._end(i, int(np.argmax(crossed)))
                    self._end(j, int(np.argmax(crossed)))
        for i, j in self._spaces():
            self._close(i, j)
        for i in range(count):
            self.profile[i] = np.where(self.radii <= self.semi[i], self.own[i], np.nan)

    def _spaces(self) -> list[tuple[int, int]]:
        """Pairs of surfaces with glass between them."""
        return [(i, i + 1) for i, glass in enumerate(self.glass) if glass]

    def _close(self, i: int, j: int) -> None:
        """End the wider surface of an element where neither a flat nor a cone from the narrower one clears it."""
        small, large = (i, j) if self.semi[i] < self.semi[j] else (j, i)
        outside = (self.radii > self.semi[small]) & (self.radii <= self.semi[large])
        if not outside.any():
            return
        sign = 1.0 if large == j else -1.0
        own, other = self.own[small, outside], self.own[large, outside]
        for way in (own, *self._ways(small, outside, other[-1])) if self._is_ground(small) else self._ways(
            small, outside, other[-1]
        ):
            met = ~(sign * (other - way) > 0.0)
            if not met.any():
                return
        met = ~(sign * (other - self._rim(small)) > 0.0)
        self._end(large, int(np.flatnonzero(outside)[np.argmax(met)]))

    def _end(self, i: int, node: int) -> None:
        if self.semi[i] >= self.radii[node]:
            self.semi[i] = self.radii[max(node - 1, 1)]
            if self.numbers[i] < len(self.lens.surfaces):
                self.narrowed[self.numbers[i]] = float(self.semi[i])

    def extend(self) -> None:
        """Continue each surface to the edge of its element, or of the wider of two cemented ones."""
        reach = self.semi.copy()
        for i, j in self._spaces():
            edge = max(self.semi[i], self.semi[j])
            reach[i], reach[j] = max(reach[i], edge), max(reach[j], edge)
        optical = self.profile.copy()
        clearance = CLEARANCE * self.widest
        for i in range(len(self.numbers)):
            outside = (self.radii > self.semi[i]) & (self.radii <= reach[i])
            if not outside.any():
                continue
            rim = optical[i, np.flatnonzero(np.isfinite(optical[i]))[-1]]
            low = _largest(self.profile[:i], outside)
            high = _smallest(optical[i + 1 :], outside)
            middle = (low + high) / 2.0
            low, high = np.minimum(low + clearance, middle), np.maximum(high - clearance, middle)
            curve = self.own[i, outside]
            ground = self._is_ground(i) and bool(
                np.all(np.isfinite(curve) & (np.abs(self.slope[i, outside]) <= STEEPEST_GROUND))
            )
            flats = _smallest(self._with_flats(optical[i + 1 :], self.semi[i + 1 :], reach[i + 1 :]), outside)
            if ground and np.all((curve >= low) & (curve <= np.minimum(high, flats - clearance))):
                self.profile[i, outside] = curve
            else:
                # A flat that has given way does not come back: that would be a hook around the neighbour's edge.
                flat = np.clip(rim, low, high)
                if not self.glass[i]:
                    flat = np.maximum(np.minimum.accumulate(flat), np.minimum(low, flat))
                elif i == 0 or not self.glass[i - 1]:
                    flat = np.minimum(np.maximum.accumulate(flat), np.maximum(high, flat))
                self.profile[i, outside] = flat

    def _is_aspheric(self, i: int) -> bool:
        number = self.numbers[i]
        return number < len(self.lens.surfaces) and self.lens.surfaces[number].is_aspheric

    def _is_ground(self, i: int) -> bool:
        """Whether the surface's own curve goes on to the edge: spheres that bulge out of the glass, or are cemented."""
        number = self.numbers[i]
        if number >= len(self.lens.surfaces) or self._is_aspheric(i):
            return False
        behind, before = self.glass[i], i > 0 and self.glass[i - 1]
        curvature = self.lens.surfaces[number].curvature
        return bool(behind and before) or (curvature > 0.0 if behind else curvature < 0.0)

    def _with_flats(
        self, optical: Float[np.ndarray, "more nodes"], semi: Profile, reach: Profile
    ) -> Float[np.ndarray, "more nodes"]:
        """Profiles continued flat to the edge, as the later ones will be unless something is in the way."""
        rows = [optical[:0]]
        for profile, a, edge in zip(optical, semi, reach, strict=True):
            rim = profile[np.flatnonzero(np.isfinite(profile))[-1]]
            flat = np.where((self.radii > a) & (self.radii <= edge), rim, np.nan)
            rows.append(np.where(np.isfinite(profile), profile, flat)[None])
        return np.concatenate(rows)

    def elements(self) -> list[Element]:
        found = []
        for i, glass in enumerate(self.glass):
            if not glass:
                continue
            ends = [self.numbers[i], self.numbers[i + 1]]
            curved = [self.lens.surfaces[n] for n in ends if n < len(self.lens.surfaces)]
            plate = all(s.curvature == 0.0 and not s.aspheric for s in curved)
            edge = self.radii <= max(self.semi[i], self.semi[i + 1])
            front, back = (_mirrored(self.radii[edge], self.profile[k, edge]) for k in (i, i + 1))
            found.append(Element(ends[0], ends[1], self.media[i], np.concatenate([front, back[::-1]]), plate))
        return found

    def aspheres(self) -> list[Float[np.ndarray, "points 2"]]:
        inside = [self.radii <= a for a in self.semi]
        return [
            _mirrored(self.radii[inside[k]], self.profile[k, inside[k]])
            for k in range(len(self.numbers))
            if self._is_aspheric(k)
        ]


def _largest(profiles: Float[np.ndarray, "some nodes"], where: Bool[np.ndarray, " nodes"]) -> Profile:
    """Largest z of the profiles at some nodes; −_FAR where there is none."""
    return np.max(np.nan_to_num(profiles[:, where], nan=-_FAR), axis=0, initial=-_FAR)


def _smallest(profiles: Float[np.ndarray, "some nodes"], where: Bool[np.ndarray, " nodes"]) -> Profile:
    return np.min(np.nan_to_num(profiles[:, where], nan=_FAR), axis=0, initial=_FAR)


def _mirrored(radii: Profile, z: Profile) -> Float[np.ndarray, "points 2"]:
    """(z, y) from −r to +r; points inside a stretch of equal z are left out."""
    needed = np.ones(len(z), bool)
    needed[1:-1] = (z[1:-1] != z[:-2]) | (z[1:-1] != z[2:])
    r, z = radii[needed], z[needed]
    upper = np.stack([z, r], axis=1)
    lower = np.stack([z, -r], axis=1)[::-1]
    return np.concatenate([lower[:-1] if r[0] == 0.0 else lower, upper])
