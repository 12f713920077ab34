"""Lenses as our own JSON; reading it back gives an equal lens."""

from __future__ import annotations

import json
import math
from typing import Any

from ...glass import AIR, Medium
from ..first_order import f_number, focal_length
from ..prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, Aperture, Field, Lens, State, Surface
from .assemble import check_glass


def json_text(lens: Lens) -> str:
    """The JSON text of a lens, one line per surface."""
    efl, number = focal_length(lens), f_number(lens)
    data: dict[str, Any] = {
        "name": lens.name,
        "patent": lens.patent,
        "format": lens.image_format or None,
        "focal_length_mm": efl if math.isfinite(efl) else None,
        "f_number": number if number is not None and math.isfinite(number) else None,
        "image_height_mm": lens.image_radius,
        "stop_surface": int(lens.stop),
        "surfaces": [_surface(s, i) for i, s in enumerate(lens.surfaces)],
        "object": _distance(lens.object_distance),
    }
    if lens.object_medium != AIR:
        data["object_medium"] = _medium(lens.object_medium, None)
    if lens.aperture != Aperture("stop_radius", lens.surfaces[lens.stop].semi_diameter or math.nan):
        data["aperture"] = _aperture(lens.aperture)
    if lens.field is not None:
        data["field"] = _field(lens.field)
    if lens.wavelengths_nm != (C_LINE_NM, D_LINE_NM, F_LINE_NM) or lens.primary_wavelength != 1:
        data["wavelengths_nm"] = list(lens.wavelengths_nm)
        data["primary_wavelength"] = int(lens.primary_wavelength)
    if lens.states:
        data["states"] = [_state(s) for s in lens.states]
    if lens.notes:
        data["notes"] = list(lens.notes)
    return _lines(data)


def _lines(data: dict[str, Any]) -> str:
    """One line for each key, surface and state."""
    parts = []
    for key, value in data.items():
        if key in ("surfaces", "states", "notes"):
            rows = ",\n".join(f"  {_compact(row)}" for row in value)
            parts.append(f'"{key}": [\n{rows}\n]')
        else:
            parts.append(f'"{key}": {_compact(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=float)  # float: NumPy's scalars


def _distance(value: float) -> str | float:
    return "infinity" if math.isinf(value) else value


def _medium(medium: Medium, index: int | None) -> dict[str, Any]:
    data: dict[str, Any] = {"nd": medium.nd, "vd": medium.vd}
    kind = check_glass(medium, index)
    if kind == "table":
        c = medium.coefficients
        rows = [[D_LINE_NM, c[0]]] if len(c) == 1 else [[w, n] for w, n in zip(c[0::2], c[1::2], strict=True)]
        data |= {"glass": medium.name, "table": rows}
    elif kind in ("constant", "catalogue"):
        data |= {"glass": medium.name, "catalogue": medium.catalogue}
    return data


def _surface(s: Surface, index: int) -> dict[str, Any]:
    medium = _medium(s.medium, index)
    data = {
        "radius_mm": None if math.isinf(s.radius) else s.radius,
        "thickness_mm": s.thickness,
        "nd": medium.pop("nd"),
        "vd": medium.pop("vd"),
        "semi_diameter_mm": s.semi_diameter,
        "conic": s.conic,
        "aspheric": {str(power): coefficient for power, coefficient in s.aspheric},
        **medium,
    }
    if s.label:
        data["label"] = s.label
    return data


def _aperture(aperture: Aperture) -> dict[str, Any]:
    return {"kind": aperture.kind, "value": aperture.value}


def _field(field: Field) -> dict[str, Any]:
    return {"kind": field.kind, "points": [list(p) for p in field.points]}


def _state(state: State) -> dict[str, Any]:
    data: dict[str, Any] = {"name": state.name}
    if state.thickness:
        data["thickness_mm"] = {str(i): v for i, v in state.thickness}
    if state.semi_diameter:
        data["semi_diameter_mm"] = {str(i): v for i, v in state.semi_diameter}
    if state.object_distance is not None:
        data["object"] = _distance(state.object_distance)
    if state.aperture is not None:
        data["aperture"] = _aperture(state.aperture)
    if state.field is not None:
        data["field"] = _field(state.field)
    if state.image_radius is not None:
        data["image_height_mm"] = state.image_radius
    return data
