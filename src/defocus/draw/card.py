"""A lens on one page: layout, first-order data and third-order aberrations, spot diagrams."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from ..lens.prescription import Lens
from ..optics.apertures import with_clear_apertures
from ..optics.spot_diagram import spot_diagram
from ..survey.measurement import Measurement, measure_one
from . import style
from .layout import paint_layout, paint_legend, plan_layout
from .sheet import Sheet
from .spots import paint_spots

WIDTH = 11.0  # inches
TITLE, DRAWING, LEGEND, LINE, SPOTS = 0.7, 4.3, 0.85, 0.2, 3.45  # inches: heights of the parts
COLUMNS = (0.45, 4.0, 7.55)  # inches from the left: where the table's columns begin
COLUMN_WIDTH = 3.0
TABLE = (  # heads of the columns; name, number of a `Measurement`, unit of each row
    (
        "first order",
        ("focal length", "focal_length_mm", "mm"),
        ("F-number", "f_number", ""),
        ("numerical aperture", "na", ""),
        ("half field", "half_field_deg", "°"),
        ("image radius", "image_radius_mm", "mm"),
        ("stop radius", "stop_radius_mm", "mm"),
    ),
    (
        "lengths and pupils",
        ("back focal distance", "back_focal_distance_mm", "mm"),
        ("total track", "total_track_mm", "mm"),
        ("entrance pupil, from first surface", "entrance_pupil_mm", "mm"),
        ("entrance pupil radius", "entrance_pupil_radius_mm", "mm"),
        ("exit pupil, from last surface", "exit_pupil_mm", "mm"),
        ("exit pupil radius", "exit_pupil_radius_mm", "mm"),
    ),
    (
        "third-order sums and focus",
        ("spherical aberration, TSC", "tsc_mm", "mm"),
        ("tangential coma, CC", "cc_mm", "mm"),
        ("astigmatism, TAC", "tac_mm", "mm"),
        ("axial RMS spot, d line", "axial_rms_mm", "µm"),
        ("wavefront range, axis", "phase_range_axis_waves", "waves"),
        ("wavefront range, edge", "phase_range_edge_waves", "waves"),
    ),
)


@style.look()
def draw_card(lens: Lens) -> Figure:
    """One page about a lens. Missing clear apertures are solved for.

    Raises `TraceError` for a lens without light on the axis; what else could not be measured is said on the sheet.
    """
    lens = with_clear_apertures(lens)
    layout = plan_layout(lens)
    diagram = spot_diagram(lens)
    measurement = measure_one(lens)
    problems = [f"not measured: {text}" for text in measurement.problems]
    size = layout.scaled(WIDTH - 0.6, DRAWING)
    lines = max(map(len, TABLE)) + len(problems)
    sheet = Sheet(WIDTH, TITLE + size[1] + LEGEND + LINE * lines + 0.2 + SPOTS)
    sheet.title(lens.name, lens.patent)
    bottom = sheet.height - TITLE - size[1]
    paint_layout(sheet, layout, bottom, size)
    paint_legend(sheet, layout, bottom - LEGEND)
    for left, (topic, *rows) in zip(COLUMNS, TABLE, strict=True):
        y = bottom - LEGEND - LINE
        sheet.text(left, y, topic, fontweight="bold")
        for name, number, unit in rows:
            y -= LINE
            sheet.text(left, y, name, color=style.FAINT)
            sheet.text(left + COLUMN_WIDTH, y, value_text(measurement, number, unit), ha="right")
    for problem in problems:
        y -= LINE
        sheet.text(COLUMNS[0], y, problem, room=WIDTH - 2 * COLUMNS[0], color=style.ORANGE)
    paint_spots(sheet, diagram, (0.0,), top=SPOTS)
    return sheet.figure


def value_text(measurement: Measurement, number: str, unit: str) -> str:
    """A number of a measurement with its unit; – where it is not known."""
    value = float(getattr(measurement, number)) * (1e3 if unit == "µm" else 1.0)
    if not math.isfinite(value):
        return "∞" if math.isinf(value) else "–"
    return style.minus(f"{value:.4g}") + ("" if unit in ("", "°") else " ") + unit
