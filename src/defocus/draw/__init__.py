"""Figures: lens layouts, spot diagrams, lens cards, the survey's diversity. The only part that imports matplotlib.

Every function returns a `matplotlib.figure.Figure` that belongs to no window and no global state; `save` writes it.
"""

from .layout import draw_layout
from .style import FIGURE_SUFFIXES, save

__all__ = ["FIGURE_SUFFIXES", "draw_layout", "save"]
