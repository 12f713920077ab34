"""What a camera wrote about a photograph: the few EXIF numbers that a simulation of lenses can use."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingPackageError

logging.getLogger("exifread").addHandler(logging.NullHandler())  # it warns of every format it does not know


@dataclass(frozen=True, slots=True)
class Exif:
    """None where the camera did not say, or said nothing sensible."""

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
    """The EXIF data of any file, and a note where there are some that cannot be read."""
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
    tags = {name: _value(tag) for name, tag in tags.items()}
    stored = tags.get("Image Orientation")
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
        orientation=stored if isinstance(stored, int) and stored in range(1, 9) else 1,
    ), note


def _value(tag: Any) -> Any:
    """The first number of a tag, or its text."""
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
