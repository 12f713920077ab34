"""Multi-configuration rows of a .zmx file as states of the lens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..first_order import AxialPath, path_through
from ..prescription import Aperture, Field, Lens, State
from .assemble import paraxial_aperture
from .text import INFINITY_MM, clean, to_float, to_int
from .zemax import Operand, ZemaxFile
from .zemax_remarks import Remarks

_USED = frozenset({"THIC", "SDIA", "APMX", "APER", "XFIE", "YFIE"})
# Rows without an effect on the lens: comments, weights, and vignetting factors (we trace the vignetting).
_IGNORED = frozenset({"MOFF", "MCOM", "CWGT", "FLWT", "WLWT", "FVDX", "FVDY", "FVCX", "FVCY", "FVAN"})


def system_aperture(parts: ZemaxFile, path: AxialPath, unit: float, value: float | None = None) -> Aperture:
    """The aperture by ENPD, FNUM or OBNA, with the file's own value or that of a configuration; `unit` in mm.

    The second word of FNUM tells the paraxial working F-number from the image-space F-number (they are
    the same for an object at infinity), that of OBNA a half angle in degrees from a numerical aperture.
    """
    keyword = parts.aperture_keyword
    line = parts.header[keyword]
    flagged = len(line.words) > 1 and to_int(line.words[1]) == 1
    kind = {
        "ENPD": "entrance_pupil_diameter",
        "FNUM": "working_f_number" if flagged else "f_number",
        "OBNA": "object_half_angle" if flagged else "object_na",
    }[keyword]
    value = parts.number(line, 0, keyword) if value is None else value
    return paraxial_aperture(parts, path, keyword, kind, value, unit=unit, line=line.number)


def read_states(parts: ZemaxFile, lens: Lens, numbers: Sequence[int], unit: float, remarks: Remarks) -> list[State]:
    """One state per configuration, none for a file with a single configuration.

    `numbers` holds the file's number of each surface of the lens, `unit` is the file's in mm.
    """
    names = remarks.state_names
    if remarks.ours and len(names) != parts.configurations and (names or parts.configurations > 1):
        raise parts.error(f"{len(names)} named states for {parts.configurations} configurations")
    if parts.configurations == 1 and not names:
        return []
    configurations = [
        _Configuration(parts, lens, {n: i for i, n in enumerate(numbers)}, unit, remarks)
        for _ in range(parts.configurations)
    ]
    for operand in parts.operands.values():
        if operand.name in _USED:
            for number, word in operand.values.items():
                configurations[number - 1].apply(operand, word)
        elif operand.name not in _IGNORED and _differs(operand):
            text = f"the configurations differ in {operand.name} {operand.target}"
            raise parts.unsupported(f"{text}; only distances, apertures and fields may differ", line=operand.line)
    return [
        c.state(names.get(k) or f"config {k}", remarks.state_image_radius(k))
        for k, c in enumerate(configurations, start=1)
    ]


def _differs(operand: Operand) -> bool:
    values = {w if (v := to_float(w)) is None else v for w in operand.values.values()}
    return len(values) > 1


@dataclass
class _Configuration:
    """What one configuration sets; lengths in mm."""

    parts: ZemaxFile
    lens: Lens
    index: dict[int, int]  # the file's surface number → ours
    unit: float
    remarks: Remarks
    thickness: dict[int, float] = field(default_factory=dict)
    semi_diameter: dict[int, float] = field(default_factory=dict)
    object_distance: float | None = None
    stop_radius: float | None = None
    aperture: float | None = None  # the value behind ENPD, FNUM or OBNA
    points: dict[tuple[int, int], float] = field(default_factory=dict)  # (field, axis) → value

    def apply(self, operand: Operand, word: str) -> None:
        """Take over one value."""
        name, target = operand.name, operand.target
        value = to_float(word)
        if value is None:
            raise self.parts.error(f"{name} {target}: {clean(word, 40)!r} is not a number", line=operand.line)
        if name == "APER":
            self.aperture = value
        elif name in ("XFIE", "YFIE"):
            self.points[target - 1, int(name == "YFIE")] = value
        elif name == "THIC" and target == 0:
            self.object_distance = math.inf if value * self.unit >= INFINITY_MM else value * self.unit
        elif target in self.index:
            self._surface(name, target, value * self.unit)
        elif target != len(self.parts.surfaces) - 1:
            raise self.parts.error(f"{name}: there is no surface {target}", line=operand.line)

    def _surface(self, name: str, target: int, value: float) -> None:
        i = self.index[target]
        if name == "THIC":
            self.thickness[i] = value
        elif value:
            if name == "SDIA" and i == self.lens.stop:
                self.stop_radius = abs(value)
                if self.remarks.has("stop_semi_diameter"):
                    return
            # A circular aperture of its own keeps the surface's clear aperture apart from its semi-diameter.
            if ("CLAP" in self.parts.surfaces[target].once) == (name == "APMX"):
                self.semi_diameter[i] = abs(value)

    def state(self, name: str, image_radius: float | None) -> State:
        """The configuration as a state."""
        lens, field_ = self.lens, self._field()
        if image_radius is None and field_ is not None and lens.field is not None and field_.radius > 0.0:
            image_radius = field_.radius if lens.image_radius == lens.field.radius else None
        return State(
            name=name,
            thickness=tuple(sorted(self.thickness.items())),
            semi_diameter=tuple(sorted(self.semi_diameter.items())),
            object_distance=self.object_distance,
            aperture=self._aperture(),
            field=field_,
            image_radius=image_radius,
        )

    def _field(self) -> Field | None:
        field_ = self.lens.field
        if field_ is None or not self.points:
            return None
        scale = 1.0 if field_.kind == "angle_deg" else self.unit
        points = []
        for i, point in enumerate(field_.points):
            x, y = (self.points[i, a] * scale if (i, a) in self.points else point[a] for a in (0, 1))
            points.append((x, y))
        return Field(field_.kind, tuple(points))

    def _aperture(self) -> Aperture | None:
        if self.parts.aperture_keyword == "FLOA":
            return None if self.stop_radius is None else Aperture("stop_radius", self.stop_radius)
        distance = self.lens.object_distance if self.object_distance is None else self.object_distance
        path = path_through(self.lens, distance, self.thickness)
        return system_aperture(self.parts, path, self.unit, self.aperture)
