"""The camera's image pipeline: mosaic → linear sRGB → picture, and back to the mosaic.

Forwards (the paper's section S4): values normalised to 0..1 by the black and white levels, divided by the as-shot
neutral, demosaiced, taken to linear sRGB by one matrix; then exposure, clipping and the camera's response. Everything
is a pure function of one photograph; `jax.vmap` runs it over a batch, each photograph with its own colours.

The white balance multiplies the least amplified colour by 1. A saturated pixel then stands at 1 or above in all three
colours and is cut to 1, so that burnt-out highlights are white, not pink; the matrix leaves white alone, its rows sum
to 1.

`expose` is the one exposure of photographs and pairs: the blurred picture goes through mosaic, noise and development.
The sharp one (`expose_sharp`), the truth that a network learns, is what the same sensor would show with all three
colours in every pixel and without noise: what demosaicing leaves behind belongs into the input of a restoration, not
into its target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..errors import PhotoError
from ..srgb import check_floats
from .demosaic import PATTERNS, AnyArray, Method, demosaic, phase_of, sample_mosaic, spread
from .noise import Noise, add_noise
from .response import SRGB, Response, encode

SMALLEST = 4  # pixels of a picture whose mosaic can be developed
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
        try:
            gains, matrix = np.asarray(white_balance, np.float64), np.asarray(camera_to_srgb, np.float64)
        except (TypeError, ValueError):
            raise PhotoError(f"white balance {white_balance!r}, matrix {camera_to_srgb!r}; expected numbers") from None
        if gains.shape != (3,) or not np.all(np.isfinite(gains)) or not np.all(gains > 0.0):
            raise PhotoError(f"white balance {gains.tolist()}; expected three positive gains for red, green and blue")
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
    """Light as a sensor with all colours in every pixel would record it: cut at its white, back in linear sRGB."""
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


def expose(
    linear: Float[Array, "rows cols 3"],
    colour: SensorColour,
    response: Response = SRGB,
    noise: Noise | None = None,
    key: Array | None = None,
) -> tuple[Float[Array, "rows cols"], Float[Array, "rows cols 3"]]:
    """The sensor's mosaic (0..1) of linear sRGB light, with noise drawn by `key`, and the picture developed from it."""
    rows, cols = linear.shape[:2]
    mosaic = inverse_isp(linear, colour)
    if noise is not None and key is not None:
        mosaic = jnp.minimum(add_noise(key, mosaic, noise), 1.0)
    # A mosaic of a few pixels has no neighbours to find colours from: it is continued by reflection and cut again.
    # The border is even, so the pattern keeps its phase.
    border = [(0, 2 * max(0, math.ceil((SMALLEST - n) / 2))) for n in (rows, cols)]
    wide = jnp.pad(mosaic, border, mode="symmetric") if any(after for _, after in border) else mosaic
    return mosaic, forward_isp(wide, colour, response)[:rows, :cols]


def expose_sharp(
    linear: Float[Array, "rows cols 3"], colour: SensorColour, response: Response = SRGB
) -> Float[Array, "rows cols 3"]:
    """The picture (display values) that the sensor would show without mosaic and noise."""
    return encode(without_mosaic(linear, colour), response)


def noise_key(seed: Array | int, picture: Array | int) -> Array:
    """The random key of the noise of one of the pictures of a pair."""
    return jax.random.fold_in(jax.random.key(seed), picture)
