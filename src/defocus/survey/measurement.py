"""The numbers by which a lens is judged, for many lenses at once.

Lenses of one bucket are packed and traced together: a chief ray and a bundle on the axis and at the edge of the field,
at the d line, for the prescription's own object distance. Best focus and spot on the axis are those of converged rays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import DefocusError
from ..lens.prescription import D_LINE_NM, Lens
from ..optics.aberrations import third_order
from ..optics.apertures import solved_if_bare
from ..optics.batch import over_lenses
from ..optics.focus import best_focus, path_range, rms_spot
from ..optics.paraxial import FirstOrder, first_order
from ..optics.pupil import axial_beam, axial_ray, chief_ray, find_bundle, image_radius_of, vergence_of
from ..optics.system import Bucket, System, group_by_bucket, pack, pack_one
from ..optics.trace import mirrored
from ..stored_program import StoredProgram

PUPIL_SAMPLES = 33  # rays across a bundle
LENSES_AT_ONCE = {"cpu": 64, "gpu": 256}  # a GPU waits for every surface, however many lenses there are
FEW = 250  # lenses that are measured sooner by a program that compiles fast and runs slowly
WORTH_A_PROGRAM = 2_000  # lenses of one bucket; compiling takes as long as so many lenses' padding
FIRST_ORDER_LENGTHS = (  # that a measurement has, in mm
    "focal_length", "back_focal_distance", "total_track", "stop_radius",
    "entrance_pupil", "entrance_pupil_radius", "exit_pupil", "exit_pupil_radius",
)  # fmt: skip
FEWEST_RAYS = 12  # of PUPIL_SAMPLES²; fewer say nothing about a wavefront


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the survey knows of a lens; nan where it could not be measured, with the reason in `problems`."""

    focal_length_mm: float = math.nan
    f_number: float = math.nan
    na: float = math.nan
    back_focal_distance_mm: float = math.nan
    image_radius_mm: float = math.nan
    total_track_mm: float = math.nan
    stop_radius_mm: float = math.nan
    half_field_deg: float = math.nan
    axial_rms_mm: float = math.nan  # at best focus
    phase_range_axis_waves: float = math.nan
    phase_range_edge_waves: float = math.nan
    tsc_mm: float = math.nan
    cc_mm: float = math.nan  # tangential coma
    tac_mm: float = math.nan
    entrance_pupil_mm: float = math.nan  # from the first surface
    entrance_pupil_radius_mm: float = math.nan
    exit_pupil_mm: float = math.nan  # from the last surface
    exit_pupil_radius_mm: float = math.nan
    exit_pupil_to_image_mm: float = math.nan
    best_focus_mm: float = math.nan  # of the axial beam, from the prescription's image plane
    problems: tuple[str, ...] = ()


def measure_one(lens: Lens) -> Measurement:
    """Measure a single lens."""
    return measure([lens])[0]


def measure(lenses: Sequence[Lens], *, progress: Callable[[int, int], None] | None = None) -> list[Measurement]:
    """Measure many lenses; `progress` is called with how many are done, and how many there are."""
    results: list[Measurement] = [Measurement()] * len(lenses)
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress:
            progress(done, len(lenses))

    prepared: list[tuple[int, Lens, float]] = []
    for position, lens in enumerate(lenses):
        try:
            prepared.append((position, *_prepare(lens)))
        except DefocusError as error:
            results[position] = Measurement(problems=(str(error),))
            count(1)

    program = _MEASURE_FEW if len(lenses) < FEW else _MEASURE

    def run(group: tuple[Bucket, list[int]]) -> None:
        bucket, members = group
        size = LENSES_AT_ONCE["cpu" if jax.default_backend() == "cpu" else "gpu"]
        for start in range(0, len(members), size):
            batch = [prepared[i] for i in members[start : start + size]]
            for (position, *_), measured in zip(batch, _measure_batch(batch, size, bucket, program), strict=True):
                results[position] = measured
            count(len(batch))

    # One thread per bucket: while one compiles, the other traces. The dearest bucket goes first.
    groups = group_by_bucket([lens for _, lens, _ in prepared], WORTH_A_PROGRAM)
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(run, reversed(groups)))
    return results


def _prepare(lens: Lens) -> tuple[Lens, float]:
    """The lens with clear apertures, solved for where it has none, and its image radius (mm)."""
    radius = lens.image_radius if lens.image_radius is not None else image_radius_of(lens, pack_one(lens))
    return solved_if_bare(lens), radius


def _measure_batch(
    batch: Sequence[tuple[int, Lens, float]], size: int, bucket: Bucket, program: StoredProgram
) -> list[Measurement]:
    lenses = [lens for _, lens, _ in batch]
    filler = [lenses[-1]] * (size - len(lenses))  # one program serves one lens and a thousand
    radii = np.array([radius for _, _, radius in batch] + [batch[-1][2]] * len(filler))
    system = pack([*lenses, *filler], bucket=bucket)
    distances = np.array([lens.object_distance for lens in (*lenses, *filler)])
    measured = jax.tree.map(np.asarray, program(system, radii, distances, np.asarray(len(lenses))))
    return [_row(measured, i, radii[i]) for i in range(len(lenses))]


class _FieldPoint(eqx.Module):
    """One field point; the last batch axis holds the axis and the edge of the field."""

    found: Bool[Array, "*batch"]
    reach: Float[Array, "*batch"]  # mm
    angle: Float[Array, "*batch"]  # radians
    rays: Int[Array, "*batch"]  # how many pass
    path_range: Float[Array, "*batch"]  # mm


class _BatchMeasurement(eqx.Module):
    """What one compiled call finds out; lengths in mm."""

    data: FirstOrder
    field: _FieldPoint
    focus: Float[Array, "*batch"]  # from the prescription's image plane, of the axial beam
    rms: Float[Array, "*batch"]  # there
    tsc: Float[Array, "*batch"]
    cc: Float[Array, "*batch"]
    tac: Float[Array, "*batch"]


def _measure(
    system: System,
    image_radius: Float[Array, " lenses"],
    object_distance: Float[Array, " lenses"],
    count: Int[Array, ""],
) -> _BatchMeasurement:
    """Measure the first `count` of the lenses; the others fill up the batch."""

    def field(system: System, data: FirstOrder, height: Float[Array, ""], distance: Float[Array, ""]) -> _FieldPoint:
        chief = chief_ray(system, height, "image_height")
        vergence = vergence_of(chief, distance)
        bundle = find_bundle(system, chief, vergence, samples=PUPIL_SAMPLES, rounds=2, data=data)
        return _FieldPoint(
            found=chief.found,
            reach=chief.reach,
            angle=chief.angle,
            rays=jnp.sum(bundle.traced.passes * bundle.weight).astype(int),
            path_range=path_range(mirrored(bundle.traced), system.index[-1], jnp.tile(bundle.weight, 2)),
        )

    def one(system: System, radius: Float[Array, ""], distance: Float[Array, ""]) -> _BatchMeasurement:
        data = first_order(system)
        field_points = over_lenses(
            lambda height: field(system, data, height, distance), jnp.stack([0.0 * radius, radius])
        )
        third = third_order(system, jnp.arctan(radius / data.focal_length), data)
        beam = axial_beam(system, vergence_of(axial_ray(), distance), data=data)
        focus = best_focus(beam.traced, beam.area)
        sums = (jnp.sum(part) for part in (third.tsc, third.cc, third.tac))
        return _BatchMeasurement(data, field_points, focus, rms_spot(beam.traced, focus, beam.area), *sums)

    return over_lenses(one, system, image_radius, object_distance, count=count)


_MEASURE, _MEASURE_FEW = StoredProgram(_measure), StoredProgram(_measure, quick=True)


def _row(measured: _BatchMeasurement, i: int, radius: float) -> Measurement:
    data, field = (jax.tree.map(lambda leaf: leaf[i], part) for part in (measured.data, measured.field))
    lit = field.rays >= FEWEST_RAYS
    reached = bool(field.found[1])
    problems = []
    if not lit[0]:
        problems.append("no light on the axis")
    if not reached:
        problems.append(f"no chief ray at the edge: it reaches {field.reach[1]:.4g} of {radius:.4g} mm")
    elif not lit[1]:
        problems.append("no light at the edge: the clear apertures block it")
    waves = field.path_range / (D_LINE_NM * 1e-6)
    numbers = {"f_number": data.f_number, "na": data.na, "image_radius_mm": radius}
    numbers |= {f"{name}_mm": getattr(data, name) for name in FIRST_ORDER_LENGTHS}
    numbers |= {f"{name}_mm": getattr(measured, name)[i] for name in ("tsc", "cc", "tac")}
    numbers["exit_pupil_to_image_mm"] = data.image_plane - data.exit_pupil
    if reached:
        numbers["half_field_deg"] = math.degrees(float(field.angle[1]))
    if lit[0]:
        numbers |= {
            "axial_rms_mm": measured.rms[i],
            "best_focus_mm": measured.focus[i],
            "phase_range_axis_waves": waves[0],
        }
    if reached and lit[1]:
        numbers["phase_range_edge_waves"] = waves[1]
    return Measurement(**{name: float(value) for name, value in numbers.items()}, problems=tuple(problems))
