"""Defocus: how real photographic lenses blur a scene."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .camera import Camera, psfs
    from .errors import DefocusError
    from .lens import Lens, list_lenses, load_lens, save_lens
    from .optics.rim import Blades
    from .psf.engine import Psf, PsfBatch
    from .render import Photograph

__all__ = [
    "Blades",
    "Camera",
    "DefocusError",
    "Lens",
    "Photograph",
    "Psf",
    "PsfBatch",
    "__version__",
    "list_lenses",
    "load_lens",
    "psfs",
    "save_lens",
]

__getattr__, __dir__ = lazy_names(__name__)
