"""A photograph through a real lens: orientation, symmetry, light, and input that is odd or wrong."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from defocus import Camera
from defocus.errors import DefocusError, TraceError
from defocus.lens import load_lens
from defocus.photo import Noise, SensorColour
from defocus.photo.isp import expose_sharp
from defocus.psf.bands import parse_bands
from defocus.psf.depth_series import NODES as NODES_OF_SERIES
from defocus.psf.engine import FittedPsf, PsfOptions
from defocus.psf.simple import disk
from defocus.psf.window import larger_window, window_for
from defocus.render.node_psfs import NodePsfs, find_node_psfs
from defocus.render.photograph import hidden_note

from .conftest import smooth_noise

LENS = "leica-summicron-50-f2"
WIDTH, HEIGHT = 241, 161  # nodes fall on pixels
NODES = (5, 5)


@pytest.fixture(scope="module")
def whole() -> Camera:
    """The photograph fills the image circle; points at 1.1 m have a blur radius of a pixel."""
    return Camera(load_lens(LENS), focus_m=1.5, pixels=(WIDTH, HEIGHT))


@pytest.fixture(scope="module")
def small() -> Camera:
    """Pixels so small that a few of them are a patch of the picture."""
    return Camera(load_lens(LENS), focus_m=2.0, pixel_um=40.0, f_number=4.0)


def patch(camera: Camera, linear: np.ndarray, depth_m: np.ndarray | float, **options: Any) -> Any:
    """Taken with one PSF at the d line; the pupil whole, unless asked for in parts: fewer programs."""
    depth = np.broadcast_to(np.asarray(depth_m, np.float32), linear.shape[:2])
    return camera.photograph(linear, depth, **({"bands": "d", "patch": (0.0, 0.0), "parts": 1} | options))


def test_a_bright_point_shows_the_psf_of_its_place(whole: Camera) -> None:
    """Upper right, at a node; the PSF there has no symmetry that would hide a wrong turn."""
    row, column, depth = 40, 180, 1.1
    light = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    light[row, column] = 100.0
    made = whole.photograph(light, np.full((HEIGHT, WIDTH), depth), bands="d", nodes=NODES, parts=1, sensor=False)
    step = whole.pixel_um * 1e-3 / whole.image_radius_mm
    psf = whole.psf(depth, (60 * step, 40 * step), 16, "d", coarse=True).array[0]
    seen = made.blurred.linear[row - 8 : row + 8, column - 8 : column + 8, 1] / 100.0
    # Pixels beside the point lie between nodes and have a few hundredths of their neighbours' PSFs.
    assert np.abs(seen - psf).sum() < 0.01
    for axes in ((0,), (1,), (0, 1)):  # mirrored about pixel 8
        assert np.abs(seen[1:, 1:] - np.flip(psf[1:, 1:], axes)).sum() > 0.05
    assert made.report["nodes"] == [5, 5]
    assert made.report["psfs_computed"] == 9  # a quarter of the field, its edges included
    assert made.report["psfs_refused"] == []


def test_a_bright_point_shows_the_shape_of_another_method(small: Camera) -> None:
    light = np.zeros((48, 64, 3), np.float32)
    light[24, 32] = 100.0
    made = patch(small, light, 1.2, sensor=False, method="disk")
    expected = disk(small.circle_of_confusion_px(1.2), 16)
    assert np.abs(made.blurred.linear[16:32, 24:40, 1] / 100.0 - expected).sum() < 1e-3
    assert made.report["method"] == "disk"


def test_a_mirrored_scene_gives_a_mirrored_photograph(whole: Camera) -> None:
    quarter = smooth_noise(3, 81, 121)
    scene = np.concatenate([quarter, quarter[-2::-1]])
    scene = np.concatenate([scene, scene[:, -2::-1]], axis=1)
    made = whole.photograph(scene, np.full((HEIGHT, WIDTH), 1.1), bands="d", nodes=NODES, parts=1, sensor=False)
    blurred = made.blurred.linear
    assert np.abs(blurred - blurred[::-1]).max() < 1e-4
    assert np.abs(blurred - blurred[:, ::-1]).max() < 1e-4
    assert np.abs(blurred - scene).max() > 0.02


def test_mirroring_keeps_the_point() -> None:
    for size in (16, 17):
        psf = np.zeros((1, size, size), np.float32)
        psf[0, size // 2 - 2, 0] = 1.0  # in an even window no pixel is its mirror image
        nodes = [[(0, across, down) for across in (False, True)] for down in (False, True)]
        psfs = NodePsfs(size, parse_bands("d"), 1, 0.0, (), (), nodes, {(0, 0): psf}, [0], [[]])
        for row, column in np.ndindex(2, 2):
            (kernel,) = psfs.at(row, column)
            place = np.argwhere(kernel[0])[0] - kernel.shape[-1] // 2
            assert place.tolist() == [2 if row else -2, size // 2 if column else -(size // 2)]


def test_psfs_of_many_depths_follow_from_a_few(whole: Camera) -> None:
    """Off the axis, through the focus; the light of a depth series is that of points traced one by one."""
    inverse = np.linspace(1.0 / 1.1, 1.0 / 4.0, 2 * NODES_OF_SERIES)
    depths, fields = (1.0 / inverse).tolist(), [(0.4, 0.5)] * len(inverse)
    series = whole.trace(depths, fields, "d", depth_series=True)
    assert [len(block.rows) for block in series.blocks] == [len(depths)]
    options = PsfOptions(coarse=True)
    direct = whole.trace(depths[::5], fields[::5], "d").psfs(16, options)
    few = series.psfs(16, options, rows=range(0, len(depths), 5))
    assert np.abs(few.psf - direct.psf).sum((1, 2, 3)).max() < 0.01
    assert np.abs(np.diff(few.psf, axis=0)).sum((1, 2, 3)).min() > 0.05


def test_blur_radii_of_a_map(small: Camera) -> None:
    depths = np.array([[0.5, 2.0, 7.0, np.inf]], np.float32)
    radii = small.circle_of_confusion_px(depths)
    assert np.allclose(radii[0], [small.circle_of_confusion_px(float(d)) for d in depths[0]], atol=1e-4)
    assert radii[0, 0] < 0.0 < radii[0, 3]
    with pytest.raises(DefocusError, match="is the depth map in metres"):
        small.require_imaged(np.array([[1e-3]], np.float32))


def test_the_pair_and_its_report(small: Camera) -> None:
    light = smooth_noise(5, 48, 64)
    depth = np.where(np.arange(64) < 32, 2.0, np.inf) * np.ones((48, 1))
    stages: set[str] = set()
    options: dict[str, Any] = {"bands": "d", "patch": (0.0, 0.0), "noise": Noise.make(1e-4, 1e-5)}
    made = small.photograph(light, depth, seed=3, progress=lambda stage, done: stages.add(stage), **options)
    assert stages == {"PSFs", "blurring"}
    for picture in (made.sharp, made.blurred):
        assert picture.linear.shape == (48, 64, 3)
        assert picture.raw.shape == (48, 64)
        assert picture.srgb.min() >= 0.0
        assert picture.srgb.max() <= 1.0
    assert np.array_equal(made.sharp.linear, light)
    report = made.report
    assert report["layers"] == 2
    assert report["parts"] == 1
    assert report["coc_px"][0] == pytest.approx(0.0, abs=1e-3)
    assert report["coc_px"][1] == pytest.approx(small.circle_of_confusion_px(math.inf), rel=1e-4)
    assert report["kernel_px"] >= 2 * report["coc_px"][1]
    assert set(report["seconds"]) == {"layers", "psfs", "render", "sensor"}
    assert any("neutral" in note for note in report["notes"])
    again = small.photograph(light, depth, seed=3, **options)
    other = small.photograph(light, depth, seed=4, **options)
    assert np.array_equal(made.blurred.raw, again.blurred.raw)
    assert not np.array_equal(made.blurred.raw, other.blurred.raw)
    # The far half loses contrast, the half in focus hardly.
    lost = [1.0 - np.std(made.blurred.linear[8:40, s]) / np.std(light[8:40, s]) for s in (slice(4, 24), slice(40, 60))]
    assert lost[1] > 3.0 * abs(lost[0])


def test_light_that_the_lens_keeps_back(small: Camera) -> None:
    """With relative illumination a uniform picture has its brightness, and without it none of its fall-off."""
    light = np.full((48, 64, 3), 0.5, np.float32)
    place = (0.7, 0.5)
    ratio = small.psfs([2.0], [place], 16, "d").reports[0]["relative_illumination"]
    assert ratio < 0.95
    dark = patch(small, light, 2.0, patch=place, relative_illumination=True, sensor=False).blurred.linear
    even = patch(small, light, 2.0, patch=place, sensor=False).blurred.linear
    assert np.allclose(dark, 0.5 * ratio, rtol=1e-3)
    assert np.allclose(even, 0.5, rtol=1e-4)


def test_each_half_of_a_lens_has_its_own_fall_off(small: Camera) -> None:
    """In a corner one half is cut more than the other; together they are the whole lens."""
    light = np.full((48, 64, 3), 0.5, np.float32)
    place = (0.7, 0.5)
    options: dict[str, Any] = {"patch": place, "relative_illumination": True, "sensor": False}
    made = {side: patch(small, light, 2.0, side=side, **options) for side in ("left", "right", None)}
    left, right, whole = (float(made[side].blurred.linear.mean()) for side in ("left", "right", None))
    assert (left + right) / 2.0 == pytest.approx(whole, rel=2e-3)
    assert left > 1.05 * right  # a point on the right is seen past the lens's right rim
    lit = [made[side].report["node_light_mm2"][0] for side in ("left", "right", None)]
    assert lit[0] + lit[1] == pytest.approx(lit[2], rel=2e-3)
    assert left / right == pytest.approx(lit[0] / lit[1], rel=1e-3)
    even = patch(small, light, 2.0, patch=place, side="right", sensor=False).blurred.linear
    assert np.allclose(even, 0.5, rtol=1e-4)


def test_the_halves_of_a_lens_move_what_is_out_of_focus(small: Camera) -> None:
    light = np.zeros((48, 64, 3), np.float32)
    light[24, 32] = 50.0
    columns = np.arange(64) - 32
    centres = []
    for side in ("left", "right"):
        seen = patch(small, light, 30.0, side=side, sensor=False).blurred.linear[..., 0]
        centres.append(float((seen.sum(0) * columns).sum() / seen.sum()))
    assert centres[0] == pytest.approx(-centres[1], abs=0.02)
    assert abs(centres[0]) > 0.3 * small.circle_of_confusion_px(30.0)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5)])
def test_tiny_pictures(small: Camera, shape: tuple[int, int]) -> None:
    made = patch(small, np.full((*shape, 3), 0.4, np.float32), math.inf)
    assert np.allclose(made.blurred.linear, 0.4, atol=1e-4)
    assert made.blurred.srgb.shape == (*shape, 3)
    assert np.allclose(made.blurred.srgb, made.sharp.srgb, atol=1e-3)


def test_saturated_everywhere_stays_white(small: Camera) -> None:
    made = patch(small, np.full((48, 64, 3), 1.0, np.float32), 30.0, saturation=3.0)
    assert np.allclose(made.blurred.linear, 4.0, rtol=1e-4)
    assert np.all(made.blurred.raw == 1.0)
    assert np.allclose(made.blurred.srgb, 1.0)


def test_a_layer_of_one_pixel(small: Camera) -> None:
    depth = np.full((48, 64), 2.0)
    depth[20, 30] = 30.0
    light = smooth_noise(6, 48, 64)
    made = patch(small, light, depth, sensor=False)
    assert made.report["layers"] == 2
    away = np.abs(made.blurred.linear - patch(small, light, 2.0, sensor=False).blurred.linear)
    away[10:31, 20:41] = 0.0
    assert away.max() < 1e-3


def test_what_is_refused(small: Camera) -> None:
    light = np.full((48, 64, 3), 0.4, np.float32)
    with pytest.raises(DefocusError, match=r"depth of pixel \(0, 0\) is nan"):
        patch(small, light, math.nan)
    with pytest.raises(DefocusError, match="depth map"):
        small.photograph(light, np.ones((47, 64)))
    with pytest.raises(DefocusError, match="not a finite number"):
        patch(small, light * np.float32(np.nan), 2.0)
    with pytest.raises(DefocusError, match="stop down to f/"):
        patch(small, light, 0.3, most_kernel_px=32)
    with pytest.raises(DefocusError, match="needs the step through the mosaic"):
        patch(small, light, 2.0, noise=Noise.make(1e-5, 1e-5), sensor=False)
    with pytest.raises(DefocusError, match="outside the image circle"):
        patch(small, light, 2.0, patch=(0.9, 0.9))
    with pytest.raises(DefocusError, match="one for all colours or three"):
        patch(small, light, 2.0, bands="480,590")
    with pytest.raises(DefocusError, match="smaller pixels"):
        Camera(load_lens(LENS), pixel_um=2000.0).photograph(light, np.full((48, 64), 2.0))
    with pytest.raises(DefocusError, match="uint16; expected metres"):
        small.photograph(light, np.full((48, 64), 2000, np.uint16))
    for options in ({"relative_illumination": True}, {"side": "left"}):
        with pytest.raises(DefocusError, match="'gaussian' knows no"):
            patch(small, light, 2.0, method="gaussian", **options)
    for name, values in {
        "saturation": (math.nan, -1.0, math.inf, 1e300, 10**400, "a", None),
        "seed": (-1, 1.5),
        "parts": (0, 2.5),
        "tile_px": (0, "a"),
        "most_layers": (0, 1.5),
        "most_kernel_px": (-3, math.nan),
        "step_px": (0.0, math.nan, "a"),
        "nodes": ((0, 1), 3, (1.5, 2), "33"),
        "patch": ((math.nan, 0.0), "ab", 1),
        "noise": (3, (1e-5, 1e-5)),
        "colour": ("RGGB",),
        "response": ("srgb", None),
        "side": ("top",),
        "exact": (2,),
        "method": ("huygens", "nonsense"),
    }.items():
        for value in values:
            with pytest.raises(DefocusError, match=name):
                small.photograph(light, np.full((48, 64), 2.0), **{name: value})


def test_a_camera_that_cannot_be_is_refused() -> None:
    lens = load_lens(LENS)
    for options, message in (
        ({"blades": 7}, r"blades at its full aperture, f/2, .* give an f-number"),
        ({"blades": 7, "f_number": 2.0049}, "blades at its full aperture"),
        ({"blades": 7, "f_number": 1.4}, "f/1.4 is wider than its full aperture, f/2"),
        ({"focus_m": 0.04}, r"focus distance of 0.04 m lies within its front focal point at 0.0\d+ m"),
        ({"sensor_shift_mm": math.nan}, "sensor shift nan mm"),
        ({"sensor_shift_mm": math.inf}, "sensor shift inf mm"),
        ({"sensor_shift_mm": -1e12}, r"sensor shift -1000000000000\.0 mm"),
    ):
        with pytest.raises(DefocusError, match=message):
            Camera(lens, pixel_um=40.0, **options)
    assert Camera(lens, pixel_um=40.0, focus_m=0.04, sensor_shift_mm=1.0).focus_m == 0.04  # the focus is not used
    assert Camera(lens, pixel_um=40.0, f_number=2.8, blades=7).iris is not None


def test_a_hidden_strip_that_is_too_wide_to_fill_is_reported() -> None:
    coc = np.where(np.arange(40) < 20, -60.0, 64.0) * np.ones((30, 1))
    assert hidden_note(coc) == []
    (note,) = hidden_note(1.1 * coc)
    assert "up to 136 px" in note
    assert "127 px" in note
    assert hidden_note(np.linspace(-200.0, 200.0, 600) * np.ones((4, 1))) == []  # slanted: nothing is hidden


class Stubborn:
    """A camera whose lens images nothing beyond `reach`; its PSFs are points."""

    lens, iris = load_lens(LENS), None

    def __init__(self, reach: float) -> None:
        self.reach = reach
        self.fields: list[tuple[float, float]] = []

    def circle_of_confusion_px(self, depth_m: Any) -> Any:
        return 0.0 * np.asarray(depth_m)

    def trace(self, depth_m: Any, field: Any, bands: Any, method: str, **_: Any) -> Stubborn:
        self.fields = field
        return self

    def fitted_psfs(self, *_: Any, **__: Any) -> list[FittedPsf]:
        point = np.zeros((1, 16, 16), np.float32)
        point[:, 8, 8] = 1.0
        good = {"status": "ok", "energy_outside": 0.0, "light_mm2": 1.0, "window_px": 16}
        dark = FittedPsf(None, {"status": "no light at this field", "window_px": 16})
        return [FittedPsf(point, good) if math.hypot(*f) <= self.reach else dark for f in self.fields]


def test_refused_nodes_take_the_nearest_psf_towards_the_centre() -> None:
    one = np.ones(1)
    options: dict[str, Any] = {"bands": parse_bands("d"), "most_px": 64, "options": PsfOptions()}
    fields = [[(0.0, 0.0), (0.6, 0.0)], [(0.0, -0.48), (0.6, -0.48)]]
    psfs = find_node_psfs(Stubborn(0.5), fields, one, one > 0.0, **options)  # type: ignore[arg-type]
    assert [r["field"] for r in psfs.refused] == [[0.6, 0.0], [0.6, 0.48]]
    assert psfs.refused[0]["taken_from"] == [0.5, 0.0]
    taken = psfs.refused[1]["taken_from"]
    assert 0.45 < math.hypot(*taken) <= 0.5
    assert taken[1] / taken[0] == pytest.approx(0.8, rel=1e-3)
    assert "2 of 4 PSFs were refused (no light at this field)" in psfs.notes[0]
    with pytest.raises(TraceError, match="even in the middle of the picture: no light"):
        find_node_psfs(Stubborn(-1.0), fields, one, one > 0.0, **options)  # type: ignore[arg-type]


def test_windows_hold_their_blur() -> None:
    for radius in (0.0, 3.0, 10.0, 40.0, 100.0, 300.0):
        assert window_for(radius) >= 2.4 * radius + 6.0
        assert window_for(-radius) == window_for(radius)
    assert larger_window(32, 128) == 64
    assert larger_window(96, 128) == 128
    assert larger_window(128, 128) is None


def test_whole_numbers_are_refused(small: Camera) -> None:
    with pytest.raises(DefocusError, match="uint8"):
        small.photograph(np.full((48, 64, 3), 128, np.uint8), np.full((48, 64), 2.0))


def test_the_sharp_picture_is_the_target_of_a_pair(small: Camera) -> None:
    """Without mosaic and noise, as a data set has it; the blurred one has both."""
    light = smooth_noise(5, 48, 64)
    picture = patch(small, light, 2.0, noise=Noise.make(1e-3, 1e-4))
    assert np.abs(picture.sharp.srgb - np.asarray(expose_sharp(jnp.asarray(light), SensorColour.make()))).max() < 1e-6
    assert np.abs(picture.blurred.srgb - picture.sharp.srgb).std() > 0.005
