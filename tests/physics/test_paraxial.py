"""First-order optics against closed forms, real rays close to the axis, and the reference collection."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from defocus.glass import constant_index
from defocus.lens.prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, Aperture, Lens
from defocus.optics.paraxial import FirstOrder, ParaxialCamera, blur_and_defocus, heights_and_angles, image_position
from defocus.optics.system import pack, refractive_indices

from . import oracle
from .harness import LARGE, SMALL, first_order_batch, trace_one
from .samples import INF, all_samples, double_gauss, lens

TINY = 1e-6  # mm; the oracle's extended precision leaves 1e-13 of it


def data_of(lenses: list[Lens], wavelength: float = D_LINE_NM) -> list[FirstOrder]:
    """First-order data of up to eight lenses."""
    filled = [*lenses, *[lenses[-1]] * (8 - len(lenses))]
    batch = first_order_batch(pack(filled, wavelength, SMALL))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(len(lenses))]


def circle_of_confusion(one: FirstOrder, depth: jax.Array, focus: jax.Array) -> jax.Array:
    """Signed blur radius (mm) of a point at `depth` on a sensor that is focused on `focus`, both mm."""
    return blur_and_defocus(one, depth, image_position(one, focus))[0]


def conjugate(one: FirstOrder, function, *values: float) -> float:  # type: ignore[no-untyped-def]
    return float(function(one, *(jnp.asarray(v) for v in values)))


@pytest.fixture(scope="module")
def sample_data() -> list[tuple[Lens, FirstOrder]]:
    samples = all_samples()
    return list(zip(samples, data_of(samples), strict=True))


@pytest.fixture(scope="module")
def gauss(sample_data) -> FirstOrder:  # type: ignore[no-untyped-def]
    return sample_data[0][1]


def near_axis(lens: Lens, y: float, slope: float, z: float = 0.0) -> tuple[float, float]:
    """Height at the last vertex and slope behind it of a real ray that crosses z with height y and the given slope."""
    position = np.array([[0.0], [y], [z]])
    direction = np.array([[0.0], [slope], [math.sqrt(1.0 - slope**2)]])
    out = oracle.trace(lens, D_LINE_NM, position, direction, np.zeros(1))
    assert out.alive.all()
    tangent = out.direction[1, 0] / out.direction[2, 0]
    last_vertex = -lens.surfaces[-1].thickness
    return float(out.position[1, 0] + (last_vertex - out.position[2, 0]) * tangent), float(tangent)


@pytest.mark.shared
def test_focal_lengths_of_the_collection(collection, index_rows) -> None:  # type: ignore[no-untyped-def]
    """To 1e-6, and half a unit of the last digit that the index prints."""
    data = first_order_batch(pack(list(collection.values()), bucket=LARGE))
    assert len(collection) == 667
    f_numbers = 0
    for i, row in enumerate(index_rows):
        assert agrees(float(data.focal_length[i]), row["focal_length_mm"]), row["file"]
        f_numbers += agrees(float(data.f_number[i]), row["f_number"])
    # For eight lenses the index repeats the patent's F-number, not the one that their stop gives.
    assert f_numbers >= 659


def agrees(computed: float, printed: str) -> bool:
    half_unit = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return abs(computed - float(printed)) <= 1e-6 * abs(float(printed)) + half_unit * (1 + 1e-9)


def test_thick_lens_by_hand() -> None:
    """The lensmaker's equation of a thick lens, its focal distances and principal planes."""
    n, r1, r2, d = 1.6, 50.0, -80.0, 12.0
    (one,) = data_of([lens("thick", [(r1, d, n), (r2, 70.0, 1.0)], 0, 5.0)])
    f = 1.0 / ((n - 1) * (1 / r1 - 1 / r2 + (n - 1) * d / (n * r1 * r2)))
    assert one.focal_length == pytest.approx(f, rel=1e-14)
    assert one.back_focal_distance == pytest.approx(f * (1 - (n - 1) * d / (n * r1)), rel=1e-14)
    assert one.front_focal_distance == pytest.approx(-f * (1 + (n - 1) * d / (n * r2)), rel=1e-14)
    assert one.rear_principal == pytest.approx(-f * (n - 1) * d / (n * r1), rel=1e-13)
    assert one.front_principal == pytest.approx(-f * (n - 1) * d / (n * r2), rel=1e-13)
    assert one.total_track == pytest.approx(d + 70.0)
    assert one.image_plane == pytest.approx(70.0)
    # The stop is on the first surface: it is its own entrance pupil; its image through the rest is the exit pupil.
    assert one.entrance_pupil == pytest.approx(0.0, abs=1e-14)
    assert one.entrance_pupil_radius == pytest.approx(5.0)
    object_vergence = n / -d + (1 - n) / r2
    assert one.exit_pupil == pytest.approx(1 / object_vergence, rel=1e-13)
    assert one.exit_pupil_radius == pytest.approx(5.0 * abs(n / -d / object_vergence), rel=1e-13)
    assert one.f_number == pytest.approx(f / 10.0)
    to_focus = f * (1 - (n - 1) * d / (n * r1)) - 1 / object_vergence
    assert one.na == pytest.approx(math.sin(math.atan(float(one.exit_pupil_radius) / to_focus)), rel=1e-12)


def test_immersed_lens_by_hand() -> None:
    """One surface between water and glass: f' = n' r / (n' − n), f = −n r / (n' − n), both principal planes on it."""
    n, n_behind, r = 1.333, 1.6, 20.0
    surface = replace(lens("eye", [(r, 100.0, n_behind)], 0, 3.0), object_medium=constant_index(n))
    (one,) = data_of([surface])
    assert one.focal_length == pytest.approx(n_behind * r / (n_behind - n), rel=1e-14)
    assert one.front_focal_distance == pytest.approx(-n * r / (n_behind - n), rel=1e-14)
    assert abs(float(one.front_principal)) < 1e-12
    assert abs(float(one.rear_principal)) < 1e-12
    # n'/s' − n/s = (n' − n)/r with the object at s = −500 mm.
    image = n_behind / ((n_behind - n) / r + n / -500.0)
    assert conjugate(one, image_position, 500.0) == pytest.approx(image, rel=1e-13)


def test_achromat() -> None:
    """A cemented thin doublet with powers V1/(V1 − V2) and −V2/(V1 − V2): equal focal lengths at F and C."""
    from defocus.glass import find_glass

    crown, flint = find_glass("N-BK7"), find_glass("N-F2")
    lines = np.array([F_LINE_NM, D_LINE_NM, C_LINE_NM])
    (f1, d1, c1), (f2, d2, c2) = crown.index(lines), flint.index(lines)
    v1, v2 = (d1 - 1) / (f1 - c1), (d2 - 1) / (f2 - c2)
    focal = 100.0
    phi1, phi2 = v1 / (v1 - v2) / focal, -v2 / (v1 - v2) / focal
    curvature = phi1 / (d1 - 1) / 2  # equiconvex crown
    last = -curvature - phi2 / (d2 - 1)
    doublet = lens(
        "achromat", [(1 / curvature, 0.0, crown), (-1 / curvature, 0.0, flint), (1 / last, 100.0, 1.0)], 0, 5
    )
    at = {w: float(data_of([doublet], w)[0].focal_length) for w in lines}
    assert at[D_LINE_NM] == pytest.approx(focal, rel=1e-6)  # the catalogue's nd is its formula's
    assert at[F_LINE_NM] == pytest.approx(at[C_LINE_NM], rel=1e-12)
    exact = 1 / ((f1 - 1) * 2 * curvature + (f2 - 1) * (-curvature - last))
    assert at[F_LINE_NM] == pytest.approx(exact, rel=1e-12)
    # The secondary spectrum of this classic pair is about f/2000.
    assert 1 / 3000 < (at[F_LINE_NM] - at[D_LINE_NM]) / focal < 1 / 1500


def test_telecentric_lens() -> None:
    """A stop in the front focal plane: the exit pupil is at infinity, NA and blur stay finite."""
    n, r = 1.5, 25.0  # plano-convex, f = 50, flat side to the stop: front focal plane 50 mm in front of it
    # Thickness t of a plane-parallel part moves the front focus by t − t/n.
    t = 3.0
    front = 50.0 - t / n
    telecentric = lens("telecentric", [(INF, front, 1.0), (INF, t, n), (-r, 50.0, 1.0)], 0, 4.0)
    (one,) = data_of([telecentric])
    assert one.focal_length == pytest.approx(50.0, rel=1e-13)
    assert abs(float(one.exit_pupil)) > 1e12
    assert one.na == pytest.approx(math.sin(math.atan(4.0 / 50.0)), rel=1e-12)
    # The marginal ray's slope does not depend on the depth: the blur is slope × distance to the sharp image.
    for depth, focus in ((1000.0, 2000.0), (3000.0, 1000.0), (math.inf, 500.0), (700.0, math.inf)):
        sharp, sensor = (conjugate(one, image_position, d) for d in (depth, focus))
        blur = conjugate(one, circle_of_confusion, depth, focus)
        assert blur == pytest.approx(4.0 / 50.0 * (sensor - sharp), rel=1e-9)
        # Nor does the height of the chief ray depend on the sensor: such a lens does not breathe.
        assert ParaxialCamera(one, sensor, 1.0, 1.0).image_scale == pytest.approx(50.0, rel=1e-9)


def test_focal_points_of_real_rays(sample_data) -> None:  # type: ignore[no-untyped-def]
    """A ray parallel to the axis at height → 0 gives the focal length and the back focal distance."""
    for sample, one in sample_data:
        y, slope = near_axis(sample, TINY, 0.0)
        assert -TINY / slope == pytest.approx(float(one.focal_length), rel=1e-6), sample.name
        assert -y / slope == pytest.approx(float(one.back_focal_distance), rel=1e-6), sample.name
        # Through the front focal point it leaves parallel to the axis, at the height slope · f.
        y, slope = near_axis(sample, 0.0, TINY, float(one.front_focal_distance))
        assert abs(slope) < 1e-6 * TINY, sample.name
        assert y == pytest.approx(TINY * float(one.focal_length), rel=1e-6), sample.name


def test_principal_planes_of_real_rays(sample_data) -> None:  # type: ignore[no-untyped-def]
    """A ray that crosses the front principal plane at some height seems to leave the rear one at the same height."""
    for sample, one in sample_data:
        for slope_in in (0.0, 0.7 * TINY, -TINY):
            y, slope = near_axis(sample, TINY, slope_in, float(one.front_principal))
            assert y + slope * float(one.rear_principal) == pytest.approx(TINY, rel=2e-6), sample.name


def test_pupils_of_real_rays(sample_data) -> None:  # type: ignore[no-untyped-def]
    """Rays close to the axis: through the entrance pupil's centre to the stop's, and on from the exit pupil's."""
    for sample, one in sample_data:
        entrance, exit_ = float(one.entrance_pupil), float(one.exit_pupil)
        stop_radius = sample.aperture.value
        position = np.array([[0.0, 0.0], [0.0, TINY], [entrance, entrance]])
        direction = np.array([[0.0, 0.0], [TINY, 0.0], [1.0, 1.0]])
        out = oracle.trace(sample, D_LINE_NM, position, direction, np.zeros(2))
        at_stop = out.points[sample.stop, 1]
        assert abs(at_stop[0]) < 1e-6 * TINY, sample.name
        # The rim of the entrance pupil is the image of the stop's rim.
        assert abs(at_stop[1] / TINY) == pytest.approx(stop_radius / float(one.entrance_pupil_radius), rel=1e-6)
        slopes = np.asarray(out.direction[1] / out.direction[2], float)
        last_vertex = -sample.surfaces[-1].thickness
        heights = np.asarray(out.position[1] + (last_vertex + exit_ - out.position[2]) * slopes, float)
        assert abs(heights[0]) < 1e-6 * TINY * max(1.0, abs(exit_)), sample.name
        magnification = abs(heights[1] / TINY)
        pupils = float(one.exit_pupil_radius / one.entrance_pupil_radius)
        assert magnification == pytest.approx(pupils, rel=1e-6), sample.name


def test_aperture_definitions() -> None:
    """The same beam, asked for in each way that a prescription knows."""
    base = replace(double_gauss(), object_distance=1000.0)
    (one,) = data_of([base])
    pupil = 2.0 * float(one.entrance_pupil_radius)
    sine = math.sin(math.atan(pupil / 2.0 / (1000.0 + float(one.entrance_pupil))))
    asked = [
        Aperture("entrance_pupil_diameter", pupil),
        Aperture("f_number", float(one.focal_length) / pupil),
        Aperture("object_na", sine),
    ]
    for got in data_of([replace(base, aperture=a) for a in asked]):
        assert got.stop_radius == pytest.approx(base.aperture.value, rel=1e-12)


def test_heights_follow_the_real_ray(sample_data) -> None:  # type: ignore[no-untyped-def]
    """y and ν of a paraxial ray at every surface are those of a real ray close to the axis."""
    for sample, _ in sample_data:
        system = jax.tree.map(lambda leaf: leaf[0], pack([sample], bucket=SMALL))
        y, nu, nu_behind = heights_and_angles(system, jnp.asarray(1.0), jnp.asarray(0.02))
        position = np.array([[0.0], [TINY], [0.0]])
        slope = 0.02 * TINY
        out = oracle.trace(sample, D_LINE_NM, position, np.array([[0.0], [slope], [1.0]]), np.zeros(1))
        count = len(sample.surfaces)
        assert np.allclose(out.points[:, 1, 0] / TINY, np.asarray(y)[:count], rtol=2e-6, atol=1e-7)
        index = refractive_indices(sample, D_LINE_NM)
        last = float(out.direction[1, 0]) / TINY * index[-1]
        assert last == pytest.approx(float(nu_behind[count - 1]), rel=1e-6)
        assert np.allclose(np.asarray(nu)[1:count], np.asarray(nu_behind)[: count - 1])


def test_padding_changes_nothing_paraxial(sample_data) -> None:  # type: ignore[no-untyped-def]
    larger = first_order_batch(pack([sample for sample, _ in sample_data] * 2, bucket=LARGE))
    for i, (sample, one) in enumerate(sample_data):
        for name in one.__dataclass_fields__:
            assert float(getattr(larger, name)[i]) == pytest.approx(float(getattr(one, name)), rel=1e-13), sample.name


# Conjugates and the circle of confusion. The reference is this file's own y–nu trace in numpy.


def trace_paraxial(sample: Lens, y: float, u: float, first: int, last: int) -> tuple[float, float]:
    """Height and slope behind surface `last` of a ray given in front of surface `first`."""
    index = refractive_indices(sample, D_LINE_NM)
    for i in range(first, last + 1):
        s = sample.surfaces[i]
        c = s.curvature + 2.0 * dict(s.aspheric).get(2, 0.0)
        u = (index[i] * u - y * c * (index[i + 1] - index[i])) / index[i + 1]
        if i < last:
            y += u * s.thickness
    return y, u


def paper_blur(sample: Lens, one: FirstOrder, depth: float, focus: float) -> float:
    """R |(d_sensor − d_image) / d_image| with distances from the exit pupil, found by tracing axial rays."""
    entrance = float(one.entrance_pupil)
    last = len(sample.surfaces) - 1

    def image(distance: float) -> float:
        """From the last vertex."""
        if math.isinf(distance):
            y, u = trace_paraxial(sample, 1.0, 0.0, 0, last)
        else:
            u0 = 1.0
            y, u = trace_paraxial(sample, u0 * (distance - entrance), u0, 0, last)
        return -y / u

    # The exit pupil: a ray from the stop's centre. Its radius: the rim of the stop seen by the same rays.
    y, u = trace_paraxial(sample, 0.0, 1.0, sample.stop, last)
    exit_ = -y / u
    y_rim, u_rim = trace_paraxial(sample, sample.aperture.value, 0.0, sample.stop, last)
    radius = abs(y_rim + u_rim * exit_)
    d_sensor, d_image = image(focus) - exit_, image(depth) - exit_
    return radius * abs((d_sensor - d_image) / d_image)


DEPTHS = st.floats(200.0, 1e5) | st.just(math.inf)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(depth=DEPTHS, focus=DEPTHS)
def test_circle_of_confusion_is_the_papers(gauss: FirstOrder, depth: float, focus: float) -> None:
    blur = conjugate(gauss, circle_of_confusion, depth, focus)
    assert abs(blur) == pytest.approx(paper_blur(double_gauss(), gauss, depth, focus), rel=1e-9, abs=1e-12)
    # Beyond the plane in focus: positive; nearer: negative.
    if depth != focus:
        assert math.copysign(1.0, blur) == (1.0 if depth > focus else -1.0) or abs(blur) < 1e-9


def test_infinity_is_allowed(gauss: FirstOrder) -> None:
    focal_point = float(gauss.back_focal_distance)
    assert conjugate(gauss, image_position, math.inf) == focal_point
    assert conjugate(gauss, circle_of_confusion, math.inf, math.inf) == 0.0
    # Far points tend to infinity's blur, and infinity has the largest positive one.
    far, infinity = (conjugate(gauss, circle_of_confusion, d, 1000.0) for d in (1e9, math.inf))
    assert far == pytest.approx(infinity, rel=1e-6)
    assert infinity > far > 0.0


def test_conjugates_of_real_rays(sample_data) -> None:  # type: ignore[no-untyped-def]
    """A real ray from an axial point, close to the axis, crosses it again at the image position."""
    for sample, one in sample_data:
        for depth in (300.0, 5000.0):
            y, slope = near_axis(sample, 0.0, TINY / depth, float(one.entrance_pupil) - depth)
            assert -y / slope == pytest.approx(conjugate(one, image_position, depth), rel=1e-6), sample.name


def chief_ray_scale(lens: Lens, one: FirstOrder, sensor: float) -> float:
    """Height (mm) on a sensor that far behind the last vertex over the tangent before the lens: two real chief rays."""
    rays = [near_axis(lens, 0.0, slope, float(one.entrance_pupil)) for slope in (TINY, -TINY)]
    above, below = (y + slope * sensor for y, slope in rays)
    return (above - below) / (2.0 * TINY)


def test_image_scale_of_real_chief_rays(sample_data) -> None:  # type: ignore[no-untyped-def]
    for sample, one in sample_data:
        camera = ParaxialCamera(one, 0.0, 1.0, 1.0)
        for focus_m in (0.5, 5.0, math.inf):
            focused = camera.focused(focus_m)
            expected = chief_ray_scale(sample, one, float(focused.sensor))
            assert float(focused.image_scale) == pytest.approx(expected, rel=1e-6), sample.name


def test_blur_of_real_rays(gauss: FirstOrder) -> None:
    """Far out of focus the rim of a beam of real rays lies where the circle of confusion says.

    At f/20 the aberrations of the lens are a thousandth of this blur.
    """
    slow = replace(double_gauss(), aperture=Aperture("stop_radius", 0.8))
    (one,) = data_of([slow])
    focus = 600.0
    sensor = conjugate(one, image_position, focus) - float(one.image_plane)
    angle = np.linspace(0.0, 2 * np.pi, 12, endpoint=False)
    for depth in (250.0, 1500.0, 20000.0):
        rim = float(one.entrance_pupil_radius)
        at_pupil = np.stack([rim * np.cos(angle), rim * np.sin(angle), np.full(12, float(one.entrance_pupil))])
        source = np.array([[0.0], [0.0], [float(one.entrance_pupil) - depth]])
        direction = (at_pupil - source) / np.linalg.norm(at_pupil - source, axis=0)
        traced = trace_one(slow, at_pupil - 50.0 * direction, direction)
        t = (sensor - traced.position[2]) / traced.direction[2]
        landed = traced.position[:2] + t * traced.direction[:2]
        blur = conjugate(one, circle_of_confusion, depth, focus)
        assert np.hypot(*landed) == pytest.approx(abs(blur), rel=1e-2)
        # Beyond the plane in focus rays have crossed the axis before the sensor: +y in the pupil lands at −y.
        top = np.argmax(at_pupil[1])
        assert np.sign(landed[1, top]) == -np.sign(blur)
