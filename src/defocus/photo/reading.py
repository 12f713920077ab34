"""Reading any photograph: RAW files as mosaics, everything else as sRGB made linear."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import PhotoError
from ..files.pictures import PICTURES, read_picture
from ..files.png import SIGNATURE
from ..srgb import from_srgb
from .bayer import phase_of
from .colour import grey_gains
from .isp import SensorColour
from .photos import Photo, RawPhoto, RgbPhoto, numpy_planes
from .raw import read_raw


def read_photo(path: str | Path, *, orientation: int | None = None) -> Photo:
    """A RAW file as `RawPhoto`, an 8 or 16-bit PNG, JPEG or TIFF as `RgbPhoto`; both upright.

    `orientation` (1 to 8 as EXIF counts, 1: as stored) overrides what the file says.
    """
    path = Path(path)
    if not path.exists():
        raise PhotoError("no such file", file=path)
    if path.is_dir():
        raise PhotoError("a folder, not a photograph", file=path)
    if path.suffix.lower() in PICTURES or _looks_like_picture(path):
        return _read_srgb(path, orientation)
    # Never the other way round: the preview inside a damaged RAW file would be taken for the photograph.
    return read_raw(path, orientation)


def _looks_like_picture(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(8)
    return head == SIGNATURE or head.startswith(b"\xff\xd8\xff")


def _read_srgb(path: Path, orientation: int | None) -> RgbPhoto:
    display, exif, notes = read_picture(path, orientation)
    # float32 in numpy: 16-bit files keep their accuracy, and reading starts no device
    linear = from_srgb(display).astype(np.float32)
    notes = [*notes, "an sRGB file, made linear by the sRGB curve: its camera's response and clipping stay in it"]
    return RgbPhoto(path, linear, exif, tuple(notes))


def read_bare_mosaic(
    path: str | Path,
    width: int,
    height: int,
    pattern: str,
    black: float,
    white: float,
    white_balance: tuple[float, float, float] | None = None,
) -> RawPhoto:
    """A file of nothing but 16-bit little-endian numbers, row by row.

    Without a `white_balance` the gains that make the mean grey are used; there is no matrix, so the sensor's colours
    are taken for sRGB's.
    """
    path = Path(path)
    phase_of(pattern)
    if not white > black >= 0.0:
        raise PhotoError(f"black {black} and white {white}; expected 0 <= black < white", file=path)
    size = path.stat().st_size
    if width < 2 or height < 2 or size != 2 * width * height:
        raise PhotoError(
            f"{size} bytes; {width}×{height} numbers of 16 bits make {2 * max(width, 0) * max(height, 0)}", file=path
        )
    stored = np.fromfile(path, "<u2").reshape(height, width).astype(np.float32)
    mosaic = np.minimum((stored - np.float32(black)) / np.float32(white - black), 1.0)
    notes = ["a bare mosaic: the sensor's colours were taken for sRGB's"]
    gains = white_balance
    if gains is None:
        grey = grey_gains(mosaic, numpy_planes(mosaic.shape, pattern.upper()))
        if grey is None:
            raise PhotoError("too dark to find a white balance; give three gains", file=path)
        gains = tuple(grey.tolist())
        notes.append("the gains that make the mean grey were used as white balance")
    colour = SensorColour.make(pattern, gains)
    return RawPhoto(path, mosaic, colour, notes=tuple(notes), black=(black,) * 4, white=(white,) * 4)
