"""The pictures that a row of the matrix made of a test set, saved before anything is measured.

A folder for each row and test set, a PNG for each picture, and a line of JSON for each in `made.jsonl`: of which input
and by what (weights, options) it was made. A picture is there if its line says so and its file is; otherwise it is made
again. Files appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..files.pictures import quantise
from ..files.png import png_bytes
from ..files.stores import open_store
from .pictures import SavedImage, TestImage

LINES = "made.jsonl"


@dataclass
class SavedPictures:
    """What is in the folder of a row and a test set; `made_by` is the fingerprint of what makes its pictures."""

    folder: Path
    made_by: str
    bits: int = 8
    _lines: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        file = self.folder / LINES
        if not file.is_file():
            return
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                told = json.loads(line)
                self._lines[told["id"]] = told
            except (ValueError, KeyError, TypeError):  # the last line of a run that was killed
                continue

    def image(self, item: TestImage) -> SavedImage:
        return SavedImage(self.folder / f"{item.id}.png")

    def has(self, item: TestImage) -> bool:
        """Whether it was made of the same input by the same weights and options."""
        told = self._lines.get(item.id)
        if told is None or told.get("by") != self.made_by or not self.image(item).path.is_file():
            return False
        return told.get("input") == item.input.digest()

    def save(self, item: TestImage, display: Float[np.ndarray, "rows cols 3"]) -> None:
        """Write a picture of display values 0..1 (clipped), then its line. Raises `DatasetError` for no numbers."""
        data = png_bytes(quantise(display, self.bits))
        open_store(self.folder).write(f"{item.id}.png", data)
        told = {"id": item.id, "input": item.input.digest(), "by": self.made_by}
        with (self.folder / LINES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        self._lines[item.id] = told


def fingerprint(weights: Path, settings: Mapping[str, Any]) -> str:
    """Of a file of weights and of what else decides the pictures."""
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:32]
