"""Depth and segments of the pictures of a set, against those of the sharp ones: a value for each picture, and means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import DatasetError, DefocusError
from ...files.pictures import PICTURES
from ..test_sets import FileImage, Image, TestImage
from .depth import DisparityEstimator, disparity_rmse
from .segmentation import Choice, Prompt, Segmenter, overlap

MEASURES = {
    "rmse_aligned": ("RMSE, aligned", "least"),
    "rmse": ("RMSE, not aligned", "least"),
    "iou": ("mean IoU", "most"),
}
INPUT, SHARP = "input", "sharp"


@dataclass(frozen=True)
class Judgement:
    """One picture of one row; NaN for what was not asked for."""

    image: str
    row: str
    rmse: float = math.nan
    rmse_aligned: float = math.nan
    iou: float = math.nan
    prompts: int = 0

    def as_row(self) -> dict[str, Any]:
        """A line of the CSV file."""
        return {
            "image": self.image, "row": self.row, "rmse_aligned": self.rmse_aligned, "rmse": self.rmse,
            "iou": self.iou, "prompts": self.prompts,
        }  # fmt: skip


@dataclass
class Judged:
    """What was found, and what could not be judged with the reasons."""

    found: list[Judgement] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def means(self) -> dict[str, dict[str, float]]:
        """Over the pictures that every row has, by row and measure."""
        rows = list(dict.fromkeys(one.row for one in self.found))
        made: dict[str, dict[str, float]] = {}
        for row in rows:
            mine = [one for one in self.found if one.row == row]
            made[row] = {}
            for name in MEASURES:
                values = [getattr(one, name) for one in mine if not math.isnan(getattr(one, name))]
                made[row][name] = float(np.mean(values)) if values else math.nan
        return made


def judge(
    images: Sequence[TestImage],
    restored: Mapping[str, Mapping[str, Image]],
    *,
    depth: DisparityEstimator | None = None,
    segmenter: Segmenter | None = None,
    prompt: Prompt = "masks",
    choice: Choice | None = None,
    progress: Callable[[str, float], Any] | None = None,
) -> Judged:
    """Judge the inputs, and the restored pictures of each row by the images' ids, against the sharp pictures.

    A picture of which one row fails is left out of all, so that means are over the same pictures.
    """
    if depth is None and segmenter is None:
        raise DefocusError("neither depth nor segmentation was asked for")
    judged = Judged()
    for number, item in enumerate(images):
        if progress is not None:
            progress(f"judging {item.id}", number / len(images))
        try:
            judged.found += _one(item, restored, depth, segmenter, prompt, choice)
        except DefocusError as error:
            judged.failed.append((item.id, str(error)))
    if not judged.found:
        raise DatasetError(f"none of {len(images)} pictures could be judged; the first: {judged.failed[0][1]}")
    return judged


def _one(
    item: TestImage,
    restored: Mapping[str, Mapping[str, Image]],
    depth: DisparityEstimator | None,
    segmenter: Segmenter | None,
    prompt: Prompt,
    choice: Choice | None,
) -> list[Judgement]:
    if item.truth is None:
        raise DatasetError("there is no sharp picture")
    sharp = item.truth.read()
    sources: dict[str, Image] = {INPUT: item.input}
    for row, pictures in restored.items():
        if item.id not in pictures:
            raise DatasetError(f"{row} has no picture {item.id}")
        sources[row] = pictures[item.id]
    sources[SHARP] = item.truth
    disparity = None if depth is None else depth(sharp)
    truths: list[np.ndarray] = []
    seen = prompts = None
    if segmenter is not None:
        seen = segmenter.look(sharp)
        prompts = segmenter.automatic_prompts(seen, choice)
        if not len(prompts):
            raise DatasetError("SAM 2 finds nothing in the sharp picture that it is sure of")
        truths = list(segmenter.answers(seen, prompts, prompt))
    made = []
    for row, source in sources.items():
        picture = sharp if row == SHARP else source.read()
        if picture.shape != sharp.shape:
            sizes = " and ".join(f"{p.shape[1]}×{p.shape[0]}" for p in (picture, sharp))
            raise DatasetError(f"it and the sharp picture have {sizes} pixels", file=source.place)
        values: dict[str, Any] = {}
        if depth is not None and disparity is not None:
            own = disparity if row == SHARP else depth(picture)
            values = {
                "rmse": disparity_rmse(own, disparity, aligned=False),
                "rmse_aligned": disparity_rmse(own, disparity, aligned=True),
            }
        if segmenter is not None and prompts is not None:
            values |= _segments(segmenter, picture, prompts, truths, prompt)
        made.append(Judgement(item.id, row, **values))
    return made


def _segments(
    segmenter: Segmenter, picture: Float[np.ndarray, "h w 3"], prompts: Any, truths: list[np.ndarray], prompt: Prompt
) -> dict[str, Any]:
    answers = segmenter.answers(segmenter.look(picture), prompts, prompt)
    return {
        "iou": float(np.mean([overlap(a, t) for a, t in zip(answers, truths, strict=True)])),
        "prompts": len(prompts),
    }


def restored_pictures(folder: str | Path, images: Sequence[TestImage]) -> dict[str, Image]:
    """The pictures of a folder by the ids of a set: files of that name or of the blurred one's, whatever the ending."""
    root = Path(folder)
    if not root.is_dir():
        raise DatasetError("there is no such folder", file=root)
    by_name = {p.stem: p for p in sorted(root.iterdir()) if p.suffix.lower() in PICTURES}
    found = {one.id: FileImage(by_name[name]) for one in images for name in reversed(one.names) if name in by_name}
    missing = [" or ".join(one.names) for one in images if one.id not in found]
    if missing:
        raise DatasetError(f"{len(missing)} of {len(images)} pictures are not there, such as {missing[0]}", file=root)
    return dict(found)


def markdown(judged: Judged, title: str, about: Sequence[str] = ()) -> str:
    """A table as the paper's: rows against measures, the best restored one of each in bold, the second underlined."""
    means = judged.means()
    measures = [name for name in MEASURES if any(not math.isnan(row[name]) for row in means.values())]
    marks: dict[tuple[str, str], str] = {}
    for name in measures:
        ranked = [row for row in means if row not in (INPUT, SHARP)]
        ranked.sort(key=lambda row: means[row][name], reverse=MEASURES[name][1] == "most")
        for row, form in zip(ranked, ("**{}**", "<u>{}</u>"), strict=False):
            marks[row, name] = form
    count = len({one.image for one in judged.found})
    arrows = {"least": "↓", "most": "↑"}
    lines = [
        f"# {title}",
        "",
        *about,
        "",
        f"Means over {count} pictures; the sharp picture's answers are the truth.",
        "",
    ]
    lines.append("| | " + " | ".join(f"{MEASURES[m][0]} {arrows[MEASURES[m][1]]}" for m in measures) + " |")
    lines.append("| --- |" + " ---: |" * len(measures))
    for row, values in means.items():
        cells = [marks.get((row, m), "{}").format(f"{values[m]:.3f}") for m in measures]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    if judged.failed:
        lines += ["", f"Not judged are {len(judged.failed)}:", ""]
        lines += [f"- {name}: {why}" for name, why in judged.failed]
    return "\n".join(lines) + "\n"
