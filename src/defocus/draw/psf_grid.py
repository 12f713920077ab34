"""PSFs in rows and columns: fields over depths, or one field through the focus.

Each tile is scaled to its own maximum. Tiles are laid out in whole device pixels, so that every pixel of a PSF is a
square of the same size. A tile that cannot be computed says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ..camera import Camera, psfs
from ..errors import DefocusError
from ..psf.bands import Bands, BandsLike
from ..psf.method import Method
from . import style
from .psf_plot import DECADES, Scale, check_scale, light_bar, paint_psf, psf_scale_bar, scale_text, tile_side
from .sheet import Sheet, head

FIELDS = (0.0, 0.5, 0.7, 1.0)
GAP = 6 / style.DPI  # inches, all of them whole device pixels
LEFT, RIGHT, TOP, BOTTOM = 132 / style.DPI, 48 / style.DPI, 172 / style.DPI, 124 / style.DPI
NARROWEST = 560 / style.DPI  # of the tiles together: room for title and notes


@dataclass(frozen=True)
class PsfGrid:
    """PSFs in rows and columns, with the words around them."""

    camera: Camera
    psf: Float[np.ndarray, "rows columns bands size size"]
    bands: Bands
    reports: tuple[tuple[dict[str, Any], ...], ...]  # [row][column]
    below: str  # the line below the title
    heads: tuple[tuple[str, str], ...]  # above each column: a name, and a fainter line
    sides: tuple[tuple[str, str], ...]  # beside each row, likewise; empty: no words there
    footnote: str = ""
    fields: tuple[float, ...] = ()  # upwards in the photograph, of the image radius
    depths_m: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Pixels across a tile."""
        return self.psf.shape[-1]

    @property
    def circle_of_confusion_px(self) -> list[float]:
        """Signed paraxial blur radius for each depth, pixels."""
        return [self.camera.circle_of_confusion_px(depth) for depth in self.depths_m]


def compute_psf_grid(
    camera: Camera,
    *,
    fields: Sequence[float] = FIELDS,
    depths_m: Sequence[float] | None = None,
    size: int | None = None,
    bands: BandsLike = "rgb",
    method: Method = "wave",
    **options: Any,
) -> PsfGrid:
    """PSFs of points that appear `fields` × the image radius above the centre, at `depths_m`.

    Without depths: half the focus distance, the focus and infinity. Without a size: room for the largest circle of
    confusion. `options` go to `Camera.psfs`. Nothing is raised for a single tile; its report says what is wrong.
    """
    near = (2.0, 10.0) if math.isinf(camera.focus_m) else (camera.focus_m / 2.0, camera.focus_m)
    depths = tuple(map(float, depths_m)) if depths_m is not None else (*near, math.inf)
    if not fields or not depths:
        raise DefocusError("a grid of PSFs needs at least one field and one depth")
    cells = [(d, (0.0, float(f))) for d in depths for f in fields]
    batch = camera.psfs([d for d, _ in cells], [f for _, f in cells], size, bands, method=method, **options)
    blur = [camera.circle_of_confusion_px(d) for d in depths]  # by now they are depths
    reports = tuple(batch.reports[i : i + len(fields)] for i in range(0, len(cells), len(fields)))
    size = batch.psf.shape[-1]
    window = f"{size} × {size} pixels of {camera.pixel_um:.3g} µm"
    return PsfGrid(
        camera,
        batch.psf.reshape((len(depths), len(fields), *batch.psf.shape[1:])),
        batch.bands,
        reports,
        f"{style.setting(camera.f_number, camera.focus_m)} · {window} · {band_names(batch.bands)}{method_text(method)}",
        heads=tuple(_field_head(f, column) for f, column in zip(fields, zip(*reports, strict=True), strict=True)),
        sides=tuple((style.distance(d), f"CoC\n{style.signed(c, 1)} px") for d, c in zip(depths, blur, strict=True)),
        footnote="up is up in the photograph\nCoC: paraxial blur radius, positive beyond the focus",
        fields=tuple(map(float, fields)),
        depths_m=depths,
    )


def band_names(bands: Bands) -> str:
    """The bands in words: colours, or wavelengths."""
    rgb = bands.names == ("red", "green", "blue")
    return "red, green, blue" if rgb else ", ".join(f"{w:.4g} nm" for w in bands.mean_nm)


def method_text(method: Method) -> str:
    """What the line below a title says of PSFs that are not by the default method."""
    return "" if method == "wave" else f" · method {method}"


def field_name(field: float) -> str:
    """A field (of the image radius) in words."""
    return "axis" if field == 0.0 else style.minus(f"field {field:.3g}")


def _field_head(field: float, reports: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """A field, and its image height and angle as the first tile tells that knows them, drawn or refused."""
    for report in reports:
        if math.isfinite(report.get("field_deg", math.nan)):
            return field_name(field), f"{report['image_height_mm']:.3g} mm, {report['field_deg']:.3g}°"
    # the disc and the Gaussian know no chief ray
    return field_name(field), "" if any(report["status"] == "ok" for report in reports) else "no light"


@style.look()
def draw_psf_grid(grid: PsfGrid, *, scale: Scale = "linear", decades: float = DECADES) -> Figure:
    """The grid as a figure; `scale` "log" shows `decades` below each tile's maximum."""
    check_scale(scale)
    rows, columns = grid.psf.shape[:2]
    side, left = tile_side(grid.size), LEFT if grid.sides else RIGHT
    tiles = columns * (side + GAP) - GAP, rows * (side + GAP) - GAP
    sheet = Sheet(left + max(tiles[0], NARROWEST) + RIGHT, TOP + tiles[1] + BOTTOM)
    sheet.title(grid.camera.lens.name, grid.below)
    for row in range(rows):
        bottom = sheet.height - TOP - row * (side + GAP) - side
        for column in range(columns):
            axes = sheet.axes((left + column * (side + GAP), bottom, side, side))
            paint_psf(axes, grid.psf[row, column], grid.bands, grid.reports[row][column], scale, decades)
            if row == 0:
                head(axes, *grid.heads[column])
        if grid.sides:
            name, below = grid.sides[row]
            sheet.text(left - 14 / style.DPI, bottom + side / 2, name, ha="right", va="bottom", fontweight="bold")
            sheet.text(left - 14 / style.DPI, bottom + side / 2, below, ha="right", va="top", color=style.FAINT)
    pixel_um = grid.camera.pixel_um
    psf_scale_bar(sheet, left, BOTTOM - 0.12, side, grid.size * pixel_um, pixel_um)
    if scale == "log" or len(grid.bands.names) == 1:
        light_bar(sheet, (sheet.width - RIGHT - 1.5, BOTTOM - 0.21, 1.5, 0.09), len(grid.bands.names), scale, decades)
    lines = "; ".join(filter(None, (scale_text(scale, decades), grid.footnote))).split("\n")
    for number, line in enumerate(reversed(lines)):
        sheet.footnote(line, 0.075 + 0.13 * number)
    return sheet.figure


def draw_through_focus(
    camera: Camera,
    *,
    field: tuple[float, float] = (0.0, 0.0),
    depths_m: Sequence[float] | None = None,
    sensor_shifts_mm: Sequence[float] | None = None,
    size: int | None = None,
    bands: BandsLike = "rgb",
    scale: Scale = "linear",
    method: Method = "wave",
    **options: Any,
) -> Figure:
    """A row of PSFs of a point that appears at `field`; `options` go to `psfs`.

    Either the point lies at each of `depths_m`, or it lies at the focus distance and the sensor stands each of
    `sensor_shifts_mm` behind its place (towards the lens where negative). Field heights count on the prescription's
    image plane; windows follow the chief ray.
    """
    check_scale(scale)
    if depths_m is not None and sensor_shifts_mm is None:
        blur = [camera.circle_of_confusion_px(d) for d in depths_m]
        batch = camera.psfs(list(depths_m), field, size, bands, method=method, **options)
        heads = tuple((style.distance(d), f"CoC {style.signed(c, 1)} px") for d, c in zip(depths_m, blur, strict=True))
        what = "point at different depths"
    elif sensor_shifts_mm is not None and depths_m is None:
        cameras = [camera.shifted(camera.sensor_z_mm + shift) for shift in sensor_shifts_mm]
        batch = psfs(cameras, camera.focus_m, field, size, bands, method=method, **options)
        sides = ["towards the lens" if z < 0.0 else "behind" if z > 0.0 else "focus" for z in sensor_shifts_mm]
        heads = tuple((f"{style.signed(1e3 * z, 0)} µm", s) for z, s in zip(sensor_shifts_mm, sides, strict=True))
        what = "sensor at different places"
    else:
        raise DefocusError("give depths_m or sensor_shifts_mm")
    place = "axis" if field == (0.0, 0.0) else f"field ({field[0]:g}, {field[1]:g})"
    grid = PsfGrid(
        camera,
        batch.psf[None],
        batch.bands,
        (batch.reports,),
        f"{what} · {place} · {style.setting(camera.f_number, camera.focus_m)}{method_text(method)}",
        heads=heads,
        sides=(),
        depths_m=tuple(depths_m or ()),
    )
    return draw_psf_grid(grid, scale=scale)
