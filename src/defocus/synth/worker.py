"""What a worker does with a task: read the photographs, draw candidates or make pairs, write the pictures.

Any process can be a worker; none knows of the ledger. While one task is computed, the photographs of the next are read.
"""

from __future__ import annotations

import socket
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock

import jax

from ..errors import DatasetError, DefocusError
from ..files.ownership import Mark, read_mark
from ..psf.propagation_plan import compile_ahead
from .candidates import LensChoice, draw_candidates
from .folder import Lead
from .layer_psfs import compile_psfs
from .lens_pool import LensPool
from .pairs import Stopwatch, make_pairs
from .plan import Plan, SplitName
from .recipe import Outcome, Recipe
from .sources import Sharp, SourceCache, SourceName
from .tasks import Task, TaskResult
from .writer import PairWriter

READERS = 4  # threads that read photographs ahead
GPU_TASKS = 6  # three leave it idle half of the time


@dataclass(frozen=True)
class WorkOrder:
    """What every worker must know; can be pickled."""

    plan: Plan
    lead: Lead  # over the folder
    mark: Mark  # of the folder, which whoever sees it finds there
    lenses: LensPool
    sources: dict[str, SourceName]


class PairWorker:
    """Does tasks: on a processor one after the other, on a GPU a few side by side, so that it need not wait."""

    def __init__(self, order: WorkOrder, *, ahead: bool = False) -> None:
        """`ahead`: begin to compile what pairs need, while candidates are drawn."""
        store = order.lead.store
        if read_mark(store) != order.mark:
            raise DatasetError(
                f"the worker on {socket.gethostname()} does not see this folder: choose one that all nodes share",
                file=store.root,
            )
        self._order = order
        self._cache = SourceCache(order.plan)
        pool = order.lenses
        self._choices: dict[SplitName, LensChoice] = {
            split: LensChoice.of([pool.lenses[name] for name in names]) for split, names in pool.of_split.items()
        }
        side_by_side = 1 if jax.default_backend() == "cpu" else GPU_TASKS
        self.room = side_by_side + 1
        self._writer = PairWriter(order.lead, order.plan.output.layout)
        self._computers = ThreadPoolExecutor(side_by_side, thread_name_prefix="compute")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        if ahead:
            compile_ahead([partial(compile_psfs, order.plan)])
        self._first = Lock()
        self._compiled: set[str] = set()  # kinds of tasks whose programs are compiled

    def close(self) -> None:
        """End the threads; tasks that are not begun are dropped."""
        for pool in (self._readers, self._computers):
            pool.shutdown(wait=True, cancel_futures=True)
        self._writer.close()

    def begin(self, task: Task) -> Future[TaskResult]:
        """Begin a task, or let it wait for its turn; its photographs are read meanwhile."""
        for name in task.sources:
            self._readers.submit(self._read, name)
        return self._computers.submit(self._in_turn, task)

    def _in_turn(self, task: Task) -> TaskResult:
        """The first task of a kind is done alone: side by side, each would compile the same programs."""
        if task.kind not in self._compiled:
            with self._first:
                if task.kind not in self._compiled:
                    result = self._do(task)
                    self._compiled.add(task.kind)
                    return result
        return self._do(task)

    def _do(self, task: Task) -> TaskResult:
        watch = Stopwatch()
        sharps = {name: self._read(name) for name in task.sources}
        watch.lap("read")
        outcomes = self._draw(task, sharps, watch) if task.kind == "draw" else self._make(task, sharps, watch)
        return TaskResult(tuple(outcomes), watch.seconds)

    def _read(self, name: str) -> Sharp | DefocusError:
        try:
            return self._cache.get(self._order.sources[name])
        except DefocusError as error:
            return error

    def _draw(self, task: Task, sharps: dict[str, Sharp | DefocusError], watch: Stopwatch) -> list[Outcome]:
        (sharp,) = sharps.values()
        if isinstance(sharp, DefocusError):
            return list(task.failed(str(sharp)).outcomes)
        outcomes = draw_candidates(self._order.plan, task.split, task.numbers, sharp, self._choices[task.split])
        watch.lap("draw")
        return outcomes

    def _make(self, task: Task, sharps: dict[str, Sharp | DefocusError], watch: Stopwatch) -> list[Outcome]:
        readable = {name: sharp for name, sharp in sharps.items() if isinstance(sharp, Sharp)}
        recipes = [Recipe.from_json(record) for record in task.records]
        pairs = make_pairs(
            self._order.plan, [r for r in recipes if r.source in readable], readable, self._order.lenses.lenses, watch
        )
        outcomes = self._writer.write(task, pairs, watch)
        unreadable = [recipe for recipe in recipes if recipe.source not in readable]
        return outcomes + [Outcome(r.id, "failed", str(sharps[r.source]), r.to_json()) for r in unreadable]
