"""PNG of 8 or 16 bits per colour: written fast and always with the same bytes; read where it has 16 (Pillow drops 8).

Written rows are differences from the row above, packed by run lengths and Huffman codes alone (zlib's Z_RLE). On
photographs zlib's search for longer repeats takes several times as long and finds little: a textured patch of 384×384
pixels takes 6 ms and 200 KiB; Pillow, which also tries five predictions for each row, takes 12 ms and 190 KiB at its
fastest level, 50 ms and 170 KiB at its usual one. zlib works outside Python's lock, so threads add up.

A row that is read names one of five predictions from the pixel to the left, the one above, and the one above left (W3C
PNG, section 9). A pixel needs those three neighbours, so the pixels on one anti-diagonal are independent, and the image
is restored diagonal by diagonal.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from jaxtyping import Shaped, UInt8, UInt16

from ..errors import FileError, PhotoError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 178_956_970  # as many as Pillow reads; more is taken for an attack on the memory
_HEADER = struct.Struct(">IIBBBBB")
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # grey, RGB, grey + alpha, RGB + alpha
_FROM_ABOVE = 2


def png_bytes(values: Shaped[np.ndarray, "h w 3"], *, profile: bytes | None = None, exif: bytes | None = None) -> bytes:
    """PNG file of uint8 or uint16 RGB values, in sRGB unless an ICC `profile` says otherwise."""
    if values.ndim != 3 or values.shape[2] != 3 or values.dtype not in (np.uint8, np.uint16):
        raise PhotoError(f"a picture of {values.dtype} {list(values.shape)}; expected uint8 or uint16 [h, w, 3]")
    height, width = values.shape[:2]
    bits = 8 * values.dtype.itemsize
    raw = np.ascontiguousarray(values, ">u2" if bits == 16 else np.uint8).view(np.uint8).reshape(height, -1)
    rows = np.empty((height, raw.shape[1] + 1), np.uint8)
    rows[:, 0] = _FROM_ABOVE
    rows[0, 1:] = raw[0]
    np.subtract(raw[1:], raw[:-1], out=rows[1:, 1:])
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    chunks = [
        (b"IHDR", _HEADER.pack(width, height, bits, 2, 0, 0, 0)),
        (b"iCCP", b"ICC profile\0\0" + zlib.compress(profile)) if profile else (b"sRGB", b"\0"),
        *([(b"eXIf", exif)] if exif is not None else []),
        (b"IDAT", packer.compress(rows.data) + packer.flush()),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))
        for kind, body in chunks
    ]
    return SIGNATURE + b"".join(parts)


def png_bits(head: bytes) -> int:
    """Bits per colour of the PNG file that begins with `head`; 0 if it is none."""
    return head[24] if head.startswith(SIGNATURE) and len(head) > 25 else 0


def png_size(head: bytes) -> tuple[int, int, int] | None:
    """Rows, columns and bits per colour (8 or 16) in the first 26 bytes of a PNG file; None of another file."""
    if not png_bits(head) or head[12:16] != b"IHDR":
        return None
    cols, rows = struct.unpack(">II", head[16:24])
    return (rows, cols, 16 if head[24] == 16 else 8) if rows and cols else None


def check_pixels(rows: int, cols: int, file: str, failure: type[FileError] = PhotoError) -> None:
    """Raise `failure` for more pixels than any photograph has."""
    if rows * cols > MAX_PIXELS:
        raise failure(f"{cols}×{rows} pixels are more than the {MAX_PIXELS:,} that are read", file=file)


def decode_png16(data: bytes, file: str, failure: type[FileError] = PhotoError) -> UInt16[np.ndarray, "h w channels"]:
    """Values of a 16-bit PNG with 1 (grey), 2 (and alpha), 3 (RGB) or 4 channels; raises `failure` with the file."""
    chunks = _chunks(data, file, failure)
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != _HEADER.size:
        raise failure("not a PNG file: it does not begin with a header", file=file)
    width, height, bits, colour, _, _, interlaced = _HEADER.unpack(chunks[0][1])
    if bits != 16 or colour not in _CHANNELS or min(width, height) < 1:
        raise failure(f"a PNG of {width}×{height} pixels, {bits} bits and colour type {colour}", file=file)
    if interlaced:
        raise failure("an interlaced 16-bit PNG; save it without interlacing", file=file)
    check_pixels(height, width, file, failure)
    size = 2 * _CHANNELS[colour]
    row_bytes = width * size + 1
    try:
        packed = b"".join(body for kind, body in chunks if kind == b"IDAT")
        unpacked = zlib.decompressobj().decompress(packed, height * row_bytes)
    except zlib.error as error:
        raise failure(f"damaged: its pixels cannot be unpacked ({error})", file=file) from error
    if len(unpacked) < height * row_bytes:
        raise failure(f"truncated: it holds {len(unpacked) // row_bytes} of its {height} rows", file=file)
    rows = np.frombuffer(unpacked, np.uint8).reshape(height, row_bytes)
    if rows[:, 0].max() > 4:
        raise failure(f"damaged: prediction rule {rows[:, 0].max()}; PNG knows 0 to 4", file=file)
    return _restored(rows[:, 1:].reshape(height, width, size), rows[:, 0]).view(">u2").astype(np.uint16)


def _chunks(data: bytes, file: str, failure: type[FileError]) -> list[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise failure("not a PNG file", file=file)
    at, chunks = len(SIGNATURE), []
    while at + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        check = data[at + 8 + length : at + 12 + length]
        if len(check) == 4 and zlib.crc32(kind + body) != int.from_bytes(check, "big"):
            raise failure(f"damaged: the checksum of its {kind.decode('ascii', 'replace')} part is wrong", file=file)
        chunks.append((kind, body))
        at += length + 12
    return chunks


def _restored(
    differences: UInt8[np.ndarray, "h w size"], rules: UInt8[np.ndarray, "h"]
) -> UInt8[np.ndarray, "h w size"]:
    """Bytes [row, column, byte of the pixel] from their differences and each row's rule."""
    height, width, size = differences.shape
    if (rules == _FROM_ABOVE).all():  # as `png_bytes` writes
        return np.add.accumulate(differences, axis=0, dtype=np.uint8)
    # One row and one column of zeros stand above and to the left, as the format wants.
    image = np.zeros((height + 1, width + 1, size), np.uint8)
    flat = image.reshape(-1, size)
    source = np.ascontiguousarray(differences).reshape(-1, size)
    step = width + 1
    for diagonal in range(height + width - 1):
        top = max(0, diagonal - width + 1)
        count = min(diagonal, height - 1) - top + 1
        first = (top + 1) * step + diagonal - top + 1
        here = slice(first, first + (count - 1) * width + 1, width)
        left, above, corner = (
            flat[first - back : first - back + (count - 1) * width + 1 : width].astype(np.int16)
            for back in (1, step, step + 1)
        )
        rule = rules[top : top + count, None]
        a, b, c = (np.abs(above - corner), np.abs(left - corner), np.abs(left + above - 2 * corner))
        nearest = np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))
        predicted = np.choose(rule, (np.int16(0), left, above, (left + above) // 2, nearest))
        begin = top * width + diagonal - top
        # One row down and one column back: `width` on in the padded image, `width` − 1 in the differences.
        along = source[begin : begin + (count - 1) * (width - 1) + 1 : max(width - 1, 1)]
        flat[here] = along + predicted.astype(np.uint8)
    return np.ascontiguousarray(image[1:, 1:])
