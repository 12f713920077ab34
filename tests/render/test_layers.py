"""Signed circles of confusion cut into layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus.errors import DefocusError
from defocus.scene.layers import cut_layers, layers_needed, quantise

from .conftest import COLS, LAYERS, ROWS


def slanted(low: float, high: float) -> np.ndarray:
    return np.broadcast_to(np.linspace(low, high, COLS, dtype=np.float32), (ROWS, COLS)).copy()


def quantised(coc: np.ndarray, depth: np.ndarray | None = None, **options: float) -> object:
    depth = np.ones_like(coc) if depth is None else depth
    return quantise(jnp.asarray(coc), jnp.asarray(depth), layers=LAYERS, **options)


def test_layers_of_a_slanted_surface_are_less_than_a_step_apart_and_run_from_far_to_near() -> None:
    coc = slanted(-5.3, 6.2)
    layers = quantised(coc)
    used = np.asarray(layers.coc_px)[np.asarray(layers.used)]
    assert (np.diff(used) < 0.0).all()
    assert np.abs(np.diff(used)).max() < 1.0 + 1e-5
    # Weighted by its shares, every pixel has its own blur again: that is what makes the blur change smoothly.
    again = np.interp(np.asarray(layers.position), np.arange(LAYERS), np.asarray(layers.coc_px))
    inside = (coc < used[0]) & (coc > used[-1])
    assert np.abs(again - coc)[inside].max() < 1e-4
    assert np.abs(again - coc).max() < 0.5 * float(layers.step_px)


def test_a_pixels_shares_sum_to_one() -> None:
    layers = quantised(slanted(-5.3, 6.2))
    total = sum(np.asarray(layers.weight(i)) for i in range(LAYERS))
    np.testing.assert_allclose(total, 1.0, atol=1e-6)


def test_planes_keep_exactly_their_blur_and_depth() -> None:
    coc = np.full((ROWS, COLS), 4.3, np.float32)
    coc[:, :30], coc[:20] = -3.7, 0.55
    depth = np.where(coc == 4.3, np.float32(np.inf), np.where(coc == -3.7, np.float32(0.8), np.float32(2.5)))
    layers = quantised(coc, depth)
    used = np.asarray(layers.used)
    np.testing.assert_allclose(np.asarray(layers.coc_px)[used], [4.3, 0.55, -3.7], atol=1e-5)
    np.testing.assert_allclose(np.asarray(layers.depth_m)[used], [np.inf, 2.5, 0.8], rtol=1e-5)
    assert not np.isnan(np.asarray(layers.depth_m)).any()
    assert (np.asarray(layers.position) % 1.0 == 0.0).all()


def test_a_single_pixel_is_a_layer() -> None:
    coc = np.zeros((ROWS, COLS), np.float32)
    coc[5, 7] = -6.0
    layers = quantised(coc)
    near = int(np.asarray(layers.position)[5, 7])
    assert np.asarray(layers.used)[near]
    assert np.asarray(layers.coc_px)[near] == pytest.approx(-6.0, abs=1e-5)
    assert np.asarray(layers.used).sum() == 2


def test_too_few_layers_widen_the_step() -> None:
    layers = quantised(slanted(-20.0, 20.0))
    assert float(layers.step_px) == pytest.approx(40.0 / (LAYERS - 1))
    assert np.asarray(layers.used).all()


def test_one_program_for_all_scenes() -> None:
    quantised(slanted(0.0, 3.0))
    before = quantise._cache_size()
    quantised(slanted(-7.0, 7.0), step_px=0.9)
    quantised(slanted(2.0, 2.0))
    # A number for the step is another program than none; after that, none are added.
    assert quantise._cache_size() - before <= 1


def test_a_batch_is_its_scenes_one_by_one() -> None:
    coc = jnp.stack([jnp.asarray(slanted(-3.0, 5.0)), jnp.asarray(slanted(0.0, 9.0))])
    batch = jax.vmap(lambda c: quantise(c, jnp.ones_like(c), layers=LAYERS))(coc)
    for k in range(2):
        np.testing.assert_allclose(batch.coc_px[k], quantised(np.asarray(coc[k])).coc_px, atol=1e-5)


def test_needed_layers() -> None:
    assert layers_needed(slanted(-5.0, 5.0)) == 11
    assert layers_needed(slanted(-5.0, 5.0), 0.5) == 21
    assert layers_needed(slanted(3.0, 3.0)) == 1
    assert layers_needed(np.stack([slanted(0.0, 2.0), slanted(0.0, 7.0)])) == 8


def test_refusals_name_the_number() -> None:
    coc, depth = slanted(-60.0, 60.0), np.ones((ROWS, COLS), np.float32)
    with pytest.raises(DefocusError, match=r"-60\.0 to 60\.0 px take 121 layers .* at most 96"):
        cut_layers(coc, depth)
    merged = cut_layers(coc, depth, most=LAYERS, merge=True)
    assert merged.coc_px.shape == (LAYERS,)
    assert float(merged.step_px) == pytest.approx(120.0 / (LAYERS - 1))
    bad = depth.copy()
    bad[3, 4] = np.nan
    with pytest.raises(DefocusError, match=r"\(3, 4\) is nan m; .* fill the holes"):
        cut_layers(coc, bad, merge=True)
    with pytest.raises(DefocusError, match=r"blur radius of pixel \(0, 0\) is inf"):
        cut_layers(np.full((ROWS, COLS), np.inf, np.float32), depth)
    with pytest.raises(DefocusError, match="expected one image"):
        cut_layers(coc, depth[1:])
    with pytest.raises(DefocusError, match="positive step"):
        cut_layers(coc, depth, step_px=0.0)


def test_tiny_images() -> None:
    for shape in ((1, 1), (3, 5)):
        layers = cut_layers(np.full(shape, 2.5, np.float32), np.full(shape, np.inf, np.float32))
        assert np.asarray(layers.used).sum() == 1
        assert np.asarray(layers.depth_m)[0] == np.inf
