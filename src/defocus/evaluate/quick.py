"""Two pictures, or two folders of pictures, measured against each other without a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DatasetError, DefocusError
from .datasets import pair_folders, photographs
from .measures import make_measure
from .pictures import FileImage, TestImage


@dataclass(frozen=True, slots=True)
class Comparison:
    """Values of each picture by measure, means over those that have them, and pictures that could not be measured."""

    values: dict[str, dict[str, float]]
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def means(self) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for values in self.values.values():
            for metric, value in values.items():
                found.setdefault(metric, []).append(value)
        return {metric: float(np.mean(values)) for metric, values in found.items()}


def compare_pictures(
    images: str | Path,
    truth: str | Path | None,
    metrics: Sequence[str] = ("psnr", "ssim"),
    *,
    files: Mapping[str, Path] | None = None,
    device: str | None = None,
    progress: Callable[[str, float], Any] | None = None,
) -> Comparison:
    """Measure a picture, or all of a folder, against its truth; without one, by measures that need none."""
    measures = [make_measure(metric, files=files, device=device) for metric in metrics]
    needing = [m.kind.name for m in measures if m.kind.needs_truth]
    if truth is None and needing:
        raise DefocusError(f"{', '.join(needing)} need a truth: give a second file or folder")
    items = _items(Path(images), None if truth is None else Path(truth))
    values: dict[str, dict[str, float]] = {}
    problems: list[tuple[str, str]] = []
    for number, item in enumerate(items):
        if progress is not None:
            progress(item.id, number / len(items))
        try:
            picture = item.input.read()
            other = item.truth.read() if item.truth is not None else None
            values[item.id] = {m.kind.name: m(picture, other) for m in measures}
        except (DefocusError, OSError) as error:
            problems.append((item.id, str(error)))
    return Comparison(values, tuple(problems))


def _items(images: Path, truth: Path | None) -> list[TestImage]:
    for path in (images, truth):
        if path is not None and not path.exists():
            raise DatasetError("no such file or folder", file=path)
    if truth is None:
        return photographs(images) if images.is_dir() else [TestImage(images.stem, FileImage(images))]
    if images.is_dir() != truth.is_dir():
        raise DatasetError(f"and {truth}: expected two pictures or two folders", file=images)
    if images.is_dir():
        return pair_folders(images, truth)
    return [TestImage(images.stem, FileImage(images), FileImage(truth))]
