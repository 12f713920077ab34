"""A grid of PSFs: fields in columns, depths in rows.

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

from ..errors import DefocusError
from ..psf.spectrum import Bands
from ..render.camera import Camera
from . import style
from .psf_picture import (
    DECADES,
    Scale,
    check_scale,
    distance,
    mappable,
    paint_scale_bar,
    paint_tile,
    tidy_bar,
    tile_side,
    write_above,
)

FIELDS = (0.0, 0.5, 0.7, 1.0)
LARGEST = 256  # pixels across a tile, where nobody asked for a size
GAP = 6  # device pixels at style.DPI between tiles
LEFT, RIGHT, TOP, BOTTOM = 132, 48, 172, 124  # device pixels around the tiles


@dataclass(frozen=True)
class PsfGrid:
    """PSFs over depth and field, with what is needed to label them."""

    title: str
    fields: tuple[float, ...]  # upwards in the photograph, of the image radius
    depths_m: tuple[float, ...]
    focus_m: float
    f_number: float
    pixel_um: float
    bands: Bands
    psf: Float[np.ndarray, "depths fields bands size size"]
    circle_of_confusion_px: tuple[float, ...]  # signed radius for each depth; nan where it is not known
    reports: tuple[tuple[dict[str, Any], ...], ...]  # [depth][field]

    @property
    def size(self) -> int:
        """Pixels across a tile."""
        return self.psf.shape[-1]


def compute_psf_grid(
    camera: Camera,
    *,
    fields: Sequence[float] = FIELDS,
    depths_m: Sequence[float] | None = None,
    size: int | None = None,
    bands: str | tuple[float, ...] | Bands = "rgb",
    **options: Any,
) -> PsfGrid:
    """PSFs of points that appear `fields` × the image radius above the centre, at `depths_m`.

    Without depths: half the focus distance, the focus and infinity. Without a size: room for the largest circle of
    confusion. `options` go to `Camera.psfs`. Nothing is raised for a single tile; its report says what is wrong.
    """
    depths = tuple(depths_m) if depths_m is not None else _default_depths(camera)
    if not fields or not depths:
        raise DefocusError("a grid of PSFs needs at least one field and one depth")
    # The sensor's own place, where it was given, is not in the paraxial circle of confusion.
    known = camera.sensor_shift_mm is None
    blur = tuple(camera.circle_of_confusion_px(d) if known and d > 0.0 else math.nan for d in depths)
    size = size or fitting_size(blur)
    cells = [(d, (0.0, float(f))) for d in depths for f in fields]
    batch = camera.psfs([d for d, _ in cells], [f for _, f in cells], size, bands, **options)
    shape = (len(depths), len(fields))
    reports = tuple(batch.reports[i : i + len(fields)] for i in range(0, len(cells), len(fields)))
    return PsfGrid(
        camera.lens.name,
        tuple(float(f) for f in fields),
        tuple(float(d) for d in depths),
        camera.focus_m,
        float(camera.first_order.f_number),
        camera.pixel_um,
        batch.bands,
        batch.psf.reshape(shape + batch.psf.shape[1:]),
        blur,
        reports,
    )


def _default_depths(camera: Camera) -> tuple[float, ...]:
    if math.isinf(camera.focus_m):
        return (2.0, 10.0, math.inf)
    return (camera.focus_m / 2.0, camera.focus_m, math.inf)


def fitting_size(circle_of_confusion_px: Sequence[float]) -> int:
    """Pixels across a window that holds the largest of some blur radii, with room for aberrations."""
    largest = max((abs(c) for c in circle_of_confusion_px if math.isfinite(c)), default=0.0)
    return min(LARGEST, 8 * math.ceil((2.5 * largest + 24.0) / 8.0))


def draw_psf_grid(grid: PsfGrid, *, scale: Scale = "linear", decades: float = DECADES) -> Figure:
    """The grid as a figure; `scale` "log" shows `decades` below each tile's maximum."""
    check_scale(scale)
    rows, columns = len(grid.depths_m), len(grid.fields)
    side = tile_side(grid.size)
    wide = max(columns * (side + GAP) - GAP, 560)  # room for title and notes
    width = LEFT + wide + RIGHT
    height = TOP + rows * (side + GAP) - GAP + BOTTOM
    inches = width / style.DPI, height / style.DPI
    with style.look():
        figure = Figure(figsize=inches)
        style.title(figure, grid.title, _subtitle(grid), inches)
        for row in range(rows):
            bottom = height - TOP - row * (side + GAP) - side
            for column in range(columns):
                x = LEFT + column * (side + GAP)
                axes = figure.add_axes((x / width, bottom / height, side / width, side / height))
                tile = grid.psf[row, column], grid.bands, grid.reports[row][column]
                paint_tile(axes, *tile, scale=scale, decades=decades, inches=side / style.DPI)
                if row == 0:
                    _paint_head(axes, grid, column)
            _paint_depth(figure, grid, row, (LEFT - 14) / width, (bottom + side / 2) / height)
        lower = height - TOP - rows * (side + GAP) + GAP
        paint_scale_bar(figure, grid.size, grid.pixel_um, (LEFT, lower, side), (width, height))
        _paint_bar(figure, grid, scale, decades, lower, (width, height))
    return figure


def _subtitle(grid: PsfGrid) -> str:
    rgb = grid.bands.names == ("red", "green", "blue")
    colour = "red, green, blue" if rgb else ", ".join(f"{w:.4g} nm" for w in grid.bands.mean_nm)
    focus = "infinity" if math.isinf(grid.focus_m) else distance(grid.focus_m)
    window = f"{grid.size} × {grid.size} pixels of {grid.pixel_um:.3g} µm"
    return f"f/{grid.f_number:.3g}, focused at {focus} · {window} · {colour}"


def _paint_head(axes: Any, grid: PsfGrid, column: int) -> None:
    """Above a column: the field, and its image height and angle as the first tile that worked tells them."""
    field = grid.fields[column]
    fine = [row[column] for row in grid.reports if row[column]["status"] == "ok"]
    where = f"{fine[0]['image_height_mm']:.3g} mm, {fine[0]['field_deg']:.3g}°" if fine else "no light"
    name = "axis" if field == 0.0 else f"field {field:.3g}".replace("-", "−")
    write_above(axes, name, 14.0, fontweight="bold")
    write_above(axes, where, 4.0, color=style.FAINT)


def _paint_depth(figure: Figure, grid: PsfGrid, row: int, x: float, y: float) -> None:
    """Left of a row: the depth and the circle of confusion."""
    how: dict[str, Any] = {"ha": "right", "fontsize": style.SMALL}
    depth, blur = grid.depths_m[row], grid.circle_of_confusion_px[row]
    figure.text(x, y, distance(depth), va="bottom", fontweight="bold", **how)
    if math.isfinite(blur):
        # No −0.0 px.
        number = f"{blur:+.1f}".replace("-", "−") if abs(blur) >= 0.05 else "0"
        figure.text(x, y, f"CoC\n{number} px", va="top", color=style.FAINT, linespacing=1.3, **how)


def _paint_bar(figure: Figure, grid: PsfGrid, scale: Scale, decades: float, lower: int, page: tuple[int, int]) -> None:
    """The colour bar at the lower right, and below it what must be known of the tiles."""
    width, height = page
    length = 240
    x = width - RIGHT - length
    if scale == "log" or len(grid.psf[0, 0]) == 1:
        axes = figure.add_axes((x / width, (lower - 34) / height, length / width, 14 / height))
        bar = figure.colorbar(mappable(len(grid.psf[0, 0]), scale, decades), cax=axes, orientation="horizontal")
        tidy_bar(bar, decades if scale == "log" else None)
    what = f"{decades:g} decades below each tile's maximum" if scale == "log" else "each tile scaled to its own maximum"
    lines = f"{what}; up is up in the photograph\nCoC: paraxial blur radius, positive beyond the focus"
    how: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": style.SMALL - 0.5, "color": style.FAINT}
    figure.text(0.5, 12 / height, lines, linespacing=1.4, **how)
