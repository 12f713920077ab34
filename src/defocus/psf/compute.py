"""PSFs in bulk: many lenses, fields, depths, focus distances and wavelengths in one call.

Work is grouped twice so that few programs compile and batches are full: wavefronts by the lenses' bucket, propagation
by the number of samples. Nothing compiles per lens. Only small numbers travel to the host between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..lens.prescription import Lens
from ..optics.pupil import FieldBy
from ..optics.rim import Iris
from ..optics.wavefront import Amplitude, Clipping, Form, Wavefront
from .propagate import Intensity, Kernel, intensity_batch
from .pupil_function import Spectrum
from .sampling import MOST_SAMPLES, SAMPLE_BUCKETS, bucket, needed_samples, needed_supersampling, supersampling_bucket
from .spectrum import Bands, parse_bands
from .wavefronts import Optics, Stage, cut_to, find_stages, make_requests

PUPIL_CELLS_AT_ONCE = 2**25  # samples² × batch of one propagation
PROGRAMS_AT_ONCE = 8  # on a GPU
WORST_RESIDUAL = 0.07  # waves RMS: Maréchal's limit, at which a perfect lens loses a fifth of its peak

Side = Literal["left", "right"]
SIDES: dict[Side | None, float] = {None: 0.0, "left": -1.0, "right": 1.0}


@dataclass(frozen=True)
class PsfBatch:
    """PSFs [request, band, row, column], each band summing to 1, and one report per request."""

    psf: Float[np.ndarray, "requests bands size size"]
    bands: Bands
    pixel_um: Float[np.ndarray, " requests"]
    reports: tuple[dict[str, Any], ...]

    @property
    def ok(self) -> np.ndarray:
        """Which requests succeeded; the others' PSFs are zero and their report's `status` says why."""
        return np.array([report["status"] == "ok" for report in self.reports])


@dataclass(frozen=True)
class Choices:
    """What is computed, the same for every request of a call; the defaults are the best that we know.

    `form`, `amplitude` and `clipping` are those of `optics.wavefront`; `sampling` the number of samples across the
    pupil: from the traced rays, the paper's 2 N_inf, or a number; `supersample` the points per pixel and axis, by
    default 5, and as many more as a sharp PSF on large pixels takes. `side` keeps the light of half the lens.
    `fringe_px` is for pixels much larger than what diffraction does: see `_at_pixels`. Fewer `sample_sizes` compile
    fewer programs, and pad more.
    """

    by: FieldBy = "image_height"
    form: Form = "sphere"
    amplitude: Amplitude = "energy"
    clipping: Clipping = "rim"
    side: Side | None = None
    sampling: Literal["rays", "paper"] | int = "rays"
    supersample: int | None = None
    fringe_px: float | None = None
    sample_sizes: tuple[int, ...] = SAMPLE_BUCKETS
    kernel: Kernel = "matrix"
    double: bool = False

    @property
    def optics(self) -> Optics:
        return Optics(self.by, self.form, self.amplitude, self.clipping)


def psf_batch(
    lenses: Sequence[Lens],
    *,
    height_mm: Sequence[float],
    azimuth: Sequence[float],
    depth_mm: Sequence[float],
    focus_mm: Sequence[float],
    pixel_um: Sequence[float],
    size: int,
    bands: str | tuple[float, ...] | Bands = "rgb",
    sensor_shift_mm: Sequence[float] | None = None,
    iris: Sequence[Iris] | None = None,
    progress: Callable[[int], None] | None = None,
    **choices: Any,
) -> PsfBatch:
    """One PSF per request, all sequences of equal length.

    `height_mm` is the distance of the image point from the axis (with by="angle", the field angle in radians) and
    `azimuth` its direction (radians from +x towards +y in the photograph); depth and focus in mm from the entrance
    pupil, inf allowed. The sensor is focused on the axis, at the d line; a `sensor_shift_mm` that is not nan puts it
    that far behind the prescription's own image plane instead, and heights then count on that plane. `choices` are the
    fields of `Choices`. `progress` is told how many more are done.
    """
    chosen, parsed = Choices(**choices), parse_bands(bands)
    requests = make_requests(height_mm, azimuth, depth_mm, focus_mm, sensor_shift_mm, iris)
    stages = (_Traced(stage) for stage in find_stages(lenses, requests, parsed, chosen.optics))
    return _propagated(stages, np.arange(len(lenses)), pixel_um, size, parsed, chosen, progress)


@dataclass(frozen=True)
class Traced:
    """Requests whose rays are traced: PSFs of any size, for any pixels, without tracing again."""

    bands: Bands
    stages: list[_Traced]
    chosen: Choices

    def psfs(self, rows: Sequence[int], *, pixel_um: Sequence[float], size: int, **choices: Any) -> PsfBatch:
        """PSFs of some of the requests, in the order of `rows`, which differ. `choices` here concern the sensor."""
        chosen = replace(self.chosen, **choices)
        if chosen.optics != self.chosen.optics:
            raise ValueError("other optics: trace the requests again")
        return _propagated(iter(self.stages), np.asarray(rows), pixel_um, size, self.bands, chosen)


def trace_requests(
    lenses: Sequence[Lens],
    *,
    height_mm: Sequence[float],
    azimuth: Sequence[float],
    depth_mm: Sequence[float],
    focus_mm: Sequence[float],
    bands: str | tuple[float, ...] | Bands = "rgb",
    sensor_shift_mm: Sequence[float] | None = None,
    iris: Sequence[Iris] | None = None,
    **choices: Any,
) -> Traced:
    """The first half of `psf_batch`, with its arguments."""
    chosen, parsed = Choices(**choices), parse_bands(bands)
    requests = make_requests(height_mm, azimuth, depth_mm, focus_mm, sensor_shift_mm, iris)
    return Traced(parsed, [_Traced(s) for s in find_stages(lenses, requests, parsed, chosen.optics)], chosen)


class _Traced:
    """One stage, and its numbers on the host once they are asked for."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @cached_property
    def known(self) -> Any:
        """`Wavefronts` without the arrays of the pupil, rows and wavelengths that count."""
        found = self.stage.found
        light = eqx.tree_at(lambda f: (f.wavefront, f.spectrum), found, (_small(found.wavefront), None))
        return cut_to(jax.device_get(light), self.stage.places, self.stage.waves)


def _propagated(
    stages: Iterator[_Traced],
    rows: Int[np.ndarray, " requests"],
    pixel_um: Sequence[float],
    size: int,
    bands: Bands,
    chosen: Choices,
    progress: Callable[[int], None] | None = None,
) -> PsfBatch:
    """PSFs of the requests `rows`, gathered from the stages."""
    pitch = np.asarray(pixel_um, float) * 1e-3
    place = {int(row): i for i, row in enumerate(rows)}
    out = np.zeros((len(rows), len(bands.names), size, size), np.float32)
    reports: list[dict[str, Any]] = [{} for _ in rows]
    for traced in stages:
        wanted = [k for k, row in enumerate(traced.stage.rows) if row in place]
        to = [place[traced.stage.rows[k]] for k in wanted]
        made = _second_stage(traced, np.array(wanted, int), pitch[to], size, bands, chosen) if wanted else ()
        for i, (psf, report) in zip(to, made, strict=True):
            reports[i] = report
            if psf is not None:
                out[i] = psf
        if progress:
            progress(len(wanted))
    return PsfBatch(out, bands, pitch * 1e3, tuple(reports))


def _second_stage(
    traced: _Traced,
    wanted: Int[np.ndarray, " requests"],
    pixel: Float[np.ndarray, " requests"],
    size: int,
    bands: Bands,
    chosen: Choices,
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, dict[str, Any]]]:
    """Group by samples, propagate, fold wavelengths into bands; a PSF (None where there is none) and its report.

    `wanted` are places among the stage's rows.
    """
    stage = traced.stage
    places = np.array(stage.places)[wanted]
    pitch = np.full(stage.found.in_front.shape[0], pixel[0])
    pitch[places] = pixel
    spectra, needed, finest = _at_pixels(
        stage.found.wavefront, stage.found.spectrum, pitch, size * pitch, chosen.fringe_px or 0.0, SIDES[chosen.side]
    )
    known = jax.tree.map(lambda leaf: leaf[wanted], traced.known)
    counts = [np.asarray(v)[places, : stage.waves] for v in jax.device_get((needed, finest))]
    samples, finest = _samples(counts[0], known.bound, chosen), _finest(counts[1], chosen)
    status = _statuses(known, samples)
    jobs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, text in enumerate(status):
        if text == "ok":
            for w, count in enumerate(samples[i]):
                jobs.setdefault((int(count), int(finest[i, w])), []).append((i, w))
    shape = samples.shape
    pixels = np.zeros((*shape, size, size), np.float32)
    measured = {name: np.zeros(shape) for name in ("inside", "strehl", "light")}
    dtype = jnp.float64 if chosen.double else jnp.float32

    def propagate(job: tuple[tuple[int, int], list[tuple[int, int]]]) -> None:
        (count, supersample), pairs = job
        batch = max(1, min(64, PUPIL_CELLS_AT_ONCE // max(count, size * supersample) ** 2))
        for start in range(0, len(pairs), batch):
            part = pairs[start : start + batch]
            rows = np.array(part + [part[-1]] * (batch - len(part)))  # full, so that one size compiles
            seen: Intensity = jax.device_get(
                intensity_batch(
                    _of_rows(spectra, places[rows[:, 0]], rows[:, 1]),
                    pixel[rows[:, 0]],
                    np.asarray(len(part)),
                    samples=count,
                    size=size,
                    supersample=supersample,
                    kernel=chosen.kernel,
                    dtype=dtype,
                )
            )
            here = tuple(np.array(part).T)
            pixels[here] = seen.pixels[: len(part)]
            for name, values in measured.items():
                values[here] = getattr(seen, name)[: len(part)]

    # A GPU's programs compile side by side, and one copies to the host while another computes.
    with ThreadPoolExecutor(1 if jax.default_backend() == "cpu" else PROGRAMS_AT_ONCE) as pool:
        list(pool.map(propagate, sorted(jobs.items())))
    yield from _folded(known, status, pixels, measured, samples, counts[0], finest, bands)


@jax.jit
def _of_rows(spectra: Spectrum, rows: Int[Array, " batch"], waves: Int[Array, " batch"]) -> Spectrum:
    return jax.tree.map(lambda leaf: leaf[rows, waves], spectra)


@jax.jit
def _at_pixels(
    wavefront: Wavefront,
    spectrum: Spectrum,
    pixel: Float[Array, " requests"],
    window: Float[Array, " requests"],
    fringe_px: Float[Array, ""],
    side: Float[Array, ""],
) -> tuple[Spectrum, Float[Array, "requests waves"], Float[Array, "requests waves"]]:
    """The spectra of one side of the lens, and how many samples and points per pixel they take on these pixels.

    With a `fringe_px` above 0 the same rays are propagated at a wavelength so long that the finest fringes, λ / 2h, are
    that many pixels wide. Where pixels are far larger than the Airy disc, PSFs are those of the rays, whatever the
    wavelength; the samples that they take are not, and fall with it. What diffraction adds grows to an Airy radius of
    1.22 `fringe_px` pixels.
    """
    pitch = pixel[:, None]
    finest = wavefront.wavelength / (2.0 * jnp.max(wavefront.half, axis=-1))
    longer = jnp.maximum(fringe_px * pitch / finest, 1.0)
    wavelength = wavefront.wavelength * longer
    spectrum = eqx.tree_at(
        lambda s: (s.phase, s.wavelength, s.side),
        spectrum,
        (spectrum.phase / longer[..., None, None], spectrum.wavelength * longer, jnp.full_like(spectrum.side, side)),
    )
    return (
        spectrum,
        needed_samples(wavefront.half, wavefront.blur, window[:, None], wavelength),
        needed_supersampling(wavefront.half, wavefront.core, pitch, wavelength),
    )


def _small(wavefront: Wavefront) -> Wavefront:
    """The wavefront without the arrays that only the propagation needs."""
    return eqx.tree_at(lambda w: (w.phase, w.amplitude, w.rim), wavefront, (None, None, None))


def _samples(
    needed: Float[np.ndarray, "requests waves"], bound: Float[np.ndarray, " requests"], chosen: Choices
) -> np.ndarray:
    """Samples across the pupil for each request and wavelength."""
    if isinstance(chosen.sampling, int):
        return np.full(needed.shape, chosen.sampling)
    if chosen.sampling == "paper":
        needed = np.broadcast_to(2.0 * bound[:, None], needed.shape)
    sized = partial(bucket, sizes=chosen.sample_sizes)
    return np.vectorize(sized, otypes=[int])(np.nan_to_num(needed, nan=0.0, posinf=1e9))


def _finest(wanted: Float[np.ndarray, "requests waves"], chosen: Choices) -> np.ndarray:
    """Points per pixel and axis for each request and wavelength."""
    if chosen.supersample is not None:
        return np.full(wanted.shape, chosen.supersample)
    return np.vectorize(supersampling_bucket, otypes=[int])(np.nan_to_num(wanted, nan=0.0, posinf=1e9))


def _statuses(known: Any, samples: Int[np.ndarray, "requests waves"]) -> list[str]:
    """ "ok", or why there is no PSF."""
    residual, most = known.wavefront.residual_rms.max(1), samples.max(1)
    good = known.in_front & known.pose.chief.found & known.wavefront.found.all(1)
    good &= (residual <= WORST_RESIDUAL) & (most <= MOST_SAMPLES)
    return ["ok" if fine else _status(known, i, residual[i], most[i]) for i, fine in enumerate(good.tolist())]


def _status(known: Any, i: int, residual: float, samples: int) -> str:
    if not known.in_front[i]:
        return "the object stands inside the lens"
    if not bool(known.pose.chief.found[i]):
        return f"no chief ray: the farthest reaches {float(known.pose.chief.reach[i]):.4g}"
    if not known.wavefront.found[i].all():
        return "no light gets through at this field"
    if not residual <= WORST_RESIDUAL:
        return (
            f"no smooth wavefront: its fit is off by {residual:.2g} waves RMS, more than {WORST_RESIDUAL}; rays at the "
            "pupil's edge go astray: the clear apertures may be wider than the lens is made for"
        )
    return f"needs {samples} samples across the pupil, more than {MOST_SAMPLES}: the blur is too large"


def _folded(
    known: Any,
    status: list[str],
    pixels: Float[np.ndarray, "requests waves size size"],
    measured: dict[str, Float[np.ndarray, "requests waves"]],
    samples: Int[np.ndarray, "requests waves"],
    needed: Float[np.ndarray, "requests waves"],
    finest: Int[np.ndarray, "requests waves"],
    bands: Bands,
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, dict[str, Any]]]:
    """Wavelengths folded into bands, and the reports."""
    ends = np.cumsum([len(weights) for weights in bands.weights])
    spans = [slice(end - len(weights), end) for end, weights in zip(ends, bands.weights, strict=True)]
    sums = [np.einsum("rwyx,w->ryx", pixels[:, at], np.array(w)) for at, w in zip(spans, bands.weights, strict=True)]
    lost = np.stack(
        [1.0 - measured["inside"][:, at] @ np.array(w) for at, w in zip(spans, bands.weights, strict=True)], axis=1
    )
    mixed = np.stack(sums, axis=1)
    total = mixed.sum((2, 3))
    lit = (np.isfinite(total) & (total > 0.0)).all(1)
    mixed = mixed / np.where(lit[:, None], total, 1.0)[..., None, None]
    wavefront = known.wavefront
    columns: dict[str, np.ndarray] = {
        "samples": samples.max(1),
        "samples_needed": needed.max(1),
        "supersample": finest.max(1),
        "sampling_bound": known.bound,
        "residual_waves": wavefront.residual_rms.max(1),
        "residual_max_waves": wavefront.residual_max.max(1),
        "rays_apart": wavefront.apart.min(1),
        "energy_outside": lost.max(1),
        "energy_outside_bands": lost,
        "strehl": measured["strehl"].mean(1),
        "pupil_area": wavefront.area.mean(1),
        "light_mm2": measured["light"].mean(1),
        "image_height_mm": wavefront.image_height[:, 0],
        "field_deg": np.degrees(known.pose.chief.angle),
        "sensor_z_mm": known.pose.sensor_z,
        "blur_mm": np.abs(wavefront.blur).max(tuple(range(1, wavefront.blur.ndim))),
    }
    names = ("status", *columns)
    rows = zip(status, *(column.tolist() for column in columns.values()), strict=True)
    for psf, light, row in zip(mixed, lit.tolist(), rows, strict=True):
        if row[0] != "ok":
            yield None, {"status": row[0]}
        elif not light:
            yield None, {"status": "no light falls into the window"}
        else:
            yield psf, dict(zip(names, row, strict=True))
