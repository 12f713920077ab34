"""An optical medium: what lies between two surfaces.

Indices are relative to air, as in patents and in the glass makers' data sheets: AIR has the index 1 exactly,
and a lens traced with these numbers is a lens used in air (about 20 °C, 1013 hPa). Wavelengths are in
nanometres and are those in air (the d line is 587.5618 nm in air, 587.725 nm in vacuum). The two belong
together: index over wavelength, hence phase, is the same as with absolute index and vacuum wavelength.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from ..errors import LensError, WavelengthError
from .dispersion import (
    C_LINE_NM,
    CONSTANT,
    D_LINE_NM,
    F_LINE_NM,
    FORMULAS,
    TABLE,
    abbe_number,
    refractive_index,
)

# A formula is used this far beyond its range, as a fraction of the range's end: data that begin at the g line
# (436 nm) or end at the C line (656 nm), as those of B270 do, then serve from 400 to 700 nm.
RANGE_SLACK = 0.1
MIN_INDEX, MAX_INDEX = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Medium:
    """A homogeneous medium with a known dispersion; equal media compare and hash equal.

    `vd` is None when the medium has no dispersion, or when the F, d and C lines are outside its range.
    `formula` and `coefficients` are those of `defocus.glass.dispersion`. `note` says what was substituted or
    assumed.
    """

    name: str
    nd: float  # at 587.5618 nm
    vd: float | None  # (n_d − 1) / (n_F − n_C)
    formula: int
    coefficients: tuple[float, ...]
    range_nm: tuple[float, float] | None  # None: any wavelength
    catalogue: str  # "schott", ..., "model", "table", "constant", "vacuum"
    note: str = field(default="", compare=False)

    @overload
    def index(self, wavelength_nm: float) -> float: ...
    @overload
    def index(self, wavelength_nm: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]: ...
    def index(self, wavelength_nm: float | npt.NDArray[np.float64]) -> float | npt.NDArray[np.float64]:
        """Refractive index relative to air; wavelength in nm, the result has its shape.

        Up to 10 % outside `range_nm` the formula is extrapolated; beyond that a WavelengthError is raised.
        """
        wavelength = np.asarray(wavelength_nm, dtype=np.float64)
        fits = _covered(wavelength, self.range_nm) & (wavelength > 0.0) & (wavelength < math.inf)
        if not np.all(fits):
            wrong = float(wavelength[~fits].flat[0])
            covered = "positive, finite wavelengths"
            if self.range_nm is not None:
                covered = f"{self.range_nm[0]:g} to {self.range_nm[1]:g} nm"
            raise WavelengthError(
                f"{self.name}: no refractive index at {wrong:g} nm; its dispersion is known for {covered}. "
                "Choose wavelengths in that range, or another glass"
            )
        result = refractive_index(self.formula, self.coefficients, wavelength)
        return float(result) if wavelength.ndim == 0 else result

    @property
    def is_air(self) -> bool:
        """Whether light passes as through air."""
        return self.formula == CONSTANT and self.nd == 1.0


AIR = Medium("AIR", 1.0, None, CONSTANT, (1.0,), None, "vacuum")


def constant_index(n: float, name: str | None = None) -> Medium:
    """A medium with the same index at every wavelength; n = 1 without a name is AIR."""
    if not MIN_INDEX < n <= MAX_INDEX:
        raise LensError(f"refractive index {n}; expected a number between {MIN_INDEX:g} and {MAX_INDEX:g}")
    if n == 1.0 and name is None:
        return AIR
    return Medium(f"n={n:g}" if name is None else name, float(n), None, CONSTANT, (float(n),), None, "constant")


def formula_glass(
    name: str,
    formula: int,
    coefficients: Sequence[float],
    range_nm: tuple[float, float] | None = None,
    *,
    catalogue: str = "formula",
    note: str = "",
) -> Medium:
    """A glass given by a formula of `defocus.glass.dispersion` and its range in nm; nd and vd follow."""
    values = tuple(map(float, coefficients))
    if formula not in FORMULAS or not values or not all(map(math.isfinite, values)):
        raise LensError(f"glass {name!r}: no dispersion formula {formula} with the coefficients {values}")
    d, f, c = _covered(np.array([D_LINE_NM, F_LINE_NM, C_LINE_NM]), range_nm)
    vd = None
    if d and f and c:
        nd, abbe = abbe_number(formula, values)
        vd = abbe if math.isfinite(abbe) else None
    else:
        line = D_LINE_NM if range_nm is None else min(max(D_LINE_NM, range_nm[0]), range_nm[1])
        nd = float(refractive_index(formula, values, np.array(D_LINE_NM if d else line)))
        if not d:
            note = f"the data do not reach the d line; nd is the index at {line:g} nm"
    if not MIN_INDEX < nd <= MAX_INDEX:
        raise LensError(f"glass {name!r}: nd = {nd}; expected {MIN_INDEX:g} to {MAX_INDEX:g}. Check the coefficients")
    return Medium(name, nd, vd, formula, values, range_nm, catalogue, note)


def tabulated_glass(name: str, wavelengths_nm: Sequence[float], indices: Sequence[float]) -> Medium:
    """A glass known by its index at some wavelengths (nm), in any order.

    Between them the index is a cubic spline in λ⁻², in which dispersion is nearly straight; two points give
    Cauchy's n = A + B λ⁻², three a parabola in λ⁻², one a constant index. The range is that of the table.
    """
    if len(wavelengths_nm) != len(indices) or len(indices) == 0:
        raise LensError(
            f"glass {name!r}: {len(wavelengths_nm)} wavelengths for {len(indices)} indices; "
            "expected one index for each wavelength"
        )
    table = sorted(zip(map(float, wavelengths_nm), map(float, indices), strict=True))
    if not all(0.0 < w < math.inf and MIN_INDEX < n <= MAX_INDEX for w, n in table):
        raise LensError(
            f"glass {name!r}: expected positive wavelengths in nm and indices between {MIN_INDEX:g} and "
            f"{MAX_INDEX:g}, got {table}"
        )
    if len({w for w, _ in table}) < len(table):
        raise LensError(f"glass {name!r}: a wavelength occurs twice: {table}")
    if len(table) == 1:
        n, note = table[0][1], f"one index, at {table[0][0]:g} nm; taken for every wavelength"
        return Medium(name, n, None, CONSTANT, (n,), None, "table", note)
    coefficients = [value for row in table for value in row]
    return formula_glass(name, TABLE, coefficients, (table[0][0], table[-1][0]), catalogue="table")


def _covered(wavelength_nm: npt.NDArray[np.float64], range_nm: tuple[float, float] | None) -> npt.NDArray[np.bool_]:
    """Which wavelengths lie in the range, slack included."""
    low, high = range_nm or (0.0, math.inf)
    return (wavelength_nm >= low * (1.0 - RANGE_SLACK)) & (wavelength_nm <= high * (1.0 + RANGE_SLACK))
