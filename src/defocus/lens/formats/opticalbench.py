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

from ...glass import AIR, Medium, model_glass
from ..prescription import MAX_SURFACES, Aperture, Lens, State, Surface
from .assemble import FallbackGlass, LensSource
from .text import INFINITY_MM, clean, to_float, to_int

MAX_STATES = 200
_PLANES = ("as", "fs", "cg", "infinity", "inf", "0")
_LABELS = {"FS": "field stop", "CG": "cover glass"}


class BenchRow(NamedTuple):
    """The cells of a line."""

    cells: list[str]
    line: int

    def cell(self, column: int) -> str:
        return self.cells[column] if column < len(self.cells) else ""


@dataclass
class BenchFile(LensSource):
    """The sections of a file that matter to us."""

    title: str = ""
    surfaces: list[BenchRow] = field(default_factory=list)
    variables: dict[str, BenchRow] = field(default_factory=dict)
    aspheres: list[BenchRow] = field(default_factory=list)

    def value(self, name: str, state: int) -> float | None:
        """A variable in one state, in mm; None if it is missing or undefined."""
        row = self.variables.get(name)
        if row is None:
            return None
        word = row.cell(state + 1)
        return math.inf if word.lower() in ("infinity", "inf") else to_float(word)

    def half(self, name: str, state: int) -> float | None:
        """Half of a variable's size in one state; None if it is missing, undefined or 0."""
        return _half(self.value(name, state))

    def object_distance(self, state: int) -> float:
        """mm, inf where the file gives none."""
        distance = self.value("d0", state)
        return math.inf if distance is None or distance >= INFINITY_MM else distance

    @property
    def states(self) -> int:
        """How many columns the variable distances have."""
        return max((sum(1 for c in r.cells[1:] if c) for r in self.variables.values()), default=0)


def parse(text: str, result: BenchFile) -> None:
    """Split the text into its sections."""
    section = ""
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
                raise result.error(f"more than {MAX_SURFACES} surfaces", line=number)
        elif section == "aspherical data":
            result.aspheres.append(row)
    if not result.surfaces:
        raise result.error("no [lens data]: not an Optical Bench file, or one cut short")
    if result.states > MAX_STATES:
        raise result.error(f"{result.states} columns of variable distances; expected at most {MAX_STATES}")


def read_opticalbench(text: str, file: str | Path, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens of an Optical Bench file: its first column, and one state per column if there are several."""
    parts = BenchFile(file, fallback_glass)
    parse(text, parts)
    numbers = [_number(parts, row) for row in parts.surfaces]
    if len(set(numbers)) != len(numbers):
        raise parts.error("a surface number occurs twice")
    aspheres = _aspheres(parts, numbers)
    surfaces = [
        _surface(parts, row, number, *aspheres.get(number, (0.0, ())))
        for row, number in zip(parts.surfaces, numbers, strict=True)
    ]
    stops = [i for i, row in enumerate(parts.surfaces) if row.cell(1).upper() == "AS"]
    if len(stops) != 1:
        among = f"among surfaces {numbers[0]} to {numbers[-1]}"
        raise parts.error(f"{len(stops)} aperture stops (AS) {among}; expected one")
    stop = stops[0]
    radius = parts.half("Aperture Diameter", 0) or surfaces[stop].semi_diameter
    aperture = _stop_aperture(radius) or _f_number(parts, 0)
    if aperture is None:
        raise parts.error("no aperture: neither the stop's diameter nor a F-Number", surface=numbers[stop])
    lens = parts.lens(
        numbers,
        name=parts.title,
        surfaces=tuple(surfaces),
        stop=stop,
        aperture=aperture,
        image_radius=parts.half("Image Height", 0),
        object_distance=parts.object_distance(0),
    )
    if parts.states < 2:
        return lens
    states = [_state(parts, lens, numbers, k, name) for k, name in enumerate(_state_names(parts))]
    return parts.with_states(lens, states, numbers)


def _number(parts: BenchFile, row: BenchRow) -> int:
    number = to_int(row.cell(0))
    if number is None:
        raise parts.error(f"[lens data]: {clean(row.cell(0), 40)!r} is not a surface number", line=row.line)
    return number


def _surface(
    parts: BenchFile, row: BenchRow, number: int, conic: float, terms: tuple[tuple[int, float], ...]
) -> Surface:
    word = row.cell(1)
    radius = math.inf if word.lower() in _PLANES else to_float(word)
    if radius is None:
        text = f"radius {clean(word, 40)!r}; expected a number, Infinity, AS, FS or CG"
        raise parts.error(text, line=row.line, surface=number)
    return Surface(
        radius=radius or math.inf,
        thickness=_thickness(parts, row, number, 0),
        medium=_medium(parts, row, number),
        semi_diameter=_half(to_float(row.cell(4))),
        conic=conic,
        aspheric=terms,
        label=_LABELS.get(word.upper(), ""),
    )


def _thickness(parts: BenchFile, row: BenchRow, number: int, state: int) -> float:
    """A number, or the name of a variable distance; each distance stands in one place only."""
    word = row.cell(2)
    value = to_float(word)
    if value is None:
        value = parts.value(word, state)
        if value is None or math.isinf(value):
            text = f"thickness {clean(word, 40)!r} is neither a number nor a variable distance"
            raise parts.error(text, line=row.line, surface=number)
    return value


def _medium(parts: BenchFile, row: BenchRow, number: int) -> Medium:
    """From the patent's own nd and vd; a glass name without them is looked up."""
    if row.cell(3):
        nd, vd = parts.number(row.cell(3), "nd", line=row.line, surface=number), to_float(row.cell(5))
        with parts.refusals(surface=number, line=row.line):
            return model_glass(nd, vd)
    return parts.glass(clean(row.cell(6)), number, line=row.line) if row.cell(6) else AIR


def _aspheres(parts: BenchFile, numbers: list[int]) -> dict[int, tuple[float, tuple[tuple[int, float], ...]]]:
    """Conic constant and terms (power, coefficient) of each aspheric surface."""
    result = {}
    for row in parts.aspheres:
        number = to_int(row.cell(0))
        if number is None or number not in numbers:
            text = f"[aspherical data]: there is no surface {clean(row.cell(0), 40)!r}"
            raise parts.error(text, line=row.line)
        conic, *terms = [
            parts.number(c or "0", "aspheric coefficient", line=row.line, surface=number) for c in row.cells[2:]
        ] or [0.0]
        result[number] = (conic, tuple((4 + 2 * i, v) for i, v in enumerate(terms) if v))
    return result


def _half(diameter: float | None) -> float | None:
    return abs(diameter) / 2.0 or None if diameter is not None else None


def _stop_aperture(radius: float | None) -> Aperture | None:
    return Aperture("stop_radius", radius) if radius is not None and 0.0 < radius < math.inf else None


def _f_number(parts: BenchFile, state: int) -> Aperture | None:
    value = parts.value("F-Number", state)
    return Aperture("f_number", value) if value is not None and value > 0.0 else None


def _state(parts: BenchFile, lens: Lens, numbers: list[int], k: int, name: str) -> State:
    radius = parts.half("Aperture Diameter", k)
    return State(
        name=name,
        thickness=tuple(
            (i, _thickness(parts, row, numbers[i], k))
            for i, row in enumerate(parts.surfaces)
            if row.cell(2) in parts.variables
        ),
        semi_diameter=((lens.stop, radius),) if radius and lens.surfaces[lens.stop].semi_diameter else (),
        object_distance=parts.object_distance(k),
        aperture=_stop_aperture(radius) or (_f_number(parts, k) if lens.aperture.kind == "f_number" else None),
        image_radius=parts.half("Image Height", k),
    )


def _state_names(parts: BenchFile) -> list[str]:
    """24mm, 24mm m=-0.025: the focal length, and the magnification of a close focus.

    Columns for a close focus often leave the focal length undefined; they repeat the zoom positions of
    the columns for infinity in the same order.
    """
    focal = [parts.value("Focal Length", k) for k in range(parts.states)]
    zooms = [f for f in focal if f is not None]
    if zooms and parts.states % len(zooms) == 0 and None not in focal[: len(zooms)]:
        focal = [*zooms] * (parts.states // len(zooms))
    names = []
    for k, f in enumerate(focal):
        words = [f"{f:.4g}mm"] if f is not None else []
        magnification, distance = parts.value("Magnification", k), parts.object_distance(k)
        if magnification:
            words.append(f"m={magnification:g}")
        elif math.isfinite(distance):
            words.append(f"d0={distance:g}mm")
        names.append(" ".join(words) or f"column {k + 1}")
    return names
