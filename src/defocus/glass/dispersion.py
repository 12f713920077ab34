"""Dispersion formulas: refractive index as a function of the wavelength.

Formulas 1 to 9 are those of refractiveindex.info ("Dispersion formulas", M. N. Polyanskiy); λ is in
micrometres and c0, c1, ... are the coefficients:

    1  Sellmeier        n² = 1 + c0 + Σ c_i λ² / (λ² − c_{i+1}²)
    2  Sellmeier-2      n² = 1 + c0 + Σ c_i λ² / (λ² − c_{i+1})
    3  polynomial       n² = c0 + Σ c_i λ^c_{i+1}
    4  RefractiveIndex.INFO
                        n² = c0 + Σ_{i=1,5} c_i λ^c_{i+1} / (λ² − c_{i+2}^c_{i+3}) + Σ_{i≥9} c_i λ^c_{i+1}
    5  Cauchy           n  = c0 + Σ c_i λ^c_{i+1}
    6  gases            n  = 1 + c0 + Σ c_i / (c_{i+1} − λ⁻²)
    7  Herzberger       n  = c0 + c1 / (λ² − 0.028) + c2 / (λ² − 0.028)² + c3 λ² + c4 λ⁴ + c5 λ⁶
    8  retro            (n² − 1) / (n² + 2) = c0 + c1 λ² / (λ² − c2) + c3 λ²
    9  exotic           n² = c0 + c1 / (λ² − c2) + c3 (λ − c4) / ((λ − c4)² + c5)

Three more serve the rest of this package:

    0  constant         n = c0
    10 table            cubic spline in λ⁻² through (c0, c1), (c2, c3), ...: wavelength in nm, index
    11 model            n = c0 + c1 [S'(λ) + c2 (S_F2(λ) − S_K7(λ))], S' of formula c3 with c4, c5, ...

with the normalised shape S(λ) = (n(λ) − n(d)) / (n(F) − n(C)) of a glass. In formula 11, c0 is the index at
the d line and c1 the principal dispersion n(F) − n(C), whatever the other coefficients: S' and its correction
are 0 at the d line, and S'(F) − S'(C) = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

D_LINE_NM = 587.5618  # helium
F_LINE_NM = 486.1327  # hydrogen
C_LINE_NM = 656.2725  # hydrogen
G_LINE_NM = 435.8343  # mercury
H_LINE_NM = 404.6561  # mercury
R_LINE_NM = 706.5188  # helium

CONSTANT, TABLE, MODEL = 0, 10, 11

# SCHOTT, data sheets of 2017: formula 2 for the two glasses that define the normal line.
K7_COEFFICIENTS = (0.0, 1.1273555, 0.00720341707, 0.124412303, 0.0269835916, 0.827100531, 100.384588)
F2_COEFFICIENTS = (0.0, 1.34533359, 0.00997743871, 0.209073176, 0.0470450767, 0.937357162, 111.886764)

Array = npt.NDArray[np.float64]


def refractive_index(formula: int, coefficients: Sequence[float], wavelength_nm: Array) -> Array:
    """Index of refraction at the wavelengths (nm, any shape); no check of the formula's range."""
    return FORMULAS[formula](coefficients, wavelength_nm / 1000.0)


def abbe_number(formula: int, coefficients: Sequence[float]) -> tuple[float, float]:
    """(n_d, v_d) of a formula; v_d = (n_d − 1) / (n_F − n_C) is infinite without dispersion."""
    n_d, n_f, n_c = refractive_index(formula, coefficients, _D_F_C)
    return float(n_d), float((n_d - 1.0) / (n_f - n_c)) if n_f != n_c else float("inf")


def normal_line_weight(vd: float) -> float:
    """Share of F2 in the normal line's shape at the Abbe number vd: 0 at K7, 1 at F2."""
    vd_k7, vd_f2 = _normal_line_ends()
    return (vd_k7 - vd) / (vd_k7 - vd_f2)


@lru_cache(maxsize=1)
def _normal_line_ends() -> tuple[float, float]:
    return abbe_number(2, K7_COEFFICIENTS)[1], abbe_number(2, F2_COEFFICIENTS)[1]


_D_F_C = np.array([D_LINE_NM, F_LINE_NM, C_LINE_NM])


def _pairs(c: Sequence[float], start: int = 1) -> list[tuple[float, float]]:
    return list(zip(c[start::2], c[start + 1 :: 2], strict=False))


def _constant(c: Sequence[float], um: Array) -> Array:
    return np.full_like(um, c[0])


def _sellmeier(c: Sequence[float], um: Array) -> Array:
    return _sellmeier_2([c[0], *(value for b, l in _pairs(c) for value in (b, l * l))], um)


def _sellmeier_2(c: Sequence[float], um: Array) -> Array:
    w2 = um**2
    return np.sqrt(1.0 + c[0] + sum(b * w2 / (w2 - l2) for b, l2 in _pairs(c)))


def _polynomial(c: Sequence[float], um: Array) -> Array:
    return np.sqrt(c[0] + sum(a * um**p for a, p in _pairs(c)))


def _refractiveindex_info(c: Sequence[float], um: Array) -> Array:
    n2 = np.full_like(um, c[0])
    for i in range(1, min(len(c), 9), 4):
        b, p, l, q = (*c[i : i + 4], 0.0, 0.0, 0.0)[:4]
        n2 = n2 + b * um**p / (um**2 - l**q)
    return np.sqrt(n2 + sum(a * um**p for a, p in _pairs(c, 9)))


def _cauchy(c: Sequence[float], um: Array) -> Array:
    return c[0] + sum((a * um**p for a, p in _pairs(c)), np.zeros_like(um))


def _gases(c: Sequence[float], um: Array) -> Array:
    return 1.0 + c[0] + sum((a / (b - um**-2) for a, b in _pairs(c)), np.zeros_like(um))


def _herzberger(c: Sequence[float], um: Array) -> Array:
    l = 1.0 / (um**2 - 0.028)
    c0, c1, c2, *rest = (*c, 0.0, 0.0)[: max(3, len(c))]
    return c0 + c1 * l + c2 * l**2 + sum(a * um ** (2 * k) for k, a in enumerate(rest, start=1))


def _retro(c: Sequence[float], um: Array) -> Array:
    c0, c1, c2, c3 = (*c, 0.0, 0.0, 0.0)[:4]
    t = c0 + c1 * um**2 / (um**2 - c2) + c3 * um**2
    return np.sqrt((1.0 + 2.0 * t) / (1.0 - t))


def _exotic(c: Sequence[float], um: Array) -> Array:
    c0, c1, c2, c3, c4, c5 = (*c, 0.0, 0.0, 0.0, 0.0, 0.0)[:6]
    resonance = c3 * (um - c4) / ((um - c4) ** 2 + c5) if c3 else 0.0
    return np.sqrt(c0 + c1 / (um**2 - c2) + resonance)


def _table(c: Sequence[float], um: Array) -> Array:
    return np.full_like(um, c[1]) if len(c) == 2 else _spline(tuple(c))(um**-2)


@lru_cache(maxsize=256)
def _spline(table: tuple[float, ...]) -> Callable[[Array], Array]:
    """The index as a function of λ⁻² (µm⁻²): straight through two points, a parabola through three."""
    from scipy.interpolate import CubicSpline  # slow to import, and few lenses have tables

    wavelength, index = np.array(sorted(zip(table[0::2], table[1::2], strict=True), reverse=True)).T
    return CubicSpline((wavelength / 1000.0) ** -2, index)


def _shape(formula: int, coefficients: tuple[float, ...], um: Array) -> Array:
    """(n(λ) − n_d) / (n_F − n_C)."""
    n_d, dispersion = _principal(formula, coefficients)
    return (refractive_index(formula, coefficients, um * 1000.0) - n_d) / dispersion


@lru_cache(maxsize=4096)
def _principal(formula: int, coefficients: tuple[float, ...]) -> tuple[float, float]:
    n_d, n_f, n_c = refractive_index(formula, coefficients, _D_F_C)
    return float(n_d), float(n_f - n_c)


def _model(c: Sequence[float], um: Array) -> Array:
    shape = _shape(int(c[3]), tuple(c[4:]), um)
    if c[2] != 0.0:
        shape = shape + c[2] * (_shape(2, F2_COEFFICIENTS, um) - _shape(2, K7_COEFFICIENTS, um))
    return c[0] + c[1] * shape


FORMULAS: dict[int, Callable[[Sequence[float], Array], Array]] = {
    CONSTANT: _constant,
    1: _sellmeier,
    2: _sellmeier_2,
    3: _polynomial,
    4: _refractiveindex_info,
    5: _cauchy,
    6: _gases,
    7: _herzberger,
    8: _retro,
    9: _exotic,
    TABLE: _table,
    MODEL: _model,
}
