"""Lens prescriptions: the data model, file formats and the built-in library."""

from .library import LibraryEntry, list_lenses, load_lens, save_lens
from .prescription import Aperture, Field, Lens, State, Surface

__all__ = [
    "Aperture",
    "Field",
    "Lens",
    "LibraryEntry",
    "State",
    "Surface",
    "list_lenses",
    "load_lens",
    "save_lens",
]
