"""Whole photographs through a real lens, by the command `defocus blur`: time of each stage and peak memory.

    python benchmarks/photograph_speed.py [WIDTHxHEIGHT ...] [--out FOLDER] [--quick]

The scene is the built-in portrait, made at 1680×1120 and scaled to the size asked for, as a RAW file (an uncompressed
DNG with a Bayer mosaic) and a depth map; PSFs of an 85 mm lens at f/1.2 vary over the field. A call is all of `blur`:
it decodes the RAW file, develops what it has blurred and writes a PNG. Calls are made in one process: the first of each
size compiles, or loads what an earlier process has compiled; the second is the one that counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from defocus.cli import app
from defocus.scene.procedural import make_scene
from machine import SMALL_LENS, SMALL_PX, amount, machine, read_arguments, write_report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from dng import write_dng

LENS, FOCUS_M = amount("canon-rf-85-f1.2", quick=SMALL_LENS), 1.52  # wide open
MADE = amount((1680, 1120), quick=SMALL_PX)
WORDS = amount("--max-kernel 1024", quick="--patch --bands d --pixel-um 40 --f-number 4")
BLACK, WHITE = 512, 15872  # of the RAW file's numbers
CODES = 2.0  # times the light of a diffuse white: what the sensor holds


def scaled(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Nearest pixels: the content does not matter here, the size does."""
    rows = (np.arange(size[1]) * values.shape[0] // size[1])[:, None]
    return values[rows, np.arange(size[0]) * values.shape[1] // size[0]]


def write_inputs(folder: Path, linear: np.ndarray, depth_m: np.ndarray) -> list[str]:
    """A RAW file and a depth map in `folder`; the words that name them."""
    mosaic = linear[..., 1].copy()  # RGGB
    mosaic[::2, ::2], mosaic[1::2, 1::2] = linear[::2, ::2, 0], linear[1::2, 1::2, 2]
    stored = np.round(BLACK + np.clip(mosaic / CODES, 0.0, 1.0) * (WHITE - BLACK))
    write_dng(folder / "sharp.dng", stored, black=(BLACK,), white=WHITE)
    np.save(folder / "depth.npy", depth_m)
    return [str(folder / "sharp.dng"), "--depth", str(folder / "depth.npy")]


def blur(inputs: list[str], folder: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of the command, and its report."""
    words = [*inputs, "--lens", LENS, "--focus-m", str(FOCUS_M), "--max-side", "0", *WORDS.split()]
    start = time.perf_counter()
    outputs = ["--out", str(folder / "blurred.png"), "--report", str(folder / "report.json")]
    app(["blur", *words, *outputs], standalone_mode=False)
    return time.perf_counter() - start, json.loads((folder / "report.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sizes", nargs="*", default=amount(["1680x1120", "6000x4000"], quick=["64x48"]))
    options = read_arguments(parser)
    out, sizes = options.out, [tuple(map(int, text.split("x"))) for text in options.sizes]
    seen = make_scene("portrait", MADE).picture(samples=1)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            inputs = write_inputs(folder, scaled(seen.linear, size), scaled(seen.depth_m, size))
            for again in (False, True):
                seconds, report = blur(inputs, folder)
                memory = jax.devices()[0].memory_stats() or {}
                stages = report["seconds"] | {"files": seconds - sum(report["seconds"].values())}
                facts = {key: report[key] for key in ("layers", "layer_step_px", "kernel_px", "coc_px", "nodes")}
                rows.append(
                    {
                        "size": f"{size[0]}×{size[1]}",
                        "first": not again,
                        "seconds": seconds,
                        "stages": stages,
                        **facts,
                        "psfs": report["psfs_computed"],
                        "device_GB": memory.get("peak_bytes_in_use", 0) / 1e9,
                        "host_GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
                    }
                )
                print(rows[-1], flush=True)
                write(out, rows)


def write(out: Path, rows: list[dict[str, Any]]) -> None:
    result = {"device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})", **machine(), "rows": rows}
    lines = [
        f"# Whole photographs on {result['device']}",
        "",
        f"{result['cpu']}, {result['cores']} cores; jax {result['jax']}. `defocus blur` of a RAW file, {LENS} wide "
        f"open, focus {FOCUS_M} m, the built-in portrait, PSFs of three wavelengths that vary over the field. Files: "
        "decoding the RAW file, reading the depth, and writing a PNG.",
        "",
        "| size | seconds | layers, PSFs, render, sensor, files | layers | PSFs | kernel | device | host |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        stages = ", ".join(f"{r['stages'][name]:.1f}" for name in ("layers", "psfs", "render", "sensor", "files"))
        size = f"{r['size']}, first" if r["first"] else r["size"]
        cells = (size, f"{r['seconds']:.1f}", stages, r["layers"], r["psfs"], r["kernel_px"])
        lines.append("| " + " | ".join(map(str, (*cells, f"{r['device_GB']:.1f} GB", f"{r['host_GB']:.1f} GB"))) + " |")
    write_report(out, f"photograph_speed_{jax.default_backend()}", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
