"""Workers of this machine: with one, this process itself; with several, processes that are replaced when one dies.

A process takes as many tasks at once as its worker has room for, each over a pipe of its own. Threads of one process
wait for Python's lock, processes for their turn on a GPU, and each compiles or loads its own programs.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from . import CALLS, Engine, Start, TaskWorker, leave_room


class WorkerLostError(Exception):
    """The process of a worker ended before its task did."""


class LocalEngine(Engine):
    """`workers` processes; 1 works in this one, and keeps the photographs that it has read until it is closed."""

    name = "local"

    def __init__(self, workers: int = 1) -> None:
        super().__init__(workers)
        self.in_process = workers == 1

    def device(self) -> str:
        import jax

        device = jax.devices()[0]
        return (
            f"{device.device_kind} ({device.platform})" if device.platform != "cpu" else f"cpu, {os.cpu_count()} cores"
        )

    def hire(self, start: Start) -> TaskWorker:
        return start() if self.in_process else _Processes(start, self.workers)

    def lost(self, error: BaseException) -> bool:
        return isinstance(error, WorkerLostError)


class _Processes:
    """Some processes. Where one is found dead, another begins."""

    def __init__(self, start: Start, workers: int) -> None:
        self._start = start
        self._processes = [_Process(start) for _ in range(workers)]
        self.room = sum(process.room for process in self._processes)

    def begin(self, task: Any) -> Future[Any]:
        for number, process in enumerate(self._processes):
            if not process.alive:
                process.close()
                self._processes[number] = _Process(self._start)
        return max(self._processes, key=lambda process: process.room - process.busy).begin(task)

    def close(self) -> None:
        for process in self._processes:
            process.close()


class _Process:
    """This side of a worker process, which ends when this side closes, or dies."""

    def __init__(self, start: Start) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, control = context.Pipe()
        pipes = [context.Pipe() for _ in range(CALLS)]
        ends = [end for _, end in pipes]
        self._process = context.Process(target=_serve, args=(start, control, ends), daemon=True)
        self._process.start()
        for end in (control, *ends):
            end.close()
        self._free = deque(pipe for pipe, _ in pipes)
        self._threads = ThreadPoolExecutor(CALLS, thread_name_prefix="worker")
        self._lost = False  # known before the system says so

    @property
    def alive(self) -> bool:
        return not self._lost and self._process.is_alive()

    @property
    def busy(self) -> int:
        """How many tasks it is at."""
        return CALLS - len(self._free)

    @functools.cached_property
    def room(self) -> int:
        """Of its worker, which has begun then; 1 of one that could not."""
        with suppress(EOFError, OSError):
            return min(self._control.recv(), CALLS)
        return 1

    def begin(self, task: Any) -> Future[Any]:
        return self._threads.submit(self._do, self._free.popleft(), task)

    def _do(self, pipe: Connection, task: Any) -> Any:
        try:
            pipe.send(task)
            value, error = pipe.recv()
        except (EOFError, OSError) as broken:
            self._lost = True
            raise WorkerLostError("the process of a worker ended") from broken
        finally:
            self._free.append(pipe)
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._threads.shutdown()
        for pipe in (self._control, *self._free):
            pipe.close()


def _serve(start: Start, control: Connection, pipes: list[Connection]) -> None:
    """The worker process. An error of the worker's beginning is that of each task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leader decides
    leave_room()
    begun: Future[TaskWorker] = Future()
    try:
        begun.set_result(start())
    except BaseException as error:
        begun.set_exception(error)
    for pipe in pipes:
        Thread(target=_answer, args=(begun, pipe), daemon=True).start()
    with suppress(EOFError, OSError):
        control.send(1 if begun.exception() else begun.result().room)
        control.recv()  # nothing comes but the end
    os._exit(0)


def _answer(begun: Future[TaskWorker], pipe: Connection) -> None:
    """Do the tasks that come over a pipe, one after the other."""
    with suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            answer: tuple[Any, BaseException | None]
            try:
                answer = begun.result().begin(task).result(), None
            except BaseException as error:
                error.add_note("".join(traceback.format_exception(error)))  # which does not travel
                answer = None, error
            try:
                pipe.send(answer)
            except (TypeError, AttributeError, pickle.PicklingError) as error:  # of something that does not either
                pipe.send((None, error))
