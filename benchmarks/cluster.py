"""A plan on a Ray cluster that loses a node and its driver, into an object store that throttles: seconds and bytes.

    python benchmarks/cluster.py [--repeats 5] [--out FOLDER]  # pip install 'defocus[cluster]'
    python benchmarks/cluster.py --quick [--store s3]          # into a folder, which needs Ray alone

Ray's own `cluster_utils.Cluster` starts several nodes on this machine. The object store is moto's server, which speaks
the protocol of S3; a layer in front of it answers a share of the requests with 503 SlowDown or 500 InternalError, or
breaks the connection off. The same plan is run in one process into a folder; on the cluster; on the cluster while the
store fails; while two nodes are killed and replaced; several times so that the store fails, a node is killed and
replaced, and the driver is killed and started again; and on nodes with made-up GPUs. All objects are compared with the
files of the first run, byte by byte. Everything listens on the loopback address, and Ray asks for a token. Writes
cluster.json and cluster.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import amount, machine, read_arguments, require, write_report

PLAN = """
name = "cluster"
seed = 5
[[sources]]
kind = "scenes"
count = 8
names = ["table", "letters"]
[lenses]
only = ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*"]
survey = false
[train]
pairs = {pairs}
[validation]
pairs = 4
[test]
pairs = 4
[patch]
size = 64
kernel = 32
photograph = [192, 128]
[limits]
coc_px = 12
samples = 1e6
[psf]
kind = "gaussian"
"""
FAILURES = ("503 SlowDown", "500 InternalError", "broken connection")
SHARE = 0.15  # of the requests that fail
BUCKET = "pairs"
LONGEST = 1200.0  # seconds for a run
COMPARED = 3  # runs with and without lost nodes, whose fastest are compared


class FailingStore:
    """moto's S3 application behind a layer that lets a share of the requests fail, and counts."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        self._application = DomainDispatcherApplication(create_backend_app)
        self._random, self._lock = random.Random(7), threading.Lock()
        self.share, self.counts = 0.0, Counter[str]()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/_share/"):  # what fails from now on; answers with the counts, which begin anew
            with self._lock:
                answer, self.counts = json.dumps(self.counts).encode(), Counter()
                self.share = float(path.rpartition("/")[2])
            start_response("200 OK", [("Content-Type", "application/json")])
            return [answer]
        if path == "/_counts":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self.counts).encode()]
        failure = self._failure(environ)
        if failure == "broken connection":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        if failure:
            status, code = failure.split()
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>try again</Message></Error>".encode()
            name = "Service Unavailable" if status == "503" else "Internal Server Error"
            start_response(
                f"{status} {name}", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            )
            return [body]
        return self._application(environ, start_response)

    def _failure(self, environ: dict[str, Any]) -> str | None:
        with self._lock:
            self.counts["requests"] += 1
            self.counts["retries"] += "attempt=1" not in environ.get("HTTP_AMZ_SDK_REQUEST", "attempt=1")
            failure = self._random.choice(FAILURES) if self._random.random() < self.share else None
            if failure:
                self.counts[failure] += 1
            elif environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(".png"):
                self.counts["pictures"] += 1
        return failure


def serve(port: int) -> None:
    """The object store, until it is killed."""
    from werkzeug.serving import make_server

    make_server("127.0.0.1", port, FailingStore(), threaded=True).serve_forever()


def contents(folder: Path) -> dict[str, bytes]:
    """Files of a data set by their paths, without marks and ledger."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "ledger.sqlite")))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class FolderStore:
    """A folder in the object store's place: nothing is asked for, and nothing fails."""

    def __init__(self, root: Path) -> None:
        self.root, self._before = root, 0

    def restart(self, share: float) -> dict[str, int]:
        """Count pictures anew."""
        self._before += self.pictures()
        return {"requests": 0}

    def pictures(self) -> int:
        """How many were written since the last restart."""
        return len(list(self.root.rglob("*.png"))) - self._before

    def place(self, name: str) -> str:
        """Where a run of this name writes to."""
        return str(self.root / name)

    def objects(self, name: str) -> dict[str, bytes]:
        """What a run has written."""
        return contents(self.root / name)

    def close(self) -> None:
        """Nothing is left to be ended."""


class ObjectStore:
    """The server's process, as this process sees it."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", str(port)], stderr=subprocess.DEVNULL)
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "FSSPEC_S3_ENDPOINT_URL": self.address,
        }
        wait_for(self._answers, 60.0, "the object store")
        import s3fs

        s3fs.S3FileSystem().mkdir(BUCKET)

    def _answers(self) -> bool:
        try:
            return self._ask("_counts") is not None
        except OSError:
            return False

    def _ask(self, path: str) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.address}/{path}", timeout=10) as answer:
            return dict(json.load(answer))

    def restart(self, share: float) -> dict[str, int]:
        """Let a share of the requests fail from now on; the counts until now, which begin anew."""
        return self._ask(f"_share/{share}")

    def pictures(self) -> int:
        """How many were written since the last restart."""
        return self._ask("_counts").get("pictures", 0)

    def place(self, name: str) -> str:
        """Where a run of this name writes to."""
        return f"s3://{BUCKET}/{name}"

    def close(self) -> None:
        """End the server."""
        self.process.kill()

    def objects(self, name: str) -> dict[str, bytes]:
        """What a run has written."""
        import s3fs

        system = s3fs.S3FileSystem(skip_instance_cache=True)
        root = f"{BUCKET}/{name}"
        names = {str(path)[len(root) + 1 :]: path for path in system.find(root)}
        return {name: system.cat_file(path) for name, path in names.items() if not name.startswith(".")}  # marks apart


class Driver:
    """`defocus synth run` on the cluster, in a process of its own."""

    def __init__(self, plan: Path, out: str, ledger: Path, address: str, workers: int) -> None:
        ray = ["--engine", "ray", "--workers", str(workers), "--address", address]
        self.command = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", out]
        self.command += ["--ledger", str(ledger), *ray]
        self.log = ledger.with_suffix(".log")
        self.process = self.begin()

    def begin(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill_and_begin_again(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = self.begin()

    def finish(self) -> None:
        if self.process.wait(timeout=LONGEST) != 0:
            raise SystemExit(f"the run failed:\n{self.log.read_text()[-3000:]}")


def wait_for(holds: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def compare(objects: dict[str, bytes], reference: dict[str, bytes]) -> dict[str, int]:
    return {
        "objects": len(objects),
        "missing": len(reference.keys() - objects.keys()),
        "others": len(objects.keys() - reference.keys()),
        "different": sum(objects[name] != reference[name] for name in reference.keys() & objects.keys()),
    }


class DeviceWorker:
    """A worker that says where it is: the node, and the devices that it sees."""

    room = 1

    def begin(self, task: int) -> Future[tuple[str, str]]:
        import ray

        answer: Future[tuple[str, str]] = Future()
        time.sleep(0.2)  # until the others have begun
        answer.set_result((ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES", "")))
        return answer

    def close(self) -> None:
        pass


def devices(address: str, workers: int) -> dict[str, list[str]]:
    """The devices that the workers of each node see."""
    from defocus.synth.engines.ray import RayEngine

    engine, places = RayEngine(workers, address), set[tuple[str, str]]()

    def tasks() -> Iterator[int]:
        end = time.monotonic() + LONGEST
        while len(places) < workers and time.monotonic() < end:
            yield 0

    for _, place in engine.run(DeviceWorker, tasks()):
        places.add(place)
    engine.close()
    nodes = sorted({node for node, _ in places})
    return {f"node {k}": sorted(device for node, device in places if node == name) for k, name in enumerate(nodes)}


class Runs:
    """The runs of a plan on a cluster, each into its own place of the store."""

    def __init__(self, plan: Path, cluster: Any, store: ObjectStore | FolderStore, reference: dict[str, bytes]) -> None:
        self.plan, self.cluster, self.store, self.reference = plan, cluster, store, reference
        self.pictures = sum(name.endswith(".png") for name in reference)
        self.rows: list[dict[str, Any]] = []
        self.nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

    def reach(self, share: float) -> None:
        """Wait until a share of the pictures is written."""
        wait_for(lambda: self.store.pictures() >= share * self.pictures, LONGEST, f"{share:.0%}")

    def lose_a_node(self, share: float) -> None:
        self.reach(share)
        self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)
        self.reach(share + 0.1)  # by the node that is left
        self.nodes.append(self.cluster.add_node(num_cpus=1))

    def lose_two_nodes(self, _: Driver) -> None:
        self.lose_a_node(0.2)
        self.lose_a_node(0.5)

    def lose_a_node_and_the_driver(self, driver: Driver) -> None:
        self.lose_a_node(0.25)
        self.reach(0.6)
        driver.kill_and_begin_again()

    def measure(
        self, kind: str, share: float, disturb: Callable[[Driver], None] | None = None, workers: int = 2
    ) -> None:
        """Seconds, requests and differences of one run."""
        name = f"{kind.replace(' ', '-')}-{len(self.rows)}"
        row: dict[str, Any] = {"kind": kind}
        self.store.restart(share)
        ledger = self.plan.with_name(f"{name}.sqlite")
        with timed(row, "seconds"):
            driver = Driver(self.plan, self.store.place(name), ledger, self.cluster.address, workers)
            if disturb:
                disturb(driver)
            driver.finish()
        row |= self.store.restart(0.0)
        row |= compare(self.store.objects(name), self.reference)
        self.rows.append(row)
        print(json.dumps(row), flush=True)


def run(folder: Path, pairs: int, repeats: int, *, in_folder: bool) -> dict[str, Any]:
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's name for: nodes have the loopback address
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "JAX_PLATFORMS": "cpu",
    }
    from ray.cluster_utils import Cluster

    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(pairs=pairs))
    local = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", str(folder / "local")]
    result: dict[str, Any] = {}
    with timed(result, "local_s"):
        subprocess.run(local, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    reference = contents(folder / "local")
    store = FolderStore(folder / "store") if in_folder else ObjectStore()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        runs = Runs(plan, cluster, store, reference)
        runs.measure("throttled", SHARE)
        for number in range(repeats):
            runs.measure("disturbed", SHARE, runs.lose_a_node_and_the_driver)
            if number < COMPARED:
                runs.measure("calm", 0.0)
                runs.measure("two nodes lost", 0.0, runs.lose_two_nodes)
        for node in runs.nodes:
            cluster.remove_node(node)
        for _ in range(2):
            cluster.add_node(num_cpus=2, num_gpus=2)
        result["devices"] = devices(cluster.address, 4)
        runs.measure("devices", 0.0, workers=4)
    finally:
        cluster.shutdown()
        store.close()
    least = {k: min(row["seconds"] for row in runs.rows if row["kind"] == k) for k in ("calm", "two nodes lost")}
    result["seconds_per_lost_node"] = (least["two nodes lost"] - least["calm"]) / 2
    return result | {"runs": runs.rows, "pictures": runs.pictures, "files": len(reference)}


@contextmanager
def timed(row: dict[str, Any], name: str) -> Iterator[None]:
    """Note the seconds of a block."""
    began = time.monotonic()
    yield
    row[name] = time.monotonic() - began


KINDS = {
    "calm": "cluster, object store",
    "throttled": "the same, requests fail",
    "two nodes lost": "two nodes killed one after the other, each replaced",
    "disturbed": "requests fail, a node killed and replaced, the driver killed and started again",
    "devices": "two nodes with two made-up GPUs each, four workers",
}


def markdown(result: dict[str, Any]) -> str:
    place = result["machine"]
    lines = [
        "# A cluster that loses nodes, an object store that throttles",
        "",
        f"{result['pictures']} pictures in {result['files']} files; two nodes with one worker each on one machine, "
        f"{place['cpu']}, {place['cores']} cores, load {place['load_before']:.1f} before. "
        f"Where requests fail, {SHARE:.0%} of them do: 503 SlowDown, 500 InternalError or a broken connection. All "
        "objects are compared with the files of a run in one process; hidden ones are left out.",
        "",
        "| run | times | seconds | requests | failed, and repeated | objects missing | different | others |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        f"| one process, a folder | 1 | {result['local_s']:.0f} | – | – | – | – | – |",
    ]
    for kind, words in KINDS.items():
        rows = [row for row in result["runs"] if row["kind"] == kind]
        if rows:
            seconds = sorted(row["seconds"] for row in rows)
            span = f"{seconds[0]:.0f}" + (f" to {seconds[-1]:.0f}" if len(rows) > 1 else "")
            failed = sum(row.get(failure, 0) for row in rows for failure in FAILURES)
            sums = (sum(row[key] for row in rows) for key in ("missing", "different", "others"))
            requests = sum(row["requests"] for row in rows)
            lines.append(f"| {words} | {len(rows)} | {span} | {requests} | {failed} | {' | '.join(map(str, sums))} |")
    devices = ", ".join(f"{node}: {' and '.join(seen)}" for node, seen in result["devices"].items())
    return "\n".join(
        [
            *lines,
            "",
            f"A lost node costs {result['seconds_per_lost_node']:.0f} s: half of what the fastest run with two lost "
            "nodes takes longer than the fastest undisturbed one. In that are the time in which one node of two works "
            "(until a tenth of the pictures more is there), noticing the loss, and starting Python, JAX and the actor "
            "again.",
            "",
            f"CUDA_VISIBLE_DEVICES as the workers of each node see it: {devices}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=amount(600, quick=60), help="of the training split")
    parser.add_argument("--repeats", type=int, default=amount(5, quick=1), help="of the run that is disturbed most")
    parser.add_argument("--store", choices=("s3", "folder"), default=amount("s3", quick="folder"))
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = read_arguments(parser)
    require("ray", *(("moto", "s3fs") if options.store == "s3" else ()))
    if options.serve:
        serve(options.serve)
        return
    place = machine(("jax", "ray", "s3fs", "moto"))
    with tempfile.TemporaryDirectory() as folder:
        runs = run(Path(folder), options.pairs, options.repeats, in_folder=options.store == "folder")
    result = {"machine": place, **runs}
    if any(row[key] for row in result["runs"] for key in ("missing", "different", "others")):
        raise SystemExit(f"not the same bytes: {json.dumps(result, indent=1)}")
    write_report(options.out, "cluster", result, markdown(result))


if __name__ == "__main__":
    main()
