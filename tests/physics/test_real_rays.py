"""Real rays against the independent trace of `oracle.py`: positions, directions, optical paths, and which rays fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from defocus.lens.prescription import Lens
from defocus.optics.system import Bucket, bucket_of

from . import oracle
from .conftest import pupil_points
from .harness import LARGE, MEDIUM, PLAIN, SMALL, WAVELENGTHS, trace_items, trace_one, unit
from .samples import INF, lens

TOLERANCE = 1e-9  # mm, and radians; a thousandth of what is asked for


@dataclass
class Comparison:
    """Largest deviations over the rays that pass in both traces, and where the two disagree about a ray's fate."""

    passing: int
    failing: int
    position: float
    direction: float
    path: float
    disagreements: list[str]


def compare(lens: Lens, traced: SimpleNamespace, truth: oracle.Outcome, found: np.ndarray) -> Comparison:
    """Both traces of one lens, all fields and wavelengths in one ray axis; rays without a chief ray do not count."""
    ours = traced.alive & (traced.clip < 0) & found
    theirs = truth.alive & (truth.clip < 0) & found
    # A ray that grazes a rim within rounding may pass in one and not in the other.
    at_the_rim = np.minimum(np.abs(traced.clip), np.abs(truth.clip)) < 1e-9
    both = ours & theirs
    differ = np.flatnonzero((ours != theirs) & ~at_the_rim)
    disagreements = [
        f"ray {q}: product {'passes' if ours[q] else 'stops at ' + str(traced.clip_surface[q])}, "
        f"oracle {'passes' if theirs[q] else 'stops at ' + str(truth.died_at[q])}, clip {truth.clip[q]:.3g}"
        for q in differ
    ]
    # Rays that stay inside every clear aperture up to the surface at which they miss or are totally reflected.
    inside = np.full(found.shape, True)
    for i, surface in enumerate(lens.surfaces):
        semi = lens.aperture.value if i == lens.stop else surface.semi_diameter
        r = np.hypot(truth.points[i, 0], truth.points[i, 1])
        reached = (truth.died_at < 0) | (truth.died_at >= i)
        inside &= ~reached | ~np.isfinite(r) | (r < (np.inf if semi is None else semi))
    fails = inside & (truth.died_at >= 0) & found
    radius = np.hypot(traced.points[: len(lens.surfaces), 0], traced.points[: len(lens.surfaces), 1])
    wrong = fails & traced.alive & (radius < truth.limits[:, None]).all(axis=0)
    disagreements += [f"ray {q}: alive, though it fails at surface {truth.died_at[q]}" for q in np.flatnonzero(wrong)]
    deviation = [
        np.abs(np.asarray(a, float) - b)[..., both].max(initial=0.0)
        for a, b in (
            (truth.position, traced.position),
            (truth.direction, traced.direction),
            (truth.path, traced.path),
        )
    ]
    return Comparison(int(both.sum()), int(fails.sum()), *map(float, deviation), disagreements)


def flat(values: np.ndarray) -> np.ndarray:
    """[fields, ..., rays] → [..., fields · rays]."""
    return np.moveaxis(values, 0, -2).reshape(*values.shape[1:-1], -1)


def compare_launched(launched, numbers, bucket, wavelengths=None) -> dict[str, Comparison]:  # type: ignore[no-untyped-def]
    """Trace the chosen lenses with both codes, each at as many wavelengths: its own, or the same three for all."""
    wavelengths = wavelengths or [WAVELENGTHS] * len(numbers)
    lenses = [launched.lenses[i] for i in numbers]
    rays = [tuple(flat(v[i]) for v in (launched.position, launched.direction, launched.path)) for i in numbers]
    items = [(lens, wavelength) for lens, own in zip(lenses, wavelengths, strict=True) for wavelength in own]
    each = len(wavelengths[0])
    repeated = [np.repeat(np.stack(v), each, axis=0) for v in zip(*rays, strict=True)]
    traced = trace_items(items, *repeated, bucket=bucket)
    per_field = launched.position.shape[-1]
    result = {}
    for row, number in enumerate(numbers):
        position, direction, path = rays[row]
        truth = oracle.trace(
            lenses[row],
            np.repeat(wavelengths[row], path.size),
            np.tile(position, each),
            np.tile(direction, each),
            np.tile(path, each),
        )
        mine = slice(each * row, each * row + each)
        ours = SimpleNamespace(
            **{
                name: flat(getattr(traced, name)[mine])
                for name in ("position", "direction", "path", "alive", "clip", "clip_surface", "points")
            }
        )
        found = np.tile(np.repeat(launched.chief.found[number], per_field), each)
        result[launched.names[number]] = compare(lenses[row], ours, truth, found)
    return result


def check(results: dict[str, Comparison]) -> None:
    bad = {name: c.disagreements[:3] for name, c in results.items() if c.disagreements}
    assert not bad, f"{len(bad)} lenses disagree about which rays pass: {bad}"
    for quantity in ("position", "direction", "path"):
        name = max(results, key=lambda n: getattr(results[n], quantity))
        assert getattr(results[name], quantity) < TOLERANCE, f"{quantity}: {name} {results[name]}"


def test_samples(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Five lenses of all kinds; needs no reference data."""
    results = compare_launched(sample_rays, range(len(sample_rays.lenses)), SMALL)
    check(results)
    assert all(c.passing > 30 for c in results.values()), results


@pytest.mark.shared
def test_collection(selection_rays) -> None:  # type: ignore[no-untyped-def]
    """At least sixty lenses of the collection, every kind, three fields, one of three wavelengths in turn.

    All lenses at all wavelengths: benchmarks/trace_vs_oracle.py.
    """
    names = selection_rays.names
    assert len(names) >= 60
    groups: dict[Bucket, list[int]] = {}
    for i, one in enumerate(selection_rays.lenses):
        own = bucket_of(one)
        groups.setdefault(next(b for b in (PLAIN, MEDIUM, LARGE) if b.holds(own)), []).append(i)
    results: dict[str, Comparison] = {}
    for bucket, numbers in groups.items():
        wavelengths = [WAVELENGTHS[i % 3 : i % 3 + 1] for i in numbers]
        results |= compare_launched(selection_rays, numbers, bucket, wavelengths)
    check(results)
    assert sum(c.passing for c in results.values()) > 1250
    assert sum(c.failing for c in results.values()) > 10


# Surfaces of phone lenses whose polynomial turns back on itself outside the clear aperture, with a ray that passes
# close to the rim: (patent, radius, conic, terms, semi-diameter, point on the surface, direction of the ray there).
FOLDS = [
    (
        "US 9,239,447",
        3.8,
        -1.4396,
        {4: 0.22742, 6: -0.43838, 8: 0.46676, 10: -0.35699, 12: 0.16968, 14: -0.044437, 16: 0.0048103},
        1.53,
        (-1.4999387, 0.02832081),
        (-0.64271495, 0.76610541),
    ),
    (
        "US 11,906,710",
        -1.226,
        -0.702,
        {4: 0.14126, 6: -0.051905, 8: 0.019044, 10: 0.013553, 12: -0.0044324, 14: -0.0045447, 16: 0.001516},
        1.5,
        (-1.41316058, -0.50653626),
        (-0.59334432, 0.80494877),
    ),
    (
        "US 12,210,142",
        -2.022,
        -3.639,
        {4: 0.046925, 6: -0.069878, 8: 0.049275, 10: -0.025903, 12: 0.0097449, 14: -0.0021545, 16: 0.00019954},
        1.9,
        (-1.70354071, -0.59197828),
        (-0.56923847, 0.82217247),
    ),
    (
        "US 2015/0338607",
        2.407,
        -9.2468,
        {4: -0.041967, 6: 0.043614, 8: -0.090825, 10: 0.052345, 12: -0.016567, 14: 0.0023787},
        1.65,
        (-1.58726559, -0.28587824),
        (-0.60795388, 0.79397234),
    ),
    (
        "US 9,557,532",
        -1.307,
        -0.65389,
        {4: 0.041455, 6: -0.017099, 8: 0.03376, 10: 0.0087672, 12: -0.0056339, 14: -0.0040762, 16: 0.0014667},
        1.5,
        (-1.42429629, -0.52566009),
        (-0.61339258, 0.78977816),
    ),
]


@pytest.mark.parametrize("fold", FOLDS, ids=[f[0] for f in FOLDS])
def test_a_ray_meets_the_front_of_a_surface_that_folds_back(fold) -> None:  # type: ignore[no-untyped-def]
    """Further along, outside the clear aperture, the same ray leaves the polynomial again through its back."""
    _, radius, conic, terms, semi, (y, z), (m, n) = fold
    surface = lens("fold", [(radius, 1.0, 1.0, conic, terms, semi)], 0, semi)
    back = np.linspace(0.1, 0.5, 9)  # mm in front of the surface
    position = np.stack([0 * back, y - m * back, z - n * back])
    direction = np.repeat(np.array([[0.0], [m], [n]]), back.size, axis=1)
    traced = trace_one(surface, position, direction)
    assert traced.alive.all()
    assert np.allclose(traced.points[0, 1], y, atol=1e-6, rtol=0)
    assert np.allclose(traced.points[0, 2], z, atol=1e-6, rtol=0)


def test_the_far_side_of_a_sphere_is_no_surface() -> None:
    """A ray that crosses the sphere of a surface only beyond its equator does not meet the surface."""
    ball = lens("ball", [(10.0, 20.0, 1.5)], 0, 9.0)
    position = np.array([[0.0, 15.0, 12.0], [0.0, 12.0, 10.5], [3.0, 14.0, 11.0]]).T
    direction = unit(np.array([[0.0, -1.0, 0.1], [0.0, -1.0, 0.3], [0.0, -1.0, 0.2]]).T)
    truth = oracle.trace(ball, 587.5618, position, direction, np.zeros(3))
    assert not truth.alive.any()
    for bucket in (PLAIN, SMALL):
        assert not trace_one(ball, position, direction, bucket=bucket).alive.any()


def test_the_second_sheet_of_a_hyperboloid_is_no_surface() -> None:
    """The sag equation squared has a second sheet behind the vertex; no light is bent there."""
    sheet = lens("hyperboloid", [(10.0, 20.0, 1.5, -2.0)], 0, 9.0)
    position = np.array([[0.0, 30.0, -31.0], [1.0, 25.0, -35.0]]).T
    direction = unit(np.array([[0.0, -1.0, 0.02], [0.0, -1.0, 0.05]]).T)
    truth = oracle.trace(sheet, 587.5618, position, direction, np.zeros(2))
    assert not truth.alive.any()
    for bucket in (PLAIN, SMALL):
        assert not trace_one(sheet, position, direction, bucket=bucket).alive.any()


def test_total_reflection_begins_at_the_critical_angle() -> None:
    """Inside a slab of index 1.5, rays die at the rear face when sin(angle) > 1/1.5, and only there."""
    slab = lens("prism", [(INF, 5.0, 1.5), (INF, 5.0, 1.5), (INF, 5.0, 1.0)], 0, 50.0)
    sine = np.array([0.0, 0.5, 0.66, 1 / 1.5 - 1e-9, 1 / 1.5 + 1e-9, 0.7, 0.9])
    # The slab's first face is met from inside a medium of the same index: no refraction there.
    rows = [(INF, 5.0, 1.5), (INF, 5.0, 1.0)]
    inside = replace(lens("prism", rows, 0, 50.0), object_medium=slab.surfaces[0].medium)
    direction = np.stack([0 * sine, sine, np.sqrt(1 - sine**2)])
    traced = trace_one(inside, np.zeros((3, sine.size)), direction)
    assert traced.alive.tolist() == [True] * 4 + [False] * 3
    assert (traced.clip_surface[~traced.alive] == 1).all()
    assert np.isinf(traced.clip[~traced.alive]).all()
    # A dead ray keeps its place on the surface that reflected it, so it can still be drawn up to there.
    assert np.isfinite(traced.clips[1, 4:]).all()
    emerging = traced.direction[1, :4]
    assert np.allclose(emerging, 1.5 * sine[:4], atol=1e-12)


def test_a_ray_beside_the_sphere_misses_it() -> None:
    ball = lens("ball", [(10.0, 20.0, 1.5)], 0, 50.0)
    y = np.array([9.99, 10.01, 50.0])
    position = np.stack([0 * y, y, 0 * y - 5.0])
    direction = np.repeat(np.array([[0.0], [0.0], [1.0]]), 3, axis=1)
    for bucket in (PLAIN, SMALL):
        traced = trace_one(ball, position, direction, bucket=bucket)
        assert traced.alive.tolist() == [True, False, False]
        for leaf in (traced.position, traced.direction, traced.path):
            assert np.isfinite(leaf).all()


def test_aspheres_of_unknown_size(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Without clear apertures the aspheric terms have no natural scale; the rays must not notice."""
    wanted = [i for i, name in enumerate(sample_rays.names) if name in ("phone", "odd asphere", "squared term")]
    bare = [
        replace(sample, surfaces=tuple(replace(s, semi_diameter=None) for s in sample.surfaces))
        for sample in (sample_rays.lenses[i] for i in wanted)
    ]
    per_field = sample_rays.position.shape[-1]
    keep = np.hypot(*pupil_points()) < 1.0
    rays = [flat(getattr(sample_rays, name)[i]) for i in wanted for name in ("position", "direction", "path")]
    stacked = [np.stack(rays[k::3])[..., np.tile(keep, 3)] for k in range(3)]
    assert stacked[0].shape[-1] == 3 * keep.sum() < 3 * per_field
    with_sizes = trace_items([(sample_rays.lenses[i], 587.5618) for i in wanted], *stacked)
    without = trace_items([(sample, 587.5618) for sample in bare], *stacked)
    passes = with_sizes.passes
    assert passes.sum() > 60
    assert without.alive[passes].all()
    deviation = np.abs(with_sizes.position - without.position).max(axis=1)[passes]
    assert deviation.max() < 1e-11
