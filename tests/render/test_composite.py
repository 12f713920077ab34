"""Laws that a defocused picture obeys whatever the scene, and scenes whose picture is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import fftconvolve

from defocus.errors import DefocusError
from defocus.render.composite import (
    Canvas,
    composite,
    convolve,
    extend,
    render_far_to_near,
    render_layers,
    require_kernel,
)
from defocus.scene.front_and_back import Surfaces, find_surfaces
from defocus.scene.layers import Layers, cut_layers, quantise

from .conftest import COLS, LAYERS, ROWS, SIZE, disks, smooth_noise

Y, X = np.mgrid[:ROWS, :COLS]
STEPS = np.where(np.hypot(X - 40, Y - 30) < 18, -9.0, np.where(X < 60, 0.3, 6.0)).astype(np.float32)
STEPS[:, 70:72] = -4.0  # a thin thing before it all
SLANT = (-6.0 + 0.12 * X + 0.03 * Y).astype(np.float32)


def layers_of(coc: np.ndarray) -> Layers:
    return quantise(jnp.asarray(coc), jnp.ones(coc.shape, jnp.float32), layers=LAYERS)


def render(linear: np.ndarray, coc: np.ndarray, psfs: jnp.ndarray | None = None, **options: int) -> np.ndarray:
    layers = layers_of(coc)
    psfs = disks(layers.coc_px) if psfs is None else psfs
    surfaces = find_surfaces(jnp.asarray(linear), jnp.asarray(coc), layers)
    return np.asarray(composite(surfaces, psfs, layers.coc_px, **options))


def decibels(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10.0 * np.log10(np.mean((a - b) ** 2)))


@pytest.mark.parametrize("size", [32, 31])
def test_convolution_is_a_plain_sum_over_the_reflected_picture(texture: np.ndarray, size: int) -> None:
    psf = np.random.default_rng(2).random((3, size, size)).astype(np.float32)
    psf /= psf.sum((1, 2), keepdims=True)
    wide = np.pad(texture, ((size, size), (size, size), (0, 0)), mode="symmetric")
    first = size + size // 2  # the point sits in pixel size // 2
    expected = np.stack([fftconvolve(wide[..., k].astype(np.float64), psf[k]) for k in range(3)], -1)
    found = np.asarray(convolve(jnp.asarray(texture), jnp.asarray(psf)))
    np.testing.assert_allclose(found, expected[first : first + ROWS, first : first + COLS], atol=2e-6)


def test_layers_that_hold_nothing_are_left_out_without_a_trace(texture: np.ndarray) -> None:
    """Against adding all layers one by one, alone and in a batch whose pictures have different ones."""
    pictures = []
    for coc in (STEPS, SLANT):
        layers = layers_of(coc)
        assert not np.asarray(layers.used).all()
        surfaces, psfs = find_surfaces(jnp.asarray(texture), jnp.asarray(coc), layers), disks(layers.coc_px)
        wide = jax.tree.map(lambda leaf, size=psfs.shape[-1]: extend(leaf, size), surfaces)
        canvas = Canvas.empty(coc.shape, bands=psfs.shape[1], parts=1)
        for index in reversed(range(LAYERS)):
            canvas = canvas.with_layer(wide, jnp.float32(index), psfs[index], layers.coc_px[index])
        np.testing.assert_allclose(composite(surfaces, psfs, layers.coc_px), canvas.picture, atol=1e-6)
        pictures.append((surfaces, psfs, layers.coc_px, canvas.picture))
    *batch, expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pictures)
    np.testing.assert_allclose(jax.vmap(composite)(*batch), expected, atol=1e-6)


def test_uniform_scenes_stay_uniform() -> None:
    """To the border, across depth edges, thin things and slants; with one kernel for all colours or three."""
    linear = np.broadcast_to(np.array([0.2, 0.5, 0.9], np.float32), (ROWS, COLS, 3))
    for coc in (STEPS, SLANT):
        assert np.abs(render(linear, coc) - linear).max() < 1e-4
    layers = layers_of(STEPS)
    bands = jnp.concatenate([disks(layers.coc_px * k) for k in (0.9, 1.0, 1.1)], 1)
    assert np.abs(render(linear, STEPS, bands) - linear).max() < 1e-4
    assert np.abs(render(linear, STEPS, parts=4) - linear).max() < 1e-4


def test_all_saturated_input_stays_saturated() -> None:
    assert np.abs(render(np.full((ROWS, COLS, 3), 40.0, np.float32), STEPS) / 40.0 - 1.0).max() < 1e-4


@pytest.mark.parametrize("parts", [1, 4])
def test_a_bright_point_shows_exactly_its_psf(parts: int) -> None:
    """An asymmetric kernel per band, upright, with its whole energy: no clipping, no turning, no shift."""
    rng = np.random.default_rng(3)
    psfs = rng.random((LAYERS, 3, SIZE, SIZE)).astype(np.float32) ** 4
    psfs /= psfs.sum((2, 3), keepdims=True)
    linear = np.zeros((ROWS, COLS, 3), np.float32)
    linear[36, 50] = 1000.0
    coc = np.full((ROWS, COLS), 7.0, np.float32)
    found = render(linear, coc, jnp.asarray(psfs), parts=parts)
    expected = np.zeros_like(linear)
    expected[36 - 16 : 36 + 16, 50 - 16 : 50 + 16] = 1000.0 * np.moveaxis(psfs[0], 0, -1)
    assert np.abs(found - expected).max() < 1e-5 * expected.max() + 1e-4
    assert found.sum((0, 1)) == pytest.approx(np.full(3, 1000.0), rel=1e-4)


def test_light_is_conserved_on_a_slanted_surface() -> None:
    linear = np.full((ROWS, COLS, 3), 0.1, np.float32)
    linear[36, 50] = 500.0
    coc = (0.05 * (X - 10)).astype(np.float32)
    assert render(linear, coc).sum() == pytest.approx(linear.sum(), rel=1e-3)


def test_a_plane_is_one_convolution(texture: np.ndarray) -> None:
    coc = np.full((ROWS, COLS), -5.3, np.float32)
    expected = convolve(jnp.asarray(texture), jnp.broadcast_to(disks(np.array([-5.3]))[0], (3, SIZE, SIZE)))
    np.testing.assert_allclose(render(texture, coc), expected, atol=1e-5)


def test_parts_of_the_pupil_make_the_same_plane() -> None:
    """Large enough to see a compiler that multiplies the parts by the wrong colours (it does from 128 pixels on)."""
    linear = jnp.asarray(smooth_noise(4, 128, 128))
    plane = jnp.ones((128, 128), jnp.float32)
    surfaces = Surfaces(linear, 0.0 * plane, plane, 0.0 * linear, 0.0 * plane, plane > 2.0)
    psfs, coc = disks(np.full(2, 5.3)), jnp.full(2, 5.3, jnp.float32)
    whole, in_parts = (composite(surfaces, psfs, coc, parts=parts) for parts in (1, 4))
    assert whole.dtype == jnp.float32
    np.testing.assert_allclose(in_parts, whole, atol=1e-5)


def slanted_truth(texture: np.ndarray, coc0: float, slope: float) -> np.ndarray:
    """A plane with c = coc0 + slope·x, followed ray by ray: the point u of the pupil meets it at x + c u."""
    k = np.arange(1200) + 0.5
    radius, angle = np.sqrt(k / len(k)), k * np.pi * (3.0 - np.sqrt(5.0))
    total = np.zeros_like(texture)
    for ux, uy in zip(radius * np.cos(angle), radius * np.sin(angle), strict=True):
        c = (coc0 + slope * X) / (1.0 - slope * ux)
        x, y = np.clip(X + c * ux, 0, COLS - 1.001), np.clip(Y + c * uy, 0, ROWS - 1.001)
        x0, y0 = x.astype(int), y.astype(int)
        fx, fy = (x - x0)[..., None], (y - y0)[..., None]
        top = texture[y0, x0] * (1 - fx) + texture[y0, x0 + 1] * fx
        total += top * (1 - fy) + (texture[y0 + 1, x0] * (1 - fx) + texture[y0 + 1, x0 + 1] * fx) * fy
    return total / len(k)


def over(linear: np.ndarray, layers: Layers, *, behind: bool) -> np.ndarray:
    """The usual rule from far to near, with opacities of the layer's own pixels or of all that is nearer as well."""
    nearest = jnp.round(layers.position)
    picture = jnp.zeros((ROWS, COLS, 3))
    for i, psf in enumerate(disks(layers.coc_px)):
        alpha = (nearest >= i) if behind else (nearest == i)
        alpha = alpha[..., None].astype(jnp.float32)
        kernel = jnp.broadcast_to(psf, (3, SIZE, SIZE))
        cover = convolve(jnp.broadcast_to(alpha, linear.shape), kernel)
        picture = convolve(alpha * linear, kernel) + (1.0 - cover) * picture
    return np.asarray(picture)


def test_slanted_surfaces_have_no_gaps_and_follow_the_rays(texture: np.ndarray) -> None:
    coc = (1.0 + 0.1 * X).astype(np.float32)
    truth = slanted_truth(texture, 1.0, 0.1)
    inner = (slice(12, -12), slice(12, -12))
    ours = decibels(render(texture, coc)[inner], truth[inner])
    layers = layers_of(coc)
    assert ours > 45.0
    assert ours > decibels(over(texture, layers, behind=False)[inner], truth[inner]) + 15.0
    assert ours > decibels(over(texture, layers, behind=True)[inner], truth[inner]) + 5.0


def test_a_sharp_foreground_keeps_its_edge_and_its_colour() -> None:
    """In focus before a blurred bright background: no light of it on the foreground, no dark rim beside it."""
    coc = np.where(X < 40, 0.0, 7.0).astype(np.float32)
    linear = np.where((X < 40)[..., None], 0.1, 0.8).astype(np.float32) * np.ones(3, np.float32)
    found = render(linear, coc)
    np.testing.assert_allclose(found, linear, atol=1e-3)


def test_a_blurred_foreground_edge_is_the_integrated_psf() -> None:
    """Before a sharp background: coverage is the disc's area left of the edge, the hidden background is filled in."""
    coc = np.where(X < 40, -8.0, 0.0).astype(np.float32)
    linear = np.where((X < 40)[..., None], 0.9, 0.2).astype(np.float32) * np.ones(3, np.float32)
    found = render(linear, coc)
    step = (X < 40).astype(np.float32)[..., None] * np.ones(3, np.float32)
    cover = np.asarray(convolve(jnp.asarray(step), jnp.broadcast_to(disks(np.array([-8.0]))[0], (3, SIZE, SIZE))))
    np.testing.assert_allclose(found, 0.2 + 0.7 * cover, atol=2e-3)


def test_the_papers_rule_goes_from_far_to_near(texture: np.ndarray) -> None:
    """On a slant, where nothing is hidden, the formula layer by layer; at an edge the integrated PSF, as by ours."""
    slant = (1.0 + 0.1 * X).astype(np.float32)
    layers = layers_of(slant)
    found = render_far_to_near(jnp.asarray(texture), jnp.asarray(slant), layers, disks(layers.coc_px))
    np.testing.assert_allclose(found, over(texture, layers, behind=True), atol=2e-3)
    edge = np.where(X < 40, -8.0, 0.0).astype(np.float32)
    linear = np.where((X < 40)[..., None], 0.9, 0.2).astype(np.float32) * np.ones(3, np.float32)
    layers = layers_of(edge)
    found = render_far_to_near(jnp.asarray(linear), jnp.asarray(edge), layers, disks(layers.coc_px))
    step = (X < 40).astype(np.float32)[..., None] * np.ones(3, np.float32)
    cover = np.asarray(convolve(jnp.asarray(step), jnp.broadcast_to(disks(np.array([-8.0]))[0], (3, SIZE, SIZE))))
    np.testing.assert_allclose(found, 0.2 + 0.7 * cover, atol=2e-3)


def test_a_pixel_wide_layer_spreads_its_light() -> None:
    linear = np.full((ROWS, COLS, 3), 0.2, np.float32)
    linear[36, 50] = 100.0
    coc = np.full((ROWS, COLS), 3.0, np.float32)
    coc[36, 50] = -8.0
    found = render(linear, coc)
    psf = np.asarray(disks(np.array([-8.0])))[0, 0]
    around = found[36 - 16 : 36 + 16, 50 - 16 : 50 + 16, 0]
    np.testing.assert_allclose(around, 0.2 + 99.8 * psf, atol=5e-3)
    assert found.sum() == pytest.approx(linear.sum(), rel=1e-3)


def test_a_batch_is_its_patches_one_by_one() -> None:
    linear = np.stack([smooth_noise(1), smooth_noise(2)])
    coc = jnp.asarray(np.stack([STEPS, SLANT]))
    layers = jax.vmap(lambda c: quantise(c, jnp.ones_like(c), layers=LAYERS))(coc)
    psfs = jnp.stack([disks(c) for c in layers.coc_px])
    batch = np.asarray(jax.vmap(render_layers)(jnp.asarray(linear), coc, layers, psfs))
    for k, one in enumerate((STEPS, SLANT)):
        np.testing.assert_allclose(batch[k], render(linear[k], one), atol=2e-5)


def test_nothing_is_compiled_again_for_another_scene(texture: np.ndarray) -> None:
    render(texture, STEPS)
    before = find_surfaces._cache_size(), composite._cache_size()
    render(texture, SLANT)
    render(texture, np.zeros((ROWS, COLS), np.float32))
    assert (find_surfaces._cache_size(), composite._cache_size()) == before


@pytest.mark.parametrize("shape", [(1, 1), (3, 5)])
def test_tiny_pictures(shape: tuple[int, int]) -> None:
    linear = np.full((*shape, 3), 0.3, np.float32)
    coc = np.full(shape, 5.0, np.float32)
    coc[-1, -1] = -5.0
    layers = cut_layers(coc, np.full(shape, np.inf, np.float32))
    surfaces = find_surfaces(jnp.asarray(linear), jnp.asarray(coc), layers)
    found = composite(surfaces, disks(layers.coc_px), layers.coc_px)
    assert found.shape == (*shape, 3)
    np.testing.assert_allclose(found, 0.3, atol=1e-5)


def test_a_blur_larger_than_the_kernel_is_refused() -> None:
    layers = layers_of(np.where(X < 40, 3.0, 17.5).astype(np.float32))
    with pytest.raises(DefocusError, match=r"17\.5 px, a kernel of 32 px holds 15: use PSFs of 38 px"):
        require_kernel(layers.coc_px, layers.used, SIZE)
    require_kernel(layers.coc_px, layers.used, 40)


def test_a_kernels_sum_is_kept(texture: np.ndarray) -> None:
    """Relative illumination may be part of the PSFs."""
    layers = layers_of(STEPS)
    surfaces = find_surfaces(jnp.asarray(texture), jnp.asarray(STEPS), layers)
    psfs = disks(layers.coc_px)
    full = np.asarray(composite(surfaces, psfs, layers.coc_px))
    np.testing.assert_allclose(composite(surfaces, 0.6 * psfs, layers.coc_px), 0.6 * full, rtol=1e-4, atol=1e-5)
