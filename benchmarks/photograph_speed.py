"""Whole photographs through a real lens: time of each stage and peak memory.

    python benchmarks/photograph_speed.py [WIDTHxHEIGHT ...] [--out FOLDER] [--quick]

The scene is the built-in portrait, made at 1680×1120 and scaled to the size asked for; PSFs of an 85 mm lens at f/1.2
vary over the field. The first photograph of each size compiles; the second is the one that counts.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import jax
import numpy as np

from defocus import Camera
from defocus.lens import load_lens
from defocus.scene.procedural import make_scene
from machine import ONE_PSF, SMALL_CAMERA, SMALL_PX, amount, machine, read_arguments, write_report

LENS, FOCUS_M = "canon-rf-85-f1.2", 1.52  # wide open
MADE = amount((1680, 1120), quick=SMALL_PX)


def scaled(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Nearest pixels: the content does not matter here, the size does."""
    rows = (np.arange(size[1]) * values.shape[0] // size[1])[:, None]
    return values[rows, np.arange(size[0]) * values.shape[1] // size[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sizes", nargs="*", default=amount(["1680x1120", "6000x4000"], quick=["64x48"]))
    options = read_arguments(parser)
    out, sizes = options.out, [tuple(map(int, text.split("x"))) for text in options.sizes]
    lens = load_lens(LENS)
    seen = make_scene("portrait", MADE).picture(samples=1)
    rows = []
    for size in sizes:
        camera = Camera(lens, focus_m=FOCUS_M, **amount({"pixels": size}, quick=SMALL_CAMERA))
        linear, depth = scaled(seen.linear, size), scaled(seen.depth_m, size)
        for again in (False, True):
            start = time.perf_counter()
            photo = camera.photograph(linear, depth, **amount({}, quick=ONE_PSF))
            seconds = time.perf_counter() - start
            report = photo.report
            memory = jax.devices()[0].memory_stats() or {}
            rows.append(
                {
                    "size": f"{size[0]}×{size[1]}",
                    "first": not again,
                    "seconds": seconds,
                    "stages": report["seconds"],
                    "layers": report["layers"],
                    "kernel_px": report["kernel_px"],
                    "coc_px": report["coc_px"],
                    "nodes": report["nodes"],
                    "psfs": report["psfs_computed"],
                    "device_GB": memory.get("peak_bytes_in_use", 0) / 1e9,
                    "host_GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
                    "finite": bool(np.isfinite(photo.blurred.linear).all()),
                }
            )
            print(rows[-1], flush=True)
            write(out, rows)


def write(out: Path, rows: list[dict[str, object]]) -> None:
    result = {"device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})", **machine(), "rows": rows}
    lines = [
        f"# Whole photographs on {result['device']}",
        "",
        f"{result['cpu']}, {result['cores']} cores; jax {result['jax']}. {LENS} wide open, focus {FOCUS_M} m, "
        "the built-in portrait, PSFs of three wavelengths that vary over the field.",
        "",
        "| size | seconds | layers, PSFs, render, sensor | layers | PSFs | kernel | device | host |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        stages = ", ".join(f"{r['stages'][name]:.1f}" for name in ("layers", "psfs", "render", "sensor"))
        size = f"{r['size']}, first" if r["first"] else r["size"]
        cells = (size, f"{r['seconds']:.1f}", stages, r["layers"], r["psfs"], r["kernel_px"])
        lines.append("| " + " | ".join(map(str, (*cells, f"{r['device_GB']:.1f} GB", f"{r['host_GB']:.1f} GB"))) + " |")
    write_report(out, f"photograph_speed_{jax.default_backend()}", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
