"""Processes of this machine. With one worker, this process itself.

A worker that dies is replaced, and its tasks are given out again; a task that kills three workers is given up with its
reason. A GPU is best served by one worker, whose threads share what is compiled.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

from ...errors import DatasetError
from ..recipe import Outcome
from ..work import Job, Result, Task, Worker, leave_room

AHEAD = 2  # tasks that a worker has: one that it computes and one whose photographs it reads
TRIES = 3


class LocalEngine:
    """`workers` processes; 1 works in this one, and keeps the photographs that it has read until it is closed."""

    name = "local"

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise DatasetError(f"{workers} workers; expected 1 or more")
        self.workers = workers
        self._here: Worker | None = None
        if workers > 1:
            leave_room()  # this process looks at lenses with JAX, too

    def device(self) -> str:
        import jax

        device = jax.devices()[0]
        return (
            f"{device.device_kind} ({device.platform})" if device.platform != "cpu" else f"cpu, {os.cpu_count()} cores"
        )

    def close(self) -> None:
        """Worker processes end with their tasks."""
        if self._here is not None:
            self._here.close()
            self._here = None

    def run(self, job: Job, tasks: Iterator[Task]) -> Iterator[Result]:
        yield from self._run_here(job, tasks) if self.workers == 1 else _Team(job, self.workers).run(tasks)

    def _run_here(self, job: Job, tasks: Iterator[Task]) -> Iterator[Result]:
        if self._here is None or self._here.job is not job:
            self.close()
            self._here = Worker(job)
        worker = self._here
        pending: dict[Future[Result], Task] = {}
        try:
            while True:
                pending |= {worker.do(task): task for task in _next(tasks, worker.at_once() + 1 - len(pending))}
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    task, error = pending.pop(future), future.exception()
                    if error is not None:  # the others go on, as where a worker dies of it
                        traceback.print_exception(error)
                    yield future.result() if error is None else given_up(task, f"{type(error).__name__}: {error}")
        finally:
            if pending:  # stopped on the way
                self.close()


def _next(tasks: Iterator[Task], count: int) -> list[Task]:
    taken = []
    for _ in range(count):
        task = next(tasks, None)
        if task is None:
            break
        taken.append(task)
    return taken


@dataclass
class _Process:
    process: Any
    pipe: Connection
    tasks: dict[str, Task] = field(default_factory=dict)

    def give(self, task: Task) -> None:
        self.tasks[task.name] = task
        with suppress(OSError):  # it is dead: seen when it is waited for
            self.pipe.send(task)

    def results(self) -> Iterator[Result]:
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                result: Result = self.pipe.recv()
                self.tasks.pop(result.task.name, None)
                yield result

    def end(self) -> None:
        self.pipe.close()
        self.process.join(timeout=10.0)
        if self.process.is_alive():
            self.process.kill()


class _Team:
    """Worker processes and the tasks that are to be given out again."""

    def __init__(self, job: Job, workers: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._job, self._workers = job, workers
        self._members: list[_Process] = []
        self._again: deque[Task] = deque()
        self._tries: dict[str, int] = {}

    def run(self, tasks: Iterator[Task]) -> Iterator[Result]:
        try:
            while self._busy(tasks):
                sentinels = [m.process.sentinel for m in self._members]
                ready = wait_for([*(m.pipe for m in self._members), *sentinels])
                for member in list(self._members):
                    yield from member.results()
                    if member.process.sentinel in ready and not member.process.is_alive():
                        yield from member.results()  # what it sent last
                        yield from self._bury(member)
        finally:
            for member in self._members:
                member.end()

    def _busy(self, tasks: Iterator[Task]) -> bool:
        """Fill the team and hand out tasks; whether any is at work."""
        waiting = [*self._again, *_next(tasks, AHEAD * self._workers - self._at_work() - len(self._again))]
        self._again.clear()
        while waiting and len(self._members) < self._workers:
            self._members.append(self._start())
        for _ in range(AHEAD):
            for member in sorted(self._members, key=lambda m: len(m.tasks)):
                if waiting and len(member.tasks) < AHEAD:
                    member.give(waiting.pop(0))
        self._again.extend(waiting)
        return self._at_work() > 0

    def _at_work(self) -> int:
        return sum(len(m.tasks) for m in self._members)

    def _bury(self, member: _Process) -> Iterator[Result]:
        self._members.remove(member)
        for number, task in enumerate(member.tasks.values()):
            # Only the first was at work: the others are innocent.
            self._tries[task.name] = self._tries.get(task.name, 0) + (number == 0)
            if self._tries[task.name] < TRIES:
                self._again.append(task)
            else:
                yield given_up(task, f"its worker died {TRIES} times ({_cause(member.process.exitcode)})")

    def _start(self) -> _Process:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(self._job, theirs), daemon=True)
        process.start()
        theirs.close()
        return _Process(process, ours)


def given_up(task: Task, reason: str) -> Result:
    """All of a task failed."""
    records = {str(r["id"]): r for r in task.records}
    return Result(task, tuple(Outcome(one, "failed", reason, records.get(one)) for one in task.ids))


def _cause(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _serve(job: Job, pipe: Connection) -> None:
    """A worker process: tasks from the pipe, results back, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leader decides
    leave_room()
    worker = Worker(job)
    lock = threading.Lock()

    def send(future: Future[Result]) -> None:
        error = future.exception()
        if error is not None:
            traceback.print_exception(error)
            os._exit(1)  # the leader counts it as a death, and tries the task again elsewhere
        with lock, suppress(OSError):
            pipe.send(future.result())

    with suppress(EOFError, OSError):
        while True:
            worker.do(pipe.recv()).add_done_callback(send)
    os._exit(0)
