"""What deblurring is good for: depth and segments of blurred and restored pictures, against those of the sharp ones.

As in the paper (S7), what a network says of the sharp picture is the truth.

Depth Anything V2's relative models give disparity up to scale and shift, in units of their own. The error is the root
mean square difference of disparities: as they are, and after the scale and shift that make the squared difference least
(Ranftl et al., 2022).

SAM 2's automatic masks of the sharp picture (a grid of points, each asked for three masks, those kept that the network
is sure of and that do not change with the threshold, doubles removed) become prompts. Each prompt is put to the sharp
picture and to the others; the mean intersection over union of the answers is the measure. A prompt is a mask, given as
the network's own coarse logits, or the point that the mask was found by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from ..draw.pages import markdown_words as words
from ..errors import DatasetError, DefocusError, DepthError
from ..files.ownership import OwnedFolder
from ..files.pictures import PICTURES
from ..scene.depth_models import IMAGENET, depth_anything, load_network
from .images import FileImage, Image
from .measures import Display, batch_of_one
from .results import markdown_table, ranks
from .table_file import slug
from .test_sets import Progress, TestImage, each_in_turn, failure_noted, from_the_middle

DEPTH_MODELS = {size.lower(): f"depth-anything/Depth-Anything-V2-{size}-hf" for size in ("Small", "Base", "Large")}
SAM_MODELS = {size: f"facebook/sam2.1-hiera-{size}" for size in ("tiny", "small", "base-plus", "large")}
LARGEST_LOGIT = 32.0  # beyond, SAM 2 cuts masks that come back as prompts
AT_ONCE = 32  # prompts
MEASURES = {"rmse_aligned": "RMSE, aligned ↓", "rmse": "RMSE, not aligned ↓", "iou": "mean IoU ↑"}
INPUT, SHARP = "input", "sharp"
Prompt = Literal["masks", "points"]
Disparity = Float[np.ndarray, "h w"]


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
            [words(row), *(forms.get(places[m].get(row, 0), "{:.3f}").format(values[m]) for m in measures)]
            for row, values in means.items()
        ]
        count = len({one.image for one in self.pictures})
        parts = [
            f"# {words(title)}",
            "\n".join(map(words, about)),
            f"Means over {count} pictures; the sharp picture's answers are the truth.",
            markdown_table(["", *(MEASURES[m] for m in measures)], rows),
        ]
        if self.failures:
            parts += [
                f"Not judged are {len(self.failures)}:",
                "\n".join(f"- {words(f'{i}: {why}')}" for i, why in self.failures),
            ]
        return "\n\n".join(part for part in parts if part) + "\n"


def judge(
    images: Sequence[TestImage],
    restored: Mapping[str, Mapping[str, Image]],
    *,
    depth: DisparityEstimator | None = None,
    segmenter: Segmenter | None = None,
    prompt: Prompt = "masks",
    choice: MaskChoice | None = None,
    drawings: TaskDrawings | None = None,
    progress: Progress | None = None,
) -> Judgements:
    """Judgements of the inputs, and of the restored pictures of each row by the images' ids, against the sharp ones.

    A picture of which one row fails is left out of all, so that means are over the same pictures. Of some pictures
    `drawings` are made.
    """
    if depth is None and segmenter is None:
        raise DefocusError("neither a depth estimator nor a segmenter to judge by")
    judgements = Judgements()
    for item in each_in_turn(images, "judging ", progress):
        with failure_noted(judgements.failures, item.id):
            pictures = _pictures(item, restored)
            drawing = drawings.of(item, pictures) if drawings is not None else None
            errors = _depth_scores(depth, pictures, drawing) if depth is not None else {}
            overlaps = _segment_scores(segmenter, pictures, prompt, choice, drawing) if segmenter is not None else {}
            judgements.pictures += [
                Judgement(item.id, row, **errors.get(row, {}), **overlaps.get(row, {})) for row in pictures
            ]
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


@dataclass(frozen=True)
class TaskDrawing:
    """The figures of one picture: what the networks see in each row of it."""

    folder: OwnedFolder
    stem: str  # of the files
    title: str
    pictures: Mapping[str, Display]

    def depth(self, disparities: Mapping[str, Disparity], scores: Mapping[str, Mapping[str, float]]) -> None:
        """Draw where the depths of the rows are wrong, each after its best scale and shift."""
        from ..draw import draw_depth_errors, figure_bytes

        truth = disparities[SHARP]
        errors = {row: np.abs(best_fit(own, truth) - truth) for row, own in disparities.items() if row != SHARP}
        words = {row: f"RMSE {scores[row]['rmse_aligned']:.3f}" for row in errors}
        figure = draw_depth_errors(self.title, self.pictures, errors, truth, words)
        self.folder.write(f"{self.stem}-depth.png", figure_bytes(figure))

    def segments(self, labels: Mapping[str, Int[np.ndarray, "h w"]], scores: Mapping[str, Mapping[str, float]]) -> None:
        """Draw the segments of the rows, those of one prompt in one colour."""
        from ..draw import draw_segments, figure_bytes

        words = {row: f"mean IoU {scores[row]['iou']:.3f}" for row in labels if row != SHARP}
        figure = draw_segments(self.title, self.pictures, labels, words)
        self.folder.write(f"{self.stem}-segments.png", figure_bytes(figure))


@dataclass(frozen=True)
class TaskDrawings:
    """Figures of so many pictures, spread evenly over a set, at a place of a folder."""

    folder: OwnedFolder
    stems: Mapping[str, str]  # of the files, by the pictures' ids

    @classmethod
    def spread(cls, folder: OwnedFolder, place: str, images: Sequence[TestImage], count: int) -> TaskDrawings:
        """Figures of `count` of the images, or of all."""
        return cls(folder, {one.id: f"{place}/{slug(one.id)}" for one in from_the_middle(images, count)})

    @property
    def names(self) -> list[str]:
        """The files that may be written."""
        return [f"{stem}-{task}.png" for stem in self.stems.values() for task in ("depth", "segments")]

    def of(self, item: TestImage, pictures: Mapping[str, Display]) -> TaskDrawing | None:
        """The figures of a picture, if it has any."""
        stem = self.stems.get(item.id)
        return None if stem is None else TaskDrawing(self.folder, stem, item.id, pictures)


def _depth_scores(
    depth: DisparityEstimator, pictures: Mapping[str, Display], drawing: TaskDrawing | None
) -> dict[str, dict[str, Any]]:
    disparities = {row: depth(picture) for row, picture in pictures.items()}
    scores = {
        row: {
            "rmse_aligned": disparity_rmse(own, disparities[SHARP], aligned=True),
            "rmse": disparity_rmse(own, disparities[SHARP], aligned=False),
        }
        for row, own in disparities.items()
    }
    if drawing is not None:
        drawing.depth(disparities, scores)
    return scores


def _segment_scores(
    segmenter: Segmenter,
    pictures: Mapping[str, Display],
    prompt: Prompt,
    choice: MaskChoice | None,
    drawing: TaskDrawing | None,
) -> dict[str, dict[str, Any]]:
    sharp = segmenter.embed(pictures[SHARP])
    prompts = segmenter.automatic_prompts(sharp, choice)
    if not len(prompts):
        raise DatasetError("SAM 2 finds nothing in the sharp picture that it is sure of")
    truths = list(segmenter.answers(sharp, prompts, prompt))
    from_smallest = np.argsort(np.argsort([np.count_nonzero(truth) for truth in truths], kind="stable"))
    scores: dict[str, dict[str, Any]] = {}
    labels = {}
    for row, picture in pictures.items():
        answers = segmenter.answers(sharp if row == SHARP else segmenter.embed(picture), prompts, prompt)
        overlaps, label = [], np.full(picture.shape[:2], len(truths))
        for answer, truth, rank in zip(answers, truths, from_smallest, strict=True):
            overlaps.append(overlap(answer, truth))
            if drawing is not None:
                label = np.where(answer, np.minimum(label, rank), label)  # a small segment lies on a large one
        scores[row] = {"iou": float(np.mean(overlaps)), "prompts": len(prompts)}
        labels[row] = np.where(label < len(truths), label, -1)
    if drawing is not None:
        drawing.segments(labels, scores)
    return scores


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


class _Network:
    """A network of the cache or of a folder, on a device."""

    def __init__(self, source: str, device: str | None, *kind: Any, **options: Any) -> None:
        self.source = source
        self._torch, network = load_network(source, *kind, **options)
        self.device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        self._network = network.to(self.device)


class DisparityEstimator(_Network):
    """A relative Depth Anything V2, of the cache (`small`, `base`, `large`, or a name) or of a folder."""

    def __init__(self, source: str = "large", device: str | None = None) -> None:
        source = DEPTH_MODELS.get(source, source)

        def check(config: Any) -> None:
            if config.depth_estimation_type != "relative":
                raise DepthError(f"{source} gives metres; use a relative model (without Metric in its name)")

        kind = ("depth_anything", "DepthAnythingForDepthEstimation", check)
        super().__init__(source, device, *kind, published=DEPTH_MODELS.values())

    def __call__(self, display: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w"]:
        """Disparity of a picture of display values 0..1, in the network's own units."""
        with self._torch.inference_mode():
            pixels = batch_of_one(display, self._torch, self.device)
            return depth_anything(self._torch, self._network, pixels).float().cpu().numpy()


def disparity_rmse(disparity: Float[np.ndarray, "h w"], truth: Float[np.ndarray, "_ _"], *, aligned: bool) -> float:
    """Root mean square error; `aligned`: after the best scale and shift of `disparity`."""
    if disparity.shape != truth.shape:
        raise DefocusError(f"disparities of shapes {disparity.shape} and {truth.shape}; expected the same")
    a = best_fit(disparity, truth) if aligned else np.asarray(disparity, np.float64)
    return float(np.sqrt(np.square(a - truth).mean()))


def best_fit(disparity: Disparity, truth: Float[np.ndarray, "_ _"]) -> Disparity:
    """The disparity after the scale and shift that bring it nearest to the truth."""
    a, b = np.asarray(disparity, np.float64), np.asarray(truth, np.float64)
    centred = a - a.mean()
    energy = float(np.square(centred).mean())
    scale = 0.0 if energy == 0.0 else float((centred * (b - b.mean())).mean()) / energy
    return scale * centred + b.mean()


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


class Segmenter(_Network):
    """SAM 2, of the cache (`tiny` to `large`, or a name) or of a folder."""

    def __init__(self, source: str = "large", device: str | None = None) -> None:
        options: dict[str, Any] = {"feature": "segmenting pictures", "failure": DefocusError}
        source = SAM_MODELS.get(source, source)
        super().__init__(source, device, "sam2", "Sam2Model", published=SAM_MODELS.values(), **options)
        self._side = int(self._network.prompt_encoder.input_image_size)

    def embed(self, display: Float[np.ndarray, "h w 3"]) -> ImageEmbedding:
        """A picture of display values 0..1 as the network sees it: square, as it was trained."""
        torch = self._torch
        with torch.inference_mode():
            square = torch.nn.functional.interpolate(
                batch_of_one(display, torch, self.device), (self._side,) * 2, mode="bilinear", antialias=True
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
