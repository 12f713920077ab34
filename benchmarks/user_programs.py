"""The five programs of the README as a user runs them: CPU seconds in fresh processes, cold and with kept programs.

    python benchmarks/user_programs.py [--out FOLDER] [--only NAME ...] [--quick]

Each program runs in two processes that share one folder of compiled programs, which is empty before the first ("cold").
In the second ("again") it runs twice, and the later run ("next call") tells what a call costs once everything is
loaded. Times are CPU seconds of all threads, after the imports, with those of the wall beside them. Writes
user_programs.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import SMALL_PSF, amount, is_quick, machine, read_arguments, write_report

LENSES = 100  # of the array of many lenses, the built-in ones over and over
PLAN: dict[str, Any] = {
    "seed": 3,
    "sources": [{"count": 6, "names": ["table", "letters"]}],
    "lenses": {"only": ["*-50-*", "*-35-*", "*-85-*"], "survey": False},
    "patch": {"size": 128, "kernel": 64, "photograph": [480, 320]},
    "limits": {"samples": 6000},
    "psf": {"exact": False},
}


def one_psf() -> Callable[[], object]:
    """`Camera(load_lens(n), focus_m=2).psf(3.0, (.3, .4))`"""
    from defocus import Camera, load_lens

    options = amount({}, quick=SMALL_PSF)
    return lambda: Camera(load_lens("leica-summicron-50-f2"), focus_m=2.0).psf(3.0, (0.3, 0.4), **options)


def many_lenses() -> Callable[[], object]:
    """`psfs([Camera(load_lens(n), focus_m=2.0) for n in names], 3.0, (0.3, 0.4), size=64)`, 100 lenses"""
    from defocus import Camera, list_lenses, load_lens, psfs

    names = [entry.name for entry in list_lenses() if entry.focal_length_mm < 200.0]  # longer ones focus farther away
    names = (names * 2)[:LENSES]
    return lambda: psfs([Camera(load_lens(n), focus_m=2.0) for n in names], 3.0, (0.3, 0.4), size=64)


def photograph() -> Callable[[], object]:
    """`camera.photograph(rgb, depth, sensor=False)`, 480 × 320 pixels at two depths"""
    import numpy as np

    from defocus import Camera, load_lens

    rgb = np.random.default_rng(0).random((320, 480, 3))
    depth = np.full((320, 480), 2.0)
    depth[:, 240:] = 4.0
    lens = load_lens("leica-summicron-50-f2")
    return lambda: Camera(lens, focus_m=2.0, pixels=(480, 320)).photograph(rgb, depth, sensor=False)


def on_the_fly() -> Callable[[], object]:
    """`OnTheFlyDataset(plan, "train", 16)[0]`, 128 × 128 pixels, real lenses"""
    from defocus.restore import OnTheFlyDataset

    return lambda: OnTheFlyDataset(PLAN, "train", 16)[0]


def gradient() -> Callable[[], object]:
    """`jax.grad(lambda c: loss(camera.at("curvature", 0, c).psf(3.0)))`, 64 × 64 pixels, d line"""
    import jax

    from defocus import Camera, load_lens

    camera = Camera(load_lens("zeiss-tessar-50-f3.5"), focus_m=2.0)
    curvature = float(camera.optics.system.curvature[0])
    slope = jax.grad(lambda c: (camera.at("curvature", 0, c).psf(3.0, size=64, bands="d").array ** 2).sum())
    return lambda: slope(curvature)


PROGRAMS = {f.__name__: f for f in (one_psf, many_lenses, photograph, on_the_fly, gradient)}


def measure(name: str, calls: int) -> list[dict[str, float]]:
    """Seconds of each call of a program in this process."""
    import jax

    call = PROGRAMS[name]()
    times = []
    for _ in range(calls):
        cpu, wall = time.process_time(), time.perf_counter()
        value = call()
        jax.block_until_ready(value if isinstance(value, jax.Array) else None)
        times.append({"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall})
    return times


def environment(folder: str) -> dict[str, str]:
    """Variables of a process that keeps compiled programs in `folder`."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "PYTHONDONTWRITEBYTECODE"))}
    return others | {"DEFOCUS_CACHE": folder, "JAX_PLATFORMS": "cpu"}


def fresh(name: str, calls: int, variables: dict[str, str]) -> list[dict[str, float]]:
    """`measure` in a process of its own with these environment variables; with --quick in this one."""
    if is_quick():
        return measure(name, calls)
    code = f"import json, user_programs; print(json.dumps(user_programs.measure({name!r}, {calls})))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, env=variables, cwd=Path(__file__).parent
    )
    return json.loads(done.stdout.splitlines()[-1])


def markdown(result: dict[str, Any]) -> str:
    on = result["machine"]
    lines = [
        "# Five programs that users write",
        "",
        f"CPU seconds (wall seconds) on {on['cpu']}, {on['cores']} cores, load {on['load_before']:.1f} before; Python "
        f"{on['python']}, jax {on['jax']}. Cold: a fresh process, nothing compiled yet; again: a fresh process that "
        "finds the programs of the first; next call: once more in that process.",
        "",
        "| program | cold | again | next call |",
        "| --- | --- | --- | --- |",
    ]
    for name, times in result["programs"].items():
        cells = (f"{t['cpu_s']:.1f} ({t['wall_s']:.1f})" for t in (times["cold"], times["again"], times["next_call"]))
        lines.append(f"| {PROGRAMS[name].__doc__} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    names = amount(list(PROGRAMS), quick=["one_psf"])  # the tests of tests/contracts run all of them
    parser.add_argument("--only", nargs="+", choices=tuple(PROGRAMS), default=names)
    options = read_arguments(parser)
    result: dict[str, Any] = {"machine": machine(), "programs": {}}
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            cold = fresh(name, 1, environment(folder))
            again = fresh(name, 2, environment(folder))
        result["programs"][name] = {"cold": cold[0], "again": again[0], "next_call": again[1]}
        print(name, result["programs"][name], flush=True)
    write_report(options.out, "user_programs", result, markdown(result))


if __name__ == "__main__":
    main()
