"""Our own JSON: one object per lens, lengths in mm, surfaces counted from 0 (docs/formats.md has the schema).

Unknown keys are refused, so that a typing error cannot pass for a default. What is written comes back as an equal lens.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic import Field as Key

from ...errors import LensFileError
from ...glass import AIR, Medium, constant_index, model_glass, tabulated_glass
from ..first_order import f_number, focal_length
from ..prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, MAX_SURFACES, Aperture, Field, Lens, State, Surface
from .assemble import FallbackGlass, LensSource, check_glass, table_rows
from .text import INFINITY_MM, clean

ND_TOLERANCE = 1e-3  # between nd in the file and that of the glass it names
MOST_KEYS = 1000  # of one object


def _numbered(value: Any) -> tuple[tuple[int, Any], ...]:
    if not isinstance(value, dict) or not all(re.fullmatch("[0-9]{1,6}", key) for key in value):
        raise ValueError("expected an object whose keys are surface numbers, or powers of r")
    return tuple(sorted(((int(key), number) for key, number in value.items()), key=lambda item: item[0]))


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value), AfterValidator(clean)]
Numbered = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_numbered)]
Distance = Annotated[
    float | None,  # None: only as a default
    BeforeValidator(lambda value: INFINITY_MM if value in (None, "infinity") else value),
    AfterValidator(lambda value: math.inf if value >= INFINITY_MM else value),
]


class JsonRecord(BaseModel):
    """An object of the file, its fields named as those of the part of a lens that it becomes."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class MediumRecord(JsonRecord):
    nd: float | None = None
    vd: float | None = None
    glass: Text = ""
    catalogue: Text = ""
    table: Annotated[list[tuple[float, float]], Key(min_length=1, max_length=1000)] | None = None


class SurfaceRecord(MediumRecord):
    radius: float | None = Key(None, alias="radius_mm")
    thickness: float = Key(alias="thickness_mm")
    semi_diameter: float | None = Key(None, alias="semi_diameter_mm")
    conic: float | None = None
    aspheric: Numbered | None = None
    label: Text = ""


class StateRecord(JsonRecord):
    name: Annotated[Text, Key(min_length=1)]
    thickness: Numbered = Key((), alias="thickness_mm")
    semi_diameter: Numbered = Key((), alias="semi_diameter_mm")
    object_distance: Distance = Key(None, alias="object")
    aperture: Aperture | None = None
    field: Field | None = None
    image_radius: float | None = Key(None, alias="image_height_mm")


class LensRecord(JsonRecord):
    name: Text = ""
    surfaces: list[SurfaceRecord] = Key(max_length=MAX_SURFACES)
    stop: int = Key(alias="stop_surface")
    aperture: Aperture | None = None
    field: Field | None = None
    image_radius: float | None = Key(None, alias="image_height_mm")
    object_distance: Distance = Key(math.inf, alias="object")
    object_medium: MediumRecord | None = None
    wavelengths_nm: list[float] | None = Key(None, max_length=100)
    primary_wavelength: int | None = None
    states: list[StateRecord] = Key([], max_length=1000)
    patent: Text = ""
    image_format: Text = Key("", alias="format")
    notes: list[Text] = Key([], max_length=1000)
    focal_length_mm: Any = None  # this and the next are for people to read
    f_number: Any = None


def read_json(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of a JSON file."""
    source = LensSource(file, fallback_glass)
    record = _parse(text, source)
    for note in record.notes:
        source.note(note)
    parts = {name: value for name, value in record if name not in ("focal_length_mm", "f_number", "notes")}
    parts["surfaces"] = surfaces = tuple(_read_surface(source, s, i) for i, s in enumerate(record.surfaces))
    if record.wavelengths_nm is not None:
        parts["wavelengths_nm"] = tuple(record.wavelengths_nm)
        if record.primary_wavelength is None:
            parts["primary_wavelength"] = (len(record.wavelengths_nm) - 1) // 2
    elif record.primary_wavelength is not None:
        raise source.error("primary_wavelength without wavelengths_nm")
    else:
        del parts["wavelengths_nm"], parts["primary_wavelength"]
    if record.aperture is None:
        radius = surfaces[record.stop].semi_diameter if 0 <= record.stop < len(surfaces) else None
        if radius is None:
            advice = "give the stop a semi_diameter_mm, or the lens an aperture"
            raise source.error(f"no aperture: {advice}", surface=record.stop)
        parts["aperture"] = Aperture("stop_radius", radius)
    parts["object_medium"] = _read_medium(source, record.object_medium or MediumRecord(), None)
    parts["states"] = tuple(State(**dict(s)) for s in record.states)
    lens = source.lens(range(len(surfaces)), **parts)
    source.check_states(lens, range(len(surfaces)))
    return lens


def _parse(text: str, source: LensSource) -> LensRecord:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise source.error("a key occurs twice in the same object")
        if len(pairs) > MOST_KEYS:
            raise source.error(f"an object of {len(pairs)} keys; expected at most {MOST_KEYS}")
        return content

    try:
        content = json.dumps(json.loads(text, object_pairs_hook=unique), ensure_ascii=False)
        return LensRecord.model_validate_json(re.sub("[\ud800-\udfff]", " ", content))  # halves of characters
    except json.JSONDecodeError as error:
        raise source.error(f"not valid JSON: {error.msg}", line=error.lineno) from None
    except RecursionError:
        raise source.error("nested too deeply to be a lens") from None
    except ValidationError as error:
        raise _refusal(error, source) from None
    except ValueError:  # an integer with thousands of digits
        raise source.error("a number with too many digits") from None


def _refusal(error: ValidationError, source: LensSource) -> LensFileError:
    """The first thing that is wrong, with its place."""
    first = error.errors(include_url=False)[0]
    place, value = [clean(str(p), 40) for p in first["loc"]], first["input"]
    records: dict[str, type[JsonRecord]] = {"surfaces": SurfaceRecord, "states": StateRecord}
    record = records.get(place[0] if len(place) > 1 else "", LensRecord)
    surface = int(place[1]) if record is SurfaceRecord else None
    where = ", ".join(place if surface is None else place[2:]) or ("the lens" if surface is None else "surface")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        keys = sorted(key.alias or name for name, key in record.model_fields.items())
        text = f": unknown key {place[-1]!r}; known are {', '.join(keys)}"
    elif first["type"] == "missing":
        text = " is missing; is the file cut short?"
    else:
        text = ": " + first["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
        text += f", got {clean(str(value)[:99], 40)}" if isinstance(value, str | float) else ""
    return source.error(where + text, surface=surface)


def _read_surface(source: LensSource, record: SurfaceRecord, index: int) -> Surface:
    return Surface(
        radius=math.inf if record.radius is None else record.radius,
        thickness=record.thickness,
        medium=_read_medium(source, record, index),
        semi_diameter=record.semi_diameter,
        conic=record.conic or 0.0,
        aspheric=tuple(term for term in record.aspheric or () if term[1]),
        label=record.label,
    )


def _read_medium(source: LensSource, record: MediumRecord, index: int | None) -> Medium:
    nd, vd, name, catalogue = record.nd, record.vd, record.glass, record.catalogue
    with source.refusals(surface=index):
        if record.table is not None:
            return tabulated_glass(name, *zip(*record.table, strict=True))
        if name and catalogue == "constant" and nd is not None:
            return constant_index(nd, name)
        if not name and not catalogue:
            return model_glass(1.0 if nd is None else nd, vd)
    if not name:
        raise source.error("catalogue without glass", surface=index)
    medium = source.glass(name, index, catalogue=catalogue or None)
    if nd is not None and abs(medium.nd - nd) > ND_TOLERANCE and source.has_glass(name, catalogue or None):
        text = f"nd is {nd:g}, but the glass {name} has {medium.nd:.6g}; remove one of them"
        raise source.error(text, surface=index)
    return medium


def json_text(lens: Lens) -> str:
    """The JSON text of a lens, one line for each key, surface and state."""
    stop_radius = lens.surfaces[lens.stop].semi_diameter
    usual_waves = (lens.wavelengths_nm, lens.primary_wavelength) == ((C_LINE_NM, D_LINE_NM, F_LINE_NM), 1)
    data: dict[str, Any] = {
        "name": lens.name,
        "patent": lens.patent,
        "format": lens.image_format or None,
        "focal_length_mm": _finite(focal_length(lens)),
        "f_number": _finite(f_number(lens)),
        "image_height_mm": lens.image_radius,
        "stop_surface": int(lens.stop),
        "surfaces": [_write_surface(s, i) for i, s in enumerate(lens.surfaces)],
        "object": _finite(lens.object_distance) or "infinity",
    }
    data |= _without_none(
        object_medium=None if lens.object_medium == AIR else _write_medium(lens.object_medium, None),
        aperture=None if lens.aperture == Aperture("stop_radius", stop_radius or math.nan) else asdict(lens.aperture),
        field=lens.field and asdict(lens.field),
        wavelengths_nm=None if usual_waves else lens.wavelengths_nm,
        primary_wavelength=None if usual_waves else int(lens.primary_wavelength),
        states=[_write_state(s) for s in lens.states] or None,
        notes=lens.notes or None,
    )
    compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=float).encode  # float: NumPy's scalars
    tables = {
        key: ",\n".join(f"  {compact(row)}" for row in data.get(key, ())) for key in ("surfaces", "states", "notes")
    }
    lines = (f'"{k}": [\n{tables[k]}\n]' if k in tables else f'"{k}": {compact(v)}' for k, v in data.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _write_medium(medium: Medium, index: int | None) -> dict[str, Any]:
    kind = check_glass(medium, index)
    data: dict[str, Any] = {"nd": medium.nd, "vd": medium.vd}
    if kind == "table":
        data |= {"glass": medium.name, "table": table_rows(medium)}
    elif kind in ("constant", "catalogue"):
        data |= {"glass": medium.name, "catalogue": medium.catalogue}
    return data


def _write_surface(s: Surface, index: int) -> dict[str, Any]:
    medium = _write_medium(s.medium, index)
    return {
        "radius_mm": _finite(s.radius),
        "thickness_mm": s.thickness,
        "nd": medium.pop("nd"),
        "vd": medium.pop("vd"),
        "semi_diameter_mm": s.semi_diameter,
        "conic": s.conic,
        "aspheric": dict(s.aspheric),
        **medium,
        **({"label": s.label} if s.label else {}),
    }


def _write_state(state: State) -> dict[str, Any]:
    return _without_none(
        name=state.name,
        thickness_mm=dict(state.thickness) or None,
        semi_diameter_mm=dict(state.semi_diameter) or None,
        object=state.object_distance and (_finite(state.object_distance) or "infinity"),
        aperture=state.aperture and asdict(state.aperture),
        field=state.field and asdict(state.field),
        image_height_mm=state.image_radius,
    )
