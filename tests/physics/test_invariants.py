"""Laws that every correct trace obeys, whatever the lens: Malus–Dupin, reversibility, skewness, stigmatic points."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from defocus.lens.prescription import D_LINE_NM, Lens
from defocus.optics.system import refractive_indices

from .conftest import pupil_points
from .harness import PLAIN, SMALL, trace_items, trace_one, unit
from .samples import INF, glass, lens

U, V = (np.concatenate([w, 0.3 * w]) for w in pupil_points())


def beam(radius: float, z: float = -5.0) -> tuple[np.ndarray, np.ndarray]:
    """Rays parallel to the axis over a disc, from the plane z."""
    position = np.stack([radius * U, radius * V, np.full(U.size, z)])
    return position, np.repeat(np.array([[0.0], [0.0], [1.0]]), U.size, axis=1)


@pytest.mark.parametrize("bucket", [PLAIN, SMALL], ids=["closed form", "iterated"])
def test_plano_hyperbolic_lens_focuses_a_plane_wave_to_a_point(bucket) -> None:  # type: ignore[no-untyped-def]
    """κ = −n²: every ray meets the axis at the focal point, over equal optical paths, at f/0.8."""
    n, r = 1.6, 30.0
    perfect = lens("plano-hyperbolic", [(INF, 25.0, n), (-r, r / (n - 1), 1.0, -(n**2))], 0, 40.0)
    position, direction = beam(31.0)
    traced = trace_one(perfect, position, direction, bucket=bucket)
    assert traced.alive.all()
    distance = np.linalg.norm(traced.position, axis=0)  # to the focus, the origin of the image plane's frame
    landed = traced.position + distance * traced.direction
    assert np.abs(landed).max() < 1e-11
    assert np.ptp(traced.path + distance) < 1e-10


@pytest.mark.parametrize("bucket", [PLAIN, SMALL], ids=["closed form", "iterated"])
def test_ellipsoid_focuses_a_plane_wave_inside_glass(bucket) -> None:  # type: ignore[no-untyped-def]
    """Air to glass at the ellipsoid κ = −1/n²: focus at n r / (n − 1)."""
    n, r = 1.5, 20.0
    perfect = lens("ellipsoid", [(r, n * r / (n - 1), n, -1 / n**2)], 0, 40.0)
    position, direction = beam(12.0)
    traced = trace_one(perfect, position, direction, bucket=bucket)
    distance = np.linalg.norm(traced.position, axis=0)
    assert np.abs(traced.position + distance * traced.direction).max() < 1e-11
    assert np.ptp(traced.path + n * distance) < 1e-10


def test_aplanatic_points_of_a_sphere() -> None:
    """Glass to air at a sphere: the point r n'/n beyond the centre has a sharp virtual image r n/n' beyond it.

    Abbe's sine condition holds at every angle: n sin U / (n' sin U') is the magnification (n / n')².
    """
    n, r = 1.6, 10.0
    object_ = -(r + r / n)  # from the vertex
    image = -(r + r * n)
    front = replace(lens("aplanatic", [(-r, 0.0, 1.0)], 0, 40.0), object_medium=glass(n))
    angle, azimuth = np.linspace(0.01, 0.62, 30), np.linspace(0.0, 6.0, 30)
    sine = np.sin(angle)
    direction = np.stack([sine * np.cos(azimuth), sine * np.sin(azimuth), np.cos(angle)])
    position = np.repeat(np.array([[0.0], [0.0], [object_]]), 30, axis=1)
    traced = trace_one(front, position, direction)
    assert traced.alive.all()
    back = (image - traced.position[2]) / traced.direction[2]
    assert np.abs(traced.position[:2] + back * traced.direction[:2]).max() < 1e-11
    sine_behind = np.hypot(traced.direction[0], traced.direction[1])
    assert np.allclose(n * sine / sine_behind, n**2, rtol=1e-12)
    # Equal optical paths from point to (virtual) point.
    assert np.ptp(traced.path + back) < 1e-12


def reversed_lens(one: Lens) -> Lens:
    """The lens seen from behind; its first surface is the last of the other."""
    media = [one.object_medium, *(s.medium for s in one.surfaces)]
    gaps = [0.0, *(s.thickness for s in one.surfaces[:-1])]
    surfaces = tuple(
        replace(
            s,
            radius=-s.radius,
            aspheric=tuple((p, -a) for p, a in s.aspheric),
            medium=media[i],
            thickness=gaps[i],
        )
        for i, s in reversed(list(enumerate(one.surfaces)))
    )
    return replace(one, surfaces=surfaces, stop=len(one.surfaces) - 1 - one.stop, object_medium=media[-1], states=())


def test_light_goes_back_the_way_it_came(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """A ray turned round behind the lens leaves it in front on the line on which it came, over the same path."""
    lenses = sample_rays.lenses
    items = [(one, D_LINE_NM) for one in lenses]
    there = trace_items(items, sample_rays.position[:, 1], sample_rays.direction[:, 1], sample_rays.path[:, 1])
    flip = np.array([1.0, 1.0, -1.0])[:, None]
    # From the image plane's frame to that of the reversed lens's first vertex, where z runs the other way.
    shift = np.array([one.surfaces[-1].thickness for one in lenses])
    start = there.position.copy()
    start[:, 2] += shift[:, None]
    turned = -there.direction * flip
    back = trace_items(
        [(reversed_lens(one), D_LINE_NM) for one in lenses], start * flip - 20.0 * turned, turned, 0 * there.path
    )
    passes = there.passes
    assert passes.sum() > 40
    assert back.alive[passes].all()
    direction = -back.direction * flip
    assert np.abs(direction - sample_rays.direction[:, 1]).max(axis=1)[passes].max() < 1e-12
    position = back.position * flip
    t = np.sum((position - sample_rays.position[:, 1]) * direction, axis=1)
    offset = position - sample_rays.position[:, 1] - t[:, None] * direction
    assert np.abs(offset).max(axis=1)[passes].max() < 1e-11
    optical = there.path - sample_rays.path[:, 1] - t
    assert np.abs(back.path - 20.0 - optical)[passes].max() < 1e-10


def test_skewness_is_conserved_at_every_surface(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """n (x M − y L) of a ray is the same in every space of a rotationally symmetric lens."""
    items = [(one, D_LINE_NM) for one in sample_rays.lenses]
    position, direction = sample_rays.position[:, 1], sample_rays.direction[:, 1]
    traced = trace_items(items, position, direction, sample_rays.path[:, 1])
    for i, (one, wavelength) in enumerate(items):
        passes = traced.passes[i]
        assert passes.sum() >= 3, one.name
        index = refractive_indices(one, wavelength)
        skewness = position[i, 0] * direction[i, 1] - position[i, 1] * direction[i, 0]
        assert np.abs(skewness[passes]).max() > 1e-3  # skew rays, or the test says nothing
        for k in range(len(one.surfaces) - 1):
            here, there = traced.points[i, k], traced.points[i, k + 1].copy()
            there[2] += one.surfaces[k].thickness
            length = np.linalg.norm(there - here, axis=0)
            apart = passes & (length > 1e-3)
            l, m, _ = np.sign(there[2] - here[2]) * (there - here) / np.where(apart, length, 1.0)
            inside = index[k + 1] * (here[0] * m - here[1] * l)
            assert np.abs(inside - skewness)[apart].max(initial=0.0) < 1e-10, (one.name, k)
        l, m, _ = traced.direction[i]
        behind = index[-1] * (traced.position[i, 0] * m - traced.position[i, 1] * l)
        assert np.abs(behind - skewness)[passes].max() < 1e-12, one.name


def test_directions_stay_unit_vectors(sample_rays) -> None:  # type: ignore[no-untyped-def]
    items = [(one, D_LINE_NM) for one in sample_rays.lenses]
    traced = trace_items(items, sample_rays.position[:, 1], sample_rays.direction[:, 1], sample_rays.path[:, 1])
    # A normal of length 1 takes the slope twice. A compiler that computes it twice, in two ways, has two of an
    # asphere's, whose terms cancel: they differ by some 1e-14.
    deviation = np.abs(np.linalg.norm(traced.direction, axis=1) - 1.0)
    assert np.median(deviation) < 1e-15
    assert deviation.max() < 1e-12


def test_rotation_about_the_axis(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Turn the rays, and the answer turns with them."""
    items = [(one, D_LINE_NM) for one in sample_rays.lenses]
    position, direction, path = sample_rays.position[:, 2], sample_rays.direction[:, 2], sample_rays.path[:, 2]
    upright = trace_items(items, position, direction, path)
    angle = 1.234
    turn = np.array(
        [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]],
    )
    turned = trace_items(items, turn @ position, turn @ direction, path)
    passes = upright.passes
    assert (turned.alive == upright.alive).all()
    for a, b in ((turn @ upright.position, turned.position), (turn @ upright.direction, turned.direction)):
        assert np.abs(a - b).max(axis=1)[passes].max() < 1e-11
    assert np.abs(upright.path - turned.path)[passes].max() < 1e-11


def sphere_series(c: float, conic: float = 0.0, terms: int = 10) -> dict[int, float]:
    """Coefficients of r², r⁴, ... of a conic's sag: c (c² (1 + κ))^(k−1) binom(1/2, k) (−1)^(k−1)."""
    result, binomial = {}, 1.0
    for k in range(1, terms + 1):
        binomial *= (0.5 - (k - 1)) / k
        result[2 * k] = -binomial * (-1.0) ** k * (1 + conic) ** (k - 1) * c ** (2 * k - 1)
    return result


@pytest.mark.parametrize("conic", [0.0, -0.6, 1.5, -3.0])
def test_a_polynomial_that_equals_a_conic_bends_like_it(conic: float) -> None:
    """A plane with the conic's own expansion in even powers, r² included."""
    c = 1 / 50.0
    exact = lens("conic", [(1 / c, 4.0, 1.7, conic), (-60.0, 40.0, 1.0)], 0, 40.0)
    series = lens("series", [(INF, 4.0, 1.7, 0.0, sphere_series(c, conic), 9.0), (-60.0, 40.0, 1.0)], 0, 40.0)
    position, _ = beam(7.0)
    direction = unit(np.stack([0.02 * V, 0.1 + 0.05 * U, np.ones(U.size)]))
    one, other = (trace_one(which, position, direction) for which in (exact, series))
    assert one.alive.all()
    assert other.alive.all()
    for name in ("position", "direction", "path"):
        assert np.abs(getattr(one, name) - getattr(other, name)).max() < 2e-12, name


def test_an_even_term_written_twice_is_the_sum() -> None:
    """Half of the r² and r⁴ terms moved into the base conic changes nothing."""
    c, a4 = 1 / 45.0, 4e-6
    # c r²/(1+√(1−(1+κ)c²r²)) with κ = −1 is the parabola c r²/2 exactly.
    parabola = lens("parabola", [(1 / c, 4.0, 1.6, -1.0, {4: a4}, 15.0), (INF, 80.0, 1.0)], 0, 40.0)
    terms = lens("terms", [(INF, 4.0, 1.6, 0.0, {2: c / 2, 4: a4}, 15.0), (INF, 80.0, 1.0)], 0, 40.0)
    split = lens("split", [(2 / c, 4.0, 1.6, -1.0, {2: c / 4, 4: a4}, 15.0), (INF, 80.0, 1.0)], 0, 40.0)
    position, direction = beam(14.0)
    reference, *others = (trace_one(which, position, direction) for which in (parabola, terms, split))
    for other in others:
        assert np.abs(other.position - reference.position).max() < 1e-12
        assert np.abs(other.direction - reference.direction).max() < 1e-13


def test_a_plane_parallel_plate_shifts_an_image_by_its_thickness_over_n() -> None:
    """Snell's law in closed form: a ray at the angle w comes out parallel, displaced by t sin(w − w') / cos w'."""
    n, t = 1.5168, 7.0
    plate = lens("plate", [(INF, t, n), (INF, 10.0, 1.0)], 0, 100.0)
    w = np.linspace(0.0, 1.4, 15)
    direction = np.stack([0 * w, np.sin(w), np.cos(w)])
    traced = trace_one(plate, np.zeros((3, w.size)), direction)
    inside = np.arcsin(np.sin(w) / n)
    assert np.abs(traced.direction - direction).max() < 1e-14
    straight = traced.position[:2] * 0.0
    straight[1] = t * np.tan(inside)
    assert np.abs(traced.position[:2] - straight).max() < 1e-13
    assert np.abs(traced.path - n * t / np.cos(inside)).max() < 1e-13
