"""Nobody's file is touched: marks of folders, journals of files, results that would replace what they are made of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from defocus.errors import OwnershipError
from defocus.files.ownership import (
    FILES,
    MARK,
    OwnedFolder,
    check_no_folder_of_ours,
    check_not_input,
    claim,
    read_mark,
)
from defocus.files.stores import open_store


def test_a_new_or_empty_folder_becomes_ours_and_stays_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".DS_Store").touch()
    for name in ("new", "empty"):
        mark = OwnedFolder(tmp_path / name, "training").mark
        assert OwnedFolder(tmp_path / name, "training").mark == mark
        assert read_mark(open_store(tmp_path / name)) == mark
    with pytest.raises(OwnershipError, match="folder of a training, not of an evaluation"):
        OwnedFolder(tmp_path / "new", "evaluation")


@pytest.mark.parametrize("name", ["config.json", "ledger.sqlite", ".hidden", "pictures/wedding.jpg"])
def test_a_folder_with_other_things_is_refused_and_left(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(OwnershipError, match=name.partition("/")[0]):
        OwnedFolder(tmp_path, "training")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [name.rpartition("/")[2]]


@pytest.mark.parametrize("change", ["version", "kind", "no JSON", "list"])
def test_a_damaged_mark_is_no_mark(tmp_path: Path, change: str) -> None:
    OwnedFolder(tmp_path, "training")
    text = (tmp_path / MARK).read_text()
    changes = {
        "version": text.replace('folder": 1', 'folder": 2'),
        "kind": text.replace('"training"', '"data set"'),
        "no JSON": text[:-9],
        "list": "[]",
    }
    (tmp_path / MARK).write_text(changes[change])
    with pytest.raises(OwnershipError, match="damaged"):
        OwnedFolder(tmp_path, "training")


def test_only_files_of_ours_are_replaced_and_removed(tmp_path: Path) -> None:
    folder = OwnedFolder(tmp_path, "training")
    for name in ("a.txt", "b.txt", "deep/er/c.txt"):
        folder.write(name, b"ours")
    folder.write("a.txt", b"ours again")
    (tmp_path / "b.txt").write_bytes(b"the user's words")
    (tmp_path / "d.txt").write_bytes(b"foreign")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    for again in (folder, OwnedFolder(tmp_path, "training")):
        assert again.files() == ["a.txt", "deep/er/c.txt"]
        for name in ("b.txt", "d.txt", "link.txt"):
            with pytest.raises(OwnershipError, match="left as it is"):
                again.write(name, b"ours")
            assert not again.remove(name)
    assert OwnedFolder(tmp_path, "training").clear() == ["b.txt", "d.txt", "link.txt"]
    assert (tmp_path / "b.txt").read_bytes() == b"the user's words"
    assert not (tmp_path / "deep").exists()


def test_a_log_that_grows_is_known_by_its_beginning(tmp_path: Path) -> None:
    folder = OwnedFolder(tmp_path, "training")
    folder.write("loss.csv", b"step,loss\n", head=10)
    with (tmp_path / "loss.csv").open("a") as file:
        file.write("1,0.5\n")
    assert OwnedFolder(tmp_path, "training").owns("loss.csv")
    (tmp_path / "loss.csv").write_text("my notes, very long ones\n")
    assert not OwnedFolder(tmp_path, "training").owns("loss.csv")


def test_after_a_kill_between_journal_and_file_either_file_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = OwnedFolder(tmp_path, "training")
    folder.write("best.pt", b"first")

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(3):  # however often
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", kill)
            with pytest.raises(KeyboardInterrupt):
                OwnedFolder(tmp_path, "training").write("best.pt", os.urandom(8))
        assert (tmp_path / "best.pt").read_bytes() == b"first"
    again = OwnedFolder(tmp_path, "training")
    again.write("best.pt", b"second")
    assert (tmp_path / "best.pt").read_bytes() == b"second"


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    folder = OwnedFolder(tmp_path, "training")
    for name in (".table.tex.0123456789ab.part", ".thesis.docx.part"):  # of a killed write, of somebody else
        (tmp_path / name).write_bytes(b"half")
    with (
        folder.locked(),
        pytest.raises(OwnershipError, match="another process"),
        OwnedFolder(tmp_path, "training").locked(),
    ):
        pass
    assert [path.name for path in tmp_path.glob(".*.part")] == [".thesis.docx.part"]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"mine\n")
    folder = OwnedFolder(tmp_path / "run", "training")
    (tmp_path / "run" / FILES).symlink_to(target)
    with pytest.raises(Exception, match=r"defocus-files.jsonl: cannot be written"):
        folder.write("a.txt", b"ours")
    assert target.read_bytes() == b"mine\n"


def test_an_object_store_carries_the_same_mark() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/owned/theirs.png", b"x")
    store = open_store("memory://owned")
    with pytest.raises(OwnershipError, match=r"theirs\.png"):
        claim(store, "data set")
    memory.rm_file("/owned/theirs.png")
    assert claim(store, "data set") == claim(store, "data set")
    memory.rm("/owned", recursive=True)


def test_a_result_never_takes_the_place_of_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo, other = tmp_path / "photo.png", tmp_path / "other.png"
    photo.write_bytes(b"x")
    other.write_bytes(b"y")
    (tmp_path / "soft.png").symlink_to(photo)
    os.link(photo, tmp_path / "hard.png")
    monkeypatch.chdir(tmp_path)
    for output in (
        "photo.png",
        photo,
        "./photo.png",
        "soft.png",
        "hard.png",
        tmp_path / ".." / tmp_path.name / "photo.png",
    ):
        with pytest.raises(OwnershipError, match="is the file that is read"):
            check_not_input(output, [None, other, photo])
    check_not_input("new.png", [photo])
    check_not_input(None, [photo])
    check_not_input(other, [photo, None])


def test_single_results_do_not_go_into_folders_of_other_commands(tmp_path: Path) -> None:
    OwnedFolder(tmp_path / "pairs", "data set")
    for place in ("pairs/train_c/source/000001.png", "pairs/x.png", "pairs"):
        with pytest.raises(OwnershipError, match="the folder of a data set"):
            check_no_folder_of_ours(tmp_path / place)
    check_no_folder_of_ours(tmp_path / "x.png")
