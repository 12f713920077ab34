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
from matplotlib.colorbar import Colorbar
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from ..errors import DefocusError
from ..psf.spectrum import Bands
from ..srgb import to_srgb
from . import style

Scale = Literal["linear", "log"]
DECADES = 4.0  # of a log picture
LOG_MAP = "magma"
LOST = 0.02  # light outside the window from which on a tile says so
TILE = 208  # device pixels at style.DPI: about the side of a tile in a row of them
EMPTY = "#f4f4f4"  # where there is no PSF

Picture = Float[np.ndarray, "rows columns 3"]


def check_scale(scale: str) -> Scale:
    """The scale, if it is one."""
    for known in get_args(Scale):
        if scale == known:
            return known
    raise DefocusError(f"scale {scale!r}; known are {', '.join(get_args(Scale))}")


def picture(
    psf: Float[np.ndarray, "bands rows columns"], bands: Bands, scale: Scale = "linear", decades: float = DECADES
) -> Picture:
    """A PSF as sRGB values in 0 … 1; its brightest value is 1, and white where all bands share it."""
    light = np.maximum(colours(psf, bands), 0.0)
    light = light / max(float(light.max()), 1e-30)
    if scale == "linear":
        return to_srgb(light)
    level = np.clip(1.0 + np.log10(np.maximum(light, 1e-30)) / decades, 0.0, 1.0)
    return level if len(psf) > 1 else matplotlib.colormaps[LOG_MAP](level[..., 0])[..., :3]


def colours(psf: Float[np.ndarray, "bands rows columns"], bands: Bands) -> Picture:
    """Linear red, green and blue: the bands in the order of their wavelengths, shared out in thirds."""
    count = len(psf)
    edges = np.linspace(0.0, count, 4)
    begin, end = np.arange(count), np.arange(count) + 1.0
    overlap = np.minimum(edges[1:, None], end) - np.maximum(edges[:-1, None], begin)
    weights = np.maximum(overlap, 0.0) * 3.0 / count  # from blue to red
    ordered = np.asarray(psf, float)[np.argsort(bands.mean_nm)]
    return np.tensordot(weights[::-1], ordered, axes=1).transpose(1, 2, 0)


def mappable(bands: int, scale: Scale, decades: float = DECADES) -> ScalarMappable:
    """What a colour bar needs: relative light and its colours."""
    if scale == "linear":
        ramp = to_srgb(np.linspace(0.0, 1.0, 256)[:, None])
        return ScalarMappable(Normalize(0.0, 1.0), ListedColormap(np.repeat(ramp, 3, axis=1)))
    norm = LogNorm(10.0**-decades, 1.0)
    return ScalarMappable(norm, matplotlib.colormaps[LOG_MAP if bands == 1 else "gray"])


def tidy_bar(bar: Colorbar, decades: float | None = None) -> None:
    """Thin lines and small figures on a colour bar; with `decades`, powers of ten in the figure's own font."""
    if decades is not None:
        exponents = range(-math.floor(decades), 1)
        raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
        labels = ["1" if e == 0 else "10" + str(e).translate(raised) for e in exponents]
        bar.set_ticks([10.0**e for e in exponents], labels=labels)
    bar.ax.tick_params(which="minor", length=0.0)
    bar.ax.tick_params(which="major", labelsize=style.SMALL - 1.0, length=2.0, width=0.5, pad=1.5)
    bar.outline.set_linewidth(0.4)


def paint_picture(axes: Axes, image: Picture) -> None:
    """A picture in pixels, row 0 on top, with a thin frame and no ticks."""
    axes.imshow(image, interpolation="nearest" if max(image.shape) <= 512 else "antialiased", origin="upper")
    bare(axes)


def tile_side(size: int) -> int:
    """Side of a tile in device pixels: a whole number of them for each pixel of a PSF, as far as that is sensible."""
    return size * max(1, round(TILE / size)) if size <= 512 else 512


def paint_tile(
    axes: Axes,
    psf: Float[np.ndarray, "bands rows columns"],
    bands: Bands,
    report: dict[str, Any],
    *,
    scale: Scale,
    decades: float,
    inches: float,
) -> None:
    """A PSF, with a word where it loses light, or the reason why there is none; `inches` is the tile's side."""
    if report["status"] != "ok":
        paint_reason(axes, str(report["status"]), inches)
        return
    paint_picture(axes, picture(psf, bands, scale, decades))
    lost = float(report.get("energy_outside", 0.0))
    if lost >= LOST:
        how: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": style.SMALL - 1.5, "color": "white"}
        axes.text(0.97, 0.03, f"{100.0 * lost:.0f} % outside", transform=axes.transAxes, **how)


def paint_scale_bar(
    figure: Figure, size: int, pixel_um: float, below: tuple[int, int, int], page: tuple[int, int]
) -> None:
    """A scale bar below a tile (left, lower edge and side) on a page (width, height), all in device pixels."""
    (left, lower, side), (width, height) = below, page
    axes = style.bare_axes(figure, (left / width, (lower - 60) / height, side / width, 60 / height))
    axes.set_xlim(0, side)
    axes.set_ylim(0, 60)
    bar = style.nice_length(0.75 * size * pixel_um)
    style.scale_bar(axes, 2.0, 42.0, bar / pixel_um * side / size, "", tick=9.0)
    axes.text(2.0, 32.0, length_label(bar, pixel_um), ha="left", va="top", fontsize=style.SMALL, clip_on=False)


def paint_reason(axes: Axes, reason: str, width: float) -> None:
    """In place of a picture: why there is none. `width` is that of the axes, in inches."""
    axes.set_facecolor(EMPTY)
    lines = wrapped(reason, style.SMALL - 1.5, 0.9 * width)
    axes.text(
        0.5,
        0.5,
        "\n".join(lines),
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=style.SMALL - 1.5,
        color=style.ORANGE,
    )
    bare(axes)


def bare(axes: Axes) -> None:
    """No ticks, a thin frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(style.FRAME)
        spine.set_linewidth(0.5)


def wrapped(text: str, size: float, width: float) -> list[str]:
    """The text in lines at most `width` inches wide, at a font size in points."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and style.text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def length_label(length_um: float, pixel_um: float) -> str:
    """A length in µm or mm, and in pixels."""
    text = f"{length_um / 1e3:g} mm" if length_um >= 1e3 else f"{length_um:g} µm"
    return f"{text}, {length_um / pixel_um:.3g} px"


def distance(metres: float) -> str:
    """A distance for people."""
    if np.isinf(metres):
        return "∞"
    return f"{metres:g} m" if metres >= 1.0 else f"{metres * 100:.4g} cm"


def write_above(axes: Axes, text: str, up: float, **how: Any) -> None:
    """A small line of text, centred `up` points above a tile."""
    axes.annotate(
        text,
        (0.5, 1.0),
        xycoords="axes fraction",
        xytext=(0.0, up),
        textcoords="offset points",
        ha="center",
        fontsize=style.SMALL,
        **how,
    )
