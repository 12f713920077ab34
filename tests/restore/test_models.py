"""The four networks: the published sizes and key names, any size of picture, gradients, closed forms of their parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import defocus.restore
from defocus.errors import DefocusError
from defocus.restore.losses import OWN_LOSS, build_loss
from defocus.restore.models import MODELS, SIZES, Network, build_model
from defocus.restore.models.blocks import lstm_step
from defocus.restore.models.iniknet import polar_coordinates
from defocus.restore.models.nafnet import local_mean
from defocus.restore.models.restormer import ChannelAttention

from .small_training import TINY

PUBLISHED = {"nrknet": 6_094_107, "iniknet": 1_976_847, "nafnet": 67_888_835, "restormer": 26_126_644}


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(0)


def tiny(name: str, **overrides: Any) -> Network:
    """With no parameter at the zero that blocks are set to at first, which would keep gradients from the others."""
    model = build_model(name, **(TINY[name] | overrides))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def add(prefix: str, *names: str) -> set[str]:
    return {f"{prefix}.{name}" for name in names}


def residual(prefix: str, count: int) -> set[str]:
    names = ("main.0.main.0.weight", "main.1.main.0.weight")
    return set().union(*(add(f"{prefix}.layers.{n}", *names) for n in range(count)))


def nrknet_keys() -> set[str]:
    keys = {f"feat_extract.{n}.main.0.weight" for n in range(5)} | {"bottleneck.0.main.0.weight", "GCM.kernels"}
    for n in range(3):
        keys |= residual(f"Encoder.{n}", 1) | residual(f"Decoder.{n}", 1)
    keys |= residual("bottleneck.1", 1) | add("SummationLayer.conv", "weight", "bias")
    keys |= add("APU.conv_atten.conv", "weight", "bias") | {"APU.conv.main.0.weight"}
    return keys | add("APU.conv.main.1", "weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def iniknet_keys() -> set[str]:
    keys = {f"unet.feat_extract.{n}.main.0.weight" for n in range(5)} | add("unet", "up1.main.0.weight")
    keys |= add("unet", "up2.main.0.weight") | residual("unet.Encoder.2", 2)
    for n in range(2):
        keys |= residual(f"unet.Encoder.{n}", 2) | residual(f"unet.Decoder.{n}", 2)
    for stack in ("lstms_basis_select", "lstms_scale_select"):
        keys |= add(f"{stack}.norm.norm", "weight", "bias")
        for way in ("left2right", "right2left"):
            keys |= residual(f"{stack}.{way}.cell.layers", 2) | add(f"{stack}.{way}.cell.conv", "weight", "bias")
    for layer in ("scale_select", "basis_select", "sum"):
        keys |= add(layer, "weight", "bias")
    names = ("0.weight", "0.bias", "1.w0", "2.weight", "2.bias", "3.w0", "4.weight")
    return keys.union(*(add(f"inr_conv.kernelINR_list.{n}.layers", *names) for n in range(10)))


def nafnet_keys() -> set[str]:
    blocks = [f"encoders.{n}.{k}" for n, count in enumerate((1, 1, 1, 28)) for k in range(count)]
    keys = {f"ups.{n}.0.weight" for n in range(4)}
    for block in (*blocks, *(f"decoders.{n}.0" for n in range(4)), "middle_blks.0"):
        keys |= add(block, "beta", "gamma")
        for layer in ("norm1", "norm2", "conv1", "conv2", "conv3", "conv4", "conv5", "sca.1"):
            keys |= add(f"{block}.{layer}", "weight", "bias")
    return keys.union(*(add(one, "weight", "bias") for one in ("intro", "ending", *(f"downs.{n}" for n in range(4)))))


def restormer_keys() -> set[str]:
    stages = {"encoder_level1": 4, "encoder_level2": 6, "encoder_level3": 6, "latent": 8, "refinement": 4}
    stages |= {"decoder_level1": 4, "decoder_level2": 6, "decoder_level3": 6}
    keys = {f"{step}.body.0.weight" for step in ("down1_2", "down2_3", "down3_4", "up4_3", "up3_2", "up2_1")}
    for block in (f"{stage}.{n}" for stage, count in stages.items() for n in range(count)):
        keys |= add(f"{block}.norm1.body", "weight", "bias") | add(f"{block}.norm2.body", "weight", "bias")
        keys |= add(f"{block}.attn", "temperature", "qkv.weight", "qkv_dwconv.weight", "project_out.weight")
        keys |= add(f"{block}.ffn", "project_in.weight", "dwconv.weight", "project_out.weight")
    return keys | {f"{n}.weight" for n in ("patch_embed.proj", "reduce_chan_level3", "reduce_chan_level2", "output")}


# Of the published checkpoints, written out from their descriptions.
KEYS = {"nrknet": nrknet_keys, "iniknet": iniknet_keys, "nafnet": nafnet_keys, "restormer": restormer_keys}


@pytest.mark.parametrize("name", MODELS)
def test_published_size_and_keys(name: str) -> None:
    with torch.device("meta"):
        model = build_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]
    assert set(model.state_dict()) == KEYS[name]()


def test_shapes_of_checkpoints() -> None:
    with torch.device("meta"):
        shapes = {name: {k: tuple(v.shape) for k, v in build_model(name).state_dict().items()} for name in MODELS}
    assert shapes["nrknet"]["GCM.kernels"] == (63, 1, 1, 2)
    assert shapes["nrknet"]["SummationLayer.conv.weight"] == (3, 66, 1, 1)
    assert shapes["nrknet"]["APU.conv_atten.conv.weight"] == (88, 86, 5, 5)
    assert shapes["nrknet"]["feat_extract.3.main.0.weight"] == (256, 128, 4, 4)
    assert shapes["iniknet"]["inr_conv.kernelINR_list.9.layers.1.w0"] == ()
    assert shapes["iniknet"]["sum.weight"] == (3, 240, 1, 1)
    assert shapes["iniknet"]["lstms_scale_select.left2right.cell.conv.weight"] == (128, 64, 1, 1)
    assert shapes["nafnet"]["middle_blks.0.conv2.weight"] == (2048, 1, 3, 3)
    assert shapes["nafnet"]["encoders.3.27.beta"] == (1, 512, 1, 1)
    assert shapes["nafnet"]["ups.0.0.weight"] == (2048, 1024, 1, 1)
    assert shapes["restormer"]["latent.7.attn.temperature"] == (8, 1, 1)
    assert shapes["restormer"]["latent.0.ffn.project_in.weight"] == (2 * int(384 * 2.66), 384, 1, 1)
    assert shapes["restormer"]["down1_2.body.0.weight"] == (24, 48, 3, 3)
    assert shapes["restormer"]["up4_3.body.0.weight"] == (768, 384, 3, 3)


@pytest.mark.parametrize("name", MODELS)
def test_small_is_smaller(name: str) -> None:
    model = defocus.restore.build_model(name, "small")
    assert 100_000 < sum(parameter.numel() for parameter in model.parameters()) < PUBLISHED[name] / 3
    assert model.multiple in (8, 16)


@pytest.mark.parametrize("name", MODELS)
def test_any_size(name: str) -> None:
    """Pixels are added on the right and below: mirrored, or repeated where there are too few to mirror."""
    model = tiny(name)
    with torch.no_grad():
        for size in ((16, 16), (17, 45), (50, 33), (5, 70)):
            image = torch.rand(2, 3, *size)
            restored = model(image)
            assert restored.shape == image.shape
            assert restored.dtype == torch.float32
            assert restored.isfinite().all()
            assert not torch.equal(restored, image)
        image = torch.rand(1, 3, 48, 64)
        assert torch.equal(model(image), model.restored(image))
        image = torch.rand(1, 3, 50, 33)
        more = [-size % model.multiple for size in (33, 50)]
        mirrored = F.pad(image, (0, more[0], 0, more[1]), mode="reflect")
        assert torch.equal(model(image), model.restored(mirrored)[..., :50, :33])
        image = torch.rand(1, 3, 3, 32)
        repeated = F.pad(image, (0, 0, 0, max(model.least, model.multiple) - 3), mode="replicate")
        assert torch.equal(model(image), model.restored(repeated)[..., :3, :])
    with pytest.raises(DefocusError, match=r"shape \(3, 3, 32\)"):
        model(image[0])
    with pytest.raises(DefocusError, match="expected"):
        model(image[:, :1])


@pytest.mark.parametrize("name", MODELS)
def test_gradient_reaches_every_parameter(name: str) -> None:
    model = tiny(name).train()
    options = {"perceptual": 0} if name == "iniknet" else {}
    image, target = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    build_loss(OWN_LOSS[name], **options)(model, image, target).total.backward()
    dead = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert dead == []
    model.zero_grad()
    model(image).square().mean().backward()  # with a loss that sees the final picture alone, too
    dead = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert dead == []


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name: str) -> None:
    model = tiny(name)
    image, target = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
    exact = model(image)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(image)
        options = {"perceptual": 0} if name == "iniknet" else {}
        loss = build_loss(OWN_LOSS[name], **options)(model.train(), image, target)
    assert rounded.dtype == loss.total.dtype == torch.float32
    change, error = (exact - image).abs().mean(), (rounded - exact).abs().mean()
    assert 0 < error < 0.02 * change
    loss.total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_one_graph_for_torch_compile(name: str) -> None:
    """Without a break, which would be an error here. What a compiler makes of the graph is PyTorch's affair."""
    fewest: dict[str, Any] = {
        "nrknet": {"kernels": 1},
        "iniknet": {"bases": 2, "largest_kernel": 3},
        "nafnet": {"encoder_blocks": (1,), "decoder_blocks": (1,)},
    }
    model, image = tiny(name, **fewest.get(name, {})), torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(image), model(image))


def overfitted(name: str, steps: int, rate: float, **overrides: Any) -> float:
    """The PSNR of one batch after so many steps on it, in dB."""
    torch.manual_seed(1)
    model = build_model(name, **overrides).train()
    target = F.interpolate(torch.rand(1, 3, 12, 12), size=(32, 32), mode="bicubic").clamp(0, 1)
    image = F.avg_pool2d(F.pad(target, (2, 2, 2, 2), mode="replicate"), 5, 1)
    loss, optimizer = build_loss("psnr"), torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, image, target).total.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return -10 * math.log10(F.mse_loss(model(image), target).item())


def test_one_batch_is_learned() -> None:
    """From 17 dB. The other two take longer: benchmarks/overfit.py does it with all four at the paper's size."""
    assert overfitted("nafnet", 100, 6e-3, width=16, encoder_blocks=(1, 1), decoder_blocks=(1, 1)) > 40.0
    assert overfitted("restormer", 60, 4e-3, width=16, blocks=(1, 1, 1, 1), refinement_blocks=0) > 40.0


def test_recursive_kernels() -> None:
    """Along x, then along y, mirrored at the edges; each from the last; light is neither made nor lost."""
    module = tiny("nrknet").GCM
    image = torch.rand(1, 3, 6, 7)
    result = module(image)[0].detach().numpy()
    assert result.shape == (12, 6, 7)
    np.testing.assert_array_equal(result[:3], image[0])
    taps = module.kernels.detach().numpy()[:, 0, 0]
    for number in range(9):
        side, middle = np.exp(taps[number]) / (2 * np.exp(taps[number, 0]) + np.exp(taps[number, 1]))
        last = result[number].astype(np.float64)
        for axis in (1, 0):
            wide = np.pad(last, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="reflect")
            parts = np.take(wide, range(last.shape[axis]), axis), np.take(wide, range(2, last.shape[axis] + 2), axis)
            last = middle * last + side * (parts[0] + parts[1])
        np.testing.assert_allclose(result[number + 3], last, atol=1e-6)
    flat = module(torch.full((1, 3, 8, 8), 0.7))
    torch.testing.assert_close(flat, torch.full_like(flat, 0.7))


def test_order_of_gates() -> None:
    """Input, forget, output, candidate: checkpoints depend on it."""
    gates, cell = np.random.default_rng(0).standard_normal((4, 5)), np.linspace(-2, 2, 5)
    hidden, result = lstm_step(torch.tensor(gates.reshape(1, 20, 1, 1)), torch.tensor(cell.reshape(1, 5, 1, 1)))
    admit, keep, show = 1 / (1 + np.exp(-gates[:3]))
    expected = keep * cell + admit * np.tanh(gates[3])
    np.testing.assert_allclose(result.numpy().ravel(), expected)
    np.testing.assert_allclose(hidden.numpy().ravel(), show * np.tanh(expected))


def test_neumann_series() -> None:
    """A network whose blur is D = I/2 everywhere: r halves with each step, 3, 2 and 1 of them."""
    model = tiny("nrknet")
    maps = model.options.kernels + 1
    with torch.no_grad():
        for parameter in model.APU.parameters():
            parameter.zero_()
        admit, keep, show, candidate = model.APU.conv_atten.conv.bias.view(4, maps)
        for gate, value in ((admit, 50.0), (keep, -50.0), (show, 50.0), (candidate, 50.0)):
            gate.fill_(value)  # a cell state of 1, a hidden state of tanh 1
        model.SummationLayer.conv.bias.zero_()
        model.SummationLayer.conv.weight.zero_()
        for colour in range(3):
            model.SummationLayer.conv.weight[colour, colour] = 0.5 / math.tanh(1)
        image = torch.rand(1, 3, 32, 32)
        result = model(image, image)
        sums = (1.875, 1.75, 1.5)
        for output, blurred, factor, sum_ in zip(result.outputs[:3], result.blurred, (4, 2, 1), sums, strict=True):
            torch.testing.assert_close(output, sum_ * image[..., ::factor, ::factor])
            torch.testing.assert_close(blurred, 0.5 * image[..., ::factor, ::factor])
        flat = model(torch.full_like(image, 0.4))
    torch.testing.assert_close(flat, torch.full_like(flat, 0.4 * (1 + 1 / 8 + 1 / 4 + 1 / 2)))


def test_polar_coordinates() -> None:
    """By hand for 3×3: above the centre cos θ = −1, at its right sin θ = 1."""
    result = polar_coordinates(3).numpy()
    np.testing.assert_allclose(result[1, 1], [0, 1, 0.5], atol=1e-6)
    np.testing.assert_allclose(result[0, 1], [1 / math.sqrt(2), 0, 0.5], atol=1e-6)
    np.testing.assert_allclose(result[1, 2], [1 / math.sqrt(2), 0.5, 1], atol=1e-6)
    half = math.sqrt(0.5)
    np.testing.assert_allclose(result[2, 2], [1, (1 + half) / 2, (1 + half) / 2], atol=1e-6)


def test_inverse_kernels_are_summed_as_published() -> None:
    """All maps at once, flattened over size, colour and basis, through the 1×1 convolution `sum`."""
    model = tiny("iniknet")
    image, sizes, bases = torch.rand(2, 3, 20, 24), torch.rand(2, 4, 20, 24), torch.rand(2, 3, 20, 24)
    kernels = [model.inr_conv(size) for size in (3, 5, 7)]
    assert [kernel.shape for kernel in kernels] == [(3, 3, 3), (3, 5, 5), (3, 7, 7)]
    maps = [torch.zeros(2, 3, 3, 20, 24)]
    for kernel in kernels:
        by_basis = [F.conv2d(image, k.expand(3, 1, *k.shape), padding=k.shape[-1] // 2, groups=3) for k in kernel]
        maps.append(torch.stack(by_basis, dim=2))  # batch, colours, bases
    product = torch.stack(maps, dim=1) * sizes[:, :, None, None] * bases[:, None, None]
    expected = image + model.sum(product.flatten(1, 3))
    result = model._filtered(image, kernels, sizes, bases)
    torch.testing.assert_close(result, expected, atol=2e-6, rtol=1e-5)
    shared = model.inr_conv.kernelINR_list[1].layers
    assert shared[1].w0 is shared[3].w0
    assert [float(one.layers[1].w0.detach()) for one in build_model("iniknet").inr_conv.kernelINR_list] == (
        pytest.approx(np.linspace(2, 12, 10))
    )


@pytest.mark.parametrize(("rows", "cols", "window"), [(9, 13, 4), (9, 13, 5), (4, 13, 6), (5, 5, 8)])
def test_local_mean(rows: int, cols: int, window: int) -> None:
    """Against windows moved by hand: at the edges the outermost that fits."""
    x = 100 + torch.randn(1, 40, rows, cols, dtype=torch.float64)
    result = local_mean(x.float(), window)
    tall, wide = min(window, rows), min(window, cols)
    for row in range(rows):
        for col in range(cols):
            top = min(max(row - (window - 1) // 2, 0), rows - tall)
            left = min(max(col - (window - 1) // 2, 0), cols - wide)
            expected = x[0, :, top : top + tall, left : left + wide].mean((-2, -1)).float()
            torch.testing.assert_close(result[0, :, row, col], expected, atol=2e-4, rtol=0)


def test_local_pooling() -> None:
    """The same network up to the window's size; beyond it, what is far away no longer matters."""
    whole, local = tiny("nafnet"), tiny("nafnet", local_pool_px=32)
    local.load_state_dict(whole.state_dict())
    with torch.no_grad():
        small = torch.rand(1, 3, 32, 30)
        assert torch.equal(whole(small), local(small))
        large = torch.rand(1, 3, 32, 320)
        other = large.clone()
        other[..., 160:] *= 0.2
        assert (whole(large) - whole(other))[..., :16].abs().max() > 1e-4
        torch.testing.assert_close(local(large)[..., :16], local(other)[..., :16], atol=1e-6, rtol=0)
        local.train()  # crops of training are never larger than they are
        torch.testing.assert_close(local(large), whole(large))


def test_attention_across_channels() -> None:
    """Two heads, against the formula written with the words of the paper."""
    module = ChannelAttention(8, 2)
    with torch.no_grad():
        module.temperature.copy_(torch.tensor([2.0, 0.5]).view(2, 1, 1))
        x = torch.rand(1, 8, 5, 6)
        query, key, value = module.qkv_dwconv(module.qkv(x))[0].reshape(3, 2, 4, 30)
        mixed = []
        for head, temperature in ((0, 2.0), (1, 0.5)):
            rows = query[head] / query[head].norm(dim=1, keepdim=True)
            cols = key[head] / key[head].norm(dim=1, keepdim=True)
            mixed.append(torch.softmax(temperature * rows @ cols.T, dim=1) @ value[head])
        expected = module.project_out(torch.cat(mixed).reshape(1, 8, 5, 6))
        torch.testing.assert_close(module(x), expected, atol=1e-6, rtol=1e-5)


def test_begins_as_the_identity_where_published() -> None:
    """NAFNet's blocks add nothing at first: only the first and last convolutions are seen."""
    model = build_model("nafnet", **TINY["nafnet"])
    image = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        before = model(image)
        for parameter in model.encoders[0].parameters():
            if parameter.shape != (1, 4, 1, 1):
                parameter.mul_(3.0)
        torch.testing.assert_close(model(image), before)


def test_wrong_names_are_told() -> None:
    with pytest.raises(DefocusError, match=r"model 'nafnett': did you mean 'nafnet'\?"):
        build_model("nafnett")
    with pytest.raises(DefocusError, match="model 'xyz': known are nrknet, iniknet, nafnet, restormer"):
        build_model("xyz")
    with pytest.raises(DefocusError, match=r"size 'smal' of nafnet: did you mean 'small'\?"):
        build_model("nafnet", "smal")
    with pytest.raises(DefocusError, match=r"nafnet: unknown key 'widht': did you mean 'width'\?"):
        build_model("nafnet", widht=8)
    with pytest.raises(DefocusError, match=r"nrknet: width: .*greater than or equal to 2.*0"):
        build_model("nrknet", width=0)
    with pytest.raises(DefocusError, match="restormer: level 2: 6 blocks of 7 heads over 96 channels"):
        build_model("restormer", heads=(1, 7, 4, 8))
    with pytest.raises(DefocusError, match="nafnet: 2 encoder_blocks, but 4 decoder_blocks"):
        build_model("nafnet", encoder_blocks=[1, 1])
    assert SIZES == ("paper", "small")
