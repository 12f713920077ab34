"""Chief rays and bundles: found from the inside out, judged from the outside in."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus.errors import TraceError
from defocus.glass import constant_index
from defocus.lens.prescription import D_LINE_NM, Field, Lens
from defocus.optics.pupil import chief_ray, find_bundle, image_radius_of, launch, vergence_of
from defocus.optics.system import pack, pack_one
from defocus.stored_program import QUICK

from . import oracle
from .conftest import FIELDS, pupil_points
from .harness import LARGE, PLAIN, RAYS, SMALL, image_points, trace_items
from .samples import INF, double_gauss, fisheye, lens

SAMPLES = 17  # rays across a bundle


def check_chief_rays(launched) -> int:  # type: ignore[no-untyped-def]
    """Trace chief rays from object space: they must cross the stop's centre and land where they were asked to."""
    chief = launched.chief
    position, direction = (np.moveaxis(getattr(chief, name), 1, 2) for name in ("position", "direction"))
    items = [(one, D_LINE_NM) for one in launched.lenses]
    traced = trace_items(items, position, direction, np.zeros(position[:, 0].shape), bucket=LARGE)
    target = np.array([one.image_radius for one in launched.lenses])[:, None] * np.array(FIELDS)
    found = chief.found
    assert traced.alive[found].all()
    assert np.hypot(traced.stop_position[:, 0], traced.stop_position[:, 1])[found].max() < 1e-6
    landed = image_points(traced)
    assert np.abs(landed[:, 0])[found].max() < 1e-12  # in the meridian
    assert np.abs(landed[:, 1] - target)[found].max() < 1e-6
    assert np.abs(chief.image_height - target)[found].max() < 1e-6
    assert np.allclose(np.arctan2(np.abs(direction[:, 1]), direction[:, 2])[found], chief.angle[found], atol=1e-12)
    # On the first surface, so that nothing lies between the ray's point and the lens.
    assert np.abs(traced.points[:, 0] - position).max(axis=1)[found].max() < 1e-9
    # What was not found cannot be reached: the product says how far it gets.
    assert (chief.reach < target)[~found].all()
    return int(found.sum())


def test_chief_rays_of_the_samples(sample_rays) -> None:  # type: ignore[no-untyped-def]
    assert check_chief_rays(sample_rays) == 15


@pytest.mark.shared
def test_chief_rays_of_the_collection(selection_rays) -> None:  # type: ignore[no-untyped-def]
    found = check_chief_rays(selection_rays)
    assert found >= 0.9 * selection_rays.chief.found.size


def from_the_stop(one: Lens, sine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Image heights of rays that leave the stop's centre (plane stop in air) under the given sines, and who lives.

    Both halves of the lens are traced by the oracle: forwards, and mirrored towards the object.
    """
    stop = replace(one.surfaces[one.stop], semi_diameter=None)
    direction = np.stack([0 * sine, sine, np.sqrt(1 - sine**2)])
    media = [one.object_medium, *(s.medium for s in one.surfaces)]
    gaps = [0.0, *(s.thickness for s in one.surfaces)]
    ahead = [
        replace(s, radius=-s.radius, aspheric=tuple((p, -a) for p, a in s.aspheric), medium=media[i], thickness=gaps[i])
        for i, s in reversed(list(enumerate(one.surfaces[: one.stop])))
    ]
    halves = []
    for surfaces in (
        (stop, *one.surfaces[one.stop + 1 :]),
        (replace(stop, thickness=gaps[one.stop], medium=media[one.stop]), *ahead),
    ):
        half = replace(one, surfaces=surfaces, stop=0, object_medium=surfaces[0].medium, states=())
        halves.append(oracle.trace(half, D_LINE_NM, np.zeros_like(direction), direction, np.zeros(sine.size)))
    forwards, backwards = halves
    return np.asarray(forwards.at_plane()[1], float), forwards.alive & backwards.alive


@pytest.mark.shared
def test_a_height_is_found_exactly_when_a_ray_reaches_it(collection, launch_rays) -> None:  # type: ignore[no-untyped-def]
    """Phone lenses whose stated image circle is, or is not, within reach: the oracle scans the rays of the stop."""
    names = [
        f"phone/phone-{name}.json"
        for name in (
            "us20180143405a1",
            "us-12416791-b2-e2",
            "us9651759b2",
            "us-11966029-b2-e5",
            "us9810880b2",
            "us-10101561-b2-e3",
            "us-11846759-b2-e1",
            "us20170045714a1",
        )
    ]
    launched = launch_rays([collection[name] for name in names], names)
    sine = np.linspace(0.0, 0.95, 191)
    for i, one in enumerate(launched.lenses):
        heights, lives = from_the_stop(one, sine)
        contiguous = np.cumprod(lives).astype(bool)
        reach = np.abs(heights[contiguous]).max()
        for k, fraction in enumerate(FIELDS):
            target = fraction * one.image_radius
            if reach > 1.01 * target:
                assert launched.chief.found[i, k], (names[i], target, reach)
            elif reach < 0.97 * target:
                assert not launched.chief.found[i, k], (names[i], target, reach)
                # The product's search is finer than this scan: it may follow the last living rays further out.
                assert 0.99 * reach < launched.chief.reach[i, k] < target, names[i]


@pytest.fixture(scope="module")
def by_angle():  # type: ignore[no-untyped-def]
    find = jax.jit(jax.vmap(lambda system, angle: chief_ray(system, angle, "angle")), compiler_options=QUICK)

    def run(lenses: list[Lens], angles: list[float]):  # type: ignore[no-untyped-def]
        fill = [min(i, len(lenses) - 1) for i in range(8)]
        return find(pack([lenses[i] for i in fill], bucket=PLAIN), jnp.array([angles[i] for i in fill]))

    return run


def test_chief_ray_by_angle(by_angle, sample_rays) -> None:  # type: ignore[no-untyped-def]
    """The angle that an image height gave, asked for as an angle, gives the height back."""
    numbers = [sample_rays.names.index(name) for name in ("double Gauss", "fisheye")]
    lenses = [sample_rays.lenses[i] for i in numbers]
    asked = [float(sample_rays.chief.angle[i, 1]) for i in numbers]
    chief = by_angle(lenses, asked)
    for i, one in enumerate(lenses):
        assert bool(chief.found[i])
        assert float(chief.image_height[i]) == pytest.approx(0.7 * one.image_radius, abs=2e-6)
        assert float(chief.angle[i]) == pytest.approx(asked[i], abs=1e-9)


def test_fisheye_sees_the_horizon(by_angle) -> None:  # type: ignore[no-untyped-def]
    """Rays that come in at 85° to 92° cross the stop's centre, though no plane image could hold them."""
    degrees = [85.0, 89.0, 90.0, 91.0, 92.0]
    chief = by_angle([fisheye()] * 5, [math.radians(d) for d in degrees])
    heights = np.asarray(chief.image_height)[:5]
    for i, d in enumerate(degrees):
        assert bool(chief.found[i]), d
        position, direction = (np.asarray(v)[i][:, None] for v in (chief.position, chief.direction))
        assert math.degrees(math.atan2(abs(direction[1, 0]), direction[2, 0])) == pytest.approx(d, abs=1e-6)
        truth = oracle.trace(fisheye(), D_LINE_NM, position, direction, np.zeros(1))
        assert truth.alive.all()
        assert np.abs(truth.points[8, :2, 0]).max() < 1e-6
        assert float(truth.at_plane()[1, 0]) == pytest.approx(heights[i], abs=1e-6)
    assert (np.diff(heights) > 0).all()


def test_a_field_out_of_reach(by_angle) -> None:  # type: ignore[no-untyped-def]
    """A double Gauss does not see 80°: not found, and the reach is that of the steepest ray that lives."""
    chief = by_angle([double_gauss()], [math.radians(80.0)])
    assert not bool(chief.found[0])
    assert math.radians(25.0) < float(chief.reach[0]) < math.radians(80.0)


def test_field_definitions_agree() -> None:
    """A field given as an angle, as an image height or as an object height: the same image radius."""
    base = double_gauss()
    system = pack_one(base)
    find = jax.jit(lambda system, height: chief_ray(system, height, "image_height").angle, compiler_options=QUICK)
    angle = float(find(system, jnp.array(21.63)))
    by_angle = replace(base, image_radius=None, field=Field("angle_deg", ((0.0, math.degrees(angle)),)))
    assert image_radius_of(by_angle, system) == pytest.approx(21.63, abs=1e-5)
    steep = replace(base, image_radius=None, field=Field("angle_deg", ((0.0, 80.0),)))
    with pytest.raises(TraceError, match="80"):
        image_radius_of(steep, system)
    by_height = replace(base, image_radius=None, field=Field("real_image_height", ((3.0, 4.0),)))
    assert image_radius_of(by_height, system) == pytest.approx(5.0)
    near = replace(base, image_radius=None, object_distance=1000.0, field=Field("object_height", ((0.0, 100.0),)))
    position = np.array([[0.0], [100e-6], [-1000.0]])  # a near-axis ray from a point of the object
    truth = oracle.trace(near, D_LINE_NM, position, np.array([[0.0], [-1e-7], [1.0]]), np.zeros(1))
    slope = truth.direction[1, 0] / truth.direction[2, 0]
    second = oracle.trace(near, D_LINE_NM, position, np.array([[0.0], [-2e-7], [1.0]]), np.zeros(1))
    slope_2 = second.direction[1, 0] / second.direction[2, 0]
    # Where the two rays of one object point meet is its image.
    y, y_2 = truth.at_plane()[1, 0], second.at_plane()[1, 0]
    height = y + slope * -(y_2 - y) / (slope_2 - slope)
    assert image_radius_of(near, system) == pytest.approx(abs(float(height)) * 1e6, rel=1e-6)


def chief_of(sample_rays, i: int, field: int) -> SimpleNamespace:  # type: ignore[no-untyped-def]
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[i, field]), sample_rays.chief)


def test_launched_rays_come_from_one_point(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Their lines meet in the object point, and their paths differ by their distances from it."""
    chief = chief_of(sample_rays, 0, 2)
    x, y = jnp.linspace(-9.0, 9.0, 7), jnp.array([0.0, 3.0, -8.0, 5.0, 1.0, -2.0, 7.0])
    vergence = vergence_of(chief, 800.0)
    rays = launch(chief, x, y, vergence)
    source = np.asarray(chief.position) - np.asarray(chief.direction) / float(vergence)
    assert source[2] == pytest.approx(-800.0, abs=1e-9)
    separation = np.asarray(rays.position) - source[:, None]
    distance = np.linalg.norm(separation, axis=0)
    assert np.abs(np.asarray(rays.direction) - separation / distance).max() < 1e-13
    assert np.abs(np.asarray(rays.path) - (distance - 1 / float(vergence))).max() < 1e-10
    # The grid lies in the plane normal to the chief ray; x sagittal, y meridional.
    offset = np.asarray(rays.position) - np.asarray(chief.position)[:, None]
    assert np.abs(np.asarray(chief.direction) @ offset).max() < 1e-13
    assert np.allclose(offset[0], x)
    assert np.allclose(np.linalg.norm(offset, axis=0), np.hypot(x, y))
    # From infinity: parallel rays, a plane wavefront.
    plane = launch(chief, x, y)
    assert float(vergence_of(chief, math.inf)) == 0.0
    assert np.abs(np.asarray(plane.direction) - np.asarray(chief.direction)[:, None]).max() < 1e-14
    assert not np.asarray(plane.path).any()


@pytest.fixture(scope="module")
def bundles():  # type: ignore[no-untyped-def]
    """`find_bundle` for eight lenses at once, around given chief rays."""
    find = jax.jit(jax.vmap(lambda s, c, v: find_bundle(s, c, v, samples=SAMPLES)), compiler_options=QUICK)

    def run(lenses: list[Lens], chiefs: list, vergence: float = 0.0):  # type: ignore[no-untyped-def]
        fill = [min(i, len(lenses) - 1) for i in range(8)]
        chief = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(chiefs[i] for i in fill))
        return find(pack([lenses[i] for i in fill], bucket=SMALL), chief, jnp.full(8, vergence))

    return run


BRUTE = 81


def test_the_bundle_holds_every_ray_that_passes(bundles, sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Against a dense grid three times as wide: nothing passes outside the rectangle, and it is tight to two cells."""
    cases = [(0, 0), (0, 2), (1, 0), (1, 1), (2, 2), (3, 1), (3, 2), (4, 1)]
    lenses = [sample_rays.lenses[i] for i, _ in cases]
    chiefs = [chief_of(sample_rays, i, k) for i, k in cases]
    bundle = bundles(lenses, chiefs)
    centre, half = np.asarray(bundle.centre), np.asarray(bundle.half)
    g = np.linspace(-3.0, 3.0, BRUTE)
    u, v = (w.ravel() for w in np.meshgrid(g, g))
    x, y = (centre[:, k : k + 1] + half[:, k : k + 1] * w for k, w in ((0, u), (1, v)))
    rays = [launch(chief, jnp.asarray(x[i]), jnp.asarray(y[i])) for i, chief in enumerate(chiefs)]
    stacked = [np.stack([getattr(r, name) for r in rays]) for name in ("position", "direction", "path")]
    items = [(one, D_LINE_NM) for one in lenses]
    passes = np.concatenate(
        [trace_items(items, *(v[..., k : k + RAYS] for v in stacked)).passes for k in range(0, BRUTE**2, RAYS)], axis=1
    )
    spacing, cell = 6.0 / (BRUTE - 1), 2.0 / (SAMPLES - 1)
    for i, (which, field) in enumerate(cases):
        label = (sample_rays.names[which], field)
        assert bool(bundle.found[i]), label
        assert passes[i].sum() > 100, label
        for w in (u, v):
            lowest, highest = w[passes[i]].min(), w[passes[i]].max()
            assert lowest + 1e-12 >= -1.0, label
            assert highest - 1e-12 <= 1.0, label
            assert lowest < -1.0 + 2 * cell + spacing, label
            assert highest > 1.0 - 2 * cell - spacing, label
        # The grid that comes back is the right half of the rectangle, traced.
        for k, (values, left) in enumerate(((bundle.x, 0.0), (bundle.y, -1.0))):
            reached = (np.asarray(values)[i] - centre[i, k]) / half[i, k]
            assert 1.0 - cell < reached.max() <= 1.0 + 1e-12, label
            assert left - 1e-12 <= reached.min() < left + cell, label
        weight = np.asarray(bundle.weight)[i]
        assert weight.sum() == SAMPLES**2, label
        inside = np.average(np.asarray(bundle.traced.passes)[i], weights=weight)
        outside = passes[i].sum() * spacing**2 / 4.0
        assert inside == pytest.approx(outside, abs=0.12), label


def test_no_light_is_no_bundle(bundles, sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Pinholes on the first and the last surface: light along the axis, none from the edge of the field."""
    shut = double_gauss().with_semi_diameters({0: 1.0, 10: 1.0})
    bundle = bundles([shut, shut], [chief_of(sample_rays, 0, 2), chief_of(sample_rays, 0, 0)])
    assert np.asarray(bundle.found)[:2].tolist() == [False, True]
    assert not np.asarray(bundle.traced.passes[0]).any()


def test_optical_paths_of_a_near_object_in_water(bundles, by_angle) -> None:  # type: ignore[no-untyped-def]
    """Nothing refracts in a lens of water in water: each path is n times the distance from the object point."""
    n = 1.333
    water = replace(lens("water", [(INF, 3.0, n), (INF, 10.0, n)], 0, 2.0), object_medium=constant_index(n))
    chief = jax.tree.map(lambda leaf: leaf[0], by_angle([water], [0.0]))
    distance = 50.0
    bundle = bundles([water], [chief], 1.0 / distance)
    traced = bundle.traced
    start = np.stack([np.asarray(bundle.x[0]), np.asarray(bundle.y[0]), 0 * np.asarray(bundle.x[0])])
    end = np.asarray(traced.position[0]) + np.array([0.0, 0.0, 13.0])[:, None]  # frame of the first vertex
    source = np.array([0.0, 0.0, -distance])[:, None]
    assert np.allclose(np.cross((start - source).T, (end - source).T), 0.0, atol=1e-9)
    expected = n * (np.linalg.norm(end - source, axis=0) - distance)
    alive = np.asarray(traced.alive[0])
    assert np.abs(np.asarray(traced.path[0]) - expected)[alive].max() < 1e-10


def test_pupil_half_widths(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """To first order, the ray half a width away from the chief ray meets the rim of the stop."""
    u, v = pupil_points()
    step = 1e-5
    for i, one in enumerate(sample_rays.lenses):
        chief = chief_of(sample_rays, i, 1)
        # The fixture's rays lie at (half₀ u, half₁ v) on the plane normal to the chief ray.
        offset = sample_rays.position[i, 1] - np.asarray(chief.position)[:, None]
        across = np.linalg.norm(offset[1:], axis=0)
        half = np.array([np.max(np.abs(offset[0])) / np.max(np.abs(u)), np.max(across) / np.max(np.abs(v))])
        rays = launch(chief, step * half[0] * jnp.array([0.0, 1.0, 0.0]), step * half[1] * jnp.array([0.0, 0.0, 1.0]))
        truth = oracle.trace(one, D_LINE_NM, *(np.asarray(w) for w in (rays.position, rays.direction, rays.path)))
        at = truth.points[one.stop, :2]
        moved = np.linalg.norm(at[:, 1:] - at[:, :1], axis=0) / step
        assert moved == pytest.approx(one.aperture.value, rel=2e-3), one.name


def test_chief_rays_travel_towards_their_image(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """A field whose image lies at +y is below the axis in object space: its light travels towards +y."""
    assert (sample_rays.chief.direction[:, 1:, 1] > 0).all()
    assert (sample_rays.chief.image_height[:, 1:] > 0).all()
