"""Workers of this machine: with one, this process itself; with several, processes that are replaced when one dies.

On a GPU the threads of one worker share what is compiled, and wait for Python's lock; several workers begin later and
are faster in the end (docs/performance.md).
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from typing import Any

from . import Engine, Start, TaskWorker, leave_room

_worker: TaskWorker | None = None  # of a worker process
_start: Start | None = None


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
        return isinstance(error, BrokenProcessPool)


class _Processes:
    """A pool of processes. One that dies takes the pool with it: another is made, and dispatching tries again.

    Processes end when the leader closes its end of a pipe, or dies. What they start with comes through another pipe: in
    the arguments of a process it would have to be read, megabytes of lenses, before the next one is begun.
    """

    def __init__(self, start: Start, workers: int) -> None:
        self._start, self._workers = pickle.dumps(start), workers
        self.room = workers + 1  # one is on its way while its worker ends the one before
        self._begin_pool()

    def _begin_pool(self) -> None:
        context = multiprocessing.get_context("spawn")
        end, self._leash = context.Pipe(duplex=False)
        self._orders, desk = context.Pipe(duplex=False)
        threading.Thread(target=_hand_out, args=(desk, self._start, self._workers), daemon=True).start()
        own = (self._orders, context.Lock(), end)
        self._pool = ProcessPoolExecutor(self._workers, context, _begin_process, own)

    def begin(self, task: Any) -> Future[Any]:
        try:
            return self._pool.submit(_do, task)
        except BrokenProcessPool:
            self.close()
            self._begin_pool()
            return self._pool.submit(_do, task)

    def close(self) -> None:
        self._leash.close()
        self._pool.shutdown(cancel_futures=True)
        self._orders.close()  # nobody reads any more, and whoever hands out ends


def _hand_out(desk: Connection, order: bytes, copies: int) -> None:
    with desk, suppress(OSError):
        for _ in range(copies):
            desk.send_bytes(order)


def _begin_process(orders: Connection, turn: AbstractContextManager[Any], end: Connection) -> None:
    global _start  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leader decides
    leave_room()
    threading.Thread(target=_end_with_leader, args=(end,), daemon=True).start()
    with turn:
        order = orders.recv_bytes()
    orders.close()
    _start = pickle.loads(order)


def _end_with_leader(end: Connection) -> None:
    with suppress(EOFError, OSError):
        end.recv()
    os._exit(0)


def _do(task: Any) -> Any:
    global _worker  # noqa: PLW0603
    if _worker is None:
        assert _start is not None
        _worker = _start()
    return _worker.begin(task).result()
