"""How networks learn: a curve for each, over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ..errors import DefocusError
from . import style
from .line_chart import add_legend, line_chart

HEIGHT = 3.6  # inches, without the legend


def draw_training_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    measure: str,
    title: str,
    *,
    level: tuple[str, float] | None = None,
) -> Figure:
    """`curves`: (step, value) by name; `level`: something to compare them with, such as the blurred pictures."""
    if not any(curves.values()):
        raise DefocusError("no curves to draw")
    with style.look():
        figure, axes = line_chart(title, HEIGHT, len(curves) + (level is not None))
        for (name, points), colour in zip(curves.items(), style.field_colours(len(curves)), strict=True):
            axes.plot(*zip(*points, strict=True), label=name, color=colour, linewidth=1.2, marker="o", markersize=3.0)
        if level is not None:
            axes.axhline(level[1], label=level[0], color=style.FAINT, linewidth=1.0, linestyle=":")
        axes.set_xlabel("steps")
        axes.set_ylabel(measure)
        add_legend(figure)
    return figure
