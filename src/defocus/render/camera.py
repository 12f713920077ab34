"""The camera that a user holds: a lens, a sensor, a focus distance.

Distances are in metres from the entrance pupil, pixels in µm; a field position (x, y) is where the point appears in the
photograph, as a fraction of the image radius, x to the right and y up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DefocusError, TraceError
from ..lens.prescription import Aperture, Lens
from ..optics.apertures import solve_clear_apertures
from ..optics.field import image_radius_of
from ..optics.paraxial import FirstOrder, blur_radius, circle_of_confusion, first_order, image_position
from ..optics.pupil import FieldBy
from ..optics.rim import Iris
from ..optics.system import pack_one
from ..psf.baselines import disk, fraunhofer, gaussian
from ..psf.compute import PsfBatch, psf_batch
from ..psf.exact import huygens_psf
from ..psf.propagate import SUPERSAMPLE
from ..psf.spectrum import Bands, parse_bands

if TYPE_CHECKING:
    from .photograph import Photograph

MOST_OUTSIDE = 0.2  # a PSF that loses more of its light than this does not fit its window
PIXELS = (1680, 1120)  # the paper's photographs

Method = Literal["debye", "exit-pupil", "huygens", "fraunhofer", "gaussian", "disk"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, slots=True)
class Blades:
    """The iris that closes when a lens is stopped down: a polygon of the same area as the round stop would have.

    `roundness` bends its sides, from straight (0) to a circle (1); `rotation_deg` is where a corner shows in the blur
    of points nearer than the focus, from the right counter-clockwise. Farther points show it turned by 180°.
    """

    count: int
    roundness: float = 0.0
    rotation_deg: float = 90.0

    def __post_init__(self) -> None:
        if not 3 <= self.count <= 64:
            raise DefocusError(f"{self.count} blades; expected 3 to 64")
        if not 0.0 <= self.roundness <= 1.0:
            raise DefocusError(f"roundness {self.roundness}; expected 0 (straight sides) to 1 (a circle)")


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
    lens down, with `blades` to a polygon (wide open, they are out of the way: an error); `state` selects a zoom or
    focus state. Without a `sensor_shift_mm` the sensor stands where the axial beam of an object at `focus_m` is
    sharpest; with one, that far behind the prescription's own image plane.
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
        blades: Blades | int | None = None,
    ) -> None:
        lens = lens if state is None else lens.in_state(state)
        if all(s.semi_diameter is None for s in lens.surfaces):
            lens = solve_clear_apertures(lens)
        system = pack_one(lens)
        data = first_order(system)
        self.iris: Iris | None = None
        widest, full = float(data.f_number), float(data.stop_radius)
        if f_number is not None and f_number < widest * 0.999:
            raise DefocusError(f"{lens.name}: f/{f_number:g} is wider than its full aperture, f/{widest:.3g}")
        if blades is not None and (f_number is None or f_number <= widest * 1.001):
            raise DefocusError(
                f"{lens.name}: blades at its full aperture, f/{widest:.3g}, where they are out of the way and the "
                "opening is round: give an f-number to stop it down, or leave the blades out"
            )
        if f_number is not None:
            lens = replace(lens, aperture=Aperture("stop_radius", full * widest / f_number))
            system = pack_one(lens)
            data = first_order(system)
            if blades is not None:
                b = Blades(blades) if isinstance(blades, int) else blades
                self.iris = Iris.make(
                    full * widest / f_number, full, b.count, b.roundness, math.radians(b.rotation_deg)
                )
        if not focus_m > 0.0:
            raise DefocusError(f"focus distance {focus_m} m; expected a positive number or inf")
        if sensor_shift_mm is not None and not math.isfinite(sensor_shift_mm):
            raise DefocusError(f"sensor shift {sensor_shift_mm} mm; expected a finite number, or None to focus")
        nearest_m = front_focus_m(data)
        if sensor_shift_mm is None and not focus_m > nearest_m:
            raise DefocusError(
                f"{lens.name}: a focus distance of {focus_m:g} m lies within its front focal point at "
                f"{nearest_m:.4g} m, where nothing has an image: focus farther away"
            )
        if pixel_um is not None and pixels is not None:
            raise DefocusError("give pixel_um or pixels, not both")
        if pixel_um is not None and not 0.0 < pixel_um < math.inf:
            raise DefocusError(f"pixel pitch {pixel_um} µm; expected a positive number")
        if pixels is not None and min(pixels) < 1:
            raise DefocusError(f"pixels {pixels}; expected a width and a height of one or more")
        self.lens = lens
        self.focus_m = focus_m
        self.image_radius_mm = image_radius_of(lens, system)
        width, height = pixels or PIXELS
        self.pixel_um = pixel_um or 2e3 * self.image_radius_mm / math.hypot(width, height)
        self.sensor_shift_mm = sensor_shift_mm
        self.first_order = data

    def circle_of_confusion_px(self, depth_m: float) -> float:
        """Signed paraxial blur radius in pixels, positive beyond the focus."""
        depth = jnp.asarray(depth_m * 1e3)
        if self.sensor_shift_mm is None:
            radius = circle_of_confusion(self.first_order, depth, jnp.asarray(self.focus_m * 1e3))
        else:
            radius = blur_radius(self.first_order, depth, self.first_order.image_plane + self.sensor_shift_mm)
        return float(radius) / (self.pixel_um * 1e-3)

    def psf(
        self,
        depth_m: float,
        field: tuple[float, float] = (0.0, 0.0),
        size: int = 64,
        bands: str | tuple[float, ...] | Bands = "rgb",
        *,
        method: Method = "debye",
        **options: Any,
    ) -> Psf:
        """The PSF of a point at `depth_m` that appears at `field`; size × size pixels, the point in pixel size // 2.

        Raises `TraceError` where no light arrives or the blur does not fit the window. `method` is the fast "debye",
        or for comparison the paper's "exit-pupil" form of it, the slow "huygens" sum over rays, the paraxial
        "fraunhofer", and the "gaussian" and "disk" of the circle of confusion. `options` go to `psf_batch`.
        """
        if method not in METHODS:
            raise DefocusError(f"method {method!r}; known are {', '.join(METHODS)}")
        if method == "exit-pupil":
            options |= {"form": "exit-pupil"}
        elif method != "debye":
            return self._other(method, depth_m, field, size, parse_bands(bands), options)
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
        axis = sorted(set(depth_m)) if options.pop("relative_illumination", True) else []
        points = [*zip(depth_m, field, strict=True), *((depth, (0.0, 0.0)) for depth in axis)]
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
            height_mm=[math.hypot(*f) * radius for _, f in points]
            if heights is None
            else [*heights, *[0.0] * len(axis)],
            azimuth=[math.atan2(f[1], f[0]) if f != (0.0, 0.0) else math.pi / 2.0 for _, f in points],
            depth_mm=[d * 1e3 for d, _ in points],
            focus_mm=[self.focus_m * 1e3] * count,
            pixel_um=[self.pixel_um] * count,
            size=size,
            bands=bands,
            sensor_shift_mm=[shift] * count,
            iris=None if self.iris is None else [self.iris] * count,
            **(options | {"by": by}),
        )
        if not axis:
            return batch
        end = len(depth_m)
        centre = dict(zip(axis, batch.reports[end:], strict=True))
        for depth, report in zip(depth_m, batch.reports[:end], strict=True):
            if report["status"] == "ok" and centre[depth]["status"] == "ok":
                report["relative_illumination"] = report["pupil_area"] / centre[depth]["pupil_area"]
        return PsfBatch(batch.psf[:end], batch.bands, batch.pixel_um[:end], batch.reports[:end])

    def photograph(
        self, linear: Float[np.ndarray, "rows cols 3"], depth_m: Float[np.ndarray, "rows cols"], **options: Any
    ) -> Photograph:
        """A sharp photograph (linear sRGB) with its depth, taken through this lens: see `take_photograph`."""
        from .photograph import take_photograph

        return take_photograph(self, linear, depth_m, **options)

    def _other(
        self,
        method: Method,
        depth_m: float,
        field: tuple[float, float],
        size: int,
        bands: Bands,
        options: dict[str, Any],
    ) -> Psf:
        """The methods that are there for comparison."""
        if self.iris is not None:
            raise DefocusError(f"method {method!r} knows no iris blades")
        height = options.pop("height", [math.hypot(*field) * self.image_radius_mm])[0]
        if method == "huygens":
            array, report = huygens_psf(
                self.lens,
                height_mm=height,
                azimuth=math.atan2(field[1], field[0]) if field != (0.0, 0.0) else math.pi / 2.0,
                depth_mm=depth_m * 1e3,
                focus_mm=self.focus_m * 1e3,
                pixel_um=self.pixel_um,
                size=size,
                bands=bands,
                sensor_shift_mm=math.nan if self.sensor_shift_mm is None else self.sensor_shift_mm,
                by=options.pop("by", "image_height"),
                supersample=options.pop("supersample", None) or 5,
            )
            _nothing_left(method, options)
            return Psf(array, bands, self.pixel_um, report)
        options.pop("by", None)
        if options.pop("supersample", None) not in (None, SUPERSAMPLE):
            raise DefocusError(f"method {method!r} has no samples per pixel to choose")
        _nothing_left(method, options)
        radius = self.circle_of_confusion_px(depth_m)
        report = {"status": "ok", "circle_of_confusion_px": radius}
        if method == "fraunhofer":
            data = self.first_order
            depth = jnp.asarray(depth_m * 1e3)
            sensor = (
                image_position(data, jnp.asarray(self.focus_m * 1e3))
                if self.sensor_shift_mm is None
                else data.image_plane + self.sensor_shift_mm
            )
            defocus = float(sensor - image_position(data, depth))
            made = [fraunhofer(float(data.na), defocus, w, self.pixel_um, size) for w in bands.mean_nm]
            report["defocus_mm"] = defocus
        else:
            made = [(gaussian if method == "gaussian" else disk)(radius, size)] * len(bands.names)
        return Psf(np.stack(made).astype(np.float32), bands, self.pixel_um, report)


def front_focus_m(data: FirstOrder) -> float:
    """How far in front of the entrance pupil the front focal point is; nearer points have no image. Never negative."""
    return max(float(data.entrance_pupil - data.front_focal_distance), 0.0) * 1e-3


def _nothing_left(method: Method, options: dict[str, Any]) -> None:
    if options:
        raise DefocusError(f"method {method!r} knows no {', '.join(sorted(options))}")
