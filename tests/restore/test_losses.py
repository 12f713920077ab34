"""Each loss against numpy, on networks whose outputs are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from defocus.errors import DefocusError
from defocus.restore.build import loss_name
from defocus.restore.config import TrainConfig
from defocus.restore.losses import LOSSES, OWN_LOSS, Loss, build_loss, frequency_distance
from defocus.restore.models import MODELS, build_model
from defocus.restore.models.nrknet import NRKScales

RANDOM = np.random.default_rng(3)
IMAGE, TARGET = (RANDOM.random((2, 3, 32, 48), np.float32) for _ in range(2))
OUTPUT = (TARGET + 0.1 * RANDOM.standard_normal(TARGET.shape)).astype(np.float32)


def run(name: str, model: Callable[..., Any], **options: Any) -> Loss:
    return build_loss(name, **options)(model, torch.from_numpy(IMAGE), torch.from_numpy(TARGET))


def bilinear(x: np.ndarray, factor: int) -> np.ndarray:
    """A factor of 2 or 4 looks at the four pixels in the middle of each square."""
    if factor == 1:
        return x
    first, second = factor // 2 - 1, factor // 2
    rows = (x[:, :, first::factor] + x[:, :, second::factor]) / 2
    return (rows[..., first::factor] + rows[..., second::factor]) / 2


def mse(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean((a.astype(np.float64) - b) ** 2))


def frequencies(a: np.ndarray, b: np.ndarray) -> float:
    one, other = np.fft.fft2(a.astype(np.float64)), np.fft.fft2(b.astype(np.float64))
    return float(np.mean(np.abs(one.real - other.real)) + np.mean(np.abs(one.imag - other.imag)))


def test_simple_losses() -> None:
    difference = OUTPUT.astype(np.float64) - TARGET
    expected = {
        "mse": np.mean(difference**2),
        "l1": np.mean(np.abs(difference)),
        "charbonnier": np.mean(np.sqrt(difference**2 + 1e-6)),
        "psnr": np.mean([10 * np.log10(np.mean(one**2) + 1e-8) for one in difference]),
    }
    for name, value in expected.items():
        result = run(name, lambda image: torch.from_numpy(OUTPUT))
        assert float(result.total) == pytest.approx(value, rel=1e-5)
        assert list(result.parts) == [{"psnr": "negative_psnr"}.get(name, name)], "not to be taken for a score"
        assert torch.equal(result.output, torch.from_numpy(OUTPUT))
    assert expected["psnr"] == pytest.approx(-20, abs=0.5)
    zero = run("psnr", lambda image: torch.from_numpy(TARGET))
    assert float(zero.total) == pytest.approx(-80)  # not minus infinity
    rounder = run("charbonnier", lambda image: torch.from_numpy(TARGET), epsilon=0.25)
    assert float(rounder.total) == pytest.approx(0.25)


def test_frequencies() -> None:
    """A difference of one cosine of amplitude 1 over N pixels has two real coefficients of N/2."""
    flat = torch.zeros(1, 1, 8, 16)
    wave = torch.cos(2 * torch.pi * 3 * torch.arange(16) / 16).expand(1, 1, 8, 16)
    assert float(frequency_distance(flat, wave)) == pytest.approx(1.0, rel=1e-5)
    shifted = torch.sin(2 * torch.pi * 3 * torch.arange(16) / 16).expand(1, 1, 8, 16)
    assert float(frequency_distance(flat, shifted)) == pytest.approx(1.0, rel=1e-5)
    rounded = frequency_distance(flat.bfloat16(), wave.bfloat16())
    assert rounded.dtype == torch.float32


def test_nrknet() -> None:
    """Weights 0.25, 0.5, 0.75, 1 from coarse to final; the re-blurred pictures against samples of the blurred one."""
    noise = np.random.default_rng(0)
    targets = [bilinear(TARGET, factor) for factor in (4, 2, 1, 1)]
    outputs = [(t + 0.1 * noise.standard_normal(t.shape)).astype(np.float32) for t in targets]
    blurred = [noise.random(t.shape, np.float32) for t in targets[:3]]
    calls = []

    def model(image: torch.Tensor, target: torch.Tensor) -> NRKScales:
        calls.append((image, target))
        return NRKScales([torch.from_numpy(o) for o in outputs], [torch.from_numpy(b) for b in blurred])

    result = run("nrknet", model)
    assert np.array_equal(calls[0][0], IMAGE)
    assert np.array_equal(calls[0][1], TARGET)
    weights = (0.25, 0.5, 0.75, 1.0)
    square = sum(w * mse(o, t) for w, o, t in zip(weights, outputs, targets, strict=True))
    frequency = sum(w * frequencies(o, t) for w, o, t in zip(weights, outputs, targets, strict=True))
    reblur = sum(w * mse(b, IMAGE[..., ::f, ::f]) for w, b, f in zip(weights[:3], blurred, (4, 2, 1), strict=True))
    assert float(result.parts["mse"]) == pytest.approx(square, rel=1e-5)
    assert float(result.parts["frequency"]) == pytest.approx(frequency, rel=1e-5)
    assert float(result.parts["reblur"]) == pytest.approx(reblur, rel=1e-5)
    assert float(result.total) == pytest.approx(square + 0.1 * frequency + 0.1 * reblur, rel=1e-5)
    assert np.array_equal(result.output, outputs[-1])
    other = run("nrknet", model, frequency=0, reblur=2)
    assert float(other.total) == pytest.approx(square + 2 * reblur, rel=1e-5)


def test_iniknet() -> None:
    noise = np.random.default_rng(0)
    targets = [bilinear(TARGET, factor) for factor in (4, 2, 1)]
    outputs = [(t + 0.1 * noise.standard_normal(t.shape)).astype(np.float32) for t in targets]

    def model(image: torch.Tensor, every_scale: bool) -> list[torch.Tensor]:
        assert every_scale
        return [torch.from_numpy(o) for o in outputs]

    result = run("iniknet", model, perceptual=0)
    square = sum(mse(o, t) for o, t in zip(outputs, targets, strict=True))
    frequency = sum(frequencies(o, t) for o, t in zip(outputs, targets, strict=True))
    assert float(result.total) == pytest.approx(square + 0.1 * frequency, rel=1e-5)
    assert list(result.parts) == ["mse", "frequency"]


def test_perceptual_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distances of the network at all scales; without its weights, an error that says what to do."""
    from defocus.restore.perceptual import Lpips

    torch.manual_seed(0)
    calls, network = [], Lpips()

    def load(path: str | None = None) -> Lpips:
        calls.append(path)
        return network

    monkeypatch.setattr(Lpips, "load", load)
    image, target = torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)
    outputs = [target[..., ::factor, ::factor] for factor in (4, 2, 1)]
    loss = build_loss("iniknet", lpips="weights.pth", perceptual=0.3)
    result = loss(lambda image, every: outputs, image, target)
    assert calls == [Path("weights.pth")]
    expected = sum(
        float(network(one, torch.from_numpy(bilinear(target.numpy(), factor))))
        for one, factor in zip(outputs, (4, 2, 1), strict=True)
    )
    assert abs(expected) > 1e-3
    assert float(result.parts["perceptual"]) == pytest.approx(expected, rel=1e-4)
    rest = result.parts["mse"] + 0.1 * result.parts["frequency"]
    assert float(result.total - rest) == pytest.approx(0.3 * expected, rel=1e-3)

    def missing(path: str | None = None) -> Lpips:
        raise DefocusError("no weights here")

    monkeypatch.setattr(Lpips, "load", missing)
    with pytest.raises(DefocusError, match=r"needs LPIPS: no weights here.*perceptual = 0 leaves"):
        build_loss("iniknet")


@pytest.mark.parametrize("name", ["nrknet", "iniknet"])
def test_sizes_that_are_no_multiple(name: str) -> None:
    """Outputs of the coarser scales are compared at the padded size; the picture told is of the size given."""
    torch.manual_seed(0)
    model = build_model(name, width=2)
    options = {"perceptual": 0} if name == "iniknet" else {}
    image, target = torch.rand(1, 3, 37, 50), torch.rand(1, 3, 37, 50)
    result = build_loss(name, **options)(model, image, target)
    assert result.output.shape == image.shape
    assert not result.output.requires_grad
    assert result.total.requires_grad
    assert all(not part.requires_grad for part in result.parts.values())


def test_own_losses_are_of_the_networks() -> None:
    assert set(OWN_LOSS) == set(MODELS)
    for model, loss in OWN_LOSS.items():
        config = TrainConfig.from_toml(f"{model}-small")
        assert loss_name(config.changed({"loss": {"name": ""}})) == loss
        assert loss_name(config.changed({"loss": {"name": "charbonnier"}})) == "charbonnier"
    config = TrainConfig.from_toml("nafnet-small").changed({"loss": {"name": "nrknet"}})
    with pytest.raises(DefocusError, match="the loss 'nrknet' is of nrknet alone; for nafnet there are psnr, l1"):
        loss_name(config)


def test_wrong_names_are_told() -> None:
    with pytest.raises(DefocusError, match=r"loss 'charbonier': did you mean 'charbonnier'\?"):
        build_loss("charbonier")
    with pytest.raises(DefocusError, match=f"known are {', '.join(LOSSES)}"):
        build_loss("???")
    with pytest.raises(DefocusError, match=r"loss nrknet: unknown key 'reblurr': did you mean 'reblur'\?"):
        build_loss("nrknet", reblurr=1.0)
    with pytest.raises(DefocusError, match="loss l1: unknown key 'weight': known are none"):
        build_loss("l1", weight=1.0)
    with pytest.raises(DefocusError, match=r"loss nrknet: reblur: .* 0 \(it is -1\)"):
        build_loss("nrknet", reblur=-1)
    with pytest.raises(DefocusError, match=r"epsilon: .* 'small'"):
        build_loss("psnr", epsilon="small")
