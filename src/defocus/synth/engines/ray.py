"""Workers of a Ray cluster: one actor for each, on a GPU of its own where the cluster has any, else on one processor.

Every node needs the same version of defocus (and of JAX), and must see the folder that is written to and those that
sources are read from under the same names. Nodes of different kinds of processors or GPUs may round differently: pairs
are the same bytes on equal nodes. Ray restarts an actor that dies, on another node if it must.

Whoever reaches Ray's services can run code. A cluster that is started here listens on the loopback address alone and
asks for a token that this process draws; a cluster of others has a token that its nodes share (docs/datasets.md).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ...errors import DatasetError, MissingExtraError, first_line
from . import Engine, Start, TaskWorker, leave_room

STORE_BYTES = 128 * 2**20  # of a cluster that is started here: a job and small results
RESTARTS = 20  # of each actor
CALLS = 8  # that an actor takes at once, at most: as many as its worker has room for are made


class RayEngine(Engine):
    """`workers` actors on the cluster at `address`; without one, on a cluster of this machine that ends with us.

    A process that is connected to Ray already stays so: its connection is used and not closed. Where the cluster is
    busy, workers begin as it gets free.
    """

    name = "ray"

    def __init__(self, workers: int = 1, address: str | None = None) -> None:
        super().__init__(workers)
        self._ray: Any = _import_ray()
        self._address = address
        self._ours = False

    def device(self) -> str:
        kind, count = self._slots()
        nodes = sum(bool(node["Alive"]) for node in self._ray.nodes())
        return f"Ray, {nodes} {'node' if nodes == 1 else 'nodes'}, {count} {kind}s"

    def hire(self, start: Start) -> TaskWorker:
        kind, count = self._slots()
        if self.workers > count:
            raise DatasetError(f"{self.workers} workers, but the Ray cluster has {count} {kind}s: ask for fewer")
        return _Actors(self._ray, start, self.workers, kind, self.lost)

    def lost(self, error: BaseException) -> bool:
        kinds = self._ray.exceptions
        return isinstance(error, kinds.RayError) and not isinstance(error, kinds.RayTaskError)

    def joining(self) -> Iterable[Future[Any]]:
        return self._crew.joining if isinstance(self._crew, _Actors) else ()

    def close(self) -> None:
        """End the actors, and the cluster if it was started here; of one that others started, our connection."""
        super().close()
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()
        self._ours = False

    def _slots(self) -> tuple[str, int]:
        """What a worker takes one of, and how many the cluster has."""
        self._connect()
        resources = self._ray.cluster_resources()
        kind = "GPU" if resources.get("GPU", 0) >= 1 else "CPU"
        return kind, int(resources.get(kind, 0))

    def _connect(self) -> None:
        if self._ray.is_initialized():
            if self._address is not None and not self._ours:
                here = self._ray.get_runtime_context().gcs_address
                raise DatasetError(
                    f"this process is connected to Ray at {here} already: leave the address {self._address} out, or "
                    "call ray.shutdown() first"
                )
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self._address is not None:
                self._ray.init(address=self._address, **quiet)
            else:
                self._begin_cluster(quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError, self._ray.exceptions.RayError) as error:
            where = "on this machine" if self._address is None else f"at {self._address}"
            raise DatasetError(f"no Ray cluster {where}: {first_line(error)}") from error
        self._ours = True

    def _begin_cluster(self, options: dict[str, Any]) -> None:
        with _closed_to_the_network(self._ray):
            self._ray.init(
                address="local",  # whatever RAY_ADDRESS says
                num_cpus=max(self.workers, os.cpu_count() or 1),
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                **options,
            )
        address = self._ray.nodes()[0]["NodeManagerAddress"]
        if not ipaddress.ip_address(address).is_loopback:
            self._ray.shutdown()
            raise RuntimeError(f"it would listen at {address}, where others reach it; choose --engine local")


@contextmanager
def _closed_to_the_network(ray: Any) -> Iterator[None]:
    """What is started inside listens on the loopback address alone, and asks for a token.

    Ray takes an address that others can reach for its nodes, even where the loopback address is asked for, but on
    Windows and macOS, where this constant says so. Without a token of ours it would write one into the home folder.
    """
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # stays: Ray reads it once
    constants = ray._private.ray_constants
    usual = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = usual


def _import_ray() -> ModuleType:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("the Ray engine", "ray") from error
    return ray


class _Host:
    """The actor: one worker, and a thread that waits for each of its tasks."""

    def __init__(self, start: Start) -> None:
        leave_room()
        self._worker = start()

    def room(self) -> int:
        return self._worker.room

    def do(self, task: Any) -> Any:
        return self._worker.begin(task).result()


class _Actors:
    def __init__(self, ray: Any, start: Start, workers: int, kind: str, lost: Callable[[BaseException], bool]) -> None:
        self._ray, self._lost = ray, lost
        # Ray allows each worker one thread of BLAS unless something is said; we keep what local workers have.
        threads = {"env_vars": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "")}}
        actor = ray.remote(_Host).options(
            num_cpus=1,
            num_gpus=1 if kind == "GPU" else 0,
            max_concurrency=CALLS,
            max_restarts=RESTARTS,
            runtime_env=threads,
        )
        self._start = ray.put(start)  # kept: Ray gives it to an actor that begins again, and forgets what nobody holds
        self._actors = [actor.remote(self._start) for _ in range(workers)]
        self.joining: dict[Future[int], int] = {}
        self._rooms: dict[int, int] = {}  # of actors that are there
        self._calls: dict[Future[Any], int] = {}
        for number in range(workers):
            self._join(number)

    def _join(self, number: int) -> None:
        """Wait for an actor to begin, or to begin again: it takes no tasks before."""
        self._rooms.pop(number, None)
        room = self._actors[number].room.options(max_task_retries=-1).remote()
        self.joining[room.future()] = number

    @property
    def room(self) -> int:
        for future in [future for future in self.joining if future.done()]:
            number = self.joining.pop(future)
            if (error := future.exception()) is not None:
                raise DatasetError(
                    f"a Ray worker cannot begin: {last_line(error)}; every node needs the same version of defocus and "
                    "must see the same folders"
                ) from error
            self._rooms[number] = future.result()
        for future in [future for future in self._calls if future.done()]:
            number, error = self._calls.pop(future), future.exception()
            if error is not None and self._lost(error) and number in self._rooms:
                self._join(number)
        return sum(self._rooms.values())

    def begin(self, task: Any) -> Future[Any]:
        calls = list(self._calls.values())
        number = max(self._rooms, key=lambda n: self._rooms[n] - calls.count(n))
        future: Future[Any] = self._actors[number].do.remote(task).future()
        self._calls[future] = number
        return future

    def close(self) -> None:
        if self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)


def last_line(error: BaseException) -> str:
    """Last line of an error's message: Ray puts what was raised in an actor there."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
