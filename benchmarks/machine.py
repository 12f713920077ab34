"""What a benchmark ran on, for its report, and its stopwatch."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any


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
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - start)
    return statistics.median(times)
