"""Geometrical optics: first-order data, exact ray tracing, pupils, focus, aberrations.

Everything here is a pure function of a `System`, the lens as padded arrays, so that one compiled program serves every
lens of a bucket and `vmap` runs over lenses, fields and wavelengths. Lengths are in mm, angles in radians, float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from .._lazy import lazy_names
from ..programs import keep_programs

# Optical paths of 0.1 m must be known to a thousandth of a wavelength: 1e-8 relative, more than float32 holds.
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
keep_programs()

if TYPE_CHECKING:
    from .apertures import solve_clear_apertures
    from .focus import best_focus, rms_spot
    from .paraxial import FirstOrder, ParaxialCamera, first_order
    from .pupil import ChiefRay, chief_ray, find_bundle, image_radius_of, launch
    from .rim import Blades, Iris, find_rim
    from .system import PackedLens, System, pack, pack_one
    from .trace import Rays, Trace
    from .wavefront import Wavefront, find_wavefront

__all__ = [
    "Blades",
    "ChiefRay",
    "FirstOrder",
    "Iris",
    "PackedLens",
    "ParaxialCamera",
    "Rays",
    "System",
    "Trace",
    "Wavefront",
    "best_focus",
    "chief_ray",
    "find_bundle",
    "find_rim",
    "find_wavefront",
    "first_order",
    "image_radius_of",
    "launch",
    "pack",
    "pack_one",
    "rms_spot",
    "solve_clear_apertures",
]

__getattr__, __dir__ = lazy_names(__name__)
