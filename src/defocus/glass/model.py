"""Model glass: a dispersion curve from (nd, vd) alone.

A patent gives two numbers for a glass. The medium made from them has exactly that index at the d line and
exactly that Abbe number. The rest of its curve is the normalised shape S(λ) = (n(λ) − n_d) / (n_F − n_C).
SCHOTT's normal line makes every partial dispersion, hence S(λ), linear in vd through the glasses K7 and F2:

    S_normal(λ; vd) = S_K7(λ) + w(vd) (S_F2(λ) − S_K7(λ)),    w = (vd_K7 − vd) / (vd_K7 − vd_F2).

Real glasses deviate from it, and neighbours in the (nd, vd) plane deviate alike: the nearest catalogue glass
g within the tolerances lends its deviation,

    S(λ) = S_g(λ) + [w(vd) − w(vd_g)] (S_F2(λ) − S_K7(λ)),

which is g's own shape when its vd is the wanted one. Without such a glass the normal line itself is taken.
docs/glass.md gives the errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import LensError
from .catalogue import Glass, load_catalogue
from .dispersion import K7_COEFFICIENTS, MODEL, normal_line_weight
from .medium import AIR, MAX_INDEX, Medium, constant_index

# Measured by leaving each maker's glasses out in turn: out to these limits a neighbour beats the normal line.
ND_TOLERANCE = 0.4
VD_TOLERANCE = 5.0
ND_UNIT, VD_UNIT = 0.1, 1.0  # what counts as one unit of distance; the deviations go more with vd than with nd
SECOND_CHOICE_PENALTY = 0.3  # units; by so much nearer must a withdrawn glass be, or one of LZOS
SAME_GLASS = (5e-4, 0.3)  # (nd, vd) differences up to which the note does not mention them

VD_RANGE = (10.0, 150.0)
NORMAL_LINE_RANGE_NM = (320.0, 2500.0)  # of the data for K7 and F2
DONOR_RANGE_NM = (410.0, 700.0)  # a glass whose data do not cover this lends nothing


@lru_cache(maxsize=65536)
def model_glass(
    nd: float, vd: float | None, *, nd_tolerance: float = ND_TOLERANCE, vd_tolerance: float = VD_TOLERANCE
) -> Medium:
    """A medium with this index at 587.5618 nm and this vd = (nd − 1)/(nF − nC).

    Its note names the source of the other partial dispersions. The nearest catalogue glass within both
    tolerances lends its partial dispersions; zero tolerances ask for the normal line. Without vd (None or 0)
    the index is constant; nd = 1 is air.
    """
    if nd == 1.0:
        return AIR
    if vd is None or vd == 0.0:
        return constant_index(nd)
    least, most = VD_RANGE
    if not 1.0 < nd <= MAX_INDEX or not least <= vd <= most:
        raise LensError(
            f"no glass has nd = {nd}, vd = {vd}: expected nd between 1 and {MAX_INDEX:g} and vd between "
            f"{least:g} and {most:g}. Check that the two numbers are not swapped or taken from another column"
        )
    nd, vd = float(nd), float(vd)
    name, head = f"{nd:.6g}:{vd:.6g}", (nd, (nd - 1.0) / vd)
    low, high = NORMAL_LINE_RANGE_NM
    glass = _nearest(nd, vd, nd_tolerance, vd_tolerance)
    if glass is None:
        normal = (*head, normal_line_weight(vd), 2.0, *K7_COEFFICIENTS)
        return Medium(name, nd, vd, MODEL, normal, (low, high), "model", "normal line")
    note = f"partial dispersion of {glass.name} ({glass.catalogue})"
    if abs(glass.nd - nd) > SAME_GLASS[0] or abs(glass.vd - vd) > SAME_GLASS[1]:
        note += f", whose nd differs by {glass.nd - nd:+.4f} and vd by {glass.vd - vd:+.2f}"
    tail = (normal_line_weight(vd) - normal_line_weight(glass.vd), float(glass.formula), *glass.coefficients)
    range_nm = (max(low, glass.range_nm[0]), min(high, glass.range_nm[1]))
    return Medium(name, nd, vd, MODEL, (*head, *tail), range_nm, "model", note)


class _Neighbours(NamedTuple):
    """Glasses that can lend their partial dispersions, by ascending vd."""

    glasses: tuple[Glass, ...]
    nd: npt.NDArray[np.float64]
    vd: npt.NDArray[np.float64]
    penalty: npt.NDArray[np.float64]  # units of distance


def _pack(glasses: Iterable[Glass]) -> _Neighbours:
    low, high = DONOR_RANGE_NM
    able = [g for g in glasses if g.range_nm[0] <= low and g.range_nm[1] >= high and g.vd > 0.0]
    ordered = tuple(sorted(able, key=lambda g: g.vd))
    penalty = [0.0 if g.current and g.catalogue != "lzos" else SECOND_CHOICE_PENALTY for g in ordered]
    return _Neighbours(ordered, *(np.array(v) for v in ([g.nd for g in ordered], [g.vd for g in ordered], penalty)))


@cache
def _neighbours() -> _Neighbours:
    return _pack(load_catalogue().glasses)


def _nearest(nd: float, vd: float, nd_tolerance: float, vd_tolerance: float) -> Glass | None:
    """The nearest glass within both tolerances; of equals, that of smaller vd, then the catalogue's first."""
    near = _neighbours()
    x, y = (near.nd - nd) / ND_UNIT, (near.vd - vd) / VD_UNIT
    fits = (np.abs(x) < nd_tolerance / ND_UNIT) & (near.vd >= vd - vd_tolerance) & (near.vd <= vd + vd_tolerance)
    distance = np.where(fits, np.hypot(x, y) + near.penalty, math.inf)
    best = int(distance.argmin())
    return near.glasses[best] if vd_tolerance > 0.0 and distance[best] < math.inf else None
