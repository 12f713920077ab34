"""PSFs as pictures: how much light becomes which colour.

Linear pictures are photographs of the point: light is encoded as sRGB (IEC 61966-2-1). Log pictures show the share of
the maximum over some decades: three bands each by itself, one band through a perceptually uniform colour map. One
factor scales all bands of a PSF, so that colour fringes stay: its brightest value is the top of the scale.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.patheffects import withStroke

from ..errors import DefocusError
from ..psf.bands import Bands
from ..srgb import to_srgb
from . import style
from .sheet import Box, Sheet, frame, show_picture

Scale = Literal["linear", "log"]
DECADES = 4.0  # of a log picture
LOG_MAP = "magma"
LOST = 0.02  # light outside the window from which on a tile says so
TILE = 208  # device pixels at style.DPI: about the side of a tile in a row of them
EMPTY = "#f4f4f4"  # where there is no PSF

Light = Float[np.ndarray, "bands rows columns"]
Colours = Float[np.ndarray, "rows columns 3"]


def check_scale(scale: str) -> Scale:
    """The scale, if it is one."""
    for name in get_args(Scale):
        if scale == name:
            return name
    raise DefocusError(f"scale {scale!r}; known are {', '.join(get_args(Scale))}")


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
