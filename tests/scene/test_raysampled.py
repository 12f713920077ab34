"""The ray-sampled truth, against closed forms: blur size and orientation, visibility, hidden surfaces, exact depth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from defocus.errors import DefocusError
from defocus.scene.raysampled import BITS, _sobol, disc, pinhole_picture, polygon, ray_sampled
from defocus.scene.shapes import Backdrop, Ball, Card
from defocus.scene.thin_lens import PinholeView, ThinLens, circle_of_confusion_px, near_depth_edge

VIEW = PinholeView(64, 48, 300.0)
LENS = ThinLens(20.0, 1.0)


def plain(colour: tuple[float, float, float]):
    return lambda grid: np.broadcast_to(np.array(colour), (len(grid.v), len(grid.u), 3))


def sheet(depth_m: float, colour=(0.5, 0.5, 0.5), *, left_m: float | None = None, paint=None) -> Card:
    """A sheet that fills the picture, or its part to the right of `left_m`."""
    wide = 0.8 * depth_m
    centre = 0.0 if left_m is None else left_m + wide / 2
    return Card.make((centre, 0.0, depth_m), (wide, wide), depth_m / 300.0, 1, paint or plain(colour))


def spot(depth_m: float, x_px: float = 0.0, y_px: float = 0.0, radius_px: float = 1.5) -> Card:
    """A black sheet with a bright dot, given in pixels of the picture, y upwards."""
    px = depth_m / VIEW.focal_px

    def paint(grid):
        inside = np.hypot(grid.columns - x_px * px, grid.rows - y_px * px) < radius_px * px
        return np.repeat(100.0 * inside[..., None], 3, axis=2)

    return Card.make((0.0, 0.0, depth_m), (0.6 * depth_m, 0.6 * depth_m), px / 4, 1, paint)


def moments(picture: np.ndarray) -> tuple[float, float, float, float]:
    """Total, mean column, mean row upwards (from the picture's middle), rms radius."""
    light = picture[..., 0].astype(np.float64)
    y, x = np.mgrid[: light.shape[0], : light.shape[1]]
    x, y = x - (light.shape[1] - 1) / 2, (light.shape[0] - 1) / 2 - y
    total = light.sum()
    mx, my = (light * x).sum() / total, (light * y).sum() / total
    return total, mx, my, math.sqrt((light * ((x - mx) ** 2 + (y - my) ** 2)).sum() / total)


@pytest.mark.parametrize("depth_m", [0.6, 2.5])
def test_blur_of_a_point_is_the_circle_of_confusion(depth_m: float) -> None:
    scene = [spot(depth_m, 5.0, -3.0)]
    sharp = pinhole_picture(scene, VIEW, 256).linear
    blurred = ray_sampled(scene, VIEW, LENS)
    coc = circle_of_confusion_px(depth_m, 1.0, 20.0, VIEW.focal_px)
    assert math.copysign(1.0, coc) == (1.0 if depth_m > 1.0 else -1.0)
    total, x, y, spread = moments(blurred)
    sharp_total, sharp_x, sharp_y, sharp_spread = moments(sharp)
    assert total == pytest.approx(sharp_total, rel=0.01)
    assert (x, y) == pytest.approx((5.0, -3.0), abs=0.03)
    assert (sharp_x, sharp_y) == pytest.approx((5.0, -3.0), abs=0.03)
    # A disc of radius c has rms radius c / √2; the dot's own spread adds in squares.
    assert spread**2 - sharp_spread**2 == pytest.approx(coc**2 / 2.0, rel=0.01)


def test_pupil_stands_upright_behind_the_focus_and_upside_down_before_it() -> None:
    triangle = polygon(512, 3, 90.0)
    near = ray_sampled([spot(0.6)], VIEW, LENS, triangle)[..., 0] > 0.0
    far = ray_sampled([spot(0.6)], VIEW, ThinLens(20.0, 0.4), triangle)[..., 0] > 0.0
    corner = math.sqrt(4.0 * math.pi / (3.0 * math.sqrt(3.0)))  # of a triangle with the area π
    for lit, focus_m, above, below in ((near, 1.0, corner, corner / 2), (far, 0.4, corner / 2, corner)):
        rows = (VIEW.height - 1) / 2 - np.flatnonzero(lit.any(axis=1))
        radius = abs(circle_of_confusion_px(0.6, focus_m, 20.0, VIEW.focal_px))
        assert rows[0] == pytest.approx(above * radius + 1.5, abs=1.2)
        assert -rows[-1] == pytest.approx(below * radius + 1.5, abs=1.2)


@pytest.mark.parametrize("blades", [None, 5, 6])
def test_pupil_points_are_centred_and_have_the_area_of_the_disc(blades: int | None) -> None:
    points = disc(1000) if blades is None else polygon(1000, blades, 12.0)
    assert points.shape == (1000, 2)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=5e-3)
    # A regular polygon with corners at R: second moments R² (2 + cos 2π/n) / 12, area n R² sin(2π/n) / 2.
    turn = 2.0 * math.pi / (blades or 1e6)
    corner2 = turn / math.sin(turn)
    np.testing.assert_allclose((points**2).mean(axis=0), corner2 * (2.0 + math.cos(turn)) / 12.0, rtol=0.01)
    assert np.hypot(*points.T).max() <= math.sqrt(corner2)


def edge_spread(x: np.ndarray, radius: float) -> np.ndarray:
    """Share of a disc's area to the left of x."""
    t = np.clip(x / radius, -1.0, 1.0)
    return 0.5 + (t * np.sqrt(1.0 - t * t) + np.arcsin(t)) / math.pi


def test_blurred_edge_before_a_plain_wall() -> None:
    near = 0.6
    scene = [sheet(near, (1.0, 0.2, 0.0), left_m=0.0), sheet(3.0, (0.1, 0.6, 0.3))]
    picture = ray_sampled(scene, PinholeView(64, 1, 300.0), LENS, disc(8192))
    coc = abs(circle_of_confusion_px(near, 1.0, 20.0, VIEW.focal_px))
    # The mean over the pixel's width too: the edge stands between two pixel columns.
    x = np.arange(VIEW.width)[:, None] - (VIEW.width - 1) / 2 + np.linspace(-0.475, 0.475, 20)
    share = edge_spread(x, coc).mean(axis=1)
    expected = share[:, None] * [1.0, 0.2, 0.0] + (1.0 - share[:, None]) * [0.1, 0.6, 0.3]
    np.testing.assert_allclose(picture[0], expected, atol=2e-3)


def test_an_edge_in_focus_hides_what_is_blurred_behind_it() -> None:
    scene = [sheet(1.0, (0.0, 0.0, 1.0), left_m=0.0), spot(3.0, 0.0, 0.0, 3.0)]
    picture = ray_sampled(scene, VIEW, LENS, disc(256))
    np.testing.assert_array_equal(picture[:, 33:], np.broadcast_to([0.0, 0.0, 1.0], (48, 31, 3)).astype(np.float32))
    # Left of the edge the wall is seen through the whole pupil: the disc is cut, not dimmed.
    alone = ray_sampled([spot(3.0, 0.0, 0.0, 3.0)], VIEW, LENS, disc(256))
    np.testing.assert_allclose(picture[:, :31], alone[:, :31], atol=1e-6)


def test_a_plane_in_focus_stays_sharp_and_a_plain_one_plain() -> None:
    def paint(grid):
        return 0.5 + 0.4 * np.sin(400.0 * grid.columns + [0.0])[..., None] * np.sin(300.0 * grid.rows)[
            ..., None
        ] * np.ones(3)

    scene = [sheet(1.0, paint=paint)]
    np.testing.assert_allclose(
        ray_sampled(scene, VIEW, LENS, disc(256)), pinhole_picture(scene, VIEW, 256).linear, atol=2e-3
    )
    plain_scene = [sheet(0.7, (0.3, 0.3, 0.3), left_m=0.0), Backdrop.make((0.5, 0.5), 0.01, 1, plain((0.3, 0.3, 0.3)))]
    np.testing.assert_allclose(ray_sampled(plain_scene, VIEW, LENS, disc(64)), 0.3, rtol=1e-6)


def test_depth_of_planes_balls_and_infinity_is_exact() -> None:
    tilt = math.radians(40.0)
    slanted = Card.make(
        (0.0, 0.0, 1.5), (3.0, 0.2), 0.01, 1, plain((1, 1, 1)), right=(math.cos(tilt), 0.0, math.sin(tilt))
    )
    ball = Ball.make((0.02, 0.09, 1.2), 0.03, 0.01, lambda n: np.ones((*n.shape[1:], 3)))
    sky = Backdrop.make((0.5, 0.5), 0.01, 1, plain((0, 0, 0)))
    view = PinholeView(64, 96, 300.0)
    seen = pinhole_picture([slanted, ball, sky], view, 1)
    x = ((np.arange(64) - 31.5) / 300.0)[None, :].astype(np.float64)
    y = ((47.5 - np.arange(96)) / 300.0)[:, None].astype(np.float64)
    plane = np.broadcast_to(1.5 / (1.0 - x * math.tan(tilt)), (96, 64))
    c = np.array([0.02, 0.09, 1.2])
    b = c[0] * x + c[1] * y + c[2]
    a = x * x + y * y + 1.0
    inside = b * b - a * (c @ c - 0.03**2)
    front = (b - np.sqrt(np.maximum(inside, 0.0))) / a
    on_ball, on_plane = seen.surface == 1, seen.surface == 0
    assert on_ball.sum() > 100
    assert on_plane.sum() > 1000
    np.testing.assert_allclose(seen.depth_m[on_ball], front[on_ball], rtol=2e-6)
    np.testing.assert_allclose(seen.depth_m[on_plane], plane[on_plane], rtol=2e-6)
    assert np.all(np.isposinf(seen.depth_m[seen.surface == 2]))
    assert abs(int(on_ball.sum()) - int((inside > 0.0).sum())) <= 1


def test_hidden_surface_is_what_remains_without_the_first() -> None:
    front = sheet(0.6, (1.0, 0.0, 0.0), left_m=0.0)
    middle, back = sheet(1.0, (0.0, 1.0, 0.0), left_m=-0.05), sheet(2.0, (0.0, 0.0, 1.0))
    hidden = pinhole_picture([back, front, middle], VIEW, hidden=True)
    without = pinhole_picture([back, middle], VIEW)
    behind_front = np.s_[:, 33:]
    np.testing.assert_allclose(hidden.linear[behind_front], without.linear[behind_front], atol=1e-6)
    np.testing.assert_allclose(hidden.depth_m[behind_front], 1.0)
    behind_middle = np.s_[:, 18:31]
    np.testing.assert_allclose(hidden.depth_m[behind_middle], 2.0)
    assert not hidden.valid[:, :16].any()  # nothing is behind the last sheet
    assert np.isnan(hidden.depth_m[:, :16]).all()


def test_near_depth_edge_reaches_one_circle_of_confusion() -> None:
    coc = np.where(np.arange(64)[None, :] < 32, -6.0, 2.0) * np.ones((48, 1))
    near = near_depth_edge(coc)
    columns = np.flatnonzero(near[20])
    # The pixels of the edge are 31 and 32; 6 px from them, and one for the pixel.
    assert (columns[0], columns[-1]) == (24, 39)
    assert not near_depth_edge(np.linspace(-5.0, 5.0, 64)[None, :] * np.ones((48, 1))).any()
    dot = np.zeros((48, 64))
    dot[24, 32] = 5.0
    rows, columns = np.nonzero(near_depth_edge(dot))
    assert np.hypot(rows - 24, columns - 32).max() == pytest.approx(7.2, abs=0.9)


def test_infinite_focus_and_infinite_depth_agree() -> None:
    def paint(grid):
        return np.repeat((np.hypot(grid.columns, grid.rows) < 0.01)[..., None] * 5.0, 3, axis=2)

    scene = [Backdrop.make((0.5, 0.5), 0.001, 1, paint)]
    sharp = pinhole_picture(scene, VIEW, 256).linear
    np.testing.assert_allclose(ray_sampled(scene, VIEW, ThinLens(20.0, math.inf), disc(256)), sharp, atol=1e-5)
    assert circle_of_confusion_px(math.inf, math.inf, 20.0, 300.0) == 0.0
    assert circle_of_confusion_px(np.inf, 2.0, 20.0, 300.0) == pytest.approx(3.0)


def test_a_ray_that_meets_nothing_is_an_error() -> None:
    with pytest.raises(DefocusError, match="meets no surface: give the scene a backdrop"):
        pinhole_picture([sheet(1.0, left_m=0.0)], VIEW)
    with pytest.raises(DefocusError, match="at least one"):
        ray_sampled([sheet(1.0)], VIEW, LENS, np.zeros((0, 2)))
    with pytest.raises(DefocusError, match=r"focus distance -1\.0 m"):
        ThinLens(10.0, -1.0)


@pytest.mark.parametrize("count", [1, 100, 1024])
def test_sobols_numbers_are_those_of_scipy(count: int) -> None:
    from scipy.stats import qmc

    points = qmc.Sobol(4, scramble=False, bits=BITS).random_base2(math.ceil(math.log2(count)))[:count]
    np.testing.assert_array_equal(_sobol(count), points * 2.0**BITS)
