"""The report of a data set: one HTML page that needs nothing else, to look at the pairs and at their statistics."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..draw.pages import histogram, jpeg_uri, page
from ..errors import DatasetError, OwnershipError, PlanError
from ..files.ownership import OwnedFolder, read_mark
from ..files.pair_folders import Record
from ..files.settings import settings_difference
from ..files.stores import open_store, write_file
from .folder import KIND, PairFolder, open_folder
from .ledger import merged_reasons
from .metadata import REPORT, PairStatistics, both_pictures, bytes_text, largest_blur_px, plan_in_words
from .places import placeless, without_places
from .plan import SPLITS, make_plan
from .recipe import pair_id

SHEET_PAIRS = 64
LENSES = 48
_FATES = {
    "done": "made into pairs",
    "spare": "spare (less sharp)",
    "drawn": "not made yet",
    "rejected": "rejected",
    "failed": "failed",
}


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page to `out` (without it: report.html in the folder) and return its path."""
    if out is None:
        if "://" in str(folder):
            raise DatasetError("not a folder of this machine: say where to write the page (--out)", file=folder)
        out = Path(folder) / REPORT
        marked = read_mark(open_store(folder)) is not None  # a copy may lack its hidden files
        files = OwnedFolder(folder, KIND) if marked else None
        if out.exists() and (files is None or not files.owns(REPORT)):
            raise OwnershipError("is not the page that was written here: move it away, or name another", file=out)
    else:
        out, files = Path(out), None
    with open_folder(folder) as pairs:
        try:
            text = report_html(pairs)
        except (sqlite3.Error, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise DatasetError(
                f"its plan or a record is damaged ({reason}): `defocus synth verify` says more", file=folder
            ) from error
    if files is not None:
        files.write(REPORT, text.encode())
    else:
        write_file(out, text.encode())
    return out


def report_html(folder: PairFolder) -> str:
    """The page as text."""
    statistics = PairStatistics(folder.records())
    if not statistics.total:
        raise DatasetError("there are no pairs to report on yet", file=folder.store.root)
    ledger = folder.ledger
    runs = [_run(run) for run in ledger.runs()] if ledger is not None else []
    counts = ledger.counts() if ledger is not None else {}
    reasons = ledger.reasons() if ledger is not None else {}
    return page(
        "dataset.html",
        title=str(folder.plan.get("name", "pairs")),
        output=folder.plan["output"],
        splits=", ".join(f"{statistics.pairs[s]:,} {s}" for s in SPLITS if statistics.pairs[s]),
        side=statistics.side_px,
        total=statistics.total,
        tiles=_tiles(statistics, sum(counts.values()), max((run["pairs_per_s"] for run in runs), default=0.0)),
        pairs=list(_sheet(folder, statistics)),
        charts=_charts(statistics.values),
        candidates=[(words, counts[status]) for status, words in _FATES.items() if counts.get(status)],
        reasons=merged_reasons((placeless(text, folder.plan), n) for text, n in reasons.items()),
        runs=runs,
        **_lenses(statistics),
        **_plan(folder.plan),
    )


def _tiles(statistics: PairStatistics, candidates: int, pairs_per_s: float) -> list[tuple[str, str]]:
    return [
        (f"{statistics.total:,}", "pairs"),
        *([(f"{candidates:,}", "candidates drawn")] if candidates else []),
        (f"{len(set().union(*statistics.lenses.values())):,}", "lenses"),
        (f"{len(set().union(*statistics.images.values())):,}", "images"),
        (f"{np.median(statistics.values['blur_px']):.1f} px", "largest blur radius, median"),
        (bytes_text(statistics.bytes), "of pictures"),
        *([(_rate_text(pairs_per_s), "in the fastest run")] if pairs_per_s else []),
    ]


def _sheet(folder: PairFolder, statistics: PairStatistics) -> Iterator[dict[str, Any]]:
    """The pairs of the contact sheet: their facts, and both pictures as data URIs."""
    on_sheet = set(sheet_ids({split: numbers for split, numbers in statistics.numbers.items() if numbers}))
    records = [record for record in folder.records() if record["id"] in on_sheet]
    for record, blurred, sharp in both_pictures(folder.store, records):
        pictures = {"blurred": jpeg_uri(blurred), "sharp": jpeg_uri(sharp)}
        yield {"id": record["id"], "facts": pair_facts(record), **pictures}


def sheet_ids(numbers: Mapping[str, Sequence[int]]) -> list[str]:
    """Evenly spread pairs of the splits: as many of each as its share, but at least an eighth of the sheet."""
    total, room = sum(map(len, numbers.values())), SHEET_PAIRS
    places = {s: min(len(own), max(room // 8, round(room * len(own) / total))) for s, own in numbers.items()}
    while sum(places.values()) > room:
        places[max(places, key=lambda s: places[s])] -= 1
    return [pair_id(s, own[i * len(own) // places[s]]) for s, own in numbers.items() for i in range(places[s])]


def pair_facts(record: Record) -> dict[str, str]:
    """What a pair was made of, in words."""
    shot, read = record["noise"]
    low, high = record["coc_px"]
    layers = len(record.get("layer_depth_m", ()))
    facts = {
        "lens": record["lens"] + (f" ({record['state']})" if record.get("state") else ""),
        "aperture": f"f/{record['f_number']:.3g}",
        "focus": _metres_text(record["focus_m"]),
        "depth": " to ".join(map(_metres_text, record["depth_m"])),
        "largest blur": f"{largest_blur_px(record):.1f} px",
        "blur range": f"{low:+.1f} to {high:+.1f} px".replace("-", "−"),
        "field": f"({record['field'][0]:.2f}, {record['field'][1]:.2f}) of the image radius".replace("-", "−"),
        "pixel": f"{record['pixel_um']:.3g} µm",
        "layers": str(layers) if layers else "",
        "PSF": str(record.get("psf", {}).get("kind", "")),
        "noise": f"shot {shot:.2g}, read {read:.2g}" if shot or read else "none",
        "saturation": f"{record['saturation']:.2g}",
        "source": record["source"],
        "turned": f"{math.degrees(record['rotation_rad']):.0f}°, scale {record['scale']:.2f}, exposure "
        f"{record['exposure']:.2f}" + (", mirrored" if record["flip"] else ""),
        "notes": "; ".join(record.get("notes", ())),
    }
    return {name: text for name, text in facts.items() if text}


def _charts(values: Mapping[str, Sequence[float]]) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """Title, small words, histogram and key of each distribution."""

    def chart(name: str, label: str, *, log: bool = False) -> str:
        return histogram({"pairs": values[name]}, label, log=log)

    depths = {"nearest": values["nearest_m"], "farthest": values["farthest_m"]}
    depth_key = [("a", "nearest"), ("b", "farthest of a patch")]
    return [
        ("Blur", "largest radius of the circle of confusion", chart("blur_px", "pixels"), []),
        ("Focus distance", "", chart("focus_m", "metres", log=True), []),
        ("Depth", "", histogram(depths, "metres", log=True), depth_key),
        ("Field", "distance from the middle", chart("field_radius", "of the image radius"), []),
        ("Aperture", "", chart("f_number", "f-number"), []),
        ("Depth layers", "", chart("layers", "layers of a pair"), []),
    ]


def _lenses(statistics: PairStatistics) -> dict[str, Any]:
    """The most used lenses with their splits' colours, and how many pairs lenses have."""
    colours = dict(zip(SPLITS, "abc", strict=True))
    rows = [(lens, n, colours[s]) for s in SPLITS for lens, n in statistics.lenses[s].items()]
    rows.sort(key=lambda row: -row[1])
    pairs = [n for _, n, _ in rows]
    return {
        "lenses": rows[:LENSES],
        "lens_count": len(rows),
        "lens_pairs": (min(pairs), round(float(np.median(pairs))), max(pairs)),
        "lens_key": [(colours[s], s) for s in SPLITS if statistics.pairs[s]],
    }


def _run(run: Mapping[str, Any]) -> dict[str, Any]:
    """One run in words; a killed one did not tell its pairs."""
    seconds = run["ended"] - run["started"] if run["ended"] else 0.0
    pairs_per_s = run["pairs"] / seconds if seconds > 0.0 else 0.0
    return {
        "began": datetime.fromtimestamp(run["started"], UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "engine": run["engine"],
        "workers": run["workers"],
        "device": run["device"],
        "pairs": f"{run['pairs']:,}" if run["ended"] else "–",
        "time": _duration_text(seconds) if run["ended"] else "stopped",
        "speed": _rate_text(pairs_per_s) if pairs_per_s else "–",
        "stages": sorted(run["seconds"].items(), key=lambda stage: -stage[1]),
        "pairs_per_s": pairs_per_s,
    }


def _plan(plan_json: dict[str, Any]) -> dict[str, Any]:
    """The plan in words, what differs from the paper's, and all of it; one of another version as it stands."""
    try:
        plan = make_plan(plan_json)
    except PlanError:
        return {"sentences": [], "changes": [], "plan_json": json.dumps(plan_json, indent=1)}
    plan_json = without_places(plan.as_json())
    return {
        "sentences": plan_in_words(plan),
        "changes": settings_difference(make_plan({}).as_json(), plan_json),
        "plan_json": json.dumps(plan_json, indent=1),
    }


def _rate_text(pairs_per_s: float) -> str:
    return f"{pairs_per_s:.3g} pairs/s" if pairs_per_s >= 1.0 else f"{60.0 * pairs_per_s:.3g} pairs/min"


def _duration_text(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _metres_text(value: float) -> str:
    return f"{100.0 * value:.3g} cm" if value < 1.0 else f"{value:.3g} m"
