"""What is behind: seeds, colours, mixtures at edges."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from defocus.scene.front_and_back import Surfaces, find_surfaces
from defocus.scene.inpaint import find_hidden, push_pull
from defocus.scene.layers import quantise
from defocus.scene.procedural import make_scene

from .conftest import COLS, LAYERS, ROWS, smooth_noise

Y, X = np.mgrid[:ROWS, :COLS]


def surfaces_of(linear: np.ndarray, coc: np.ndarray, **options: bool) -> Surfaces:
    layers = quantise(jnp.asarray(coc), jnp.ones(coc.shape, jnp.float32), layers=LAYERS)
    return find_surfaces(jnp.asarray(linear), jnp.asarray(coc), layers, **options)


def test_push_pull_keeps_what_is_known_and_fills_smoothly() -> None:
    ramp = np.stack([X / COLS, Y / ROWS, 0.5 + 0.0 * X], -1).astype(np.float32)
    known = ~((np.abs(X - 50) < 8) & (np.abs(Y - 30) < 8))
    broken = np.where(known[..., None], ramp, 7.0)
    filled = np.asarray(push_pull(jnp.asarray(broken, jnp.float32), jnp.asarray(known, jnp.float32)))
    np.testing.assert_allclose(filled[known], ramp[known], atol=1e-6)
    assert np.abs(filled - ramp)[~known].max() < 0.06  # of a ramp that changes by 0.2 across the gap
    assert np.abs(filled[..., 2] - 0.5).max() < 1e-6


def test_push_pull_with_nothing_known_is_black() -> None:
    assert not np.asarray(push_pull(jnp.ones((ROWS, COLS, 3)), jnp.zeros((ROWS, COLS)))).any()


def test_the_hidden_strip_is_as_wide_as_both_blurs() -> None:
    coc = np.where(X < 40, -6.0, 5.0).astype(np.float32)  # a near half plane on the left
    seed, found = (np.asarray(a) for a in find_hidden(jnp.asarray(coc)))
    assert not found[:, 40:].any()  # nothing is hidden by the far surface
    assert found[:, 29:40].all()
    assert not found[:, :26].any()
    assert (seed[found] % COLS == 40).all()  # the far pixels beside the edge
    assert (seed[found] // COLS == Y[found]).all()


def test_slanted_surfaces_hide_nothing() -> None:
    coc = np.linspace(-7.0, 8.0, COLS, dtype=np.float32) * np.ones((ROWS, 1), np.float32)
    assert not np.asarray(find_hidden(jnp.asarray(coc))[1]).any()


def test_three_surfaces_continue_behind_the_nearest_up_to_the_middle() -> None:
    """Between a middle surface on the left and a far one on the right, each continues on its own side."""
    coc = np.where(X < 40, 0.0, 6.0).astype(np.float32)
    coc[:, 34:46] = -7.0
    seed, found = (np.asarray(a) for a in find_hidden(jnp.asarray(coc)))
    assert found[:, 34:46].all()
    assert (coc.ravel()[seed[:, 34:39]] == 0.0).all()
    assert (coc.ravel()[seed[:, 41:46]] == 6.0).all()


def test_filled_colours_are_those_of_the_surface_behind() -> None:
    """Colours from the far surface only, not from the near one and not from a farther one beside it."""
    coc = np.where(X < 40, 0.0, 6.0).astype(np.float32)
    coc[:, 34:46] = -7.0
    linear = np.where((coc == 0.0)[..., None], [0.2, 0.8, 0.1], [0.6, 0.1, 0.9]).astype(np.float32)
    linear[coc == -7.0] = 5.0
    made = surfaces_of(linear, coc, split=False)
    back, found = np.asarray(made.back), np.asarray(made.has_back)
    assert found.sum() == ROWS * 12
    np.testing.assert_allclose(back[:, 34:39], np.broadcast_to([0.2, 0.8, 0.1], (ROWS, 5, 3)), atol=0.01)
    np.testing.assert_allclose(back[:, 41:46], np.broadcast_to([0.6, 0.1, 0.9], (ROWS, 5, 3)), atol=0.01)


def test_mixed_pixels_are_taken_apart() -> None:
    """A slanted edge with exact coverage: front and back come back, whichever side the depth took."""
    edge = X - 40.3 - 0.3 * (Y - 36)
    cover = np.clip(0.5 - edge, 0.0, 1.0)
    front, back = np.array([0.9, 0.7, 0.2]), np.array([0.1, 0.2, 0.5])
    linear = (cover[..., None] * front + (1.0 - cover[..., None]) * back).astype(np.float32)
    coc = np.where(cover >= 0.5, -4.0, 4.0).astype(np.float32)
    inner = (slice(6, -6), slice(None))
    mixed, apart = surfaces_of(linear, coc, split=False), surfaces_of(linear, coc)
    partial = ((cover > 0.02) & (cover < 0.98))[inner]
    assert np.abs(np.asarray(apart.opacity) - cover)[inner][partial].max() < 0.03
    assert np.abs(np.asarray(apart.front) - front)[inner][partial].max() < 0.03
    assert np.abs(np.asarray(apart.back) - back)[inner][partial].max() < 0.03
    assert np.abs(np.asarray(mixed.front) - front)[inner][partial].max() > 0.3
    # Put together again, it is the picture.
    a = np.asarray(apart.opacity)[..., None]
    again = np.where(np.asarray(apart.has_back)[..., None], a * apart.front + (1 - a) * apart.back, apart.front)
    np.testing.assert_allclose(again, linear, atol=1e-5)


def test_a_highlight_beside_an_edge_is_no_mixture() -> None:
    coc = np.where(X < 40, -4.0, 4.0).astype(np.float32)
    linear = np.where((X < 40)[..., None], [0.9, 0.7, 0.2], [0.1, 0.2, 0.5]).astype(np.float32)
    linear[30, 40] = 60.0
    made = surfaces_of(linear, coc)
    assert np.asarray(made.opacity)[30, 40] == 1.0
    assert np.asarray(made.front)[30, 40].min() == 60.0
    assert np.asarray(made.front_position)[30, 40] == np.asarray(made.front_position)[30, 60]


def test_a_depth_edge_beside_the_edge_of_colours_leaves_the_surface_behind_as_it_is() -> None:
    """The depth map says near for one pixel too many: its colour is the back's, which must not be overdone."""
    coc = np.where(X < 41, -6.0, 0.0).astype(np.float32)
    front, back = np.array([0.8, 0.75, 0.6]), np.array([0.1, 0.2, 0.5])
    linear = np.where((X < 40)[..., None], front, back).astype(np.float32)
    made = surfaces_of(linear, coc)
    found = np.asarray(made.back)[6:-6, 40]
    np.testing.assert_allclose(found, np.broadcast_to(back, found.shape), atol=0.02)
    a = np.asarray(made.opacity)[..., None]
    again = np.where(np.asarray(made.has_back)[..., None], a * made.front + (1 - a) * made.back, made.front)
    np.testing.assert_allclose(again, linear, atol=1e-5)


def test_a_lamp_beside_an_edge_is_not_continued_behind_it_and_a_bright_sky_is() -> None:
    coc = np.where(X < 40, -6.0, 5.0).astype(np.float32)
    linear = np.where((X < 40)[..., None], 0.3, 0.1) * np.ones(3)
    linear[30:34, 41:45] = 30.0
    back = np.asarray(surfaces_of(linear.astype(np.float32), coc, split=False).back)
    assert back[28:36, 36:40].mean() < 1.5  # the lamp's own mean over as many pixels is 15
    sky = np.where((X < 40)[..., None], 0.3, 8.0) * np.ones(3)
    back = np.asarray(surfaces_of(sky.astype(np.float32), coc, split=False).back)
    np.testing.assert_allclose(back[:, 30:40], 8.0, rtol=1e-4)


@pytest.mark.parametrize("name", ["street", "swatches"])
def test_hidden_parts_of_procedural_scenes(name: str) -> None:
    """Against the scene's own hidden surface: colours nearer to it than its surroundings' mean, and its depth."""
    scene = make_scene(name, (COLS, ROWS))
    seen, behind = scene.picture(samples=16), scene.hidden(samples=16)
    coc = 4.0 * scene.circle_of_confusion_px(seen.depth_m).astype(np.float32)  # as much blur as in a larger picture
    made = surfaces_of(seen.linear, coc)
    known = np.asarray(made.has_back) & behind.valid
    assert known.sum() > 200
    truth = behind.linear[known]

    def error(colour: np.ndarray) -> float:
        return float(np.sqrt(np.mean((colour - truth) ** 2)))

    filled = error(np.asarray(made.back)[known])
    assert filled < 0.7 * error(seen.linear[known])
    assert filled < 0.9 * error(np.broadcast_to(seen.linear.mean((0, 1)), truth.shape))
    layers = quantise(jnp.asarray(coc), jnp.ones_like(coc), layers=LAYERS)
    hidden_coc = 4.0 * scene.circle_of_confusion_px(behind.depth_m)[known]
    found_coc = np.interp(np.asarray(made.back_position)[known], np.arange(LAYERS), np.asarray(layers.coc_px))
    assert np.median(np.abs(found_coc - hidden_coc)) < 1.0


def test_natural_texture_is_continued_better_than_by_its_mean() -> None:
    linear = smooth_noise(5)
    coc = np.where(np.hypot(X - 48, Y - 36) < 6, -5.0, 4.0).astype(np.float32)
    near = coc < 0.0
    shown = linear.copy()
    shown[near] = [0.9, 0.1, 0.1]
    back = np.asarray(surfaces_of(shown, coc).back)
    assert np.mean((back - linear)[near] ** 2) < 0.7 * np.mean((linear[near] - linear.mean((0, 1))) ** 2)
