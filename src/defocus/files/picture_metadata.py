"""What a photograph's file carries beside its pixels, for a copy with other pixels: EXIF data and the colour profile.

EXIF data are one block in the layout of a TIFF file. Of a JPEG or PNG it is kept byte for byte, so that the notes of
camera makers, which hold offsets of their own, stay readable, and four numbers in it are written over: the orientation
becomes 1 (our pixels are upright), width and height are those of the pixels, and the preview, which shows the
photograph as it was, is cut off. A TIFF file is such a block itself; its descriptive entries are written as a new one.
Of a RAW file the entries that we read become a new block.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import PhotoError
from .exif import Exif

HEAD = b"Exif\0\0"
ORIENTATION, EXIF_PART, WIDTH, HEIGHT = 0x0112, 0x8769, 0xA002, 0xA003
GPS_PART, INTEROP_PART = 0x8825, 0xA005
# Description, make, model, resolution and its unit, software, date, artist, host, copyright.
DESCRIPTIVE = (0x010E, 0x010F, 0x0110, 0x011A, 0x011B, 0x0128, 0x0131, 0x0132, 0x013B, 0x013C, 0x8298)


@dataclass(frozen=True)
class Metadata:
    """EXIF as a TIFF block (without the leading "Exif"), of upright pixels; the ICC profile of RGB values."""

    exif: bytes | None = None
    profile: bytes | None = None
    notes: tuple[str, ...] = ()


def read_metadata(path: str | Path, size: tuple[int, int]) -> Metadata:
    """Of a PNG, JPEG or TIFF, for a copy of `size` = (width, height) upright pixels."""
    from PIL import Image, UnidentifiedImageError

    notes = []
    exif: bytes | None = None
    profile: bytes | None = None
    try:
        with Image.open(path) as image:
            profile = image.info.get("icc_profile")
            if image.format == "TIFF":
                exif = _of_tiff(image)
            elif given := image.info.get("exif"):
                exif = upright(bytes(given).removeprefix(HEAD), size)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as error:
        raise PhotoError(f"cannot be read: {error}", file=path) from error
    except (ValueError, KeyError, TypeError, struct.error) as error:
        exif = None
        notes.append(f"its EXIF data are damaged ({error}) and were left out")
    if profile and profile[16:20] != b"RGB ":
        notes.append(f"its colour profile is for {profile[16:20].decode('latin-1').strip()} values and was left out")
        profile = None
    return Metadata(exif, profile or None, tuple(notes))


def upright(block: bytes, size: tuple[int, int]) -> bytes:
    """The same EXIF block for upright pixels of `size` = (width, height), without its preview.

    Raises `ValueError` where it is no such block.
    """
    data = bytearray(block)
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None or len(data) < 14 or struct.unpack_from(order + "H", data, 2)[0] != 42:
        raise ValueError("no TIFF header")
    (first,) = struct.unpack_from(order + "I", data, 4)
    after = _write_over(data, order, first, {ORIENTATION: 1})
    if after + 4 <= len(data):
        struct.pack_into(order + "I", data, after, 0)  # the next directory is that of the preview
    inner = _pointer(data, order, first, EXIF_PART)
    if inner is not None:
        _write_over(data, order, inner, {WIDTH: size[0], HEIGHT: size[1]})
    return bytes(data)


def _entries(data: bytearray, order: str, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """Tag, type and place of the value of each entry of a directory, and where it ends."""
    if at + 2 > len(data):
        raise ValueError(f"a directory at byte {at} of {len(data)}")
    (count,) = struct.unpack_from(order + "H", data, at)
    end = at + 2 + 12 * count
    if end > len(data):
        raise ValueError(f"a directory that ends at byte {end} of {len(data)}")
    places = range(at + 2, end, 12)
    return [(*struct.unpack_from(order + "HH", data, p), p + 8) for p in places], end


def _write_over(data: bytearray, order: str, at: int, values: dict[int, int]) -> int:
    entries, end = _entries(data, order, at)
    for tag, kind, place in entries:
        if tag in values and kind in (3, 4):  # 16 or 32 bits, within the entry
            value = values[tag]
            if kind == 3 and value > 0xFFFF:
                raise ValueError(f"tag {tag:#x} has 16 bits, and {value} needs more")
            struct.pack_into(order + ("H" if kind == 3 else "I"), data, place, value)
    return end


def _pointer(data: bytearray, order: str, at: int, tag: int) -> int | None:
    for found, kind, place in _entries(data, order, at)[0]:
        if found == tag and kind in (4, 13):
            return int(struct.unpack_from(order + "I", data, place)[0])
    return None


def _of_tiff(image: Any) -> bytes | None:
    """The descriptive entries of a TIFF file, and its EXIF and GPS parts."""
    from PIL import Image

    given, made = image.getexif(), Image.Exif()
    for tag in DESCRIPTIVE:
        if tag in given:
            made[tag] = given[tag]
    for part in (EXIF_PART, GPS_PART):
        inner = {tag: value for tag, value in given.get_ifd(part).items() if tag != INTEROP_PART}
        if inner:
            made[part] = inner
    return made.tobytes().removeprefix(HEAD) if len(made) else None


def metadata_of(exif: Exif) -> Metadata:
    """A new block of what is known of a RAW file."""
    from PIL import Image, TiffImagePlugin

    made = Image.Exif()
    inner: dict[int, Any] = {}
    for tag, text in ((0x010F, exif.make), (0x0110, exif.model)):
        if text is not None:
            made[tag] = text
    for tag, number in ((0x829A, exif.exposure_s), (0x829D, exif.f_number), (0x920A, exif.focal_mm)):
        if number is not None:
            inner[tag] = TiffImagePlugin.IFDRational(Fraction(number).limit_denominator(1_000_000))
    for tag, number in ((0x8827, exif.iso), (0xA405, exif.focal_35mm)):
        if number is not None and round(number) <= 0xFFFF:
            inner[tag] = round(number)
    if exif.lens is not None:
        inner[0xA434] = exif.lens
    if inner:
        made[EXIF_PART] = inner
    return Metadata(made.tobytes().removeprefix(HEAD) if len(made) else None)


def stored_bits(path: str | Path) -> int:
    """Bits per colour of a PNG, JPEG or TIFF file: 16, or 8 where it has no more."""
    from PIL import Image, UnidentifiedImageError

    from .png16 import png_bits

    if png_bits(path) == 16:
        return 16
    try:
        with Image.open(path) as image:
            tags = getattr(image, "tag_v2", {})
            return 16 if max(tags.get(258, (8,))) == 16 else 8
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise PhotoError(f"cannot be read: {error}", file=path) from error
