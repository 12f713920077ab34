"""The PSF engine: requests in, PSFs out, many lenses, fields, depths and wavelengths in one call.

Work is grouped twice so that few programs compile and batches are full: wavefronts by the lenses' bucket, propagation
by the number of samples. Nothing compiles per lens. Only small numbers travel to the host between the two.

`pure.point_psf` is the same for one point as a pure function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from .._lazy import drawn
from ..errors import DefocusError
from ..files.stores import writing_file
from ..stored_program import StoredProgram, stored_program
from .bands import Bands
from .depth_series import series_blocks
from .method import WAVE, PsfMethod, SampleCount
from .pixel_integral import is_cheaper
from .poses import PoseCache, Requests
from .propagate import Intensity, intensity_batch, pupil_light
from .propagation_plan import (
    OF_PIXELS,
    OF_RAYS,
    PROGRAMS_AT_ONCE,
    compile_ahead,
    compile_window,
    in_batches,
    plan_propagation,
    take_pupils,
)
from .pupil_function import PupilFunction
from .ray_density import CELL_BUCKETS, needed_cells, ray_error
from .sampling import (
    MOST_SAMPLES,
    RIM,
    SAMPLE_BUCKETS,
    SUPERSAMPLE_BUCKETS,
    bucket,
    needed_supersampling,
    supersampling_bucket,
)
from .wavefronts import (
    WavefrontBlock,
    Wavefronts,
    backend_kind,
    compile_many,
    wavefront_blocks,
)
from .window import SPILL, larger_window, points_per_pixel, spill_refusal, wants_larger, window_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY = 1024  # requests for which a GPU's programs are worth compiling ahead of knowing what they take
WORST_RESIDUAL = 0.07  # waves RMS: Maréchal's limit, at which a perfect lens loses a fifth of its peak
MOST_POINTS = 2**15  # across a window: 8 GiB of light waves
FRINGE_PX = 1.0 / 12.0  # finest fringes, in pixels, of coarse PSFs
COARSE_POINTS = 19  # per pixel and axis: 1.5 for each of those
COARSE_RIM = 12.5  # in place of `sampling.RIM`: an error near 2e-3, of PSFs that are 0.03 from the exact ones
RAY_ERROR = 0.01  # relative L1, as it is estimated, up to which a PSF is that of its rays
LARGEST_ERROR = 2.0  # of two PSFs that have no pixel in common

Side = Literal["left", "right"]
SIDES: dict[Side | None, float] = {None: 0.0, "left": -1.0, "right": 1.0}
Report = dict[str, Any]
Progress = Callable[[float], None]  # how many more PSFs are done, in fractions


@dataclass(frozen=True)
class PsfOptions:
    """How PSFs are computed, the same for every request of a call; the defaults are the best that we know.

    `side` keeps the light of half the lens. `samples` across the pupil and points per pixel (`supersample`) follow from
    the traced rays unless they are set. Large blurs on large pixels are those of their rays with the diffraction of the
    pupil's edge (`ray_density`), where that is within about 0.01 of the light waves in relative L1; `exact` takes light
    waves always. With `coarse`, what is left to light waves has those of a longer wavelength: see `_on_pixels`.
    `double` propagates in double precision.
    """

    side: Side | None = None
    samples: int | None = None
    supersample: int | None = None
    exact: bool = False
    coarse: bool = False
    double: bool = False

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise DefocusError(f"side {self.side!r}; expected left or right, or None for the whole lens")
        for name, switch in (("exact", self.exact), ("coarse", self.coarse), ("double", self.double)):
            if not isinstance(switch, bool | np.bool_):
                raise DefocusError(f"{name} {switch!r}; expected True or False")
        if self.exact and self.coarse:
            raise DefocusError("exact and coarse: take one of them")
        for name, count, most in (("samples", self.samples, MOST_SAMPLES), ("supersample", self.supersample, 99)):
            if count is not None and not (isinstance(count, int | np.integer) and 1 <= count <= most):
                raise DefocusError(f"{name} {count!r}; expected a whole number from 1 to {most}, or None for enough")


class Psf(eqx.Module):
    """One point spread function."""

    array: Float[Any, "*batch bands size size"]  # rows from the top; each band sums to 1
    bands: Bands = eqx.field(static=True)
    pixel_um: float | Float[Any, ""]
    report: Report

    def __repr__(self) -> str:
        size, outside = self.array.shape[-1], self.report.get("energy_outside")
        lost = "" if not isinstance(outside, float) else f", {max(outside, 0.0):.1%} of the light outside"
        return f"Psf({', '.join(self.bands.names)}; {size} × {size} pixels of {self.pixel_um:.3g} µm{lost})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype)

    def plot(self, **options: Any) -> Figure:
        """A figure of the PSF: picture, profiles and encircled energy."""
        return drawn("draw_psf", self, **options)

    def save(self, path: str | Path) -> None:
        """Write an .npz file (psf, wavelengths_nm, pixel_um, report), or a figure as .png, .svg or .pdf."""
        if not str(path).lower().endswith(".npz"):
            drawn("save", self.plot(), path)
            return
        numbers = {"psf": self.array, "wavelengths_nm": self.bands.mean_nm, "pixel_um": self.pixel_um}
        with writing_file(path) as file:
            np.savez_compressed(file, **numbers, report=json.dumps(self.report))  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        return drawn("html_image", self.plot())


@dataclass(frozen=True)
class PsfBatch:
    """PSFs [request, band, row, column], each band summing to 1, and one report per request."""

    psf: Float[np.ndarray, "requests bands size size"]
    bands: Bands
    pixel_um: Float[np.ndarray, " requests"]
    reports: tuple[Report, ...]

    @cached_property
    def ok(self) -> np.ndarray:
        """Which requests succeeded; the others' PSFs are zero and their report's `status` says why."""
        return np.array([report["status"] == "ok" for report in self.reports])

    def __len__(self) -> int:
        return len(self.reports)

    def __repr__(self) -> str:
        fine = int(self.ok.sum())
        return f"PsfBatch({fine} of {len(self)} PSFs, {', '.join(self.bands.names)}, {self.psf.shape[-1]} px)"


@dataclass(frozen=True)
class FittedPsf:
    """One PSF in the window that the policy chose for it; no array where `report["status"]` is not "ok"."""

    array: Float[np.ndarray, "bands size size"] | None
    report: Report

    @property
    def size(self) -> int:
        """Pixels across the window."""
        return self.report["window_px"]


class TracedRequests:
    """Requests whose wavefronts are known: PSFs of any size, for any pixels, without tracing again."""

    def __init__(
        self,
        requests: Requests,
        bands: Bands,
        method: PsfMethod = WAVE,
        *,
        depth_series: bool = False,
        few: bool = False,
        size: int | None = None,
        poses: PoseCache | None = None,
    ) -> None:
        """With a `size`, a GPU takes larger batches of many requests, and meanwhile compiles the programs of PSFs in
        windows of so many pixels; `few` and `poses` as for `wavefront_blocks`."""
        self.requests, self.bands, self.method = requests, bands, method
        many = size is not None and len(requests) >= MANY and method is WAVE
        blocks_of = series_blocks if depth_series else partial(wavefront_blocks, few=few, many=many, poses=poses)
        if many and size is not None and backend_kind() == "gpu" and not depth_series:
            compile_ahead([*compile_many(requests, bands, method.wavefront), *compile_window(size)])
        self.blocks = list(blocks_of(requests, bands, method.wavefront))

    def psfs(
        self,
        size: int,
        options: PsfOptions,
        rows: Sequence[int] | None = None,
        progress: Progress | None = None,
        points: int | None = None,
    ) -> PsfBatch:
        """PSFs of some of the requests (all), in the order of `rows`, which differ.

        `points` per pixel are those of light waves where the options name none.
        """
        numbers = np.arange(len(self.requests)) if rows is None else np.asarray(rows, int)
        pitch = np.asarray(self.requests.points.pixel, float)[numbers]
        arrays = np.zeros((len(numbers), len(self.bands.names), size, size), np.float32)
        reports: list[Report] = [{} for _ in numbers]
        place = {int(row): i for i, row in enumerate(numbers)}
        for block in self.blocks:
            members = [k for k, row in enumerate(block.rows) if row in place]
            to = [place[block.rows[k]] for k in members]
            psfs = self._propagate(block, np.array(members, int), pitch[to], size, options, points, progress)
            for i, (array, report) in zip(to, psfs, strict=True) if members else ():
                reports[i] = report
                if array is not None:
                    arrays[i] = array
        return PsfBatch(arrays, self.bands, pitch * 1e3, tuple(reports))

    def fitted_psfs(
        self,
        coc_px: Sequence[float],
        most_px: int,
        options: PsfOptions,
        least_px: int = 0,
        progress: Progress | None = None,
    ) -> list[FittedPsf]:
        """A PSF of each request in a window of its own (`psf.window`), from its paraxial blur radius and its rays.

        Where only a larger window fails, the PSF of the smaller one is taken if less than `MOST_SPILL` is outside.
        """
        fitted: dict[int, FittedPsf] = {}
        pixel = np.asarray(self.requests.points.pixel, float).tolist()
        groups: dict[int, list[int]] = {}
        for row, coc in enumerate(coc_px):
            groups.setdefault(max(window_for(coc, most_px), min(least_px, most_px)), []).append(row)
        while groups:
            window = min(groups)
            rows = groups.pop(window)
            points = points_per_pixel(window)
            points = min(points, COARSE_POINTS) if options.coarse else points
            batch = self.psfs(window, options, rows, progress, points)
            for row, array, report in zip(rows, batch.psf, batch.reports, strict=True):
                report["window_px"] = window
                fits = report["status"] == "ok"
                if fits or row not in fitted or (fitted[row].array is None and "energy_outside" in report):
                    fitted[row] = FittedPsf(array if fits else None, report)
                larger = larger_window(window, most_px)
                if larger is not None and spills(report, pixel[row], window):
                    groups.setdefault(larger, []).append(row)
        return [fitted[row] for row in range(len(coc_px))]

    def _propagate(
        self,
        block: WavefrontBlock,
        members: Int[np.ndarray, " requests"],
        pixel: Float[np.ndarray, " requests"],
        size: int,
        options: PsfOptions,
        points_each: int | None,
        progress: Progress | None,
    ) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, Report]]:
        """Group by samples, propagate, fold wavelengths into bands; a PSF (None where there is none) and its report.

        `members` are places among the block's rows.
        """
        places = np.array(block.places)[members]
        pitch = np.full(block.arrays.in_front.shape[0], pixel[0])
        pitch[places] = pixel
        fringe = FRINGE_PX if options.coarse else 0.0
        pupils, needed, finest = _pixel_program(self.method.samples)(
            block.arrays, pitch, size * pitch, np.asarray(fringe), np.asarray(SIDES[options.side])
        )
        optics = jax.tree.map(lambda leaf: leaf[members], block.summary)
        needed, finest = (np.asarray(v)[places, : block.waves] for v in jax.device_get((needed, finest)))
        asked = options.supersample or self.method.supersample
        samples = _counts(needed, options.samples, partial(bucket, sizes=SAMPLE_BUCKETS[backend_kind()]))
        several = partial(supersampling_bucket, sizes=SUPERSAMPLE_BUCKETS[backend_kind()])
        points = _counts(finest, asked or points_each, several)
        estimates = {}
        if self.method is WAVE and not (options.exact or options.samples or asked):
            count = np.array([places.max(initial=-1) + 1, block.waves])
            error = np.asarray(_RAY_ERRORS(block.arrays, pitch, count))[places, : block.waves]
            error = np.minimum(error, LARGEST_ERROR)
            estimates, rays = {"ray_error": error}, error <= RAY_ERROR
            # The widest colour's cells for all of them: one program.
            blur_px = np.abs(optics.wavefront.blur).max((1, 2, 3))[:, None] / pixel[:, None]
            cells = _counts(needed_cells(blur_px), None, partial(bucket, sizes=CELL_BUCKETS[backend_kind()]))
            samples, points = np.where(rays, cells, samples), np.where(rays, OF_RAYS, points)
        if not asked:
            points = np.where(is_cheaper(samples, points, size), OF_PIXELS, points)
        status = _statuses(optics, samples)
        across = size * np.where(points < OF_PIXELS, points, 0).max(1)
        for row in np.flatnonzero(across > MOST_POINTS):
            status[row] = (
                f"takes {across[row]} points across its window, more than {MOST_POINTS}: take a smaller window"
            )
        jobs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, text in enumerate(status):
            if text == "ok":
                for w, count in enumerate(samples[i]):
                    jobs.setdefault((int(count), int(points[i, w])), []).append((i, w))
        pixels = np.zeros((*samples.shape, size, size), np.float32)
        measures = {name: np.zeros(samples.shape) for name in ("inside", "strehl", "light")}
        dtype = jnp.float64 if options.double else jnp.float32

        def propagate(job: tuple[tuple[int, int], list[tuple[int, int]]]) -> None:
            kind, pairs = job
            batch, way = plan_propagation(*kind, size, self.method)

            def compute(rows: Int[np.ndarray, "batch 2"], number: int) -> Intensity:
                own_pupils = take_pupils(pupils, places[rows[:, 0]], rows[:, 1])
                return intensity_batch(own_pupils, pixel[rows[:, 0]], number, dtype=dtype, **way)

            for part, light in in_batches(pairs, batch, compute):
                here = tuple(np.array(part).T)
                pixels[here] = light.pixels[: len(part), :size, :size]
                for name, values in measures.items():
                    values[here] = getattr(light, name)[: len(part)]
                if progress is not None:
                    progress(len(part) / block.waves)

        # A GPU's programs compile side by side, and one copies to the host while another computes.
        with ThreadPoolExecutor(1 if backend_kind() == "cpu" else PROGRAMS_AT_ONCE) as pool:
            list(pool.map(propagate, sorted(jobs.items())))
        counts = {"samples": samples, "samples_needed": needed, "supersample": points, **estimates}
        yield from _folded(optics, status, pixels, measures, counts, self.bands, pixel, self.method)

    def pupil_areas(self) -> Float[np.ndarray, " requests"]:
        """Area of each request's pupil in direction cosines: the illumination that it gives; nan where no light is."""
        areas = np.full(len(self.requests), np.nan)
        for block in self.blocks:
            light = block.summary.wavefront.found.all(1) & block.summary.pose.chief.found
            areas[block.rows] = np.where(light, block.summary.wavefront.area.mean(1), np.nan)
        return areas

    def light(self, side: Side | None = None) -> Float[np.ndarray, " requests"]:
        """mm² of the incoming beam that passes the lens, or one side of it."""
        passed = np.full(len(self.requests), np.nan)
        for block in self.blocks:
            pupils = block.arrays.pupil
            half = eqx.tree_at(lambda p: p.side, pupils, jnp.full_like(pupils.side, SIDES[side]))
            passed[block.rows] = np.asarray(pupil_light(half))[block.places, : block.waves].mean(1)
        return passed


@cache
def _pixel_program(count: SampleCount) -> Callable[..., Any]:
    """`_on_pixels` with this way to count samples."""

    def on_pixels(*arguments: Any) -> Any:
        return _on_pixels(*arguments, count=count)

    return stored_program(on_pixels, count, quick=True)


def _on_pixels(
    waves: Wavefronts,
    pixel: Float[Array, " requests"],
    window: Float[Array, " requests"],
    fringe_px: Float[Array, ""],
    side: Float[Array, ""],
    *,
    count: SampleCount,
) -> tuple[PupilFunction, Float[Array, "requests waves"], Float[Array, "requests waves"]]:
    """The pupils of one side of the lens, and how many samples and points per pixel they take on these pixels.

    With a `fringe_px` above 0 the same rays are propagated at a wavelength so long that the finest fringes, λ / 2h, are
    that many pixels wide. Where pixels are far larger than the Airy disc, PSFs are those of the rays, whatever the
    wavelength; the samples that they take are not, and fall with it. What diffraction adds grows to an Airy radius of
    1.22 `fringe_px` pixels. For a 50 mm f/2 lens on 960 × 640 pixels that changes PSFs by 0.03 to 0.06 in relative L1.
    """
    wavefront, pupil, pitch = waves.wavefront, waves.pupil, pixel[:, None]
    finest = wavefront.wavelength / (2.0 * wavefront.radius)
    longer = jnp.maximum(fringe_px * pitch / finest, 1.0)
    wavelength = wavefront.wavelength * longer
    pupil = eqx.tree_at(
        lambda p: (p.phase, p.wavelength, p.side),
        pupil,
        (pupil.phase / longer[..., None, None], pupil.wavelength * longer, jnp.full_like(pupil.side, side)),
    )
    rim = jnp.where(fringe_px > 0.0, COARSE_RIM, RIM)
    return (
        pupil,
        count(waves, window[:, None], wavelength, rim),
        needed_supersampling(wavefront.radius, wavefront.core, pitch, wavelength),
    )


def _ray_errors(
    waves: Wavefronts, pixel: Float[Array, " requests"], counts: Int[Array, "2"]
) -> Float[Array, "requests waves"]:
    """How far the light of rays is off on these pixels: an estimate, in relative L1, of the first `counts` of them."""
    wavefront = waves.wavefront
    return ray_error(waves.pupil, pixel[:, None] * 2.0 * wavefront.radius / wavefront.wavelength, counts)


_RAY_ERRORS = StoredProgram(_ray_errors, quick=True)


def _counts(
    needed: Float[np.ndarray, "requests waves"], count: int | None, size_of: Callable[[float], int]
) -> Int[np.ndarray, "requests waves"]:
    """The `count` that was asked for, or for each request and wavelength the size in use that holds what it needs."""
    if count is not None:
        return np.full(needed.shape, count)
    return np.vectorize(size_of, otypes=[int])(np.minimum(np.nan_to_num(needed, nan=0.0, posinf=1e9), 1e9))


def _statuses(optics: Any, samples: Int[np.ndarray, "requests waves"]) -> list[str]:
    """ "ok", or why there is no PSF."""
    residual, most = optics.wavefront.residual_rms.max(1), samples.max(1)
    good = optics.in_front & optics.pose.chief.found & optics.wavefront.found.all(1)
    good &= (residual <= WORST_RESIDUAL) & (most <= MOST_SAMPLES)
    return ["ok" if fine else _refusal(optics, i, residual[i], most[i]) for i, fine in enumerate(good.tolist())]


def light_refusal(optics: Any, i: int) -> str:
    """Why no light of request `i` arrives; empty where some does."""
    if not optics.in_front[i]:
        return "the object stands inside the lens"
    if not bool(optics.pose.chief.found[i]):
        return f"no chief ray: the farthest reaches {float(optics.pose.chief.reach[i]):.4g}"
    return "" if optics.wavefront.found[i].all() else "no light gets through at this field"


def _refusal(optics: Any, i: int, residual: float, samples: int) -> str:
    if refusal := light_refusal(optics, i):
        return refusal
    if not residual <= WORST_RESIDUAL:
        return (
            f"no smooth wavefront: its fit is off by {residual:.2g} waves RMS, more than {WORST_RESIDUAL}; rays at the "
            "pupil's edge go astray: the clear apertures may be wider than the lens is made for"
        )
    return f"needs {samples} samples across the pupil, more than {MOST_SAMPLES}: the blur is too large"


def spills(report: Report, pixel: float, window: int) -> bool:
    """Whether a PSF leaves its window of pixels (their pitch in mm) so far that a larger one is tried."""
    return "energy_outside" in report and wants_larger(report["energy_outside"], report["blur_mm"] / pixel, window)


def judge_counts(batch: PsfBatch, options: PsfOptions) -> None:
    """Say where the samples and points per pixel that were asked for measure no energy.

    One point per pixel is a sample of the light, which may be all that is wanted; more stand for what falls on it.
    """
    counts = [f"{n} {name}" for name, n in (("samples", options.samples), ("points", options.supersample)) if n]
    for psf, report in zip(batch.psf, batch.reports, strict=True):
        if report["status"] != "ok" or not counts:
            continue
        if options.supersample == 1:
            report["notes"] = ["one point per pixel: samples of the light, not what falls on each pixel"]
        light = 1.0 - min(report["energy_outside_bands"])
        if light > 1.0 + SPILL and options.supersample == 1:
            report |= {"energy_outside": None, "energy_outside_bands": None}
        elif light > 1.0 + SPILL:
            psf[:] = 0.0
            report["status"] = (
                f"{' and '.join(counts)} are too few, they count {light:.3g} times the light: take more, or leave "
                "that choice out"
            )


def fold_bands(values: Any, bands: Bands) -> Any:
    """Sums over each band's wavelengths (second axis of `values`) with their weights: [row, band, …]."""
    folded, first = [], 0
    for weights in bands.weights:
        own = values[:, first : first + len(weights)]
        folded.append(sum(w * own[:, k] for k, w in enumerate(weights)))
        first += len(weights)
    return (np if isinstance(values, np.ndarray) else jnp).stack(folded, axis=1)


def _folded(
    optics: Any,
    status: list[str],
    pixels: Float[np.ndarray, "requests waves size size"],
    measures: dict[str, Float[np.ndarray, "requests waves"]],
    counts: dict[str, Shaped[np.ndarray, "requests waves"]],
    bands: Bands,
    pixel: Float[np.ndarray, " requests"],
    method: PsfMethod,
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, Report]]:
    """Wavelengths folded into bands, and the reports."""
    total = fold_bands(measures["inside"], bands)
    lost = 1.0 - total
    lit = (np.isfinite(total) & (total > 0.0)).all(1)
    size, mixed = pixels.shape[-1], fold_bands(pixels, bands)
    mixed /= np.where(lit[:, None], total, 1.0).astype(mixed.dtype)[..., None, None]
    wavefront = optics.wavefront
    columns: dict[str, Any] = {
        **{name: values.max(1) for name, values in counts.items()},
        "sampling_bound": optics.bound,
        "residual_waves": wavefront.residual_rms.max(1),
        "residual_max_waves": wavefront.residual_max.max(1),
        "rays_apart": wavefront.apart.min(1),
        "energy_outside": lost.max(1),
        "energy_outside_bands": lost,
        "strehl": measures["strehl"].mean(1),
        "pupil_area": wavefront.area.mean(1),
        "light_mm2": measures["light"].mean(1),
        "image_height_mm": wavefront.image_height[:, 0],
        "field_deg": np.degrees(optics.pose.chief.angle),
        "sensor_z_mm": optics.pose.sensor_z,
        "blur_mm": np.abs(wavefront.blur).max(tuple(range(1, wavefront.blur.ndim))),
    }
    names = ("status", *columns)
    rows = zip(status, *(column.tolist() for column in columns.values()), strict=True)
    for psf, light, pitch, row in zip(mixed, lit.tolist(), pixel, rows, strict=True):
        report = dict(zip(names, row, strict=True))
        points = report.pop("supersample")
        report["propagation"] = {OF_RAYS: "rays", OF_PIXELS: "pixels"}.get(points, "points")
        if report["propagation"] == "points":
            report["supersample"] = points
        if report["status"] != "ok":
            yield None, {"status": report["status"]}
        elif not light:
            yield None, {"status": "no light falls into the window"}
        elif (
            points != 1  # which measures no energy
            and (method.supersample is None or report["blur_mm"] / pitch > size / 2.0)  # nor may a method's own few
            and (refusal := spill_refusal(report["energy_outside"], report["blur_mm"] / pitch, size))
        ):
            yield None, report | {"status": refusal}
        else:
            yield psf, report
