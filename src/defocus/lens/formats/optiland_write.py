"""Lenses as Optiland's JSON, which its `load_optiland_file` opens (version 0.6.3).

Media keep their dispersion: those of a refractiveindex.info formula by its coefficients, all others as indices over the
visible range, which Optiland interpolates; the lens's own wavelengths are among them.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ...glass import Medium
from ...glass.dispersion import CONSTANT
from ...glass.medium import RANGE_SLACK
from ..first_order import entrance_pupil_diameter
from ..prescription import Lens, Surface
from .assemble import field_or_stand_in, power_series, refuse_states, sampled_indices
from .text import clean

_FIELDS = {
    "angle_deg": "AngleField",
    "object_height": "ObjectHeightField",
    "paraxial_image_height": "ParaxialImageHeightField",
    "real_image_height": "RealImageHeightField",
}
_ARITY = {4: 9, 7: 3, 8: 4, 9: 6}  # least number of coefficients of a formula
_STEP_NM = 2


def optiland_text(lens: Lens) -> str:
    """The JSON text that Optiland opens; raises LensError for what it cannot hold."""
    refuse_states(lens, "Optiland's JSON")
    field, distance = field_or_stand_in(lens), lens.object_distance
    z = [math.fsum(s.thickness for s in lens.surfaces[:i]) for i in range(len(lens.surfaces) + 1)]
    primary = lens.primary_wavelength
    data = {
        "version": 1.0,
        "name": clean(lens.name),
        "aperture": _aperture(lens),
        "fields": {
            "fields": [{"x": x, "y": y, "vx": 0.0, "vy": 0.0, "weight": 1.0} for x, y in field.points],
            "telecentric": False,
            "field_definition": {"field_type": _FIELDS[field.kind]},
        },
        "wavelengths": {
            "wavelengths": [
                {"value": w * 1e-3, "is_primary": i == primary, "unit": "um", "weight": 1.0}
                for i, w in enumerate(lens.wavelengths_nm)
            ],
            "polarization": "ignore",
        },
        "apodization": None,
        "pickups": [],
        "solves": {"solves": []},
        "surface_group": {
            "surfaces": [
                {"type": "ObjectSurface", "geometry": _plane(-distance), "comment": ""}
                | {"material_post": _material(lens.object_medium, lens)},
                *(_surface(lens, i, s, z[i]) for i, s in enumerate(lens.surfaces)),
                _behind(_plane(z[-1]), 0.0, lens.surfaces[-1].medium, lens),
            ]
        },
        "ray_tracer": {"ray_aiming_config": {"mode": "paraxial", "max_iter": 10, "tol": 1e-6}},
    }
    return json.dumps(data, indent=1, default=float) + "\n"


def _aperture(lens: Lens) -> dict[str, Any]:
    kind, value = lens.aperture.kind, lens.aperture.value
    if kind == "object_na":
        return {"type": "objectNA", "value": value}
    if kind == "stop_radius":
        kind, value = "entrance_pupil_diameter", entrance_pupil_diameter(lens) or math.nan
    return {"type": "imageFNO" if kind == "f_number" else "EPD", "value": value}


def _plane(z: float) -> dict[str, Any]:
    return {"type": "Plane", "cs": _frame(z), "radius": math.inf}


def _frame(z: float) -> dict[str, Any]:
    return {"x": 0.0, "y": 0.0, "z": z, "rx": 0.0, "ry": 0.0, "rz": 0.0, "reference_cs": None}


def _surface(lens: Lens, i: int, s: Surface, z: float) -> dict[str, Any]:
    surface = _behind(_geometry(s, z), s.thickness, s.medium, lens)
    if s.semi_diameter is not None:
        surface["aperture"] = {"type": "RadialAperture", "r_max": s.semi_diameter, "r_min": 0.0}
    return surface | {"is_stop": i == lens.stop, "comment": clean(s.label)}


def _behind(geometry: dict[str, Any], thickness: float, medium: Medium, lens: Lens) -> dict[str, Any]:
    """A refracting surface and the space behind it."""
    return {
        "type": "Surface",
        "thickness": thickness,
        "geometry": geometry,
        "material_post": _material(medium, lens),
        "is_stop": False,
        "aperture": None,
        "comment": "",
        "interaction_model": {
            "type": "RefractiveReflectiveModel",
            "is_reflective": False,
            "coating": None,
            "bsdf": None,
        },
    }


def _geometry(s: Surface, z: float) -> dict[str, Any]:
    if not s.aspheric:
        if math.isinf(s.radius):
            return _plane(z)
        return {"type": "StandardGeometry", "cs": _frame(z), "radius": s.radius, "conic": s.conic}
    step, terms = power_series(s)
    return {
        "type": "EvenAsphere" if step == 2 else "OddAsphere",
        "cs": _frame(z),
        "radius": s.radius,
        "conic": s.conic,
        "tol": 1e-10,
        "max_iter": 100,
        "coefficients": terms,
    }


def _material(medium: Medium, lens: Lens) -> dict[str, Any]:
    model = {"propagation_model": {"class": "HomogeneousPropagation"}}
    if medium.formula == CONSTANT:
        return model | {"type": "IdealMaterial", "index": medium.nd, "absorp": 0.0}
    if medium.formula < 10:
        least, low_high = _ARITY.get(medium.formula, 1), medium.range_nm
        coefficients = [*medium.coefficients, *[0.0] * (least - len(medium.coefficients))]
        limits = low_high and (low_high[0] * (1.0 - RANGE_SLACK) * 1e-3, low_high[1] * (1.0 + RANGE_SLACK) * 1e-3)
        dispersion: dict[str, Any] = {"kind": "formula", "formula": f"formula {medium.formula}"}
        dispersion |= {"coefficients": coefficients, "wavelength_range_um": limits}
    else:
        rows = sampled_indices(medium, lens.wavelengths_nm, _STEP_NM)
        dispersion = {"kind": "tabulated", "wavelengths_um": [w * 1e-3 for w, _ in rows]}
        dispersion |= {"indices": [n for _, n in rows]}
    definition = {"dispersion": dispersion, "extinction": None, "thermal": None}
    more = {"type": "DataMaterial", "name": medium.name, "bounds": "clamp", "metadata": {}}
    return model | more | {"definition": definition}
