"""What XLA's settings for CPUs cost: CPU seconds to compile and to run a PSF and a photograph.

    python benchmarks/compilation.py [--out FOLDER] [--quick]

Each in a fresh process that keeps no programs. Compiling is the first call less the median of three later ones. Writes
compilation.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from machine import (
    ONE_PSF,
    SMALL_CAMERA,
    SMALL_LENS,
    SMALL_PSF,
    SMALL_PX,
    amount,
    machine,
    read_arguments,
    write_report,
)

SETTINGS = {
    "XLA's own": "--xla_cpu_use_fusion_emitters=true",
    "older code generator": "--xla_cpu_use_fusion_emitters=false",
    "and LLVM's level 1": "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1",
}
LENS, SIZE = amount(("zeiss-planar-50-f1.4", (480, 320)), quick=(SMALL_LENS, SMALL_PX))


def measure() -> dict[str, float]:
    """CPU seconds of this process."""
    from defocus import Camera, load_lens

    camera = Camera(load_lens(LENS), focus_m=2.0, **amount({}, quick=SMALL_CAMERA))
    columns, rows = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
    rgb = np.random.default_rng(0).random((SIZE[1], SIZE[0], 3))
    depth = np.where(columns + rows / 4 < SIZE[0] / 2, 1.5, 4.0)
    return {
        **timed("a PSF", lambda: camera.psf(3.0, (0.3, 0.4), **amount({}, quick=SMALL_PSF))),
        **timed("a photograph", lambda: camera.photograph(rgb, depth, sensor=False, **amount({}, quick=ONE_PSF))),
    }


def timed(name: str, work: Callable[[], object]) -> dict[str, float]:
    seconds = []
    for _ in range(amount(4, quick=2)):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    run = statistics.median(seconds[1:])
    return {f"{name}: compile": round(seconds[0] - run, 1), f"{name}: run": round(run, 2)}


def main() -> None:
    options = read_arguments(argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]))
    before = machine()
    seconds: dict[str, Any] = {}
    for setting, flags in SETTINGS.items():
        if options.quick:
            seconds[setting] = measure()
            continue
        environment = os.environ | {"XLA_FLAGS": flags, "DEFOCUS_CACHE": "", "JAX_PLATFORMS": "cpu"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        code = "import json, compilation; print(json.dumps(compilation.measure()))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, capture_output=True, env=environment, cwd=Path(__file__).parent)
        seconds[setting] = json.loads(done.stdout)
    lines = [
        "# Settings of XLA for CPUs",
        "",
        f"CPU seconds, {LENS}, photograph of {SIZE[0]} × {SIZE[1]} pixels at two depths; {before}. The last is ours.",
        "",
        f"| | {' | '.join(SETTINGS)} |",
        f"| ---{' | ---' * len(SETTINGS)} |",
        f"| flags | {' | '.join(f'`{flags}`' for flags in SETTINGS.values())} |",
        *(
            f"| {name} | {' | '.join(str(s[name]) for s in seconds.values())} |"
            for name in next(iter(seconds.values()))
        ),
    ]
    write_report(options.out, "compilation", {"machine": before, "cpu_s": seconds}, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
