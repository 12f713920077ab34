"""NRKNet (Quan, Wu and Ji, "Neumann Network with Recursive Kernels for Single Image Defocus Deblurring", CVPR 2023).

Defocus is written as a blur D = Σ_j a_j · (k_j ∗ ·) with weights a_j for each pixel over a family of kernels k_j, each
the last one blurred once more. Its inverse is the Neumann series Σ_n (I − D)^n: r ← r − D r, summed. At three scales,
from coarse to fine, an encoder–decoder finds the weights; a convolutional LSTM hands them on from scale to scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from . import blocks
from .blocks import FACTORS, Network, Options, State, convolution, doubling, full_precision, residual_blocks, resized

if TYPE_CHECKING:
    from jaxtyping import Float


class NRKNetOptions(Options):
    width: int = Field(64, ge=2, le=1024)
    residual_blocks: int = Field(1, ge=1, le=64)
    kernels: int = Field(21, ge=1, le=256)


class NRKScales(NamedTuple):
    """What the loss compares: outputs at 1/4, 1/2, full size and the final one; the sharp picture blurred again by what
    the network found, at the three scales."""

    outputs: list[Tensor]
    blurred: list[Tensor]


class RecursiveKernels(nn.Module):
    """A picture and its ever more blurred versions. A kernel has three taps a, b, a, positive and of sum 1, along x and
    along y; both passes are one 3×3 convolution here."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.kernels = nn.Parameter(torch.rand(count * 3, 1, 1, 2))  # one for each colour

    def forward(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch maps rows cols"]:
        side, middle = self.kernels.float().split(1, dim=-1)
        taps = torch.softmax(torch.cat([side, middle, side], dim=-1), dim=-1)
        squares = taps.transpose(-1, -2) * taps
        versions = [image]
        for kernel in squares.split(3):
            versions.append(F.conv2d(F.pad(versions[-1], (1, 1, 1, 1), mode="reflect"), kernel, groups=3))
        return torch.cat(versions, dim=1)


class ConvLstmCell(nn.Module):
    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs + hidden, 4 * hidden, 5, padding=2)

    def forward(self, features: Tensor, state: State) -> State:
        return blocks.lstm_step(self.conv(torch.cat([features, state[0]], dim=1)), state[1])


class KernelAttention(nn.Module):
    """The weight of each kernel at each pixel, with a memory at half the size."""

    def __init__(self, features: int, maps: int) -> None:
        super().__init__()
        self.conv = convolution(features, maps, nn.BatchNorm2d(maps), nn.ReLU())
        self.conv_atten = ConvLstmCell(features, maps)

    def forward(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        state = self.conv_atten(F.avg_pool2d(features, 2), state)
        remembered = F.interpolate(state[0], scale_factor=2, mode="nearest")
        return remembered * self.conv(features) + remembered, state


class WeightedSum(nn.Module):
    """From the weighted blurred versions to one picture."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(maps * 3, 3, 1)

    def forward(self, versions: Float[Tensor, "batch versions rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        return F.conv2d(versions, self.conv.weight.float(), self.conv.bias.float())


class NRKNet(Network):
    name = "nrknet"
    multiple, least = blocks.MULTIPLE, blocks.LEAST
    options: NRKNetOptions

    def __init__(self, options: NRKNetOptions) -> None:
        super().__init__(options)
        width, count = options.width, options.residual_blocks
        self.maps = options.kernels + 1
        self.SummationLayer = WeightedSum(self.maps)
        self.GCM = RecursiveKernels(options.kernels)
        self.APU = KernelAttention(width, self.maps)
        self.Encoder = nn.ModuleList(residual_blocks(k * width, count) for k in (1, 2, 4))
        self.Decoder = nn.ModuleList(residual_blocks(k * width, count) for k in (4, 2, 1))
        self.bottleneck = nn.Sequential(convolution(4 * width, 4 * width, nn.ReLU()), residual_blocks(4 * width, count))
        self.feat_extract = nn.ModuleList(
            [
                convolution(3, width, nn.ReLU()),
                convolution(width, 2 * width, nn.ReLU(), stride=2),
                convolution(2 * width, 4 * width, nn.ReLU(), stride=2),
                doubling(4 * width, 2 * width),
                doubling(2 * width, width),
            ]
        )

    def forward(
        self, image: Float[Tensor, "batch 3 rows cols"], target: Float[Tensor, "batch 3 rows cols"] | None = None
    ) -> Float[Tensor, "batch 3 rows cols"] | NRKScales:
        """The restored picture; with the sharp one, all that the loss needs, at the padded size."""
        if target is None:
            return super().forward(image)
        scales = self._scales(*(self.ordered(blocks.padded(one)) for one in (image, target)))
        return NRKScales(*([self.ordered(one) for one in part] for part in (scales.outputs, scales.blurred)))

    def restored(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        return self._scales(image, None).outputs[-1]

    def _scales(self, image: Tensor, target: Tensor | None) -> NRKScales:
        batch, _, rows, cols = image.shape
        zeros = image.new_zeros(batch, self.maps, rows // 8, cols // 8)
        state: State = (zeros, zeros)
        final, outputs, blurred = image.float(), [], []
        for number, factor in enumerate(FACTORS):
            small = sampled(image, factor)
            if number:
                state = (resized(state[0], 2), resized(state[1], 2))
            weights, state = self.APU(self._features(small), state)
            with full_precision(image):
                weights = weights.float().repeat_interleave(3, dim=1)
                rest = total = small.float()
                for _ in range(len(FACTORS) - number):  # the coarsest takes the most steps
                    rest = rest - self._blur(rest, weights)
                    total = total + rest
                outputs.append(total)
                final = final + resized(rest, factor)
                if target is not None:
                    blurred.append(self._blur(sampled(target, factor).float(), weights))
        return NRKScales([*outputs, final], blurred)

    def _blur(self, image: Tensor, weights: Tensor) -> Tensor:
        """D of this picture."""
        return self.SummationLayer(self.GCM(image) * weights)

    def _features(self, image: Tensor) -> Tensor:
        fine = self.Encoder[0](self.feat_extract[0](image))
        middle = self.Encoder[1](self.feat_extract[1](fine))
        coarse = self.Encoder[2](self.feat_extract[2](middle))
        x = self.feat_extract[3](self.Decoder[0](coarse + self.bottleneck(coarse)))
        x = self.feat_extract[4](self.Decoder[1](x + middle))
        return self.Decoder[2](x + fine)


def sampled(image: Float[Tensor, "batch 3 rows cols"], factor: int) -> Tensor:
    """Every pixel of so many, as the network looks at its coarser scales."""
    return image[..., ::factor, ::factor]


def inputs(image: Float[Tensor, "batch 3 rows cols"]) -> list[Tensor]:
    """The blurred picture as each scale sees it."""
    return [sampled(blocks.padded(image), factor) for factor in FACTORS]
