"""The shapes of a lens's surfaces out to the edges of the glass.

A prescription gives surfaces; glass has edges too. Here an element is as wide as the larger of its two clear
apertures. The smaller surface continues to that edge: a convex sphere and a cemented one with their own curve, as they
are ground, anything else with a flat annulus, or with a cone where the flat would leave no glass. An asphere is never
evaluated outside its clear aperture. Where a flat would run into a neighbour, it gives way and keeps a clearance.

All surfaces are sampled at the same radii, so that two profiles cross if and only if they change order at a node:
that they never do is by construction. Lengths are in mm; z counts from the first surface's vertex.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..glass import Medium
from ..lens.prescription import Lens
from ..optics.apertures import STEEPEST
from ..optics.beams import refracting
from ..optics.surfaces import sag
from ..optics.system import System

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
