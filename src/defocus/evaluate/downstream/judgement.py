"""Depth and segments of the pictures of a set, against those of the sharp ones: a value for each picture, and means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DatasetError, DefocusError
from ...files.pictures import PICTURES
from ..measures import Display
from ..results import ranks
from ..tables import markdown_table
from ..test_sets import FileImage, Image, Progress, TestImage, each_in_turn, failure_noted
from .disparity import DisparityEstimator, disparity_rmse
from .segmentation import MaskChoice, Prompt, Segmenter, overlap

MEASURES = {"rmse_aligned": "RMSE, aligned ↓", "rmse": "RMSE, not aligned ↓", "iou": "mean IoU ↑"}
INPUT, SHARP = "input", "sharp"


@dataclass(frozen=True)
class Judgement:
    """One picture of one row; NaN for a task that was left out."""

    image: str
    row: str
    rmse_aligned: float = math.nan
    rmse: float = math.nan
    iou: float = math.nan
    prompts: int = 0


@dataclass
class Judgements:
    """All judgements, and the ids of the pictures that could not be judged with the reasons."""

    pictures: list[Judgement] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def means(self) -> dict[str, dict[str, float]]:
        """Means over the pictures, by row and measure."""
        rows = dict.fromkeys(one.row for one in self.pictures)
        return {
            row: {m: float(np.mean([getattr(one, m) for one in self.pictures if one.row == row])) for m in MEASURES}
            for row in rows
        }

    def markdown(self, title: str, about: Sequence[str] = ()) -> str:
        """A table as the paper's: rows against measures, the best restored one of each in bold, the second
        underlined."""
        means = self.means()
        measures = [name for name in MEASURES if not all(math.isnan(row[name]) for row in means.values())]
        restored = [row for row in means if row not in (INPUT, SHARP)]
        places = {m: ranks({row: means[row][m] for row in restored}, m == "iou", 3) for m in measures}
        forms = {1: "**{:.3f}**", 2: "<u>{:.3f}</u>"}
        rows = [
            [row, *(forms.get(places[m].get(row, 0), "{:.3f}").format(values[m]) for m in measures)]
            for row, values in means.items()
        ]
        count = len({one.image for one in self.pictures})
        parts = [
            f"# {title}",
            "\n".join(about),
            f"Means over {count} pictures; the sharp picture's answers are the truth.",
            markdown_table(["", *(MEASURES[m] for m in measures)], rows),
        ]
        if self.failures:
            parts += [f"Not judged are {len(self.failures)}:", "\n".join(f"- {i}: {why}" for i, why in self.failures)]
        return "\n\n".join(part for part in parts if part) + "\n"


def judge(
    images: Sequence[TestImage],
    restored: Mapping[str, Mapping[str, Image]],
    *,
    depth: DisparityEstimator | None = None,
    segmenter: Segmenter | None = None,
    prompt: Prompt = "masks",
    choice: MaskChoice | None = None,
    progress: Progress | None = None,
) -> Judgements:
    """Judgements of the inputs, and of the restored pictures of each row by the images' ids, against the sharp ones.

    A picture of which one row fails is left out of all, so that means are over the same pictures.
    """
    if depth is None and segmenter is None:
        raise DefocusError("neither a depth estimator nor a segmenter to judge by")
    judgements = Judgements()
    for item in each_in_turn(images, "judging ", progress):
        with failure_noted(judgements.failures, item.id):
            pictures = _pictures(item, restored)
            scores: dict[str, dict[str, Any]] = {row: {} for row in pictures}
            for task in (
                () if depth is None else _depth_scores(depth, pictures),
                () if segmenter is None else _segment_scores(segmenter, pictures, prompt, choice),
            ):
                for row, values in task:
                    scores[row] |= values
            judgements.pictures += [Judgement(item.id, row, **values) for row, values in scores.items()]
    if not judgements.pictures:
        raise DatasetError(f"none of {len(images)} pictures could be judged; the first: {judgements.failures[0][1]}")
    return judgements


def _pictures(item: TestImage, restored: Mapping[str, Mapping[str, Image]]) -> dict[str, Display]:
    """The pictures of all rows, input first and sharp last."""
    if item.truth is None:
        raise DatasetError("there is no sharp picture")
    sources: dict[str, Image] = {INPUT: item.input}
    for row, of_row in restored.items():
        if item.id not in of_row:
            raise DatasetError(f"{row} has no picture {item.id}")
        sources[row] = of_row[item.id]
    pictures = {row: source.read() for row, source in (sources | {SHARP: item.truth}).items()}
    for row, source in sources.items():
        if pictures[row].shape != pictures[SHARP].shape:
            sizes = " and ".join(f"{p.shape[1]}×{p.shape[0]}" for p in (pictures[row], pictures[SHARP]))
            raise DatasetError(f"it and the sharp picture have {sizes} pixels", file=source.place)
    return pictures


def _depth_scores(depth: DisparityEstimator, pictures: Mapping[str, Display]) -> Iterator[tuple[str, dict[str, Any]]]:
    truth = depth(pictures[SHARP])
    for row, picture in pictures.items():
        own = truth if row == SHARP else depth(picture)
        errors = (disparity_rmse(own, truth, aligned=aligned) for aligned in (True, False))
        yield row, dict(zip(("rmse_aligned", "rmse"), errors, strict=True))


def _segment_scores(
    segmenter: Segmenter, pictures: Mapping[str, Display], prompt: Prompt, choice: MaskChoice | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    sharp = segmenter.embed(pictures[SHARP])
    prompts = segmenter.automatic_prompts(sharp, choice)
    if not len(prompts):
        raise DatasetError("SAM 2 finds nothing in the sharp picture that it is sure of")
    truths = list(segmenter.answers(sharp, prompts, prompt))
    for row, picture in pictures.items():
        answers = segmenter.answers(sharp if row == SHARP else segmenter.embed(picture), prompts, prompt)
        iou = np.mean([overlap(answer, truth) for answer, truth in zip(answers, truths, strict=True)])
        yield row, {"iou": float(iou), "prompts": len(prompts)}


def restored_pictures(folder: str | Path, images: Sequence[TestImage]) -> dict[str, Image]:
    """The pictures of a folder by the ids of a set: files of that name or of the blurred one's, whatever the ending."""
    root = Path(folder)
    if not root.is_dir():
        raise DatasetError("there is no such folder", file=root)
    by_name = {p.stem: p for p in sorted(root.iterdir()) if p.suffix.lower() in PICTURES}
    pictures: dict[str, Image] = {
        one.id: FileImage(by_name[name]) for one in images for name in reversed(one.names) if name in by_name
    }
    missing = [" or ".join(one.names) for one in images if one.id not in pictures]
    if missing:
        raise DatasetError(f"{len(missing)} of {len(images)} pictures are not there, such as {missing[0]}", file=root)
    return pictures
