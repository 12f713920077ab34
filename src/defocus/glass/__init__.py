"""Optical media: dispersion formulas, a packed glass catalogue, and model glass from (nd, vd).

Indices are relative to air (`AIR` has n = 1 at every wavelength); wavelengths are in nanometres.
"""

from .catalogue import Glass, catalogue_names
from .lookup import find_glass, parse_glass_code
from .medium import AIR, Medium, constant_index, formula_glass, tabulated_glass
from .model import model_glass

__all__ = [
    "AIR",
    "Glass",
    "Medium",
    "catalogue_names",
    "constant_index",
    "find_glass",
    "formula_glass",
    "model_glass",
    "parse_glass_code",
    "tabulated_glass",
]
