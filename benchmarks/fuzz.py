"""What damaged and hostile inputs do to everything that reads: tried, refused, accepted, failed.

    python benchmarks/fuzz.py [--kind lens,photo,…] [--count N] [--seed S] [--processes P] [--quick] [--out FOLDER]

An input is a valid one that this script makes (see fuzz_kinds.py), damaged by chance: bits, cuts, splices, repeated
pieces, fields, nested brackets, huge numbers, wrong types, headers. Input n of a seed is always the same. The public
reader of its kind has a time and an amount of memory to refuse it, by an error of `defocus.errors` in one line that
names the file, or to accept it. Anything else is a failure: another exception, a hang, no memory, another message, a
result that is absurd. The first inputs of each kind of failure are kept in the folder --failures, with their
tracebacks.

Workers read many inputs each, and are ended only where one hangs. Results are merged into fuzz.json and fuzz.md by kind
and seed: runs with other seeds add up. --quick reads a few of each kind, and writes no results. The exit code is 1
where anything failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fuzz_kinds import KINDS, Absurd, FuzzKind
from machine import machine

LONGEST_MESSAGE = 4000  # characters
KEPT = 3  # inputs of each kind of failure
BATCH_SECONDS = 10.0  # about as long as a worker is given work for
START_SECONDS = 180.0  # for imports, samples and what is compiled at first


@dataclass
class Tally:
    """What became of the inputs of one kind."""

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

    rng = random.Random(f"{kind.name} {seed} {number}")
    data = b""
    try:
        name, data, call = kind.attempt(rng, folder)
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


def work(kind_name: str, seed: int, memory_mb: int, pipe: Connection, state: Any) -> None:
    """A worker: reads batches of numbers from the pipe, and sends what became of them; `state` says what it is at."""
    kind = KINDS[kind_name]
    with tempfile.TemporaryDirectory(prefix="defocus-fuzz-") as place:
        folder = Path(place)
        os.chdir(folder)
        kind.prepare(folder)
        quiet = os.open(os.devnull, os.O_WRONLY)  # libraries in C complain of what they are given
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        outcome(kind, -1, seed, folder)  # whatever is loaded or compiled at first counts for nobody
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pipe.send("ready")
        while (batch := pipe.recv()) is not None:
            counts: Counter[str] = Counter()
            examples: dict[str, list[tuple[int, bytes, str]]] = {}
            for number in batch:
                state[0], state[1] = number, time.monotonic()
                word, data, report = outcome(kind, number, seed, folder)
                counts[word] += 1
                if word not in ("refused", "accepted") and counts[word] <= KEPT:
                    examples.setdefault(word, []).append((number, data, report))
            state[0] = -1.0
            pipe.send((counts, examples))


class Worker:
    """A process that reads inputs, with what it is at."""

    def __init__(self, kind: FuzzKind, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.kind, self.batch = kind, range(0)
        self.pipe, other = context.Pipe()
        self.state = context.Array("d", [-1.0, time.monotonic()], lock=False)
        arguments = (kind.name, seed, kind.memory_mb, other, self.state)
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


def fuzz_kind(kind: FuzzKind, count: int, seed: int, processes: int, failures: Path) -> Tally:
    """Read `count` inputs of a kind in some processes."""
    tally, started = Tally(), time.monotonic()
    numbers = _batches(count, kind)
    pending: list[range] = []
    workers = [Worker(kind, seed) for _ in range(min(processes, max(1, count)))]

    def give(worker: Worker) -> bool:
        batch = pending.pop() if pending else next(numbers, None)
        worker.batch = batch or range(0)
        worker.pipe.send(batch)
        return batch is not None

    def keep(word: str, number: int, data: bytes, report: str) -> None:
        tally.failures[word] += 0
        kept = failures / kind.name
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{seed}-{number}.bin").write_bytes(data)
        (kept / f"{seed}-{number}.txt").write_text(
            f"{word}\n\n{report[-20_000:]}\n", encoding="utf-8", errors="replace"
        )

    while workers:
        for worker in list(workers):
            try:
                if worker.pipe.poll(0.02):
                    message = worker.pipe.recv()
                    if message != "ready":
                        counts, examples = message
                        tally.tried += counts.total()
                        tally.refused += counts.pop("refused", 0)
                        tally.accepted += counts.pop("accepted", 0)
                        for word, several in examples.items():
                            for number, data, report in several[: max(0, KEPT - tally.failures[word])]:
                                keep(word, number, data, report)
                        tally.failures.update(counts)
                    if not give(worker):
                        workers.remove(worker)
                        worker.process.join()
                    continue
                dead = not worker.process.is_alive()
            except (EOFError, OSError):
                dead = True
            if not (dead or worker.hangs()):
                continue
            number = int(worker.state[0])
            word = f"the process died ({worker.process.exitcode})" if dead else f"more than {kind.seconds:g} s"
            worker.end()
            workers.remove(worker)
            if number < 0:
                raise RuntimeError(f"{kind.name}: a worker did not start: {word}")
            # What it had read of its batch is read again by another: only the last number is known to be at fault.
            tally.tried += 1
            tally.failures[word] += 1
            keep(word, number, b"", f"input {number} of seed {seed}, of batch {worker.batch}")
            pending += [
                part for part in (range(worker.batch.start, number), range(number + 1, worker.batch.stop)) if part
            ]
            workers.append(Worker(kind, seed))
    tally.seconds = time.monotonic() - started
    return tally


def _batches(count: int, kind: FuzzKind) -> Iterator[range]:
    """All numbers in batches: small ones at first, until the kind's speed is known to be no matter."""
    size = max(1, min(int(BATCH_SECONDS / kind.typical_s), 20_000))
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def write_results(out: Path, tallies: dict[str, Tally], seed: int) -> None:
    """Merge tallies into fuzz.json by kind and seed, and write fuzz.md."""
    file = out / "fuzz.json"
    known = json.loads(file.read_text())["kinds"] if file.is_file() else {}
    for name, tally in tallies.items():
        known.setdefault(name, {})[str(seed)] = tally.as_json()
    ordered = {name: known[name] for name in KINDS if name in known}
    content = {"machine": machine(("jax", "numpy", "torch", "pillow", "rawpy")), "kinds": ordered}
    file.write_text(json.dumps(content, indent=1) + "\n")
    lines = [
        "# Damaged and hostile inputs", "",
        f"{content['machine']['cpu']}, {content['machine']['cores']} cores; `python benchmarks/fuzz.py`. Failed: any "
        "exception but our own, a hang, no memory, an absurd result.", "",
        "| kind | what reads it | tried | refused | accepted | failed | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for name, runs in ordered.items():
        sums = {key: sum(run[key] for run in runs.values()) for key in ("tried", "refused", "accepted", "failed")}
        seconds = sum(run["seconds"] for run in runs.values())
        numbers = " | ".join(f"{value:,}" for value in sums.values())
        lines.append(f"| {name} | {KINDS[name].about} | {numbers} | {seconds:,.0f} |")
    failures: Counter[str] = Counter()
    for name, runs in ordered.items():
        for run in runs.values():
            failures.update({f"{name}: {word}": times for word, times in run["failures"].items()})
    if failures:
        lines += ["", "Failures:", "", *(f"- {word}: {times:,}" for word, times in failures.most_common())]
    (out / "fuzz.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Run the kinds that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, help="inputs of each kind; by default what takes about a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="a few inputs of each kind, in one process, no results")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--failures", type=Path, default=Path(tempfile.gettempdir()) / "defocus-fuzz-failures")
    options = parser.parse_args()
    names = options.kind.split(",")
    if unknown := set(names) - set(KINDS):
        parser.error(f"no kinds {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    tallies: dict[str, Tally] = {}
    for name in names:
        kind = KINDS[name]
        count = kind.quick if options.quick else options.count or int(60.0 / kind.typical_s)
        processes = 1 if options.quick else options.processes
        tally = tallies[name] = fuzz_kind(kind, count, options.seed, processes, options.failures)
        print(
            f"{name}: {tally.tried:,} tried, {tally.refused:,} refused, {tally.accepted:,} accepted, "
            f"{tally.failed:,} failed, {tally.seconds:.1f} s",
            *(f"   {times:,} × {word}" for word, times in tally.failures.most_common()),
            sep="\n",
            flush=True,
        )
    if not options.quick:
        options.out.mkdir(parents=True, exist_ok=True)
        write_results(options.out, tallies, options.seed)
    return int(any(tally.failed for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
