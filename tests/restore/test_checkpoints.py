"""Files of weights: ours come back whole, others' are understood, and what does not fit is told key by key."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from defocus.errors import WeightsError
from defocus.restore.models import MODELS, Network, build_model
from defocus.restore.models.checkpoints import FORMAT, fill, load_model, read_weights, recognise, save_weights

from .small_training import TINY


def tiny(name: str, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return build_model(name, **TINY[name])


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name: str, suffix: str, tmp_path: Path) -> None:
    """A file alone gives the network back: name, options, weights."""
    model = tiny(name)
    file = tmp_path / "new" / f"weights{suffix}"
    options = model.options.model_dump()
    save_weights(file, name, options, model.state_dict())
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    name_in_file, read, state = read_weights(file)
    assert (name_in_file, list(state)) == (name, list(model.state_dict())) or suffix == ".safetensors"
    assert build_model(name, **read).options == model.options
    loaded = load_model(file)
    assert loaded.name == name
    assert same(loaded, model)
    assert not loaded.training
    image = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(image), model.eval()(image))


@pytest.mark.parametrize("wrapper", [None, "params", "params_ema", "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod.", "_orig_mod."])
def test_published_ways_of_wrapping(wrapper: str | None, prefix: str, tmp_path: Path) -> None:
    model, other = tiny("nrknet"), tiny("nrknet", 1)
    state: dict[str, Any] = {prefix + key: value for key, value in model.state_dict().items()}
    file = tmp_path / "published.pth"
    torch.save({wrapper: state, "iter": 3} if wrapper else state, file)
    assert read_weights(file)[:2] == (None, {})
    fill(other, read_weights(file)[2], file)
    assert same(model, other)


def test_averaged_weights_come_first(tmp_path: Path) -> None:
    last, average, model = tiny("nafnet"), tiny("nafnet", 1), tiny("nafnet", 2)
    torch.save({"params": last.state_dict(), "params_ema": average.state_dict()}, tmp_path / "both.pth")
    fill(model, read_weights(tmp_path / "both.pth")[2], tmp_path / "both.pth")
    assert same(model, average)


def test_foreign_safetensors(tmp_path: Path) -> None:
    model, other = tiny("restormer"), tiny("restormer", 1)
    save_file({f"module.{key}": value for key, value in model.state_dict().items()}, tmp_path / "a.safetensors")
    fill(other, read_weights(tmp_path / "a.safetensors")[2], tmp_path / "a.safetensors")
    assert same(model, other)


def test_what_does_not_fit_is_listed(tmp_path: Path) -> None:
    """Exactly, and the network stays as it was."""
    model, unchanged = tiny("nrknet"), tiny("nrknet")
    state = {f"module.{key}": value + 1 for key, value in model.state_dict().items()}
    del state["module.GCM.kernels"], state["module.bottleneck.0.main.0.weight"]
    state["module.SummationLayer.conv.bias"] = torch.zeros(7)
    state["module.head.weight"] = torch.zeros(1)
    torch.save({"params": state}, tmp_path / "odd.pth")
    with pytest.raises(WeightsError) as caught:
        fill(model, read_weights(tmp_path / "odd.pth")[2], tmp_path / "odd.pth")
    error = caught.value
    assert error.missing == ("GCM.kernels", "bottleneck.0.main.0.weight")
    assert error.unexpected == ("head.weight",)
    assert error.misshapen == (("SummationLayer.conv.bias", (7,), (3,)),)
    total = len(model.state_dict())
    assert str(error) == (
        f"{tmp_path / 'odd.pth'}: {total - 3} of {total} keys fit; 2 missing: GCM.kernels, bottleneck.0.main.0.weight; "
        "1 unexpected: head.weight; 1 of another shape: SummationLayer.conv.bias (7 instead of 3)"
    )
    assert same(model, unchanged)


def test_long_lists_are_shortened_in_the_message_alone() -> None:
    with pytest.raises(WeightsError, match=r"and \d+ more") as caught:
        fill(tiny("nafnet"), {"x": torch.zeros(1)})
    assert len(caught.value.missing) == len(tiny("nafnet").state_dict())


def test_networks_are_recognised(tmp_path: Path) -> None:
    for name in MODELS:
        with torch.device("meta"):
            assert recognise(build_model(name).state_dict()) == name
    torch.save({"params": tiny("nafnet").state_dict()}, tmp_path / "small.pth")
    with pytest.raises(WeightsError, match=r"of another shape: .*intro\.weight"):
        load_model(tmp_path / "small.pth")  # taken for the paper's size
    assert load_model(tmp_path / "small.pth", **TINY["nafnet"]).name == "nafnet"
    torch.save({"a.b": torch.zeros(1)}, tmp_path / "unknown.pth")
    with pytest.raises(WeightsError, match=r"of none of the networks known here .* a\.b"):
        load_model(tmp_path / "unknown.pth")


def test_options_can_be_changed_for_inference(tmp_path: Path) -> None:
    model = tiny("nafnet")
    save_weights(tmp_path / "w.pth", "nafnet", model.options.model_dump(), model.state_dict())
    loaded = load_model(tmp_path / "w.pth", local_pool_px=64)
    assert loaded.options.local_pool_px == 64
    assert same(loaded, model)
    with pytest.raises(WeightsError, match=r"w\.pth: holds weights of nafnet, not of nrknet"):
        load_model(tmp_path / "w.pth", "nrknet")
    with pytest.raises(WeightsError, match=r"w\.pth: nafnet: unknown key 'local_pool'"):
        load_model(tmp_path / "w.pth", local_pool=64)


@pytest.mark.parametrize("name", MODELS)
def test_published_weights_see_colours_in_their_order(name: str, tmp_path: Path) -> None:
    """Published NRKNet and INIKNet learnt blue-green-red pictures; a picture is RGB before and after every network."""
    model = tiny(name).eval()
    published, ours = tmp_path / "published.pth", tmp_path / "ours.pth"
    torch.save({"params": {f"module.{key}": value for key, value in model.state_dict().items()}}, published)
    save_weights(ours, name, model.options.model_dump(), model.state_dict())
    torch.manual_seed(2)
    image = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        rgb, bgr = model(image), model(image.flip(1)).flip(1)
        assert (rgb - bgr).abs().max() > 1e-4
        expected = bgr if name in ("nrknet", "iniknet") else rgb
        assert torch.equal(load_model(published, **TINY[name])(image), expected)
        assert torch.equal(load_model(published, channels="rgb", **TINY[name])(image), rgb)
        assert torch.equal(load_model(ours)(image), rgb)
        assert torch.equal(load_model(ours, channels="bgr")(image), bgr)


@pytest.mark.parametrize("name", ["nrknet", "iniknet"])
def test_losses_see_colours_as_the_network_restores_them(name: str) -> None:
    """What a loss asks for beside the restored picture has the pictures' order too."""
    model = build_model(name, channels="bgr", **TINY[name]).eval()
    image, target = torch.rand(2, 1, 3, 32, 32)
    with torch.no_grad():
        restored = model(image, target).outputs[-1] if name == "nrknet" else model(image, every_scale=True)[-1]
        assert torch.allclose(restored, model(image), atol=1e-6)


class Trap:
    """What a hostile file would hold."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("caught",)


def test_bad_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def refused(name: str, pattern: str) -> None:
        with pytest.raises(WeightsError, match=pattern) as caught:
            read_weights(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))

    refused("none.pth", "there is no such file")
    refused("", "is not a file")
    (tmp_path / "text.pth").write_text("hello")
    refused("text.pth", "torch.save|cannot be read")
    (tmp_path / "text.safetensors").write_text("hello")
    refused("text.safetensors", "cannot be read as safetensors")
    (tmp_path / "empty.pth").write_bytes(b"")
    refused("empty.pth", "the file is empty")
    (tmp_path / "trap.pth").write_bytes(pickle.dumps({"params": Trap()}, protocol=2))
    refused("trap.pth", "could run code")
    torch.save({"params": Trap()}, tmp_path / "trap2.pth")
    refused("trap2.pth", "could run code")
    assert not (tmp_path / "caught").exists()
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    refused("list.pth", "holds a list; expected a dictionary of tensors")
    torch.save({"params": {}}, tmp_path / "nothing.pth")
    refused("nothing.pth", "holds no tensors")
    torch.save({"epoch": 3, "weights": torch.zeros(1)}, tmp_path / "mixed.pth")
    refused("mixed.pth", "no tensors are: epoch")
    whole = tmp_path / "whole.pth"
    save_weights(whole, "nafnet", {}, tiny("nafnet").state_dict())
    (tmp_path / "cut.pth").write_bytes(whole.read_bytes()[:-500])
    refused("cut.pth", "cannot be read|torch.save")


def holding_itself() -> dict[str, Any]:
    content: dict[str, Any] = {"iter": 3}
    content["params"] = content
    return content


def ours(**changes: Any) -> dict[str, Any]:
    model = tiny("nafnet")
    return {
        "format": FORMAT,
        "model": "nafnet",
        "options": model.options.model_dump(),
        "state": model.state_dict(),
    } | changes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": FORMAT}, "says that it is ours, but not of which network"),
        (ours(model=3), "says that it is ours, but not of which network"),
        (ours(options=[1]), "says that it is ours, but not of which network"),
        (ours(state={"intro.weight": "text"}), "no tensors are: intro.weight"),
        (ours(state={7: torch.zeros(1)}), "no tensors are: 7"),
        (ours(state=None), "holds a NoneType"),
        (ours(model="nafnett"), "did you mean 'nafnet'"),
        (ours(options={"name": "nafnet"}), "multiple values"),
        (ours(options={"width": 1024, "encoder_blocks": [128] * 6, "decoder_blocks": [128] * 6}), "keys fit"),
        (ours(state={"intro.weight": torch.zeros(1).expand(2**20, 2**20)}), "no tensors are: intro.weight"),
        (ours(state={"a\nb": torch.zeros(1)}), r"unexpected: 'a\\nb'"),
        (holding_itself(), "no tensors are: iter, params"),
    ],
)
def test_crafted_files_are_one_line(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    """What says that it is ours is looked at like what others made; no network is built for a file that lies."""
    torch.save(content, tmp_path / "crafted.pt")
    with pytest.raises(WeightsError, match=message) as caught:
        load_model(tmp_path / "crafted.pt")
    assert "\n" not in str(caught.value)


def test_a_compressed_file_is_not_unpacked(tmp_path: Path) -> None:
    """A few bytes that would become many."""
    torch.save({"params": {"w": torch.zeros(1000)}}, tmp_path / "plain.pt")
    with ZipFile(tmp_path / "plain.pt") as plain, ZipFile(tmp_path / "small.pt", "w", ZIP_DEFLATED) as small:
        for entry in plain.infolist():
            small.writestr(entry.filename, plain.read(entry))
    with pytest.raises(WeightsError, match="is compressed, which"):
        read_weights(tmp_path / "small.pt")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_damaged_bytes_are_one_line_or_weights(suffix: str, tmp_path: Path) -> None:
    file, random = tmp_path / f"w{suffix}", np.random.default_rng(0)
    save_weights(file, "nafnet", {"width": 8}, {f"layer.{n}": torch.arange(3.0) for n in range(3)})
    whole = file.read_bytes()
    refused = 0
    for _ in range(150):
        data = bytearray(whole[: random.integers(len(whole))] if random.random() < 0.2 else whole)
        for place in random.integers(0, max(len(data), 1), random.integers(1, 9)) if data else ():
            data[place] = random.integers(256)
        file.write_bytes(data)
        try:
            state = read_weights(file)[2]
            assert all(isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in state.items())
        except WeightsError:
            refused += 1
    assert refused > 30


def test_numbers_that_are_none(tmp_path: Path) -> None:
    state = tiny("nafnet").state_dict()
    state["intro.bias"] = torch.full_like(state["intro.bias"], float("nan"))
    torch.save(state, tmp_path / "nan.pth")
    with pytest.raises(WeightsError, match=r"not finite in intro\.bias"):
        fill(tiny("nafnet"), read_weights(tmp_path / "nan.pth")[2], tmp_path / "nan.pth")


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot be written"):
        save_weights(tmp_path / "file" / "w.pth", "nafnet", {}, tiny("nafnet").state_dict())
    (tmp_path / "folder.pth" / "x").mkdir(parents=True)
    with pytest.raises(WeightsError, match="cannot be written"):
        save_weights(tmp_path / "folder.pth", "nafnet", {}, tiny("nafnet").state_dict())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.pth"]


def test_equal_weights_are_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever process they are written, under whatever name; benchmarks/kills.py does it with real ones."""
    for name, process in (("a.pt", 1), ("bee.pt", 4242)):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        save_weights(tmp_path / name, "nafnet", {"width": 8}, {"intro.bias": torch.arange(3.0)})
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "bee.pt").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
