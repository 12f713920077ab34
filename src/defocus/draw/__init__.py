"""Figures: lens layouts, spots, lens cards, surveys, PSFs and wavefronts. The only part that imports matplotlib.

Every function returns a `matplotlib.figure.Figure` that belongs to no window and no global state; `save` writes it.
"""

from .card import draw_card
from .diversity import draw_diversity
from .geometry import element_outlines
from .layout import draw_layout
from .psf_grid import draw_psf_grid
from .psf_plot import draw_psf
from .psf_strip import draw_through_focus
from .psf_wavefront import draw_pupils, draw_wavefronts
from .rays import ray_paths
from .spots import draw_spots, spot_diagram
from .style import FIGURE_SUFFIXES, check_figure_path, save

__all__ = [
    "FIGURE_SUFFIXES",
    "check_figure_path",
    "draw_card",
    "draw_diversity",
    "draw_layout",
    "draw_psf",
    "draw_psf_grid",
    "draw_pupils",
    "draw_spots",
    "draw_through_focus",
    "draw_wavefronts",
    "element_outlines",
    "ray_paths",
    "save",
    "spot_diagram",
]
