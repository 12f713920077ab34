"""`defocus depth`: the depth of a photograph, by a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DefocusError
from .develop import PhotoArgument


def depth(
    photo: PhotoArgument,
    out: Annotated[Path, typer.Option(help="The depth map: .npz, .npy, .png, .pfm, .dpt or .exr.", show_default=False)],
    model: Annotated[
        str, typer.Option(help="depth-pro, depth-anything-indoor or depth-anything-outdoor.")
    ] = "depth-pro",
    weights: Annotated[str | None, typer.Option(help="A folder with the model, or another name in the cache.")] = None,
    focal_px: Annotated[
        float | None, typer.Option(help="Focal length in pixels; by default from EXIF, else the network's guess.")
    ] = None,
    scale_m: Annotated[float | None, typer.Option(help="Metres of one step of a .png, such as 0.001.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Estimate the depth of a photograph with a network, in metres."""
    import numpy as np

    from ..photo import SRGB, encode, read_photo
    from ..scene.depth_files import check_depth_path, write_depth
    from ..scene.depth_models import estimate_depth, focal_length_px

    kind = check_depth_path(out, writable=True)
    if kind == ".png" and scale_m is None:
        raise DefocusError(f"{out}: a PNG holds whole numbers; say with --scale-m how many metres one is")
    if plot is not None:
        from ..draw import check_figure_path

        check_figure_path(plot)
    read = read_photo(photo)
    exif = read.exif
    from_exif = focal_length_px(read.size, focal_mm=exif.focal_mm, focal_35mm=exif.focal_35mm, pixel_um=exif.pixel_um)
    srgb = np.asarray(encode(read.linear(), SRGB), dtype=np.float32)
    found = estimate_depth(
        np.clip(srgb, 0.0, 1.0), model, weights=weights, focal_px=from_exif if focal_px is None else focal_px
    )
    made = found.depth
    write_depth(out, made.depth_m, intrinsics=made.intrinsics, scale_m=scale_m)
    origin = "EXIF" if found.focal_from == "given" and focal_px is None else found.focal_from
    report = {
        "photo": str(photo),
        "model": found.model,
        "size": list(made.size),
        "focal_px": found.focal_px,
        "focal_from": origin,
        "nearest_m": float(made.depth_m.min()),
        "median_m": float(np.median(made.depth_m)),
        "farthest_m": float(made.depth_m.max()),
        "notes": [*read.notes, *made.notes],
    }
    if plot is not None:
        from ..draw import draw_depth, save

        save(draw_depth(srgb, made.depth_m, photo.name, f"{model}, focal length from {origin}"), plot)
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    for key, value in report.items():
        if key != "notes" and value is not None:
            typer.echo(f"{key:<16}{value:.5g}" if isinstance(value, float) else f"{key:<16}{value}")
    for note in [*read.notes, *made.notes]:
        typer.echo(f"{'note':<16}{note}")
    for path in (out, plot):
        if path is not None:
            typer.echo(f"wrote {path}")


__all__ = ["depth"]
