"""A real Ray cluster on this machine: the same bytes as without it, although a worker is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from defocus.errors import DatasetError, MissingExtraError
from defocus.files.pair_folders import LEDGER
from defocus.synth import run as leading
from defocus.synth.engines.local import TRIES
from defocus.synth.engines.ray import RayEngine, _Team
from defocus.synth.lens_pool import LensPool
from defocus.synth.plan import make_plan
from defocus.synth.run import run_plan
from defocus.synth.work import Job, Result, Task

# Ray leaves sockets and files to the garbage collector, and forks.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]


class KillingEngine(RayEngine):
    """Kills a worker that has tasks, once the first pair is made."""

    killed = 0
    lost: dict[str, int]

    def run(self, job: Job, tasks: Iterator[Task]) -> Iterator[Result]:
        for result in super().run(job, tasks):
            team = self._connection._team
            assert team is not None
            if result.task.kind == "make" and not self.killed:
                victim = max(team.members, key=lambda m: len(m.tasks))
                assert victim.tasks
                assert len(team.members) == 2
                self.killed = victim.pid
                os.kill(victim.pid, signal.SIGKILL)
            self.lost = team._lost
            yield result


@pytest.fixture(scope="module")
def killing() -> Iterator[KillingEngine]:
    """Its cluster is there for the first tests of this file, up to the end of the run."""
    import ray

    assert not ray.is_initialized()
    engine = KillingEngine(2)
    yield engine
    engine.close()
    assert not ray.is_initialized()


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the ledger, which knows times."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(LEDGER))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_device_and_too_many_workers(killing: KillingEngine, empty_job: Job) -> None:
    assert killing.device() == f"Ray, 1 node, {max(2, os.cpu_count() or 1)} CPUs"
    many = RayEngine(1000)
    with pytest.raises(DatasetError, match=r"1000 workers, but the Ray cluster has \d+ CPUs"):
        list(many.run(empty_job, iter(())))


def test_connection_of_others_is_used_and_kept(killing: KillingEngine) -> None:
    import ray

    killing.device()
    second = RayEngine(1)
    assert second.device() == killing.device()
    second.close()
    assert ray.is_initialized()
    with pytest.raises(DatasetError, match=r"connected to Ray .* already"):
        RayEngine(1, "192.0.2.1:6379").device()


def test_killed_worker_changes_no_byte(
    killing: KillingEngine, tiny_plan: dict[str, Any], reference_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(leading, "MADE_AT_ONCE", {"cpu": 1, "gpu": 1})  # more tasks than workers hold
    monkeypatch.chdir(tmp_path)
    summary = run_plan(make_plan(tiny_plan), "relative", killing)
    assert summary.complete
    assert summary.failed == 0
    assert killing.killed
    assert sum(killing.lost.values()) >= 1, "the killed worker had no task"
    made, expected = contents(tmp_path / "relative"), contents(reference_folder)
    assert sum(name.endswith("png") for name in made) == 21
    assert made.keys() == expected.keys()
    assert [name for name in expected if made[name] != expected[name]] == []


class Lost(Exception):
    """As Ray says that an actor died, or what was raised in it."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class FakeRay:
    """Actors of this process that die when they are given a bad task, together with all that they have."""

    class exceptions:
        RayError = Lost

    def __init__(self, seen: bool = True, begin: Exception | None = None) -> None:
        self.seen, self.begin_error = seen, begin
        self.needs: dict[str, Any] = {}
        self.started = 0
        self.dead: set[int] = set()
        self.given: Counter[int] = Counter()  # tasks at hand, by actor
        self.largest = 0

    def put(self, value: Any) -> Any:
        return value

    def remote(self, *_: Any) -> Any:
        return self

    def options(self, **needs: Any) -> Any:
        self.needs = needs
        outer = self

        class Method:
            def __init__(self, number: int, name: str) -> None:
                self.number, self.name = number, name

            def remote(self, *arguments: Any) -> Any:
                outer.given[self.number] += self.name == "do"
                return (self.number, self.name, arguments[0].name if self.name == "do" else arguments[1])

        class Actor:
            def __init__(self) -> None:
                self.number = outer.started
                outer.started += 1
                self.begin, self.do = Method(self.number, "begin"), Method(self.number, "do")

        class Maker:
            def remote(self) -> Actor:
                return Actor()

        return Maker()

    def wait(self, asked: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        return asked[:1], asked[1:]

    def get(self, asked: tuple[int, str, str]) -> Any:
        number, method, name = asked
        if method == "begin":
            if self.begin_error is not None:
                raise self.begin_error
            return "a node", 7, 2 + number % 3, self.seen
        self.largest = max(self.largest, self.given[number])
        self.given[number] -= 1
        if number in self.dead or name == "bad":
            self.dead.add(number)
            raise Lost("The actor died unexpectedly before finishing this task.\n\tclass_name: Server")
        if name == "wrong":
            raise Lost("Traceback ...", ValueError("no such number"))
        return name

    def kill(self, actor: Any) -> None:
        self.dead.add(actor.number)


@pytest.fixture
def empty_job(tiny_plan: dict[str, Any], tmp_path: Path) -> Job:
    return Job(make_plan(tiny_plan), str(tmp_path), LensPool({}, (), {}), {})


def some_tasks(*names: str) -> Iterator[Task]:
    return (Task(name, "draw", "train", (), numbers=(n,)) for n, name in enumerate(names))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_only_the_task_that_kills_its_workers_is_given_up(empty_job: Job, workers: int, tmp_path: Path) -> None:
    ray = FakeRay()
    team = _Team(ray, empty_job, workers, "GPU")
    names = ["a", "bad", "b", "wrong", *(f"t{n}" for n in range(20))]
    given = list(team.run(some_tasks(*names)))
    assert sorted(one for one in given if isinstance(one, str)) == sorted({*names} - {"bad", "wrong"})
    outcomes = {r.task.name: r.outcomes for r in given if isinstance(r, Result)}
    assert outcomes.keys() == {"bad", "wrong"}
    ((bad,), (wrong,)) = outcomes["bad"], outcomes["wrong"]
    assert (bad.id, bad.status) == ("train-000001", "failed")
    assert bad.reason == (
        f"its worker was lost {TRIES} times, last on a node (The actor died unexpectedly before finishing this task.)"
    )
    assert "(ValueError: no such number)" in wrong.reason
    assert ray.started <= workers + 2 * TRIES
    assert (ray.needs["num_gpus"], ray.needs["num_cpus"]) == (1, 1)
    assert len(team.members) <= workers
    assert 2 <= ray.largest <= 4, "as many tasks as the actors asked for, 2 to 4"
    team.end()
    assert team.members == []
    assert list(tmp_path.iterdir()) == [], "the mark was left behind"


def test_workers_that_cannot_begin(empty_job: Job, tmp_path: Path) -> None:
    unseen = _Team(FakeRay(seen=False), empty_job, 2, "CPU")
    with pytest.raises(DatasetError, match=r"the worker on a node does not see this folder"):
        list(unseen.run(some_tasks("a")))
    text = "The actor died because of an error raised in its creation task, ...\nModuleNotFoundError: No defocus\n"
    for error, starts in ((Lost(text), TRIES), (Lost("", DatasetError("needs the package s3fs")), 1)):
        ray = FakeRay(begin=error)
        with pytest.raises(DatasetError, match=r"cannot begin: (ModuleNotFoundError: No|DatasetError: needs)"):
            list(_Team(ray, empty_job, 1, "CPU").run(some_tasks("a", "b")))
        assert ray.started == starts
    assert list(tmp_path.iterdir()) == []


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"Ray engine needs the extra \[ray\]"):
        RayEngine(2)
    with pytest.raises(DatasetError, match="0 workers"):
        RayEngine(0)
