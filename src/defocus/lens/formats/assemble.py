"""What every reader does last: glass names become media, the parts become a Lens, failures name the file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ...errors import LensError, LensFileError, UnknownGlassError
from ...glass import AIR, Medium, constant_index, find_glass, model_glass, parse_glass_code, tabulated_glass
from ..first_order import AxialPath, index_of, object_na_from_working_f_number
from ..prescription import D_LINE_NM, Aperture, Lens, State, Surface
from .text import INFINITY_MM, LensText, clean, to_float

FallbackGlass = Medium | Callable[[str], Medium]

MAX_NOTES = 1000


@dataclass
class Notes:
    """What a reader decided, for the user to see."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        if text not in self.lines and len(self.lines) < MAX_NOTES:
            self.lines.append(text)


@dataclass
class Media:
    """Makes the media of one file; substitutions are noted, unknown glasses refused without a fallback."""

    file: str | Path
    notes: Notes
    fallback: FallbackGlass | None = None
    preferred: Sequence[str] = ()  # catalogues that the file itself names

    def knows(self, name: str, catalogue: str | None = None) -> bool:
        """Whether a catalogue (this one, or any) holds the glass."""
        try:
            find_glass(name, catalogue=catalogue, preferred=tuple(self.preferred))
        except (UnknownGlassError, LensError):
            return False
        return True

    def named(self, name: str, surface: int | None, *, catalogue: str | None = None, line: int | None = None) -> Medium:
        """A glass of a catalogue."""
        try:
            medium = find_glass(name, catalogue=catalogue, preferred=tuple(self.preferred))
        except (UnknownGlassError, LensError) as error:
            if self.fallback is None:
                text = getattr(error, "message", None) or str(error)
                raise UnknownGlassError(
                    f"{text}; give a fallback glass to read the file all the same",
                    file=self.file,
                    surface=surface,
                    line=line,
                ) from error
            medium = self.fallback(name) if callable(self.fallback) else self.fallback
            self.notes.add(f"{_place(surface)}: unknown glass {name} replaced by {medium.name}")
            return medium
        if medium.note:
            names_itself = medium.note.upper().startswith(name.upper())
            self.notes.add(f"{_place(surface)}: {medium.note if names_itself else f'glass {name}: {medium.note}'}")
        return medium

    def code(self, text: str, surface: int | None, *, line: int | None = None) -> Medium | None:
        """The model glass of a code such as 517000.642000, or None for anything else."""
        try:
            medium = parse_glass_code(text)
        except LensError as error:
            raise LensFileError(str(error), file=self.file, surface=surface, line=line) from error
        return None if medium is None else self.model(medium.nd, medium.vd, surface, line=line)

    def model(self, nd: float, vd: float | None, surface: int | None, *, line: int | None = None) -> Medium:
        """A glass given by its index at the d line and its Abbe number; without it the index is constant."""
        if nd == 1.0:
            return AIR
        return self._made(lambda: model_glass(nd, vd) if vd else constant_index(nd), surface, line)

    def constant(self, nd: float, name: str, surface: int | None, *, line: int | None = None) -> Medium:
        """A named medium without dispersion."""
        return self._made(lambda: constant_index(nd, name), surface, line)

    def table(
        self,
        name: str,
        wavelengths_nm: Sequence[float],
        indices: Sequence[float],
        surface: int | None,
        *,
        line: int | None = None,
    ) -> Medium:
        """A glass given by its indices."""
        return self._made(lambda: tabulated_glass(name, wavelengths_nm, indices), surface, line)

    def _made(self, make: Callable[[], Medium], surface: int | None, line: int | None) -> Medium:
        try:
            return make()
        except LensError as error:
            raise LensFileError(str(error), file=self.file, surface=surface, line=line) from error


def _place(surface: int | None) -> str:
    return "object space" if surface is None else f"surface {surface}"


def make_lens(file: str | Path, numbers: Sequence[int], notes: Notes, *, name: str, **parts: Any) -> Lens:
    """The lens; what the data model refuses becomes a LensFileError that counts surfaces as the file does.

    `numbers` holds the file's number of each surface of the lens.
    """
    name = name or clean(Path(file).stem)
    try:
        return Lens(name=name, notes=tuple(notes.lines), source=str(file), **parts)
    except LensError as error:
        raise _in_the_files_terms(error, file, numbers) from error


def _in_the_files_terms(
    error: LensError, file: str | Path, numbers: Sequence[int], *, state: str = ""
) -> LensFileError:
    """The data model's refusal of the lens, with the surface as the file counts it."""
    surface = None if error.surface is None else numbers[error.surface]
    return LensFileError(f"state {state!r}: {error.message}" if state else error.message, file=file, surface=surface)


def check_glass(
    medium: Medium, surface: int | None = None
) -> Literal["air", "model", "constant", "table", "catalogue"]:
    """How a medium is written so that reading gives it back; raises LensError if there is no way."""
    nd, vd, name = medium.nd, medium.vd, medium.name
    with contextlib.suppress(LensError, UnknownGlassError):
        if medium == AIR:
            return "air"
        if medium.catalogue in ("model", "constant") and medium == (model_glass(nd, vd) if vd else constant_index(nd)):
            return "model"
        if medium.catalogue == "constant" and medium == constant_index(nd, name):
            return "constant"
        rows = table_rows(medium)
        if medium.catalogue == "table" and medium == tabulated_glass(name, [w for w, _ in rows], [n for _, n in rows]):
            return "table"
        if medium == find_glass(name, catalogue=medium.catalogue):
            return "catalogue"
    text = f"the medium {name!r} ({medium.catalogue}) cannot be written to a lens file"
    raise LensError(f"object space: {text}" if surface is None else text, surface=surface)


def table_rows(medium: Medium) -> list[tuple[float, float]]:
    """Wavelengths (nm) and indices of a tabulated glass; of one index, the d line stands for all."""
    c = medium.coefficients
    return [(D_LINE_NM, c[0])] if len(c) == 1 else list(zip(c[0::2], c[1::2], strict=False))


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that occur more than once."""
    used: set[str] = set()
    result = []
    for name in names:
        unique, count = name, 1
        while unique in used:
            count += 1
            unique = f"{name} ({count})"
        used.add(unique)
        result.append(unique)
    return result


def reduced(state: State, lens: Lens) -> State:
    """The state without what it has in common with the lens itself."""
    surfaces = lens.surfaces

    def differing(values: tuple[tuple[int, float], ...], attribute: str) -> tuple[tuple[int, float], ...]:
        return tuple(sorted((i, v) for i, v in values if v != getattr(surfaces[i], attribute)))

    return replace(
        state,
        thickness=differing(state.thickness, "thickness"),
        semi_diameter=differing(state.semi_diameter, "semi_diameter"),
        object_distance=None if state.object_distance == lens.object_distance else state.object_distance,
        aperture=None if state.aperture == lens.aperture else state.aperture,
        field=None if state.field == lens.field else state.field,
        image_radius=None if state.image_radius == lens.image_radius else state.image_radius,
    )


def with_states(lens: Lens, states: Sequence[State], file: str | Path, numbers: Sequence[int]) -> Lens:
    """The lens with these states; names that occur twice get a number."""
    names = distinct([s.name for s in states])
    try:
        full = replace(
            lens, states=tuple(reduced(replace(s, name=n), lens) for s, n in zip(states, names, strict=True))
        )
    except LensError as error:
        raise _in_the_files_terms(error, file, numbers) from error
    check_states(full, file, numbers)
    return full


def check_states(lens: Lens, file: str | Path, numbers: Sequence[int]) -> None:
    """Refuse a state in which the lens is none."""
    for i, state in enumerate(lens.states):
        try:
            lens.in_state(i)
        except LensError as error:
            raise _in_the_files_terms(error, file, numbers, state=state.name) from error


@dataclass
class NumberedSurfaces:
    """Surfaces between object and image as Zemax and CODE V number them: 0 is the object, then 1, 2, ..."""

    source: LensText
    notes: Notes
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
            self.notes.add(f"dummy surfaces in front of the lens left out: {count}")
        self.object_distance += sum(s.thickness for s in self.surfaces[:count])
        self.surfaces, self.stop, self.first = self.surfaces[count:], self.stop - count, self.first + count

    def axial_path(self, wavelength_nm: float) -> AxialPath:
        return AxialPath(self.surfaces, self.object_distance, self.object_medium, wavelength_nm)

    def lens(self, **parts: Any) -> Lens:
        """The lens of these surfaces and the other parts of a Lens."""
        return make_lens(
            self.source.file,
            self.numbers,
            self.notes,
            surfaces=tuple(self.surfaces),
            stop=self.stop,
            object_distance=self.object_distance,
            object_medium=self.object_medium,
            **parts,
        )


def paraxial_aperture(
    source: LensText, path: AxialPath, keyword: str, kind: str, value: float, *, unit: float, line: int | None = None
) -> Aperture:
    """The aperture of a lens whose file gives `keyword` a value; `unit` is the file's in mm.

    `kind` is one of Aperture's, or object_half_angle (degrees), or working_f_number or image_na (both paraxial, at the
    used conjugates).
    """
    if not value > 0.0:
        raise source.error(f"{keyword} {value:g}; expected a positive number", line=line)
    infinite = math.isinf(path.object_distance)
    if kind == "entrance_pupil_diameter":
        return Aperture("entrance_pupil_diameter", value * unit)
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


def length_or_infinity(word: str, unit: float) -> float | None:
    """A distance in mm, inf for a word or a number that means infinity; None for anything else."""
    if word.upper() in ("INF", "INFINITY"):
        return math.inf
    value = to_float(word)
    return value if value is None else math.inf if value * unit >= INFINITY_MM else value * unit


def stop_aperture(radius: float | None) -> Aperture | None:
    """An aperture given by the stop's size, if it is known."""
    return Aperture("stop_radius", radius) if radius is not None and 0.0 < radius < math.inf else None
