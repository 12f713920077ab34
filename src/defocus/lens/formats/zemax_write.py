"""Lenses as Zemax .zmx text; reading it back gives an equal lens.

Numbers are written so that they come back to the last bit. What Zemax has no keyword for stands in NOTE
lines (see `zemax`). Clear apertures are written as circular apertures (CLAP), so that Zemax clips
there too. An aperture that the stop's radius gives is written as the entrance pupil that follows (ENPD), since other
programs ignore FLOA or take the stop's semi-diameter for a diameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import LensError
from ...glass import Medium, find_glass
from ..first_order import entrance_pupil_diameter
from ..prescription import MAX_LENGTH, Lens, Surface
from .assemble import check_glass, field_or_stand_in, power_series, table_rows
from .text import clean, curvature_text, scaled_text
from .zemax import REMARK, REMARK_VERSION

_APERTURES = {"entrance_pupil_diameter": "ENPD", "f_number": "FNUM", "object_na": "OBNA"}
_FIELDS = ("angle_deg", "object_height", "paraxial_image_height", "real_image_height")
_EVEN_TERMS = 8  # EVENASPH reaches r¹⁶
_TABLE_ROWS = 4  # on a NOTE line
_MAX_STATES = 200
_PLANE = ("  TYPE STANDARD", '  CURV 0.0 0 0 0 0 ""')
_NO_SIZE = '  DIAM 0 0 0 0 1 ""'


def zemax_text(lens: Lens) -> str:
    """The .zmx text of a lens, in millimetres; line ends are \\n."""
    _refuse(lens)
    named = [s.medium for i, s in enumerate(lens.surfaces) if check_glass(s.medium, i) == "catalogue"]
    catalogues = sorted({medium.catalogue.upper() for medium in named})
    field, pupils = field_or_stand_in(lens), _pupil_diameters(lens)
    lines = [
        "VERS 150514 0 0",
        "MODE SEQ",
        f"NAME {clean(lens.name)}",
        *_notes(lens, catalogues, pupils),
        "UNIT MM X W X CM MR CPMM",
        _aperture(lens, pupils),
        "ENVD 20 1 0",
        f"GCAT {' '.join(catalogues)}".rstrip(),
        f"FTYP {_FIELDS.index(field.kind)} 0 {len(field.points)} {len(lens.wavelengths_nm)} 0 0 0",
        "XFLN " + " ".join(_number(x) for x, _ in field.points),
        "YFLN " + " ".join(_number(y) for _, y in field.points),
        "FWGN " + " ".join("1" for _ in field.points),
        *(f"WAVM {i} {scaled_text(w, -3)} 1" for i, w in enumerate(lens.wavelengths_nm, start=1)),
        f"PWAV {lens.primary_wavelength + 1}",
        "SURF 0",
        *_PLANE,
        f"  DISZ {'INFINITY' if math.isinf(lens.object_distance) else _number(lens.object_distance)}",
        *_glass(lens.object_medium, catalogues),
        _NO_SIZE,
    ]
    for i, s in enumerate(lens.surfaces):
        lines += _surface(lens, i, s, catalogues)
    lines += [f"SURF {len(lens.surfaces) + 1}", *_PLANE, "  DISZ 0", _NO_SIZE]
    lines += [f"MNUM {max(len(lens.states), 1)} 1", *_configurations(lens, pupils)]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """The shortest digits that give the number back; also for NumPy's scalars."""
    return repr(float(value))


def _refuse(lens: Lens) -> None:
    """What a .zmx file cannot hold."""
    if len(lens.states) > _MAX_STATES:
        raise LensError(f"{lens.name}: {len(lens.states)} states; a .zmx file holds {_MAX_STATES}")
    for state in lens.states:
        if state.aperture is not None and state.aperture.kind != lens.aperture.kind:
            kinds = f"its aperture is a {state.aperture.kind}, that of the lens a {lens.aperture.kind}"
            raise LensError(f"{lens.name}, state {state.name!r}: {kinds}; a .zmx file holds one kind")
        field = state.field
        if field is not None and (
            lens.field is None or field.kind != lens.field.kind or len(field.points) != len(lens.field.points)
        ):
            raise LensError(f"{lens.name}, state {state.name!r}: a .zmx file holds one kind and number of field points")


def _pupil_diameters(lens: Lens) -> list[float]:
    """Entrance pupil diameters (mm) of the lens and its states, of an aperture that is the stop's radius.

    Empty for other apertures, and where the stop lies in a focus, so that one of them has no pupil.
    """
    if lens.aperture.kind != "stop_radius":
        return []
    diameters = [entrance_pupil_diameter(one) for one in (lens, *(lens.in_state(i) for i in range(len(lens.states))))]
    pupils = [d for d in diameters if d is not None and 0.0 < d <= MAX_LENGTH]
    return pupils if len(pupils) == len(diameters) else []


def _aperture(lens: Lens, pupils: list[float]) -> str:
    if lens.aperture.kind != "stop_radius":
        return f"{_APERTURES[lens.aperture.kind]} {_number(lens.aperture.value)} 0"
    return f"ENPD {_number(pupils[0])} 0" if pupils else "FLOA"


def _notes(lens: Lens, catalogues: list[str], pupils: list[float]) -> list[str]:
    """NOTE lines for what Zemax has no keyword for."""
    by_stop = lens.aperture.kind == "stop_radius"
    notes = {
        f"version {REMARK_VERSION}": True,
        f"patent {clean(lens.patent)}": lens.patent,
        f"format {clean(lens.image_format)}": lens.image_format,
        f"image_radius {_number(lens.image_radius or 0.0)}": lens.image_radius is not None,
        "field none": lens.field is None,
        f"stop_radius {_number(lens.aperture.value)}": pupils,
        "stop_semi_diameter none": by_stop and lens.surfaces[lens.stop].semi_diameter is None,
    }
    lines = [note for note, holds in notes.items() if holds]
    for k, state in enumerate(lens.states, start=1):
        lines.append(f"state {k} {clean(state.name)}")
        if state.image_radius is not None:
            lines.append(f"state_image_radius {k} {_number(state.image_radius)}")
        if pupils:
            lines.append(f"state_stop_radius {k} {_number((state.aperture or lens.aperture).value)}")
    for number, medium in enumerate((lens.object_medium, *(s.medium for s in lens.surfaces))):
        kind = check_glass(medium, number - 1 if number else None)
        if kind in ("air", "model") or (kind == "catalogue" and _glass_word(medium, catalogues) == medium.name):
            continue
        lines.append(f"glass {number} {medium.catalogue} {clean(medium.name)}")
        rows = table_rows(medium) if kind == "table" else []
        for i in range(0, len(rows), _TABLE_ROWS):
            cells = " ".join(f"{_number(w)} {_number(n)}" for w, n in rows[i : i + _TABLE_ROWS])
            lines.append(f"table {number} {cells}")
    return [f"NOTE 0 {REMARK}{line}" for line in lines]


def _glass_word(medium: Medium, catalogues: list[str]) -> str:
    """The glass's name if it identifies the glass among the catalogues that the file lists, else a model."""
    if medium.name.split() == [medium.name] and find_glass(medium.name, preferred=tuple(catalogues)) == medium:
        return medium.name
    return "___BLANK"


def _glass(medium: Medium, catalogues: list[str]) -> list[str]:
    kind = check_glass(medium)
    if kind == "air":
        return []
    name = _glass_word(medium, catalogues) if kind == "catalogue" else "___BLANK"
    model = int(name == "___BLANK")
    return [f"  GLAS {name} {model} 0 {_number(medium.nd)} {_number(medium.vd or 0.0)} 0 0 0 0 0 0"]


def _surface(lens: Lens, i: int, s: Surface, catalogues: list[str]) -> list[str]:
    kind, terms = _shape(s)
    size = lens.aperture.value if i == lens.stop and lens.aperture.kind == "stop_radius" else s.semi_diameter or 0.0
    changes = any(i == j for state in lens.states for j, _ in state.semi_diameter)
    return [
        f"SURF {i + 1}",
        *([f"  COMM {clean(s.label)}"] if s.label else []),
        *(["  STOP"] if i == lens.stop else []),
        f"  TYPE {kind}",
        f'  CURV {curvature_text(s.radius)} 0 0 0 0 ""',
        *terms,
        f"  DISZ {_number(s.thickness)}",
        *_glass(s.medium, catalogues),
        *([f"  CONI {_number(s.conic)}"] if s.conic else []),
        f'  DIAM {_number(size)} {int(size > 0.0)} 0 0 1 ""',
        *([f"  CLAP 0 {_number(s.semi_diameter or 0.0)} 0"] if s.semi_diameter is not None or changes else []),
    ]


def _shape(s: Surface) -> tuple[str, list[str]]:
    """The surface's type, and its aspheric terms."""
    if not s.aspheric:
        return "STANDARD", []
    step, terms = power_series(s)
    if step == 2 and len(terms) <= _EVEN_TERMS:
        terms += [0.0] * (_EVEN_TERMS - len(terms))
        return "EVENASPH", [f"  PARM {k} {_number(term)}" for k, term in enumerate(terms, start=1)]
    values = enumerate([len(terms), 1.0, *terms], start=1)
    lines = [f'  XDAT {i} {_number(value)} 0 0 1.0 0.0 0 ""' for i, value in values]
    return "XASPHERE" if step == 2 else "XOSPHERE", lines


def _configurations(lens: Lens, pupils: list[float]) -> list[str]:
    """Rows for everything that a state changes, with a value for every state."""
    states = lens.states
    lines: list[str] = []
    if any(pupil != pupils[0] for pupil in pupils):
        lines += _rows("APER", 0, pupils[1:])
    elif not pupils and any(s.aperture for s in states):
        name, target = ("SDIA", lens.stop + 1) if lens.aperture.kind == "stop_radius" else ("APER", 0)
        lines += _rows(name, target, [(s.aperture or lens.aperture).value for s in states])
    fields = [s.field or lens.field for s in states]
    for i, point in enumerate(lens.field.points if lens.field else ()):
        for axis, name in enumerate(("XFIE", "YFIE")):
            values = [f.points[i][axis] for f in fields if f is not None]
            if any(v != point[axis] for v in values):
                lines += _rows(name, i + 1, values)
    if any(s.object_distance for s in states):
        lines += _rows("THIC", 0, [s.object_distance or lens.object_distance for s in states])
    for i, surface in enumerate(lens.surfaces):
        moves = [dict(s.thickness) for s in states]
        if any(i in m for m in moves):
            lines += _rows("THIC", i + 1, [m.get(i, surface.thickness) for m in moves])
        sizes = [dict(s.semi_diameter) for s in states]
        if any(i in r for r in sizes):
            lines += _rows("APMX", i + 1, [r.get(i, surface.semi_diameter or 0.0) for r in sizes])
    return lines


def _rows(name: str, target: int, values: Sequence[float]) -> list[str]:
    words = ["1.0E+10" if math.isinf(v) else _number(v) for v in values]
    return [f'{name} {target} {k} {w} 0 0 0 1 1 1.0 0.0 0 "" 0' for k, w in enumerate(words, start=1)]
