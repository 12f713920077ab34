"""The camera that a user holds: a lens, a sensor, a focus distance.

Distances are in metres from the entrance pupil, pixels in µm; a field position (x, y) is where the point appears in the
photograph, as a fraction of the image radius, x to the right and y up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DefocusError, TraceError
from ..lens.prescription import Aperture, Lens
from ..optics.apertures import solve_clear_apertures
from ..optics.field import image_radius_of
from ..optics.paraxial import circle_of_confusion, first_order
from ..optics.pupil import FieldBy
from ..optics.system import pack_one
from ..psf.compute import PsfBatch, psf_batch
from ..psf.spectrum import Bands

MOST_OUTSIDE = 0.2  # a PSF that loses more of its light than this does not fit its window
PIXELS = (1680, 1120)  # the paper's photographs


@dataclass(frozen=True)
class Psf:
    """One point spread function."""

    array: Float[np.ndarray, "bands size size"]  # float32, rows from the top; each band sums to 1
    bands: Bands
    pixel_um: float
    report: dict[str, Any]


class Camera:
    """A lens with a sensor behind it, focused at a distance.

    `pixel_um` is the pixel pitch, or `pixels` = (width, height) that fill the lens's image circle. `f_number` stops the
    lens down; `state` selects a zoom or focus state. Without a `sensor_shift_mm` the sensor stands where the axial beam
    of an object at `focus_m` is sharpest; with one, that far behind the prescription's own image plane.
    """

    def __init__(
        self,
        lens: Lens,
        *,
        focus_m: float = math.inf,
        pixel_um: float | None = None,
        pixels: tuple[int, int] | None = None,
        f_number: float | None = None,
        state: str | int | None = None,
        sensor_shift_mm: float | None = None,
    ) -> None:
        lens = lens if state is None else lens.in_state(state)
        if all(s.semi_diameter is None for s in lens.surfaces):
            lens = solve_clear_apertures(lens)
        system = pack_one(lens)
        data = first_order(system)
        if f_number is not None:
            widest = float(data.f_number)
            if f_number < widest * 0.999:
                raise DefocusError(f"{lens.name}: f/{f_number:g} is wider than its full aperture, f/{widest:.3g}")
            lens = replace(lens, aperture=Aperture("stop_radius", float(data.stop_radius) * widest / f_number))
            system = pack_one(lens)
            data = first_order(system)
        if not focus_m > 0.0:
            raise DefocusError(f"focus distance {focus_m} m; expected a positive number or inf")
        if pixel_um is not None and pixels is not None:
            raise DefocusError("give pixel_um or pixels, not both")
        self.lens = lens
        self.focus_m = focus_m
        self.image_radius_mm = image_radius_of(lens, system)
        width, height = pixels or PIXELS
        self.pixel_um = pixel_um or 2e3 * self.image_radius_mm / math.hypot(width, height)
        self.sensor_shift_mm = sensor_shift_mm
        self.first_order = data

    def circle_of_confusion_px(self, depth_m: float) -> float:
        """Signed paraxial blur radius in pixels, positive beyond the focus."""
        radius = circle_of_confusion(self.first_order, jnp.asarray(depth_m * 1e3), jnp.asarray(self.focus_m * 1e3))
        return float(radius) / (self.pixel_um * 1e-3)

    def psf(
        self,
        depth_m: float,
        field: tuple[float, float] = (0.0, 0.0),
        size: int = 64,
        bands: str | tuple[float, ...] | Bands = "rgb",
        **options: Any,
    ) -> Psf:
        """The PSF of a point at `depth_m` that appears at `field`; size × size pixels, the point in pixel size // 2.

        Raises `TraceError` where no light arrives or the blur does not fit the window. `options` go to `psf_batch`.
        """
        batch = self.psfs([depth_m], [field], size, bands, **options)
        report = batch.reports[0]
        if report["status"] != "ok":
            raise TraceError(f"{self.lens.name}, field {field}, depth {depth_m} m: {report['status']}")
        if not report["energy_outside"] <= MOST_OUTSIDE:
            wanted = math.ceil(2.4 * report["blur_mm"] / (self.pixel_um * 1e-3))
            raise TraceError(
                f"{self.lens.name}, field {field}, depth {depth_m} m: {report['energy_outside']:.0%} of the light "
                f"falls outside {size} pixels; a window of about {wanted} holds it"
            )
        return Psf(batch.psf[0], batch.bands, self.pixel_um, report)

    def psfs(
        self,
        depth_m: Sequence[float],
        field: Sequence[tuple[float, float]],
        size: int = 64,
        bands: str | tuple[float, ...] | Bands = "rgb",
        **options: Any,
    ) -> PsfBatch:
        """PSFs of many points at once; nothing is raised, each report has its `status`."""
        radius = self.image_radius_mm
        axis = options.pop("relative_illumination", True)
        points = [*zip(depth_m, field, strict=True), *([(depth_m[0], (0.0, 0.0))] if axis else [])]
        for depth, (x, y) in points:
            if not depth > 0.0:
                raise DefocusError(f"depth {depth} m; expected a positive number or inf")
            if math.hypot(x, y) > 1.0 + 1e-9:
                raise DefocusError(f"field ({x}, {y}) lies outside the image circle of radius 1")
        count = len(points)
        heights = options.pop("height", None)
        shift = math.nan if self.sensor_shift_mm is None else self.sensor_shift_mm
        by: FieldBy = options.get("by", "image_height")
        batch = psf_batch(
            [self.lens] * count,
            height_mm=[math.hypot(*f) * radius for _, f in points] if heights is None else [*heights, *([0.0] * axis)],
            azimuth=[math.atan2(f[1], f[0]) if f != (0.0, 0.0) else math.pi / 2.0 for _, f in points],
            depth_mm=[d * 1e3 for d, _ in points],
            focus_mm=[self.focus_m * 1e3] * count,
            pixel_um=[self.pixel_um] * count,
            size=size,
            bands=bands,
            sensor_shift_mm=[shift] * count,
            **(options | {"by": by}),
        )
        if not axis:
            return batch
        on_axis = batch.reports[-1]
        for report in batch.reports[:-1]:
            if report["status"] == "ok" and on_axis["status"] == "ok":
                report["relative_illumination"] = report["pupil_area"] / on_axis["pupil_area"]
        return PsfBatch(batch.psf[:-1], batch.bands, batch.pixel_um[:-1], batch.reports[:-1])
