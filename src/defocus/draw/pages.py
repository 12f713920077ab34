"""Pages to look at in a browser: one file each, without foreign scripts, from the templates beside this module.

Whatever a page is given is escaped, except `Markup` and pictures as data URIs. Charts are SVG whose colours come from
the style sheet (classes a, b, c for series), so that they follow its light or dark look.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped, UInt8

from ..files.pictures import quantise

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

WIDTH, HEIGHT = 460.0, 230.0
LEFT, RIGHT, TOP, BASE = 46.0, WIDTH - 12.0, 24.0, HEIGHT - 40.0
BINS = 32


def page(template: str, **values: Any) -> str:
    """Text of a template with its values: HTML and SVG are escaped, Markdown and plain text are not."""
    return _environment().get_template(template).render(values)


def markdown_words(text: str) -> str:
    """A text from elsewhere, such as a name, for a line or a cell of Markdown: no HTML, link, emphasis or new line."""
    plain = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", plain)


def jpeg_uri(picture: np.ndarray, largest_px: int = 512, quality: int = 90) -> str:
    """JPEG copy of a picture as a data URI, reduced where it is larger; display values as floats of 0 to 1 or integers
    of 8 or 16 bits."""
    from PIL import Image

    image = Image.fromarray(eight_bits(picture))
    image.thumbnail((largest_px, largest_px), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, subsampling=0, optimize=True)
    return data_uri(buffer.getvalue(), "jpeg")


def data_uri(content: bytes, kind: str) -> str:
    """The content of a picture's file as an address that a page can hold."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def eight_bits(picture: Shaped[np.ndarray, "rows cols 3"]) -> UInt8[np.ndarray, "rows cols 3"]:
    """A picture as whole numbers of 8 bits: of display values 0..1, which are clipped, or of 8 or 16 bits."""
    if picture.dtype == np.uint16:
        return (picture >> 8).astype(np.uint8)
    return picture if picture.dtype == np.uint8 else quantise(np.asarray(picture, np.float32), 8)


@dataclass(frozen=True)
class _Plane:
    """The plane of a chart: values across from `low` to `high`, upwards from the first to the last of its rungs."""

    low: float
    high: float
    rungs: list[float]
    log: bool = False

    def across(self, value: float) -> float:
        """Place of a value in the SVG."""
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return LEFT + part * (RIGHT - LEFT)

    def up(self, value: float) -> float:
        return BASE - (value - self.rungs[0]) / (self.rungs[-1] - self.rungs[0]) * (BASE - TOP)

    def svg(self, label: str, rungs: Sequence[str], ticks: Mapping[float, str], **marks: Any) -> Markup:
        """The chart with its axes: the texts of all rungs and of ticks; `marks` are bars or lines, and a unit."""
        from markupsafe import Markup

        marks = {"bars": (), "lines": (), "unit": ""} | marks
        text = page(
            "chart.svg", label=label, width=WIDTH, height=HEIGHT, left=LEFT, right=RIGHT, top=TOP, base=BASE,
            rungs=[(round(self.up(value), 1), text) for value, text in zip(self.rungs, rungs, strict=True)],
            ticks=[(round(self.across(value), 1), text) for value, text in ticks.items()], **marks,
        )  # fmt: skip
        return Markup(text)


def _nothing() -> Markup:
    from markupsafe import Markup

    return Markup('<p class="none">nothing to show</p>')


def histogram(series: Mapping[str, Sequence[float]], label: str, *, log: bool = False) -> Markup:
    """SVG of counts over values; the series (at most three) stand side by side. `log`: bins of equal ratios."""
    values = {name: np.asarray(v, float)[np.isfinite(v)] for name, v in series.items()}
    finite = np.concatenate([*values.values(), np.zeros(0)])
    finite = finite[finite > 0.0] if log else finite
    if finite.size == 0:
        return _nothing()
    low, high, ticks = (_log_axis if log else _even_axis)(float(finite.min()), float(finite.max()))
    edges = np.geomspace(low, high, BINS + 1) if log else np.linspace(low, high, BINS + 1)
    counts = {name: np.histogram(v, edges)[0] for name, v in values.items()}
    plane = _Plane(low, high, even_ticks(0, max(int(n.max()) for n in counts.values()), 4, whole=True), log)

    def number(value: float, step: float) -> str:
        return tick_text(value, value / 10.0 if log else step)

    bars = []
    for place, (name, count) in enumerate(counts.items()):
        for bin_ in np.flatnonzero(count):
            ends = [float(edge) for edge in edges[bin_ : bin_ + 2]]
            wide = (plane.across(ends[1]) - plane.across(ends[0]) - 0.8) / len(counts)
            x, y = plane.across(ends[0]) + 0.4 + place * wide, round(plane.up(float(count[bin_])), 1)
            words = f"{name}: {' to '.join(number(end, (high - low) / BINS) for end in ends)}: {count[bin_]:,}"
            bars.append(("abc"[place], round(x, 1), y, round(wide, 1), round(BASE - y, 1), words))
    rungs = [f"{rung / 1000:g}k" if rung >= 10_000 else f"{rung:g}" for rung in plane.rungs]
    return plane.svg(label, rungs, {tick: number(tick, ticks[1] - ticks[0]) for tick in ticks}, bars=bars)


def curves(
    lines: Sequence[tuple[str, str, Sequence[float], Sequence[float]]],
    label: str,
    unit: str,
    *,
    low: float | None = None,
    ticks: Sequence[float] | None = None,
) -> Markup:
    """SVG of lines over a common axis: name, class, x and y of each. `low`: where the upright axis begins."""
    finite = [value for *_, ys in lines for value in ys if math.isfinite(value)]
    if not finite:
        return _nothing()
    bottom, top = min(finite) if low is None else low, max(finite)
    if top - bottom < 0.01:  # one value: not the steps of its rounding
        bottom, top = bottom - 0.5 * (low is None), top + 0.5
    ticks = ticks or even_ticks(min(min(xs) for _, _, xs, _ in lines), max(max(xs) for _, _, xs, _ in lines), 5)
    plane = _Plane(ticks[0], ticks[-1], even_ticks(bottom, top, 3))
    polylines = [
        (
            name,
            kind,
            " ".join(
                f"{plane.across(x):.1f},{plane.up(y):.1f}" for x, y in zip(xs, ys, strict=True) if math.isfinite(y)
            ),
        )
        for name, kind, xs, ys in lines
    ]
    rungs = [f"{value:.6g}" for value in plane.rungs]
    return plane.svg(label, rungs, {value: f"{value:.6g}" for value in ticks}, lines=polylines, unit=unit)


def even_ticks(low: float, high: float, parts: int = 6, *, whole: bool = False) -> list[float]:
    """Round numbers a step apart, from `low` or less to `high` or more: at most about so many steps."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(parts, steps=[1, 2, 2.5, 5, 10], integer=whole)
    ticks = locator.tick_values(low, high)
    step = float(ticks[1] - ticks[0])
    return [round(float(tick) / step) * step for tick in ticks]  # zero is zero


def tick_text(value: float, step: float = 0.0) -> str:
    """A number with as many decimals as tell it from one that lies a step apart; without a step, three digits."""
    step = step or abs(value) / 10.0 or 1.0
    decimals = max(0, 1 - math.floor(math.log10(step) + 1e-9))  # one more than the step's own: it may be 2.5
    text = f"{round(value, decimals) + 0.0:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _even_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Ends of the axis, rounded outwards, and its ticks."""
    low = 0.0 if 0.0 <= low < 0.5 * high else low
    if high <= low:
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    ticks = even_ticks(low, high)
    return ticks[0], ticks[-1], ticks


def _log_axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Ends of a logarithmic axis, and its ticks: powers of ten, and 2 and 5 times them where there is room."""
    if high / low < 1.5:
        low, high = low / 1.3, high * 1.3
    low, high = low * 0.999, high * 1.001
    steps = (1.0,) if math.log10(high / low) > 3.5 else (1.0, 2.0, 5.0)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**p for p in powers for m in steps if low <= m * 10.0**p <= high]
    if len(ticks) < 2:
        ticks = [tick for tick in even_ticks(low, high) if low <= tick <= high]
    return low, high, ticks


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=select_autoescape(("html", "svg")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["words"] = markdown_words
    environment.filters["unmarked"] = lambda text: html.escape(text, quote=False).replace("[", "\\[")
    environment.filters["thousands"] = lambda value: f"{value:,}"
    environment.filters["digits"] = tick_text
    environment.filters["g"] = lambda value: f"{value:g}"
    environment.filters["percent"] = lambda value, decimals=0: f"{value:.{decimals}%}"
    return environment
