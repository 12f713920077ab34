"""The focus ring of the page: a scale of ratios from the nearest distance to the farthest, and infinity at its end."""

from __future__ import annotations

import math

from ..errors import DefocusError

NEAREST_M, FARTHEST_M = 0.2, 100.0
END = 100.0  # of the ring: infinity


def focus_of_ring(ring: float) -> float:
    """Distance in metres of a place of the ring, 0 to 100."""
    if ring >= END:
        return math.inf
    return float(f"{NEAREST_M * (FARTHEST_M / NEAREST_M) ** (ring / END):.3g}")


def ring_of_focus(focus_m: float) -> float:
    """Place of the ring for a distance in metres."""
    if math.isinf(focus_m):
        return END
    at = END * math.log(max(focus_m, NEAREST_M) / NEAREST_M) / math.log(FARTHEST_M / NEAREST_M)
    return round(min(at, END - 0.5), 1)


def focus_of_text(text: str) -> float:
    """Distance in metres that a visitor wrote."""
    try:
        value = float(str(text).strip().removesuffix("m").strip().replace(",", ".").replace("∞", "inf"))
    except ValueError:
        value = math.nan
    if not value > 0.0:
        raise DefocusError(f"focus distance {text!r}; expected metres, such as 2.4, or inf")
    return value


def text_of_focus(focus_m: float) -> str:
    """A distance as it stands in its box."""
    return "inf" if math.isinf(focus_m) else f"{focus_m:.4g}"
