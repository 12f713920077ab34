"""How far the sharp picture of a pair can serve as the truth: where it lies, its light, its own blur, and what all that
does to PSNR.

The paper's section 5.2 shows these flaws of real pairs by example; here they are measured for every pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DatasetError, DefocusError
from .photometry import Photometry, cell_means, grey_of, histogram_distance, match_light, to_display, to_linear
from .psnr_bias import PsnrBias, measure_bias
from .registration import Registration, register, warped
from .residual_blur import BlurMap, blur_map
from .test_sets import Progress, TestImage, each_in_turn, failure_noted

CELL_PX = 32
# Columns of the CSV file that the light fills.
LIGHT = ("exposure_ev", "corner_ev", "gain_red", "gain_green", "gain_blue", "light_levels", "light_levels_after_fit")


@dataclass(frozen=True)
class PairAnalysis:
    """The measurements of one pair."""

    id: str
    registration: Registration
    light: Photometry | None
    histogram_levels: tuple[float, float, float]  # distance of red, green and blue, of pictures as they are
    cell_levels: tuple[float, float, float]  # the same of means over cells: without what blur does
    sharp_blur: BlurMap
    blurred_blur: BlurMap
    bias: PsnrBias

    @property
    def local_px(self) -> Float[np.ndarray, "n"]:
        """Lengths of what the similarity leaves, in blocks that agree."""
        residual = self.registration.residual_px[self.registration.agreeing]
        return np.hypot(residual[:, 0], residual[:, 1])

    def row(self) -> dict[str, Any]:
        """A line of the CSV file. Shares are of the blocks that are reliable or differ."""
        blocks, whole, light, bias, local = (
            self.registration, self.registration.similarity, self.light, self.bias, self.local_px
        )  # fmt: skip
        counted = blocks.reliable | blocks.differs
        nan = math.nan
        lit = (nan,) * len(LIGHT)
        if light is not None:
            lit = (light.exposure_ev, light.corner_ev, *light.gains, light.before, light.after)
        return {
            "id": self.id,
            "width": blocks.size[0],
            "height": blocks.size[1],
            "shift_right_px": whole.right_px,
            "shift_down_px": whole.down_px,
            "rotation_deg": math.degrees(whole.rotation),
            "scale_percent": 100.0 * whole.scale,
            "local_rms_px": float(np.sqrt(np.square(local).mean())) if local.size else nan,
            "local_95_px": float(np.quantile(local, 0.95)) if local.size else nan,
            "blocks_told_percent": 100.0 * float(counted.mean()),
            "moved_percent": 100.0 * float(blocks.moved.sum() / max(counted.sum(), 1)),
            "differs_percent": 100.0 * float(blocks.differs.sum() / max(counted.sum(), 1)),
            **dict(zip(LIGHT, lit, strict=True)),
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
    sharp: Float[np.ndarray, "h w 3"], blurred: Float[np.ndarray, "h w 3"], *, name: str = "pair", block_px: int = 128
) -> PairAnalysis:
    """The measurements of a pair of display values 0..1."""
    if sharp.shape != blurred.shape or sharp.ndim != 3 or sharp.shape[2] != 3:
        shapes = f"{list(sharp.shape)} and {list(blurred.shape)}"
        raise DefocusError(f"{name}: pictures of shapes {shapes}; expected the same [rows, cols, 3]")
    linear_sharp, linear_blurred = to_linear(sharp), to_linear(blurred)
    grey_sharp, grey_blurred = grey_of(linear_sharp), grey_of(linear_blurred)
    registration = register(grey_sharp, grey_blurred, block_px=block_px)
    aligned = warped(linear_sharp, registration.similarity)
    light = match_light(aligned, linear_blurred, usable_pixels(registration), cell_px=CELL_PX)
    cells = [to_display(cell_means(one, CELL_PX)) for one in (aligned, linear_blurred)]
    return PairAnalysis(
        id=name,
        registration=registration,
        light=light,
        histogram_levels=histogram_distance(sharp, blurred),
        cell_levels=histogram_distance(cells[0], cells[1]) if min(cells[0].shape) else (math.nan,) * 3,
        sharp_blur=blur_map(grey_sharp),
        blurred_blur=blur_map(grey_blurred),
        bias=measure_bias(sharp, blurred, registration, light),
    )


def usable_pixels(registration: Registration) -> Bool[np.ndarray, "h w"]:
    """Pixels outside blocks that moved or differ, and not brought in from beyond the edge."""
    width, height = registration.size
    usable = np.ones((height, width), bool)
    half = registration.block_px // 4  # the middle of a block; its neighbours tell the rest
    for row, col in np.argwhere(registration.moved | registration.differs):
        y, x = int(registration.y[row]), int(registration.x[col])
        usable[max(0, y - half) : y + half, max(0, x - half) : x + half] = False
    edge = math.ceil(max(abs(registration.similarity.right_px), abs(registration.similarity.down_px))) + 1
    usable[:edge] = usable[height - edge :] = False
    usable[:, :edge] = usable[:, width - edge :] = False
    return usable


def analyse_all(
    images: Sequence[TestImage],
    each: Callable[[PairAnalysis, np.ndarray, np.ndarray], Any],
    *,
    block_px: int = 128,
    progress: Progress | None = None,
) -> tuple[list[PairAnalysis], list[tuple[str, str]]]:
    """The measurements of all pairs, and the ids of those that cannot be measured with the reasons.

    `each` is called with a pair's analysis and its pictures, sharp and blurred, which are not kept.
    """
    pairs: list[PairAnalysis] = []
    failures: list[tuple[str, str]] = []
    for image in each_in_turn(images, "measuring ", progress):
        with failure_noted(failures, image.id):
            if image.truth is None:
                raise DatasetError("there is no sharp picture")
            sharp, blurred = image.truth.read(), image.input.read()
            pair = analyse_pair(sharp, blurred, name=image.id, block_px=block_px)
            each(pair, sharp, blurred)
            pairs.append(pair)
    if not pairs:
        raise DatasetError(f"none of {len(images)} pairs could be measured; the first: {failures[0][1]}")
    return pairs, failures
