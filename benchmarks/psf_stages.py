"""What ten thousand PSFs wait for: every stage and every compiled program, cold, with kept programs and once more.

    python benchmarks/psf_stages.py LENS_FOLDER [--count N] [--parts PART ...] [--seconds S] [--profile] [--out FOLDER]
    python benchmarks/psf_stages.py --quick            # one built-in lens, in this process

The requests are those of `psf_many.py`. Processes follow each other; what is not finished after --seconds is ended, and
what each has measured until then is kept:

cold     nothing compiled: the first call
warm     programs kept: the first call, a second, one with every stage waited for; with --profile one more, under JAX's
split    nothing kept: all programs compiled side by side, each by several threads
tuned    likewise, with the kernels of matrix products chosen by trial
plain    likewise, as in the first call
survey   `survey.measurement.measure` of all lenses by parts, programs compiled; then once more

Threads overlap: the seconds of stages need not sum up to those of a call, but where each is waited for. A GPU's load is
what nvidia-smi tells five times a second: the part of the time in which any kernel ran. Writes psf_stages_gpu.json and
.md, or psf_stages_cpu, and the first PSFs as .npz, to compare with another machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import psf_many
from defocus import Camera, stored_program
from defocus.lens import load_lens
from defocus.lens.formats import read_lens, write_lens
from defocus.point_requests import make_requests
from defocus.psf import engine, propagation_plan, wavefronts
from defocus.psf.bands import parse_bands
from defocus.stored_program import GPU_OPTIONS, StoredProgram
from defocus.survey import measurement
from machine import SMALL_LENS, GpuLoad, amount, is_quick, machine, read_arguments, write_report

PARTS = ("cold", "warm", "plain", "split", "tuned", "survey")
SPLIT = {"xla_gpu_enable_llvm_module_compilation_parallelism": True, "xla_gpu_force_compilation_parallelism": 16}
OPTIONS: dict[str, dict[str, Any]] = {"plain": GPU_OPTIONS, "split": GPU_OPTIONS | SPLIT, "tuned": {}}
SAVED = 64  # PSFs
BEGIN = time.perf_counter()
COMPILING = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/compilation_cache/cache_retrieval_time_sec": "load",
}
Row = dict[str, Any]


class Clock:
    """Seconds and number of calls by stage, and of every program that is compiled, with the stage that asked for it."""

    def __init__(self, wait: bool = False) -> None:
        self.wait = wait
        self.stages: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        self.programs: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self._lock, self._own = threading.Lock(), threading.local()

    def stage(self, name: str | Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed; a name may follow from its arguments."""

        def timed(*arguments: Any, **options: Any) -> Any:
            label = name if isinstance(name, str) else name(*arguments, **options)
            before, self._own.label = getattr(self._own, "label", ""), label
            start = time.perf_counter()
            try:
                value = function(*arguments, **options)
                return jax.block_until_ready(value) if self.wait else value
            finally:
                with self._lock:
                    entry = self.stages[label]
                    entry[0], entry[1] = entry[0] + 1, entry[1] + time.perf_counter() - start
                self._own.label = before

        return timed

    def heard(self, event: str, seconds: float, **facts: Any) -> None:
        """What JAX tells of compiling."""
        if event in COMPILING:
            name = str(facts.get("fun_name", ""))
            label = getattr(self._own, "label", "")
            if event.endswith("retrieval_time_sec"):  # told without a name, within the compilation that it replaces
                self._own.loaded = seconds
                return
            with self._lock:
                row = self.programs[label, name]
                row.setdefault("at", time.perf_counter() - BEGIN - seconds)
                if COMPILING[event] == "compile" and getattr(self._own, "loaded", None) is not None:
                    row["load"], self._own.loaded = row.get("load", 0.0) + self._own.loaded, None
                    return
                row[COMPILING[event]] = row.get(COMPILING[event], 0.0) + seconds

    def as_json(self) -> Row:
        programs = [{"stage": s, "name": n, **row} for (s, n), row in self.programs.items()]
        programs = [row for row in programs if sum(row.get(k, 0.0) for k in COMPILING.values()) > 0.05]
        return {
            "stages": {name: {"calls": int(n), "seconds": s} for name, (n, s) in sorted(self.stages.items())},
            "programs": sorted(programs, key=lambda row: row["at"]),
        }


def label_of(program: StoredProgram) -> str:
    """What a program does, in words."""
    text = program._function.__qualname__
    names = {
        "_find_poses": "poses: program",
        "find_wavefronts": "wavefronts: program",
        "on_pixels": "samples and points",
        "_ray_errors": "error of rays",
    }
    facts = dict(re.findall(r"(\w+)=(\w+)", text))
    if "samples" not in facts:
        return names.get(program._name, program._name)
    way = next((name for name in ("ray_intensity", "pixel_intensity") if name in text), "")
    way = way or f"{facts.get('supersample')} points a pixel"
    return f"propagation: {facts['samples']} samples, {way}, {facts.get('at_once')} at once"


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Stages of the PSF engine report to a clock."""
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (StoredProgram, "__call__", clock.stage(lambda own, *_: label_of(own), StoredProgram.__call__)),
        (StoredProgram, "compile", clock.stage(lambda own, *_: f"ahead: {label_of(own)}", StoredProgram.compile)),
        (wavefronts, "poses_of", clock.stage("poses", wavefronts.poses_of)),
        (wavefronts, "systems_of", clock.stage("lenses as arrays", wavefronts.systems_of)),
        (wavefronts, "_joined", clock.stage("wavefronts joined", wavefronts._joined)),
        (engine, "_folded", clock.stage("bands and reports", lambda *a: iter(list(_FOLDED(*a))))),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, stage in places:
        setattr(module, name, stage)
    ACTIVE.append(clock)
    try:
        yield
    finally:
        ACTIVE.remove(clock)
        for module, name, own in before:
            setattr(module, name, own)


_FOLDED = engine._folded
ACTIVE: list[Clock] = []


def listen() -> None:
    """Pass on what JAX tells to the clocks that run."""
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **facts: [clock.heard(event, seconds, **facts) for clock in ACTIVE][:0]
    )


def call(drawn: psf_many.Draw, load: GpuLoad, *, wait: bool = False, file: Path | None = None) -> Row:
    """All PSFs in one call: seconds, stages, programs, load; the first ones into a file."""
    clock = Clock(wait)
    with watched(clock):
        start = time.perf_counter()
        requests = make_requests(drawn.cameras, drawn.depth_m, drawn.field)
        prepared = time.perf_counter()
        traced = engine.TracedRequests(requests, parse_bands("d"), size=psf_many.SIZE)
        middle = time.perf_counter()
        batch = traced.psfs(psf_many.SIZE, engine.PsfOptions())
        end = time.perf_counter()
    if file is not None:
        np.savez_compressed(file, psf=batch.psf[:SAVED])
    return {
        "seconds": end - start,
        "requests_s": prepared - start,
        "wavefronts_s": middle - prepared,
        "propagation_s": end - middle,
        "ok": int(batch.ok.sum()),
        "load_percent": {"wavefronts": load.mean(prepared, middle), "propagation": load.mean(middle, end)},
        "sum_of_all": float(batch.psf.sum(dtype=np.float64)),
        **clock.as_json(),
    }


def kernels(work: Callable[[], Any], top: int = 40) -> Row:
    """Seconds of a device's kernels by program and name, from JAX's profiler."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with jax.profiler.trace(folder):
            work()
        wall = time.perf_counter() - start
        file = next(Path(folder).rglob("*.xplane.pb"))
        profile = jax.profiler.ProfileData.from_file(str(file))
        sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
        for plane in profile.planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    facts = {key: value for key, value in event.stats if key == "hlo_module"}
                    entry = sums[str(facts.get("hlo_module", "")), event.name]
                    entry[0], entry[1] = entry[0] + 1, entry[1] + event.duration_ns * 1e-9
    rows = sorted(sums.items(), key=lambda item: -item[1][1])
    programs: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for (module, _), (n, s) in rows:
        programs[module][0] += n
        programs[module][1] += s
    return {
        "wall_s": wall,
        "busy_s": sum(s for _, (_, s) in rows),
        "programs": [{"program": m, "kernels": int(n), "seconds": s} for m, (n, s) in programs.items()],
        "kernels": [{"program": m, "name": k[:90], "calls": int(n), "seconds": s} for (m, k), (n, s) in rows[:top]],
    }


# --- parts ------------------------------------------------------------------------------------------------------------


def cold(options: argparse.Namespace, load: GpuLoad) -> Row:
    """The first call of a process."""
    start = time.perf_counter()
    drawn = psf_many.draw(options.lenses, options.count)
    ready = time.perf_counter()
    result: Row = {"imports_s": start - BEGIN, "lenses_s": ready - start, "calls": {}}
    result["calls"]["first"] = call(drawn, load, file=options.out / "psf_stages_first.npz")
    return result


def warm(options: argparse.Namespace, load: GpuLoad) -> Row:
    """Calls of a process that finds its programs."""
    result = cold(options, load)
    keep(options, "warm", result)
    drawn = psf_many.draw(options.lenses, options.count)
    for name in ("second", "waited for"):
        result["calls"][name] = call(drawn, load, wait=name == "waited for")
        keep(options, "warm", result)
    few = drawn.part(slice(0, 4096))

    def work() -> None:
        requests = make_requests(few.cameras, few.depth_m, few.field)
        engine.TracedRequests(requests, parse_bands("d")).psfs(psf_many.SIZE, engine.PsfOptions())

    if options.profile:
        result["profile"] = kernels(work)
    return result


def compilation(part: str, options: argparse.Namespace, load: GpuLoad) -> Row:
    """All programs of many PSFs side by side, with a GPU's options of this part; not run."""
    drawn = psf_many.draw(options.lenses, 1)
    requests = make_requests(drawn.cameras, drawn.depth_m, drawn.field)
    stored_program.GPU_OPTIONS.update(OPTIONS[part])
    for name in set(stored_program.GPU_OPTIONS) - set(OPTIONS[part]):
        del stored_program.GPU_OPTIONS[name]
    start = time.perf_counter()
    clock = Clock()
    with watched(clock), ThreadPoolExecutor(2 * engine.PROGRAMS_AT_ONCE) as pool:
        work = wavefronts.compile_many(requests, parse_bands("d")) + propagation_plan.compile_window(psf_many.SIZE)
        list(pool.map(lambda one: one(), work[: amount(len(work), quick=0)]))
    known = {} if jax.default_backend() == "cpu" else stored_program._known_options()
    seconds = time.perf_counter() - start
    return {"options": known, "calls": {"compiled": {"seconds": seconds, **clock.as_json()}}}


def survey(options: argparse.Namespace, load: GpuLoad) -> Row:
    """The survey of all lenses, by parts."""
    start = time.perf_counter()
    lenses = [read_lens(file) for file in sorted(options.lenses.rglob("*.json"))]
    result: Row = {"imports_s": start - BEGIN, "lenses_s": time.perf_counter() - start, "calls": {}}
    for name in ("first", "second", "waited for"):
        clock = Clock(wait=name == "waited for")
        own = {k: getattr(measurement, k) for k in ("_prepare", "pack", "_row", "_MEASURE", "_MEASURE_FEW")}
        for k, function in own.items():
            setattr(measurement, k, clock.stage("program" if k.startswith("_M") else k.strip("_"), function))
        ACTIVE.append(clock)
        begin = time.perf_counter()
        measurement.measure(lenses)
        end = time.perf_counter()
        ACTIVE.remove(clock)
        for k, function in own.items():
            setattr(measurement, k, function)
        result["calls"][name] = {"seconds": end - begin, "load_percent": load.mean(begin, end), **clock.as_json()}
    begin = time.perf_counter()
    for lens in lenses:
        Camera(lens)
    result["cameras_s"] = time.perf_counter() - begin
    return result


def keep(options: argparse.Namespace, part: str, result: Row) -> None:
    """Write what a part has measured so far: its process may be ended."""
    facts = {"device": jax.devices()[0].device_kind, "backend": jax.default_backend(), "machine": machine()}
    file = options.out / f"psf_stages_{part}_so_far.json"
    file.write_text(json.dumps(facts | {part: result}), encoding="utf-8")


# --- report -----------------------------------------------------------------------------------------------------------


def markdown(result: Row) -> str:
    on = result["machine"]
    lines = [
        f"# What {result['count']:,} PSFs wait for ({result['device']})",
        "",
        f"{psf_many.SIZE} × {psf_many.SIZE} pixels, d line, {result['lenses']} lenses; {on['cpu']}, {on['cores']} "
        f"cores; Python {on['python']}, jax {on['jax']}.",
        "",
        "| process | call | seconds | wavefronts | propagation | GPU's load, percent |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for part in ("cold", "warm"):
        for name, one in result.get(part, {}).get("calls", {}).items():
            numbers = " | ".join(f"{one[k]:.2f}" for k in ("seconds", "wavefronts_s", "propagation_s"))
            lines.append(f"| {part} | {name} | {numbers} | {one['load_percent']} |")
    for part in PARTS:
        for name, one in result.get(part, {}).get("calls", {}).items():
            lines += ["", f"## {part}, {name}: {one['seconds']:.2f} s", "", "| stage | calls | seconds |"]
            lines += ["| --- | --- | --- |"]
            lines += [f"| {stage} | {v['calls']} | {v['seconds']:.3f} |" for stage, v in one["stages"].items()]
            if one["programs"]:
                lines += ["", "| at | program | asked for by | trace | lower | compile | load |"]
                lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
            for row in one["programs"]:
                numbers = " | ".join(f"{row.get(k, 0.0):.2f}" for k in COMPILING.values())
                lines.append(f"| {row['at']:.1f} | {row['name']} | {row['stage']} | {numbers} |")
    if "profile" in result.get("warm", {}):
        profile = result["warm"]["profile"]
        lines += ["", f"## Kernels of 4,096 PSFs: {profile['busy_s']:.2f} of {profile['wall_s']:.2f} s busy", ""]
        lines += ["| program | kernel | calls | seconds |", "| --- | --- | --- | --- |"]
        lines += [f"| {r['program']} | all | {r['kernels']} | {r['seconds']:.4f} |" for r in profile["programs"]]
        lines += [f"| {r['program']} | {r['name']} | {r['calls']} | {r['seconds']:.4f} |" for r in profile["kernels"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenses", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=amount(10_000, quick=2))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--profile", action="store_true", help="the kernels of a call; reading them takes minutes")
    parser.add_argument("--process", choices=PARTS, help=argparse.SUPPRESS)
    options = read_arguments(parser)
    if options.quick and options.lenses is None:
        options.lenses = Path(tempfile.mkdtemp())
        write_lens(load_lens(SMALL_LENS), options.lenses / f"{SMALL_LENS}.json")
    elif options.lenses is None:
        parser.error("LENS_FOLDER is missing")
    works: dict[str, Callable[[argparse.Namespace, GpuLoad], Row]] = {"cold": cold, "warm": warm, "survey": survey}
    works |= {part: partial(compilation, part) for part in OPTIONS}
    if options.process or is_quick():
        listen()
        load = GpuLoad()
        for part in [options.process] if options.process else options.parts:
            keep(options, part, works[part](options, load))
        load.stop()
    if options.process:
        return
    facts = gather(options) if is_quick() else processes(options)
    count = len(list(options.lenses.rglob("*.json")))
    result = {"count": options.count, "lenses": count, **facts}
    write_report(options.out, f"psf_stages_{result.pop('backend')}", result, markdown(result))


def gather(options: argparse.Namespace) -> Row:
    """What the parts have measured, until now."""
    facts: Row = {}
    for part in PARTS:
        file = options.out / f"psf_stages_{part}_so_far.json"
        if file.exists():
            facts |= json.loads(file.read_text())
            file.unlink()
    return facts


def processes(options: argparse.Namespace) -> Row:
    """Every part in a process of its own, one after the other; kept programs are theirs alone."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")  # set by the imports above
        variables = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
        for part in options.parts:
            left = options.seconds - (time.perf_counter() - BEGIN)
            if left < 5.0:
                print(f"{part}: not begun, the time is over", flush=True)
                continue
            start = time.perf_counter()
            variables["DEFOCUS_CACHE"] = f"{folder}/{part if part in OPTIONS else 'programs'}"
            words = [str(options.lenses), "--count", str(options.count), "--process", part, "--out", str(options.out)]
            words += ["--profile"] if options.profile else []
            try:
                code = subprocess.run(
                    [sys.executable, __file__, *words], env=variables, check=False, timeout=left
                ).returncode
                told = f"exit code {code}"
            except subprocess.TimeoutExpired:
                told = "ended, the time is over"
            seconds[part] = time.perf_counter() - start
            print(f"{part}: {seconds[part]:.1f} s, {told}", flush=True)
    return gather(options) | {"process_s": seconds}


if __name__ == "__main__":
    main()
