"""What a worker does: tasks in, outcomes and finished files out. Any process can be one; none knows of the ledger.

A task is a handful of candidates of one photograph to draw, or of recipes to make. While a worker computes one task,
the photographs of the next are read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal

import jax

from ..errors import DatasetError, DefocusError
from ..files.png import png_bytes
from ..files.stores import Store, open_store
from .candidates import LensChoice, draw_candidates, identity
from .layouts import pair_paths, shard_bytes, shard_path
from .lens_pool import LensPool
from .pairs import Made, Stopwatch, make_pairs
from .plan import Plan, SplitName
from .recipe import Outcome, Recipe
from .sources import Sharp, SourceCache, SourceName

READERS = 4  # threads that read photographs ahead
WRITERS = 6  # threads that compress and write pictures
GPU_TASKS = 3


@dataclass(frozen=True)
class Task:
    """One piece of work; small enough to send anywhere."""

    name: str
    kind: Literal["draw", "make"]
    split: SplitName
    sources: tuple[str, ...]
    numbers: tuple[int, ...] = ()  # draw
    records: tuple[dict[str, Any], ...] = ()  # make
    shard: int | None = None  # make all into this shard

    @property
    def ids(self) -> list[str]:
        return [str(r["id"]) for r in self.records] or [identity(self.split, n) for n in self.numbers]


@dataclass(frozen=True)
class Result:
    """Of one task. `fatal`: nothing more can be done, such as a full disk."""

    task: Task
    outcomes: tuple[Outcome, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    fatal: str = ""


@dataclass(frozen=True)
class Job:
    """What every worker must know; can be pickled."""

    plan: Plan
    target: str
    lenses: LensPool
    sources: dict[str, SourceName]


class Worker:
    """Does tasks: on a processor one after the other, on a GPU a few side by side, so that it need not wait."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.store: Store = open_store(job.target)
        self._cache = SourceCache(job.plan)
        self._choices: dict[SplitName, LensChoice] = {}
        self._computers = ThreadPoolExecutor(self.at_once(), thread_name_prefix="compute")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._first = Lock()
        self._begun: set[str] = set()  # kinds of tasks whose programs are compiled

    @staticmethod
    def at_once() -> int:
        """Tasks that are computed side by side."""
        return 1 if jax.default_backend() == "cpu" else GPU_TASKS

    def close(self) -> None:
        for pool in (self._readers, self._computers, self._writers):
            pool.shutdown(wait=True, cancel_futures=True)

    def do(self, task: Task) -> Future[Result]:
        """Begin a task, or let it wait for its turn; its photographs are read meanwhile."""
        for name in task.sources:
            self._readers.submit(self._try, name)
        return self._computers.submit(self._in_turn, task)

    def _in_turn(self, task: Task) -> Result:
        """The first task of a kind alone: side by side, each would compile the same programs."""
        if task.kind not in self._begun:
            with self._first:
                if task.kind not in self._begun:
                    result = self._done(task)
                    self._begun.add(task.kind)
                    return result
        return self._done(task)

    def _try(self, name: str) -> Sharp | DefocusError:
        try:
            return self._cache.get(self.job.sources[name])
        except DefocusError as error:
            return error

    def _done(self, task: Task) -> Result:
        watch = Stopwatch()
        sharps = {name: self._try(name) for name in task.sources}
        watch.lap("read")
        if task.kind == "draw":
            return self._draw(task, sharps[task.sources[0]], watch)
        good = {name: s for name, s in sharps.items() if isinstance(s, Sharp)}
        recipes = [Recipe.from_json(r) for r in task.records]
        failed = [Outcome(r.id, "failed", str(sharps[r.source]), r.to_json()) for r in recipes if r.source not in good]
        wanted = [r for r in recipes if r.source in good]
        try:
            made = make_pairs(self.job.plan, wanted, good, self.job.lenses.lenses, watch)
            encoded = list(self._writers.map(self._encode, [m for m in made if not m.refused]))
            watch.lap("encode")
            files = self._write_shard(task, encoded) if task.shard is not None else self._write_files(encoded)
            watch.lap("write")
        except DatasetError as error:
            return Result(task, fatal=str(error))
        outcomes = [
            Outcome(m.recipe.id, "rejected", m.refused, m.recipe.to_json())
            if m.refused
            else Outcome(m.recipe.id, "done", record=m.record | {"files": files[m.recipe.id]})
            for m in made
        ]
        return Result(task, (*outcomes, *failed), watch.seconds)

    def _draw(self, task: Task, sharp: Sharp | DefocusError, watch: Stopwatch) -> Result:
        if isinstance(sharp, DefocusError):
            outcomes = [Outcome(identity(task.split, n), "failed", str(sharp)) for n in task.numbers]
        else:
            outcomes = draw_candidates(self.job.plan, task.split, task.numbers, sharp, self._choice(task.split))
        watch.lap("draw")
        return Result(task, tuple(outcomes), watch.seconds)

    def _choice(self, split: SplitName) -> LensChoice:
        if split not in self._choices:
            pool = self.job.lenses
            self._choices[split] = LensChoice.of([pool.lenses[name] for name in pool.of_split[split]])
        return self._choices[split]

    def _encode(self, made: Made) -> tuple[Made, dict[str, bytes]]:
        return made, {role: png_bytes(values) for role, values in made.pictures.items()}

    def _write_files(self, encoded: Sequence[tuple[Made, dict[str, bytes]]]) -> dict[str, dict[str, Any]]:
        layout = self.job.plan.output.layout

        def write(item: tuple[Made, dict[str, bytes]]) -> tuple[str, dict[str, Any]]:
            made, pictures = item
            files = {}
            for role, path in pair_paths(layout, made.recipe.id, tuple(pictures)).items():
                self.store.write(path, pictures[role])
                files[role] = {"path": path, "sha256": _digest(pictures[role]), "bytes": len(pictures[role])}
            return made.recipe.id, files

        return dict(self._writers.map(write, encoded))

    def _write_shard(self, task: Task, encoded: Sequence[tuple[Made, dict[str, bytes]]]) -> dict[str, dict[str, Any]]:
        assert task.shard is not None
        if not encoded:
            return {}
        path = shard_path(task.split, task.shard)
        data, members = shard_bytes([(m.recipe.id, pictures, m.record) for m, pictures in encoded])
        self.store.write(path, data)
        return {
            one: {role: told | {"path": path} for role, told in by_role.items()} for one, by_role in members.items()
        }


def leave_room() -> None:
    """JAX otherwise takes three quarters of a GPU at its start, which a network or other workers need."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
