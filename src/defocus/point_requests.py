"""Points that cameras see, as requests of the PSF engine: checks, what each method can do, the window of them all.

A camera is known here by its numbers alone; `camera` and `synth.layer_psfs` ask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .errors import DefocusError
from .psf.bands import Bands
from .psf.engine import Progress, PsfBatch, PsfOptions, TracedRequests, spills
from .psf.fraunhofer import FRAUNHOFER
from .psf.method import METHODS, WAVE, Method, PsfMethod
from .psf.paper import PAPER
from .psf.poses import Points, Requests, stack_irises
from .psf.window import LARGEST, larger_window, window_for
from .tracing import check_number, concrete

if TYPE_CHECKING:
    from .camera import Camera

# In batches; the others one PSF at a time (`psf.comparison`).
ENGINE_METHODS: dict[Method, PsfMethod] = {"wave": WAVE, "paper": PAPER, "fraunhofer": FRAUNHOFER}
# What a method cannot do, as `PsfOptions` has it, and iris blades.
UNKNOWN_OPTIONS: dict[Method, tuple[str, ...]] = {
    "paper": ("coarse", "blades"),
    "fraunhofer": ("blades",),
    "huygens": ("side", "samples", "coarse", "double", "blades"),
    "gaussian": ("side", "samples", "supersample", "exact", "coarse", "double", "blades"),
    "disk": ("side", "samples", "supersample", "exact", "coarse", "double", "blades"),
}
Field = tuple[float, float]


def check_method(method: Method, options: PsfOptions, cameras: Sequence[Camera]) -> None:
    """Refuse a method that does not exist, and options and iris blades of which it knows nothing."""
    if method not in METHODS:
        raise DefocusError(f"method {method!r}; there are {', '.join(METHODS)}")
    values = asdict(options) | {"blades": any(camera.iris is not None for camera in cameras)}
    usual = asdict(PsfOptions()) | {"blades": False}
    refused = [name for name in UNKNOWN_OPTIONS.get(method, ()) if values[name] != usual[name]]
    if refused:
        words = ", ".join("iris blades" if name == "blades" else name for name in refused)
        raise DefocusError(f"method {method!r} knows no {words}")


def trace_points(
    cameras: Sequence[Camera],
    depth_m: Sequence[float],
    field: Sequence[Field],
    bands: Bands,
    method: Method,
    *,
    depth_series: bool = False,
    few: bool = False,
    size: int | None = None,
) -> TracedRequests:
    """One request for each camera, depth (m) and field position, ready for PSFs in windows of any size.

    `few` takes programs that compile fast and run slowly. `size` is that of the windows (pixels) where it is known
    already: a GPU compiles their programs meanwhile.
    """
    requests = make_requests(cameras, depth_m, field)
    if method in ENGINE_METHODS:
        return TracedRequests(requests, bands, ENGINE_METHODS[method], depth_series=depth_series, few=few, size=size)
    from .psf.comparison import ComparisonRequests

    blur = [
        float(camera.circle_of_confusion_px(depth)) if depth > camera.first_order.nearest_m else math.nan
        for camera, depth in zip(cameras, depth_m, strict=True)
    ]
    return ComparisonRequests(requests, bands, method, blur)


def make_requests(cameras: Sequence[Camera], depth_m: Sequence[float], field: Sequence[Field]) -> Requests:
    """The PSF engine's requests: one row for each camera, depth (m) and field position."""
    different = {id(camera): camera for camera in cameras}
    number = {key: n for n, key in enumerate(different)}
    own = np.array([number[id(camera)] for camera in cameras])

    def column(values: list[Any]) -> np.ndarray:
        """One number of each different camera, for every row."""
        return np.array(values, float)[own]

    every = list(different.values())
    x, y = np.array(field, float).reshape(-1, 2).T
    shifts = [math.nan if camera.sensor_shift_mm is None else camera.sensor_shift_mm for camera in every]
    points = Points(
        height=np.hypot(x, y) * column([camera.image_radius_mm for camera in every]),
        azimuth=np.where((x == 0.0) & (y == 0.0), np.pi / 2.0, np.arctan2(y, x)),
        depth=np.asarray(depth_m, float) * 1e3,
        focus=column([camera.focus_m for camera in every]) * 1e3,
        shift=column(shifts),
        pixel=column([camera.pixel_um for camera in every]) * 1e-3,
        iris=jax.tree.map(lambda leaf: leaf[own], stack_irises([camera.iris for camera in every])),
    )
    lenses = {id(camera.optics): camera.optics for camera in every}
    of_lens = {key: n for n, key in enumerate(lenses)}
    of_camera = np.array([of_lens[id(camera.optics)] for camera in every])
    return Requests(tuple(lenses.values()), of_camera[own], points)


def psfs_in_one_window(
    traced: TracedRequests,
    rows: list[tuple[Camera, float, Field]],
    size: int | None,
    options: PsfOptions,
    progress: Progress | None,
) -> PsfBatch:
    """The PSFs of the first requests in windows of `size`, or of the smallest size that holds them all."""
    numbers = range(len(rows))
    if size is not None:
        return traced.psfs(size, options, numbers, progress)
    window = max(window_for(camera.circle_of_confusion_px(depth), LARGEST) for camera, depth, _ in rows)
    while True:
        batch = traced.psfs(window, options, numbers, progress)
        pitches = (batch.pixel_um * 1e-3).tolist()
        larger = larger_window(window, LARGEST)
        if larger is None or not any(map(spills, batch.reports, pitches, [window] * len(pitches))):
            return batch
        window = larger


def check_points(depth_m: Sequence[Any], field: Sequence[Field | None], size: int | None) -> None:
    """Refuse depths (m), fields and windows (pixels) that cannot be."""
    for depth in depth_m:
        check_number("depth", depth, "m", "a positive number or inf")
    for place in field:
        if place is not None and not math.hypot(*place) <= 1.0 + 1e-9:
            raise DefocusError(f"field ({place[0]}, {place[1]}) lies outside the image circle of radius 1")
    if size is not None and not (isinstance(size, int | np.integer) and size is not True and 1 <= size <= 4096):
        raise DefocusError(f"a window of {size} pixels; expected a whole number from 1 to 4096")


def field_numbers(field: Any) -> Field | None:
    """The field position as numbers; None while JAX traces it."""
    try:
        x, y = field
    except (TypeError, ValueError):
        raise DefocusError(f"field {field!r}; expected where the point appears, (x, y)") from None
    x, y = concrete(x), concrete(y)
    try:
        return None if x is None or y is None else (float(x), float(y))
    except (TypeError, ValueError):
        raise DefocusError(f"field {field!r}; expected two numbers, where the point appears") from None
