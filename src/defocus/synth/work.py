"""What a worker does: tasks in, outcomes and finished files out. Any process can be one; none knows of the ledger.

A task is a handful of candidates of one photograph to draw, or of recipes to make. A worker computes one task while the
pictures of the one before are compressed and written by threads, and while the photographs of the next are read.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import DatasetError, DefocusError
from .candidates import LensChoice, draw_candidates, identity
from .layouts import pair_paths, shard_bytes, shard_path
from .lens_pool import LensPool
from .pairs import Made, Stopwatch, make_pairs
from .pictures import png_bytes
from .plan import Plan, SplitName
from .recipe import Outcome, Recipe
from .sources import Sharp, SourceCache, SourceName
from .store import Store, open_store

WRITERS = 4


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
    """Does tasks, one computation at a time."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.store: Store = open_store(job.target)
        self._cache = SourceCache(job.plan)
        self._choices: dict[SplitName, LensChoice] = {}
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")
        self._finishers = ThreadPoolExecutor(2, thread_name_prefix="finish")
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="read")
        self._room = threading.Semaphore(2)  # tasks whose pictures wait to be written

    def close(self) -> None:
        for pool in (self._readers, self._writers, self._finishers):
            pool.shutdown(wait=True)

    def look_ahead(self, task: Task) -> None:
        """Read the photographs of a task that will come soon."""
        for name in task.sources:
            self._readers.submit(self._try, name)

    def _try(self, name: str) -> Sharp | DefocusError:
        try:
            return self._cache.get(self.job.sources[name])
        except DefocusError as error:
            return error

    def do(self, task: Task) -> Future[Result]:
        """Compute a task now; the result comes when its files are written."""
        watch = Stopwatch()
        sharps = {name: self._try(name) for name in task.sources}
        watch.lap("read")
        if task.kind == "draw":
            ready: Future[Result] = Future()
            ready.set_result(self._draw(task, sharps[task.sources[0]], watch))
            return ready
        good = {name: s for name, s in sharps.items() if isinstance(s, Sharp)}
        recipes = [Recipe.from_json(r) for r in task.records]
        failed = [Outcome(r.id, "failed", str(sharps[r.source]), r.to_json()) for r in recipes if r.source not in good]
        try:
            made = make_pairs(
                self.job.plan, [r for r in recipes if r.source in good], good, self.job.lenses.lenses, watch
            )
        except DatasetError as error:
            ready = Future()
            ready.set_result(Result(task, fatal=str(error)))
            return ready
        self._room.acquire()
        return self._finishers.submit(self._finish, task, made, failed, watch)

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

    def _finish(self, task: Task, made: list[Made], failed: list[Outcome], watch: Stopwatch) -> Result:
        """Compress and write, in threads of their own."""
        own = Stopwatch()
        try:
            encoded = list(self._writers.map(self._encode, [m for m in made if not m.refused]))
            own.lap("encode")
            files = self._write_shard(task, encoded) if task.shard is not None else self._write_files(encoded)
            own.lap("write")
        except DatasetError as error:
            return Result(task, fatal=str(error))
        except Exception as error:  # in a thread nobody would see it
            return Result(task, fatal=f"{task.name}: {type(error).__name__}: {error}")
        finally:
            self._room.release()
        outcomes = [
            Outcome(m.recipe.id, "rejected", m.refused, m.recipe.to_json())
            if m.refused
            else Outcome(m.recipe.id, "done", record=m.record | {"files": files[m.recipe.id]})
            for m in made
        ]
        return Result(task, (*outcomes, *failed), watch.seconds | own.seconds)

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


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
