"""From a parsed .zmx file to a lens.

Lengths in the file's unit become millimetres; an aspheric coefficient of r^p has the unit length^(1−p).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import LensFileError
from ...glass import AIR, Medium, constant_index, model_glass, tabulated_glass
from ..first_order import AxialPath, path_through, pupil_diameter, stop_radius_from_clear_apertures
from ..prescription import D_LINE_NM, Aperture, Field, FieldKind, Lens, State, Surface
from .assemble import FallbackGlass, NumberedSurfaces, length_or_infinity, paraxial_aperture
from .text import INFINITY_MM, clean, reciprocal, scaled, to_float, to_floats
from .zemax import APERTURE_SHAPES, Operand, ZemaxFile, ZemaxSurface, parse

UNITS = {"MM": 1.0, "CM": 10.0, "IN": 25.4, "INCH": 25.4, "M": 1000.0, "METER": 1000.0, "METERS": 1000.0}
# Power of r of the first term, and of each step to the next; an X: the terms stand in XDAT, else in PARM.
SHAPES = {"STANDARD": 0, "EVENASPH": 2, "ODDASPHE": 1, "XASPHERE": 2, "XOSPHERE": 1}
FIELD_KINDS: tuple[FieldKind, ...] = (
    "angle_deg",
    "object_height",
    "paraxial_image_height",
    "real_image_height",
    "angle_deg",  # theodolite angles; the same thing on either axis
)
_PARAMETERS = 8  # PARM 1 to 8 of EVENASPH hold r² to r¹⁶, of ODDASPHE r¹ to r⁸
_USED_OPERANDS = frozenset({"THIC", "SDIA", "APMX", "APER", "XFIE", "YFIE"})
# Rows without an effect on the lens: comments, weights, and vignetting factors (we trace the vignetting).
_IGNORED_OPERANDS = frozenset({"MOFF", "MCOM", "CWGT", "FLWT", "WLWT", "FVDX", "FVDY", "FVCX", "FVCY", "FVAN"})


def read_zemax(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of a .zmx file; multi-configuration files have one state per configuration."""
    parts = ZemaxFile(file, fallback_glass)
    parse(text, parts)
    _read_header(parts)
    _refuse_unsupported(parts)
    surfaces = [_surface(parts, s) for s in parts.surfaces[1:-1]]
    _check_image(parts, surfaces[-1].medium)
    object_medium, object_distance = _medium(parts, parts.surfaces[0]), _object_distance(parts, parts.surfaces[0])
    numbered = NumberedSurfaces(parts, surfaces, _stop(parts), object_distance, object_medium)
    if not parts.is_ours:
        limiting = {s.number for s in parts.surfaces if {"CLAP", "FLAP"} & s.lines.keys()}
        numbered.drop_leading_dummies(limiting | {o.target for o in parts.operands.values()})
    wavelengths, primary = _wavelengths(parts)
    path = numbered.axial_path(wavelengths[primary])
    if parts.aperture_keyword == "FLOA":
        aperture = _float_by_stop_size(parts, path, numbered.stop, parts.surfaces[numbered.numbers[numbered.stop]])
    else:
        aperture = _system_aperture(parts, path, numbered.stop)
    if parts.has_remark("stop_semi_diameter"):
        numbered.surfaces[numbered.stop] = replace(numbered.surfaces[numbered.stop], semi_diameter=None)
    name = parts.header.get("NAME")
    lens = numbered.lens(
        name=clean(name.text) if name else "",
        aperture=aperture,
        field=None if parts.has_remark("field") else _field(parts),
        **({"image_radius": parts.remark_length("image_radius")} if parts.is_ours else {}),
        wavelengths_nm=wavelengths,
        primary_wavelength=primary,
        patent=parts.remark("patent"),
        image_format=parts.remark("format"),
    )
    states = _states(parts, lens, numbered.numbers)
    return parts.with_states(lens, states, numbered.numbers) if states else lens


def _read_header(parts: ZemaxFile) -> None:
    """Unit, glass catalogues, and the mode, which must be sequential."""
    unit, mode, gcat = (parts.header.get(keyword) for keyword in ("UNIT", "MODE", "GCAT"))
    if unit is None:
        parts.note("the file states no unit; millimetres assumed")
    else:
        word = unit.words[0].upper() if unit.words else ""
        if word not in UNITS:
            raise parts.error(f"UNIT {word[:20]!r}; known are {', '.join(UNITS)}", line=unit.number)
        parts.unit = UNITS[word]
    if mode and mode.words and mode.words[0].upper() != "SEQ":
        raise parts.unsupported(f"MODE {clean(mode.text, 20)}: only sequential lenses", line=mode.number)
    parts.catalogues = tuple(gcat.words[:50]) if gcat else ()


def _refuse_unsupported(parts: ZemaxFile) -> None:
    """Raise for the first surface that is not a rotationally symmetric refracting one."""

    def fail(text: str, s: ZemaxSurface) -> LensFileError:
        return parts.unsupported(text, surface=s.number, line=s.line)

    for s in parts.surfaces:
        if s.type not in SHAPES:
            raise fail(f"surface type {clean(s.type, 20)} is not supported", s)
        glass = s.lines.get("GLAS")
        if glass and glass.words and glass.words[0].upper() == "MIRROR":
            raise fail("MIRROR: reflecting surfaces are not supported", s)
    for s in parts.surfaces[1:-1]:
        for keyword in sorted(APERTURE_SHAPES & s.lines.keys()):
            if keyword != "OBDC" or any(to_float(w) != 0.0 for w in s.lines[keyword].words[:2]):
                raise fail(f"aperture {keyword}: only clear, centred, circular apertures are supported", s)


def _length(parts: ZemaxFile, s: ZemaxSurface, keyword: str, position: int = 0) -> float:
    if keyword not in s.lines:
        raise parts.error(f"no {keyword}; is the file cut short?", line=s.line, surface=s.number)
    return parts.value(s.lines[keyword], position, keyword, s.number) * parts.unit


def _object_distance(parts: ZemaxFile, s: ZemaxSurface) -> float:
    line = s.lines.get("DISZ")
    distance = length_or_infinity(line.words[0], parts.unit) if line and line.words else None
    return _length(parts, s, "DISZ") if distance is None else distance


def _surface(parts: ZemaxFile, s: ZemaxSurface) -> Surface:
    _length(parts, s, "CURV")  # it is there, and a number
    comment = s.lines.get("COMM")
    return Surface(
        radius=reciprocal(s.lines["CURV"].words[0], parts.unit) or math.inf,
        thickness=_length(parts, s, "DISZ"),
        medium=_medium(parts, s),
        semi_diameter=_semi_diameter(parts, s),
        conic=parts.value(s.lines["CONI"], 0, "CONI", s.number) if "CONI" in s.lines else 0.0,
        aspheric=_aspheric(parts, s),
        label=clean(comment.text) if comment else "",
    )


def _semi_diameter(parts: ZemaxFile, s: ZemaxSurface) -> float | None:
    """A circular aperture if there is one, else the semi-diameter; 0 stands for an unknown one."""
    for keyword in ("CLAP", "FLAP"):
        if keyword in s.lines:
            inner, outer = _length(parts, s, keyword), _length(parts, s, keyword, 1)
            if inner > 0.0:
                text = f"aperture {keyword} with a central obscuration"
                raise parts.unsupported(text, surface=s.number, line=s.line)
            if outer > 0.0:
                return outer
    return abs(_length(parts, s, "DIAM")) or None if "DIAM" in s.lines else None


def _aspheric(parts: ZemaxFile, s: ZemaxSurface) -> tuple[tuple[int, float], ...]:
    def value(keyword: str, index: int) -> float:
        key = f"{keyword} {index}"
        return parts.value(s.lines[key], 1, key, s.number) if key in s.lines else 0.0

    step, reach = SHAPES[s.type], 1.0
    if s.type.startswith("X"):
        count, reach = value("XDAT", 1), value("XDAT", 2)
        if not 0 <= count <= 240 or (count and not reach > 0.0):
            text = f"{s.type}: {count:g} terms with the normalisation radius {reach:g}"
            raise parts.error(text, line=s.line, surface=s.number)
        terms = [value("XDAT", i + 3) for i in range(int(count))]
    else:
        terms = [value("PARM", i + 1) for i in range(_PARAMETERS if step else 0)]
    result = []
    for power, coefficient in ((step * i, term) for i, term in enumerate(terms, start=1) if term):
        if power == 1:
            raise parts.unsupported(f"{s.type} with a term r^1 (a cone)", surface=s.number, line=s.line)
        # unit · (r / (reach · unit))^p; logarithms show an overflow before it happens
        scale = math.log10(parts.unit) - power * math.log10(reach * parts.unit)
        if abs(scale) > 250.0:
            raise parts.error(f"{s.type}: coefficient of r^{power} out of range", line=s.line, surface=s.number)
        result.append((power, coefficient * (parts.unit / (reach * parts.unit) ** power)))
    return tuple(result)


def _medium(parts: ZemaxFile, s: ZemaxSurface) -> Medium:
    if ("glass", s.number) in parts.remarks:
        return _medium_of_remark(parts, s)
    line = s.lines.get("GLAS")
    if line is None or not line.words:
        return AIR
    name = line.words[0]
    blank = name.upper() == "___BLANK"
    if not blank and (line.whole(1) != 1 or parts.has_glass(name)):
        return parts.glass(clean(name), s.number, line=line.number)
    nd, vd = parts.value(line, 3, "GLAS", s.number), parts.value(line, 4, "GLAS", s.number)
    if not blank:
        parts.note(f"surface {s.number}: unknown glass {clean(name)} taken as the model nd = {nd:g}, vd = {vd:g}")
    with parts.refusals(surface=s.number, line=line.number):
        return model_glass(nd, vd)


def _medium_of_remark(parts: ZemaxFile, s: ZemaxSurface) -> Medium:
    line = parts.remarks["glass", s.number][-1]
    catalogue, name = (*line.text.split(None, 1), "", "")[:2]
    name = clean(name)
    with parts.refusals(surface=s.number, line=line.number):
        if catalogue == "table":
            rows = parts.remarks.get(("table", s.number), [])
            numbers = to_floats([word for row in rows for word in row.words])
            if numbers is None:
                raise parts.bad_remark(line)
            return tabulated_glass(name, numbers[0::2], numbers[1::2])
        if catalogue == "constant":
            glass = s.lines.get("GLAS")
            return constant_index(parts.value(glass, 3, "GLAS", s.number) if glass else math.nan, name)
        return parts.glass(name, s.number, catalogue=catalogue, line=line.number)


def _check_image(parts: ZemaxFile, before: Medium) -> None:
    """A last surface that is no image plane shows that the file was cut short."""
    image = parts.surfaces[-1]
    thick = _length(parts, image, "DISZ") != 0.0
    if thick or ("GLAS" in image.lines and _medium(parts, image) != before):
        text = f"the last surface {'has a thickness' if thick else 'starts a glass'}, so it is not the image"
        raise parts.error(f"{text}; is the file cut short?", surface=image.number, line=image.line)
    curvature = image.lines.get("CURV")
    if curvature and curvature.words and to_float(curvature.words[0]) not in (0.0, None):
        parts.note(f"surface {image.number}: the image surface is curved; taken as a plane")


def _stop(parts: ZemaxFile) -> int:
    stops = [s.number for s in parts.surfaces if "STOP" in s.lines]
    if len(stops) != 1:
        raise parts.error(f"{len(stops)} surfaces are marked STOP; expected one. Is the file cut short?")
    if not 1 <= stops[0] <= len(parts.surfaces) - 2:
        raise parts.error("the object or the image is marked STOP", surface=stops[0])
    return stops[0] - 1


def _wavelengths(parts: ZemaxFile) -> tuple[tuple[float, ...], int]:
    """Wavelengths in nm, and which is the primary one."""
    words = [w for _, w in sorted(parts.wavelengths.items())]
    fields = parts.header.get("FTYP")
    count = fields.whole(3) if fields else None
    words = words[:count] if count and count > 0 else words
    if not words:
        parts.note("the file states no wavelength; the d line assumed")
        return (D_LINE_NM,), 0
    values = []
    for word in words:
        value = scaled(word, 3)
        if value is None or not 100.0 <= value <= 20000.0:
            raise parts.error(f"wavelength {word[:40]} µm; expected 0.1 to 20")
        values.append(value)
    line = parts.header.get("PWAV")
    primary = (line.whole() if line else None) or 1
    if not 1 <= primary <= len(words):
        raise parts.error(f"PWAV {primary}, but there are {len(words)} wavelengths", line=line.number if line else None)
    return tuple(values), primary - 1


def _field(parts: ZemaxFile) -> Field | None:
    header, kind_line = parts.header, parts.header.get("FTYP")
    x, y = header.get("XFLN", header.get("XFLD")), header.get("YFLN", header.get("YFLD"))
    if kind_line is None or y is None:
        return None
    number = kind_line.whole()
    if number is None or not 0 <= number < len(FIELD_KINDS):
        raise parts.error(f"FTYP {kind_line.text[:40]}: unknown field type", line=kind_line.number)
    kind = FIELD_KINDS[number]
    scale = 1.0 if kind == "angle_deg" else parts.unit
    count = min(kind_line.whole(2) or len(y.words), len(y.words))
    if count < 1:
        raise parts.error("no field point", line=y.number)
    points = []
    for i in range(count):
        xi = parts.value(x, i, "XFLN") if x and i < len(x.words) else 0.0
        yi = parts.value(y, i, "YFLN")
        if number == 4 and xi and yi:
            raise parts.unsupported("theodolite angles off both axes", line=kind_line.number)
        points.append((xi * scale, yi * scale))
    if kind_line.whole(1):
        parts.note("object space is telecentric in the file; here the stop decides on the rays")
    return Field(kind, tuple(points))


def _float_by_stop_size(parts: ZemaxFile, path: AxialPath, stop: int, s: ZemaxSurface) -> Aperture:
    """The aperture by FLOA: the stop's semi-diameter, or else the axial beam that the clear apertures let through."""
    radius = abs(_length(parts, s, "DIAM")) if "DIAM" in s.lines else None
    if not radius:
        radius = stop_radius_from_clear_apertures(path, stop)
        if radius is None:
            raise parts.error("FLOA: the stop gives the aperture, but it has no DIAM", surface=s.number)
        text = f"radius {radius:.6g} mm from the axial beam that the clear apertures let through"
        parts.note(f"surface {s.number}: the stop has no size; {text}")
    return Aperture("stop_radius", radius)


def _system_aperture(
    parts: ZemaxFile, path: AxialPath, stop: int, value: float | None = None, configuration: int = 0
) -> Aperture:
    """The aperture by ENPD, FNUM or OBNA, with the file's own value or that of a configuration (from 1).

    The second word of FNUM tells the paraxial working F-number from the image-space F-number (they are
    the same for an object at infinity), that of OBNA a half angle in degrees from a numerical aperture.
    """
    keyword = parts.aperture_keyword
    line = parts.header[keyword]
    kinds = {
        "ENPD": ("entrance_pupil_diameter", "entrance_pupil_diameter"),
        "FNUM": ("f_number", "working_f_number"),
        "OBNA": ("object_na", "object_half_angle"),
    }
    kind = kinds[keyword][line.whole(1) == 1]
    value = parts.value(line, 0, keyword) if value is None else value
    aperture = paraxial_aperture(parts, path, keyword, kind, value, line=line.number)
    radius = parts.remark_length("state_stop_radius" if configuration else "stop_radius", configuration)
    if radius is None or kind != "entrance_pupil_diameter":
        return aperture
    if not math.isclose(pupil_diameter(path, stop, radius), aperture.value, rel_tol=1e-9):
        parts.note(
            f"{keyword} is no longer the entrance pupil of the stop radius that the file notes; {keyword} counts"
        )
        return aperture
    return Aperture("stop_radius", radius)


def _states(parts: ZemaxFile, lens: Lens, numbers: Sequence[int]) -> list[State]:
    """One state per configuration, none for a file with a single configuration."""
    names = {k: parts.remark(key, k) for key, k in parts.remarks if key == "state"}
    if parts.is_ours and len(names) != parts.configurations and (names or parts.configurations > 1):
        raise parts.error(f"{len(names)} named states for {parts.configurations} configurations")
    if parts.configurations == 1 and not names:
        return []
    surfaces = range(len(parts.surfaces))
    for operand in parts.operands.values():
        if operand.name not in _USED_OPERANDS | _IGNORED_OPERANDS and _differs(operand):
            text = f"the configurations differ in {operand.name} {operand.target}"
            raise parts.unsupported(f"{text}; only distances, apertures and fields may differ", line=operand.line)
        if operand.name in ("THIC", "SDIA", "APMX") and operand.target not in surfaces:
            raise parts.error(f"{operand.name}: there is no surface {operand.target}", line=operand.line)
    index = {number: i for i, number in enumerate(numbers)}
    return [
        replace(_state(parts, lens, index, k), name=names.get(k) or f"config {k}")
        for k in range(1, parts.configurations + 1)
    ]


def _differs(operand: Operand) -> bool:
    return len({w if (v := to_float(w)) is None else v for w in operand.values.values()}) > 1


def _state(parts: ZemaxFile, lens: Lens, index: dict[int, int], k: int) -> State:
    """Configuration k, without a name; `index` leads from the file's number of a surface to ours."""
    values = {
        (o.name, o.target): parts.number(o.values[k], f"{o.name} {o.target}", line=o.line)
        for o in parts.operands.values()
        if o.name in _USED_OPERANDS and k in o.values
    }
    lengths = {(name, index[n]): v * parts.unit for (name, n), v in values.items() if n in index}
    thickness = {i: length for (name, i), length in lengths.items() if name == "THIC"}
    # A circular aperture of its own (CLAP) keeps the surface's clear aperture apart from its semi-diameter.
    keyword = {i: "APMX" if "CLAP" in parts.surfaces[n].lines else "SDIA" for n, i in index.items()}
    semi_diameter = {i: abs(length) for (name, i), length in lengths.items() if length and name == keyword[i]}
    if parts.has_remark("stop_semi_diameter") and keyword[lens.stop] == "SDIA":
        semi_diameter.pop(lens.stop, None)
    distance = values["THIC", 0] * parts.unit if ("THIC", 0) in values else None
    object_distance = math.inf if distance is not None and distance >= INFINITY_MM else distance
    if parts.aperture_keyword == "FLOA":
        radius = abs(lengths.get(("SDIA", lens.stop), 0.0))
        aperture = Aperture("stop_radius", radius) if radius else None
    else:
        path = path_through(lens, lens.object_distance if object_distance is None else object_distance, thickness)
        value = next((v for (name, _), v in values.items() if name == "APER"), None)
        aperture = _system_aperture(parts, path, lens.stop, value, k)
    field = _state_field(parts, lens.field, values)
    image_radius = parts.remark_length("state_image_radius", k)
    if image_radius is None and field and lens.field and lens.image_radius == lens.field.radius:
        image_radius = field.radius or None
    return State(
        name="",
        thickness=tuple(sorted(thickness.items())),
        semi_diameter=tuple(sorted(semi_diameter.items())),
        object_distance=object_distance,
        aperture=aperture,
        field=field,
        image_radius=image_radius,
    )


def _state_field(parts: ZemaxFile, field: Field | None, values: Mapping[tuple[str, int], float]) -> Field | None:
    """The lens's field with the coordinates of XFIE and YFIE rows, None without such rows."""
    if field is None or not any(name in ("XFIE", "YFIE") for name, _ in values):
        return None
    scale = 1.0 if field.kind == "angle_deg" else parts.unit

    def coordinate(name: str, number: int, own: float) -> float:
        return values[name, number] * scale if (name, number) in values else own

    points = enumerate(field.points, start=1)
    return Field(field.kind, tuple((coordinate("XFIE", i, x), coordinate("YFIE", i, y)) for i, (x, y) in points))
