"""What damaged and hostile inputs do to everything that reads: tried, refused, accepted, failed.

    python benchmarks/fuzz.py [--kind lens,photo,…] [--count N] [--seconds S] [--processes P] [--seed S] [--out FOLDER]
    python benchmarks/fuzz.py --merge FILE [FILE …] [--out FOLDER]
    python benchmarks/fuzz.py --quick [--out FOLDER]       # a few lens files in one process

An input is a valid one that this script makes (see fuzz_kinds.py), damaged by chance: bits, cuts, splices, repeated
pieces, fields, nested brackets, huge numbers, wrong types, headers. Input n of a seed is always the same. The public
reader of its kind has a time and an amount of memory to refuse it, by an error of `defocus.errors` in one line that
names the file, or to accept it. Anything else is a failure: another exception, a hang, no memory, another message, a
result that is absurd. The first inputs of each kind of failure are kept in the folder --failures, with their
tracebacks.

Processes, each on one core, read inputs of one kind for a minute or more and then of the kind that has had the least
time so far, until each kind has --count of them (with --total: all runs of the results together), or --seconds are
over. Results are added to fuzz.json and fuzz.md in --out under the seed, by default one that no run of the results has
had; --merge adds those of other runs or machines, and refuses a seed that stands for two runs. A kind whose library is
not installed is left out and named. The exit code is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fuzz_kinds import KINDS, Absurd, FuzzKind
from machine import RESULTS, amount, machine, read_arguments

LONGEST_MESSAGE = 4000  # characters
EXAMPLES = 3  # inputs of each kind of failure
BATCH, BATCH_SECONDS = 2000, 5.0  # inputs that a process is given at once, and how long it reads them at most
TURN_SECONDS = 60.0  # of a process with one kind, if another waits, and between two writes of the results
START_SECONDS = 300.0  # for imports, samples and what is compiled at first
ONE_CORE = {
    "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip


@dataclass
class Tally:
    """What became of the inputs of one kind, and how many seconds of a core they took."""

    tried: int = 0
    refused: int = 0
    accepted: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by signature: the error and where it arose
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    def as_json(self) -> dict[str, Any]:
        counts = {"tried": self.tried, "refused": self.refused, "accepted": self.accepted, "failed": self.failed}
        return counts | {"seconds": round(self.seconds, 1), "failures": dict(self.failures.most_common())}


def outcome(kind: FuzzKind, number: int, seed: int, folder: Path) -> tuple[str, bytes, str]:
    """What becomes of an input ("refused", "accepted", or the signature of a failure), its bytes, and a traceback."""
    from defocus.errors import DefocusError

    chance, data = f"{kind.name} {seed} {number}", b""
    try:
        try:
            name, data, call = kind.attempt(random.Random(chance), folder)
        except MemoryError:  # of what earlier inputs left behind, not of this one
            gc.collect()
            name, data, call = kind.attempt(random.Random(chance), folder)
        try:
            verdict = call()
        except DefocusError as error:
            message = str(error)
            if "\n" in message or len(message) > LONGEST_MESSAGE:
                return f"a message of {message.count(chr(10)) + 1} lines, {len(message)} characters", data, message
            if kind.named and name not in message:
                return "a message without the file's name", data, message
            return "refused", data, message
        return "refused" if verdict is False else "accepted", data, name
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and MemoryError are failures, too
        return _signature(error), data, traceback.format_exc()


def _signature(error: BaseException) -> str:
    if isinstance(error, Absurd):
        return f"absurd: {error}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}defocus{os.sep}" in f.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside defocus"
    return f"{type(error).__name__} in {place}"


def work(kind_name: str, seed: int, core: int, folder: Path, pipe: Connection, state: Any) -> None:
    """A worker: reads batches of numbers from the pipe, and sends what became of them; `state` says what it is at."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})  # JAX has as many threads as cores
    kind = KINDS[kind_name]
    os.chdir(folder)
    kind.prepare(folder)
    quiet = os.open(os.devnull, os.O_WRONLY)  # libraries in C complain of what they are given
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    outcome(kind, -1, seed, folder)  # whatever is loaded or compiled at first counts for nobody
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + kind.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pipe.send(None)
    while True:
        batch = pipe.recv()
        counts: Counter[str] = Counter()
        examples: list[tuple[str, int, bytes, str]] = []
        start = time.monotonic()
        for number in batch:
            state[0], state[1] = number, time.monotonic()
            if state[1] - start > BATCH_SECONDS:
                break
            word, data, report = outcome(kind, number, seed, folder)
            counts[word] += 1
            if word not in ("refused", "accepted") and counts[word] <= EXAMPLES:
                examples.append((word, number, data, report))
        state[0] = -1.0
        pipe.send((counts, examples, time.monotonic() - start))


def _memory_folder() -> str | None:
    """A folder that is kept in memory, where the files of an input are written and removed at little cost."""
    folder = "/dev/shm"
    large = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2**31
    return folder if large else None


class Worker:
    """A process that reads inputs of a kind, with what it is at."""

    def __init__(self, kind: FuzzKind, seed: int, core: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.kind, self.core, self.batch = kind, core, range(0)
        self.folder = Path(tempfile.mkdtemp(prefix="defocus-fuzz-", dir=_memory_folder()))
        self.pipe, other = context.Pipe()
        self.state = context.Array("d", [-1.0, time.monotonic()], lock=False)
        arguments = (kind.name, seed, core, self.folder, other, self.state)
        self.process: BaseProcess = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        other.close()
        self.started = time.monotonic()

    def hangs(self) -> bool:
        """Whether it is over its time."""
        if self.state[0] < 0.0:
            return not self.batch and time.monotonic() - self.started > START_SECONDS
        return time.monotonic() - self.state[1] > self.kind.seconds

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Run:
    """Inputs of several kinds, shared among processes."""

    def __init__(self, counts: dict[str, int], seed: int, seconds: float | None, failures: Path) -> None:
        self.seed, self.failures = seed, failures
        self.end = time.monotonic() + seconds if seconds else float("inf")
        self.tallies = {name: Tally() for name in counts}
        self.left = {name: [range(count)] if count else [] for name, count in counts.items()}
        self.workers: list[Worker] = []
        self.turn_s = TURN_SECONDS

    def go(self, processes: int, out: Path, about: dict[str, Any]) -> None:
        """Read everything; results are written now and then."""
        written = time.monotonic()
        self.turn_s = min(TURN_SECONDS, max(10.0, (self.end - written) * processes / max(1, len(self.left)) / 2.0))
        while True:
            self._start(processes)
            if not self.workers:
                break
            for worker in list(self.workers):
                self._attend(worker)
            if time.monotonic() - written > TURN_SECONDS:
                written = time.monotonic()
                write_results(out, union(read_results(out), self.as_json(about)))
        write_results(out, union(read_results(out), self.as_json(about)))

    def as_json(self, about: dict[str, Any]) -> dict[str, Any]:
        """The run under its seed, as it is written."""
        kinds = {name: tally.as_json() for name, tally in self.tallies.items() if tally.tried}
        return {str(self.seed): {"machine": about, "kinds": kinds}} if kinds else {}

    def _start(self, processes: int) -> None:
        while len(self.workers) < processes and (name := self._next_kind()) is not None:
            core = min(set(range(processes)) - {worker.core for worker in self.workers})
            self.workers.append(Worker(KINDS[name], self.seed, core))

    def _next_kind(self) -> str | None:
        """The kind with inputs left that has had the least time, with what its workers will take."""
        names = [name for name, left in self.left.items() if left]
        if not names or time.monotonic() > self.end:
            return None
        return min(names, key=self._time)

    def _time(self, name: str) -> float:
        at_work = sum(worker.kind.name == name for worker in self.workers)
        return self.tallies[name].seconds + self.turn_s * at_work

    def _attend(self, worker: Worker) -> None:
        """Take what a worker has read and give it more, or end it."""
        name = worker.kind.name
        try:
            if worker.pipe.poll(0.02):
                self._take(worker, worker.pipe.recv())
                other = self._next_kind()
                turn_over = other != name and time.monotonic() - worker.started > self.turn_s
                if other is None or not self.left[name] or (turn_over and self._time(other) < self._time(name)):
                    self.workers.remove(worker)
                    worker.end()
                    return
                batch = self.left[name].pop()
                if len(batch) > BATCH:
                    self.left[name].append(batch[BATCH:])
                worker.batch = batch[:BATCH]
                worker.pipe.send(worker.batch)
                return
            dead = not worker.process.is_alive()
        except (EOFError, OSError):
            dead = True
        if dead or worker.hangs():
            self._bury(worker, dead)

    def _take(self, worker: Worker, message: Any) -> None:
        if message is None:
            return
        counts, examples, seconds = message
        tally = self.tallies[worker.kind.name]
        rest = worker.batch[counts.total() :]
        if rest:
            self.left[worker.kind.name].append(rest)
        tally.tried += counts.total()
        tally.seconds += seconds
        tally.refused += counts.pop("refused", 0)
        tally.accepted += counts.pop("accepted", 0)
        for word, number, data, report in examples:
            if tally.failures[word] < EXAMPLES:
                self._keep(worker.kind.name, word, number, data, report)
        tally.failures.update(counts)

    def _bury(self, worker: Worker, dead: bool) -> None:
        """Count the input at which a worker hung or died; what it had read of its batch is read again by another."""
        name, number, batch = worker.kind.name, int(worker.state[0]), worker.batch
        word = f"more than {worker.kind.seconds:g} s"
        if dead:
            worker.process.join(5.0)
            word = f"the process died ({worker.process.exitcode})"
        worker.end()
        self.workers.remove(worker)
        tally = self.tallies[name]
        if number < 0:
            tally.failures[f"no start: {word}"] += 1
            self.left[name] = []
            return
        tally.tried += 1
        tally.seconds += worker.kind.seconds
        tally.failures[word] += 1
        self._keep(name, word, number, b"", f"input {number} of seed {self.seed}, of batch {batch}")
        self.left[name] += [part for part in (range(batch.start, number), range(number + 1, batch.stop)) if part]

    def _keep(self, name: str, word: str, number: int, data: bytes, report: str) -> None:
        folder = self.failures / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.seed}-{number}.bin").write_bytes(data)
        text = f"{word}\n\n{report[-20_000:]}\n"
        (folder / f"{self.seed}-{number}.txt").write_text(text, encoding="utf-8", errors="replace")


def read_results(place: Path) -> dict[str, Any]:
    """The runs of a folder's fuzz.json, or of such a file, by seed."""
    file = place / "fuzz.json" if place.is_dir() else place
    return dict(json.loads(file.read_text())["runs"]) if file.is_file() else {}


def union(runs: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Both, by seed. A longer count of the same run takes the place of a shorter one; two runs of a seed exit."""
    together = dict(runs)
    for seed, run in others.items():
        other = together.get(seed, run)
        if any(other["machine"][key] != run["machine"][key] for key in ("cpu", "python", "started")):
            sys.exit(f"seed {seed} stands for two runs: run one of them again with another --seed")
        together[seed] = other if _tried(other) > _tried(run) else run
    return together


def _tried(run: dict[str, Any]) -> int:
    return sum(kind["tried"] for kind in run["kinds"].values())


def sums(runs: dict[str, Any], name: str) -> dict[str, float]:
    """The counts of a kind over all runs."""
    tallies = [run["kinds"][name] for run in runs.values() if name in run["kinds"]]
    return {key: sum(tally[key] for tally in tallies) for key in ("tried", "refused", "accepted", "failed", "seconds")}


def since_failure(runs: dict[str, Any], name: str) -> int:
    """How many of a kind were tried in runs that began after the last one in which any failed."""
    own = [(run["machine"]["started"], run["kinds"][name]) for run in runs.values() if name in run["kinds"]]
    last = max((start for start, tally in own if tally["failed"]), default=-1)
    return sum(tally["tried"] for start, tally in own if start > last)


def write_results(out: Path, runs: dict[str, Any]) -> None:
    """Write the runs to fuzz.json, and their sums to fuzz.md."""
    out.mkdir(parents=True, exist_ok=True)
    runs = dict(sorted(runs.items(), key=lambda item: int(item[0])))
    (out / "fuzz.json").write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    machines: dict[str, list[str]] = {}
    for seed, run in runs.items():
        about = run["machine"]
        machines.setdefault(f"{about['cpu']}, {about['cores']} cores, Python {about['python']}", []).append(seed)
    places = "; ".join(f"{place} (seed {', '.join(seeds)})" for place, seeds in machines.items())
    lines = [
        "# Damaged and hostile inputs", "",
        f"{places}; `python benchmarks/fuzz.py`. Failed: any exception but our own, a hang, no memory, an absurd "
        "result.", "",
        "| kind | what reads it | tried | refused | accepted | failed | tried since, 0 failed | ms each |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    failures: list[str] = []
    for name, kind in KINDS.items():
        total = sums(runs, name)
        if total["tried"]:
            counts = (*(total[key] for key in ("tried", "refused", "accepted", "failed")), since_failure(runs, name))
            numbers = " | ".join(f"{count:,}" for count in counts)
            lines.append(f"| {name} | {kind.about} | {numbers} | {1e3 * total['seconds'] / total['tried']:.2g} |")
        for seed, run in runs.items():
            for word, times in run["kinds"].get(name, {}).get("failures", {}).items():
                mend = run.get("mends", {}).get(f"{name}: {word}", "not mended")
                failures.append(f"- {name}, seed {seed}: {times:,} × {word}. {mend}")
    if failures:
        lines += [
            "", "Failures, and what was done about them. The inputs kept of those that are mended (the first few of "
            "each kind; of ended processes made again from the seed) were tried again, and are refused:", "", *failures,
        ]  # fmt: skip
    (out / "fuzz.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def kinds_here(names: Sequence[str]) -> list[str]:
    """Those of the kinds whose libraries are here; the others are named."""
    here = []
    for name in names:
        missing = [module for module in KINDS[name].needs if importlib.util.find_spec(module) is None]
        if missing:
            print(f"{name}: left out, without {', '.join(missing)}", flush=True)
        else:
            here.append(name)
    return here


def main() -> int:
    """Run the kinds that are asked for, or merge results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", default=amount(",".join(KINDS), quick="lens"), help=f"of {', '.join(KINDS)}")
    count = amount(1000, quick=20)
    parser.add_argument("--count", type=int, default=count, help="inputs of each kind at most (default 1000)")
    parser.add_argument("--total", type=int, help="inputs of each kind at most, with those of all runs of the results")
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--processes", type=int, default=amount(len(os.sched_getaffinity(0)), quick=1))
    parser.add_argument("--seed", type=int, help="by default one more than any of the results")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="add other results instead of running")
    parser.add_argument("--failures", type=Path, default=Path(tempfile.gettempdir()) / "defocus-fuzz-failures")
    options = read_arguments(parser)
    earlier = union(read_results(RESULTS), read_results(options.out))
    if options.merge:
        runs = read_results(options.out)
        for file in options.merge:
            runs = union(runs, read_results(file))
        write_results(options.out, runs)
        return 0
    names = options.kind.split(",")
    if unknown := set(names) - set(KINDS):
        parser.error(f"no kinds {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    seed = 1 + max((int(seed) for seed in earlier), default=-1) if options.seed is None else options.seed
    if str(seed) in earlier:
        parser.error(f"seed {seed} was run already; without --seed another is taken")
    limits = dict.fromkeys(kinds_here(names), options.count)
    if options.total is not None:
        limits = {name: max(0, min(options.total - int(sums(earlier, name)["tried"]), limits[name])) for name in limits}
    os.environ.update(ONE_CORE)
    run = Run(limits, seed, options.seconds, options.failures)
    about = machine(("jax", "numpy", "torch", "pillow", "rawpy"))
    run.go(options.processes, options.out, about | {"started": round(time.time())})
    for name, tally in run.tallies.items():
        print(
            f"{name}: {tally.tried:,} tried, {tally.refused:,} refused, {tally.accepted:,} accepted, "
            f"{tally.failed:,} failed, {1e3 * tally.seconds / max(1, tally.tried):.2g} ms each",
            *(f"   {times:,} × {word}" for word, times in tally.failures.most_common()),
            sep="\n",
            flush=True,
        )
    return int(any(tally.failed for tally in run.tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
