"""A plan on a Ray cluster that loses a node and its driver, into an object store that throttles: seconds and bytes.

    python benchmarks/cluster.py [--quick] [--out FOLDER]      # pip install 'defocus[cluster]'

Ray's own `cluster_utils.Cluster` starts several nodes on this machine. The object store is moto's server, which speaks
the protocol of S3; a layer in front of it answers a share of the requests with 503 SlowDown or 500 InternalError, or
breaks the connection off. The same plan is run four times: in one process into a folder; on the cluster; on the cluster
while the store fails; and so that besides a node is killed, another one joins, the driver is killed and started again.
All objects are compared with the files of the first run, byte by byte. Everything listens on the loopback address, and
Ray asks for a token. Writes cluster.json and cluster.md.
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from machine import machine

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

    def _answers(self) -> bool:
        try:
            return self.ask("_counts") is not None
        except OSError:
            return False

    def ask(self, path: str) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.address}/{path}", timeout=10) as answer:
            return dict(json.load(answer))

    def objects(self, prefix: str) -> dict[str, bytes]:
        import s3fs

        system = s3fs.S3FileSystem(skip_instance_cache=True)
        root = f"{BUCKET}/{prefix}"
        names = {str(path)[len(root) + 1 :]: path for path in system.find(root)}
        return {name: system.cat_file(path) for name, path in names.items() if not name.startswith(".")}  # marks apart


class Driver:
    """`defocus synth run` on the cluster, in a process of its own."""

    def __init__(self, plan: Path, out: str, ledger: Path, address: str) -> None:
        ray = ["--engine", "ray", "--workers", "2", "--address", address]
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


def compare(prefix: str, store: ObjectStore, reference: dict[str, bytes]) -> dict[str, int]:
    store.ask("_share/0")
    objects = store.objects(prefix)
    return {
        "objects": len(objects),
        "missing": len(reference.keys() - objects.keys()),
        "others": len(objects.keys() - reference.keys()),
        "different": sum(objects[name] != reference[name] for name in reference.keys() & objects.keys()),
    }


def run(folder: Path, pairs: int) -> dict[str, Any]:
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
    began = time.monotonic()
    local = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", str(folder / "local")]
    subprocess.run(local, check=True, stdout=subprocess.DEVNULL)
    result: dict[str, Any] = {"local_s": time.monotonic() - began}
    files = (path for path in (folder / "local").rglob("*") if path.is_file())
    reference = {
        path.relative_to(folder / "local").as_posix(): path.read_bytes()
        for path in files
        if not path.name.startswith((".", "ledger.sqlite"))
    }
    pictures = sum(name.endswith(".png") for name in reference)
    store = ObjectStore()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        import s3fs

        s3fs.S3FileSystem().mkdir(BUCKET)
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

        def timed(name: str, share: float, disturb: Callable[[Driver], dict[str, float]] | None = None) -> None:
            store.ask(f"_share/{share}")
            began = time.monotonic()
            driver = Driver(plan, f"s3://{BUCKET}/{name}", folder / f"{name}.sqlite", cluster.address)
            events = disturb(driver) if disturb else {}
            driver.finish()
            seconds = time.monotonic() - began
            counts = store.ask("_share/0")
            result[name] = {"seconds": seconds, **events, **counts, **compare(name, store, reference)}
            print(name, json.dumps(result[name]), flush=True)

        def disturb(driver: Driver) -> dict[str, float]:
            def reached(share: float) -> Callable[[], bool]:
                return lambda: store.ask("_counts").get("pictures", 0) >= share * pictures

            wait_for(reached(0.25), LONGEST, "a quarter of the pictures")
            began = time.monotonic()
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            wait_for(reached(0.4), LONGEST, "pictures by the node that is left")
            cluster.add_node(num_cpus=1)
            wait_for(reached(0.6), LONGEST, "pictures by the new node")
            events = {"node_lost_to_60_percent_s": time.monotonic() - began}
            driver.kill_and_begin_again()
            return events

        timed("calm", 0.0)
        timed("throttled", SHARE)
        timed("disturbed", SHARE, disturb)
    finally:
        cluster.shutdown()
        store.process.kill()
    result["seconds_lost"] = result["disturbed"]["seconds"] - result["throttled"]["seconds"]
    return result | {"pictures": pictures, "files": len(reference)}


def markdown(result: dict[str, Any]) -> str:
    place = result["machine"]
    lines = [
        "# A cluster that loses nodes, an object store that throttles",
        "",
        f"{result['pictures']} pictures in {result['files']} files; two nodes with one worker each on one machine, "
        f"{place['cpu']}, {place['cores']} cores, load {place['load_before']:.1f} before. "
        f"Where requests fail, {SHARE:.0%} of them do: 503 SlowDown, 500 InternalError or a broken connection.",
        "",
        "| run | seconds | requests | failed, and repeated | objects missing | different |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| one process, a folder | {result['local_s']:.0f} | – | – | – | – |",
    ]
    for name, words in (
        ("calm", "cluster, object store"),
        ("throttled", "the same, requests fail"),
        ("disturbed", "besides: a node killed, one added, the driver killed and started again"),
    ):
        row = result[name]
        failed = sum(row.get(kind, 0) for kind in FAILURES)
        numbers = (row["requests"], failed, row["missing"], row["different"])
        lines.append(f"| {words} | {row['seconds']:.0f} | {' | '.join(map(str, numbers))} |")
    return "\n".join(
        [
            *lines,
            "",
            f"The lost node, the new one and the second driver cost {result['seconds_lost']:.0f} s together, starting "
            "Python, JAX and the actors again included.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pairs: a few minutes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    place = machine(("jax", "ray", "s3fs", "moto"))
    with tempfile.TemporaryDirectory() as folder:
        result = {"machine": place, **run(Path(folder), 60 if options.quick else 600)}
    if any(result[name][kind] for name in ("calm", "throttled", "disturbed") for kind in ("missing", "different")):
        raise SystemExit(f"not the same bytes: {json.dumps(result, indent=1)}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "cluster.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "cluster.md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
