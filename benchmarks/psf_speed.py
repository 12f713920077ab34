"""Speed of PSFs in batches of different lenses: wavefronts, propagation by both kernels, the machine's ceilings.

    python benchmarks/psf_speed.py [--out FOLDER] [--quick]

Writes psf_speed_gpu.json and .md, or psf_speed_cpu. Every propagation is checked against float64 on the same pupils.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from defocus.lens import list_lenses, load_lens
from defocus.lens.prescription import D_LINE_NM, Lens
from defocus.optics.system import System, bucket_of, pack, padded_indices
from defocus.psf.poses import Points, Pose, find_poses
from defocus.psf.propagate import Intensity, Transform, chirp_z, intensity, matrix_dft, window_axis
from defocus.psf.pupil_function import PupilFunction, grid_axis, sample_pupil
from defocus.psf.wavefronts import Wavefronts, wavefront_on_sphere, wavefront_program
from machine import SMALL_LENS, amount, is_quick, machine, median_seconds, read_arguments, write_report

BATCH = amount(64, quick=1)
REPEATS = 10
KERNELS: dict[str, Transform] = {"matrix": matrix_dft, "chirp-z": chirp_z}


@partial(jax.jit, static_argnames=("samples", "size", "kernel", "dtype"))
def propagate(
    pupils: PupilFunction,
    pixel: jax.Array,
    *,
    samples: int,
    size: int,
    kernel: str = "matrix",
    dtype: jnp.dtype = jnp.float32,
) -> Intensity:
    """A batch of PSFs by one of the kernels, one after the other on a processor."""
    one = partial(intensity, samples=samples, size=size, transform=KERNELS[kernel], dtype=dtype)
    if jax.default_backend() != "cpu":
        return jax.vmap(one)(pupils, pixel)
    return jax.lax.map(lambda each: one(*each), (pupils, pixel))


def ceilings() -> dict[str, float]:
    """Copy bandwidth (TB/s, read plus write) and float32 / complex64 / float64 matrix rates (TFLOP/s)."""
    large = amount(2**28 if jax.default_backend() != "cpu" else 2**24, quick=2**10)
    data = jax.random.normal(jax.random.key(0), (large,), jnp.float32)
    copy = jax.jit(lambda a: a + 1.0)
    found = {"copy_TB_s": 2 * data.nbytes / median_seconds(lambda: copy(data)) / 1e12}
    n = amount(4096 if jax.default_backend() != "cpu" else 1024, quick=32)
    for name, dtype in (("float32", jnp.float32), ("float64", jnp.float64)):
        a = jax.random.normal(jax.random.key(1), (n, n), dtype)
        product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
        found[f"matmul_{name}_TFLOP_s"] = 2 * n**3 / median_seconds(lambda a=a, f=product: f(a)) / 1e12
    c = jax.lax.complex(*(jax.random.normal(jax.random.key(k), (n, n), jnp.float32) for k in (2, 3)))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    found["matmul_complex64_TFLOP_s"] = 8 * n**3 / median_seconds(lambda: product(c)) / 1e12
    return found


def lenses_of_one_bucket() -> list[Lens]:
    """Different lenses that share a compiled shape."""
    if is_quick():
        return [load_lens(SMALL_LENS)]
    groups: dict[tuple[int, ...], list[Lens]] = {}
    for entry in list_lenses():
        lens = load_lens(entry.name)
        groups.setdefault(bucket_of(lens), []).append(lens)
    return max(groups.values(), key=len)


def main() -> None:
    options = read_arguments(argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]))
    rows: list[dict[str, object]] = []
    lenses = lenses_of_one_bucket()
    chosen = [lenses[i % len(lenses)] for i in range(BATCH)]
    radius = np.array([lens.image_radius for lens in chosen])
    rng = np.random.default_rng(7)
    pixel_um = 2e3 * radius / np.hypot(1680.0, 1120.0)
    shape = bucket_of(chosen[0])
    waves = jnp.asarray([D_LINE_NM * 1e-6])
    points = Points(
        height=jnp.asarray(radius * rng.uniform(0.0, 0.7, BATCH)),
        azimuth=jnp.asarray(rng.uniform(-np.pi, np.pi, BATCH)),
        depth=jnp.full(BATCH, 3000.0),
        focus=jnp.full(BATCH, 2500.0),
        shift=jnp.full(BATCH, jnp.nan),
        pixel=jnp.asarray(pixel_um * 1e-3),
    )

    def packed(lenses: list[Lens]) -> tuple[System, jax.Array]:
        index = np.stack([[padded_indices(lens, D_LINE_NM, shape.surfaces)] for lens in lenses])
        return pack(lenses, D_LINE_NM, shape), jnp.asarray(index)

    systems, index = packed(chosen)
    program = wavefront_program(wavefront_on_sphere, False)

    def pose(systems: System) -> Pose:
        return find_poses(systems, points.height, points.focus, points.shift, jnp.array(BATCH))

    def find(systems: System, index: jax.Array, poses: Pose) -> Wavefronts:
        counts = jnp.array([BATCH, 1])
        return program(systems, index, waves, points, poses, counts)

    begin = time.perf_counter()
    poses = jax.block_until_ready(pose(systems))
    compiled = time.perf_counter() - begin
    seconds = median_seconds(lambda: pose(systems), 2 * REPEATS)
    what = f"poses (focus, chief ray; once for all depths), batch {BATCH}, {len(lenses)} lenses"
    rows.append({"what": what, "ms_per_psf": seconds / BATCH * 1e3, "compile_s": compiled})
    begin = time.perf_counter()
    item = jax.block_until_ready(find(systems, index, poses))
    compiled = time.perf_counter() - begin
    sizes = program.shapes
    seconds = median_seconds(lambda: find(systems, index, poses), 2 * REPEATS)
    jax.block_until_ready(find(*packed(chosen[::-1]), poses))
    rows.append(
        {
            "what": f"wavefronts (rim, trace, fits), batch {BATCH}, {len(lenses)} lenses",
            "ms_per_psf": seconds / BATCH * 1e3,
            "compile_s": compiled,
            "recompilations_for_other_lenses": program.shapes - sizes,
            "found": int(np.asarray(item.wavefront.found).sum()),
            "worst_residual_waves": float(np.asarray(item.wavefront.residual_rms).max()),
        }
    )
    pupils = jax.tree.map(lambda leaf: leaf[:, 0], item.pupil)
    for samples, size in amount(((736, 64), (1536, 128)), quick=((256, 32),)):
        rows += propagation(pupils, points.pixel, samples, size)
    result = {
        "device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})",
        **machine(),
        "ceilings": ceilings(),
        "rows": rows,
    }
    write_report(options.out, f"psf_speed_{jax.default_backend()}", result, markdown(result))


def propagation(pupils: PupilFunction, pixel: jax.Array, samples: int, size: int) -> list[dict[str, object]]:
    few = jax.tree.map(lambda leaf: leaf[:4], pupils)
    exact = propagate(few, pixel[:4], samples=samples, size=size, dtype=jnp.float64).pixels
    points = size * 5
    flop = 8.0 * (samples**2 * points + samples * points**2)
    rows = []
    for kernel in KERNELS:
        call = partial(propagate, samples=samples, size=size, kernel=kernel)
        batch = BATCH if samples < 1000 or jax.default_backend() != "cpu" else 16
        part = jax.tree.map(lambda leaf, b=batch: leaf[:b], pupils)
        seconds = median_seconds(lambda call=call, part=part, b=batch: call(part, pixel[:b]), REPEATS)
        error = jnp.abs(call(few, pixel[:4]).pixels - exact).sum((1, 2)) / exact.sum((1, 2))
        rows.append(
            {
                "what": f"propagation, {kernel}, N = {samples}, {size}×{size}, u = 5",
                "ms_per_psf": seconds / batch * 1e3,
                "error_vs_float64_relative_L1": float(error.max()),
                "floor_GFLOP": flop / 1e9 if kernel == "matrix" else None,
                "reached_TFLOP_s": flop / seconds * batch / 1e12 if kernel == "matrix" else None,
            }
        )
    rows += parts(pupils, pixel, samples, size, exact)
    return rows


def parts(
    pupils: PupilFunction, pixel: jax.Array, samples: int, size: int, exact: jax.Array
) -> list[dict[str, object]]:
    """Where the time goes: the pupil function alone, and the matrix products at each precision of the matrix units."""
    batch = BATCH if jax.default_backend() != "cpu" else min(8, BATCH)
    part = jax.tree.map(lambda leaf: leaf[:batch], pupils)
    fill = jax.jit(jax.vmap(lambda pupil: sample_pupil(pupil, samples)[0]))
    fields = fill(part)
    rows: list[dict[str, object]] = [
        {
            "what": f"  pupil function alone, N = {samples}",
            "ms_per_psf": median_seconds(lambda: fill(part), REPEATS) / batch * 1e3,
        }
    ]
    g = grid_axis(samples)
    for precision in ("highest", "high", "default"):

        @jax.jit
        def transform(fields: jax.Array, s: PupilFunction, p: jax.Array, precision: str = precision) -> jax.Array:
            def one(field: jax.Array, s: PupilFunction, p: jax.Array) -> jax.Array:
                x = window_axis(size, p, 5)
                sx, sy = (s.centre[i] + s.half[i] * g for i in (0, 1))
                wave = matrix_dft(field, sx, sy, x, -x, s.wavelength, precision)
                return (jnp.abs(wave) ** 2).reshape(size, 5, size, 5).sum((1, 3))

            return jax.vmap(one)(fields, s, p)

        seconds = median_seconds(lambda f=transform: f(fields, part, pixel[:batch]), REPEATS)
        seen = transform(fields, part, pixel[:batch])[:4]
        seen = seen / seen.sum((1, 2), keepdims=True)
        truth = exact / exact.sum((1, 2), keepdims=True)
        rows.append(
            {
                "what": f"  matrix products alone, precision {precision}",
                "ms_per_psf": seconds / batch * 1e3,
                "error_vs_float64_relative_L1": float(jnp.abs(seen - truth).sum((1, 2)).max()),
            }
        )
    return rows


def markdown(result: dict[str, object]) -> str:
    lines = [
        f"# PSF speed on {result['device']}",
        "",
        f"{result['cpu']}, {result.get('cores', '?')} cores; jax {result['jax']}; batches of {BATCH} PSFs of different "
        "lenses.",
        "",
    ]
    lines += ["| ceiling | measured |", "| --- | --- |"]
    lines += [f"| {name} | {value:.3g} |" for name, value in result["ceilings"].items()]
    lines += ["", "| what | ms per PSF | relative L1 to float64 | TFLOP/s | notes |", "| --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        known = ("what", "ms_per_psf", "error_vs_float64_relative_L1", "reached_TFLOP_s")
        notes = "; ".join(
            f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
            for k, v in row.items()
            if k not in known and v is not None
        )
        error, rate = row.get(known[2]), row.get(known[3])
        cells = (
            row["what"],
            f"{row['ms_per_psf']:.4f}",
            "" if error is None else f"{error:.1e}",
            "" if rate is None else f"{rate:.3g}",
            notes,
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
