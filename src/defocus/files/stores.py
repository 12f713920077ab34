"""Where a data set is written: a folder, or any place that fsspec reaches. Files appear whole or not at all.

Locally a file is written under a hidden name beside its place, synchronised, and renamed; then the folder is
synchronised too, so that a file that was there once is there after a power cut. Object stores show an object when all
of it has arrived, so there it is put in one piece; on other file systems of fsspec's it is moved into place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import DatasetError, MissingPackageError

SUFFIX = ".part"  # of files that are being written; their names begin with a dot
_WHOLE = {
    "s3",
    "s3a",
    "gs",
    "gcs",
    "az",
    "abfs",
    "abfss",
    "oci",
    "oss",
    "r2",
    "memory",
}  # put all at once or not at all
_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again; what is done stays done",
    errno.EDQUOT: "the disk quota is used up: free some space and run the same command again; what is done stays done",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "no permission: choose a folder that you may write to, or change its permissions",
    errno.EPERM: "no permission: choose a folder that you may write to, or change its permissions",
    errno.ENOTDIR: "a file stands where a folder is needed: move it away, or choose another folder",
    errno.EEXIST: "a file stands where a folder is needed: move it away, or choose another folder",
    errno.EISDIR: "a folder stands where a file is to be written: move it away, or choose another folder",
    errno.ENAMETOOLONG: "the name is too long for this file system: choose a folder with a shorter path",
}


class Store(ABC):
    """A place for the files of a data set. Paths are relative, with slashes. Workers may hold copies (it pickles)."""

    @property
    @abstractmethod
    def root(self) -> str:
        """The folder or the address, for messages."""

    @property
    @abstractmethod
    def folder(self) -> Path | None:
        """The folder, where it is a local one."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file, with its folders; whoever looks sees the old one, or the new one whole."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """All of a file. Raises `DatasetError` if it is not there."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def listing(self, prefix: str = "") -> list[str]:
        """All files in a folder and the folders in it, sorted; without hidden ones and those still being written."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file; none there is none to remove."""

    @abstractmethod
    def sweep(self) -> int:
        """Remove what interrupted writes left behind; how many. Only while nothing is being written."""

    def check_writable(self) -> None:
        """Raise `DatasetError` if nothing can be written here."""
        name = f".writable-{uuid.uuid4().hex[:12]}"
        self.write(name, b"")
        self.remove(name)

    def place(self, path: str) -> str:
        """A file's full name, for messages."""
        return f"{self.root.rstrip('/')}/{path}"


def open_store(target: str | Path) -> Store:
    """A folder (which need not exist yet), or an address such as s3://bucket/pairs that fsspec understands."""
    text = str(target)
    scheme, found, rest = text.partition("://")
    if isinstance(target, Path) or not found:
        return LocalStore(Path(text).absolute())
    if scheme in ("file", "local"):
        return LocalStore(Path("/" + rest.lstrip("/")))
    store = RemoteStore(text.rstrip("/"))
    store.connect()
    return store


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """A folder of this machine, or one that all machines see."""

    path: Path

    @property
    def root(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> Path | None:
        return self.path

    def write(self, path: str, data: bytes) -> None:
        target = self.path / _checked(path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}{SUFFIX}")
        try:
            self._make_folder(target.parent)
            with _removed_on_failure(temporary):
                with temporary.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(target)
            _synchronise(target.parent)
        except OSError as error:
            raise _dataset_error(error, target, "written") from error

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        missing = [folder]
        while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
            missing.append(missing[-1].parent)
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            _synchronise(one.parent)

    def read(self, path: str) -> bytes:
        target = self.path / _checked(path)
        try:
            return target.read_bytes()
        except FileNotFoundError as error:
            raise DatasetError("there is no such file", file=target) from error
        except OSError as error:
            raise _dataset_error(error, target, "read") from error

    def exists(self, path: str) -> bool:
        return (self.path / _checked(path)).is_file()

    def listing(self, prefix: str = "") -> list[str]:
        return sorted(path for path in self._all(prefix) if not _hidden(path))

    def _all(self, prefix: str) -> list[str]:
        top = self.path / _checked(prefix) if prefix else self.path
        if top.exists() and not top.is_dir():
            raise DatasetError(f"{_ADVICE[errno.ENOTDIR]}", file=top)

        def failed(error: OSError) -> None:
            raise _dataset_error(error, top, "listed") from error

        found = os.walk(top, onerror=failed) if top.is_dir() else ()
        return [(Path(here) / name).relative_to(self.path).as_posix() for here, _, names in found for name in names]

    def remove(self, path: str) -> None:
        target = self.path / _checked(path)
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise _dataset_error(error, target, "removed") from error

    def sweep(self) -> int:
        left = [path for path in self._all("") if _temporary(path)]
        for path in left:
            self.remove(path)
        return len(left)


@dataclass(frozen=True, slots=True)
class RemoteStore(Store):
    """An address of fsspec's. Credentials come from the environment, as each of its file systems wants them."""

    url: str

    @property
    def root(self) -> str:
        return self.url

    @property
    def folder(self) -> Path | None:
        return None

    def connect(self) -> tuple[Any, str]:
        """The file system (fsspec keeps one for each process) and the path in it."""
        try:
            import fsspec  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingPackageError(f"writing to {self.url}", "fsspec") from error
        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except ImportError as error:  # the file system's own package; fsspec names it
            raise DatasetError(f"this kind of address needs another package: {error}", file=self.url) from error
        except ValueError as error:
            raise DatasetError(f"not an address that fsspec knows: {error}", file=self.url) from error
        return system, path.rstrip("/")

    def write(self, path: str, data: bytes) -> None:
        path = _checked(path)
        system, root = self.connect()
        target = f"{root}/{path}"
        try:
            if _protocols(system) & _WHOLE:
                system.pipe_file(target, data)
                return
            folder, _, name = target.rpartition("/")
            system.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{name}.{uuid.uuid4().hex[:12]}{SUFFIX}"
            system.pipe_file(temporary, data)
            system.mv(temporary, target)
        except Exception as error:  # each file system raises its own
            raise _dataset_error(error, self.place(path), "written") from error

    def read(self, path: str) -> bytes:
        path = _checked(path)
        system, root = self.connect()
        try:
            return bytes(system.cat_file(f"{root}/{path}"))
        except FileNotFoundError as error:
            raise DatasetError("there is no such file", file=self.place(path)) from error
        except Exception as error:
            raise _dataset_error(error, self.place(path), "read") from error

    def exists(self, path: str) -> bool:
        system, root = self.connect()
        system.invalidate_cache()
        return bool(system.isfile(f"{root}/{_checked(path)}"))

    def listing(self, prefix: str = "") -> list[str]:
        return sorted(path for path in self._all(prefix) if not _hidden(path))

    def _all(self, prefix: str) -> list[str]:
        system, root = self.connect()
        system.invalidate_cache()
        try:
            found = system.find(f"{root}/{_checked(prefix)}" if prefix else root)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise _dataset_error(error, self.place(prefix), "listed") from error
        return [str(path)[len(root) :].lstrip("/") for path in found]

    def remove(self, path: str) -> None:
        system, root = self.connect()
        try:
            with contextlib.suppress(FileNotFoundError):
                system.rm_file(f"{root}/{_checked(path)}")
        except Exception as error:
            raise _dataset_error(error, self.place(path), "removed") from error

    def sweep(self) -> int:
        left = [path for path in self._all("") if _temporary(path)]
        for path in left:
            self.remove(path)
        return len(left)


def _checked(path: str) -> str:
    """A path that stays within the store."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise DatasetError("not a path within a data set", file=path)
    return "/".join(parts)


def _hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _temporary(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(SUFFIX)


@contextlib.contextmanager
def _removed_on_failure(temporary: Path) -> Any:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _synchronise(folder: Path) -> None:
    """So that a new name in a folder survives a power cut; Windows knows no such thing."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that know no such thing
            raise
    finally:
        os.close(handle)


def _protocols(system: Any) -> set[str]:
    return {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)


def _dataset_error(error: Exception, file: str | Path, what: str) -> DatasetError:
    number = getattr(error, "errno", None)
    told = _ADVICE.get(number) if isinstance(number, int) else None
    if told is None:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return DatasetError(f"cannot be {what}: {told}", file=file)
