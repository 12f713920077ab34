"""What a training leaves to read: loss.csv and validation.csv, which a resumed run continues as if it had never
stopped; events for TensorBoard; and run.jsonl, which says when it ran, where and how fast.
"""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from ..errors import ConfigError, TrainingError
from ..files.stores import open_store

Row = Mapping[str, float]


class CsvLog:
    """Rows with a step. Opened at step s, rows of later steps are dropped: they are about to be written again."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        self._rows = [row for row in _read(path) if int(row["step"]) <= step] if path.exists() else []
        self._columns = list(dict.fromkeys(key for row in self._rows for key, value in row.items() if value))
        self._write_all()

    def add(self, row: Row) -> None:
        told = {key: f"{value:.9g}" for key, value in row.items()}
        self._rows.append(told)
        if new := [key for key in told if key not in self._columns]:
            self._columns += new
            self._write_all()
            return
        with self._path.open("a", encoding="utf-8", newline="") as file:
            self._writer(file).writerow(told)

    def keep(self) -> None:
        """Whatever was added is on the disk afterwards."""
        with self._path.open("a", encoding="utf-8") as file:
            os.fsync(file.fileno())

    def _write_all(self) -> None:
        text = io.StringIO()
        if self._columns:
            writer = self._writer(text)
            writer.writeheader()
            writer.writerows(self._rows)
        open_store(self._path.parent).write(self._path.name, text.getvalue().encode())

    def _writer(self, file: Any) -> csv.DictWriter[str]:
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")


class Logs:
    """All that were asked for. Opened at the step at which a run begins or goes on."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], step: int) -> None:
        self._folder = folder
        self._csv: dict[str, CsvLog] = {}
        self._board: Any = None
        if "csv" in kinds:
            self._csv = {name: CsvLog(folder / f"{name}.csv", step) for name in ("loss", "validation")}
        if "tensorboard" in kinds:
            self._board = _board(folder / "tensorboard", step)

    def loss(self, step: int, row: Row, steps_per_s: float | None) -> None:
        self._add("loss", step, row)
        if self._board is not None and steps_per_s is not None:
            self._board.add_scalar("steps_per_s", steps_per_s, step)

    def validation(self, step: int, row: Row, strips: UInt8[np.ndarray, "rows cols 3"] | None) -> None:
        self._add("validation", step, row)
        if self._board is not None and strips is not None:
            self._board.add_image("validation", strips, step, dataformats="HWC")

    def event(self, name: str, **about: Any) -> None:
        line = json.dumps({"event": name, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **about})
        with (self._folder / "run.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def keep(self) -> None:
        for log in self._csv.values():
            log.keep()
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        self.keep()
        if self._board is not None:
            self._board.close()

    def _add(self, name: str, step: int, row: Row) -> None:
        if name in self._csv:
            self._csv[name].add({"step": step, **row})
        if self._board is not None:
            for key, value in row.items():
                self._board.add_scalar(f"{name}/{key}", value, step)


def check_kinds(kinds: tuple[str, ...]) -> None:
    """Raises `ConfigError` where a kind of log cannot be written here."""
    if "tensorboard" in kinds:
        _writer_class()


def _board(folder: Path, step: int) -> Any:
    return _writer_class()(str(folder), purge_step=step + 1)


def _writer_class() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError as error:
        raise ConfigError(
            "logs.kinds: \"tensorboard\" needs the extra [train]: pip install 'defocus[train]'; or set "
            'logs.kinds = ["csv"]'
        ) from error
    return SummaryWriter


def _read(path: Path) -> list[dict[str, str]]:
    """Whole rows; the last one may have been cut off when the run was killed."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        del lines[-1]
    rows = list(csv.DictReader(lines))
    for row in rows:
        if not (row.get("step") or "").isdigit():
            raise TrainingError(f"{path}: a row without a step; it is not as it was written, remove it or use --anew")
    return rows
