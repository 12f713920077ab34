"""Files of weights: our own, which say what network they belong to, and those that others published.

Ours are a dictionary of torch.save, or of safetensors with the same in its metadata: the format's name, the network's
name, its options, its state. Others wrap a state in `params_ema`, `params`, `state_dict` or `model`, and put `module.`
(several GPUs) or `_orig_mod.` (compiled) before every key; both are taken off. Pickled code is never run, nothing is
unpacked that takes more memory than its file, and no network is built before its shapes are known to be those of the
file. Equal weights are equal bytes.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import DatasetError, DefocusError, MissingExtraError, WeightsError, first_line
from ...files.stores import writing_file
from .._torch import Tensor, nn, torch
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
# Whose published weights were trained on pictures as OpenCV reads them: blue, green, red. Ours say their own order.
PUBLISHED_BGR = ("nrknet", "iniknet")
STATE_SIGNS = {"version", "step", "config", "data", "model", "optimizer", "history"}  # see run_folder.py
SHOWN = 12  # keys of each kind in a message; the error holds them all

NESTED = 4  # wrappers within wrappers, at most

State = dict[str, Tensor]


def save_weights(file: str | Path, model_name: str, options: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Write a network's state with what is needed to build it again.

    A name that ends in .safetensors decides the format. The file appears whole or not at all.
    """
    file = Path(file)
    try:
        with writing_file(file) as out:
            write_weights(out, model_name, options, state, safe=file.suffix == ".safetensors")
    except DatasetError as error:
        raise WeightsError(error.message, file=file) from error
    except RuntimeError as error:  # torch's writer tells a full disk so
        raise WeightsError(f"cannot be written: {error}", file=file) from error


def write_weights(
    out: BinaryIO, model_name: str, options: Mapping[str, Any], state: Mapping[str, Tensor], *, safe: bool = False
) -> None:
    """Write what `save_weights` writes to an open file; `safe`: in the safetensors format."""
    plain = json.loads(json.dumps(dict(options)))  # what a TOML file or a metadata field can hold
    state = {key: value.detach().to("cpu").contiguous() for key, value in _stripped(dict(state)).items()}
    if safe:
        state = {key: value.clone() for key, value in state.items()}  # it knows no shared tensors
        metadata = {"format": FORMAT, "model": model_name, "options": json.dumps(plain)}
        out.write(_safetensors().torch.save(state, metadata=metadata))
    else:
        torch.save({"format": FORMAT, "model": model_name, "options": plain, "state": state}, out)


def read_weights(file: str | Path) -> tuple[str | None, dict[str, Any], State]:
    """The network's name, its options and its state. The name is None, and the options are empty, where the file does
    not tell them."""
    file = Path(file)
    if not file.is_file():
        raise WeightsError("there is no such file" if not file.exists() else "is not a file", file=file)
    if file.stat().st_size == 0:
        raise WeightsError("the file is empty", file=file)
    content = _read_safetensors(file) if file.suffix == ".safetensors" else read_torch(file)
    if isinstance(content, dict) and content.get("format") == FORMAT:
        name, options = content.get("model"), content.get("options")
        if not isinstance(name, str) or not isinstance(options, dict):
            raise WeightsError("says that it is ours, but not of which network: it is damaged", file=file)
        return name, options, _checked(content.get("state"), file)
    if isinstance(content, dict) and content.keys() >= STATE_SIGNS:
        run = file.resolve().parent.parent
        raise WeightsError(
            f"is a training's state, to go on from, not its weights: take best.pt or last.pt of {run}", file=file
        )
    for _ in range(NESTED):
        if isinstance(content, dict):
            content = next((content[key] for key in WRAPPERS if isinstance(content.get(key), dict)), content)
    return None, {}, _stripped(_checked(content, file))


def load_model(file: str | Path, name: str | None = None, **overrides: Any) -> Network:
    """The network of a file with its weights, in evaluation mode; its `name` says which it is.

    A file that does not tell is recognised by its keys, unless `name` tells, and taken to have the paper's size and the
    published weights' order of colours. `overrides` are options such as NAFNet's `local_pool_px`, or `channels`.
    """
    own_name, options, state = read_weights(file)
    if own_name and name and own_name != name:
        raise WeightsError(f"holds weights of {_shown(own_name)}, not of {name}", file=file)
    name = own_name or name or recognise(state)
    if name is None:
        names, keys = ", ".join(SIGNS), ", ".join(map(_shown, list(state)[:3]))
        raise WeightsError(f"of none of the networks known here ({names}); its first keys are {keys}", file=file)
    if own_name is None and name in PUBLISHED_BGR:
        options = {"channels": "bgr"}
    try:
        with torch.device("meta"):  # without memory: what a file says of its size is not believed
            check_fit(build_model(name, **(options | overrides)), state, file)
        model = build_model(name, **(options | overrides))
    except WeightsError:
        raise
    except (DefocusError, TypeError) as error:  # of keys that are no names of options
        raise WeightsError(str(error), file=file) from error
    fill(model, state, file)
    return model.eval()


def recognise(state: Mapping[str, Tensor]) -> str | None:
    """Name of the network that has such keys, None where none of ours has."""
    return next((name for name, key in SIGNS.items() if key in state), None)


def fill(model: nn.Module, state: Mapping[str, Tensor], file: str | Path | None = None) -> None:
    """Fill a network. Raises `WeightsError` that lists every key that does not fit, and changes nothing then."""
    check_fit(model, state, file)
    broken = [key for key, value in state.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    if broken:
        raise WeightsError(f"numbers that are not finite in {', '.join(broken[:SHOWN])}", file=file)
    model.load_state_dict(state)


def check_fit(model: nn.Module, state: Mapping[str, Tensor], file: str | Path | None = None) -> None:
    """Raise `WeightsError` that lists every key of a state that does not fit a network."""
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
        kinds = (("missing", missing), ("unexpected", [*map(_shown, unexpected)]), ("of another shape", differing))
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


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(str(n) for n in shape) or "a number"


def _shown(key: str) -> str:
    """A name of a file in a message: on one line, and not without end."""
    return key if key.isprintable() and len(key) <= 100 else f"{key[:100]!r}…"


def read_torch(file: Path) -> Any:
    """Contents of a file of torch.save. Raises `WeightsError` if it cannot be read without running its code."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise WeightsError("is compressed, which torch.save never does: it is not unpacked", file=file)
        return torch.load(file, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        raise WeightsError(
            "is no file of torch.save, or holds more than tensors, numbers and text, which could run code and is not "
            "read; where you trust it, load it with torch.load(..., weights_only=False) and save its state_dict alone",
            file=file,
        ) from error
    except Exception as error:  # bytes that are no such file may raise anything
        raise WeightsError(f"cannot be read by torch.load: {first_line(error)}", file=file) from error


def _read_safetensors(file: Path) -> Any:
    """A state; with the format of ours, what torch.save has of it."""
    library = _safetensors()
    try:
        with library.safe_open(str(file), framework="pt") as opened:
            state = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
            metadata = opened.metadata() or {}
        if metadata.get("format") == FORMAT:
            return metadata | {"options": json.loads(metadata["options"]), "state": state}
    except Exception as error:  # bytes that are no such file may raise anything
        raise WeightsError(f"cannot be read as safetensors: {error}", file=file) from error
    return state


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("files in the safetensors format", "train") from error
    return safetensors


def _checked(content: Any, file: Path) -> State:
    """A state of tensors that are what they seem. Raises `WeightsError` for anything else."""
    if not isinstance(content, dict):
        raise WeightsError(f"holds a {type(content).__name__}; expected a dictionary of tensors", file=file)
    if not content:
        raise WeightsError("holds no tensors", file=file)
    strange = [str(key) for key, value in content.items() if not isinstance(key, str) or not _is_plain(value)]
    if strange:
        raise WeightsError(
            f"expected tensors alone, or a dictionary of them under one of {', '.join(WRAPPERS)}; no tensors are: "
            f"{', '.join(map(_shown, strange[:SHOWN]))}",
            file=file,
        )
    return content


def _is_plain(value: Any) -> bool:
    """Whether it is a dense tensor of numbers in memory that has as many bytes as it says."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_meta:
        return False
    return value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def _stripped(state: State) -> State:
    while state and (prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in state)), None)):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state
