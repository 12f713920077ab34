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
from pathlib import Path

import jax
import numpy as np
from defocus.psf.compute import PsfBatch, psf_batch

from defocus.lens.formats import read_lens
from defocus.optics.paraxial import first_order_batch
from defocus.optics.system import group_by_bucket, pack

SIZE = 128
NEAREST = 15.0  # focal lengths


def draw(folder: Path, count: int, seed: int = 20) -> tuple[list[str], dict[str, object]]:
    """The names of the lenses, and the requests as arguments of `psf_batch`."""
    files = sorted(folder.rglob("*.json"))
    lenses = [read_lens(file) for file in files]
    focal = np.zeros(len(lenses))
    for shape, members in group_by_bucket(lenses):
        focal[members] = np.asarray(first_order_batch(pack([lenses[i] for i in members], bucket=shape)).focal_length)
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([rng.permutation(len(files)) for _ in range(-(-count // len(files)))])[:count]
    radius = np.array([lenses[i].image_radius for i in chosen])
    near = 1.0 / (NEAREST * np.abs(focal[chosen]))
    with np.errstate(divide="ignore"):
        depth, focus = (1.0 / (near * np.where(rng.random(count) < 0.1, 0.0, rng.random(count))) for _ in range(2))
    field = np.where(rng.random(count) < 0.1, 1.0, np.sqrt(rng.random(count)))
    return [files[i].relative_to(folder).as_posix() for i in chosen], {
        "lenses": [lenses[i] for i in chosen],
        "height_mm": field * radius,
        "azimuth": rng.uniform(-np.pi, np.pi, count),
        "depth_mm": depth,
        "focus_mm": focus,
        "pixel_um": 2e3 * radius / np.hypot(1680.0, 1120.0),
    }


def kind(status: str) -> str:
    """A status without its numbers."""
    return "needs too many samples" if status.startswith("needs") else status.partition(":")[0]


def summary(names: list[str], request: dict[str, object], batch: PsfBatch, seconds: float) -> dict[str, object]:
    good = [r for r in batch.reports if r["status"] == "ok"]
    kinds = Counter(kind(r["status"]) for r in batch.reports)
    residual = np.array([r["residual_waves"] for r in good])
    order = np.argsort([-r.get("residual_waves", 0.0) for r in batch.reports])[:10]
    radius = np.array([lens.image_radius for lens in request["lenses"]])
    return {
        "device": jax.devices()[0].device_kind,
        "requests": len(names),
        "lenses": len(set(names)),
        "seconds": seconds,
        "status": dict(kinds.most_common()),
        "not_finite": int((~np.isfinite(batch.psf)).sum()),
        "largest_sum_error": float(np.abs(batch.psf[batch.ok].sum(axis=(2, 3)) - 1.0).max()),
        "residual_waves": {q: float(np.quantile(residual, float(q))) for q in ("0.5", "0.95", "0.99", "0.999", "1")},
        "samples": {q: float(np.quantile([r["samples"] for r in good], float(q))) for q in ("0.5", "0.95", "1")},
        "more_than_a_fifth_outside": int(sum(r["energy_outside"] > 0.2 for r in good)),
        "worst_residuals": [
            {
                "lens": names[i],
                "field": float(request["height_mm"][i] / radius[i]),
                "residual_waves": batch.reports[i].get("residual_waves"),
                "blur_px": batch.reports[i].get("blur_mm", 0.0) / request["pixel_um"][i] * 1e3,
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
        f"Of those computed, {result['more_than_a_fifth_outside']} lose more than a fifth of their light outside the "
        "window; `Camera.psf` refuses these and says which window would hold them.",
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
    names, request = draw(folder, count)
    start = time.perf_counter()
    batch = psf_batch(
        **request, size=SIZE, bands="d", progress=lambda n: print(n, time.perf_counter() - start, flush=True)
    )
    result = summary(names, request, batch, time.perf_counter() - start)
    out.mkdir(parents=True, exist_ok=True)
    (out / "psf_many.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "psf_many.md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 10_000)
