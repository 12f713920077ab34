"""By what the results in a folder were made, so that those of other weights are not taken for one's own.

A hidden file in the folder holds a line of JSON for each result: its name, a sum of the weights, and the settings that
decide its pixels. A line is written before its result, and an older result is removed before that: a file that is there
was made by what its last line says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import PhotoError
from ..synth.store import open_store

LINES = ".defocus.jsonl"
ADVICE = "--overwrite makes it anew, or take another folder"


@dataclass
class MadeBy:
    """The folder of results, and what this run makes them by. Raises `DatasetError` if nothing can be written there."""

    folder: Path
    by: Mapping[str, Any]
    _lines: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        open_store(self.folder.absolute()).check_writable()
        self.by = json.loads(json.dumps(dict(self.by), default=str))
        file = self.folder / LINES
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            if text and not text.endswith("\n"):
                with file.open("a", encoding="utf-8") as cut:
                    cut.write("\n")  # what comes next has a line of its own
            for line in text.splitlines():
                try:
                    told = json.loads(line)
                    self._lines[str(told["result"])] = dict(told["by"])
                except (ValueError, KeyError, TypeError):  # a line that was cut when the machine stopped
                    continue

    def check(self, results: Sequence[Path]) -> None:
        """Raise `PhotoError` for a result that is there and was made in another way."""
        for result in results:
            if not result.exists():
                continue
            old = self._lines.get(self._name(result))
            if old is None:
                raise PhotoError(f"is there already, and nothing tells what made it: {ADVICE}", file=result)
            if old != self.by:
                raise PhotoError(f"was made with {_difference(old, self.by)}: {ADVICE}", file=result)

    def note(self, result: Path) -> None:
        """Remove an older result and write the line of the new one, which is to be written next."""
        result.unlink(missing_ok=True)
        line = json.dumps({"result": self._name(result), "by": self.by})
        with (self.folder / LINES).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._lines[self._name(result)] = dict(self.by)

    def _name(self, result: Path) -> str:
        return result.absolute().relative_to(self.folder.absolute()).as_posix()


def weights_sum(file: str | Path) -> str:
    """Of the bytes of a file of weights."""
    with Path(file).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:32]


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """In words; the sum of the weights stands for the file."""
    if old.get("weights") != new.get("weights"):
        return "other weights"
    keys = [key for key in (*new, *(k for k in old if k not in new)) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {_shown(old.get(key))} instead of {_shown(new.get(key))}" for key in keys)


def _shown(value: Any) -> str:
    return "none" if value is None or value == {} else json.dumps(value) if isinstance(value, dict) else str(value)
