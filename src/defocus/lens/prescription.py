"""The lens: one immutable value that every reader makes and every computation takes.

Lengths are in millimetres. Light travels along +z; a radius is positive when the centre of curvature lies at +z.
The sag of a surface is

    z(r) = c r² / (1 + √(1 − (1 + κ) c² r²)) + Σ_p a_p r^p

with c = 1/radius, κ the conic constant and a_p the coefficient of r^p in mm^(1−p). Surfaces are counted from 0, the
first one that the light meets; the object and the image plane are not surfaces. The last thickness leads to the
image plane.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from .._lazy import drawn
from ..errors import DefocusError, LensError
from ..glass import AIR, Medium, dispersion

D_LINE_NM, F_LINE_NM, C_LINE_NM = dispersion.D_LINE_NM, dispersion.F_LINE_NM, dispersion.C_LINE_NM

ApertureKind = Literal["stop_radius", "entrance_pupil_diameter", "f_number", "object_na"]
FieldKind = Literal["angle_deg", "object_height", "paraxial_image_height", "real_image_height"]

MAX_SURFACES = 200
MAX_LENGTH = 1e6  # mm; no distance inside a lens is a kilometre
MIN_RADIUS = 1e-3  # mm
MAX_POWER = 40


@dataclass(frozen=True, slots=True)
class Surface:
    """A rotationally symmetric refracting surface and the space behind it."""

    radius: float = math.inf  # mm; inf: plane
    thickness: float = 0.0  # mm to the next surface, for the last one to the image plane
    medium: Medium = AIR  # behind the surface
    semi_diameter: float | None = None  # mm; radius of the clear aperture, None: not known
    conic: float = 0.0
    aspheric: tuple[tuple[int, float], ...] = ()  # (power, coefficient in mm^(1 − power)), ascending powers
    label: str = ""

    @property
    def curvature(self) -> float:
        """1/mm."""
        return 1.0 / self.radius

    @property
    def is_aspheric(self) -> bool:
        """Whether the surface is anything but a sphere or a plane."""
        return bool(self.aspheric) or (self.conic != 0.0 and math.isfinite(self.radius))


@dataclass(frozen=True, slots=True)
class Aperture:
    """What fixes the size of the axial beam.

    `stop_radius` in mm, `entrance_pupil_diameter` in mm (paraxial), `f_number` (EFL over entrance pupil diameter,
    for an object at infinity), `object_na` (n sin of the axial marginal ray's angle in object space).
    """

    kind: ApertureKind
    value: float


@dataclass(frozen=True, slots=True)
class Field:
    """Field points (x, y): degrees for `angle_deg`, mm for the others."""

    kind: FieldKind
    points: tuple[tuple[float, float], ...]

    @property
    def radius(self) -> float:
        """Largest distance of a field point from the axis, in the field's unit."""
        return max((math.hypot(*p) for p in self.points), default=0.0)

    @property
    def image_radius(self) -> float | None:
        """Radius of the image in mm where the points are image heights, else None."""
        return self.radius or None if self.kind.endswith("image_height") else None


@dataclass(frozen=True, slots=True)
class State:
    """A named position of the lens (a focus distance, a zoom setting): what differs from the prescription."""

    name: str
    thickness: tuple[tuple[int, float], ...] = ()  # (surface, mm)
    semi_diameter: tuple[tuple[int, float], ...] = ()  # (surface, mm)
    object_distance: float | None = None  # mm from the first surface
    aperture: Aperture | None = None
    field: Field | None = None
    image_radius: float | None = None  # mm


@dataclass(frozen=True, slots=True, repr=False)
class Lens:
    """A photographic lens prescription."""

    name: str
    surfaces: tuple[Surface, ...]
    stop: int  # index of the stop's surface
    aperture: Aperture
    field: Field | None = None
    image_radius: float | None = None  # mm; half diagonal of the image, None: follows from the field
    object_distance: float = math.inf  # mm from the object to the first surface
    object_medium: Medium = AIR
    wavelengths_nm: tuple[float, ...] = (C_LINE_NM, D_LINE_NM, F_LINE_NM)
    primary_wavelength: int = 1  # index into wavelengths_nm
    states: tuple[State, ...] = ()
    patent: str = ""
    image_format: str = ""  # "135-full-frame", "aps-c", ...
    # What the reader had to decide, for the user to see.
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    source: str = dataclasses.field(default="", compare=False)  # the file it came from

    def __post_init__(self) -> None:
        _check(self)

    def __repr__(self) -> str:
        from .first_order import f_number, focal_length

        speed = f_number(self)
        facts = [f"{focal_length(self):.4g} mm" + (f" f/{speed:.3g}" if speed is not None else "")]
        facts.append(f"{len(self.surfaces)} surfaces, stop {self.stop}")
        if self.image_radius is not None:
            facts.append(f"image radius {self.image_radius:.4g} mm")
        if self.states:
            facts.append(f"states {', '.join(self.state_names[:8])}" + (", ..." if len(self.states) > 8 else ""))
        return f"<Lens {self.name!r}: {'; '.join(facts)}>"

    def _repr_html_(self) -> str:
        svg = io.StringIO()
        try:
            self.plot().savefig(svg, format="svg")
        except DefocusError as error:
            return f"<p>{html.escape(f'{self!r} cannot be drawn: {error}')}</p>"
        drawing = svg.getvalue()
        return f"<p>{html.escape(repr(self))}</p>" + drawing[drawing.index("<svg") :]

    def plot(self) -> Any:
        """The layout as a `matplotlib` figure: elements, stop and ray bundles; `defocus.draw` has more figures."""
        return drawn("draw_layout", self)

    def save(self, path: str | Path) -> None:
        """Write the lens as the path's name says, or its layout as .svg, .pdf or .png.

        Formats are .json, .zmx, .seq, .optiland.json and .deeplens.json.
        """
        if Path(path).suffix.lower() in (".svg", ".pdf", ".png"):
            drawn("save", self.plot(), path)
        else:
            from .formats import write_lens

            write_lens(self, path)

    def fingerprint(self, *, named: bool = True) -> str:
        """SHA-256 of the prescription, whichever file it came from; unless `named`, whatever the lens is called.

        Data sets record it, so the text that is hashed must never change: every field in order, as Python writes it.
        """
        lens = replace(self, notes=(), source="")
        if not named:
            lens = replace(lens, name="", patent="", image_format="")
        values = ", ".join(f"{f.name}={getattr(lens, f.name)!r}" for f in dataclasses.fields(lens))
        return hashlib.sha256(f"Lens({values})".encode()).hexdigest()

    @property
    def index_d(self) -> tuple[float, ...]:
        """Refractive indices at the d line: object space, then behind each surface."""
        return (self.object_medium.nd, *(s.medium.nd for s in self.surfaces))

    @property
    def has_clear_apertures(self) -> bool:
        """Whether every surface has a semi-diameter."""
        return all(s.semi_diameter is not None for s in self.surfaces)

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.states)

    def in_state(self, name: str | int) -> Lens:
        """The lens in one of its states, by name or by number from 0; the result has no states of its own."""
        match = [s for s in self.states if s.name == name]
        match += [s for i, s in enumerate(self.states) if name in (i, str(i))]
        if not match:
            names = ", ".join(map(repr, self.state_names)) or "none"
            raise LensError(f"{self.name!r} has no state {name!r}; its states: {names}")
        state = match[0]
        thickness, semi = dict(state.thickness), dict(state.semi_diameter)
        surfaces = tuple(
            replace(s, thickness=thickness.get(i, s.thickness), semi_diameter=semi.get(i, s.semi_diameter))
            for i, s in enumerate(self.surfaces)
        )
        return replace(
            self,
            name=f"{self.name} @ {state.name}",
            surfaces=surfaces,
            aperture=state.aperture or self.aperture,
            field=state.field or self.field,
            image_radius=self.image_radius if state.image_radius is None else state.image_radius,
            object_distance=self.object_distance if state.object_distance is None else state.object_distance,
            states=(),
        )

    def with_semi_diameters(self, semi_diameters: Mapping[int, float]) -> Lens:
        """The lens with some clear apertures replaced: surface number → mm."""
        surfaces = tuple(
            replace(s, semi_diameter=semi_diameters.get(i, s.semi_diameter)) for i, s in enumerate(self.surfaces)
        )
        return replace(self, surfaces=surfaces)


def _check(lens: Lens) -> None:
    """Refuse numbers that no lens has; the message names the surface."""
    for surface, holds, text in _rules(lens):
        if not holds:
            raise LensError(text, lens=lens.name or "lens", surface=surface)


def _rules(lens: Lens) -> Iterator[tuple[int | None, bool, str]]:
    """The surface (None: the lens), whether the rule holds, and what is wrong where it does not."""
    count, waves, radius = len(lens.surfaces), lens.wavelengths_nm, lens.image_radius
    yield None, 1 <= count <= MAX_SURFACES, f"{count} surfaces; expected 1 to {MAX_SURFACES}"
    yield None, 0 <= lens.stop < count, f"the stop is surface {lens.stop}, but the surfaces are 0 to {count - 1}"
    for i, s in enumerate(lens.surfaces):
        yield from ((i, *rule) for rule in _surface_rules(s))
    distance = lens.object_distance
    yield None, distance > 0, f"object distance {distance} mm; expected more than 0, or inf"
    sound = radius is None or 0 < radius <= MAX_LENGTH
    yield None, sound, f"image radius {radius} mm; expected a positive number"
    kind, value, index = lens.aperture.kind, lens.aperture.value, lens.object_medium.nd
    yield None, kind in get_args(ApertureKind), f"unknown kind of aperture {kind!r}"
    yield None, 0 < value <= MAX_LENGTH, f"aperture {kind} = {value}; expected a positive number"
    if kind == "object_na":
        yield None, math.isfinite(distance), "an object-space NA needs a finite object distance"
        yield None, value < index, f"object-space NA {value} is not below the index {index}"
    visible = bool(waves) and all(100.0 <= w <= 20000.0 for w in waves)
    yield None, visible, f"wavelengths {waves} nm; expected 100 to 20000"
    yield (
        None,
        0 <= lens.primary_wavelength < len(waves),
        f"primary wavelength {lens.primary_wavelength} of {len(waves)}",
    )
    yield from ((None, *rule) for rule in _field_rules(lens.field))
    for state in lens.states:
        yield from ((None, holds, f"state {state.name!r}: {text}") for holds, text in _field_rules(state.field))
        for i, number in (*state.thickness, *state.semi_diameter):
            yield None, 0 <= i < count and math.isfinite(number), f"state {state.name!r} sets surface {i} to {number}"
    yield None, len(set(lens.state_names)) == len(lens.states), f"state names must differ: {lens.state_names}"


def _surface_rules(s: Surface) -> Iterator[tuple[bool, str]]:
    semi, index = s.semi_diameter, s.medium.nd
    yield abs(s.radius) >= MIN_RADIUS, f"radius {s.radius} mm; expected at least {MIN_RADIUS} mm in size, or inf"
    yield abs(s.thickness) <= MAX_LENGTH, f"thickness {s.thickness} mm; expected at most {MAX_LENGTH:g} mm"
    yield semi is None or 0 < semi <= MAX_LENGTH, f"semi-diameter {semi} mm; expected a positive number"
    yield abs(s.conic) <= 1e6, f"conic constant {s.conic}; expected a finite number below 1e6 in size"
    for power, coefficient in s.aspheric:
        yield 2 <= power <= MAX_POWER, f"aspheric term r^{power}; supported are r^2 to r^{MAX_POWER}"
        yield math.isfinite(coefficient), f"aspheric coefficient of r^{power} is {coefficient}"
    powers = [p for p, _ in s.aspheric]
    yield powers == sorted(set(powers)), "aspheric terms must have distinct, ascending powers"
    yield 1.0 <= index <= 5.0, f"refractive index {index} at the d line; expected 1 to 5"


def _field_rules(field: Field | None) -> Iterator[tuple[bool, str]]:
    if field is not None:
        yield field.kind in get_args(FieldKind), f"unknown kind of field {field.kind!r}"
        yield bool(field.points), "a field without points; give at least one (x, y), or no field at all"
        yield all(math.isfinite(v) for p in field.points for v in p), "a field point is not finite"
