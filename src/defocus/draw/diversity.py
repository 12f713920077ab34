"""The diversity of a lens collection: what the survey kept, what it rejected, and why.

Focal length against stop radius, and the three third-order aberrations, are the paper's diversity figure; its
three-dimensional scatter plot is shown here as the three projections of it, which can be read.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from ..survey.lens_folder import Status, SurveyRow
from . import style

KINDS = {"interchangeable": (style.BLUE, "o"), "phone": (style.ORANGE, "^"), "": (style.FAINT, "s")}
ABERRATIONS = (
    ("tsc_mm", "spherical aberration TSC (mm)"),
    ("cc_mm", "tangential coma CC (mm)"),
    ("tac_mm", "astigmatism TAC (mm)"),
)
LINEAR = 1e-3  # mm; aberrations are drawn linearly below this, logarithmically above
REASONS = (  # how a reason begins, and what it is called
    ("focal_length_mm ", "focal length not positive"),
    ("f_number ", "F-number too large"),
    ("image_radius_mm ", "neither interchangeable nor phone"),
    ("na ", "numerical aperture too large"),
    ("phase_range_axis_waves ", "wavefront range on the axis"),
    ("phase_range_edge_waves ", "wavefront range at the edge"),
    ("axial_rms ", "axial spot too large"),
    ("no light on the axis", "no light on the axis"),
    ("no light at the edge", "no light at the edge"),
    ("no chief ray at the edge", "no chief ray at the edge"),
)


def draw_diversity(rows: Sequence[SurveyRow]) -> list[tuple[str, Figure]]:
    """Figures of a survey, each with a name that can serve as a file name. Rows that were not read count too."""
    return [
        ("focal_length_and_stop", _focal_length_and_stop(rows)),
        ("aberrations", _aberrations(rows)),
        ("reasons", _reasons(rows)),
    ]


@style.look()
def _focal_length_and_stop(rows: Sequence[SurveyRow]) -> Figure:
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    axes = figure.add_subplot()
    if _scatter(axes, rows, "focal_length_mm", "stop_radius_mm", positive=True):
        axes.set(xscale="log", yscale="log")
        axes.legend(handles=_handles(rows), loc="upper left", frameon=True, framealpha=0.9, edgecolor="none")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="focal length (mm)", ylabel="stop radius (mm)")
    axes.grid(True, color=style.GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(_summary(rows), loc="left", fontsize=style.NORMAL)
    return figure


@style.look()
def _aberrations(rows: Sequence[SurveyRow]) -> Figure:
    figure = Figure(figsize=(11.5, 4.4), layout="constrained")
    reach = {name: _reach(rows, name) for name, _ in ABERRATIONS}
    for panel, ((x, x_label), (y, y_label)) in enumerate(itertools.combinations(ABERRATIONS, 2)):
        axes = figure.add_subplot(1, 3, panel + 1)
        _scatter(axes, rows, x, y, reach=(reach[x], reach[y]))
        for axis, name in ((axes.xaxis, x), (axes.yaxis, y)):
            _set_symlog(axes, axis, reach[name])
        axes.axhline(0.0, color=style.FRAME, linewidth=0.7, zorder=0)
        axes.axvline(0.0, color=style.FRAME, linewidth=0.7, zorder=0)
        axes.tick_params(axis="x", rotation=45)
        axes.set(xlabel=x_label, ylabel=y_label)
    title = f"third-order aberrations at full aperture and field; linear within ±{LINEAR:g} mm"
    beyond = sum(any(abs(getattr(row.measurement, name)) > reach[name] for name in reach) for row in rows)
    title += f"; {beyond} lens{'es' * (beyond > 1)} beyond the axes, drawn on the border" if beyond else ""
    figure.suptitle(title, x=0.01, ha="left", fontsize=style.NORMAL)
    figure.legend(handles=_handles(rows), loc="outside lower center", ncols=6)
    return figure


def _reach(rows: Sequence[SurveyRow], name: str) -> float:
    """How far an axis of aberrations goes: over every lens that was kept, and all others but the strange ones.

    Systems that are no photographic lenses, afocal ones above all, have aberrations of up to 1e12 mm.
    """
    sizes = {row.file: abs(getattr(row.measurement, name)) for row in rows}
    kept = [sizes[row.file] for row in rows if row.status == "kept" and math.isfinite(sizes[row.file])]
    every = [size for size in sizes.values() if math.isfinite(size)]
    usual = 100.0 * float(np.median(every)) if every else 0.0
    return max([10.0 * LINEAR, *kept, *(size for size in every if size <= usual)])


def _set_symlog(axes: Axes, axis: Axis, largest: float) -> None:
    """Give an axis a scale that is linear near zero, limits around ±largest, and ticks at 0 and powers of ten."""
    low, top = round(math.log10(LINEAR)), math.floor(math.log10(largest))
    powers = [10.0**k for k in range(low, top + 1, (top - low) // 4 + 1)]
    is_x = axis is axes.xaxis
    (axes.set_xscale if is_x else axes.set_yscale)("symlog", linthresh=LINEAR, linscale=1.0)
    (axes.set_xlim if is_x else axes.set_ylim)(-2.0 * largest, 2.0 * largest)
    axis.set_ticks([*(-p for p in reversed(powers)), 0.0, *powers])
    axis.set_major_formatter(lambda value, _: style.minus(f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _markers(category: str, *, filled: bool) -> dict[str, Any]:
    """How lenses of a category look: filled where the survey kept them, hollow where it rejected them."""
    colour, marker = KINDS[category]
    return {"linestyle": "none", "marker": marker, "color": colour, "markerfacecolor": colour if filled else "none"}


def _scatter(
    axes: Axes,
    rows: Sequence[SurveyRow],
    x: str,
    y: str,
    *,
    positive: bool = False,
    reach: tuple[float, float] = (math.inf, math.inf),
) -> int:
    """Draw two numbers of the survey against each other, rejected lenses behind, and return how many are shown.

    What lies beyond ±`reach` is drawn a little outside it.
    """
    count = 0
    for (zorder, status), category in itertools.product(enumerate(("rejected", "kept"), 2), KINDS):
        members = [row.measurement for row in rows if (row.status, row.category) == (status, category)]
        points = np.array([(getattr(m, x), getattr(m, y)) for m in members]).reshape(-1, 2)
        points = points[np.all(np.isfinite(points) & ((points > 0.0) | (not positive)), axis=1)]
        points = np.clip(points, -1.5 * np.array(reach), 1.5 * np.array(reach))
        count += len(points)
        look = _markers(category, filled=status == "kept")
        edge = 0.0 if status == "kept" else 0.7
        axes.plot(*points.T, markersize=4.5, alpha=0.65, markeredgewidth=edge, zorder=zorder, **look)
    return count


def _handles(rows: Sequence[SurveyRow]) -> list[Line2D]:
    """Legend entries of what there is, with counts."""
    counts = Counter[tuple[str, str]]((row.category, row.status) for row in rows)
    return [
        Line2D([], [], markersize=5, label=f"{category or 'neither'}, {status} ({count})", **look)
        for category in KINDS
        for status in ("kept", "rejected")
        if (count := counts[category, status]) and (look := _markers(category, filled=status == "kept"))
    ]


def _summary(rows: Sequence[SurveyRow]) -> str:
    counts = Counter(row.status for row in rows)
    parts = [f"{counts[status]} {status}" for status in get_args(Status) if counts[status]]
    return f"{len(rows)} lenses: {', '.join(parts)}" if parts else "no lenses"


def reason_kind(row: SurveyRow, reason: str) -> str:
    """What a reason of the survey is about, without its numbers."""
    kinds = {"unsupported": "not a lens that is simulated", "unreadable": "file cannot be read"}
    if row.status in kinds:
        return kinds[row.status]
    return next((kind for start, kind in REASONS if f"{reason} ".startswith(start)), "cannot be traced")


@style.look()
def _reasons(rows: Sequence[SurveyRow]) -> Figure:
    """How many lenses each criterion rejected; a lens that failed several counts in each."""
    counts = Counter(kind for row in rows for kind in {reason_kind(row, reason) for reason in row.reasons})
    bars = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    figure = Figure(figsize=(7.6, 1.3 + 0.3 * max(len(bars), 1)), layout="constrained")
    axes = figure.add_subplot()
    lengths = axes.barh([kind for kind, _ in bars], [count for _, count in bars], color=style.BLUE, height=0.65)
    axes.bar_label(lengths, padding=3, fontsize=style.SMALL)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("lenses that failed the criterion (a lens may fail several)")
    axes.set_title(_summary(rows), loc="left", fontsize=style.NORMAL)
    if not bars:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no lens was rejected", transform=axes.transAxes, ha="center", va="center")
    return figure
