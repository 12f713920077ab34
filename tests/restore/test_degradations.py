"""Noise and JPEG of inputs: against Pillow's coder, and as the settings say."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")
from PIL import Image  # noqa: E402

from defocus.restore.config import Degradation  # noqa: E402
from defocus.restore.degradations import add_noise, degraded, jpeg  # noqa: E402


def colours(rows: int = 64, cols: int = 80) -> np.ndarray:
    """A picture with the spectrum of photographs, saturated colours too, of whole numbers."""
    noise = np.random.default_rng(7).standard_normal((rows, cols, 3))
    values = 0.45 + 1.2 * gaussian_filter(noise, (3.0, 3.0, 0.0)) + 0.08 * gaussian_filter(noise, (0.7, 0.7, 0.0))
    return (255 * values.clip(0.0, 1.0)).round().astype(np.uint8)


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32) / 255.0).permute(2, 0, 1)[None]


@pytest.mark.parametrize("quality", [40, 75, 92])
@pytest.mark.parametrize("halved", [False, True], ids=["4:4:4", "4:2:0"])
def test_jpeg_is_that_of_a_file(quality: int, halved: bool) -> None:
    """Far nearer to the file of Pillow than this is to the picture: what differs are roundings within the coder."""
    values = colours()
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "JPEG", quality=quality, subsampling=2 if halved else 0)
    file = np.asarray(Image.open(buffer).convert("RGB")).astype(np.float32)
    settings = torch.full((1, 1, 1, 1), float(quality)), torch.full((1, 1, 1, 1), halved)
    ours = 255.0 * jpeg(tensor(values), *settings)[0].permute(1, 2, 0).numpy()
    loss, difference = np.abs(file - values).mean(axis=(0, 1)), np.abs(ours - file).mean(axis=(0, 1))
    assert (difference < 0.3 * loss).all(), (difference, loss)
    # The loss itself is the same: neither more nor less is thrown away, in any channel.
    np.testing.assert_allclose(np.abs(ours - values).mean(axis=(0, 1)), loss, rtol=0.06)


def test_jpeg_of_odd_sizes_and_of_many_at_once() -> None:
    values = colours()[:37, :51]
    batch = torch.cat([tensor(values)] * 2)
    quality = torch.tensor([30.0, 95.0])[:, None, None, None]
    halved = torch.tensor([True, False])[:, None, None, None]
    coded = jpeg(batch, quality, halved)
    assert coded.shape == batch.shape
    errors = (coded - batch).abs().mean((1, 2, 3))
    assert errors[0] > 3 * errors[1]
    torch.testing.assert_close(coded[1:], jpeg(batch[1:], quality[1:], halved[1:]))


@pytest.mark.parametrize("coarse", [False, True])
def test_noise_has_the_variance_that_it_says(coarse: bool) -> None:
    """a·x + b² at a dark and a bright grey, whether white or coarse."""
    shot, read = 1e-3, 0.008
    for level in (0.2, 0.7):
        grey = torch.full((1, 3, 160, 160), round(255 * level) / 255.0)
        parameters = [torch.full((1, 1, 1, 1), value) for value in (shot, read, coarse)]
        noisy = add_noise(grey, *parameters, torch.randn(grey.shape, generator=torch.Generator().manual_seed(2)))
        assert float((noisy - grey).var()) == pytest.approx(shot * level + read**2, rel=0.05)
        assert float((noisy - grey).mean()) == pytest.approx(0.0, abs=5e-4)
        neighbours = np.corrcoef((noisy - grey)[0, 0, :, :-1].flatten(), (noisy - grey)[0, 0, :, 1:].flatten())[0, 1]
        assert neighbours == pytest.approx(2 / 3 if coarse else 0.0, abs=0.03)


def test_inputs_alone_are_degraded_and_parts_are_kept() -> None:
    """A function of seed and step; without settings nothing; a tenth sharp means a tenth sharp."""
    random = torch.Generator().manual_seed(0)
    sharp = torch.rand((200, 3, 16, 16), generator=random)
    blurred = torch.rand((200, 3, 16, 16), generator=random)
    assert degraded((blurred, sharp), Degradation(), 3, 0)[0] is blurred
    alone = degraded((blurred, sharp), Degradation(sharp=0.25), 3, 0)
    is_sharp = (alone[0] == sharp).flatten(1).all(1)
    assert torch.equal(alone[1], sharp)
    assert 30 <= int(is_sharp.sum()) <= 70
    assert torch.equal(alone[0][~is_sharp], blurred[~is_sharp])
    every = Degradation(sharp=0.1, noise=0.4, jpeg=0.5)
    one, again, other = (degraded((blurred, sharp), every, 3, step)[0] for step in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    changed = (one != blurred).flatten(1).any(1).float().mean()
    assert 0.6 < float(changed) < 0.85  # 1 − 0.9·0.6·0.5
