"""A photograph beside its depth, coloured evenly in inverse depth as blur is."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from . import style

WIDTH_IN = 9.6
PER_CENT = (1.0, 99.0)  # of the inverse depths that span the colours


def draw_depth(
    srgb: Float[np.ndarray, "height width 3"], depth_m: Float[np.ndarray, "height width"], name: str, below: str = ""
) -> Figure:
    """The photograph on the left, near (yellow) to far (violet) on the right."""
    with style.look():
        height, width = depth_m.shape
        tile = (WIDTH_IN - 1.6) / 2
        size = WIDTH_IN, tile * height / width + 1.1
        figure = Figure(figsize=size)
        style.title(figure, name, below, size)
        left, bottom, high = 0.3 / size[0], 0.3 / size[1], tile * height / width / size[1]
        picture = figure.add_axes((left, bottom, tile / size[0], high))
        picture.imshow(np.clip(srgb, 0.0, 1.0))
        inverse = 1.0 / depth_m
        low, top = np.percentile(inverse, PER_CENT)
        depth = figure.add_axes((left + (tile + 0.15) / size[0], bottom, tile / size[0], high))
        shown = depth.imshow(inverse, cmap="viridis", vmin=float(low), vmax=float(max(top, low + 1e-9)))
        for axes in (picture, depth):
            axes.set_axis_off()
        bar = figure.add_axes((left + (2 * tile + 0.27) / size[0], bottom, 0.14 / size[0], high))
        metres = FuncFormatter(lambda v, _: f"{1.0 / v:.3g} m" if v > 1e-6 else "∞")
        figure.colorbar(shown, cax=bar, format=metres)
    return figure
