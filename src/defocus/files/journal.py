"""A journal of what is done already: one line of JSON for each thing, appended when it is done; its last line counts.

A line says of what and how the thing was made, and carries a checksum: one that was cut when the machine stopped, or
damaged since, counts as not written, and the thing is made again. Lines of older versions have no checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import DatasetError

SUM = "check"
Entry = dict[str, Any]


class Journal:
    """The lines of a file, each a mapping that names its thing under `key`."""

    def __init__(self, file: Path, key: str) -> None:
        self.file, self.key = file, key
        self._entries: dict[str, Entry] = {}
        try:
            data = file.read_bytes() if file.is_file() else b""
        except OSError as error:
            raise DatasetError(f"cannot be read: {error.strerror}", file=file) from error
        self._cut = bool(data) and not data.endswith(b"\n")
        for line in data.splitlines():
            entry = _read_line(line)
            if entry is not None and isinstance(entry.get(key), str):
                self._entries[entry[key]] = entry

    def get(self, name: str) -> Entry | None:
        """What the last line of a thing says; None where it is not done."""
        return self._entries.get(name)

    def names(self) -> list[str]:
        """Everything that has a line, in the order of their first lines."""
        return list(self._entries)

    def is_done(self, name: str, **inputs: Any) -> bool:
        """Whether a thing is done with these inputs, not with others."""
        entry = self._entries.get(name)
        return entry is not None and all(entry.get(key) == value for key, value in inputs.items())

    def write(self, name: str, **entry: Any) -> None:
        """Append the line of a thing. Raises `DatasetError` if it cannot be written."""
        line = json.loads(json.dumps({self.key: name} | entry))
        text = json.dumps(line | {SUM: checksum(line)[:16]}) + "\n"
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write("\n" + text if self._cut else text)
                file.flush()
                os.fsync(handle)
        except OSError as error:
            raise DatasetError(f"cannot be written: {error.strerror}", file=self.file) from error
        self._cut = False
        self._entries[name] = line


def _read_line(line: bytes) -> Entry | None:
    """The mapping of a line; None of what is no whole line of ours."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.pop(SUM, None) not in (None, checksum(entry)[:16]):
        return None
    return entry


def checksum(entry: Mapping[str, Any]) -> str:
    """The sha256 of a mapping as JSON, keys sorted."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
