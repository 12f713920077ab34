"""Stores: files that appear whole, in a folder and elsewhere."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from defocus.errors import DatasetError
from defocus.files import stores as store_module
from defocus.files.stores import open_store


@pytest.fixture(params=["local", "memory", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> store_module.Store:
    """A folder, an object store of fsspec's, and one of its file systems that must rename."""
    target = {"local": tmp_path / "new" / "set", "memory": f"memory://{tmp_path}", "dir": f"dir::file://{tmp_path}/d"}
    if request.param == "dir":
        (tmp_path / "d").mkdir()
    return open_store(target[request.param])


def test_a_store_keeps_files(store: store_module.Store) -> None:
    assert store.listing() == []
    store.write("train_c/source/000001.png", b"one")
    store.write("train_c/source/000001.png", b"again")
    store.write("plan.json", b"{}")
    store.write("train_c/.hidden", b"")
    assert store.read("train_c/source/000001.png") == b"again"
    assert store.listing() == ["plan.json", "train_c/source/000001.png"]
    assert store.listing("train_c") == ["train_c/source/000001.png"]
    assert store.listing("test_c") == []
    assert store.exists("plan.json")
    assert not store.exists("train_c")
    store.remove("plan.json")
    store.remove("plan.json")
    assert not store.exists("plan.json")
    with pytest.raises(DatasetError, match=r"plan\.json: there is no such file"):
        store.read("plan.json")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.read("train_c/source/000001.png") == b"again"
    assert copy.root == store.root
    store.check_writable()
    assert store.listing() == ["train_c/source/000001.png"]


def test_a_look_whether_a_folder_can_be_written_to_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not if it is killed before it could clean up, either."""
    monkeypatch.setattr(store_module.Store, "remove", lambda *_: None)
    store_module.open_store(tmp_path / "new").check_writable()
    assert list((tmp_path / "new").iterdir()) == []


def test_sweep_removes_what_kills_left(store: store_module.Store) -> None:
    store.write("a/b.png", b"whole")
    for path in ("a/.b.png.0123456789ab.part", ".c.0123456789ab.part", "a/.kept", "a/.users.part"):
        store.write(path, b"x")
    assert store.sweep() == 2
    assert store.sweep() == 0
    assert store.listing() == ["a/b.png"]
    assert store.exists("a/.kept")
    assert store.exists("a/.users.part")


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../b", ""])
def test_paths_stay_within_the_store(tmp_path: Path, path: str) -> None:
    with pytest.raises(DatasetError, match="not a path within"):
        open_store(tmp_path).write(path, b"")


def test_an_address_of_a_local_folder_is_that_folder(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    assert store.folder == tmp_path
    with pytest.raises(DatasetError, match="not an address that fsspec knows"):
        open_store("nosuchscheme://bucket")


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "no permission")],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    store = open_store(tmp_path)
    store.write("a.png", b"old")

    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store_module.os, "fsync", full)
    with pytest.raises(DatasetError, match=rf"a\.png: cannot be written: .*{advice}"):
        store.write("a.png", b"new")
    assert store.read("a.png") == b"old"
    assert os.listdir(tmp_path) == ["a.png"]


def test_a_block_that_fails_writes_nothing(store: store_module.Store) -> None:
    store.write("a.npy", b"old")

    def fail() -> None:
        with store.writing("a.npy") as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.read("a.npy") == b"old"
    assert store.sweep() == 0


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.png").symlink_to(victim)
    open_store(tmp_path / "set").write("a.png", b"new")
    assert victim.read_bytes() == b"mine"
    assert not (tmp_path / "set" / "a.png").is_symlink()


def test_parts_and_sizes_of_files(store: store_module.Store) -> None:
    store.write("a/b.bin", b"0123456789")
    store.write("c.bin", b"xyz")
    assert store.read("a/b.bin", 3, 6) == b"345"
    size_of = store.size_lookup()
    assert [size_of(path) for path in ("c.bin", "a/b.bin", "a/none.bin")] == [3, 10, None]
    assert store.digest("c.bin") == hashlib.sha256(b"xyz").hexdigest()
    assert store.digest("none.bin") is None
    store.write("d/c.bin", b"older")
    store.move("c.bin", "d/c.bin")
    assert (store.read("d/c.bin"), store.read("d/c.bin~"), store.exists("c.bin")) == (b"older", b"xyz", False)
    with store.open("a/b.bin") as file:
        file.seek(8)
        assert file.read() == b"89"


def test_killed_writers_leave_whole_files_only(tmp_path: Path) -> None:
    code = (
        "import itertools, sys\nfrom defocus.files.stores import open_store\nstore = open_store(sys.argv[1])\n"
        "for n in itertools.count():\n    store.write('a.bin', bytes([n % 251]) * 4_000_000)\n"
        "    print(n, flush=True)\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        for _ in range(3):
            writer.stdout.readline()
    for writer in writers:
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        writer.stdout.close()
    store = open_store(tmp_path)
    data = store.read("a.bin")
    assert len(data) == 4_000_000
    assert len(set(data)) == 1
    left = len(os.listdir(tmp_path)) - 1
    assert store.sweep() == left
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "set").write_text("")
    with pytest.raises(DatasetError, match="a file stands where a folder is needed"):
        open_store(tmp_path / "set").write("plan.json", b"")
    with pytest.raises(DatasetError, match="a file stands where a folder is needed"):
        open_store(tmp_path / "set").listing()
    (tmp_path / "other" / "plan.json").mkdir(parents=True)
    with pytest.raises(DatasetError, match="a folder stands where a file"):
        open_store(tmp_path / "other").write("plan.json", b"")
    assert not list((tmp_path / "other").glob(".*"))


class ListingsKept(MemoryFileSystem):
    """As the file systems of object stores are: a listing is kept, and what it does not have is not there."""

    protocol = "listings-kept"
    out_of_order = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix(f"{cls.protocol}://")))

    def find(self, path: str, **options: Any) -> Any:
        entries = super().find(path, **options | {"detail": True})
        for name, entry in entries.items():
            self.dircache.setdefault(self._parent(name), []).append(entry)
        return entries if options.get("detail") else list(entries)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        if self.out_of_order:
            raise OSError("no answer")
        entries = self._ls_from_cache(self._strip_protocol(path))
        return super().info(path, **options) if entries is None else entries[0]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self.info(path)
        return super().cat_file(path, start, end, **options)

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


def test_what_others_wrote_meanwhile_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation(ListingsKept.protocol, ListingsKept, clobber=True)
    store, other = open_store(f"{ListingsKept.protocol}://{tmp_path}"), open_store(f"memory://{tmp_path}")
    other.write("train/1.png", b"one")
    looks = (
        lambda path: store.read(path) == b"two",
        lambda path: store.size(path) == 3,
        store.exists,
        lambda path: store.open(path).__enter__().read() == b"two",
    )
    for number, look in enumerate(looks, 2):
        assert f"train/{number}.png" not in store.listing()
        other.write(f"train/{number}.png", b"two")
        assert look(f"train/{number}.png")
    monkeypatch.setattr(ListingsKept, "out_of_order", True)
    with pytest.raises(DatasetError, match=r"1\.png: cannot be read: no answer"):
        store.exists("train/1.png")
