"""How networks learn: a curve for each, over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ..errors import DefocusError
from . import style
from .line_chart import add_legend, line_chart

HEIGHT = 3.6  # inches, without the legend
LINES = {"solid": "-", "dashed": "--", "dash-dotted": "-.", "dotted": ":"}  # of the trainings of one name

Curve = Sequence[tuple[float, float]]


def draw_training_curves(
    curves: Mapping[str, Sequence[Curve]],
    measure: str,
    title: str,
    *,
    level: tuple[str, float] | None = None,
) -> Figure:
    """`curves`: (step, value) by name, in one colour where trainings of one name differ in their seeds alone; `level`:
    something to compare them with, such as the blurred pictures."""
    if not any(curve for trainings in curves.values() for curve in trainings):
        raise DefocusError("no curves to draw")
    with style.look():
        figure, axes = line_chart(title, HEIGHT, len(curves) + (level is not None))
        for (name, trainings), colour in zip(curves.items(), style.field_colours(len(curves)), strict=True):
            for number, points in enumerate(trainings):
                label, dashes = (name if number == 0 else None), list(LINES.values())[number % len(LINES)]
                (line,) = axes.plot(*zip(*points, strict=True), label=label, color=colour, linestyle=dashes)
                line.set(linewidth=1.2, marker="o", markersize=3.0)
        if level is not None:
            axes.axhline(level[1], label=level[0], color=style.FAINT, linewidth=1.0, linestyle=":")
        axes.set_xlabel("steps")
        axes.set_ylabel(measure)
        add_legend(figure)
    return figure
