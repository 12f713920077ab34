"""PSFs as pictures, and one PSF on a page: pictures, cross sections, encircled energy, the numbers of its report.

Linear pictures are photographs of the point: light is encoded as sRGB (IEC 61966-2-1). Log pictures show the share of
the maximum over some decades: three bands each by itself, one band through a perceptually uniform colour map. One
factor scales all bands of a PSF, so that colour fringes stay: its brightest value is the top of the scale. Sections run
through the centroid, along the meridian (positive away from the centre of the photograph) and across it, and show the
share of a band's light that each pixel holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from ..errors import DefocusError
from ..psf.bands import Bands
from ..psf.energy import UP, EncircledEnergy, encircled_energy, sections
from ..psf.engine import Psf
from ..srgb import to_srgb
from . import style
from .sheet import MARGIN, Box, Sheet, frame, plain_plot, show_picture

Scale = Literal["linear", "log"]
DECADES = 4.0  # of a log picture
LOG_MAP = "magma"
LOST = 0.02  # light outside the window from which on a tile says so
TILE = 208  # device pixels at style.DPI: about the side of a tile in a row of them
EMPTY = "#f4f4f4"  # where there is no PSF

Light = Float[np.ndarray, "bands rows columns"]
Colours = Float[np.ndarray, "rows columns 3"]
WIDTH, HEIGHT = 10.4, 6.6  # inches
PICTURE = 3.0
PLOT_WIDTH, PLOT_HEIGHT = 2.5, 1.75
NUMBERS = (  # of a report: name, key, format, unit, factor
    ("image height", "image_height_mm", ".4g", " mm", 1.0),
    ("field angle", "field_deg", ".3g", "°", 1.0),
    ("relative illumination", "relative_illumination", ".3f", "", 1.0),
    ("samples across the pupil", "samples", ".0f", "", 1.0),
    ("samples needed", "samples_needed", ".0f", "", 1.0),
    ("sampling bound (paper)", "sampling_bound", ".0f", "", 1.0),
    ("fit residual, RMS", "residual_waves", ".2g", " waves", 1.0),
    ("fit residual, largest", "residual_max_waves", ".2g", " waves", 1.0),
    ("light outside the window", "energy_outside", ".2f", " %", 100.0),
)


def check_scale(scale: str) -> Scale:
    """The scale, if it is one."""
    if scale not in get_args(Scale):
        raise DefocusError(f"scale {scale!r}; known are {', '.join(get_args(Scale))}")
    return cast(Scale, scale)


def picture(psf: Light, bands: Bands, scale: Scale = "linear", decades: float = DECADES) -> Colours:
    """A PSF as sRGB values in 0 … 1; its brightest value is 1, and white where all bands share it."""
    light = np.maximum(colours(psf, bands), 0.0)
    light = light / max(float(light.max()), 1e-30)
    if scale == "linear":
        return to_srgb(light)
    level = np.clip(1.0 + np.log10(np.maximum(light, 1e-30)) / decades, 0.0, 1.0)
    return level if len(psf) > 1 else matplotlib.colormaps[LOG_MAP](level[..., 0])[..., :3]


def colours(psf: Light, bands: Bands) -> Colours:
    """Linear red, green and blue: the bands in the order of their wavelengths, shared out in thirds."""
    count = len(psf)
    edges = np.linspace(0.0, count, 4)
    begin, end = np.arange(count), np.arange(count) + 1.0
    overlap = np.minimum(edges[1:, None], end) - np.maximum(edges[:-1, None], begin)
    weights = np.maximum(overlap, 0.0) * 3.0 / count  # from blue to red
    ordered = np.asarray(psf, float)[np.argsort(bands.mean_nm)]
    return np.tensordot(weights[::-1], ordered, axes=1).transpose(1, 2, 0)


def tile_side(size: int) -> float:
    """Side of a tile in inches: a whole number of device pixels for each pixel of a PSF, as far as that is sensible."""
    return (size * max(1, round(TILE / size)) if size <= 512 else 512) / style.DPI


def paint_psf(
    axes: Axes, psf: Light, bands: Bands, report: dict[str, Any], scale: Scale = "linear", decades: float = DECADES
) -> None:
    """A PSF, with a word where it loses light, or the reason why there is none."""
    if report.get("status", "ok") != "ok":
        paint_reason(axes, str(report["status"]))
        return
    show_picture(axes, picture(psf, bands, scale, decades), pixels=max(psf.shape) <= 512)
    frame(axes)
    lost = float(report.get("energy_outside", 0.0))
    if lost >= LOST:
        words = axes.text(0.97, 0.03, f"{100.0 * lost:.0f} % outside", transform=axes.transAxes, ha="right")
        outline = withStroke(linewidth=1.5, foreground="black")
        words.set(fontsize=style.SMALL - 1.5, color="white", path_effects=[outline])


def paint_reason(axes: Axes, reason: str) -> None:
    """In place of a picture: why there is none."""
    axes.set_facecolor(EMPTY)
    size = style.SMALL - 1.5
    lines = style.wrapped(reason, size, 0.9 * axes.bbox.width / axes.figure.dpi)
    options: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "color": style.ORANGE}
    axes.text(0.5, 0.5, lines, transform=axes.transAxes, **options)
    frame(axes)


def light_bar(sheet: Sheet, box: Box, bands: int, scale: Scale, decades: float = DECADES) -> None:
    """A colour bar of relative light as `picture` shows it."""
    if scale == "linear":
        ramp = to_srgb(np.linspace(0.0, 1.0, 256)[:, None])
        sheet.colour_bar(box, ScalarMappable(Normalize(0.0, 1.0), ListedColormap(np.repeat(ramp, 3, axis=1))))
        return
    colour_map = matplotlib.colormaps[LOG_MAP if bands == 1 else "gray"]
    bar = sheet.colour_bar(box, ScalarMappable(LogNorm(10.0**-decades, 1.0), colour_map))
    exponents = range(-math.floor(decades), 1)
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")  # in the figure's own font
    labels = ["10" + str(e).translate(raised) if e else "1" for e in exponents]
    bar.set_ticks([10.0**e for e in exponents], labels=labels)


def psf_scale_bar(sheet: Sheet, x: float, y: float, width: float, length_um: float, pixel_um: float) -> None:
    """A scale bar, in µm or mm and in pixels, of a PSF that is `width` inches and `length_um` wide."""
    bar = style.nice_length(0.75 * length_um)
    text = f"{bar / 1e3:g} mm" if bar >= 1e3 else f"{bar:g} µm"
    sheet.scale_bar(x, y, bar / length_um * width, f"{text}, {bar / pixel_um:.3g} px")


def scale_text(scale: Scale, decades: float) -> str:
    """What a tile's colours mean."""
    return f"{decades:g} decades below each tile's maximum" if scale == "log" else "each tile scaled to its own maximum"


def row_label(sheet: Sheet, name: str, about: Sequence[str], top: float, room: float) -> None:
    """Beside a row of tiles, from `top` inches downwards: a name in bold, and fainter lines below it."""
    lines = style.wrapped(name, style.SMALL, 0.9 * room).split("\n")
    looks = [{"fontweight": "bold"}] * len(lines) + [{"color": style.FAINT}] * len(about)
    for number, (line, look) in enumerate(zip((*lines, *about), looks, strict=True)):
        sheet.text(MARGIN, top - 0.14 * number, line, room=room, va="center", **look)


@style.look()
def draw_psf(psf: Psf, title: str | None = None) -> Figure:
    """A PSF in linear and log scale with sections, encircled energy and report; its lens is the title, below it stand
    focus, depth, f-number, field, pixels, bands, and a method other than ours."""
    if title is None:
        lens = psf.report.get("lens")
        title = "point spread function" if lens is None else str(lens)
    x, y = psf.report.get("field", (0.0, 0.0))
    azimuth = math.atan2(y, x) if (x, y) != (0.0, 0.0) else UP  # from the centre of the photograph to the point
    if np.ndim(psf.array) != 3:
        raise DefocusError(f"a PSF of shape {psf.array.shape}; one at a time can be drawn, (bands, rows, columns)")
    lost = psf.report.get("energy_outside_bands", [0.0] * len(psf.array))
    energy = encircled_energy(psf.array, psf.pixel_um, np.clip(1.0 - np.asarray(lost, float), 0.0, 1.0))
    count, rows, columns = psf.array.shape
    names = ", ".join(psf.bands.names) if count <= 4 else f"{count} bands"
    sheet = Sheet(WIDTH, HEIGHT)
    method = psf.report.get("method", "wave")
    other = "" if method == "wave" else f" · method {method}"
    sheet.title(title, f"{_point_text(psf)}{rows} × {columns} pixels of {psf.pixel_um:.3g} µm · {names}{other}")
    bottom, second = HEIGHT - 0.85 - PICTURE, 0.3 + PICTURE + 0.35
    paint_psf(sheet.axes((0.3, bottom, PICTURE, PICTURE)), psf.array, psf.bands, {})
    psf_scale_bar(sheet, 0.3, bottom - 0.12, PICTURE, columns * psf.pixel_um, psf.pixel_um)
    paint_psf(sheet.axes((second, bottom, PICTURE, PICTURE)), psf.array, psf.bands, {}, "log")
    sheet.text(second, bottom - 0.1, "of maximum", va="center")
    light_bar(sheet, (second + 0.9, bottom - 0.14, PICTURE - 0.9, 0.08), count, "log")
    for number, (name, value) in enumerate(caption(psf, energy)):
        y = HEIGHT - 0.95 - 0.215 * number
        sheet.text(second + PICTURE + 0.45, y, name, color=style.FAINT, va="center")
        sheet.text(WIDTH - 0.35, y, value, ha="right", va="center")
    _paint_plots(sheet, psf, energy, azimuth)
    return sheet.figure


def _point_text(psf: Psf) -> str:
    """The lens's setting and the point, as far as the report has them."""
    if "depth_m" not in psf.report:
        return ""
    (x, y), about = psf.report["field"], psf.report
    setting = style.setting(about["f_number"], about["focus_m"])
    return style.minus(f"{setting} · depth {style.distance(about['depth_m'])} · field ({x:.3g}, {y:.3g}) · ")


def caption(psf: Psf, energy: EncircledEnergy) -> list[tuple[str, str]]:
    """Names and values for the caption: what the report has of them."""
    lines = [
        (name, style.minus(f"{value * factor:{form}}{unit}"))
        for name, key, form, unit, factor in NUMBERS
        if isinstance(value := psf.report.get(key), int | float) and math.isfinite(value)
    ]
    radii = [(share, energy.radius_of(share)) for share in (0.5, 0.8)]
    lines += [(f"{100 * share:.0f} % of the light within", f"{r:.3g} µm") for share, r in radii if math.isfinite(r)]
    return [*lines, ("largest share of a pixel", f"{100.0 * float(psf.array.max()):.3g} %")]


def _paint_plots(sheet: Sheet, psf: Psf, energy: EncircledEnergy, azimuth: float) -> None:
    """Two sections and the encircled energy, side by side along the lower edge."""
    place, along, across = sections(psf.array, azimuth)
    radius = energy.radius_of(0.95)
    largest = psf.pixel_um * max(psf.array.shape[-2:]) / 2.0
    extent = max(min(largest, 1.6 * radius if math.isfinite(radius) else largest), 3.0 * psf.pixel_um)
    places = place * psf.pixel_um
    peak = 105.0 * float(np.nanmax([along, across]))
    plots = (
        (places, along, (-extent, extent), peak, "µm from the centroid, along the meridian", "light per pixel, %"),
        (places, across, (-extent, extent), peak, "µm from the centroid, across the meridian", "light per pixel, %"),
        (
            energy.radius_um, energy.share, (0.0, min(float(energy.radius_um[-1]), 2.0 * extent)), 102.0,
            "radius about the centroid, µm", "encircled energy, %",
        ),
    )  # fmt: skip
    for number, (x, lines, limits, top, x_label, y_label) in enumerate(plots):
        axes = sheet.axes((0.75 + number * (PLOT_WIDTH + 0.75), 0.5, PLOT_WIDTH, PLOT_HEIGHT))
        for line, colour, name in zip(lines, band_colours(psf), psf.bands.names, strict=True):
            axes.plot(x, 100.0 * line, color=colour, linewidth=1.1, label=name)
        axes.set(xlim=limits, ylim=(0.0, top))
        axes.set_xlabel(x_label, fontsize=style.SMALL)
        axes.set_ylabel(y_label, fontsize=style.SMALL)
        plain_plot(axes)
        axes.tick_params(length=2.5, width=0.5)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(6))
    if 1 < len(psf.bands.names) <= 6:
        axes.legend(loc="lower right", handlelength=1.2)


def band_colours(psf: Psf) -> list[str]:
    """One colour per band: ink for a single one, by wavelength for two or three, else from the palette."""
    count = len(psf.bands.names)
    if count == 1:
        return [style.INK]
    by_wavelength = style.wavelength_colours(psf.bands.mean_nm)
    return by_wavelength if len(set(by_wavelength)) == count else style.field_colours(count)
