"""Judging a network while it learns: PSNR and SSIM of whole pictures, and strips of input, output and target to see.

Outputs are clipped and rounded to 8 bits first, as they would be saved; scores are those of `defocus evaluate`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import numpy as np
from jaxtyping import UInt8

from ..errors import DatasetError
from ._torch import Tensor, nn, torch
from .config import TrainConfig
from .data import OnTheFlyDataset, Pair, PairDataset, PairSource, Report, as_display, stacked
from .loader import PairRequest, fingerprint
from .similarity import WINDOW_PX, batch_grey, batch_psnr, batch_ssim

SHOWN_PX = 384  # the middle of larger pictures is shown
ON_THE_FLY_PAIRS = 64  # where the settings do not say how many

Strips = UInt8[np.ndarray, "rows cols 3"]


class ValidationPairs:
    """Pairs that the network is judged by: whole pictures, always the same. Pairs made on the way, or cached, are kept.

    `identity` changes with the pairs: scores of others cannot be compared.
    """

    def __init__(self, config: TrainConfig, report: Report | None = None) -> None:
        settings, data = config.validation, config.data
        self._sources: list[PairSource]
        if data.kind == "synthesis" and not settings.folders:
            assert data.plan is not None
            self._sources = [OnTheFlyDataset(data.plan, settings.split, settings.pairs or ON_THE_FLY_PAIRS)]
        else:
            self._sources = list(_folders(config))
        everything = [
            PairRequest(n, index, 0) for n, source in enumerate(self._sources) for index in range(len(source))
        ]
        count = min(settings.pairs or len(everything), len(everything))
        self.requests = [everything[n * len(everything) // count] for n in range(count)]
        requests = [tuple(request) for request in self.requests]
        self.identity = hashlib.sha256(f"{fingerprint(self._sources)} {requests}".encode()).hexdigest()
        for number, source in enumerate(self._sources):
            if isinstance(source, PairDataset):
                indices = [request.number for request in self.requests if request.source == number]
                need = f"the {WINDOW_PX} pixels that SSIM needs: take larger ones to validate with"
                source.check_sizes(indices, WINDOW_PX, need, report)
        self._keep = data.kind == "synthesis" or data.cache != "no"
        self._pairs: dict[int, Pair] = {}

    def __len__(self) -> int:
        return len(self.requests)

    def pair(self, number: int) -> Pair:
        """Blurred and sharp picture, whole numbers."""
        if number in self._pairs:
            return self._pairs[number]
        request = self.requests[number]
        (pair,) = self._sources[request.source].batch([request.number])
        if self._keep:
            self._pairs[number] = pair
        return pair


def _folders(config: TrainConfig) -> list[PairDataset]:
    """Folders to validate with. Raises `DatasetError` where there are none, or where their pairs are those to learn
    from and nobody asked for that."""
    settings, data = config.validation, config.data
    folders = settings.folders or data.folders
    try:
        sources = [PairDataset(folder, settings.split) for folder in folders]
    except DatasetError as error:
        raise DatasetError(
            f"{error.message}. Pairs to validate with are wanted: validation.folders names others, "
            "validation.every = 0 does without",
            file=error.file,
        ) from error
    for source in sources if settings.split != data.split else ():
        # A folder of one split has it under every name.
        if source.folder in data.folders and PairDataset(source.folder, data.split).pairs == source.pairs:
            raise DatasetError(
                "its pairs to validate with are those to learn from: give validation.folders, or the folder that "
                "holds both splits; validation.every = 0 does without",
                file=source.folder,
            )
    return sources


@dataclass(frozen=True)
class Scores:
    """Means over all pairs, and strips of some."""

    psnr: float
    ssim: float
    input_psnr: float  # before restoration
    strips: Strips | None

    def row(self) -> dict[str, float]:
        return {"psnr": self.psnr, "ssim": self.ssim, "input_psnr": self.input_psnr}


@torch.no_grad()  # type: ignore[untyped-decorator]
def judge(model: nn.Module, pairs: ValidationPairs, accelerator: Any, *, batch: int, images: int) -> Scores:
    """Scores of a network in evaluation mode. Every process takes its share of the pairs; all learn the scores."""
    own = range(accelerator.process_index, len(pairs), accelerator.num_processes)
    main = range(0, len(pairs), accelerator.num_processes)  # the share of the process that writes pictures
    images = min(images, len(main))
    shown = {main[n * len(main) // images] for n in range(images)}
    scores = torch.zeros((len(pairs), 3), device=accelerator.device)
    trios: dict[int, tuple[np.ndarray, ...]] = {}
    for group in _groups(pairs, own, batch):
        blurred, sharp = (as_display(side.to(accelerator.device)) for side in stacked([pair for _, pair in group]))
        restored = (model(blurred).float().clamp(0.0, 1.0) * 255.0).round() / 255.0
        similar = batch_ssim(batch_grey(restored), batch_grey(sharp))
        numbers = [number for number, _ in group]
        scores[numbers] = torch.stack((batch_psnr(restored, sharp), similar, batch_psnr(blurred, sharp)), 1)
        for number, *trio in zip(numbers, blurred, restored, sharp, strict=True):
            if number in shown:
                trios[number] = tuple(_as_bytes(picture) for picture in trio)
    psnr, ssim, input_psnr = accelerator.reduce(scores, "sum").double().mean(0).tolist()
    return Scores(psnr, ssim, input_psnr, _sheet([trios[number] for number in sorted(trios)]) if trios else None)


def _groups(pairs: ValidationPairs, numbers: range, batch: int) -> Iterator[list[tuple[int, Pair]]]:
    """Pairs of one size that follow each other, so many at most, with their numbers."""
    numbered = ((number, pairs.pair(number)) for number in numbers)
    for _, alike in groupby(numbered, key=lambda one: one[1][0].shape):
        while group := list(islice(alike, batch)):
            yield group


def _as_bytes(picture: Tensor) -> np.ndarray:
    return (picture * 255.0).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()


def _sheet(trios: list[tuple[np.ndarray, ...]]) -> Strips:
    """A row of input, output and target for each pair, the middle of large pictures, two white pixels between."""

    def framed(picture: np.ndarray) -> np.ndarray:
        top, left = (max(0, size - SHOWN_PX) // 2 for size in picture.shape[:2])
        middle = picture[top : top + SHOWN_PX, left : left + SHOWN_PX]
        return np.pad(middle, ((0, 2), (0, 2), (0, 0)), constant_values=255)

    rows = [np.concatenate([framed(picture) for picture in trio], 1) for trio in trios]
    widest = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, widest - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    return np.concatenate(padded)[:-2, :-2]
