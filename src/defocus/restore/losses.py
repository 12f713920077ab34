"""What a network is taught to make small, by name: `build_loss("nrknet")(model, input, target)`.

A loss calls the network itself, because NRKNet and INIKNet tell it more than the restored picture. `parts` are its
terms before they are weighted, `total` is what is differentiated. Everything is computed in float32, whatever the
network ran in. The frequency term is the mean absolute difference of the real parts of the (unnormalised) Fourier
transforms, plus that of the imaginary parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..errors import DefocusError, MissingExtraError
from ..files.settings import nearest_name
from .models import MODELS, iniknet, nrknet
from .models.blocks import full_precision

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

if TYPE_CHECKING:
    from jaxtyping import Float

    from .perceptual import Lpips

OWN_LOSS = {"nrknet": "nrknet", "iniknet": "iniknet", "nafnet": "psnr", "restormer": "l1"}
SCALE_WEIGHTS = (0.25, 0.5, 0.75, 1.0)  # NRKNet: of the three scales, coarse to fine, and of the final picture


@dataclass(frozen=True)
class Loss:
    total: Tensor
    parts: dict[str, Tensor]  # without gradients
    output: Tensor  # the restored pictures, without gradients


class LossFunction(Protocol):
    def __call__(
        self,
        model: Callable[..., Any],
        image: Float[Tensor, "batch 3 rows cols"],
        target: Float[Tensor, "batch 3 rows cols"],
    ) -> Loss: ...


def build_loss(name: str, **options: Any) -> LossFunction:
    """A loss of `LOSSES`; `options` are the weights of its terms and the like."""
    check_options(name, options)
    return LOSSES[name](**options)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises `DefocusError` for an unknown loss, or for options that it does not know."""
    if name not in LOSSES:
        raise DefocusError(f"loss {name!r}: {nearest_name(name, LOSSES)}")
    fields = getattr(LOSSES[name], "__dataclass_fields__", {})
    for key, value in options.items():
        if key not in fields:
            advice = nearest_name(key, fields) if fields else "it takes none"
            raise DefocusError(f"loss {name}: unknown option {key!r}: {advice}")
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        if not number and fields[key].type == "float":
            raise DefocusError(f"loss {name}: {key} = {value!r}; expected a number, 0 or more")
        if fields[key].type != "float" and not isinstance(value, str | Path | None):
            raise DefocusError(f"loss {name}: {key} = {value!r}; expected the name of a file")


def check_loss(loss: str, model: str) -> None:
    """Raises `DefocusError` where the loss needs another network: two of them look at more than the picture."""
    if loss in MODELS and loss != model:
        others = ", ".join(name for name in LOSSES if name not in MODELS)
        raise DefocusError(f"the loss {loss!r} is of {loss} alone; for {model} there are {others}")


class PictureLoss:
    """A loss of the restored picture alone: its mean `distance` from the sharp one, under the name `term`."""

    term: ClassVar[str]
    distance: ClassVar[Callable[..., Tensor]]

    def __call__(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> Loss:
        output = model(image)
        with full_precision(image):
            total = self.distance(output.float(), target.float())
        return _loss(total, {self.term: total}, output)


class MeanSquare(PictureLoss):
    term, distance = "mse", staticmethod(F.mse_loss)


class MeanAbsolute(PictureLoss):
    term, distance = "l1", staticmethod(F.l1_loss)


@dataclass
class Charbonnier(PictureLoss):
    """√(d² + ε²): the absolute difference, rounded off near 0."""

    term = "charbonnier"
    epsilon: float = 1e-3

    def distance(self, output: Tensor, target: Tensor) -> Tensor:
        return ((output - target).square() + self.epsilon**2).sqrt().mean()


@dataclass
class NegativePsnr(PictureLoss):
    """−PSNR in dB, the mean over the pictures of a batch; ε is added to the mean square."""

    term = "negative_psnr"
    epsilon: float = 1e-8

    def distance(self, output: Tensor, target: Tensor) -> Tensor:
        return 10.0 * ((output - target).square().mean((1, 2, 3)) + self.epsilon).log10().mean()


@dataclass
class NrkLoss:
    """Over all scales: mean square, frequencies, and the sharp picture blurred again against the blurred one.

    Outputs are compared with the sharp picture resized bilinearly; what is blurred again was sampled like the network's
    input at that scale, and is compared with it.
    """

    frequency: float = 0.1
    reblur: float = 0.1

    def __call__(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> Loss:
        outputs, blurred = (_floats(tensors) for tensors in model(image, target))
        inputs = nrknet.inputs(image.float())
        with full_precision(image):
            targets = nrknet.targets(target.float())
            parts = {
                "mse": _over_scales(F.mse_loss, outputs, targets, SCALE_WEIGHTS),
                "frequency": _over_scales(frequency_distance, outputs, targets, SCALE_WEIGHTS),
                "reblur": _over_scales(F.mse_loss, blurred, inputs, SCALE_WEIGHTS),  # which has no final picture
            }
        total = parts["mse"] + self.frequency * parts["frequency"] + self.reblur * parts["reblur"]
        return _loss(total, parts, outputs[-1][..., : image.shape[-2], : image.shape[-1]])


@dataclass
class InikLoss:
    """Over three scales: mean square, frequencies and LPIPS, which `perceptual = 0` leaves out.

    `lpips` names a file of LPIPS weights; without it they are looked for as `perceptual.Lpips.load` says.
    """

    frequency: float = 0.1
    perceptual: float = 0.1
    lpips: str | Path | None = None

    def __post_init__(self) -> None:
        self._lpips: Lpips | None = None
        if self.perceptual:
            from .perceptual import Lpips

            try:
                self._lpips = Lpips.load(self.lpips)
            except DefocusError as error:
                raise DefocusError(
                    f"the loss iniknet needs LPIPS: {error}. The option lpips names such a file; perceptual = 0 leaves "
                    "the term out"
                ) from error

    def __call__(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> Loss:
        outputs = _floats(model(image, True))
        with full_precision(image):
            targets = iniknet.targets(target.float())
            parts = {
                "mse": _over_scales(F.mse_loss, outputs, targets),
                "frequency": _over_scales(frequency_distance, outputs, targets),
            }
            total = parts["mse"] + self.frequency * parts["frequency"]
            if self._lpips is not None:
                network = self._lpips.to(image.device)
                parts["perceptual"] = _over_scales(lambda a, b: network(a, b).mean(), outputs, targets)
                total = total + self.perceptual * parts["perceptual"]
        return _loss(total, parts, outputs[-1][..., : image.shape[-2], : image.shape[-1]])


LOSSES: dict[str, Callable[..., LossFunction]] = {
    "nrknet": NrkLoss,
    "iniknet": InikLoss,
    "psnr": NegativePsnr,
    "l1": MeanAbsolute,
    "charbonnier": Charbonnier,
    "mse": MeanSquare,
}


def frequency_distance(
    output: Float[Tensor, "batch 3 rows cols"], target: Float[Tensor, "batch 3 rows cols"]
) -> Float[Tensor, ""]:
    difference = torch.fft.fft2(output.float() - target.float())
    return difference.real.abs().mean() + difference.imag.abs().mean()


def _loss(total: Tensor, parts: dict[str, Tensor], output: Tensor) -> Loss:
    return Loss(total, {name: part.detach() for name, part in parts.items()}, output.detach())


def _floats(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.float() for tensor in tensors]


def _over_scales(
    distance: Callable[[Tensor, Tensor], Tensor],
    outputs: list[Tensor],
    targets: list[Tensor],
    weights: Iterable[float] = repeat(1.0),
) -> Tensor:
    """Sum of the weighted distances at each scale."""
    terms = zip(weights, outputs, targets, strict=False)
    return torch.stack([weight * distance(output, target) for weight, output, target in terms]).sum()
