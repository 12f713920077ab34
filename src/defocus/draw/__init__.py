"""Figures: lens layouts, spots, lens cards, surveys, PSFs and wavefronts. The only part that imports matplotlib.

Every function returns a `matplotlib.figure.Figure` that belongs to no window and no global state; `save` writes it.
Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .analysis_card import draw_analysis, plot_curves
    from .card import draw_card
    from .charts import BlurLine, draw_blur_levels, draw_training_curves
    from .diversity import draw_diversity
    from .layout import draw_layout, plot_camera
    from .psf_comparison import compare_with_zemax, draw_zemax_comparison
    from .psf_gallery import compute_psf_gallery, draw_psf_gallery
    from .psf_grid import compute_psf_grid, draw_psf_grid, draw_through_focus
    from .psf_plot import check_scale, draw_psf
    from .pupils import draw_pupils, draw_wavefronts
    from .side_by_side import (
        Panel,
        draw_comparison,
        draw_depth,
        draw_depth_errors,
        draw_samples,
        draw_segments,
        plot_photograph,
    )
    from .spots import draw_spots
    from .style import check_figure_path, figure_bytes, html_image, save
    from .sweep import check_sweep_path, write_sweep
    from .synth_pair import draw_pair

__all__ = [
    "BlurLine",
    "Panel",
    "check_figure_path",
    "check_scale",
    "check_sweep_path",
    "compare_with_zemax",
    "compute_psf_gallery",
    "compute_psf_grid",
    "draw_analysis",
    "draw_blur_levels",
    "draw_card",
    "draw_comparison",
    "draw_depth",
    "draw_depth_errors",
    "draw_diversity",
    "draw_layout",
    "draw_pair",
    "draw_psf",
    "draw_psf_gallery",
    "draw_psf_grid",
    "draw_pupils",
    "draw_samples",
    "draw_segments",
    "draw_spots",
    "draw_through_focus",
    "draw_training_curves",
    "draw_wavefronts",
    "draw_zemax_comparison",
    "figure_bytes",
    "html_image",
    "plot_camera",
    "plot_curves",
    "plot_photograph",
    "save",
    "write_sweep",
]

__getattr__, __dir__ = lazy_names(__name__)
