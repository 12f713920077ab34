"""Analysis of a camera: MTF, distortion, field curvature, ray fans, colour, illumination, spots, encircled energy.

`Analysis(camera)` traces once; each of its methods returns curves with their axes, which `plot()` draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .camera_analysis import PHOTOPIC, Analysis
    from .curves import (
        Curves,
        Distortion,
        FieldCurvature,
        FocalShift,
        Illumination,
        LateralColour,
        LightInCircles,
        LongitudinalAberration,
        Mtf,
        RayFans,
        SpotSizes,
        ThroughFocusMtf,
    )

__all__ = [
    "PHOTOPIC",
    "Analysis",
    "Curves",
    "Distortion",
    "FieldCurvature",
    "FocalShift",
    "Illumination",
    "LateralColour",
    "LightInCircles",
    "LongitudinalAberration",
    "Mtf",
    "RayFans",
    "SpotSizes",
    "ThroughFocusMtf",
]

__getattr__, __dir__ = lazy_names(__name__)
