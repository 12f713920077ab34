"""The sRGB transfer curve (IEC 61966-2-1): linear light 0..1 to display values 0..1, and back.

One writing for NumPy and JAX: `xp` is the module whose arrays are given. Each part is evaluated on its own side of the
knee alone, so that neither a negative number nor the steep slope at 0 gets into a power or its gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

KNEE_LINEAR = 0.0031308
KNEE_DISPLAY = 0.04045


def to_srgb(linear: Float[Any, "*shape"], xp: Any = np) -> Float[Any, "*shape"]:
    """Display values of linear light, in its own precision; nothing is clipped."""
    bright = xp.maximum(linear, KNEE_LINEAR)
    return xp.where(linear <= KNEE_LINEAR, 12.92 * linear, 1.055 * bright ** (1.0 / 2.4) - 0.055)


def from_srgb(display: Float[Any, "*shape"], xp: Any = np) -> Float[Any, "*shape"]:
    """Linear light of display values: the inverse of `to_srgb`."""
    bright = xp.maximum(display, KNEE_DISPLAY)
    return xp.where(display <= KNEE_DISPLAY, display / 12.92, ((bright + 0.055) / 1.055) ** 2.4)
