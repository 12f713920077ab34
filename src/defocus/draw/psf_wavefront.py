"""Wavefronts and pupils: what a lens sends to a point of the sensor, over the direction cosines of its plane waves.

The map shows W(s) of `defocus.optics.wavefront` about the window's centre, in waves. Piston means nothing; a tilt
a + b·s moves the PSF by −b·λ, and a term c·s_z is what a shift of the sensor by −c·λ takes away: both can be removed by
least squares over the pupil before the map is shown. s_y points along the meridian, from the centre of the photograph
to the point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from matplotlib.ticker import MaxNLocator

from ..errors import DefocusError
from ..lens.prescription import D_LINE_NM
from ..optics.wavefront import AMPLITUDE_DEGREE, DEGREE, Wavefront
from ..optics.zernike import basis
from ..psf.wavefronts import wavefront_batch
from ..render.camera import Camera
from . import style
from .psf_picture import distance, paint_reason, tidy_bar, write_above

Remove = Literal["piston", "tilt", "defocus"]  # each with those before it
GRID = 241  # points across a pupil
PANEL, GAP = 1.75, 0.55  # inches
TITLE, HEAD, FOOT = 0.7, 0.42, 0.35
WAVE_MAP, AMPLITUDE_MAP = "RdBu_r", "cividis"
FIELDS = (0.0, 0.5, 0.7, 1.0)

Grid = Float[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class PupilMap:
    """A wavefront on a grid of direction cosines, rows along +y."""

    field: float  # of the image radius
    found: bool
    x: Float[np.ndarray, " columns"]  # direction cosines
    y: Float[np.ndarray, " rows"]
    inside: Bool[np.ndarray, "rows columns"]
    wave: Grid  # waves; a little beyond the rim it is what the fit says
    amplitude: Grid  # relative to its largest value inside
    rim: Float[np.ndarray, "2 points"]
    area: float  # of the pupil, in direction cosines
    tilt_um: tuple[float, float]  # what was removed: how far the PSF had been moved, to the right and outwards
    defocus_mm: float  # and the sensor shift that would take the removed defocus away

    @property
    def rms(self) -> float:
        """Of the shown wavefront over the pupil, waves."""
        values = self.wave[self.inside]
        return float(np.sqrt(np.mean((values - values.mean()) ** 2)))

    @property
    def peak_to_valley(self) -> float:
        """Waves."""
        return float(np.ptp(self.wave[self.inside]))


def wavefronts_of(
    camera: Camera, depth_m: float, fields: Sequence[float], wavelength_nm: float = D_LINE_NM
) -> list[Wavefront]:
    """The wavefronts of points at `depth_m` that appear `fields` × the image radius above the centre; numpy leaves."""
    if not fields or not all(-1.0 <= f <= 1.0 for f in fields):
        raise DefocusError(f"fields {tuple(fields)}; expected numbers between -1 and 1, of the image radius")
    if not depth_m > 0.0:
        raise DefocusError(f"depth {depth_m} m; expected a positive number or inf")
    count = len(fields)
    shift = math.nan if camera.sensor_shift_mm is None else camera.sensor_shift_mm
    found = wavefront_batch(
        [camera.lens] * count,
        height_mm=[abs(f) * camera.image_radius_mm for f in fields],
        azimuth=[math.copysign(math.pi / 2.0, f) for f in fields],
        depth_mm=[depth_m * 1e3] * count,
        focus_mm=[camera.focus_m * 1e3] * count,
        bands=(wavelength_nm,),
        sensor_shift_mm=[shift] * count,
    )
    known = jax.device_get(found.wavefront)  # on a device, each choice from an array would compile
    return [jax.tree.map(lambda leaf, i=i: leaf[i, 0], known) for i in range(count)]


@jax.jit
def _on_grid(
    x: Float[Array, "rows columns"], y: Float[Array, "rows columns"], wavefront: Wavefront
) -> tuple[Float[Array, "rows columns"], Float[Array, "rows columns"]]:
    """Phase (waves) and amplitude at points of the unit disk."""
    return basis(x, y, DEGREE) @ wavefront.phase, basis(x, y, AMPLITUDE_DEGREE) @ wavefront.amplitude


def pupil_map(wavefront: Wavefront, field: float, remove: Remove = "tilt") -> PupilMap:
    """One wavefront (no batch axes) on a grid, less piston and what else is to be removed."""
    if remove not in get_args(Remove):
        raise DefocusError(f"remove {remove!r}; known are {', '.join(get_args(Remove))}")
    centre, half = np.asarray(wavefront.centre), np.asarray(wavefront.half)
    table = np.asarray(wavefront.rim)
    turn = np.linspace(-math.pi, math.pi, len(table))
    rim = np.stack([table * np.sin(turn), table * np.cos(turn)])
    low, high = rim.min(axis=1), rim.max(axis=1)
    x, y = (np.linspace(low[i], high[i], GRID) for i in (0, 1))
    across, along = np.meshgrid(x, y)
    inside = np.hypot(across, along) <= np.interp(np.arctan2(across, along), turn, table)
    wave, amplitude = (np.asarray(values) for values in _on_grid(across / half[0], along / half[1], wavefront))
    found = bool(wavefront.found) and bool(inside.any()) and bool(np.isfinite(wave[inside]).all())
    wavelength = float(wavefront.wavelength)
    tilt, defocus = (0.0, 0.0), 0.0
    if found:
        sx, sy = across + centre[0], along + centre[1]
        sz = np.sqrt(np.maximum(1.0 - sx**2 - sy**2, 0.0))
        terms = [np.ones_like(sx), sx, sy, sz][: {"piston": 1, "tilt": 3, "defocus": 4}[remove]]
        columns = np.stack([t[inside] for t in terms], axis=1)
        best, *_ = np.linalg.lstsq(columns, wave[inside], rcond=None)
        wave = wave - np.tensordot(best, np.stack(terms), axes=1)
        amplitude = amplitude / amplitude[inside].max()
        if len(best) > 1:
            tilt = -float(best[1]) * wavelength * 1e3, -float(best[2]) * wavelength * 1e3
        defocus = -float(best[3]) * wavelength if len(best) > 3 else 0.0
    return PupilMap(
        field,
        found,
        x + centre[0],
        y + centre[1],
        inside,
        wave,
        amplitude,
        rim + centre[:, None],
        float(wavefront.area),
        tilt,
        defocus,
    )


def draw_wavefronts(
    camera: Camera,
    *,
    depth_m: float = math.inf,
    fields: Sequence[float] = FIELDS,
    wavelength_nm: float = D_LINE_NM,
    remove: Remove = "tilt",
) -> Figure:
    """Wavefront and amplitude over the pupil, one column for each field; all pupils in the same scale."""
    maps = [
        pupil_map(w, f, remove)
        for w, f in zip(wavefronts_of(camera, depth_m, fields, wavelength_nm), fields, strict=True)
    ]
    gone = {"piston": "piston removed", "tilt": "piston and tilt removed", "defocus": "piston, tilt, defocus removed"}
    what = f"wavefront in waves of {wavelength_nm:.4g} nm, {gone[remove]}, and amplitude over direction cosines"
    step, rows = PANEL + GAP, 2
    width = 0.75 + step * len(maps)
    row_height = PANEL + FOOT + 0.5
    height = TITLE + HEAD + rows * row_height
    half = _half(maps)
    with style.look():
        figure = Figure(figsize=(max(width, 5.6), height))
        width = float(figure.get_figwidth())
        style.title(figure, camera.lens.name, f"{_setting(camera, depth_m)} · {what}", (width, height))
        for column, one in enumerate(maps):
            left = 0.75 + column * step
            for row in range(rows):
                bottom = height - TITLE - HEAD - row * row_height - PANEL
                axes = figure.add_axes((left / width, bottom / height, PANEL / width, PANEL / height))
                bar = (left / width, (bottom - 0.42) / height, PANEL / width, 0.06 / height)
                _paint_map(figure, axes, one, half, bar, amplitude=row == 1)
                if row == 0:
                    _paint_head(axes, one)
                if column == 0:
                    axes.set_ylabel("direction cosine y", fontsize=style.SMALL, labelpad=1.0)
                if row == 1:
                    axes.annotate(
                        "amplitude, relative",
                        (0.5, 1.0),
                        xycoords="axes fraction",
                        xytext=(0.0, 3.0),
                        textcoords="offset points",
                        ha="center",
                        fontsize=style.SMALL,
                        color=style.FAINT,
                    )
    return figure


def draw_pupils(
    camera: Camera,
    *,
    depth_m: float = math.inf,
    fields: Sequence[float] = FIELDS,
    wavelength_nm: float = D_LINE_NM,
) -> Figure:
    """The pupils of several fields side by side in the same scale: how vignetting cuts them.

    Dotted is the first field's pupil, and areas are relative to its.
    """
    waves = wavefronts_of(camera, depth_m, fields, wavelength_nm)
    maps = [pupil_map(w, f, "piston") for w, f in zip(waves, fields, strict=True)]
    half = _half(maps)
    step = PANEL + 0.15
    width, height = max(0.6 + step * len(maps), 5.6), TITLE + HEAD + PANEL + 0.55
    first = maps[0]
    middle = (first.rim.max(axis=1) + first.rim.min(axis=1)) / 2.0
    with style.look():
        figure = Figure(figsize=(width, height))
        below = f"{_setting(camera, depth_m)} · pupils in direction cosines, same scale"
        style.title(figure, camera.lens.name, below, (width, height))
        start = (width - step * len(maps) + 0.15) / 2.0
        for column, one in enumerate(maps):
            box = ((start + column * step) / width, 0.55 / height, PANEL / width, PANEL / height)
            axes = figure.add_axes(box)
            _frame(axes, one, half)
            axes.set_xticks([])
            axes.set_yticks([])
            centre = (one.rim.max(axis=1) + one.rim.min(axis=1)) / 2.0
            if not one.found:
                paint_reason(axes, "no light gets through at this field", PANEL)
                _paint_head(axes, one, numbers=False)
                continue
            if first.found:
                axes.plot(*(first.rim - middle[:, None] + centre[:, None]), ":", color=style.FAINT, linewidth=0.8)
            axes.add_patch(Polygon(one.rim.T, facecolor="#cfe4f2", edgecolor=style.BLUE, linewidth=1.1))
            _paint_head(axes, one, numbers=False)
            share = f"area {one.area / first.area:.0%}" if first.found and first.area > 0.0 else ""
            text = f"{share.replace('%', ' %')}\ncentre at y = {centre[1]:.3f}".replace("-", "−")
            axes.annotate(
                text,
                (0.5, 0.0),
                xycoords="axes fraction",
                xytext=(0.0, -4.0),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=style.SMALL,
                linespacing=1.4,
            )
    return figure


def _setting(camera: Camera, depth_m: float) -> str:
    focus = "infinity" if math.isinf(camera.focus_m) else distance(camera.focus_m)
    depth = "infinity" if math.isinf(depth_m) else distance(depth_m)
    return f"f/{float(camera.first_order.f_number):.3g}, focused at {focus}, point at {depth}"


def _half(maps: Sequence[PupilMap]) -> float:
    """Half the side of all panels, in direction cosines: the widest pupil and a margin."""
    return 1.12 * max((float(np.ptp(m.rim, axis=1).max()) / 2.0 for m in maps if m.found), default=1.0)


def _frame(axes: Axes, one: PupilMap, half: float) -> None:
    middle = (one.rim.max(axis=1) + one.rim.min(axis=1)) / 2.0 if one.found else np.zeros(2)
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    axes.set_aspect("equal")
    for side in axes.spines.values():
        side.set_edgecolor(style.FRAME)
        side.set_linewidth(0.5)
    axes.tick_params(length=2.0, width=0.5, pad=1.5, labelsize=style.SMALL - 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def _paint_map(
    figure: Figure,
    axes: Axes,
    one: PupilMap,
    half: float,
    bar: tuple[float, float, float, float],
    *,
    amplitude: bool,
) -> None:
    """A map cut out by its rim, with the colour bar below it."""
    if not one.found:
        paint_reason(axes, "no light gets through at this field", PANEL)
        return
    _frame(axes, one, half)
    values = one.amplitude if amplitude else one.wave
    seen = values[one.inside]
    if amplitude:
        low, high, colours = min(0.98, float(seen.min())), 1.0, AMPLITUDE_MAP
    else:
        largest = max(float(np.abs(seen).max()), 1e-6)
        low, high, colours = -largest, largest, WAVE_MAP
    image = axes.imshow(
        np.clip(values, low, high),
        extent=(one.x[0], one.x[-1], one.y[0], one.y[-1]),
        origin="lower",
        interpolation="bilinear",
        cmap=colours,
        vmin=low,
        vmax=high,
    )
    _frame(axes, one, half)
    edge = Polygon(one.rim.T, facecolor="none", edgecolor=style.INK, linewidth=0.8)
    axes.add_patch(edge)
    image.set_clip_path(edge)
    drawn = figure.colorbar(image, cax=figure.add_axes(bar), orientation="horizontal")
    drawn.ax.xaxis.set_major_locator(MaxNLocator(4))
    tidy_bar(drawn)


def _paint_head(axes: Axes, one: PupilMap, *, numbers: bool = True) -> None:
    name = "axis" if one.field == 0.0 else f"field {one.field:.3g}".replace("-", "−")
    write_above(axes, name, 15.0 if numbers else 4.0, fontweight="bold")
    if numbers and one.found:
        write_above(axes, f"RMS {one.rms:.3g}, P–V {one.peak_to_valley:.3g} waves", 4.0, color=style.FAINT)
