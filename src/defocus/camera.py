"""The camera that a user holds: a lens, a focus distance, a stop, a sensor. One immutable value.

Distances are in metres from the entrance pupil, pixels in µm; a field position (x, y) is where the point appears in the
photograph, as a fraction of the image radius, x to the right and y up.

Everything that depends on a camera goes through it: pixel pitch, circle of confusion, the sensor's place, PSFs and
photographs. Where numbers of the camera, a depth or a field are being differentiated, batched or compiled by JAX,
`Camera.psf` computes the same PSF as a pure function (`psf.pure.point_psf`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._lazy import drawn
from .errors import DefocusError, TraceError, checked_options
from .lens.prescription import D_LINE_NM, Lens
from .optics.apertures import solved_if_bare
from .optics.batch import on_host
from .optics.paraxial import FirstOrder, ParaxialCamera, filling_pitch, first_order, image_position
from .optics.pupil import chief_ray_at_angle, image_radius_of
from .optics.rim import Blades, Iris
from .optics.system import PackedLens, System
from .point_requests import (
    ENGINE_METHODS,
    Field,
    check_method,
    check_points,
    field_numbers,
    make_requests,
    psfs_in_one_window,
    trace_points,
)
from .psf.bands import Bands, BandsLike, parse_bands
from .psf.engine import (
    SIDES,
    Progress,
    Psf,
    PsfBatch,
    PsfOptions,
    TracedRequests,
    judge_counts,
)
from .psf.method import Method
from .psf.poses import Points
from .psf.pure import differentiated_psf, point_psf
from .psf.sampling import bucket, window_samples
from .psf.window import close_up_pitch, window_for
from .tracing import as_array, check_number, concrete, is_traced, plain_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .psf.wavefronts import Wavefronts
    from .render.photograph import Photograph

PIXELS = (1680, 1120)  # the paper's photographs
PURE_SUPERSAMPLE = 5  # points per pixel of the pure function
FEW = 32  # PSFs or wavefronts of one call: programs that compile in half the time, but run slowly, are sooner done
# Engraved f-numbers are those of the series of third stops, 2^(n/6): one that is up to half a step wider than the full
# aperture is its name, and means the full aperture.
NOMINAL = 2.0 ** (-1 / 12)
LEAST_STOP_MM = 10.0 * D_LINE_NM * 1e-6  # radius: Kirchhoff's boundary values are those of openings of many wavelengths
# Numbers that the report of every PSF has; None where a method does not know one.
REPORTED = ("samples", "sampling_bound", "residual_waves", "energy_outside", "relative_illumination")
Scalar = float | Float[Any, ""]


class Camera(eqx.Module):
    """A lens with a sensor behind it, focused at a distance.

    `pixel_um` is the pixel pitch, or `pixels` = (width, height) that fill the lens's image circle. `f_number` stops the
    lens down, with `blades` to a polygon (wide open, they are out of the way: an error); `state` selects a zoom or
    focus state. Without a `sensor_shift_mm` the sensor stands where the axial beam of an object at `focus_m` is
    sharpest; with one, that far behind the prescription's own image plane.

    `focused`, `stopped`, `shifted`, `with_pixels` and `at` give a changed copy, at no cost.
    """

    optics: PackedLens
    focus_m: Scalar
    pixel_um: Scalar
    image_radius_mm: Scalar
    sensor_shift_mm: Scalar | None
    iris: Iris | None

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
        if not isinstance(lens, Lens):
            raise DefocusError(f"a camera of {lens!r}; expected a Lens, such as load_lens('leica-summicron-50-f2')")
        lens = lens if state is None else lens.in_state(state)
        lens = solved_if_bare(lens)
        if pixel_um is not None and pixels is not None:
            raise DefocusError("give pixel_um or pixels, not both")
        self.optics = PackedLens.of(lens)
        self.image_radius_mm = image_radius_of(lens, self.optics.system)
        self.focus_m, self.sensor_shift_mm, self.iris = math.inf, None, None
        self.pixel_um = math.nan  # until the next line
        camera = self.with_pixels(pixels or PIXELS) if pixel_um is None else self.with_pixels(pixel_um=pixel_um)
        if f_number is not None or blades is not None:
            camera = camera.stopped(f_number, blades)
        check_number("focus distance", focus_m, "m", "a positive number or inf")
        camera = camera.focused(focus_m) if sensor_shift_mm is None else camera._with(focus_m=focus_m)
        camera = camera.shifted(sensor_shift_mm)
        for field in fields(Camera):
            object.__setattr__(self, field.name, getattr(camera, field.name))

    @property
    def lens(self) -> Lens:
        """The prescription that the camera was built with."""
        return self.optics.lens

    @property
    def first_order(self) -> FirstOrder:
        """First-order data of the lens as it is stopped down."""
        return _first_order(self.optics)

    @property
    def f_number(self) -> Scalar:
        """Focal length over the diameter of the entrance pupil."""
        return plain_number(self.first_order.f_number)

    @property
    def paraxial(self) -> ParaxialCamera:
        """The camera to first order: sensor, pitch, blur radii."""
        own = self.__dict__.get("_paraxial")
        if own is not None:
            return own
        data = self.first_order
        if self.sensor_shift_mm is None:
            sensor = image_position(data, as_array(self.focus_m) * 1e3)
        else:
            sensor = data.image_plane + as_array(self.sensor_shift_mm)
        own = ParaxialCamera(data, sensor, as_array(self.pixel_um) * 1e-3, as_array(self.image_radius_mm))
        if not is_traced(own):
            self.__dict__["_paraxial"] = own
        return own

    def circle_of_confusion_px(self, depth_m: Any) -> Any:
        """Signed paraxial blur radius in pixels of points at `depth_m`, positive beyond the focus."""
        return plain_number(self.paraxial.circle_of_confusion_px(as_array(depth_m)))

    def require_imaged(self, depth_m: Float[np.ndarray, "*shape"]) -> None:
        """Raise `DefocusError` where a depth lies within the front focal point, where nothing has an image."""
        nearest, front = float(np.min(depth_m)), self.first_order.nearest_m
        if not nearest > front:
            raise DefocusError(
                f"{self.lens.name}: a depth of {nearest:.4g} m lies within its front focal point at {front:.4g} m, "
                "where nothing has an image: is the depth map in metres?"
            )

    def field_of_angle(self, angle_deg: float) -> Field:
        """Where a point `angle_deg` off the axis in object space appears, above the centre.

        Raises `TraceError` where no ray of that angle crosses the stop's centre.
        """
        plane = self.sensor_z_mm if self.sensor_shift_mm is None else 0.0  # where heights count
        chief = chief_ray_at_angle(self.optics.system, math.radians(abs(angle_deg)), plane)
        if not bool(chief.found):
            raise TraceError(
                f"{self.lens.name}: no chief ray of {angle_deg:g}°: the widest comes from "
                f"{math.degrees(float(chief.reach)):.4g}°"
            )
        return 0.0, math.copysign(float(chief.image_height) / float(self.image_radius_mm), angle_deg)

    def chief_rays(
        self, heights: Float[np.ndarray, " heights"], wavelength_nm: float = D_LINE_NM
    ) -> tuple[Float[np.ndarray, " heights"], Float[np.ndarray, " heights"]]:
        """Chief rays to field heights: angles from the axis in object space (radians), and landings (mm) on the sensor.

        Heights are fractions of the image radius; nan where no chief ray lands. At another wavelength than the d line
        the sensor stands where the d line has it, and heights count on the prescription's image plane.
        """
        from .psf.wavefronts import poses_on_host

        camera, count = self, len(heights)
        if wavelength_nm != D_LINE_NM:
            system = eqx.tree_at(lambda s: s.index, self.optics.system, self.optics.indices([wavelength_nm])[0])
            camera = self._with(optics=PackedLens(self.lens, system), sensor_shift_mm=self.sensor_z_mm)
        requests = make_requests([camera] * count, [math.inf] * count, [(0.0, float(h)) for h in heights])
        pose = poses_on_host(requests)
        return np.where(pose.chief.found, pose.chief.angle, np.nan), np.where(pose.chief.found, pose.landing, np.nan)

    @property
    def sensor_z_mm(self) -> Scalar:
        """Place of the sensor behind the prescription's image plane."""
        if self.sensor_shift_mm is not None:
            return self.sensor_shift_mm
        return plain_number(_sensor_z(self.optics.system, as_array(self.focus_m) * 1e3))

    def __repr__(self) -> str:
        try:
            focus = "∞" if math.isinf(self.focus_m) else f"{self.focus_m:g} m"
            place = focus if self.sensor_shift_mm is None else f"sensor shifted by {self.sensor_shift_mm:g} mm"
            return f"Camera({self.lens.name!r}, f/{float(self.f_number):.3g}, {place}, {self.pixel_um:.3g} µm pixels)"
        except (jax.errors.ConcretizationTypeError, TypeError):
            return f"Camera({self.lens.name!r}, traced by JAX)"

    def plot(self, **options: Any) -> Figure:
        """A figure of the lens with its rays, and its blur radius over depth."""
        return drawn("plot_camera", self, **options)

    def _repr_html_(self) -> str:
        return drawn("html_image", self.plot())

    def _with(self, **changes: Any) -> Camera:
        copy: Camera = object.__new__(Camera)
        for field in fields(Camera):
            object.__setattr__(copy, field.name, changes.get(field.name, getattr(self, field.name)))
        return copy

    def focused(self, focus_m: Scalar) -> Camera:
        """The camera focused at a distance (m, inf allowed); a sensor that was shifted is focused again."""
        value = check_number("focus distance", focus_m, "m", "a positive number or inf")
        optics = None if value is None else concrete(self.optics)
        if value is not None and optics is not None:
            front = _first_order(optics).nearest_m
            if not value > front:
                raise DefocusError(
                    f"{self.lens.name}: a focus distance of {value:g} m lies within its front focal point at "
                    f"{front:.4g} m, where nothing has an image: focus farther away"
                )
        return self._with(focus_m=focus_m, sensor_shift_mm=None)

    def stopped(self, f_number: Scalar | None, blades: Blades | int | None = None) -> Camera:
        """The camera stopped down to an f-number, with `blades` to a polygon.

        An f-number up to 6 % wider than the full aperture, as engraved ones are, means the full aperture; `f_number` of
        the result is the true one. A wider one is an error, and so is a stop of a few wavelengths.
        """
        data = _first_order(PackedLens.of(self.lens))
        widest, full = float(data.f_number), float(data.stop_radius)
        value = None if f_number is None else check_number("f-number", f_number, "", "a positive number", math.inf)
        if value is not None and value < widest * NOMINAL:
            raise DefocusError(f"{self.lens.name}: f/{value:g} is wider than its full aperture, f/{widest:.4g}")
        largest = max(math.floor(full / LEAST_STOP_MM * widest), widest)
        if value is not None and value > largest:
            raise DefocusError(
                f"{self.lens.name}: f/{value:g} leaves a hole of a few wavelengths, through which the diffraction "
                f"integral no longer holds: f/{largest:.10g} at most"
            )
        if blades is not None and (f_number is None or (value is not None and value <= widest * 1.001)):
            raise DefocusError(
                f"{self.lens.name}: blades at its full aperture, f/{widest:.3g}, where they are out of the way and the "
                "opening is round: give an f-number to stop it down, or leave the blades out"
            )
        if f_number is None or (value is not None and value <= widest):
            return self._with(optics=self._with_stop(full), iris=None)
        radius = full * widest / f_number
        iris = None
        if blades is not None:
            b = blades if isinstance(blades, Blades) else Blades(blades)
            iris = Iris.make(radius, full, b.count, b.roundness, math.radians(b.rotation_deg))
        return self._with(optics=self._with_stop(radius), iris=iris)

    def _with_stop(self, radius: Scalar) -> PackedLens:
        return _changed(self.optics, "semi_diameter", (int(self.optics.system.stop),), radius)

    def shifted(self, sensor_shift_mm: Scalar | None) -> Camera:
        """The camera with its sensor that far behind the prescription's image plane; None focuses it again."""
        if sensor_shift_mm is not None:
            check_number(
                "sensor shift", sensor_shift_mm, "mm", "one from −10,000 to 10,000, or None to focus", 1e4, -1e4
            )
        return self._with(sensor_shift_mm=sensor_shift_mm)

    def with_pixels(self, pixels: tuple[int, int] | None = None, *, pixel_um: Scalar | None = None) -> Camera:
        """The camera with another pixel pitch, or with `pixels` = (width, height) that fill the image circle."""
        if pixels is not None:
            if np.shape(pixels) != (2,) or not all(isinstance(n, int | np.integer) and n >= 1 for n in pixels):
                raise DefocusError(f"pixels {pixels!r}; expected a width and a height of one or more")
            return self._with(pixel_um=filling_pitch(self.image_radius_mm, math.hypot(*pixels)) * 1e3)
        check_number("pixel pitch", pixel_um, "µm", "a positive number", math.inf)
        return self._with(pixel_um=pixel_um)

    def close_up(self, depth_m: Scalar, field: Field = (0.0, 0.0), bands: BandsLike = "rgb") -> Camera:
        """The camera with pixels so fine that the PSF of a point fills a window of `psf.window.CLOSE_UP` of them.

        As it is where no light arrives.
        """
        wavefront = self.wavefronts([depth_m], [field], bands).wavefront
        if not np.all(wavefront.found):
            return self
        airy = 0.61 * float(np.max(wavefront.wavelength)) / float(self.first_order.na)
        pitch = close_up_pitch(float(np.abs(wavefront.blur).max()), float(np.median(wavefront.core)), airy)
        return self.with_pixels(pixel_um=pitch * 1e3)

    def at(self, name: str, surface: int, value: Scalar) -> Camera:
        """The camera with one number of its lens changed.

        `name` is "curvature" (1/mm), "conic", "thickness" (mm), "semi_diameter" (mm), "index" (of the medium behind
        the surface, at the d line; its other wavelengths move alike) or "a4", "a6", "a3", … (the coefficient of that
        power of r, mm^(1 − power)). Surfaces count from 0.
        """
        count = len(self.lens.surfaces)
        check_number(name, value, "", "a finite number", math.inf, -math.inf)
        if not (isinstance(surface, int | np.integer) and 0 <= surface < count):
            raise DefocusError(f"{self.lens.name}: surface {surface}; it has 0 to {count - 1}")
        if name in ("curvature", "conic", "thickness", "semi_diameter"):
            return self._with(optics=_changed(self.optics, name, (surface,), value))
        if name == "index":
            # The padding behind the last surface is the last medium, too.
            last = self.optics.system.index.shape[-1] if surface == count - 1 else surface + 2
            return self._with(optics=_changed(self.optics, name, (slice(surface + 1, last),), value))
        power = int(str(name)[1:]) if str(name)[:1] == "a" and str(name)[1:].isdigit() else 0
        group, number = ("even", power // 2 - 1) if power % 2 == 0 else ("odd", (power - 3) // 2)
        if power >= 2 and number < getattr(self.optics.system, group).shape[-1]:
            return self._with(optics=_changed(self.optics, group, (surface, number), value))
        raise DefocusError(
            f"{self.lens.name}: no number {name!r} of a surface; there are curvature, conic, thickness, semi_diameter, "
            "index and a2, a4, a6, … for the terms of an asphere"
        )

    def psf(
        self,
        depth_m: Scalar,
        field: Field = (0.0, 0.0),
        size: int | None = None,
        bands: BandsLike = "rgb",
        *,
        method: Method = "wave",
        **options: Any,
    ) -> Psf:
        """The PSF of a point at `depth_m` that appears at `field`; size × size pixels, the point in pixel size // 2.

        Without a `size` the window is as large as the blur needs. Raises `TraceError` where no light arrives or the
        blur does not fit the window. `method` is the best that we know, "wave", or for comparison the "paper"'s, the
        slow "huygens" sum over rays, "fraunhofer" with a parabola for the defocus, and the "gaussian" and "disk" of
        the circle of confusion. `options` are those of `PsfOptions`.
        """
        settings = checked_options(PsfOptions, options, "a PSF")
        parsed = parse_bands(bands)
        check_points([depth_m], [field_numbers(field)], size)
        if is_traced((self, depth_m, field)):
            return self._pure_psf(depth_m, field, size, parsed, method, settings)
        batch = psfs(self, [depth_m], [field], size, parsed, method=method, **asdict(settings))
        report, array = batch.reports[0], batch.psf[0]
        if report["status"] != "ok":
            raise TraceError(f"{self.lens.name}, field {tuple(field)}, depth {depth_m} m: {report['status']}")
        place = (float(field[0]), float(field[1]))
        about = {
            "lens": self.lens.name, "method": method, "f_number": float(self.f_number), "focus_m": float(self.focus_m),
            "depth_m": float(depth_m), "field": place, "pixel_um": float(self.pixel_um),
        }  # fmt: skip
        return Psf(array, parsed, float(self.pixel_um), about | dict.fromkeys(REPORTED) | report)

    def psfs(
        self,
        depth_m: Sequence[float] | float,
        field: Sequence[Field] | Field = (0.0, 0.0),
        size: int | None = None,
        bands: BandsLike = "rgb",
        **options: Any,
    ) -> PsfBatch:
        """PSFs of many points at once; nothing is raised for one of them, each report has its `status`."""
        return psfs(self, depth_m, field, size, bands, **options)

    def trace(
        self,
        depth_m: Sequence[float],
        field: Sequence[Field],
        bands: BandsLike = "rgb",
        method: Method = "wave",
        *,
        depth_series: bool = False,
    ) -> TracedRequests:
        """Points whose wavefronts are traced: PSFs in windows of any size follow without tracing again.

        With a `depth_series`, wavefronts of many depths at one field come from those of a few (`psf.depth_series`).
        """
        return trace_points(
            [self] * len(depth_m), depth_m, field, parse_bands(bands), method, depth_series=depth_series
        )

    def wavefronts(self, depth_m: Sequence[float], field: Sequence[Field], bands: BandsLike = "d") -> Wavefronts:
        """The wavefronts of many points on the host, [point, wavelength]."""
        from .psf.wavefronts import wavefronts_of

        requests = make_requests([self] * len(depth_m), depth_m, field)
        bands = parse_bands(bands)
        return wavefronts_of(requests, bands, few=len(requests) * len(bands.every_nm) <= FEW)

    def photograph(self, linear: np.ndarray, depth_m: np.ndarray, **options: Any) -> Photograph:
        """A sharp photograph (linear sRGB, [rows, cols, 3]) with its depth (m, [rows, cols]), taken through this lens.

        `options` are those of `render.PhotographOptions`.
        """
        from .render.photograph import PhotographOptions, take_photograph

        settings = checked_options(PhotographOptions, options, "a photograph")
        check_method(settings.method, settings.psf_options, [self])
        return take_photograph(self, linear, depth_m, settings)

    def _pure_psf(
        self, depth_m: Scalar, field: Field, size: int | None, bands: Bands, method: Method, options: PsfOptions
    ) -> Psf:
        """`psf` while JAX differentiates, batches or compiles: no errors, nan instead."""
        if method != "wave":
            raise DefocusError(f"method {method!r} has no derivatives; 'wave' has")
        if options.coarse:
            raise DefocusError("coarse PSFs have no derivatives: leave it out")
        known = concrete(self)
        if size is None:
            depth = concrete(depth_m)
            if known is None or depth is None:
                raise DefocusError("within jax.jit or jax.vmap the window is part of the program: give a size")
            size = window_for(known.circle_of_confusion_px(depth))
        samples = options.samples
        if samples is None:
            pitch = concrete(self.pixel_um)
            if pitch is None:
                raise DefocusError("with pixels that jax.jit or jax.vmap knows only later, give samples=")
            data = _first_order(PackedLens.of(self.lens)) if known is None else known.first_order
            window = size * float(pitch) * 1e-3
            samples = bucket(window_samples(float(data.na), window, min(bands.every_nm) * 1e-6))
        # In numpy where nothing is traced: each operation of JAX outside a program is a program of its own.
        xp: Any = jnp if is_traced(field) else np
        x, y = as_array(field[0]), as_array(field[1])
        axis = (x == 0.0) & (y == 0.0)
        point = Points(
            height=xp.hypot(xp.where(axis, 1.0, x), y) * xp.where(axis, 0.0, 1.0) * as_array(self.image_radius_mm),
            azimuth=xp.where(axis, np.pi / 2.0, xp.arctan2(y, xp.where(axis, 1.0, x))),
            depth=as_array(depth_m) * 1e3,
            focus=as_array(self.focus_m) * 1e3,
            shift=as_array(math.nan if self.sensor_shift_mm is None else self.sensor_shift_mm),
            pixel=as_array(self.pixel_um) * 1e-3,
            iris=self.iris,
        )
        facts = {
            "bands": bands, "size": size, "supersample": options.supersample or PURE_SUPERSAMPLE,
            "side": SIDES[options.side], "dtype": jnp.float64,
        }  # fmt: skip
        lens = _without_zero_terms(self.optics.system), self.optics.indices(bands.every_nm)
        if known is not None and concrete((depth_m, field)) is not None:
            psf = differentiated_psf(samples=options.samples, most_samples=samples, **facts)
            array, report = psf(*lens, point)
        else:
            array, report = point_psf(*lens, point, samples=samples, **facts)
        return Psf(array, bands, self.pixel_um, report)


def psfs(
    cameras: Camera | Sequence[Camera],
    depth_m: Sequence[float] | float,
    field: Sequence[Field] | Field = (0.0, 0.0),
    size: int | None = None,
    bands: BandsLike = "rgb",
    *,
    method: Method = "wave",
    relative_illumination: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> PsfBatch:
    """PSFs of many cameras, depths and fields in one array; a single camera, depth or field goes with all others.

    Without a `size` all windows are as large as the widest blur needs. Nothing is raised for one of the PSFs: each
    report has its `status`. `method` is one of those of `Camera.psf`; "huygens" is slow. With `relative_illumination`
    reports tell the light of the field against the axis' where the method knows it. `progress` is called with how many
    more PSFs are done, in fractions.
    """
    settings = checked_options(PsfOptions, options, "PSFs")
    rows = _rows(cameras, depth_m, field)
    check_method(method, settings, [camera for camera, _, _ in rows])
    check_points([d for _, d, _ in rows], [f for _, _, f in rows], size)
    of_axis = relative_illumination and method in ENGINE_METHODS
    axis = {(id(camera), depth): (camera, depth) for camera, depth, _ in rows} if of_axis else {}
    every = [*rows, *((camera, depth, (0.0, 0.0)) for camera, depth in axis.values())]
    points = ([camera for camera, _, _ in every], [depth for _, depth, _ in every], [place for _, _, place in every])
    traced = trace_points(*points, parse_bands(bands), method, few=len(rows) <= FEW, size=size)
    batch = psfs_in_one_window(traced, rows, size, settings, progress)
    if method in ENGINE_METHODS:
        judge_counts(batch, settings)
    if axis:
        areas = traced.pupil_areas()
        centre = dict(zip(axis, areas[len(rows) :], strict=True))
        for (camera, depth, _), area, report in zip(rows, areas, batch.reports, strict=False):
            if report["status"] == "ok" and np.isfinite(centre[id(camera), depth]):
                report["relative_illumination"] = float(area / centre[id(camera), depth])
    return batch


def _rows(
    cameras: Camera | Sequence[Camera], depth_m: Sequence[float] | float, field: Sequence[Field] | Field
) -> list[tuple[Camera, float, Field]]:
    many = list(cameras) if isinstance(cameras, Sequence) else [cameras]
    for camera in many:
        if not isinstance(camera, Camera):
            raise DefocusError(f"PSFs of {type(camera).__name__}; expected cameras, such as Camera(load_lens(name))")
    try:
        depths = np.atleast_1d(np.asarray(depth_m, float))
        places = np.atleast_2d(np.asarray(field, float))
    except (TypeError, ValueError):
        raise DefocusError(f"depths {depth_m!r} and fields {field!r}; expected numbers and pairs (x, y)") from None
    if depths.ndim != 1 or places.ndim != 2 or places.shape[1] != 2:
        raise DefocusError(
            f"depths of shape {depths.shape} and fields of shape {places.shape}; expected numbers and pairs (x, y)"
        )
    count = max(len(many), len(depths), len(places))
    for name, length in (("cameras", len(many)), ("depths", len(depths)), ("fields", len(places))):
        if length not in (1, count):
            raise DefocusError(f"{length} {name} for {count} PSFs; expected one, or as many")
    pairs = [(float(x), float(y)) for x, y in places]
    return [(many[i % len(many)], float(depths[i % len(depths)]), pairs[i % len(pairs)]) for i in range(count)]


def _first_order(optics: PackedLens) -> FirstOrder:
    """First-order data, of numpy where no number of the lens is traced."""
    if is_traced(optics):
        return first_order(optics.system)
    own = optics.__dict__.get("_first_order")
    if own is None:
        with jax.ensure_compile_time_eval():
            own = on_host(first_order, optics.system)
        optics.__dict__["_first_order"] = own
    return own


def _without_zero_terms(system: System) -> System:
    """A lens without aspheric terms of which all are known to be zero: gradients compile a seventh faster."""
    kinds = [name for name in ("even", "odd") if not is_traced(getattr(system, name))]
    zero = [name for name in kinds if not np.any(getattr(system, name))]
    return replace(system, **{name: getattr(system, name)[..., :0] for name in zero})


def _changed(optics: PackedLens, name: str, place: tuple[int | slice, ...], value: Scalar) -> PackedLens:
    leaf = getattr(optics.system, name)
    if is_traced((leaf, value)):
        here = np.zeros(leaf.shape, bool)
        here[place] = True
        leaf = jnp.where(here, value, leaf)
    else:  # numbers of JAX become those of numpy: lenses are packed on the host
        leaf = np.array(leaf)
        leaf[place] = value
    return PackedLens(optics.lens, eqx.tree_at(lambda s: getattr(s, name), optics.system, leaf))


@jax.jit
def _sensor_z(system: System, focus: Float[Array, ""]) -> Float[Array, ""]:
    from .psf.poses import focused_sensor

    return focused_sensor(system, first_order(system), focus)
