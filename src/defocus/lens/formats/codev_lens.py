"""From a parsed .seq file to a lens."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ...glass import AIR, Medium
from ..prescription import Field, FieldKind, Lens, Surface
from .assemble import FallbackGlass, Media, Notes, NumberedSurfaces, with_states
from .codev import ASPHERIC, CodeVFile, CodeVSurface, parse
from .codev_zoom import object_distance_of, read_zoom, system_aperture, values_of
from .text import clean, reciprocal, to_float, to_floats

UNITS = {"M": 1.0, "C": 10.0, "I": 25.4}
FIELDS: dict[str, FieldKind] = {
    "AN": "angle_deg",
    "OB": "object_height",
    "IM": "paraxial_image_height",
    "RI": "real_image_height",
}


def read_codev(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of a .seq file; zoom positions become states."""
    parts = parse(text, file)
    notes = Notes()
    media = Media(file, notes, fallback_glass)
    unit = _unit(parts)
    radius_mode = _radius_mode(parts, notes)
    surfaces = [_surface(parts, s, unit, radius_mode, media) for s in parts.surfaces[1:]]
    if not surfaces:
        raise parts.error("no surface between the object SO and the image")
    defocus = _image(parts, unit, notes)
    surfaces[-1] = replace(surfaces[-1], thickness=surfaces[-1].thickness + defocus)
    stop = _stop(parts, notes)
    object_distance = object_distance_of(parts, parts.surfaces[0].thickness, unit)
    object_medium = _medium(parts, parts.surfaces[0], media)
    zoom = read_zoom(parts, unit)
    numbered = NumberedSurfaces(parts, notes, surfaces, stop, object_distance, object_medium)
    numbered.drop_leading_dummies({s.number for s in parts.surfaces if s.clear or s.edge} | zoom.thickness.keys())
    wavelengths, primary = _wavelengths(parts)
    field = _field(parts, unit, numbered.object_distance)
    title = parts.system.get("TIT")
    if parts.unknown:
        notes.add("commands without a meaning here: " + ", ".join(sorted(set(parts.unknown))[:20]))
    lens = numbered.lens(
        name=clean(" ".join(w.text for w in title.words)) if title else "",
        aperture=system_aperture(parts, numbered.axial_path(wavelengths[primary]), unit),
        field=field,
        image_radius=field and field.image_radius,
        wavelengths_nm=wavelengths,
        primary_wavelength=primary,
    )
    states = zoom.states(parts, lens, numbered.numbers, unit, defocus)
    return with_states(lens, states, file, numbered.numbers) if states else lens


def _unit(parts: CodeVFile) -> float:
    command = parts.system.get("DIM")
    if command is None:
        return 1.0
    word = command.words[0].text.upper() if command.words else ""
    if word[:1] not in UNITS:
        raise parts.error(f"DIM {word[:20]!r}; known are M (mm), C (cm) and I (inch)", line=command.line)
    return UNITS[word[:1]]


def _radius_mode(parts: CodeVFile, notes: Notes) -> bool:
    """Whether S lines give radii (RDM Y) or curvatures (RDM N).

    CODE V itself starts in curvature mode and writes RDM into every file that it saves. Files written by
    hand or by other programs may lack it: then numbers that are all below 1 in size are curvatures,
    numbers that are all above 1 are radii, and a mixture is refused.
    """
    command = parts.system.get("RDM")
    if command is not None:
        return not command.words or command.words[0].text.upper() != "N"
    sizes = [abs(v) for s in parts.surfaces[1:] if s.is_radius is None and (v := to_float(s.radius))]
    if sizes and min(sizes) < 1.0 <= max(sizes):
        raise parts.error("no RDM line, and the numbers could be radii or curvatures; add RDM Y or RDM N")
    radii = not sizes or min(sizes) >= 1.0
    if sizes:
        notes.add(f"no RDM line; the surface lines are taken as {'radii' if radii else 'curvatures'}")
    return radii


def _number(parts: CodeVFile, word: str, what: str, s: CodeVSurface) -> float:
    value = to_float(word)
    if value is None:
        raise parts.error(f"{what}: {clean(word, 40)!r} is not a number", line=s.line, surface=s.number)
    return value


def _surface(parts: CodeVFile, s: CodeVSurface, unit: float, radius_mode: bool, media: Media) -> Surface:
    by_radius = radius_mode if s.is_radius is None else s.is_radius
    if by_radius:
        infinite = s.radius.lower() in ("inf", "infinity")
        radius = math.inf if infinite else _number(parts, s.radius, "radius", s) * unit or math.inf
    else:
        _number(parts, s.radius, "curvature", s)
        radius = reciprocal(s.radius, unit) or math.inf
    terms = sorted((ASPHERIC[k], v) for k, v in s.terms.items() if k in ASPHERIC and v)
    return Surface(
        radius=radius,
        thickness=_number(parts, s.thickness, "thickness", s) * unit,
        medium=_medium(parts, s, media),
        semi_diameter=(s.clear or s.edge or 0.0) * unit or None,
        conic=s.terms.get("K", 0.0),
        aspheric=tuple((power, value * (unit / unit**power)) for power, value in terms),
        label=clean(s.label),
    )


def _medium(parts: CodeVFile, s: CodeVSurface, media: Media) -> Medium:
    if s.glass is None or s.glass.text.upper() in ("", "AIR"):
        return AIR
    name = clean(s.glass.text)
    private = parts.glasses.get(s.glass.text.upper())
    if private is not None:
        indices = to_floats([w.text for w in private.words])
        if not private.wavelengths_nm or indices is None:
            text = f"glass {name!r} of the PRV table is not given by indices"
            raise parts.unsupported(text, surface=s.number, line=private.line)
        return media.table(name, private.wavelengths_nm, indices, s.number, line=private.line)
    code = media.code(name, s.number, line=s.line)
    if code is not None:
        return code
    base, _, maker = name.rpartition("_")
    if base and maker and media.knows(base, maker):
        return media.named(base, s.number, catalogue=maker, line=s.line)
    return media.named(name, s.number, line=s.line)


def _image(parts: CodeVFile, unit: float, notes: Notes) -> float:
    """The image plane's shift in mm: a thickness on SI moves it away from the last distance."""
    image = parts.image
    if image is None:
        notes.add("no image surface SI; the image is taken at the end of the last distance")
        return 0.0
    if to_float(image.radius):
        notes.add(f"surface {image.number}: the image surface is curved; taken as a plane")
    return _number(parts, image.thickness, "thickness", image) * unit


def _stop(parts: CodeVFile, notes: Notes) -> int:
    stops = [s.number for s in parts.surfaces if s.stop]
    if len(stops) > 1 or 0 in stops:
        raise parts.error(f"surfaces {', '.join(map(str, stops[:10]))} are marked STO; expected one")
    if not stops:
        notes.add("no STO; surface 1 is the stop")
    return stops[0] - 1 if stops else 0


def _wavelengths(parts: CodeVFile) -> tuple[tuple[float, ...], int]:
    command = parts.system.get("WL")
    if command is None:
        raise parts.error("no wavelengths (WL)")
    values = values_of(parts, command)
    if len(values) > 100:
        raise parts.error(f"WL: {len(values)} wavelengths", line=command.line)
    reference = parts.system.get("REF")
    number = int(values_of(parts, reference)[0]) if reference else (len(values) + 1) // 2  # CODE V: the middle one
    if not 1 <= number <= len(values):
        raise parts.error(
            f"REF {number}, but there are {len(values)} wavelengths",
            line=reference.line if reference else None,
        )
    return tuple(values), number - 1


def _field(parts: CodeVFile, unit: float, object_distance: float) -> Field | None:
    kinds = [k for k in FIELDS if f"X{k}" in parts.system or f"Y{k}" in parts.system]
    if len(kinds) > 1:
        raise parts.error("fields of several kinds: " + ", ".join(f"Y{k}" for k in kinds))
    if not kinds:
        return None
    kind = FIELDS[kinds[0]]
    if kind == "object_height" and math.isinf(object_distance):
        raise parts.error("fields are object heights, but the object is at infinity")
    scale = 1.0 if kind == "angle_deg" else unit
    x, y = (
        [v * scale for v in values_of(parts, c)] if (c := parts.system.get(axis + kinds[0])) else [] for axis in "XY"
    )
    count = max(len(x), len(y))
    if count > 1000:
        raise parts.error(f"{count} field points")
    x, y = x + [0.0] * (count - len(x)), y + [0.0] * (count - len(y))
    return Field(kind, tuple(zip(x, y, strict=True)))
