"""The sRGB transfer curve (IEC 61966-2-1): linear light 0..1 to display values 0..1, and back.

One writing for NumPy and JAX: `xp` is the module whose arrays are given. Each part is evaluated on its own side of the
knee alone, so that neither a negative number nor the steep slope at 0 gets into a power or its gradient.

Values are floats everywhere, 1 is white. Whole numbers, as 8 and 16-bit pictures have them, are refused: taken for
light, all of a picture but its blackest pixels would be white.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from .errors import PhotoError

KNEE_LINEAR = 0.0031308
KNEE_DISPLAY = 0.04045


def check_floats(values: Shaped[Any, "*shape"], what: str) -> None:
    """Raise `PhotoError`, with advice, where an array holds whole numbers instead of floats with white at 1."""
    dtype = getattr(values, "dtype", None)
    if dtype is not None and dtype.kind in "iub":
        white = {1: "255", 2: "65535"}.get(dtype.itemsize, "white")
        raise PhotoError(
            f"{what} in whole numbers ({dtype}); expected floats from 0 (black) to 1 (white). Display values are "
            f"picture / {white}, linear light is defocus.photo.from_srgb(picture / {white}); "
            "defocus.photo.read_photo(file).linear() reads linear light"
        )


def to_srgb(linear: Shaped[Any, "*shape"], xp: Any = np) -> Float[Any, "*shape"]:
    """Display values of linear light (floats), in its own precision; nothing is clipped."""
    check_floats(linear, "linear light")
    bright = xp.maximum(linear, KNEE_LINEAR)
    return xp.where(linear <= KNEE_LINEAR, 12.92 * linear, 1.055 * bright ** (1.0 / 2.4) - 0.055)


def from_srgb(display: Shaped[Any, "*shape"], xp: Any = np) -> Float[Any, "*shape"]:
    """Linear light of display values (floats): the inverse of `to_srgb`."""
    check_floats(display, "display values")
    bright = xp.maximum(display, KNEE_DISPLAY)
    return xp.where(display <= KNEE_DISPLAY, display / 12.92, ((bright + 0.055) / 1.055) ** 2.4)
