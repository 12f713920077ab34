"""Optical Bench text: tab-separated prescriptions, as collected from patents.

`[lens data]` has a row per surface: number, radius (or Infinity, AS: aperture stop, FS: field stop, CG:
cover glass), thickness (or the name of a variable distance), nd, clear diameter, vd, glass name.
`[variable distances]` has a column per state, `[aspherical data]` a row per asphere: surface, radius,
conic constant, then the coefficients of r⁴, r⁶, ... Lengths are in mm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...errors import LensFileError
from ...glass import AIR, Medium
from ..prescription import MAX_SURFACES, Aperture, Lens, State, Surface
from .assemble import FallbackGlass, Media, Notes, make_lens, stop_aperture, with_states
from .text import INFINITY_MM, clean, to_float, to_int

MAX_STATES = 200
_PLANES = ("AS", "FS", "CG")


class BenchRow(NamedTuple):
    """The cells of a line."""

    cells: list[str]
    line: int

    def cell(self, column: int) -> str:
        return self.cells[column] if column < len(self.cells) else ""


@dataclass
class BenchFile:
    """The sections of a file that matter to us."""

    file: str | Path
    title: str = ""
    surfaces: list[BenchRow] = field(default_factory=list)
    variables: dict[str, BenchRow] = field(default_factory=dict)
    aspheres: list[BenchRow] = field(default_factory=list)

    def error(self, message: str, row: BenchRow, surface: int | None = None) -> LensFileError:
        return LensFileError(message, file=self.file, line=row.line, surface=surface)

    def value(self, name: str, state: int) -> float | None:
        """A variable in one state, in mm; None if it is missing or undefined."""
        row = self.variables.get(name)
        if row is None:
            return None
        word = row.cell(state + 1)
        return math.inf if word.lower() in ("infinity", "inf") else to_float(word)

    @property
    def states(self) -> int:
        """How many columns the variable distances have."""
        return max((sum(1 for c in r.cells[1:] if c) for r in self.variables.values()), default=0)


def parse(text: str, file: str | Path) -> BenchFile:
    """Split the text into its sections."""
    result, section = BenchFile(file), ""
    for number, raw in enumerate(text.split("\n"), start=1):
        cells = [c.strip() for c in raw.split("\t")]
        if not any(cells):
            continue
        row = BenchRow(cells[:1000], number)
        if cells[0].startswith("[") and cells[0].endswith("]"):
            section = cells[0][1:-1].strip().lower()
        elif section == "descriptive data" and cells[0].lower() == "title":
            result.title = clean(row.cell(1))
        elif section in ("variable distances", "constants"):
            result.variables.setdefault(cells[0], row)
        elif section == "lens data":
            result.surfaces.append(row)
            if len(result.surfaces) > MAX_SURFACES:
                raise result.error(f"more than {MAX_SURFACES} surfaces", row)
        elif section == "aspherical data":
            result.aspheres.append(row)
    if not result.surfaces:
        raise LensFileError("no [lens data]: not an Optical Bench file, or one cut short", file=file)
    if result.states > MAX_STATES:
        raise LensFileError(f"{result.states} columns of variable distances; expected at most {MAX_STATES}", file=file)
    return result


def read_opticalbench(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of an Optical Bench file: its first column, and one state per column if there are several."""
    parts = parse(text, file)
    notes = Notes()
    media = Media(file, notes, fallback_glass)
    numbers = [_number(parts, row) for row in parts.surfaces]
    if len(set(numbers)) != len(numbers):
        raise LensFileError("a surface number occurs twice", file=file)
    aspheres = _aspheres(parts, numbers)
    surfaces = [
        _surface(parts, row, number, media, aspheres.get(number))
        for row, number in zip(parts.surfaces, numbers, strict=True)
    ]
    stop = _stop(parts, numbers)
    radius = _stop_radius(parts, 0) or surfaces[stop].semi_diameter
    aperture = stop_aperture(radius) or _f_number(parts, 0)
    if aperture is None:
        raise LensFileError("no aperture: neither the stop's diameter nor a F-Number", file=file, surface=numbers[stop])
    lens = make_lens(
        file,
        numbers,
        notes,
        name=parts.title,
        surfaces=tuple(surfaces),
        stop=stop,
        aperture=aperture,
        image_radius=_half(parts.value("Image Height", 0)),
        object_distance=_object_distance(parts, 0),
    )
    if parts.states < 2:
        return lens
    states = [_state(parts, lens, numbers, k, name) for k, name in enumerate(_state_names(parts))]
    return with_states(lens, states, file, numbers)


def _number(parts: BenchFile, row: BenchRow) -> int:
    number = to_int(row.cell(0))
    if number is None:
        raise parts.error(f"[lens data]: {clean(row.cell(0), 40)!r} is not a surface number", row)
    return number


def _surface(
    parts: BenchFile,
    row: BenchRow,
    number: int,
    media: Media,
    asphere: tuple[float, tuple[tuple[int, float], ...]] | None,
) -> Surface:
    word = row.cell(1)
    plane = word.upper() in _PLANES or word.lower() in ("infinity", "inf", "0")
    radius = math.inf if plane else to_float(word)
    if radius is None:
        raise parts.error(f"radius {clean(word, 40)!r}; expected a number, Infinity, AS, FS or CG", row, number)
    diameter = to_float(row.cell(4))
    conic, terms = asphere or (0.0, ())
    return Surface(
        radius=radius or math.inf,
        thickness=_thickness(parts, row, number, 0),
        medium=_medium(parts, row, number, media),
        semi_diameter=_half(diameter),
        conic=conic,
        aspheric=terms,
        label={"FS": "field stop", "CG": "cover glass"}.get(word.upper(), ""),
    )


def _thickness(parts: BenchFile, row: BenchRow, number: int, state: int) -> float:
    """A number, or the name of a variable distance; each distance stands in one place only."""
    word = row.cell(2)
    value = to_float(word)
    if value is None:
        value = parts.value(word, state) if word in parts.variables else None
        if value is None or math.isinf(value):
            raise parts.error(f"thickness {clean(word, 40)!r} is neither a number nor a variable distance", row, number)
    return value


def _medium(parts: BenchFile, row: BenchRow, number: int, media: Media) -> Medium:
    """From the patent's own nd and vd; a glass name without them is looked up."""
    nd, vd, name = to_float(row.cell(3)), to_float(row.cell(5)), row.cell(6)
    if nd is not None:
        return media.model(nd, vd, number, line=row.line)
    if row.cell(3):
        raise parts.error(f"nd {clean(row.cell(3), 40)!r} is not a number", row, number)
    return media.named(clean(name), number, line=row.line) if name else AIR


def _aspheres(parts: BenchFile, numbers: list[int]) -> dict[int, tuple[float, tuple[tuple[int, float], ...]]]:
    result = {}
    for row in parts.aspheres:
        number = to_int(row.cell(0))
        if number is None or number not in numbers:
            raise parts.error(f"[aspherical data]: there is no surface {clean(row.cell(0), 40)!r}", row)
        values = [0.0 if not c else to_float(c) for c in row.cells[2:]]
        if any(v is None for v in values):
            raise parts.error("[aspherical data]: a coefficient is not a number", row, number)
        conic, *terms = [v for v in values if v is not None] or [0.0]
        result[number] = (conic, tuple((4 + 2 * i, v) for i, v in enumerate(terms) if v))
    return result


def _stop(parts: BenchFile, numbers: list[int]) -> int:
    stops = [i for i, row in enumerate(parts.surfaces) if row.cell(1).upper() == "AS"]
    if len(stops) != 1:
        raise LensFileError(
            f"{len(stops)} aperture stops (AS) among surfaces {numbers[0]} to {numbers[-1]}; expected one",
            file=parts.file,
        )
    return stops[0]


def _half(diameter: float | None) -> float | None:
    return abs(diameter) / 2.0 or None if diameter is not None else None


def _stop_radius(parts: BenchFile, state: int) -> float | None:
    return _half(parts.value("Aperture Diameter", state))


def _f_number(parts: BenchFile, state: int) -> Aperture | None:
    value = parts.value("F-Number", state)
    return Aperture("f_number", value) if value is not None and value > 0.0 else None


def _object_distance(parts: BenchFile, state: int) -> float:
    distance = parts.value("d0", state)
    return math.inf if distance is None or distance >= INFINITY_MM else distance


def _state(parts: BenchFile, lens: Lens, numbers: list[int], k: int, name: str) -> State:
    radius = _stop_radius(parts, k)
    return State(
        name=name,
        thickness=tuple(
            (i, _thickness(parts, row, numbers[i], k))
            for i, row in enumerate(parts.surfaces)
            if row.cell(2) in parts.variables
        ),
        semi_diameter=((lens.stop, radius),) if radius and lens.surfaces[lens.stop].semi_diameter else (),
        object_distance=_object_distance(parts, k),
        aperture=stop_aperture(radius) or (_f_number(parts, k) if lens.aperture.kind == "f_number" else None),
        image_radius=_half(parts.value("Image Height", k)),
    )


def _state_names(parts: BenchFile) -> list[str]:
    """24mm, 24mm m=-0.025: the focal length, and the magnification of a close focus.

    Columns for a close focus often leave the focal length undefined; they repeat the zoom positions of
    the columns for infinity in the same order.
    """
    focal = [parts.value("Focal Length", k) for k in range(parts.states)]
    focal_lengths = [f for f in focal if f is not None]
    cycle = (
        bool(focal_lengths)
        and parts.states % len(focal_lengths) == 0
        and all(f is not None for f in focal[: len(focal_lengths)])
    )
    names = []
    for k in range(parts.states):
        f = focal_lengths[k % len(focal_lengths)] if cycle else focal[k]
        words = [f"{f:.4g}mm"] if f is not None else []
        magnification, distance = parts.value("Magnification", k), _object_distance(parts, k)
        if magnification:
            words.append(f"m={magnification:g}")
        elif math.isfinite(distance):
            words.append(f"d0={distance:g}mm")
        names.append(" ".join(words) or f"column {k + 1}")
    return names
