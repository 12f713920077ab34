"""Wavefronts and pupils: what a lens sends to a point of the sensor, over the direction cosines of its waves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from matplotlib.ticker import MaxNLocator

from ..camera import Camera
from ..errors import DefocusError
from ..lens.prescription import D_LINE_NM
from ..optics.pupil_map import PupilMap, Remove, pupil_map
from ..optics.wavefront import Wavefront
from . import style
from .psf_grid import FIELDS, field_name
from .psf_plot import paint_reason
from .sheet import Box, Sheet, frame, head, note

PANEL, GAP = 1.75, 0.55  # inches
TITLE, HEAD, FOOT = 0.7, 0.42, 0.85
WAVE_MAP, AMPLITUDE_MAP = "RdBu_r", "cividis"
REMOVALS = {"piston": "piston", "tilt": "piston and tilt", "defocus": "piston, tilt, defocus"}
DARK = "no light gets through at this field"


def wavefronts_of(
    camera: Camera, depth_m: float, fields: Sequence[float], wavelength_nm: float = D_LINE_NM
) -> list[Wavefront]:
    """The wavefronts of points at `depth_m` that appear `fields` × the image radius above the centre; numpy leaves."""
    if not fields or not all(-1.0 <= f <= 1.0 for f in fields):
        raise DefocusError(f"fields {tuple(fields)}; expected numbers between -1 and 1, of the image radius")
    if not depth_m > 0.0:
        raise DefocusError(f"depth {depth_m} m; expected a positive number or inf")
    optics = camera.wavefronts([depth_m] * len(fields), [(0.0, f) for f in fields], (wavelength_nm,))
    return [jax.tree.map(lambda leaf, i=i: leaf[i, 0], optics.wavefront) for i in range(len(fields))]


@style.look()
def draw_wavefronts(
    camera: Camera,
    *,
    depth_m: float = math.inf,
    fields: Sequence[float] = FIELDS,
    wavelength_nm: float = D_LINE_NM,
    remove: Remove = "tilt",
) -> Figure:
    """Wavefront and amplitude over the pupil, one column for each field; all pupils in the same scale."""
    waves = wavefronts_of(camera, depth_m, fields, wavelength_nm)
    maps = [pupil_map(wave, field, remove) for wave, field in zip(waves, fields, strict=True)]
    sheet = Sheet(max(0.75 + (PANEL + GAP) * len(maps), 5.6), TITLE + HEAD + 2 * (PANEL + FOOT))
    what = f"wavefront in waves of {wavelength_nm:.4g} nm, {REMOVALS[remove]} removed, and amplitude"
    sheet.title(camera.lens.name, f"{_setting(camera, depth_m)} · {what} over direction cosines")
    half = _half(maps)
    for column, one in enumerate(maps):
        for row in range(2):
            left, bottom = 0.75 + column * (PANEL + GAP), sheet.height - TITLE - HEAD - PANEL - row * (PANEL + FOOT)
            axes = sheet.axes((left, bottom, PANEL, PANEL))
            _paint_map(sheet, axes, one, half, (left, bottom - 0.42, PANEL, 0.06), amplitude=row == 1)
            if row == 0:
                numbers = f"RMS {one.rms:.3g}, P–V {one.peak_to_valley:.3g} waves" if one.found else ""
                head(axes, field_name(one.field), numbers)
            else:
                note(axes, "amplitude, relative", color=style.FAINT)
            if column == 0:
                axes.set_ylabel("direction cosine y", fontsize=style.SMALL, labelpad=1.0)
    return sheet.figure


@style.look()
def draw_pupils(
    camera: Camera, *, depth_m: float = math.inf, fields: Sequence[float] = FIELDS, wavelength_nm: float = D_LINE_NM
) -> Figure:
    """The pupils of several fields side by side in the same scale: how vignetting cuts them.

    Dotted is the first field's pupil, and areas are relative to its.
    """
    waves = wavefronts_of(camera, depth_m, fields, wavelength_nm)
    maps = [pupil_map(wave, field, "piston") for wave, field in zip(waves, fields, strict=True)]
    first, half, step = maps[0], _half(maps), PANEL + 0.15
    sheet = Sheet(max(0.6 + step * len(maps), 5.6), TITLE + HEAD + PANEL + 0.55)
    sheet.title(camera.lens.name, f"{_setting(camera, depth_m)} · pupils in direction cosines, same scale")
    for column, one in enumerate(maps):
        left = (sheet.width - step * len(maps) + 0.15) / 2.0 + column * step
        axes = sheet.axes((left, 0.55, PANEL, PANEL))
        note(axes, field_name(one.field), fontweight="bold")
        if not one.found:
            paint_reason(axes, DARK)
            continue
        _set_limits(axes, one, half)
        frame(axes)
        if first.found:
            dotted = first.rim + (one.centre - first.centre)[:, None]
            axes.plot(*dotted, ":", color=style.FAINT, linewidth=0.8)
        axes.add_patch(Polygon(one.rim.T, facecolor="#cfe4f2", edgecolor=style.BLUE, linewidth=1.1))
        share = f"area {100.0 * one.area / first.area:.0f} %" if first.found and first.area > 0.0 else ""
        text = style.minus(f"{share}\ncentre at y = {round(one.centre[1], 3) + 0.0:.3f}")
        note(axes, text, (0.5, 0.0), (0.0, -4.0), va="top", linespacing=1.4)
    return sheet.figure


def _setting(camera: Camera, depth_m: float) -> str:
    return f"{style.setting(camera.f_number, camera.focus_m)}, point at {style.distance(depth_m, 'infinity')}"


def _half(maps: Sequence[PupilMap]) -> float:
    """Half the side of all panels, in direction cosines: the widest pupil and a margin."""
    return 1.12 * max((float(np.ptp(one.rim, axis=1).max()) / 2.0 for one in maps if one.found), default=1.0)


def _set_limits(axes: Axes, one: PupilMap, half: float) -> None:
    x, y = one.centre
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half), aspect="equal")


def _paint_map(sheet: Sheet, axes: Axes, one: PupilMap, half: float, bar: Box, *, amplitude: bool) -> None:
    """A map cut out by its rim, with the colour bar below it."""
    if not one.found:
        paint_reason(axes, DARK)
        return
    values = one.amplitude if amplitude else one.wave
    largest = max(float(np.abs(values[one.inside]).max()), 1e-6)
    low, high = (min(0.98, float(values[one.inside].min())), 1.0) if amplitude else (-largest, largest)
    image = axes.imshow(
        np.clip(values, low, high),
        extent=(one.x[0], one.x[-1], one.y[0], one.y[-1]),
        origin="lower",
        interpolation="bilinear",
        cmap=AMPLITUDE_MAP if amplitude else WAVE_MAP,
        vmin=low,
        vmax=high,
    )
    frame(axes)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(length=2.0, width=0.5, pad=1.5, labelsize=style.SMALL - 1.0)
    _set_limits(axes, one, half)
    edge = Polygon(one.rim.T, facecolor="none", edgecolor=style.INK, linewidth=0.8)
    axes.add_patch(edge)
    image.set_clip_path(edge)
    sheet.colour_bar(bar, image).ax.xaxis.set_major_locator(MaxNLocator(4))
