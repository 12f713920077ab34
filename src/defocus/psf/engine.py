"""The PSF engine: requests in, PSFs out, many lenses, fields, depths and wavelengths in one call.

Work is grouped twice so that few programs compile and batches are full: wavefronts by the lenses' bucket, propagation
by the number of samples. Nothing compiles per lens. Only small numbers travel to the host between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ..optics.wavefront import Strength, Wavefront, energy_strength
from .bands import Bands
from .propagate import Intensity, intensity_batch, pupil_light
from .pupil_function import PupilFunction
from .requests import Requests
from .sampling import MOST_SAMPLES, SAMPLE_BUCKETS, bucket, needed_samples, needed_supersampling, supersampling_bucket
from .wavefronts import WavefrontBlock, backend_kind, wavefront_blocks
from .window import larger_window, points_per_pixel, spill_refusal, wants_larger, window_for

PUPIL_CELLS_AT_ONCE = 2**25  # samples² × batch of one propagation
PROGRAMS_AT_ONCE = 8  # on a GPU
WORST_RESIDUAL = 0.07  # waves RMS: Maréchal's limit, at which a perfect lens loses a fifth of its peak
FRINGE_PX = 1.0 / 12.0  # finest fringes, in pixels, of PSFs that need not be exact

Side = Literal["left", "right"]
SIDES: dict[Side | None, float] = {None: 0.0, "left": -1.0, "right": 1.0}
Report = dict[str, Any]
Progress = Callable[[float], None]  # how many more PSFs are done, in fractions


@dataclass(frozen=True)
class PsfOptions:
    """How PSFs are computed, the same for every request of a call; the defaults are the best that we know.

    `side` keeps the light of half the lens. `samples` across the pupil and points per pixel (`supersample`) follow from
    the traced rays unless they are set. Where pixels are much larger than what diffraction does, PSFs that are not
    `exact` are those of a longer wavelength: see `_on_pixels`. `double` propagates in double precision.
    """

    side: Side | None = None
    samples: int | None = None
    supersample: int | None = None
    exact: bool = True
    double: bool = False


@dataclass(frozen=True)
class PsfBatch:
    """PSFs [request, band, row, column], each band summing to 1, and one report per request."""

    psf: Float[np.ndarray, "requests bands size size"]
    bands: Bands
    pixel_um: Float[np.ndarray, " requests"]
    reports: tuple[Report, ...]

    @property
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

    def __init__(self, requests: Requests, bands: Bands, strength: Strength = energy_strength) -> None:
        self.requests, self.bands = requests, bands
        self.blocks = list(wavefront_blocks(requests, bands, strength))

    def psfs(
        self,
        size: int,
        options: PsfOptions,
        rows: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> PsfBatch:
        """PSFs of some of the requests (all), in the order of `rows`, which differ."""
        chosen = np.arange(len(self.requests)) if rows is None else np.asarray(rows, int)
        pitch = np.asarray(self.requests.points.pixel, float)[chosen]
        arrays = np.zeros((len(chosen), len(self.bands.names), size, size), np.float32)
        reports: list[Report] = [{} for _ in chosen]
        for place, array, report in self._propagated(chosen, pitch, size, options, progress):
            reports[place] = report
            if array is not None:
                arrays[place] = array
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
            points = options.supersample or points_per_pixel(window)
            batch = self.psfs(window, replace(options, supersample=points), rows, progress)
            for row, array, report in zip(rows, batch.psf, batch.reports, strict=True):
                report["window_px"] = window
                fits = report["status"] == "ok"
                if fits or row not in fitted or (fitted[row].array is None and "energy_outside" in report):
                    fitted[row] = FittedPsf(array if fits else None, report)
                larger = larger_window(window, most_px)
                if larger is not None and spills(report, pixel[row], window):
                    groups.setdefault(larger, []).append(row)
        return [fitted[row] for row in range(len(coc_px))]

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

    def _propagated(
        self,
        rows: Int[np.ndarray, " rows"],
        pitch: Float[np.ndarray, " rows"],
        size: int,
        options: PsfOptions,
        progress: Progress | None,
    ) -> Iterator[tuple[int, Float[np.ndarray, "bands size size"] | None, Report]]:
        place = {int(row): i for i, row in enumerate(rows)}
        for block in self.blocks:
            members = [k for k, row in enumerate(block.rows) if row in place]
            if not members:
                continue
            to = [place[block.rows[k]] for k in members]
            psfs = _propagate_block(block, np.array(members, int), pitch[to], size, self.bands, options, progress)
            for i, (array, report) in zip(to, psfs, strict=True):
                yield i, array, report


def _propagate_block(
    block: WavefrontBlock,
    members: Int[np.ndarray, " requests"],
    pixel: Float[np.ndarray, " requests"],
    size: int,
    bands: Bands,
    options: PsfOptions,
    progress: Progress | None = None,
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, Report]]:
    """Group by samples, propagate, fold wavelengths into bands; a PSF (None where there is none) and its report.

    `members` are places among the block's rows.
    """
    places = np.array(block.places)[members]
    pitch = np.full(block.arrays.in_front.shape[0], pixel[0])
    pitch[places] = pixel
    pupils, needed, finest = _on_pixels(
        block.arrays.wavefront,
        block.arrays.pupil,
        pitch,
        size * pitch,
        0.0 if options.exact else FRINGE_PX,
        SIDES[options.side],
    )
    optics = jax.tree.map(lambda leaf: leaf[members], block.summary)
    needed, finest = (np.asarray(v)[places, : block.waves] for v in jax.device_get((needed, finest)))
    samples, points = _sample_counts(needed, options.samples), _point_counts(finest, options.supersample)
    status = _statuses(optics, samples)
    jobs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, text in enumerate(status):
        if text == "ok":
            for w, count in enumerate(samples[i]):
                jobs.setdefault((int(count), int(points[i, w])), []).append((i, w))
    shape = samples.shape
    pixels = np.zeros((*shape, size, size), np.float32)
    measures = {name: np.zeros(shape) for name in ("inside", "strehl", "light")}
    dtype = jnp.float64 if options.double else jnp.float32

    def propagate(job: tuple[tuple[int, int], list[tuple[int, int]]]) -> None:
        (count, supersample), pairs = job
        batch = max(1, min(64, PUPIL_CELLS_AT_ONCE // max(count, size * supersample) ** 2))
        for start in range(0, len(pairs), batch):
            part = pairs[start : start + batch]
            rows = np.array(part + [part[-1]] * (batch - len(part)))  # full, so that one size compiles
            light: Intensity = jax.device_get(
                intensity_batch(
                    _take_pupils(pupils, places[rows[:, 0]], rows[:, 1]),
                    pixel[rows[:, 0]],
                    np.asarray(len(part)),
                    samples=count,
                    size=size,
                    supersample=supersample,
                    dtype=dtype,
                )
            )
            here = tuple(np.array(part).T)
            pixels[here] = light.pixels[: len(part)]
            for name, values in measures.items():
                values[here] = getattr(light, name)[: len(part)]
            if progress is not None:
                progress(len(part) / block.waves)

    # A GPU's programs compile side by side, and one copies to the host while another computes.
    with ThreadPoolExecutor(1 if backend_kind() == "cpu" else PROGRAMS_AT_ONCE) as pool:
        list(pool.map(propagate, sorted(jobs.items())))
    counts = {"samples": samples, "samples_needed": needed, "supersample": points}
    yield from _folded(optics, status, pixels, measures, counts, bands, pixel)


@jax.jit
def _take_pupils(pupils: PupilFunction, rows: Int[Array, " batch"], waves: Int[Array, " batch"]) -> PupilFunction:
    return jax.tree.map(lambda leaf: leaf[rows, waves], pupils)


@jax.jit
def _on_pixels(
    wavefront: Wavefront,
    pupil: PupilFunction,
    pixel: Float[Array, " requests"],
    window: Float[Array, " requests"],
    fringe_px: Float[Array, ""],
    side: Float[Array, ""],
) -> tuple[PupilFunction, Float[Array, "requests waves"], Float[Array, "requests waves"]]:
    """The pupils of one side of the lens, and how many samples and points per pixel they take on these pixels.

    With a `fringe_px` above 0 the same rays are propagated at a wavelength so long that the finest fringes, λ / 2h, are
    that many pixels wide. Where pixels are far larger than the Airy disc, PSFs are those of the rays, whatever the
    wavelength; the samples that they take are not, and fall with it. What diffraction adds grows to an Airy radius of
    1.22 `fringe_px` pixels. For a 50 mm f/2 lens on 960 × 640 pixels that changes PSFs by 0.03 to 0.06 in relative L1.
    """
    pitch = pixel[:, None]
    finest = wavefront.wavelength / (2.0 * jnp.max(wavefront.half, axis=-1))
    longer = jnp.maximum(fringe_px * pitch / finest, 1.0)
    wavelength = wavefront.wavelength * longer
    pupil = eqx.tree_at(
        lambda p: (p.phase, p.wavelength, p.side),
        pupil,
        (pupil.phase / longer[..., None, None], pupil.wavelength * longer, jnp.full_like(pupil.side, side)),
    )
    return (
        pupil,
        needed_samples(wavefront.half, wavefront.blur, window[:, None], wavelength),
        needed_supersampling(wavefront.half, wavefront.core, pitch, wavelength),
    )


def _sample_counts(needed: Float[np.ndarray, "requests waves"], samples: int | None) -> np.ndarray:
    """Samples across the pupil for each request and wavelength."""
    if samples is not None:
        return np.full(needed.shape, samples)
    sized = partial(bucket, sizes=SAMPLE_BUCKETS[backend_kind()])
    return np.vectorize(sized, otypes=[int])(np.nan_to_num(needed, nan=0.0, posinf=1e9))


def _point_counts(needed: Float[np.ndarray, "requests waves"], supersample: int | None) -> np.ndarray:
    """Points per pixel and axis for each request and wavelength."""
    if supersample is not None:
        return np.full(needed.shape, supersample)
    return np.vectorize(supersampling_bucket, otypes=[int])(np.nan_to_num(needed, nan=0.0, posinf=1e9))


def _statuses(optics: Any, samples: Int[np.ndarray, "requests waves"]) -> list[str]:
    """ "ok", or why there is no PSF."""
    residual, most = optics.wavefront.residual_rms.max(1), samples.max(1)
    good = optics.in_front & optics.pose.chief.found & optics.wavefront.found.all(1)
    good &= (residual <= WORST_RESIDUAL) & (most <= MOST_SAMPLES)
    return ["ok" if fine else _refusal(optics, i, residual[i], most[i]) for i, fine in enumerate(good.tolist())]


def _refusal(optics: Any, i: int, residual: float, samples: int) -> str:
    if not optics.in_front[i]:
        return "the object stands inside the lens"
    if not bool(optics.pose.chief.found[i]):
        return f"no chief ray: the farthest reaches {float(optics.pose.chief.reach[i]):.4g}"
    if not optics.wavefront.found[i].all():
        return "no light gets through at this field"
    if not residual <= WORST_RESIDUAL:
        return (
            f"no smooth wavefront: its fit is off by {residual:.2g} waves RMS, more than {WORST_RESIDUAL}; rays at the "
            "pupil's edge go astray: the clear apertures may be wider than the lens is made for"
        )
    return f"needs {samples} samples across the pupil, more than {MOST_SAMPLES}: the blur is too large"


def spills(report: Report, pixel: float, window: int) -> bool:
    """Whether a PSF leaves its window of pixels (their pitch in mm) so far that a larger one is tried."""
    return "energy_outside" in report and wants_larger(report["energy_outside"], report["blur_mm"] / pixel, window)


def fold_bands(values: Any, bands: Bands) -> list[Any]:
    """Sums over each band's wavelengths (second axis of `values`) with their weights."""
    folded, first = [], 0
    for weights in bands.weights:
        own = values[:, first : first + len(weights)]
        folded.append(sum(w * own[:, k] for k, w in enumerate(weights)))
        first += len(weights)
    return folded


def _folded(
    optics: Any,
    status: list[str],
    pixels: Float[np.ndarray, "requests waves size size"],
    measures: dict[str, Float[np.ndarray, "requests waves"]],
    counts: dict[str, Shaped[np.ndarray, "requests waves"]],
    bands: Bands,
    pixel: Float[np.ndarray, " requests"],
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, Report]]:
    """Wavelengths folded into bands, and the reports."""
    size = pixels.shape[-1]
    lost = 1.0 - np.stack(fold_bands(measures["inside"], bands), axis=1)
    mixed = np.stack(fold_bands(pixels, bands), axis=1)
    total = mixed.sum((2, 3))
    lit = (np.isfinite(total) & (total > 0.0)).all(1)
    mixed = mixed / np.where(lit[:, None], total, 1.0)[..., None, None]
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
        if report["status"] != "ok":
            yield None, {"status": report["status"]}
        elif not light:
            yield None, {"status": "no light falls into the window"}
        elif report["supersample"] > 1 and (  # points measure no energy
            refusal := spill_refusal(report["energy_outside"], report["blur_mm"] / pitch, size)
        ):
            yield None, report | {"status": refusal}
        else:
            yield psf, report
