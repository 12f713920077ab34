"""Numbers as tables and pages write them."""

from __future__ import annotations

import math

NOTHING = "–"


def number_text(value: float, decimals: int, *, signed: bool = False) -> str:
    """With a true minus, infinity as a sign, what is unknown as a dash, and no sign before what is written as zero."""
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:z.{decimals}f}"
    plus = "+" if signed and float(text) > 0.0 else ""
    return plus + text.replace("-", "−")
