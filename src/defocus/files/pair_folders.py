"""Folders of pairs: which files hold the pictures of each pair, and their bytes.

`defocus synth run` makes them with a record of each pair (in its ledger while it works, in `pairs.jsonl` when it is
done) and the pictures in one of three layouts. Others have a folder of blurred pictures beside one of sharp pictures
(DPDD, input and target, image and sharp). Pictures in shards are found by an index of their places, so that a pair is
read without the rest of its shard. Nothing is kept open: copies in other processes do no harm.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from ..errors import DatasetError
from .pictures import decode_picture, decode_plane, picture_size
from .png import png_size
from .settings import nearest_name
from .stores import Store, open_store

LEDGER, JSON_LINES, PLAN = "ledger.sqlite", "pairs.jsonl", "plan.json"
ROLES = ("blurred", "sharp", "left", "right")
# Labels that are planes of floats; a focal stack is pictures again.
PLANES = ("depth", "blur_radius", "shift_x", "shift_y")
SPLITS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}  # and others' names
# What people call a folder of blurred pictures and the one of sharp pictures beside it.
BLURRED = ("source", "input", "inputC", "blur", "blurred", "image", "images", "defocused")
SHARP = ("target", "ground_truth", "gt", "sharp", "truth", "all_in_focus", "image_sharp")
GENERIC = ("image", "images")  # names of folders that need not hold pairs
SUFFIXES = (".png", ".jpg", ".jpeg")
OTHER_SUFFIXES = (".tif", ".tiff", ".bmp", ".webp", ".exr", ".dng")  # not read, but named where nothing else is there
THREADS = 16  # that look at files: what they wait for is the disk
AT_ONCE = 256  # pictures, for each of them
LONGEST_LINE = 2**24  # bytes of a record
HEAD_BYTES = 65_536  # of a JPEG; its size comes after its EXIF data and colour profile

Record = Mapping[str, Any]


def stack_role(number: int) -> str:
    """What records call a picture of a focal stack; numbers begin at 0, with the nearest focus."""
    return f"stack_{number:02d}"


def is_role(role: str) -> bool:
    """Whether a record may call a picture or a label so."""
    return role in (*ROLES, *PLANES) or re.fullmatch(r"stack_\d\d", role) is not None


def role_suffix(role: str) -> str:
    """The ending of a file of ours: planes are TIFF, all else is PNG."""
    return ".tif" if role in PLANES else ".png"


def decode_role(role: str, data: bytes, file: str = "a picture") -> Shaped[np.ndarray, "rows cols *colours"]:
    """What the file of a role holds, as it is stored: whole numbers of a picture, or a plane of float32."""
    return decode_plane(data, file) if role in PLANES else decode_picture(data, file)


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A file with a picture; in a shard, a member of it."""

    path: str
    member: str = ""


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The pictures of a pair by role: "blurred", "sharp", with dual pixels "left", "right", and its labels."""

    id: str
    pictures: dict[str, PictureFile]
    sums: str = ""  # of the bytes of all of them, where the folder tells
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the record, what was asked for


# --- which pairs there are ---


def find_pairs(folder: str | Path, split: str, metadata: Sequence[str] = ()) -> tuple[Store, list[PairFiles]]:
    """The pairs of one split, in their order, with these fields of their records. Raises `DatasetError` where there
    are no pairs, or no such fields."""
    if split not in SPLITS:
        raise DatasetError(f"the split {split!r}; expected {', '.join(SPLITS)}", file=folder)
    store = existing_store(folder)
    ours = is_pair_folder(store)
    if metadata and not ours:
        raise DatasetError("no metadata here: `defocus synth run` did not make this folder", file=store.root)
    pairs = _recorded_pairs(store, split, metadata) if ours else _foreign_pairs(store, split)
    if not pairs:
        raise DatasetError(
            f"no pairs of the split {split!r} here: expected what `defocus synth run` makes, "
            f"{split}_c/source and target (DPDD), or {split}/input and target; pictures that are read end in "
            f"{', '.join(SUFFIXES)}{_other_pictures(store)}",
            file=store.root,
        )
    return store, pairs


def existing_store(folder: str | Path) -> Store:
    """The store at a folder or an address. Raises `DatasetError` for a folder that is not there."""
    store = open_store(folder)
    if store.folder is not None and not store.folder.is_dir():
        raise DatasetError("there is no such folder", file=store.root)
    return store


def _other_pictures(store: Store) -> str:
    kinds = Counter(os.path.splitext(path)[1].lower() for path in store.listing())
    counts = [f"{kinds[kind]} {kind}" for kind in OTHER_SUFFIXES if kinds[kind]]
    return f" (here are {', '.join(counts)}: convert them)" if counts else ""


# --- folders that `defocus synth run` made ---


def is_pair_folder(store: Store) -> bool:
    """Whether `defocus synth run` made it: it holds a ledger, or lines of JSON beside its plan."""
    return store.exists(LEDGER) or (store.exists(JSON_LINES) and store.exists(PLAN))


def read_records(store: Store) -> Iterator[dict[str, Any]]:
    """Records of all pairs, in the order of splits and numbers: of the ledger where there is one.

    Raises `DatasetError` for one that does not say which pair it is of and where its pictures are.
    """
    if store.folder is None or not store.exists(LEDGER):
        yield from read_lines(store)
        return
    file = store.folder / LEDGER
    rows = "SELECT id, record FROM items WHERE split = ? AND status = 'done' ORDER BY number"
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=30.0)) as ledger:
            for split in SPLITS:
                for identity, record in ledger.execute(rows, (split,)):
                    yield _checked_record(record, str(file), f"the record of {identity}")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"the ledger is damaged: {error}", file=file) from error


def read_lines(store: Store) -> Iterator[dict[str, Any]]:
    """Records of the lines of JSON, one after the other. Raises `DatasetError` that names the line."""
    place = store.place(JSON_LINES)
    with store.open(JSON_LINES) as file:
        for number in itertools.count(1):
            line = file.readline(LONGEST_LINE)
            if not line:
                return
            yield _checked_record(line, place, f"line {number}")


def _checked_record(text: str | bytes, file: str, name: str) -> dict[str, Any]:
    """A record that says which pair it is of, and where its pictures are."""
    try:
        record = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"{name} is no JSON: {error}", file=file) from error
    if not isinstance(record, dict):
        raise DatasetError(f"{name} is no JSON object", file=file)
    wrong = [key for key in ("id", "split") if not isinstance(record.get(key), str)]
    files = record.get("files")
    if not isinstance(files, dict) or not files:
        wrong.append("files")
    else:
        kinds = {"path": str, "member": str, "sha256": str, "bytes": int}
        wrong += [
            f"files.{role}.{key}"
            for role, about in files.items()
            for key, kind in kinds.items()
            if not isinstance(about, dict) or not isinstance(about.get(key, kind() if key != "path" else None), kind)
        ]
    if wrong:
        raise DatasetError(f"{name} is damaged: it says no proper {', '.join(wrong[:3])}", file=file)
    return record


def record_fields(record: Record, names: Iterable[str]) -> dict[str, Any]:
    """These fields of a record. Raises `DatasetError` for one that it does not have."""
    for name in names:
        if name not in record:
            raise DatasetError(f"no metadata {name!r}: {nearest_name(name, record)}")
    return {name: record[name] for name in names}


def pictures_of_record(record: Record) -> dict[str, PictureFile]:
    """The pictures of a record by role."""
    return {role: PictureFile(about["path"], about.get("member", "")) for role, about in record["files"].items()}


def pictures_of(
    store: Store, records: Iterable[Record], roles: Iterable[str]
) -> Iterator[tuple[Record, dict[str, bytes]]]:
    """Each record with the bytes of its pictures by role."""
    reader, roles = PairReader(store), tuple(roles)
    for record in records:
        files = pictures_of_record(record)
        yield record, {role: reader.read(files[role]) for role in roles if role in files}


def _recorded_pairs(store: Store, split: str, metadata: Sequence[str]) -> list[PairFiles]:
    pairs = []
    for record in read_records(store):
        if record["split"] != split:
            continue
        pictures = pictures_of_record(record)
        if not (set(ROLES[:2]) <= pictures.keys() and all(map(is_role, pictures))):
            raise DatasetError(
                f"the record of {record['id']!r} is damaged: pictures {list(pictures)}; expected "
                f"{', '.join(ROLES[:2])}, perhaps {', '.join((*ROLES[2:], *PLANES))} and those of a focal stack",
                file=store.root,
            )
        pairs.append(PairFiles(record["id"], pictures, _sums(record["files"]), record_fields(record, metadata)))
    return pairs


def _sums(files: Mapping[str, Mapping[str, Any]]) -> str:
    """One sum of the sums of a record's pictures; short, since there may be many."""
    sums = [about.get("sha256", "") for _, about in sorted(files.items())]
    return hashlib.sha256(" ".join(sums).encode()).hexdigest()[:32] if all(sums) else ""


# --- folders that others made ---


@dataclass(frozen=True, slots=True)
class Sides:
    """A folder of blurred pictures and that of the sharp ones beside it ("": there is none); their files by name."""

    blurred: str
    sharp: str
    blurred_files: dict[str, str]
    sharp_files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Matching:
    """Names of blurred and sharp pictures that belong together, and of those that belong to none."""

    pairs: list[tuple[str, str]]
    blurred_alone: list[str]
    sharp_alone: list[str]


def match_names(blurred: Iterable[str], sharp: Iterable[str]) -> Matching:
    """Pairs by name; several blurred pictures of one sharp one by its name as their folder's or their beginning; by
    order where no names agree and there are as many, as in the DPDD data set itself."""
    inputs, truths = list(blurred), list(sharp)
    names = set(truths)
    truth_of = {name: _truth_of(name, names) for name in inputs}
    if len(inputs) == len(truths) and not any(truth_of.values()):
        return Matching(list(zip(inputs, truths, strict=True)), [], [])
    pairs = [(name, truth) for name, truth in truth_of.items() if truth is not None]
    alone = [name for name, truth in truth_of.items() if truth is None]
    return Matching(pairs, alone, sorted(names - {truth for _, truth in pairs}))


def matched_names(
    blurred: Collection[str], others: Collection[str], place: str | Path, role: str = "sharp"
) -> dict[str, str]:
    """Name of the picture of a role for each blurred one. Raises `DatasetError` that names those that have no match."""
    matching = match_names(blurred, others)
    alone = [
        f"{len(names)} {what} ({', '.join(sorted(names)[:3])}{', …' if len(names) > 3 else ''})"
        for names, what in (
            (matching.blurred_alone, f"without a {role} one"),
            (matching.sharp_alone, f"{role} ones without a blurred one"),
        )
        if names
    ]
    if alone:
        counts = f"{len(blurred)} pictures, but {len(others)} {role} ones"
        raise DatasetError(f"{counts}; unpaired are {' and '.join(alone)}", file=place)
    return dict(matching.pairs)


def _truth_of(name: str, truths: set[str]) -> str | None:
    if name in truths:
        return name
    parent, _, stem = name.rpartition("/")
    if parent in truths:
        return parent
    while "_" in stem or "-" in stem:  # IMG_2162_3 of IMG_2162
        stem = stem[: max(stem.rfind("_"), stem.rfind("-"))]
        for truth in (f"{parent}/{stem}".lstrip("/"), stem):
            if truth in truths:
                return truth
    return None


def pictures_by_name(
    store: Store, folder: str = "", suffixes: tuple[str, ...] = SUFFIXES, paths: Iterable[str] | None = None
) -> dict[str, str]:
    """Pictures of a folder and of those in it by their names without endings, in order; of `paths`, if given."""
    by_name: dict[str, str] = {}
    for path in sorted(store.listing(folder) if paths is None else paths):
        if not path.lower().endswith(suffixes):
            continue
        name = path[len(folder) :].lstrip("/").rpartition(".")[0]
        if name in by_name:
            both = " and ".join(one.rpartition("/")[2] for one in (by_name[name], path))
            raise DatasetError(
                f"{both} have the same name but for its ending, and a pair has one picture on each side: remove or "
                "rename one of them",
                file=store.place(folder),
            )
        by_name[name] = path
    return by_name


def find_sides(store: Store, *, eyes: bool = False) -> list[Sides]:
    """Folders that are called as blurred and sharp pictures are, side by side; with `eyes` dual-pixel views, too."""
    folders: dict[str, list[str]] = {}
    for path in store.listing():
        parts = path.split("/")[:-1]
        depth = max((n for n, part in enumerate(parts, 1) if part in (*BLURRED, *SHARP, "left", "right")), default=0)
        if depth and path.lower().endswith(SUFFIXES):
            folders.setdefault("/".join(parts[:depth]), []).append(path)
    named = {folder: pictures_by_name(store, folder, paths=paths) for folder, paths in folders.items()}
    sides: list[Sides] = []
    for folder in sorted(folders):
        parent, _, name = folder.rpartition("/")
        if name not in BLURRED or (_is_eye(parent) and not eyes):
            continue
        # Left and right views may share the targets of the middle one.
        parents = (parent, f"{parent[:-2]}_c") if _is_eye(parent) else (parent,)
        beside = [one for p in parents for sharp in SHARP if (one := f"{p}/{sharp}".lstrip("/")) in folders]
        if beside or name not in GENERIC:
            sharp = beside[0] if beside else ""
            sides.append(Sides(folder, sharp, named[folder], named.get(sharp, {})))
    matched = {side.sharp for side in sides}
    alone = [f for f in sorted(folders) if f.rpartition("/")[2] in ("target", "sharp") and f not in matched]
    return sides + [Sides("", folder, {}, named[folder]) for folder in alone]


def _is_eye(parent: str) -> bool:
    return parent.endswith(("_l", "_r"))


def _foreign_pairs(store: Store, split: str) -> list[PairFiles]:
    pairs: list[PairFiles] = []
    for side in find_sides(store):
        parent, _, name = side.blurred.rpartition("/")
        if not side.blurred or not _belongs(parent, split):
            continue
        if not side.sharp:
            raise DatasetError(
                f"there is no folder {sharp_name(side.blurred)} with its sharp pictures ({', '.join(SUFFIXES)})",
                file=store.place(side.blurred),
            )
        files = {"blurred": side.blurred_files, "sharp": side.sharp_files}
        for role, letter in (("left", "l"), ("right", "r")):
            eye = f"{parent[:-2]}_{letter}/{name}" if parent.endswith("_c") else f"{parent}/{role}".lstrip("/")
            if by_name := pictures_by_name(store, eye):
                files[role] = by_name
        place = store.place(side.blurred)
        names = {
            role: matched_names(side.blurred_files, by_name, place, role)
            for role, by_name in files.items()
            if role != "blurred"
        }
        pairs += [
            PairFiles(
                path.rpartition(".")[0],
                {"blurred": PictureFile(path)}
                | {role: PictureFile(files[role][others[blurred]]) for role, others in names.items()},
            )
            for blurred, path in side.blurred_files.items()
        ]
    return pairs


def sharp_name(blurred: str) -> str:
    """What the folder of sharp pictures beside a folder of blurred ones is usually called."""
    parent, _, name = blurred.rpartition("/")
    return f"{parent}/{'sharp' if name.startswith(('blur', 'image', 'defocused')) else 'target'}".lstrip("/")


def _belongs(parent: str, split: str) -> bool:
    """Whether a folder is one of a split; one that holds both sides itself has one split, whatever it is called."""
    return not parent or any(part in (name, f"{name}_c") for part in parent.split("/") for name in SPLITS[split])


# --- the pictures ---


class PairReader:
    """Bytes and sizes of pictures. An index of a shard is made when the first of its pictures is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index: dict[str, dict[str, tuple[int, int]]] = {}  # shard, member: first byte and how many

    @property
    def is_local(self) -> bool:
        """Whether the pictures are files of this machine."""
        return self._store.is_local

    def place(self, picture: PictureFile) -> str:
        """Full name of a picture, for messages."""
        return self._store.place(picture.path) + (f" ({picture.member})" if picture.member else "")

    def read(self, picture: PictureFile) -> bytes:
        """Bytes of a picture."""
        if not picture.member:
            return self._store.read(picture.path)
        start, size = self._span(picture)
        data = self._store.read(picture.path, start, start + size)
        if len(data) != size:
            raise DatasetError(f"the shard ends within {picture.member}", file=self.place(picture))
        return data

    def size(self, picture: PictureFile) -> tuple[int, int, int]:
        """Rows, columns and bits per colour. Of a file of this machine no more than its head is read."""
        if not self.is_local:
            return picture_size(self.read(picture), self.place(picture))
        start, length = self._span(picture) if picture.member else (0, HEAD_BYTES)
        with self._store.open(picture.path) as file:
            file.seek(start)
            head = file.read(min(length, 32))
            if png_size(head) is None:
                head += file.read(max(min(length, HEAD_BYTES) - len(head), 0))
        try:
            return picture_size(head, self.place(picture))
        except DatasetError:  # its size may stand further behind
            return picture_size(self.read(picture), self.place(picture))

    def prepare(self, pictures: Iterable[PictureFile]) -> None:
        """Index the shards, so that many threads may ask at once."""
        for picture in {picture.path: picture for picture in pictures if picture.member}.values():
            self._span(picture)

    def bytes_of(self, pictures: Sequence[PictureFile]) -> list[int]:
        """How many bytes each file has."""
        size_of = self._store.size_lookup()
        with ThreadPoolExecutor(THREADS if self.is_local else 1) as threads:
            sizes = list(threads.map(size_of, (picture.path for picture in pictures), chunksize=AT_ONCE))
        for picture, size in zip(pictures, sizes, strict=True):
            if size is None:
                raise DatasetError("there is no such file", file=self.place(picture))
        return sizes  # type: ignore[return-value]

    def _span(self, picture: PictureFile) -> tuple[int, int]:
        """First byte of a member in its shard, and how many it has."""
        if picture.path not in self._index:
            self._index[picture.path] = shard_index(self._store, picture.path)
        try:
            return self._index[picture.path][picture.member]
        except KeyError as error:
            raise DatasetError(f"the shard holds no {picture.member}", file=self.place(picture)) from error


def shard_index(store: Store, path: str) -> dict[str, tuple[int, int]]:
    """First byte and number of bytes of each member of a shard, in their order.

    Only headers of plain files are taken, as our shards have them: what a header says of others may need any memory.
    """
    index: dict[str, tuple[int, int]] = {}
    try:
        with store.open(path) as file:
            end, start = file.seek(0, os.SEEK_END), 0
            while start < end:
                file.seek(start)
                header = file.read(tarfile.BLOCKSIZE)
                if header.count(0) == tarfile.BLOCKSIZE:
                    break
                info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
                if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise ValueError(f"{info.name} is no plain file")
                start += tarfile.BLOCKSIZE
                if info.size < 0 or start + info.size > end:
                    raise ValueError(f"it ends within {info.name}")
                index[info.name] = (start, info.size)
                start += math.ceil(info.size / tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    except (tarfile.TarError, OSError, ValueError) as error:
        raise DatasetError(f"the shard cannot be read: {error}", file=store.place(path)) from error
    return index


def identity(reader: PairReader, pairs: Sequence[PairFiles]) -> str:
    """A text that changes with the pairs: their names, and the sums of their pictures where the folder tells them, else
    how many bytes each file has. Nothing is read for it, and when a file was written does not count."""
    pictures = [picture for pair in pairs if not pair.sums for picture in pair.pictures.values()]
    sizes = iter(reader.bytes_of(pictures) if pictures else ())
    lines = []
    for pair in pairs:
        sums = pair.sums or " ".join(f"{role} {next(sizes)}" for role in pair.pictures)
        lines.append(f"{pair.id} {sums}")
    return "\n".join(lines)
