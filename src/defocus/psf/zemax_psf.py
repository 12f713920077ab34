"""PSFs that Zemax OpticStudio exports as text: the listings of its Huygens PSF and FFT PSF.

    Listing of HuygensPSF Data
    File : C:\\lenses\\triplet.zmx
    …
    0.5876 µm at 0.0000, 9.9400 mm.
    Data spacing is 2.000 µm.
    Data area is 256.000 by 256.000 µm.
    Image grid size: 128 by 128
    Center coordinates  :   0.00000000E+00,   9.94000000E+00 Millimeters
    Values are relative intensity.

and as many rows of as many numbers, samples of the light at points. The centre's coordinates are those of the Huygens
PSF alone. Several wavelengths in one PSF, whose weights the listing does not tell, and logarithms are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import numpy as np
from jaxtyping import Float

from ..errors import LensFileError
from ..lens.formats.text import decode, read_bytes

MICROMETRES = {"µm": 1.0, "μm": 1.0, "um": 1.0, "micron": 1.0, "microns": 1.0, "mm": 1e3}
MOST_PIXELS = 1024  # across
MOST_LINES, LONGEST_LINE = 100, 500  # of a heading; characters beyond are not read
ROUNDING_UM = 6e-4  # of the spacing, which has three decimals

_NUMBER = r"([-+]?\d+(?:\.\d*)?(?:[Ee][-+]?\d+)?)"
_FILE = re.compile(r"File\s*:\s*(\S.*)")
_POINT = re.compile(
    rf"{_NUMBER}(?:\s+to\s+{_NUMBER})?\s*(µm|μm|um|microns?)\s+at\s+{_NUMBER}(?:\s*,\s*{_NUMBER})?\s*\(?(deg|mm)\b"
)
_SPACING = re.compile(rf"Data spacing is\s+{_NUMBER}\s*([^\s.]+)")
_AREA = re.compile(rf"Data area is\s+{_NUMBER}\s*(?:by\s+{_NUMBER}\s*)?([^\s.]+)")
_GRID = re.compile(r"Image grid size\s*:\s*(\d+)\s+by\s+(\d+)")
_CENTRE = re.compile(rf"Center coordinates\s*:\s*{_NUMBER}\s*,\s*{_NUMBER}\s*(\w+)")


@dataclass(frozen=True)
class ZemaxPsf:
    """One exported PSF and the settings that its listing tells."""

    file: Path
    psf: Float[np.ndarray, "size size"]  # sums to 1
    spacing_um: float
    wavelength_nm: float
    angle_deg: tuple[float, float] | None  # the field, where it is an angle
    height_mm: tuple[float, float] | None  # where on the image the PSF lies
    lens_name: str  # of the file that Zemax had open; empty where the listing does not tell


def read_zemax_psf(path: str | Path) -> ZemaxPsf:
    """The PSF of an exported listing. Raises `LensFileError`, which names the file and the line."""
    lines = decode(read_bytes(path), path).split("\n")
    header = [line[:LONGEST_LINE] for line in lines[:MOST_LINES]]
    end = next((n for n, line in enumerate(header) if line.strip().startswith("Values are")), None)
    header = header[:end]
    if end is None or not any("PSF" in line for line in header):
        raise LensFileError(
            "not a PSF as Zemax lists it: a heading with PSF in it and a line 'Values are …' are missing; export the "
            "Huygens PSF or FFT PSF as text",
            file=path,
        )
    if "log" in lines[end].lower():
        raise LensFileError("values are logarithms: export the PSF of type linear", file=path, line=end + 1)
    (low, high, unit, x, y, kind), at = _find(_POINT, header, path, "a wavelength and a field, '0.5876 µm at 0, 7 mm'")
    if high is not None and float(high) != float(low):
        raise LensFileError(
            "a PSF of several wavelengths, whose weights are not told: export one wavelength", file=path, line=at
        )
    field = (0.0, float(x)) if y is None else (float(x), float(y))
    centre = next((match for line in header if (match := _CENTRE.search(line))), None)
    if centre is not None and centre[3].lower() != "millimeters":
        raise LensFileError(f"coordinates in {centre[3]}; expected millimetres", file=path)
    rows = _rows(lines, end + 1, path)
    (across, down), at = _find(_GRID, header, path, "'Image grid size: 128 by 128'")
    if (int(down), int(across)) != rows.shape or rows.shape[0] != rows.shape[1]:
        have = f"{rows.shape[1]} by {rows.shape[0]} values follow"
        raise LensFileError(f"a grid of {across} by {down}, but {have}; expected a whole square", file=path, line=at)
    if not rows.sum() > 0.0:
        raise LensFileError("no light: all values are 0", file=path)
    height = (float(centre[1]), float(centre[2])) if centre else field if kind == "mm" else None
    name = next((match[1].strip() for line in header if (match := _FILE.match(line.strip()))), "")
    return ZemaxPsf(
        Path(path),
        rows / rows.sum(),
        _spacing_um(header, len(rows), path),
        float(low) * MICROMETRES[unit] * 1e3,
        field if kind == "deg" else None,
        height,
        PureWindowsPath(name).name,
    )


def _find(pattern: re.Pattern[str], header: list[str], path: str | Path, what: str) -> tuple[tuple[str, ...], int]:
    """The groups of the first line that has the pattern, and its number."""
    for number, line in enumerate(header, 1):
        if match := pattern.search(line):
            return match.groups(), number
    raise LensFileError(f"the heading does not tell {what}", file=path)


def _spacing_um(header: list[str], size: int, path: str | Path) -> float:
    """The distance of the samples; that of the whole area has more digits, where it agrees."""
    (spacing, unit), at = _find(_SPACING, header, path, "'Data spacing is 2.000 µm'")
    value = float(spacing) * MICROMETRES.get(unit, math.nan)
    if not 0.0 < value < 1e4:
        raise LensFileError(f"a data spacing of {spacing} {unit}; expected µm", file=path, line=at)
    area = next((match for line in header if (match := _AREA.search(line))), None)
    finer = float(area[1]) * MICROMETRES.get(area[3], math.nan) / size if area else math.nan
    return finer if abs(finer - value) <= ROUNDING_UM * MICROMETRES[unit] else value


def _rows(lines: list[str], first: int, path: str | Path) -> Float[np.ndarray, "rows columns"]:
    """The numbers from a line on, as many in each as in the first."""
    rows: list[list[float]] = []
    for number, line in enumerate(lines[first:], first + 1):
        words = line.split()
        if not words:
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            raise LensFileError(f"no numbers: {line.strip()[:40]!r}", file=path, line=number) from None
        if not all(0.0 <= value < math.inf for value in values):
            raise LensFileError("a value that is negative or no number; light is neither", file=path, line=number)
        if len(values) > MOST_PIXELS or (rows and len(values) != len(rows[0])):
            expected = f"{len(rows[0])} as above" if rows else f"at most {MOST_PIXELS}"
            raise LensFileError(f"{len(values)} values; expected {expected}", file=path, line=number)
        rows.append(values)
    if not rows:
        raise LensFileError("no values follow the heading", file=path)
    return np.array(rows)
