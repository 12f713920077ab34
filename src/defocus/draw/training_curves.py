"""How networks learn: a curve for each, over the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from ..errors import DefocusError
from . import style

SIZE = (6.4, 3.6)  # inches, without the legend


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
    height = SIZE[1] + 0.22 * (len(curves) + (level is not None))
    with style.look():
        figure = Figure(figsize=(SIZE[0], height))
        below = height - SIZE[1] + 0.62
        axes = figure.add_axes((0.12, below / height, 0.84, 1.0 - (below + 0.55) / height))
        figure.text(0.03, 1.0 - 0.3 / height, title, fontweight="bold",
                    fontsize=style.fitted_size(title, style.LARGE, 0.94 * SIZE[0], bold=True))  # fmt: skip
        for (name, points), colour in zip(curves.items(), style.field_colours(len(curves)), strict=True):
            axes.plot(*zip(*points, strict=True), label=name, color=colour, linewidth=1.2, marker="o", markersize=3.0)
        if level is not None:
            axes.axhline(level[1], label=level[0], color=style.FAINT, linewidth=1.0, linestyle=":")
        axes.set_xlabel("steps")
        axes.set_ylabel(measure)
        axes.grid(axis="y", color=style.GRID, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.legend(loc="lower left", bbox_to_anchor=(0.1, 0.0), ncols=1)
    return figure
