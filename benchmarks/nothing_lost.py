"""PSFs of 40 built-in lenses and the pairs of a small plan, of two versions of the package, compared.

    python benchmarks/nothing_lost.py record FOLDER [--sensors OLD]   # once with each version
    python benchmarks/nothing_lost.py compare OLD NEW [--out FOLDER]
    python benchmarks/nothing_lost.py --quick              # one lens, recorded once and compared with itself

`record` uses only what both versions have: `defocus.Camera` and `defocus synth run`. Focus, depths and pixels are
computed here, from the library's focal length and f-number, so that both versions are asked the same: the sensor is
sharp at 30 focal lengths, one point lies nearer and one farther, each with a blur radius of about eight pixels. With
--sensors the sensors of PSFs stand where the record in OLD has them: what remains is not of the focus.
`compare` writes nothing_lost.json and .md: relative L1 of each PSF, PSNR of each pair.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from machine import SMALL_LENS, SMALL_PLAN, amount, is_quick, read_arguments, write_report

LENSES, SIZE, BLUR_PX = amount(40, quick=1), amount(64, quick=32), 8.0
FIELDS = amount(((0.0, 0.0), (0.3, 0.4), (-0.5, 0.6)), quick=((0.3, 0.4),))
FARTHEST_M = 250.0
PLAN = """
name = "nothing lost"
seed = 11
[[sources]]
kind = "scenes"
count = 6
names = ["table", "letters", "portrait"]
[lenses]
only = ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*", "leica-*"]
[train]
pairs = 4
[validation]
pairs = 2
[test]
pairs = 2
[patch]
size = 128
kernel = 64
photograph = [384, 256]
[limits]
samples = 6000
[psf]
bands = "rgb"
[select]
surplus = 1.5
"""
L1_LIMIT, PSNR_LIMIT = 1e-5, 55.0


def record(folder: Path, sensors: Path | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record_psfs(folder, sensors)
    record_pairs(folder)


def record_psfs(folder: Path, sensors: Path | None) -> None:
    """All PSFs as one .npz file, LENS → float32 (points, bands, size, size), and their reports as JSON."""
    from defocus import Camera, list_lenses, load_lens

    library = list_lenses()
    old = {} if sensors is None else json.loads((sensors / "reports.json").read_text())
    chosen = (
        [entry for entry in library if entry.name == SMALL_LENS]
        if is_quick()
        else [library[round(k * (len(library) - 1) / (LENSES - 1))] for k in range(LENSES)]
    )
    arrays: dict[str, np.ndarray] = {}
    reports: dict[str, list[dict[str, Any]]] = {}
    for entry in chosen:
        focal, pitch_mm = entry.focal_length_mm, 2.0 * entry.image_radius_mm / 2019.0
        focus = 30.0 * focal
        vergence = 2.0 * BLUR_PX * pitch_mm * entry.f_number / focal**2  # 1/mm from the focus to that blur radius
        near = 1.0 / min(1.0 / focus + vergence, 1.0 / (8.0 * focal))
        far = 1.0 / max(1.0 / focus - vergence, 1e-3 / FARTHEST_M)
        points = [(depth * 1e-3, field) for field in FIELDS for depth in (near, far)]
        camera = Camera(load_lens(entry.name), focus_m=focus * 1e-3, pixel_um=pitch_mm * 1e3)
        if sensors is not None:
            camera = camera.shifted(old[entry.name][0]["sensor_z_mm"])
        batch = camera.psfs([depth for depth, _ in points], [field for _, field in points], SIZE, "d")
        arrays[entry.name] = np.asarray(batch.psf, np.float32)
        reports[entry.name] = [
            {"depth_m": depth, "field": field, **report}
            for (depth, field), report in zip(points, batch.reports, strict=True)
        ]
        print(f"{entry.name}: {[r['status'] for r in reports[entry.name]]}", flush=True)
    np.savez_compressed(folder / "psfs.npz", **arrays)  # type: ignore[arg-type]
    (folder / "reports.json").write_text(json.dumps(reports, indent=1, default=float) + "\n")


def record_pairs(folder: Path) -> None:
    plan = folder / "plan.toml"
    plan.write_text(PLAN)
    if is_quick():
        from defocus.synth.engines.local import LocalEngine
        from defocus.synth.plan import make_plan
        from defocus.synth.run import run_plan

        run_plan(make_plan(SMALL_PLAN), folder / "pairs", LocalEngine(1))
        return
    command = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", str(folder / "pairs")]
    subprocess.run(command, check=True)


def compare(old: Path, new: Path, out: Path) -> None:
    psfs, numbers = compare_psfs(old, new)
    pairs = compare_pairs(old, new)
    errors = np.array([row["relative_l1"] for row in psfs])
    compared = errors[np.isfinite(errors)]
    result = {
        "psfs": len(psfs),
        "psfs_with_light": len(compared),
        "status_changed": [row for row in psfs if row["status"][0] != row["status"][1]],
        "relative_l1": {"max": compared.max(), "median": float(np.median(compared))},
        "beyond_1e-5": [row for row in psfs if row["relative_l1"] > L1_LIMIT],
        "report_numbers": numbers,
        "psnr_db": pairs,
        "all_psfs": psfs,
    }
    write_report(out, "nothing_lost", result, markdown(result))


def compare_psfs(old: Path, new: Path) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A row for each PSF, and for each number of their reports its largest relative difference."""
    arrays = [np.load(folder / "psfs.npz") for folder in (old, new)]
    reports = [json.loads((folder / "reports.json").read_text()) for folder in (old, new)]
    rows: list[dict[str, Any]] = []
    numbers: dict[str, float] = {}
    for name in arrays[0]:
        for k, (a, b) in enumerate(zip(arrays[0][name], arrays[1][name], strict=True)):
            one, two = reports[0][name][k], reports[1][name][k]
            error = float(np.abs(a.astype(np.float64) - b).sum() / np.abs(a).sum()) if np.any(a) else float("nan")
            rows.append(
                {
                    "lens": name,
                    "field": one["field"],
                    "depth_m": one["depth_m"],
                    "relative_l1": error,
                    "status": [one["status"], two["status"]],
                }
            )
            for key in one.keys() & two.keys():
                if all(isinstance(report[key], float) for report in (one, two)) and one["status"] == "ok":
                    difference = abs(two[key] - one[key]) / max(abs(one[key]), 1e-12)
                    numbers[key] = max(numbers.get(key, 0.0), difference)
    return rows, dict(sorted(numbers.items()))


def compare_pairs(old: Path, new: Path) -> dict[str, float]:
    """PSNR in dB of each picture; infinite where all pixels agree, 0 where one version did not make it."""
    files = [{p.relative_to(f / "pairs").as_posix(): p for p in (f / "pairs").glob("*/*/*.png")} for f in (old, new)]
    psnr = dict.fromkeys(sorted(files[0].keys() ^ files[1].keys()), 0.0)  # of one version alone
    for name in sorted(files[0].keys() & files[1].keys()):
        a, b = (np.asarray(Image.open(side[name]), np.float64) / 255.0 for side in files)
        error = float(np.mean((a - b) ** 2))
        psnr[name] = -10.0 * float(np.log10(error)) if error else float("inf")
    return psnr


def markdown(result: dict[str, Any]) -> str:
    l1, psnr = result["relative_l1"], result["psnr_db"]
    lines = [
        "# Nothing lost: the same PSFs and the same pairs before and after",
        "",
        f"{result['psfs']} PSFs of {LENSES} built-in lenses ({SIZE} × {SIZE} pixels, {len(FIELDS)} fields, nearer and "
        f"farther than the focus), {result['psfs_with_light']} with light: relative L1 at most {l1['max']:.2g}, median "
        f"{l1['median']:.2g}; {len(result['beyond_1e-5'])} beyond {L1_LIMIT:g}, "
        f"{len(result['status_changed'])} with another status.",
        "",
        f"{len(psnr)} pictures of a small plan's pairs: least PSNR {min(psnr.values()):.1f} dB; "
        f"{sum(value < PSNR_LIMIT for value in psnr.values())} below {PSNR_LIMIT:g} dB; "
        f"{sum(value == float('inf') for value in psnr.values())} equal in every pixel.",
        "",
        "| number of a report | largest relative difference |",
        "| --- | --- |",
        *(f"| {key} | {value:.2g} |" for key, value in result["report_numbers"].items()),
    ]
    wrong = {json.dumps(row): row for row in [*result["beyond_1e-5"], *result["status_changed"]]}.values()
    if wrong:
        lines += ["", "| lens | field | depth, m | relative L1 | status |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {r['lens']} | {r['field']} | {r['depth_m']:.3g} | {r['relative_l1']:.2g} | {' → '.join(r['status'])} |"
            for r in wrong
        ]
    lines += ["", "| picture | PSNR, dB |", "| --- | --- |", *(f"| {k} | {v:.1f} |" for k, v in psnr.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", nargs="?", choices=("record", "compare"))
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--sensors", type=Path, help="an earlier record, whose sensors count")
    options = read_arguments(parser)
    if options.quick:
        record(options.out / "record")
        compare(options.out / "record", options.out / "record", options.out)
    elif options.step == "record" and len(options.folders) == 1:
        record(*options.folders, options.sensors)
    elif options.step == "compare" and len(options.folders) == 2:
        compare(*options.folders, options.out)
    else:
        parser.error("expected record FOLDER, or compare OLD NEW")


if __name__ == "__main__":
    main()
