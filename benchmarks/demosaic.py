"""Demosaicing on images whose three colours are known: our two methods and LibRaw's.

    python benchmarks/demosaic.py IMAGE... [--out FOLDER]
    python benchmarks/demosaic.py --quick                 # a picture that it makes

IMAGE is a picture that was never a mosaic, or a RAW file, of which the average of 4×4 pixels is taken. Each image is
sampled through the four Bayer patterns in linear light, demosaiced, and compared away from the borders. LibRaw gets the
same mosaic in a DNG file, with neutral colours. Writes demosaic.json and demosaic.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import rawpy
import tifffile

from defocus.photo import METHODS, RawPhoto, demosaic, encode, read_photo, write_picture
from defocus.photo.demosaic import PATTERNS, sample_mosaic
from machine import amount, machine, read_arguments, write_report

LIBRAW = ("LINEAR", "VNG", "PPG", "AHD", "DCB", "DHT")
INNER = np.s_[10:-10, 10:-10]
TIMED_PX = amount((2400, 3600), quick=(96, 128))


def truth(path: Path) -> np.ndarray:
    """Linear RGB, 0..1."""
    photo = read_photo(path)
    linear = np.clip(photo.linear(), 0.0, 1.0)
    if not isinstance(photo, RawPhoto):
        return linear
    height, width = (side // 4 * 4 for side in linear.shape[:2])
    small = linear[:height, :width].reshape(height // 4, 4, width // 4, 4, 3).mean(axis=(1, 3), dtype=np.float64)
    return np.clip(small / np.quantile(small, 0.999), 0.0, 1.0).astype(np.float32)


def by_libraw(mosaic: np.ndarray, pattern: str, name: str, folder: Path) -> np.ndarray:
    """The same mosaic through LibRaw, without colours or curves."""
    path = folder / "mosaic.dng"
    tags = [
        (33421, 3, 2, (2, 2), True),
        (33422, 1, 4, bytes("RGB".index(c) for c in pattern), True),
        (50706, 1, 4, bytes((1, 4, 0, 0)), True),
        (50717, 4, 1, 65535, True),
        (50728, 5, 3, (1, 1, 1, 1, 1, 1), True),
    ]
    stored = np.round(mosaic * 65535).astype(np.uint16)
    tifffile.imwrite(path, stored, photometric=32803, extratags=tags, metadata=None)
    with rawpy.imread(str(path)) as raw:
        made = raw.postprocess(
            demosaic_algorithm=rawpy.DemosaicAlgorithm[name],
            gamma=(1, 1),
            no_auto_bright=True,
            no_auto_scale=True,
            output_bps=16,
            user_wb=[1, 1, 1, 1],
            output_color=rawpy.ColorSpace.raw,
            user_black=0,
        )
    return made.astype(np.float32) / 65535.0


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10.0 * np.log10(np.mean((a[INNER].astype(float) - b[INNER]) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("images", nargs="*", type=Path)
    options = read_arguments(parser)
    if options.quick and not options.images:
        options.images = [Path(tempfile.mkdtemp()) / "noise.png"]
        write_picture(options.images[0], np.random.default_rng(0).random((*TIMED_PX, 3)))
    elif not options.images:
        parser.error("IMAGE is missing")
    rows = []
    for path in options.images:
        linear = truth(path)
        display = np.asarray(encode(linear))
        found: dict[str, list[tuple[float, float]]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for phase, pattern in enumerate(PATTERNS):
                mosaic = np.asarray(sample_mosaic(jnp.asarray(linear), jnp.int32(phase)))
                made = {m: np.asarray(demosaic(mosaic, phase, m)) for m in METHODS}
                made |= {f"LibRaw {n}": by_libraw(mosaic, pattern, n, Path(folder)) for n in LIBRAW}
                for name, image in made.items():
                    found.setdefault(name, []).append((psnr(image, linear), psnr(np.asarray(encode(image)), display)))
        means = {name: [round(v, 2) for v in np.mean(values, axis=0)] for name, values in found.items()}
        rows.append({"image": path.name, "size": list(linear.shape[1::-1]), "psnr_linear_srgb": means})
        print(path.name, means, flush=True)
    mosaic = jnp.asarray(np.random.default_rng(0).random(TIMED_PX, np.float32))
    seconds = {}
    for method in METHODS:
        demosaic(mosaic, 0, method).block_until_ready()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            demosaic(mosaic, 0, method).block_until_ready()
            times.append(time.perf_counter() - start)
        seconds[method] = round(min(times), 3)
    names = [*METHODS, *(f"LibRaw {n}" for n in LIBRAW)]
    lines = [
        "PSNR in dB, linear light / sRGB values, mean of the four Bayer patterns.",
        "",
        "| image | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for row in rows:
        cells = (row["psnr_linear_srgb"][n] for n in names)
        lines.append(f"| {row['image']} | " + " | ".join(f"{a:.1f} / {b:.1f}" for a, b in cells) + " |")
    average = [np.mean([row["psnr_linear_srgb"][n] for row in rows], axis=0) for n in names]
    lines.append("| **mean** | " + " | ".join(f"{a:.1f} / {b:.1f}" for a, b in average) + " |")
    timing = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    host = machine()
    lines += ["", f"{math.prod(TIMED_PX) / 1e6:.1f} megapixels: {timing} ({host['cores']} cores of {host['cpu']})."]
    result = {"images": rows, "seconds": seconds, "machine": host}
    write_report(options.out, "demosaic", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
