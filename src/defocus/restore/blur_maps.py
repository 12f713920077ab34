"""How blurred a photograph is, place by place: estimated from what a network made of it.

The restored picture is blurred again by Gaussians of several widths, and the width that gives the photograph back best
is taken, over a neighbourhood and between two steps by a parabola. So the map tells by how much the network sharpened,
which is less than the blur where it could not restore it. A disc of radius r has the spread of a Gaussian of σ = r/2:
the map is in pixels of that radius, the unit of `blur_radius` labels. Where the photograph has no detail nothing can be
told: not a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import PhotoError
from ..files.pictures import plane_bytes, quantise
from ..files.png import png_bytes
from ..files.stores import write_file
from .similarity import grey

SIGMAS_PX = (0.0, 0.4, 0.6, 0.9, 1.3, 1.8, 2.5, 3.5, 5.0, 7.0)
NEIGHBOURHOOD_PX = 6.0
LEAST_DETAIL = 2.0 / 255.0  # root mean square of the restored picture's detail, display values
SUFFIXES = (".tif", ".tiff", ".png")
WHITE_PX = 16.0  # radius that is white in a PNG


def estimate_blur(
    image: Float[np.ndarray, "rows cols 3"], restored: Float[np.ndarray, "rows cols 3"]
) -> Float[np.ndarray, "rows cols"]:
    """Radius of blur in pixels of a photograph, given its restoration; both display values 0..1."""
    from scipy.ndimage import gaussian_filter

    blurred, sharp = (np.asarray(grey(one) / 255.0, np.float32) for one in (image, np.clip(restored, 0.0, 1.0)))
    errors = []
    for sigma in SIGMAS_PX:
        again = gaussian_filter(sharp, sigma) if sigma else sharp
        errors.append(gaussian_filter((again - blurred) ** 2, NEIGHBOURHOOD_PX))
    error = np.stack(errors)
    best = np.clip(error.argmin(0), 1, len(SIGMAS_PX) - 2)[None]
    low, middle, high = (np.take_along_axis(error, best + k, 0)[0] for k in (-1, 0, 1))
    bend = low - 2.0 * middle + high
    shift = np.where(bend > 1e-12, 0.5 * (low - high) / np.maximum(bend, 1e-12), 0.0)
    sigma = np.interp(best[0] + np.clip(shift, -1.0, 1.0), np.arange(len(SIGMAS_PX)), SIGMAS_PX)
    detail = gaussian_filter((sharp - gaussian_filter(sharp, 2.0)) ** 2, NEIGHBOURHOOD_PX)
    return np.where(np.sqrt(detail) > LEAST_DETAIL, 2.0 * sigma, np.nan).astype(np.float32)


def check_map_file(file: Path, photos: Sequence[Path], *, overwrite: bool = False) -> None:
    """Raise `PhotoError` where a map cannot be written to a file: of several photographs, of another kind, in the place
    of a file that is there."""
    if len(photos) != 1:
        raise PhotoError(f"a map is of one photograph, and here are {len(photos)}", file=file)
    if file.suffix.lower() not in SUFFIXES:
        raise PhotoError("a map of blur is a .tif (pixels, 32-bit floats) or a .png", file=file)
    if file.exists() and (not overwrite or file.resolve() == photos[0].resolve() or not file.is_file()):
        raise PhotoError("is there already: choose another name, or --overwrite", file=file)


def write_blur_map(file: Path, radius_px: Float[np.ndarray, "rows cols"]) -> None:
    """Write a map: TIFF of 32-bit floats in pixels, or a grey PNG, white at 16 pixels and black where unknown."""
    if file.suffix.lower() == ".png":
        values = np.clip(np.nan_to_num(radius_px) / WHITE_PX, 0.0, 1.0)
        write_file(file, png_bytes(quantise(np.repeat(values[..., None], 3, axis=-1), 8)))
    else:
        write_file(file, plane_bytes(radius_px))
