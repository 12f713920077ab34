"""`defocus psf`, `psf-…`, `wavefront`, `pupils` and `through-focus`: PSFs and what lies behind them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import DefocusError
from ..lens.prescription import D_LINE_NM
from ..psf.window import CLOSE_UP
from .options import (
    BandsOption,
    CameraOptions,
    FieldOption,
    FigureOption,
    JsonOption,
    LensOptions,
    check_outputs,
    json_text,
    make_camera,
    numbers,
    point,
    print_files,
    print_result,
)
from .progress import status_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPUTING = "computing PSFs; the first time compiles"
NumbersOrFigures = Annotated[
    list[Path] | None,
    typer.Option("--out", help="What to write: .npz for numbers, .png, .svg or .pdf; can be repeated."),
]
Fields = Annotated[str, "Where the points appear: heights above the centre, of the image radius."]
TileSize = Annotated[
    int | None, typer.Option(help="Pixels across a tile; by default room for the blur.", min=1, max=1024)
]
MethodOption = Annotated[
    Literal["wave", "paper", "huygens", "fraunhofer", "gaussian", "disk"],
    "All but wave are for comparison; huygens is slow.",
]
ScaleOption = Annotated[Literal["linear", "log"], "How light becomes brightness."]
FIELDS = "0,0.5,0.7,1"
NPZ = "figure or .npz"  # what --out may be
HEIGHTS, METRES = "heights between -1 and 1, with commas", "metres or inf, with commas"  # what is expected


def psf(
    use: CameraOptions,
    depth_m: Annotated[float, "Depth of the point in metres; inf is allowed."] = math.inf,
    field: FieldOption = "0,0",
    field_deg: Annotated[float | None, "Field angle in degrees instead; the image lies upwards."] = None,
    image_height_mm: Annotated[float | None, "Image height in mm instead; it lies upwards."] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Pixels across the window; with --pixel-um alone, room for the blur.", min=1, max=2048),
    ] = None,
    bands: BandsOption = "rgb",
    method: MethodOption = "wave",
    half: Annotated[
        Literal["left", "right"] | None, "The light of half the lens, as dual-pixel sensors see it."
    ] = None,
    supersample: Annotated[
        int | None, typer.Option(help="Samples per pixel and axis; by default enough; 1: points.", min=1, max=99)
    ] = None,
    exact: Annotated[bool, "Light waves for large blurs, too, where rays are within about 1 %: slow."] = False,
    out: NumbersOrFigures = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the point spread function of a lens.

    Without --pixel-um and --size, pixels are so fine that it fills a window of 128 of them; with --size alone,
    1680×1120 pixels fill the lens's image.
    """
    files = out or []
    check_outputs(*((path, NPZ) for path in files), inputs=[use.lens])
    place = point(field)
    if sum((place != (0.0, 0.0), field_deg is not None, image_height_mm is not None)) > 1:
        raise DefocusError("give one of --field, --field-deg and --image-height-mm")
    with status_line(COMPUTING):
        camera = use.camera()
        if field_deg is not None:
            place = camera.field_of_angle(field_deg)
        elif image_height_mm is not None:
            place = (0.0, image_height_mm / camera.image_radius_mm)
        if use.pixel_um is None and size is None:
            camera, size = camera.close_up(depth_m, place, bands), CLOSE_UP
        result = camera.psf(depth_m, place, size, bands, method=method, supersample=supersample, side=half, exact=exact)
        for path in files:
            result.save(path)
    print_result(result.report, *files, as_json=as_json, width=24)


def psf_grid(
    use: CameraOptions,
    fields: Fields = FIELDS,
    depths_m: Annotated[str | None, "Depths in metres, such as 1,2,inf; by default around the focus."] = None,
    size: TileSize = None,
    bands: BandsOption = "rgb",
    method: MethodOption = "wave",
    scale: ScaleOption = "linear",
    decades: Annotated[float, typer.Option(help="What a log scale spans.", min=1.0, max=12.0)] = 4.0,
    out: NumbersOrFigures = None,
) -> None:
    """Draw PSFs of a lens over field (columns) and depth (rows)."""
    import numpy as np

    from ..draw import compute_psf_grid, draw_psf_grid, save
    from ..files.stores import writing_file

    heights = numbers("--fields", fields, HEIGHTS)
    depths = None if depths_m is None else numbers("--depths-m", depths_m, METRES)
    if not out:
        raise DefocusError("nothing to write: give --out FILE.png or --out FILE.npz")
    check_outputs(*((path, NPZ) for path in out), inputs=[use.lens])
    with status_line(COMPUTING) as bar:
        camera = use.camera()
        grid = compute_psf_grid(
            camera, fields=heights, depths_m=depths, size=size, bands=bands, method=method,
            progress=bar.counter("computing PSFs", len(heights) * len(depths or range(3))),
        )  # fmt: skip
    for path in out:
        if path.suffix.lower() != ".npz":
            save(draw_psf_grid(grid, scale=scale, decades=decades), path)
            continue
        report = {"lens": camera.lens.name, "focus_m": camera.focus_m, "method": method, "tiles": grid.reports}
        with writing_file(path) as file:
            np.savez_compressed(
                file,
                psf=grid.psf,
                fields=np.array(grid.fields),
                depths_m=np.array(grid.depths_m),
                circle_of_confusion_px=np.array(grid.circle_of_confusion_px),
                wavelengths_nm=np.array(grid.bands.mean_nm),
                pixel_um=camera.pixel_um,
                report=json_text(report),
            )
    print_files(*out)
    for depth, row in zip(grid.depths_m, grid.reports, strict=True):
        for field, report in zip(grid.fields, row, strict=True):
            if report["status"] != "ok":
                typer.echo(f"note: field {field:g}, depth {depth:g} m: {report['status']}", err=True)


def psf_gallery(
    lenses: Annotated[
        list[str], typer.Argument(metavar="LENS...", help="Built-in names or lens files; LENS@STATE selects a state.")
    ],
    out: FigureOption,
    depth_m: Annotated[float, "Depth of the points in metres; inf is allowed."] = math.inf,
    focus_m: Annotated[float, "Focus distance of all lenses in metres; inf is allowed."] = math.inf,
    f_number: Annotated[float | None, "Stop all lenses down."] = None,
    pixel_um: Annotated[float | None, "Pixel pitch; by default 1680×1120 fill the image of each."] = None,
    fields: Fields = FIELDS,
    size: TileSize = None,
    bands: BandsOption = "rgb",
    method: MethodOption = "wave",
    scale: ScaleOption = "linear",
) -> None:
    """Draw PSFs of several lenses (rows) over the field (columns)."""
    from ..draw import compute_psf_gallery, draw_psf_gallery, save

    heights = numbers("--fields", fields, HEIGHTS)
    check_outputs((out, "figure"), inputs=lenses)
    with status_line(COMPUTING) as bar:
        cameras = [make_camera(lens, focus_m=focus_m, f_number=f_number, pixel_um=pixel_um) for lens in lenses]
        gallery = compute_psf_gallery(
            cameras, depth_m, fields=heights, size=size, bands=bands, method=method,
            progress=bar.counter("computing PSFs", len(heights) * len(cameras)),
        )  # fmt: skip
    save(draw_psf_gallery(gallery, scale=scale), out)
    print_files(out)
    for note in gallery.notes:
        typer.echo(f"note: {note}", err=True)


def psf_compare(
    folder: Annotated[
        Path,
        typer.Argument(help="Huygens or FFT PSFs that Zemax exported as .txt, one wavelength each, and their lenses."),
    ],
    lens: Annotated[
        str | None, "The lens of all; by default the file that each export names, in the same folder."
    ] = None,
    depth_m: Annotated[
        float | None, "Depth of the point in metres; by default the lens file's object distance."
    ] = None,
    sensor_shift_mm: Annotated[float, "How far the exported image plane stands behind the lens file's."] = 0.0,
    method: MethodOption = "wave",
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", help="The table, .csv, or the figure, .png, .svg or .pdf; can be repeated."),
    ] = None,
) -> None:
    """Compare PSFs with those that Zemax exported."""
    from ..draw import compare_with_zemax, draw_zemax_comparison, save
    from ..files.stores import write_file

    files = out or []
    check_outputs(*((path, "figure or .csv") for path in files), inputs=[lens])
    with status_line(COMPUTING):
        comparisons = compare_with_zemax(
            folder, lens=lens, depth_m=depth_m, sensor_shift_mm=sensor_shift_mm, method=method
        )
    rows = [comparison.row for comparison in comparisons]
    for path in files:
        if path.suffix.lower() != ".csv":
            save(draw_zemax_comparison(comparisons, method), path)
            continue
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        write_file(path, table.getvalue().encode())
    typer.echo("relative L1  blurred  correlation  PSF")
    for row in rows:
        if row["status"] == "ok":
            numbers_text = (
                f"{row['relative_l1']:>11.4f}  {row['relative_l1_blurred']:>7.4f}  {row['correlation']:>11.4f}"
            )
            typer.echo(f"{numbers_text}  {row['file']}")
        else:
            typer.echo(f"note: {row['file']}: {row['status']}", err=True)
    print_files(*files)


@dataclass(frozen=True)
class FieldsOptions:
    """A drawing of several fields."""

    out: FigureOption
    depth_m: Annotated[float, "Depth of the points in metres; inf is allowed."] = math.inf
    fields: Fields = FIELDS
    wavelength_nm: Annotated[float, typer.Option(help="Wavelength in nm.", min=200.0, max=2500.0)] = D_LINE_NM

    def draw(self, function: Callable[..., Figure], use: LensOptions, **options: Any) -> None:
        """Draw the fields of a lens and write the figure."""
        from ..draw import save

        heights = numbers("--fields", self.fields, HEIGHTS)
        check_outputs((self.out, "figure"), inputs=[use.lens])
        points: dict[str, Any] = {"depth_m": self.depth_m, "fields": heights, "wavelength_nm": self.wavelength_nm}
        with status_line("tracing rays; the first time compiles"):
            figure = function(use.camera(), **points, **options)
            save(figure, self.out)
        print_files(self.out)


def wavefront(
    use: LensOptions,
    over: FieldsOptions,
    remove: Annotated[Literal["piston", "tilt", "defocus"], "Tilt with piston, defocus with both."] = "tilt",
) -> None:
    """Draw wavefronts and amplitudes over the pupil."""
    from ..draw import draw_wavefronts

    over.draw(draw_wavefronts, use, remove=remove)


def pupils(use: LensOptions, over: FieldsOptions) -> None:
    """Draw the pupils of several fields: how vignetting cuts them."""
    from ..draw import draw_pupils

    over.draw(draw_pupils, use)


def through_focus(
    use: CameraOptions,
    out: FigureOption,
    depths_m: Annotated[str | None, "Depths of the point in metres, such as 1,2,inf."] = None,
    shifts_mm: Annotated[str | None, "Or places of the sensor behind its focus in mm, such as -0.1,0,0.1."] = None,
    field: FieldOption = "0,0",
    size: TileSize = None,
    bands: BandsOption = "rgb",
    method: MethodOption = "wave",
    scale: ScaleOption = "linear",
) -> None:
    """Draw a row of PSFs through the focus."""
    from ..draw import draw_through_focus, save

    if (depths_m is None) == (shifts_mm is None):
        raise DefocusError("give --depths-m or --shifts-mm, such as --shifts-mm=-0.1,0,0.1")
    places: dict[str, Any] = (
        {"sensor_shifts_mm": numbers("--shifts-mm", shifts_mm, "mm between commas")}
        if shifts_mm is not None
        else {"depths_m": numbers("--depths-m", depths_m or "", METRES)}
    )
    check_outputs((out, "figure"), inputs=[use.lens])
    with status_line(COMPUTING) as bar:
        progress = bar.counter("computing PSFs", sum(map(len, places.values())))
        options: dict[str, Any] = {"field": point(field), "size": size, "bands": bands, "method": method}
        save(draw_through_focus(use.camera(), scale=scale, progress=progress, **options, **places), out)
    print_files(out)
