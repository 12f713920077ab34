"""A sheet measured in inches, and what figures put on it: pictures, scale bars, colour bars, notes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Shaped
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .pages import eight_bits

Place = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, width, height in inches
MARGIN = 0.3  # inches


class Sheet:
    """A figure whose places are inches from its lower left corner."""

    def __init__(self, width: float, height: float, **options: Any) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), **options)

    def axes(self, box: Box, *, bare: bool = False) -> Axes:
        """Axes in a box, without frame and ticks if they are `bare`."""
        left, bottom, width, height = box
        scaled = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(scaled)
        if bare:
            axes.set_axis_off()
        return axes

    def text(self, x: float, y: float, text: str, *, room: float | None = None, **options: Any) -> None:
        """A small line of text at a place; with `room` (inches) no wider than that."""
        options.setdefault("fontsize", style.SMALL)
        if room is not None:
            bold = options.get("fontweight") == "bold"
            options["fontsize"] = style.fitted_size(text, options["fontsize"], room, bold=bold)
        self.figure.text(x / self.width, y / self.height, text, **options)

    def title(self, name: str, below: str) -> None:
        """A name and a fainter line below it, at the upper left."""
        room = self.width - 2.0 * MARGIN
        self.text(MARGIN, self.height - 0.3, name, room=room, fontsize=style.LARGE, fontweight="bold")
        self.text(MARGIN, self.height - 0.5, below, room=room, fontsize=style.NORMAL, color=style.FAINT)

    def footnote(self, text: str, y: float) -> None:
        """A faint line across the sheet, centred, that fits it."""
        look: dict[str, Any] = {"fontsize": style.SMALL - 0.5, "color": style.FAINT, "ha": "center"}
        self.text(self.width / 2.0, y, text, room=self.width - 2.0 * MARGIN, **look)

    def scale_bar(self, x: float, y: float, length: float, label: str) -> None:
        """A horizontal bar with end ticks and its length in words below it: centred, or from its start if longer."""
        ends, tick = [x, x + length], 0.035
        for xs, ys in ((ends, [y, y]), *(([end, end], [y - tick, y + tick]) for end in ends)):
            line = Line2D(xs, ys, transform=self.figure.dpi_scale_trans, color=style.INK, linewidth=1.0)
            self.figure.add_artist(line)
        fits = style.text_width(label, style.SMALL) < length
        self.text(x + fits * length / 2.0, y - 0.06, label, ha="center" if fits else "left", va="top")

    def colour_bar(self, box: Box, colours: ScalarMappable, **options: Any) -> Colorbar:
        """A flat colour bar with thin lines and small numbers."""
        bar = self.figure.colorbar(colours, cax=self.axes(box), orientation="horizontal", **options)
        bar.outline.set_linewidth(0.4)
        bar.ax.tick_params(which="minor", length=0.0)
        bar.ax.tick_params(which="major", labelsize=style.SMALL - 1.0, length=2.0, width=0.5, pad=1.5)
        return bar


def frame(axes: Axes, colour: str = style.FRAME, width: float = 0.5) -> None:
    """Take away ticks and draw the frame in a colour and a line width (points)."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(colour)
        spine.set_linewidth(width)


def plain_plot(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """A faint grid behind a plot, and no frame above and to the right of it."""
    axes.grid(axis=grid, color=style.GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def note(axes: Axes, text: str, at: Place = (0.5, 1.0), points: Place = (0.0, 4.0), **options: Any) -> None:
    """A small line of text some points away from a place in fractions of the axes; by default above them."""
    options.setdefault("ha", "center")
    options.setdefault("fontsize", style.SMALL)
    axes.annotate(text, at, xycoords="axes fraction", xytext=points, textcoords="offset points", **options)


def head(axes: Axes, name: str, below: str = "") -> None:
    """Above axes: a name in bold, and a fainter line below it."""
    note(axes, name, points=(0.0, 14.0), fontweight="bold")
    note(axes, below, color=style.FAINT)


def show_picture(axes: Axes, picture: Shaped[np.ndarray, "rows columns 3"], *, pixels: bool = False) -> None:
    """Show a picture, row 0 on top: uint8, uint16, or display values 0..1.

    With `pixels` each pixel is a square of one colour.
    """
    display = np.clip(picture, 0.0, 1.0) if picture.dtype.kind == "f" else eight_bits(picture)
    axes.imshow(display, interpolation="nearest" if pixels else "antialiased", origin="upper")
