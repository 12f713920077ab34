"""The report on the truths of a set of real pairs: one HTML page that needs nothing else, and a CSV file beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..draw.pages import curves, histogram, jpeg_uri, page
from ..errors import DatasetError
from ..files.stores import check_output, open_store
from .ground_truth import CELL_PX, PairAnalysis, analyse_all
from .registration import Registration
from .residual_blur import BLURRED_PX, BlurMap
from .results import csv_text, number_text
from .test_sets import Progress, TestImage

if TYPE_CHECKING:
    from markupsafe import Markup

SHOWN = 40  # pairs with pictures
LARGEST_PX, CROP_PX = 720, 160  # of pictures and of parts of them
WIDEST_PX = 4.0  # edges that are coloured in full
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


@dataclass(frozen=True)
class GroundTruthReport:
    """The files of a report, the pairs that were measured, and the others with the reasons."""

    page: Path
    numbers: Path
    pairs: list[PairAnalysis]
    failures: list[tuple[str, str]]


def write_ground_truth(
    images: Sequence[TestImage],
    out: str | Path,
    *,
    title: str = "pairs",
    block_px: int = 128,
    progress: Progress | None = None,
) -> GroundTruthReport:
    """Measure pairs and write the page to `out` and the numbers to a CSV file of the same name."""
    file = Path(out)
    check_output(file, (".html", ".htm"), DatasetError)
    if len(images) == 0:
        raise DatasetError("there are no pairs to measure")
    store, numbers = open_store(file.absolute().parent), file.with_suffix(".csv")
    if numbers.exists() and not _is_ours(numbers):
        raise DatasetError("holds no numbers of such a report, and is left as it is: name another page", file=numbers)
    cards: dict[str, tuple[float, dict[str, Any]]] = {}

    def add_card(pair: PairAnalysis, sharp: np.ndarray, blurred: np.ndarray) -> None:
        cards[pair.id] = pair.bias.ceilings_db["all"], _card(pair, sharp, blurred)
        if len(cards) > SHOWN:  # the best of them goes: pictures of hundreds of pairs would fill the memory
            del cards[max(cards, key=lambda name: cards[name][0])]

    pairs, failures = analyse_all(images, add_card, block_px=block_px, progress=progress)
    rows = [pair.row() for pair in pairs]
    store.write(numbers.name, csv_text(rows).encode())
    text = page(
        "ground_truth.html",
        title=title,
        tiles=_tiles(rows),
        charts=_distributions(rows),
        cards=[card for _, card in sorted(cards.values(), key=lambda one: one[0])],
        columns=list(COLUMNS.values()),
        rows=[
            (row["id"], [number_text(row[key], 2) for key in COLUMNS])
            for row in sorted(rows, key=lambda row: row["ceiling_all_db"])
        ],
        failures=[(name, _without_folders(reason, images)) for name, reason in failures],
        widest_px=BLURRED_PX,
        cell_px=CELL_PX,
    )
    store.write(file.name, text.encode())
    return GroundTruthReport(file, numbers, pairs, failures)


def _is_ours(numbers: Path) -> bool:
    """Whether a file of numbers begins as those of a report do."""
    try:
        with numbers.open(encoding="utf-8") as file:
            return file.readline(200).startswith("id,width,height,shift_right_px")
    except (OSError, UnicodeDecodeError):
        return False


def _without_folders(reason: str, images: Sequence[TestImage]) -> str:
    """A reason with the names of files alone: a page goes to others, whom our folders do not concern."""
    places = {image.place for one in images for image in (one.input, one.truth) if image is not None}
    for place in sorted(places, key=len, reverse=True):
        reason = reason.replace(place, PurePath(place).name)
    return reason


def _tiles(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    changed = float(np.mean([row["moved_percent"] + row["differs_percent"] for row in rows]))
    return [
        (f"{len(rows):,}", "pairs"),
        (quantity(_median(_shift(row) for row in rows), "px"), "shift of the whole, median"),
        (quantity(_median(row["local_rms_px"] for row in rows), "px"), "local misalignment, median"),
        (quantity(changed, "%", 1), "of blocks moved or differ"),
        (quantity(_median(abs(row["exposure_ev"]) for row in rows), "EV"), "change of exposure, median"),
        (quantity(_median(row["sharp_sigma_px"] for row in rows), "px"), "σ of edges of the truth, median"),
        (quantity(_median(row["ceiling_all_db"] for row in rows), "dB", 1), "PSNR of a perfect restoration, median"),
        (quantity(_median(row["blur_reward_db"] for row in rows), "dB"), "what blurring it gains, median"),
    ]


def _distributions(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, Markup, tuple[()]]]:
    charts = (
        ("Shift of the whole", [_shift(row) for row in rows], "pixels"),
        ("Local misalignment", [row["local_rms_px"] for row in rows], "pixels, root mean square"),
        ("Exposure", [row["exposure_ev"] for row in rows], "EV, blurred against sharp"),
        ("Edges of the truth", [row["sharp_sigma_px"] for row in rows], "σ in pixels, median of blocks"),
        ("PSNR of a perfect restoration", [row["ceiling_all_db"] for row in rows], "dB"),
        ("What blurring it gains", [row["blur_reward_db"] for row in rows], "dB"),
    )
    return [(name, "", histogram({"pairs": values}, label), ()) for name, values, label in charts]


def _card(pair: PairAnalysis, sharp: Float[np.ndarray, "h w 3"], blurred: Float[np.ndarray, "h w 3"]) -> dict[str, Any]:
    """What the page shows of one pair: pictures as data URIs, marks in their pixels, charts and facts."""
    blocks, bias, local = pair.registration, pair.bias, pair.local_px
    typical = float(np.quantile(local, 0.9)) if local.size else 0.0
    magnified = min(200.0, max(2.0, float(f"{max(blocks.size) / 24.0 / max(typical, 1e-3):.1g}")))
    spacing = [np.diff(middles) for middles in (blocks.x, blocks.y) if len(middles) > 1]
    step = float(np.concatenate(spacing).mean()) if spacing else float(blocks.block_px)
    top = max(bias.blurred_db) + 6.0  # the truth against itself has no limit
    truth = [value if value < top else math.nan for value in bias.truth_blurred_db]
    lines = [
        ("perfect restoration", "a", bias.sigmas_px, bias.blurred_db),
        ("truth", "b broken", bias.sigmas_px, truth),
    ]
    return {
        "id": pair.id,
        "size": blocks.size,
        "unit": round(max(blocks.size) / 720.0, 2),
        "step": round(step),
        "magnified": magnified,
        "sharp": jpeg_uri(sharp, LARGEST_PX, 88),
        "blurred": jpeg_uri(blurred, LARGEST_PX, 88),
        "frames": [
            (kind, round(float(blocks.x[col]) - step / 2), round(float(blocks.y[row]) - step / 2))
            for row, col in np.ndindex(blocks.moved.shape)
            if (kind := _kind(blocks, row, col))
        ],
        "arrows": _arrows(blocks, magnified, 1.5 * step),
        "blocks": _blur_blocks(pair.sharp_blur, blocks.size),
        "crops": _crops(blocks, {"sharp": sharp, "blurred": blurred}),
        "histograms": _colour_histograms(sharp, blurred),
        "curves": curves(lines, "σ, pixels", "dB"),
        "facts": _facts(pair),
    }


def _kind(blocks: Registration, row: int, col: int) -> str:
    return "moved" if blocks.moved[row, col] else "differs" if blocks.differs[row, col] else ""


def _arrows(blocks: Registration, magnified: float, longest: float) -> list[tuple[str, float, float, float, float]]:
    """What the similarity leaves in each block, magnified, from foot to tip: class, x, y, x, y."""
    arrows = []
    for row, col in np.argwhere(blocks.reliable & ~blocks.differs):
        x, y = float(blocks.x[col]), float(blocks.y[row])
        right, down = (float(v) * magnified for v in blocks.residual_px[row, col])
        shorter = min(1.0, longest / max(math.hypot(right, down), 1e-9))
        places = (x, y, x + shorter * right, y + shorter * down)
        arrows.append((_kind(blocks, row, col), *(round(place, 1) for place in places)))
    return arrows  # type: ignore[return-value]


def _blur_blocks(blur: BlurMap, size: tuple[int, int]) -> list[tuple[Any, ...]]:
    """Blocks by the width of their edges (clear where sharp, red where wide, dark without any): x, y, width, height,
    colour, opacity, words."""
    rows, cols = blur.sigma_px.shape
    wide, high = size[0] / cols, size[1] / rows
    blocks = []
    for row, col in np.ndindex(rows, cols):
        sigma = float(blur.sigma_px[row, col])
        paint: tuple[Any, ...] = ("#000", 0.55, "no edges")
        if math.isfinite(sigma):
            part = min(max((sigma - 0.5) / (WIDEST_PX - 0.5), 0.0), 1.0)
            paint = "#d7191c" if sigma > BLURRED_PX else "#fdae61", round(0.75 * part, 2), f"σ {sigma:.2f} px"
        blocks.append((*(round(v, 1) for v in (col * wide, row * high, wide, high)), *paint))
    return blocks


def _crops(blocks: Registration, pictures: dict[str, Float[np.ndarray, "h w 3"]]) -> dict[str, str]:
    """The block that fits least, in each picture: one that differs, else the one that moved farthest."""
    if blocks.differs.any():
        misfit = np.where(blocks.differs, 1.0 - blocks.explained, -1.0)
    elif blocks.reliable.any():
        misfit = np.where(blocks.reliable, np.hypot(*np.moveaxis(blocks.residual_px, -1, 0)), -1.0)
    else:
        return {}
    row, col = np.unravel_index(int(np.argmax(misfit)), misfit.shape)
    side = min(CROP_PX, *blocks.size)
    left, top = (
        int(min(max(middle - side / 2, 0), length - side))
        for middle, length in zip((float(blocks.x[col]), float(blocks.y[row])), blocks.size, strict=True)
    )
    return {name: jpeg_uri(image[top : top + side, left : left + side], quality=88) for name, image in pictures.items()}


def _colour_histograms(sharp: Float[np.ndarray, "h w 3"], blurred: Float[np.ndarray, "h w 3"]) -> Markup:
    """Red, green and blue of both pictures: full lines sharp, broken ones blurred."""
    middles = [(n + 0.5) * 255.0 / 64 for n in range(64)]
    lines = []
    for name, image, dashes in (("sharp", sharp, ""), ("blurred", blurred, " broken")):
        for channel, colour in enumerate(("red", "green", "blue")):
            counts = np.histogram(image[..., channel], 64, (0.0, 1.0))[0]
            lines.append((f"{name}, {colour}", colour + dashes, middles, list(100.0 * counts / counts.sum())))
    return curves(lines, "display value", "%", low=0.0, ticks=(0, 64, 128, 192, 255))


def _facts(pair: PairAnalysis) -> dict[str, str]:
    row, light, bias = pair.row(), pair.light, pair.bias
    right, down, scale = (
        quantity(row[key], unit, signed=True)
        for key, unit in (("shift_right_px", "px"), ("shift_down_px", "px"), ("scale_percent", "%"))
    )
    sharp, blurred = (quantity(row[f"{side}_sigma_px"], "px") for side in ("sharp", "blurred"))
    corrected = quantity(bias.corrected_db, "dB")
    facts = {
        "whole": f"{right} right, {down} down, {number_text(row['rotation_deg'], 3, signed=True)}°, {scale}",
        "local": f"{quantity(row['local_rms_px'], 'px')} rms, {quantity(row['local_95_px'], 'px')} at 95\u00a0%",
        "blocks": f"{row['moved_percent']:.0f}\u00a0% moved, {row['differs_percent']:.0f}\u00a0% differ",
        "light": "unknown",
        "edges": f"sharp: σ {sharp}, blurred: σ {blurred}",
        "input": f"{quantity(bias.input_db, 'dB')}; {corrected} against the truth moved and lit",
        "ceilings, dB": ", ".join(f"{name} {number_text(value, 1)}" for name, value in bias.ceilings_db.items()),
        "best blur": f"σ {bias.best_sigma_px:g}\u00a0px, {quantity(bias.reward_db, 'dB', signed=True)}",
    }
    if light is not None:
        exposure, corners = (quantity(stops, "EV", signed=True) for stops in (light.exposure_ev, light.corner_ev))
        gains = ", ".join(f"{gain:.3f}" for gain in light.gains)
        facts["light"] = f"{exposure}, corners {corners}; red, green, blue × {gains}"
        facts["colour"] = f"{light.before:.1f} levels apart, {light.after:.1f} after the fit"
    return facts


def quantity(value: float, unit: str, decimals: int = 2, *, signed: bool = False) -> str:
    """A number with its unit on the same line; no unit stands behind infinity, as of the PSNR of equal pictures."""
    if math.isnan(value):
        return "unknown"
    return number_text(value, decimals, signed=signed) + (f"\u00a0{unit}" if math.isfinite(value) else "")


def _shift(row: dict[str, Any]) -> float:
    return math.hypot(row["shift_right_px"], row["shift_down_px"])


def _median(values: Iterable[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return float(np.median(numbers)) if numbers else math.nan
