"""The report of a data set: one HTML page that needs nothing else, to look at the pairs and at their statistics."""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DatasetError, PlanError
from ..files.stores import open_store
from .card import made_in_words
from .charts import bars, histogram, shares
from .contact_sheet import VIEWER, contact_sheet
from .folder import PairFolder, open_folder
from .metadata import REPORT, Record, largest_blur_px
from .places import placeless, without_places
from .plan import SPLITS, Plan, make_plan, plan_difference
from .reasons import merged_reasons
from .report_style import SCRIPT, STYLE

LENSES = 48


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page to `out` (without it: report.html in the folder) and say where it is."""
    if out is None:
        if "://" in str(folder):
            raise DatasetError("not a folder of this machine: say where to write the page (--out)", file=folder)
        out = Path(folder) / REPORT
    out = Path(out)
    opened = open_folder(folder)
    try:
        page = report_html(opened)
    finally:
        opened.close()
    open_store(out.absolute().parent).write(out.name, page.encode())
    return out


def report_html(opened: PairFolder) -> str:
    """The page as text."""
    numbers = _Numbers()
    for record in opened.records():
        numbers.take(record)
    if not numbers.ids:
        raise DatasetError("there are no pairs to report on yet", file=opened.store.root)
    plan = _plan(opened.plan)
    name = str(opened.plan.get("name", "pairs"))
    bits, layout = opened.plan["output"]["bits"], opened.plan["output"]["layout"]
    splits = ", ".join(f"{numbers.splits[s]:,} {s}" for s in SPLITS if numbers.splits[s])
    body = [
        '<p class="kicker">Defocus · data set</p>',
        f"<h1>{html.escape(name)}</h1>",
        f'<p class="lead">{splits} · {numbers.side}×{numbers.side} pixels · {bits}-bit PNG · layout {layout}</p>',
        _tiles(opened, numbers),
        contact_sheet(opened, numbers.ids),
        _distributions(numbers),
        _lenses(numbers),
        _candidates(opened),
        _runs(opened),
        _plan_part(opened.plan, plan),
        "<footer>Written by <code>defocus synth report</code>. Pictures in this page are JPEG copies; the data set's "
        "own are lossless.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(name)} · Defocus</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(part for part in body if part)
        + f"</main>{VIEWER}<script>{SCRIPT}</script></body></html>\n"
    )


@dataclass
class _Numbers:
    """What the charts need of the records, which are not kept."""

    ids: list[str] = field(default_factory=list)
    blur_px: list[float] = field(default_factory=list)
    focus_m: list[float] = field(default_factory=list)
    nearest_m: list[float] = field(default_factory=list)
    farthest_m: list[float] = field(default_factory=list)
    field_radius: list[float] = field(default_factory=list)
    f_number: list[float] = field(default_factory=list)
    layers: list[float] = field(default_factory=list)
    lenses: Counter[tuple[str, str]] = field(default_factory=Counter)
    images: set[str] = field(default_factory=set)
    splits: Counter[str] = field(default_factory=Counter)
    size: int = 0
    side: int = 0

    def take(self, record: Record) -> None:
        self.ids.append(record["id"])
        self.blur_px.append(largest_blur_px(record))
        self.focus_m.append(record["focus_m"])
        self.nearest_m.append(record["depth_m"][0])
        self.farthest_m.append(record["depth_m"][1])
        self.field_radius.append(math.hypot(*record["field"]))
        self.f_number.append(record["f_number"])
        self.layers.append(len(record.get("layer_depth_m", ())))
        self.lenses[record["lens"], record["split"]] += 1
        self.images.add(record["source"])
        self.splits[record["split"]] += 1
        self.size += sum(about["bytes"] for about in record["files"].values())
        self.side = record["patch_px"]


def _tiles(opened: PairFolder, numbers: _Numbers) -> str:
    lenses = {lens for lens, _ in numbers.lenses}
    tiles = [
        (f"{len(numbers.ids):,}", "pairs"),
        (f"{len(lenses):,}", "lenses"),
        (f"{len(numbers.images):,}", "images"),
        (f"{np.median(numbers.blur_px):.1f} px", "largest blur radius, median"),
        (_bytes(numbers.size), "of pictures"),
    ]
    if opened.ledger is not None:
        tiles.insert(1, (f"{sum(opened.ledger.counts().values()):,}", "candidates drawn"))
        best = max((_speed(run) or 0.0 for run in opened.ledger.runs()), default=0.0)
        tiles += [(_rate(best), "in the fastest run")] if best else []
    return '<div class="tiles">' + "".join(f"<div><b>{a}</b><span>{b}</span></div>" for a, b in tiles) + "</div>"


def _distributions(n: _Numbers) -> str:
    depth_key = (
        '<div class="key"><span><i class="a"></i>nearest</span><span><i class="b"></i>farthest of a patch</span></div>'
    )
    charts = [
        ("Blur", "largest radius of the circle of confusion", histogram({"pairs": n.blur_px}, "pixels"), ""),
        ("Focus distance", "", histogram({"pairs": n.focus_m}, "metres", log=True), ""),
        ("Depth", "", histogram({"nearest": n.nearest_m, "farthest": n.farthest_m}, "metres", log=True), depth_key),
        ("Field", "distance from the middle", histogram({"pairs": n.field_radius}, "of the image radius"), ""),
        ("Aperture", "", histogram({"pairs": n.f_number}, "f-number"), ""),
        ("Depth layers", "", histogram({"pairs": n.layers}, "layers of a pair"), ""),
    ]
    boxes = [
        f'<div class="box"><h3>{title}{f"<small>{words}</small>" if words else ""}</h3>{chart}{key}</div>'
        for title, words, chart, key in charts
    ]
    return f'<h2>Distributions</h2><p>Of all pairs.</p><div class="charts">{"".join(boxes)}</div>'


def _lenses(n: _Numbers) -> str:
    order = n.lenses.most_common()
    kinds: dict[str, str] = dict(zip(SPLITS, "abc", strict=True))
    rows = [(lens, count, kinds.get(split, "a")) for (lens, split), count in order[:LENSES]]
    key = "".join(f'<span><i class="{kinds[s]}"></i>{s}</span>' for s in SPLITS if n.splits[s])
    rest = f"The {LENSES} most used of {len(order):,}. " if len(order) > LENSES else ""
    few = [count for _, count in order]
    told = f"{rest}Pairs of each lens: from {min(few):,} to {max(few):,}, median {np.median(few):,.0f}."
    return f'<h2>Lenses</h2><p>{told}</p><div class="box">{bars(rows)}<div class="key">{key}</div></div>'


def _candidates(opened: PairFolder) -> str:
    if opened.ledger is None:
        return ""
    counts = opened.ledger.counts()
    words = {
        "done": "made into pairs",
        "spare": "spare (less sharp)",
        "drawn": "not made yet",
        "rejected": "rejected",
        "failed": "failed",
    }
    bar = shares({words[status]: counts[status] for status in words if counts.get(status)})
    rows = merged_reasons((placeless(text, opened.plan), n) for text, n in opened.ledger.reasons().items())
    table = (
        '<div class="scroll"><table><tr><th>Reason</th><th class="n">Candidates</th></tr>'
        + "".join(
            f'<tr><td title="{html.escape(example)}">{html.escape(text)}</td><td class="n">{count:,}</td></tr>'
            for text, count, example in rows
        )
        + "</table></div>"
        if rows
        else '<p class="none">None was rejected, none failed.</p>'
    )
    return (
        "<h2>Candidates</h2><p>What became of every patch that was drawn, and why some were not made; n stands for "
        f'numbers that differ.</p><div class="box stack"><div>{bar}</div>{table}</div>'
    )


def _runs(opened: PairFolder) -> str:
    runs = opened.ledger.runs() if opened.ledger is not None else []
    if not runs:
        return ""
    rows = []
    for run in runs:
        began = datetime.fromtimestamp(run["started"], UTC).strftime("%Y-%m-%d %H:%M UTC")
        workers = f"{run['workers']} worker{'s' * (run['workers'] != 1)}"
        speed = _speed(run)
        took = _duration(run["ended"] - run["started"]) if run["ended"] else "stopped"
        rate = _rate(speed) if speed else "–"
        pairs = f"{run['pairs']:,}" if run["ended"] else "–"  # a killed run did not tell
        stages = dict(sorted(run["seconds"].items(), key=lambda item: -item[1]))
        rows.append(
            f"<tr><td>{began}</td><td>{html.escape(run['engine'])}, {workers}"
            f'<br><span class="none">{html.escape(run["device"])}</span></td><td class="n">{pairs}</td>'
            f'<td class="n">{took}</td><td class="n">{rate}</td>'
            f'<td style="min-width:340px">{shares(stages, " s")}</td></tr>'
        )
    return (
        "<h2>Throughput</h2><p>Of each run; the stages of all workers are added, so that their sum may exceed the time "
        'passed.</p><div class="box scroll"><table><tr><th>Began</th><th>Where</th><th class="n">Pairs</th>'
        f'<th class="n">Time</th><th class="n">Speed</th><th>Seconds by stage</th></tr>{"".join(rows)}</table></div>'
    )


def _plan(given: dict[str, Any]) -> Plan | None:
    """The plan; None if it is of a version that this program does not read."""
    try:
        return make_plan(given)
    except PlanError:
        return None


def _plan_part(given: dict[str, Any], plan: Plan | None) -> str:
    words, changes = "", ""
    if plan is not None:
        words = "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in made_in_words(plan)) + "</ul>"
        given = without_places(plan.as_json())
        told = plan_difference(make_plan({}).as_json(), given)
        rows = "".join(f"<li><code>{html.escape(line)}</code></li>" for line in told)
        changes = f"<div><h3>Other than the paper's settings</h3><ul>{rows}</ul></div>" if told else ""
    whole = html.escape(json.dumps(given, indent=1))
    return (
        f'<h2>Plan</h2><p>How the pairs were made.</p><div class="box stack">{words}{changes}'
        f"<details><summary>The whole plan</summary><pre>{whole}</pre></details></div>"
    )


def _speed(run: Mapping[str, Any]) -> float | None:
    """Pairs a second; None of a run that was stopped."""
    if not run["ended"] or run["ended"] <= run["started"]:
        return None
    return float(run["pairs"] / (run["ended"] - run["started"]))


def _rate(speed: float) -> str:
    return f"{speed:.3g} pairs/s" if speed >= 1.0 else f"{60.0 * speed:.3g} pairs/min"


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000.0:
            return f"{size:.3g} {unit}"
        size /= 1000.0
    return f"{size:.3g} GB"
