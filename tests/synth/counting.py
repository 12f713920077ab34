"""Work for engines to do that needs no optics: numbers are squared, and some are hard on their worker."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


class Counter:
    """A worker. The task 'die' kills its process each time, 'die once' the first time (`folder` remembers), 'wrong'
    raises an error."""

    room = 2

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        (self._folder / f"worker-{os.getpid()}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        self._threads = ThreadPoolExecutor(1)

    def begin(self, task: int | str) -> Future[int]:
        return self._threads.submit(self._do, task)

    def close(self) -> None:
        self._threads.shutdown()

    def _do(self, task: int | str) -> int:
        died = self._folder / "died"
        if task == "die" or (task == "die once" and not died.exists()):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "wrong":
            raise ValueError("no such number")
        return 0 if isinstance(task, str) else task * task


class CountedStart:
    """A function that starts a `Counter`, too large for the buffer of a pipe, and knows how often this process pickled
    it."""

    pickled = 0

    def __init__(self, folder: str) -> None:
        self._folder, self._ballast = folder, bytes(2**20)

    def __call__(self) -> Counter:
        return Counter(self._folder)

    def __getstate__(self) -> dict[str, str]:
        type(self).pickled += 1
        return self.__dict__.copy()
