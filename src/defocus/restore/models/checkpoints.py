"""Files of weights: our own, which say what network they belong to, and those that others published.

Ours are a dictionary of torch.save, or of safetensors with the same in its metadata: the format's name, the network's
name, its options, its state. Others wrap a state in `params_ema`, `params`, `state_dict` or `model`, and put `module.`
(several GPUs) or `_orig_mod.` (compiled) before every key; both are taken off. Pickled code is never run.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import DatasetError, DefocusError, MissingExtraError, WeightsError
from ...files.stores import writing_file
from . import Network, build_model

FORMAT = "defocus weights 1"
# In this order: where a file holds both an average and the last weights, the average was meant to be used.
WRAPPERS = ("params_ema", "params", "state_dict", "model_state_dict", "model", "net")
PREFIXES = ("module.", "_orig_mod.")
# A key that only this network has.
SIGNS = {
    "nrknet": "APU.conv_atten.conv.weight",
    "iniknet": "inr_conv.kernelINR_list.0.layers.0.weight",
    "nafnet": "middle_blks.0.conv1.weight",
    "restormer": "patch_embed.proj.weight",
}
STATE_SIGNS = {"version", "step", "config", "data", "model", "optimizer", "history"}  # see run_folder.py
SHOWN = 12  # keys of each kind in a message; the error holds them all

State = dict[str, Tensor]


def save_weights(file: str | Path, model_name: str, options: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write a network's state with what is needed to build it again.

    A name that ends in .safetensors decides the format. The file appears whole or not at all.
    """
    file = Path(file)
    plain = json.loads(json.dumps(dict(options)))  # what a TOML file or a metadata field can hold
    state = {key: value.detach().to("cpu").contiguous() for key, value in _stripped(dict(state)).items()}
    try:
        with writing_file(file) as out:
            if file.suffix == ".safetensors":
                state = {key: value.clone() for key, value in state.items()}  # it knows no shared tensors
                metadata = {"format": FORMAT, "model": model_name, "options": json.dumps(plain)}
                out.write(_safetensors().torch.save(state, metadata=metadata))
            else:
                torch.save({"format": FORMAT, "model": model_name, "options": plain, "state": state}, out)
    except DatasetError as error:
        raise WeightsError(error.message, file=file) from error
    except RuntimeError as error:  # torch's writer tells a full disk so
        raise WeightsError(f"cannot be written: {error}", file=file) from error


def read_weights(file: str | Path) -> tuple[str | None, dict[str, Any], State]:
    """The network's name, its options and its state. The name is None, and the options are empty, where the file does
    not tell them."""
    file = Path(file)
    if not file.is_file():
        raise WeightsError("there is no such file" if not file.exists() else "is not a file", file=file)
    if file.suffix == ".safetensors":
        content: Any
        content, metadata = _read_safetensors(file)
        if metadata.get("format") == FORMAT:
            return metadata["model"], json.loads(metadata["options"]), content
    else:
        content = read_torch(file)
        if isinstance(content, dict) and content.get("format") == FORMAT:
            return content["model"], dict(content["options"]), content["state"]
        if isinstance(content, dict) and content.keys() >= STATE_SIGNS:
            run = file.resolve().parent.parent
            raise WeightsError(
                f"is a training's state, to go on from, not its weights: take best.pt or last.pt of {run}", file=file
            )
        content = _unwrapped(content)
    _check_state(content, file)
    return None, {}, _stripped(content)


def load_weights(model: torch.nn.Module, file: str | Path) -> None:
    """Fill a network. Raises `WeightsError` that lists every key that does not fit, and changes nothing then."""
    fill(model, read_weights(file)[2], file)


def load_model(file: str | Path, name: str | None = None, **overrides: Any) -> Network:
    """The network of a file with its weights, in evaluation mode; its `name` says which it is.

    A file that does not tell is recognised by its keys, unless `name` tells, and taken to have the paper's size.
    `overrides` are options such as NAFNet's `local_pool_px`.
    """
    own_name, options, state = read_weights(file)
    if own_name and name and own_name != name:
        raise WeightsError(f"holds weights of {own_name}, not of {name}", file=file)
    name = own_name or name or recognise(state)
    if name is None:
        raise WeightsError(
            f"of none of the networks known here ({', '.join(SIGNS)}); its first keys are {', '.join(list(state)[:3])}",
            file=file,
        )
    try:
        model = build_model(name, **(options | overrides))
    except DefocusError as error:
        raise WeightsError(str(error), file=file) from error
    fill(model, state, file)
    return model.eval()


def recognise(state: Mapping[str, Tensor]) -> str | None:
    """Name of the network that has such keys, None where none of ours has."""
    return next((name for name, key in SIGNS.items() if key in state), None)


def fill(model: torch.nn.Module, state: Mapping[str, Tensor], file: str | Path | None = None) -> None:
    """Fill a network from the state of a file that was read already, as `load_weights` does."""
    own = model.state_dict()
    missing = tuple(key for key in own if key not in state)
    unexpected = tuple(key for key in state if key not in own)
    misshapen = tuple(
        (key, tuple(state[key].shape), tuple(value.shape))
        for key, value in own.items()
        if key in state and state[key].shape != value.shape
    )
    if missing or unexpected or misshapen:
        differing = [f"{key} ({_size(has)} instead of {_size(expected)})" for key, has, expected in misshapen]
        kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", differing))
        reasons = [
            f"{len(keys)} {what}: {', '.join(keys[:SHOWN])}{f' and {len(keys) - SHOWN} more' * (len(keys) > SHOWN)}"
            for what, keys in kinds
            if keys
        ]
        raise WeightsError(
            f"{len(own) - len(missing) - len(misshapen)} of {len(own)} keys fit; {'; '.join(reasons)}",
            file=file,
            missing=missing,
            unexpected=unexpected,
            misshapen=misshapen,
        )
    broken = [key for key, value in state.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    if broken:
        raise WeightsError(f"numbers that are not finite in {', '.join(broken[:SHOWN])}", file=file)
    model.load_state_dict(state)


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(str(n) for n in shape) or "a number"


def read_torch(file: Path) -> Any:
    """Contents of a file of torch.save. Raises `WeightsError` if it cannot be read without running its code."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            "is no file of torch.save, or holds more than tensors, numbers and text, which could run code and is not "
            "read; where you trust it, load it with torch.load(..., weights_only=False) and save its state_dict alone",
            file=file,
        ) from error
    except Exception as error:  # bytes that are no such file may raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise WeightsError(f"cannot be read by torch.load: {reason}", file=file) from error


def _read_safetensors(file: Path) -> tuple[State, dict[str, str]]:
    library = _safetensors()
    try:
        with library.safe_open(str(file), framework="pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
    except (library.SafetensorError, OSError) as error:
        raise WeightsError(f"cannot be read as safetensors: {error}", file=file) from error


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("files in the safetensors format", "train") from error
    return safetensors


def _unwrapped(content: Any) -> Any:
    while isinstance(content, dict):
        inner = next((content[key] for key in WRAPPERS if isinstance(content.get(key), dict)), None)
        if inner is None:
            return content
        content = inner
    return content


def _check_state(content: Any, file: Path) -> None:
    if not isinstance(content, dict):
        raise WeightsError(f"holds a {type(content).__name__}; expected a dictionary of tensors", file=file)
    if not content:
        raise WeightsError("holds no tensors", file=file)
    strange = [str(key) for key, value in content.items() if not isinstance(value, Tensor)]
    if strange:
        raise WeightsError(
            f"expected tensors alone, or a dictionary of them under one of {', '.join(WRAPPERS)}; no tensors are: "
            f"{', '.join(strange[:SHOWN])}",
            file=file,
        )


def _stripped(state: State) -> State:
    while state and (prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in state)), None)):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state
