"""Point spread functions: requests, poses, wavefronts, propagation, bands; and other methods beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .bands import Bands, parse_bands, picture_bands
    from .energy import encircled_energy
    from .engine import FittedPsf, Psf, PsfBatch, PsfOptions, TracedRequests
    from .fraunhofer import FRAUNHOFER
    from .huygens import huygens_psf
    from .method import WAVE, PsfMethod
    from .paper import PAPER
    from .poses import Points, Requests
    from .pure import point_psf
    from .simple import disk, gaussian
    from .wavefronts import Wavefronts, wavefronts_of
    from .window import window_for

__all__ = [
    "FRAUNHOFER",
    "PAPER",
    "WAVE",
    "Bands",
    "FittedPsf",
    "Points",
    "Psf",
    "PsfBatch",
    "PsfMethod",
    "PsfOptions",
    "Requests",
    "TracedRequests",
    "Wavefronts",
    "disk",
    "encircled_energy",
    "gaussian",
    "huygens_psf",
    "parse_bands",
    "picture_bands",
    "point_psf",
    "wavefronts_of",
    "window_for",
]

__getattr__, __dir__ = lazy_names(__name__)
