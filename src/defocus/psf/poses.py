"""What PSFs are computed of, points that a lens sees on a sensor, and how each lens stands to its sensor.

    requests ─▶ poses ─▶ wavefronts ─▶ propagation ─▶ bands

`engine` leads from one station to the next. A pose is the same for objects at any depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import DefocusError
from ..optics.batch import over_lenses
from ..optics.focus import best_focus
from ..optics.paraxial import FirstOrder, first_order
from ..optics.pupil import ChiefRay, axial_beam, axial_ray, chief_ray, launch, vergence_of
from ..optics.rim import Iris, Light, Rim, cut_radii
from ..optics.system import Bucket, PackedLens, System, stack_systems
from ..optics.trace import trace
from ..stored_program import StoredProgram, shape_of

Number = Float[Any, "*rows"]
PoseKey = tuple[int, float, float, float | None]  # identity of the lens, height, focus and shift
AT_ONCE = {"cpu": 32, "gpu": 128}  # poses of one program
MANY_AT_ONCE = 1024  # where there are many; as long for each as in smaller batches


class Points(eqx.Module):
    """Points of the scene and the sensors that see them; lengths in mm, angles in radians."""

    height: Number  # of the image above the axis
    azimuth: Number  # direction of the image in the photograph, from +x towards +y
    depth: Number  # from the entrance pupil, inf allowed
    focus: Number  # likewise
    shift: Number  # of the sensor behind the prescription's image plane; nan: it is focused
    pixel: Number
    iris: Iris | None = None

    def take(self, rows: Sequence[int] | Int[np.ndarray, " rows"]) -> Points:
        """Some of the rows."""
        return jax.tree.map(lambda leaf: leaf[np.asarray(rows)], self)


class Requests(eqx.Module):
    """One PSF for each row of `points`, through `lenses[lens[row]]`. Arrays are numpy's, so that choosing is cheap."""

    lenses: tuple[PackedLens, ...]
    lens: Int[np.ndarray, " rows"]
    points: Points

    def __len__(self) -> int:
        return len(self.lens)


def stack_irises(irises: Sequence[Iris | None]) -> Iris | None:
    """Many irises as one; None where there are none. All must be there, or none."""
    if all(iris is None for iris in irises):
        return None
    if any(iris is None for iris in irises):
        raise DefocusError("cameras with and without blades: compute their PSFs in two calls")
    leaves: Any = irises
    return jax.tree.map(lambda *values: np.stack([np.asarray(v) for v in values]), *leaves)


class Pose(eqx.Module):
    """The sensor's place and the chief ray of one image height."""

    data: FirstOrder
    sensor_z: Float[Array, "*batch"]  # mm from the prescription's image plane
    chief: ChiefRay
    landing: Float[Array, "*batch"]  # mm; where the chief ray meets the sensor


def focused_sensor(system: System, data: FirstOrder, focus: Float[Array, ""]) -> Float[Array, ""]:
    """Place of a sensor (mm in the frame of the image plane) that is focused on the axis at depth `focus` (mm).

    It is the plane of least RMS spot of the axial beam.
    """
    vergence = vergence_of(axial_ray(), focus - data.entrance_pupil)
    # The search has no derivative; its rim moves with what clips the light there.
    beam = axial_beam(*jax.lax.stop_gradient((system, vergence)), data=jax.lax.stop_gradient(data))
    light = Light(system, axial_ray(), vergence, None, jnp.zeros(()))
    rim = cut_radii(Rim(jnp.zeros(()), jnp.zeros(1), beam.rim[None], beam.rim > 0.0), light)
    y = beam.y * (rim / beam.rim)
    return best_focus(trace(system, launch(axial_ray(), jnp.zeros_like(y), y, vergence, system.index[0])), beam.area)


def find_pose(
    system: System,
    height: Float[Array, ""],
    focus: Float[Array, ""],
    shift: Float[Array, ""],
) -> Pose:
    """A sensor focused on the axis at `focus` mm, or `shift` mm behind the image plane where that is not nan, and the
    chief ray to the image height (mm): on the focused sensor, or on the image plane."""
    data = first_order(system)
    own_plane = jnp.isfinite(shift)
    sensor_z = jnp.where(own_plane, shift, focused_sensor(system, data, focus))
    plane = jnp.where(own_plane, 0.0, sensor_z)
    chief = chief_ray(system, height, "image_height", plane)
    return Pose(data, sensor_z, chief, chief.image_height + chief.image_slope * (sensor_z - plane))


def _find_poses(
    system: System,
    height: Float[Array, " batch"],
    focus: Float[Array, " batch"],
    shift: Float[Array, " batch"],
    count: Int[Array, ""],
) -> Pose:
    return over_lenses(find_pose, system, height, focus, shift, count=count)


find_poses, find_few_poses = StoredProgram(_find_poses), StoredProgram(_find_poses, quick=True)


def compile_many_poses(bucket: Bucket) -> None:
    """Have the program for many poses before it is called."""
    real = shape_of(MANY_AT_ONCE)
    find_poses.compile(system_shapes(MANY_AT_ONCE, bucket), real, real, real, shape_of(kind=int))


def system_shapes(rows: int, bucket: Bucket) -> System:
    """The shapes of a batch of lenses in a bucket."""

    def example() -> System:
        row = jnp.zeros((rows, bucket.surfaces))
        even, odd = (jnp.zeros((rows, bucket.surfaces, terms)) for terms in (bucket.even, bucket.odd))
        index, stop = jnp.zeros((rows, bucket.surfaces + 1)), jnp.zeros(rows, int)
        return System(row, row, even, odd, row, row, row, index, row.astype(bool), stop)

    return jax.eval_shape(example)


def pose_shapes(rows: int) -> Pose:
    """The shapes of a batch of poses."""

    def example() -> Pose:
        real, vector = jnp.zeros(rows), jnp.zeros((rows, 3))
        chief = ChiefRay(vector, vector, real, real, real, jnp.zeros(rows, bool), real)
        return Pose(FirstOrder(*[real] * len(fields(FirstOrder))), real, chief, real)

    return jax.eval_shape(example)


class PoseCache:
    """Poses on the host, for requests that are traced again at other depths; keeps the lenses that it knows."""

    def __init__(self) -> None:
        self.poses: Pose | None = None  # rows of numpy
        self.row_of: dict[PoseKey, int] = {}
        self._lenses: dict[int, PackedLens] = {}

    def key(self, requests: Requests, row: int) -> PoseKey:
        """What the pose of a request is found by."""
        lens, points = requests.lenses[requests.lens[row]], requests.points
        self._lenses[id(lens)] = lens  # no other lens has its identity while it is here
        shift = float(points.shift[row])
        return id(lens), float(points.height[row]), float(points.focus[row]), None if math.isnan(shift) else shift

    def add(self, keys: Iterable[PoseKey], blocks: list[Pose]) -> None:
        """Put rows behind those that are here; the last of them may have no keys."""
        begin = 0 if self.poses is None else len(self.poses.sensor_z)
        parts = blocks if self.poses is None else [self.poses, *blocks]
        self.poses = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        self.row_of |= {key: begin + k for k, key in enumerate(keys)}


def poses_of(
    requests: Requests,
    rows: Sequence[int],
    bucket: Bucket,
    kind: str,
    *,
    few: bool = False,
    many: bool = False,
    cache: PoseCache | None = None,
) -> Callable[[Sequence[int]], Pose]:
    """The poses of `rows`, as a function of row numbers; equal ones are found once, and wait on the host.

    `few` takes a program that compiles fast and runs slowly, `many` one for more of them at once. What the `cache`
    holds is not found again.
    """
    cache = PoseCache() if cache is None else cache
    points = requests.points
    keys = {row: cache.key(requests, row) for row in rows}
    new: dict[PoseKey, int] = {}  # a row that has each of the poses to be found
    for row, key in keys.items():
        if key not in cache.row_of:
            new.setdefault(key, row)
    first, blocks = [*new.values()], []
    size = MANY_AT_ONCE if many else AT_ONCE[kind]
    for start in range(0, len(first), size):
        part = first[start : start + size]
        padded = part + part[-1:] * (size - len(part))
        systems = systems_of(requests, padded, bucket)
        at = points.take(padded)
        find = find_few_poses if few else find_poses
        blocks.append(find(systems, at.height, at.focus, at.shift, np.asarray(len(part))))
    if blocks:
        cache.add(new, jax.device_get(blocks))
    poses, own = cache.poses, {row: cache.row_of[key] for row, key in keys.items()}
    return lambda chosen: jax.tree.map(lambda leaf: leaf[[own[row] for row in chosen]], poses)


def systems_of(requests: Requests, rows: Sequence[int], bucket: Bucket) -> System:
    """The lens of each row as arrays; each lens is padded once, however often it occurs."""
    different, which = np.unique(requests.lens[np.asarray(rows)], return_inverse=True)
    stacked = stack_systems([requests.lenses[k] for k in different], bucket)
    return jax.tree.map(lambda leaf: leaf[which], stacked)
