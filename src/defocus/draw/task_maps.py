"""What networks see in pictures, side by side: errors of depth and segments (the paper's figures S10 and S15)."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping

import matplotlib
import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from .side_by_side import Panel, Photo, draw_comparison

ERRORS, DISPARITIES = "magma", "viridis"
TOP_PER_CENT = 99.0  # of the largest row's errors, where the colours end
PAINT = 0.6  # of a segment's colour over the picture
GOLDEN = 0.618034  # of a turn between the hues of two segments: neighbours differ


def draw_depth_errors(
    title: str,
    pictures: Mapping[str, Photo],
    errors: Mapping[str, Float[np.ndarray, "rows cols"]],
    truth: Float[np.ndarray, "rows cols"],
    measures: Mapping[str, str],
) -> Figure:
    """Pictures by name, and below each the error of its depth (0: black), one scale for all.

    The picture without errors is the sharp one: below it is the disparity that counts as true, near in yellow.
    """
    top = max((float(np.percentile(error, TOP_PER_CENT)) for error in errors.values()), default=0.0)
    panels = [Panel(name, measures.get(name, ""), picture) for name, picture in pictures.items()]
    for name in pictures:
        if name in errors:
            panels.append(Panel("error of depth", f"0 … {top:.3g}", _shades(errors[name], 0.0, top, ERRORS)))
        else:
            low, high = float(truth.min()), float(truth.max())
            panels.append(
                Panel("its depth", f"disparity {low:.3g} … {high:.3g}", _shades(truth, low, high, DISPARITIES))
            )
    return draw_comparison(panels, (), title, columns=len(pictures))


def draw_segments(
    title: str,
    pictures: Mapping[str, Photo],
    labels: Mapping[str, Int[np.ndarray, "rows cols"]],
    measures: Mapping[str, str],
) -> Figure:
    """Pictures by name, and below each its segments in colours; a label below 0 is no segment."""
    panels = [Panel(name, measures.get(name, ""), picture) for name, picture in pictures.items()]
    panels += [Panel("segments", "", _painted(picture, labels[name])) for name, picture in pictures.items()]
    return draw_comparison(panels, (), title, columns=len(pictures))


def _shades(values: Float[np.ndarray, "rows cols"], low: float, high: float, colours: str) -> Photo:
    level = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    return matplotlib.colormaps[colours](level)[..., :3]


def _painted(picture: Photo, labels: Int[np.ndarray, "rows cols"]) -> Photo:
    count = int(labels.max(initial=-1)) + 1
    palette = np.array([colorsys.hsv_to_rgb(GOLDEN * n % 1.0, 0.75, 1.0) for n in range(count)] or [(0.0, 0.0, 0.0)])
    grey = np.repeat(np.asarray(picture, float).mean(-1, keepdims=True), 3, axis=-1)
    share = PAINT * (labels >= 0)[..., None]
    return grey * (1.0 - share) + palette[np.maximum(labels, 0)] * share
