"""Where a data set is written: a folder, or any place that fsspec reaches. Files appear whole or not at all.

Locally a file is written under a hidden name beside its place, synchronised, and renamed; then the folder is
synchronised too, so that a file that was there once is there after a power cut. fsspec's own local files do neither, so
this much is ours. Object stores show an object when all of it has arrived, so there it is put in one piece; on other
file systems of fsspec's it is moved into place.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from ..errors import DatasetError, FileError

SUFFIX = ".part"  # of files that are being written; their names begin with a dot
_WHOLE = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss", "r2", "memory"}  # all at once or not at all
_TEMPORARY = re.compile(rf"\..+\.[0-9a-f]{{12}}{re.escape(SUFFIX)}")  # names that `_temporary_name` gives
_NO_SPACE = "free some space and run the same command again; what is done stays done"
_NO_PERMISSION = "no permission: choose a folder that you may write to, or change its permissions"
_NO_FOLDER = "a file stands where a folder is needed: move it away, or choose another folder"
_ADVICE = {
    errno.ENOSPC: f"the disk is full: {_NO_SPACE}",
    errno.EDQUOT: f"the disk quota is used up: {_NO_SPACE}",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "a folder stands where a file is to be written: move it away, or choose another folder",
    errno.ENOENT: "no file can be made in its folder: choose another folder",
    errno.ENAMETOOLONG: "the name is too long for this file system: choose a folder with a shorter path",
}


@dataclass(frozen=True, slots=True)
class Store:
    """A place for files, whose paths are relative, with slashes. It holds no connection, so workers may have copies.

    `root` is the folder or the address; credentials come from the environment, as fsspec's file systems want them.
    """

    root: str
    is_local: bool = True

    @property
    def folder(self) -> Path | None:
        """The folder, where it is one of this machine."""
        return Path(self.root) if self.is_local else None

    def place(self, path: str) -> str:
        """Full name of a file, for messages."""
        return f"{self.root.rstrip('/')}/{path}"

    def write(self, path: str, data: bytes) -> None:
        """Write a file, with its folders; whoever looks sees the old one, or the new one whole."""
        if not self.is_local:
            self._put(path, lambda system, place: system.pipe_file(place, data))
            return
        with self.writing(path) as file:
            file.write(data)

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        """A file to fill, which takes its place whole when the block ends, and vanishes where the block fails."""
        _check(path)
        if self.is_local:
            with self._errors(path, "written"), _new_file(Path(self.root, path)) as file:
                yield file
            return
        with tempfile.TemporaryDirectory() as here:
            with Path(here, "file").open("w+b") as file:
                yield file
            self._put(path, lambda system, place: system.put_file(file.name, place))

    def _put(self, path: str, send: Callable[[Any, str], object]) -> None:
        """Let a file that `send` gives to a file system take its place elsewhere, whole."""
        _check(path)
        with self._errors(path, "written"):
            system, root = self._system()
            protocol = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
            if protocol & _WHOLE:
                send(system, f"{root}/{path}")
                return
            folder, _, name = f"{root}/{path}".rpartition("/")
            system.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/{_temporary_name(name)}"
            send(system, temporary)
            system.mv(temporary, f"{folder}/{name}")

    def read(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Bytes of a file, or those from `start` up to `end`. Raises `DatasetError` if it is not there."""
        _check(path)
        with self._errors(path, "read"):
            system, root = self._system()
            return bytes(system.cat_file(f"{root}/{path}", start=start, end=end))

    def open(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """A file to read piece by piece."""
        _check(path)
        with self._errors(path, "read"):
            system, root = self._system()
            return system.open(f"{root}/{path}", "rb")

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        _check(path)
        with self._errors(path, "read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            system, root = self._system()
            if self.is_local:
                return bool(system.isfile(f"{root}/{path}"))
            return system.info(f"{root}/{path}")["type"] == "file"  # isfile says no where a request fails
        return False

    def listing(self, prefix: str = "", *, hidden: bool = False) -> list[str]:
        """All files in a folder and the folders in it, sorted; without hidden ones, unless they are asked for."""
        paths = self._all(prefix)
        return sorted(p for p in paths if hidden or not any(part.startswith(".") for part in p.split("/")))

    def size(self, path: str) -> int | None:
        """How many bytes a file has; None where there is none."""
        _check(path)
        with self._errors(path, "read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self.is_local:
                return os.stat(f"{self.root}/{path}").st_size
            system, root = self._system()
            return int(system.info(f"{root}/{path}").get("size") or 0)
        return None

    def size_lookup(self) -> Callable[[str], int | None]:
        """`size` for many files; elsewhere from one listing of all."""
        if self.is_local:
            return self.size
        with self._errors("", "listed"):
            system, root = self._system()
            files = system.find(root, detail=True) if system.exists(root) else {}
        sizes = {str(path)[len(root) :].lstrip("/"): int(info.get("size") or 0) for path, info in files.items()}
        return sizes.get

    def digest(self, path: str) -> str | None:
        """The sha256 of a file, which is read piece by piece; None where there is none."""
        if not self.exists(path):
            return None
        digest = hashlib.sha256()
        with self.open(path) as file, self._errors(path, "read"):
            while piece := file.read(2**20):
                digest.update(piece)
        return digest.hexdigest()

    def move(self, path: str, target: str) -> None:
        """Move a file within the store; one that has the target's name already keeps it, and this gets a longer one."""
        _check(path)
        while self.exists(target):
            target = f"{target}~"
        _check(target)
        with self._errors(path, "moved"):
            if self.is_local:
                Path(self.root, target).parent.mkdir(parents=True, exist_ok=True)
                Path(self.root, path).rename(Path(self.root, target))
                return
            system, root = self._system()
            system.mv(f"{root}/{path}", f"{root}/{target}")

    def remove(self, path: str) -> None:
        """Remove a file; none there is none to remove."""
        _check(path)
        with self._errors(path, "removed"), contextlib.suppress(FileNotFoundError):
            system, root = self._system()
            system.rm_file(f"{root}/{path}")

    def sweep(self) -> int:
        """Remove what interrupted writes left behind; how many. Only while nothing is being written."""
        left = [path for path in self._all("") if _TEMPORARY.fullmatch(path.rpartition("/")[2])]
        for path in left:
            self.remove(path)
        return len(left)

    def check_writable(self) -> None:
        """Raise `DatasetError` if nothing can be written here. A kill meanwhile leaves nothing in a folder."""
        if self.is_local:
            with self._errors("", "written"):
                Path(self.root).mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.root):  # which has no name where the system can do without
                    return
        name = f".writable-{uuid.uuid4().hex[:12]}"
        self.write(name, b"")
        self.remove(name)

    def _system(self) -> tuple[Any, str]:
        """fsspec's file system, of which it keeps one for each process, and the path in it.

        Listings that it keeps are forgotten: others write here, too, and what a listing of before does not have would
        be said not to be there.
        """
        import fsspec

        if self.is_local:
            return fsspec.filesystem("file"), self.root
        try:
            system, path = fsspec.core.url_to_fs(self.root)
        except ImportError as error:  # the file system's own package; fsspec names it
            raise DatasetError(f"this kind of address needs another package: {error}", file=self.root) from error
        except ValueError as error:
            raise DatasetError(f"not an address that fsspec knows: {error}", file=self.root) from error
        system.invalidate_cache()
        return system, path.rstrip("/")

    def _all(self, prefix: str) -> list[str]:
        if prefix:
            _check(prefix)
        with self._errors(prefix, "listed"):
            if self.is_local:  # fsspec would ask for every file's size and follow links
                return _walk(Path(self.root), prefix)
            system, root = self._system()
            try:
                paths = system.find(f"{root}/{prefix}" if prefix else root)
            except FileNotFoundError:
                return []
            return [str(path)[len(root) :].lstrip("/") for path in paths]

    @contextlib.contextmanager
    def _errors(self, path: str, action: str) -> Iterator[None]:
        """Turn what a file system raises into a `DatasetError` that names the file."""
        try:
            yield
        except DatasetError:
            raise
        except Exception as error:  # each file system raises its own
            if self.is_local and not isinstance(error, OSError):
                raise
            if isinstance(error, FileNotFoundError) and action != "written":
                raise DatasetError("there is no such file", file=self.place(path)) from error
            raise DatasetError(f"cannot be {action}: {_reason(error)}", file=self.place(path)) from error


def open_store(target: str | Path) -> Store:
    """Store at a folder (which need not exist yet), or at an address such as s3://bucket/pairs that fsspec knows."""
    text = str(target)
    scheme, mark, rest = text.partition("://")
    if isinstance(target, Path) or not mark:
        return Store(str(Path(text).absolute()))
    if scheme in ("file", "local"):
        return Store("/" + rest.strip("/"))
    store = Store(text.rstrip("/"), is_local=False)
    store._system()
    return store


def check_output(path: str | Path, endings: Sequence[str], failure: type[FileError] = FileError) -> Path:
    """The path, if a file with one of the endings can be written there; said before the long work."""
    path = Path(path)
    if path.suffix.lower() not in endings:
        raise failure(f"expected a name that ends in {', '.join(endings)}", file=path)
    folder = path.resolve().parent
    if not folder.is_dir():
        reason = _NO_FOLDER if folder.exists() else f"there is no folder {path.parent}"
        raise failure(f"cannot be written: {reason}", file=path)
    if path.is_dir():
        raise failure("cannot be written: it is a folder", file=path)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise failure(f"cannot be written: {_reason(error)}", file=path) from error


def _reason(error: Exception) -> str:
    """What a file system's error means, with advice where there is some."""
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number) if isinstance(number, int) else None
    return advice or getattr(error, "strerror", None) or str(error) or type(error).__name__


def writing_file(path: str | Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """A file of this machine to fill, which appears whole or not at all; its folders are made."""
    path = Path(path).absolute()
    return open_store(path.parent).writing(path.name)


def write_file(path: str | Path, data: bytes) -> None:
    """Write a file of this machine, with its folders, whole or not at all."""
    with writing_file(path) as file:
        file.write(data)


def _check(path: str) -> None:
    """Raise `DatasetError` for a path that leaves the store."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path:
        raise DatasetError("not a path within a data set", file=path.replace("\0", "\\0"))


def _temporary_name(name: str) -> str:
    return f".{name}.{uuid.uuid4().hex[:12]}{SUFFIX}"


@contextlib.contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """A hidden file beside its place, which is moved there when all of it is on the disk."""
    missing = [folder for folder in (target.parent, *target.parent.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        _synchronise(folder.parent)
    temporary = target.with_name(_temporary_name(target.name))
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _synchronise(target.parent)


def _synchronise(folder: Path) -> None:
    """Let a new name in a folder survive a power cut; Windows and some file systems know no such thing."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _walk(root: Path, prefix: str) -> list[str]:
    """Paths of all files below a folder, hidden ones too."""
    top = root / prefix
    if top.exists() and not top.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "not a folder")

    def refuse(error: OSError) -> None:
        raise error

    paths = []
    for here, _, names in os.walk(top, onerror=refuse) if top.is_dir() else ():
        folder = Path(here).relative_to(root).as_posix()
        paths += names if folder == "." else [f"{folder}/{name}" for name in names]
    return paths
