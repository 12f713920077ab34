"""PNG files of 16 bits per colour, which Pillow reads and writes with 8.

Each row is stored as differences from a prediction by the pixel to the left, the one above, and the one above left, by
one of five rules that the row names (W3C PNG, section 9). A pixel needs those three neighbours, so the pixels on one
anti-diagonal are independent, and the image is restored diagonal by diagonal.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt16

from ..errors import PhotoError, UnsupportedPhotoError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # grey, RGB, grey + alpha, RGB + alpha
HEADER = struct.Struct(">IIBBBBB")


def png_bits(path: str | Path) -> int:
    """Bits per colour of a PNG file; 0 if it is none."""
    with Path(path).open("rb") as file:
        head = file.read(26)
    return head[24] if head.startswith(SIGNATURE) and len(head) == 26 else 0


def read_png16(path: str | Path) -> UInt16[np.ndarray, "h w channels"]:
    """The values of a 16-bit PNG with 1 (grey), 2 (and alpha), 3 (RGB) or 4 channels."""
    return decode_png16(Path(path).read_bytes(), path)


def decode_png16(data: bytes, path: str | Path) -> UInt16[np.ndarray, "h w channels"]:
    """The same from the bytes of a file, whose name is for messages."""
    chunks = _chunks(data, path)
    kinds = [kind for kind, _ in chunks]
    if not kinds or kinds[0] != b"IHDR" or len(chunks[0][1]) != HEADER.size:
        raise PhotoError("not a PNG file: it does not begin with a header", file=path)
    width, height, bits, colour, _, _, interlaced = HEADER.unpack(chunks[0][1])
    if bits != 16 or colour not in CHANNELS or min(width, height) < 1:
        raise PhotoError(f"a PNG of {width}×{height} pixels, {bits} bits and colour type {colour}", file=path)
    if interlaced:
        raise UnsupportedPhotoError("an interlaced 16-bit PNG; save it without interlacing", file=path)
    channels = CHANNELS[colour]
    stride = width * channels * 2
    try:
        packed = zlib.decompressobj().decompress(b"".join(d for k, d in chunks if k == b"IDAT"), height * (stride + 1))
    except zlib.error as error:
        raise PhotoError(f"damaged: its pixels cannot be unpacked ({error})", file=path) from error
    if len(packed) < height * (stride + 1):
        have = len(packed) // (stride + 1)
        raise PhotoError(f"truncated: it holds {have} of its {height} rows", file=path)
    lines = np.frombuffer(packed, np.uint8).reshape(height, stride + 1)
    if lines[:, 0].max() > 4:
        raise PhotoError(f"damaged: prediction rule {lines[:, 0].max()}; PNG knows 0 to 4", file=path)
    values = _restore(lines[:, 1:].reshape(height, width, channels * 2), lines[:, 0])
    return values.view(">u2").astype(np.uint16)


def write_png16(path: str | Path, image: UInt16[np.ndarray, "h w 3"]) -> None:
    """Write RGB; rows are predicted from the row above."""
    height, width = image.shape[:2]
    data = np.ascontiguousarray(image.astype(">u2")).view(np.uint8).reshape(height, width * 6)
    lines = np.empty((height, width * 6 + 1), np.uint8)
    lines[:, 0] = 2
    lines[:, 1:] = data
    lines[1:, 1:] -= data[:-1]
    chunks = (
        (b"IHDR", HEADER.pack(width, height, 16, 2, 0, 0, 0)),
        (b"sRGB", b"\0"),
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    )
    with Path(path).open("wb") as file:
        file.write(SIGNATURE)
        for kind, body in chunks:
            file.write(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))


def _chunks(data: bytes, path: str | Path) -> list[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise PhotoError("not a PNG file", file=path)
    at, found = len(SIGNATURE), []
    while at + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        check = data[at + 8 + length : at + 12 + length]
        if len(check) == 4 and zlib.crc32(kind + body) != int.from_bytes(check, "big"):
            raise PhotoError(f"damaged: the checksum of its {kind.decode('ascii', 'replace')} part is wrong", file=path)
        found.append((kind, body))
        at += length + 12
    return found


def _restore(differences: np.ndarray, rules: np.ndarray) -> np.ndarray:
    """The bytes [row, column, byte of the pixel] from their differences and each row's rule."""
    height, width, size = differences.shape
    if (rules == 2).all():  # each row from the one above: sums down the columns, as `write_png16` writes
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
        drawn = source[begin : begin + (count - 1) * (width - 1) + 1 : max(width - 1, 1)]
        flat[here] = drawn + predicted.astype(np.uint8)
    return np.ascontiguousarray(image[1:, 1:])
