"""Spot diagrams: where real rays of a point meet the sensor.

Rays fill the vignetted pupil evenly: a hexagonal lattice on the plane normal to the chief ray. All wavelengths come
from the same object point, so lateral and longitudinal colour show. The sensor stands in one plane for all fields: by
default at the best focus of the axial beam at the d line. Up in a panel is away from the centre of the photograph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from ..errors import TraceError
from ..lens.prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, Lens
from ..optics.system import pack_one
from . import style
from .beams import COUNT, Beam, Optics, field_label, lit_beam, lit_beams, optics_of, trace_rays
from .geometry import with_clear_apertures

FIELDS = (0.0, 0.5, 0.7, 0.85, 1.0)
WAVELENGTHS_NM = (F_LINE_NM, D_LINE_NM, C_LINE_NM)
LATTICE = 420  # points over the rectangle that holds the pupil
SEARCH = 24  # points across, in the search for that rectangle
ROUNDS = 3
PANEL, GAP = 1.9, 0.1  # inches: a panel and the space beside it
TITLE, HEADS, FOOT, KEY = 0.62, 0.42, 0.22, 0.8  # inches: above the panels, below each row of them, below them all


@dataclass(frozen=True, slots=True)
class Spot:
    """The rays of one field point behind the lens, y away from the axis."""

    asked: tuple[float, ...]  # fields that were asked for, as fractions of the image radius
    field: float  # the one that is drawn: the outermost with light, where one that was asked for has none
    label: str
    at_zero: tuple[Float[np.ndarray, "2 _"], ...]  # mm, on the prescription's image plane, for each wavelength
    slope: tuple[Float[np.ndarray, "2 _"], ...]  # mm per mm

    def at(self, z: float) -> list[Float[np.ndarray, "2 _"]]:
        """Points (mm) on the plane z mm behind the prescription's image plane, from their common centroid."""
        points = [p + z * s for p, s in zip(self.at_zero, self.slope, strict=True)]
        centre = np.concatenate(points, axis=1).mean(axis=1, keepdims=True)
        return [p - centre for p in points]

    def rms(self, z: float) -> float:
        """RMS distance (mm) of the rays of all wavelengths from their centroid."""
        return float(np.sqrt(np.mean(np.sum(np.concatenate(self.at(z), axis=1) ** 2, axis=0))))


@dataclass(frozen=True, slots=True)
class SpotDiagram:
    """Spots on a common sensor plane."""

    spots: tuple[Spot, ...]
    wavelengths_nm: tuple[float, ...]
    focus_mm: float  # the sensor, from the prescription's image plane
    is_best_focus: bool
    airy_radius_mm: float  # of the axial beam at the d line


def spot_diagram(
    lens: Lens,
    *,
    fields: Sequence[float] = FIELDS,
    wavelengths_nm: Sequence[float] = WAVELENGTHS_NM,
    at_best_focus: bool = True,
) -> SpotDiagram:
    """Trace the spots of some fields (fractions of the image radius) at some wavelengths (nm).

    A field that no light reaches is replaced by the outermost one with light. Raises `TraceError` where not even the
    axis has light.
    """
    optics = optics_of(with_clear_apertures(lens))
    if not float(optics.first_order.na) > 0.0:
        raise TraceError(f"{lens.name}: its focal length is infinite, so a distant point has no image and no spot")
    beams = lit_beams(optics, fields)
    focus = 0.0
    if at_best_focus:
        axis = lit_beam(optics, 0.0)
        half = COUNT // 2
        radius = axis.high * np.sqrt((np.arange(half) + 0.5) / half)  # rings of equal area
        y = np.concatenate([-radius, radius])
        focus = trace_rays(optics, axis, np.zeros_like(y), y).focus
    airy = 0.61 * D_LINE_NM * 1e-6 / float(optics.first_order.na)
    spots = tuple(_spot(optics, asked, beam, wavelengths_nm) for asked, beam in beams)
    return SpotDiagram(spots, tuple(wavelengths_nm), focus, at_best_focus, airy)


def _pupil(optics: Optics, beam: Beam) -> tuple[Float[np.ndarray, " rays"], Float[np.ndarray, " rays"]]:
    """A hexagonal lattice of points (mm from the chief ray) over the rectangle that just holds what passes."""
    across = max(2.2 * optics.pupil_radius, beam.high - beam.low)
    box = np.array([[-across, across], [1.5 * beam.low - 0.5 * beam.high, 1.5 * beam.high - 0.5 * beam.low]])
    cell = 1.0 / (SEARCH - 1)
    for _ in range(ROUNDS):
        steps = np.linspace(0.0, 1.0, SEARCH)
        unit = np.stack([g.ravel() for g in np.meshgrid(steps, steps)])
        x, y = box[:, :1] + unit * np.diff(box)
        passes = trace_rays(optics, beam, x, y).passes
        if not passes.any():
            break
        low, high = unit[:, passes].min(axis=1) - cell, unit[:, passes].max(axis=1) + cell
        box = box[:, :1] + np.stack([low, high], axis=1) * np.diff(box)
    width, height = np.diff(box)[:, 0]
    pitch = math.sqrt(width * height / LATTICE * 2.0 / math.sqrt(3.0))
    rows = max(3, round(height / (pitch * math.sqrt(3.0) / 2.0)))
    columns = max(3, min(round(width / pitch), COUNT // rows))
    j, i = (g.ravel() for g in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    x = box[0, 0] + width * (i + 0.25 + 0.5 * (j % 2)) / columns
    return x, box[1, 0] + height * (j + 0.5) / rows


def _spot(optics: Optics, asked: tuple[float, ...], beam: Beam, wavelengths_nm: Sequence[float]) -> Spot:
    x, y = _pupil(optics, beam)
    places, slopes = [], []
    for wavelength in wavelengths_nm:
        # Only the indices change: the stop stays as wide as it is at the d line.
        index = pack_one(optics.lens, wavelength).index
        system = eqx.tree_at(lambda s: s.index, optics.system, jnp.asarray(index))
        traced = trace_rays(optics, beam, x, y, system=system)
        places.append(traced.landing[:, traced.passes])
        slopes.append(traced.slope[:, traced.passes])
    heights = np.concatenate(places, axis=1)[1]
    if not len(heights):
        tried = ", ".join(f"{wavelength:g}" for wavelength in wavelengths_nm)
        raise TraceError(
            f"{optics.lens.name}: of the rays tried at field {beam.field:g} none passes at {tried} nm; "
            "check its aperture and clear apertures, or choose other wavelengths"
        )
    turn = np.array([[1.0], [-1.0 if heights.mean() < 0.0 else 1.0]])
    label = field_label(asked, beam)
    return Spot(asked, beam.field, label, tuple(turn * p for p in places), tuple(turn * s for s in slopes))


def draw_spots(
    lens: Lens,
    *,
    fields: Sequence[float] = FIELDS,
    wavelengths_nm: Sequence[float] = WAVELENGTHS_NM,
    defocus_mm: Sequence[float] = (0.0,),
    at_best_focus: bool = True,
) -> Figure:
    """Spot diagrams: one column for each field (fractions of the image radius), one row for each `defocus_mm`.

    Defocus is the sensor's distance behind the plane of focus: the axial best focus at the d line or, with
    `at_best_focus` off, the prescription's own image plane.
    """
    diagram = spot_diagram(lens, fields=fields, wavelengths_nm=wavelengths_nm, at_best_focus=at_best_focus)
    columns, rows = len(diagram.spots), len(defocus_mm)
    width = max(0.8 + (PANEL + GAP) * columns, 6.4)
    height = TITLE + HEADS + (PANEL + FOOT) * rows + KEY
    with style.look():
        figure = Figure(figsize=(width, height))
        style.title(figure, lens.name, "spot diagrams", (width, height))
        paint_spots(figure, diagram, defocus_mm, size=(width, height), top=TITLE)
    return figure


def paint_spots(
    container: FigureBase,
    diagram: SpotDiagram,
    defocus_mm: Sequence[float],
    *,
    size: tuple[float, float],
    top: float,
) -> None:
    """Draw spot panels and their key into a figure, or a part of one, `top` inches below its upper edge.

    `size` is the container's width and height in inches.
    """
    width, height = size
    columns, rows = len(diagram.spots), len(defocus_mm)
    left = 0.55 if rows > 1 else 0.3
    side = min((width - left - 0.3) / columns - GAP, (height - top - HEADS - KEY) / rows - FOOT, PANEL)
    start = (width + left - 0.3 - columns * (side + GAP) + GAP) / 2
    half = _common_half_width(diagram, defocus_mm)
    for row, defocus in enumerate(defocus_mm):
        bottom = height - top - HEADS - row * (side + FOOT) - side
        for column, spot in enumerate(diagram.spots):
            x = start + column * (side + GAP)
            axes = container.add_axes((x / width, bottom / height, side / width, side / height))
            _paint_spot(axes, spot, diagram, defocus, half)
            if row == 0:
                _paint_head(axes, spot, diagram.wavelengths_nm)
            if column == 0 and rows > 1:
                text = f"{defocus:+.3g} mm".replace("-", "−") if defocus else "focus"
                _beside(axes, text, (0.0, 0.5), (-5.0, 0.0), ha="right", va="center", rotation=90)
            if column == 0 and row == rows - 1:
                bar, mm = style.nice_length(half), 2.0 * half / side  # mm per inch
                low = axes.get_ylim()[0]
                style.scale_bar(axes, -half, low - 0.3 * mm, bar, f"{bar * 1e3:g} µm", tick=0.07 * mm)
    _paint_key(container, diagram, height)


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
    axes.set_xlim(-half, half)
    axes.set_ylim(middle - half, middle + half)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(style.FRAME)
    for (x, y), colour in zip(points, style.wavelength_colours(diagram.wavelengths_nm), strict=True):
        axes.plot(x, y, linestyle="none", marker="o", markersize=0.9, markeredgewidth=0.0, color=colour)
    disk = Circle((0.0, 0.0), diagram.airy_radius_mm, fill=False, edgecolor=style.INK, linewidth=0.6, zorder=3)
    axes.add_patch(disk)
    _beside(axes, f"RMS {spot.rms(z) * 1e3:.3g} µm", (0.5, 0.0), (0.0, -3.0), va="top")


def _paint_head(axes: Axes, spot: Spot, wavelengths_nm: Sequence[float]) -> None:
    """Above a column: the field, its height and angle; then what has no light: fields it stands in for, wavelengths."""
    name, _, place = spot.label.partition(": ")
    _beside(axes, name, (0.5, 1.0), (0.0, 14.0), fontweight="bold")
    _beside(axes, place.partition(" (")[0], (0.5, 1.0), (0.0, 4.0))
    lost = [f"{a:g}" for a in spot.asked if a != spot.field]
    lost += [f"{w:.4g} nm" for w, points in zip(wavelengths_nm, spot.at_zero, strict=True) if not points.size]
    if lost:
        text = f"no light at {' and '.join(lost)}"
        _beside(axes, text, (0.5, 1.0), (0.0, -3.0), va="top", fontsize=style.SMALL - 1.0, color=style.ORANGE)


def _beside(axes: Axes, text: str, at: tuple[float, float], points: tuple[float, float], **how: Any) -> None:
    """Text some points away from a place given in fractions of the axes."""
    how = {"ha": "center", "fontsize": style.SMALL, **how}
    axes.annotate(text, at, xycoords="axes fraction", xytext=points, textcoords="offset points", **how)


def _paint_key(container: FigureBase, diagram: SpotDiagram, height: float) -> None:
    """Wavelengths, Airy disk, and what the reader must know of plane and reference."""
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=4, color=c, label=f"{w:.4g} nm")
        for w, c in zip(diagram.wavelengths_nm, style.wavelength_colours(diagram.wavelengths_nm), strict=True)
    ]
    ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": style.INK, "markeredgewidth": 0.6}
    airy = f"Airy disk, radius {diagram.airy_radius_mm * 1e3:.2g} µm"
    handles.append(Line2D([], [], linestyle="none", marker="o", markersize=6, label=airy, **ring))
    container.legend(
        handles=handles,
        loc="lower center",
        ncols=len(handles),
        bbox_to_anchor=(0.5, 0.25 / height),
        borderaxespad=0.0,
        handletextpad=0.2,
    )
    plane = "the prescription's image plane"
    where = f"axial best focus at the d line, {diagram.focus_mm * 1e3:+.0f} µm from {plane}"
    text = f"one sensor plane for all fields: {where if diagram.is_best_focus else plane}"
    text += "; RMS about the centroid of all rays; up is outwards"
    size = style.SMALL - 0.5
    container.text(0.5, 0.1 / height, text.replace("-", "−"), ha="center", fontsize=size, color=style.FAINT)
