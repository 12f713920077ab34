"""Whose files they are: folders that carry our mark, and in them the files that we made.

A command that fills a folder writes into one that is new, empty, or carries our mark: a hidden file that says what the
folder is for (its kind), with a version, an identity and a checksum of these. A journal beside it has the sha256 of
every file that we made there. A file is replaced or removed only while it is what the journal says; whatever else lies
there is named in an error, or left.

A line of the journal is written before its file takes its place, and keeps the sum of the file that was there: after a
kill between the two, either of them is ours. A file that grows, such as a log, is known by its beginning.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError, OwnershipError
from .journal import Journal, checksum
from .stores import SUFFIX, Store, open_store

MARK, FILES, LOCK = ".defocus-folder.json", ".defocus-files.jsonl", ".lock"
VERSION = 1
LITTER = {".DS_Store", "Thumbs.db", "desktop.ini", ".directory", "lost+found"}  # what systems leave in any folder
_LARGEST_MARK = 4096  # bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """What a folder of ours is for, and its identity, which no other folder has."""

    kind: str
    identity: str

    def as_bytes(self) -> bytes:
        """The mark's file."""
        facts = {"defocus folder": VERSION, "kind": self.kind, "identity": self.identity}
        return json.dumps(facts | {"check": checksum(facts)}).encode() + b"\n"


def read_mark(store: Store) -> Mark | None:
    """The mark of a folder; None where it has none. Raises `OwnershipError` for a damaged one."""
    if not store.exists(MARK):
        return None
    try:
        facts = json.loads(store.read(MARK, 0, _LARGEST_MARK))
        check = facts.pop("check")
        mark = Mark(str(facts["kind"]), str(facts["identity"]))
        version = facts["defocus folder"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OwnershipError("is damaged; if the folder is yours to lose, remove it", file=store.place(MARK)) from error
    if version != VERSION or check != checksum(facts):
        raise OwnershipError(f"is damaged, or of another version than {VERSION}", file=store.place(MARK))
    return mark


def claim(store: Store, kind: str) -> Mark:
    """The mark of a folder for `kind`, which a new or empty one gets now.

    Raises `OwnershipError` for a folder with other things in it, or of another kind.
    """
    mark = read_mark(store)
    if mark is None:
        others = strangers(store)
        if others:
            raise OwnershipError(
                f"holds {listed(others)} and was not made for {_article(kind)}: choose a new or an empty folder",
                file=store.root,
            )
        mark = Mark(kind, uuid.uuid4().hex)
        store.write(MARK, mark.as_bytes())
    elif mark.kind != kind:
        raise OwnershipError(
            f"is the folder of {_article(mark.kind)}, not of {_article(kind)}: choose another", file=store.root
        )
    return mark


def strangers(store: Store) -> list[str]:
    """Names of what lies in a folder and is neither ours by its name nor left there by the system."""
    ours = LITTER | {MARK, FILES, LOCK}
    if store.folder is None:
        names = {path.partition("/")[0] for path in store.listing(hidden=True)}
    else:
        try:
            names = set(os.listdir(store.folder)) if store.folder.exists() else set()
        except OSError as error:
            raise OwnershipError(f"is no folder that can be listed: {error.strerror}", file=store.root) from error
    return sorted(name for name in names - ours if not (name.startswith(".") and name.endswith(SUFFIX)))


class OwnedFolder:
    """A folder of ours on this machine, and the journal of the files that we made in it.

    Names are relative, with slashes. Opening it claims the folder: see `claim`.
    """

    def __init__(self, path: str | Path, kind: str) -> None:
        self.path = Path(path).absolute()
        self.store = open_store(self.path)
        self.mark = claim(self.store, kind)
        self.store.check_writable()
        self._journal = Journal(self.path / FILES, "file")
        self._written: dict[str, tuple[int, int, int]] = {}  # by this process: need not be read again

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; remove what killed writes left. Raises `OwnershipError` where one is at work."""
        from filelock import FileLock, Timeout

        try:
            lock = FileLock(self.path / LOCK)
            lock.acquire(timeout=0)
        except Timeout as error:
            raise OwnershipError(
                f"another process is at work in this folder of {_article(self.mark.kind)}: wait for it",
                file=self.path,
            ) from error
        except OSError as error:
            raise OwnershipError(f"cannot be locked: {error.strerror or error}", file=self.path) from error
        try:
            self.store.sweep()
            yield
        finally:
            lock.release()

    @contextmanager
    def writing(self, name: str, *, head: int | None = None) -> Iterator[BinaryIO]:
        """A file to fill, which takes its place whole when the block ends; see `write`."""
        self.require(name)
        with self.store.writing(name) as file:
            yield file
            file.flush()
            self._note(name, Path(file.name), head)
        self._remember(name)

    def write(self, name: str, data: bytes, *, head: int | None = None) -> None:
        """Write a file that is not there yet, or replace one of ours, whole or not at all.

        `head`: the file will grow, and is known by its first so many bytes. Raises `OwnershipError`, and writes
        nothing, where a file stands that is not ours.
        """
        with self.writing(name, head=head) as file:
            file.write(data)

    def adopt(self, name: str, *, head: int | None = None) -> None:
        """Note a file that a library wrote for us."""
        self._note(name, self.path / name, head)
        self._remember(name)

    def owns(self, name: str) -> bool:
        """Whether a file is there and is what we made."""
        return self._matching_sum(name) is not None

    def require(self, *names: str) -> None:
        """Raise `OwnershipError` for the first file that stands where one is to be written and is not ours."""
        for name in names:
            path = self.path / name
            if os.path.lexists(path) and not self.owns(name):
                changed = ", or was changed since" if self._journal.get(name) else ""
                raise OwnershipError(
                    f"was not made by this program{changed}, and is left as it is: move it away, or choose another "
                    "folder",
                    file=path,
                )

    def files(self) -> list[str]:
        """Names of the files that are there and are what we made."""
        return [name for name in sorted(self._journal.names()) if self.owns(name)]

    def remove(self, name: str) -> bool:
        """Remove a file if it is ours; whether the place is free now."""
        if self.owns(name):
            self.store.remove(name)
        return not os.path.lexists(self.path / name)

    def clear(self) -> list[str]:
        """Remove every file of ours, and folders that this empties; names of what is left."""
        folders = set()
        for name in self.files():
            self.remove(name)
            folders |= {self.path / parent for parent in Path(name).parents if parent.name}
        for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError):  # something else lies in it
                folder.rmdir()
        ours = {MARK, FILES, LOCK}
        return [path for path in self.store.listing(hidden=True) if path not in ours]

    def _matching_sum(self, name: str) -> tuple[str, int | None] | None:
        """The journal's sum that a file has, with the number of bytes that it is of; None where none fits."""
        path, sums = self.path / name, _sums(self._journal.get(name) or {})
        if not sums or path.is_symlink() or not path.is_file():
            return None
        if self._written.get(name) == _status(path):
            return sums[0]
        return next((pair for pair in sums if file_sum(path, pair[1]) == pair[0]), None)

    def _note(self, name: str, file: Path, head: int | None) -> None:
        before = self._matching_sum(name)
        self._journal.write(name, sums=[[file_sum(file, head), head], *([list(before)] if before else [])])

    def _remember(self, name: str) -> None:
        self._written[name] = _status(self.path / name)


def check_no_folder_of_ours(path: str | Path) -> None:
    """Raise `OwnershipError` for a result that would lie in a folder that one of our commands looks after."""
    place = Path(path).resolve()
    for folder in (place, *place.parents):
        if (folder / MARK).is_file():
            mark = read_mark(open_store(folder))
            kind = _article(mark.kind) if mark else "another command"
            raise OwnershipError(f"lies in {folder}, the folder of {kind}: choose another place", file=path)


def check_not_input(output: str | Path | None, inputs: Iterable[str | Path | None]) -> None:
    """Raise `OwnershipError` where a result would take the place of a file that it is made of, by whatever name."""
    if output is None:
        return
    for source in inputs:
        if source is None:
            continue
        same = Path(output).resolve() == Path(source).resolve()
        with suppress(OSError):
            same = same or os.path.samefile(output, source)
        if same:
            raise OwnershipError("is the file that is read here, and is not replaced: choose another name", file=output)


def file_sum(file: str | Path, head: int | None = None) -> str:
    """The sha256 of a file, or of its first `head` bytes. Raises `FileError` if it cannot be read."""
    try:
        with Path(file).open("rb") as opened:
            if head is not None:
                return hashlib.sha256(opened.read(head)).hexdigest()
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}", file=file) from error


def _sums(entry: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Sums of a journal's line, each with the number of bytes that it is of; what is no such thing is left out."""
    pairs = entry.get("sums")
    pairs = pairs if isinstance(pairs, list) else []
    return [
        (pair[0], pair[1])
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int | None)
    ]


def _status(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def listed(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
