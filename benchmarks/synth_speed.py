"""Throughput of `defocus synth run` at the paper's settings: pairs per second, where the time goes, memory.

    python benchmarks/synth_speed.py [--out FOLDER] [--pairs N] [--workers N] [--images N] [--lenses FOLDER] [--quick]
        [--photographs FOLDER] [--seconds S] [--name NAME]

Photographs are procedural scenes of 1680 × 1120 pixels, written as PNG with depth before the clock starts; those that
the folder --photographs has are taken from there. --seconds ends the run, and what was measured until then counts.
Every ten seconds it is written to NAME_so_far.json, in the end to NAME_gpu.json and .md, or NAME_cpu.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import multiprocessing
import os
import pstats
import resource
import tempfile
import threading
import time
from pathlib import Path

from machine import SMALL_PLAN, GpuLoad, amount, is_quick, machine, read_arguments, write_report

COUNTS = (100, 300, 1000, 3000, 10_000, 20_000, 30_000, 40_000, 100_000)  # of pairs, whose moments are kept
SIZE = amount((1680, 1120), quick=(120, 80))


class EnoughError(Exception):
    """The time for measuring is over."""


def make_photograph(job: tuple[str, int, Path]) -> None:
    import numpy as np

    from defocus.photo import write_picture
    from defocus.scene.procedural import make_scene

    name, seed, folder = job
    made = make_scene(name, SIZE, seed).picture(samples=1)
    light = np.clip(made.linear, 0.0, 1.0)
    display = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    write_picture(folder / f"{name}_{seed}.png", display)
    np.savez_compressed(folder / f"{name}_{seed}.npz", depth_m=made.depth_m.astype(np.float32))


def photographs(folder: Path, count: int) -> None:
    from defocus.scene.procedural import SCENES

    folder.mkdir(parents=True, exist_ok=True)
    every = [(SCENES[k % len(SCENES)], 100 + k, folder) for k in range(count)]
    jobs = [(name, seed, folder) for name, seed, folder in every if not (folder / f"{name}_{seed}.npz").exists()]
    if is_quick():
        for job in jobs:
            make_photograph(job)
        return
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        pool.map(make_photograph, jobs, chunksize=1)


class Memory(threading.Thread):
    """Resident memory of this process and of its workers, every second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, float]] = []
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        begin = time.monotonic()
        while not self.over.wait(1.0 if self.seen else 0.0):
            self.seen.append((time.monotonic() - begin, _resident_gb()))


def _resident_gb() -> float:
    """Of all processes of our group, from /proc."""
    group, total = os.getpgrp(), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group:
                    total += int((entry / "statm").read_text().split()[1])
            except (OSError, ProcessLookupError, ValueError):
                continue
    return total * resource.getpagesize() / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=amount(2000, quick=4))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop measuring after so long")
    parser.add_argument("--images", type=int, default=amount(16, quick=2))
    parser.add_argument("--lenses", type=Path)
    parser.add_argument("--photographs", type=Path, help="folder where they are, or are written to")
    parser.add_argument("--name", default="synth_speed", help="of the results")
    parser.add_argument("--profile", type=Path, help="where to write a profile of this process")
    plan = json.dumps({key: SMALL_PLAN[key] for key in ("lenses", "patch", "limits", "psf")}) if is_quick() else "{}"
    parser.add_argument("--plan", default=plan, help="JSON that replaces parts of the plan")
    given = read_arguments(parser)
    if given.workers > 1:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        given.photographs = given.photographs or Path(scratch) / "photos"
        photographs(given.photographs, given.images)
        print(f"{given.images} photographs in {time.perf_counter() - start:.1f} s", flush=True)
        measure(given, Path(scratch))


def measure(given: argparse.Namespace, scratch: Path) -> None:
    import jax

    from defocus.synth.engines.local import LocalEngine
    from defocus.synth.plan import make_plan
    from defocus.synth.run import Progress, run_plan

    plan = {
        "sources": [{"kind": "rgb", "folder": str(given.photographs.resolve())}],
        "lenses": {"folders": [str(given.lenses)] if given.lenses else []},
        "train": {"pairs": given.pairs},
        "validation": {"pairs": 0},
        "test": {"pairs": 0},
    }
    memory, load, lines = Memory(), GpuLoad(), [0.0]
    stages: dict[str, float] = {}
    marks: list[tuple[float, int]] = []

    seconds: dict[str, float] = {}
    last = Progress()

    def keep(progress: Progress) -> None:
        nonlocal last
        last, now = progress, time.perf_counter() - start
        seconds.update(progress.seconds)
        stages.setdefault(progress.stage, now)
        marks.append((now, progress.pairs_now))
        if now - lines[0] > 10.0:
            lines[0] = now
            (given.out / f"{given.name}_so_far.json").write_text(json.dumps(result()), encoding="utf-8")
            told = f"{progress.drawn} drawn, {progress.done} done, {progress.rate:.1f}/s, {progress.rejected} rejected"
            told += f" { {k: round(v, 1) for k, v in progress.seconds.items()} }"
            print(f"{now:.0f} s: {progress.stage}, {told}, {_resident_gb():.1f} GB", flush=True)
        if now > given.seconds:
            raise EnoughError

    def result() -> dict[str, object]:
        """What was measured until now."""
        wall = time.perf_counter() - start
        half = [m for m in marks if m[1] >= last.pairs_now / 2]
        steady = (half[-1][1] - half[0][1]) / max(half[-1][0] - half[0][0], 1e-9) if len(half) > 1 else 0.0
        peak = [round(gb, 2) for _, gb in memory.seen[:: max(1, len(memory.seen) // 24)]]
        begins = [*stages.values(), wall]
        reached = [n for n in COUNTS if n <= last.pairs_now]
        loads = {name: load.mean(start + a, start + b) for name, a, b in zip(stages, begins, begins[1:], strict=False)}
        return {
            "machine": machine(), "device": jax.devices()[0].device_kind, "jax": jax.__version__,
            "workers": given.workers, "pairs": last.pairs_now, "rejected": last.rejected, "failed": last.failed,
            "images": given.images, "wall_s": round(wall, 1), "pairs_per_s_all": round(last.pairs_now / wall, 2),
            "pairs_per_s_second_half": round(steady, 2),
            "stage_begins_s": {k: round(v, 1) for k, v in stages.items()}, "gpu_load_percent": loads,
            "seconds_until_pairs": {n: round(next(t for t, pairs in marks if pairs >= n), 1) for n in reached},
            "seconds_by_stage": {k: round(v, 1) for k, v in seconds.items()}, "resident_gb": peak,
            "plan": given.plan,
        }  # fmt: skip

    profile = cProfile.Profile() if given.profile else None
    start = time.perf_counter()
    if profile:
        profile.enable()
    with contextlib.suppress(EnoughError):
        run_plan(make_plan(plan | json.loads(given.plan)), scratch / "out", LocalEngine(given.workers), watch=keep)
    final = result()
    memory.over.set()
    if profile:
        profile.disable()
        with given.profile.open("w") as file:
            pstats.Stats(profile, stream=file).sort_stats("tottime").print_stats(45)
            pstats.Stats(profile, stream=file).sort_stats("cumulative").print_stats(70)
    load.stop()
    where = "cpu" if jax.default_backend() == "cpu" else "gpu"
    write_report(given.out, f"{given.name}_{where}", final, markdown(final))
    (given.out / f"{given.name}_so_far.json").unlink(missing_ok=True)


def markdown(result: dict[str, object]) -> str:
    seconds = result["seconds_by_stage"]
    assert isinstance(seconds, dict)
    lines = [
        f"# Throughput of `defocus synth run` ({result['device']})",
        "",
        f"{result['machine']}; jax {result['jax']}; {result['workers']} worker(s); {result['pairs']} pairs of 384 × "
        f"384 pixels at the paper's settings from {result['images']} photographs of 1680 × 1120; {result['rejected']} "
        f"candidates rejected, {result['failed']} failed. Changed in the plan: `{result['plan']}`.",
        "",
        "| | |",
        "| --- | --- |",
        f"| whole run, compiling included | {result['wall_s']} s, {result['pairs_per_s_all']} pairs/s |",
        f"| second half of the pairs | {result['pairs_per_s_second_half']} pairs/s |",
        f"| stages began at (s) | {result['stage_begins_s']} |",
        f"| load of the GPU in each (percent) | {result.get('gpu_load_percent', {})} |",
        f"| seconds until so many pairs were made | {result.get('seconds_until_pairs', {})} |",
        f"| resident memory over the run (GB) | {result['resident_gb']} |",
        "",
        "Seconds by stage, summed over workers (encode and write run beside the others):",
        "",
        "| stage | seconds | ms per pair |",
        "| --- | --- | --- |",
    ]
    pairs = max(int(str(result["pairs"])), 1)
    lines += [f"| {name} | {value} | {1e3 * value / pairs:.1f} |" for name, value in seconds.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
