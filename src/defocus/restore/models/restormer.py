"""Restormer (Zamir et al., "Restormer: Efficient Transformer for High-Resolution Image Restoration", CVPR 2022),
written from the paper.

A U-Net of transformer blocks. Attention runs across channels, not pixels: with queries and keys normalised over the
pixels, softmax(τ · Q Kᵀ) is a small matrix for each head, so that cost grows with the number of pixels alone. The
feed-forward part multiplies two depth-wise convolved branches, one of them through GELU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from .blocks import ChannelNorm, Network, Options, named

if TYPE_CHECKING:
    from jaxtyping import Float

Four = tuple[int, int, int, int]


class RestormerOptions(Options):
    width: int = Field(48, ge=2, le=512, multiple_of=2)
    blocks: Four = (4, 6, 6, 8)
    refinement_blocks: int = Field(4, ge=0, le=64)
    heads: Four = (1, 2, 4, 8)
    expansion: float = Field(2.66, gt=0, le=16)

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        for level, (heads, blocks) in enumerate(zip(self.heads, self.blocks, strict=True)):
            if blocks < 0 or heads < 1 or (self.width * 2**level) % heads:
                raise ValueError(
                    f"level {level + 1}: {blocks} blocks of {heads} heads over {self.width * 2**level} channels"
                )
        return self


class ChannelAttention(nn.Module):
    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.qkv = nn.Conv2d(channels, 3 * channels, 1, bias=False)
        self.qkv_dwconv = nn.Conv2d(3 * channels, 3 * channels, 3, padding=1, groups=3 * channels, bias=False)
        self.project_out = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x: Float[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch channels rows cols"]:
        parts = self.qkv_dwconv(self.qkv(x)).chunk(3, dim=1)
        query, key, value = (part.reshape(x.shape[0], self.heads, -1, x.shape[-2] * x.shape[-1]) for part in parts)
        likeness = (_unit(query) @ _unit(key).mT).float()
        mixed = torch.softmax(likeness * self.temperature.float(), dim=-1).to(value.dtype) @ value
        return self.project_out(mixed.reshape(x.shape))


def _unit(x: Float[Tensor, "batch heads channels pixels"]) -> Float[Tensor, "batch heads channels pixels"]:
    """Maps of length 1 over the pixels; the length is summed in float32."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return x * length.clamp_min(1e-12).reciprocal().to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, channels: int, expansion: float) -> None:
        super().__init__()
        hidden = int(channels * expansion)
        self.project_in = nn.Conv2d(channels, 2 * hidden, 1, bias=False)
        self.dwconv = nn.Conv2d(2 * hidden, 2 * hidden, 3, padding=1, groups=2 * hidden, bias=False)
        self.project_out = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, passed = self.dwconv(self.project_in(x)).chunk(2, dim=1)
        return self.project_out(F.gelu(gate) * passed)


class Transformer(nn.Module):
    def __init__(self, channels: int, heads: int, expansion: float) -> None:
        super().__init__()
        self.norm1 = named(body=ChannelNorm(channels, eps=1e-5))
        self.attn = ChannelAttention(channels, heads)
        self.norm2 = named(body=ChannelNorm(channels, eps=1e-5))
        self.ffn = FeedForward(channels, expansion)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


def _conv(inputs: int, outputs: int, size: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)


def _half(channels: int) -> nn.Sequential:
    """Half the size, twice the channels."""
    return named(body=nn.Sequential(_conv(channels, channels // 2), nn.PixelUnshuffle(2)))


def _double(channels: int) -> nn.Sequential:
    """Twice the size, half the channels."""
    return named(body=nn.Sequential(_conv(channels, 2 * channels), nn.PixelShuffle(2)))


class Restormer(Network):
    name = "restormer"
    multiple = least = 8
    options: RestormerOptions

    def __init__(self, options: RestormerOptions) -> None:
        super().__init__(options)
        width, blocks, heads = options.width, options.blocks, options.heads

        def stage(level: int, channels: int, count: int) -> nn.Sequential:
            return nn.Sequential(*(Transformer(channels, heads[level], options.expansion) for _ in range(count)))

        self.patch_embed = named(proj=_conv(3, width))
        self.encoder_level1 = stage(0, width, blocks[0])
        self.down1_2 = _half(width)
        self.encoder_level2 = stage(1, 2 * width, blocks[1])
        self.down2_3 = _half(2 * width)
        self.encoder_level3 = stage(2, 4 * width, blocks[2])
        self.down3_4 = _half(4 * width)
        self.latent = stage(3, 8 * width, blocks[3])
        self.up4_3 = _double(8 * width)
        self.reduce_chan_level3 = _conv(8 * width, 4 * width, 1)
        self.decoder_level3 = stage(2, 4 * width, blocks[2])
        self.up3_2 = _double(4 * width)
        self.reduce_chan_level2 = _conv(4 * width, 2 * width, 1)
        self.decoder_level2 = stage(1, 2 * width, blocks[1])
        self.up2_1 = _double(2 * width)
        self.decoder_level1 = stage(0, 2 * width, blocks[0])  # the finest keeps both halves of its channels
        self.refinement = stage(0, 2 * width, options.refinement_blocks)
        self.output = _conv(2 * width, 3)

    def restored(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        one = self.encoder_level1(self.patch_embed(image))
        two = self.encoder_level2(self.down1_2(one))
        three = self.encoder_level3(self.down2_3(two))
        x = self.latent(self.down3_4(three))
        x = self.decoder_level3(self.reduce_chan_level3(torch.cat([self.up4_3(x), three], dim=1)))
        x = self.decoder_level2(self.reduce_chan_level2(torch.cat([self.up3_2(x), two], dim=1)))
        x = self.decoder_level1(torch.cat([self.up2_1(x), one], dim=1))
        return image + self.output(self.refinement(x))
