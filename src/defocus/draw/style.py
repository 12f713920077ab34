"""How figures look, in one place: colours, fonts, line widths, and how they are written to files.

The colours are those of Okabe and Ito, which people with colour-vision deficiencies tell apart. Figures are made with
matplotlib's object interface inside `look()`, so that neither a user's settings nor a display matter.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from ..files.stores import check_output, write_file
from ..glass import Medium
from .pages import data_uri

INK = "#222222"
FAINT = "#777777"
FRAME, GRID = "#bbbbbb", "#e6e6e6"
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, YELLOW, SKY = "#AA3377", "#E69F00", "#56B4E9"
FIELD_COLOURS = (BLUE, GREEN, ORANGE, PURPLE, YELLOW, SKY)  # from the axis outwards

GLASS_TINTS = {22.0: "#ddd0e8", 42.0: "#dde3f1", 62.0: "#cbe5f4"}  # by Abbe number; mixed in between
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


@contextlib.contextmanager
def look() -> Iterator[None]:
    """Our settings for the time of a `with` block or, as a decorator, of a call; matplotlib's are back afterwards."""
    with matplotlib.rc_context(_LOOK):
        yield


def check_figure_path(path: str | Path, *others: str) -> Path:
    """The path, if `save` can write it, or its ending is one of the `others`; an error says what is wrong otherwise."""
    return check_output(path, (*others, *_METADATA))


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, SVG or PDF, as the suffix says, whole or not at all."""
    path = check_figure_path(path)
    write_file(path, figure_bytes(figure, path.suffix.lower()))


def figure_bytes(figure: Figure, kind: str = ".png", *, dpi: float = DPI) -> bytes:
    """A figure as the bytes of a file of a kind (.png, .svg or .pdf); the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, format=kind[1:], dpi=dpi, metadata=_METADATA[kind])
    return buffer.getvalue()


def html_image(figure: Figure, *, dpi: float = 100.0) -> str:
    """An HTML `<img>` that holds a figure as a PNG, for notebooks and pages."""
    width = round(float(figure.get_figwidth()) * 100.0)
    picture = data_uri(figure_bytes(figure, dpi=dpi), "png")
    return f'<img width="{width}" style="max-width: 100%" src="{picture}">'


def glass_tint(medium: Medium, *, plate: bool = False) -> tuple[float, float, float]:
    """Fill colour of a glass: violet for flints, blue for crowns, yellow for extra-low dispersion, grey for plates."""
    if plate:
        return to_rgb(PLATE_TINT)
    numbers = list(GLASS_TINTS)
    abbe = numbers[1] if medium.vd is None else medium.vd
    if abbe >= ED_ABBE_NUMBER:
        return to_rgb(ED_TINT)
    mixed = [float(np.interp(abbe, numbers, level)) for level in zip(*map(to_rgb, GLASS_TINTS.values()), strict=True)]
    return mixed[0], mixed[1], mixed[2]


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


@lru_cache(4096)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a line of text in inches; size in points."""
    if not text.strip():
        return 0.0
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    return _outline_width(TextPath((0.0, 0.0), text, prop=font, usetex=False)) / 72.0


def _outline_width(path: TextPath) -> float:
    """Width of an outline of lines and parabolas, as DejaVu's letters are: `get_extents` takes fifty times as long."""
    x, codes = path.vertices[:, 0], path.codes
    assert codes is not None
    control = np.flatnonzero(codes == TextPath.CURVE3)[::2]
    a, b, c = x[control - 1], x[control], x[control + 1]
    bend = a - 2.0 * b + c
    turn = np.clip((a - b) / np.where(bend == 0.0, np.inf, bend), 0.0, 1.0)  # where x goes back, or an end
    farthest = (1.0 - turn) ** 2 * a + 2.0 * turn * (1.0 - turn) * b + turn**2 * c
    return float(np.ptp(np.concatenate([x[np.isin(codes, (TextPath.MOVETO, TextPath.LINETO))], c, farthest])))


def fitted_size(text: str, size: float, width: float, *, bold: bool = False) -> float:
    """The font size (points), at most `size`, at which a line fits into `width` inches."""
    return size * min(1.0, width / max(text_width(text, size, bold=bold), 1e-9))


def wrapped(text: str, size: float, width: float) -> str:
    """The text in lines at most `width` inches wide, at a font size in points."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def minus(text: str) -> str:
    """The text with minus signs in place of hyphens."""
    return text.replace("-", "−")


def signed(value: float, digits: int) -> str:
    """A number with its sign and so many decimals, and plain 0 where they are all zero."""
    return "0" if float(f"{value:.{digits}f}") == 0.0 else minus(f"{value:+.{digits}f}")


def distance(metres: float, infinity: str = "∞") -> str:
    """A distance in metres or centimetres, or what stands for infinity."""
    if math.isinf(metres):
        return infinity
    return f"{metres:g} m" if metres >= 1.0 else f"{metres * 100:.4g} cm"


def setting(f_number: float, focus_m: float) -> str:
    """F-number and focus distance in words."""
    return f"f/{f_number:.3g}, focused at {distance(focus_m, 'infinity')}"
