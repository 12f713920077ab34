"""The four networks of the paper, by name: `build_model("nrknet")` has the published size.

    build_model("nafnet", "small", width=16)

Weights are random until `checkpoints.load_weights` reads them. `MODELS` lists the names, `SIZES` the sizes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ...errors import DefocusError
from .blocks import Network, Options
from .iniknet import INIKNet, INIKNetOptions
from .nafnet import NAFNet, NAFNetOptions
from .nrknet import NRKNet, NRKNetOptions
from .restormer import Restormer, RestormerOptions

__all__ = ["MODELS", "SIZES", "Network", "Options", "build_model", "model_options"]


@dataclass(frozen=True)
class _Kind:
    network: type[Network]
    options: type[Options]
    small: dict[str, Any]


_KINDS = {
    "nrknet": _Kind(NRKNet, NRKNetOptions, {"width": 24}),
    "iniknet": _Kind(INIKNet, INIKNetOptions, {"width": 16, "unet_blocks": 1, "lstm_blocks": 1}),
    "nafnet": _Kind(NAFNet, NAFNetOptions, {"width": 32, "encoder_blocks": (1, 1, 2, 4)}),
    "restormer": _Kind(Restormer, RestormerOptions, {"width": 24, "blocks": (1, 2, 2, 4), "refinement_blocks": 1}),
}
MODELS = tuple(_KINDS)
SIZES = ("paper", "small")


def build_model(name: str, size: str = "paper", **overrides: Any) -> Network:
    """A network with random weights. `overrides` change single options of the size."""
    options = model_options(name, size, **overrides)
    return _KINDS[name].network(options)  # type: ignore[call-arg]


def model_options(name: str, size: str = "paper", **overrides: Any) -> Options:
    """What `build_model` would build, checked."""
    if name not in _KINDS:
        raise DefocusError(f"model {name!r}: {_offer(name, MODELS)}")
    if size not in SIZES:
        raise DefocusError(f"size {size!r} of {name}: {_offer(size, SIZES)}")
    kind = _KINDS[name]
    try:
        return kind.options(**((kind.small if size == "small" else {}) | overrides))
    except ValidationError as error:
        told = "; ".join(_told(one, kind.options) for one in error.errors())
        raise DefocusError(f"{name}: {told}") from error


def _told(error: Any, options: type[Options]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown option {key!r}: {_offer(key, options.model_fields)}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{key} = {error['input']!r}: {message}" if key else message


def _offer(wanted: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(wanted.lower(), list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
