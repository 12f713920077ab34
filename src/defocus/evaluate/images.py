"""The pictures of an evaluation: where each lies, and how it is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ..files import pictures
from ..files.pair_folders import PairReader, PictureFile
from .photometry import cell_means

Values = Float[np.ndarray, "rows cols 3"]


@runtime_checkable
class Image(Protocol):
    """A picture that is read when it is needed."""

    @property
    def place(self) -> str:
        """Full name, for messages."""

    def read(self) -> Values:
        """Display values 0..1."""

    def digest(self) -> str:
        """Checksum of everything that decides its values."""

    def size(self) -> tuple[int, int]:
        """Width and height, without decoding it."""


@dataclass(frozen=True, slots=True)
class FileImage:
    """A photograph: PNG, JPEG or TIFF of 8 or 16 bits, turned upright, in sRGB."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def read(self) -> Values:
        return pictures.read_picture(self.path)[0]

    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def size(self) -> tuple[int, int]:
        return pictures.upright_size(self.path)


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A picture of a folder of pairs, or one that we saved, as it is stored; it may lie in a shard."""

    reader: PairReader = field(repr=False)
    picture: PictureFile

    @property
    def place(self) -> str:
        return self.reader.place(self.picture)

    def read(self) -> Values:
        values = pictures.decode_picture(self.reader.read(self.picture), self.place)
        return values.astype(np.float32) * np.float32(1.0 / np.iinfo(values.dtype).max)

    def digest(self) -> str:
        return hashlib.sha256(self.reader.read(self.picture)).hexdigest()

    def size(self) -> tuple[int, int]:
        rows, cols, _ = self.reader.size(self.picture)
        return cols, rows


@dataclass(frozen=True, slots=True)
class ReducedImage:
    """A picture at a fraction of its size: means of squares of so many pixels a side, cut to whole squares."""

    image: Image
    factor: int

    @property
    def place(self) -> str:
        return self.image.place

    def read(self) -> Values:
        return cell_means(self.image.read(), self.factor).astype(np.float32)

    def digest(self) -> str:
        return hashlib.sha256(f"{self.image.digest()} {self.factor}".encode()).hexdigest()

    def size(self) -> tuple[int, int]:
        width, height = self.image.size()
        return width // self.factor, height // self.factor
