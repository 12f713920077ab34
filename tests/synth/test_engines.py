"""Engines do all tasks, whatever dies: those of this machine and those of a real Ray cluster."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from defocus.errors import DatasetError, MissingExtraError
from defocus.synth import run, tasks, worker
from defocus.synth.engines import TRIES, Engine, Failure
from defocus.synth.engines.local import LocalEngine
from defocus.synth.engines.ray import RayEngine
from defocus.synth.plan import make_plan
from defocus.synth.run import run_plan

from .conftest import contents
from .counting import CountedStart, Counter

# Ray leaves sockets and files to the garbage collector, and forks.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two workers with made-up devices, whose processes find the modules of these tests."""
    import ray

    assert not ray.is_initialized()
    engine = RayEngine(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2, "GPU": 2}')
        assert engine.device() == "Ray, 1 node, 2 GPUs"
    yield ray
    engine.close()
    assert not ray.is_initialized()


def squares(engine: Engine, folder: Path, *extra: str) -> dict[Any, Any]:
    start = partial(Counter, str(folder))
    done = dict(engine.run(start, iter([*range(5), *extra, *range(5, 12)])))
    assert {task: done[task] for task in range(12)} == {n: n * n for n in range(12)}
    return done


@pytest.fixture(params=["local", "ray"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    if request.param == "ray":
        request.getfixturevalue("cluster")
    monkeypatch.syspath_prepend(str(ROOT))
    engine = LocalEngine(2) if request.param == "local" else RayEngine(2)
    yield engine
    engine.close()


def test_lost_workers_lose_nothing_but_the_task_that_kills_them(engine: Engine, tmp_path: Path) -> None:
    done = squares(engine, tmp_path, "die once", "die", "wrong")
    assert engine.losses > TRIES
    assert len(list(tmp_path.glob("worker-*"))) >= TRIES  # each loss is that of a worker which had begun
    assert done["die once"] == 0
    assert isinstance(done["die"], Failure)
    assert f"lost {TRIES} times" in done["die"].reason
    assert done["wrong"] == Failure("ValueError: no such number")


def test_workers_are_kept_between_passes(engine: Engine, tmp_path: Path) -> None:
    """Those of a cluster have a device each."""

    def numbers() -> Iterator[int]:
        for number in range(3000):
            yield number
            if len(list(tmp_path.glob("worker-*"))) == 2:
                return
            time.sleep(0.01)

    start = partial(Counter, str(tmp_path))
    assert all(square == number**2 for number, square in engine.run(start, numbers()))
    assert sorted(engine.run(start, iter(range(4)))) == [(n, n * n) for n in range(4)]
    devices = sorted(path.read_text() for path in tmp_path.glob("worker-*"))
    here = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    assert devices == (["0", "1"] if isinstance(engine, RayEngine) else [here, here])


def test_what_workers_start_with_is_pickled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for those that take the places of lost ones; and whoever hands it out ends with them."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(CountedStart, "pickled", 0)
    before, engine = set(threading.enumerate()), LocalEngine(3)
    done = dict(engine.run(CountedStart(str(tmp_path)), iter([1, 2, "die once", 3, 4, 5])))
    assert done == {1: 1, 2: 4, "die once": 0, 3: 9, 4: 16, 5: 25}
    assert len(list(tmp_path.glob("worker-*"))) > 1
    assert CountedStart.pickled == 1
    engine.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)
        assert not thread.is_alive()


def test_a_cluster_of_this_machine_is_closed_to_others(cluster: Any) -> None:
    leader, places = psutil.Process(), []
    for process in (leader, *leader.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # workers come and go
            places += [c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert len(places) > 3
    assert {place.removeprefix("::ffff:") for place in places} <= {"127.0.0.1", "::1"}
    assert cluster._private.authentication.authentication_utils.is_token_auth_enabled()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_one_worker_is_this_process(tmp_path: Path) -> None:
    engine = LocalEngine(1)
    assert squares(engine, tmp_path, "wrong")["wrong"] == Failure("ValueError: no such number")
    engine.close()
    assert [path.name for path in tmp_path.iterdir()] == [f"worker-{os.getpid()}"]


def test_workers_that_cannot_begin(cluster: Any, tmp_path: Path) -> None:
    engine = RayEngine(1)
    with pytest.raises(DatasetError, match=r"a Ray worker cannot begin: .*No such file"):
        list(engine.run(partial(Counter, str(tmp_path / "nowhere")), iter([1])))
    engine.close()


def test_connection_of_others_is_used_and_kept(cluster: Any, tmp_path: Path) -> None:
    engine = RayEngine(1)
    assert engine.device() == "Ray, 1 node, 2 GPUs"
    engine.close()
    assert cluster.is_initialized()
    with pytest.raises(DatasetError, match=r"connected to Ray .* already"):
        RayEngine(1, "192.0.2.1:6379").device()
    with pytest.raises(DatasetError, match=r"1000 workers, but the Ray cluster has 2 GPUs"):
        list(RayEngine(1000).run(partial(Counter, str(tmp_path)), iter([1])))


def test_pairs_of_a_cluster_are_the_same_bytes(
    cluster: Any, tiny_plan: dict[str, Any], reference_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PAIRS_PER_TASK", {"cpu": 1, "gpu": 1})  # more tasks than workers hold
    monkeypatch.chdir(tmp_path)
    summary = run_plan(make_plan(tiny_plan), "relative", RayEngine(2))
    assert summary.complete
    assert summary.failed == 0
    actual, expected = contents(tmp_path / "relative"), contents(reference_folder)
    assert sum(name.endswith("png") for name in actual) == 21
    assert actual.keys() == expected.keys()
    assert [name for name in expected if actual[name] != expected[name]] == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_programs_are_compiled_once_where_the_work_is(
    tiny_plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    """By the leader where it works itself, by each worker where that is another process."""
    compiled = []
    monkeypatch.setattr(worker, "compile_ahead", lambda work: compiled.extend(one.func.__name__ for one in work))
    monkeypatch.setattr(run, "compile_psfs", lambda plan: compiled.append("by the leader"))
    engine = LocalEngine(1)
    engine.in_process = not elsewhere
    monkeypatch.setattr(engine, "hire", lambda start: start())
    assert run_plan(make_plan(tiny_plan), tmp_path / "pairs", engine).complete
    assert compiled == ["compile_psfs" if elsewhere else "by the leader"]


@pytest.mark.parametrize("pairs", [1, 128, 3000, 40_000])
def test_tasks_are_large_in_the_middle(pairs: int) -> None:
    sizes = tasks.task_sizes(pairs, 512)
    assert sizes[0] == sizes[-1] == 128  # one that compiles, and some that end together
    assert pairs <= sum(sizes) < pairs + 128
    assert max(sizes) == {1: 128, 128: 128, 3000: 128, 40_000: 512}[pairs]
    assert tasks.task_sizes(20, 8) == [8, 8, 8]
    assert tasks.task_sizes(0, 512) == []


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"Ray engine needs the extra \[ray\]"):
        RayEngine(2)
    with pytest.raises(DatasetError, match="0 workers"):
        RayEngine(0)
