"""The report on the truths of a set of real pairs: one HTML page that needs nothing else, and a CSV file beside it."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..draw.pages import histogram, page
from ..errors import DatasetError
from ..files.stores import open_store
from .ground_truth import PairAnalysis, analyse_all, csv_text
from .report_pictures import (
    arrows,
    blur_blocks,
    colour_histograms,
    crop_pair,
    curves,
    jpeg_uri,
    over_picture,
    worst_block,
)
from .residual_blur import BLURRED_PX
from .tables import number_text
from .test_sets import TestImage

SHOWN = 40  # pairs with pictures
MORE_STYLE = """
.three{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:18px;margin-bottom:16px}
.three h3,.crops{margin-top:4px} .three+.three h3 small{display:block;margin:0}
svg.photo{overflow:hidden;border-radius:8px}
.crops{display:grid;grid-template-columns:1fr 1fr;gap:3px;max-width:380px} .crops svg{border-radius:0}
svg .moved{stroke:#ff9b21;fill:none} svg .differs{stroke:#ff3fa4;fill:none;stroke-dasharray:6 3}
svg .halo{stroke:#000;stroke-opacity:.55;stroke-linecap:round} svg .arrow{stroke:#4dd2ff;stroke-linecap:round}
svg .arrow.moved{stroke:#ff9b21} svg .arrow-foot{fill:#4dd2ff} svg .arrow-foot.moved{fill:#ff9b21;stroke:none}
svg .cross{stroke:#fff;stroke-opacity:.65;fill:none}
svg .line{fill:none;stroke-width:1.7} svg .broken{stroke-dasharray:4 3}
svg .red{stroke:#e03c31} svg .green{stroke:#2f9e44} svg .blue{stroke:#3b76d6}
svg polyline.a{fill:none;stroke:var(--a)} svg polyline.b{fill:none;stroke:var(--b)}
.facts{columns:2 360px;column-gap:40px;font-size:13.5px;margin:0}
.facts div{display:grid;grid-template-columns:6.5em 1fr;gap:14px;break-inside:avoid;padding:1px 0}
.facts dt{color:var(--soft)} .facts dd{margin:0}
main>.box+.box{margin-top:22px} .mark{font-style:normal;font-weight:600}
.mark.m{color:#d97706} .mark.d{color:#d6337f} .mark.r{color:#d7191c}
.numbers{padding-left:0} .numbers td:first-child,.numbers th:first-child{position:sticky;left:0;max-width:18em;
padding-left:20px;background:var(--card);overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
"""
COLUMNS = {
    "shift_right_px": "shift → px",
    "shift_down_px": "↓ px",
    "rotation_deg": "rotation °",
    "scale_percent": "scale %",
    "local_rms_px": "local px",
    "moved_percent": "moved %",
    "differs_percent": "differs %",
    "exposure_ev": "exposure EV",
    "light_levels": "light, levels",
    "sharp_sigma_px": "σ of sharp px",
    "sharp_blurred_percent": "not sharp %",
    "psnr_input_db": "input dB",
    "psnr_input_corrected_db": "corrected dB",
    "ceiling_local_db": "ceiling, place",
    "ceiling_colour_db": "ceiling, light",
    "ceiling_all_db": "ceiling, all",
    "blur_reward_db": "blur gains dB",
}


def write_ground_truth(
    images: Sequence[TestImage],
    out: str | Path,
    *,
    title: str = "pairs",
    block_px: int = 128,
    progress: Any = None,
) -> tuple[Path, Path, list[PairAnalysis], list[tuple[str, str]]]:
    """Measure pairs and write the page to `out` and the numbers to a CSV file of the same name.

    Returns both files, what was measured, and what could not be measured with the reasons.
    """
    page = Path(out)
    if page.suffix.lower() not in (".html", ".htm"):
        raise DatasetError("the report is a page: its name ends in .html", file=page)
    if len(images) == 0:
        raise DatasetError("there are no pairs to measure")
    if page.is_dir():
        raise DatasetError("is a folder; the report is a file", file=page)
    store = open_store(page.absolute().parent)
    store.check_writable()
    cards: dict[str, tuple[float, str]] = {}

    def seen(one: PairAnalysis, sharp: np.ndarray, blurred: np.ndarray) -> None:
        rank = one.bias.ceilings_db["all"]
        cards[one.id] = (rank, _card(one, sharp, blurred))
        if len(cards) > SHOWN:  # the best of them goes: pictures of hundreds of pairs would fill the memory
            del cards[max(cards, key=lambda name: cards[name][0])]

    made, failed = analyse_all(images, block_px=block_px, seen=seen, progress=progress)
    rows = [one.row() for one in made]
    numbers = page.with_suffix(".csv")
    store.write(numbers.name, csv_text(rows).encode())
    order = sorted(cards, key=lambda name: cards[name][0])
    store.write(page.name, _page(title, made, rows, [cards[name][1] for name in order], failed).encode())
    return page, numbers, made, failed


def _page(
    title: str,
    made: Sequence[PairAnalysis],
    rows: Sequence[dict[str, Any]],
    cards: Sequence[str],
    failed: Sequence[tuple[str, str]],
) -> str:
    shown = f"The {len(cards)} with the lowest ceilings of {len(made)}" if len(cards) < len(made) else "All pairs"
    body = [
        '<p class="kicker">Defocus · ground truth</p>',
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="lead">{_pairs(len(made))} of a sharp and a blurred photograph. How well the sharp one can serve as '
        "the truth: where it lies, how it was lit, how sharp it is, and what that does to PSNR.</p>",
        _tiles(rows),
        _distributions(rows),
        f"<h2>Pairs</h2><p>{shown}, the lowest first. Arrows: where content lies in the blurred picture beyond the "
        'shift, rotation and scale of the whole, magnified; <i class="mark m">moved</i> blocks stand out from the '
        'others, <i class="mark d">different</i> ones hold something that no blur of the sharp picture explains. '
        f'Edges: <i class="mark r">red</i> where the edges of the truth are wider than σ = {BLURRED_PX:g} px, dark '
        "where there are none.</p>",
        *cards,
        _table(rows),
        _failures(failed),
        _method(),
        "<footer>Written by <code>defocus groundtruth</code>. Pictures in this page are reduced JPEG copies.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)} · Defocus</title>"
        f"<style>{page('style.css')}{MORE_STYLE}</style></head><body><main>"
        + "\n".join(part for part in body if part)
        + "</main></body></html>\n"
    )


def _median(rows: Sequence[dict[str, Any]], key: str) -> float:
    values = np.array([row[key] for row in rows], float)
    values = values[~np.isnan(values)]
    return float(np.median(values)) if values.size else math.nan


def _tiles(rows: Sequence[dict[str, Any]]) -> str:
    shifts = float(np.median([math.hypot(row["shift_right_px"], row["shift_down_px"]) for row in rows]))
    exposures = [abs(row["exposure_ev"]) for row in rows if not math.isnan(row["exposure_ev"])]
    exposure = f"{np.median(exposures):.2f} EV" if exposures else "unknown"
    tiles = [
        (f"{len(rows):,}", "pairs"),
        (f"{shifts:.2f} px", "shift of the whole, median"),
        (_pixels(_median(rows, "local_rms_px")), "local misalignment, median"),
        (f"{np.mean([r['moved_percent'] + r['differs_percent'] for r in rows]):.1f} %", "of blocks moved or differ"),
        (exposure, "change of exposure, median"),
        (_pixels(_median(rows, "sharp_sigma_px")), "σ of edges of the truth, median"),
        (_decibels(_median(rows, "ceiling_all_db"), 1), "PSNR of a perfect restoration, median"),
        (_decibels(_median(rows, "blur_reward_db"), 2), "what blurring it gains, median"),
    ]
    return '<div class="tiles">' + "".join(f"<div><b>{a}</b><span>{b}</span></div>" for a, b in tiles) + "</div>"


def _distributions(rows: Sequence[dict[str, Any]]) -> str:
    def of(key: str) -> list[float]:
        return [row[key] for row in rows]

    shift = [math.hypot(row["shift_right_px"], row["shift_down_px"]) for row in rows]
    charts = [
        ("Shift of the whole", histogram({"pairs": shift}, "pixels")),
        ("Local misalignment", histogram({"pairs": of("local_rms_px")}, "pixels, root mean square")),
        ("Exposure", histogram({"pairs": of("exposure_ev")}, "EV, blurred against sharp")),
        ("Edges of the truth", histogram({"pairs": of("sharp_sigma_px")}, "σ in pixels, median of blocks")),
        ("PSNR of a perfect restoration", histogram({"pairs": of("ceiling_all_db")}, "dB")),
        ("What blurring it gains", histogram({"pairs": of("blur_reward_db")}, "dB")),
    ]
    boxes = "".join(f'<div class="box"><h3>{name}</h3>{chart}</div>' for name, chart in charts)
    return f'<h2>Distributions</h2><p>Of all pairs.</p><div class="charts">{boxes}</div>'


def _card(one: PairAnalysis, sharp: Float[np.ndarray, "h w 3"], blurred: Float[np.ndarray, "h w 3"]) -> str:
    found, bias = one.registration, one.bias
    local = one.local_px
    typical = float(np.quantile(local, 0.9)) if local.size else 0.0
    step = max(found.size) / 24.0
    magnified = min(200.0, max(2.0, float(f"{step / max(typical, 1e-3):.1g}")))
    uri = jpeg_uri(sharp)
    pictures = [
        (
            f"Sharp<small>arrows × {magnified:g}</small>",
            over_picture(uri, found.size, arrows(found, magnified), "sharp"),
        ),
        ("Blurred", over_picture(jpeg_uri(blurred), found.size, "", "blurred")),
        ("Edges of the sharp one", over_picture(uri, found.size, blur_blocks(one.sharp_blur, found.size), "edges")),
    ]
    worst = worst_block(found)
    crops = '<p class="none">no block could be laid on the other picture</p>'
    if worst is not None:
        crops = crop_pair(sharp, blurred, (float(found.x[worst[1]]), float(found.y[worst[0]])))
    top = max(bias.blurred_db) + 6.0  # the truth against itself has no limit
    truth = [value if value < top else math.nan for value in bias.truth_blurred_db]
    series = {
        "perfect restoration": (bias.sigmas_px, bias.blurred_db, "a"),
        "truth": (bias.sigmas_px, truth, "b broken"),
    }
    charts = [
        ("Where they fit least<small>sharp, blurred</small>", crops),
        ("Histograms<small>full: sharp, broken: blurred</small>", colour_histograms(sharp, blurred)),
        (
            "PSNR when blurred by σ<small>full: perfect restoration, broken: the truth itself</small>",
            curves(series, "σ, pixels", "dB"),
        ),
    ]
    parts = [
        '<div class="three">' + "".join(f"<div><h3>{name}</h3>{body}</div>" for name, body in group) + "</div>"
        for group in (pictures, charts)
    ]
    return f'<div class="box"><h3>{html.escape(one.id)}</h3>{"".join(parts)}{_facts(one)}</div>'


def _facts(one: PairAnalysis) -> str:
    row, light = one.row(), one.light
    facts = {
        "whole": f"{_signed(row['shift_right_px'])} px right, {_signed(row['shift_down_px'])} px down, "
        f"{_signed(row['rotation_deg'], 3)}°, {_signed(row['scale_percent'])} %",
        "local": f"{_pixels(row['local_rms_px'])} rms, {_pixels(row['local_95_px'])} at 95 %",
        "blocks": f"{row['moved_percent']:.0f} % moved, {row['differs_percent']:.0f} % differ",
        "light": "cannot be told"
        if light is None
        else f"{_signed(light.exposure_ev)} EV, corners {_signed(light.corner_ev)} EV; red, green, blue × "
        + ", ".join(f"{g:.3f}" for g in light.gains),
        "colour": "" if light is None else f"{light.before:.1f} levels apart, {light.after:.1f} after the fit",
        "edges": f"sharp: σ {_pixels(row['sharp_sigma_px'])}, blurred: σ {_pixels(row['blurred_sigma_px'])}",
        "input": f"{_decibels(one.bias.input_db, 2)}; {_decibels(one.bias.corrected_db, 2)} "
        "against the truth moved and lit",
        "ceilings, dB": ", ".join(f"{name} {number_text(value, 1)}" for name, value in one.bias.ceilings_db.items()),
        "best blur": f"σ {one.bias.best_sigma_px:g} px, {_signed(one.bias.reward_db)} dB",
    }
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{k}</dt><dd>{_together(html.escape(v))}</dd></div>" for k, v in facts.items() if v)
        + "</dl>"
    )


def _together(text: str) -> str:
    """Numbers with their units on one line."""
    return re.sub(r"(?<=[\d∞]) (?=px|dB|EV|%)", "\u00a0", text)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f'<th class="n">{html.escape(name)}</th>' for name in COLUMNS.values())
    lines = []
    for row in sorted(rows, key=lambda r: r["ceiling_all_db"]):
        cells = "".join(f'<td class="n">{_number(row[key])}</td>' for key in COLUMNS)
        name = html.escape(str(row["id"]))
        lines.append(f'<tr><td title="{name}">{name}</td>{cells}</tr>')
    return (
        "<h2>Numbers</h2><p>More of them in the CSV file beside this page.</p>"
        f'<div class="box scroll numbers"><table><tr><th>pair</th>{head}</tr>{"".join(lines)}</table></div>'
    )


def _failures(failed: Sequence[tuple[str, str]]) -> str:
    if not failed:
        return ""
    lines = "".join(f"<li>{html.escape(name)}: {html.escape(why)}</li>" for name, why in failed)
    return f"<h2>Not measured</h2><p>{_pairs(len(failed))}.</p><ul>{lines}</ul>"


def _method() -> str:
    return (
        "<h2>How it is measured</h2><p>In linear light, from files taken for sRGB.</p><ul>"
        "<li>Blocks are registered by the phase of their spectra, with a symmetric blur of unknown shape between them; "
        "the whole is a shift, a rotation and a scale that most blocks follow. Where a block holds two depths, their "
        "unequal blur is told as misalignment, too.</li>"
        "<li>Light is compared by means over cells of 32 pixels, without those that touch black or white: exposure, "
        "fall-off to the corners, a colour matrix with an offset.</li>"
        "<li>The width of an edge comes from its slope seen at two scales; lines, sharpened edges and steps narrower "
        "than a pixel count as 0.</li>"
        "<li>A perfect restoration is the truth itself, moved and lit as measured: its PSNR is the ceiling of every "
        "method. What moved out of the picture or appeared in it is not counted, so true ceilings are lower.</li></ul>"
    )


def _pairs(count: int) -> str:
    return f"{count:,} pair{'s' * (count != 1)}"


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return number_text(value, 2)


def _pixels(value: float) -> str:
    return f"{number_text(value, 2)} px" if math.isfinite(value) else "unknown"


def _signed(value: float, digits: int = 2) -> str:
    return number_text(value, digits, signed=True)


def _decibels(value: float, digits: int) -> str:
    """Equal pictures have no finite PSNR: no unit stands behind infinity."""
    return number_text(value, digits) + (" dB" if math.isfinite(value) else "")
