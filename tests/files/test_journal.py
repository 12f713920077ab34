"""The journal of what is done already."""

from __future__ import annotations

from pathlib import Path

import pytest

from defocus.errors import DatasetError
from defocus.files.journal import Journal


def test_done_with_the_same_inputs_with_others_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "done.jsonl"
    journal = Journal(file, "id")
    assert journal.get("a") is None
    journal.write("a", by="weights 1", of={"size": (3, 4)})
    for same in (journal, Journal(file, "id")):
        assert same.get("a") == {"id": "a", "by": "weights 1", "of": {"size": [3, 4]}}
        assert same.is_done("a", by="weights 1")
        assert not same.is_done("a", by="weights 2")
        assert not same.is_done("b")
    journal.write("a", by="weights 2")
    assert Journal(file, "id").is_done("a", by="weights 2"), "the last line counts"


def test_lines_that_are_cut_or_damaged_count_as_not_written(tmp_path: Path) -> None:
    file = tmp_path / "done.jsonl"
    for name in "abcd":
        Journal(file, "id").write(name, by="x")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"x"', b'"y"')  # another value than its checksum
    lines[2] = b"\xff\n" + b"[" * 5000 + b"\n3\n" + b'{"id": 3}\n'
    file.write_bytes(b"".join(lines)[:-4])
    journal = Journal(file, "id")
    assert [name for name in "abcd" if journal.is_done(name)] == ["a"]
    journal.write("e", by="x")
    assert [name for name in "abcde" if Journal(file, "id").is_done(name)] == ["a", "e"]
    file.write_text('{"id": "old", "by": "x"}\n')
    assert Journal(file, "id").is_done("old", by="x"), "older versions wrote no checksum"


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"done\.jsonl: cannot be written"):
        Journal(tmp_path / "file" / "done.jsonl", "id").write("a")
