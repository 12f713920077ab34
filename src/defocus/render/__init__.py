"""Photographs through a lens: the camera that a user holds."""

from .camera import Camera, Psf

__all__ = ["Camera", "Psf"]
