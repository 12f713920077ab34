"""NAFNet (Chen, Chu, Zhang and Sun, "Simple Baselines for Image Restoration", ECCV 2022).

A U-Net of blocks without activation functions: layer norm, 1×1 and depth-wise 3×3 convolutions, the product of two
halves of the channels, and a channel attention that is a 1×1 convolution of the channels' means. Networks trained on
small crops see other means in whole photographs; with `local_pool_px` the mean is taken over a window of so many pixels
around each place instead (Chu et al., "Improving Image Restoration by Revisiting Global Information Aggregation",
ECCV 2022). Windows are moved in steps of the deepest level's pixels, the attention is computed for each of them, and is
interpolated between their middles: windows around every pixel would take longer than all the rest on a processor.
Tiles that begin on this grid have the windows of the whole picture.

With `shuffle` = 2 four neighbouring pixels become channels of one (Shi et al., "Real-Time Single Image and Video
Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network", CVPR 2016): the full size, where a block
costs the most memory traffic, has no blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from .blocks import ChannelNorm, Network, Options

if TYPE_CHECKING:
    from jaxtyping import Float

AT_ONCE = 2**22  # numbers of running means: bounds what they need beside the map itself

Blocks = tuple[Annotated[int, Field(ge=0, le=128)], ...]


class NAFNetOptions(Options):
    width: int = Field(64, ge=2, le=1024)
    encoder_blocks: Blocks = Field((1, 1, 1, 28), min_length=1, max_length=6)
    middle_blocks: int = Field(1, ge=0, le=128)
    decoder_blocks: Blocks = Field((1, 1, 1, 1), min_length=1, max_length=6)
    shuffle: int = Field(1, ge=1, le=4)  # pixels a side that become channels: the first level has this part of the size
    local_pool_px: int | None = Field(None, ge=16)  # while restoring, never while learning; 0, as TOML has no None

    @field_validator("local_pool_px", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return None if type(value) in (int, float) and value == 0 else value

    @model_validator(mode="after")
    def _as_many_levels(self) -> Self:
        if len(self.encoder_blocks) != len(self.decoder_blocks):
            raise ValueError(
                f"{len(self.encoder_blocks)} encoder_blocks, but {len(self.decoder_blocks)} decoder_blocks"
            )
        return self


def local_mean(x: Float[Tensor, "batch channels rows cols"], window: int) -> Float[Tensor, "batch channels rows cols"]:
    """The mean over window × window pixels around each one, in float32. Near the edges, of the nearest window that lies
    within; where the map is no larger than a window, its mean."""
    parts = x.split(max(AT_ONCE // (x.shape[0] * x.shape[2] * x.shape[3]), 1), dim=1)
    return torch.cat([_running_mean(_running_mean(part.float(), window, -2), window, -1) for part in parts], dim=1)


def _running_mean(x: Tensor, window: int, axis: int) -> Tensor:
    """Means along one axis from differences of a running sum: their cost does not depend on the window."""
    size = x.shape[axis]
    if size <= window:
        return x.mean(axis, keepdim=True).expand(x.shape)
    middle = x.mean(axis, keepdim=True)  # sums of what differs from it stay small, and so does rounding
    sums = F.pad((x - middle).cumsum(axis), (1, 0) if axis == -1 else (0, 0, 1, 0))
    count = size - window + 1
    means = (sums.narrow(axis, window, count) - sums.narrow(axis, 0, count)) / window + middle
    before = (window - 1) // 2
    after = window - 1 - before
    return F.pad(means, (before, after, 0, 0) if axis == -1 else (0, 0, before, after), mode="replicate")


class Pool(nn.Module):
    """The mean of a map, or means of windows of it: one for each cell of `cell` × `cell` pixels."""

    def __init__(self, window: int | None, cell: int) -> None:
        super().__init__()
        self.window, self.cell = window, cell

    def forward(self, x: Float[Tensor, "batch channels rows cols"]) -> Tensor:
        if self.window is None or self.training or max(x.shape[-2:]) <= self.window:
            return x.mean((-2, -1), keepdim=True, dtype=torch.float32).to(x.dtype)
        cells = F.avg_pool2d(x, self.cell) if self.cell > 1 else x
        return local_mean(cells, max(round(self.window / self.cell), 1)).to(x.dtype)


class Block(nn.Module):
    def __init__(self, channels: int, window: int | None, cell: int) -> None:
        super().__init__()
        double = 2 * channels
        self.norm1 = ChannelNorm(channels, eps=1e-6)
        self.conv1 = nn.Conv2d(channels, double, 1)
        self.conv2 = nn.Conv2d(double, double, 3, padding=1, groups=double)
        self.sca = nn.Sequential(Pool(window, cell), nn.Conv2d(channels, channels, 1))
        self.conv3 = nn.Conv2d(channels, channels, 1)
        self.norm2 = ChannelNorm(channels, eps=1e-6)
        self.conv4 = nn.Conv2d(channels, double, 1)
        self.conv5 = nn.Conv2d(channels, channels, 1)
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))  # a block begins as the identity
        self.gamma = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Float[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch channels rows cols"]:
        gated = _gate(self.conv2(self.conv1(self.norm1(x))))
        attention = self.sca(gated)
        if max(attention.shape[-2:]) > 1 and attention.shape != gated.shape:
            attention = F.interpolate(attention, gated.shape[-2:], mode="bilinear")
        x = x + self.conv3(gated * attention) * self.beta.to(x.dtype)  # under autocast, x stays in half precision
        return x + self.conv5(_gate(self.conv4(self.norm2(x)))) * self.gamma.to(x.dtype)


def _gate(x: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=1)
    return one * other


class NAFNet(Network):
    name = "nafnet"
    options: NAFNetOptions
    block_types = (Block,)

    def __init__(self, options: NAFNetOptions) -> None:
        super().__init__(options)
        channels, levels, pixels = options.width, len(options.encoder_blocks), options.local_pool_px
        self.multiple = self.least = options.shuffle * 2**levels
        # Of the means, at each level: their windows, and the cells between which windows are moved.
        pixels = None if pixels is None else max(pixels // options.shuffle, 1)
        pools = [(None if pixels is None else max(pixels // 2**k, 1), 2 ** (levels - k)) for k in range(levels + 1)]
        colours = 3 * options.shuffle**2
        self.intro = nn.Conv2d(colours, channels, 3, padding=1)
        self.ending = nn.Conv2d(channels, colours, 3, padding=1)
        self.encoders, self.downs = nn.ModuleList(), nn.ModuleList()
        self.decoders, self.ups = nn.ModuleList(), nn.ModuleList()
        for count, pool in zip(options.encoder_blocks, pools, strict=False):
            self.encoders.append(nn.Sequential(*(Block(channels, *pool) for _ in range(count))))
            self.downs.append(nn.Conv2d(channels, 2 * channels, 2, stride=2))
            channels *= 2
        self.middle_blks = nn.Sequential(*(Block(channels, *pools[-1]) for _ in range(options.middle_blocks)))
        for count, pool in zip(options.decoder_blocks, pools[-2::-1], strict=True):
            self.ups.append(nn.Sequential(nn.Conv2d(channels, 2 * channels, 1, bias=False), nn.PixelShuffle(2)))
            channels //= 2
            self.decoders.append(nn.Sequential(*(Block(channels, *pool) for _ in range(count))))

    def restored(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        x = self.intro(F.pixel_unshuffle(image, self.options.shuffle))
        skips = []
        for encoder, down in zip(self.encoders, self.downs, strict=True):
            x = encoder(x)
            skips.append(x)
            x = down(x)
        x = self.middle_blks(x)
        for decoder, up in zip(self.decoders, self.ups, strict=True):
            x = decoder(skips.pop() + up(x))  # in this order the sum has the layout of the skip
        return image + F.pixel_shuffle(self.ending(x), self.options.shuffle)
