"""Thousands of PSFs over a whole collection of lenses: how many succeed, how many are refused and why.

    python benchmarks/psf_many.py OUT_FOLDER LENS_FOLDER [COUNT]

Lens, field (anywhere in the image circle, its rim included), focus and depth are drawn at random: focus and depth
evenly in 1 / distance, from infinity down to 15 focal lengths. Nothing may be nan, and nothing may crash.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from defocus import Camera, PsfBatch
from defocus.camera import make_requests
from defocus.lens.formats import read_lens
from defocus.psf.bands import parse_bands
from defocus.psf.engine import PsfOptions, TracedRequests
from machine import machine

SIZE = 128
NEAREST = 15.0  # focal lengths


@dataclass(frozen=True)
class Draw:
    """What is asked for: a lens file, a camera, a depth and a field for each PSF."""

    names: list[str]
    cameras: list[Camera]
    depth_m: list[float]
    field: list[tuple[float, float]]


def draw(folder: Path, count: int, seed: int = 20) -> Draw:
    """Requests at random over the lenses of a folder."""
    files = sorted(folder.rglob("*.json"))
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(files)) for _ in range(-(-count // len(files)))])[:count]
    cameras = {i: Camera(read_lens(files[i])) for i in sorted(set(order.tolist()))}
    focal = np.array([abs(float(cameras[i].first_order.focal_length)) for i in order.tolist()])
    near = 1e3 / (NEAREST * focal)
    with np.errstate(divide="ignore"):
        depth, focus = (1.0 / (near * np.where(rng.random(count) < 0.1, 0.0, rng.random(count))) for _ in range(2))
    radius = np.where(rng.random(count) < 0.1, 1.0, np.sqrt(rng.random(count)))
    azimuth = rng.uniform(-np.pi, np.pi, count)
    return Draw(
        [files[i].relative_to(folder).as_posix() for i in order],
        [cameras[i].focused(float(f)) for i, f in zip(order.tolist(), focus, strict=True)],
        depth.tolist(),
        list(zip((radius * np.cos(azimuth)).tolist(), (radius * np.sin(azimuth)).tolist(), strict=True)),
    )


def kind(status: str) -> str:
    """A status without its numbers."""
    if status.startswith("needs"):
        return "needs too many samples"
    return (
        "more than a fifth of the light outside the window" if "% of the light" in status else status.partition(":")[0]
    )


def summary(drawn: Draw, batch: PsfBatch, seconds: float) -> dict[str, object]:
    names = drawn.names
    good = [r for r in batch.reports if r["status"] == "ok"]
    kinds = Counter(kind(r["status"]) for r in batch.reports)
    residual = np.array([r["residual_waves"] for r in good])
    worst = [i for i, r in enumerate(batch.reports) if "residual_waves" in r]
    order = sorted(worst, key=lambda i: -batch.reports[i]["residual_waves"])[:10]
    return {
        "device": jax.devices()[0].device_kind,
        **machine(),
        "requests": len(names),
        "lenses": len(set(names)),
        "seconds": seconds,
        "status": dict(kinds.most_common()),
        "not_finite": int((~np.isfinite(batch.psf)).sum()),
        "largest_sum_error": float(np.abs(batch.psf[batch.ok].sum(axis=(2, 3)) - 1.0).max()),
        "residual_waves": {q: float(np.quantile(residual, float(q))) for q in ("0.5", "0.95", "0.99", "0.999", "1")},
        "samples": {q: float(np.quantile([r["samples"] for r in good], float(q))) for q in ("0.5", "0.95", "1")},
        "worst_residuals": [
            {
                "lens": names[i],
                "field": float(np.hypot(*drawn.field[i])),
                "residual_waves": batch.reports[i]["residual_waves"],
                "blur_px": batch.reports[i]["blur_mm"] / float(batch.pixel_um[i]) * 1e3,
            }
            for i in order
        ],
        "refused_lenses": Counter(
            names[i] for i, r in enumerate(batch.reports) if r["status"].startswith("no ")
        ).most_common(40),
    }


def markdown(result: dict[str, object]) -> str:
    lines = [
        f"# {result['requests']} PSFs over {result['lenses']} lenses ({result['device']})",
        "",
        f"{SIZE}×{SIZE} pixels, d line, {result['seconds']:.0f} s in all, compilation included. Values that are not "
        f"finite: {result['not_finite']}; largest deviation of a sum from 1: {result['largest_sum_error']:.1e}.",
        "",
        "| outcome | number |",
        "| --- | --- |",
        *(f"| {status} | {count} |" for status, count in result["status"].items()),
        "",
        "| quantile | residual of the fit, waves RMS |",
        "| --- | --- |",
        *(f"| {q} | {value:.2g} |" for q, value in result["residual_waves"].items()),
        "",
        "| worst residuals | field | blur, px | waves RMS |",
        "| --- | --- | --- | --- |",
        *(
            f"| {r['lens']} | {r['field']:.2f} | {r['blur_px']:.0f} | {r['residual_waves']:.3g} |"
            for r in result["worst_residuals"]
        ),
    ]
    return "\n".join(lines) + "\n"


def main(out: Path, folder: Path, count: int) -> None:
    drawn = draw(folder, count)
    start, done = time.perf_counter(), [0.0]

    def progress(more: float) -> None:
        done[0] += more
        print(f"{done[0]:.0f} PSFs, {time.perf_counter() - start:.0f} s", flush=True)

    traced = TracedRequests(make_requests(drawn.cameras, drawn.depth_m, drawn.field), parse_bands("d"))
    batch = traced.psfs(SIZE, PsfOptions(), progress=progress)
    result = summary(drawn, batch, time.perf_counter() - start)
    out.mkdir(parents=True, exist_ok=True)
    (out / "psf_many.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "psf_many.md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 10_000)
