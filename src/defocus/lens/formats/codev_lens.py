"""From a parsed .seq file to a lens; zoom positions become states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from ...glass import AIR, Medium, model_glass, parse_glass_code, tabulated_glass
from ..first_order import AxialPath, path_through
from ..prescription import Aperture, Field, FieldKind, Lens, State, Surface
from .assemble import FallbackGlass, NumberedSurfaces, length_or_infinity, paraxial_aperture
from .codev import ASPHERIC, CodeVFile, CodeVSurface, parse
from .text import clean, reciprocal, to_float, to_floats, to_int

UNITS = {"M": 1.0, "C": 10.0, "I": 25.4}
FIELDS: dict[str, FieldKind] = {
    "AN": "angle_deg",
    "OB": "object_height",
    "IM": "paraxial_image_height",
    "RI": "real_image_height",
}
APERTURES = {"EPD": "entrance_pupil_diameter", "FNO": "working_f_number", "NA": "image_na", "NAO": "object_na"}


def read_codev(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of a .seq file."""
    parts = CodeVFile(file, fallback_glass)
    parse(text, parts)
    parts.unit = _unit(parts)
    radius_mode = _radius_mode(parts)
    surfaces = [_surface(parts, s, radius_mode) for s in parts.surfaces[1:]]
    if not surfaces:
        raise parts.error("no surface between the object SO and the image")
    defocus = _image_shift(parts)
    surfaces[-1] = replace(surfaces[-1], thickness=surfaces[-1].thickness + defocus)
    object_distance = _object_distance(parts, parts.surfaces[0].thickness)
    zoom = _zoom(parts)
    numbered = NumberedSurfaces(parts, surfaces, _stop(parts), object_distance, _medium(parts, parts.surfaces[0]))
    numbered.drop_leading_dummies({s.number for s in parts.surfaces if s.clear or s.edge} | zoom.thickness.keys())
    wavelengths, primary = _wavelengths(parts)
    title = parts.system.get("TIT")
    if parts.unknown:
        parts.note("commands without a meaning here: " + ", ".join(sorted(set(parts.unknown))[:20]))
    lens = numbered.lens(
        name=clean(" ".join(w.text for w in title.words)) if title else "",
        aperture=_system_aperture(parts, numbered.axial_path(wavelengths[primary])),
        field=_field(parts),
        wavelengths_nm=wavelengths,
        primary_wavelength=primary,
    )
    if parts.zooms == 1:
        return lens
    states = [_state(parts, zoom, k, lens, numbered.numbers, defocus) for k in range(parts.zooms)]
    return parts.with_states(lens, states, numbered.numbers)


def _unit(parts: CodeVFile) -> float:
    command = parts.system.get("DIM")
    if command is None:
        return 1.0
    word = command.words[0].text.upper() if command.words else ""
    if word[:1] not in UNITS:
        raise parts.error(f"DIM {word[:20]!r}; known are M (mm), C (cm) and I (inch)", line=command.line)
    return UNITS[word[:1]]


def _radius_mode(parts: CodeVFile) -> bool:
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
        parts.note(f"no RDM line; the surface lines are taken as {'radii' if radii else 'curvatures'}")
    return radii


def _surface(parts: CodeVFile, s: CodeVSurface, radius_mode: bool) -> Surface:
    def number(word: str, what: str) -> float:
        return parts.number(word, what, line=s.line, surface=s.number)

    if radius_mode if s.is_radius is None else s.is_radius:
        infinite = s.radius.lower() in ("inf", "infinity")
        radius = math.inf if infinite else number(s.radius, "radius") * parts.unit or math.inf
    else:
        number(s.radius, "curvature")
        radius = reciprocal(s.radius, parts.unit) or math.inf
    terms = sorted((ASPHERIC[k], v) for k, v in s.terms.items() if k in ASPHERIC and v)
    return Surface(
        radius=radius,
        thickness=number(s.thickness, "thickness") * parts.unit,
        medium=_medium(parts, s),
        semi_diameter=(s.clear or s.edge or 0.0) * parts.unit or None,
        conic=s.terms.get("K", 0.0),
        aspheric=tuple((power, value * (parts.unit / parts.unit**power)) for power, value in terms),
        label=clean(s.label),
    )


def _medium(parts: CodeVFile, s: CodeVSurface) -> Medium:
    if s.glass is None or s.glass.text.upper() in ("", "AIR"):
        return AIR
    name = clean(s.glass.text)
    private = parts.glasses.get(s.glass.text.upper())
    if private is not None:
        indices = to_floats([w.text for w in private.words])
        if not private.wavelengths_nm or indices is None:
            text = f"glass {name!r} of the PRV table is not given by indices"
            raise parts.unsupported(text, surface=s.number, line=private.line)
        with parts.refusals(surface=s.number, line=private.line):
            return tabulated_glass(name, private.wavelengths_nm, indices)
    with parts.refusals(surface=s.number, line=s.line):
        code = parse_glass_code(name)
        if code is not None:
            return model_glass(code.nd, code.vd)
    base, _, maker = name.rpartition("_")
    if base and maker and parts.has_glass(base, maker):
        return parts.glass(base, s.number, catalogue=maker, line=s.line)
    return parts.glass(name, s.number, line=s.line)


def _image_shift(parts: CodeVFile) -> float:
    """The image plane's shift in mm: a thickness on SI moves it away from the last distance."""
    image = parts.image
    if image is None:
        parts.note("no image surface SI; the image is taken at the end of the last distance")
        return 0.0
    if to_float(image.radius):
        parts.note(f"surface {image.number}: the image surface is curved; taken as a plane")
    return parts.number(image.thickness, "thickness", line=image.line, surface=image.number) * parts.unit


def _stop(parts: CodeVFile) -> int:
    stops = [s.number for s in parts.surfaces if s.stop]
    if len(stops) > 1 or 0 in stops:
        raise parts.error(f"surfaces {', '.join(map(str, stops[:10]))} are marked STO; expected one")
    if not stops:
        parts.note("no STO; surface 1 is the stop")
    return stops[0] - 1 if stops else 0


def _object_distance(parts: CodeVFile, word: str) -> float:
    """Thickness of SO in mm."""
    distance = length_or_infinity(word, parts.unit)
    return parts.number(word, "SO", surface=0) if distance is None else distance


def _wavelengths(parts: CodeVFile) -> tuple[tuple[float, ...], int]:
    command, reference = parts.system.get("WL"), parts.system.get("REF")
    if command is None:
        raise parts.error("no wavelengths (WL)")
    values = parts.numbers(command)
    if len(values) > 100:
        raise parts.error(f"WL: {len(values)} wavelengths", line=command.line)
    number = int(parts.numbers(reference)[0]) if reference else (len(values) + 1) // 2  # CODE V: the middle one
    if not 1 <= number <= len(values):
        line = reference.line if reference else None
        raise parts.error(f"REF {number}, but there are {len(values)} wavelengths", line=line)
    return tuple(values), number - 1


def _field(parts: CodeVFile) -> Field | None:
    kinds = [k for k in FIELDS if f"X{k}" in parts.system or f"Y{k}" in parts.system]
    if len(kinds) > 1:
        raise parts.error("fields of several kinds: " + ", ".join(f"Y{k}" for k in kinds))
    if not kinds:
        return None
    kind = FIELDS[kinds[0]]
    scale = 1.0 if kind == "angle_deg" else parts.unit
    commands = [parts.system.get(axis + kinds[0]) for axis in "XY"]
    x, y = ([v * scale for v in parts.numbers(c)] if c else [] for c in commands)
    count = max(len(x), len(y))
    if count > 1000:
        raise parts.error(f"{count} field points")
    return Field(kind, tuple(zip_longest(x, y, fillvalue=0.0)))


def _system_aperture(parts: CodeVFile, path: AxialPath, setting: tuple[str, float] | None = None) -> Aperture:
    """The aperture of the file, or that of a zoom position: `setting` is its keyword and value."""
    if setting is None:
        keyword = next((k for k in APERTURES if k in parts.system), None)
        if keyword is None:
            raise parts.error(f"no aperture; expected one of {', '.join(APERTURES)}")
        setting = keyword, parts.numbers(parts.system[keyword])[0]
    return paraxial_aperture(parts, path, setting[0], APERTURES[setting[0]], setting[1])


@dataclass
class Zoom:
    """What ZOO commands change: one value for each position."""

    thickness: dict[int, list[float]] = field(default_factory=dict)  # surface → mm
    image_shift: list[float] | None = None  # mm
    object_distance: list[float] | None = None  # mm
    aperture: tuple[str, list[float]] | None = None


def _zoom(parts: CodeVFile) -> Zoom:
    """ZOO THI Sk and ZOO EPD, FNO, NA or NAO; anything else that changes is refused."""
    zoom = Zoom()
    for command in parts.zoomed:
        what = command.words[0].text.upper() if command.words else ""
        words = command.words[1:]
        target = ""
        if what == "THI" and words:
            target, words = words[0].text.upper(), words[1:]
        if what not in APERTURES and (what != "THI" or (target not in ("SO", "SI") and not target[1:].isdigit())):
            text = f"ZOO {clean(what, 20)}: only distances (ZOO THI Sk) and the aperture may change"
            raise parts.unsupported(text, line=command.line)
        values = parts.numbers(command._replace(words=words))
        if len(values) != parts.zooms:
            raise parts.error(f"ZOO {what}: {len(values)} values for {parts.zooms} positions", line=command.line)
        if what != "THI":
            zoom.aperture = (what, values)
        elif target == "SI":
            zoom.image_shift = [v * parts.unit for v in values]
        elif target in ("SO", "S0"):
            zoom.object_distance = [_object_distance(parts, repr(v)) for v in values]
        else:
            number = to_int(target[1:])
            if number is None or not 1 <= number < len(parts.surfaces):
                raise parts.error(f"ZOO THI {clean(target, 20)}: there is no such surface", line=command.line)
            zoom.thickness[number] = [v * parts.unit for v in values]
    return zoom


def _state(parts: CodeVFile, zoom: Zoom, k: int, lens: Lens, numbers: Sequence[int], defocus: float) -> State:
    """Position k, from 0; `defocus` is the image shift that the lens already holds."""
    thickness = {numbers.index(n): values[k] for n, values in zoom.thickness.items()}
    last = len(lens.surfaces) - 1
    shift = defocus if zoom.image_shift is None else zoom.image_shift[k]
    thickness[last] = thickness.get(last, lens.surfaces[last].thickness - defocus) + shift
    distance = lens.object_distance if zoom.object_distance is None else zoom.object_distance[k]
    setting = (zoom.aperture[0], zoom.aperture[1][k]) if zoom.aperture else None
    return State(
        name=f"zoom {k + 1}",
        thickness=tuple(sorted(thickness.items())),
        object_distance=distance,
        aperture=_system_aperture(parts, path_through(lens, distance, thickness), setting),
    )
