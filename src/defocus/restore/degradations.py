"""What cameras add to pictures, for the inputs of a training: noise and JPEG, and pictures that are sharp already.

Pairs of the synthesis have the noise of their sensor and no traces of a file format. A network for any photograph must
know both, and must leave alone what is in focus. Done on the device for a whole batch; a pure function of the seed and
the step. Noise has a variance of a·x + b² in display values, white or as coarse as demosaicing leaves it. JPEG is the
baseline coder without its entropy coding, which loses nothing: 8×8 cosine transform, the standard's example tables
scaled by quality (ITU-T T.81, annex K), colour differences at full or half size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..files.randomness import generator, seed_for
from ._torch import F, Tensor, torch
from .config import Degradation
from .data import Batch

if TYPE_CHECKING:
    from jaxtyping import Float

LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
CHROMA = (
    (17, 18, 24, 47), (18, 21, 26, 66), (24, 26, 56, 99), (47, 66, 99, 99),
)  # fmt: skip  # the other entries are 99
TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
FROM_YCC = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))
SHOT = (1e-5, 2e-3)  # variance for each unit of light, even in its logarithm
READ = 0.01  # standard deviation, up to

Tables = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def degraded(batch: Batch, settings: Degradation, seed: int, *names: int, fused: bool = False) -> Batch:
    """A batch of display values [batch, 3, rows, cols] with degraded inputs; targets stay what they are.

    `fused`: the arithmetic is compiled to few kernels, on a GPU.
    """
    blurred, sharp = batch
    if not settings.active:
        return batch
    count, random = len(blurred), generator(seed, "degrade", *names)
    draws = np.stack(
        [
            random.random(count) < settings.sharp,
            random.random(count) < settings.noise,
            random.random(count) < settings.jpeg,
            np.exp(random.uniform(math.log(SHOT[0]), math.log(SHOT[1]), count)),
            READ * random.random(count),
            random.random(count) < 0.5,  # coarse
            random.uniform(*settings.jpeg_quality, count),
            random.random(count) < 0.5,  # colour differences at half size
        ],
        dtype=np.float32,
    )
    on_device, numbers = blurred.is_cuda, torch.from_numpy(draws)
    numbers = (numbers.pin_memory() if on_device else numbers).to(blurred.device, non_blocking=True)
    source = torch.Generator(blurred.device).manual_seed(seed_for(seed, "noise", *names))
    white = torch.randn(blurred.shape, generator=source, device=blurred.device, dtype=blurred.dtype)
    degrade = _fused() if fused and on_device else _degrade
    return degrade(blurred, sharp, white, numbers, _tables(blurred.device)), sharp


def _degrade(blurred: Tensor, sharp: Tensor, white: Tensor, draws: Tensor, tables: Tables) -> Tensor:
    """Degraded inputs; `draws` [8, batch] as `degraded` draws them."""
    is_sharp, noisy, coded, shot, read, coarse, quality, halved = draws[:, :, None, None, None].unbind(0)
    image = torch.where(is_sharp > 0.0, sharp, blurred)
    image = torch.where(noisy > 0.0, add_noise(image, shot, read, coarse > 0.0, white), image)
    image = torch.where(coded > 0.0, jpeg(image, quality, halved > 0.0, tables), image)
    return image.contiguous()


@lru_cache
def _fused() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(_degrade, dynamic=False)
    return compiled


def add_noise(
    image: Float[Tensor, "batch 3 rows cols"], shot: Tensor, read: Tensor, coarse: Tensor, white: Tensor
) -> Float[Tensor, "batch 3 rows cols"]:
    """Pictures with noise, in whole steps of 255; parameters [batch, 1, 1, 1], `white` noise of variance 1."""
    wide = F.pad(white, (1, 1, 1, 1), mode="reflect")
    smooth = sum(
        wide[..., i : i + image.shape[-2], j : j + image.shape[-1]] * (2.0 - abs(i - 1)) * (2.0 - abs(j - 1))
        for i in range(3)
        for j in range(3)
    )
    grain = torch.where(coarse, smooth / 6.0, white)  # weights 1 2 1 by 1 2 1: squares sum to 36
    sigma = torch.sqrt(shot * image.clamp(0.0, 1.0) + read**2)
    return _whole(image + sigma * grain)


def _whole(image: Tensor) -> Tensor:
    return (image.clamp(0.0, 1.0) * 255.0).round() / 255.0


@lru_cache
def _tables(device: torch.device) -> Tables:
    """Cosines [8, 8], quantisation of luma and chroma [8, 8], colours to and from YCbCr [3, 3]."""
    k = np.arange(8)
    cosines = np.cos(math.pi * (2 * k[None, :] + 1) * k[:, None] / 16.0) * np.where(
        k[:, None] == 0, math.sqrt(1 / 8), 0.5
    )
    chroma = np.full((8, 8), 99.0)
    chroma[:4, :4] = CHROMA
    arrays = (cosines, np.array(LUMA, np.float64), chroma, np.array(TO_YCC), np.array(FROM_YCC))
    one, *others = (torch.tensor(a, dtype=torch.float32, device=device) for a in arrays)
    return one, others[0], others[1], others[2], others[3]


def jpeg(
    image: Float[Tensor, "batch 3 rows cols"], quality: Tensor, halved: Tensor, tables: Tables | None = None
) -> Float[Tensor, "batch 3 rows cols"]:
    """Pictures after JPEG of a quality from 1 to 100, [batch, 1, 1, 1]; `halved`: colour differences at half size."""
    rows, cols = image.shape[-2:]
    cosines, luma_table, chroma_table, to_ycc, from_ycc = tables or _tables(image.device)
    factor = torch.where(quality < 50.0, 50.0 / quality, 2.0 - 0.02 * quality)[..., None]  # [batch, 1, 1, 1, 1]

    def coded(plane: Tensor, table: Tensor) -> Tensor:
        """A plane [batch, channels, rows, cols] through transform and quantisation."""
        batch, channels, height, width = plane.shape
        blocks = plane.reshape(batch, channels, height // 8, 8, width // 8, 8).permute(0, 1, 2, 4, 3, 5)
        steps = (table * factor[..., None] + 0.5).floor().clamp(1.0, 255.0)  # [batch, 1, 1, 1, 8, 8]
        values = cosines @ blocks @ cosines.T
        values = cosines.T @ ((values / steps).round() * steps) @ cosines
        return values.permute(0, 1, 2, 4, 3, 5).reshape(plane.shape)

    wide = F.pad(image, (0, -cols % 16, 0, -rows % 16), mode="replicate") * 255.0
    ycc = torch.einsum("ij,bjhw->bihw", to_ycc, wide).round()  # as coders do
    luma = coded(ycc[:, :1] - 128.0, luma_table) + 128.0
    half = F.interpolate(coded(F.avg_pool2d(ycc[:, 1:], 2), chroma_table), scale_factor=2, mode="bilinear")
    chroma = torch.where(halved, half, coded(ycc[:, 1:], chroma_table))
    rgb = torch.einsum("ij,bjhw->bihw", from_ycc, torch.cat([luma, chroma], 1)) / 255.0
    return _whole(rgb[..., :rows, :cols])
