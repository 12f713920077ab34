"""Scenes: depth maps, layers of equal blur, inpainting, and procedural scenes with exact depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names
from ..programs import keep_programs

keep_programs()

if TYPE_CHECKING:
    from .depth_files import read_depth, write_depth
    from .depth_maps import DepthMap, complete_depth
    from .depth_models import DepthEstimate, estimate_depth, focal_length_px
    from .front_and_back import Surfaces, find_surfaces
    from .layers import Layers, cut_layers, quantise
    from .procedural import SCENES, Scene, make_scene
    from .thin_lens import PinholeView, ThinLens

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

__getattr__, __dir__ = lazy_names(__name__)
