"""Which files hold the pictures of the pairs of a folder, and their bytes: of the three layouts of `defocus synth run`,
and of folders that others made (DPDD, input and target). Pictures in shards are found by an index of their places, so
that a pair is read without the rest of its shard. Nothing is kept open: copies in other processes do no harm.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..synth.folder import is_pair_folder, open_folder
from ..synth.layouts import ROLES
from ..synth.store import RemoteStore, Store, open_store

SUFFIXES = (".png", ".jpg", ".jpeg")
# Folders of blurred pictures and of the sharp ones beside them; as others call the splits.
SIDES = {"source": "target", "input": "target", "blur": "sharp", "blurred": "sharp"}
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


class PairReader:
    """The bytes of pictures. An index of a shard is made when the first of its pictures is wanted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: dict[str, dict[str, tuple[int, int]]] = {}  # shard, member: first byte and how many

    def read(self, picture: Picture) -> bytes:
        if not picture.member:
            return self._store.read(picture.path)
        if picture.path not in self._places:
            self._places[picture.path] = self._index(picture.path)
        try:
            start, size = self._places[picture.path][picture.member]
        except KeyError as error:
            raise DatasetError(f"the shard holds no {picture.member}", file=self.place(picture)) from error
        try:
            if isinstance(self._store, RemoteStore):
                system, root = self._store.connect()
                data = bytes(system.cat_file(f"{root}/{picture.path}", start=start, end=start + size))
            else:
                with self._local(picture.path).open("rb") as file:
                    file.seek(start)
                    data = file.read(size)
        except OSError as error:
            raise DatasetError(f"cannot be read: {error.strerror or error}", file=self.place(picture)) from error
        if len(data) != size:
            raise DatasetError(f"the shard ends within {picture.member}", file=self.place(picture))
        return data

    def place(self, picture: Picture) -> str:
        """For messages."""
        return self._store.place(picture.path) + (f" ({picture.member})" if picture.member else "")

    def _local(self, path: str) -> Path:
        folder = self._store.folder
        assert folder is not None
        return folder / path

    def _index(self, path: str) -> dict[str, tuple[int, int]]:
        try:
            with self._opened(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
                return {info.name: (info.offset_data, info.size) for info in tar}
        except (tarfile.TarError, EOFError, OSError, ValueError) as error:
            raise DatasetError(f"the shard cannot be read: {error}", file=self._store.place(path)) from error

    def _opened(self, path: str) -> Any:
        if isinstance(self._store, RemoteStore):
            system, root = self._store.connect()
            return system.open(f"{root}/{path}", "rb")
        return self._local(path).open("rb")


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
            f"{split}_c/source and target (DPDD), or {split}/input and target",
            file=store.root,
        )
    return store, pairs


def _recorded(folder: str | Path, split: str) -> list[PairFiles]:
    opened = open_folder(folder)
    try:
        return [
            PairFiles(
                str(record["id"]),
                {role: Picture(about["path"], about.get("member", "")) for role, about in record["files"].items()},
            )
            for record in opened.records()
            if record["split"] == split
        ]
    finally:
        opened.close()


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
            raise DatasetError(f"there is no folder {sharp} with its sharp pictures", file=store.place(blurred))
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
        return {path.rpartition("/")[2].rpartition(".")[0]: path for path in sorted(folders[folder])}

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
