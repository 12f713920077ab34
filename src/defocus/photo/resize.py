"""Photographs made smaller, as larger pixels would see them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped

from ..srgb import check_floats


def reduced(linear: Shaped[np.ndarray, "h w 3"], size: tuple[int, int]) -> Float[np.ndarray, "height width 3"]:
    """A smaller picture of `size` = (width, height): means of linear light."""
    check_floats(linear, "linear light")
    from PIL import Image

    bands = [Image.fromarray(np.ascontiguousarray(linear[..., c], dtype=np.float32)) for c in range(3)]
    return np.stack([np.asarray(band.resize(size, Image.Resampling.BOX)) for band in bands], axis=-1)
