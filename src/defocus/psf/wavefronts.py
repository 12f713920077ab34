"""Wavefronts in bulk: many lenses, fields, depths, focus distances and wavelengths in one call.

Work is grouped so that few programs compile and batches are full: by the lenses' bucket, and on an accelerator lenses
of a kind together, because a batch pays for the surfaces and aspheres of all its lenses. Nothing compiles per lens.
What does not depend on an object's depth, the sensor's place and the chief ray, is found once for all depths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from ..optics.system import Bucket, System, bucket_of, group_by_bucket, pack, padded_indices
from ..optics.wavefront import AMPLITUDES, FORMS, Amplitude, Clipping, Form, Wavefront, find_wavefront
from .pupil_function import Spectrum, turn
from .sampling import paper_bound
from .spectrum import Bands, parse_bands

AT_ONCE = {"cpu": 32, "gpu": 256}  # requests of one program
POSES_AT_ONCE = {"cpu": 32, "gpu": 128}
STAGE = {"cpu": 1024, "gpu": 4096}  # requests whose wavefronts wait together, so that the batches after them are full
GPU_BUCKETS = ((64, 10, 10), (208, 20, 20))  # surfaces, even and odd terms
WAVES = 9  # wavelengths that a processor's program is made for; more make another
WORTH_A_PROGRAM = 20_000  # requests of one bucket; compiling takes as long as so many wavefronts' padding


class Requests(eqx.Module):
    """One row per PSF; lengths in mm, angles in radians."""

    height: Float[Array, "*batch"]  # image height, or field angle
    azimuth: Float[Array, "*batch"]
    depth: Float[Array, "*batch"]
    focus: Float[Array, "*batch"]
    shift: Float[Array, "*batch"]  # nan: the sensor is focused
    iris: Iris | None = None

    def take(self, rows: Sequence[int]) -> Requests:
        return jax.tree.map(lambda leaf: leaf[np.asarray(rows)], self)


class Pose(eqx.Module):
    """How a lens stands to its sensor, and how it sees one direction: the same for objects at any depth."""

    data: FirstOrder
    sensor_z: Float[Array, "*batch"]  # mm from the prescription's image plane
    chief: ChiefRay
    landing: Float[Array, "*batch"]  # mm; where the chief ray meets the sensor


class Wavefronts(eqx.Module):
    """What is known of a batch of requests; wavefronts and spectra have a second axis of wavelengths."""

    pose: Pose
    paraxial_defocus: Float[Array, "*batch"]  # mm from the paraxial image to the sensor
    wavefront: Wavefront
    spectrum: Spectrum
    bound: Float[Array, "*batch"]  # the paper's N_inf
    in_front: Bool[Array, "*batch"]  # whether the object stands in front of the lens


@dataclass(frozen=True)
class Optics:
    """What is traced, the same for every request of a call; those of `optics.wavefront`."""

    by: FieldBy = "image_height"
    form: Form = "sphere"
    amplitude: Amplitude = "energy"
    clipping: Clipping = "rim"


@dataclass(frozen=True)
class Stage:
    """Wavefronts of some requests, in arrays of one of a few sizes: anything else would compile for every size."""

    rows: list[int]  # numbers of the requests
    places: list[int]  # where each is in `found`; the rest is padding
    waves: int  # wavelengths that count
    found: Wavefronts


def make_requests(
    height_mm: Sequence[float],
    azimuth: Sequence[float],
    depth_mm: Sequence[float],
    focus_mm: Sequence[float],
    sensor_shift_mm: Sequence[float] | None = None,
    iris: Sequence[Iris] | None = None,
) -> Requests:
    shift = [math.nan] * len(height_mm) if sensor_shift_mm is None else sensor_shift_mm
    blades = None if iris is None else jax.tree.map(lambda *leaves: np.stack(leaves), *iris)
    # Of numpy until they are needed: on a device, choosing some of them would compile for every number of requests.
    rows: list[Any] = [np.asarray(v, float) for v in (height_mm, azimuth, depth_mm, focus_mm, shift)]
    return Requests(rows[0], rows[1], rows[2], rows[3], rows[4], blades)


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
    **optics: Any,
) -> Wavefronts:
    """The wavefronts alone, in the order of the requests; arguments as for `psf_batch`."""
    requests = make_requests(height_mm, azimuth, depth_mm, focus_mm, sensor_shift_mm, iris)
    parts = list(find_stages(lenses, requests, parse_bands(bands), Optics(**optics)))
    order = np.argsort([row for stage in parts for row in stage.rows])
    # On the host: on a device, choosing and joining would compile for every number of requests.
    cut = [cut_to(jax.device_get(stage.found), stage.places, stage.waves) for stage in parts]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)[order]), *cut)


def find_stages(lenses: Sequence[Lens], requests: Requests, bands: Bands, optics: Optics) -> Iterator[Stage]:
    """The wavefronts of all requests, a few thousand at a time."""
    waves = [w for band in bands.wavelengths_nm for w in band]
    # A processor computes only the wavelengths that count, so one program serves all; a GPU would compute them all.
    shown = waves + waves[-1:] * (WAVES - len(waves)) if _kind() == "cpu" else waves
    at_once = AT_ONCE[_kind()]
    rows: list[int] = []
    places: list[int] = []
    found: list[Wavefronts] = []
    for lens_bucket, members in _groups(lenses):
        poses = _poses(lenses, requests, members, lens_bucket, optics)
        for start in range(0, len(members), at_once):
            part = members[start : start + at_once]
            padded = part + part[-1:] * (at_once - len(part))
            systems, own = _packed([lenses[i] for i in padded], lens_bucket)
            index = np.stack([[padded_indices(lens, w, lens_bucket.surfaces) for w in shown] for lens in own.lenses])
            found.append(
                _find_wavefronts(
                    systems,
                    index[own.number],
                    np.array(shown) * 1e-6,
                    requests.take(padded),
                    poses(padded),
                    np.array([FORMS.index(optics.form), AMPLITUDES.index(optics.amplitude)]),
                    np.array([len(part), len(waves)]),
                    clipping=optics.clipping,
                )
            )
            rows += part
            places += range((len(found) - 1) * at_once, (len(found) - 1) * at_once + len(part))
            if len(found) * at_once >= STAGE[_kind()]:
                yield Stage(rows, places, len(waves), _joined(found))
                rows, places, found = [], [], []
    if rows:
        yield Stage(rows, places, len(waves), _joined(found))


def _poses(
    lenses: Sequence[Lens], requests: Requests, members: list[int], lens_bucket: Bucket, optics: Optics
) -> Callable[[list[int]], Pose]:
    """The poses of some requests as a function of their numbers; equal ones are found once, and wait on the host."""
    numbers: dict[tuple[int, float, float, float | None], int] = {}
    own: dict[int, int] = {}
    first: list[int] = []  # a request that has each of the poses
    for i in members:
        shift = float(requests.shift[i])
        key = (id(lenses[i]), float(requests.height[i]), float(requests.focus[i]), None if math.isnan(shift) else shift)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(i)
        own[i] = numbers[key]
    at_once = POSES_AT_ONCE[_kind()]
    found = []
    for start in range(0, len(first), at_once):
        part = first[start : start + at_once]
        padded = part + part[-1:] * (at_once - len(part))
        systems, _ = _packed([lenses[i] for i in padded], lens_bucket)
        asked = requests.take(padded)
        found.append(
            _find_poses(
                systems, asked.height, asked.focus, asked.shift, np.asarray(optics.by == "angle"), np.asarray(len(part))
            )
        )
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(found))
    return lambda rows: jax.tree.map(lambda leaf: leaf[[own[i] for i in rows]], together)


@dataclass(frozen=True)
class _Own:
    """The different lenses of a batch, and which of them is each row's."""

    lenses: list[Lens]
    number: Int[np.ndarray, " rows"]


def _packed(lenses: Sequence[Lens], lens_bucket: Bucket) -> tuple[System, _Own]:
    """One lens for each row as arrays; each is packed once, however often it is asked for."""
    different = {id(lens): lens for lens in lenses}
    number = {key: n for n, key in enumerate(different)}
    own = _Own([*different.values()], np.array([number[id(lens)] for lens in lenses]))
    # To a power of two: packing compiles for every number of lenses.
    several = own.lenses + own.lenses[-1:] * ((1 << (len(own.lenses) - 1).bit_length()) - len(own.lenses))
    systems = pack(several, D_LINE_NM, lens_bucket)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[own.number], systems), own


def _groups(lenses: Sequence[Lens]) -> list[tuple[Bucket, list[int]]]:
    """Positions of the lenses by bucket. An accelerator wants few programs and full batches: one bucket for all."""
    if _kind() == "cpu":
        return group_by_bucket(lenses, WORTH_A_PROGRAM, common=True)
    buckets = {id(lens): bucket_of(lens) for lens in lenses}
    largest = [max(getattr(b, f) for b in buckets.values()) for f in ("surfaces", "even", "odd")]
    shape = next(key for key in GPU_BUCKETS if all(a >= b for a, b in zip(key, largest, strict=True)))
    return [(Bucket(*shape), sorted(range(len(lenses)), key=lambda i: _effort(lenses[i])))]


def _effort(lens: Lens) -> tuple[int, int, int]:
    """Lenses next to each other in this order share surfaces and the places of their aspheres."""
    aspheres = [i for i, surface in enumerate(lens.surfaces) if surface.aspheric]
    return len(aspheres), len(lens.surfaces), aspheres[0] if aspheres else 0


def _kind() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def _joined(found: list[Wavefronts]) -> Wavefronts:
    """Batches one after the other, filled up to a power of two of them with the last."""
    if len(found) == 1:
        return found[0]
    wanted = 1 << (len(found) - 1).bit_length()
    return _concatenate(*found, *[found[-1]] * (wanted - len(found)))


@jax.jit
def _concatenate(*found: Wavefronts) -> Wavefronts:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)


def cut_to(found: Any, places: Sequence[int], waves: int) -> Any:
    """The rows and wavelengths that count."""
    found = jax.tree.map(lambda leaf: leaf[np.asarray(places)], found)
    fewer = jax.tree.map(lambda leaf: leaf[:, :waves], (found.wavefront, found.spectrum))
    return eqx.tree_at(lambda s: (s.wavefront, s.spectrum), found, fewer, is_leaf=lambda leaf: leaf is None)


@jax.jit
def _find_poses(
    system: System,
    height: Float[Array, " batch"],
    focus: Float[Array, " batch"],
    shift: Float[Array, " batch"],
    by_angle: Bool[Array, ""],
    count: Int[Array, ""],
) -> Pose:
    def one(system: System, height: Float[Array, ""], focus: Float[Array, ""], shift: Float[Array, ""]) -> Pose:
        return find_pose(system, height, focus, shift, by_angle)

    return over_lenses(one, system, height, focus, shift, count=count)


def find_pose(
    system: System,
    height: Float[Array, ""],
    focus: Float[Array, ""],
    shift: Float[Array, ""],
    by: FieldBy | Bool[Array, ""] = "image_height",
) -> Pose:
    """A sensor focused on the axis at `focus` mm, or `shift` mm behind the image plane if that is not nan, and the
    chief ray to the image height (mm) or field angle `height`."""
    data = first_order(system)
    own_plane = jnp.isfinite(shift)
    sensor_z = jnp.where(own_plane, shift, focused_sensor(system, data, focus))
    plane = jnp.where(own_plane, 0.0, sensor_z)
    chief = chief_ray(system, height, by, plane)
    return Pose(data, sensor_z, chief, chief.image_height + chief.image_slope * (sensor_z - plane))


def focused_sensor(system: System, data: FirstOrder, focus: Float[Array, ""]) -> Float[Array, ""]:
    """Where the sensor must stand (mm in the frame of the image plane) to be focused on the axis at depth `focus` (mm).

    The plane of least RMS spot of the axial beam.
    """
    axis = axial_ray()
    vergence = vergence_of(axis, focus - data.entrance_pupil)
    return best_focus(find_bundle(system, axis, vergence, samples=65, rounds=2, data=data).traced)


@partial(jax.jit, static_argnames=("clipping",))
def _find_wavefronts(
    system: System,
    index: Float[Array, "batch waves media"],
    wavelengths: Float[Array, " waves"],
    requests: Requests,
    poses: Pose,
    choices: Int[Array, "2"],
    counts: Int[Array, "2"],
    *,
    clipping: Clipping,
) -> Wavefronts:
    """`choices` are form and amplitude as numbers; `counts` the requests and wavelengths that are wanted."""

    def one(system: System, index: Float[Array, "waves media"], request: Requests, pose: Pose) -> Wavefronts:
        return request_wavefronts(
            system, index, wavelengths, request, pose,
            form=choices[0], amplitude=choices[1], clipping=clipping, count=counts[1],
        )  # fmt: skip

    return over_lenses(one, system, index, requests, poses, count=counts[0])


def request_wavefronts(
    system: System,
    index: Float[Array, "waves media"],
    wavelengths: Float[Array, " waves"],
    request: Requests,
    pose: Pose,
    *,
    form: Form | Int[Array, ""] = "sphere",
    amplitude: Amplitude | Int[Array, ""] = "energy",
    clipping: Clipping = "rim",
    count: Int[Array, ""] | None = None,
) -> Wavefronts:
    """One request at all its wavelengths (mm), or the first `count`: differentiable in all that is given."""
    data, chief = pose.data, pose.chief
    vergence = vergence_of(chief, request.depth - data.entrance_pupil)

    def colour(index: Float[Array, " media"], wavelength: Float[Array, ""]) -> tuple[Wavefront, Spectrum]:
        coloured = eqx.tree_at(lambda s: s.index, system, index)
        wavefront = find_wavefront(
            coloured, chief, vergence, pose.sensor_z, pose.landing, wavelength,
            data=data, form=form, amplitude=amplitude, clipping=clipping, iris=request.iris, azimuth=request.azimuth,
        )  # fmt: skip
        return wavefront, turn(wavefront, request.azimuth)

    wavefront, spectrum = over_lenses(colour, index, wavelengths, count=count)
    defocus = data.image_plane + pose.sensor_z - image_position(data, request.depth)
    in_front = request.depth > data.entrance_pupil
    bound = paper_bound(data.na, defocus, jnp.asarray(D_LINE_NM * 1e-6))
    return Wavefronts(pose, defocus, wavefront, spectrum, bound, in_front)
