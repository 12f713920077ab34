"""Pictures as the lens draws them: where chief rays land, and the map that leads back."""

from __future__ import annotations

import math
from types import SimpleNamespace

import equinox as eqx
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from defocus import Camera
from defocus.errors import DefocusError
from defocus.lens import load_lens
from defocus.optics.pupil import chief_ray_at_angle
from defocus.psf.bands import parse_bands
from defocus.render.distortion import colours_aside, find_distortion, find_drawing

WIDTH, HEIGHT = 241, 161
MIDDLE = np.array([(WIDTH - 1) / 2, (HEIGHT - 1) / 2])


def dots(places: np.ndarray) -> np.ndarray:
    """Light of one soft dot at each place (column, row)."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    light = sum(np.exp(-((x - c) ** 2 + (y - r) ** 2) / (2 * 1.5**2)) for c, r in places)
    return np.repeat(np.asarray(light, np.float32)[..., None], 3, axis=2)


def centroid(light: np.ndarray, near: np.ndarray, reach: int = 7) -> np.ndarray:
    """Column and row about which the light near a place lies."""
    for _ in range(3):
        col, row = np.round(near).astype(int)
        window = light[row - reach : row + reach + 1, col - reach : col + reach + 1, 1].astype(float)
        y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
        near = np.array([col + (window * x).sum() / window.sum(), row + (window * y).sum() / window.sum()])
    return near


def test_a_fisheye_draws_points_where_their_chief_rays_land() -> None:
    camera = Camera(load_lens("canon-ef-15-f2.8-fisheye"), pixels=(WIDTH, HEIGHT))
    grid = np.array([(x, y) for x in (-100.0, -50.0, 0.0, 50.0, 100.0) for y in (-60.0, 0.0, 60.0)])
    drawing = find_drawing(camera, (WIDTH, HEIGHT))
    light = drawing.light(dots(grid + MIDDLE))
    pitch, focal_length = float(camera.pixel_um) * 1e-3, float(camera.first_order.focal_length)
    for x, y in grid:
        radius = math.hypot(x, y)
        _, field = camera.field_of_angle(math.degrees(math.atan(radius * pitch / focal_length)))
        landing = field * float(camera.image_radius_mm) / pitch
        expected = MIDDLE + np.array([x, y]) * (landing / max(radius, 1e-9))
        assert np.abs(centroid(light, expected) - expected).max() < 0.1
        if radius > 100.0:
            assert landing < 0.8 * radius  # barrel, as fisheyes have it
    assert drawing.report["zoom"] == 1.0
    assert light[0, 0].max() == 0.0  # the lens sees past the picture
    assert np.isnan(drawing.source_map[0, 0]).all()
    assert any("beyond the picture" in note for note in drawing.notes)


def test_the_map_leads_from_the_blurred_picture_to_the_sharp_one() -> None:
    camera = Camera(load_lens("canon-rf-16-f2.8"), focus_m=1.5, pixels=(WIDTH, HEIGHT))
    grid = MIDDLE + np.array([(x, y) for x in (-96.0, -48.0, 0.0, 48.0, 96.0) for y in (-60.0, 0.0, 60.0)])
    options = {"bands": "d", "nodes": (5, 5), "parts": 1, "sensor": False, "method": "disk"}
    depth = np.full((HEIGHT, WIDTH), 1.1)
    photograph = camera.photograph(dots(grid), depth, distortion=True, **options)
    assert photograph.source_map is not None
    assert np.isfinite(photograph.source_map).all()  # the frame is filled
    assert photograph.report["distortion"]["corner"] == pytest.approx(-0.21, abs=0.02)
    assert photograph.report["distortion"]["zoom"] == pytest.approx(1.27, abs=0.03)
    distances = np.hypot(*np.moveaxis(photograph.source_map[None] - grid[:, None, None], -1, 0))
    for place, distance in zip(grid, distances, strict=True):
        row, col = np.unravel_index(np.argmin(distance), distance.shape)
        centre = centroid(photograph.blurred.linear, np.array([col, row]))
        back = [map_coordinates(photograph.source_map[..., k], centre[::-1, None], order=1)[0] for k in (0, 1)]
        assert np.abs(back - place).max() < 0.1
    np.testing.assert_array_equal(photograph.sharp.linear, dots(grid))  # the sharp picture stays rectilinear
    plain = camera.photograph(dots(grid), depth, **options)
    assert plain.source_map is None
    assert plain.report["distortion"] is None
    with pytest.raises(DefocusError, match="distortion is that of a whole picture"):
        camera.photograph(dots(grid), depth, distortion=True, patch=(0.0, 0.0))


def test_a_lens_without_distortion_changes_nothing() -> None:
    camera = Camera(load_lens("zeiss-hologon-15-f8"), pixels=(WIDTH, HEIGHT))
    distortion = find_distortion(camera, (WIDTH, HEIGHT))
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    assert np.abs(distortion.source_map((WIDTH, HEIGHT)) - np.stack([x, y], -1)).max() < 0.05


def test_colours_are_drawn_where_their_own_chief_rays_land() -> None:
    """PSFs without any lateral colour leave all of it to the drawing; chief rays by angle, another way than its own."""
    camera = Camera(load_lens("canon-ef-15-f2.8-fisheye"), focus_m=3.0, pixels=(WIDTH, HEIGHT))
    bands = parse_bands("rgb")
    point = np.zeros((3, 5, 5), np.float32)
    point[:, 2, 2] = 1.0
    psfs = SimpleNamespace(bands=bands, at=lambda row, column: [point])
    aside = colours_aside(camera, psfs, 0, (WIDTH, HEIGHT), (3, 5))
    assert aside is not None
    pitch, sensor = float(camera.pixel_um) * 1e-3, float(camera.sensor_z_mm)
    indices = camera.optics.indices(bands.every_nm)
    for x, y in ((40, 20), (75, -45), (100, 0)):
        (angle,), _ = camera.chief_rays(np.array([math.hypot(x, y) * pitch / float(camera.image_radius_mm)]))
        systems = [eqx.tree_at(lambda s: s.index, camera.optics.system, index) for index in indices]
        red, _, blue = (float(chief_ray_at_angle(s, float(angle), sensor).image_height) for s in systems)
        vector = (aside[0] - aside[2])[:, HEIGHT // 2 + y, WIDTH // 2 + x]
        expected = (red - blue) / pitch * np.array([x, y]) / math.hypot(x, y)
        assert np.abs(vector - expected).max() < 2e-3
    assert abs(red - blue) / pitch > 0.01
