"""Figures: lens layouts, spots, lens cards, surveys, PSFs and wavefronts. The only part that imports matplotlib.

Every function returns a `matplotlib.figure.Figure` that belongs to no window and no global state; `save` writes it.
Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .card import draw_card
    from .charts import BlurLine, draw_blur_levels, draw_training_curves
    from .diversity import draw_diversity
    from .layout import draw_layout
    from .plots import plot_camera, plot_lens, plot_photograph, plot_psf
    from .psf_grid import compute_psf_grid, draw_psf_grid, draw_through_focus
    from .psf_picture import check_scale
    from .psf_plot import draw_psf
    from .pupils import draw_pupils, draw_wavefronts
    from .side_by_side import Panel, check_sweep_path, draw_comparison, draw_depth, draw_samples, write_sweep
    from .spots import draw_spots
    from .style import FIGURE_SUFFIXES, check_figure_path, figure_png, html_image, save
    from .synth_pair import draw_pair

_MODULES = {
    "card": ("draw_card",),
    "charts": ("BlurLine", "draw_blur_levels", "draw_training_curves"),
    "diversity": ("draw_diversity",),
    "layout": ("draw_layout",),
    "plots": ("plot_camera", "plot_lens", "plot_photograph", "plot_psf"),
    "psf_grid": ("compute_psf_grid", "draw_psf_grid", "draw_through_focus"),
    "psf_picture": ("check_scale",),
    "psf_plot": ("draw_psf",),
    "pupils": ("draw_pupils", "draw_wavefronts"),
    "side_by_side": ("Panel", "check_sweep_path", "draw_comparison", "draw_depth", "draw_samples", "write_sweep"),
    "spots": ("draw_spots",),
    "style": ("FIGURE_SUFFIXES", "check_figure_path", "figure_png", "html_image", "save"),
    "synth_pair": ("draw_pair",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "FIGURE_SUFFIXES",
    "BlurLine",
    "Panel",
    "check_figure_path",
    "check_scale",
    "check_sweep_path",
    "compute_psf_grid",
    "draw_blur_levels",
    "draw_card",
    "draw_comparison",
    "draw_depth",
    "draw_diversity",
    "draw_layout",
    "draw_pair",
    "draw_psf",
    "draw_psf_grid",
    "draw_pupils",
    "draw_samples",
    "draw_spots",
    "draw_through_focus",
    "draw_training_curves",
    "draw_wavefronts",
    "figure_png",
    "html_image",
    "plot_camera",
    "plot_lens",
    "plot_photograph",
    "plot_psf",
    "save",
    "write_sweep",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
