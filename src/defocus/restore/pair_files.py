"""Which files hold the pictures of the pairs of a folder, and their bytes: of the three layouts of `defocus synth run`,
and of folders that others made (DPDD, input and target). Pictures in shards are found by an index of their places, so
that a pair is read without the rest of its shard. Nothing is kept open: copies in other processes do no harm.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DatasetError
from ..files.pictures import picture_size
from ..files.png import SIGNATURE
from ..files.stores import Store, open_store
from ..synth.folder import is_pair_folder, open_folder
from ..synth.layouts import ROLES

SUFFIXES = (".png", ".jpg", ".jpeg")
# Folders of blurred pictures and of the sharp ones beside them; as others call the splits.
SIDES = {"source": "target", "input": "target", "blur": "sharp", "blurred": "sharp"}
# Others that people keep pictures in: named where nothing that is read was found.
UNREAD = (".tif", ".tiff", ".bmp", ".webp", ".exr", ".dng")
THREADS = 16  # that look at files: what they wait for is the disk
AT_ONCE = 256  # pictures, for each of them
HEAD_BYTES = 65_536  # of a JPEG; its size comes after its EXIF data and colour profile
SPLITS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}


@dataclass(frozen=True, slots=True)
class Picture:
    """A file; in a shard, a member of it."""

    path: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class PairFiles:
    id: str
    pictures: dict[str, Picture]  # by role: "blurred", "sharp", and with dual pixels "left", "right"
    sums: str = ""  # of the bytes of all of them, where the folder tells


class PairReader:
    """The bytes of pictures. An index of a shard is made when the first of its pictures is wanted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: dict[str, dict[str, tuple[int, int]]] = {}  # shard, member: first byte and how many

    def read(self, picture: Picture) -> bytes:
        if not picture.member:
            return self._store.read(picture.path)
        start, size = self._span(picture)
        data = self._store.read(picture.path, start, start + size)
        if len(data) != size:
            raise DatasetError(f"the shard ends within {picture.member}", file=self.place(picture))
        return data

    @property
    def is_local(self) -> bool:
        return self._store.folder is not None

    def size(self, picture: Picture) -> tuple[int, int, int]:
        """Rows, columns and bits per colour. Of a file of this machine no more than its head is read."""
        if not self.is_local:
            return picture_size(self.read(picture), self.place(picture))
        start, length = self._span(picture) if picture.member else (0, HEAD_BYTES)
        with self._seen(picture) as file:
            file.seek(start)
            head = file.read(min(length, 32))
            found = _png_size(head)
            if found is None:
                head += file.read(max(min(length, HEAD_BYTES) - len(head), 0))
        if found is not None:
            return found
        try:
            return picture_size(head, self.place(picture))
        except DatasetError:  # its size may stand further behind
            return picture_size(self.read(picture), self.place(picture))

    def prepare(self, pictures: Sequence[Picture]) -> None:
        """Index the shards, so that many threads may ask at once."""
        for picture in {picture.path: picture for picture in pictures if picture.member}.values():
            self._span(picture)

    def bytes_of(self, pictures: Sequence[Picture]) -> list[int]:
        """How many each file has, by one question for each, or one for a whole folder elsewhere."""
        if not self.is_local:
            return self._store.sizes([picture.path for picture in pictures])

        def lengths(some: Sequence[Picture]) -> list[int]:
            return self._store.sizes([picture.path for picture in some])

        parts = [pictures[first : first + AT_ONCE] for first in range(0, len(pictures), AT_ONCE)]
        with ThreadPoolExecutor(THREADS) as threads:
            return [length for part in threads.map(lengths, parts) for length in part]

    def _span(self, picture: Picture) -> tuple[int, int]:
        """Of a member: its first byte in the shard and how many it has."""
        if picture.path not in self._places:
            self._places[picture.path] = self._index(picture.path)
        try:
            return self._places[picture.path][picture.member]
        except KeyError as error:
            raise DatasetError(f"the shard holds no {picture.member}", file=self.place(picture)) from error

    @contextmanager
    def _seen(self, picture: Picture) -> Iterator[BinaryIO]:
        try:
            with open(f"{self._store.folder}/{picture.path}", "rb") as file:
                yield file
        except FileNotFoundError as error:
            raise DatasetError("there is no such file", file=self.place(picture)) from error
        except OSError as error:
            raise DatasetError(f"cannot be read: {error.strerror or error}", file=self.place(picture)) from error

    def place(self, picture: Picture) -> str:
        """For messages."""
        return self._store.place(picture.path) + (f" ({picture.member})" if picture.member else "")

    def _index(self, path: str) -> dict[str, tuple[int, int]]:
        try:
            with self._store.open(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
                return {info.name: (info.offset_data, info.size) for info in tar}
        except (tarfile.TarError, EOFError, OSError, ValueError) as error:
            raise DatasetError(f"the shard cannot be read: {error}", file=self._store.place(path)) from error


def find_pairs(folder: str | Path, split: str) -> tuple[Store, list[PairFiles]]:
    """The pairs of one split, in their order. Raises `DatasetError` where there are none."""
    if split not in SPLITS:
        raise DatasetError(f"the split {split!r}; expected {', '.join(SPLITS)}", file=folder)
    store = open_store(folder)
    if store.folder is not None and not store.folder.is_dir():
        raise DatasetError("there is no such folder", file=store.root)
    pairs = _recorded(folder, split) if is_pair_folder(store) else _foreign(store, split)
    if not pairs:
        raise DatasetError(
            f"no pairs of the split {split!r} here: expected what `defocus synth run` makes, "
            f"{split}_c/source and target (DPDD), or {split}/input and target; pictures that are read end in "
            f"{', '.join(SUFFIXES)}{_unread(store)}",
            file=store.root,
        )
    return store, pairs


def identity(reader: PairReader, pairs: Sequence[PairFiles]) -> str:
    """Changes with the pairs: their names, and the sums of their pictures where the folder tells them, else how many
    bytes each file has. Nothing is read for it, and when a file was written does not count."""
    pictures = [picture for pair in pairs if not pair.sums for picture in pair.pictures.values()]
    lengths = iter(reader.bytes_of(pictures) if pictures else ())
    lines = []
    for pair in pairs:
        sums = pair.sums or " ".join(f"{role} {next(lengths)}" for role in pair.pictures)
        lines.append(f"{pair.id} {sums}")
    return "\n".join(lines)


def _unread(store: Store) -> str:
    """What else is there, where it looks like pictures."""
    kinds = Counter(os.path.splitext(path)[1].lower() for path in store.listing())
    shown = [f"{kinds[kind]} {kind}" for kind in UNREAD if kinds[kind]]
    return f" (here are {', '.join(shown)}: convert them)" if shown else ""


def _recorded(folder: str | Path, split: str) -> list[PairFiles]:
    opened = open_folder(folder)
    try:
        return [
            PairFiles(
                str(record["id"]),
                {role: Picture(about["path"], about.get("member", "")) for role, about in record["files"].items()},
                _sums(record["files"]),
            )
            for record in opened.records()
            if record["split"] == split
        ]
    finally:
        opened.close()


def _sums(files: dict[str, dict[str, Any]]) -> str:
    """Of a record; short, since there may be many."""
    told = [str(about.get("sha256", "")) for _, about in sorted(files.items())]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:32] if all(told) else ""


def _foreign(store: Store, split: str) -> list[PairFiles]:
    folders: dict[str, list[str]] = {}
    for path in store.listing():
        if path.lower().endswith(SUFFIXES):
            folders.setdefault(path.rpartition("/")[0], []).append(path)
    pairs: list[PairFiles] = []
    for blurred in sorted(folders):
        parent, _, side = blurred.rpartition("/")
        if side not in SIDES or not _belongs(parent, split):
            continue
        sharp = f"{parent}/{SIDES[side]}".lstrip("/")
        if sharp not in folders:
            raise DatasetError(
                f"there is no folder {sharp} with its sharp pictures ({', '.join(SUFFIXES)})", file=store.place(blurred)
            )
        by_role = {"blurred": sorted(folders[blurred]), "sharp": _ordered(store, folders, blurred, sharp)}
        for role, letter in (("left", "l"), ("right", "r")):
            eye = f"{parent[:-2]}_{letter}/{side}" if parent.endswith("_c") else f"{parent}/{role}".lstrip("/")
            if eye in folders:
                by_role[role] = _ordered(store, folders, blurred, eye)
        for number, name in enumerate(by_role["blurred"]):
            files = {role: Picture(by_role[role][number]) for role in ROLES if role in by_role}
            pairs.append(PairFiles(name.rpartition(".")[0], files))
    return pairs


def _belongs(parent: str, split: str) -> bool:
    """A folder that holds both sides itself has one split, whatever it is called."""
    if not parent:
        return True
    parts = parent.split("/")
    return any(part in (name, f"{name}_c") for part in parts for name in SPLITS[split])


def _ordered(store: Store, folders: dict[str, list[str]], blurred: str, other: str) -> list[str]:
    """The pictures of `other` in the order of the blurred ones: by name, or as they come where no name agrees, as in
    DPDD itself."""

    def names(folder: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted(folders[folder]):
            name = path.rpartition("/")[2].rpartition(".")[0]
            if name in found:
                both = " and ".join(one.rpartition("/")[2] for one in (found[name], path))
                raise DatasetError(
                    f"{both} have one name, and a pair has one picture on each side: remove or rename one of them",
                    file=store.place(folder),
                )
            found[name] = path
        return found

    mine, theirs = names(blurred), names(other)
    if mine.keys() == theirs.keys():
        return [theirs[name] for name in mine]
    if not mine.keys() & theirs.keys() and len(mine) == len(theirs):
        return list(theirs.values())
    alone = sorted(mine.keys() ^ theirs.keys())[0]
    raise DatasetError(
        f"{len(mine)} pictures, but {len(theirs)} in {other}; {alone} is in one of them alone",
        file=store.place(blurred),
    )


def _png_size(head: bytes) -> tuple[int, int, int] | None:
    """None of what is no PNG, or a broken one."""
    if len(head) < 26 or not head.startswith(SIGNATURE) or head[12:16] != b"IHDR":
        return None
    cols, rows = struct.unpack(">II", head[16:24])
    return (rows, cols, 16 if head[24] == 16 else 8) if rows and cols else None
