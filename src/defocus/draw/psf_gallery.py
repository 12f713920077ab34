"""PSFs of many lenses: a row for each lens, a column for each field position (the paper's figures 6 and S11).

All are computed in one batch. Each tile is scaled to its own maximum. Lenses blur one depth by very different amounts:
a row is cut to the part of its windows that holds its light, and has a scale bar of its own.
"""

from __future__ import annotations

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
from .psf_grid import FIELDS, GAP, RIGHT, TOP, band_names, field_name, method_text
from .psf_plot import DECADES, TILE, Scale, check_scale, paint_psf, psf_scale_bar, row_label, scale_text
from .sheet import MARGIN, Sheet, head

SIDE = TILE / style.DPI  # inches, of a tile
CUTS = (16, 26, 52, 104, 208)  # pixels across a tile: each a whole number of device pixels
HELD = 0.98  # of a tile's light within its cut
LEFT, BOTTOM = 1.9, 0.35  # inches


@dataclass(frozen=True)
class PsfGallery:
    """PSFs of one depth: [lens, field], upwards in the photograph, in windows of one size."""

    cameras: tuple[Camera, ...]
    fields: tuple[float, ...]
    depth_m: float
    method: Method
    psf: Float[np.ndarray, "lenses fields bands size size"]
    bands: Bands
    reports: tuple[tuple[dict[str, Any], ...], ...]  # [lens][field]

    @property
    def notes(self) -> list[str]:
        """A line for each PSF that there is not."""
        return [
            f"{camera.lens.name}, field {field:g}: {report['status']}"
            for camera, row in zip(self.cameras, self.reports, strict=True)
            for field, report in zip(self.fields, row, strict=True)
            if report["status"] != "ok"
        ]

    def cut(self, lens: int) -> Float[np.ndarray, "fields bands cut cut"]:
        """The row of a lens, cut about the point so far that every tile keeps its light."""
        row = self.psf[lens]
        size = row.shape[-1]
        for width in CUTS:
            first = size // 2 - width // 2
            if width >= size:
                break
            part = row[..., first : first + width, first : first + width]
            if (part.sum((1, 2, 3)) >= HELD * row.sum((1, 2, 3))).all():
                return part
        return row


def compute_psf_gallery(
    cameras: Sequence[Camera],
    depth_m: float,
    *,
    fields: Sequence[float] = FIELDS,
    size: int | None = None,
    bands: BandsLike = "rgb",
    method: Method = "wave",
    **options: Any,
) -> PsfGallery:
    """PSFs of points at `depth_m` that appear `fields` × the image radius above the centre, through every camera.

    `options` go to `psfs`. Nothing is raised for a single tile; its report says what is wrong.
    """
    if not cameras or not fields:
        raise DefocusError("a gallery of PSFs needs at least one lens and one field")
    cells = [(camera, (0.0, float(field))) for camera in cameras for field in fields]
    batch = psfs([c for c, _ in cells], depth_m, [f for _, f in cells], size, bands, method=method, **options)
    shape = (len(cameras), len(fields), *batch.psf.shape[1:])
    reports = tuple(batch.reports[i : i + len(fields)] for i in range(0, len(cells), len(fields)))
    heights = tuple(map(float, fields))
    return PsfGallery(tuple(cameras), heights, depth_m, method, batch.psf.reshape(shape), batch.bands, reports)


@style.look()
def draw_psf_gallery(gallery: PsfGallery, *, scale: Scale = "linear") -> Figure:
    """The gallery as a figure; `scale` "log" shows four decades below each tile's maximum."""
    check_scale(scale)
    rows, columns = gallery.psf.shape[:2]
    wide, high = columns * (SIDE + GAP) - GAP, rows * (SIDE + GAP) - GAP
    sheet = Sheet(LEFT + max(wide, 3.2) + RIGHT, TOP + high + BOTTOM)
    depth = style.distance(gallery.depth_m, "infinity")
    below = f"points at {depth} · {band_names(gallery.bands)}{method_text(gallery.method)}"
    sheet.title("Point spread functions", below)
    for row, camera in enumerate(gallery.cameras):
        bottom = sheet.height - TOP - row * (SIDE + GAP) - SIDE
        tiles = gallery.cut(row)
        for column, field in enumerate(gallery.fields):
            axes = sheet.axes((LEFT + column * (SIDE + GAP), bottom, SIDE, SIDE))
            paint_psf(axes, tiles[column], gallery.bands, gallery.reports[row][column], scale)
            if row == 0:
                head(axes, field_name(field))
        blur = style.signed(float(camera.circle_of_confusion_px(gallery.depth_m)), 1)
        about = [style.setting(camera.f_number, camera.focus_m), f"CoC {blur} px of {camera.pixel_um:.3g} µm"]
        row_label(sheet, camera.lens.name, about, bottom + SIDE - 0.1, LEFT - MARGIN - 0.1)
        if any(report["status"] == "ok" for report in gallery.reports[row]):
            width = tiles.shape[-1] * camera.pixel_um
            psf_scale_bar(sheet, MARGIN, bottom + 0.24, SIDE, width, camera.pixel_um)
    what = scale_text(scale, DECADES)
    sheet.footnote(f"{what}; up is up in the photograph; CoC: paraxial blur radius, positive beyond the focus", 0.12)
    return sheet.figure
