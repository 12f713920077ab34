"""Curves of an analysis, one kind on a figure or all of them on a page.

Solid lines are sagittal, dashed ones tangential, as makers print them; where curves run over the field, it is upwards
for distortion and curvature and to the right for all else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..analysis.camera_analysis import Analysis
from ..analysis.curves import (
    Curves,
    Distortion,
    FieldCurvature,
    FocalShift,
    Illumination,
    LateralColour,
    LightInCircles,
    LongitudinalAberration,
    Mtf,
    RayFans,
    SpotSizes,
    ThroughFocusMtf,
)
from . import style
from .psf_grid import field_name
from .sheet import Box, Sheet, note, plain_plot

WIDTH = 11.0  # inches
TITLE, LARGE, SMALL, FAN = 0.95, 2.75, 2.05, 1.0  # inches: heights of the title and of the panels
LEFT, BELOW, ABOVE = 0.55, 0.5, 0.3  # inches around a panel, for its numbers and its name
DASHES = "--"
SPECTRUM = (style.BLUE, style.SKY, style.GREEN, style.YELLOW, style.ORANGE)
BLACK_AND_WHITE = {"sagittal": "-", "tangential": DASHES}


def _spectrum(wavelengths_nm: np.ndarray) -> list[str]:
    """A colour for each wavelength, from blue to orange."""
    rank = np.argsort(np.argsort(wavelengths_nm))
    return [SPECTRUM[round(i * (len(SPECTRUM) - 1) / max(len(rank) - 1, 1))] for i in rank]


def _line(axes: Axes, x: Any, y: Any, *, swapped: bool = False, even: bool = False, **look: Any) -> None:
    """A smooth curve through points, over those that are numbers; `swapped` draws x upwards. `even` curves, those over
    the field or the stop of a round lens, cross the axis level, however far from it the next point is."""
    ok = np.isfinite(np.asarray(x, float)) & np.isfinite(np.asarray(y, float))
    x, y = np.asarray(x, float)[ok], np.asarray(y, float)[ok]
    if len(x) > 2:
        fine = np.linspace(x[0], x[-1], 121)
        other_side = (x > 0.0) & even
        points, values = np.append(-x[other_side][::-1], x), np.append(y[other_side][::-1], y)
        x, y = fine, monotone_curve(points, values, fine)
    axes.plot(*((y, x) if swapped else (x, y)), **({"linewidth": 1.1} | look))


def monotone_curve(
    x: Float[np.ndarray, " points"], y: Float[np.ndarray, " points"], at: Float[np.ndarray, " places"]
) -> Float[np.ndarray, " places"]:
    """Cubics through three points or more that rise and fall only where these do (Fritsch and Butland, 1984).

    SciPy has them, but its import takes longer than the drawing of the page.
    """
    step = np.diff(x)
    rise = np.diff(y) / step
    slope = np.zeros(len(x))
    # Inside the harmonic mean of both sides' slopes, 0 where they differ in sign.
    left, right = step[:-1] + 2.0 * step[1:], 2.0 * step[:-1] + step[1:]
    same = rise[:-1] * rise[1:] > 0.0
    before, after = (np.where(same, part, 1.0) for part in (rise[:-1], rise[1:]))
    slope[1:-1] = np.where(same, 3.0 * (step[:-1] + step[1:]) / (left / before + right / after), 0.0)
    # At the ends that of the parabola through three points, within what keeps a cubic monotone.
    for end, (near, far) in ((0, (0, 1)), (-1, (-1, -2))):
        parabola = rise[near] + (rise[near] - rise[far]) * step[near] / (step[near] + step[far])
        slope[end] = np.clip(parabola, *sorted((0.0, 3.0 * rise[near])))
    k = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(step) - 1)
    t = (at - x[k]) / step[k]
    bend = (slope[k] + slope[k + 1] - 2.0 * rise[k]) * t - (2.0 * slope[k] + slope[k + 1] - 3.0 * rise[k])
    return y[k] + step[k] * t * (slope[k] + t * bend)


def _key(axes: Axes, entries: Sequence[tuple[str, Any]], **options: Any) -> None:
    """A small legend of names and looks, in one column unless `options` say otherwise."""
    handles = [Line2D([], [], label=name, **({"linewidth": 1.1} | look)) for name, look in entries]
    look: dict[str, Any] = {"fontsize": style.SMALL - 1.0, "handlelength": 1.6} | options
    axes.legend(handles=handles, **look)


def _paint_mtf(axes: Axes, mtf: Mtf) -> None:
    """Over the field with a line for each frequency as makers do, or over frequency where there are many."""
    over_field = len(mtf.frequency_lp_mm) <= 6
    rows = mtf.frequency_lp_mm if over_field else mtf.field
    colours = style.field_colours(len(rows))
    x = mtf.field_mm if over_field else np.append(0.0, mtf.frequency_lp_mm)
    for (i, colour), (name, dashes) in product(enumerate(colours), BLACK_AND_WHITE.items()):
        values = getattr(mtf, name)
        y = values[:, i] if over_field else np.append(1.0, values[i])
        _line(axes, x, y, even=over_field, linestyle=dashes, color=colour)
    names = [f"{v:g} lp/mm" for v in rows] if over_field else [field_name(f) for f in rows]
    entries: list[tuple[str, Any]] = [(n, {"color": c}) for n, c in zip(names, colours, strict=True)]
    entries += [(n, {"color": style.INK, "linestyle": d}) for n, d in BLACK_AND_WHITE.items()]
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.1}
    _key(axes, entries, ncols=len(entries), columnspacing=1.0, **place)
    axes.set(xlim=(0.0, x[-1] or 1.0), ylim=(0.0, 1.0), yticks=np.linspace(0.0, 1.0, 11))
    axes.set(xlabel="image height, mm" if over_field else "lp/mm", ylabel="contrast")


def _paint_through_focus(axes: Axes, curves: ThroughFocusMtf) -> None:
    for i, colour in enumerate(style.field_colours(len(curves.field))):
        for name, dashes in BLACK_AND_WHITE.items():
            _line(axes, curves.shift_mm, getattr(curves, name)[i], linestyle=dashes, color=colour)
    axes.axvline(0.0, color=style.FAINT, linewidth=0.6)
    entries = zip(curves.field, style.field_colours(len(curves.field)), strict=True)
    _key(axes, [(field_name(f), {"color": c}) for f, c in entries])
    axes.set(ylim=(0.0, 1.0), xlabel="sensor, mm", ylabel=f"contrast at {curves.frequency_lp_mm:g} lp/mm")


def _paint_distortion(axes: Axes, curves: Distortion) -> None:
    _line(axes, curves.field_mm, curves.percent, swapped=True, even=True, color=style.BLUE)
    axes.axvline(0.0, color=style.FAINT, linewidth=0.6)
    widest = max(float(np.nanmax(np.abs(curves.percent))) * 1.15, 0.1)
    axes.set(xlim=(-widest, widest), ylim=(0.0, None), xlabel="%", ylabel="image height, mm")


def _paint_grid(axes: Axes, curves: Distortion) -> None:
    """A square grid as the lens shows it; faint as it is."""
    straight = np.meshgrid(*[np.linspace(-1.0, 1.0, 11) / np.sqrt(2.0)] * 2)
    for (x, y), colour in ((straight, style.FRAME), (curves.grid(), style.BLUE)):
        axes.plot(x, y, color=colour, linewidth=0.6)
        axes.plot(x.T, y.T, color=colour, linewidth=0.6)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _paint_curvature(axes: Axes, curves: FieldCurvature) -> None:
    for i, colour in enumerate(_spectrum(curves.wavelengths_nm)):
        for values, dashes in ((curves.sagittal_mm, "-"), (curves.tangential_mm, DASHES)):
            look = {"linestyle": dashes, "color": colour, "linewidth": 0.9}
            _line(axes, curves.field_mm, values[:, i], swapped=True, even=True, **look)
    axes.axvline(0.0, color=style.FAINT, linewidth=0.6)
    axes.set(ylim=(0.0, None), xlabel="focus from the sensor, mm", ylabel="image height, mm")


def _paint_colours(axes: Axes, curves: LateralColour | LongitudinalAberration) -> None:
    lateral = isinstance(curves, LateralColour)
    for i, (wave, colour) in enumerate(zip(curves.wavelengths_nm, _spectrum(curves.wavelengths_nm), strict=True)):
        if isinstance(curves, LateralColour):
            _line(axes, curves.field_mm, curves.shift_mm[:, i] * 1e3, color=colour, label=f"{wave:g} nm")
        else:
            _line(axes, curves.pupil, curves.focus_mm[i], swapped=True, even=True, color=colour, label=f"{wave:g} nm")
    axes.legend(fontsize=style.SMALL - 1.0, handlelength=1.2, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if lateral:
        axes.set(xlabel="image height, mm", ylabel="µm")
    else:
        axes.axvline(0.0, color=style.FAINT, linewidth=0.6)
        axes.set(ylim=(0.0, 1.0), xlabel="focus from the sensor, mm", ylabel="height in the stop")


def _paint_shift(axes: Axes, curves: FocalShift) -> None:
    _line(axes, curves.wavelength_nm, curves.shift_mm, swapped=True, color=style.BLUE)
    axes.axvline(0.0, color=style.FAINT, linewidth=0.6)
    axes.set(xlabel="paraxial focus, mm", ylabel="nm")


def _paint_illumination(axes: Axes, curves: Illumination) -> None:
    _line(axes, curves.field_mm, curves.relative, even=True, color=style.BLUE, label="relative illumination")
    dashed: dict[str, Any] = {"color": style.ORANGE, "linestyle": DASHES}
    _line(axes, curves.field_mm, curves.unvignetted, even=True, label="stop unvignetted", **dashed)
    axes.legend(fontsize=style.SMALL - 1.0, handlelength=1.6, loc="lower left")
    axes.set(ylim=(0.0, 1.05), xlabel="image height, mm")


def _paint_spots(axes: Axes, curves: SpotSizes) -> None:
    _line(axes, curves.field_mm, curves.rms_mm * 1e3, even=True, color=style.BLUE, label="RMS spot")
    axes.axhline(curves.airy_radius_mm * 1e3, color=style.FAINT, linewidth=0.8, linestyle=":", label="Airy radius")
    axes.legend(fontsize=style.SMALL - 1.0, handlelength=1.6)
    axes.set(ylim=(0.0, None), xlabel="image height, mm", ylabel="µm")


def _paint_energy(axes: Axes, curves: LightInCircles) -> None:
    for i, colour in enumerate(style.field_colours(len(curves.field))):
        name = f"{field_name(curves.field[i])}, Strehl {curves.strehl[i]:.2g}"
        _line(axes, curves.radius_mm * 1e3, curves.diffraction[i], color=colour, label=name)
        _line(axes, curves.radius_mm * 1e3, curves.geometric[i], color=colour, linestyle=":", linewidth=0.8)
    axes.legend(fontsize=style.SMALL - 1.5, handlelength=1.2, loc="lower right")
    axes.set(ylim=(0.0, 1.0), xlim=(0.0, None), xlabel="radius, µm (dotted: rays alone)", ylabel="light inside")


PAINTERS: dict[type[Curves], tuple[str, Callable[[Axes, Any], None]]] = {
    Mtf: ("MTF", _paint_mtf),
    ThroughFocusMtf: ("MTF through focus", _paint_through_focus),
    Distortion: ("distortion", _paint_distortion),
    FieldCurvature: ("field curvature and astigmatism", _paint_curvature),
    LateralColour: ("lateral colour", _paint_colours),
    LongitudinalAberration: ("longitudinal aberration", _paint_colours),
    FocalShift: ("chromatic focal shift", _paint_shift),
    Illumination: ("illumination and vignetting", _paint_illumination),
    SpotSizes: ("spot size", _paint_spots),
    LightInCircles: ("encircled energy", _paint_energy),
}


def _panel(sheet: Sheet, box: Box, name: str, paint: Callable[[Axes, Any], None], curves: Curves) -> Axes:
    """Axes with curves, within a box that also holds their numbers and name."""
    left, bottom, width, height = box
    axes = sheet.axes((left + LEFT, bottom + BELOW, width - LEFT - 0.12, height - BELOW - ABOVE))
    plain_plot(axes)
    paint(axes, curves)
    axes.tick_params(labelsize=style.SMALL - 1.0, length=2.0, pad=1.5)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(style.SMALL)
    note(axes, name, (0.0, 1.0), ha="left", fontweight="bold")
    return axes


def _paint_fans(sheet: Sheet, box: Box, curves: RayFans, values: np.ndarray, unit: str) -> None:
    """A row of fans in one scale, tangential and sagittal of each field, from the axis outwards."""
    left, bottom, width, height = box
    step = (width - LEFT - 0.12) / (2 * len(curves.field))
    largest = float(np.nanmax(np.abs(values))) * 1.08
    colours = _spectrum(curves.wavelengths_nm)
    for i, field in enumerate(curves.field):
        for k, (fan, name) in enumerate(((1, "tangential"), (0, "sagittal"))):
            axes = sheet.axes((left + LEFT + (2 * i + k) * step, bottom + 0.22, 0.9 * step, height - 0.22 - ABOVE))
            for wave, colour in enumerate(colours):
                axes.plot(curves.pupil[i, wave, fan], values[i, wave, fan], color=colour, linewidth=0.8)
            axes.axhline(0.0, color=style.FRAME, linewidth=0.5)
            axes.axvline(0.0, color=style.FRAME, linewidth=0.5)
            axes.set(xlim=(-1.05, 1.05), ylim=(-largest, largest), xticks=[-1.0, 0.0, 1.0])
            axes.tick_params(labelsize=style.SMALL - 1.5, length=2.0, pad=1.5, labelleft=i + k == 0)
            note(axes, f"{field_name(field)}, {name}", fontsize=style.SMALL - 1.0)
            if i + k == 0:
                axes.set_ylabel(unit, fontsize=style.SMALL)


@style.look()
def plot_curves(curves: Curves) -> Figure:
    """One kind of curves on a figure."""
    if isinstance(curves, RayFans):
        sheet = Sheet(WIDTH, 2 * 1.6)
        _paint_fans(sheet, (0.0, 1.6, WIDTH, 1.6), curves, curves.transverse_mm * 1e3, "ray fan, µm")
        _paint_fans(sheet, (0.0, 0.0, WIDTH, 1.6), curves, curves.opd_waves, "OPD, waves")
        return sheet.figure
    sheet = Sheet(5.6, 3.8)
    name, paint = PAINTERS[type(curves)]
    has_key = isinstance(curves, LateralColour | LongitudinalAberration)  # beside it
    _panel(sheet, (0.1, 0.1, 4.6 if has_key else 5.4, 3.6), name, paint, curves)
    return sheet.figure


@style.look()
def draw_analysis(analysis: Analysis) -> Figure:
    """Everything that an analysis says of a camera, on one page."""
    every, camera = analysis.curves(), analysis.camera
    sheet = Sheet(WIDTH, TITLE + LARGE + 2 * SMALL + 2 * (FAN + ABOVE) + 0.15)
    sheet.title(camera.lens.name, style.setting(camera.f_number, camera.focus_m))
    handles = [
        Line2D([], [], color=colour, label=f"{wave:g} nm, weight {weight:.2f}")
        for wave, weight, colour in zip(
            analysis.wavelengths_nm, analysis.weights, _spectrum(analysis.wavelengths_nm), strict=True
        )
    ]
    sheet.figure.legend(handles=handles, loc="upper right", ncols=3, handlelength=1.4)
    sheet.text(0.3, sheet.height - 0.68, _about(analysis), room=WIDTH - 0.6, color=style.FAINT)
    top = sheet.height - TITLE - LARGE
    rows: list[tuple[float, float, list[str]]] = [
        (top, LARGE, ["mtf", "mtf_over_frequency"]),
        (top - SMALL, SMALL, ["through_focus", "field_curvature", "distortion", "grid"]),
        (top - 2 * SMALL, SMALL, ["encircled_energy", "longitudinal_aberration", "lateral_colour", "illumination"]),
    ]
    for bottom, height, names in rows:
        width = (WIDTH - 0.2) / len(names)
        for i, name in enumerate(names):
            curves = every["distortion" if name == "grid" else name]
            title, paint = ("distortion of a grid", _paint_grid) if name == "grid" else PAINTERS[type(curves)]
            axes = _panel(sheet, (0.1 + i * width, bottom, width, height), title, paint, curves)
            key = axes.get_legend()
            if key is not None and isinstance(curves, LateralColour | LongitudinalAberration):
                key.remove()  # the page has one for all
    fans = every["ray_fans"]
    assert isinstance(fans, RayFans)
    bottom = top - 2 * SMALL - FAN - ABOVE
    _paint_fans(sheet, (0.0, bottom, WIDTH, FAN + ABOVE), fans, fans.transverse_mm * 1e3, "rays, µm")
    _paint_fans(sheet, (0.0, bottom - FAN - ABOVE, WIDTH, FAN + ABOVE), fans, fans.opd_waves, "OPD, waves")
    return sheet.figure


def _about(analysis: Analysis) -> str:
    """The sensor's place, and fields without light."""
    dark = [f"{f:g}" for f, lit in zip(analysis.field, analysis.lit, strict=True) if not lit]
    place = float(analysis.wavefronts.pose.sensor_z[0]) * 1e3
    spots = analysis.spot_sizes()
    text = f"sensor {style.signed(place, 1)} µm from the prescription's image plane; RMS spot on the axis "
    text += f"{spots.rms_mm[0] * 1e3:.3g} µm, Airy radius {spots.airy_radius_mm * 1e3:.2g} µm"
    return f"{text}; no light at the fields {', '.join(dark)}" if dark else text
