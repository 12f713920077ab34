"""What a network is taught to make small, by name: `build_loss("nrknet")(model, input, target)`.

A loss calls the network itself, because NRKNet and INIKNet tell it more than the restored picture. `parts` are its
terms before they are weighted, `total` is what is differentiated. Everything is computed in float32, whatever the
network ran in. The frequency term is the mean absolute difference of the real parts of the (unnormalised) Fourier
transforms, plus that of the imaginary parts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ..errors import ConfigError, DefocusError, MissingExtraError, WeightsError
from ..files.settings import nearest_name, validated
from .models import MODELS, nrknet
from .models.blocks import full_precision, scales

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

if TYPE_CHECKING:
    from jaxtyping import Float

OWN_LOSS = {"nrknet": "nrknet", "iniknet": "iniknet", "nafnet": "psnr", "restormer": "l1"}
SCALE_WEIGHTS = (0.25, 0.5, 0.75, 1.0)  # NRKNet: of the three scales, coarse to fine, and of the final picture

Number = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Loss:
    total: Tensor
    parts: dict[str, Tensor]  # without gradients
    output: Tensor  # the restored pictures, without gradients


class LossFunction(BaseModel):
    """A loss; its fields are its options: the weights of its terms and the like."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @abstractmethod
    def __call__(
        self,
        model: Callable[..., Any],
        image: Float[Tensor, "batch 3 rows cols"],
        target: Float[Tensor, "batch 3 rows cols"],
    ) -> Loss: ...


def build_loss(name: str, **options: Any) -> LossFunction:
    """A loss of `LOSSES` with other options than its own. Raises `DefocusError` for names and options unknown to it,
    and its kind `WeightsError` where the loss needs weights that are not here."""
    if name not in LOSSES:
        raise DefocusError(f"loss {name!r}: {nearest_name(name, LOSSES)}")
    try:
        return validated(LOSSES[name], options, ConfigError)
    except ConfigError as error:
        raise DefocusError(f"loss {name}: {error}") from error


def check_loss(loss: str, model: str) -> None:
    """Raise `DefocusError` where the loss needs another network: two of them look at more than the picture."""
    if loss in MODELS and loss != model:
        others = ", ".join(name for name in LOSSES if name not in MODELS)
        raise DefocusError(f"the loss {loss!r} is of {loss} alone; for {model} there are {others}")


class PictureLoss(LossFunction):
    """A loss of the restored picture alone: its mean `distance` from the sharp one, under the name `term`."""

    term: ClassVar[str]

    @abstractmethod
    def distance(self, output: Tensor, target: Tensor) -> Tensor: ...

    def __call__(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> Loss:
        output = model(image)
        with full_precision(image):
            total = self.distance(output.float(), target.float())
        return _loss(total, {self.term: total}, output)


class MeanSquare(PictureLoss):
    term = "mse"

    def distance(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target)


class MeanAbsolute(PictureLoss):
    term = "l1"

    def distance(self, output: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(output, target)


class Charbonnier(PictureLoss):
    """√(d² + ε²): the absolute difference, rounded off near 0."""

    term = "charbonnier"
    epsilon: Number = 1e-3

    def distance(self, output: Tensor, target: Tensor) -> Tensor:
        return ((output - target).square() + self.epsilon**2).sqrt().mean()


class NegativePsnr(PictureLoss):
    """−PSNR in dB, the mean over the pictures of a batch; ε is added to the mean square."""

    term = "negative_psnr"
    epsilon: Number = 1e-8

    def distance(self, output: Tensor, target: Tensor) -> Tensor:
        return 10.0 * ((output - target).square().mean((1, 2, 3)) + self.epsilon).log10().mean()


class NrkLoss(LossFunction):
    """Over all scales: mean square, frequencies, and the sharp picture blurred again against the blurred one.

    Outputs are compared with the sharp picture resized bilinearly; what is blurred again was sampled like the network's
    input at that scale, and is compared with it.
    """

    frequency: Number = 0.1
    reblur: Number = 0.1

    def __call__(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> Loss:
        outputs, blurred = (_floats(tensors) for tensors in model(image, target))
        inputs = nrknet.inputs(image.float())
        with full_precision(image):
            targets = scales(target.float())
            targets.append(targets[-1])
            parts = {
                "mse": _over_scales(F.mse_loss, outputs, targets, SCALE_WEIGHTS),
                "frequency": _over_scales(frequency_distance, outputs, targets, SCALE_WEIGHTS),
                "reblur": _over_scales(F.mse_loss, blurred, inputs, SCALE_WEIGHTS),  # which has no final picture
            }
        total = parts["mse"] + self.frequency * parts["frequency"] + self.reblur * parts["reblur"]
        return _loss(total, parts, outputs[-1][..., : image.shape[-2], : image.shape[-1]])


class InikLoss(LossFunction):
    """Over three scales: mean square, frequencies and LPIPS, which `perceptual = 0` leaves out.

    `lpips` names a file of LPIPS weights; without it they are looked for as `perceptual.Lpips.load` says.
    """

    frequency: Number = 0.1
    perceptual: Number = 0.1
    lpips: Path | None = None
    _lpips: Any = PrivateAttr(None)

    def model_post_init(self, _: Any) -> None:
        if self.perceptual:
            from .perceptual import Lpips

            try:
                self._lpips = Lpips.load(self.lpips)
            except DefocusError as error:
                raise WeightsError(
                    f"the loss iniknet needs LPIPS: {error}. The option lpips names such a file; perceptual = 0 leaves "
                    "the term out"
                ) from error

    def __call__(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> Loss:
        outputs = _floats(model(image, True))
        with full_precision(image):
            targets = scales(target.float())
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


LOSSES: dict[str, type[LossFunction]] = {
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
