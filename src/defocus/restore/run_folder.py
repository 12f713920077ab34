"""The folder of a training, and what it needs to go on after a kill at any moment, as if nothing had happened.

    RUN/config.json           the settings
        states/step-00001000.pt   network, optimiser, average, scaler, losses that are in no log yet, best score
        last.pt, best.pt      weights for `defocus deblur`
        loss.csv, validation.csv, run.jsonl, tensorboard/, pictures/

A state is one file, written beside its place, synchronised and renamed; accelerate's save_state would write several,
and a kill between two of them would leave half a state. What happened after the last state is done again: the pairs and
the random numbers of a step follow from its number, and rows of logs after it are dropped.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..errors import DatasetError, TrainingError
from ..files.settings import settings_difference
from ..files.stores import open_store, write_file, writing_file
from .config import TrainConfig

VERSION = 1
FOLDERS = ("states", "tensorboard", "pictures")
FILES = ("config.json", "loss.csv", "validation.csv", "run.jsonl", "last.pt", "best.pt")

State = dict[str, Any]


class RunFolder:
    """Where a training writes. Only one process does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states = path / "states"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other trainings out. Raises `TrainingError` where one is running, or where other things are in the
        folder."""
        from filelock import FileLock, Timeout

        if self.path.exists() and not self.path.is_dir():
            raise TrainingError(f"{self.path}: is no folder")
        if self.path.is_dir() and not (self.path / "config.json").exists():
            others = sorted(p.name for p in self.path.iterdir() if p.name != ".lock")
            if others:
                raise TrainingError(f"{self.path}: is no folder of a training, but holds {others[0]}; choose a new one")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=0)
        except Timeout as error:
            raise TrainingError(f"{self.path}: another training is running in this folder") from error
        except OSError as error:
            raise TrainingError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        try:
            yield
        finally:
            lock.release()

    def clear(self) -> None:
        """Remove what a training left, and nothing else."""
        for name in FOLDERS:
            if (self.path / name).is_dir():
                shutil.rmtree(self.path / name)
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)

    def write_config(self, config: TrainConfig) -> None:
        """Write the settings, and remove what a killed write left."""
        write_file(self.path / "config.json", json.dumps(config.as_json(), indent=1).encode())
        open_store(self.states).sweep()

    def latest(self) -> Path | None:
        """The last state, if there is one."""
        return max(self.states.glob("step-*.pt"), default=None)

    def state_file(self, step: float) -> Path:
        return self.states / f"step-{int(step):08d}.pt"

    def save(self, state: State, keep: int) -> None:
        """Write a state; the last `keep` states stay, and the one that `state` says is the best."""
        target = self.state_file(state["step"])
        try:
            with writing_file(target) as file:
                torch.save(state, file)
        except (DatasetError, RuntimeError) as error:  # torch's writer tells a full disk by a RuntimeError
            raise TrainingError(
                f"{target}: cannot be written: {getattr(error, 'message', None) or error}; free some space and run "
                "the same command again, it goes on"
            ) from error
        best = self.state_file(state["best"]["step"]) if state["best"] else None
        for old in sorted(self.states.glob("step-*.pt"))[:-keep]:
            if old != best:
                old.unlink(missing_ok=True)


def read_state(file: Path) -> State:
    """State of a file. Raises `TrainingError` for what is no state of ours."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise TrainingError(
            f"{file}: cannot be read: {str(error).splitlines()[0] if str(error) else error!r}; remove it to go on from "
            "the state before, or use --anew"
        ) from error
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
