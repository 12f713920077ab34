"""Through focus: PSFs of one field point in a row, for some depths or some places of the sensor."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from ..errors import DefocusError
from ..optics.paraxial import first_order
from ..optics.system import pack_one
from ..psf.compute import PsfBatch
from ..psf.spectrum import Bands
from ..psf.wavefronts import focused_sensor
from ..render.camera import Camera
from . import style
from .psf_grid import GAP, fitting_size
from .psf_picture import DECADES, Scale, check_scale, distance, paint_scale_bar, paint_tile, tile_side

LEFT, TOP, BOTTOM = 48, 166, 84  # device pixels around the tiles
NARROWEST = 640


def draw_through_focus(
    camera: Camera,
    *,
    field: tuple[float, float] = (0.0, 0.0),
    depths_m: Sequence[float] | None = None,
    sensor_shifts_mm: Sequence[float] | None = None,
    size: int | None = None,
    bands: str | tuple[float, ...] | Bands = "rgb",
    scale: Scale = "linear",
    decades: float = DECADES,
) -> Figure:
    """A row of PSFs of a point that appears at `field`.

    Either the point lies at each of `depths_m`, or it lies at the focus distance and the sensor stands each of
    `sensor_shifts_mm` behind its place (towards the lens where negative).
    """
    check_scale(scale)
    if (depths_m is None) == (sensor_shifts_mm is None):
        raise DefocusError("give depths_m or sensor_shifts_mm")
    if depths_m is not None:
        blur = [camera.circle_of_confusion_px(d) if d > 0.0 else 0.0 for d in depths_m]
        batch = camera.psfs(list(depths_m), [field] * len(depths_m), size or fitting_size(blur), bands)
        heads = [distance(d) for d in depths_m]
        notes = [f"CoC {_signed(c, 1)} px" if camera.sensor_shift_mm is None else "" for c in blur]
        what = "point at different depths"
    else:
        assert sensor_shifts_mm is not None
        slope = math.tan(math.asin(min(0.99, float(camera.first_order.na))))
        blur = [abs(z) * slope / (camera.pixel_um * 1e-3) for z in sensor_shifts_mm]
        batch = _shifted(camera, field, sensor_shifts_mm, size or fitting_size(blur), bands)
        heads = [f"{_signed(1e3 * z, 0)} µm" for z in sensor_shifts_mm]
        notes = ["towards the lens" if z < 0.0 else "focus" if z == 0.0 else "behind" for z in sensor_shifts_mm]
        what = "sensor at different places"
    focus = "infinity" if math.isinf(camera.focus_m) else distance(camera.focus_m)
    place = "axis" if field == (0.0, 0.0) else f"field ({field[0]:g}, {field[1]:g})"
    below = f"{what} · {place} · f/{float(camera.first_order.f_number):.3g}, focused at {focus}"
    return _draw(batch, camera.lens.name, below, heads, notes, scale, decades)


def _shifted(
    camera: Camera,
    field: tuple[float, float],
    shifts: Sequence[float],
    size: int,
    bands: str | tuple[float, ...] | Bands,
) -> PsfBatch:
    """PSFs of a point at the focus distance with the sensor at several places.

    Field heights count on the prescription's image plane; windows follow the chief ray.
    """
    start = camera.sensor_shift_mm
    if start is None:
        system = pack_one(camera.lens)
        found = eqx.filter_jit(focused_sensor)(system, first_order(system), jnp.asarray(camera.focus_m * 1e3))
        start = float(found)
    parts = []
    for shift in shifts:
        moved = copy.copy(camera)
        moved.sensor_shift_mm = start + shift
        parts.append(moved.psfs([camera.focus_m], [field], size, bands))
    return PsfBatch(
        np.concatenate([part.psf for part in parts]),
        parts[0].bands,
        np.concatenate([part.pixel_um for part in parts]),
        tuple(report for part in parts for report in part.reports),
    )


def _signed(value: float, digits: int) -> str:
    text = f"{value:+.{digits}f}".replace("-", "−")
    return "0" if float(f"{value:.{digits}f}") == 0.0 else text


def _draw(
    batch: PsfBatch, title: str, below: str, heads: list[str], notes: list[str], scale: Scale, decades: float
) -> Figure:
    size, count = batch.psf.shape[-1], len(heads)
    side = tile_side(size)
    row = count * (side + GAP) - GAP
    width, height = 2 * LEFT + max(row, NARROWEST), TOP + side + BOTTOM
    inches = width / style.DPI, height / style.DPI
    left = (width - row) // 2
    with style.look():
        figure = Figure(figsize=inches)
        style.title(figure, title, below, inches)
        for i in range(count):
            x = left + i * (side + GAP)
            axes = figure.add_axes((x / width, BOTTOM / height, side / width, side / height))
            tile = batch.psf[i], batch.bands, batch.reports[i]
            paint_tile(axes, *tile, scale=scale, decades=decades, inches=side / style.DPI)
            for text, up, how in ((heads[i], 14.0, {"fontweight": "bold"}), (notes[i], 4.0, {"color": style.FAINT})):
                look: dict[str, Any] = {"ha": "center", "fontsize": style.SMALL, **how}
                axes.annotate(
                    text, (0.5, 1.0), xycoords="axes fraction", xytext=(0.0, up), textcoords="offset points", **look
                )
        paint_scale_bar(figure, size, float(batch.pixel_um[0]), (left, BOTTOM, side), (width, height))
        what = f"{decades:g} decades below each tile's maximum" if scale == "log" else "each tile scaled to its maximum"
        figure.text((left + row) / width, 24 / height, what, ha="right", fontsize=style.SMALL - 0.5, color=style.FAINT)
    return figure
