"""Spot diagrams on a sheet. Up in a panel is away from the centre of the photograph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from ..lens.prescription import Lens
from ..optics.spot_diagram import Spot, SpotDiagram, spot_diagram
from . import style
from .sheet import Sheet, frame, head, note

PANEL, GAP = 1.9, 0.1  # inches: a panel and the space beside it
TITLE, HEADS, FOOT, KEY = 0.62, 0.42, 0.22, 0.8  # inches: above the panels, below each row of them, below them all


@style.look()
def draw_spots(lens: Lens, *, defocus_mm: Sequence[float] = (0.0,), **options: Any) -> Figure:
    """Spot diagrams: one column for each field, one row for each `defocus_mm`; `options` as for `spot_diagram`.

    Defocus is the sensor's distance behind the plane of focus: the axial best focus at the d line or, with
    `at_best_focus` off, the prescription's own image plane.
    """
    diagram = spot_diagram(lens, **options)
    sheet = Sheet(
        max(0.8 + (PANEL + GAP) * len(diagram.spots), 6.4), TITLE + HEADS + (PANEL + FOOT) * len(defocus_mm) + KEY
    )
    sheet.title(lens.name, "spot diagrams")
    paint_spots(sheet, diagram, defocus_mm, top=sheet.height - TITLE)
    return sheet.figure


def paint_spots(sheet: Sheet, diagram: SpotDiagram, defocus_mm: Sequence[float], *, top: float) -> None:
    """Spot panels and their key along the lower edge of a sheet, up to `top` inches above it."""
    columns, rows = len(diagram.spots), len(defocus_mm)
    left = 0.55 if rows > 1 else 0.3
    side = min((sheet.width - left - 0.3) / columns - GAP, (top - HEADS - KEY) / rows - FOOT, PANEL)
    start = (sheet.width + left - 0.3 - columns * (side + GAP) + GAP) / 2
    half = _common_half_width(diagram, defocus_mm)
    for row, defocus in enumerate(defocus_mm):
        bottom = top - HEADS - row * (side + FOOT) - side
        for column, spot in enumerate(diagram.spots):
            axes = sheet.axes((start + column * (side + GAP), bottom, side, side))
            _paint_spot(axes, spot, diagram, defocus, half)
            if row == 0:
                _paint_head(axes, spot, diagram.wavelengths_nm)
            if column == 0 and rows > 1:
                text = style.minus(f"{defocus:+.3g} mm") if defocus else "focus"
                note(axes, text, (0.0, 0.5), (-5.0, 0.0), ha="right", va="center", rotation=90)
    bar = style.nice_length(half)
    sheet.scale_bar(start, bottom - 0.3, bar / (2.0 * half) * side, f"{bar * 1e3:g} µm")
    _paint_key(sheet, diagram)


def _common_half_width(diagram: SpotDiagram, defocus_mm: Sequence[float]) -> float:
    """Half side of all panels, mm: every ray fits, and so does the Airy disk."""
    extents = [diagram.airy_radius_mm]
    for spot in diagram.spots:
        for z in defocus_mm:
            points = np.concatenate(spot.at(diagram.focus_mm + z), axis=1)
            extents += [float(np.abs(points[0]).max()), float(np.ptp(points[1])) / 2.0]
    return 1.08 * max(extents)


def _paint_spot(axes: Axes, spot: Spot, diagram: SpotDiagram, defocus: float, half: float) -> None:
    z = diagram.focus_mm + defocus
    points = spot.at(z)
    heights = np.concatenate(points, axis=1)[1]
    middle = (heights.min() + heights.max()) / 2.0
    for (x, y), colour in zip(points, style.wavelength_colours(diagram.wavelengths_nm), strict=True):
        axes.plot(x, y, linestyle="none", marker="o", markersize=0.9, markeredgewidth=0.0, color=colour)
    disk = Circle((0.0, 0.0), diagram.airy_radius_mm, fill=False, edgecolor=style.INK, linewidth=0.6, zorder=3)
    axes.add_patch(disk)
    axes.set(xlim=(-half, half), ylim=(middle - half, middle + half))
    frame(axes, width=0.7)
    note(axes, f"RMS {spot.rms(z) * 1e3:.3g} µm", (0.5, 0.0), (0.0, -3.0), va="top")


def _paint_head(axes: Axes, spot: Spot, wavelengths_nm: Sequence[float]) -> None:
    """Above a column: the field, its height and angle; in it, the fields and wavelengths that have no light."""
    name, _, place = spot.lit.label.partition(": ")
    head(axes, name)
    note(axes, place.partition(" (")[0])
    dark = [f"{field:g}" for field in spot.lit.dark]
    dark += [f"{w:.4g} nm" for w, points in zip(wavelengths_nm, spot.landing, strict=True) if not points.size]
    if dark:
        options: dict[str, Any] = {"va": "top", "fontsize": style.SMALL - 1.0, "color": style.ORANGE}
        note(axes, f"no light at {' and '.join(dark)}", points=(0.0, -3.0), **options)


def _paint_key(sheet: Sheet, diagram: SpotDiagram) -> None:
    """Wavelengths, Airy disk, and what the reader must know of plane and reference."""
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=4, color=c, label=f"{w:.4g} nm")
        for w, c in zip(diagram.wavelengths_nm, style.wavelength_colours(diagram.wavelengths_nm), strict=True)
    ]
    ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": style.INK, "markeredgewidth": 0.6}
    airy = f"Airy disk, radius {diagram.airy_radius_mm * 1e3:.2g} µm"
    handles.append(Line2D([], [], linestyle="none", marker="o", markersize=6, label=airy, **ring))
    sheet.figure.legend(
        handles=handles,
        loc="lower center",
        ncols=len(handles),
        bbox_to_anchor=(0.5, 0.25 / sheet.height),
        borderaxespad=0.0,
        handletextpad=0.2,
    )
    plane = "the prescription's image plane"
    where = f"axial best focus at the d line, {diagram.focus_mm * 1e3:+.0f} µm from {plane}"
    text = f"one sensor plane for all fields: {where if diagram.is_best_focus else plane}"
    sheet.footnote(style.minus(f"{text}; RMS about the centroid of all rays; up is outwards"), 0.1)
