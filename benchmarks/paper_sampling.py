"""How many samples does a defocused PSF take? Section 5.3 of the paper: its bound, and the Rayleigh–Sommerfeld sum.

    python benchmarks/paper_sampling.py [--lens FILE] [--pixel-um 6.5] [--supersample 5] [--keep FILE] [--out FOLDER]
    python benchmarks/paper_sampling.py --quick           # another lens, few pixels and samples

JP 2017-003807 Example 4 (Nikon AF-S 24 mm f/1.8G ED), a point on the axis at 0.8 m, the sensor focused at infinity,
64 × 64 pixels, d line. The paper gives N_inf = 366, takes 2 N_inf = 732 samples for its own transform, and sums over
N × N points of the exit pupil sphere, N = 64, 96 … 256, for comparison.

What is measured
1. N_inf, and our PSF at 2 N_inf and at the number of samples that the rays ask for.
2. The Rayleigh–Sommerfeld sum over the wavefront fitted on the exit pupil sphere: its relative L1 to our PSF, its time,
   and the largest phase step between neighbouring samples over all the window, from the very phases that are summed.
3. From which N on that sum is right, along the window's middle row where replicas arrive first, for two pixel pitches.

The paper does not say how large its pixels are. 6.5 µm make the smallest window of 64 pixels, in steps of half a
micrometre, that holds this blur; the second pitch is that of 1680 × 1120 pixels on full frame, as in DPDD's
photographs.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from defocus import Camera
from defocus.draw import style
from defocus.draw.psf_plot import paint_psf, psf_scale_bar, tile_side
from defocus.draw.sheet import Sheet
from defocus.lens import load_lens
from defocus.lens.formats import read_lens
from defocus.lens.prescription import D_LINE_NM
from defocus.optics.paraxial import FirstOrder
from defocus.optics.wavefront import Wavefront
from defocus.point_requests import make_requests
from defocus.psf.bands import parse_bands
from defocus.psf.engine import PsfOptions
from defocus.psf.huygens import Patches, _sum_wavelets, huygens
from defocus.psf.paper import paper_wavefront
from defocus.psf.poses import Points, Pose, find_pose
from defocus.psf.propagate import Intensity, Transform, chirp_z, intensity, matrix_dft, window_axis
from defocus.psf.pupil_function import PupilFunction, grid_axis, pupil_mask, turn
from defocus.psf.sampling import bucket
from machine import RESULTS, SMALL_LENS, SMALL_PSF, amount, machine, median_seconds, read_arguments, write_report

PAPER_BOUND = 366
SIZE = amount(64, quick=SMALL_PSF["size"])
SHOWN = 11  # of the sums, in the figure
DEPTH_M = amount(0.8, quick=8.0)
AXIS = (0.0, 0.0)
KERNELS: dict[str, Transform] = {"matrix": matrix_dft, "chirp-z": chirp_z}
SAMPLES = amount(  # the paper stops at 256
    (64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 512, 768), quick=(32, 48)
)
FULL_FRAME = (1680, 1120)
ROW_SUPERSAMPLE = amount(5, quick=1)
VALID = 0.03  # relative L1
ROOT = Path(__file__).resolve().parents[1]
LENS = ROOT / "benchmarks/nikon-nikkor-24-f1.8.json"


def l1(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).sum() / b.sum())


# --- our PSF ----------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("samples", "supersample", "kernel"))
def propagated(
    pupil: PupilFunction, pixel: jax.Array, *, samples: int, supersample: int, kernel: str = "matrix"
) -> Intensity:
    """The propagation alone, by one of the kernels."""
    return intensity(
        pupil, pixel, samples=samples, size=SIZE, supersample=supersample, transform=KERNELS[kernel], dtype=jnp.float32
    )


def ours(camera: Camera, supersample: int) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Numbers, the PSF at the paper's 2 N_inf samples, and the one at as many as the rays ask for."""
    traced = camera.trace([DEPTH_M], [AXIS], "d")
    report = traced.psfs(SIZE, PsfOptions(supersample=supersample)).reports[0]
    pupil = jax.tree.map(lambda leaf: leaf[0, 0], camera.wavefronts([DEPTH_M], [AXIS], "d").pupil)
    pixel = jnp.array(float(camera.pixel_um) * 1e-3)
    bound = 2.0 * report["sampling_bound"]
    rows, psfs = [], {}
    sizes = {"2 N_inf": round(bound), "paper": bucket(bound), "rays": int(report["samples"])}
    for name, samples in amount(sizes, quick={"2 N_inf": 256, "rays": 256}).items():
        psfs[name] = traced.psfs(SIZE, PsfOptions(samples=samples, supersample=supersample)).psf[0, 0]
        doubled = traced.psfs(SIZE, PsfOptions(samples=2 * samples, supersample=supersample)).psf[0, 0]
        row = {"sampling": name, "samples": samples, "relative_l1_to_twice_as_many": l1(psfs[name], doubled)}
        for kernel in KERNELS:
            row[f"propagation_{kernel}_s"] = median_seconds(
                lambda k=kernel, n=samples: propagated(pupil, pixel, samples=n, supersample=supersample, kernel=k), 7
            )
        row["with_trace_and_fit_s"] = median_seconds(
            lambda n=samples: camera.psfs([DEPTH_M], [AXIS], SIZE, "d", samples=n, supersample=supersample).psf, 5
        )
        rows.append(row)
    numbers = {k: report[k] for k in ("sampling_bound", "samples_needed", "blur_mm", "energy_outside")}
    return numbers | {"rows": rows}, psfs["2 N_inf"], psfs["rays"]


# --- the Rayleigh–Sommerfeld sum --------------------------------------------------------------------------------------


def lit(patches: Patches) -> Patches:
    """Only the patches that shine."""
    keep = np.flatnonzero(np.asarray(patches.weight) > 0.0)
    return Patches(patches.back[keep], patches.waves[keep], patches.weight[keep], patches.wavelength)


def largest_step(patches: Patches, samples: int, pixel: float) -> float:
    """Waves by which the path from neighbouring samples differs at most, over the window's corners and edges."""
    back, waves = (np.asarray(v, float) for v in (patches.back, patches.waves))
    shines = np.asarray(patches.weight).reshape(samples, samples) > 0.0
    # Pixel SIZE // 2 has its centre on the point, so that the window reaches half a pixel farther left and down.
    ends = (-(SIZE + 1) / 2.0 * pixel, 0.0, (SIZE - 1) / 2.0 * pixel)
    worst = 0.0
    for x in ends:
        for y in ends:
            moved = np.linalg.norm(back + np.array([x, y, 0.0]), axis=1) - np.linalg.norm(back, axis=1)
            path = (waves + moved / float(patches.wavelength)).reshape(samples, samples)
            for axis in (0, 1):
                both = np.minimum.reduce([np.delete(shines, -1, axis), np.delete(shines, 0, axis)])
                worst = max(worst, float(np.abs(np.diff(path, axis=axis))[both].max()))
    return worst


def sum_over_window(patches: Patches, pixel: float, supersample: int) -> tuple[np.ndarray, float]:
    """The PSF and the time that the sum takes, compilation apart."""
    step = jnp.array(pixel)
    program = huygens.lower(patches, step, size=SIZE, supersample=supersample).compile()
    if jax.default_backend() != "cpu":  # whose first run of a program also copies it to the device
        jax.block_until_ready(program(patches, step))
    start = time.perf_counter()
    light = jax.block_until_ready(program(patches, step))
    seconds = time.perf_counter() - start
    psf = np.asarray(light, float).reshape(SIZE, SIZE)
    return psf / psf.sum(), seconds


@jax.jit
def sum_over_row(patches: Patches, x: jax.Array) -> jax.Array:
    """Intensity at points (x, 0) of the sensor."""
    waves = patches.waves - jnp.mean(patches.waves)
    waves = (waves - jnp.round(waves)).astype(jnp.float32)
    points = jnp.stack([x, jnp.zeros_like(x)]).astype(jnp.float32)
    weight = patches.weight.astype(jnp.float32)
    return _sum_wavelets(points, patches.back.astype(jnp.float32), waves, weight, patches.wavelength)


def scan(wavefront: Wavefront, pose: Pose, pixel: float, bound: float) -> dict[str, Any]:
    """Errors along the middle row against a sum with twice the bound's samples, N around the bound."""
    x = window_axis(SIZE, jnp.array(pixel), ROW_SUPERSAMPLE)

    def row(samples: int) -> np.ndarray:
        patches = patches_from_wavefront(wavefront, pose.data, pose.sensor_z, samples=samples)
        return np.asarray(sum_over_row(lit(patches), x), float) / float(samples) ** 4

    step = 16 if bound < 500 else 32
    truth = row(amount(int(math.ceil(2.0 * bound / step) * step), quick=48))
    counts = amount(range(int(0.6 * bound / step) * step, int(1.35 * bound), step), quick=range(32, 48, step))
    errors = {n: l1(row(n), truth) for n in counts}
    valid_from = max((n for n, error in errors.items() if error > VALID), default=0) + step
    return {
        "pixel_um": pixel * 1e3,
        "bound": bound,
        "valid_from": valid_from,
        "step": step,
        "errors": errors,
    }


@partial(jax.jit, static_argnames=("samples",))
def patches_from_wavefront(
    wavefront: Wavefront, data: FirstOrder, sensor_z: Float[Array, ""], *, samples: int
) -> Patches:
    """samples × samples of them over the pupil of a wavefront in its exit-pupil form."""
    pupil_function = turn(wavefront, jnp.asarray(jnp.pi / 2.0))
    wave, amplitude, mask = pupil_mask(pupil_function, samples, jnp.dtype(jnp.float64))
    g = grid_axis(samples)
    s_x, s_y = jnp.meshgrid(*(pupil_function.centre[i] + pupil_function.half[i] * g for i in (0, 1)))
    s_z = jnp.sqrt(jnp.maximum(1.0 - s_x**2 - s_y**2, 1e-9))
    s = jnp.stack([s_x, s_y, s_z]).reshape(3, -1)
    pupil = jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane])
    radius = jnp.linalg.norm(wavefront.focus - pupil)
    centre = jnp.stack([jnp.zeros(()), wavefront.image_height, sensor_z])
    q = wavefront.focus[:, None] - radius * s
    # W is the path to the plane through the window's centre normal to s: back to the sphere, on to the centre itself.
    to_plane = radius + jnp.sum(s * (centre - wavefront.focus)[:, None], axis=0)
    distance = jnp.linalg.norm(centre[:, None] - q, axis=0)
    waves = wave.ravel() + (distance - to_plane) / wavefront.wavelength
    # dS = R² ds_x ds_y / s_z, and |A|² is per ds_x ds_y: √(dA dS s_z) = A R ds_x ds_y.
    return Patches((centre[:, None] - q).T, waves, (amplitude * mask).ravel() / distance, wavefront.wavelength)


@jax.jit
def exit_pupil_wavefront(system: Any, point: Points) -> tuple[Wavefront, Pose]:
    """The paper's wavefront, fitted on the exit pupil sphere."""
    pose = find_pose(system, point.height, point.focus, point.shift)
    return paper_wavefront(system, pose, point, jnp.array(D_LINE_NM * 1e-6)), pose


def rayleigh_sommerfeld(
    camera: Camera, truth: np.ndarray, supersample: int, counts: tuple[int, ...]
) -> tuple[dict[str, Any], np.ndarray]:
    requests = make_requests([camera], [DEPTH_M], [AXIS])
    point = jax.tree.map(lambda leaf: leaf[0], requests.points)
    wavefront, pose = exit_pupil_wavefront(camera.optics.system, point)
    half, blur = float(wavefront.radius), float(jnp.abs(wavefront.blur).max())
    wavelength = float(wavefront.wavelength)

    def bound(pixel: float) -> float:
        return 2.0 * half * ((SIZE + 1) / 2.0 * pixel + blur) / wavelength

    pixel = float(camera.pixel_um) * 1e-3
    rows, psfs = [], []
    for samples in counts:
        patches = patches_from_wavefront(wavefront, pose.data, pose.sensor_z, samples=samples)
        psf, took = sum_over_window(lit(patches), pixel, supersample)
        psfs.append(psf)
        rows.append(
            {
                "samples": samples,
                "seconds": took,
                "largest_step_waves": largest_step(patches, samples, pixel),
                "bound_over_samples": bound(pixel) / samples,
                "period_mm": wavelength * samples / (2.0 * half),
                "relative_l1": l1(psf / psf.sum(), truth / truth.sum()),  # of the window's light
            }
        )
        print(rows[-1], flush=True)
    patches = lit(patches_from_wavefront(wavefront, pose.data, pose.sensor_z, samples=amount(256, quick=32)))
    outputs = [(SIZE * u, sum_over_window(patches, pixel, u)[1]) for u in amount((1, 2, 3), quick=(1, 2))]
    large = [r for r in rows if r["samples"] >= amount(256, quick=32)]  # fewer keep no device busy
    slope = np.polyfit(np.log([r["samples"] for r in large]), np.log([r["seconds"] for r in large]), 1)[0]
    out_slope = np.polyfit(*np.log(np.array(outputs)).T, 1)[0]
    wide = 2.0 * float(camera.image_radius_mm) / math.hypot(*FULL_FRAME)
    return {
        "half_width_direction_cosine": half,
        "blur_radius_mm": blur,
        "defocus_mm": float(camera.wavefronts([DEPTH_M], [AXIS]).paraxial_defocus[0]),
        "na": float(pose.data.na),
        "fit_residual_rms_waves": float(wavefront.residual_rms),
        "bound": bound(pixel),
        "time_exponent_in_samples": float(slope),
        "time_exponent_in_points": float(out_slope),
        "rows": rows,
        "scans": [scan(wavefront, pose, p, bound(p)) for p in (pixel, wide)],
    }, np.stack(psfs)


# --- report -----------------------------------------------------------------------------------------------------------


def duration(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 0.1 else f"{value:#.2g} s" if value < 10.0 else f"{value:.0f} s"


HEAD = """# How many samples a defocused PSF takes

{cpu}, {cores} cores ({device}; load before: {load_before:.1f}); Python {python}, jax {jax}, numpy {numpy}.

JP 2017-003807 Example 4 (24 mm f/1.8), a point on the axis at 0.8 m, sensor focused at infinity, d line,
{size} × {size} pixels of {pixel_um:g} µm, {supersample} × {supersample} points per pixel in every PSF
(the paper: 5 × 5). The paper does not give its pixel pitch. {pixel_um:g} µm make a window ({window:.0f} µm) that holds
the blur ({blur:.0f} µm across).

**N_inf = {n_inf:.1f}**; the paper has {paper}: {difference:+.1f} %. NA {na:.4f} and defocus {defocus:.4f} mm are
paraxial; the traced rim lies at the direction cosine h = {half:.4f}. N_inf does not depend on the pixels.

## Our PSF

| samples | N | propagation, matrix | propagation, chirp-z | with trace and fit | relative L1 to 2 N |
| --- | --- | --- | --- | --- | --- |
{own_rows}

Times after compilation. `paper` and `rays` are rounded up to a size in use. The paper: 18 ms for its transform, 45.1 s
for its sum with N = 256, on hardware that it does not name.

## Rayleigh–Sommerfeld sum over the fitted exit pupil sphere

| N | time | largest step / waves | period / µm | relative L1 to ours |
| --- | --- | --- | --- | --- |
{sum_rows}

From N = 256 on the time grows with N to the power {in_samples:.2f}, and there with the points along an edge of the
window to the power {in_points:.2f}; samples times points would be 2 and 2. Timed once is the sum alone, without
compilation and without the samples outside the rim.

What is left at the largest N is not a matter of samples: the sum has the paper's amplitude, constant but for 1 / cos θ,
and ours that of the rays' energy.

### From which N on it is right

From one sample s to the next, the path to the point x of the sensor changes by Δs · (x − b(s)), where the ray through s
lands at b(s): along the sphere, the path's derivative is the difference of the directions of the ray and of the line to
x, and that difference times the distance is x − b. (Measured: the column of steps, from the very phases that are
summed; the curvature that this leaves out is below 1 %.) Light adds up where the step is zero, at x = b(s); but in a
sum also where it is a whole number of waves. These false images lie λ / Δs apart. They stay out of the window as long
as no step in it reaches one wave. With Δs = 2h / N, a window that reaches w/2 from its centre and a blur of radius b:

    N > 2h (w/2 + b) / λ = {bound:.0f} here.

Steps below half a wave, which would take N = {nyquist:.0f}, are not needed: that is the condition for
reconstructing a wave from its samples, but here they are only summed. Debye's sum over plane waves has the
same steps and needs the same N; it is the cost per sample that differs.

N_inf is half a wave, from defocus alone, at the centre of the window. That is one wave at the edge of a window just as
wide as the (paraxial) blur. A wider window needs more: the part of it that is dark fills with false images otherwise.

Along the middle row ({row_points} points per pixel), against the same sum with twice the bound's samples:

| pixel / µm | bound | relative L1 at most {valid} from | N: relative L1 |
| --- | --- | --- | --- |
{scan_rows}

What is left just above the bound are the fringes around the false images. Our own rule asks for 15 % more because of
them, and for a minimum that the rim needs.

### The paper's 256

The paper finds its sum valid at N = 256 and at no smaller number. With a square grid across the whole pupil this cannot
be had: the period is then {period:.0f} µm, less than the blur is wide, so that false images overlap the true one
whatever the pixels are. The text does not say how its grid is laid out. 256 samples from the centre to the rim
(512 across) would do up to pixels of {largest:.1f} µm, and 224 would fail above {smaller:.1f} µm.
"""


def markdown(result: dict[str, Any]) -> str:
    own, summed = result["ours"], result["rayleigh_sommerfeld"]

    def table(rows: list[list[str]]) -> str:
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)

    times = ("propagation_matrix_s", "propagation_chirp-z_s", "with_trace_and_fit_s")
    own_rows = [
        [r["sampling"], f"{r['samples']}", *(duration(r[k]) for k in times), f"{r['relative_l1_to_twice_as_many']:.4f}"]
        for r in own["rows"]
    ]
    sum_rows = [
        [
            f"{r['samples']}",
            duration(r["seconds"]),
            f"{r['largest_step_waves']:.2f}",
            f"{1e3 * r['period_mm']:.0f}",
            f"{r['relative_l1']:.3f}",
        ]
        for r in summed["rows"]
    ]
    scan_rows = [
        [
            f"{s['pixel_um']:.4g}",
            f"{s['bound']:.0f}",
            f"N = {s['valid_from']}",
            ", ".join(f"{n}: {error:.2g}" for n, error in list(s["errors"].items())[::2]),
        ]
        for s in summed["scans"]
    ]
    return HEAD.format(
        **result["machine"],
        size=SIZE,
        pixel_um=result["pixel_um"],
        supersample=result["supersample"],
        window=SIZE * result["pixel_um"],
        blur=2e3 * summed["blur_radius_mm"],
        n_inf=own["sampling_bound"],
        paper=PAPER_BOUND,
        difference=100.0 * (own["sampling_bound"] / PAPER_BOUND - 1.0),
        na=summed["na"],
        defocus=summed["defocus_mm"],
        half=summed["half_width_direction_cosine"],
        own_rows=table(own_rows),
        sum_rows=table(sum_rows),
        scan_rows=table(scan_rows),
        in_samples=summed["time_exponent_in_samples"],
        in_points=summed["time_exponent_in_points"],
        bound=summed["bound"],
        nyquist=2.0 * summed["bound"],
        row_points=ROW_SUPERSAMPLE,
        valid=VALID,
        period=1e3 * 256.0 * summed["rows"][0]["period_mm"] / summed["rows"][0]["samples"],
        largest=_largest_pixel(summed, 512),
        smaller=_largest_pixel(summed, 448),
    )


def _largest_pixel(summed: dict[str, Any], samples: int) -> float:
    """µm; of a window of SIZE pixels that `samples` across the pupil keep free of replicas."""
    period = summed["rows"][0]["period_mm"] / summed["rows"][0]["samples"] * samples
    return 1e3 * (period - summed["blur_radius_mm"]) * 2.0 / (SIZE + 1)


def _processor(about: dict[str, Any]) -> str:
    return f"{about['cores']} CPU cores" if about["device"] == "cpu" else str(about["device"])


def draw(result: dict[str, Any], own: np.ndarray, psfs: np.ndarray, path: Path) -> None:
    """Our PSF and the sums, each as bright as its brightest pixel, with N, time and error below."""
    first = result["ours"]["rows"][0]
    rows = result["rayleigh_sommerfeld"]["rows"]
    tiles = [(own, f"ours, N = {first['samples']}", duration(first["propagation_matrix_s"]), "", style.BLUE)]
    for psf, r in zip(psfs[:SHOWN], rows[:SHOWN], strict=True):
        colour = style.INK if r["largest_step_waves"] < 1.01 else style.ORANGE
        error = f"L1 {r['relative_l1']:.2f}"
        tiles.append((psf, f"N = {r['samples']}", duration(r["seconds"]), error, colour))
    side, gap, left, top, below = tile_side(SIZE), 0.11, 0.3, 0.65, 0.36
    columns, bands = len(tiles) // 2, parse_bands("d")
    with style.look():
        sheet = Sheet(2 * left + columns * (side + gap) - gap, top + 2 * (side + below) + 0.43)
        about = (
            "JP 2017-003807 Example 4, point on the axis at 0.8 m, focus at infinity, "
            f"{SIZE} × {SIZE} pixels of {result['pixel_um']:g} µm, d line · time of the propagation alone, "
            f"{_processor(result['machine'])}"
        )
        sheet.title("Our PSF and the Rayleigh–Sommerfeld sum with N × N samples", about)
        for i, (psf, name, took, error, colour) in enumerate(tiles):
            x = left + (i % columns) * (side + gap)
            lower = sheet.height - top - side - (i // columns) * (side + below)
            paint_psf(sheet.axes((x, lower, side, side)), psf[None], bands, {})
            sheet.text(x + side / 2, lower - 0.04, name, color=colour, fontweight="bold", ha="center", va="top")
            text = f"{took} · {error}" if error else took
            sheet.text(x + side / 2, lower - 0.17, text, color=style.FAINT, ha="center", va="top")
        psf_scale_bar(sheet, left, 0.37, side, SIZE * result["pixel_um"], result["pixel_um"])
        note = (
            "orange: somewhere in the window the phase steps by more than one wave between neighbouring samples · "
            "L1: relative to ours"
        )
        sheet.text(sheet.width - left, 0.15, note, ha="right", color=style.FAINT)
        style.save(sheet.figure, path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lens", type=Path, default=LENS)
    parser.add_argument("--pixel-um", type=float, default=6.5)
    points = amount(5, quick=1)
    parser.add_argument("--supersample", type=int, default=points, help="points per pixel and axis; the paper: 5")
    parser.add_argument("--image", type=Path, help="the figure; by default that of docs, where --out is not given")
    parser.add_argument("--keep", type=Path, help="the PSFs as an .npz file")
    options = read_arguments(parser)
    before = machine() | {"device": jax.devices()[0].device_kind}
    lens = load_lens(SMALL_LENS) if options.quick else read_lens(options.lens)
    camera = Camera(lens, pixel_um=options.pixel_um)
    own, paper, rays = ours(camera, options.supersample)
    print(own, flush=True)
    summed, psfs = rayleigh_sommerfeld(camera, rays, options.supersample, SAMPLES)
    result = {"machine": before, "pixel_um": options.pixel_um, "supersample": options.supersample, "ours": own}
    result["rayleigh_sommerfeld"] = summed
    if options.keep:
        np.savez(options.keep, paper=paper, rays=rays, psfs=psfs)
    write_report(options.out, "paper_sampling", result, markdown(result))
    figure = (ROOT / "docs/images" if options.out == RESULTS else options.out) / "paper_sampling.png"
    draw(result, paper, psfs, options.image or figure)


if __name__ == "__main__":
    main()
