"""What all readers share: a source that names itself in refusals, and the steps from its parts to a Lens."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...errors import LensError, LensFileError, UnknownGlassError, UnsupportedLensError
from ...glass import AIR, Medium, constant_index, find_glass, model_glass, tabulated_glass
from ..first_order import AxialPath, index_of, object_na_from_working_f_number
from ..prescription import D_LINE_NM, Aperture, Field, Lens, State, Surface
from .text import INFINITY_MM, clean, to_float

FallbackGlass = Medium | Callable[[str], Medium]

MAX_NOTES = 1000


@dataclass
class LensSource:
    """A lens file that is read: refusals name it and the place in it, notes say what the reader decided."""

    file: str | Path
    fallback_glass: FallbackGlass | None = None  # for glasses that no catalogue holds; None: they are refused
    unit: float = 1.0  # mm
    catalogues: tuple[str, ...] = ()  # of glasses, that the file itself prefers
    notes: list[str] = field(default_factory=list)

    def error(self, message: str, *, line: int | None = None, surface: int | None = None) -> LensFileError:
        return LensFileError(message, file=self.file, line=line, surface=surface)

    def unsupported(self, message: str, *, line: int | None = None, surface: int | None = None) -> LensFileError:
        return UnsupportedLensError(message, file=self.file, line=line, surface=surface)

    @contextlib.contextmanager
    def refusals(
        self, numbers: Sequence[int] = (), *, line: int | None = None, surface: int | None = None, state: str = ""
    ) -> Iterator[None]:
        """Turn a LensError into one of this file; `numbers` holds the file's number of each surface of the lens."""
        try:
            yield
        except LensError as error:
            surface = surface if error.surface is None else numbers[error.surface]
            message = f"state {state!r}: {error.message}" if state else error.message
            raise self.error(message, line=line, surface=surface) from error

    def note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def number(self, word: str, what: str, *, line: int | None = None, surface: int | None = None) -> float:
        """The finite number that a word is."""
        value = to_float(word)
        if value is None:
            raise self.error(f"{what}: {clean(word, 40)!r} is not a number", line=line, surface=surface)
        return value

    def has_glass(self, name: str, catalogue: str | None = None) -> bool:
        """Whether a catalogue (this one, or any) holds the glass."""
        try:
            find_glass(name, catalogue=catalogue, preferred=self.catalogues)
        except (UnknownGlassError, LensError):
            return False
        return True

    def glass(self, name: str, surface: int | None, *, catalogue: str | None = None, line: int | None = None) -> Medium:
        """A glass of a catalogue; substitutions are noted, unknown glasses refused without a fallback."""
        place = "object space" if surface is None else f"surface {surface}"
        try:
            medium = find_glass(name, catalogue=catalogue, preferred=self.catalogues)
        except (UnknownGlassError, LensError) as error:
            if self.fallback_glass is None:
                text = f"{error.message}; give a fallback glass to read the file all the same"
                raise UnknownGlassError(text, file=self.file, surface=surface, line=line) from error
            medium = self.fallback_glass(name) if callable(self.fallback_glass) else self.fallback_glass
            self.note(f"{place}: unknown glass {name} replaced by {medium.name}")
            return medium
        if medium.note:
            names_itself = medium.note.upper().startswith(name.upper())
            self.note(f"{place}: {medium.note if names_itself else f'glass {name}: {medium.note}'}")
        return medium

    def lens(self, numbers: Sequence[int], *, name: str, **parts: Any) -> Lens:
        """The lens; what the data model refuses is an error that counts surfaces as the file does."""
        with self.refusals(numbers):
            return Lens(
                name=name or clean(Path(self.file).stem), notes=tuple(self.notes), source=str(self.file), **parts
            )

    def with_states(self, lens: Lens, states: Sequence[State], numbers: Sequence[int]) -> Lens:
        """The lens with these states; names that occur twice get a number."""
        names = distinct([s.name for s in states])
        with self.refusals(numbers):
            own = tuple(reduced(replace(s, name=n), lens) for s, n in zip(states, names, strict=True))
            lens = replace(lens, states=own)
        self.check_states(lens, numbers)
        return lens

    def check_states(self, lens: Lens, numbers: Sequence[int]) -> None:
        """Refuse a state in which the lens is none."""
        for i, state in enumerate(lens.states):
            with self.refusals(numbers, state=state.name):
                lens.in_state(i)


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that occur more than once."""
    result: list[str] = []
    for name in names:
        unique, count = name, 1
        while unique in result:
            count += 1
            unique = f"{name} ({count})"
        result.append(unique)
    return result


def reduced(state: State, lens: Lens) -> State:
    """The state without what it has in common with the lens itself."""

    def differing(values: tuple[tuple[int, float], ...], attribute: str) -> tuple[tuple[int, float], ...]:
        return tuple(sorted((i, v) for i, v in values if v != getattr(lens.surfaces[i], attribute)))

    same: dict[str, Any] = {
        name: None
        for name in ("object_distance", "aperture", "field", "image_radius")
        if getattr(state, name) == getattr(lens, name)
    }
    return replace(
        state,
        thickness=differing(state.thickness, "thickness"),
        semi_diameter=differing(state.semi_diameter, "semi_diameter"),
        **same,
    )


@dataclass
class NumberedSurfaces:
    """Surfaces between object and image as Zemax and CODE V number them: 0 is the object, then 1, 2, ..."""

    source: LensSource
    surfaces: list[Surface]
    stop: int  # index of the stop's surface
    object_distance: float  # mm
    object_medium: Medium
    first: int = 1  # number of the first surface

    @property
    def numbers(self) -> range:
        """The file's number of each surface."""
        return range(self.first, self.first + len(self.surfaces))

    def drop_leading_dummies(self, numbers: Set[int]) -> None:
        """Drop surfaces in front that do nothing: no change of medium, not the stop, none of these numbers."""
        working = (
            i
            for i, (s, number) in enumerate(zip(self.surfaces, self.numbers, strict=True))
            if s.medium != self.object_medium or i == self.stop or number in numbers
        )
        count = next(working, len(self.surfaces))
        if all(s.medium == self.object_medium for s in self.surfaces[count:]):
            raise self.source.error("no surface refracts light: not a lens")
        if count:
            self.source.note(f"dummy surfaces in front of the lens left out: {count}")
        self.object_distance += sum(s.thickness for s in self.surfaces[:count])
        self.surfaces, self.stop, self.first = self.surfaces[count:], self.stop - count, self.first + count

    def axial_path(self, wavelength_nm: float) -> AxialPath:
        return AxialPath(self.surfaces, self.object_distance, self.object_medium, wavelength_nm)

    def lens(self, *, field: Field | None, **parts: Any) -> Lens:
        """The lens of these surfaces and the other parts of a Lens; the field may give its image radius."""
        if field and field.kind == "object_height" and math.isinf(self.object_distance):
            raise self.source.error("fields are object heights, but the object is at infinity")
        parts = {"field": field, "image_radius": field and field.image_radius} | parts
        parts |= {"surfaces": tuple(self.surfaces), "stop": self.stop}
        parts |= {"object_distance": self.object_distance, "object_medium": self.object_medium}
        return self.source.lens(self.numbers, **parts)


def paraxial_aperture(
    source: LensSource, path: AxialPath, keyword: str, kind: str, value: float, *, line: int | None = None
) -> Aperture:
    """The aperture of a lens whose file gives `keyword` a value.

    `kind` is one of Aperture's, or object_half_angle (degrees), or working_f_number or image_na (both paraxial, at the
    used conjugates).
    """
    if not value > 0.0:
        raise source.error(f"{keyword} {value:g}; expected a positive number", line=line)
    infinite = math.isinf(path.object_distance)
    if kind == "entrance_pupil_diameter":
        return Aperture("entrance_pupil_diameter", value * source.unit)
    if kind == "f_number":
        return Aperture("f_number", value)
    if kind in ("object_na", "object_half_angle"):
        if infinite:
            raise source.error(f"{keyword}: an object-space aperture, but the object is at infinity", line=line)
        if kind == "object_half_angle":
            value = index_of(path.object_medium, path.wavelength_nm) * math.sin(math.radians(min(value, 90.0)))
        return Aperture("object_na", value)
    if kind == "image_na":
        n = index_of(path.surfaces[-1].medium, path.wavelength_nm)
        if value >= n:
            raise source.error(f"{keyword} {value:g} is not below the refractive index of image space, {n:g}")
        value = 1.0 / (2.0 * n * math.tan(math.asin(value / n)))
    if infinite:
        return Aperture("f_number", value)
    na = object_na_from_working_f_number(path, value)
    if na is None:
        raise source.error(f"{keyword}: the lens makes no image of its object", line=line)
    return Aperture("object_na", na)


def length_or_infinity(word: str, unit: float = 1.0) -> float | None:
    """A distance in mm, inf for a word or a number that means infinity; None for anything else."""
    if word.upper() in ("INF", "INFINITY"):
        return math.inf
    value = to_float(word)
    return value if value is None else math.inf if value * unit >= INFINITY_MM else value * unit


def field_or_stand_in(lens: Lens) -> Field:
    """The lens's fields, or three image heights (the axis without an image radius) for programs that want some."""
    if lens.field is not None:
        return lens.field
    r = lens.image_radius
    if r is None:
        return Field("angle_deg", ((0.0, 0.0),))
    return Field("real_image_height", ((0.0, 0.0), (0.0, 0.7 * r), (0.0, r)))


def refuse_states(lens: Lens, file: str) -> None:
    """Raise LensError for a lens with states, of which a file of this kind holds one."""
    if lens.states:
        names = ", ".join(lens.state_names[:8])
        raise LensError(f"{file} holds one state; convert LENS@STATE. Its states: {names}", lens=lens.name)


def sampled_indices(medium: Medium, wavelengths_nm: Sequence[float], step_nm: int) -> list[tuple[float, float]]:
    """Wavelengths (nm) and indices over the visible range, as far as it is known; these wavelengths are among them."""
    low, high = medium.range_nm or (0.0, math.inf)
    visible = [float(w) for w in range(380, 781, step_nm) if low <= w <= high]
    return [(w, medium.index(w)) for w in sorted({D_LINE_NM, *wavelengths_nm, *visible})]


def check_glass(
    medium: Medium, surface: int | None = None
) -> Literal["air", "model", "constant", "table", "catalogue"]:
    """How a medium is written so that reading gives it back; raises LensError if there is no way."""
    nd, vd, name = medium.nd, medium.vd, medium.name
    with contextlib.suppress(LensError, UnknownGlassError):
        if medium == AIR:
            return "air"
        if medium.catalogue in ("model", "constant") and medium == model_glass(nd, vd):
            return "model"
        if medium.catalogue == "constant" and medium == constant_index(nd, name):
            return "constant"
        if medium.catalogue == "table" and medium == tabulated_glass(name, *zip(*table_rows(medium), strict=True)):
            return "table"
        if medium == find_glass(name, catalogue=medium.catalogue):
            return "catalogue"
    text = f"the medium {name!r} ({medium.catalogue}) cannot be written to a lens file"
    raise LensError(f"object space: {text}" if surface is None else text, surface=surface)


def power_series(surface: Surface) -> tuple[int, list[float]]:
    """The step between powers of r, 2 where all of a surface's terms are even, and the coefficients of r^step,
    r^(2 step), … up to the highest term; a surface without terms has a zero of r²."""
    terms = dict(surface.aspheric)
    step = 2 if all(power % 2 == 0 for power in terms) else 1
    return step, [terms.get(power, 0.0) for power in range(step, max(terms, default=2) + 1, step)]


def table_rows(medium: Medium) -> list[tuple[float, float]]:
    """Wavelengths (nm) and indices of a tabulated glass; of one index, the d line stands for all."""
    c = medium.coefficients
    return [(D_LINE_NM, c[0])] if len(c) == 1 else list(zip(c[0::2], c[1::2], strict=False))
