"""How figures look, in one place: colours, fonts, line widths, and how they are written to files.

The colours are those of Okabe and Ito, which people with colour-vision deficiencies tell apart. Figures are made with
matplotlib's object interface inside `look()`, so that neither a user's settings nor a display matter.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, FigureBase
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from ..errors import DefocusError
from ..glass import Medium

INK = "#222222"
FAINT = "#777777"
FRAME, GRID = "#bbbbbb", "#e6e6e6"
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, YELLOW, SKY = "#AA3377", "#E69F00", "#56B4E9"
FIELD_COLOURS = (BLUE, GREEN, ORANGE, PURPLE, YELLOW, SKY)  # from the axis outwards

GLASS_TINTS = ((22.0, "#ddd0e8"), (42.0, "#dde3f1"), (62.0, "#cbe5f4"))  # Abbe number, colour; mixed in between
ED_TINT = "#fbefb0"
PLATE_TINT = "#e6ece6"
ED_ABBE_NUMBER = 80.0  # from here on a glass counts as extra-low dispersion

OUTLINE, ASPHERE, RAY, AXIS, STOP, IMAGE = 0.7, 1.4, 0.55, 0.6, 2.2, 1.8  # line widths, points
SMALL, NORMAL, LARGE = 7.5, 9.0, 12.0  # font sizes, points
DPI = 160

_LOOK: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": NORMAL,
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "text.usetex": False,
    "text.parse_math": False,  # a lens's name may hold a dollar sign
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "white",
    "axes.linewidth": 0.7,
    "axes.titlesize": NORMAL,
    "axes.unicode_minus": True,
    "axes.grid": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.solid_capstyle": "butt",
    "path.simplify": True,
    "figure.facecolor": "white",
    "figure.dpi": 100,
    "savefig.facecolor": "auto",
    "savefig.bbox": None,
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "defocus",
    "pdf.fonttype": 42,
}
_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None},
}
FIGURE_SUFFIXES = tuple(_METADATA)


@contextlib.contextmanager
def look() -> Iterator[None]:
    """Our settings for the time of a `with` block; matplotlib's own are back afterwards."""
    with matplotlib.rc_context(_LOOK):
        yield


def check_figure_path(path: str | Path) -> Path:
    """The path, if `save` can write it; an error that says what is wrong with suffix or folder otherwise."""
    path = Path(path)
    if path.suffix.lower() not in _METADATA:
        raise DefocusError(
            f"{path}: figures are written as {', '.join(FIGURE_SUFFIXES)}; give the file one of these suffixes"
        )
    if not path.resolve().parent.is_dir():
        raise DefocusError(f"{path}: cannot be written: there is no folder {path.parent}")
    return path


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, SVG or PDF, as the suffix says; the same figure gives the same bytes."""
    path = check_figure_path(path)
    suffix = path.suffix.lower()
    try:
        with look():
            figure.savefig(path, format=suffix[1:], dpi=DPI, metadata=_METADATA[suffix])
    except OSError as error:
        raise DefocusError(f"{path}: cannot be written: {error.strerror or error}") from error


def glass_tint(medium: Medium, *, plate: bool = False) -> tuple[float, float, float]:
    """Fill colour of a glass: violet for flints, blue for crowns, yellow for extra-low dispersion, grey for plates."""
    if plate:
        return _rgb(PLATE_TINT)
    if medium.vd is not None and medium.vd >= ED_ABBE_NUMBER:
        return _rgb(ED_TINT)
    abbe = medium.vd if medium.vd is not None else GLASS_TINTS[1][0]
    low = GLASS_TINTS[0]
    for high in GLASS_TINTS:
        if abbe <= high[0]:
            part = 1.0 if high is low else (abbe - low[0]) / (high[0] - low[0])
            mixed = [a + part * (b - a) for a, b in zip(_rgb(low[1]), _rgb(high[1]), strict=True)]
            return mixed[0], mixed[1], mixed[2]
        low = high
    return _rgb(GLASS_TINTS[-1][1])


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = to_rgb(colour)
    return float(red), float(green), float(blue)


def field_colours(count: int) -> list[str]:
    """One colour per field; beyond the palette they repeat."""
    return [FIELD_COLOURS[i % len(FIELD_COLOURS)] for i in range(count)]


def wavelength_colours(wavelengths_nm: Sequence[float]) -> list[str]:
    """Blue, green or red-orange for each wavelength (nm): nearest of the spectrum's thirds, safe to tell apart."""
    return [BLUE if w < 510.0 else GREEN if w < 595.0 else ORANGE for w in wavelengths_nm]


def nice_length(target: float) -> float:
    """The largest of 1, 2, 5 × 10^k that is at most `target`."""
    if not (math.isfinite(target) and target > 0.0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(target))
    return next(m * power for m in (5.0, 2.0, 1.0) if m * power <= target * (1.0 + 1e-9))


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a line of text in inches; size in points."""
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    return (
        float(TextPath((0.0, 0.0), text, prop=font, usetex=False).get_extents().width) / 72.0 if text.strip() else 0.0
    )


def fitted_size(text: str, size: float, width: float, *, bold: bool = False) -> float:
    """The font size (points), at most `size`, at which a line fits into `width` inches."""
    return size * min(1.0, width / max(text_width(text, size, bold=bold), 1e-9))


def title(container: FigureBase, name: str, below: str, size: tuple[float, float], *, margin: float = 0.3) -> None:
    """A name and a fainter line below it, at the upper left of a container whose size is in inches."""
    (width, height), room = size, size[0] - 2.0 * margin
    big, normal = fitted_size(name, LARGE, room, bold=True), fitted_size(below, NORMAL, room)
    container.text(margin / width, 1.0 - 0.3 / height, name, fontsize=big, fontweight="bold")
    container.text(margin / width, 1.0 - 0.5 / height, below, fontsize=normal, color=FAINT)


def scale_bar(axes: Axes, x: float, y: float, length: float, label: str, *, tick: float) -> None:
    """A horizontal bar from (x, y), `length` long, with end ticks of height `tick`, all in data units."""
    axes.plot([x, x + length], [y, y], color=INK, linewidth=1.0, solid_capstyle="butt", clip_on=False)
    for end in (x, x + length):
        axes.plot([end, end], [y - tick / 2, y + tick / 2], color=INK, linewidth=1.0, clip_on=False)
    axes.text(x + length / 2, y - tick * 0.8, label, ha="center", va="top", fontsize=SMALL, clip_on=False)


def bare_axes(container: FigureBase, box: tuple[float, float, float, float]) -> Axes:
    """Axes without frame or ticks; box: left, bottom, width, height as fractions of the container."""
    axes = container.add_axes(box)
    axes.set_axis_off()
    return axes
