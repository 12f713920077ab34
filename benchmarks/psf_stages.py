"""What ten thousand PSFs wait for: every stage and every compiled program, cold, with kept programs and once more.

    python benchmarks/psf_stages.py LENS_FOLDER [--count N] [--parts PART ...] [--seconds S] [--out FOLDER]
    python benchmarks/psf_stages.py --quick            # one built-in lens, in this process

The requests are those of `psf_many.py`. Processes follow each other, none begins later than --seconds:

cold     nothing compiled: the first call
warm     programs kept: the first call, a second, one with every stage waited for, one under the profiler
survey   `survey.measurement.measure` of all lenses by parts, programs compiled; then once more
batches  poses, wavefronts and pixel integrals in batches of other sizes

Threads overlap: the seconds of stages need not sum up to those of a call, but where each is waited for. A GPU's load is
what nvidia-smi tells five times a second: the part of the time in which any kernel ran. Writes psf_stages_gpu.json and
.md, or psf_stages_cpu.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import psf_many
from defocus import Camera
from defocus.lens import load_lens
from defocus.lens.formats import read_lens, write_lens
from defocus.point_requests import make_requests
from defocus.psf import engine, poses, propagate, wavefronts
from defocus.psf.bands import parse_bands
from defocus.psf.pixel_integral import pixel_intensity
from defocus.survey import measurement
from machine import SMALL_LENS, amount, is_quick, machine, median_seconds, read_arguments, write_report

PARTS = ("cold", "warm", "survey", "batches")
BATCHES = amount((2048,), quick=(32,))  # each compiles anew
PIXEL_BATCHES = amount((3, 12, 48), quick=(1,))
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


@contextmanager
def watched(clock: Clock) -> Iterator[None]:
    """Stages of the PSF engine report to a clock."""

    def shape(pupils: Any, pixel: Any, *_: Any, of: Any = propagate.intensity, **options: Any) -> str:
        way = {propagate.intensity: f"{options.get('supersample')} points a pixel"}.get(of, of.__name__)
        return f"propagation: {options['samples']} samples, {way}, batches of {len(pixel)}"

    def program(make: Callable[..., Any], name: str) -> Callable[..., Any]:
        return lambda *arguments: clock.stage(name, make(*arguments))

    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (poses, "find_poses", clock.stage("poses: program", poses.find_poses)),
        (wavefronts, "poses_of", clock.stage("poses", wavefronts.poses_of)),
        (wavefronts, "systems_of", clock.stage("lenses as arrays", wavefronts.systems_of)),
        (wavefronts, "wavefront_program", program(wavefronts.wavefront_program, "wavefronts: program")),
        (wavefronts, "_joined", clock.stage("wavefronts joined", wavefronts._joined)),
        (engine, "_pixel_program", program(engine._pixel_program, "samples and points")),
        (engine, "_ray_errors", clock.stage("error of rays", engine._ray_errors)),
        (engine, "_take_pupils", clock.stage("pupils taken", engine._take_pupils)),
        (engine, "intensity_batch", clock.stage(shape, engine.intensity_batch)),
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


class Load(threading.Thread):
    """The GPU's load, five times a second; none where there is no nvidia-smi."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, float]] = []
        words = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
        try:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            return
        self.start()

    def run(self) -> None:
        for line in self.process.stdout or ():
            if line.strip().isdigit():
                self.seen.append((time.perf_counter(), float(line)))

    def mean(self, begin: float, end: float) -> float | None:
        """Percent between two times."""
        own = [percent for at, percent in self.seen if begin <= at <= end]
        return round(float(np.mean(own)), 1) if own else None

    def stop(self) -> None:
        if hasattr(self, "process"):
            self.process.terminate()


def call(drawn: psf_many.Draw, load: Load, *, wait: bool = False) -> Row:
    """All PSFs in one call: seconds, stages, programs, load."""
    clock = Clock(wait)
    with watched(clock):
        start = time.perf_counter()
        requests = make_requests(drawn.cameras, drawn.depth_m, drawn.field)
        prepared = time.perf_counter()
        traced = engine.TracedRequests(requests, parse_bands("d"))
        middle = time.perf_counter()
        batch = traced.psfs(psf_many.SIZE, engine.PsfOptions())
        end = time.perf_counter()
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


def cold(options: argparse.Namespace, load: Load) -> Row:
    """The first call of a process."""
    start = time.perf_counter()
    drawn = psf_many.draw(options.lenses, options.count)
    ready = time.perf_counter()
    return {"imports_s": start - BEGIN, "lenses_s": ready - start, "calls": {"first": call(drawn, load)}}


def warm(options: argparse.Namespace, load: Load) -> Row:
    """Calls of a process that finds its programs."""
    result = cold(options, load)
    drawn = psf_many.draw(options.lenses, options.count)
    result["calls"] |= {"second": call(drawn, load), "waited for": call(drawn, load, wait=True)}
    few = drawn.part(slice(0, 4096))

    def work() -> None:
        requests = make_requests(few.cameras, few.depth_m, few.field)
        engine.TracedRequests(requests, parse_bands("d")).psfs(psf_many.SIZE, engine.PsfOptions())

    if jax.default_backend() != "cpu":
        try:
            result["profile"] = kernels(work)
        except Exception as error:  # the profiler's library may be missing: everything else is worth keeping
            result["profile_error"] = repr(error)
    return result


def survey(options: argparse.Namespace, load: Load) -> Row:
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


def batches(options: argparse.Namespace, load: Load) -> Row:
    """Poses and wavefronts of as many requests as the largest batch has, in batches of several sizes."""
    drawn = psf_many.draw(options.lenses, max(BATCHES))
    requests = make_requests(drawn.cameras, drawn.depth_m, drawn.field)
    rows = []
    before = poses.AT_ONCE, wavefronts.AT_ONCE
    kind = wavefronts.backend_kind()
    for size in BATCHES:
        poses.AT_ONCE, wavefronts.AT_ONCE = {kind: size}, {kind: size}
        seconds = []
        for _ in range(2):
            clock = Clock(wait=True)
            with watched(clock):
                jax.block_until_ready([b.arrays for b in wavefronts.wavefront_blocks(requests, parse_bands("d"))])
            seconds.append({name: s for name, (_, s) in clock.stages.items() if name.endswith("program")})
        rows.append({"batch": size, "first": seconds[0], "second": seconds[1]})
    poses.AT_ONCE, wavefronts.AT_ONCE = before
    block = next(iter(wavefronts.wavefront_blocks(requests, parse_bands("d"))))
    pitch = requests.points.pixel[block.rows]
    pixels = {}
    for size in PIXEL_BATCHES:
        own, first = np.arange(size), np.zeros(size, int)
        pupils = engine._take_pupils(block.arrays.pupil, own, first)
        job = {"samples": amount(1536, quick=1024), "size": psf_many.SIZE, "dtype": jax.numpy.float32}
        work = partial(propagate.intensity_batch, pupils, pitch[own], of=pixel_intensity, **job)
        pixels[size] = 1e3 * median_seconds(work, 10) / size
    return {"requests": len(requests), "rows": rows, "pixel_integral_ms": pixels}


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
    for part in ("cold", "warm", "survey"):
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
    if "batches" in result:
        lines += ["", "## Batches", "", f"Seconds of {result['batches']['requests']:,} requests, once compiled.", ""]
        lines += [
            "| in batches of | poses | wavefronts | first, poses | wavefronts |",
            "| --- | --- | --- | --- | --- |",
        ]
        for row in result["batches"]["rows"]:
            numbers = [row[c][f"{n}: program"] for c in ("second", "first") for n in ("poses", "wavefronts")]
            lines.append(f"| {row['batch']} | " + " | ".join(f"{s:.3f}" for s in numbers) + " |")
        pixels = {int(size): ms for size, ms in result["batches"]["pixel_integral_ms"].items()}
        lines += ["", "| pixel integrals of 1536 samples in batches of | ms each |", "| --- | --- |"]
        lines += [f"| {size} | {ms:.3f} |" for size, ms in pixels.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenses", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=amount(10_000, quick=2))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--process", choices=PARTS, help=argparse.SUPPRESS)
    options = read_arguments(parser)
    if options.quick and options.lenses is None:
        options.lenses = Path(tempfile.mkdtemp())
        write_lens(load_lens(SMALL_LENS), options.lenses / f"{SMALL_LENS}.json")
    elif options.lenses is None:
        parser.error("LENS_FOLDER is missing")
    works = {"cold": cold, "warm": warm, "survey": survey, "batches": batches}
    if options.process or is_quick():
        listen()
        load = Load()
        own = {part: works[part](options, load) for part in ([options.process] if options.process else options.parts)}
        load.stop()
    if options.process:
        facts = {"device": jax.devices()[0].device_kind, "backend": jax.default_backend(), "machine": machine()}
        (options.out / f"{options.process}.json").write_text(json.dumps(facts | own), encoding="utf-8")
        return
    if is_quick():
        facts = {"device": jax.devices()[0].device_kind, "backend": jax.default_backend(), "machine": machine(), **own}
    else:
        facts = processes(options)
    count = len(list(options.lenses.rglob("*.json")))
    result = {"count": options.count, "lenses": count, **facts}
    write_report(options.out, f"psf_stages_{result.pop('backend')}", result, markdown(result))


def processes(options: argparse.Namespace) -> Row:
    """Every part in a process of its own, one after the other; kept programs are theirs alone."""
    facts: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")  # set by the imports above
        variables = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
        variables["DEFOCUS_CACHE"] = f"{folder}/programs"
        for part in options.parts:
            if time.perf_counter() - BEGIN > options.seconds:
                print(f"{part}: not begun, the time is over", flush=True)
                continue
            start = time.perf_counter()
            words = [__file__, str(options.lenses), "--count", str(options.count), "--process", part, "--out", folder]
            done = subprocess.run([sys.executable, *words], env=variables, check=False)
            print(f"{part}: {time.perf_counter() - start:.1f} s, exit code {done.returncode}", flush=True)
            if done.returncode == 0:
                facts |= json.loads((Path(folder) / f"{part}.json").read_text())
                facts[part]["process_s"] = time.perf_counter() - start
                (options.out / "psf_stages_so_far.json").write_text(json.dumps(facts))
    (options.out / "psf_stages_so_far.json").unlink(missing_ok=True)
    return facts


if __name__ == "__main__":
    main()
