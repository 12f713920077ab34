"""Photographs through a lens: the camera that a user holds."""

from .camera import METHODS, Blades, Camera, Psf
from .photograph import Photograph, Picture, blur_radii_px, take_photograph

__all__ = ["METHODS", "Blades", "Camera", "Photograph", "Picture", "Psf", "blur_radii_px", "take_photograph"]
