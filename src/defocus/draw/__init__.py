"""Figures: lens layouts, spot diagrams, lens cards, the survey's diversity. The only part that imports matplotlib.

Every function returns a `matplotlib.figure.Figure` that belongs to no window and no global state; `save` writes it.
"""

from .card import draw_card
from .diversity import draw_diversity
from .geometry import element_outlines
from .layout import draw_layout
from .rays import ray_paths
from .spots import draw_spots, spot_diagram
from .style import FIGURE_SUFFIXES, check_figure_path, save

__all__ = [
    "FIGURE_SUFFIXES",
    "check_figure_path",
    "draw_card",
    "draw_diversity",
    "draw_layout",
    "draw_spots",
    "element_outlines",
    "ray_paths",
    "save",
    "spot_diagram",
]
