"""Lens prescriptions: the data model, file formats and the built-in library."""

from .prescription import Aperture, Field, Lens, State, Surface

__all__ = ["Aperture", "Field", "Lens", "State", "Surface"]
