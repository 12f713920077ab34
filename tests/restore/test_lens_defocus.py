"""The transform of tensors: the pictures that the camera takes, drawn settings, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from defocus import Camera, DefocusError, load_lens  # noqa: E402
from defocus.restore import LensDefocus  # noqa: E402
from defocus.restore.lens_defocus import blur_of, place_of  # noqa: E402
from defocus.scene import make_scene  # noqa: E402

LENS = "canon-rf-85-f1.2"
SIZE = (48, 32)  # and one PSF at a wavelength: the programs of tests/e2e/test_cli_blur.py
FIELD = (0.3, 0.2)


@pytest.fixture(scope="module")
def scene() -> tuple[torch.Tensor, torch.Tensor, float]:
    """A picture [1, 3, rows, columns] with its depth, and where its subject stands."""
    view = make_scene("portrait", SIZE, 2)
    sharp = view.picture()
    light = torch.from_numpy(np.array(sharp.linear, np.float32)).permute(2, 0, 1)[None]
    return light, torch.from_numpy(np.array(sharp.depth_m, np.float32))[None], view.lens.focus_m


def test_it_is_what_the_camera_photographs(scene: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    light, depth, focus_m = scene
    blur = LensDefocus(LENS, focus_m=focus_m, field=FIELD, bands="d", settings=1)
    blurred = blur(torch.cat([light, light.flip(3)]), torch.cat([depth, depth]))
    assert blurred.shape == (2, 3, SIZE[1], SIZE[0])
    assert blurred.dtype == torch.float32
    camera = Camera(load_lens(LENS), focus_m=focus_m, pixels=SIZE)
    linear = light[0].permute(1, 2, 0).numpy()
    truth = camera.photograph(linear, depth[0].numpy(), sensor=False, patch=FIELD, bands="d").blurred.linear
    error = np.abs(blurred[0].permute(1, 2, 0).numpy() - truth)
    effect = np.abs(truth - linear)
    # Layers stand elsewhere: the rest is the same engine.
    assert error.mean() < 0.015 * effect.mean()
    assert np.quantile(error, 0.99) < 0.015
    assert not torch.equal(blurred[0], blurred[1])
    assert blur.last[0]["lens"] == load_lens(LENS).name
    assert blur.last[0]["focus_m"] == focus_m


def test_planes_are_those_of_the_camera_at_rungs(scene: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    light, _, focus_m = scene
    blur = LensDefocus(LENS, focus_m=focus_m, field=FIELD, bands="d", settings=1)
    far = torch.full((1, SIZE[1], SIZE[0]), torch.inf)  # infinity has its own rung
    camera = Camera(load_lens(LENS), focus_m=focus_m, pixels=SIZE)
    linear = light[0].permute(1, 2, 0).numpy()
    truth = camera.photograph(linear, far[0].numpy(), sensor=False, patch=FIELD, bands="d").blurred.linear
    np.testing.assert_allclose(blur(light, far)[0].permute(1, 2, 0).numpy(), truth, atol=2e-4)


@pytest.mark.parametrize("rung", [-30, -17, -16, -1, 0, 3, 16, 17, 40])
def test_rungs_are_found_again_by_their_blur(rung: int) -> None:
    assert place_of(blur_of(rung)) == pytest.approx(rung)
    assert blur_of(rung + 1) - blur_of(rung) in (0.25, 0.5)


def test_settings_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("defocus.restore.lens_defocus.BlurLadder.blurred", lambda _, light, __: light)
    lenses = [LENS, "leica-summicron-50-f2"]
    images, depth = torch.rand(12, 3, 8, 12), torch.ones(12, 8, 12)

    def drawn(seed: int) -> list[dict]:
        blur = LensDefocus(lenses, f_number=(2.1, 8.0), focus_m=(1.0, 4.0), field=0.7, settings=6, seed=seed)
        assert torch.equal(blur(images, depth), images)
        return blur.last

    first = drawn(1)
    assert first == drawn(1)
    assert first != drawn(2)
    assert 1 < len({str(setting) for setting in first}) <= 6
    assert all(2.1 <= s["f_number"] <= 8.0 and 1.0 <= s["focus_m"] <= 4.0 for s in first)
    assert all(np.hypot(*s["field"]) <= 0.7 for s in first)
    assert {s["lens"] for s in first} == {load_lens(name).name for name in lenses}


def test_no_lens_is_drawn_wider_than_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("defocus.restore.lens_defocus.BlurLadder.blurred", lambda _, light, __: light)
    blur = LensDefocus("leica-summicron-50-f2", f_number=(1.2, 2.2), settings=12, seed=1)
    blur(torch.rand(40, 3, 8, 12), torch.ones(40, 8, 12))
    drawn = sorted({setting["f_number"] for setting in blur.last})
    assert len(drawn) > 4
    assert 2.0 < drawn[0] < drawn[-1] < 2.2
    with pytest.raises(DefocusError, match="wider than its full aperture"):
        LensDefocus("leica-summicron-50-f2", f_number=(1.2, 1.4))(torch.rand(1, 3, 8, 12), torch.ones(1, 8, 12))


def test_what_is_refused() -> None:
    images, depth = torch.rand(1, 3, 8, 12), torch.ones(1, 8, 12)
    blur = LensDefocus(LENS)
    for wrong, words in (
        ((images[0], depth), r"expected floats \[n, 3, rows, columns\]"),
        ((images, depth[:, :4]), r"expected \[n, rows, columns\]"),
        ((images, depth * 0.0), "not positive"),
        (((images * 255).to(torch.uint8), depth), "expected floats"),
    ):
        with pytest.raises(DefocusError, match=words):
            blur(*wrong)
    for options, words in (
        ({"focus_m": (4.0, 1.0)}, "the smaller first"),
        ({"f_number": (1.0, 2.0, 3.0)}, "or two, the smaller first"),
        ({"f_number": None, "focus_m": "near"}, "focus_m 'near'; expected a positive number"),
        ({"field": (3.0, 3.0)}, "in the image circle"),
        ({"field": float("nan")}, "in the image circle"),
        ({"field": (float("nan"), 0.0)}, "in the image circle"),
        ({"settings": 0}, "one or more"),
        ({"settings": 2.5}, "one or more"),
        ({"seed": -1}, "zero or more"),
        ({"pixels": (8, 8), "pixel_um": 4.0}, "give one of them"),
    ):
        with pytest.raises(DefocusError, match=words):
            LensDefocus(LENS, **options)
    for none in ([], None):
        with pytest.raises(DefocusError, match="no lens"):
            LensDefocus(none)
    assert LensDefocus(LENS, f_number=[2.1, 8.0], field=[0.1, 0.2])(images[:0], depth[:0]).shape == (0, 3, 8, 12)
