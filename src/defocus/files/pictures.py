"""Pictures as files: PNG, JPEG and TIFF of 8 or 16 bits in sRGB, and linear light as .npy or .npz. Planes of numbers,
such as depth, as TIFF of 32-bit floats, which loses nothing and which Pillow, OpenCV and ImageJ read.

A photograph is read as display values 0..1, upright. Grey becomes RGB; transparency is dropped with a note; an embedded
colour profile other than sRGB is converted where the file has 8 bits, and named in a note where it has 16. The pictures
of pairs are read as the whole numbers that are stored. Files appear whole or not at all.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image, ImageCms, TiffImagePlugin, UnidentifiedImageError

from ..errors import DatasetError, FileError, MissingPackageError, PhotoError, UnsupportedPhotoError
from ..srgb import check_floats
from .exif import EXIF_PART, GPS_PART, HEAD, Exif, Metadata, read_exif, srgb_profile
from .png import check_pixels, decode_png16, png_bits, png_bytes, png_size
from .stores import check_output, write_file, writing_file

Format = Literal["png", "jpg", "tif"]
FORMATS: tuple[Format, ...] = ("png", "jpg", "tif")
KINDS: dict[str, Format] = {".png": "png", ".jpg": "jpg", ".jpeg": "jpg", ".tif": "tif", ".tiff": "tif"}
PICTURES = tuple(KINDS)
RAW_SUFFIXES = (".dng", ".cr2", ".cr3", ".crw", ".nef", ".arw", ".raf", ".rw2", ".orf", ".pef", ".srw")
LINEAR = (".npy", ".npz")
BAND_ROWS = 256  # of a photograph, that are worked on at a time
MOST_EXPANSION = 1032  # of zlib: bytes from one
PILLOWS = (OSError, SyntaxError, ValueError, TypeError, LookupError, struct.error)  # what damage raises there
_JPEG_EXIF_BYTES = 65_533 - len(HEAD)  # what one segment of a JPEG holds


# --- the pictures of pairs ---


def decode_picture(data: bytes, file: str = "a picture") -> Shaped[np.ndarray, "h w 3"]:
    """RGB values, uint8 or uint16, as they are stored in the bytes of a picture; `file` is for messages."""
    if png_bits(data) == 16:
        deep = decode_png16(data, file, DatasetError)
        colours = deep[..., :-1] if deep.shape[2] in (2, 4) else deep  # without transparency
        return np.ascontiguousarray(np.broadcast_to(colours, (*deep.shape[:2], 3)))
    with opened_image(io.BytesIO(data), file, DatasetError) as image:
        return np.array(image.convert("RGB"))


def picture_size(data: bytes, file: str = "a picture") -> tuple[int, int, int]:
    """Rows, columns and bits per colour that `decode_picture` would give, of a file or its first bytes."""
    size = png_size(data)
    if size is None:
        with opened_image(io.BytesIO(data), file, DatasetError) as image:
            return image.height, image.width, 8
    check_pixels(size[0], size[1], file, DatasetError)
    return size


def plane_bytes(plane: Float[np.ndarray, "h w"]) -> bytes:
    """TIFF file of a plane of float32 numbers; equal numbers are equal bytes."""
    return _tiff_bytes(np.asarray(plane, np.float32), Metadata())


def decode_plane(data: bytes, file: str = "a plane") -> Float[np.ndarray, "h w"]:
    """Numbers of a file of `plane_bytes`, finite; `file` is for messages.

    Strips are unpacked here: Pillow's library takes what is missing of one for zeros.
    """
    with opened_image(io.BytesIO(data), file, DatasetError) as image:
        tags = getattr(image, "tag_v2", {})
        if image.mode != "F" or (data[:2], tags.get(259), tags.get(317, 1)) != (b"II", 8, 1):
            raise DatasetError("no plane: expected a TIFF of 32-bit floats packed by zlib", file=file)
        size = 4 * image.width * image.height
        if size > MOST_EXPANSION * len(data):
            raise DatasetError(f"truncated: {len(data):,} bytes cannot hold {size // 4:,} floats", file=file)
        unpacked = b""
        for start, length in zip(tags.get(273, ()), tags.get(279, ()), strict=True):
            unpacker = zlib.decompressobj()
            unpacked += unpacker.decompress(data[start : start + length], size - len(unpacked) + 1)
            if not unpacker.eof:
                raise DatasetError("damaged or truncated: a strip of its rows is not whole", file=file)
        plane = np.frombuffer(unpacked, "<f4").reshape(image.height, image.width).astype(np.float32)
    if not np.isfinite(plane).all():
        raise DatasetError("some of its numbers are not finite", file=file)
    return plane


# --- photographs ---


def read_picture(
    path: str | Path, orientation: int | None = None, *, to_srgb: bool = True
) -> tuple[Float[np.ndarray, "h w 3"], Exif, list[str]]:
    """Display values 0..1 as float32, upright; EXIF data; notes on what was changed.

    Without `to_srgb` the values stay in the colours of the file's own profile, for a copy that keeps the profile.
    """
    path = Path(path)
    exif, note = read_exif(path)
    notes = [note] if note else []
    if path.stat().st_size == 0:
        raise PhotoError("the file is empty", file=path)
    array = _read_16(path)
    if array is None:
        array = _read_8(path, notes, exif.orientation, to_srgb)
    elif to_srgb:
        notes += _foreign_profile(path)
    if array.shape[2] in (2, 4):
        notes.append("transparency was dropped")
        array = array[..., :-1]
    if array.shape[2] not in (1, 3):
        raise UnsupportedPhotoError(f"{array.shape[2]} channels; expected grey or RGB", file=path)
    scale = np.float32(1.0 / np.iinfo(array.dtype).max)
    rgb = np.broadcast_to(array, (*array.shape[:2], 3)).astype(np.float32) * scale
    return turned(rgb, exif.orientation if orientation is None else orientation), exif, notes


def upright_size(path: str | Path) -> tuple[int, int]:
    """Width and height of a photograph as its orientation turns it, without decoding it."""
    with opened_image(path, path, PhotoError) as image:
        quarter = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        return (image.height, image.width) if quarter else (image.width, image.height)


def stored_bits(path: str | Path) -> int:
    """Bits per colour of a PNG, JPEG or TIFF file: 16, or 8 where it has no more."""
    with opened_image(path, path, PhotoError) as image, Path(path).open("rb") as file:
        tiff_bits = getattr(image, "tag_v2", {}).get(258, (8,))
        return 16 if 16 in (png_bits(file.read(26)), *tiff_bits) else 8


def turned(array: Shaped[np.ndarray, "h w *channels"], orientation: int) -> Shaped[np.ndarray, "h2 w2 *channels"]:
    """The array upright, from how the camera stored it: `orientation` 1 to 8 as EXIF counts them."""
    if orientation not in range(1, 9):
        raise PhotoError(f"orientation {orientation}; EXIF knows 1 to 8")
    if orientation >= 5:
        array = np.swapaxes(array, 0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


def _read_16(path: Path) -> Shaped[np.ndarray, "h w channels"] | None:
    """Values of a 16-bit PNG or TIFF; None if the file has fewer bits."""
    with path.open("rb") as file:
        head = file.read(26)
    if png_bits(head) == 16:
        return decode_png16(path.read_bytes(), str(path))
    if head[:4] not in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return None
    try:
        import tifffile
    except ModuleNotFoundError as error:
        raise MissingPackageError("reading TIFF files", "tifffile") from error
    try:
        with tifffile.TiffFile(path) as tiff:
            page: Any = tiff.pages[0]
            if page.dtype == np.uint8 or page.dtype is None:
                return None
            if page.dtype != np.uint16 or page.photometric.name not in ("RGB", "MINISBLACK"):
                kind = f"{page.dtype} {page.photometric.name}"
                raise UnsupportedPhotoError(f"a TIFF of {kind} values; expected 8 or 16-bit RGB or grey", file=path)
            channels = math.prod(page.shape) / max(page.imagelength * page.imagewidth, 1)
            check_pixels(page.imagelength, page.imagewidth, str(path))
            if channels > 4:
                raise UnsupportedPhotoError(f"{channels:g} channels; expected grey or RGB", file=path)
            array = np.asarray(page.asarray())
            planar = page.planarconfig.name == "SEPARATE" and array.ndim == 3
    except PhotoError:
        raise
    except Exception as error:  # tifffile raises whatever a damaged file leads it to
        hint = "; save it uncompressed" if "imagecodecs" in str(error) else ""
        raise PhotoError(f"the TIFF cannot be read: {error}{hint}", file=path) from error
    array = np.moveaxis(array, 0, -1) if planar else array
    if 0 in array.shape:
        raise PhotoError("it has no pixels", file=path)
    return array if array.ndim == 3 else array[..., None]


def _read_8(path: Path, notes: list[str], orientation: int, to_srgb: bool) -> Shaped[np.ndarray, "h w channels"]:
    """Values of 8 bits as they are stored, in sRGB if that is wanted."""
    with opened_image(path, path, PhotoError) as opened:
        opened.load()
        image: Image.Image = opened
        # Pillow turns TIFF files on its own, and then forgets their orientation.
        was_turned = orientation != 1 and opened.getexif().get(0x0112, 1) == 1
        if image.mode in ("P", "PA", "1", "CMYK", "YCbCr", "LAB", "HSV"):
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        if image.mode not in ("L", "LA", "RGB", "RGBA"):
            raise UnsupportedPhotoError(f"pixels of kind {image.mode}; expected 8 or 16-bit RGB", file=path)
        name = _profile_name(image.info) if to_srgb and image.mode in ("RGB", "RGBA") else ""
        if name:
            profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
            srgb = ImageCms.createProfile("sRGB")
            image = ImageCms.profileToProfile(image, profile, srgb, outputMode=image.mode) or image
            notes.append(f"colours were converted from the embedded profile {name!r} to sRGB")
        array = np.asarray(image)
    array = array if array.ndim == 3 else array[..., None]
    return turned(array, {6: 8, 8: 6}.get(orientation, orientation)) if was_turned else array


def _foreign_profile(path: Path) -> list[str]:
    """A note where a 16-bit file has a colour profile other than sRGB."""
    try:
        with Image.open(path) as image:
            name = _profile_name(image.info)
    except (OSError, SyntaxError, ValueError, ImageCms.PyCMSError):
        name = "of unknown kind"
    return [f"the embedded profile {name!r} was not applied: values of 16 bits are taken for sRGB"] if name else []


def _profile_name(info: dict[Any, Any]) -> str:
    """Name of the colour profile that Pillow found in a file; empty where it is sRGB or there is none."""
    if not info.get("icc_profile"):
        return ""
    name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(info["icc_profile"]))).strip()
    return "" if "srgb" in name.lower() else name


@contextmanager
def opened_image(source: str | Path | BinaryIO, file: str | Path, failure: type[FileError]) -> Iterator[Image.Image]:
    """A picture opened by Pillow, whose complaints become `failure` with the file's name."""
    try:
        with Image.open(source) as image:
            if image.format == "PNG" and image.width * image.height > 8 * MOST_EXPANSION * (size := _bytes_of(source)):
                # Pillow would take all that is missing for black.
                raise failure(f"truncated: {size:,} bytes cannot hold {image.width}×{image.height} pixels", file=file)
            yield image
    except UnidentifiedImageError as error:
        raise failure("cannot be decoded: not a picture of a kind that is read", file=file) from error
    except Image.DecompressionBombError as error:
        raise failure(str(error), file=file) from error
    except MemoryError as error:
        raise failure("cannot be decoded: damaged, or too large for the memory of this machine", file=file) from error
    except (*PILLOWS, zlib.error, ImageCms.PyCMSError) as error:
        raise failure(f"cannot be decoded: damaged or truncated: {error}", file=file) from error


def _bytes_of(source: str | Path | BinaryIO) -> int:
    if isinstance(source, str | Path):
        return Path(source).stat().st_size
    place = source.tell()
    size = source.seek(0, io.SEEK_END)
    source.seek(place)
    return size


# --- writing ---


def quantise(display: Shaped[np.ndarray, "h w 3"], bits: int) -> Shaped[np.ndarray, "h w 3"]:
    """Display values 0..1 as whole numbers of 8 or 16 bits, to the nearest; what lies outside is clipped.

    A band of rows at a time: of a whole photograph, nothing is held beside the input and the result.
    """
    if bits not in (8, 16):
        raise PhotoError(f"{bits} bits; a picture has 8 or 16")
    check_floats(display, "display values")
    if display.dtype.kind != "f" or display.ndim != 3 or display.shape[2] != 3 or display.size == 0:
        raise PhotoError(f"a picture of {display.dtype} {list(display.shape)}; expected floats [rows, columns, 3]")
    top = np.float32(2**bits - 1)
    values = np.empty(display.shape, np.uint8 if bits == 8 else np.uint16)
    for first in range(0, display.shape[0], BAND_ROWS):
        band = display[first : first + BAND_ROWS]
        bad = ~np.isfinite(band)
        if bad.any():
            count, row = np.count_nonzero(~np.isfinite(display)), first + int(np.argwhere(bad)[0, 0])
            raise PhotoError(f"{count} values are not finite, the first of them in row {row}")
        values[first : first + BAND_ROWS] = np.clip(band, 0.0, 1.0) * top + np.float32(0.5)
    return values


def encoded(
    values: Shaped[np.ndarray, "h w 3"], kind: Format, metadata: Metadata | None = None, *, quality: int = 95
) -> tuple[bytes, list[str]]:
    """File of uint8 or uint16 RGB values, and notes on what could not be kept; `quality` is a JPEG's."""
    metadata = metadata or Metadata()
    if kind == "png":
        return png_bytes(values, profile=metadata.profile, exif=metadata.exif), []
    if kind == "tif":
        return _tiff_bytes(values, metadata), []
    if values.dtype != np.uint8:
        raise PhotoError("a JPEG has 8 bits; write a PNG or TIFF for 16")
    notes = []
    more: dict[str, Any] = {"icc_profile": metadata.profile} if metadata.profile else {}
    if metadata.exif is not None:
        if len(metadata.exif) <= _JPEG_EXIF_BYTES:
            more["exif"] = HEAD + metadata.exif
        else:
            notes.append(f"its EXIF data have {len(metadata.exif):,} bytes, more than a JPEG holds, and were left out")
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "JPEG", quality=quality, subsampling=0, **more)
    return buffer.getvalue(), notes


def check_picture_path(path: str | Path, *, linear: bool = True, bits: int = 8) -> Path:
    """Refuse, before the long work, a name that no picture can be written to, with `linear` no linear light either."""
    path = check_output(path, (*PICTURES, *(LINEAR if linear else ())), PhotoError)
    if bits not in (8, 16):
        raise PhotoError(f"{bits} bits; a picture has 8 or 16", file=path)
    if bits == 16 and KINDS.get(path.suffix.lower()) == "jpg":
        raise PhotoError("a JPEG has 8 bits; write a PNG or TIFF for 16", file=path)
    return path


def write_picture(
    path: str | Path,
    display: Shaped[np.ndarray, "h w 3"],
    *,
    bits: int = 8,
    quality: int = 95,
    metadata: Metadata | None = None,
) -> None:
    """Write display values 0..1 as PNG, TIFF (8 or 16 bits) or JPEG (8); without `metadata` as those of sRGB."""
    path = check_picture_path(path, linear=False, bits=bits)
    try:
        values = quantise(np.asarray(display), bits)
    except PhotoError as error:
        raise PhotoError(f"{error}; nothing written", file=path) from error
    metadata = Metadata(profile=srgb_profile()) if metadata is None else metadata
    write_file(path, encoded(values, KINDS[path.suffix.lower()], metadata, quality=quality)[0])


def write_linear(path: str | Path, linear: Shaped[np.ndarray, "h w 3"], **extra: Any) -> None:
    """Write linear sRGB as it is, float32: .npy, or .npz as `linear` beside whatever else is given."""
    path = check_picture_path(path)
    if path.suffix.lower() not in LINEAR:
        raise PhotoError("linear light is written as .npy or .npz", file=path)
    check_floats(linear, f"{path}: linear light")
    values = np.asarray(linear, np.float32)
    with writing_file(path) as file:
        if path.suffix.lower() == ".npy":
            np.save(file, values)
        else:
            np.savez_compressed(file, linear=values, **extra)


def _tiff_bytes(values: Shaped[np.ndarray, "h w *colours"], metadata: Metadata) -> bytes:
    """TIFF file whose strips of rows, packed by zlib, follow its entries; colours as differences from the pixel to the
    left, floats as they are (not every reader knows TIFF's differences of floats).

    Pillow writes no 16 bits of RGB, tifffile no EXIF part.
    """
    height, width, colours = (*values.shape, 1)[:3]
    floats, strips = values.dtype.kind == "f", []
    for first in range(0, height, BAND_ROWS):
        rows = values[first : first + BAND_ROWS].copy()
        if not floats:
            rows[:, 1:] -= values[first : first + BAND_ROWS, :-1]
        strips.append(zlib.compress(rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes(), 6))
    sizes = [len(strip) for strip in strips]
    tags = TiffImagePlugin.ImageFileDirectory_v2(b"II\x2a\0\x08\0\0\0")
    if metadata.exif is not None:
        exif = Image.Exif()
        exif.load(metadata.exif)
        for tag, value in exif.items():
            tags[tag] = exif.get_ifd(tag) if tag in (EXIF_PART, GPS_PART) else value
    short, long, anything = 3, 4, 7
    entries: list[tuple[int, int, Any]] = [
        (256, long, width),
        (257, long, height),
        (258, short, (8 * values.dtype.itemsize,) * colours),
        (259, short, 8),  # zlib
        (262, short, 2 if colours == 3 else 1),  # RGB, or white is large
        (273, long, tuple(int(n) for n in np.cumsum([0, *sizes[:-1]]))),
        (274, short, 1),  # upright
        (277, short, colours),
        (278, long, min(BAND_ROWS, height)),
        (279, long, tuple(sizes)),
        (284, short, 1),
        (339, short, 3) if floats else (317, short, 2),  # floats, or differences
        *([(34675, anything, metadata.profile)] if metadata.profile else []),
    ]
    for tag, kind, value in entries:
        tags.tagtype[tag] = kind
        tags[tag] = value
    return b"II\x2a\0\x08\0\0\0" + tags.tobytes(8) + b"".join(strips)
