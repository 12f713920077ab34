"""The aperture of a .zmx file: ENPD, FNUM, OBNA, or FLOA (float by stop size)."""

from __future__ import annotations

import math

from ...errors import LensFileError
from ..first_order import AxialPath, index_of, object_na_from_working_f_number, stop_radius_from_clear_apertures
from ..prescription import Aperture
from .assemble import Notes
from .text import to_int
from .zemax import APERTURES, ZemaxFile


def aperture_keyword(parts: ZemaxFile) -> str:
    """Which of APERTURES the file uses."""
    keyword = next((a for a in APERTURES if a in parts.header), None)
    if keyword is None:
        raise parts.error(f"no aperture; expected one of {', '.join(APERTURES)}")
    return keyword


def system_aperture(parts: ZemaxFile, path: AxialPath, unit: float, value: float | None = None) -> Aperture:
    """ENPD, FNUM or OBNA, with the file's own value or that of a configuration; `unit` in mm.

    The second word of FNUM tells the paraxial working F-number from the image-space F-number (they are
    the same for an object at infinity), that of OBNA a half angle in degrees from a numerical aperture.
    """
    keyword = aperture_keyword(parts)
    line = parts.header[keyword]
    value = parts.number(line, 0, keyword) if value is None else value
    if not value > 0.0:
        raise parts.error(f"{keyword} {value:g}; expected a positive number", line=line.number)
    flagged = len(line.words) > 1 and to_int(line.words[1]) == 1
    if keyword == "ENPD":
        return Aperture("entrance_pupil_diameter", value * unit)
    if keyword == "FNUM":
        if not flagged or math.isinf(path.object_distance):
            return Aperture("f_number", value)
        na = object_na_from_working_f_number(path, value)
        if not na:
            raise parts.error(f"FNUM {value:g}: the lens makes no image of its object", line=line.number)
        return Aperture("object_na", na)
    if math.isinf(path.object_distance):
        raise parts.error("OBNA: an object-space aperture, but the object is at infinity", line=line.number)
    if flagged:
        value = index_of(path.object_medium, path.wavelength_nm) * math.sin(math.radians(min(value, 90.0)))
    return Aperture("object_na", value)


def float_by_stop_size(
    parts: ZemaxFile, path: AxialPath, stop: int, *, number: int, size: float | None, notes: Notes
) -> Aperture:
    """FLOA: the stop's semi-diameter; failing that, the axial beam that the clear apertures let through.

    `stop` is the stop's index, `number` its number in the file, `size` its semi-diameter in mm.
    """
    if size:
        return Aperture("stop_radius", size)
    radius = stop_radius_from_clear_apertures(path, stop)
    if radius is None:
        raise LensFileError("FLOA: the stop gives the aperture, but it has no DIAM", file=parts.file, surface=number)
    notes.add(
        f"surface {number}: the stop has no size; radius {radius:.6g} mm from the axial beam that the clear "
        "apertures let through"
    )
    return Aperture("stop_radius", radius)
