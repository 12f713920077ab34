"""Charts of lines: title above, legend of one entry a line below, a faint grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import DefocusError
from . import style
from .sheet import Sheet, plain_plot

WIDTH, BELOW = 6.4, 0.62  # inches: of the chart, and below the axes for their numbers and name
ENTRY = 0.22  # inches of an entry of the legend
MARKERS = "osD^vPX*"
LINES = {"solid": "-", "dashed": "--", "dash-dotted": "-.", "dotted": ":"}  # of the trainings of one name

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class BlurLine:
    """Means of one row and the ends of their intervals at each blur level; None where it has none."""

    name: str
    means: Sequence[float | None]
    intervals: Sequence[tuple[float, float] | None]
    faint: bool = False  # for what is no restoration


def _chart(title: str, height: float, entries: int) -> tuple[Sheet, Axes]:
    """A sheet `height` inches high without its legend of so many entries, and the axes to draw into."""
    legend = ENTRY * entries
    sheet = Sheet(WIDTH, height + legend)
    axes = sheet.axes((0.77, BELOW + legend, 5.37, height - BELOW - 0.55))
    sheet.text(0.19, sheet.height - 0.3, title, room=0.94 * WIDTH, fontsize=style.LARGE, fontweight="bold")
    plain_plot(axes, "y")
    return sheet, axes


def _finished(sheet: Sheet, axes: Axes, x_label: str, y_label: str) -> Figure:
    axes.set(xlabel=x_label, ylabel=y_label)
    sheet.figure.legend(loc="lower left", bbox_to_anchor=(0.1, 0.0), ncols=1)
    return sheet.figure


@style.look()
def draw_blur_levels(lines: Sequence[BlurLine], levels: Sequence[str], measure: str, title: str) -> Figure:
    """How good restorations are at each level of blur; `levels` name the columns, `measure` the vertical axis."""
    if not lines or not levels:
        raise DefocusError("no blur levels to draw")
    sheet, axes = _chart(title, 4.0, len(lines))
    colours = iter(style.field_colours(len(lines)))
    for number, line in enumerate(lines):
        shift = 0.3 * (number - (len(lines) - 1) / 2.0) / max(len(lines), 4)  # so that intervals stand side by side
        points = [(i, mean, line.intervals[i] or (mean, mean)) for i, mean in enumerate(line.means) if mean is not None]
        means = [mean for _, mean, _ in points]
        errors = [[mean - ends[0] for _, mean, ends in points], [ends[1] - mean for _, mean, ends in points]]
        axes.errorbar(
            [i + shift for i, _, _ in points], means, yerr=errors, label=line.name,
            marker=MARKERS[number % len(MARKERS)], color=style.FAINT if line.faint else next(colours),
            linewidth=1.1, markersize=4.5, elinewidth=0.9, capsize=2.0, linestyle=":" if line.faint else "-",
        )  # fmt: skip
    axes.set_xticks(range(len(levels)), list(levels))
    axes.set_xlim(-0.5, len(levels) - 0.5)
    return _finished(sheet, axes, "largest blur radius, pixels (number of pictures)", measure)


@style.look()
def draw_training_curves(
    curves: Mapping[str, Sequence[Curve]], measure: str, title: str, *, level: tuple[str, float] | None = None
) -> Figure:
    """How networks learn: `curves` of (step, value) by name.

    Trainings of one name, which differ in their seeds alone, have one colour. `level` is something to compare them
    with, such as the blurred pictures.
    """
    if not any(curve for trainings in curves.values() for curve in trainings):
        raise DefocusError("no curves to draw")
    sheet, axes = _chart(title, 3.6, len(curves) + (level is not None))
    for (name, trainings), colour in zip(curves.items(), style.field_colours(len(curves)), strict=True):
        for number, points in enumerate(trainings):
            label, dashes = (name if number == 0 else None), list(LINES.values())[number % len(LINES)]
            (line,) = axes.plot(*zip(*points, strict=True), label=label, color=colour, linestyle=dashes)
            line.set(linewidth=1.2, marker="o", markersize=3.0)
    if level is not None:
        axes.axhline(level[1], label=level[0], color=style.FAINT, linewidth=1.0, linestyle=":")
    return _finished(sheet, axes, "steps", measure)
