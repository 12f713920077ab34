"""`defocus psf-grid`: PSFs over field and depth in one figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DefocusError
from .lens import LensArgument
from .outputs import check_outputs, json_text


def psf_grid(
    lens: LensArgument,
    fields: Annotated[
        str, typer.Option(help="Where the points appear: heights above the centre, of the image radius.")
    ] = "0,0.5,0.7,1",
    depths_m: Annotated[
        str | None, typer.Option(help="Depths in metres, such as 1,2,inf; by default around the focus.")
    ] = None,
    focus_m: Annotated[float, typer.Option(help="Focus distance in metres; inf is allowed.")] = math.inf,
    size: Annotated[
        int | None, typer.Option(help="Pixels across a tile; by default room for the blur.", min=1, max=1024)
    ] = None,
    bands: Annotated[str, typer.Option(help="d, rgb, or wavelengths in nm: 486.1,587.6")] = "rgb",
    pixel_um: Annotated[float | None, typer.Option(help="Pixel pitch; by default 1680×1120 fill the image.")] = None,
    f_number: Annotated[float | None, typer.Option(help="Stop the lens down.")] = None,
    scale: Annotated[str, typer.Option(help="linear or log.")] = "linear",
    decades: Annotated[float, typer.Option(help="What a log scale spans.", min=1.0, max=12.0)] = 4.0,
    plot: Annotated[Path | None, typer.Option(help="Where to write the picture: .png, .svg or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all PSFs to an .npz file.")] = None,
) -> None:
    """Draw PSFs of a lens over field (columns) and depth (rows)."""
    import numpy as np

    from ..draw import save
    from ..draw.psf_grid import compute_psf_grid, draw_psf_grid
    from ..draw.psf_picture import check_scale
    from ..lens import load_lens
    from ..render import Camera

    # Everything that can be wrong is looked at before the long work.
    known_scale = check_scale(scale)
    heights = numbers("--fields", fields, "heights between -1 and 1")
    depths = None if depths_m is None else numbers("--depths-m", depths_m, "metres, or inf")
    if plot is None and out is None:
        raise DefocusError("nothing to write: give --plot FILE.png or --out FILE.npz")
    check_outputs(out, plot)
    camera = Camera(load_lens(lens), focus_m=focus_m, pixel_um=pixel_um, f_number=f_number)
    grid = compute_psf_grid(camera, fields=heights, depths_m=depths, size=size, bands=bands)
    if out is not None:
        np.savez_compressed(
            out,
            psf=grid.psf,
            fields=np.array(grid.fields),
            depths_m=np.array(grid.depths_m),
            circle_of_confusion_px=np.array(grid.circle_of_confusion_px),
            wavelengths_nm=np.array(grid.bands.mean_nm),
            pixel_um=camera.pixel_um,
            report=json_text({"lens": camera.lens.name, "focus_m": focus_m, "tiles": grid.reports}),
        )
        typer.echo(f"wrote {out}")
    if plot is not None:
        save(draw_psf_grid(grid, scale=known_scale, decades=decades), plot)
        typer.echo(f"wrote {plot}")
    for depth, row in zip(grid.depths_m, grid.reports, strict=True):
        for field, report in zip(grid.fields, row, strict=True):
            if report["status"] != "ok":
                typer.echo(f"note: field {field:g}, depth {depth:g} m: {report['status']}", err=True)


def numbers(option: str, text: str, expected: str) -> tuple[float, ...]:
    """Numbers between commas; inf is one, nan is not."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (math.nan,)
    if any(math.isnan(value) for value in values):
        raise DefocusError(f"{option} {text!r}: expected numbers between commas ({expected})")
    return values
