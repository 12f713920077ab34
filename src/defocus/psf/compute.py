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


@dataclass(frozen=True)
class _Stage:
    """Wavefronts of some requests, in arrays of one of a few sizes: anything else would compile for every size."""

    rows: list[int]  # numbers of the requests
    places: list[int]  # where each is in `found`; the rest is padding
    waves: int  # wavelengths that count
    found: Wavefronts


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
    for stage in _first_stage(lenses, requests, parsed, chosen):
        for row, (psf, report) in zip(
            stage.rows, _second_stage(stage, pitch[stage.rows], size, parsed, chosen), strict=True
        ):
            reports[row] = report
            if psf is not None:
                out[row] = psf
        if progress:
            progress(len(stage.rows))
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
    order = np.argsort([row for stage in parts for row in stage.rows])
    cut = [_cut(stage.found, stage.places, stage.waves) for stage in parts]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[order], *cut)


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
    blades = None if iris is None else jax.tree.map(lambda *leaves: np.stack(leaves), *iris)
    # Of numpy until they are needed: on a device, choosing some of them would compile for every number of requests.
    rows: list[Any] = [np.asarray(v, float) for v in (height, azimuth, depth, focus, shift, window, pixel)]
    return Requests(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], blades)


# --- first stage: wavefronts -----------------------------------------------------------------------------------------


def _first_stage(lenses: Sequence[Lens], requests: Requests, bands: Bands, chosen: Choices) -> Iterator[_Stage]:
    """The wavefronts of up to REQUESTS_AT_ONCE requests at a time."""
    waves = [w for band in bands.wavelengths_nm for w in band]
    # A processor computes only the wavelengths that count, so one program serves all; a GPU would compute them all.
    shown = waves + waves[-1:] * (WAVES - len(waves)) if jax.default_backend() == "cpu" else waves
    at_once = 32 if jax.default_backend() == "cpu" else 256
    rows: list[int] = []
    places: list[int] = []
    found: list[Wavefronts] = []
    for lens_bucket, members in group_by_bucket(lenses, WORTH_A_PROGRAM, common=True):
        for start in range(0, len(members), at_once):
            part = members[start : start + at_once]
            padded = part + part[-1:] * (at_once - len(part))
            # Each lens is packed once, however often it is asked for.
            different = {id(lenses[i]): lenses[i] for i in part}
            number = {key: n for n, key in enumerate(different)}
            own = np.array([number[id(lenses[i])] for i in padded])
            index = np.stack(
                [[padded_indices(lens, w, lens_bucket.surfaces) for w in shown] for lens in different.values()]
            )
            # To a power of two: packing compiles for every number of lenses.
            several = [*different.values()]
            several += several[-1:] * ((1 << (len(several) - 1).bit_length()) - len(several))
            systems = pack(several, D_LINE_NM, lens_bucket)
            stage = _find_wavefronts(
                jax.tree.map(lambda leaf, o=own: np.asarray(leaf)[o], systems),
                index[own],
                np.array(shown) * 1e-6,
                requests.take(padded),
                np.array([chosen.by == "angle", FORMS.index(chosen.form), AMPLITUDES.index(chosen.amplitude)]),
                np.array([len(part), len(waves)]),
                clipping=chosen.clipping,
            )
            # Which half of the pupil shines is a number, not another program.
            part_of_lens = jnp.full_like(stage.spectrum.side, SIDES[chosen.side])
            stage = eqx.tree_at(lambda w: w.spectrum.side, stage, part_of_lens)
            rows += part
            places += range(len(found) * at_once, len(found) * at_once + len(part))
            found.append(stage)
            if len(found) * at_once >= REQUESTS_AT_ONCE:
                yield _Stage(rows, places, len(waves), _joined(found))
                rows, places, found = [], [], []
    if rows:
        yield _Stage(rows, places, len(waves), _joined(found))


def _joined(found: list[Wavefronts]) -> Wavefronts:
    """Batches one after the other, filled up to a power of two of them with the last."""
    if len(found) == 1:
        return found[0]
    wanted = 1 << (len(found) - 1).bit_length()
    return _concatenate(*found, *[found[-1]] * (wanted - len(found)))


@jax.jit
def _concatenate(*found: Wavefronts) -> Wavefronts:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)


def _cut(found: Wavefronts, places: Sequence[int], waves: int) -> Wavefronts:
    """The rows and wavelengths that count."""
    found = jax.tree.map(lambda leaf: leaf[np.asarray(places)], found)
    fewer = jax.tree.map(lambda leaf: leaf[:, :waves], (found.wavefront, found.spectrum, found.needed, found.finest))
    return eqx.tree_at(
        lambda s: (s.wavefront, s.spectrum, s.needed, s.finest), found, fewer, is_leaf=lambda leaf: leaf is None
    )


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
    stage: _Stage, pixel: Float[np.ndarray, " requests"], size: int, bands: Bands, chosen: Choices
) -> Iterator[tuple[Float[np.ndarray, "bands size size"] | None, dict[str, Any]]]:
    """Group by samples, propagate, fold wavelengths into bands; a PSF (None where there is none) and its report."""
    found, places = stage.found, np.array(stage.places)
    if chosen.fringe_px is not None:
        pitch = np.full(found.sensor_z.shape[0], pixel[0])
        pitch[places] = pixel
        found = _coarser(found, pitch, size * pitch, chosen.fringe_px)
    spectra = found.spectrum
    # From here on the host needs numbers, not arrays of the pupil.
    light = eqx.tree_at(lambda f: f.wavefront, found, _small(found.wavefront))
    known: Any = _cut(jax.device_get(eqx.tree_at(lambda f: f.spectrum, light, None)), stage.places, stage.waves)
    samples, finest = _samples(known, chosen), _finest(known, chosen)
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
            seen: Intensity = intensity_batch(
                _of_rows(spectra, places[rows[:, 0]], rows[:, 1]),
                pixel[rows[:, 0]],
                np.asarray(len(part)),
                samples=count,
                size=size,
                supersample=supersample,
                kernel=chosen.kernel,
                dtype=dtype,
            )
            here = tuple(np.array(part).T)
            pixels[here] = np.asarray(seen.pixels)[: len(part)]
            for name, values in measured.items():
                values[here] = np.asarray(getattr(seen, name))[: len(part)]

    # A GPU's programs compile side by side, and one copies to the host while another computes.
    with ThreadPoolExecutor(1 if jax.default_backend() == "cpu" else PROGRAMS_AT_ONCE) as pool:
        list(pool.map(propagate, sorted(jobs.items())))
    yield from _folded(known, status, pixels, measured, samples, finest, bands)


@jax.jit
def _of_rows(spectra: Spectrum, rows: Int[Array, " batch"], waves: Int[Array, " batch"]) -> Spectrum:
    return jax.tree.map(lambda leaf: leaf[rows, waves], spectra)


@jax.jit
def _coarser(
    found: Wavefronts, pixel: Float[Array, " requests"], window: Float[Array, " requests"], fringe_px: float
) -> Wavefronts:
    """The same rays propagated at a wavelength so long that the finest fringes, λ / 2h, are `fringe_px` pixels wide.

    Where pixels are far larger than the Airy disc, PSFs are those of the rays, whatever the wavelength; the samples
    that they take are not, and fall with it. What diffraction adds grows to an Airy radius of 1.22 `fringe_px` pixels.
    """
    wavefront = found.wavefront
    pitch = pixel[:, None]
    finest = wavefront.wavelength / (2.0 * jnp.max(wavefront.half, axis=-1))
    longer = jnp.maximum(fringe_px * pitch / finest, 1.0)
    wavelength = wavefront.wavelength * longer
    return eqx.tree_at(
        lambda f: (f.spectrum.phase, f.spectrum.wavelength, f.needed, f.finest),
        found,
        (
            found.spectrum.phase / longer[..., None, None],
            found.spectrum.wavelength * longer,
            needed_samples(wavefront.half, wavefront.blur, window[:, None], wavelength),
            needed_supersampling(wavefront.half, wavefront.core, pitch, wavelength),
        ),
    )


def _small(wavefront: Wavefront) -> Wavefront:
    """The wavefront without the arrays that only the propagation needs."""
    return eqx.tree_at(lambda w: (w.phase, w.amplitude, w.rim), wavefront, (None, None, None))


def _samples(known: Any, chosen: Choices) -> np.ndarray:
    """Samples across the pupil for each request and wavelength."""
    if isinstance(chosen.sampling, int):
        return np.full(known.needed.shape, chosen.sampling)
    if chosen.sampling == "paper":
        bound = np.broadcast_to(2.0 * known.bound[:, None], known.needed.shape)
    else:
        bound = known.needed
    sized = partial(bucket, sizes=chosen.sample_sizes)
    return np.vectorize(sized, otypes=[int])(np.nan_to_num(bound, nan=0.0, posinf=1e9))


def _finest(known: Any, chosen: Choices) -> np.ndarray:
    """Points per pixel and axis for each request and wavelength."""
    if chosen.supersample is not None:
        return np.full(known.finest.shape, chosen.supersample)
    return np.vectorize(supersampling_bucket, otypes=[int])(np.nan_to_num(known.finest, nan=0.0, posinf=1e9))


def _statuses(known: Any, samples: Int[np.ndarray, "requests waves"]) -> list[str]:
    """ "ok", or why there is no PSF."""
    residual, most = known.wavefront.residual_rms.max(1), samples.max(1)
    good = known.in_front & known.chief.found & known.wavefront.found.all(1)
    good &= (residual <= WORST_RESIDUAL) & (most <= MOST_SAMPLES)
    return ["ok" if fine else _status(known, i, residual[i], most[i]) for i, fine in enumerate(good.tolist())]


def _status(known: Any, i: int, residual: float, samples: int) -> str:
    if not known.in_front[i]:
        return "the object stands inside the lens"
    if not bool(known.chief.found[i]):
        return f"no chief ray: the farthest reaches {float(known.chief.reach[i]):.4g}"
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
        "samples_needed": known.needed.max(1),
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
        "field_deg": np.degrees(known.chief.angle),
        "sensor_z_mm": known.sensor_z,
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
