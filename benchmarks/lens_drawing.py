"""Do pictures have the lens's geometry? A grid through real lenses, measured against chief rays.

    python benchmarks/lens_drawing.py [--picture FILE.jpg] [--out FOLDER] [--quick]

Distortion: where the map of `render.distortion` puts points of angles up to the corner, against chief rays that are
searched for by angle, another way than the map's own. Lateral colour: where red and blue of a white dot lie beside
its green, in a photograph whose PSFs are known at 3×5 nodes, against the PSF of the dot's own place on finer pixels.
--picture also draws a grid through three of the lenses.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from defocus import Camera, list_lenses, load_lens
from defocus.errors import DefocusError
from defocus.photo import SRGB, encode
from defocus.psf.bands import parse_bands
from defocus.render.distortion import find_distortion, lateral_colour_px
from machine import SMALL_LENS, amount, is_quick, machine, read_arguments, write_report

SIZE = (1680, 1120)
ANGLES = amount(16, quick=2)
FISHEYE, BARREL, OLD = "canon-ef-15-f2.8-fisheye", "canon-rf-16-f2.8", "olympus-zuiko-21-f3.5"
DOTS = ((0.85, 0.0), (0.62, 0.0), (0.62, 0.35), (0.35, 0.55), (0.4, 0.0))  # of half the width and half the height
REACH = 12  # px, of the window around a dot
FINE = 8  # pixels of the PSFs that photographs are compared with, per pixel
DOT_SIZE = amount((960, 640), quick=(64, 48))


def camera_of(name: str, size: tuple[int, int]) -> Camera:
    lens = load_lens(name)
    lens = lens.in_state(0) if lens.states else lens
    camera = Camera(lens, focus_m=10.0, pixels=size)
    return camera.stopped(max(8.0, float(camera.f_number)))


def distortion_of(name: str) -> dict[str, Any]:
    """Distortion at the corner, and the largest error of the map in pixels of SIZE."""
    camera = camera_of(name, SIZE)
    distortion = find_distortion(camera, SIZE)
    widest = math.degrees(min(distortion.angle[-1], math.radians(85.0)))
    pixels = float(camera.image_radius_mm) / (float(camera.pixel_um) * 1e-3)
    errors = []
    for angle in np.linspace(0.0, widest, ANGLES + 1)[1:]:
        try:
            _, field = camera.field_of_angle(float(angle))
        except DefocusError:
            continue
        ideal = distortion.scale_px * math.tan(math.radians(angle)) / distortion.zoom
        # From the image back to the ideal picture, in pixels of the image.
        local = field * pixels
        rate = (distortion.rectilinear_px(np.array(local)) - distortion.rectilinear_px(np.array(local - 0.5))) / 0.5
        errors.append(abs(float(distortion.rectilinear_px(np.array(local))) - ideal) / float(rate))
    corner = float(distortion.rectilinear_px(distortion.radius_px[-1:])[0]) * distortion.zoom
    return {
        "lens": name,
        "corner": distortion.radius_px[-1] / corner - 1.0 if math.isfinite(corner) else None,
        "zoom": distortion.zoom,
        "error_px": max(errors),
    }


def lateral_colour_of(name: str) -> list[dict[str, Any]]:
    """Red and blue beside green (px, outwards) of dots in a photograph, and of the PSFs of their places."""
    camera = camera_of(name, DOT_SIZE)
    fine = camera.with_pixels(pixel_um=float(camera.pixel_um) / FINE)
    width, height = DOT_SIZE
    light = np.zeros((height, width, 3), np.float32)
    places = [(round((1 + x) * (width - 1) / 2), round((1 - y) * (height - 1) / 2)) for x, y in DOTS[1 - ANGLES :]]
    rows, cols = np.mgrid[0:height, 0:width]
    for col, row in places:  # soft: splines keep the centroid of what they can draw
        light += np.exp(-((cols - col) ** 2 + (rows - row) ** 2) / (2 * 1.5**2))[..., None].astype(np.float32)
    depth = np.full((height, width), 10.0, np.float32)
    photograph = camera.photograph(light, depth, bands="rgb", sensor=False, distortion=True)
    picture = photograph.blurred.linear
    step, records = float(camera.pixel_um) * 1e-3 / float(camera.image_radius_mm), []
    for place in places:
        distance = np.hypot(*np.moveaxis(np.asarray(photograph.source_map) - place, -1, 0))
        row, col = np.unravel_index(np.nanargmin(distance), distance.shape)
        x, y = col - (width - 1) / 2, (height - 1) / 2 - row
        psf = fine.psf(10.0, (x * step, y * step), 96, "rgb").array
        window = np.moveaxis(picture[row - REACH : row + REACH, col - REACH : col + REACH], -1, 0)
        records.append({"lens": name, "field": math.hypot(x, y) * step})
        for key, bands in (("photograph", window), ("psf", psf)):
            pixels = 1.0 if key == "photograph" else 1.0 / FINE
            outwards = [pixels * centroid(band) @ (np.array([x, y]) / math.hypot(x, y)) for band in bands]
            records[-1][key] = [outwards[0] - outwards[1], outwards[2] - outwards[1]]
        records[-1]["chief"] = beside_green(camera, records[-1]["field"])
    return records


def beside_green(camera: Camera, field: float) -> list[float]:
    """Red and blue chief rays beside green ones (px, outwards) at a field height."""
    red, green, blue = lateral_colour_px(camera, parse_bands("rgb"), np.array([field]))[:, 0]
    return [float(red - green), float(blue - green)]


def centroid(light: np.ndarray) -> np.ndarray:
    """Where the light of a window lies from the pixel after its middle: x, and y up."""
    at = np.arange(len(light)) - len(light) / 2.0
    return np.array([(light.sum(0) * at).sum(), -(light.sum(1) * at).sum()]) / light.sum()


def draw(path: Path) -> None:
    """A grid through a fisheye, a wide-angle with barrel distortion and an old lens, and a part of its corner."""
    panels = [grid_picture(name, (480, 320)) for name in (FISHEYE, BARREL)]
    fine = grid_picture(OLD, (1920, 1280))
    panels.append(np.asarray(Image.fromarray(fine).resize((480, 320), Image.Resampling.BOX)))
    corner = Image.fromarray(fine[60:140, 1730:1850]).resize((480, 320), Image.Resampling.NEAREST)
    gap = np.full((8, 480, 3), 255, np.uint8)
    left, right = np.vstack([panels[0], gap, panels[2]]), np.vstack([panels[1], gap, np.asarray(corner)])
    Image.fromarray(np.hstack([left, np.full((len(left), 8, 3), 255, np.uint8), right])).save(path, quality=90)


def grid_picture(name: str, size: tuple[int, int]) -> np.ndarray:
    """A flat grid as the lens takes it, as display values."""
    width, height = size
    y, x = np.mgrid[0:height, 0:width].astype(float)
    cell, line = width / 24, max(width / 500, 1.0)
    near = [np.abs((v - (n - 1) / 2 + cell / 2) % cell - cell / 2) for v, n in ((x, width), (y, height))]
    light = np.where((np.minimum(*near) < line)[..., None], 0.03, 0.85) * np.ones(3)
    camera = camera_of(name, size)
    depth = np.full((height, width), 10.0, np.float32)
    photograph = camera.photograph(
        light.astype(np.float32), depth, distortion=True, relative_illumination=True, bands="rgb-full", sensor=False
    )
    return np.round(np.asarray(encode(photograph.blurred.linear, SRGB)) * 255).astype(np.uint8)


def markdown(result: dict[str, Any]) -> str:
    """The report as Markdown."""
    about, rows = result["machine"], result["distortion"]
    worst = max(rows, key=lambda row: row["error_px"])
    coma = max(abs(row["chief"][k] - row["psf"][k]) for row in result["lateral_colour"] for k in (0, 1))
    lines = [
        "# Pictures as the lens draws them",
        "",
        f"{len(rows)} lenses, {SIZE[0]}×{SIZE[1]} pixels that fill the image circle, focused at 10 m. The map's places",
        f"of {ANGLES} angles up to the corner against chief rays searched for by angle: at most",
        f"{worst['error_px']:.1e} px ({worst['lens']}). {about['cpu']}, Python {about['python']}.",
        "",
        "| lens | distortion at the corner | picture enlarged by | largest error, px |",
        "| --- | --- | --- | --- |",
    ]
    for row in sorted(rows, key=lambda row: row["corner"] if row["corner"] is not None else -1.0):
        corner = "beyond 90°" if row["corner"] is None else f"{row['corner']:+.2%}"
        lines.append(f"| {row['lens']} | {corner} | {row['zoom']:.3f} | {row['error_px']:.1e} |")
    lines += [
        "",
        f"## Lateral colour: PSFs at 3×5 nodes over {DOT_SIZE[0]}×{DOT_SIZE[1]} pixels",
        "",
        f"Outwards beside green, in pixels: in the photograph, and of the PSF at the dot's own place on {FINE} times",
        "finer pixels. Photographs have each colour where its chief rays land, as it is drawn; a PSF's centroid lies",
        f"beside them by as much as coma is another in red or blue than in green, up to {coma:.2f} px here.",
        "",
        "| lens | field | red, photograph | chief rays | PSF | blue, photograph | chief rays | PSF |",
        "| --- " * 8 + "|",
    ]
    for row in result["lateral_colour"]:
        pairs = " | ".join(f"{row[key][k]:+.3f}" for k in (0, 1) for key in ("photograph", "chief", "psf"))
        lines.append(f"| {row['lens']} | {row['field']:.2f} | {pairs} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="also draw a grid through three lenses: .jpg")
    options = read_arguments(parser)
    every = [entry.name for entry in list_lenses() if entry.category == "interchangeable"]
    names = [SMALL_LENS] if is_quick() else sorted({*every[::3], FISHEYE, BARREL, OLD})
    result = {
        "machine": machine(),
        "distortion": [distortion_of(name) for name in names],
        "lateral_colour": [
            row
            for name in amount([OLD, "canon-serenar-50-f1.8"], quick=[SMALL_LENS])
            for row in lateral_colour_of(name)
        ],
    }
    if options.picture is not None:
        draw(options.picture)
    write_report(options.out, "lens_drawing", result, markdown(result))


if __name__ == "__main__":
    main()
