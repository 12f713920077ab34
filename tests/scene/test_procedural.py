"""The named scenes: complete, deterministic, the same at every size, with known hidden surfaces; their command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from defocus.cli import run
from defocus.errors import DefocusError
from defocus.scene.depth_files import read_depth
from defocus.scene.fractal_noise import Grid, fractal
from defocus.scene.procedural import SCENES, make_scene
from defocus.scene.raysampled import disc
from defocus.scene.thin_lens import ThinLens, near_depth_edge

SIZE = (72, 48)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10.0 * np.log10(np.mean((np.clip(a, 0.0, 1.0) - np.clip(b, 0.0, 1.0)) ** 2)))


def test_there_are_at_least_eight() -> None:
    assert len(SCENES) >= 8


@pytest.mark.parametrize("name", SCENES)
def test_scene_is_complete(name: str) -> None:
    scene = make_scene(name, SIZE, 3)
    seen = scene.picture(samples=4, margin_px=8)  # the surfaces reach beyond the frame
    assert seen.linear.shape == (64, 88, 3)
    assert seen.linear.dtype == np.float32
    assert np.all(np.isfinite(seen.linear) & (seen.linear >= 0.0))
    assert 0.05 < np.clip(seen.linear, 0.0, 1.0).mean() < 0.6
    assert np.clip(seen.linear, 0.0, 1.0).std() > 0.08
    assert np.all(seen.depth_m > 0.2)
    assert len(np.unique(seen.surface)) >= 3
    coc = scene.circle_of_confusion_px(seen.depth_m)
    assert np.all(np.isfinite(coc))
    assert np.abs(coc).min() < 0.3  # something is in focus
    assert 0.7 < np.abs(coc).max() < 8.0  # at 480 pixels six times that: sizeable and within a window of 128
    assert near_depth_edge(coc, step_px=0.3).mean() > 0.02  # and it has depth edges
    hidden = scene.hidden(samples=1)
    middle = seen.depth_m[8:-8, 8:-8]
    assert hidden.valid.mean() > 0.01
    assert np.all(hidden.depth_m[hidden.valid] > middle[hidden.valid])
    assert np.all(hidden.surface[hidden.valid] != seen.surface[8:-8, 8:-8][hidden.valid])


def test_highlights_exceed_white_and_infinity_exists() -> None:
    night = make_scene("night", SIZE).picture(samples=16)
    assert night.linear.max() > 4.0
    assert np.isposinf(night.depth_m).any()


def test_a_scene_is_a_function_of_name_seed_and_size() -> None:
    first, again, other = (make_scene("twigs", SIZE, seed).picture(samples=4).linear for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert psnr(first, other) < 25.0


@pytest.mark.parametrize("name", ["table", "letters", "swatches"])  # without twigs thinner than these texels
def test_larger_pictures_show_the_same_scene(name: str) -> None:
    small = make_scene(name, SIZE).picture(samples=64).linear
    large = make_scene(name, (2 * SIZE[0], 2 * SIZE[1])).picture(samples=16).linear
    halved = large.reshape(SIZE[1], 2, SIZE[0], 2, 3).mean(axis=(1, 3))
    assert psnr(small, halved) > 27.0


def test_noise_has_the_spectrum_of_photographs() -> None:
    grid = Grid(np.arange(256) / 256.0, -np.arange(256) / 256.0, 5)
    field = fractal(grid, 0.5, gain=1.0)
    assert field.std() == pytest.approx(0.9, abs=0.35)
    power = np.abs(np.fft.fft2(field * np.outer(np.hanning(256), np.hanning(256)))) ** 2
    f = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    bands = [power[(f > low) & (f < 1.5 * low)].mean() for low in (0.02, 0.04, 0.08)]
    # Octaves of equal contrast: power falls as f⁻², a factor of 4 per octave.
    assert bands[0] / bands[1] == pytest.approx(4.0, rel=0.5)
    assert bands[1] / bands[2] == pytest.approx(4.0, rel=0.5)


def test_the_truth_converges_and_a_closed_pupil_is_sharp() -> None:
    scene = make_scene("table", SIZE)
    sharp = scene.picture(samples=256).linear
    pinhole = scene.truth(ThinLens(0.0, 1.0), disc(256))
    np.testing.assert_allclose(pinhole, sharp, atol=1e-6)
    one, two = (scene.truth(pupil=disc(256, variant)) for variant in (0, 1))
    assert psnr(one, two) > 50.0
    assert psnr(one, sharp) < 35.0


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(DefocusError, match="scene 'moon'; known are portrait, "):
        make_scene("moon")
    with pytest.raises(DefocusError, match="a scene of 8×48 pixels; expected 16 to"):
        make_scene("table", (8, 48))
    with pytest.raises(DefocusError, match="sides of at most 3 : 1"):
        make_scene("table", (400, 100))
    with pytest.raises(DefocusError, match="seed -1"):
        make_scene("table", SIZE, -1)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, depth, blurred = tmp_path / "p.npy", tmp_path / "d.npz", tmp_path / "b.npy"
    command = ["scene", "letters", "--size", "72x48", "--out", str(picture), "--depth", str(depth)]
    assert run([*command, "--blurred", str(blurred), "--points", "16", "--focus-m", "0.75"]) == 0
    assert "wrote" in capsys.readouterr().out
    scene = make_scene("letters", SIZE)
    seen = scene.picture()
    np.testing.assert_array_equal(np.load(picture), seen.linear)
    read = read_depth(depth)
    np.testing.assert_array_equal(read.depth_m, seen.depth_m)
    assert read.intrinsics == pytest.approx(scene.view.intrinsics)
    lens = ThinLens(scene.lens.pupil_radius_mm, 0.75)
    np.testing.assert_array_equal(np.load(blurred), scene.truth(lens, disc(16)))
    assert run(["scene"]) == 0
    assert all(name in capsys.readouterr().out for name in ("portrait",))
    for arguments, message in (
        (["scene", "letters"], "nothing to write"),
        (["scene", "letters", "--out", str(tmp_path / "p.gif")], "expected a name that ends in"),
        (["scene", "letters", "--out", str(picture), "--size", "big"], "expected WIDTHxHEIGHT"),
        (["scene", "letters", "--depth", str(tmp_path / "d.png")], "a PNG cannot hold infinite depth"),
        (["scene", "letters", "--out", str(picture), "--focus-m", "1"], "are for --blurred"),
        (["scene", "moon", "--out", str(picture)], "known are portrait"),
    ):
        assert run(arguments) == 2
        assert message in capsys.readouterr().err
