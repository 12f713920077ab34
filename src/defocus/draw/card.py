"""A lens on one page: layout, first-order data and third-order aberrations, spot diagrams."""

from __future__ import annotations

import math

from matplotlib.figure import Figure, FigureBase

from ..lens.prescription import Lens
from ..survey.measure import Measurement, measure_one
from . import style
from .geometry import with_clear_apertures
from .layout import paint_layout, paint_legend, plan_layout
from .spots import paint_spots, spot_diagram

WIDTH = 11.0  # inches
TITLE, DRAWING, LEGEND, LINE, SPOTS = 0.7, 4.3, 0.85, 0.2, 3.45  # inches: heights of the parts
COLUMNS = (0.45, 4.0, 7.55)  # inches from the left: where the table's columns begin
COLUMN_WIDTH = 3.0


def draw_card(lens: Lens) -> Figure:
    """One page about a lens. Missing clear apertures are solved for.

    Raises `TraceError` for a lens without light on the axis; what else could not be measured is said on the page.
    """
    lens = with_clear_apertures(lens)
    layout = plan_layout(lens)
    diagram = spot_diagram(lens)
    measured = measure_one(lens)
    table = table_of(measured)
    problems = [f"not measured: {text}" for text in measured.problems]
    lines = max(len(column) for column in table) + len(problems)
    table_height = LINE * (lines + 1) + 0.2
    width, height = layout.size
    inches = min((WIDTH - 0.6) / width, DRAWING / height)  # per mm
    drawing = width * inches, height * inches
    page = TITLE + drawing[1] + LEGEND + table_height + SPOTS
    with style.look():
        figure = Figure(figsize=(WIDTH, page))
        style.title(figure, lens.name, lens.patent, (WIDTH, page))
        bottom = page - TITLE - drawing[1]
        box = (
            (WIDTH - drawing[0]) / 2 / WIDTH,
            bottom / page,
            drawing[0] / WIDTH,
            drawing[1] / page,
        )
        paint_layout(style.bare_axes(figure, box), layout)
        bottom -= LEGEND
        paint_legend(figure, layout, (WIDTH, page), bottom)
        _paint_table(figure, table, problems, (WIDTH, page), bottom)
        paint_spots(figure, diagram, (0.0,), size=(WIDTH, page), top=page - SPOTS)
    return figure


def table_of(m: Measurement) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The card's table: three columns of (name, value)."""
    return (
        (
            ("focal length", _number(m.focal_length_mm, "mm")),
            ("F-number", _number(m.f_number)),
            ("numerical aperture", _number(m.na)),
            ("half field", _number(m.half_field_deg, "°")),
            ("image radius", _number(m.image_radius_mm, "mm")),
            ("stop radius", _number(m.stop_radius_mm, "mm")),
        ),
        (
            ("back focal distance", _number(m.back_focal_distance_mm, "mm")),
            ("total track", _number(m.total_track_mm, "mm")),
            ("entrance pupil, from first surface", _number(m.entrance_pupil_mm, "mm")),
            ("entrance pupil radius", _number(m.entrance_pupil_radius_mm, "mm")),
            ("exit pupil, from last surface", _number(m.exit_pupil_mm, "mm")),
            ("exit pupil radius", _number(m.exit_pupil_radius_mm, "mm")),
        ),
        (
            ("spherical aberration, TSC", _number(m.tsc_mm, "mm")),
            ("tangential coma, CC", _number(m.cc_mm, "mm")),
            ("astigmatism, TAC", _number(m.tac_mm, "mm")),
            ("axial RMS spot, d line", _number(1e3 * m.axial_rms_mm, "µm")),
            ("wavefront range, axis", _number(m.phase_range_axis_waves, "waves")),
            ("wavefront range, edge", _number(m.phase_range_edge_waves, "waves")),
        ),
    )


def _number(value: float, unit: str = "") -> str:
    if not math.isfinite(value):
        return "∞" if math.isinf(value) else "–"
    text = f"{value:.4g}".replace("-", "−")
    return f"{text}{'' if unit == '°' else ' ' * bool(unit)}{unit}"


def _paint_table(
    figure: FigureBase,
    table: tuple[tuple[tuple[str, str], ...], ...],
    problems: list[str],
    size: tuple[float, float],
    top: float,
) -> None:
    """Names to the left, values to the right of each column; `top` is in inches from the lower edge."""
    width, height = size
    heads = ("first order", "lengths and pupils", "third-order sums and focus")
    for left, head, rows in zip(COLUMNS, heads, table, strict=True):
        y = top - LINE
        figure.text(left / width, y / height, head, fontsize=style.SMALL, fontweight="bold")
        for name, value in rows:
            y -= LINE
            figure.text(left / width, y / height, name, fontsize=style.SMALL, color=style.FAINT)
            figure.text((left + COLUMN_WIDTH) / width, y / height, value, fontsize=style.SMALL, ha="right")
    y = top - LINE * (1 + max(len(rows) for rows in table))
    for text in problems:
        y -= LINE
        size_ = style.fitted_size(text, style.SMALL, width - 2 * COLUMNS[0])
        figure.text(COLUMNS[0] / width, y / height, text, fontsize=size_, color=style.ORANGE)
