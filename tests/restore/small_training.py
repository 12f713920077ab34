"""Pairs of a few pixels and settings of a training of a second, for its tests; and what it leaves."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from defocus.errors import ConfigError
from defocus.files.pictures import quantise
from defocus.files.png import png_bytes
from defocus.files.settings import validated
from defocus.restore.config import TrainConfig, merged
from defocus.restore.models.checkpoints import read_weights


def write_pairs(
    folder: Path,
    counts: tuple[int, int] = (6, 2),
    sizes: tuple[tuple[int, int], ...] = ((24, 28),),
    bits: int = 8,
    seed: int = 5,
) -> Path:
    """train and validation, each with input and target; sizes (rows, columns) take turns."""
    rng = np.random.default_rng(seed)
    for split, count in zip(("train", "validation"), counts, strict=True):
        for number in range(count):
            rows, cols = sizes[number % len(sizes)]
            sharp = gaussian_filter(rng.random((rows, cols, 3)), (0.7, 0.7, 0)).astype(np.float32)
            blurred = gaussian_filter(sharp, (1.2, 1.2, 0))
            for side, values in (("input", blurred), ("target", sharp)):
                file = folder / split / side / f"{number:03d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(png_bytes(quantise(values, bits)))
    return folder


# Options of the smallest networks that have all of their parts.
TINY: dict[str, dict[str, Any]] = {
    "nrknet": {"width": 4, "kernels": 3},
    "iniknet": {"width": 4, "unet_blocks": 1, "lstm_blocks": 1, "bases": 3, "largest_kernel": 7},
    "nafnet": {"width": 4, "encoder_blocks": (1, 1, 1, 2), "decoder_blocks": (1, 1, 1, 1)},
    "restormer": {"width": 8, "blocks": (1, 1, 1, 1), "heads": (1, 2, 2, 4), "refinement_blocks": 1},
}

BASE: dict[str, Any] = {
    "steps": 12,
    "batch": 4,
    "crop": 16,
    "model": {
        "name": "nafnet",
        "overrides": {"width": 4, "encoder_blocks": [1], "decoder_blocks": [1], "middle_blocks": 1},
    },
    "optimizer": {"rate": 3e-3},
    "data": {"workers": 0},
    "validation": {"every": 0},
    "logs": {"every": 1},
}


def settings(folder: Path | None = None, **changes: Any) -> TrainConfig:
    """`BASE` with changes, table by table."""
    table = merged(BASE, changes)
    if folder is not None:
        table = merged(table, {"data": {"folders": [str(folder)]}})
    return validated(TrainConfig, table, ConfigError)


def weights(file: Path | None) -> dict[str, torch.Tensor]:
    assert file is not None
    return read_weights(file)[2]


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))
