"""Wavefronts in bulk: many lenses, fields, depths, focus distances and wavelengths.

Work is grouped so that few programs compile and batches are full: by the lenses' bucket, and on an accelerator lenses
of a kind together, because a batch pays for the surfaces and aspheres of all its lenses. Nothing compiles per lens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..lens.prescription import D_LINE_NM, Lens
from ..optics.batch import over_lenses
from ..optics.paraxial import image_position
from ..optics.pupil import vergence_of
from ..optics.system import Bucket, System, bucket_of, common_bucket
from ..optics.trace import BLOCK as SURFACE_BLOCK
from ..optics.wavefront import Strength, Wavefront, energy_strength, find_wavefront
from ..stored_program import StoredProgram, shape_of, stored_program
from .bands import Bands
from .poses import (
    Points,
    Pose,
    PoseCache,
    Requests,
    compile_many_poses,
    pose_shapes,
    poses_of,
    system_shapes,
    systems_of,
)
from .pupil_function import PupilFunction, turn
from .sampling import paper_bound

AT_ONCE = {"cpu": 32, "gpu": 256}  # requests of one program
MANY_AT_ONCE = 2048  # requests times wavelengths, where there are many; as long for each as in smaller batches
BLOCK = {"cpu": 1024, "gpu": 4096}  # requests whose wavefronts wait together, so that the batches after them are full
GPU_BUCKETS = (Bucket(64, 10, 10), Bucket(208, 20, 20))
WAVES = 9  # wavelengths that a processor's program is made for; more make another


# System in one colour, pose, point and wavelength (mm) → its wavefront.
FindWavefront = Callable[[System, Pose, Points, Float[Array, ""]], Wavefront]
Work = Callable[[], None]


class Wavefronts(eqx.Module):
    """The optics of a batch of requests; wavefronts and pupils have a second axis of wavelengths."""

    pose: Pose
    paraxial_defocus: Float[Array, "*batch"]  # mm from the paraxial image to the sensor
    wavefront: Wavefront
    pupil: PupilFunction
    bound: Float[Array, "*batch"]  # the paper's N_inf
    in_front: Bool[Array, "*batch"]  # whether the object stands in front of the lens

    @staticmethod
    def of_point(pose: Pose, depth: Float[Array, ""], wavefront: Wavefront, pupil: PupilFunction) -> Wavefronts:
        """Those of one point, `depth` mm before the entrance pupil."""
        data = pose.data
        defocus = data.image_plane + pose.sensor_z - image_position(data, depth)
        bound = paper_bound(data.na, defocus, jnp.asarray(D_LINE_NM * 1e-6))
        return Wavefronts(pose, defocus, wavefront, pupil, bound, depth > data.entrance_pupil)


@dataclass(frozen=True)
class WavefrontBlock:
    """Wavefronts of some requests, in arrays of one of a few sizes: anything else would compile for every size."""

    rows: list[int]  # numbers of the requests
    places: list[int]  # where each is in `arrays`; the rest is padding
    waves: int  # wavelengths that count
    arrays: Wavefronts

    def cut(self, arrays: Any) -> Any:
        """Wavefronts (or part of them) as numpy, rows and wavelengths that count."""
        arrays = jax.tree.map(lambda leaf: leaf[np.asarray(self.places)], jax.device_get(arrays))
        fewer = jax.tree.map(lambda leaf: leaf[:, : self.waves], (arrays.wavefront, arrays.pupil))
        return eqx.tree_at(lambda w: (w.wavefront, w.pupil), arrays, fewer, is_leaf=lambda leaf: leaf is None)

    @cached_property
    def summary(self) -> Wavefronts:
        """The small numbers on the host: without the arrays that only the propagation needs."""
        wavefront = eqx.tree_at(lambda w: (w.phase, w.amplitude, w.rim), self.arrays.wavefront, (None, None, None))
        return self.cut(eqx.tree_at(lambda w: (w.wavefront, w.pupil), self.arrays, (wavefront, None)))


def backend_kind() -> str:
    """ "cpu", or "gpu" for any accelerator."""
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def wavefront_on_sphere(
    system: System,
    pose: Pose,
    point: Points,
    wavelength: Float[Array, ""],
    strength: Strength = energy_strength,
) -> Wavefront:
    """The wavefront of one point and colour about its place on the sensor; `wavelength` in mm."""
    return find_wavefront(
        system, pose.chief, vergence_of(pose.chief, point.depth - pose.data.entrance_pupil), pose.sensor_z,
        pose.landing, wavelength, data=pose.data, iris=point.iris, azimuth=point.azimuth, strength=strength,
    )  # fmt: skip


def wavefront_blocks(
    requests: Requests,
    bands: Bands,
    find: FindWavefront = wavefront_on_sphere,
    *,
    few: bool = False,
    many: bool = False,
    poses: PoseCache | None = None,
) -> Iterator[WavefrontBlock]:
    """The wavefronts of all requests, a few thousand at a time; `poses` that were found before are taken from there.

    On a processor, `few` takes programs that compile fast and run slowly; on a GPU, `many` takes larger batches. That
    is not decided by the number of requests here: equal requests shall have equal bits in batches of any size.
    """
    waves = bands.every_nm
    kind = backend_kind()
    few, many = few and kind == "cpu", many and kind == "gpu"
    # A processor computes only the wavelengths that count, so one program serves all; a GPU would compute them all.
    computed = waves + waves[-1:] * (WAVES - len(waves)) if kind == "cpu" else waves
    rows: list[int] = []
    places: list[int] = []
    batches: list[Wavefronts] = []
    for bucket, members in _groups(requests, kind):
        pose_of = poses_of(requests, members, bucket, kind, few=few, many=many, cache=poses)
        size = _many_at_once(len(waves)) if many else AT_ONCE[kind]
        # A large batch is a block: joining it to others would make blocks of several sizes.
        full = size if many else BLOCK[kind]
        for start in range(0, len(members), size):
            part = members[start : start + size]
            padded = part + part[-1:] * (size - len(part))
            different, which = np.unique(requests.lens[padded], return_inverse=True)
            index = np.stack([requests.lenses[k].indices(computed, bucket.surfaces) for k in different])
            stand = pose_of(padded)
            found = wavefront_program(find, few)(
                systems_of(requests, padded, bucket),
                index[which],
                np.array(computed) * 1e-6,
                requests.points.take(padded),
                stand,
                np.array([len(part), len(waves)]),
            )
            batches.append(eqx.tree_at(lambda w: w.pose, found, stand, is_leaf=lambda leaf: leaf is None))
            rows += part
            places += range((len(batches) - 1) * size, (len(batches) - 1) * size + len(part))
            if len(batches) * size >= full:
                yield WavefrontBlock(rows, places, len(waves), _joined(batches))
                rows, places, batches = [], [], []
    if rows:
        yield WavefrontBlock(rows, places, len(waves), _joined(batches))


def _many_at_once(waves: int) -> int:
    """Requests of one program where there are many."""
    return max(AT_ONCE["gpu"], 1 << (MANY_AT_ONCE // waves).bit_length() - 1)


def compile_many(requests: Requests, bands: Bands, find: FindWavefront = wavefront_on_sphere) -> list[Work]:
    """What compiles a GPU's programs for many requests like these, the slowest first: of wavefronts, and of poses.

    Each piece of work may be done in a thread of its own, before or while `wavefront_blocks` asks for its program.
    """
    waves, work = len(bands.every_nm), list[Work]()
    rows = _many_at_once(waves)
    points = jax.tree.map(lambda _: shape_of(rows), requests.points)
    for bucket, _ in _groups(requests, "gpu"):
        program = wavefront_program(find, False)
        if isinstance(program, StoredProgram):
            shapes = shape_of(rows, waves, bucket.surfaces + 1), shape_of(waves), points, pose_shapes(rows)
            work.append(partial(program.compile, system_shapes(rows, bucket), *shapes, shape_of(2, kind=int)))
        work.append(partial(compile_many_poses, bucket))
    return work


def wavefronts_of(requests: Requests, bands: Bands, *, few: bool = False) -> Wavefronts:
    """The wavefronts alone, in the order of the requests, on the host; `few` as for `wavefront_blocks`."""
    blocks = list(wavefront_blocks(requests, bands, few=few))
    order = np.argsort([row for block in blocks for row in block.rows])
    parts = [block.cut(block.arrays) for block in blocks]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[order], *parts)


def poses_on_host(requests: Requests) -> Pose:
    """The poses alone, in the order of the requests, on the host."""
    kind, order, parts = backend_kind(), [], []
    for bucket, members in _groups(requests, kind):
        order += members
        parts.append(poses_of(requests, members, bucket, kind)(members))
    back = np.argsort(order)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[back], *parts)


def _groups(requests: Requests, kind: str) -> list[tuple[Bucket, list[int]]]:
    """Row numbers by bucket. An accelerator wants few programs and full batches: one bucket for all."""
    lenses = [one.lens for one in requests.lenses]
    if kind == "cpu":
        buckets = [common_bucket(lens) for lens in lenses]
        of_row = [buckets[k] for k in requests.lens]
        return [(bucket, [r for r, own in enumerate(of_row) if own == bucket]) for bucket in sorted(set(buckets))]
    own = [bucket_of(lens) for lens in lenses]
    shape = next(bucket for bucket in GPU_BUCKETS if all(map(bucket.holds, own)))
    effort = [_effort(lens) for lens in lenses]
    return [(shape, sorted(range(len(requests)), key=lambda row: effort[requests.lens[row]]))]


def _effort(lens: Lens) -> tuple[int, ...]:
    """Lenses next to each other in this order share blocks of surfaces and the places of their aspheres."""
    aspheres = [i for i, surface in enumerate(lens.surfaces) if surface.aspheric]
    return bool(aspheres), -(-len(lens.surfaces) // SURFACE_BLOCK), *aspheres


def _joined(batches: list[Wavefronts]) -> Wavefronts:
    """Batches one after the other, filled up to a power of two of them with the last."""
    if len(batches) == 1:
        return batches[0]
    count = 1 << (len(batches) - 1).bit_length()
    return _concatenate(*batches, *[batches[-1]] * (count - len(batches)))


@jax.jit
def _concatenate(*batches: Wavefronts) -> Wavefronts:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *batches)


@lru_cache
def wavefront_program(find: FindWavefront, few: bool) -> Callable[..., Wavefronts]:
    """The program that finds the wavefronts of a batch; for a `few` one that compiles fast and runs slowly."""

    def find_wavefronts(
        system: System,
        index: Float[Array, "batch waves media"],
        wavelengths: Float[Array, " waves"],
        points: Points,
        poses: Pose,
        counts: Int[Array, "2"],
    ) -> Wavefronts:
        """Without the poses, which are there already; `counts` are the requests and wavelengths that count."""

        def one(system: System, index: Float[Array, "waves media"], point: Points, pose: Pose) -> Wavefronts:
            waves = point_wavefronts(system, index, wavelengths, point, pose, count=counts[1], find=find)
            return eqx.tree_at(lambda w: w.pose, waves, None)

        return over_lenses(one, system, index, points, poses, count=counts[0])

    return stored_program(find_wavefronts, find, quick=few)


def point_wavefronts(
    system: System,
    index: Float[Array, "waves media"],
    wavelengths: Float[Array, " waves"],
    point: Points,
    pose: Pose,
    *,
    count: Int[Array, ""] | None = None,
    find: FindWavefront = wavefront_on_sphere,
) -> Wavefronts:
    """One point at all its wavelengths (mm), or the first `count`: differentiable in all arguments."""

    def colour(index: Float[Array, " media"], wavelength: Float[Array, ""]) -> tuple[Wavefront, PupilFunction]:
        # What does not depend on the wavelength would be taken out of the loop for the gradient, surface by surface.
        own, index, wavelength = jax.lax.optimization_barrier(  # type: ignore[no-untyped-call]
            (system, index, wavelength)
        )
        coloured = eqx.tree_at(lambda s: s.index, own, index)
        wavefront = find(coloured, pose, point, wavelength)
        return wavefront, turn(wavefront, point.azimuth)

    wavefront, pupil = over_lenses(colour, index, wavelengths, count=count)
    return Wavefronts.of_point(pose, point.depth, wavefront, pupil)
