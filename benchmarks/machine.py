"""What benchmarks share: their arguments and reports, the machine that they ran on and its load, a stopwatch, small
inputs.

Every benchmark has --quick: the smallest work that goes through its steps, in one process wherever it can, to see that
it runs. The numbers that come of it mean nothing, and do not go to benchmarks/results unless --out says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
RESULTS = Path(__file__).parent / "results"
# Quick runs take programs that the tests have: a PSF those of tests/physics/test_psf_camera.py, a photograph those of
# tests/render/test_photograph.py.
SMALL_LENS = "leica-summicron-50-f2"
SMALL_PSF: dict[str, Any] = {"size": 32, "bands": "d"}
SMALL_PX = (64, 48)
SMALL_CAMERA: dict[str, Any] = {"pixel_um": 40.0, "f_number": 4.0}
ONE_PSF: dict[str, Any] = {"bands": "d", "patch": (0.0, 0.0), "parts": 1}
# Pairs in a second or two: nothing of optics is compiled. The programs are those of tests/synth.
SMALL_PLAN: dict[str, Any] = {
    "seed": 3,
    "sources": [{"count": 6, "names": ["table", "letters"]}],  # those that are drawn fastest
    "lenses": {"only": ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*"], "survey": False},
    "train": {"pairs": 6},
    "validation": {"pairs": 2},
    "test": {"pairs": 2},
    "patch": {"size": 48, "kernel": 32, "photograph": [120, 80]},
    "limits": {"coc_px": 12, "samples": 1e6},
    "psf": {"kind": "gaussian"},
}


def is_quick() -> bool:
    """Whether the command line asks for --quick."""
    return "--quick" in sys.argv


def amount(whole: T, *, quick: T) -> T:
    """`whole`, or `quick` where the command line asks for --quick."""
    return quick if is_quick() else whole


def read_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line with --out and --quick, which every benchmark has; the folder --out is there afterwards."""
    parser.add_argument("--out", type=Path, help="folder of the results; by default benchmarks/results")
    parser.add_argument(
        "--quick", action="store_true", help="the least work; in a new folder, and its numbers are none"
    )
    options = parser.parse_args()
    if options.out is None:
        options.out = Path(tempfile.mkdtemp(prefix="quick-")) if options.quick else RESULTS
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def require(*names: str) -> None:
    """Exit with one line where a package, or a file or folder (a name with a slash), is not here."""
    for name in names:
        if not (Path(name).exists() if "/" in name else importlib.util.find_spec(name)):
            sys.exit(f"needs {name}, which is not here")


def write_report(out: Path, stem: str, result: Any, page: str) -> None:
    """Write a result as JSON and its page as Markdown, and print the page."""
    (out / f"{stem}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / f"{stem}.md").write_text(page, encoding="utf-8")
    print(page, flush=True)


def machine(packages: tuple[str, ...] = ("jax", "numpy")) -> dict[str, Any]:
    """Processor, cores, load and versions."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = models[0] if models else model
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
    }


def _version(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def median_seconds(work: Callable[[], object], repeats: int = 20) -> float:
    """The median time of JAX work that is done, after one call that compiles it."""
    import jax

    jax.block_until_ready(work())
    times = []
    for _ in range(amount(repeats, quick=1)):
        start = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class GpuLoad(threading.Thread):
    """The GPU's load as nvidia-smi tells it, five times a second: the part of the time in which any kernel ran, in
    percent. None where there is no nvidia-smi."""

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
        return round(statistics.fmean(own), 1) if own else None

    def stop(self) -> None:
        if hasattr(self, "process"):
            self.process.terminate()
