"""The pictures that a row of a table made of a test set, saved before anything is measured.

A folder for each row and test set, a PNG for each picture, and a journal that says of which input and by what (weights,
options) each was made. A picture is there if its line says so and its file is; otherwise it is made again.
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

from ..files.journal import Journal
from ..files.pair_folders import PairReader, PictureFile
from ..files.pictures import quantise
from ..files.png import png_bytes
from ..files.stores import open_store
from .test_sets import StoredImage, TestImage

LINES = "made.jsonl"


@dataclass
class SavedPictures:
    """The folder of a row and a test set; `made_by` is the fingerprint of what makes its pictures."""

    folder: Path
    made_by: str
    bits: int = 8
    _journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self._journal = Journal(self.folder / LINES, "id")

    def image(self, item: TestImage) -> StoredImage:
        """The saved picture of a test image."""
        return StoredImage(PairReader(open_store(self.folder)), PictureFile(f"{item.id}.png"))

    def has(self, item: TestImage) -> bool:
        """Whether it was made of the same input by the same weights and options."""
        return (
            self._journal.is_done(item.id, by=self.made_by)
            and (self.folder / f"{item.id}.png").is_file()
            and self._journal.is_done(item.id, input=item.input.digest())
        )

    def save(self, item: TestImage, display: Float[np.ndarray, "rows cols 3"]) -> None:
        """Write a picture of display values 0..1 (clipped), then its line. `PhotoError` for values not finite."""
        open_store(self.folder).write(f"{item.id}.png", png_bytes(quantise(display, self.bits)))
        self._journal.write(item.id, input=item.input.digest(), by=self.made_by)


def fingerprint(weights: Path, settings: Mapping[str, Any]) -> str:
    """Checksum of a file of weights and of what else decides the pictures."""
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:32]
