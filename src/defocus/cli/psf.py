"""`defocus psf`: point spread functions of a lens."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import DefocusError
from .lens import LensArgument
from .outputs import check_outputs

REPORTED = ("samples", "sampling_bound", "residual_waves", "energy_outside", "relative_illumination")


def psf(
    lens: LensArgument,
    focus_m: Annotated[float, typer.Option(help="Focus distance in metres; inf is allowed.")] = math.inf,
    depth_m: Annotated[float, typer.Option(help="Depth of the point in metres; inf is allowed.")] = math.inf,
    field: Annotated[tuple[float, float], typer.Option(help="Where the point appears: X Y, of the image radius.")] = (
        0,
        0,
    ),
    field_deg: Annotated[
        float | None, typer.Option(help="Field angle in degrees instead; the image lies upwards.")
    ] = None,
    image_height_mm: Annotated[float | None, typer.Option(help="Image height in mm instead; it lies upwards.")] = None,
    sensor_shift_mm: Annotated[
        float | None, typer.Option(help="Put the sensor this far behind the prescription's image plane.")
    ] = None,
    pixel_um: Annotated[float | None, typer.Option(help="Pixel pitch; by default 1680×1120 fill the image.")] = None,
    size: Annotated[int, typer.Option(help="Pixels across the window.", min=1, max=2048)] = 64,
    bands: Annotated[str, typer.Option(help="d, rgb, or wavelengths in nm: 486.1,587.6")] = "rgb",
    f_number: Annotated[float | None, typer.Option(help="Stop the lens down.")] = None,
    blades: Annotated[int | None, typer.Option(help="Blades of the iris of a lens that is stopped down.")] = None,
    method: Annotated[
        str, typer.Option(help="debye, or for comparison exit-pupil, huygens, fraunhofer, gaussian, disk.")
    ] = "debye",
    half: Annotated[
        str | None, typer.Option(help="left or right: the light of half the lens, as dual-pixel sensors see it.")
    ] = None,
    supersample: Annotated[
        int | None, typer.Option(help="Samples per pixel and axis; by default enough; 1: points.", min=1, max=99)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write an .npz file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it: .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compute a point spread function of a lens."""
    import numpy as np

    from ..lens import load_lens
    from ..render import METHODS, Camera

    if method not in METHODS:
        raise DefocusError(f"method {method!r}; known are {', '.join(METHODS)}")
    if half not in (None, "left", "right"):
        raise DefocusError(f"--half {half}: expected left or right")
    if half and method not in ("debye", "exit-pupil"):
        raise DefocusError(f"--half: method {method} knows no halves")
    check_outputs(out, plot)
    if sum((field != (0, 0), field_deg is not None, image_height_mm is not None)) > 1:
        raise DefocusError("give one of --field, --field-deg and --image-height-mm")
    camera = Camera(
        load_lens(lens),
        focus_m=focus_m,
        pixel_um=pixel_um,
        f_number=f_number,
        sensor_shift_mm=sensor_shift_mm,
        blades=blades,
    )
    options: dict[str, Any] = {"supersample": supersample, "method": method} | ({"side": half} if half else {})
    if field_deg is not None:
        options |= {"height": [math.radians(abs(field_deg))], "by": "angle"}
    elif image_height_mm is not None:
        options |= {"height": [abs(image_height_mm)]}
    result = camera.psf(depth_m, (float(field[0]), float(field[1])), size, bands, **options)
    report = {"lens": camera.lens.name, "method": method, "pixel_um": result.pixel_um}
    report |= dict.fromkeys(REPORTED) | result.report  # what a method does not know is null
    if out is not None:
        np.savez_compressed(
            out,
            psf=result.array,
            wavelengths_nm=np.array(result.bands.mean_nm),
            pixel_um=result.pixel_um,
            report=json.dumps(report),
        )
    if plot is not None:
        from ..draw import draw_psf, save

        azimuth = math.atan2(field[1], field[0]) if field != (0, 0) else math.pi / 2.0
        save(draw_psf(result, f"{camera.lens.name}: {method}", azimuth=azimuth), plot)
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    for key, value in report.items():
        typer.echo(f"{key:<24}{value:.6g}" if isinstance(value, float) else f"{key:<24}{value}")
    for path in (out, plot):
        if path is not None:
            typer.echo(f"wrote {path}")
