"""What the networks share: options that are checked, padding to the size that a network needs, layer norm over
channels, residual blocks of 3×3 convolutions, the gates of a convolutional LSTM.

Modules that hold parameters carry the attribute names of the published checkpoints (`main`, `layers`, ...): they are
the interface to those files. Everything is written for torch.autocast and torch.compile: no branch depends on values,
and what rounding to bfloat16 would spoil runs in float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from ...errors import DefocusError
from .._torch import F, Tensor, nn, torch

if TYPE_CHECKING:
    from jaxtyping import Float

State = tuple[Tensor, Tensor]  # of an LSTM: hidden and cell
FACTORS = (4, 2, 1)  # of the scales of NRKNet and INIKNet, coarse to fine
MULTIPLE = 16  # theirs: a quarter, halved twice
LEAST = 32  # theirs: mirroring at the deepest level needs two pixels


class Options(BaseModel):
    """What decides a network's shape; everything that a file of weights must tell to build it again."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    channels: Literal["rgb", "bgr"] = "rgb"  # order of colours inside the network; pictures are RGB on both sides


class Network(nn.Module, ABC):
    """A network from blurred to restored pictures, [batch, 3, rows, cols], display values from 0 to 1.

    Pictures of any size are padded inside to a `multiple` of pixels, and to at least `least` of them, and cut back.
    """

    name: str
    multiple: int
    least: int
    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options

    def forward(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        rows, cols = image.shape[-2:]
        restored = self.restored(padded(self.ordered(image), self.multiple, self.least))
        return self.ordered(restored[..., :rows, :cols])

    def ordered(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        """A picture with its colours in the order of the network, or one of the network's in the order of pictures."""
        return image.flip(1) if self.options.channels == "bgr" else image

    @abstractmethod
    def restored(self, image: Float[Tensor, "batch 3 rows cols"]) -> Float[Tensor, "batch 3 rows cols"]:
        """The restored picture of one whose size needs no padding."""


def padded(
    image: Float[Tensor, "batch 3 rows cols"], multiple: int = MULTIPLE, least: int = LEAST
) -> Float[Tensor, "batch 3 more_rows more_cols"]:
    """A picture with pixels added on the right and below: mirrored, or the last one where the picture is too small."""
    if image.ndim != 4 or image.shape[1] != 3:
        raise DefocusError(f"a picture of shape {tuple(image.shape)}; expected [batch, 3, rows, cols]")
    for axis in (-2, -1):
        size = image.shape[axis]
        more = max(-(-size // multiple) * multiple, least) - size
        if more:
            pad = (0, more, 0, 0) if axis == -1 else (0, 0, 0, more)
            image = F.pad(image, pad, mode="reflect" if more < size else "replicate")
    return image


def full_precision(image: Tensor) -> Any:
    """A context without autocast."""
    return torch.autocast(image.device.type, enabled=False)


class ChannelNorm(nn.Module):
    """Layer norm over the channels of each pixel, in float32."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Float[Tensor, "batch channels rows cols"]) -> Float[Tensor, "batch channels rows cols"]:
        last = x.permute(0, 2, 3, 1).float()
        done = F.layer_norm(last, self.weight.shape, self.weight.float(), self.bias.float(), self.eps)
        return done.to(x.dtype).permute(0, 3, 1, 2)


def named(**module: nn.Module) -> nn.Sequential:
    """One module under the name that checkpoints give it."""
    return nn.Sequential(OrderedDict(module))


def convolution(inputs: int, outputs: int, *steps: nn.Module, stride: int = 1) -> nn.Sequential:
    """A 3×3 convolution without bias, with mirrored edges, then other steps."""
    first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, padding_mode="reflect", bias=False)
    return named(main=nn.Sequential(first, *steps))


def doubling(inputs: int, outputs: int) -> nn.Sequential:
    """A transposed convolution to twice the size, then ReLU."""
    return named(main=nn.Sequential(nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1, bias=False), nn.ReLU()))


class ResBlock(nn.Module):
    """x + convolution(ReLU(convolution(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.main = nn.Sequential(convolution(channels, channels, nn.ReLU()), convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.main(x)


def residual_blocks(channels: int, count: int) -> nn.Sequential:
    """So many residual blocks in a row."""
    return named(layers=nn.Sequential(*(ResBlock(channels) for _ in range(count))))


def lstm_step(gates: Float[Tensor, "batch four_channels rows cols"], cell: Tensor) -> State:
    """The next hidden and cell state, from the gates in the order input, forget, output, candidate."""
    admit, keep, show, candidate = gates.chunk(4, dim=1)
    cell = torch.sigmoid(keep) * cell + torch.sigmoid(admit) * torch.tanh(candidate)
    return torch.sigmoid(show) * torch.tanh(cell), cell


def resized(x: Float[Tensor, "batch channels rows cols"], factor: float) -> Tensor:
    """Maps resized bilinearly by a factor, pixels taken as areas."""
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False) if factor != 1 else x


def scales(image: Float[Tensor, "batch 3 rows cols"]) -> list[Tensor]:
    """A picture at the sizes of the scales, padded as NRKNet and INIKNet do it: what their outputs should be."""
    image = padded(image)
    return [resized(image, 1 / factor) for factor in FACTORS]
