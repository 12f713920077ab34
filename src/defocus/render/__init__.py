"""Photographs through a lens: the camera that a user holds."""

from .camera import METHODS, Blades, Camera, Psf

__all__ = ["METHODS", "Blades", "Camera", "Psf"]
