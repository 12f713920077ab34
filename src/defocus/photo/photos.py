"""A photograph that was read: a mosaic with the colours of its sensor, or an image whose pixels have all three."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import PhotoError
from ..files.exif import Exif
from .colour import grey_gains
from .demosaic import Method
from .isp import SensorColour, partial_isp


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
            neutral = grey_gains(self.mosaic, numpy_planes(self.mosaic.shape, self.pattern))
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


def numpy_planes(shape: tuple[int, ...], pattern: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where red, green and blue pixels lie, without a device."""
    tiled = np.tile(np.array([*pattern]).reshape(2, 2), (shape[0] // 2 + 1, shape[1] // 2 + 1))[: shape[0], : shape[1]]
    return tiled == "R", tiled == "G", tiled == "B"
