"""One picture of a test set, wherever it lies: a file, or a member of a shard."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Float

from ..errors import DatasetError, FileError
from ..restore.pair_files import PairReader, Picture

Values = Float[np.ndarray, "rows cols 3"]


class Image(Protocol):
    """A picture that can be read when it is wanted."""

    @property
    def place(self) -> str:
        """For messages."""

    def read(self) -> Values:
        """Display values 0..1."""

    def digest(self) -> str:
        """Of its bytes."""

    def size(self) -> tuple[int, int]:
        """Width and height, without decoding it where that is possible."""


@dataclass(frozen=True, slots=True)
class FileImage:
    """A file: PNG, JPEG or TIFF, of 8 or 16 bits."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def read(self) -> Values:
        from ..files.pictures import read_picture

        return read_picture(self.path)[0]

    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def size(self) -> tuple[int, int]:
        return _header_size(self.path, self.place, upright=True)


@dataclass(frozen=True, slots=True)
class SavedImage:
    """A PNG that we wrote: without EXIF data or a profile to look for."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def read(self) -> Values:
        return _display(self.path.read_bytes(), self.place)

    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def size(self) -> tuple[int, int]:
        return FileImage(self.path).size()


@dataclass(frozen=True, slots=True)
class StoredImage:
    """A picture of a folder of pairs; it may lie in a shard. `file`: where it is one of this machine."""

    reader: PairReader = field(repr=False)
    picture: Picture
    file: Path | None = None

    @property
    def place(self) -> str:
        return self.reader.place(self.picture)

    def read(self) -> Values:
        return _display(self.reader.read(self.picture), self.place)

    def digest(self) -> str:
        return hashlib.sha256(self.reader.read(self.picture)).hexdigest()

    def size(self) -> tuple[int, int]:
        return _header_size(self.file or io.BytesIO(self.reader.read(self.picture)), self.place, upright=False)


@dataclass(frozen=True, slots=True)
class TestImage:
    """A blurred picture and, where there is one, the sharp one; `blur_px` is the largest blur radius, if known."""

    __test__ = False  # not what pytest looks for

    id: str
    input: Image
    truth: Image | None = None
    blur_px: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Under which a restored copy may lie in a folder: the id, or what the blurred file is called."""
        return tuple(dict.fromkeys((self.id, Path(self.input.place.split(" (")[0]).stem)))


@dataclass(frozen=True, slots=True)
class TestSet:
    """The pictures of a column of the matrix, and what is to be said of them."""

    __test__ = False

    name: str
    kind: str
    images: tuple[TestImage, ...]
    notes: tuple[str, ...] = ()

    @property
    def has_truth(self) -> bool:
        return all(image.truth is not None for image in self.images)


def _display(data: bytes, place: str) -> Values:
    """Display values of a PNG or JPEG, to the bit as `read_picture` has them."""
    from ..files.pictures import decode_picture

    values = decode_picture(data, place)
    return values.astype(np.float32) * np.float32(1.0 / np.iinfo(values.dtype).max)


def _header_size(source: Path | io.BytesIO, place: str, *, upright: bool) -> tuple[int, int]:
    """Width and height; `upright`: as the orientation of the EXIF data turns it, which pairs in folders do not have."""
    from PIL import Image as Pillow

    try:
        with Pillow.open(source) as opened:
            turned = upright and opened.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            return (opened.height, opened.width) if turned else (opened.width, opened.height)
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        raise DatasetError(f"no picture that can be read: {str(error).split(' <_io')[0]}", file=place) from error


def check_sizes(images: tuple[TestImage, ...]) -> dict[str, tuple[int, int]]:
    """Width and height of each picture by its id. Raises `DatasetError` where a truth has another size.

    A file that cannot be opened is left out: the run will name it, and go on with the others.
    """
    sizes: dict[str, tuple[int, int]] = {}
    for image in images:
        try:
            size = image.input.size()
            truth = size if image.truth is None else image.truth.size()
        except FileError:
            continue
        if truth != size:
            sides = " and ".join(f"{w}×{h}" for w, h in (size, truth))
            assert image.truth is not None
            raise DatasetError(
                f"input and truth have {sides} pixels (the truth is {image.truth.place}): they do not belong together, "
                "or one was resized",
                file=image.input.place,
            )
        sizes[image.id] = size
    return sizes


def unique_ids(paths: list[str]) -> list[str]:
    """Short names for paths with "/": their last part where that is unique, else all of it with "__"."""
    last = [path.rpartition("/")[2] for path in paths]
    if len(set(last)) == len(last):
        return last
    return [path.strip("/").replace("/", "__") for path in paths]
