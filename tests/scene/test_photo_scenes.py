"""Scenes composed of photographs: few large surfaces, exact depth, one scene for one seed."""

from __future__ import annotations

import numpy as np
import pytest

from defocus.scene import photo_scenes
from defocus.scene.photo_scenes import FARTHEST_M, NEAREST_M, compose_scene, filled_up
from defocus.scene.surface_stack import MOST_SURFACES, SurfaceStack

SIZE = 64, 48


def photograph(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (70, 90, 3), dtype=np.uint8)


def scene(seed: int, prefilter_px: float = 0.0) -> SurfaceStack:
    return compose_scene(photograph, SIZE, seed, prefilter_px)


@pytest.fixture(scope="module")
def scenes() -> list[SurfaceStack]:
    return [scene(seed) for seed in range(24)]


def test_a_seed_is_a_scene(scenes: list[SurfaceStack]) -> None:
    for one, again in zip(scenes[:4], map(scene, range(4)), strict=True):
        for name in ("colour", "opacity", "depth_m"):
            assert np.asarray(getattr(one, name)).tobytes() == np.asarray(getattr(again, name)).tobytes()
    assert not np.array_equal(scenes[0].picture(), scenes[1].picture())


def test_surfaces_lie_from_far_to_near_over_an_opaque_background(scenes: list[SurfaceStack]) -> None:
    numbers = [len(one.opacity) for one in scenes]
    assert min(numbers) == 1
    assert 3 < max(numbers) <= MOST_SURFACES
    assert sum(number <= 3 for number in numbers) >= len(scenes) // 2  # most photographs have few depth edges
    for one in scenes:
        assert np.all(one.opacity[0] == 1.0)
        assert one.opacity.min() >= 0.0 and one.opacity.max() <= 1.0  # noqa: PT018
        assert NEAREST_M[0] / 2 <= one.depth_m.min() and one.depth_m.max() <= FARTHEST_M  # noqa: PT018
        assert one.colour.min() >= 0.0
        assert one.colour.dtype == one.opacity.dtype == one.depth_m.dtype == np.float32
        for behind, before in zip(one.depth_m[1:], one.depth_m[2:], strict=False):
            assert np.median(before) <= np.median(behind) * 1.001 or np.ptp(behind) > 0.0  # a ground reaches near


def test_fine_cut_outs_are_in_less_than_a_fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: fences, twigs and letters; large ones are drawn as nothing, which costs no time."""
    nothing = photo_scenes.Outline(np.zeros(SIZE[::-1], np.float32))
    fine: list[int] = []
    monkeypatch.setattr(photo_scenes, "LARGE_OUTLINES", (lambda *_: nothing,))
    monkeypatch.setattr(photo_scenes, "FINE_OUTLINES", (lambda *_: fine.append(1) or nothing,))
    for seed in range(100):
        compose_scene(lambda _: np.zeros((48, 64, 3), np.uint8), SIZE, seed)
    assert 8 <= len(fine) <= 25  # 18 of 100 on average, one surface of a scene at most


@pytest.mark.parametrize("outline", [*photo_scenes.LARGE_OUTLINES[1:], *photo_scenes.FINE_OUTLINES[1:]])
def test_every_outline_covers_a_part(outline: photo_scenes.Callable[..., photo_scenes.Outline]) -> None:
    covers = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        one = outline(photo_scenes.pixel_grid((160, 120), seed), random)
        assert one.opacity.shape == (120, 160)
        assert one.opacity.min() >= 0.0 and one.opacity.max() <= 1.0  # noqa: PT018
        covers.append(float(one.opacity.mean()))
    assert 0.01 < np.mean(covers) < 0.9


def test_lamps_are_discs_of_some_pixels() -> None:
    """A lamp of one pixel is no object that a camera could have seen."""
    grid = photo_scenes.pixel_grid((96, 96), 3)
    for seed in range(400):
        light = photo_scenes._lit(np.zeros((96, 96, 3), np.float32), grid, np.random.default_rng(seed))
        if light.max() > 0.5:
            lit = light.max(-1) > 0.25 * light.max()
            assert lit.sum() >= 4
            return
    pytest.fail("no lamps in 400 scenes")


def test_filling_up_changes_nothing_that_is_seen(scenes: list[SurfaceStack]) -> None:
    one = scenes[int(np.argmin([len(s.opacity) for s in scenes]))]
    full = filled_up(one)
    assert len(full.opacity) == MOST_SURFACES
    assert np.array_equal(full.picture(), one.picture())
    assert np.array_equal(full.visible_depth(), one.visible_depth())


def test_prefilter_tames_what_was_sharpened() -> None:
    """The same scene, with less between neighbouring pixels of its background."""
    rough, tame = scene(0), scene(0, 0.5)
    assert np.array_equal(rough.opacity, tame.opacity)
    assert np.abs(np.diff(tame.colour[0], axis=1)).mean() < 0.8 * np.abs(np.diff(rough.colour[0], axis=1)).mean()
