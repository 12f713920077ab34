"""Which lenses are photographic, of which kind, and fit to simulate: the paper's global filter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal

from ..errors import DefocusError

if TYPE_CHECKING:
    from .measurement import Measurement

Category = Literal["interchangeable", "phone", ""]


@dataclass(frozen=True, slots=True)
class Criteria:
    """Limits of the filter, the options of `defocus lens survey`; the defaults are the paper's.

    Lengths in mm; inf takes an upper limit away.
    """

    max_f_number: Annotated[float, "Largest F-number."] = 8.0
    interchangeable_min_image_radius_mm: Annotated[float, "Smallest image, cameras."] = 10.0
    interchangeable_min_track_mm: Annotated[float, "Shortest lens, cameras."] = 25.0
    phone_min_image_radius_mm: Annotated[float, "Smallest image, phones."] = 2.5
    phone_max_image_radius_mm: Annotated[float, "Largest image, phones."] = 8.0
    phone_max_track_mm: Annotated[float, "Longest lens, phones."] = 15.0
    max_na: Annotated[float, "NA must stay below this."] = 0.6
    max_phase_range_waves: Annotated[float, "Phase range must stay below this."] = 10.0  # 20π; axis and edge
    max_axial_rms: Annotated[float, "Largest axial RMS spot over image radius."] = 0.01

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value >= 0.0:  # nothing is larger or smaller than nan: every lens would pass
                raise DefocusError(f"{limit.name} = {value}; expected a number, 0 or more")


@dataclass(frozen=True, slots=True)
class LensVerdict:
    """Whether a lens is kept, its category, and every criterion that it failed, each with its number."""

    kept: bool
    category: Category
    reasons: tuple[str, ...]


def classify(measured: Measurement, criteria: Criteria) -> Category:
    """The kind of camera that image radius and total track speak for; empty if neither."""
    radius, track = measured.image_radius_mm, measured.total_track_mm
    if radius >= criteria.interchangeable_min_image_radius_mm and track >= criteria.interchangeable_min_track_mm:
        return "interchangeable"
    in_range = criteria.phone_min_image_radius_mm <= radius <= criteria.phone_max_image_radius_mm
    return "phone" if in_range and track <= criteria.phone_max_track_mm else ""


def judge(measured: Measurement, criteria: Criteria | None = None) -> LensVerdict:
    """Apply the filter to one measured lens. What could not be measured is a reason of its own."""
    criteria = criteria or Criteria()
    category = classify(measured, criteria)
    reasons = (*measured.problems, *_failures(measured, category, criteria))
    return LensVerdict(not reasons, category, reasons)


def _failures(measured: Measurement, category: Category, criteria: Criteria) -> Iterator[str]:
    m, c = measured, criteria
    relative_rms = m.axial_rms_mm / m.image_radius_mm
    judged = {
        "focal_length_mm": m.focal_length_mm,
        "f_number": m.f_number,
        "na": m.na,
        "phase_range_axis_waves": m.phase_range_axis_waves,
        "phase_range_edge_waves": m.phase_range_edge_waves,
        "axial_rms": relative_rms,
    }
    if not m.problems:
        yield from (f"{name} could not be measured" for name, value in judged.items() if math.isnan(value))
    if m.focal_length_mm <= 0:
        yield f"focal_length_mm {m.focal_length_mm:.4g} is not positive"
    if m.f_number > c.max_f_number:
        yield f"f_number {m.f_number:.4g} > {c.max_f_number:g}"
    if not category and not math.isnan(m.image_radius_mm):
        yield f"image_radius_mm {m.image_radius_mm:.4g} and total_track_mm {m.total_track_mm:.4g} fit no category"
    if m.na >= c.max_na:
        yield f"na {m.na:.4g} >= {c.max_na:g}"
    for where, waves in (("axis", m.phase_range_axis_waves), ("edge", m.phase_range_edge_waves)):
        if waves >= c.max_phase_range_waves:
            yield f"phase_range_{where}_waves {waves:.4g} >= {c.max_phase_range_waves:g}"
    if relative_rms > c.max_axial_rms:
        yield f"axial_rms {relative_rms:.4g} of the image radius > {c.max_axial_rms:g}"
