"""Workers of a Ray cluster: one actor for each, on a GPU of its own where the cluster has any, else on one processor.

Every node needs the same version of defocus (and of JAX), and must see the folder that is written to and those that
sources are read from under the same names; each worker says so before it gets any work. Nodes of different kinds of
processors or GPUs may round differently: pairs are the same bytes on equal nodes. As with local processes each actor
has one task more than it computes, whose photographs are read meanwhile; an actor that dies is replaced, and a task
that was lost three times, twice of them alone, is given up.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from types import ModuleType
from typing import Any

from ...errors import DatasetError, DefocusError, MissingExtraError
from ...files.stores import SUFFIX, Store, open_store
from ..work import GPU_TASKS, Job, Result, Task, Worker, leave_room
from .local import AHEAD, TRIES, given_up

STORE_BYTES = 128 * 2**20  # of a cluster that is started here: a job and small results


class RayEngine:
    """`workers` actors on the cluster at `address`; without one, on a cluster of this machine that ends with us.

    A process that is connected to Ray already stays so: its connection is used and not closed. Where the cluster is
    busy, workers begin as it gets free. Between passes of a run actors are kept; `close` ends them.
    """

    name = "ray"

    def __init__(self, workers: int = 1, address: str | None = None) -> None:
        if workers < 1:
            raise DatasetError(f"{workers} workers; expected 1 or more")
        self.workers = workers
        leave_room()  # this process looks at lenses with JAX, too, perhaps on a worker's GPU
        self._connection = _Connection(_import_ray(), workers, address)
        weakref.finalize(self, self._connection.close)

    def device(self) -> str:
        kind, count = self._connection.slots()
        nodes = sum(bool(node["Alive"]) for node in self._connection.ray.nodes())
        return f"Ray, {nodes} {'node' if nodes == 1 else 'nodes'}, {count} {kind}s"

    def run(self, job: Job, tasks: Iterator[Task]) -> Iterator[Result]:
        team = self._connection.team_for(job)
        finished = False
        try:
            yield from team.run(tasks)
            finished = True
        finally:
            if not finished:  # what they are at is not wanted any more
                self._connection.dismiss()

    def close(self) -> None:
        """End the actors, and the cluster if it was started here."""
        self._connection.close()


def _import_ray() -> ModuleType:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("the Ray engine", "ray") from error
    return ray


class _Connection:
    """To a cluster, from the first use on; and the actors there."""

    def __init__(self, ray: ModuleType, workers: int, address: str | None) -> None:
        self.ray: Any = ray
        self._workers, self._address = workers, address
        self._ours = False
        self._team: _Team | None = None

    def slots(self) -> tuple[str, int]:
        """What a worker takes one of, and how many the cluster has."""
        self._connect()
        resources = self.ray.cluster_resources()
        kind = "GPU" if resources.get("GPU", 0) >= 1 else "CPU"
        return kind, int(resources.get(kind, 0))

    def team_for(self, job: Job) -> _Team:
        """The actors for a job: those of the pass before, if it was the same."""
        kind, count = self.slots()
        if self._workers > count:
            raise DatasetError(f"{self._workers} workers, but the Ray cluster has {count} {kind}s: ask for fewer")
        if self._team is None or self._team.job is not job:
            self.dismiss()
            self._team = _Team(self.ray, job, self._workers, kind)
        return self._team

    def dismiss(self) -> None:
        if self._team is not None and self.ray.is_initialized():
            self._team.end()
        self._team = None

    def close(self) -> None:
        self.dismiss()
        if self._ours and self.ray.is_initialized():
            self.ray.shutdown()  # of a cluster that others started, this ends our connection alone
        self._ours = False

    def _connect(self) -> None:
        if self.ray.is_initialized():
            if self._address is not None and not self._ours:
                here = self.ray.get_runtime_context().gcs_address
                raise DatasetError(
                    f"this process is connected to Ray at {here} already: leave the address {self._address} out, or "
                    "call ray.shutdown() first"
                )
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            options |= {
                "address": "local",  # whatever RAY_ADDRESS says
                "num_cpus": max(self._workers, os.cpu_count() or 1),
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
            }
        else:
            options["address"] = self._address
        try:
            with _environment(RAY_USAGE_STATS_ENABLED="0"):
                self.ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = "on this machine" if self._address is None else f"at {self._address}"
            raise DatasetError(f"no Ray cluster {where}: {_first_line(error)}") from error
        self._ours = True


class _Server:
    """The actor. A thread waits for each of its tasks."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def begin(self, job: Job, mark: str) -> tuple[str, int, int, bool]:
        """Machine, process, how many tasks it wants, and whether the leader's mark is seen from here."""
        worker = self._worker = Worker(job)
        return socket.gethostname(), os.getpid(), worker.at_once() + 1, worker.store.exists(mark)

    def do(self, task: Task) -> Result:
        assert self._worker is not None
        return self._worker.do(task).result()


@dataclass
class _Member:
    """An actor, what it was asked and has not answered yet."""

    actor: Any
    beginning: Any  # None once it has begun
    tasks: dict[Any, Task] = field(default_factory=dict)  # by reference to the answer
    place: str = ""
    pid: int = 0
    room: int = AHEAD  # tasks that it may have


class _Team:
    """Actors, and the tasks that are to be given out."""

    def __init__(self, ray: Any, job: Job, workers: int, kind: str) -> None:
        self.job = job
        self.members: list[_Member] = []
        self._ray, self._workers = ray, workers
        store = open_store(job.target)
        self._sent = ray.put(replace(job, target=store.root))  # actors work in other folders
        self._store: Store = store
        needs: dict[str, Any] = {"num_cpus": 1, "max_concurrency": GPU_TASKS + 1}
        if kind == "GPU":
            needs["num_gpus"] = 1
        # Ray allows each worker one thread of BLAS unless something is said; we keep what local workers have.
        needs["runtime_env"] = {"env_vars": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "")}}
        self._actor = ray.remote(_Server).options(**needs)
        self._waiting: deque[Task] = deque()
        self._lost: dict[str, int] = {}  # how often, by task
        self._stillborn = 0  # actors in a row that did not begin

    def run(self, tasks: Iterator[Task]) -> Iterator[Result]:
        with self._mark() as mark:
            while self._busy(tasks, mark):
                asked = {m.beginning: m for m in self.members if m.beginning is not None}
                asked |= {answer: m for m in self.members for answer in m.tasks}
                ready, _ = self._ray.wait(list(asked), num_returns=1)
                yield from self._take(asked[ready[0]], ready[0])
            for member in [m for m in self.members if m.beginning is not None]:
                self._dismiss(member)  # they would look for a mark that is gone

    def end(self) -> None:
        for member in list(self.members):
            self._dismiss(member)

    @contextmanager
    def _mark(self) -> Iterator[str]:
        """A file for workers to look for; what a killed leader leaves is swept by the next."""
        name = f".seen-{uuid.uuid4().hex[:12]}{SUFFIX}"
        self._store.write(name, b"")
        try:
            yield name
        finally:
            self._store.remove(name)

    def _busy(self, tasks: Iterator[Task], mark: str) -> bool:
        """Fill the team and hand out tasks; whether there is anything to wait for."""
        room = sum(m.room - len(m.tasks) for m in self.members) + AHEAD * (self._workers - len(self.members))
        self._waiting += islice(tasks, max(room - len(self._waiting), 0))
        while self._waiting and len(self.members) < self._workers:
            actor = self._actor.remote()
            self.members.append(_Member(actor, actor.begin.remote(self._sent, mark)))
        for _ in range(max((m.room for m in self.members), default=0)):
            for member in sorted(self.members, key=lambda m: len(m.tasks)):
                if self._waiting and self._may_take(member, self._waiting[0]):
                    task = self._waiting.popleft()
                    member.tasks[member.actor.do.remote(task)] = task
        return bool(self._waiting) or any(m.tasks for m in self.members)

    def _may_take(self, member: _Member, task: Task) -> bool:
        """A task that was lost is done alone from then on: no other is lost with it again."""
        if member.beginning is not None or not member.tasks:
            return member.beginning is None
        suspect = any(one.name in self._lost for one in (task, *member.tasks.values()))
        return len(member.tasks) < member.room and not suspect

    def _take(self, member: _Member, answer: Any) -> Iterator[Result]:
        try:
            given = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            yield from self._bury(member, error)
            return
        if answer != member.beginning:
            del member.tasks[answer]
            yield given
            return
        member.place, member.pid, member.room, seen = given
        member.beginning = None
        self._stillborn = 0
        if not seen:
            raise DatasetError(
                f"the worker on {member.place} does not see this folder: choose one that all nodes share",
                file=self._store.root,
            )

    def _bury(self, member: _Member, error: Exception) -> Iterator[Result]:
        """Its tasks go to others; those lost too often are given up."""
        reason = _reason(error)
        self._dismiss(member)
        if member.beginning is not None:
            self._stillborn += 1
            cause = getattr(error, "cause", None)
            if isinstance(cause, DefocusError) or self._stillborn >= TRIES:
                raise DatasetError(
                    f"a Ray worker cannot begin: {reason}; every node needs the same version of defocus"
                ) from error
        for task in member.tasks.values():
            self._lost[task.name] = self._lost.get(task.name, 0) + 1
            if self._lost[task.name] < TRIES:
                self._waiting.append(task)
            else:
                yield given_up(task, f"its worker was lost {TRIES} times, last on {member.place} ({reason})")

    def _dismiss(self, member: _Member) -> None:
        self.members.remove(member)
        self._ray.kill(member.actor)


def _reason(error: Exception) -> str:
    """One line of what Ray says: the error in the actor, or what became of it."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {_first_line(cause)}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if "creation task" in lines[0] else lines[0]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables that are not set already, for a moment: those of processes that are started."""
    added = {key: value for key, value in values.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)
