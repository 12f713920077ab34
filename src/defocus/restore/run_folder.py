"""The folder of a training: what it needs to go on after a kill at any moment, and what it leaves to read.

    RUN/config.json           the settings
        states/step-00001000.pt   network, optimiser, average, scaler, losses that are in no log yet, best score
        last.pt, best.pt      weights for `defocus deblur`
        loss.csv, validation.csv, run.jsonl (when it ran, where and how fast), tensorboard/, pictures/

A state is one file, written beside its place, synchronised and renamed; accelerate's save_state would write several,
and a kill between two of them would leave half a state. What happened after the last state is done again: the pairs and
the random numbers of a step follow from its number, and rows of logs after it are dropped (accelerate's trackers know
no CSV, and drop none). The folder carries our mark, and of the files in it only those that we made are replaced or
removed (`files/ownership.py`).
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from ..errors import ConfigError, DatasetError, TrainingError, WeightsError
from ..files.ownership import OwnedFolder, read_mark
from ..files.png import png_bytes
from ..files.settings import settings_difference
from ..files.stores import open_store
from ._torch import torch
from .config import TrainConfig
from .models.checkpoints import read_torch

VERSION = 1
KIND = "training"
# Of all that a training writes; TensorBoard's files have names that are nobody else's.
NAMES = re.compile(
    r"config\.json|(last|best)\.pt|(loss|validation)\.csv|run\.jsonl|states/step-\d+\.pt|pictures/step-\d+\.png"
)

State = dict[str, Any]


class RunFolder:
    """Where a training writes. Only the process that opened it does; others read its states."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states = path / "states"
        self.files: OwnedFolder

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep other trainings out. Raises `OwnershipError` where one is running, for a folder that is not ours, and
        for files in it that stand in the way of ours; what is in nobody's way is left."""
        self.files = OwnedFolder(self.path, KIND)
        with self.files.locked():
            self.files.require(*filter(NAMES.fullmatch, self.files.store.listing()))
            yield

    def write_config(self, config: TrainConfig) -> None:
        """Write the settings."""
        self.files.write("config.json", json.dumps(config.as_json(), indent=1).encode())

    def latest(self) -> Path | None:
        """The last state, if there is one."""
        return max(self.states.glob("step-*.pt"), default=None)

    def state_file(self, step: float) -> Path:
        return self.states / f"step-{int(step):08d}.pt"

    def save(self, state: State, keep: int) -> None:
        """Write a state; the last `keep` states stay, and the one that `state` says is the best."""
        target = self.state_file(state["step"])
        try:
            with self.files.writing(f"states/{target.name}") as file:
                torch.save(_canonical(state), file)
        except (DatasetError, RuntimeError) as error:  # torch's writer tells a full disk by a RuntimeError
            raise TrainingError(
                f"{target}: cannot be written: {getattr(error, 'message', None) or error}; free some space and run "
                "the same command again, it goes on"
            ) from error
        best = self.state_file(state["best"]["step"]) if state["best"] else None
        for old in sorted(self.states.glob("step-*.pt"))[:-keep]:
            if old != best:
                self.files.remove(f"states/{old.name}")


def _canonical(part: Any) -> Any:
    """An equal value in which equal texts are one object and no containers are shared: a pickle tells such things, and
    a state that was loaded and one that was not shall be equal bytes."""
    if isinstance(part, str):
        return sys.intern(part)
    if isinstance(part, dict):
        return {_canonical(key): _canonical(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(map(_canonical, part))
    return part


def read_state(file: Path) -> State:
    """State of a file. Raises `TrainingError` for what is no state of ours."""
    try:
        state = read_torch(file)
    except WeightsError as error:
        advice = "remove it to go on from the state before, or use --anew"
        raise TrainingError(f"{error}; {advice}") from error
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION:
        raise TrainingError(f"{file}: is of version {version}, this program writes {VERSION}; use --anew")
    return state


def check_same(
    state: State, config: TrainConfig, data: str, validation: str | None, folder: Path, accept_changes: bool
) -> list[str]:
    """What changed since a state was written. Raises `TrainingError` with it, unless changes are accepted.

    `data` and `validation`: identities of the pairs to learn from and to judge by; None: nothing is judged.
    """
    changes = settings_difference(state["config"], config.decisive())
    if state["data"] != data:
        changes.append("the pairs of the data are others")
    if other_judges(state, validation):
        changes.append("the pairs to validate with are others")
    if changes and not accept_changes:
        raise TrainingError(
            f"{folder}: this training was begun otherwise: {'; '.join(changes)}. --accept-changes goes on with what is "
            "asked for now, --anew begins again; or choose another folder"
        )
    if state["step"] > config.steps:
        raise TrainingError(
            f"{folder}: has {state['step']} steps already; the settings ask for {config.steps}: raise steps to "
            f"{state['step']} or more, use --anew to begin again, or choose another folder"
        )
    return changes


def other_judges(state: State, validation: str | None) -> bool:
    """Whether a state's best score was found with other pairs than those of now."""
    return bool(state["best"]) and validation is not None and state.get("validation") != validation


def anew_notes(path: Path) -> list[str]:
    """What `--anew` removes from a folder of a training, and what it leaves there, in sentences."""
    if not path.is_dir() or read_mark(open_store(path)) is None:
        return []
    files = OwnedFolder(path, KIND)
    ours = files.files()
    others = [name for name in files.store.listing() if name not in ours]
    notes = [f"--anew removes {len(ours)} files that a training made in {path}: {', '.join(ours)}"] if ours else []
    return notes + ([f"it leaves {', '.join(others)}"] if others else [])


class CsvLog:
    """Rows with a step. Opened at step s, rows of later steps are dropped: they are about to be written again.

    The file is there from its first row on.
    """

    def __init__(self, files: OwnedFolder, name: str, step: int) -> None:
        files.require(name)
        self._files, self._name, self._path = files, name, files.path / name
        self._rows = [row for row in self._read() if int(row["step"]) <= step] if self._path.exists() else []
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
        if self._rows:
            with self._path.open("a", encoding="utf-8") as file:
                os.fsync(file.fileno())

    def _read(self) -> list[dict[str, str]]:
        """Whole rows; the last one may have been cut off when the run was killed."""
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            del lines[-1]
        rows = list(csv.DictReader(lines))
        for row in rows:
            if not (row.get("step") or "").isdigit():
                raise TrainingError(
                    f"{self._path}: a row without a step; it is not as it was written, remove it or use --anew"
                )
        return rows

    def _write_all(self) -> None:
        if not self._rows:
            self._files.remove(self._name)
            return
        text = io.StringIO()
        writer = self._writer(text)
        writer.writeheader()
        writer.writerows(self._rows)
        data = text.getvalue().encode()
        self._files.write(self._name, data, head=len(data))

    def _writer(self, file: Any) -> csv.DictWriter[str]:
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")


class TrainLogs:
    """All logs of a training, opened at the step at which a run begins or goes on."""

    def __init__(self, files: OwnedFolder, kinds: tuple[str, ...], step: int) -> None:
        self._files = files
        names = ("loss", "validation") if "csv" in kinds else ()
        self._csv = {name: CsvLog(files, f"{name}.csv", step) for name in names}
        writer, suffix = tensorboard_writer(kinds), f".{uuid.uuid4().hex[:12]}"
        self._board = None
        if writer is not None:
            folder = files.path / "tensorboard"
            self._board = writer(str(folder), purge_step=step + 1, filename_suffix=suffix)
            self._board.flush()
            for event_file in folder.glob(f"events*{suffix}"):
                files.adopt(f"tensorboard/{event_file.name}", head=event_file.stat().st_size)

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
        self._files.write(f"pictures/step-{step:08d}.png", png_bytes(strips))
        if self._board is not None:
            self._board.add_image("validation", strips, step, dataformats="HWC")

    def event(self, name: str, **about: Any) -> None:
        """A line of run.jsonl; one that was cut when the run was killed stays a line of its own."""
        line = json.dumps({"event": name, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **about}) + "\n"
        self._files.require("run.jsonl")
        path = self._files.path / "run.jsonl"
        if not path.exists():
            self._files.write("run.jsonl", line.encode(), head=len(line))
            return
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            file.write((b"" if file.read(1) == b"\n" else b"\n") + line.encode())

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
