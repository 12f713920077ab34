"""What a training leaves to read: loss.csv and validation.csv, which a resumed run continues as if it had never
stopped; pictures; events for TensorBoard; and run.jsonl, which says when it ran, where and how fast.

accelerate's trackers know no CSV, and drop no rows of steps that are done again.
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
from ..files.png import png_bytes
from ..files.stores import write_file


class CsvLog:
    """Rows with a step. Opened at step s, rows of later steps are dropped: they are about to be written again."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        self._rows = [row for row in _read(path) if int(row["step"]) <= step] if path.exists() else []
        self._columns = list(dict.fromkeys(key for row in self._rows for key, value in row.items() if value))
        self._write_all()

    def add(self, row: Mapping[str, float]) -> None:
        line = {key: f"{value:.9g}" for key, value in row.items()}
        self._rows.append(line)
        if new := [key for key in line if key not in self._columns]:
            self._columns += new
            self._write_all()
            return
        with self._path.open("a", encoding="utf-8", newline="") as file:
            self._writer(file).writerow(line)

    def flush(self) -> None:
        """Bring whatever was added to the disk."""
        with self._path.open("a", encoding="utf-8") as file:
            os.fsync(file.fileno())

    def _write_all(self) -> None:
        text = io.StringIO()
        if self._columns:
            writer = self._writer(text)
            writer.writeheader()
            writer.writerows(self._rows)
        write_file(self._path, text.getvalue().encode())

    def _writer(self, file: Any) -> csv.DictWriter[str]:
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")


class TrainLogs:
    """All logs of a training, opened at the step at which a run begins or goes on."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], step: int) -> None:
        self._folder = folder
        names = ("loss", "validation") if "csv" in kinds else ()
        self._csv = {name: CsvLog(folder / f"{name}.csv", step) for name in names}
        board = tensorboard_writer(kinds)
        self._board = board(str(folder / "tensorboard"), purge_step=step + 1) if board is not None else None

    def add(self, name: str, step: int, row: Mapping[str, float], **board: float | None) -> None:
        """A row of "loss" or "validation"; `board`: numbers that only TensorBoard shows."""
        if name in self._csv:
            self._csv[name].add({"step": step, **row})
        if self._board is not None:
            for key, value in ({f"{name}/{key}": value for key, value in row.items()} | board).items():
                if value is not None:
                    self._board.add_scalar(key, value, step)

    def show(self, step: int, strips: UInt8[np.ndarray, "rows cols 3"]) -> None:
        """A picture of what the network does."""
        write_file(self._folder / "pictures" / f"step-{step:08d}.png", png_bytes(strips))
        if self._board is not None:
            self._board.add_image("validation", strips, step, dataformats="HWC")

    def event(self, name: str, **about: Any) -> None:
        line = json.dumps({"event": name, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **about})
        with (self._folder / "run.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def flush(self) -> None:
        """Bring whatever was added to the disk."""
        for log in (*self._csv.values(), *([self._board] if self._board is not None else [])):
            log.flush()

    def close(self) -> None:
        self.flush()
        if self._board is not None:
            self._board.close()


def tensorboard_writer(kinds: tuple[str, ...]) -> Any:
    """The class of tensorboardX's writers, None where no log needs it. Raises `ConfigError` if it is not installed."""
    if "tensorboard" not in kinds:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError as error:
        raise ConfigError(
            "logs.kinds: \"tensorboard\" needs the extra [train]: pip install 'defocus[train]'; or set "
            'logs.kinds = ["csv"]'
        ) from error
    return SummaryWriter


def _read(path: Path) -> list[dict[str, str]]:
    """Whole rows of a log; the last one may have been cut off when the run was killed."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        del lines[-1]
    rows = list(csv.DictReader(lines))
    for row in rows:
        if not (row.get("step") or "").isdigit():
            raise TrainingError(f"{path}: a row without a step; it is not as it was written, remove it or use --anew")
    return rows
