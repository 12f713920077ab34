"""The procedural scenes and their truth: a contact sheet, how exact the truth is, and how long it takes.

    python benchmarks/scenes.py [SCENE...] [--out FOLDER] [--quick]

Each scene at 256×256 pixels through its own lens, summed over two different sets of 1024 pupil points: half the
variance of their difference is the error of one. Writes scenes.json, scenes.md and scenes.jpg (sharp and blurred).
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from PIL import Image

from defocus.scene.procedural import SCENES, make_scene
from defocus.scene.raysampled import disc
from defocus.scene.thin_lens import near_depth_edge
from machine import amount, machine, read_arguments, write_report

SIZE, TILE = amount(((256, 256), (288, 192)), quick=((32, 32), (48, 32)))
POINTS, TILE_POINTS = amount((1024, 2048), quick=(16, 16))


def psnr(mean_square: float) -> float:
    return -10.0 * float(np.log10(mean_square))


def measure(name: str) -> dict[str, float | str]:
    """The error of the truth, in dB below white, and the processor's time for it."""
    scene = make_scene(name, SIZE)
    seen = scene.picture(samples=1)
    coc = scene.circle_of_confusion_px(seen.depth_m)
    start = time.process_time()
    one = scene.truth(pupil=disc(POINTS))
    seconds = time.process_time() - start
    two = scene.truth(pupil=disc(POINTS, 1))
    error = (np.clip(one, 0.0, 1.0) - np.clip(two, 0.0, 1.0)) ** 2 / 2.0
    near = near_depth_edge(coc)
    return {
        "scene": name,
        "coc_near_px": float(coc.min()),
        "coc_far_px": float(coc.max()),
        "near_edges": float(near.mean()),
        "error_db": psnr(error.mean()),
        "error_near_edges_db": psnr(error[near].mean()),
        "error_unclipped_db": psnr(np.mean((one - two) ** 2) / 2.0),
        "cpu_s": seconds,
    }


def display(linear: np.ndarray) -> np.ndarray:
    value = np.clip(linear, 0.0, 1.0)
    return np.where(value <= 0.0031308, 12.92 * value, 1.055 * value ** (1 / 2.4) - 0.055)


def tile(name: str) -> np.ndarray:
    scene = make_scene(name, TILE)
    pair = np.concatenate([scene.picture().linear, scene.truth(pupil=disc(TILE_POINTS))], axis=1)
    return np.round(255.0 * display(pair)).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=amount(list(SCENES), quick=["table"]))
    options = read_arguments(parser)
    out, names = options.out, options.names
    found = machine()
    rows = []
    for name in names:
        rows.append(measure(name))
        print(json.dumps(rows[-1]), flush=True)
    lines = [
        f"{SIZE[0]}×{SIZE[1]} pixels, {POINTS} pupil points, one process on {found['cpu']}; errors in dB below white.",
        "",
        "| scene | blur radius, px | near depth edges | error | near edges | not cut at white | processor time |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {r['scene']} | {r['coc_near_px']:.1f} to {r['coc_far_px']:.1f} | {r['near_edges']:.0%} "
        f"| {r['error_db']:.1f} | {r['error_near_edges_db']:.1f} | {r['error_unclipped_db']:.1f} | {r['cpu_s']:.0f} s |"
        for r in rows
    ]
    write_report(out, "scenes", {"machine": found, "scenes": rows}, "\n".join(lines) + "\n")
    tiles = [tile(name) for name in names]
    if len(tiles) % 2:
        tiles.append(np.full_like(tiles[0], 255))
    sheet = np.concatenate([np.concatenate(tiles[k : k + 2], axis=1) for k in range(0, len(tiles), 2)], axis=0)
    Image.fromarray(sheet).save(out / "scenes.jpg", quality=88, subsampling=0)


if __name__ == "__main__":
    main()
