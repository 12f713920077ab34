"""First-order numbers without JAX, for readers, writers and `repr`: a y-nu trace of one axial ray.

Refraction at a surface of power φ = (n' − n) c, c the vertex curvature (the r² term of an asphere included):

    n' u' = n u − y φ,    y' = y + t u'
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import WavelengthError
from ..glass import Medium
from .prescription import Lens, Surface


class AxialPath(NamedTuple):
    """What an axial ray passes."""

    surfaces: Sequence[Surface]
    object_distance: float  # mm
    object_medium: Medium
    wavelength_nm: float


class AxialRay(NamedTuple):
    """A paraxial ray from the axial object point."""

    slope_in: float  # in object space
    heights: tuple[float, ...]  # mm, at each surface
    slope_out: float  # in image space
    index_out: float


def index_of(medium: Medium, wavelength_nm: float) -> float:
    """Refractive index at the wavelength, or at the d line where the medium's data do not reach it."""
    try:
        return medium.index(wavelength_nm)
    except WavelengthError:
        return medium.nd


def axial_ray(path: AxialPath) -> AxialRay:
    """Trace height 1 parallel to the axis for an object at infinity, else slope 1 from the object point."""
    infinite = math.isinf(path.object_distance)
    slope, height = (0.0, 1.0) if infinite else (1.0, path.object_distance)
    n, u, heights = index_of(path.object_medium, path.wavelength_nm), slope, []
    for s in path.surfaces:
        heights.append(height)
        n_next = index_of(s.medium, path.wavelength_nm)
        curvature = s.curvature + 2.0 * dict(s.aspheric).get(2, 0.0)
        u = (n * u - height * (n_next - n) * curvature) / n_next
        n = n_next
        height += s.thickness * u
    return AxialRay(slope, tuple(heights), u, n)


def path_through(lens: Lens, object_distance: float, thickness: Mapping[int, float] | None = None) -> AxialPath:
    """The lens for an axial ray from this distance (mm), some of its thicknesses (surface → mm) replaced."""
    moved = thickness or {}
    surfaces = [replace(s, thickness=moved.get(i, s.thickness)) for i, s in enumerate(lens.surfaces)]
    return AxialPath(surfaces, object_distance, lens.object_medium, lens.wavelengths_nm[lens.primary_wavelength])


def focal_length(lens: Lens) -> float:
    """Effective focal length in mm at the primary wavelength, inf for an afocal lens."""
    ray = axial_ray(path_through(lens, math.inf))
    power = -ray.slope_out * ray.index_out
    return 1.0 / power if power else math.inf


def pupil_diameter(path: AxialPath, stop: int, stop_radius: float) -> float:
    """Diameter (mm) of the entrance pupil of a stop's radius; inf where the stop lies in a focus."""
    at_stop = abs(axial_ray(path._replace(object_distance=math.inf)).heights[stop])
    return 2.0 * stop_radius / at_stop if at_stop else math.inf


def entrance_pupil_diameter(lens: Lens) -> float | None:
    """Diameter (mm) of the entrance pupil; None where the aperture is given in object space."""
    kind, value = lens.aperture.kind, lens.aperture.value
    if kind == "stop_radius":
        return pupil_diameter(path_through(lens, math.inf), lens.stop, value)
    if kind == "f_number":
        return abs(focal_length(lens)) / value
    return value if kind == "entrance_pupil_diameter" else None


def f_number(lens: Lens) -> float | None:
    """Focal length over entrance pupil diameter; None where the aperture is given in object space."""
    if lens.aperture.kind == "f_number":
        return lens.aperture.value
    diameter = entrance_pupil_diameter(lens)
    return None if diameter is None else abs(focal_length(lens)) / diameter


def stop_radius_from_clear_apertures(path: AxialPath, stop: int) -> float | None:
    """Radius (mm) at the stop of the widest axial beam that the known clear apertures let through, if any."""
    surfaces, heights = path.surfaces, axial_ray(path).heights
    scales = [
        s.semi_diameter / abs(y) for s, y in zip(surfaces, heights, strict=True) if s.semi_diameter is not None and y
    ]
    radius = abs(heights[stop]) * min(scales) if scales else math.inf
    return radius if 0.0 < radius < math.inf else None


def object_na_from_working_f_number(path: AxialPath, f_number: float) -> float | None:
    """Object-space NA that gives the marginal ray the slope 1/(2 N n') in image space, if any."""
    ray = axial_ray(path)
    if not ray.slope_out or not math.isfinite(ray.slope_out):
        return None
    slope = ray.slope_in / (2.0 * f_number * ray.index_out * abs(ray.slope_out))
    return index_of(path.object_medium, path.wavelength_nm) * math.sin(math.atan(slope)) or None
