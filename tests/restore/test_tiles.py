"""Deblurring in tiles: weights that add up, no seams, bounded memory, and networks that look farther than a tile."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")
from torch import nn  # noqa: E402

from defocus.errors import DefocusError  # noqa: E402
from defocus.restore.tiles import deblur, plan_tiles, restored_tiles  # noqa: E402

from .networks import Brighter, Plain, Strided, noise, whole  # noqa: E402


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130, 199, 511, 512, 513, 1000, 1023])
@pytest.mark.parametrize(("tile", "overlap", "multiple"), [(64, 0, 1), (64, 32, 1), (96, 20, 8), (128, 64, 16)])
def test_weights_add_up_to_one_and_edges_of_tiles_count_nothing(
    length: int, tile: int, overlap: int, multiple: int
) -> None:
    axis = plan_tiles((length, 64), tile, overlap, multiple).rows
    total = np.zeros(max(axis.starts) + axis.size)
    for number, (start, weight) in enumerate(zip(axis.starts, axis.weights, strict=True)):
        assert start % multiple == 0
        assert weight.shape == (axis.size,)
        assert weight.min() >= 0.0
        total[start : start + axis.size] += weight
        if number:
            assert np.all(weight[: overlap // 4] == 0.0)
            assert axis.starts[number - 1] + axis.size - start >= overlap
        if number < len(axis.starts) - 1:
            assert np.all(weight[axis.size - overlap // 4 :] == 0.0)
    assert len(total) >= length
    np.testing.assert_allclose(total, 1.0, atol=1e-6)
    if len(axis.starts) > 1:
        assert len(total) - length < multiple


@pytest.mark.parametrize(("rows", "cols"), [(150, 231), (64, 300), (70, 66)])
def test_tiled_equals_whole_where_the_overlap_covers_the_reach(rows: int, cols: int) -> None:
    image = noise(rows, cols)
    for model, overlap in ((Plain(), 24), (Strided(), 32)):
        result = deblur(model, image, tile_px=80, overlap_px=overlap, batch=3)
        np.testing.assert_allclose(result, whole(model, image), atol=2e-6)


def test_a_tile_off_the_grid_would_be_seen() -> None:
    """What the multiple is for: the same network without it, cut at odd places, differs."""
    model, image = Strided(), noise(150, 231)
    true = whole(model, image)
    model.multiple = 1
    assert np.abs(deblur(model, image, tile_px=81, overlap_px=32) - true).max() > 1e-3


def test_too_little_overlap_leaves_no_seam() -> None:
    """Where a network reaches farther than the overlap, neighbouring tiles fade into each other."""

    class Mean(nn.Module):  # the whole tile matters everywhere
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3), keepdim=True).expand_as(x)

    image = noise(64, 400)
    image[:, 200:] *= 0.2
    result = deblur(Mean(), image, tile_px=128, overlap_px=64)[32, :, 0]
    assert np.ptp(result) > 0.2
    assert (
        np.abs(np.diff(result)).max() < 1.6 * np.ptp(result) / 32
    )  # the ramp is 32 pixels long, 1.5 / 32 its steepest


def test_tiles_have_one_shape_and_are_made_when_asked_for() -> None:
    model, image = Strided(), noise(150, 231)
    tiles = plan_tiles((150, 231), 80, 16, 4)
    results = restored_tiles(model, image, tiles, batch=1)
    assert not model.shapes
    next(results)
    assert len(model.shapes) == 1
    assert sum(1 for _ in results) == len(tiles.places) - 1
    assert set(model.shapes) == {(1, 3, 80, 80)}


def test_memory_is_that_of_the_result_and_a_few_tiles() -> None:
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    image = np.full((1600, 1600, 3), 0.5, np.float32)
    deblur(Nothing(), image[:64, :64])
    tracemalloc.start()
    result = deblur(Nothing(), image, tile_px=128, overlap_px=32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(result, image, atol=1e-6)
    assert peak < result.nbytes + 10 * 128 * 128 * 3 * 4


def test_smaller_than_anything_and_bf16() -> None:
    image = noise(5, 3)
    result = deblur(Brighter(), image)
    np.testing.assert_allclose(result, 0.5 * image + 0.5, atol=1e-6)
    model, image = Plain(), noise(100, 100)
    exact, rough = (deblur(model, image, tile_px=64, overlap_px=24, precision=p) for p in ("float32", "bf16"))
    assert 0.0 < np.abs(exact - rough).max() < 0.02


def test_whole_numbers_are_parts_of_their_white() -> None:
    for kind in (np.uint8, np.uint16):
        white = np.iinfo(kind).max
        image = (noise(20, 20) * white).astype(kind)
        np.testing.assert_allclose(deblur(Brighter(), image), 0.5 * image / white + 0.5, atol=1e-6)


def test_wrong_tiles_are_refused() -> None:
    with pytest.raises(DefocusError, match=r"64 pixels that share 48; they may share half at most"):
        plan_tiles((100, 100), 64, 48)
    with pytest.raises(DefocusError, match=r"of 100 pixels that share 50 \(in multiples of 8, .*: 104 and 56\); they"):
        plan_tiles((100, 100), 100, 50, 8)
    with pytest.raises(DefocusError, match="precision 'half'; known are float32, bf16"):
        deblur(Plain(), noise(64, 64), precision="half")

    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[..., ::2, ::2]

    with pytest.raises(DefocusError, match=r"made \[1, 3, 32, 32\] of \[1, 3, 64, 64\]"):
        deblur(Halves(), noise(64, 64))


def test_nrknet_in_tiles_equals_the_whole() -> None:
    """Its reach over three scales is far larger than its tiles, but what lies far away counts little."""
    from defocus.restore.models import build_model

    torch.manual_seed(3)
    model = build_model("nrknet", "small", width=8, kernels=5).eval()
    image = noise(192, 320)
    true = whole(model, image)
    assert np.abs(true - image).mean() > 1e-3  # it does something
    result = deblur(model, image, tile_px=192, overlap_px=96)
    assert np.abs(result - true).max() < 1e-3


def test_nafnet_in_tiles_differs_by_its_global_means(tiny_nafnet: Path) -> None:
    """Its attention takes means over all of a picture; local means are the same in tiles as in the whole."""
    from defocus.restore.models.checkpoints import load_model

    image = noise(160, 256)
    image[:, 128:] *= 0.3  # tiles differ in their means
    model = load_model(tiny_nafnet)
    true = whole(model, image)
    spread = float(np.abs(true - image).mean())
    assert spread > 1e-3
    far = np.abs(deblur(model, image, tile_px=96, overlap_px=48) - true).max()
    assert far > 1e-3  # so a test can see it
    local = load_model(tiny_nafnet, local_pool_px=32)
    near = np.abs(deblur(local, image, tile_px=144, overlap_px=72) - whole(local, image)).max()
    assert near < 1e-3 < far


@pytest.mark.parametrize("shuffle", [1, 2])
def test_means_over_windows_make_tiles_of_the_whole_picture(shuffle: int) -> None:
    """A NAFNet with local means, as the shipped one has: tiles differ from the whole by far less than a step of 255."""
    from defocus.restore.models import build_model

    torch.manual_seed(0)
    blocks = {"encoder_blocks": [1, 1], "middle_blocks": 1, "decoder_blocks": [1, 1]}
    network = build_model("nafnet", width=4, local_pool_px=32, shuffle=shuffle, **blocks)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    image = noise(144, 176)
    as_whole = deblur(network, image, tile_px=None)
    assert np.abs(as_whole - image).mean() > 0.1  # it does something
    for overlap in (32, 48):
        tiled = deblur(network, image, tile_px=96, overlap_px=overlap)
        assert np.abs(tiled - as_whole).max() < 0.05 / 255.0
