"""What the tab of lenses shows: the library filtered, a lens's numbers as a table, its layout and its charts."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..analysis import Analysis
from ..camera import Camera
from ..draw import html_image, plot_camera, plot_curves
from ..draw.card import TABLE, value_text
from ..draw.pages import page
from ..lens import list_lenses
from ..lens.library import LibraryEntry
from ..survey import measure_one

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..lens import Lens

KINDS = ("all", "wide angle", "standard", "telephoto", "zoom", "macro", "fisheye", "phone", "large format")
NORMAL = (0.8, 1.6)  # focal length over the image's diagonal, of standard lenses


@dataclasses.dataclass(frozen=True)
class LensFilter:
    """What a visitor looks for; None leaves a bound open."""

    words: str = ""
    kind: str = "all"
    shortest_mm: float | None = None
    longest_mm: float | None = None
    widest: float | None = None  # the largest f-number of a full aperture
    first_year: float | None = None
    last_year: float | None = None

    def matches(self, entry: LibraryEntry) -> bool:
        """Whether a lens is looked for."""
        text = " ".join(map(str, dataclasses.astuple(entry))).lower()
        focal = (entry.focal_length_mm, *entry.state_focal_lengths_mm)
        bounds = (
            (self.shortest_mm, max(focal)),
            (None if self.longest_mm is None else -self.longest_mm, -min(focal)),
            (None if self.widest is None else -self.widest * 1.06, -entry.f_number),  # engraved f-numbers
        )
        years = self.first_year or self.last_year
        return (
            all(word in text for word in self.words.lower().split())
            and (self.kind == "all" or self.kind in kinds_of(entry))
            and all(low is None or value >= low for low, value in bounds)
            and (not years or (entry.year is not None and (self.first_year or 0) <= entry.year))
            and (not self.last_year or (entry.year is not None and entry.year <= self.last_year))
        )


def kinds_of(entry: LibraryEntry) -> set[str]:
    """The kinds, of KINDS, that a lens belongs to."""
    text = entry.type.lower()
    ratio = entry.focal_length_mm / (2.0 * entry.image_radius_mm)
    by_angle = "wide angle" if ratio < NORMAL[0] else "standard" if ratio < NORMAL[1] else "telephoto"
    by_word = {kind for kind in ("zoom", "macro", "fisheye", "large format") if kind in text}
    return by_word | {by_angle} | ({"phone"} if entry.category == "phone" else set())


def lens_choices(filter_: LensFilter) -> list[tuple[str, str]]:
    """Labels and names of the lenses that match; each state of a zoom is one."""
    return [choice for entry in list_lenses() if filter_.matches(entry) for choice in _choices(entry)]


def _choices(entry: LibraryEntry) -> Iterator[tuple[str, str]]:
    title = f"{entry.title}" + (f" ({entry.year})" if entry.year else "")
    if not entry.states:
        yield title, entry.name
    for state, focal in zip(entry.states, entry.state_focal_lengths_mm, strict=True):
        yield f"{title}, {state} {focal:.0f} mm", f"{entry.name}@{state}"


def numbers_table(lens: Lens) -> str:
    """The numbers of a lens's card as HTML."""
    measurement = measure_one(lens)
    tables = {
        topic: [(name, value_text(measurement, number, unit)) for name, number, unit in rows] for topic, *rows in TABLE
    }
    notes = [lens.patent, *lens.notes, *(f"not measured: {text}" for text in measurement.problems)]
    return page("lens_numbers.html", tables=tables, notes=[note for note in notes if note])


def picture_of(figure: Figure, alt: str) -> str:
    """A figure as an HTML picture with a text for those who do not see it."""
    tag = html_image(figure, dpi=110.0)
    return f"<div class='defocus-figure'>{tag.replace('<img ', f'<img alt={html.escape(alt)!r} ', 1)}</div>"


def layout_picture(camera: Camera) -> str:
    """The layout with rays as the lens is stopped down, and its blur over depth."""
    return picture_of(plot_camera(camera), f"Layout of {camera.lens.name} with rays; blur radius over depth")


def charts(camera: Camera) -> tuple[str, str]:
    """MTF and distortion at this stop and focus."""
    analysis = Analysis(camera)
    mtf, distortion = analysis.mtf(), analysis.distortion()
    middle = mtf.sagittal[0]
    spoken = ", ".join(f"{f:g} lp/mm {v:.2f}" for f, v in zip(mtf.frequency_lp_mm, middle, strict=True))
    edge = float(distortion.percent[-1])
    worst = f"{edge:+.2f} % at the edge" if math.isfinite(edge) else "not known at the edge"
    return (
        picture_of(plot_curves(mtf), f"MTF over image height; in the middle {spoken}"),
        picture_of(plot_curves(distortion), f"Distortion over image height: {worst}"),
    )


def first_lens(choices: list[tuple[str, str]], current: Any) -> str | None:
    """The lens that a filtered list shows: the current one while it matches, else the first."""
    names = [name for _, name in choices]
    return current if current in names else names[0] if names else None
