"""How good restorations are at each level of blur: means with their intervals, a line for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from ..errors import DefocusError
from . import style
from .line_chart import add_legend, line_chart

HEIGHT = 4.0  # inches, without the legend
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Line:
    """Means of one row and the ends of their intervals at each level; None where it has none."""

    name: str
    means: Sequence[float | None]
    intervals: Sequence[tuple[float, float] | None]
    faint: bool = False  # for what is no restoration


def draw_blur_levels(lines: Sequence[Line], levels: Sequence[str], measure: str, title: str) -> Figure:
    """`levels` name the columns (pixels), `measure` the vertical axis."""
    if not lines or not levels:
        raise DefocusError("no blur levels to draw")
    with style.look():
        figure, axes = line_chart(title, HEIGHT, len(lines))
        coloured = iter(style.field_colours(len(lines)))
        for number, line in enumerate(lines):
            shift = 0.3 * (number - (len(lines) - 1) / 2.0) / max(len(lines), 4)  # so that intervals stand side by side
            points = [
                (i, mean, line.intervals[i] or (mean, mean)) for i, mean in enumerate(line.means) if mean is not None
            ]
            means = [mean for _, mean, _ in points]
            errors = [[mean - ends[0] for _, mean, ends in points], [ends[1] - mean for _, mean, ends in points]]
            axes.errorbar(
                [i + shift for i, _, _ in points], means, yerr=errors, label=line.name,
                marker=MARKERS[number % len(MARKERS)], color=style.FAINT if line.faint else next(coloured),
                linewidth=1.1, markersize=4.5, elinewidth=0.9, capsize=2.0, linestyle=":" if line.faint else "-",
            )  # fmt: skip
        axes.set_xticks(range(len(levels)), list(levels))
        axes.set_xlim(-0.5, len(levels) - 0.5)
        axes.set_xlabel("largest blur radius, pixels (number of pictures)")
        axes.set_ylabel(measure)
        add_legend(figure)
    return figure
