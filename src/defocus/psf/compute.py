"""PSFs in bulk: many lenses, fields, depths, focus distances and wavelengths in one call.

Work is grouped twice so that few programs compile and batches are full: wavefronts by the lenses' bucket, propagation
by the number of samples. Nothing compiles per lens. Only small numbers travel to the host between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..lens.prescription import D_LINE_NM, Lens
from ..optics.batch import over_lenses
from ..optics.field import vergence_of
from ..optics.focus import best_focus
from ..optics.paraxial import FirstOrder, first_order, image_position
from ..optics.pupil import ChiefRay, FieldBy, axial_ray, chief_ray, find_bundle
from ..optics.rim import Iris
from ..optics.system import System, group_by_bucket, pack, padded_indices
from ..optics.wavefront import AMPLITUDES, FORMS, Amplitude, Clipping, Form, Wavefront, find_wavefront
from .propagate import Intensity, Kernel, intensity_batch
from .pupil_function import Spectrum, turn
from .sampling import (
    MOST_SAMPLES,
    SAMPLE_BUCKETS,
    bucket,
    needed_samples,
    needed_supersampling,
    paper_bound,
    supersampling_bucket,
)
from .spectrum import Bands, parse_bands

REQUESTS_AT_ONCE = 1024  # of one propagation stage: their wavefronts wait together, so that its batches are full
PUPIL_CELLS_AT_ONCE = 2**25  # samples² × batch of one propagation
PROGRAMS_AT_ONCE = 8  # on a GPU
WORST_RESIDUAL = 0.07  # waves RMS: Maréchal's limit, at which a perfect lens loses a fifth of its peak
WAVES = 9  # wavelengths that a processor's program is made for; more make another
WORTH_A_PROGRAM = 20_000  # requests of one bucket; compiling takes as long as so many wavefronts' padding

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
    `fringe_px` is for pixels much larger than what diffraction does: see `_coarser`. Fewer `sample_sizes` compile fewer
    programs, and pad more.
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


class Wavefronts(eqx.Module):
    """What the first stage knows of a batch of requests; wavefronts and spectra have a second axis of wavelengths."""

    data: FirstOrder
    chief: ChiefRay
    sensor_z: Float[Array, "*batch"]  # mm from the prescription's image plane
    paraxial_defocus: Float[Array, "*batch"]  # mm from the paraxial image to the sensor
    wavefront: Wavefront
    spectrum: Spectrum
    needed: Float[Array, "*batch waves"]  # samples, from the rays
    finest: Float[Array, "*batch waves"]  # points per pixel and axis
    bound: Float[Array, "*batch"]  # the paper's N_inf
    in_front: Bool[Array, "*batch"]  # whether the object stands in front of the lens


class Requests(eqx.Module):
    """One row per PSF; lengths in mm, angles in radians."""

    height: Float[Array, "*batch"]  # image height, or field angle
    azimuth: Float[Array, "*batch"]
    depth: Float[Array, "*batch"]
    focus: Float[Array, "*batch"]
    shift: Float[Array, "*batch"]  # nan: the sensor is focused
    window: Float[Array, "*batch"]  # width
    pixel: Float[Array, "*batch"]
    iris: Iris | None

    def take(self, rows: Sequence[int]) -> Requests:
        return jax.tree.map(lambda leaf: leaf[np.asarray(rows)], self)


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
    pitch = np.asarray(pixel_um, float) * 1e-3
    requests = _requests(height_mm, azimuth, depth_mm, focus_mm, sensor_shift_mm, pitch * size, pitch, iris)
    out = np.zeros((len(lenses), len(parsed.names), size, size), np.float32)
    reports: list[dict[str, Any]] = [{} for _ in lenses]
    for rows, found in _first_stage(lenses, requests, parsed, chosen):
        for row, (psf, report) in zip(rows, _second_stage(found, pitch[rows], size, parsed, chosen), strict=True):
            reports[row] = report
            if psf is not None:
                out[row] = psf
        if progress:
            progress(len(rows))
    return PsfBatch(out, parsed, pitch * 1e3, tuple(reports))


def wavefront_batch(
    lenses: Sequence[Lens],
    *,
    height_mm: Sequence[float],
    azimuth: Sequence[float],
    depth_mm: Sequence[float],
    focus_mm: Sequence[float],
    bands: str | tuple[float, ...] | Bands = "d",
    sensor_shift_mm: Sequence[float] | None = None,
    iris: Sequence[Iris] | None = None,
    **choices: Any,
) -> Wavefronts:
    """The wavefronts alone, in the order of the requests; arguments as for `psf_batch`."""
    nothing = np.zeros(len(lenses))
    requests = _requests(height_mm, azimuth, depth_mm, focus_mm, sensor_shift_mm, nothing, nothing, iris)
    parts = list(_first_stage(lenses, requests, parse_bands(bands), Choices(**choices)))
    order = np.argsort([row for rows, _ in parts for row in rows])
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[order], *(found for _, found in parts))


def _requests(
    height: Sequence[float],
    azimuth: Sequence[float],
    depth: Sequence[float],
    focus: Sequence[float],
    shift: Sequence[float] | None,
    window: Float[np.ndarray, " requests"],
    pixel: Float[np.ndarray, " requests"],
    iris: Sequence[Iris] | None,
) -> Requests:
    shift = [math.nan] * len(height) if shift is None else shift
    blades = None if iris is None else jax.tree.map(lambda *leaves: jnp.stack(leaves), *iris)
    rows = [jnp.asarray(np.asarray(v, float)) for v in (height, azimuth, depth, focus, shift, window, pixel)]
    return Requests(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], blades)


# --- first stage: wavefronts -----------------------------------------------------------------------------------------


def _first_stage(
    lenses: Sequence[Lens], requests: Requests, bands: Bands, chosen: Choices
) -> Iterator[tuple[list[int], Wavefronts]]:
    """The wavefronts of up to REQUESTS_AT_ONCE requests at a time, with the numbers of the requests."""
    waves = [w for band in bands.wavelengths_nm for w in band]
    # A processor computes only the wavelengths that count, so one program serves all; a GPU would compute them all.
    shown = waves + waves[-1:] * (WAVES - len(waves)) if jax.default_backend() == "cpu" else waves
    at_once = 32 if jax.default_backend() == "cpu" else 256
    rows: list[int] = []
    found: list[Wavefronts] = []
    for lens_bucket, members in group_by_bucket(lenses, WORTH_A_PROGRAM, common=True):
        for start in range(0, len(members), at_once):
            part = members[start : start + at_once]
            padded = part + part[-1:] * (at_once - len(part))
            # Each lens is packed once, however often it is asked for.
            different = {id(lenses[i]): lenses[i] for i in part}
            number = {key: n for n, key in enumerate(different)}
            places = np.array([number[id(lenses[i])] for i in padded])
            index = np.stack(
                [[padded_indices(lens, w, lens_bucket.surfaces) for w in shown] for lens in different.values()]
            )
            systems = pack(list(different.values()), D_LINE_NM, lens_bucket)
            stage = _find_wavefronts(
                jax.tree.map(lambda leaf, p=places: leaf[p], systems),
                jnp.asarray(index[places]),
                jnp.asarray(np.array(shown) * 1e-6),
                requests.take(padded),
                jnp.array([chosen.by == "angle", FORMS.index(chosen.form), AMPLITUDES.index(chosen.amplitude)]),
                jnp.array([len(part), len(waves)]),
                clipping=chosen.clipping,
            )
            # Which half of the pupil shines is a number, not another program.
            part_of_lens = jnp.full_like(stage.spectrum.side, SIDES[chosen.side])
            stage = eqx.tree_at(lambda w: w.spectrum.side, stage, part_of_lens)
            rows += part
            found.append(_cut(stage, len(part), len(waves)))
            if len(rows) >= REQUESTS_AT_ONCE:
                yield rows, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)
                rows, found = [], []
    if rows:
        yield rows, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)


def _cut(stage: Wavefronts, requests: int, waves: int) -> Wavefronts:
    """The wanted rows of a padded stage."""
    stage = jax.tree.map(lambda leaf: leaf[:requests], stage)
    parts = (stage.wavefront, stage.spectrum, stage.needed, stage.finest)
    fewer = jax.tree.map(lambda leaf: leaf[:, :waves], parts)
    return eqx.tree_at(lambda s: (s.wavefront, s.spectrum, s.needed, s.finest), stage, fewer)


@partial(jax.jit, static_argnames=("clipping",))
def _find_wavefronts(
    system: System,
    index: Float[Array, "batch waves media"],
    wavelengths: Float[Array, " waves"],
    requests: Requests,
    choices: Int[Array, "3"],
    counts: Int[Array, "2"],
    *,
    clipping: Clipping,
) -> Wavefronts:
    """`choices` are by, form and amplitude as numbers; `counts` the requests and wavelengths that are wanted."""
    by, form, amplitude = choices[0] != 0, choices[1], choices[2]

    def one(system: System, index: Float[Array, "waves media"], request: Requests) -> Wavefronts:
        return request_wavefronts(
            system, index, wavelengths, request,
            by=by, form=form, amplitude=amplitude, clipping=clipping, count=counts[1],
        )  # fmt: skip

    return over_lenses(one, system, index, requests, count=counts[0])


def request_wavefronts(
    system: System,
    index: Float[Array, "waves media"],
    wavelengths: Float[Array, " waves"],
    request: Requests,
    *,
    by: FieldBy | Bool[Array, ""] = "image_height",
    form: Form | Int[Array, ""] = "sphere",
    amplitude: Amplitude | Int[Array, ""] = "energy",
    clipping: Clipping = "rim",
    count: Int[Array, ""] | None = None,
) -> Wavefronts:
    """One request at all its wavelengths (mm), or the first `count`: differentiable in the system and the request."""
    data = first_order(system)
    own_plane = jnp.isfinite(request.shift)
    sensor_z = jnp.where(own_plane, request.shift, focused_sensor(system, data, request.focus))
    plane = jnp.where(own_plane, 0.0, sensor_z)
    chief = chief_ray(system, request.height, by, plane)
    landing = chief.image_height + chief.image_slope * (sensor_z - plane)
    vergence = vergence_of(chief, request.depth - data.entrance_pupil)

    def colour(index: Float[Array, " media"], wavelength: Float[Array, ""]) -> tuple[Wavefront, Spectrum, Array, Array]:
        coloured = eqx.tree_at(lambda s: s.index, system, index)
        wavefront = find_wavefront(
            coloured, chief, vergence, sensor_z, landing, wavelength,
            data=data, form=form, amplitude=amplitude, clipping=clipping, iris=request.iris, azimuth=request.azimuth,
        )  # fmt: skip
        needed = needed_samples(wavefront.half, wavefront.blur, request.window, wavefront.wavelength)
        finest = needed_supersampling(wavefront.half, wavefront.core, request.pixel, wavefront.wavelength)
        return wavefront, turn(wavefront, request.azimuth), needed, finest

    wavefront, spectrum, needed, finest = over_lenses(colour, index, wavelengths, count=count)
    defocus = data.image_plane + sensor_z - image_position(data, request.depth)
    in_front = request.depth > data.entrance_pupil
    bound = paper_bound(data.na, defocus, jnp.asarray(D_LINE_NM * 1e-6))
    return Wavefronts(data, chief, sensor_z, defocus, wavefront, spectrum, needed, finest, bound, in_front)


def focused_sensor(system: System, data: FirstOrder, focus: Float[Array, ""]) -> Float[Array, ""]:
    """Where the sensor must stand (mm in the frame of the image plane) to be focused on the axis at depth `focus` (mm).

    The plane of least RMS spot of the axial beam.
    """
    axis = axial_ray()
    vergence = vergence_of(axis, focus - data.entrance_pupil)
    return best_focus(find_bundle(system, axis, vergence, samples=65, rounds=2, data=data).traced)


# --- second stage: propagation ---------------------------------------------------------------------------------------


def _second_stage(
    found: Wavefronts, pixel: Float[np.ndarray, " requests"], size: int, bands: Bands, chosen: Choices
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, dict[str, Any]]]:
    """Group by samples, propagate, fold wavelengths into bands; a PSF (None where there is none) and its report."""
    if chosen.fringe_px is not None:
        found = _coarser(found, pixel, size, chosen.fringe_px)
    spectra = found.spectrum
    # From here on the host needs numbers, not arrays of the pupil.
    light = eqx.tree_at(lambda f: f.wavefront, found, _small(found.wavefront))
    known = jax.device_get(eqx.tree_at(lambda f: f.spectrum, light, None))
    samples, finest = _samples(known, chosen), _finest(known, chosen)
    status = [_status(known, i, samples[i]) for i in range(len(pixel))]
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
            rows = np.array(part + [part[-1]] * (_round_batch(len(part), batch) - len(part)))
            seen: Intensity = intensity_batch(
                jax.tree.map(lambda leaf, r=rows: leaf[r[:, 0], r[:, 1]], spectra),
                jnp.asarray(pixel[rows[:, 0]]),
                jnp.asarray(len(part)),
                samples=count,
                size=size,
                supersample=supersample,
                kernel=chosen.kernel,
                dtype=dtype,
            )
            places = tuple(np.array(part).T)
            pixels[places] = np.asarray(seen.pixels)[: len(part)]
            for name, values in measured.items():
                values[places] = np.asarray(getattr(seen, name))[: len(part)]

    # A GPU's programs compile side by side, and one copies to the host while another computes.
    with ThreadPoolExecutor(1 if jax.default_backend() == "cpu" else PROGRAMS_AT_ONCE) as pool:
        list(pool.map(propagate, sorted(jobs.items())))
    for i, text in enumerate(status):
        if text != "ok":
            yield None, {"status": text}
        else:
            numbers = {name: values[i] for name, values in measured.items()}
            yield _fold(known, i, pixels[i], numbers, samples[i], finest[i], bands)


def _coarser(found: Wavefronts, pixel: Float[np.ndarray, " requests"], size: int, fringe_px: float) -> Wavefronts:
    """The same rays propagated at a wavelength so long that the finest fringes, λ / 2h, are `fringe_px` pixels wide.

    Where pixels are far larger than the Airy disc, PSFs are those of the rays, whatever the wavelength; the samples
    that they take are not, and fall with it. What diffraction adds grows to an Airy radius of 1.22 `fringe_px` pixels.
    """
    wavefront = found.wavefront
    pitch = jnp.asarray(pixel)[:, None]
    finest = wavefront.wavelength / (2.0 * jnp.max(wavefront.half, axis=-1))
    longer = jnp.maximum(fringe_px * pitch / finest, 1.0)
    wavelength = wavefront.wavelength * longer
    return eqx.tree_at(
        lambda f: (f.spectrum.phase, f.spectrum.wavelength, f.needed, f.finest),
        found,
        (
            found.spectrum.phase / longer[..., None, None],
            found.spectrum.wavelength * longer,
            needed_samples(wavefront.half, wavefront.blur, size * pitch, wavelength),
            needed_supersampling(wavefront.half, wavefront.core, pitch, wavelength),
        ),
    )


def _small(wavefront: Wavefront) -> Wavefront:
    """The wavefront without the arrays that only the propagation needs."""
    return eqx.tree_at(lambda w: (w.phase, w.amplitude, w.rim), wavefront, (None, None, None))


def _samples(known: Wavefronts, chosen: Choices) -> np.ndarray:
    """Samples across the pupil for each request and wavelength."""
    if isinstance(chosen.sampling, int):
        return np.full(known.needed.shape, chosen.sampling)
    if chosen.sampling == "paper":
        bound = np.broadcast_to(2.0 * known.bound[:, None], known.needed.shape)
    else:
        bound = known.needed
    sized = partial(bucket, sizes=chosen.sample_sizes)
    return np.vectorize(sized, otypes=[int])(np.nan_to_num(bound, nan=0.0, posinf=1e9))


def _finest(known: Wavefronts, chosen: Choices) -> np.ndarray:
    """Points per pixel and axis for each request and wavelength."""
    if chosen.supersample is not None:
        return np.full(known.finest.shape, chosen.supersample)
    return np.vectorize(supersampling_bucket, otypes=[int])(np.nan_to_num(known.finest, nan=0.0, posinf=1e9))


def _status(known: Wavefronts, i: int, samples: np.ndarray) -> str:
    if not known.in_front[i]:
        return "the object stands inside the lens"
    if not bool(known.chief.found[i]):
        return f"no chief ray: the farthest reaches {float(known.chief.reach[i]):.4g}"
    if not known.wavefront.found[i].all():
        return "no light gets through at this field"
    residual = float(known.wavefront.residual_rms[i].max())
    if not residual <= WORST_RESIDUAL:
        return (
            f"no smooth wavefront: its fit is off by {residual:.2g} waves RMS, more than {WORST_RESIDUAL}; rays at the "
            "pupil's edge go astray: the clear apertures may be wider than the lens is made for"
        )
    if samples.max() > MOST_SAMPLES:
        return f"needs {samples.max()} samples across the pupil, more than {MOST_SAMPLES}: the blur is too large"
    return "ok"


def _fold(
    known: Wavefronts,
    i: int,
    pixels: Float[np.ndarray, "waves size size"],
    measured: dict[str, np.ndarray],
    samples: np.ndarray,
    finest: np.ndarray,
    bands: Bands,
) -> tuple[Float[np.ndarray, "bands size size"] | None, dict[str, Any]]:
    """The bands of one request and its report."""
    folded, lost, first = [], [], 0
    for weights in bands.weights:
        span = slice(first, first + len(weights))
        first += len(weights)
        mixed = np.tensordot(np.array(weights), pixels[span], axes=1)
        total = float(mixed.sum())
        if not (math.isfinite(total) and total > 0.0):
            return None, {"status": "no light falls into the window"}
        folded.append(mixed / total)
        lost.append(1.0 - float(np.array(weights) @ measured["inside"][span]))
    wavefront = known.wavefront
    return np.stack(folded), {
        "status": "ok",
        "samples": int(samples.max()),
        "samples_needed": float(known.needed[i].max()),
        "supersample": int(finest.max()),
        "sampling_bound": float(known.bound[i]),
        "residual_waves": float(wavefront.residual_rms[i].max()),
        "residual_max_waves": float(wavefront.residual_max[i].max()),
        "rays_apart": float(wavefront.apart[i].min()),
        "energy_outside": max(lost),
        "energy_outside_bands": lost,
        "strehl": float(measured["strehl"].mean()),
        "pupil_area": float(wavefront.area[i].mean()),
        "light_mm2": float(measured["light"].mean()),
        "image_height_mm": float(wavefront.image_height[i, 0]),
        "field_deg": math.degrees(float(known.chief.angle[i])),
        "sensor_z_mm": float(known.sensor_z[i]),
        "blur_mm": float(np.abs(wavefront.blur[i]).max()),
    }


def _round_batch(count: int, largest: int) -> int:
    """A few or a full batch, so that few sizes compile; a processor computes only the rows that count."""
    sizes = (largest,) if jax.default_backend() == "cpu" else (8, largest)
    return min(next(size for size in sizes if size >= min(count, largest)), largest)
