"""Who does the work: this process, processes of this machine, or a Ray cluster. All of them make the same bytes.

An engine knows nothing of the work. It is given a function that starts a worker, which can be pickled, and tasks; it
gives back each task with its result. A task whose worker is lost is tried again; a third time it is done alone, so
that it takes no other with it, and if its worker is lost once more it is given up.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from ...errors import DatasetError, first_line

TRIES = 3


class TaskWorker(Protocol):
    """Does tasks, up to `room` at once: some compute, others read ahead. A crew of several workers is one, too."""

    @property
    def room(self) -> int: ...

    def begin(self, task: Any) -> Future[Any]: ...

    def close(self) -> None: ...


Start = Callable[[], TaskWorker]


@dataclass(frozen=True)
class Failure:
    """Why a task has no result."""

    reason: str


class Engine(ABC):
    """Runs tasks with `workers` workers, which are kept from one pass to the next until `close`."""

    name: str
    in_process = False  # the work is done in this process, which has the device for itself

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise DatasetError(f"{workers} workers; expected 1 or more")
        self.workers = workers
        self.losses = 0  # of tasks whose worker was lost: what it was writing then is still there
        self._start: Start | None = None
        self._crew: TaskWorker | None = None

    @abstractmethod
    def device(self) -> str:
        """What the workers compute on, in words."""

    @abstractmethod
    def hire(self, start: Start) -> TaskWorker:
        """Start the workers."""

    @abstractmethod
    def lost(self, error: BaseException) -> bool:
        """Whether an error means that a worker was lost, rather than that a task is wrong."""

    def joining(self) -> Iterable[Future[Any]]:
        """Workers that are still to come."""
        return ()

    def run(self, start: Start, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Each task with its result or its `Failure`, in the order in which they end.

        A `DatasetError` of a worker ends the run: where nothing can be written, nothing is left to do.
        """
        if self._crew is None or self._start is not start:
            self._dismiss()
            self._start, self._crew = start, self.hire(start)
        finished = False
        try:
            yield from self._dispatch(self._crew, tasks)
            finished = True
        finally:
            if not finished:  # nobody waits for what they are at
                self._dismiss()

    def close(self) -> None:
        """End the workers."""
        self._dismiss()

    def _dismiss(self) -> None:
        crew, self._crew, self._start = self._crew, None, None
        if crew is not None:
            crew.close()

    def _dispatch(self, crew: TaskWorker, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        numbered = enumerate(tasks)
        waiting: deque[tuple[int, Any]] = deque()
        pending: dict[Future[Any], tuple[int, Any]] = {}
        losses: Counter[int] = Counter()

        def may_begin(number: int) -> bool:
            if losses[number] == TRIES - 1:
                return not pending
            return all(losses[other] < TRIES - 1 for other, _ in pending.values())

        while True:
            waiting.extend(islice(numbered, 0 if waiting else 1))
            while waiting and len(pending) < crew.room and may_begin(waiting[0][0]):
                entry = waiting.popleft()
                pending[crew.begin(entry[1])] = entry
                waiting.extend(islice(numbered, 0 if waiting else 1))
            if not waiting and not pending:
                return
            for future in wait({*pending, *self.joining()}, return_when=FIRST_COMPLETED).done & pending.keys():
                number, task = pending.pop(future)
                error = future.exception()
                if error is None:
                    yield task, future.result()
                elif not self.lost(error):
                    yield task, _failure(error)
                else:
                    losses[number] += 1
                    self.losses += 1
                    if losses[number] < TRIES:
                        waiting.appendleft((number, task))
                    else:
                        yield task, Failure(f"its worker was lost {TRIES} times ({first_line(error)})")


def _failure(error: BaseException) -> Failure:
    cause = getattr(error, "cause", None)  # Ray wraps what was raised
    error = cause if isinstance(cause, Exception) else error
    if isinstance(error, DatasetError) or not isinstance(error, Exception):
        raise error
    logging.getLogger(__name__).error("a task failed", exc_info=error)
    return Failure(f"{type(error).__name__}: {error}")


def leave_room() -> None:
    """Let JAX take memory of a GPU as it needs it: at its start it would take three quarters, which a network or other
    workers need."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
