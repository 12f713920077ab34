"""Sweeps: animations that hold what was put into them, and lenses that breathe."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus import Camera
from defocus.draw import check_sweep_path, write_sweep
from defocus.errors import DefocusError, MissingExtraError
from defocus.lens import load_lens
from defocus.render.distortion import breathing_zooms, find_drawing

WIDTH, HEIGHT = 97, 65


@pytest.fixture
def pictures() -> list[np.ndarray]:
    """Three pictures, each brighter than the last in its right half."""
    ramp = np.linspace(0.1, 0.9, HEIGHT)[:, None] * np.ones((1, WIDTH))
    steps = [np.where(np.arange(WIDTH) < WIDTH // 2, 0.3, level) * np.ones((HEIGHT, 1)) for level in (0.2, 0.5, 0.8)]
    return [np.stack([ramp, step, 1.0 - step], axis=-1) for step in steps]


def decoded_video(path: Path) -> tuple[list[np.ndarray], float]:
    """The pictures of a video, and how long it lasts in seconds."""
    av = pytest.importorskip("av")
    with av.open(path) as container:
        frames = [frame.to_ndarray(format="rgb24") / 255.0 for frame in container.decode(video=0)]
        return frames, container.duration * 1e-6


@pytest.mark.parametrize("kind", ["gif", "webp"])
def test_an_animation_runs_to_the_end_and_back(kind: str, pictures: list[np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / f"sweep.{kind}"
    write_sweep(path, pictures, ["", "", ""], seconds=0.2)
    with Image.open(path) as animation:
        assert (animation.n_frames, animation.size, animation.info["loop"]) == (4, (WIDTH, HEIGHT), 0)
        for number, own in enumerate((0, 1, 2, 1)):
            animation.seek(number)
            shown = np.asarray(animation.convert("RGB")) / 255.0
            assert animation.info["duration"] == 200
            errors = [np.abs(shown - picture).mean() for picture in pictures]
            assert np.argmin(errors) == own
            assert errors[own] < 0.03


@pytest.mark.parametrize("seconds", [0.6, 0.04, 0.02])
def test_a_video_shows_each_picture_for_its_time(seconds: float, pictures: list[np.ndarray], tmp_path: Path) -> None:
    pytest.importorskip("av")
    write_sweep(tmp_path / "sweep.mp4", pictures, ["", "", ""], seconds=seconds)
    frames, duration = decoded_video(tmp_path / "sweep.mp4")
    assert duration == pytest.approx(3 * seconds, abs=1e-3)
    assert len(frames) % 3 == 0
    assert len(frames) / duration > 24.0
    for number, frame in enumerate(frames):
        assert frame.shape == (HEIGHT - 1, WIDTH - 1, 3)  # 4:2:0 has even sides
        own = pictures[number * 3 // len(frames)][: HEIGHT - 1, : WIDTH - 1]
        assert np.abs(frame - own).mean() < 0.02
        assert np.abs(frame.mean((0, 1)) - own.mean((0, 1))).max() < 0.01  # colours are BT.709's, and say so


def test_captions_are_drawn(pictures: list[np.ndarray], tmp_path: Path) -> None:
    write_sweep(tmp_path / "a.png", pictures[:2], ["0.7 m", ""])
    strip = np.asarray(Image.open(tmp_path / "a.png")) / 255.0
    plain = np.round(pictures[0] * 255.0) / 255.0
    assert np.abs(strip[:, :WIDTH] - plain).max() > 0.3
    assert np.abs(strip[:, WIDTH + 6 :] - pictures[1]).max() < 0.01


def test_a_video_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'defocus\[video\]'"):
        check_sweep_path(tmp_path / "a.mp4")
    check_sweep_path(tmp_path / "a.webp")


def test_a_lens_breathes_as_its_chief_rays_do() -> None:
    lens, focus = load_lens("canon-rf-85-f1.2"), (math.inf, 3.0, 1.2)
    cameras = [Camera(lens, focus_m=distance, pixels=(WIDTH, HEIGHT)) for distance in focus]
    zooms = breathing_zooms(cameras, (WIDTH, HEIGHT), bent=False)
    near_axis = np.array([0.02])  # not where the code looks
    scales = []
    for camera in cameras:
        (angle,), (landing,) = camera.chief_rays(near_axis)
        scales.append(landing / math.tan(angle))
    assert zooms[0] == 1.0
    assert zooms[2] > 1.1
    np.testing.assert_allclose(zooms, np.array(scales) / scales[0], rtol=1e-3)
    stopped = [cameras[0].stopped(stop) for stop in (4.0, 8.0)]
    assert breathing_zooms(stopped, (WIDTH, HEIGHT), bent=False) == pytest.approx([1.0, 1.0], abs=1e-3)


def test_breathing_with_distortion_fills_every_frame() -> None:
    """One point of the scene, seen under one angle, lies where the chief ray of each focus lands."""
    lens, size = load_lens("canon-rf-16-f2.8"), (WIDTH, HEIGHT)
    cameras = [Camera(lens, focus_m=distance, pixels=size) for distance in (math.inf, 0.2)]
    zooms = breathing_zooms(cameras, size, bent=True)
    angle = math.radians(30.0)
    places = []
    for camera, zoom in zip(cameras, zooms, strict=True):
        drawing = find_drawing(camera, size, zoom=zoom)
        assert np.isfinite(drawing.source_map).all()
        _, field = camera.field_of_angle(math.degrees(angle))
        landing = field * float(camera.image_radius_mm) / (float(camera.pixel_um) * 1e-3)
        places.append(float(drawing.distortion.rectilinear_px(np.array(landing))))
    assert zooms[1] / zooms[0] > 1.01
    assert abs(places[0] - places[1]) < 0.02  # of the one rectilinear picture


def test_an_enlarged_photograph_has_a_map() -> None:
    camera = Camera(load_lens("leica-summicron-50-f2"), focus_m=2.0, pixels=(WIDTH, HEIGHT))
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    light = np.repeat((0.5 + 0.3 * np.sin(x / 9.0) * np.cos(y / 7.0))[..., None], 3, axis=2)
    depth = np.full((HEIGHT, WIDTH), 2.0)
    options = {"bands": "d", "nodes": (1, 1), "parts": 1, "sensor": False, "method": "disk"}
    photograph = camera.photograph(light, depth, zoom=1.25, **options)
    assert photograph.source_map is not None
    assert photograph.report["zoom"] == 1.25
    assert photograph.report["distortion"] is None
    expected = np.stack([(x - 48.0) / 1.25 + 48.0, (y - 32.0) / 1.25 + 32.0], axis=-1)
    assert np.abs(photograph.source_map - expected).max() < 1e-3
    column, row = np.moveaxis(expected, -1, 0)
    truth = 0.5 + 0.3 * np.sin(column / 9.0) * np.cos(row / 7.0)
    assert np.abs(photograph.blurred.linear[4:-4, 4:-4, 1] - truth[4:-4, 4:-4]).max() < 0.01
    with pytest.raises(DefocusError, match="zoom 0"):
        camera.photograph(light, depth, zoom=0.0, **options)
