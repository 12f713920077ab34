"""The camera's image pipeline: mosaic → linear sRGB → picture, and back to the mosaic.

Forwards (the paper's section S4): values normalised to 0..1 by the black and white levels, divided by the as-shot
neutral, demosaiced, taken to linear sRGB by one matrix; then exposure, clipping and the camera's response. Everything
is a pure function of one photograph; `jax.vmap` runs it over a batch, each photograph with its own colours.

The white balance multiplies the least amplified colour by 1. A saturated pixel then stands at 1 or above in all three
colours and is cut to 1, so that burnt-out highlights are white, not pink; the matrix leaves white alone, its rows sum
to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..errors import PhotoError
from ..srgb import check_floats
from .bayer import PATTERNS, AnyArray, phase_of, sample_mosaic, spread
from .demosaic import Method, demosaic
from .response import SRGB, Response, encode

SAME = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class SensorColour(eqx.Module):
    """What a sensor's pixels see: the phase of its Bayer pattern, its white balance and its matrix to linear sRGB."""

    phase: Int[AnyArray, "*batch"]
    white_balance: Float[AnyArray, "*batch 3"]  # gains, the smallest is 1
    camera_to_srgb: Float[AnyArray, "*batch 3 3"]  # of white-balanced camera RGB; rows sum to 1
    srgb_to_camera: Float[AnyArray, "*batch 3 3"]  # its inverse, from float64

    @classmethod
    def make(
        cls,
        pattern: str = "RGGB",
        white_balance: Sequence[float] | np.ndarray = (1.0, 1.0, 1.0),
        camera_to_srgb: Sequence[Sequence[float]] | np.ndarray = SAME,
    ) -> SensorColour:
        """Checked and normalised; the white balance may have any scale."""
        gains = np.asarray(white_balance, np.float64)
        if gains.shape != (3,) or not np.all(np.isfinite(gains)) or not np.all(gains > 0.0):
            raise PhotoError(f"white balance {gains.tolist()}; expected three positive gains for red, green and blue")
        matrix = np.asarray(camera_to_srgb, np.float64)
        if matrix.shape != (3, 3) or not np.all(np.isfinite(matrix)):
            raise PhotoError(f"colour matrix {matrix.tolist()}; expected 3×3 numbers")
        sums = matrix.sum(axis=1, keepdims=True)
        if np.any(sums <= 0.0) or np.linalg.cond(matrix / sums) > 1e3:
            raise PhotoError(f"colour matrix {matrix.tolist()} cannot be inverted: it must map white to white")
        matrix = matrix / sums
        # numpy arrays, so that reading a photograph starts no device
        return cls(
            np.asarray(phase_of(pattern), np.int32),
            (gains / gains.min()).astype(np.float32),
            matrix.astype(np.float32),
            np.linalg.inv(matrix).astype(np.float32),
        )

    @property
    def pattern(self) -> str:
        """The name of the Bayer pattern of one sensor, such as RGGB."""
        return PATTERNS[int(self.phase)]


def stack_colours(colours: Sequence[SensorColour]) -> SensorColour:
    """Several sensors as one batch, for `jax.vmap`."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *colours)


@partial(jax.jit, static_argnames="method")
def partial_isp(
    mosaic: Shaped[Array, "h w"], colour: SensorColour, method: Method = "directional"
) -> Float[Array, "h w 3"]:
    """Linear sRGB from a normalised mosaic. Not clipped below: noise about black keeps its mean."""
    check_floats(mosaic, "a mosaic")
    gains = spread(colour.white_balance, mosaic.shape, colour.phase)
    balanced = jnp.minimum(mosaic * gains, 1.0)
    return _transform(demosaic(balanced, colour.phase, method), colour.camera_to_srgb)


@partial(jax.jit, static_argnames="saturate")
def inverse_isp(linear: Shaped[Array, "h w 3"], colour: SensorColour, saturate: bool = True) -> Float[Array, "h w"]:
    """The mosaic that a sensor records of linear sRGB light; with `saturate` cut to 0..1 as the sensor does."""
    check_floats(linear, "linear light")
    camera = _transform(linear, colour.srgb_to_camera) / colour.white_balance
    mosaic = sample_mosaic(camera, colour.phase)
    return jnp.clip(mosaic, 0.0, 1.0) if saturate else mosaic


@jax.jit
def without_mosaic(linear: Shaped[Array, "h w 3"], colour: SensorColour) -> Float[Array, "h w 3"]:
    """Light as a sensor with all three colours in every pixel would record it: cut at its white, back in linear sRGB.

    What demosaicing leaves behind belongs into the input of a network that restores pictures, not into its target.
    """
    check_floats(linear, "linear light")
    camera = _transform(linear, colour.srgb_to_camera) / colour.white_balance
    balanced = jnp.minimum(jnp.clip(camera, 0.0, 1.0) * colour.white_balance, 1.0)
    return _transform(balanced, colour.camera_to_srgb)


@partial(jax.jit, static_argnames="method")
def forward_isp(
    mosaic: Shaped[Array, "h w"],
    colour: SensorColour,
    response: Response = SRGB,
    exposure: Float[Array, ""] | float = 1.0,
    method: Method = "directional",
) -> Float[Array, "h w 3"]:
    """The picture, 0..1 in display values; `exposure` multiplies the linear light."""
    return encode(partial_isp(mosaic, colour, method) * exposure, response)


def _transform(rgb: Float[Array, "h w 3"], matrix: Float[AnyArray, "3 3"]) -> Float[Array, "h w 3"]:
    # Written out, because accelerators multiply matrices with fewer bits unless told otherwise.
    return rgb[..., :1] * matrix[:, 0] + rgb[..., 1:2] * matrix[:, 1] + rgb[..., 2:] * matrix[:, 2]
