"""How far the sharp picture of a pair can serve as the truth: where it lies, its light, its own blur, and what all that
does to PSNR.

The paper's section 5.2 shows these flaws of real pairs by example; here they are measured for every pair.

A perfect restoration of the blurred picture shows the scene as sharp as the truth, but where and in the light in which
the blurred picture saw it. It is made from the truth itself, moved and lit as was measured; its PSNR against the truth
is the ceiling for every method. Averaging over the misalignment costs less squared error than a sharp edge in a wrong
place: the same picture blurred by some σ scores higher, which is what a network learns from such pairs. Noise in the
truth is part of the ceilings where pixels move by fractions, for interpolation smooths it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy import ndimage

from ..errors import DatasetError, DefocusError
from ..restore.similarity import display_values, psnr
from .photometry import Photometry, cell_means, grey_of, histogram_distance, match_light, to_display, to_linear
from .registration import Registration, Similarity, displaced, middle_of, register, warped
from .residual_blur import BlurMap, blur_map
from .test_sets import Progress, TestImage, each_in_turn, failure_noted

CELL_PX = 32
SIGMAS_PX = (0.0, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
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
    sharp: Shaped[np.ndarray, "h w 3"], blurred: Shaped[np.ndarray, "h w 3"], *, name: str = "pair", block_px: int = 128
) -> PairAnalysis:
    """The measurements of a pair of display values 0..1, or of whole numbers of 8 or 16 bits."""
    if sharp.shape != blurred.shape or sharp.ndim != 3 or sharp.shape[2] != 3:
        shapes = f"{list(sharp.shape)} and {list(blurred.shape)}"
        raise DefocusError(f"{name}: pictures of shapes {shapes}; expected the same [rows, cols, 3]")
    sharp, blurred = display_values(sharp), display_values(blurred)
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


@dataclass(frozen=True)
class PsnrBias:
    """PSNR in dB, all over the same pixels, those that no displacement brings in from outside."""

    input_db: float  # of the blurred picture
    corrected_db: float  # of the blurred picture against the truth moved and lit as it is
    ceilings_db: dict[str, float]  # of a perfect restoration that has one flaw, or all of them
    sigmas_px: tuple[float, ...]
    blurred_db: tuple[float, ...]  # of the perfect restoration blurred by each σ
    truth_blurred_db: tuple[float, ...]  # of the truth itself blurred by each σ

    @property
    def best_sigma_px(self) -> float:
        """The blur that scores highest."""
        return self.sigmas_px[int(np.argmax(self.blurred_db))]

    @property
    def reward_db(self) -> float:
        """What that blur gains; nothing, where the perfect restoration is the truth itself, of infinite PSNR."""
        best = max(self.blurred_db)
        return 0.0 if best == self.blurred_db[0] else best - self.blurred_db[0]


def measure_bias(
    sharp: Float[np.ndarray, "h w 3"],
    blurred: Float[np.ndarray, "h w 3"],
    registration: Registration,
    light: Photometry | None,
) -> PsnrBias:
    """The bias of a pair of display values 0..1."""
    linear = to_linear(sharp)
    planes = [ndimage.spline_filter(linear[..., c].astype(np.float64), 3, mode="mirror") for c in range(3)]
    whole = registration.similarity
    shift = Similarity(whole.right_px, whole.down_px)
    fields = {
        "shift": field_of(registration, shift, local=False),
        "similarity": field_of(registration, whole, local=False),
        "local": field_of(registration, whole, local=True),
    }
    largest = max(float(np.abs(f).max()) for f in fields.values())
    height, width = sharp.shape[:2]
    margin = min(int(np.ceil(largest)) + 4, min(height, width) // 4)
    inner = np.s_[margin : height - margin, margin : width - margin]
    truth = sharp[inner]
    ceilings: dict[str, float] = {}
    moved = linear
    for name, field in fields.items():
        moved = np.stack([displaced(plane, *field) for plane in planes], axis=-1).astype(np.float32)
        ceilings[name] = psnr(to_display(moved)[inner], truth)
    if light is None:
        ceilings |= {"exposure": float("nan"), "colour": float("nan")}
        perfect = moved
    else:
        ceilings["exposure"] = psnr(to_display(light.exposed(linear))[inner], truth)
        ceilings["colour"] = psnr(to_display(light.applied(linear))[inner], truth)
        perfect = light.applied(moved)
    shown = to_display(perfect)
    ceilings["all"] = psnr(shown[inner], truth)
    return PsnrBias(
        input_db=psnr(blurred[inner], truth),
        corrected_db=psnr(blurred[inner], shown[inner]),
        ceilings_db=ceilings,
        sigmas_px=SIGMAS_PX,
        blurred_db=tuple(psnr(_blurred(shown, s)[inner], truth) for s in SIGMAS_PX),
        truth_blurred_db=tuple(psnr(_blurred(sharp, s)[inner], truth) for s in SIGMAS_PX),
    )


def field_of(registration: Registration, whole: Similarity, *, local: bool) -> Float[np.ndarray, "2 h w"]:
    """Where content went, to the right and down, at every pixel; with what the blocks add to the similarity, where that
    is more than their uncertainty, even between their middles."""
    width, height = registration.size
    y, x = np.indices((height, width), np.float64)
    field = np.stack(whole.displacement(x, y, middle_of(registration.size)))
    if not local:
        return field
    residual = registration.residual_px
    significant = registration.reliable & ~registration.differs
    significant &= np.hypot(residual[..., 0], residual[..., 1]) > 2.0 * registration.spread_px
    rows = np.interp(np.arange(height), registration.y, np.arange(len(registration.y)))
    cols = np.interp(np.arange(width), registration.x, np.arange(len(registration.x)))
    places = np.meshgrid(rows, cols, indexing="ij")
    for axis in (0, 1):
        values = np.where(significant, residual[..., axis], 0.0)
        field[axis] += ndimage.map_coordinates(values, places, order=1, mode="nearest")
    return field


def _blurred(image: Float[np.ndarray, "h w 3"], sigma: float) -> Float[np.ndarray, "h w 3"]:
    """The picture blurred in display values, as a network's average over what may be there is."""
    return image if sigma == 0.0 else ndimage.gaussian_filter(image, (sigma, sigma, 0.0), mode="mirror")
