"""How far the sharp picture of a pair can serve as the truth: where it lies, its light, its own blur, and what all that
does to PSNR.

The paper's section 5.2 shows these flaws of real pairs by example; here they are measured for every pair.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DatasetError, DefocusError
from .photometry import (
    Photometry,
    cell_means,
    grey_of,
    histogram_distance,
    match_light,
    to_display,
    to_linear,
)
from .psnr_bias import Bias, measure_bias
from .registration import Registration, register, warped
from .residual_blur import BlurMap, blur_map
from .test_sets import TestImage

CELL_PX = 32


@dataclass(frozen=True)
class PairAnalysis:
    """What was measured of one pair."""

    id: str
    registration: Registration
    light: Photometry | None
    histogram_levels: tuple[float, float, float]  # distance of red, green and blue, of pictures as they are
    cell_levels: tuple[float, float, float]  # the same of means over cells: without what blur does
    sharp_blur: BlurMap
    blurred_blur: BlurMap
    bias: Bias

    @property
    def local_px(self) -> Float[np.ndarray, "n"]:
        """Lengths of what the similarity leaves, in blocks that agree."""
        rest = self.registration.residual_px[self.registration.agreeing]
        return np.hypot(rest[:, 0], rest[:, 1])

    def row(self) -> dict[str, Any]:
        """A line of the CSV file. Shares are of the blocks that can be told."""
        found, light, bias = self.registration.similarity, self.light, self.bias
        told = self.registration.known | self.registration.differs
        local = self.local_px
        nan = math.nan
        return {
            "id": self.id,
            "width": self.registration.size[0],
            "height": self.registration.size[1],
            "shift_right_px": found.right_px,
            "shift_down_px": found.down_px,
            "rotation_deg": math.degrees(found.rotation),
            "scale_percent": 100.0 * found.scale,
            "local_rms_px": float(np.sqrt(np.square(local).mean())) if local.size else nan,
            "local_95_px": float(np.quantile(local, 0.95)) if local.size else nan,
            "blocks_told_percent": 100.0 * float(told.mean()),
            "moved_percent": 100.0 * float(self.registration.moved.sum() / max(told.sum(), 1)),
            "differs_percent": 100.0 * float(self.registration.differs.sum() / max(told.sum(), 1)),
            "exposure_ev": light.exposure_ev if light else nan,
            "corner_ev": light.corner_ev if light else nan,
            "gain_red": light.gains[0] if light else nan,
            "gain_green": light.gains[1] if light else nan,
            "gain_blue": light.gains[2] if light else nan,
            "light_levels": light.before if light else nan,
            "light_levels_after_fit": light.after if light else nan,
            "histogram_levels": float(np.mean(self.histogram_levels)),
            "histogram_levels_of_cells": float(np.mean(self.cell_levels)),
            "sharp_sigma_px": self.sharp_blur.quantile(0.5),
            "sharp_sigma_90_px": self.sharp_blur.quantile(0.9),
            "sharp_blurred_percent": 100.0 * self.sharp_blur.blurred_share,
            "blurred_sigma_px": self.blurred_blur.quantile(0.5),
            "psnr_input_db": bias.input_db,
            "psnr_input_corrected_db": bias.corrected_db,
            **{f"ceiling_{name}_db": value for name, value in bias.ceilings_db.items()},
            "best_sigma_px": bias.best_sigma_px,
            "blur_reward_db": bias.reward_db,
        }


def analyse_pair(
    sharp: Float[np.ndarray, "h w 3"],
    blurred: Float[np.ndarray, "h w 3"],
    *,
    name: str = "pair",
    block_px: int = 128,
) -> PairAnalysis:
    """Measure a pair of display values 0..1."""
    if sharp.shape != blurred.shape or sharp.ndim != 3 or sharp.shape[2] != 3:
        shapes = f"{list(sharp.shape)} and {list(blurred.shape)}"
        raise DefocusError(f"{name}: pictures of shapes {shapes}; expected the same [rows, cols, 3]")
    linear_sharp, linear_blurred = to_linear(sharp), to_linear(blurred)
    grey = grey_of(linear_sharp)
    found = register(grey, grey_of(linear_blurred), block_px=block_px)
    laid = warped(linear_sharp, found.similarity)
    light = match_light(laid, linear_blurred, usable_pixels(found), cell_px=CELL_PX)
    cells = [to_display(cell_means(one, CELL_PX)) for one in (laid, linear_blurred)]
    return PairAnalysis(
        id=name,
        registration=found,
        light=light,
        histogram_levels=histogram_distance(sharp, blurred),
        cell_levels=histogram_distance(cells[0], cells[1]) if min(cells[0].shape) else (math.nan,) * 3,
        sharp_blur=blur_map(grey),
        blurred_blur=blur_map(grey_of(linear_blurred)),
        bias=measure_bias(sharp, blurred, found, light),
    )


def usable_pixels(found: Registration) -> Bool[np.ndarray, "h w"]:
    """Not in blocks that moved or differ, and not brought in from beyond the edge."""
    width, height = found.size
    good = np.ones((height, width), bool)
    half = found.block_px // 4  # the middle of a block; its neighbours tell the rest
    for row, col in np.argwhere(found.moved | found.differs):
        y, x = int(found.y[row]), int(found.x[col])
        good[max(0, y - half) : y + half, max(0, x - half) : x + half] = False
    edge = math.ceil(max(abs(found.similarity.right_px), abs(found.similarity.down_px))) + 1
    good[:edge] = good[height - edge :] = False
    good[:, :edge] = good[:, width - edge :] = False
    return good


def analyse_all(
    images: Sequence[TestImage],
    *,
    block_px: int = 128,
    seen: Callable[[PairAnalysis, np.ndarray, np.ndarray], Any] | None = None,
    progress: Callable[[str, float], Any] | None = None,
) -> tuple[list[PairAnalysis], list[tuple[str, str]]]:
    """Measure all pairs; those that cannot be measured are told with their reasons.

    `seen` is called with each pair's analysis and its pictures, sharp and blurred, which are not kept.
    """
    made: list[PairAnalysis] = []
    failed: list[tuple[str, str]] = []
    for number, image in enumerate(images):
        if progress is not None:
            progress(f"measuring {image.id}", number / len(images))
        if image.truth is None:
            failed.append((image.id, "there is no sharp picture"))
            continue
        try:
            sharp, blurred = image.truth.read(), image.input.read()
            one = analyse_pair(sharp, blurred, name=image.id, block_px=block_px)
            if seen is not None:
                seen(one, sharp, blurred)
        except (DefocusError, OSError) as error:
            failed.append((image.id, str(error)))
        except Exception as error:  # a fault of ours in one pair shall not cost the others
            failed.append((image.id, f"unexpected {type(error).__name__}: {error}"))
        else:
            made.append(one)
    if not made:
        raise DatasetError(f"none of {len(images)} pairs could be measured; the first: {failed[0][1]}")
    return made, failed


def csv_text(rows: Iterable[dict[str, Any]]) -> str:
    """Numbers with six digits; what is unknown is left empty."""
    rows = list(rows)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"


def find_real_pairs(
    folder: str | Path, *, sharp: str | Path | None = None, kind: str | None = None, split: str = "test"
) -> list[TestImage]:
    """The pairs of a folder: those of two folders where `sharp` names the other; a published set by its `kind`, however
    complete; else input and target, DPDD's layout, or what `defocus synth run` made."""
    from .test_sets import open_test_set, pair_folders

    if sharp is not None:
        sides = Path(folder), Path(sharp)
        for side in sides:
            if not side.is_dir():
                raise DatasetError("there is no such folder", file=side)
        return pair_folders(*sides)
    if kind == "photographs":
        raise DatasetError("photographs without a truth cannot be compared with it", file=folder)
    return list(open_test_set(kind or "pairs", folder, split=split, partial=True).images)  # type: ignore[arg-type]
