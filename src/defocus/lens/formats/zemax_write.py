"""Lenses as Zemax .zmx text; reading it back gives an equal lens.

Numbers are written so that they come back to the last bit. What Zemax has no keyword for stands in NOTE
lines (see `zemax_remarks`). Clear apertures are written as circular apertures (CLAP), so that Zemax clips
there too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import LensError
from ...glass import Medium, find_glass
from ..prescription import Field, Lens, Surface
from .assemble import check_glass, table_rows
from .text import clean, curvature_text, scaled_text
from .zemax_remarks import PREFIX, VERSION

_APERTURES = {
    "entrance_pupil_diameter": "ENPD",
    "f_number": "FNUM",
    "stop_radius": "FLOA",
    "object_na": "OBNA",
}
_FIELDS = ("angle_deg", "object_height", "paraxial_image_height", "real_image_height")
_EVEN_TERMS = 16  # EVENASPH reaches r¹⁶
_TABLE_ROWS = 4  # on a NOTE line
_MAX_STATES = 200


def zemax_text(lens: Lens) -> str:
    """The .zmx text of a lens, in millimetres; line ends are \\n."""
    _refuse(lens)
    named = [s.medium for i, s in enumerate(lens.surfaces) if check_glass(s.medium, i) == "catalogue"]
    catalogues = sorted({medium.catalogue.upper() for medium in named})
    field = lens.field or _stand_in(lens)
    lines = [
        "VERS 150514 0 0",
        "MODE SEQ",
        f"NAME {clean(lens.name)}",
        *_notes(lens, catalogues),
        "UNIT MM X W X CM MR CPMM",
        _aperture(lens),
        "ENVD 20 1 0",
        f"GCAT {' '.join(catalogues)}".rstrip(),
        f"FTYP {_FIELDS.index(field.kind)} 0 {len(field.points)} {len(lens.wavelengths_nm)} 0 0 0",
        "XFLN " + " ".join(_number(x) for x, _ in field.points),
        "YFLN " + " ".join(_number(y) for _, y in field.points),
        "FWGN " + " ".join("1" for _ in field.points),
        *(f"WAVM {i} {scaled_text(w, -3)} 1" for i, w in enumerate(lens.wavelengths_nm, start=1)),
        f"PWAV {lens.primary_wavelength + 1}",
        *_object(lens, catalogues),
    ]
    for i, s in enumerate(lens.surfaces):
        lines += _surface(lens, i, s, catalogues)
    last = len(lens.surfaces) + 1
    lines += [f"SURF {last}", "  TYPE STANDARD", '  CURV 0.0 0 0 0 0 ""', "  DISZ 0", '  DIAM 0 0 0 0 1 ""']
    lines += [f"MNUM {max(len(lens.states), 1)} 1", *_configurations(lens)]
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
            raise LensError(
                f"{lens.name}, state {state.name!r}: its aperture is a {state.aperture.kind}, that of the "
                f"lens a {lens.aperture.kind}; a .zmx file holds one kind"
            )
        field = state.field
        if field is not None and (
            lens.field is None or field.kind != lens.field.kind or len(field.points) != len(lens.field.points)
        ):
            raise LensError(f"{lens.name}, state {state.name!r}: a .zmx file holds one kind and number of field points")


def _stand_in(lens: Lens) -> Field:
    """Fields for Zemax where the lens has none."""
    r = lens.image_radius
    return (
        Field("angle_deg", ((0.0, 0.0),))
        if r is None
        else Field("real_image_height", ((0.0, 0.0), (0.0, 0.7 * r), (0.0, r)))
    )


def _notes(lens: Lens, catalogues: list[str]) -> list[str]:
    stop = lens.surfaces[lens.stop]
    notes = [f"version {VERSION}"]
    if lens.patent:
        notes.append(f"patent {clean(lens.patent)}")
    if lens.image_format:
        notes.append(f"format {clean(lens.image_format)}")
    if lens.image_radius is not None:
        notes.append(f"image_radius {_number(lens.image_radius)}")
    if lens.field is None:
        notes.append("field none")
    if stop.semi_diameter is None and lens.aperture.kind == "stop_radius":
        notes.append("stop_semi_diameter none")
    for k, state in enumerate(lens.states, start=1):
        notes.append(f"state {k} {clean(state.name)}")
        if state.image_radius is not None:
            notes.append(f"state_image_radius {k} {_number(state.image_radius)}")
    for number, medium in enumerate((lens.object_medium, *(s.medium for s in lens.surfaces))):
        notes += _medium_notes(number, medium, catalogues)
    return [f"NOTE 0 {PREFIX}{note}" for note in notes]


def _medium_notes(number: int, medium: Medium, catalogues: list[str]) -> list[str]:
    kind = check_glass(medium, number - 1 if number else None)
    if kind in ("air", "model"):
        return []
    if kind == "catalogue" and _glass_word(medium, catalogues) == medium.name:
        return []
    notes = [f"glass {number} {medium.catalogue} {clean(medium.name)}"]
    if kind == "table":
        rows = table_rows(medium)
        for i in range(0, len(rows), _TABLE_ROWS):
            cells = " ".join(f"{_number(w)} {_number(n)}" for w, n in rows[i : i + _TABLE_ROWS])
            notes.append(f"table {number} {cells}")
    return notes


def _glass_word(medium: Medium, catalogues: list[str]) -> str:
    """The glass's name if it identifies the glass among the catalogues that the file lists, else a model."""
    if medium.name.split() == [medium.name] and find_glass(medium.name, preferred=tuple(catalogues)) == medium:
        return medium.name
    return "___BLANK"


def _aperture(lens: Lens) -> str:
    keyword = _APERTURES[lens.aperture.kind]
    return keyword if keyword == "FLOA" else f"{keyword} {_number(lens.aperture.value)} 0"


def _glass(medium: Medium, catalogues: list[str]) -> list[str]:
    kind = check_glass(medium)
    if kind == "air":
        return []
    name = _glass_word(medium, catalogues) if kind == "catalogue" else "___BLANK"
    model = int(name == "___BLANK")
    return [f"  GLAS {name} {model} 0 {_number(medium.nd)} {_number(medium.vd or 0.0)} 0 0 0 0 0 0"]


def _object(lens: Lens, catalogues: list[str]) -> list[str]:
    distance = "INFINITY" if math.isinf(lens.object_distance) else _number(lens.object_distance)
    return [
        "SURF 0",
        "  TYPE STANDARD",
        '  CURV 0.0 0 0 0 0 ""',
        f"  DISZ {distance}",
        *_glass(lens.object_medium, catalogues),
        '  DIAM 0 0 0 0 1 ""',
    ]


def _surface(lens: Lens, i: int, s: Surface, catalogues: list[str]) -> list[str]:
    lines = [f"SURF {i + 1}"]
    if s.label:
        lines.append(f"  COMM {clean(s.label)}")
    if i == lens.stop:
        lines.append("  STOP")
    kind, terms = _shape(s)
    lines += [
        f"  TYPE {kind}",
        f'  CURV {curvature_text(s.radius)} 0 0 0 0 ""',
        *terms,
        f"  DISZ {_number(s.thickness)}",
    ]
    lines += _glass(s.medium, catalogues)
    if s.conic:
        lines.append(f"  CONI {_number(s.conic)}")
    size = s.semi_diameter or 0.0
    if i == lens.stop and lens.aperture.kind == "stop_radius":
        size = lens.aperture.value
    lines.append(f'  DIAM {_number(size)} {int(size > 0.0)} 0 0 1 ""')
    changes = any(i == j for state in lens.states for j, _ in state.semi_diameter)
    if s.semi_diameter is not None or changes:
        lines.append(f"  CLAP 0 {_number(s.semi_diameter or 0.0)} 0")
    return lines


def _shape(s: Surface) -> tuple[str, list[str]]:
    """The surface's type, and its aspheric terms."""
    if not s.aspheric:
        return "STANDARD", []
    terms, highest = dict(s.aspheric), s.aspheric[-1][0]
    step = 2 if all(p % 2 == 0 for p in terms) else 1
    if step == 2 and highest <= _EVEN_TERMS:
        return "EVENASPH", [f"  PARM {p // 2} {_number(terms.get(p, 0.0))}" for p in range(2, _EVEN_TERMS + 1, 2)]
    values = [highest // step, 1.0, *(terms.get(p, 0.0) for p in range(step, highest + 1, step))]
    lines = [f'  XDAT {i} {_number(value)} 0 0 1.0 0.0 0 ""' for i, value in enumerate(values, start=1)]
    return "XASPHERE" if step == 2 else "XOSPHERE", lines


def _configurations(lens: Lens) -> list[str]:
    """Rows for everything that a state changes, with a value for every state."""
    states = lens.states
    lines: list[str] = []
    if any(s.aperture for s in states):
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
