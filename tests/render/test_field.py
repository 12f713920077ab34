"""Whole photographs: tiles and PSFs that change over the field."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from defocus.errors import DefocusError
from defocus.render import full_field
from defocus.render.composite import composite
from defocus.render.full_field import node_places, render_photograph
from defocus.scene.front_and_back import Surfaces, find_surfaces
from defocus.scene.layers import Layers, quantise

from .conftest import COLS, LAYERS, ROWS, SIZE, disks

Y, X = np.mgrid[:ROWS, :COLS]
COC = np.where(np.hypot(X - 40, Y - 30) < 18, -6.0, 1.0 + 0.05 * X).astype(np.float32)


@pytest.fixture(scope="module")
def layers() -> Layers:
    return quantise(jnp.asarray(COC), jnp.ones((ROWS, COLS), jnp.float32), layers=LAYERS)


def grid(layers: Layers, rows: int, cols: int) -> np.ndarray:
    """Discs that grow to the right and get darker to the bottom."""
    return np.stack(
        [
            np.stack([(1 - 0.2 * r) * np.asarray(disks(layers.coc_px * (1 + 0.3 * c))) for c in range(cols)])
            for r in range(rows)
        ]
    )


def at_once(linear: np.ndarray, layers: Layers, psfs: np.ndarray) -> np.ndarray:
    surfaces = find_surfaces(jnp.asarray(linear), jnp.asarray(COC), layers)
    return np.asarray(composite(surfaces, jnp.asarray(psfs), layers.coc_px))


def test_tiles_with_one_psf_are_the_picture_at_once(texture: np.ndarray, layers: Layers) -> None:
    psfs = grid(layers, 1, 1)
    whole = at_once(texture, layers, psfs[0, 0])
    tiled = render_photograph(texture, COC, layers, psfs, tile_px=32)
    np.testing.assert_allclose(tiled, whole, atol=2e-3)
    assert np.sqrt(np.mean((tiled - whole) ** 2)) < 2e-4


def test_surfaces_of_a_large_photograph_are_found_once_for_a_row_of_tiles(
    texture: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    light, coc = np.tile(texture, (3, 1, 1)), np.tile(COC, (3, 1))
    layers = quantise(jnp.asarray(coc), jnp.ones(coc.shape, jnp.float32), layers=LAYERS)
    psfs, strips = grid(layers, 2, 3), []

    def counted(linear: Array, *others: Any) -> Surfaces:
        strips.append(linear.shape[0])
        return find_surfaces(linear, *others)

    monkeypatch.setattr(full_field, "_surfaces", counted)
    whole = render_photograph(light, coc, layers, psfs, tile_px=16)
    assert strips == [3 * ROWS]
    monkeypatch.setattr(full_field, "SURFACE_PIXELS", 0)
    found = render_photograph(light, coc, layers, psfs, tile_px=16)
    assert 1 < len(strips[1:]) <= -(-3 * ROWS // 16)
    assert set(strips[1:]) == {16 + 2 * SIZE}
    assert np.sqrt(np.mean((found - whole) ** 2)) < 2e-3


def test_between_nodes_pictures_are_blended(texture: np.ndarray, layers: Layers) -> None:
    psfs = grid(layers, 2, 2)
    found = render_photograph(texture, COC, layers, psfs, tile_px=32)
    corners = [[at_once(texture, layers, psfs[r, c]) for c in (0, 1)] for r in (0, 1)]
    v, u = (Y / (ROWS - 1))[..., None], (X / (COLS - 1))[..., None]
    expected = (1 - v) * ((1 - u) * corners[0][0] + u * corners[0][1]) + v * (
        (1 - u) * corners[1][0] + u * corners[1][1]
    )
    assert np.sqrt(np.mean((found - expected) ** 2)) < 2e-4


def test_no_seams_on_a_smooth_scene(layers: Layers) -> None:
    """A flat scene under PSFs that darken to the bottom: no jump anywhere, tile and cell borders included."""
    linear = np.full((ROWS, COLS, 3), 0.5, np.float32)
    found = render_photograph(linear, COC, layers, grid(layers, 3, 2), tile_px=32)
    expected = 0.5 * np.interp(np.arange(ROWS), node_places(ROWS, 3), [1.0, 0.8, 0.6])
    np.testing.assert_allclose(found, np.broadcast_to(expected[:, None, None], found.shape), atol=1e-4)


def test_a_function_gives_the_psfs_of_each_node_once(texture: np.ndarray, layers: Layers) -> None:
    psfs, asked, shown = grid(layers, 3, 2), [], []

    def at_node(row: int, col: int) -> np.ndarray:
        asked.append((row, col))
        return psfs[row, col]

    found = render_photograph(texture, COC, layers, at_node, (3, 2), tile_px=32, progress=shown.append)
    np.testing.assert_array_equal(found, render_photograph(texture, COC, layers, psfs, tile_px=32))
    assert sorted(asked) == [(r, c) for r in range(3) for c in range(2)]
    assert shown == sorted(shown)
    assert shown[-1] == 1.0


def test_refusals(texture: np.ndarray, layers: Layers) -> None:
    psfs = grid(layers, 1, 1)
    with pytest.raises(DefocusError, match="expected one size"):
        render_photograph(texture[1:], COC, layers, psfs)
    with pytest.raises(DefocusError, match="nodes None"):
        render_photograph(texture, COC, layers, lambda r, c: psfs[r, c])
    with pytest.raises(DefocusError, match=r"\(2, 2\) nodes asked for"):
        render_photograph(texture, COC, layers, psfs, (2, 2))
    with pytest.raises(DefocusError, match="for 16 layers"):
        render_photograph(texture, COC, layers, psfs[:, :, 1:])
    with pytest.raises(DefocusError, match="blur radius of 6"):
        render_photograph(texture, COC, layers, psfs[..., : SIZE // 4, : SIZE // 4])
    with pytest.raises(DefocusError, match="tiles of 8 px"):
        render_photograph(texture, COC, layers, psfs, tile_px=8)


@pytest.mark.parametrize(
    ("cell", "most", "kernel", "tile"),
    [
        (240, None, 129, 240),
        (2000, None, 129, 512),
        (2000, None, 705, 2000),
        (700, None, 129, 704),
        (700, 512, 129, 352),
    ],
)
def test_tiles_are_even_parts_of_a_cell(cell: int, most: int | None, kernel: int, tile: int) -> None:
    """On a processor: near 512 pixels, or twice the kernel where that is more."""
    if full_field.backend_kind() != "cpu":
        pytest.skip("other sizes on a GPU")
    assert full_field._tile_pixels(cell, most, kernel) == tile
