"""Charts as plain SVG text: histograms with even or logarithmic bins, and horizontal bars.

Colours come from the page's style sheet (classes a, b, c for series), so that they follow its light or dark look.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

WIDTH, HEIGHT = 460.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 12.0, 14.0, 40.0
BINS = 32
DIGITS = 3  # of numbers, where no more are needed to tell them apart


def histogram(series: Mapping[str, Sequence[float]], label: str, *, log: bool = False) -> str:
    """Counts over values; the series (at most three) stand side by side. `log`: bins of equal ratios."""
    values = {name: np.asarray(v, float)[np.isfinite(v)] for name, v in series.items()}
    whole = np.concatenate(list(values.values())) if values else np.zeros(0)
    if log:
        whole = whole[whole > 0.0]
    if whole.size == 0:
        return '<p class="none">nothing to show</p>'
    low, high, ticks = _range(float(whole.min()), float(whole.max()), log)
    edges = np.geomspace(low, high, BINS + 1) if log else np.linspace(low, high, BINS + 1)
    digits, fine = (DIGITS, DIGITS) if log else (_digits(ticks) + 1, _digits(edges.tolist()))  # +1: steps of 2.5
    counts = {name: np.histogram(v, edges)[0] for name, v in values.items()}
    most = max(int(count.max()) for count in counts.values())
    top, steps = _steps(most)

    def x(value: float) -> float:
        part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(count: float) -> float:
        return HEIGHT - BOTTOM - count / top * (HEIGHT - TOP - BOTTOM)

    parts = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(s):.1f}" y2="{y(s):.1f}"/>' for s in steps]
    parts += [f'<text class="tick end" x="{LEFT - 6}" y="{y(s) + 3.5:.1f}">{_count(s)}</text>' for s in steps]
    for place, (name, count) in enumerate(counts.items()):
        for number in np.flatnonzero(count):
            begin, end = x(float(edges[number])), x(float(edges[number + 1]))
            wide = (end - begin - 0.8) / len(counts)
            left = begin + 0.4 + place * wide
            up = y(float(count[number]))
            ends = " to ".join(_number(float(edge), fine) for edge in edges[number : number + 2])
            told = f"{name}: {ends}: {count[number]:,}"
            parts.append(
                f'<rect class="{"abc"[place]}" x="{left:.1f}" y="{up:.1f}" width="{wide:.1f}" '
                f'height="{HEIGHT - BOTTOM - up:.1f}"><title>{html.escape(told)}</title></rect>'
            )
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    for tick in ticks:
        at = x(tick)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{base}" y2="{base + 4}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{base + 16}">{_number(tick, digits)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2.0
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 6}">{html.escape(label)}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="histogram of {html.escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def bars(rows: Sequence[tuple[str, int, str]]) -> str:
    """A bar for each (name, count, class), as rows of HTML."""
    most = max((count for _, count, _ in rows), default=1)
    made = [
        f'<div class="bar"><span class="name" title="{html.escape(name)}">{html.escape(name)}</span>'
        f'<span class="track"><i class="{kind}" style="width:{100.0 * count / most:.2f}%"></i></span>'
        f'<span class="count">{count:,}</span></div>'
        for name, count, kind in rows
    ]
    return f'<div class="bars">{"".join(made)}</div>'


def shares(parts: Mapping[str, float], unit: str = "") -> str:
    """One bar divided among the parts, with a key below."""
    total = sum(parts.values())
    if total <= 0.0:
        return ""
    pieces, key = [], []
    for place, (name, value) in enumerate(parts.items()):
        kind = f"s{place % 8}"
        told = f"{html.escape(name)} {_number(value)}{unit}"
        if value > 0.0:
            pieces.append(f'<i class="{kind}" style="width:{100.0 * value / total:.2f}%" title="{told}"></i>')
        key.append(f'<span><i class="{kind}"></i>{told}</span>')
    return f'<div class="shares">{"".join(pieces)}</div><div class="key">{"".join(key)}</div>'


def _range(low: float, high: float, log: bool) -> tuple[float, float, list[float]]:
    """Ends of the axis, rounded outwards, and its ticks."""
    if log:
        if high / low < 1.5:
            low, high = low / 1.3, high * 1.3
        low, high = low * 0.999, high * 1.001
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1.0,) if math.log10(high / low) > 3.5 else (1.0, 2.0, 5.0)
        ticks = [m * 10.0**p for p in powers for m in steps]
        ticks = ticks if sum(low <= tick <= high for tick in ticks) > 1 else even_ticks(low, high)
        return low, high, [tick for tick in ticks if low <= tick <= high]
    low = 0.0 if 0.0 <= low < 0.5 * high else low
    if high <= low:
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    ticks = even_ticks(low, high)
    return ticks[0], ticks[-1], ticks


def even_ticks(low: float, high: float, parts: int = 6) -> list[float]:
    """Round numbers, a step apart, from `low` or less to `high` or more: about so many steps."""
    step = _nice((high - low) / parts)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= step * (1.0 - 1e-9))


def _steps(most: int) -> tuple[float, list[float]]:
    step = max(1.0, _nice(most / 4.0))
    step = math.ceil(step)  # counts are whole
    number = max(1, math.ceil(most / step))
    return number * step, [n * step for n in range(number + 1)]


def _count(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def _digits(even: Sequence[float]) -> int:
    """So many tell numbers apart that lie a step apart."""
    step, most = even[1] - even[0], max(abs(even[0]), abs(even[-1]))
    return max(DIGITS, math.floor(math.log10(most)) - math.floor(math.log10(step)) + 1)


def _number(value: float, digits: int = DIGITS) -> str:
    text = f"{value:,.{digits}g}"
    return f"{float(text):,.{max(digits, 6)}g}" if "e" in text else text
