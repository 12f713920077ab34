"""A photograph that was read: a mosaic with the colours of its sensor, or an image whose pixels have all three.

White balance and colour matrix of a RAW file, and what to do where it has none. Rules, in this order; whatever is not
the first is reported in the photograph's notes.

White balance: the camera's own, if its three gains are finite and positive. Else the daylight gains that follow from
the camera's matrix, a property of the sensor and not of the picture. Else, without a matrix, grey: each colour's mean
over the unsaturated mosaic becomes the same.

Matrix: the file's own (DNG), if it maps white to white and can be inverted. Else from LibRaw's table of cameras: XYZ →
camera of the model, chained with sRGB → XYZ, rows scaled so that white stays white, inverted. Else the identity: the
sensor's own colours are taken for sRGB, and the picture looks pale.

A file with neither is refused by the caller: LibRaw knows some cameras by nothing but the file's size.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import PhotoError
from ..files.exif import Exif
from .demosaic import Method
from .isp import SensorColour, partial_isp

# sRGB → XYZ, white point D65 (IEC 61966-2-1)
XYZ_OF_SRGB = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])


@dataclass(frozen=True)
class RawPhoto:
    """A RAW photograph, upright: the mosaic and its pattern were turned together."""

    file: Path
    # Normalised: black 0, white 1 and not above; a little below 0 where the noise about black reaches there.
    mosaic: Float[np.ndarray, "h w"]
    colour: SensorColour
    exif: Exif = field(default_factory=Exif)
    notes: tuple[str, ...] = ()  # what was repaired, and by which rule
    black: tuple[float, ...] = ()  # in the file's numbers: red, green, blue, second green
    white: tuple[float, ...] = ()
    daylight: tuple[float, float, float] | None = None  # gains under daylight, where the matrix tells them

    @property
    def pattern(self) -> str:
        """The Bayer pattern of the upright mosaic, such as RGGB."""
        return self.colour.pattern

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright photograph."""
        return self.mosaic.shape[1], self.mosaic.shape[0]

    def linear(self, method: Method = "directional") -> Float[np.ndarray, "h w 3"]:
        """Linear sRGB."""
        return np.asarray(partial_isp(self.mosaic, self.colour, method))

    def balanced(self, white_balance: str | tuple[float, float, float]) -> RawPhoto:
        """The same with another white balance: `as-shot`, `daylight`, `grey`, or three gains."""
        if white_balance == "as-shot":
            return self
        if white_balance == "daylight":
            if self.daylight is None:
                raise PhotoError("its daylight gains are unknown; give three gains or `grey`", file=self.file)
            gains: np.ndarray = np.array(self.daylight)
        elif white_balance == "grey":
            neutral = grey_gains(self.mosaic, self.pattern)
            if neutral is None:
                raise PhotoError("one of its colours has no light, so no gains make it grey", file=self.file)
            gains = neutral
        elif isinstance(white_balance, str):
            raise PhotoError(f"white balance {white_balance!r}; expected as-shot, daylight, grey or three gains")
        else:
            gains = np.array(white_balance)
        return replace(self, colour=SensorColour.make(self.pattern, gains, np.asarray(self.colour.camera_to_srgb)))


@dataclass(frozen=True)
class RgbPhoto:
    """A photograph without a mosaic, upright: an sRGB file made linear, or a RAW file that was demosaiced already.

    The weaker path: of an sRGB file only the inverse of the sRGB curve is known, not the response of its camera, and
    highlights are cut where the file cuts them.
    """

    file: Path
    rgb: Float[np.ndarray, "h w 3"]  # linear sRGB
    exif: Exif = field(default_factory=Exif)
    notes: tuple[str, ...] = ()
    colour: SensorColour | None = None  # of a demosaiced RAW file; an sRGB file has none

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright photograph."""
        return self.rgb.shape[1], self.rgb.shape[0]

    def linear(self, method: Method = "directional") -> Float[np.ndarray, "h w 3"]:
        """Linear sRGB; there is nothing to demosaic."""
        return self.rgb


Photo = RawPhoto | RgbPhoto


def valid_gains(gains: Float[np.ndarray, "3"] | None) -> bool:
    """Whether these can be the gains of red, green and blue."""
    return gains is not None and bool(np.all(np.isfinite(gains)) and np.all(gains > 1e-6))


def valid_matrix(matrix: Float[np.ndarray, "3 3"]) -> bool:
    """Whether a camera → sRGB matrix maps white to white and can be inverted."""
    if not np.all(np.isfinite(matrix)) or np.any(np.abs(matrix.sum(axis=1) - 1.0) > 0.02):
        return False
    return bool(np.linalg.cond(matrix) < 1e3)


def matrix_of_model(
    camera_of_xyz: Float[np.ndarray, "3 3"],
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]] | None:
    """Camera → sRGB and daylight gains, from XYZ → camera; None if that is no matrix of a camera."""
    camera_of_srgb = camera_of_xyz @ XYZ_OF_SRGB
    sums = camera_of_srgb.sum(axis=1)
    if not np.all(np.isfinite(sums)) or np.any(sums <= 1e-6):
        return None
    camera_of_srgb = camera_of_srgb / sums[:, None]
    if np.linalg.cond(camera_of_srgb) > 1e3:
        return None
    return np.linalg.inv(camera_of_srgb), 1.0 / sums


def choose_matrix(
    of_file: Float[np.ndarray, "3 3"], camera_of_xyz: Float[np.ndarray, "3 3"]
) -> tuple[Float[np.ndarray, "3 3"] | None, Float[np.ndarray, "3"] | None, str | None]:
    """The matrix, its daylight gains where they follow, and a note; no matrix where neither is one."""
    model = matrix_of_model(camera_of_xyz)
    daylight = None if model is None else model[1]
    if valid_matrix(of_file):
        return of_file, daylight, None
    if model is not None:
        return model[0], daylight, None
    return None, None, "no valid colour matrix: the sensor's colours were taken for sRGB's"


def grey_gains(mosaic: Float[np.ndarray, "h w"], pattern: str) -> Float[np.ndarray, "3"] | None:
    """Gains that make the mean of the unsaturated pixels grey; None where a colour has no light."""
    height, width = mosaic.shape
    filters = np.tile(np.array([*pattern]).reshape(2, 2), (height // 2 + 1, width // 2 + 1))[:height, :width]
    means = []
    for colour in "RGB":
        values = mosaic[filters == colour]
        values = values[values < 0.95]
        means.append(values.mean(dtype=np.float64) if values.size else 0.0)
    return means[1] / np.array(means) if min(means) > 1e-6 else None


def choose_gains(
    camera: Float[np.ndarray, "3"],
    daylight: Float[np.ndarray, "3"] | None,
    grey: Float[np.ndarray, "3"] | None,
) -> tuple[Float[np.ndarray, "3"] | None, str | None]:
    """The first valid white balance of the three, and a note if it is not the camera's."""
    if valid_gains(camera):
        return camera, None
    said = ", ".join(f"{g:.4g}" for g in camera)
    for gains, name in ((daylight, "the camera's daylight gains"), (grey, "the gains that make the mean grey")):
        if gains is not None and valid_gains(gains):
            numbers = ", ".join(f"{g:.3f}" for g in gains / gains.min())
            return gains, f"the camera's white balance ({said}) is invalid: {name} ({numbers}) were used"
    return None, f"the camera's white balance ({said}) is invalid"
