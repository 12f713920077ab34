"""PSFs in bulk: many lenses, fields, depths, focus distances and wavelengths in one call.

Work is grouped twice so that few programs compile and batches are full: wavefronts by the lenses' bucket, propagation
by the number of samples. Nothing compiles per lens. Only small numbers travel to the host between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..lens.prescription import D_LINE_NM, Lens
from ..optics.batch import over_lenses
from ..optics.field import vergence_of
from ..optics.focus import best_focus
from ..optics.paraxial import FirstOrder, first_order, image_position
from ..optics.pupil import ChiefRay, FieldBy, chief_ray, find_bundle
from ..optics.system import Bucket, System, group_by_bucket, pack, padded_indices
from ..optics.wavefront import Form, Wavefront, find_wavefront
from .propagate import SUPERSAMPLE, Kernel, intensity_batch
from .pupil_function import Spectrum, turn
from .sampling import bucket, needed_samples, paper_bound
from .spectrum import Bands, parse_bands

WAVEFRONTS_AT_ONCE = 32
PUPIL_CELLS_AT_ONCE = 2**25  # samples² × batch of one propagation
MOST_SAMPLES = 8192


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
    by: FieldBy = "image_height",
    form: Form = "plane-wave",
    energy: bool = True,
    supersample: int = SUPERSAMPLE,
    kernel: Kernel = "matrix",
    samples: int | None = None,
    double: bool = False,
) -> PsfBatch:
    """One PSF per request, all sequences of equal length.

    `height_mm` is the distance of the image point from the axis (with by="angle", the field angle in radians) and
    `azimuth` its direction (radians from +x towards +y in the photograph); depth and focus in mm from the entrance
    pupil, inf allowed. The sensor is focused on the axis, at the d line; a `sensor_shift_mm` that is not nan puts it
    that far behind the prescription's own image plane instead, and heights then count on that plane. `samples` forces
    the number of samples across the pupil.
    """
    count = len(lenses)
    parsed = parse_bands(bands)
    waves = [w for band in parsed.wavelengths_nm for w in band]
    shift = np.full(count, np.nan) if sensor_shift_mm is None else np.asarray(sensor_shift_mm, float)
    asked = np.stack([np.asarray(v, float) for v in (height_mm, azimuth, depth_mm, focus_mm, shift, pixel_um)], axis=1)
    out = np.zeros((count, len(parsed.names), size, size), np.float32)
    reports: list[dict[str, Any]] = [{} for _ in range(count)]
    for lens_bucket, members in group_by_bucket(lenses):
        for start in range(0, len(members), WAVEFRONTS_AT_ONCE):
            part = members[start : start + WAVEFRONTS_AT_ONCE]
            item = _wavefronts([lenses[i] for i in part], asked[part], waves, lens_bucket, by, form, energy)
            _propagate(item, asked[part], parsed, out, reports, part, size, supersample, kernel, samples, double)
    return PsfBatch(out, parsed, asked[:, 5], tuple(reports))


class _Item(eqx.Module):
    """What the first stage knows of a batch of requests; wavefronts and spectra have a second axis of wavelengths."""

    data: FirstOrder
    chief: ChiefRay
    sensor_z: Float[Array, " batch"]
    paraxial_defocus: Float[Array, " batch"]
    wavefront: Wavefront
    spectrum: Spectrum
    needed: Float[Array, "batch waves"]


def _wavefronts(
    lenses: Sequence[Lens],
    asked: np.ndarray,
    waves: Sequence[float],
    lens_bucket: Bucket,
    by: FieldBy,
    form: Form,
    energy: bool,
) -> _Item:
    filler = _round_batch(len(lenses), WAVEFRONTS_AT_ONCE) - len(lenses)
    padded = [*lenses, *[lenses[-1]] * filler]
    rows = jnp.asarray(np.concatenate([asked, np.repeat(asked[-1:], filler, axis=0)]))
    system = pack(padded, D_LINE_NM, lens_bucket)
    index = np.stack([[padded_indices(lens, w, lens_bucket.surfaces) for w in waves] for lens in padded])
    wavelengths = jnp.asarray(np.array(waves) * 1e-6)
    return _stage_one(system, jnp.asarray(index), wavelengths, rows, by=by, form=form, energy=energy)


@partial(jax.jit, static_argnames=("by", "form", "energy"))
def _stage_one(
    system: System,
    index: Float[Array, "batch waves media"],
    wavelengths: Float[Array, " waves"],
    asked: Float[Array, "batch 6"],
    *,
    by: FieldBy,
    form: Form,
    energy: bool,
) -> _Item:
    def one(system: System, index: Float[Array, "waves media"], asked: Float[Array, "6"]) -> _Item:
        height, azimuth, depth, focus, shift, _ = asked
        data = first_order(system)
        own_plane = jnp.isfinite(shift)
        sensor_z = jnp.where(own_plane, shift, focused_sensor(system, data, focus))
        plane = jnp.where(own_plane, 0.0, sensor_z)
        chief = chief_ray(system, height, by, plane)
        landing = chief.image_height + chief.image_slope * (sensor_z - plane)
        vergence = vergence_of(chief, depth - data.entrance_pupil)

        def colour(index: Float[Array, " media"], wavelength: Float[Array, ""]) -> tuple[Wavefront, Spectrum]:
            coloured = eqx.tree_at(lambda s: s.index, system, index)
            wavefront = find_wavefront(
                coloured, chief, vergence, sensor_z, landing, wavelength, data=data, form=form, energy=energy
            )
            return wavefront, turn(wavefront, azimuth)

        wavefront, spectrum = jax.vmap(colour)(index, wavelengths)
        defocus = data.image_plane + sensor_z - image_position(data, depth)
        return _Item(data, chief, sensor_z, defocus, wavefront, spectrum, jnp.zeros(wavelengths.shape))

    return over_lenses(one, system, index, asked)


def focused_sensor(system: System, data: FirstOrder, focus: Float[Array, ""]) -> Float[Array, ""]:
    """Where the sensor must stand (mm in the frame of the image plane) to be focused on the axis at depth `focus` (mm).

    The plane of least RMS spot of the axial beam.
    """
    axis = chief_ray(system, jnp.zeros(()), "image_height")
    vergence = vergence_of(axis, focus - data.entrance_pupil)
    return best_focus(find_bundle(system, axis, vergence, samples=65, rounds=2, data=data).traced)


def _propagate(
    item: _Item,
    asked: np.ndarray,
    bands: Bands,
    out: np.ndarray,
    reports: list[dict[str, Any]],
    part: Sequence[int],
    size: int,
    supersample: int,
    kernel: Kernel,
    forced: int | None,
    double: bool,
) -> None:
    """Second stage: group by samples, propagate, fold wavelengths into bands, write results and reports."""
    wave_count = item.wavefront.area.shape[1]
    pixel = asked[:, 5] * 1e-3
    window = jnp.asarray(np.pad(pixel, (0, item.needed.shape[0] - len(part)), mode="edge")) * size
    needed = np.asarray(
        jax.vmap(lambda w, width: jax.vmap(lambda v: needed_samples(v.half, v.blur, width, v.wavelength))(w))(
            item.wavefront, window
        )
    )
    found = np.asarray(item.wavefront.found)
    status = [_status(item, i, needed[i], found[i], forced) for i in range(len(part))]
    jobs: dict[int, list[tuple[int, int]]] = {}
    for i, text in enumerate(status):
        if text == "ok":
            for w in range(wave_count):
                jobs.setdefault(forced or bucket(needed[i, w]), []).append((i, w))
    pixels = np.zeros((len(part), wave_count, size, size), np.float32)
    inside = np.zeros((len(part), wave_count))
    used = np.zeros((len(part), wave_count), int)
    dtype = jnp.float64 if double else jnp.float32
    for samples, pairs in sorted(jobs.items()):
        batch = max(1, min(64, PUPIL_CELLS_AT_ONCE // samples**2))
        for start in range(0, len(pairs), batch):
            chosen = pairs[start : start + batch]
            rows = np.array(chosen + [chosen[-1]] * (_round_batch(len(chosen), batch) - len(chosen)))
            spectra = jax.tree.map(lambda leaf, r=rows: leaf[r[:, 0], r[:, 1]], item.spectrum)
            seen = intensity_batch(
                spectra,
                jnp.asarray(pixel[rows[:, 0]]),
                samples=samples,
                size=size,
                supersample=supersample,
                kernel=kernel,
                dtype=dtype,
            )
            places = tuple(np.array(chosen).T)
            pixels[places] = np.asarray(seen.pixels)[: len(chosen)]
            inside[places] = np.asarray(seen.inside)[: len(chosen)]
            used[places] = samples
    bound = np.asarray(paper_bound(item.data.na, item.paraxial_defocus, jnp.asarray(D_LINE_NM * 1e-6)))
    weights = [np.array(w) for w in bands.weights]
    for i, (target, text) in enumerate(zip(part, status, strict=True)):
        reports[target] = {"status": text}
        if text != "ok":
            continue
        first, lost = 0, []
        for b, weight in enumerate(weights):
            span = slice(first, first + len(weight))
            first += len(weight)
            mixed = np.tensordot(weight, pixels[i, span], axes=1)
            out[target, b] = mixed / mixed.sum()
            lost.append(1.0 - float(weight @ inside[i, span]))
        wavefront = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), item.wavefront)
        reports[target] |= {
            "samples": int(used[i].max()),
            "samples_needed": float(needed[i].max()),
            "sampling_bound": float(bound[i]),
            "residual_waves": float(wavefront.residual_rms.max()),
            "residual_max_waves": float(wavefront.residual_max.max()),
            "energy_outside": max(lost),
            "energy_outside_bands": lost,
            "pupil_area": float(wavefront.area.mean()),
            "image_height_mm": float(wavefront.image_height[0]),
            "field_deg": math.degrees(float(item.chief.angle[i])),
            "sensor_z_mm": float(item.sensor_z[i]),
            "blur_mm": float(np.abs(wavefront.blur).max()),
        }


def _round_batch(count: int, largest: int) -> int:
    """One, a few or a full batch, so that few sizes compile."""
    return min(next(size for size in (1, 4, largest) if size >= count), largest)


def _status(item: _Item, i: int, needed: np.ndarray, found: np.ndarray, forced: int | None) -> str:
    if not bool(item.chief.found[i]):
        return f"no chief ray: the farthest reaches {float(item.chief.reach[i]):.4g}"
    if not found.all():
        return "no light gets through at this field"
    if forced is None and not needed.max() <= MOST_SAMPLES:
        return f"needs {needed.max():.0f} samples across the pupil, more than {MOST_SAMPLES}: the blur is too large"
    return "ok"
