"""`defocus wavefront`, `pupils` and `through-focus`: what lies behind the PSFs of a lens, as figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..errors import DefocusError
from ..lens.prescription import D_LINE_NM
from .lens import LensArgument
from .outputs import check_outputs
from .psf_grid import numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..optics.pupil_map import Remove

Plot = Annotated[Path, typer.Option(help="Where to write the picture: .png, .svg or .pdf.")]
Focus = Annotated[float, typer.Option(help="Focus distance in metres; inf is allowed.")]
Depth = Annotated[float, typer.Option(help="Depth of the points in metres; inf is allowed.")]
Fields = Annotated[str, typer.Option(help="Where the points appear: heights above the centre, of the image radius.")]
Stop = Annotated[float | None, typer.Option(help="Stop the lens down.")]
Wavelength = Annotated[float, typer.Option(help="Wavelength in nm.", min=200.0, max=2500.0)]


def wavefront(
    lens: LensArgument,
    plot: Plot,
    focus_m: Focus = math.inf,
    depth_m: Depth = math.inf,
    fields: Fields = "0,0.5,0.7,1",
    wavelength_nm: Wavelength = D_LINE_NM,
    remove: Annotated[str, typer.Option(help="piston, tilt (and piston), or defocus (and both).")] = "tilt",
    f_number: Stop = None,
) -> None:
    """Draw wavefronts and amplitudes over the pupil."""
    from ..draw import draw_wavefronts
    from ..lens import load_lens
    from ..render import Camera

    heights = numbers("--fields", fields, "heights between -1 and 1")
    check_outputs(None, plot)
    camera = Camera(load_lens(lens), focus_m=focus_m, f_number=f_number)
    kept = cast("Remove", remove)
    _write(draw_wavefronts(camera, depth_m=depth_m, fields=heights, wavelength_nm=wavelength_nm, remove=kept), plot)


def pupils(
    lens: LensArgument,
    plot: Plot,
    focus_m: Focus = math.inf,
    depth_m: Depth = math.inf,
    fields: Fields = "0,0.5,0.7,1",
    wavelength_nm: Wavelength = D_LINE_NM,
    f_number: Stop = None,
) -> None:
    """Draw the pupils of several fields: how vignetting cuts them."""
    from ..draw import draw_pupils
    from ..lens import load_lens
    from ..render import Camera

    heights = numbers("--fields", fields, "heights between -1 and 1")
    check_outputs(None, plot)
    camera = Camera(load_lens(lens), focus_m=focus_m, f_number=f_number)
    _write(draw_pupils(camera, depth_m=depth_m, fields=heights, wavelength_nm=wavelength_nm), plot)


def through_focus(
    lens: LensArgument,
    plot: Plot,
    focus_m: Focus = math.inf,
    depths_m: Annotated[str | None, typer.Option(help="Depths of the point in metres, such as 1,2,inf.")] = None,
    shifts_mm: Annotated[
        str | None, typer.Option(help="Or places of the sensor behind its focus in mm, such as -0.1,0,0.1.")
    ] = None,
    field: Annotated[tuple[float, float], typer.Option(help="Where the point appears: X Y, of the image radius.")] = (
        0,
        0,
    ),
    size: Annotated[
        int | None, typer.Option(help="Pixels across a tile; by default room for the blur.", min=1, max=1024)
    ] = None,
    bands: Annotated[str, typer.Option(help="d, rgb, or wavelengths in nm: 486.1,587.6")] = "rgb",
    pixel_um: Annotated[float | None, typer.Option(help="Pixel pitch; by default 1680×1120 fill the image.")] = None,
    f_number: Stop = None,
    scale: Annotated[str, typer.Option(help="linear or log.")] = "linear",
) -> None:
    """Draw a row of PSFs through the focus."""
    from ..draw import draw_through_focus
    from ..draw.psf_picture import check_scale
    from ..lens import load_lens
    from ..render import Camera

    known_scale = check_scale(scale)
    if (depths_m is None) == (shifts_mm is None):
        raise DefocusError("give --depths-m or --shifts-mm, such as --shifts-mm=-0.1,0,0.1")
    depths = None if depths_m is None else numbers("--depths-m", depths_m, "metres, or inf")
    shifts = None if shifts_mm is None else numbers("--shifts-mm", shifts_mm, "mm")
    check_outputs(None, plot)
    camera = Camera(load_lens(lens), focus_m=focus_m, pixel_um=pixel_um, f_number=f_number)
    place = (float(field[0]), float(field[1]))
    _write(
        draw_through_focus(
            camera, field=place, depths_m=depths, sensor_shifts_mm=shifts, size=size, bands=bands, scale=known_scale
        ),
        plot,
    )


def _write(figure: Figure, plot: Path) -> None:
    from ..draw import save

    save(figure, plot)
    typer.echo(f"wrote {plot}")
