"""INIKNet (Quan, Yao and Ji, "Single Image Defocus Deblurring via Implicit Neural Inverse Kernels", ICCV 2023).

The restored picture is the blurred one plus Σ over sizes k and bases i of s_k · b_i · (q_ik ∗ picture). The inverse
kernels q_ik are small coordinate networks with sine activations, read out on k×k grids in polar coordinates. The maps
s_k (softmax over sizes) and b_i come from a U-Net at three scales and two recurrences over the scales.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from . import blocks
from .blocks import (
    ChannelNorm,
    Network,
    Options,
    State,
    convolution,
    doubling,
    full_precision,
    residual_blocks,
    resized,
)

if TYPE_CHECKING:
    from jaxtyping import Float

HIDDEN = 64  # of the coordinate networks


class INIKNetOptions(Options):
    width: int = Field(32, ge=2, le=1024)
    unet_blocks: int = Field(2, ge=1, le=64)
    lstm_blocks: int = Field(2, ge=1, le=64)
    bases: int = Field(10, ge=2, le=256)
    largest_kernel: int = Field(15, ge=3, le=63)
    frequencies: tuple[float, float] = (2.0, 12.0)  # first and last, evenly spaced at the start


class UNet(nn.Module):
    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.Encoder = nn.ModuleList(residual_blocks(k * width, count) for k in (1, 2, 4))
        self.Decoder = nn.ModuleList(residual_blocks(k * width, count) for k in (2, 1))
        self.feat_extract = nn.ModuleList(
            [
                convolution(3, width, nn.ReLU()),
                convolution(width, 2 * width, nn.ReLU(), stride=2),
                convolution(2 * width, 4 * width, nn.ReLU(), stride=2),
                convolution(4 * width, 2 * width, nn.ReLU()),
                convolution(2 * width, width, nn.ReLU()),
            ]
        )
        self.up1 = doubling(4 * width, 2 * width)
        self.up2 = doubling(2 * width, width)

    def forward(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch width rows cols"]:
        fine = self.Encoder[0](self.feat_extract[0](image))
        middle = self.Encoder[1](self.feat_extract[1](fine))
        coarse = self.Encoder[2](self.feat_extract[2](middle))
        x = self.Decoder[0](self.feat_extract[3](torch.cat([self.up1(coarse), middle], dim=1)))
        return self.Decoder[1](self.feat_extract[4](torch.cat([self.up2(x), fine], dim=1)))


class RecurrentCell(nn.Module):
    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.layers = residual_blocks(2 * width, count)
        self.conv = nn.Conv2d(2 * width, 4 * width, 1)

    def forward(self, features: Tensor, state: State) -> State:
        return blocks.lstm_step(self.conv(self.layers(torch.cat([features, state[0]], dim=1))), state[1])


class ScalePass(nn.Module):
    """A recurrence over the scales in their order; a state is resized by `factor` on its way from one to the next."""

    def __init__(self, width: int, count: int, factor: float) -> None:
        super().__init__()
        self.cell = RecurrentCell(width, count)
        self.factor = factor

    def forward(self, scales: list[Tensor]) -> list[Tensor]:
        zeros = torch.zeros_like(scales[0])
        state, hidden = (zeros, zeros), []
        for number, features in enumerate(scales):
            if number:
                state = (resized(state[0], self.factor), resized(state[1], self.factor))
            state = self.cell(features, state)
            hidden.append(state[0])
        return hidden


class ScaleRecurrence(nn.Module):
    """Two recurrences, from fine to coarse and back, added to the features, which are listed from coarse to fine."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.left2right = ScalePass(width, count, 2)
        self.right2left = ScalePass(width, count, 0.5)
        self.norm = blocks.named(norm=ChannelNorm(width, eps=1e-5))

    def forward(self, scales: list[Tensor]) -> list[Tensor]:
        down = self.right2left([self.norm(x) for x in reversed(scales)])
        up = self.left2right(down[::-1])
        return [x + more for x, more in zip(scales, up, strict=True)]


class Sine(nn.Module):
    def __init__(self, frequency: nn.Parameter) -> None:
        super().__init__()
        self.w0 = frequency

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.w0 * x)


class KernelFunction(nn.Module):
    """A kernel's value at polar coordinates; one frequency for both sine layers."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        shared = nn.Parameter(torch.tensor(float(frequency)))
        self.layers = nn.Sequential(
            nn.Linear(3, HIDDEN),
            Sine(shared),
            nn.Linear(HIDDEN, HIDDEN),
            Sine(shared),
            nn.Linear(HIDDEN, 1, bias=False),
        )

    def forward(self, coordinates: Float[Tensor, "rows cols 3"]) -> Float[Tensor, "rows cols"]:
        return self.layers(coordinates)[..., 0]


class InverseKernels(nn.Module):
    """All bases at one size, scaled by 9/k² so that no size outweighs another."""

    def __init__(self, bases: int, frequencies: tuple[float, float], sizes: list[int]) -> None:
        super().__init__()
        first, last = frequencies
        steps = [first + (last - first) * i / (bases - 1) for i in range(bases)]
        self.kernelINR_list = nn.ModuleList(KernelFunction(step) for step in steps)
        for size in sizes:
            self.register_buffer(f"coordinates_{size}", polar_coordinates(size), persistent=False)

    def forward(self, size: int) -> Float[Tensor, "bases size size"]:
        places = self.get_buffer(f"coordinates_{size}")
        return torch.stack([kernel(places) for kernel in self.kernelINR_list]).float() * (9 / size**2)


def polar_coordinates(size: int) -> Float[Tensor, "size size 3"]:
    """Radius on [−1, 1]², over √2; (cos θ + 1)/2 and (sin θ + 1)/2, θ from the downward axis, 0 in the middle."""
    steps = (torch.arange(size, dtype=torch.float32) - size // 2) / (size // 2)
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    angle = torch.atan2(right, down)
    return torch.stack([torch.hypot(down, right) / math.sqrt(2), (angle.cos() + 1) / 2, (angle.sin() + 1) / 2], dim=-1)


class INIKNet(Network):
    name = "iniknet"
    multiple, least = blocks.MULTIPLE, blocks.LEAST
    options: INIKNetOptions

    def __init__(self, options: INIKNetOptions) -> None:
        super().__init__(options)
        width, bases = options.width, options.bases
        self.sizes = list(range(3, options.largest_kernel + 1, 2))
        self.unet = UNet(width, options.unet_blocks)
        self.lstms_basis_select = ScaleRecurrence(width, options.lstm_blocks)
        self.lstms_scale_select = ScaleRecurrence(width, options.lstm_blocks)
        self.scale_select = nn.Conv2d(width, len(self.sizes) + 1, 1)
        self.basis_select = nn.Conv2d(width, bases, 1)
        self.inr_conv = InverseKernels(bases, options.frequencies, self.sizes)
        self.sum = nn.Conv2d((len(self.sizes) + 1) * bases * 3, 3, 1)

    def forward(
        self, image: Float[Tensor, "batch 3 rows cols"], every_scale: bool = False
    ) -> Float[Tensor, "batch 3 rows cols"] | list[Tensor]:
        """The restored picture; or those at 1/4, 1/2 and full size for the loss, padded."""
        if every_scale:
            return [self.ordered(one) for one in self._scales(self.ordered(image), coarsest=0)]
        return super().forward(image)

    def restored(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        return self._scales(image, coarsest=len(blocks.FACTORS) - 1)[-1]

    def _scales(self, image: Tensor, coarsest: int) -> list[Tensor]:
        images = blocks.scales(image)
        features = [self.unet(one) for one in images]
        by_size = self.lstms_scale_select(features)
        by_basis = self.lstms_basis_select(features)
        with full_precision(image):
            kernels = [self.inr_conv(size) for size in self.sizes]
        outputs = []
        for number in range(coarsest, len(images)):
            sizes = torch.softmax(self.scale_select(by_size[number]).float(), dim=1)
            bases = self.basis_select(by_basis[number]).float()
            with full_precision(image):
                outputs.append(self._filtered(images[number].float(), kernels, sizes, bases))
        return outputs

    def _filtered(self, image: Tensor, kernels: list[Tensor], sizes: Tensor, bases: Tensor) -> Tensor:
        """Size by size: the maps of all of them at once would be 240 channels of the full size. The first of the
        published weights belong to k = 1, whose map is zero."""
        batch, colours, rows, cols = image.shape
        bases = bases.repeat(1, colours, 1, 1)  # bases within colours
        weights = self.sum.weight.float().split(bases.shape[1], dim=1)
        total = image + self.sum.bias.float()[:, None, None]
        for number, kernel in enumerate(kernels, start=1):
            single = image.reshape(batch * colours, 1, rows, cols)
            maps = F.conv2d(single, kernel[:, None], padding=kernel.shape[-1] // 2).reshape(bases.shape)
            total = total + F.conv2d(maps * bases * sizes[:, number : number + 1], weights[number])
        return total
