"""The pictures of pairs as PNG, of 8 or 16 bits per colour: written fast, and always with the same bytes.

Every row is stored as its difference from the row above and packed by run lengths and Huffman codes alone (zlib's
Z_RLE). On photographs zlib's search for longer repeats takes several times as long and finds little: a textured patch
of 384×384 pixels takes 6 ms and 200 KiB; Pillow, which also tries five predictions for each row, takes 12 ms and 190
KiB at its fastest level, 50 ms and 170 KiB at its usual one. zlib works outside Python's lock, so threads add up.
"""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from jaxtyping import Float, Shaped

from ..errors import DatasetError, PhotoError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">IIBBBBB")
BAND_ROWS = 256
_FROM_ABOVE = 2  # prediction rule of W3C PNG, section 9


def quantise(display: Float[np.ndarray, "h w 3"], bits: int) -> Shaped[np.ndarray, "h w 3"]:
    """Display values 0..1 as whole numbers of 8 or 16 bits, to the nearest; what lies outside is clipped.

    A band of rows at a time: of a whole photograph, nothing is held beside the input and the result.
    """
    if bits not in (8, 16):
        raise DatasetError(f"pictures have 8 or 16 bits; not {bits}")
    top = np.float32(2**bits - 1)
    made = np.empty(display.shape, np.uint8 if bits == 8 else np.uint16)
    for first in range(0, display.shape[0], BAND_ROWS):
        band = display[first : first + BAND_ROWS]
        bad = ~np.isfinite(band)
        if bad.any():
            count, row = np.count_nonzero(~np.isfinite(display)), first + int(np.argwhere(bad)[0, 0])
            raise DatasetError(f"{count} values of the picture are no finite numbers, the first of them in row {row}")
        made[first : first + BAND_ROWS] = np.clip(band, 0.0, 1.0) * top + np.float32(0.5)
    return made


def png_bytes(values: Shaped[np.ndarray, "h w 3"]) -> bytes:
    """An sRGB PNG of uint8 or uint16 RGB values."""
    if values.ndim != 3 or values.shape[2] != 3 or values.dtype not in (np.uint8, np.uint16):
        raise DatasetError(f"a picture of {values.dtype} {list(values.shape)}; expected uint8 or uint16 [h, w, 3]")
    height, width = values.shape[:2]
    bits = 8 * values.dtype.itemsize
    raw = np.ascontiguousarray(values, ">u2" if bits == 16 else np.uint8).view(np.uint8).reshape(height, -1)
    rows = np.empty((height, raw.shape[1] + 1), np.uint8)
    rows[:, 0] = _FROM_ABOVE
    rows[0, 1:] = raw[0]
    np.subtract(raw[1:], raw[:-1], out=rows[1:, 1:])
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    packed = packer.compress(rows.data) + packer.flush()
    parts = (
        (b"IHDR", _HEADER.pack(width, height, bits, 2, 0, 0, 0)),
        (b"sRGB", b"\0"),
        (b"IDAT", packed),
        (b"IEND", b""),
    )
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))
        for kind, body in parts
    ]
    return SIGNATURE + b"".join(chunks)


def png_bits(data: bytes) -> int:
    """Bits per colour of a PNG; 0 if it is none."""
    return data[24] if data.startswith(SIGNATURE) and len(data) > 25 else 0


def picture_size(data: bytes, file: str = "a picture") -> tuple[int, int, int]:
    """Rows, columns and bits per colour that `read_png` would give; `file` is for messages."""
    from PIL import Image

    if png_bits(data) == 16:
        width, height = struct.unpack(">II", data[16:24])
        return height, width, 16
    try:
        with Image.open(io.BytesIO(data)) as picture:
            return picture.height, picture.width, 8
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetError(f"cannot be decoded: {str(error).split(' <_io')[0]}", file=file) from error


def read_png(data: bytes, file: str = "a picture") -> Shaped[np.ndarray, "h w 3"]:
    """RGB values, uint8 or uint16, of a PNG (of 8 bits: of any picture that Pillow reads); `file` is for messages."""
    if png_bits(data) == 16:
        from .png16 import decode_png16

        try:
            deep = decode_png16(data, file)
        except PhotoError as error:
            raise DatasetError(error.message, file=file) from error
        if deep.shape[2] in (2, 4):  # transparency
            deep = deep[..., :-1]
        return np.ascontiguousarray(np.broadcast_to(deep, (*deep.shape[:2], 3)))
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as picture:
            return np.array(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError, zlib.error, Image.DecompressionBombError) as error:
        raise DatasetError(f"cannot be decoded: {str(error).split(' <_io')[0]}", file=file) from error
