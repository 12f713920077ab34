"""The cross-section of a lens as plain polygons: what a layout draws, before anything is drawn.

Lengths are in mm; z counts from the first surface's vertex, y is up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..glass import Medium
from ..lens.prescription import Lens
from ..optics.apertures import solve_clear_apertures
from ..optics.system import pack_one
from .beams import drawn_image_radius
from .profiles import Profiles, sag_at, vertices


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


def element_outlines(lens: Lens) -> list[Element]:
    """The lens's pieces of glass, front to back. Missing clear apertures are solved for."""
    return list(cross_section(lens).elements)


def cross_section(lens: Lens) -> Geometry:
    """Elements, aspheric surfaces, stop and image plane of a lens. Missing clear apertures are solved for."""
    lens = with_clear_apertures(lens)
    system = pack_one(lens)
    stop_radius = float(system.semi_diameter[lens.stop])
    image_radius = drawn_image_radius(lens, system)
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
