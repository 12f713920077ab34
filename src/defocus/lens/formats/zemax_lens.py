"""From a parsed .zmx file to a lens.

Lengths in the file's unit become millimetres; an aspheric coefficient of r^p has the unit length^(1−p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import LensFileError
from ...glass import AIR, Medium
from ..first_order import AxialPath, stop_radius_from_clear_apertures
from ..prescription import Aperture, Field, FieldKind, Lens, Surface
from .assemble import FallbackGlass, Media, Notes, NumberedSurfaces, length_or_infinity, with_states
from .text import clean, reciprocal, scaled, to_float, to_int
from .zemax import APERTURE_SHAPES, ZemaxFile, ZemaxLine, ZemaxSurface, parse
from .zemax_remarks import Remarks
from .zemax_states import read_states, system_aperture

UNITS = {"MM": 1.0, "CM": 10.0, "IN": 25.4, "INCH": 25.4, "M": 1000.0, "METER": 1000.0, "METERS": 1000.0}
SHAPES = ("STANDARD", "EVENASPH", "ODDASPHE", "XASPHERE", "XOSPHERE")
FIELD_KINDS: tuple[FieldKind, ...] = (
    "angle_deg",
    "object_height",
    "paraxial_image_height",
    "real_image_height",
    "angle_deg",  # theodolite angles; the same thing on either axis
)
_EVEN_PARAMETERS = 8  # PARM 1 to 8 of EVENASPH hold r² to r¹⁶, of ODDASPHE r¹ to r⁸


@dataclass
class _Context:
    parts: ZemaxFile
    unit: float  # mm
    media: Media
    notes: Notes
    remarks: Remarks


def read_zemax(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of a .zmx file; multi-configuration files have one state per configuration."""
    parts = parse(text, file)
    notes = Notes()
    gcat = parts.header.get("GCAT")
    media = Media(file, notes, fallback_glass, tuple(gcat.words[:50]) if gcat else ())
    context = _Context(parts, _unit(parts, notes), media, notes, Remarks.read(parts))
    _refuse_modes(parts)
    refuse_unsupported(parts)
    surfaces = [_surface(context, s) for s in parts.surfaces[1:-1]]
    _check_image(context, surfaces[-1].medium)
    object_medium = _medium(context, parts.surfaces[0])
    object_distance = _object_distance(context, parts.surfaces[0])
    numbered = NumberedSurfaces(parts, notes, surfaces, _stop(parts), object_distance, object_medium)
    if not context.remarks.ours:
        limiting = {s.number for s in parts.surfaces if {"CLAP", "FLAP"} & s.once.keys()}
        numbered.drop_leading_dummies(limiting | {o.target for o in parts.operands.values()})
    wavelengths, primary = _wavelengths(context)
    field = None if context.remarks.has("field") else _field(context, numbered.object_distance)
    path = numbered.axial_path(wavelengths[primary])
    if parts.aperture_keyword == "FLOA":
        aperture = _float_by_stop_size(context, path, numbered.stop, parts.surfaces[numbered.numbers[numbered.stop]])
    else:
        aperture = system_aperture(parts, path, context.unit)
    if context.remarks.has("stop_semi_diameter"):
        numbered.surfaces[numbered.stop] = replace(numbered.surfaces[numbered.stop], semi_diameter=None)
    name = parts.header.get("NAME")
    lens = numbered.lens(
        name=clean(name.text) if name else "",
        aperture=aperture,
        field=field,
        image_radius=context.remarks.image_radius if context.remarks.ours else field and field.image_radius,
        wavelengths_nm=wavelengths,
        primary_wavelength=primary,
        patent=context.remarks.text("patent"),
        image_format=context.remarks.text("format"),
    )
    states = read_states(parts, lens, numbered.numbers, context.unit, context.remarks)
    return with_states(lens, states, file, numbered.numbers) if states else lens


def _float_by_stop_size(context: _Context, path: AxialPath, stop: int, s: ZemaxSurface) -> Aperture:
    """The aperture by FLOA: the stop's semi-diameter, or else the axial beam that the clear apertures let through."""
    radius = abs(_length(context, s, "DIAM")) if "DIAM" in s.once else None
    if not radius:
        radius = stop_radius_from_clear_apertures(path, stop)
        if radius is None:
            raise context.parts.error("FLOA: the stop gives the aperture, but it has no DIAM", surface=s.number)
        context.notes.add(
            f"surface {s.number}: the stop has no size; radius {radius:.6g} mm from the axial beam that the clear "
            "apertures let through"
        )
    return Aperture("stop_radius", radius)


def _unit(parts: ZemaxFile, notes: Notes) -> float:
    line = parts.header.get("UNIT")
    if line is None:
        notes.add("the file states no unit; millimetres assumed")
        return 1.0
    word = line.words[0].upper() if line.words else ""
    if word not in UNITS:
        raise parts.error(f"UNIT {word[:20]!r}; known are {', '.join(UNITS)}", line=line.number)
    return UNITS[word]


def _refuse_modes(parts: ZemaxFile) -> None:
    mode = parts.header.get("MODE")
    if mode and mode.words and mode.words[0].upper() != "SEQ":
        raise parts.unsupported(f"MODE {clean(mode.text, 20)}: only sequential lenses", line=mode.number)


def refuse_unsupported(parts: ZemaxFile) -> None:
    """Raise for the first surface that is not a rotationally symmetric refracting one."""

    def fail(text: str, s: ZemaxSurface) -> LensFileError:
        return parts.unsupported(text, surface=s.number, line=s.line)

    for s in parts.surfaces:
        if s.type not in SHAPES:
            raise fail(f"surface type {clean(s.type, 20)} is not supported", s)
        glass = s.once.get("GLAS")
        if glass and glass.words and glass.words[0].upper() == "MIRROR":
            raise fail("MIRROR: reflecting surfaces are not supported", s)
    for s in parts.surfaces[1:-1]:
        for keyword in sorted(APERTURE_SHAPES & s.shapes.keys()):
            if keyword != "OBDC" or any(to_float(w) != 0.0 for w in s.shapes[keyword].words[:2]):
                raise fail(f"aperture {keyword}: only clear, centred, circular apertures are supported", s)


def _length(context: _Context, s: ZemaxSurface, keyword: str, position: int = 0) -> float:
    line = s.once.get(keyword)
    if line is None:
        raise context.parts.error(f"no {keyword}; is the file cut short?", line=s.line, surface=s.number)
    return context.parts.number(line, position, keyword, s.number) * context.unit


def _object_distance(context: _Context, s: ZemaxSurface) -> float:
    line = s.once.get("DISZ")
    distance = length_or_infinity(line.words[0], context.unit) if line and line.words else None
    return _length(context, s, "DISZ") if distance is None else distance


def _surface(context: _Context, s: ZemaxSurface) -> Surface:
    parts, once = context.parts, s.once
    curvature = once.get("CURV")
    if curvature is None:
        raise parts.error("no CURV; is the file cut short?", line=s.line, surface=s.number)
    radius = reciprocal(curvature.words[0] if curvature.words else "", context.unit)
    if radius is None:
        raise parts.error(f"CURV: {curvature.text[:40]!r} is not a number", line=curvature.number, surface=s.number)
    comment = once.get("COMM")
    return Surface(
        radius=radius,
        thickness=_length(context, s, "DISZ"),
        medium=_medium(context, s),
        semi_diameter=_semi_diameter(context, s),
        conic=parts.number(once["CONI"], 0, "CONI", s.number) if "CONI" in once else 0.0,
        aspheric=_aspheric(context, s),
        label=clean(comment.text) if comment else "",
    )


def _semi_diameter(context: _Context, s: ZemaxSurface) -> float | None:
    """A circular aperture if there is one, else the semi-diameter; 0 stands for an unknown one."""
    for keyword in ("CLAP", "FLAP"):
        if keyword in s.once:
            inner, outer = _length(context, s, keyword), _length(context, s, keyword, 1)
            if inner > 0.0:
                text = f"aperture {keyword} with a central obscuration"
                raise context.parts.unsupported(text, surface=s.number, line=s.line)
            if outer > 0.0:
                return outer
    if "DIAM" in s.once:
        return abs(_length(context, s, "DIAM")) or None
    return None


def _aspheric(context: _Context, s: ZemaxSurface) -> tuple[tuple[int, float], ...]:
    parts, terms = context.parts, {}
    if s.type in ("EVENASPH", "ODDASPHE"):
        step = 2 if s.type == "EVENASPH" else 1
        for i in range(1, _EVEN_PARAMETERS + 1):
            line = s.numbered.get(("PARM", i))
            if line is not None:
                terms[step * i] = (parts.number(line, 1, f"PARM {i}", s.number), 1.0)
    elif s.type in ("XASPHERE", "XOSPHERE"):
        step = 2 if s.type == "XASPHERE" else 1
        count = _extra(context, s, 1)
        reach = _extra(context, s, 2)
        if not 0 <= count <= 240 or (count and not reach > 0.0):
            text = f"{s.type}: {count:g} terms with the normalisation radius {reach:g}"
            raise parts.error(text, line=s.line, surface=s.number)
        for i in range(1, int(count) + 1):
            terms[step * i] = (_extra(context, s, i + 2), reach)
    result = []
    for power, (coefficient, reach) in sorted(terms.items()):
        if coefficient == 0.0:
            continue
        if power == 1:
            raise parts.unsupported(f"{s.type} with a term r^1 (a cone)", surface=s.number, line=s.line)
        # unit · (r / (reach · unit))^p; logarithms show an overflow before it happens
        scale = math.log10(context.unit) - power * math.log10(reach * context.unit)
        if abs(scale) > 250.0:
            raise parts.error(f"{s.type}: coefficient of r^{power} out of range", line=s.line, surface=s.number)
        result.append((power, coefficient * (context.unit / (reach * context.unit) ** power)))
    return tuple(result)


def _extra(context: _Context, s: ZemaxSurface, index: int) -> float:
    line = s.numbered.get(("XDAT", index))
    return context.parts.number(line, 1, f"XDAT {index}", s.number) if line else 0.0


def _medium(context: _Context, s: ZemaxSurface) -> Medium:
    ours = context.remarks.medium(s.number, context.media)
    if ours is not None:
        return ours
    line = s.once.get("GLAS")
    if line is None or not line.words:
        return AIR
    name, parts = line.words[0], context.parts
    solve = to_int(line.words[1]) if len(line.words) > 1 else 0
    if name.upper() == "___BLANK" or (solve == 1 and not context.media.knows(name)):
        nd, vd = parts.number(line, 3, "GLAS", s.number), parts.number(line, 4, "GLAS", s.number)
        if name.upper() != "___BLANK":
            context.notes.add(
                f"surface {s.number}: unknown glass {clean(name)} taken as the model nd = {nd:g}, vd = {vd:g}"
            )
        return context.media.model(nd, vd, s.number, line=line.number)
    return context.media.named(clean(name), s.number, line=line.number)


def _check_image(context: _Context, before: Medium) -> None:
    """A last surface that is no image plane shows that the file was cut short."""
    image = context.parts.surfaces[-1]
    thick = _length(context, image, "DISZ") != 0.0
    if thick or ("GLAS" in image.once and _medium(context, image) != before):
        text = f"the last surface {'has a thickness' if thick else 'starts a glass'}, so it is not the image"
        raise context.parts.error(f"{text}; is the file cut short?", surface=image.number, line=image.line)
    curvature = image.once.get("CURV")
    if curvature and curvature.words and to_float(curvature.words[0]) not in (0.0, None):
        context.notes.add(f"surface {image.number}: the image surface is curved; taken as a plane")


def _stop(parts: ZemaxFile) -> int:
    stops = [s.number for s in parts.surfaces if "STOP" in s.once]
    if len(stops) != 1:
        raise parts.error(f"{len(stops)} surfaces are marked STOP; expected one. Is the file cut short?")
    if not 1 <= stops[0] <= len(parts.surfaces) - 2:
        raise parts.error("the object or the image is marked STOP", surface=stops[0])
    return stops[0] - 1


def _wavelengths(context: _Context) -> tuple[tuple[float, ...], int]:
    parts = context.parts
    words = [w for _, w in sorted(parts.wavelengths.items())]
    count = _count(parts.header.get("FTYP"), 3)
    words = words[:count] if count and count > 0 else words
    if not words:
        context.notes.add("the file states no wavelength; the d line assumed")
        return (587.5618,), 0
    values = [scaled(w, 3) for w in words]
    for word, value in zip(words, values, strict=True):
        if value is None or not 100.0 <= value <= 20000.0:
            raise parts.error(f"wavelength {word[:40]} µm; expected 0.1 to 20")
    line = parts.header.get("PWAV")
    primary = (to_int(line.words[0]) if line and line.words else None) or 1
    if not 1 <= primary <= len(words):
        raise parts.error(f"PWAV {primary}, but there are {len(words)} wavelengths", line=line.number if line else None)
    return tuple(v for v in values if v is not None), primary - 1


def _count(line: ZemaxLine | None, position: int) -> int | None:
    return to_int(line.words[position]) if line and len(line.words) > position else None


def _field(context: _Context, object_distance: float) -> Field | None:
    parts, header = context.parts, context.parts.header
    kind_line = header.get("FTYP")
    x, y = header.get("XFLN", header.get("XFLD")), header.get("YFLN", header.get("YFLD"))
    if kind_line is None or y is None:
        return None
    number = _count(kind_line, 0)
    if number is None or not 0 <= number < len(FIELD_KINDS):
        raise parts.error(f"FTYP {kind_line.text[:40]}: unknown field type", line=kind_line.number)
    kind = FIELD_KINDS[number]
    scale = 1.0 if kind == "angle_deg" else context.unit
    count = min(_count(kind_line, 2) or len(y.words), len(y.words))
    if count < 1:
        raise parts.error("no field point", line=y.number)
    points = []
    for i in range(count):
        xi = parts.number(x, i, "XFLN") if x and i < len(x.words) else 0.0
        yi = parts.number(y, i, "YFLN")
        if number == 4 and xi and yi:
            raise parts.unsupported("theodolite angles off both axes", line=kind_line.number)
        points.append((xi * scale, yi * scale))
    if kind == "object_height" and math.isinf(object_distance):
        raise parts.error("fields are object heights, but the object is at infinity", line=kind_line.number)
    if _count(kind_line, 1):
        context.notes.add("object space is telecentric in the file; here the stop decides on the rays")
    return Field(kind, tuple(points))
