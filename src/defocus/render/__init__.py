"""Photographs through a lens: layers blurred by their PSFs and put together in linear light."""

from .photograph import Photograph, PhotographOptions, Picture, take_photograph

__all__ = ["Photograph", "PhotographOptions", "Picture", "take_photograph"]
