"""Judging a network while it learns: PSNR and SSIM of whole pictures, and strips of input, output and target to see.

Outputs are clipped and rounded to 8 bits first, as they would be saved; scores are those of `defocus evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import nn

from .pair_cache import as_display, whole_numbers
from .similarity import batch_grey, batch_psnr, batch_ssim
from .train_data import ValidationPairs

SHOWN_PX = 384  # the middle of larger pictures is shown


@dataclass(frozen=True)
class Scores:
    """Means over all pairs, and strips of some."""

    psnr: float
    ssim: float
    input_psnr: float  # before restoration
    strips: UInt8[np.ndarray, "rows cols 3"] | None

    def row(self) -> dict[str, float]:
        return {"psnr": self.psnr, "ssim": self.ssim, "input_psnr": self.input_psnr}


@torch.no_grad()  # type: ignore[untyped-decorator]
def judge(model: nn.Module, pairs: ValidationPairs, accelerator: Any, *, batch: int, images: int) -> Scores:
    """Of a network in evaluation mode. Every process takes its share of the pairs; all learn the scores."""
    device = accelerator.device
    mine = range(accelerator.process_index, len(pairs), accelerator.num_processes)
    main = range(0, len(pairs), accelerator.num_processes)  # the share of the process that writes pictures
    shown = {main[n * len(main) // min(images, len(main))] for n in range(min(images, len(main)))}
    found = torch.zeros((len(pairs), 3), device=device)
    pictures: dict[int, tuple[np.ndarray, ...]] = {}
    for numbers in _groups(pairs, list(mine), batch):
        loaded = [pairs.pair(n) for n in numbers]
        bits = max(8 * x.dtype.itemsize for pair in loaded for x in pair)
        blurred, sharp = (
            as_display(torch.stack([whole_numbers(pair[side], bits) for pair in loaded]).to(device)).permute(0, 3, 1, 2)
            for side in (0, 1)
        )
        restored = (model(blurred).float().clamp(0.0, 1.0) * 255.0).round() / 255.0
        similar = batch_ssim(batch_grey(restored), batch_grey(sharp))
        found[numbers] = torch.stack((batch_psnr(restored, sharp), similar, batch_psnr(blurred, sharp)), 1)
        for n, *trio in zip(numbers, blurred, restored, sharp, strict=True):
            if n in shown:
                pictures[n] = tuple(_as_bytes(x) for x in trio)
    mean_psnr, mean_ssim, before = accelerator.reduce(found, "sum").double().mean(0).tolist()
    return Scores(mean_psnr, mean_ssim, before, _sheet([pictures[n] for n in sorted(pictures)]) if pictures else None)


def _groups(pairs: ValidationPairs, numbers: list[int], batch: int) -> list[list[int]]:
    """Pairs of one size that follow each other, so many at most."""
    if batch == 1:
        return [[n] for n in numbers]
    groups: list[list[int]] = []
    last: tuple[int, ...] = ()
    for n in numbers:
        shape = pairs.pair(n)[0].shape
        if groups and shape == last and len(groups[-1]) < batch:
            groups[-1].append(n)
        else:
            groups.append([n])
        last = shape
    return groups


def _as_bytes(picture: torch.Tensor) -> np.ndarray:
    return (picture * 255.0).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()


def _sheet(trios: list[tuple[np.ndarray, ...]]) -> UInt8[np.ndarray, "rows cols 3"]:
    """A row of input, output and target for each pair, the middle of large pictures, two white pixels between."""
    rows = []
    for trio in trios:
        height, width = (min(SHOWN_PX, size) for size in trio[0].shape[:2])
        top, left = ((size - used) // 2 for size, used in zip(trio[0].shape[:2], (height, width), strict=True))
        gap = np.full((height, 2, 3), 255, np.uint8)
        cut = [picture[top : top + height, left : left + width] for picture in trio]
        rows.append(np.concatenate((cut[0], gap, cut[1], gap, cut[2]), 1))
    widest = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 2), (0, widest - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    return np.concatenate(padded)[:-2]
