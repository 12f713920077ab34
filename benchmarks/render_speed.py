"""Speed of the layered renderer: patches in batches, and a whole photograph with PSFs that vary over the field.

    python benchmarks/render_speed.py [--out FOLDER] [--photo 6000x4000] [--quick]

Writes render_speed_gpu.json and .md, or render_speed_cpu.

A patch is 384×384 with 40 layers, PSFs of 128×128 in three bands, hidden parts filled in: per layer 13 real FFTs of
512×512 (colours 3, opacity 1, PSFs 3 forwards; blurred colours 3, blurred opacities 3 backwards), 520 in all. The
floor: an FFT of 512×512 float32 has 1.05 MB on each side and takes two passes, 4.2 MB of
traffic, so 520 × 4.2 MB = 2.2 GB; the pointwise work around them reads and writes as much again at best half of it
(planes 4.2 MB, products 16 MB, sums 8 MB per layer: 1.1 GB); the pyramids of 40 layers 40 × 25 MB = 1 GB; the search
for hidden surfaces 72 steps × 7 MB and the mixed pixels 50 steps × 10 MB another 1 GB. Together 5.3 GB: 1.3 ms at 4
TB/s, and 520 × 2.5 × 512² × 18 = 6.1 GFLOP, far below the arithmetic limit. The arithmetic matters on a CPU only.
"""

from __future__ import annotations

import argparse
import resource
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from defocus.render.composite import composite, render_layers
from defocus.render.full_field import render_photograph
from defocus.scene.front_and_back import find_surfaces
from defocus.scene.layers import Layers, cut_layers, quantise
from machine import amount, machine, median_seconds, read_arguments, write_report

PATCH, LAYERS, SIZE, BANDS = amount((384, 40, 128, 3), quick=(32, 4, 16, 3))
EXTENT_PX = amount(39.0, quick=3.0)
FLOOR_GB = 5.3


def scene(rows: int, cols: int, seed: int, extent: float) -> tuple[np.ndarray, np.ndarray]:
    """Noise on a slanted ground with discs before it; blur radii over `extent` pixels about the focus."""
    rng = np.random.default_rng(seed)
    linear = rng.random((rows, cols, 3), np.float32)
    y, x = np.mgrid[:rows, :cols]
    coc = (extent * (0.5 - y / max(rows - 1, 1))).astype(np.float32)
    for _ in range(12):
        cy, cx, r = rng.random() * rows, rng.random() * cols, (0.03 + 0.08 * rng.random()) * rows
        inside = (y - cy) ** 2 + (x - cx) ** 2 < r * r
        coc[inside] = np.minimum(coc[inside], rng.uniform(-0.5, 0.3) * extent)
    return linear, coc


def kernels(count: int, seed: int) -> np.ndarray:
    psfs = np.random.default_rng(seed).random((count, BANDS, SIZE, SIZE), np.float32)
    return psfs / psfs.sum((2, 3), keepdims=True)


def ceilings() -> dict[str, float]:
    """Copy bandwidth (read plus write) and the time of one FFT of 512×512 in a large batch."""
    gpu = jax.default_backend() != "cpu"
    data = jnp.ones(amount(2**28 if gpu else 2**24, quick=2**10), jnp.float32)
    copy = jax.jit(lambda a: a + 1.0)
    planes = jnp.ones((amount(256 if gpu else 16, quick=1), 512, 512), jnp.float32)
    there_and_back = jax.jit(lambda a: jnp.fft.irfft2(jnp.fft.rfft2(a), s=(512, 512)))
    return {
        "copy_TB_s": 2 * data.nbytes / median_seconds(lambda: copy(data), 10) / 1e12,
        "rfft2_512_us": median_seconds(lambda: there_and_back(planes), 10) / planes.shape[0] / 2 * 1e6,
    }


def patches(batch: int, repeats: int) -> dict[str, Any]:
    made = [scene(PATCH, PATCH, seed, EXTENT_PX) for seed in range(batch)]
    linear, coc = (jnp.asarray(np.stack(part)) for part in zip(*made, strict=True))
    psfs = jnp.asarray(np.stack([kernels(LAYERS, seed) for seed in range(batch)]))
    cut = jax.jit(jax.vmap(partial(quantise, layers=LAYERS)))
    layers = jax.block_until_ready(cut(coc, jnp.ones_like(coc)))
    surfaces_of = jax.jit(jax.vmap(find_surfaces))
    surfaces = jax.block_until_ready(surfaces_of(linear, coc, layers))
    together = jax.jit(jax.vmap(composite))

    @jax.jit
    def whole(linear: jax.Array, coc: jax.Array, psfs: jax.Array) -> jax.Array:
        return jax.vmap(render_layers)(linear, coc, cut(coc, jnp.ones_like(coc)), psfs)

    start = time.perf_counter()
    jax.block_until_ready(whole(linear, coc, psfs))
    compiled = time.perf_counter() - start
    ms = {
        "layers": median_seconds(lambda: cut(coc, jnp.ones_like(coc)), repeats),
        "hidden surfaces, inpainting, mixed pixels": median_seconds(lambda: surfaces_of(linear, coc, layers), repeats),
        "compositing": median_seconds(lambda: together(surfaces, psfs, layers.coc_px), repeats),
        "all in one program": median_seconds(lambda: whole(linear, coc, psfs), repeats),
    }
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "batch": batch,
        "layers_used": float(np.asarray(layers.used).sum(-1).mean()),
        "ms_per_patch": {name: seconds / batch * 1e3 for name, seconds in ms.items()},
        "first_call_s": compiled,
        "peak_device_GB": stats.get("peak_bytes_in_use", 0) / 1e9 or None,
    }


def photograph(cols: int, rows: int, nodes: tuple[int, int]) -> dict[str, Any]:
    linear, coc = scene(rows, cols, 1, EXTENT_PX)
    depth = np.ones_like(coc)
    start = time.perf_counter()
    layers: Layers = cut_layers(coc, depth)
    cut = time.perf_counter() - start
    count = layers.coc_px.shape[0]
    start = time.perf_counter()
    picture = render_photograph(linear, coc, layers, lambda r, c: kernels(count, 100 * r + c), nodes)
    seconds = time.perf_counter() - start
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "pixels": [cols, rows],
        "nodes": list(nodes),
        "layers": count,
        "cut_s": cut,
        "render_s": seconds,
        "finite": bool(np.isfinite(picture).all()),
        "peak_device_GB": stats.get("peak_bytes_in_use", 0) / 1e9 or None,
        "peak_host_GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def markdown(result: dict[str, Any]) -> str:
    lines = [
        f"# Rendering speed on {result['device']}",
        "",
        f"{result['machine']['cpu']}, {result['machine']['cores']} cores, load {result['machine']['load_before']:.1f} "
        f"before; jax {result['machine']['jax']}.",
        "",
        f"Patches of {PATCH}×{PATCH}, {LAYERS} layers, PSFs of {SIZE}×{SIZE} in {BANDS} bands; ms per patch. Floor: "
        f"{FLOOR_GB} GB of traffic, {FLOOR_GB / result['ceilings']['copy_TB_s']:.2f} ms at the measured "
        f"{result['ceilings']['copy_TB_s']:.3g} TB/s; 520 FFTs at the measured "
        f"{result['ceilings']['rfft2_512_us']:.3g} µs each take {0.52 * result['ceilings']['rfft2_512_us']:.3g} ms.",
        "",
        "| batch | " + " | ".join(result["patches"][0]["ms_per_patch"]) + " | peak memory |",
        "| --- " * (len(result["patches"][0]["ms_per_patch"]) + 2) + "|",
    ]
    for row in result["patches"]:
        peak = f"{row['peak_device_GB']:.1f} GB" if row["peak_device_GB"] else ""
        lines.append(
            f"| {row['batch']} | " + " | ".join(f"{v:.2f}" for v in row["ms_per_patch"].values()) + f" | {peak} |"
        )
    if photo := result["photograph"]:
        cols, rows = photo["pixels"]
        peak = f"{photo['peak_device_GB']:.1f} GB on the device, " if photo["peak_device_GB"] else ""
        lines += [
            "",
            f"A photograph of {cols}×{rows} ({cols * rows / 1e6:.1f} megapixels) in {photo['layers']} layers, PSFs on "
            f"{photo['nodes'][0]}×{photo['nodes'][1]} nodes: {photo['render_s']:.1f} s with the making of the nodes' "
            f"(random) PSFs and one compilation; peak memory {peak}{photo['peak_host_GB']:.1f} GB on the host.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    gpu = jax.default_backend() != "cpu"
    size = amount("6000x4000" if gpu else "1500x1000", quick="64x48")
    parser.add_argument("--photo", default=size, help="WIDTHxHEIGHT; by default 6000x4000, on a CPU 1500x1000")
    options = read_arguments(parser)
    cols, rows = map(int, options.photo.split("x"))
    result: dict[str, Any] = {
        "device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})",
        "machine": machine(),
        "floor_GB": FLOOR_GB,
        "ceilings": ceilings(),
        "patches": [patches(n, 10 if gpu else 2) for n in amount((1, 4, 16, 32) if gpu else (1, 2), quick=(1,))],
        "photograph": photograph(cols, rows, amount((5, 7), quick=(2, 2))),
    }
    write_report(options.out, f"render_speed_{jax.default_backend()}", result, markdown(result))


if __name__ == "__main__":
    main()
