"""Defocus of surfaces that are all there, against a camera that is added up from points of its pupil."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from defocus.render.stack_composite import composite_stack, pupil_share
from defocus.scene.surface_stack import StackLayers, SurfaceStack, quantise_stack

from .conftest import COLS, LAYERS, ROWS, SIZE, disks, smooth_noise

Y, X = np.mgrid[:ROWS, :COLS]
PUPIL = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
INNER = np.s_[SIZE // 2 : -SIZE // 2, SIZE // 2 : -SIZE // 2]


def stack_of(*surfaces: tuple[np.ndarray, np.ndarray | float, float]) -> SurfaceStack:
    """Colours, opacities and depths from far to near."""
    colours, opacities, depths = zip(*surfaces, strict=True)
    shape = len(surfaces), ROWS, COLS
    opacity = np.stack([np.broadcast_to(np.float32(one), shape[1:]) for one in opacities])
    depth = np.broadcast_to(np.array(depths, np.float32)[:, None, None], shape)
    return SurfaceStack(np.stack(colours).astype(np.float32), opacity, depth)


def layered(stack: SurfaceStack, coc: np.ndarray) -> StackLayers:
    return quantise_stack(jnp.asarray(coc), jnp.asarray(stack.depth_m), jnp.asarray(stack.opacity), layers=LAYERS)


def pupil_psfs(radii: np.ndarray) -> jnp.ndarray:
    """The nine points of the pupil as each layer images them."""
    psfs = np.zeros((len(radii), 1, SIZE, SIZE), np.float32)
    for psf, radius in zip(psfs, radii, strict=True):
        for dy, dx in PUPIL:
            psf[0, SIZE // 2 + round(radius * dy), SIZE // 2 + round(radius * dx)] += 1.0 / len(PUPIL)
    return jnp.asarray(psfs)


def through_the_pupil(stack: SurfaceStack, radii: tuple[int, ...]) -> np.ndarray:
    """The mean of what each point of the pupil sees: surfaces moved by their blur, one over the other."""
    total = np.zeros((ROWS, COLS, 3))
    for dy, dx in PUPIL:
        light = np.zeros((ROWS, COLS, 3))
        for colour, opacity, radius in zip(stack.colour, stack.opacity, radii, strict=True):
            moved = [np.roll(values, (radius * dy, radius * dx), (0, 1)) for values in (colour, opacity[..., None])]
            light += moved[1] * (moved[0] - light)
        total += light / len(PUPIL)
    return total


@pytest.mark.parametrize("radii", [(5, 0), (0, 6)], ids=["blurred behind a sharp edge", "blurred before"])
def test_what_is_behind_an_edge_is_seen_as_a_camera_sees_it(radii: tuple[int, int]) -> None:
    """The hidden part of the background is bright: a guess of it from what is seen would be far off."""
    edge = X < COLS // 2
    back = np.where(edge, 3.0, 0.2)[..., None] * (0.5 + smooth_noise(1))
    front = 0.3 + smooth_noise(2)
    stack = stack_of((back, 1.0, 8.0), (front, edge, 2.0))
    coc = np.broadcast_to(np.float32(radii)[:, None, None], stack.opacity.shape)
    layers = layered(stack, coc)
    seen = np.asarray(composite_stack(stack, layers, pupil_psfs(np.asarray(layers.coc_px))))
    truth = through_the_pupil(stack, radii)
    np.testing.assert_allclose(seen[INNER], truth[INNER], atol=2e-5)
    visible_alone = np.where(edge[..., None], front, back)
    assert np.abs(truth - visible_alone)[INNER].max() > 0.3  # the edge matters


def test_no_pixel_is_brighter_or_darker_than_all_that_is_there() -> None:
    """Slanted surfaces, whose layers cover all of the pupil together."""
    colours = [0.2 + 4.0 * smooth_noise(seed) for seed in (3, 4, 5)]
    stack = stack_of((colours[0], 1.0, 8.0), (colours[1], Y > 20, 4.0), (colours[2], X > 50, 2.0))
    slants = np.stack([0.08 * X + 0.02 * Y, 4.0 - 0.1 * X, -8.0 + 0.06 * X + 0.05 * Y]).astype(np.float32)
    layers = layered(stack, slants)
    seen = np.asarray(composite_stack(stack, layers, disks(layers.coc_px)))
    assert seen.min() > stack.colour.min() - 1e-3
    assert seen.max() < stack.colour.max() + 1e-3
    assert np.abs(np.diff(seen, axis=1)).max() < np.abs(np.diff(stack.picture(), axis=1)).max()


def test_what_rounding_leaves_of_the_pupil_is_no_light() -> None:
    """A GPU's covers may sum to a last digit more than 1; the next layer's own may be 0, or rounding itself."""
    above = np.nextafter(np.float32(1.0), np.float32(2.0))
    own = jnp.asarray([0.0, 1e-25, 1e-9, 0.3, 1.0], jnp.float32)
    assert np.asarray(pupil_share(own, jnp.float32(above))).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(pupil_share(own, jnp.float32(0.8)), [1.0, 1.0, 1.0, 0.2 / 0.3, 0.2], rtol=1e-6)
    assert np.asarray(pupil_share(own, jnp.float32(0.0))).tolist() == [1.0] * 5


def test_a_stack_in_focus_is_its_picture() -> None:
    soft = np.clip((X - 30) / 8.0, 0.0, 1.0)
    stack = stack_of((smooth_noise(1), 1.0, 5.0), (smooth_noise(2), soft, 2.0), (np.zeros((ROWS, COLS, 3)), 0.0, 2.0))
    layers = layered(stack, np.zeros(stack.opacity.shape, np.float32))
    assert int(layers.used.sum()) == 2  # a surface that is nowhere takes no layer
    psfs = pupil_psfs(np.asarray(layers.coc_px))
    np.testing.assert_allclose(composite_stack(stack, layers, psfs), stack.picture(), atol=1e-5)
    nearer = stack.visible_depth()
    assert set(np.unique(nearer)) == {2.0, 5.0}
    assert (nearer == 2.0).tolist() == (soft >= 0.5).tolist()


def test_layers_of_a_slant_lie_where_its_depth_has_their_blur() -> None:
    """Radius is linear in 1/depth, so is the depth of layers; pixels share their two layers by their own radius."""
    inverse = np.float32(0.2 + 0.002 * X)
    depth = (1.0 / inverse)[None]
    coc = (20.0 * (0.3 - inverse))[None].astype(np.float32)
    layers = quantise_stack(jnp.asarray(coc), jnp.asarray(depth), jnp.ones_like(depth), layers=LAYERS)
    used = np.asarray(layers.used)
    np.testing.assert_allclose(20.0 * (0.3 - 1.0 / np.asarray(layers.depth_m)[used]), layers.coc_px[used], atol=1e-4)
    assert np.abs(np.diff(layers.coc_px[used])).max() <= 1.0 + 1e-5
    back = np.interp(np.asarray(layers.position[0]), np.arange(used.sum()), np.asarray(layers.coc_px)[used])
    np.testing.assert_allclose(back, coc[0], atol=1e-4)
