"""The layered renderer against pictures that were made ray by ray, and against simpler ways to blur.

    python benchmarks/render_truth.py [--out FOLDER] [--held-out] [--images FOLDER] [--keep FOLDER] [--quick]

Procedural scenes (`defocus.scene.procedural`) through a thin lens: the truth follows the rays of 1024 points of the
pupil for every pixel, with exact visibility. The renderers get the sharp picture and its depth, with a margin beyond
the frame, and discs as PSFs. PSNR of linear RGB, clipped at white as a sensor clips, away from depth edges and within
one circle of confusion of them:

- `defocus`: the product with `parts` = 1, as for patches; and with 4 parts of the pupil, as for whole photographs;
- `known`: the product, but where the surface behind is the one that was guessed, its colours are the scene's own
  instead of filled in: what inpainting costs;
- `gather`: each pixel the mean over its own circle of confusion;
- `over, own`: far to near, C ← P∗(αC_i) + (1 − P∗α) C, α the layer's own pixels: the paper's rule without inpainting;
- `over, filled`: the same with α = 1 behind all that is nearer, filled in by push-pull: the paper's rule.

The scenes have seed 0, on which the renderer was developed; `--held-out` takes seed 1, which had no part in that.
`--keep` stores the truth, which takes most of the time, for the next run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from PIL import Image

from defocus.psf.simple import disk
from defocus.render.composite import composite, convolve
from defocus.scene.front_and_back import find_surfaces, split_mixed
from defocus.scene.inpaint import EDGE_PX, push_pull
from defocus.scene.layers import Layers, cut_layers
from defocus.scene.procedural import SCENES, Scene, make_scene
from defocus.scene.raysampled import disc
from defocus.scene.thin_lens import ThinLens, near_depth_edge
from machine import amount, machine, read_arguments, write_report

WIDTH, HEIGHT, POINTS = amount((288, 192, 1024), quick=(88, 64, 16))  # with the margin the size of tests/render
NAMES = amount(SCENES, quick=("table",))
# Metres: the same scenes with the foreground blurred.
REFOCUSED: dict[str, float] = amount({"portrait": 3.5, "twigs": 3.0, "swatches": 1.6}, quick={})
SHOWN = amount(("table", "street", "portrait at 3.5 m", "twigs", "wire", "night"), quick=("table",))


def truth_of(scene: Scene, lens: ThinLens, keep: Path | None, label: str) -> dict[str, np.ndarray]:
    stored = None if keep is None else keep / f"{label.replace(' ', '_')}.npz"
    if stored is not None and stored.exists():
        with np.load(stored) as data:
            return dict(data)
    depths = scene.picture(samples=1).depth_m
    widest = float(np.abs(scene.circle_of_confusion_px(depths, lens)).max())
    margin = amount(int(min(np.ceil(2.0 * widest) + 2, 72)), quick=4)
    seen, hidden = scene.picture(margin_px=margin), scene.hidden(margin_px=margin)
    made = {
        "linear": seen.linear,
        "depth_m": seen.depth_m,
        "hidden": hidden.linear,
        "hidden_depth_m": hidden.depth_m,
        "hidden_valid": hidden.valid,
        "truth": scene.truth(lens, disc(POINTS)),
        "margin": np.array(margin),
    }
    if stored is not None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        np.savez(stored, **made)
    return made


def over(linear: jnp.ndarray, layers: Layers, psfs: jnp.ndarray, *, filled: bool) -> jnp.ndarray:
    nearest = jnp.round(layers.position)
    picture = jnp.zeros_like(linear)
    for i in np.flatnonzero(np.asarray(layers.used)):
        own = (nearest == i).astype(jnp.float32)
        alpha = (nearest >= i).astype(jnp.float32) if filled else own
        colour = push_pull(linear, own) if filled else linear
        kernel = jnp.broadcast_to(psfs[i], (3, *psfs.shape[-2:]))
        cover = convolve(jnp.broadcast_to(alpha[..., None], linear.shape), kernel)
        picture = convolve(alpha[..., None] * colour, kernel) + (1.0 - cover) * picture
    return picture


def gather(linear: jnp.ndarray, layers: Layers, psfs: jnp.ndarray) -> jnp.ndarray:
    return sum(
        layers.weight(int(i))[..., None] * convolve(linear, jnp.broadcast_to(psfs[i], (3, *psfs.shape[-2:])))
        for i in np.flatnonzero(np.asarray(layers.used))
    )


def renderers(data: dict[str, np.ndarray], coc: np.ndarray, hidden_coc: np.ndarray) -> dict[str, np.ndarray]:
    layers = cut_layers(coc, data["depth_m"])
    size = max(32, 2 * int(np.ceil(np.abs(coc).max() + 2)))
    psfs = jnp.asarray(np.stack([disk(float(r), size) for r in np.asarray(layers.coc_px)])[:, None], jnp.float32)
    linear, coc_px = jnp.asarray(data["linear"]), jnp.asarray(coc)
    surfaces = find_surfaces(linear, coc_px, layers)
    plain = find_surfaces(linear, coc_px, layers, split=False)
    found_coc = np.interp(np.asarray(plain.back_position), np.arange(len(psfs)), np.asarray(layers.coc_px))
    known = jnp.asarray(data["hidden_valid"] & (np.abs(found_coc - hidden_coc) < EDGE_PX)) & plain.has_back
    told = replace(plain, back=jnp.where(known[..., None], jnp.asarray(data["hidden"]), plain.back))
    told = split_mixed(told, coc_px)
    ways: dict[str, Callable[[], jnp.ndarray]] = {
        "defocus": lambda: composite(surfaces, psfs, layers.coc_px),
        "defocus, 4 parts": lambda: composite(surfaces, psfs, layers.coc_px, parts=4),
        "known": lambda: composite(told, psfs, layers.coc_px),
        "gather": lambda: gather(linear, layers, psfs),
        "over, own": lambda: over(linear, layers, psfs, filled=False),
        "over, filled": lambda: over(linear, layers, psfs, filled=True),
    }
    m = int(data["margin"])
    return {name: np.asarray(way())[m:-m, m:-m] for name, way in ways.items()}


def decibels(error: np.ndarray) -> float | None:
    return float(-10.0 * np.log10(np.mean(error**2))) if error.size else None


def judge(label: str, scene: Scene, lens: ThinLens, keep: Path | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    data = truth_of(scene, lens, keep, label)
    coc = scene.circle_of_confusion_px(data["depth_m"], lens).astype(np.float32)
    # Where nothing is hidden the depth is nan; any number will do.
    hidden_coc = np.nan_to_num(scene.circle_of_confusion_px(data["hidden_depth_m"], lens)).astype(np.float32)
    pictures = renderers(data, coc, hidden_coc)
    m = int(data["margin"])
    near = near_depth_edge(coc)[m:-m, m:-m]
    truth = data["truth"]
    row: dict[str, Any] = {
        "scene": label,
        "coc_px": [float(coc.min()), float(coc.max())],
        "share_near_edges": float(near.mean()),
        "away_dB": {},
        "near_dB": {},
        "near_unclipped_dB": {},
    }
    for name, picture in pictures.items():
        error = np.minimum(picture, 1.0) - np.minimum(truth, 1.0)
        row["away_dB"][name] = decibels(error[~near])
        row["near_dB"][name] = decibels(error[near])
        row["near_unclipped_dB"][name] = decibels((picture - truth)[near])
    return row, {"truth": truth, "sharp": data["linear"][m:-m, m:-m], **pictures}


def developed(linear: np.ndarray) -> np.ndarray:
    return (255.0 * np.clip(linear, 0.0, 1.0) ** (1.0 / 2.2) + 0.5).astype(np.uint8)


def strip(pictures: dict[str, np.ndarray]) -> np.ndarray:
    """Sharp, truth, ours, twice our error about grey, the paper's rule without and with filling."""
    error = 0.5 + 2.0 * (np.minimum(pictures["defocus"], 1.0) - np.minimum(pictures["truth"], 1.0))
    shown = [pictures["sharp"], pictures["truth"], pictures["defocus"]]
    return np.concatenate(
        [
            *map(developed, shown),
            (255.0 * np.clip(error, 0.0, 1.0)).astype(np.uint8),
            developed(pictures["over, own"]),
            developed(pictures["over, filled"]),
        ],
        axis=1,
    )


def markdown(result: dict[str, Any]) -> str:
    names = list(result["rows"][0]["near_dB"])
    lines = [
        "# Rendering against rays" + (", scenes that were never tuned on" if result["seed"] else ""),
        "",
        f"Scenes of seed {result['seed']}, {WIDTH}×{HEIGHT} pixels, {POINTS} points of the pupil; PSNR in dB, clipped "
        f"at white: away from depth edges / within one circle of confusion of "
        f"them. {result['machine']['cpu']}, jax {result['machine']['jax']}.",
        "",
        "| scene | blur radii, px | near edges | " + " | ".join(names) + " |",
        "| --- " * (len(names) + 3) + "|",
    ]
    for row in result["rows"]:
        cells = [
            " / ".join("–" if v is None else f"{v:.1f}" for v in (row["away_dB"][name], row["near_dB"][name]))
            for name in names
        ]
        low, high = row["coc_px"]
        lines.append(
            f"| {row['scene']} | {low:.1f} … {high:.1f} | {row['share_near_edges']:.0%} | " + " | ".join(cells) + " |"
        )
    lines += ["", "At least 42 dB away and 32 dB near:", ""]
    for way in ("defocus", "defocus, 4 parts"):
        good = [r["scene"] for r in result["rows"] if r["away_dB"][way] >= 42.0 and r["near_dB"][way] >= 32.0]
        lines.append(f"- {way}: {len(good)} of {len(result['rows'])} ({', '.join(good)})")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--images", type=Path, default=None)
    parser.add_argument("--keep", type=Path, default=None)
    options = read_arguments(parser)
    seed, name_of_result = (1, "render_truth_held_out") if options.held_out else (0, "render_truth")
    keep = None if options.keep is None else options.keep / f"seed{seed}"
    cases = [(name, name, None) for name in NAMES]
    cases += [(f"{name} at {focus:g} m", name, focus) for name, focus in REFOCUSED.items()]
    rows, strips = [], {}
    for label, name, focus in cases:
        scene = make_scene(name, (WIDTH, HEIGHT), seed)
        lens = scene.lens if focus is None else ThinLens(scene.lens.pupil_radius_mm, focus)
        row, pictures = judge(label, scene, lens, keep)
        print(label, {k: [row["away_dB"][k], row["near_dB"][k]] for k in row["near_dB"]}, flush=True)
        rows.append(row)
        if label in SHOWN:
            strips[label] = strip(pictures)
        if keep is not None:
            np.savez(keep / f"rendered_{label.replace(' ', '_')}.npz", **pictures)
    result = {"machine": machine(), "seed": seed, "rows": rows}
    write_report(options.out, name_of_result, result, markdown(result))
    if options.images is not None:
        sheet = Image.fromarray(np.concatenate([strips[label] for label in SHOWN]))
        sheet = sheet.resize((sheet.width * 3 // 4, sheet.height * 3 // 4), Image.Resampling.LANCZOS)
        sheet.quantize(256, method=Image.Quantize.MEDIANCUT).save(options.images / "render_truth.png", optimize=True)


if __name__ == "__main__":
    main()
