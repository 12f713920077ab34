"""What a photograph's file carries beside its pixels: the EXIF numbers that a simulation of lenses can use, and for a
copy with other pixels its whole EXIF block and its colour profile.

EXIF data are one block in the layout of a TIFF file. Of a JPEG or PNG it is kept byte for byte, so that the notes of
camera makers, which hold offsets of their own, stay readable, and four numbers in it are written over: the orientation
becomes 1 (our pixels are upright), width and height are those of the pixels, and the preview, which shows the
photograph as it was, is cut off. A TIFF file is such a block itself; its descriptive entries are written as a new one.
Of a RAW file the entries that we read become a new block. A photograph through a simulated lens has that lens's entries
in a new block, without the notes of the camera's maker, which would tell of another lens.
"""

from __future__ import annotations

import functools
import logging
import math
import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from PIL import Image, ImageCms, TiffImagePlugin

from ..errors import MissingPackageError, PhotoError

HEAD = b"Exif\0\0"
EXIF_PART, GPS_PART = 0x8769, 0x8825
_ORIENTATION, _WIDTH, _HEIGHT, _INTEROP_PART = 0x0112, 0xA002, 0xA003, 0xA005
# Description, make, model, resolution and its unit, software, date, artist, host, copyright.
_DESCRIPTIVE = (0x010E, 0x010F, 0x0110, 0x011A, 0x011B, 0x0128, 0x0131, 0x0132, 0x013B, 0x013C, 0x8298)
_SHORT, _LONG, _IFD = 3, 4, 13  # types of entries
_SOFTWARE, _F_NUMBER, _DISTANCE, _FOCAL_LENGTH, _COLOURS, _LENS = 0x0131, 0x829D, 0x9206, 0x920A, 0xA001, 0xA434
# Of another lens: aperture and its largest, notes of the maker, focal length on film, the lens's range, maker, number.
_OF_OTHER_LENS = {0x9202, 0x9205, 0x927C, 0xA405, 0xA432, 0xA433, 0xA435}
_INFINITY = 0xFFFFFFFF  # as a distance

logging.getLogger("exifread").addHandler(logging.NullHandler())  # it warns of every format it does not know


@dataclass(frozen=True, slots=True)
class Exif:
    """Numbers of a photograph; None where the camera did not say, or said nothing sensible."""

    make: str | None = None
    model: str | None = None
    lens: str | None = None
    focal_mm: float | None = None
    focal_35mm: float | None = None  # the focal length of the same view on 36 × 24 mm film
    f_number: float | None = None
    exposure_s: float | None = None
    iso: float | None = None
    pixel_um: float | None = None  # pitch of the sensor's pixels, from the focal plane's resolution
    orientation: int = 1  # as stored in the file, 1 to 8; the arrays of a photograph are upright already


def read_exif(path: str | Path) -> tuple[Exif, str | None]:
    """EXIF numbers of any file, and a note where there are some that cannot be read."""
    try:
        import exifread
    except ModuleNotFoundError as error:
        raise MissingPackageError("reading EXIF data", "exifread") from error
    note = None
    tags: dict[str, Any] = {}
    with Path(path).open("rb") as file:
        try:
            tags = exifread.process_file(file, details=False)
        except Exception as error:  # damaged EXIF raises whatever it likes; the picture may be intact
            # Formats that exifread does not know are no damage.
            if type(error).__name__ not in ("ExifNotFound", "InvalidExif"):
                note = f"EXIF data could not be read ({type(error).__name__}: {error}); taken as unknown"
    tags = {name: _first_value(tag) for name, tag in tags.items()}
    orientation = tags.get("Image Orientation")
    return Exif(
        make=_text(tags.get("Image Make")),
        model=_text(tags.get("Image Model")),
        lens=_text(tags.get("EXIF LensModel")),
        focal_mm=_positive(tags.get("EXIF FocalLength")),
        focal_35mm=_positive(tags.get("EXIF FocalLengthIn35mmFilm")),
        f_number=_positive(tags.get("EXIF FNumber")),
        exposure_s=_positive(tags.get("EXIF ExposureTime")),
        iso=_positive(tags.get("EXIF ISOSpeedRatings")),
        pixel_um=_pixel_um(tags),
        orientation=orientation if isinstance(orientation, int) and orientation in range(1, 9) else 1,
    ), note


def _first_value(tag: Any) -> Any:
    """First number of a tag, or its text."""
    values = getattr(tag, "values", None)
    return values if isinstance(values, str) else values[0] if isinstance(values, list) and values else None


def _pixel_um(tags: dict[str, Any]) -> float | None:
    per_unit = _positive(tags.get("EXIF FocalPlaneXResolution"))
    unit_um = {2: 25400.0, 3: 10000.0, 4: 1000.0, 5: 1.0}.get(tags.get("EXIF FocalPlaneResolutionUnit", 2))
    if per_unit is None or unit_um is None:
        return None
    pitch = unit_um / per_unit
    return pitch if 0.3 < pitch < 50.0 else None  # some cameras write nonsense here; no sensor is finer or coarser


def _positive(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) and number > 0.0 else None


def _text(value: Any) -> str | None:
    text = value.strip("\0 ") if isinstance(value, str) else ""
    return text or None


@dataclass(frozen=True)
class Metadata:
    """EXIF block (without the leading "Exif") of upright pixels, ICC profile of RGB values, what was left out."""

    exif: bytes | None = None
    profile: bytes | None = None
    notes: tuple[str, ...] = ()


@functools.cache
def srgb_profile() -> bytes:
    """The ICC profile of sRGB, with a fixed date: the same bytes every time."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    struct.pack_into(">6H", profile, 24, 2000, 1, 1, 0, 0, 0)
    return bytes(profile)


def read_metadata(path: str | Path, size: tuple[int, int]) -> Metadata:
    """Metadata of a PNG, JPEG or TIFF file, for a copy of `size` = (width, height) upright pixels."""
    notes = []
    exif: bytes | None = None
    profile: bytes | None = None
    try:
        with Image.open(path) as image:
            profile = image.info.get("icc_profile")
            if image.format == "TIFF":
                exif = _block_bytes(_descriptive(image.getexif()))
            elif block := image.info.get("exif"):
                exif = upright(bytes(block).removeprefix(HEAD), size)
    except (Image.DecompressionBombError, OSError, SyntaxError) as error:
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
    entries, end = _directory(data, order, struct.unpack_from(order + "I", data, 4)[0])
    _write_over(data, order, entries, {_ORIENTATION: 1})
    if end + 4 <= len(data):
        struct.pack_into(order + "I", data, end, 0)  # the next directory is that of the preview
    kind, place = entries.get(EXIF_PART, (0, 0))
    if kind in (_LONG, _IFD):
        inner, _ = _directory(data, order, struct.unpack_from(order + "I", data, place)[0])
        _write_over(data, order, inner, {_WIDTH: size[0], _HEIGHT: size[1]})
    return bytes(data)


def _directory(data: bytearray, order: str, at: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Type and place of the value of each entry of a directory by its tag, and where the directory ends."""
    count = struct.unpack_from(order + "H", data, at)[0] if at + 2 <= len(data) else 0xFFFF
    end = at + 2 + 12 * count
    if end > len(data):
        raise ValueError(f"a directory at byte {at} that ends behind byte {len(data)}")
    heads = [(*struct.unpack_from(order + "HH", data, place), place + 8) for place in range(at + 2, end, 12)]
    return {tag: (kind, value) for tag, kind, value in heads}, end


def _write_over(data: bytearray, order: str, entries: dict[int, tuple[int, int]], values: dict[int, int]) -> None:
    for tag, value in values.items():
        kind, place = entries.get(tag, (0, 0))
        if kind == _SHORT and value > 0xFFFF:
            raise ValueError(f"tag {tag:#x} has 16 bits, and {value} needs more")
        if kind in (_SHORT, _LONG):
            struct.pack_into(order + ("H" if kind == _SHORT else "I"), data, place, value)


def _descriptive(tags: Image.Exif) -> Image.Exif:
    """The descriptive entries alone, with the EXIF and GPS parts."""
    block = Image.Exif()
    for tag in _DESCRIPTIVE:
        if tag in tags:
            block[tag] = tags[tag]
    for part in (EXIF_PART, GPS_PART):
        inner = {tag: value for tag, value in tags.get_ifd(part).items() if tag != _INTEROP_PART}
        if inner:
            block[part] = inner
    return block


def through_lens(
    metadata: Metadata, software: str, lens: str, focal_mm: float, f_number: float, focus_m: float | None = None
) -> Metadata:
    """The metadata in sRGB of a photograph that a simulated lens took instead of the camera's; `focus_m` may be inf."""
    tags = Image.Exif()
    if metadata.exif is not None:
        tags.load(metadata.exif)
    block = _descriptive(tags)
    inner = {tag: value for tag, value in block.get(EXIF_PART, {}).items() if tag not in _OF_OTHER_LENS | {_DISTANCE}}
    inner |= {_F_NUMBER: _rational(f_number), _FOCAL_LENGTH: _rational(focal_mm), _COLOURS: 1, _LENS: lens}
    if focus_m is not None:
        inner[_DISTANCE] = _rational(focus_m) if math.isfinite(focus_m) else TiffImagePlugin.IFDRational(_INFINITY, 1)
    block[EXIF_PART], block[_SOFTWARE] = inner, software
    return replace(metadata, exif=_block_bytes(block), profile=srgb_profile())


def metadata_of(exif: Exif) -> Metadata:
    """Metadata for a copy of a RAW file in sRGB: a new block of the numbers that we read."""
    block = Image.Exif()
    inner: dict[int, Any] = {}
    for tag, text in ((0x010F, exif.make), (0x0110, exif.model)):
        if text is not None:
            block[tag] = text
    for tag, number in ((0x829A, exif.exposure_s), (0x829D, exif.f_number), (0x920A, exif.focal_mm)):
        if number is not None:
            inner[tag] = _rational(number)
    for tag, number in ((0x8827, exif.iso), (0xA405, exif.focal_35mm)):
        if number is not None and round(number) <= 0xFFFF:
            inner[tag] = round(number)
    if exif.lens is not None:
        inner[0xA434] = exif.lens
    if inner:
        block[EXIF_PART] = inner
    return Metadata(_block_bytes(block), srgb_profile())


def _rational(number: float) -> TiffImagePlugin.IFDRational:
    return TiffImagePlugin.IFDRational(Fraction(number).limit_denominator(10_000))


def _block_bytes(block: Image.Exif) -> bytes | None:
    return block.tobytes().removeprefix(HEAD) if len(block) else None
