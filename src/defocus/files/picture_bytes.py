"""Pictures of 8 or 16 bits with their metadata as the bytes of a PNG, JPEG or TIFF file."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, Literal

import numpy as np
from jaxtyping import Shaped

from ..errors import DefocusError
from .pair_png import png_bytes
from .picture_metadata import EXIF_PART, GPS_PART, HEAD, Metadata

Format = Literal["png", "jpg", "tif"]
FORMATS: tuple[Format, ...] = ("png", "jpg", "tif")
JPEG_QUALITY = 95
JPEG_EXIF_BYTES = 65_533 - len(HEAD)  # what one segment of a JPEG holds
STRIP_ROWS = 256  # of a TIFF


def encoded(
    values: Shaped[np.ndarray, "h w 3"], kind: Format, metadata: Metadata | None = None
) -> tuple[bytes, list[str]]:
    """The file's bytes, of uint8 or uint16 RGB values, and notes on what could not be kept."""
    metadata = metadata or Metadata()
    if kind == "png":
        return _png(values, metadata), []
    if kind == "tif":
        return _tiff(values, metadata), []
    if kind != "jpg":
        raise DefocusError(f"pictures of kind {kind!r}; known are {', '.join(FORMATS)}")
    if values.dtype != np.uint8:
        raise DefocusError("a JPEG has 8 bits; write a PNG or TIFF for 16")
    from PIL import Image

    notes = []
    more: dict[str, Any] = {"icc_profile": metadata.profile} if metadata.profile else {}
    if metadata.exif is not None:
        if len(metadata.exif) <= JPEG_EXIF_BYTES:
            more["exif"] = HEAD + metadata.exif
        else:
            notes.append(f"its EXIF data have {len(metadata.exif):,} bytes, more than a JPEG holds, and were left out")
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0, **more)
    return buffer.getvalue(), notes


def _png(values: Shaped[np.ndarray, "h w 3"], metadata: Metadata) -> bytes:
    """Ours says that it is sRGB, right behind its header; a profile takes the place of that."""
    data = png_bytes(values)
    header, srgb = data[:33], data[33:46]
    assert srgb[4:8] == b"sRGB"
    middle = srgb
    if metadata.profile:
        middle = _chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(metadata.profile))
    if metadata.exif is not None:
        middle += _chunk(b"eXIf", metadata.exif)
    return header + middle + data[46:]


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def _tiff(values: Shaped[np.ndarray, "h w 3"], metadata: Metadata) -> bytes:
    """Strips of rows, each stored as differences from the pixel to the left and packed by zlib, behind the entries."""
    from PIL import Image, TiffImagePlugin

    height, width = values.shape[:2]
    strips = [_strip(values[first : first + STRIP_ROWS]) for first in range(0, height, STRIP_ROWS)]
    sizes = [len(strip) for strip in strips]
    tags = TiffImagePlugin.ImageFileDirectory_v2(b"II\x2a\0\x08\0\0\0")
    if metadata.exif is not None:
        given = Image.Exif()
        given.load(metadata.exif)
        for tag, value in given.items():
            tags[tag] = given.get_ifd(tag) if tag in (EXIF_PART, GPS_PART) else value
    short, long = 3, 4
    numbers: list[tuple[int, int, Any]] = [
        (256, long, width),
        (257, long, height),
        (258, short, (8 * values.dtype.itemsize,) * 3),
        (259, short, 8),  # zlib
        (262, short, 2),  # RGB
        (273, long, tuple(int(n) for n in np.cumsum([0, *sizes[:-1]]))),
        (274, short, 1),  # upright
        (277, short, 3),
        (278, long, min(STRIP_ROWS, height)),
        (279, long, tuple(sizes)),
        (284, short, 1),
        (317, short, 2),  # differences
    ]
    for tag, kind, number in numbers:
        tags.tagtype[tag] = kind
        tags[tag] = number
    if metadata.profile:
        tags.tagtype[34675] = 7
        tags[34675] = metadata.profile
    return b"II\x2a\0\x08\0\0\0" + tags.tobytes(8) + b"".join(strips)


def _strip(values: Shaped[np.ndarray, "rows w 3"]) -> bytes:
    differences = values.copy()
    differences[:, 1:] -= values[:, :-1]
    return zlib.compress(differences.astype(differences.dtype.newbyteorder("<"), copy=False).tobytes(), 6)
