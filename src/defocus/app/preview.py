"""A small picture at once: layers and compositing as in a photograph, PSFs from rays that are traced already.

One set of shapes, so that few programs compile: a fixed number of layers, kernels of three sizes, nine nodes.
"""

from __future__ import annotations

import math
from itertools import product

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..camera import Camera
from ..errors import DefocusError
from ..photo import SRGB, encode
from ..render.full_field import render_photograph
from ..render.node_psfs import node_fields
from ..scene.layers import quantise
from .pencils import Pencils

LONGEST = 240  # pixels on the long side
NODES = (3, 3)
LAYERS = 24
KERNELS = (17, 33, 65)


def node_heights(size: tuple[int, int]) -> tuple[float, ...]:
    """Middle, right, top and corner of a picture of `size` = (width, height): heights of the nodes, of the corner's."""
    diagonal = math.hypot(*size)
    return 0.0, size[0] / diagonal, size[1] / diagonal, 1.0


def take_preview(
    pencils: Pencils, camera: Camera, linear: Float[np.ndarray, "rows cols 3"], depth_m: Float[np.ndarray, "rows cols"]
) -> Float[np.ndarray, "rows cols 3"]:
    """The picture through the camera as display values 0..1; `pencils` at the `node_heights` of its size."""
    camera.require_imaged(depth_m)
    coc = np.asarray(camera.circle_of_confusion_px(depth_m), np.float32)
    widest = float(np.abs(coc).max())
    if widest > KERNELS[-1] / 2 - 2:
        stop = float(camera.f_number) * widest / (KERNELS[-1] / 2 - 2)
        raise DefocusError(
            f"{camera.lens.name} focused at {camera.focus_m:.3g} m: a blur of {widest / coc.shape[1]:.0%} of the "
            f"picture's width is more than it holds: stop down to f/{stop:.2g}, or focus elsewhere"
        )
    layers = quantise(jnp.asarray(coc), jnp.asarray(depth_m), layers=LAYERS)
    kernels = _kernels(pencils, camera, np.asarray(layers.depth_m), np.asarray(layers.coc_px), coc.shape[::-1])
    blurred = render_photograph(linear, coc, layers, lambda row, column: kernels[row, column], NODES)
    return np.asarray(encode(blurred, SRGB))


def _kernels(
    pencils: Pencils, camera: Camera, depth_m: np.ndarray, coc_px: np.ndarray, size: tuple[int, int]
) -> dict[tuple[int, int], list[Float[np.ndarray, "3 _ _"]]]:
    """The PSF of each layer at each node; those of the left and of the lower nodes are mirrored where no blades are."""
    sensor_z = pencils.sensor_z_mm(camera)
    fields = node_fields(camera, size, NODES)
    sizes = [next(k for k in KERNELS if k / 2 - 2 >= abs(c) or k == KERNELS[-1]) for c in coc_px]
    own: dict[tuple[int, int], list[np.ndarray]] = {}
    every = list(product(range(3), range(3)))
    for row, column in every if camera.iris is not None else [(0, 1), (0, 2), (1, 1), (1, 2)]:
        x, y = fields[row][column]
        number = (column != 1) + 2 * (row != 1)
        azimuth = math.atan2(y, x)
        by_layer: dict[tuple[float, int], np.ndarray] = {}  # unused layers have the depth of a used one
        for key in zip(depth_m.tolist(), sizes, strict=True):
            if key not in by_layer:
                by_layer[key] = pencils.psf(camera, number, azimuth, key[0], sensor_z, key[1])
        own[row, column] = [by_layer[key] for key in zip(depth_m.tolist(), sizes, strict=True)]
    for row, column in every:
        if (row, column) not in own:
            flips = tuple(axis for axis, flip in ((-1, column == 0), (-2, row == 2)) if flip)
            own[row, column] = [np.flip(psf, flips) for psf in own[min(row, 2 - row), max(column, 2 - column)]]
    return own
