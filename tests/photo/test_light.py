"""What counts as light: floats with white at 1. Whole numbers are refused with advice, never white by accident."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus import photo
from defocus.errors import DefocusError, PhotoError

KEY = jax.random.key(0)
COLOUR = photo.SensorColour.make()
NOISE = photo.Noise.make(1e-5, 1e-5)
OF_PICTURES: dict[str, Callable[[Any], Any]] = {
    "as_linear_light": photo.as_linear_light,
    "decode": photo.decode,
    "encode": photo.encode,
    "from_srgb": photo.from_srgb,
    "inverse_isp": lambda picture: photo.inverse_isp(picture, COLOUR),
    "reduced": lambda picture: photo.reduced(picture, (2, 2)),
    "saturation_mask": photo.saturation_mask,
    "synthesise_saturation": lambda picture: photo.synthesise_saturation(picture, 1.0),
    "to_srgb": photo.to_srgb,
    "without_mosaic": lambda picture: photo.without_mosaic(picture, COLOUR),
}
OF_MOSAICS: dict[str, Callable[[Any], Any]] = {
    "add_noise": lambda mosaic: photo.add_noise(KEY, mosaic, NOISE),
    "demosaic": lambda mosaic: photo.demosaic(mosaic, 0),
    "estimate_noise": photo.estimate_noise,
    "forward_isp": lambda mosaic: photo.forward_isp(mosaic, COLOUR),
    "partial_isp": lambda mosaic: photo.partial_isp(mosaic, COLOUR),
}


@pytest.mark.parametrize("name", [*OF_PICTURES, *OF_MOSAICS])
@pytest.mark.parametrize(("dtype", "white"), [("uint8", "255"), ("uint16", "65535")])
def test_whole_numbers_are_refused_with_advice(name: str, dtype: str, white: str) -> None:
    arrays = np if name in ("reduced", "estimate_noise") else jnp  # those that are not compiled take numpy's
    shape = (8, 8, 3) if name in OF_PICTURES else (8, 8)
    with pytest.raises(PhotoError, match=rf"{dtype}.*from_srgb\(picture / {white}\)"):
        (OF_PICTURES | OF_MOSAICS)[name](arrays.full(shape, 200, dtype))


def test_whole_numbers_are_not_written(tmp_path: Path) -> None:
    for write, name in ((photo.write_picture, "a.png"), (photo.write_linear, "a.npy")):
        with pytest.raises(PhotoError, match=f"{name}: .*uint8"):
            write(tmp_path / name, np.full((8, 8, 3), 200, np.uint8))
    assert not list(tmp_path.iterdir())


def test_settings_that_are_no_numbers() -> None:
    light = np.zeros((2, 2, 3), np.float32)
    for wrong in (
        lambda: photo.synthesise_saturation(light, math.nan),
        lambda: photo.synthesise_saturation(light, -1.0),
        lambda: photo.synthesise_saturation(light, 1e300),
        lambda: photo.draw_noise(KEY, math.nan),
        lambda: photo.Noise.make(math.nan, 0.0),
        lambda: photo.Response.contrast(math.nan),
    ):
        with pytest.raises(DefocusError):
            wrong()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_light_is_float32(dtype: type) -> None:
    light = photo.as_linear_light(np.full((2, 3, 3), 1.5, dtype))
    assert light.dtype == np.float32
    assert (light == 1.5).all()


def test_other_arrays_are_refused() -> None:
    with pytest.raises(PhotoError, match=r"a page of shape \(4, 4\)"):
        photo.as_linear_light(np.zeros((4, 4)), "a page")
    with pytest.raises(PhotoError, match="complex"):
        photo.as_linear_light(np.zeros((4, 4, 3), complex))
    with pytest.raises(PhotoError, match="its mean is -1; expected light"):
        photo.as_linear_light(np.full((4, 4, 3), -1.0))
    holed = np.zeros((4, 4, 3))
    holed[2, 1, 0] = np.nan
    with pytest.raises(PhotoError, match="row 2, column 1"):
        photo.as_linear_light(holed)
