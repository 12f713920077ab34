"""PSFs against the ray-exact Huygens sum: lenses × fields × blur sizes, pixel-integrated on both sides.

    python benchmarks/psf_vs_huygens.py [LENSES] [--paper] [--beyond] [--drawn] [--out FOLDER] [--quick]
    python benchmarks/psf_vs_huygens.py [LENSES] --samples [--out FOLDER]
    python benchmarks/psf_vs_huygens.py --figure FILE.png [--out FOLDER]

Also doubles the number of samples; with --paper, compares the paper's own PSF as well (its exit-pupil sphere, fitted
clipping and constant amplitude). Points are nearer than the focus; with --beyond, farther. Sums over whole windows want
a GPU; with --drawn, a processor sums over pixels that are drawn at random, brighter ones more often, until the distance
is known to a tenth. The second form compares with nothing but many more samples, and takes a minute; the third draws
the worst cases of a run over whole windows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from defocus import Camera, list_lenses, load_lens
from defocus.lens.prescription import Lens
from defocus.optics.paraxial import FirstOrder, image_position
from defocus.point_requests import make_requests
from defocus.psf.bands import parse_bands
from defocus.psf.engine import PsfOptions, TracedRequests
from defocus.psf.huygens import huygens, huygens_psf, sphere_patches
from defocus.psf.paper import PAPER
from defocus.psf.poses import Requests
from machine import SMALL_LENS, SMALL_PSF, amount, is_quick, machine, read_arguments, write_report

FIELDS = amount((0.0, 0.5, 0.7, 0.9), quick=(0.5,))
COC_PX = amount((-2.0, -8.0, -24.0), quick=(-2.0,))
BEYOND_PX = (2.0, 8.0)
SIZE, SUPERSAMPLE, RAYS = amount((64, 5, None), quick=(SMALL_PSF["size"], 5, 32))
BANDS = parse_bands("d")
DRAWN, MOST_DRAWN = amount((32, 2048), quick=(8, 8))  # pixels at a time and at most
FINE = amount(2048, quick=256)  # samples at least, of what --samples compares with
ERROR, ERRORS = 0.1, (2e-4, 1e-3)  # standard error at which no more are drawn: in parts of the distance, within limits


def choose(count: int) -> list[tuple[str, Lens]]:
    """A spread over the library: phones are every fourth lens or so."""
    if is_quick():
        return [(SMALL_LENS, load_lens(SMALL_LENS))]
    entries = list(list_lenses())
    phones = [e for e in entries if e.category == "phone"]
    others = [e for e in entries if e.category != "phone"]
    phone_count = min(max(4, count // 5), count - 1)
    picked = [phones[i] for i in np.linspace(0, len(phones) - 1, phone_count).astype(int)]
    picked += [others[i] for i in np.linspace(0, len(others) - 1, count - phone_count).astype(int)]
    return [(e.name, load_lens(e.name)) for e in picked]


def depth_of_confusion(lens: FirstOrder, radius: float, focus: float) -> float:
    """Depth (mm) whose signed circle of confusion is `radius` (mm) when the sensor is focused on `focus` (mm).

    A radius larger than that of a point at infinity has no depth: the result is then negative or inf.
    """
    # With T the exit pupil's distance to the focal point and k = R / T, R (d_sensor / d_image − 1) = radius gives the
    # image's distance from the focal point below; Newton's x x' = −f f' its depth.
    slope = float(lens.entrance_pupil_radius / lens.focal_length)
    inverse_distance = 1.0 / float(lens.back_focal_distance - lens.exit_pupil)
    sensor = float(image_position(lens, np.float64(focus)) - lens.back_focal_distance)
    beyond = (sensor * slope - radius) / (slope + radius * inverse_distance)
    product = float(lens.focal_length**2 * lens.object_index / lens.image_index)
    return product / beyond + float(lens.front_focus) if beyond else float("inf")


def drawn_distance(requests: Requests, row: int, ours: np.ndarray, outside: float) -> dict[str, Any]:
    """Relative L1 between one of our PSFs, which loses a part of its light, and the Huygens sum, from drawn pixels.

    Both are compared as parts of what falls into the window. A pixel is drawn with a probability that follows our PSF,
    a tenth of the draws over all pixels alike.
    """
    (patches,), report = sphere_patches(requests, row, BANDS, SIZE, rays=RAYS)
    pixel, azimuth = (jnp.asarray(v[row]) for v in (requests.points.pixel, requests.points.azimuth))
    probability = 0.9 * ours.ravel() / ours.sum() + 0.1 / ours.size
    rng = np.random.default_rng(row)
    chosen, truth = np.zeros(0, int), np.zeros(0)
    while True:
        new = rng.choice(ours.size, DRAWN, p=probability / probability.sum())
        places = jnp.asarray(np.stack(np.unravel_index(new, ours.shape), axis=1))
        light = huygens(patches, pixel, azimuth, places, size=SIZE, supersample=SUPERSAMPLE)
        chosen, truth = np.concatenate([chosen, new]), np.concatenate([truth, np.asarray(light, float)])
        here, weight = ours.ravel()[chosen].astype(float), 1.0 / probability[chosen]
        inside = 1.0 - outside + np.mean((truth - here * (1.0 - outside)) * weight)
        apart = np.abs(here - truth / inside) * weight
        mean, error = apart.mean(), apart.std(ddof=1) / np.sqrt(len(apart))
        if len(chosen) >= MOST_DRAWN or error < np.clip(ERROR * mean, *ERRORS):
            numbers = {
                "relative_l1": mean,
                "standard_error": error,
                "pixels": len(chosen),
                "huygens_outside": 1.0 - inside,
            }
            return {name: float(v) for name, v in numbers.items()} | {"rays": report["samples"]}


def find_cases(
    count: int, circles: tuple[float, ...]
) -> tuple[list[tuple[str, Camera, float, float, float]], Requests]:
    """Lens, camera, field, circle of confusion in pixels and depth in metres of every case, and their requests."""
    cases: list[tuple[str, Camera, float, float, float]] = []
    for name, lens in choose(count):
        camera = Camera(lens)
        data = camera.first_order
        focus = 40.0 * float(data.focal_length)
        camera = camera.focused(focus * 1e-3)
        for coc in circles:
            radius = coc * float(camera.pixel_um) * 1e-3
            depth = depth_of_confusion(data, radius, focus)
            if 0.0 < depth < float("inf"):  # a circle that is too large lies beyond infinity
                cases += [(name, camera, field, coc, depth * 1e-3) for field in FIELDS]
    requests = make_requests([c[1] for c in cases], [c[4] for c in cases], [(0.0, c[2]) for c in cases])
    return cases, requests


def compare_samples(out: Path, options: argparse.Namespace, circles: tuple[float, ...]) -> None:
    """What the number of samples leaves: against 2048 of them, or twice as many where that is more."""
    cases, requests = find_cases(options.lenses, circles)
    traced = TracedRequests(requests, BANDS)
    ours = traced.psfs(SIZE, PsfOptions(supersample=SUPERSAMPLE))
    counts = {i: int(report["samples"]) for i, report in enumerate(ours.reports) if report["status"] == "ok"}
    distance: dict[int, float] = {}
    for fine in sorted({max(FINE, 2 * count) for count in counts.values()}):
        members = [i for i, count in counts.items() if max(FINE, 2 * count) == fine]
        exact = traced.psfs(SIZE, PsfOptions(samples=fine, supersample=SUPERSAMPLE), members).psf
        distance |= {i: float(np.abs(ours.psf[i, 0] - own[0]).sum()) for i, own in zip(members, exact, strict=True)}
    rows = [{"lens": cases[i][0], "field": cases[i][2], "coc_px": cases[i][3], "samples": counts[i],
             "relative_l1": distance[i]} for i in counts]  # fmt: skip
    values, work = list(distance.values()), sum(count**2 for count in counts.values()) / len(counts)
    numbers = (np.median(values), np.percentile(values, 95), max(values))
    text = [
        "# What the number of samples across the pupil leaves of the error", "",
        f"{len(rows)} PSFs of {SIZE} × {SIZE} pixels, d line, {SUPERSAMPLE} points per pixel, the cases of "
        f"psf_vs_huygens.md: relative L1 to {FINE} samples or twice as many. Samples squared are the work: {work:,.0f} "
        "on average.", "", "| median | 95 % | worst |", "| --- | --- | --- |",
        "| " + " | ".join(f"{number:.1e}" for number in numbers) + " |",
    ]  # fmt: skip
    write_report(out, "psf_samples", {"machine": machine(), "size": SIZE, "rows": rows}, "\n".join(text) + "\n")


def compare(out: Path, options: argparse.Namespace, circles: tuple[float, ...], stem: str) -> None:
    """Compare every case, writing the report after each lens."""
    cases, requests = find_cases(options.lenses, circles)
    start = time.perf_counter()
    traced = TracedRequests(requests, BANDS)
    ours = traced.psfs(SIZE, PsfOptions(supersample=SUPERSAMPLE))
    print(f"{len(cases)} PSFs in {time.perf_counter() - start:.1f} s", flush=True)
    published = TracedRequests(requests, BANDS, PAPER).psfs(SIZE, PsfOptions()) if options.paper else None
    doubled: dict[int, np.ndarray] = {}
    for samples in sorted({int(r["samples"]) for r in ours.reports if r["status"] == "ok"}):
        members = [i for i, r in enumerate(ours.reports) if r["status"] == "ok" and r["samples"] == samples]
        again = traced.psfs(SIZE, PsfOptions(samples=2 * samples, supersample=SUPERSAMPLE), members)
        doubled |= dict(zip(members, again.psf, strict=True))
    rows: list[dict[str, Any]] = []
    truths = np.zeros((len(cases), SIZE, SIZE), np.float32)
    for i, (name, _, field, coc, depth) in enumerate(cases):
        report = ours.reports[i]
        row = {"lens": name, "field": field, "coc_px": coc, "depth_mm": depth * 1e3, "status": report["status"]}
        if row["status"] == "ok":
            start = time.perf_counter()
            if options.drawn:
                row |= drawn_distance(requests, i, ours.psf[i, 0], report["energy_outside"])
            else:
                truth, sums = huygens_psf(requests, i, BANDS, SIZE, supersample=SUPERSAMPLE, rays=RAYS)
                truths[i] = truth[0]
                row |= {"relative_l1": float(np.abs(ours.psf[i, 0] - truths[i]).sum()), "rays": sums["samples"]}
            row |= {
                "doubling": float(np.abs(ours.psf[i, 0] - doubled[i][0]).sum()),
                **{key: report[key] for key in ("samples", "residual_waves", "energy_outside")},
                "huygens_s": time.perf_counter() - start,
            }
            if published is not None and published.ok[i]:
                row["paper"] = float(np.abs(published.psf[i, 0] - truths[i]).sum())
        rows.append(row)
        if i % len(FIELDS) == len(FIELDS) - 1:
            device = machine()["cpu"] if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
            result = {"device": device, "jax": jax.__version__, "size": SIZE, "rows": rows}
            write_report(out, stem, result, markdown(result))
    if not options.drawn:
        np.savez_compressed(out / f"{stem}.npz", ours=ours.psf[:, 0], huygens=truths)


def markdown(result: dict[str, Any]) -> str:
    rows = [r for r in result["rows"] if r["status"] == "ok"]
    circles = sorted({r["coc_px"] for r in rows}, key=abs)
    errors = np.array([r["relative_l1"] for r in rows])
    lines = [
        f"# PSFs against the ray-exact Huygens sum ({result['device']})",
        "",
        f"{len(rows)} of {len(result['rows'])} cases, {len({r['lens'] for r in rows})} lenses, fields "
        f"{tuple(sorted({r['field'] for r in rows}))}, "
        f"circles of confusion {circles} px (negative: nearer than the focus), "
        f"{result['size']}×{result['size']} px, d line, pixel-integrated (u = {SUPERSAMPLE}).",
        "",
        *(_of_drawn_pixels(rows) if "pixels" in rows[0] else ()),
        "| | median | 95 % | worst |",
        "| --- | --- | --- | --- |",
    ]
    for key in ("relative_l1", *(("paper",) if "paper" in rows[0] else ()), "doubling"):
        v = np.array([r[key] for r in rows])
        lines.append(f"| {key} | {np.nanmedian(v):.4f} | {np.nanquantile(v, 0.95):.4f} | {np.nanmax(v):.4f} |")
    lines += ["", f"At most 0.03: {int((errors <= 0.03).sum())} of {len(rows)}.", "", "The worst:", ""]
    lines += [
        "| lens | field | CoC / px | relative L1 | doubling N | N | residual / waves |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in sorted(rows, key=lambda r: -r["relative_l1"])[:15]:
        numbers = (f"{r['coc_px']:g}", f"{r['relative_l1']:.4f}", f"{r['doubling']:.1e}", f"{r['samples']}")
        lines.append("| " + " | ".join([r["lens"], f"{r['field']}", *numbers, f"{r['residual_waves']:.4f}"]) + " |")
    refused = [r for r in result["rows"] if r["status"] != "ok"]
    lines += ["", *(f"- {r['lens']}, field {r['field']}, CoC {r['coc_px']:g} px: {r['status']}" for r in refused)]
    return "\n".join(lines) + "\n"


def _of_drawn_pixels(rows: list[dict[str, Any]]) -> list[str]:
    """What a reader must know of distances that were taken from drawn pixels."""
    pixels, errors = ([r[key] for r in rows] for key in ("pixels", "standard_error"))
    return [
        f"The sum was taken in pixels drawn at random, {min(pixels):.0f} to {max(pixels):.0f} of each window; the "
        f"standard error of a distance is {np.median(errors):.1g} in the middle and {max(errors):.1g} at most.",
        "",
    ]


def figure(out: Path, file: Path) -> None:
    """The worst of five lenses and a middling one: ours, the Huygens sum, and their difference."""
    from matplotlib.figure import Figure

    rows = json.loads((out / "psf_vs_huygens.json").read_text())["rows"]
    kept = np.load(out / "psf_vs_huygens.npz")
    order = sorted((i for i, r in enumerate(rows) if r["status"] == "ok"), key=lambda i: -rows[i]["relative_l1"])
    worst: dict[str, int] = {}
    for i in order:
        worst.setdefault(rows[i]["lens"], i)
    shown = [*list(worst.values())[:5], order[len(order) // 2]]
    drawn = Figure(figsize=(2.0 * len(shown), 6.6), layout="constrained")
    axes = drawn.subplots(3, len(shown))
    for column, i in enumerate(shown):
        ours, truth = kept["ours"][i], kept["huygens"][i]
        top = truth.max()
        for row, (picture, low) in enumerate(((ours, 0.0), (truth, 0.0), (ours - truth, -0.1 * top))):
            high = top if low == 0.0 else -low
            axes[row, column].imshow(picture, cmap="inferno" if low == 0.0 else "RdBu", vmin=low, vmax=high)
            axes[row, column].set_xticks([])
            axes[row, column].set_yticks([])
        r = rows[i]
        title = f"{r['lens']}\nfield {r['field']:g}, {r['coc_px']:g} px\nL1 {r['relative_l1']:.4f}"
        axes[0, column].set_title(title, fontsize=7)
    for row, name in enumerate(("ours", "Huygens sum", "difference, ±10 % of the peak")):
        axes[row, 0].set_ylabel(name, fontsize=8)
    drawn.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lenses", nargs="?", type=int, default=20)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--beyond", action="store_true")
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--figure", type=Path)
    options = read_arguments(parser)
    if options.figure is None or options.quick:
        circles, stem = (BEYOND_PX, "psf_vs_huygens_beyond") if options.beyond else (COC_PX, "psf_vs_huygens")
        if options.samples or options.quick:
            compare_samples(options.out, options, circles)
        if not options.samples:
            compare(options.out, options, circles, f"{stem}_drawn" if options.drawn else stem)
    if options.figure is not None:
        figure(options.out, options.figure)


if __name__ == "__main__":
    main()
