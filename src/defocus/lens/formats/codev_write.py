"""Lenses as CODE V .seq text.

Surfaces, media, wavelengths and the beam come back when the text is read; the stop's radius as the entrance pupil that
follows from it, names of states as zoom positions. Patent and image format have no place in a .seq file.

Catalogue glasses are written as NAME_MAKER, glasses of six and six digits as fictitious codes, all others as a PRV
table of their indices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ...errors import LensError, UnknownGlassError
from ...glass import Medium, find_glass, model_glass, parse_glass_code
from ..first_order import entrance_pupil_diameter
from ..prescription import MAX_LENGTH, Lens, State, Surface
from .assemble import check_glass, field_or_stand_in, sampled_indices, table_rows
from .codev import ASPHERIC
from .codev_lens import FIELDS
from .text import clean

_LETTERS = {power: letter for letter, power in ASPHERIC.items()}
_INFINITY = "1.0E+13"


def codev_text(lens: Lens) -> str:
    """The .seq text of a lens, in millimetres; raises LensError for what a .seq file cannot hold."""
    for state in lens.states:
        _refuse_state(lens, state)
    field = field_or_stand_in(lens)
    axis = next(key for key, kind in FIELDS.items() if kind == field.kind)
    private: dict[str, Medium] = {}
    surfaces = [line for i, s in enumerate(lens.surfaces) for line in _surface(lens, i, s, private)]
    tables = [line for name, medium in private.items() for line in _table(name, medium, lens)]
    lines = [
        "RDM;LEN",
        f"TITLE ' {_quotable(lens.name)}'",  # a blank: ray-optics takes a Z in front for a zoom position
        _aperture(lens),
        "DIM M",
        "WL " + _numbers(lens.wavelengths_nm),
        f"REF {lens.primary_wavelength + 1}",
        *([f"X{axis} " + _numbers(x for x, _ in field.points)] if any(x for x, _ in field.points) else []),
        f"Y{axis} " + _numbers(y for _, y in field.points),
        *(["PRV", *tables, "END"] if tables else []),
        f"SO 0.0 {_distance(lens.object_distance)}{_glass(lens.object_medium, None, private)}",
        *surfaces,
        "SI 0.0 0.0",
        *_zoom(lens),
        "GO",
    ]
    return "\n".join(lines) + "\n"


def _refuse_state(lens: Lens, state: State) -> None:
    if state.semi_diameter or state.field or state.image_radius is not None:
        text = "a .seq file holds distances and apertures of zoom positions, no other differences"
        raise LensError(f"{lens.name}, state {state.name!r}: {text}; convert one state, LENS@STATE")


def _numbers(values: Iterable[float]) -> str:
    return " ".join(repr(float(value)) for value in values)


def _quotable(text: str) -> str:
    return re.sub(r"['\"!;&]", " ", clean(text))


def _distance(value: float) -> str:
    return _INFINITY if math.isinf(value) else repr(float(value))


def _aperture(lens: Lens) -> str:
    if lens.aperture.kind == "object_na":
        return f"NAO {float(lens.aperture.value)!r}"
    if lens.aperture.kind == "f_number" and math.isinf(lens.object_distance):  # FNO is that of the used conjugates
        return f"FNO {float(lens.aperture.value)!r}"
    return f"EPD {_pupil(lens)!r}"


def _pupil(lens: Lens) -> float:
    diameter = entrance_pupil_diameter(lens)
    if diameter is None or not 0.0 < diameter <= MAX_LENGTH:
        raise LensError(f"{lens.name}: no entrance pupil (its stop lies in a focus), which a .seq file needs")
    return float(diameter)


def _surface(lens: Lens, i: int, s: Surface, private: dict[str, Medium]) -> list[str]:
    powers = [power for power, _ in s.aspheric if power not in _LETTERS]
    if powers:
        text = f"an aspheric term r^{powers[0]}; CODE V's ASP has r^4, r^6, ..., r^20. Write .zmx or .json"
        raise LensError(text, lens=lens.name, surface=i)
    radius = 0.0 if math.isinf(s.radius) else float(s.radius)
    lines = [f"S {radius!r} {float(s.thickness)!r}{_glass(s.medium, i, private)}"]
    lines += [f"  SLB '{_quotable(s.label)}'"] if s.label else []
    lines += ["  STO"] if i == lens.stop else []
    if s.aspheric:
        lines += ["  ASP", *(f"  {_LETTERS[power]} {float(value)!r}" for power, value in s.aspheric)]
    elif s.conic:
        lines += ["  CON"]
    lines += [f"  K {float(s.conic)!r}"] if s.conic else []
    return lines + ([f"  CIR {float(s.semi_diameter)!r}"] if s.semi_diameter is not None else [])


def _glass(medium: Medium, surface: int | None, private: dict[str, Medium]) -> str:
    """The word of a medium, with a blank before it; media that have none become private glasses."""
    kind = check_glass(medium, surface)
    if kind == "air":
        return ""
    word = f"{medium.name.replace('-', '').replace(' ', '')}_{medium.catalogue}".upper()
    if kind == "catalogue" and _reads_as(word, medium):
        return f" {word}"
    if kind == "model" and medium.vd is not None:
        code = f"{round((medium.nd - 1.0) * 1e6):06d}.{round(medium.vd * 1e4):06d}"
        parsed = parse_glass_code(code)
        if parsed is not None and model_glass(parsed.nd, parsed.vd) == medium:
            return f" {code}"
    name = next((name for name, one in private.items() if one == medium), None)
    if name is None:
        name = f"PRIVATE{len(private) + 1}"  # no name that begins like a command: ray-optics would take it for one
        private[name] = medium
    return f" '{name}'"


def _reads_as(word: str, medium: Medium) -> bool:
    base, _, maker = word.rpartition("_")
    try:
        return find_glass(base, catalogue=maker) == medium
    except (UnknownGlassError, LensError):
        return False


def _table(name: str, medium: Medium, lens: Lens) -> list[str]:
    """The entry of a PRV table: the medium's own table, or its index over the visible range."""
    own = check_glass(medium) == "table" and len(medium.coefficients) > 2
    rows = table_rows(medium) if own else sampled_indices(medium, lens.wavelengths_nm, 25)
    return ["  PWL " + _numbers(w for w, _ in rows), f"  '{name}' " + _numbers(n for _, n in rows)]


def _zoom(lens: Lens) -> list[str]:
    """Commands for what the states change, with a value for every one."""
    if not lens.states:
        return []
    lines = [f"ZOO {len(lens.states)}"]
    variants = [lens.in_state(i) for i in range(len(lens.states))]
    if any(one.object_distance != lens.object_distance for one in variants):
        lines.append("ZOO THI SO " + " ".join(_distance(one.object_distance) for one in variants))
    for i, surface in enumerate(lens.surfaces, start=1):
        values = [one.surfaces[i - 1].thickness for one in variants]
        if any(value != surface.thickness for value in values):
            lines.append(f"ZOO THI S{i} " + _numbers(values))
    apertures = [_aperture(one).split() for one in variants]
    if len({keyword for keyword, _ in apertures}) > 1:
        raise LensError(f"{lens.name}: states with different kinds of aperture; convert one state, LENS@STATE")
    if any(value != _aperture(lens).split()[1] for _, value in apertures):
        lines.append(f"ZOO {apertures[0][0]} " + " ".join(value for _, value in apertures))
    return lines
