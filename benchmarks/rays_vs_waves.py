"""How far PSFs of rays are from PSFs of light waves: random lenses, depths, fields, stops and pixels.

    python benchmarks/rays_vs_waves.py [--out FOLDER] [--cases N] [--seed N] [--lenses FOLDER] [--quick]

Each case is computed as the engine does it by default and with `exact`, in the window that its blur wants. Counted are
those for which the default takes rays: relative L1 between the two, against the engine's own estimate, in one colour
(the worst that can happen: all fringes at their strongest) and in red, green and blue. Writes rays_vs_waves.json and
.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from machine import SMALL_LENS, amount, machine, read_arguments, write_report

PIXELS_UM = (8.0, 16.0, 24.0, 36.0)
WINDOWS = amount((16, 32, 64, 96, 128), quick=(32,))


def cases(count: int, seed: int, folder: Path | None) -> dict[int, list[tuple[Any, float, tuple[float, float]]]]:
    """Cameras, depths (m) and fields by window."""
    from defocus import Camera, DefocusError, list_lenses, load_lens
    from defocus.psf.window import window_for

    names = amount([entry.name for entry in list_lenses()], quick=[SMALL_LENS])
    names += [] if folder is None else [str(file) for file in sorted(folder.rglob("*.json"))]
    dice = np.random.default_rng(seed)
    found: dict[int, list[tuple[Any, float, tuple[float, float]]]] = {}
    lenses: dict[str, Any] = {}
    while sum(map(len, found.values())) < count:
        name = str(dice.choice(names))
        focus_m, pixel_um = float(dice.choice([1.0, 2.0, 5.0])), float(dice.choice(PIXELS_UM))
        stop, ratio = float(dice.choice([1.0, 1.0, 1.4, 2.0])), float(np.exp(1.2 * dice.normal()))
        radius, turn = float(np.sqrt(dice.random())) * 0.9, dice.random() * 2.0 * np.pi
        try:
            lens = lenses.setdefault(name, load_lens(name))
            wide = Camera(lens, focus_m=focus_m, pixel_um=pixel_um)
            camera = Camera(lens, focus_m=focus_m, pixel_um=pixel_um, f_number=float(wide.f_number) * stop)
            window = window_for(camera.circle_of_confusion_px(focus_m * ratio))
        except DefocusError:
            continue
        if window in WINDOWS:
            place = radius * np.cos(turn), radius * np.sin(turn)
            found.setdefault(window, []).append((camera, focus_m * ratio, place))
    return found


def compare(found: dict[int, Any], bands: str) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The cases that take rays; seconds of both ways, compilation included."""
    from defocus import psfs

    rows: list[dict[str, Any]] = []
    seconds = {"default": 0.0, "exact": 0.0}
    for window, members in sorted(found.items()):
        cameras, depths, fields = map(list, zip(*members, strict=True))
        start = time.perf_counter()
        batch = psfs(cameras, depths, fields, window, bands, relative_illumination=False)
        seconds["default"] += time.perf_counter() - start
        rays = [i for i, report in enumerate(batch.reports) if report.get("propagation") == "rays"]
        if not rays:
            continue
        start = time.perf_counter()
        some = [cameras[i] for i in rays], [depths[i] for i in rays], [fields[i] for i in rays]
        exact = psfs(*some, window, bands, relative_illumination=False, exact=True)
        seconds["exact"] += time.perf_counter() - start
        for k, i in enumerate(rays):
            if exact.reports[k]["status"] == batch.reports[i]["status"] == "ok":
                difference = np.abs(exact.psf[k] - batch.psf[i]).sum((1, 2)).mean()
                rows.append(
                    {
                        "lens": cameras[i].lens.name,
                        "f_number": round(float(cameras[i].f_number), 2),
                        "pixel_um": float(cameras[i].pixel_um),
                        "window": window,
                        "depth_m": round(depths[i], 3),
                        "focus_m": float(cameras[i].focus_m),
                        "field": round(float(np.hypot(*fields[i])), 2),
                        "estimate": batch.reports[i]["ray_error"],
                        "relative_l1": float(difference),
                        "samples_of_waves": exact.reports[k]["samples"],
                        "cells": batch.reports[i]["samples"],
                    }
                )
            else:
                rows.append(
                    {"lens": cameras[i].lens.name, "statuses": [batch.reports[i]["status"], exact.reports[k]["status"]]}
                )
    return rows, seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=amount(200, quick=1))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lenses", type=Path)
    options = read_arguments(parser)
    found = cases(options.cases, options.seed, options.lenses)
    result: dict[str, Any] = {
        "machine": machine(),
        "cases": sum(map(len, found.values())),
        "seed": options.seed,
        "bands": {},
    }
    for bands in amount(("d", "rgb"), quick=("d",)):
        rows, seconds = compare(found, bands)
        result["bands"][bands] = {"seconds": seconds, "rows": rows}
    write_report(options.out, "rays_vs_waves", result, markdown(result))


def markdown(result: dict[str, Any]) -> str:
    import jax

    lines = [
        f"# PSFs of rays against PSFs of light waves ({jax.devices()[0].device_kind})",
        "",
        f"{result['machine']}; {result['cases']} random cases: lenses, focus, depth, field, stop, pixels of "
        f"{', '.join(f'{p:g}' for p in PIXELS_UM)} µm. Counted are those for "
        "which the engine takes rays: its estimate is at most 0.01.",
        "",
        "| bands | rays' | median | 95 % | worst | over estimate: median | worst | refused by one way alone |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for bands, part in result["bands"].items():
        rows = [row for row in part["rows"] if "relative_l1" in row]
        if rows:
            off = np.array([row["relative_l1"] for row in rows])
            ratio = off / np.array([row["estimate"] for row in rows])
            numbers = (*np.quantile(off, (0.5, 0.95, 1.0)), np.median(ratio), ratio.max())
            lines.append(
                f"| {bands} | {len(rows)} | " + " | ".join(f"{v:.4f}" for v in numbers[:3]) + " | "
                + " | ".join(f"{v:.2f}" for v in numbers[3:]) + f" | {len(part['rows']) - len(rows)} |"
            )  # fmt: skip
    worst = sorted(
        (row for row in result["bands"]["d"]["rows"] if "relative_l1" in row), key=lambda row: -row["relative_l1"]
    )
    lines += [
        "",
        "The worst, in one colour:",
        "",
        "| lens | f/ | pixel / µm | field | window | estimate | relative L1 |",
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [
        f"| {row['lens']} | {row['f_number']} | {row['pixel_um']:g} | {row['field']} | {row['window']} | "
        f"{row['estimate']:.4f} | {row['relative_l1']:.4f} |"
        for row in worst[:12]
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
