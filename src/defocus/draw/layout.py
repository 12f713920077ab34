"""The layout of a lens, as catalogues print it: elements, stop, ray bundles, image plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon

from ..lens.prescription import Lens
from ..optics.paraxial import first_order_batch
from ..optics.system import common_bucket, pack
from . import style
from .geometry import Geometry, cross_section, with_clear_apertures
from .rays import Fan, ray_paths

FIELDS = (0.0, 0.7, 1.0)
RAYS = 7
LARGEST = (11.0, 6.4)  # inches: the drawing itself fits in here
SMALLEST_WIDTH = 5.6  # inches: of the figure
MARGIN = 0.3  # inches around the drawing
WORTH_A_NOTE = 0.99  # a surface drawn smaller than this part of its clear aperture is mentioned
TITLE_HEIGHT, LEGEND_ROW, BAR_HEIGHT = 0.62, 0.2, 0.42  # inches


@dataclass(frozen=True, slots=True)
class Layout:
    """What a layout shows, and the box (mm) that holds it."""

    lens: Lens
    geometry: Geometry
    fans: tuple[Fan, ...]
    left: float
    right: float
    bottom: float
    top: float

    @property
    def size(self) -> tuple[float, float]:
        """Width and height, mm."""
        return self.right - self.left, self.top - self.bottom


def draw_layout(
    lens: Lens, *, fields: Sequence[float] = FIELDS, rays: int = RAYS, title: bool = True, legend: bool = True
) -> Figure:
    """The cross-section of a lens with `rays` real rays for each field (fractions of the image radius).

    Missing clear apertures are solved for. Where no light reaches a field, the outermost one with light takes its
    place, and the legend says so; of a lens without a field only the axis is drawn. Raises `TraceError` for a lens
    without light on the axis.
    """
    layout = plan_layout(lens, fields=fields, rays=rays)
    width, height = layout.size
    inches = min(LARGEST[0] / width, LARGEST[1] / height)  # per mm
    drawing = width * inches, height * inches
    full_width = max(drawing[0] + 2 * MARGIN, SMALLEST_WIDTH)
    above = TITLE_HEIGHT if title else MARGIN / 2
    below = BAR_HEIGHT + (legend_height(layout, full_width) if legend else 0.0)
    size = full_width, above + drawing[1] + below
    with style.look():
        figure = Figure(figsize=size)
        box = (
            (full_width - drawing[0]) / 2 / full_width,
            below / size[1],
            drawing[0] / full_width,
            drawing[1] / size[1],
        )
        paint_layout(style.bare_axes(figure, box), layout)
        if title:
            style.title(figure, lens.name, subtitle(lens), size, margin=MARGIN)
        if legend:
            paint_legend(figure, layout, size)
    return figure


def plan_layout(lens: Lens, *, fields: Sequence[float] = FIELDS, rays: int = RAYS) -> Layout:
    """Everything that is to be drawn, before anything is."""
    lens = with_clear_apertures(lens)
    geometry = cross_section(lens)
    fans = tuple(ray_paths(lens, fields, rays=rays))
    points = np.concatenate([fan.paths.reshape(-1, 2) for fan in fans])
    left = min(geometry.front, float(points[:, 0].min()))
    bottom = min(-geometry.height, float(points[:, 1].min()))
    top = max(geometry.height, float(points[:, 1].max()))
    right = geometry.back
    pad = 0.012 * (right - left)
    return Layout(lens, geometry, fans, left - pad, right + pad, bottom - pad, top + pad)


def paint_layout(axes: Axes, layout: Layout) -> None:
    """Draw a layout into axes whose box has its proportions; the scale bar goes below them."""
    geometry = layout.geometry
    axes.set_xlim(layout.left, layout.right)
    axes.set_ylim(layout.bottom, layout.top)
    axes.set_aspect("equal")
    width, _ = layout.size

    for element in geometry.elements:
        tint = style.glass_tint(element.medium, plate=element.is_plate)
        axes.add_patch(
            Polygon(
                element.outline,
                closed=True,
                facecolor=tint,
                edgecolor=style.INK,
                linewidth=style.OUTLINE,
                joinstyle="round",
                zorder=2,
            )
        )
    axes.plot(
        [layout.left, layout.right], [0.0, 0.0], color=style.FAINT, linewidth=style.AXIS, dashes=(12, 3, 2, 3), zorder=3
    )
    for fan, colour in zip(layout.fans, style.field_colours(len(layout.fans)), strict=True):
        axes.add_collection(
            LineCollection(list(fan.paths), colors=colour, linewidths=style.RAY, zorder=4), autolim=False
        )
    if geometry.aspheres:
        axes.add_collection(
            LineCollection(geometry.aspheres, colors=style.PURPLE, linewidths=style.ASPHERE, zorder=5), autolim=False
        )
    z, radius = geometry.stop
    for side in (1.0, -1.0):
        axes.plot([z, z], [side * radius, side * geometry.stop_reach], color=style.INK, linewidth=style.STOP, zorder=6)
    z, radius = geometry.image
    radius = radius or 0.5 * geometry.stop[1]  # a lens without a field still has an image plane
    axes.plot([z, z], [-radius, radius], color=style.INK, linewidth=style.IMAGE, zorder=6)

    bar = style.nice_length(0.2 * width)
    scale = axes.bbox.width / axes.figure.dpi / width  # inches per mm
    style.scale_bar(axes, layout.left, layout.bottom - 0.1 / scale, bar, f"{bar:g} mm", tick=0.07 / scale)


def _entries(layout: Layout) -> list[Line2D | Patch]:
    """Legend: fields, aspheres, extra-low dispersion."""
    entries: list[Line2D | Patch] = []
    for fan, colour in zip(layout.fans, style.field_colours(len(layout.fans)), strict=True):
        entries.append(Line2D([], [], color=colour, linewidth=1.4, label=fan.label))
    if layout.geometry.aspheres:
        entries.append(Line2D([], [], color=style.PURPLE, linewidth=style.ASPHERE, label="aspheric surface"))
    low = [e for e in layout.geometry.elements if not e.is_plate and (e.medium.vd or 0.0) >= style.ED_ABBE_NUMBER]
    if low:
        entries.append(
            Patch(
                facecolor=style.glass_tint(low[0].medium),
                edgecolor=style.INK,
                linewidth=0.5,
                label=f"low-dispersion glass (νd ≥ {style.ED_ABBE_NUMBER:g})",
            )
        )
    return entries


def _note(layout: Layout) -> str:
    """What else the reader should know."""
    if layout.geometry.image[1] == 0.0:
        return "the prescription gives no field: axis only"
    given = {i: s.semi_diameter or 0.0 for i, s in enumerate(layout.lens.surfaces)}
    narrowed = sorted(i for i, radius in layout.geometry.narrowed.items() if radius < WORTH_A_NOTE * given[i])
    if not narrowed:
        return ""
    which = f"surface{'s' * (len(narrowed) > 1)} {', '.join(map(str, narrowed))}"
    return f"{which} (counted from 0) drawn smaller than given: beyond, glass would overlap"


def _columns(entries: Sequence[Line2D | Patch], width: float) -> int:
    """Columns of a legend in a figure `width` inches wide: one row if it fits, else as many as fit."""
    widths = [0.6 + style.text_width(str(entry.get_label()), style.SMALL) for entry in entries]
    return len(entries) if sum(widths) < width - 0.2 else max(1, int((width - 0.2) / max(widths)))


def legend_height(layout: Layout, width: float) -> float:
    """Height (inches) of legend and note in a figure `width` inches wide."""
    entries = _entries(layout)
    return 0.1 + LEGEND_ROW * (math.ceil(len(entries) / _columns(entries, width)) + bool(_note(layout)))


def paint_legend(figure: Figure, layout: Layout, size: tuple[float, float], bottom: float = 0.0) -> None:
    """Fields, aspheres and notes, centred, `bottom` inches above the lower edge of a figure of the given size."""
    width, height = size
    entries, note = _entries(layout), _note(layout)
    figure.legend(
        handles=entries,
        loc="lower center",
        ncols=_columns(entries, width),
        bbox_to_anchor=(0.5, (bottom + 0.03 + bool(note) * LEGEND_ROW) / height),
        borderaxespad=0.2,
        columnspacing=1.6,
        labelspacing=0.35,
    )
    if note:
        fits = style.fitted_size(note, style.SMALL, width - 2 * MARGIN)
        figure.text(0.5, (bottom + 0.1) / height, note, ha="center", fontsize=fits, color=style.FAINT)


def subtitle(lens: Lens) -> str:
    """Focal length, F-number and patent, in one line."""
    data = first_order_batch(pack([lens], bucket=common_bucket(lens)))
    text = f"focal length {float(data.focal_length[0]):.4g} mm    F/{float(data.f_number[0]):.3g}"
    return f"{text}    {lens.patent}" if lens.patent else text
