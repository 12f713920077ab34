"""Our own JSON: one object per lens, lengths in mm, surfaces counted from 0 (docs/formats.md has the schema).

Unknown keys are refused, so that a typing error cannot pass for a default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ...errors import LensFileError
from ...glass import AIR, Medium
from ..prescription import MAX_SURFACES, Aperture, ApertureKind, Field, FieldKind, Lens, State, Surface
from .assemble import FallbackGlass, Media, Notes, check_states, make_lens
from .text import INFINITY_MM, clean

LENS_KEYS = frozenset(
    {"name", "patent", "format", "focal_length_mm", "f_number", "image_height_mm", "stop_surface", "surfaces"}
    | {
        "object",
        "object_medium",
        "aperture",
        "field",
        "wavelengths_nm",
        "primary_wavelength",
        "states",
        "notes",
    }
)
MEDIUM_KEYS = frozenset({"nd", "vd", "glass", "catalogue", "table"})
SURFACE_KEYS = MEDIUM_KEYS | {"radius_mm", "thickness_mm", "semi_diameter_mm", "conic", "aspheric", "label"}
STATE_KEYS = frozenset({"name", "thickness_mm", "semi_diameter_mm", "object", "aperture", "field", "image_height_mm"})
ND_TOLERANCE = 1e-3  # between nd in the file and that of the glass it names
_MAX_STATES = 1000
_MAX_POINTS = 1000
_MAX_TABLE = 1000


@dataclass
class _Reader:
    """Takes values out of JSON, or says what is wrong with them."""

    file: str | Path
    media: Media

    def fail(self, message: str, surface: int | None = None) -> LensFileError:
        return LensFileError(message, file=self.file, surface=surface)

    def keys(self, value: Any, known: Set[str], what: str, surface: int | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(f"{what}: expected an object, {{...}}", surface)
        unknown = sorted(clean(k, 40) for k in value if k not in known)
        if unknown:
            raise self.fail(f"{what}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}", surface)
        return value

    def number(self, value: Any, what: str, surface: int | None = None) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(f"{what}: expected a number, got {_short(value)}", surface)
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
        if not math.isfinite(result):
            raise self.fail(f"{what}: {_short(value)} is not a finite number", surface)
        return result

    def optional(self, value: Any, what: str, surface: int | None = None) -> float | None:
        return None if value is None else self.number(value, what, surface)

    def integer(self, value: Any, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1_000_000:
            raise self.fail(f"{what}: expected a whole number, got {_short(value)}")
        return value

    def text(self, value: Any, what: str, surface: int | None = None) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.fail(f"{what}: expected text, got {_short(value)}", surface)
        return clean(value)

    def list(self, value: Any, what: str, limit: int, surface: int | None = None) -> list[Any]:
        if not isinstance(value, list) or len(value) > limit:
            raise self.fail(f"{what}: expected a list of at most {limit}", surface)
        return value

    def distance(self, value: Any, what: str) -> float:
        if value in (None, "infinity"):
            return math.inf
        result = self.number(value, what)
        return math.inf if result >= INFINITY_MM else result

    def by_surface(self, value: Any, what: str) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, dict):
            raise self.fail(f"{what}: expected an object of surface numbers and mm")
        pairs = {_digits(k): self.number(v, what) for k, v in value.items()}
        if None in pairs:
            raise self.fail(f"{what}: the keys must be surface numbers")
        return tuple(sorted((k, v) for k, v in pairs.items() if k is not None))


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a huge number"
    return clean(repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__, 40)


def _digits(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 6 else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _DuplicateKeyError
    return result


class _DuplicateKeyError(ValueError):
    pass


def read_json(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of a JSON file."""
    notes = Notes()
    reader = _Reader(file, Media(file, notes, fallback_glass))
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise LensFileError(f"not valid JSON: {error.msg}", file=file, line=error.lineno) from None
    except _DuplicateKeyError:
        raise reader.fail("a key occurs twice in the same object") from None
    except RecursionError:
        raise reader.fail("nested too deeply to be a lens") from None
    except ValueError:  # an integer with thousands of digits
        raise reader.fail("a number with too many digits") from None
    data = reader.keys(content, LENS_KEYS, "the lens")
    for key in ("surfaces", "stop_surface"):
        if key not in data:
            raise reader.fail(f"no {key!r}: not a lens, or one cut short")
    surfaces = [_surface(reader, s, i) for i, s in enumerate(reader.list(data["surfaces"], "surfaces", MAX_SURFACES))]
    stop = reader.integer(data["stop_surface"], "stop_surface")
    for note in reader.list(data.get("notes", []), "notes", 1000):
        notes.add(reader.text(note, "notes"))
    wavelengths: dict[str, Any] = {}
    if "wavelengths_nm" in data:
        values = reader.list(data["wavelengths_nm"], "wavelengths_nm", 100)
        wavelengths["wavelengths_nm"] = tuple(reader.number(w, "wavelengths_nm") for w in values)
        primary = data.get("primary_wavelength", (len(values) - 1) // 2)
        wavelengths["primary_wavelength"] = reader.integer(primary, "primary_wavelength")
    elif "primary_wavelength" in data:
        raise reader.fail("primary_wavelength without wavelengths_nm")
    aperture = _aperture(reader, data.get("aperture"), "aperture")
    if aperture is None:
        radius = surfaces[stop].semi_diameter if 0 <= stop < len(surfaces) else None
        if radius is None:
            raise reader.fail("no aperture: give the stop a semi_diameter_mm, or the lens an aperture", stop)
        aperture = Aperture("stop_radius", radius)
    medium = data.get("object_medium")
    lens = make_lens(
        file,
        range(len(surfaces)),
        notes,
        name=reader.text(data.get("name"), "name"),
        surfaces=tuple(surfaces),
        stop=stop,
        aperture=aperture,
        field=_field(reader, data.get("field"), "field"),
        image_radius=reader.optional(data.get("image_height_mm"), "image_height_mm"),
        object_distance=reader.distance(data.get("object"), "object"),
        object_medium=AIR
        if medium is None
        else _medium(reader, reader.keys(medium, MEDIUM_KEYS, "object_medium"), None),
        states=tuple(_state(reader, s) for s in reader.list(data.get("states", []), "states", _MAX_STATES)),
        patent=reader.text(data.get("patent"), "patent"),
        image_format=reader.text(data.get("format"), "format"),
        **wavelengths,
    )
    check_states(lens, file, range(len(surfaces)))
    return lens


def _surface(reader: _Reader, value: Any, index: int) -> Surface:
    data = reader.keys(value, SURFACE_KEYS, "surface", index)
    if "thickness_mm" not in data:
        raise reader.fail("no thickness_mm", index)
    radius = reader.optional(data.get("radius_mm"), "radius_mm", index)
    terms = data.get("aspheric") or {}
    if not isinstance(terms, dict):
        raise reader.fail("aspheric: expected an object of powers and coefficients", index)
    aspheric = []
    for key, coefficient in terms.items():
        power = _digits(key)
        if power is None:
            raise reader.fail(f"aspheric: {clean(key, 40)!r} is not a power of r", index)
        number = reader.number(coefficient, f"aspheric {power}", index)
        if number:
            aspheric.append((power, number))
    return Surface(
        radius=math.inf if radius is None else radius,
        thickness=reader.number(data["thickness_mm"], "thickness_mm", index),
        medium=_medium(reader, data, index),
        semi_diameter=reader.optional(data.get("semi_diameter_mm"), "semi_diameter_mm", index),
        conic=reader.optional(data.get("conic"), "conic", index) or 0.0,
        aspheric=tuple(sorted(aspheric)),
        label=reader.text(data.get("label"), "label", index),
    )


def _medium(reader: _Reader, data: Mapping[str, Any], index: int | None) -> Medium:
    nd, vd = reader.optional(data.get("nd"), "nd", index), reader.optional(data.get("vd"), "vd", index)
    name, catalogue = (
        reader.text(data.get("glass"), "glass", index),
        reader.text(data.get("catalogue"), "catalogue"),
    )
    if data.get("table") is not None:
        rows = reader.list(data["table"], "table", _MAX_TABLE, index)
        pairs = [[reader.number(v, "table", index) for v in reader.list(r, "table", 2, index)] for r in rows]
        if not pairs or any(len(p) != 2 for p in pairs):
            raise reader.fail("table: expected rows [wavelength in nm, index]", index)
        return reader.media.table(name, [p[0] for p in pairs], [p[1] for p in pairs], index)
    if name and catalogue == "constant" and nd is not None:
        return reader.media.constant(nd, name, index)
    if name:
        medium = reader.media.named(name, index, catalogue=catalogue or None)
        if nd is not None and abs(medium.nd - nd) > ND_TOLERANCE and reader.media.knows(name, catalogue or None):
            raise reader.fail(f"nd is {nd:g}, but the glass {name} has {medium.nd:.6g}; remove one of them", index)
        return medium
    if catalogue:
        raise reader.fail("catalogue without glass", index)
    return AIR if nd is None and vd is None else reader.media.model(1.0 if nd is None else nd, vd, index)


def _aperture(reader: _Reader, value: Any, what: str) -> Aperture | None:
    if value is None:
        return None
    data = reader.keys(value, frozenset({"kind", "value"}), what)
    if data.get("kind") not in get_args(ApertureKind):
        raise reader.fail(f"{what}: kind must be one of {', '.join(get_args(ApertureKind))}")
    return Aperture(data["kind"], reader.number(data.get("value"), what))


def _field(reader: _Reader, value: Any, what: str) -> Field | None:
    if value is None:
        return None
    data = reader.keys(value, frozenset({"kind", "points"}), what)
    if data.get("kind") not in get_args(FieldKind):
        raise reader.fail(f"{what}: kind must be one of {', '.join(get_args(FieldKind))}")
    points = []
    for point in reader.list(data.get("points"), f"{what} points", _MAX_POINTS):
        xy = [reader.number(v, f"{what} points") for v in reader.list(point, f"{what} points", 2)]
        if len(xy) != 2:
            raise reader.fail(f"{what}: a point is [x, y]")
        points.append((xy[0], xy[1]))
    if not points:
        raise reader.fail(f"{what}: no points")
    return Field(data["kind"], tuple(points))


def _state(reader: _Reader, value: Any) -> State:
    data = reader.keys(value, STATE_KEYS, "state")
    name = reader.text(data.get("name"), "state name")
    if not name:
        raise reader.fail("a state without a name")
    what = f"state {name!r}"
    return State(
        name=name,
        thickness=reader.by_surface(data.get("thickness_mm", {}), what),
        semi_diameter=reader.by_surface(data.get("semi_diameter_mm", {}), what),
        object_distance=reader.distance(data["object"], what) if "object" in data else None,
        aperture=_aperture(reader, data.get("aperture"), f"{what}, aperture"),
        field=_field(reader, data.get("field"), f"{what}, field"),
        image_radius=reader.optional(data.get("image_height_mm"), what),
    )
