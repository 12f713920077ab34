"""Reading any photograph: RAW files as mosaics, everything else as sRGB made linear.

RAW files (DNG, CR2, CRW, NEF, ARW and more) are decoded by LibRaw: it gives the sensor's numbers, the visible area,
black and white levels, white balance and matrices; everything after that is ours. Sensors other than Bayer ones in red,
green and blue are refused by name. Files that were demosaiced before they were stored (linear DNG, sRAW) are taken as
they are, with a note.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import MissingPackageError, PhotoError, UnsupportedPhotoError
from ..files.exif import Exif, Metadata, metadata_of, read_exif, read_metadata, srgb_profile
from ..files.pictures import PICTURES, read_picture, turned
from ..files.png import SIGNATURE
from ..srgb import from_srgb
from .demosaic import PATTERNS, phase_of, turned_pattern
from .isp import SensorColour
from .photos import Photo, RawPhoto, RgbPhoto, choose_gains, choose_matrix, grey_gains, valid_gains

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # what it complains of, our errors say

MOST_PAGES = 64  # of a file in TIFF's layout, that are looked at

# How LibRaw counts orientations (1: columns mirrored, 2: rows mirrored, 4: transposed first), as EXIF counts them.
EXIF_OF_FLIP = {0: 1, 1: 2, 2: 4, 3: 3, 4: 5, 5: 8, 6: 6, 7: 7}


def read_photo(path: str | Path, *, orientation: int | None = None) -> Photo:
    """A RAW file as `RawPhoto`, an 8 or 16-bit PNG, JPEG or TIFF as `RgbPhoto`; both upright.

    `orientation` (1 to 8 as EXIF counts, 1: as stored) overrides what the file says.
    """
    path = Path(path)
    if not path.exists():
        raise PhotoError("no such file", file=path)
    if path.is_dir():
        raise PhotoError("a folder, not a photograph", file=path)
    with path.open("rb") as file:
        head = file.read(8)
    if path.suffix.lower() not in PICTURES and head != SIGNATURE and not head.startswith(b"\xff\xd8\xff"):
        # Never the other way round: the preview inside a damaged RAW file would be taken for the photograph.
        return read_raw(path, orientation)
    try:
        display, exif, notes = read_picture(path, orientation)
        # float32 in numpy: 16-bit files keep their accuracy, and reading starts no device
        linear = from_srgb(display).astype(np.float32)
    except MemoryError as error:
        raise PhotoError("too large for the memory of this machine", file=path) from error
    notes = [*notes, "an sRGB file, made linear by the sRGB curve: its camera's response and clipping stay in it"]
    return RgbPhoto(path, linear, exif, tuple(notes))


def copied_metadata(photo: Photo, size: tuple[int, int]) -> Metadata:
    """Metadata for a copy in sRGB of `size` = (width, height): a picture's own EXIF block, a RAW file's numbers."""
    if isinstance(photo, RgbPhoto) and photo.colour is None:
        return replace(read_metadata(photo.file, size), profile=srgb_profile())
    return metadata_of(photo.exif)


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
        grey = grey_gains(mosaic, pattern.upper())
        if grey is None:
            raise PhotoError("too dark to find a white balance; give three gains", file=path)
        gains = tuple(grey.tolist())
        notes.append("the gains that make the mean grey were used as white balance")
    colour = SensorColour.make(pattern, gains)
    return RawPhoto(path, mosaic, colour, notes=tuple(notes), black=(black,) * 4, white=(white,) * 4)


def read_raw(path: str | Path, orientation: int | None = None) -> RawPhoto | RgbPhoto:
    """Decode a RAW file; `orientation` (1 to 8, EXIF's) overrides the file's own."""
    try:
        import rawpy
    except ModuleNotFoundError as error:
        raise MissingPackageError("reading RAW files", "rawpy") from error
    path = Path(path)
    if path.stat().st_size == 0:
        raise PhotoError("the file is empty", file=path)
    _check_length(path)
    try:
        with rawpy.imread(str(path)) as raw:
            return _decode(raw, path, orientation)
    except rawpy.LibRawFileUnsupportedError as error:
        raise UnsupportedPhotoError(
            "no photograph that can be read: neither PNG, JPEG or TIFF nor a RAW file that LibRaw knows, or cut short",
            file=path,
        ) from error
    except rawpy.LibRawError as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        message = f"a RAW file that is damaged or truncated, or none at all: LibRaw says {text!r}"
        raise PhotoError(message, file=path) from error


def _decode(raw: Any, path: Path, orientation: int | None) -> RawPhoto | RgbPhoto:
    import rawpy

    exif, note = read_exif(path)
    notes = [note] if note else []
    exif = _with_libraw(exif, raw, EXIF_OF_FLIP.get(raw.sizes.flip & 7, 1))
    turn = exif.orientation if orientation is None else orientation
    if abs(raw.sizes.pixel_aspect - 1.0) > 0.01:
        raise UnsupportedPhotoError(f"pixels {raw.sizes.pixel_aspect:.2f} times as high as wide", file=path)
    matrix, daylight, matrix_note = choose_matrix(
        np.array(raw.color_matrix, np.float64)[:, :3], np.array(raw.rgb_xyz_matrix, np.float64)[:3]
    )
    if daylight is None and matrix is not None:
        daylight = np.array(raw.daylight_whitebalance, np.float64)[:3]
    camera = np.array(raw.camera_whitebalance, np.float64)[:3]
    if matrix is None and not valid_gains(camera):
        raise UnsupportedPhotoError(
            "LibRaw knows neither white balance nor colours of this file, and may have guessed its camera from the "
            "file's size; read a bare mosaic with its width, height, pattern, black and white (`--mosaic`)",
            file=path,
        )
    if matrix_note:
        notes.append(matrix_note)
    matrix = np.eye(3) if matrix is None else matrix
    if raw.raw_type == rawpy.RawType.Stack:
        return _demosaiced(raw, path, turn, exif, notes, camera, daylight, matrix)
    pattern, indices = _pattern(raw, path)
    black, white = _levels(raw, path)
    stored = raw.raw_image_visible
    mosaic = np.empty(stored.shape, np.float32)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at = np.s_[row::2, column::2]
        low, high = black[indices[row, column]], white[indices[row, column]]
        mosaic[at] = np.minimum((stored[at].astype(np.float32) - low) / (high - low), 1.0)
    grey = None if valid_gains(camera) else grey_gains(mosaic, pattern)
    gains, gains_note = choose_gains(camera, daylight, grey)
    if gains is None:
        raise PhotoError(f"{gains_note}, and the picture is too dark to find another", file=path)
    if gains_note:
        notes.append(gains_note)
    colour = SensorColour.make(turned_pattern(pattern, mosaic.shape, turn), gains, matrix)
    return RawPhoto(
        file=path,
        mosaic=turned(mosaic, turn),
        colour=colour,
        exif=exif,
        notes=tuple(notes),
        black=tuple(black.tolist()),
        white=tuple(white.tolist()),
        daylight=_triple(daylight),
    )


def _demosaiced(
    raw: Any,
    path: Path,
    turn: int,
    exif: Exif,
    notes: list[str],
    camera: Float[np.ndarray, "3"],
    daylight: Float[np.ndarray, "3"] | None,
    matrix: Float[np.ndarray, "3 3"],
) -> RgbPhoto:
    """A RAW file with all colours in each pixel: balanced and taken to linear sRGB, without demosaicing."""
    black, white = _levels(raw, path)
    stored = np.asarray(raw.raw_image_visible[..., :3], np.float32)
    if raw.num_colors != 3:
        raise UnsupportedPhotoError(f"{raw.num_colors} colours in each pixel; expected 3", file=path)
    rgb = np.minimum((stored - black[:3]) / (white[:3] - black[:3]), 1.0)
    gains, gains_note = choose_gains(camera, daylight, None)
    if gains is None:
        raise PhotoError(f"{gains_note}, and no daylight gains are known", file=path)
    notes = [*notes, "already demosaiced when it was stored: no mosaic, and noise that is not the sensor's"]
    if gains_note:
        notes.append(gains_note)
    colour = SensorColour.make("RGGB", gains, matrix)
    balanced = np.minimum(rgb * np.asarray(colour.white_balance), 1.0)
    linear = (balanced @ np.asarray(colour.camera_to_srgb).T).astype(np.float32)
    return RgbPhoto(path, turned(linear, turn), exif, tuple(notes), colour)


def _pattern(raw: Any, path: Path) -> tuple[str, np.ndarray]:
    """The Bayer pattern of the visible area, and LibRaw's number of each of its four colours."""
    if raw.raw_pattern is not None and raw.raw_pattern.shape == (6, 6):
        raise UnsupportedPhotoError("an X-Trans sensor (Fujifilm); only Bayer mosaics are developed here", file=path)
    letters = raw.color_desc.decode("ascii", "replace")
    if raw.num_colors == 1:
        raise UnsupportedPhotoError("a monochrome sensor; only Bayer mosaics are developed here", file=path)
    if raw.num_colors != 3 or set(letters) - set("RGB"):
        raise UnsupportedPhotoError(f"a mosaic of the colours {letters}; expected red, green and blue", file=path)
    colours = raw.raw_colors_visible
    if min(colours.shape) < 2:
        raise UnsupportedPhotoError(f"{colours.shape[1]}×{colours.shape[0]} pixels; at least 2×2 are needed", file=path)
    indices = np.array(colours[:2, :2])
    pattern = "".join(letters[i] for i in indices.ravel())
    periodic = all(np.all(colours[r::2, c::2] == indices[r, c]) for r in (0, 1) for c in (0, 1))
    if pattern not in PATTERNS or not periodic:
        raise UnsupportedPhotoError(f"a mosaic that begins {pattern} and is no Bayer pattern", file=path)
    return pattern, indices


def _levels(raw: Any, path: Path) -> tuple[Float[np.ndarray, "4"], Float[np.ndarray, "4"]]:
    """Black and white of red, green, blue and second green, in the file's numbers."""
    black = np.array(raw.black_level_per_channel, np.float32)
    white = np.full(4, raw.white_level, np.float32)
    own = raw.camera_white_level_per_channel
    if own is not None:
        # Where the camera says at which number each colour saturates. Some write another scale: those are left aside.
        said = np.array(own, np.float32)
        white = np.where((said > 0.5 * white) & (said <= white), said, white)
    if not np.all(white > black):
        raise PhotoError(f"white levels {white.tolist()} are not above the black levels {black.tolist()}", file=path)
    return black, white


def _check_length(path: Path) -> None:
    """LibRaw fills with grey what a file in TIFF's layout (DNG, CR2, NEF, ARW) lacks at its end, and goes on."""
    import tifffile

    try:
        with tifffile.TiffFile(path) as tiff:
            tops = islice(tiff.pages, MOST_PAGES)  # damaged ones may be many, and each takes long
            pages = [p for page in tops for p in (page, *islice(getattr(page, "pages", None) or (), MOST_PAGES))]
            ends = [
                (sum(p.databytecounts), max(o + n for o, n in zip(p.dataoffsets, p.databytecounts, strict=True)))
                for p in pages
                if p.databytecounts and len(p.databytecounts) == len(p.dataoffsets)
            ]
    except Exception:  # of another layout, or damaged: LibRaw is the judge of that
        return
    size = path.stat().st_size
    if ends and max(ends)[1] > size:
        raise PhotoError(f"truncated: its pixels end at byte {max(ends)[1]}, the file at {size}", file=path)


def _with_libraw(exif: Exif, raw: Any, orientation: int) -> Exif:
    """EXIF completed by what LibRaw found where it knows the format and exifread does not."""
    other = raw.other
    values = {
        "focal_mm": other.focal_length,
        "f_number": other.aperture,
        "exposure_s": other.shutter_speed,
        "iso": other.iso_speed,
    }
    # LibRaw writes 1 where a DNG says nothing of aperture and time.
    if values["f_number"] == 1.0 and values["exposure_s"] == 1.0:
        values["f_number"] = values["exposure_s"] = 0.0
    missing: dict[str, Any] = {
        k: float(v) for k, v in values.items() if getattr(exif, k) is None and v is not None and v > 0.0
    }
    return replace(exif, orientation=orientation, **missing)


def _triple(gains: Float[np.ndarray, "3"] | None) -> tuple[float, float, float] | None:
    if gains is None or not valid_gains(gains):
        return None
    red, green, blue = (gains / gains.min()).tolist()
    return red, green, blue
