"""What a network is taught to make small, by name: `build_loss("nrknet")(model, input, target)`.

A loss calls the network itself, because NRKNet and INIKNet tell it more than the restored picture. `parts` are its
terms before they are weighted, `total` is what is differentiated. Everything is computed in float32, whatever the
network ran in. The frequency term is the mean absolute difference of the real parts of the (unnormalised) Fourier
transforms, plus that of the imaginary parts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ..errors import ConfigError, DefocusError, WeightsError
from ..files.settings import nearest_name, validated
from ._torch import F, Tensor, torch
from .models.blocks import full_precision
from .models.blocks import scales as picture_scales
from .models.nrknet import NRKScales, inputs

if TYPE_CHECKING:
    from jaxtyping import Float

OWN_LOSS = {"nrknet": "nrknet", "iniknet": "iniknet", "nafnet": "psnr", "restormer": "l1"}
SCALE_WEIGHTS = (0.25, 0.5, 0.75, 1.0)  # NRKNet: of the three scales, coarse to fine, and of the final picture

Weight = Annotated[float, Field(ge=0)]
Terms = dict[str, tuple[float, Tensor]]  # by name, each with its weight


class Loss(NamedTuple):
    total: Tensor
    parts: dict[str, Tensor]  # without gradients
    output: Tensor  # the restored pictures, without gradients


class LossFunction(BaseModel):
    """A loss; its fields are its options: the weights of its terms and the like."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __call__(
        self,
        model: Callable[..., Any],
        image: Float[Tensor, "batch 3 rows cols"],
        target: Float[Tensor, "batch 3 rows cols"],
    ) -> Loss:
        outputs, blurred = ([one.float() for one in tensors] for tensors in self.predictions(model, image, target))
        with full_precision(image):
            terms = self.terms(NRKScales(outputs, blurred), image.float(), target.float())
            total = sum((weight * term for weight, term in terms.values()), torch.zeros((), device=image.device))
        parts = {name: term.detach() for name, (_, term) in terms.items()}
        return Loss(total, parts, outputs[-1][..., : image.shape[-2], : image.shape[-1]].detach())

    def predictions(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> NRKScales:
        """What the loss asks the network for: the restored picture, last of all `outputs`, and maybe more."""
        return NRKScales([model(image)], [])

    @abstractmethod
    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        """The terms of the loss; everything is float32."""


def build_loss(name: str, **options: Any) -> LossFunction:
    """A loss of `LOSSES` with other options than its own. Raises `DefocusError` for names and options unknown to it,
    and its kind `WeightsError` where the loss needs weights that are not here."""
    if name not in LOSSES:
        raise DefocusError(f"loss {name!r}: {nearest_name(name, LOSSES)}")
    try:
        return validated(LOSSES[name], options, ConfigError)
    except ConfigError as error:
        raise DefocusError(f"loss {name}: {error}") from error


class MeanSquare(LossFunction):
    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        return {"mse": (1.0, F.mse_loss(scales.outputs[0], target))}


class MeanAbsolute(LossFunction):
    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        return {"l1": (1.0, F.l1_loss(scales.outputs[0], target))}


class Charbonnier(LossFunction):
    """√(d² + ε²): the absolute difference, rounded off near 0."""

    epsilon: Weight = 1e-3

    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        return {"charbonnier": (1.0, ((scales.outputs[0] - target).square() + self.epsilon**2).sqrt().mean())}


class NegativePsnr(LossFunction):
    """−PSNR in dB, the mean over the pictures of a batch; ε is added to the mean square."""

    epsilon: Weight = 1e-8

    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        squares = (scales.outputs[0] - target).square().mean((1, 2, 3))
        return {"negative_psnr": (1.0, 10.0 * (squares + self.epsilon).log10().mean())}


class NrkLoss(LossFunction):
    """Over all scales: mean square, frequencies, and the sharp picture blurred again against the blurred one.

    Outputs are compared with the sharp picture resized bilinearly; what is blurred again was sampled like the network's
    input at that scale, and is compared with it.
    """

    frequency: Weight = 0.1
    reblur: Weight = 0.1

    def predictions(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> NRKScales:
        return model(image, target)

    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        targets = picture_scales(target)
        targets.append(targets[-1])
        return {
            "mse": (1.0, _over_scales(F.mse_loss, scales.outputs, targets, SCALE_WEIGHTS)),
            "frequency": (self.frequency, _over_scales(frequency_distance, scales.outputs, targets, SCALE_WEIGHTS)),
            # Which has no final picture.
            "reblur": (self.reblur, _over_scales(F.mse_loss, scales.blurred, inputs(image), SCALE_WEIGHTS)),
        }


class InikLoss(LossFunction):
    """Over three scales: mean square, frequencies and LPIPS, which `perceptual = 0` leaves out.

    `lpips` names a file of LPIPS weights; without it they are looked for as `perceptual.Lpips.load` says.
    """

    frequency: Weight = 0.1
    perceptual: Weight = 0.1
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

    def predictions(self, model: Callable[..., Any], image: Tensor, target: Tensor) -> NRKScales:
        return NRKScales(model(image, True), [])

    def terms(self, scales: NRKScales, image: Tensor, target: Tensor) -> Terms:
        targets = picture_scales(target)
        terms = {
            "mse": (1.0, _over_scales(F.mse_loss, scales.outputs, targets)),
            "frequency": (self.frequency, _over_scales(frequency_distance, scales.outputs, targets)),
        }
        if self._lpips is not None:
            network = self._lpips.to(image.device)
            distance = _over_scales(lambda a, b: network(a, b).mean(), scales.outputs, targets)
            terms["perceptual"] = (self.perceptual, distance)
        return terms


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


def _over_scales(
    distance: Callable[[Tensor, Tensor], Tensor],
    outputs: list[Tensor],
    targets: list[Tensor],
    weights: Iterable[float] = repeat(1.0),
) -> Tensor:
    """Sum of the weighted distances at each scale."""
    terms = zip(weights, outputs, targets, strict=False)
    return torch.stack([weight * distance(output, target) for weight, output, target in terms]).sum()
