"""By what and of what the results in a folder were made, so that others are not taken for one's own.

A hidden journal in the folder has for each result a sum of the weights, the settings that decide its pixels, and the
photograph's size, time and sum. A line is written before its result, and an older result is removed before that: a file
that is there was made by what its last line says, of what it says.

A photograph of the same size and time is taken for the same; its bytes are read only where the time differs, so that a
thousand results are skipped without reading their photographs. Lines of older versions tell nothing of the photograph,
which is then not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import PhotoError
from ..files.journal import Journal
from ..files.settings import settings_difference
from ..files.stores import open_store

LINES = ".defocus.jsonl"
ADVICE = "--overwrite makes it anew, or take another folder"
ADVICE_FOR_ONE = "remove this result to make it alone anew; --overwrite makes all anew, or take another folder"

PhotoState = dict[str, Any]  # a photograph's file as it was: bytes, mtime_ns and the sum of its bytes


@dataclass
class MadeBy:
    """The folder of results, and what this run makes them by. Raises `DatasetError` if nothing can be written there."""

    folder: Path
    by: Mapping[str, Any]
    _journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        open_store(self.folder).check_writable()
        self.by = json.loads(json.dumps(dict(self.by), default=str))
        self._journal = Journal(self.folder / LINES, "result")

    def check(self, results: Iterable[tuple[Path, Path]]) -> None:
        """Raise `PhotoError` for a result that is there and was made in another way, or of another photograph.

        `results` are the files to make, each with its photograph.
        """
        for result, photo in results:
            if not result.exists():
                continue
            entry = self._journal.get(self._name(result))
            if entry is None or not isinstance(entry.get("by"), dict):
                raise PhotoError(f"is there already, and nothing tells what made it: {ADVICE}", file=result)
            if entry["by"] != self.by:
                others = settings_difference(entry["by"], self.by)
                way = "other weights" if entry["by"].get("weights") != self.by.get("weights") else "; ".join(others)
                raise PhotoError(f"was made with {way}: {ADVICE}", file=result)
            if isinstance(entry.get("of"), dict):
                self._check_photo(result, photo, entry["of"])

    def _check_photo(self, result: Path, photo: Path, before: Mapping[str, Any]) -> None:
        now = _size_and_time(photo)
        if now.items() <= before.items():
            return
        if now["bytes"] != before.get("bytes") or file_sum(photo) != before.get("sum"):
            raise PhotoError(f"was made of another photograph than {photo} is now: {ADVICE_FOR_ONE}", file=result)
        self._write(result, {**before, **now})  # copied or touched: its bytes need not be read again

    def note(self, result: Path, of: PhotoState) -> None:
        """Remove an older result and write the line of the new one, which is to be written next."""
        result.unlink(missing_ok=True)
        self._write(result, of)

    def _write(self, result: Path, of: PhotoState) -> None:
        self._journal.write(self._name(result), by=self.by, of=of)

    def _name(self, result: Path) -> str:
        return result.absolute().relative_to(self.folder.absolute()).as_posix()


def photo_state(photo: Path) -> PhotoState:
    """State of a photograph's file. Raises `PhotoError` if it cannot be read."""
    return {**_size_and_time(photo), "sum": file_sum(photo)}


def _size_and_time(photo: Path) -> dict[str, int]:
    try:
        status = photo.stat()
    except OSError as error:
        raise PhotoError(f"cannot be read: {error.strerror}", file=photo) from error
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def file_sum(file: str | Path) -> str:
    """Checksum of a file's bytes. Raises `PhotoError` if it cannot be read."""
    try:
        with Path(file).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()[:32]
    except OSError as error:
        raise PhotoError(f"cannot be read: {error.strerror}", file=file) from error
