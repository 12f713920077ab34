"""Segments of restored pictures against those of the sharp one, by SAM 2.

As in the paper: the automatic masks of the sharp picture (a grid of points, each asked for three masks, those kept that
the network is sure of and that do not change with the threshold, doubles removed) become prompts. Each prompt is put to
the sharp picture, whose answer is the truth, and to the others; the mean intersection over union of the answers is the
measure. A prompt is a mask, given as the network's own coarse logits, or the point that the mask was found by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from ...errors import DefocusError
from ...scene.depth_models import IMAGENET, load_network

SIZES = ("tiny", "small", "base-plus", "large")
MODELS = {size: f"facebook/sam2.1-hiera-{size}" for size in SIZES}
LARGEST_LOGIT = 32.0  # beyond, SAM 2 cuts masks that come back as prompts
AT_ONCE = 32  # prompts
Prompt = Literal["masks", "points"]


@dataclass(frozen=True)
class MaskChoice:
    """Which automatic masks are kept; SAM 2's own values."""

    points_per_side: int = 32
    least_score: float = 0.8  # what the network expects its overlap with the true mask to be
    least_stability: float = 0.95  # overlap of the masks at two thresholds
    stability_offset: float = 1.0
    largest_overlap: float = 0.7  # of two masks' boxes


@dataclass(frozen=True)
class Prompts:
    """The segments of a picture as prompts: places (x, y) as parts of its size, and coarse logits."""

    points: Float[np.ndarray, "n 2"]
    logits: Float[np.ndarray, "n rows cols"]
    scores: Float[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True)
class ImageEmbedding:
    """A picture as the network sees it."""

    layers: list[Any]
    size: tuple[int, int]  # rows and columns of the picture


class Segmenter:
    """SAM 2, of the cache (`tiny` to `large`, or a name) or of a folder."""

    def __init__(self, source: str = "large", device: str | None = None) -> None:
        self.source = MODELS.get(source, source)
        self._torch, network = load_network(
            self.source,
            "sam2",
            "Sam2Model",
            feature="segmenting pictures",
            published=MODELS.values(),
            failure=DefocusError,
        )
        self.device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        self._network = network.to(self.device)
        self._side = int(network.prompt_encoder.input_image_size)

    def embed(self, display: Float[np.ndarray, "h w 3"]) -> ImageEmbedding:
        """A picture of display values 0..1 as the network sees it: square, as it was trained."""
        torch = self._torch
        pixels = torch.from_numpy(np.ascontiguousarray(display.transpose(2, 0, 1), np.float32))[None].to(self.device)
        with torch.inference_mode():
            square = torch.nn.functional.interpolate(
                pixels, (self._side, self._side), mode="bilinear", align_corners=False, antialias=True
            )
            mean, spread = (torch.tensor(v, device=self.device)[:, None, None] for v in IMAGENET)
            embeddings = self._network.get_image_embeddings((square - mean) / spread)
        return ImageEmbedding(list(embeddings), (display.shape[0], display.shape[1]))

    def automatic_prompts(self, picture: ImageEmbedding, choice: MaskChoice | None = None) -> Prompts:
        """Prompts of the segments that the network finds by itself; possibly none."""
        torch, choice = self._torch, choice or MaskChoice()
        steps = (np.arange(choice.points_per_side) + 0.5) / choice.points_per_side
        grid = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2).astype(np.float32)
        points, logits, scores = [], [], []
        with torch.inference_mode():
            for first in range(0, len(grid), AT_ONCE):
                some = grid[first : first + AT_ONCE]
                answer = self.point_answers(picture, some, several=True)
                masks, score = answer.pred_masks[0].float(), answer.iou_scores[0].float()  # [points, 3, …]
                keep = (score > choice.least_score) & (masks > 0.0).any(-1).any(-1)
                keep &= _stability(masks, choice.stability_offset) > choice.least_stability
                points.append(some[keep.nonzero().cpu().numpy()[:, 0]])
                logits.append(masks[keep].cpu().numpy())
                scores.append(score[keep].cpu().numpy())
        prompts = Prompts(*(np.concatenate(part) for part in (points, logits, scores)))
        single = without_doubles(prompts.logits > 0.0, prompts.scores, choice.largest_overlap)
        return Prompts(prompts.points[single], prompts.logits[single], prompts.scores[single])

    def answers(
        self, picture: ImageEmbedding, prompts: Prompts, kind: Prompt = "masks"
    ) -> Iterator[Bool[np.ndarray, "h w"]]:
        """The segment of each prompt in a picture, at the picture's size."""
        if kind not in ("masks", "points"):
            raise DefocusError(f"prompts {kind!r}; expected masks or points")
        torch = self._torch
        for first in range(0, len(prompts), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            with torch.inference_mode():
                if kind == "points":
                    masks = self.point_answers(picture, prompts.points[part], several=False).pred_masks[0, :, 0]
                else:
                    masks = self._mask_answers(picture, prompts.logits[part])
                for mask in masks.float():
                    large = torch.nn.functional.interpolate(mask[None, None], picture.size, mode="bilinear")
                    yield (large[0, 0] > 0.0).cpu().numpy()

    def point_answers(self, picture: ImageEmbedding, points: Float[np.ndarray, "n 2"], *, several: bool) -> Any:
        """What the network says of places (x, y), parts of the picture's size; `several`: three masks for each."""
        torch = self._torch
        # The network adds half a pixel to the places it is given.
        places = torch.from_numpy(points.astype(np.float32) * self._side - 0.5).to(self.device)[None, :, None]
        labels = torch.ones(places.shape[:3], dtype=torch.int32, device=self.device)
        return self._network(
            image_embeddings=list(picture.layers), input_points=places, input_labels=labels, multimask_output=several
        )

    def _mask_answers(self, picture: ImageEmbedding, logits: Float[np.ndarray, "n rows cols"]) -> Any:
        """Masks of the prompts, each with a picture of its own: the network takes one mask to a picture."""
        torch = self._torch
        masks = torch.from_numpy(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)).to(self.device)[:, None]
        copies = [one.expand(len(logits), *one.shape[1:]) for one in picture.layers]
        return self._network(image_embeddings=copies, input_masks=masks, multimask_output=False).pred_masks[:, 0, 0]


def _stability(masks: Any, offset: float) -> Any:
    """Overlap of a mask at a higher threshold with that at a lower one, which contains it."""
    inner, outer = (masks > offset).sum((-1, -2)), (masks > -offset).sum((-1, -2))
    return inner / outer.clamp(min=1)


def without_doubles(
    masks: Bool[np.ndarray, "n rows cols"], scores: Float[np.ndarray, "n"], largest_overlap: float
) -> list[int]:
    """Numbers of the masks without those whose boxes overlap by more (intersection over union) with one of a higher
    score."""
    boxes = np.array([_box(mask) for mask in masks], float).reshape(-1, 4)
    single: list[int] = []
    for number in np.argsort(-scores, kind="stable"):
        if all(_box_overlap(boxes[number], boxes[other]) <= largest_overlap for other in single):
            single.append(int(number))
    return single


def _box(mask: Bool[np.ndarray, "rows cols"]) -> tuple[int, int, int, int]:
    rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not rows.size:
        return 0, 0, 0, 0
    return int(rows[0]), int(cols[0]), int(rows[-1]) + 1, int(cols[-1]) + 1


def _box_overlap(a: Float[np.ndarray, "4"], b: Float[np.ndarray, "4"]) -> float:
    inner = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0.0, None).prod()
    whole = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - inner
    return float(inner / whole) if whole > 0.0 else 0.0


def overlap(a: Bool[np.ndarray, "h w"], b: Bool[np.ndarray, "h w"]) -> float:
    """Intersection over union of two masks; 1 where both are empty."""
    either = int(np.count_nonzero(a | b))
    return 1.0 if either == 0 else int(np.count_nonzero(a & b)) / either
