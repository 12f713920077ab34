"""The layout of a lens, as catalogues print it: elements, stop, ray bundles, image plane; a camera's with its blur."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import LogLocator, NullFormatter

from ..camera import Camera
from ..lens.prescription import Aperture, Lens
from ..optics.apertures import with_clear_apertures
from ..optics.paraxial import first_order
from ..optics.system import pack_one
from . import style
from .geometry import FIELDS, RAYS, Fan, Geometry, cross_section, ray_paths
from .sheet import MARGIN, Sheet, plain_plot

LARGEST = (11.0, 6.4)  # inches: the drawing itself fits in here
SMALLEST_WIDTH = 5.6  # inches: of the figure
WORTH_A_NOTE = 0.99  # a surface drawn smaller than this part of its clear aperture is mentioned
TITLE_HEIGHT, LEGEND_ROW, BAR_HEIGHT = 0.62, 0.2, 0.42  # inches
CHART = 1.5  # inches: height of the blur chart of a camera
DEPTHS = 200  # points of its curve


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

    def scaled(self, width: float, height: float) -> tuple[float, float]:
        """Width and height (inches) of the largest drawing in these."""
        size = self.right - self.left, self.top - self.bottom
        inches = min(width / size[0], height / size[1])  # per mm
        return size[0] * inches, size[1] * inches


@style.look()
def draw_layout(lens: Lens, *, fields: Sequence[float] = FIELDS, rays: int = RAYS) -> Figure:
    """The cross-section of a lens with `rays` real rays for each field (fractions of the image radius).

    Missing clear apertures are solved for. Where no light reaches a field, the outermost one with light takes its
    place, and the legend says so; of a lens without a field only the axis is drawn. Raises `TraceError` for a lens
    without light on the axis.
    """
    layout = plan_layout(lens, fields=fields, rays=rays)
    width, height = layout.scaled(*LARGEST)
    full_width = max(width + 2 * MARGIN, SMALLEST_WIDTH)
    below = BAR_HEIGHT + legend_height(layout, full_width)
    sheet = Sheet(full_width, TITLE_HEIGHT + height + below)
    paint_layout(sheet, layout, below, (width, height))
    sheet.title(lens.name, subtitle(lens))
    paint_legend(sheet, layout, 0.0)
    return sheet.figure


@style.look()
def plot_camera(camera: Camera) -> Figure:
    """The layout of a camera's lens as it is stopped down, and its paraxial blur radius over depth."""
    layout = plan_layout(replace(camera.lens, aperture=Aperture("stop_radius", float(camera.first_order.stop_radius))))
    width, height = layout.scaled(LARGEST[0], LARGEST[1] - CHART)
    full_width = max(width, 6.4) + 0.6
    sheet = Sheet(full_width, height + CHART + 2.1 + legend_height(layout, full_width))
    setting = style.setting(camera.f_number, camera.focus_m)
    sheet.title(camera.lens.name, f"{setting} · pixels of {camera.pixel_um:.3g} µm")
    paint_layout(sheet, layout, sheet.height - 0.62 - height, (width, height))
    paint_legend(sheet, layout, CHART + 0.9)
    near, far = (camera.focus_m / 3.0, camera.focus_m * 8.0) if math.isfinite(camera.focus_m) else (1.0, 1000.0)
    depths = np.geomspace(near, far, DEPTHS)
    axes = sheet.axes((0.8, 0.6, sheet.width - 1.1, CHART))
    axes.plot(depths, np.abs(camera.circle_of_confusion_px(depths)), color=style.BLUE, linewidth=1.2)
    axes.set(xscale="log", xlim=(near, far), ylim=(0.0, None), xlabel="depth, m", ylabel="blur radius, pixels")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain_plot(axes)
    return sheet.figure


def plan_layout(lens: Lens, *, fields: Sequence[float] = FIELDS, rays: int = RAYS) -> Layout:
    """Everything that a layout of the lens shows."""
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


def paint_layout(sheet: Sheet, layout: Layout, bottom: float, size: tuple[float, float]) -> None:
    """A layout in the middle of a sheet, `bottom` inches above its lower edge, with a scale bar below it.

    `size` (inches) has the layout's proportions.
    """
    left = (sheet.width - size[0]) / 2.0
    axes = sheet.axes((left, bottom, *size), bare=True)
    axes.set(xlim=(layout.left, layout.right), ylim=(layout.bottom, layout.top), aspect="equal")
    geometry = layout.geometry
    for element in geometry.elements:
        tint = style.glass_tint(element.medium, plate=element.is_plate)
        shape = Polygon(element.outline, facecolor=tint, edgecolor=style.INK, linewidth=style.OUTLINE, zorder=2)
        shape.set_joinstyle("round")
        axes.add_patch(shape)
    dashes = (12, 3, 2, 3)
    ends = [layout.left, layout.right]
    axes.plot(ends, [0.0, 0.0], color=style.FAINT, linewidth=style.AXIS, dashes=dashes, zorder=3)
    for fan, colour in zip(layout.fans, style.field_colours(len(layout.fans)), strict=True):
        lines = LineCollection(list(fan.paths), colors=colour, linewidths=style.RAY, zorder=4)
        axes.add_collection(lines, autolim=False)
    aspheres = LineCollection(geometry.aspheres, colors=style.PURPLE, linewidths=style.ASPHERE, zorder=5)
    axes.add_collection(aspheres, autolim=False)
    z, radius = geometry.stop
    for side in (1.0, -1.0):
        _upright(axes, z, side * radius, side * geometry.stop_reach, style.STOP)
    z, radius = geometry.image
    radius = radius or 0.5 * geometry.stop[1]  # a lens without a field still has an image plane
    _upright(axes, z, -radius, radius, style.IMAGE)
    width = layout.right - layout.left
    bar = style.nice_length(0.2 * width)
    sheet.scale_bar(left, bottom - 0.1, bar / width * size[0], f"{bar:g} mm")


def _upright(axes: Axes, z: float, low: float, high: float, width: float) -> None:
    axes.plot([z, z], [low, high], color=style.INK, linewidth=width, zorder=6)


def _entries(layout: Layout) -> list[Line2D | Patch]:
    """Legend: fields, aspheres, extra-low dispersion."""
    entries: list[Line2D | Patch] = [
        Line2D([], [], color=colour, linewidth=1.4, label=fan.lit.label)
        for fan, colour in zip(layout.fans, style.field_colours(len(layout.fans)), strict=True)
    ]
    if layout.geometry.aspheres:
        entries.append(Line2D([], [], color=style.PURPLE, linewidth=style.ASPHERE, label="aspheric surface"))
    low = [e for e in layout.geometry.elements if not e.is_plate and (e.medium.vd or 0.0) >= style.ED_ABBE_NUMBER]
    if low:
        label = f"low-dispersion glass (νd ≥ {style.ED_ABBE_NUMBER:g})"
        tint = style.glass_tint(low[0].medium)
        entries.append(Patch(facecolor=tint, edgecolor=style.INK, linewidth=0.5, label=label))
    return entries


def _note(layout: Layout) -> str:
    """What else the reader should know."""
    if layout.geometry.image[1] == 0.0:
        return "the prescription gives no field: axis only"
    apertures = [s.semi_diameter or 0.0 for s in layout.lens.surfaces]
    narrowed = sorted(i for i, radius in layout.geometry.narrowed.items() if radius < WORTH_A_NOTE * apertures[i])
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


def paint_legend(sheet: Sheet, layout: Layout, bottom: float) -> None:
    """Fields, aspheres and notes, centred, `bottom` inches above the lower edge."""
    entries, note = _entries(layout), _note(layout)
    sheet.figure.legend(
        handles=entries,
        loc="lower center",
        ncols=_columns(entries, sheet.width),
        bbox_to_anchor=(0.5, (bottom + 0.03 + bool(note) * LEGEND_ROW) / sheet.height),
        borderaxespad=0.2,
        columnspacing=1.6,
        labelspacing=0.35,
    )
    room = sheet.width - 2 * MARGIN
    sheet.text(sheet.width / 2.0, bottom + 0.1, note, room=room, ha="center", color=style.FAINT)


def subtitle(lens: Lens) -> str:
    """Focal length, F-number and patent, in one line."""
    data = first_order(pack_one(lens))
    text = f"focal length {float(data.focal_length):.4g} mm    F/{float(data.f_number):.3g}"
    return f"{text}    {lens.patent}" if lens.patent else text
