"""Defocus: how real photographic lenses blur a scene."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public names and where they live. They are imported on first use: `import defocus` loads nothing heavy.
_EXPORTS = {
    "Lens": "lens",
    "load_lens": "lens",
    "list_lenses": "lens",
    "save_lens": "lens",
    "Camera": "camera",
    "Blades": "camera",
    "Psf": "camera",
    "psfs": "camera",
    "PsfBatch": "psf.engine",
    "Photograph": "render",
    "DefocusError": "errors",
}

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

if TYPE_CHECKING:
    from .camera import Blades, Camera, Psf, psfs
    from .errors import DefocusError
    from .lens import Lens, list_lenses, load_lens, save_lens
    from .psf.engine import PsfBatch
    from .render import Photograph


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
