"""The aperture of a .seq file, and its zoom positions as states of the lens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..first_order import AxialPath, path_through
from ..prescription import Aperture, Lens, State
from .assemble import length_or_infinity, paraxial_aperture
from .codev import CodeVFile, Command
from .text import clean, to_floats, to_int

APERTURES = {"EPD": "entrance_pupil_diameter", "FNO": "working_f_number", "NA": "image_na", "NAO": "object_na"}


def values_of(parts: CodeVFile, command: Command) -> list[float]:
    """The numbers of a command, at least one."""
    values = to_floats([w.text for w in command.words])
    if not values:
        raise parts.error(f"{command.keyword}: expected numbers", line=command.line)
    return values


def object_distance_of(parts: CodeVFile, word: str, unit: float) -> float:
    """Thickness of SO in mm."""
    distance = length_or_infinity(word, unit)
    if distance is None:
        raise parts.error(f"SO: {clean(word, 40)!r} is not a number", surface=0)
    return distance


def system_aperture(
    parts: CodeVFile, path: AxialPath, unit: float, setting: tuple[str, float] | None = None
) -> Aperture:
    """The aperture of the file, or that of a zoom position: `setting` is its keyword and value."""
    if setting is None:
        keyword = next((k for k in APERTURES if k in parts.system), None)
        if keyword is None:
            raise parts.error(f"no aperture; expected one of {', '.join(APERTURES)}")
        setting = keyword, values_of(parts, parts.system[keyword])[0]
    return paraxial_aperture(parts, path, setting[0], APERTURES[setting[0]], setting[1], unit=unit)


@dataclass
class Zoom:
    """What ZOO commands change: one value for each position."""

    thickness: dict[int, list[float]] = field(default_factory=dict)  # surface → mm
    image_shift: list[float] | None = None  # mm
    object_distance: list[float] | None = None  # mm
    aperture: tuple[str, list[float]] | None = None

    def states(self, parts: CodeVFile, lens: Lens, numbers: Sequence[int], unit: float, defocus: float) -> list[State]:
        """One state for each position; `defocus` is the image shift that the lens already holds."""
        if parts.zooms == 1:
            return []
        states = []
        for k in range(parts.zooms):
            thickness = {numbers.index(n): values[k] for n, values in self.thickness.items()}
            last = len(lens.surfaces) - 1
            shift = defocus if self.image_shift is None else self.image_shift[k]
            thickness[last] = thickness.get(last, lens.surfaces[last].thickness - defocus) + shift
            distance = lens.object_distance if self.object_distance is None else self.object_distance[k]
            path = path_through(lens, distance, thickness)
            setting = (self.aperture[0], self.aperture[1][k]) if self.aperture else None
            states.append(
                State(
                    name=f"zoom {k + 1}",
                    thickness=tuple(sorted(thickness.items())),
                    object_distance=distance,
                    aperture=system_aperture(parts, path, unit, setting),
                )
            )
        return states


def read_zoom(parts: CodeVFile, unit: float) -> Zoom:
    """ZOO THI Sk and ZOO EPD, FNO, NA or NAO; anything else that changes is refused."""
    zoom = Zoom()
    for command in parts.zoomed:
        what = command.words[0].text.upper() if command.words else ""
        words = command.words[1:]
        target = words[0].text.upper() if what == "THI" and words else ""
        if what not in ("THI", *APERTURES) or (
            what == "THI" and target not in ("SO", "SI") and not target[1:].isdigit()
        ):
            text = f"ZOO {clean(what, 20)}: only distances (ZOO THI Sk) and the aperture may change"
            raise parts.unsupported(text, line=command.line)
        values = values_of(parts, command._replace(words=words[1:] if what == "THI" else words))
        if len(values) != parts.zooms:
            raise parts.error(f"ZOO {what}: {len(values)} values for {parts.zooms} positions", line=command.line)
        if what != "THI":
            zoom.aperture = (what, values)
        elif target == "SI":
            zoom.image_shift = [v * unit for v in values]
        elif target in ("SO", "S0"):
            zoom.object_distance = [object_distance_of(parts, repr(v), unit) for v in values]
        else:
            number = to_int(target[1:])
            if number is None or not 1 <= number < len(parts.surfaces):
                raise parts.error(f"ZOO THI {clean(target, 20)}: there is no such surface", line=command.line)
            zoom.thickness[number] = [v * unit for v in values]
    return zoom
