"""A plain chart of lines: title above, legend of one entry a line below, a faint grid."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style

WIDTH = 6.4  # inches
ENTRY = 0.22  # inches of an entry of the legend


def line_chart(title: str, height: float, entries: int) -> tuple[Figure, Axes]:
    """A figure `height` inches high without its legend of so many entries, and the axes to draw into."""
    whole = height + ENTRY * entries
    figure = Figure(figsize=(WIDTH, whole))
    below = (0.62 + ENTRY * entries) / whole
    axes = figure.add_axes((0.12, below, 0.84, 1.0 - below - 0.55 / whole))
    figure.text(0.03, 1.0 - 0.3 / whole, title, fontweight="bold",
                fontsize=style.fitted_size(title, style.LARGE, 0.94 * WIDTH, bold=True))  # fmt: skip
    axes.grid(axis="y", color=style.GRID, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def add_legend(figure: Figure) -> None:
    figure.legend(loc="lower left", bbox_to_anchor=(0.1, 0.0), ncols=1)
