"""Scenes: depth maps, layers of equal blur, inpainting, and procedural scenes with exact depth."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ..programs import keep_programs

keep_programs()

# Public names and where they live, imported on first use.
_EXPORTS = {
    "DepthMap": "depth_maps",
    "complete_depth": "depth_maps",
    "read_depth": "depth_files",
    "write_depth": "depth_files",
    "DepthEstimate": "depth_models",
    "estimate_depth": "depth_models",
    "focal_length_px": "depth_models",
    "Layers": "layers",
    "cut_layers": "layers",
    "quantise": "layers",
    "Surfaces": "front_and_back",
    "find_surfaces": "front_and_back",
    "SCENES": "procedural",
    "Scene": "procedural",
    "make_scene": "procedural",
    "PinholeView": "thin_lens",
    "ThinLens": "thin_lens",
}

__all__ = [
    "SCENES",
    "DepthEstimate",
    "DepthMap",
    "Layers",
    "PinholeView",
    "Scene",
    "Surfaces",
    "ThinLens",
    "complete_depth",
    "cut_layers",
    "estimate_depth",
    "find_surfaces",
    "focal_length_px",
    "make_scene",
    "quantise",
    "read_depth",
    "write_depth",
]

if TYPE_CHECKING:
    from .depth_files import read_depth, write_depth
    from .depth_maps import DepthMap, complete_depth
    from .depth_models import DepthEstimate, estimate_depth, focal_length_px
    from .front_and_back import Surfaces, find_surfaces
    from .layers import Layers, cut_layers, quantise
    from .procedural import SCENES, Scene, make_scene
    from .thin_lens import PinholeView, ThinLens


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
