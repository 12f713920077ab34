"""The four networks of the paper, by name: `build_model("nrknet")` has the published size.

    build_model("nafnet", "small", width=16)

Weights are random; `checkpoints.load_model` reads them. `MODELS` lists the names, `SIZES` the sizes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import ConfigError, DefocusError
from ...files.settings import nearest_name, validated
from .blocks import Network, Options
from .iniknet import INIKNet, INIKNetOptions
from .nafnet import NAFNet, NAFNetOptions
from .nrknet import NRKNet, NRKNetOptions
from .restormer import Restormer, RestormerOptions

__all__ = ["MODELS", "SIZES", "Network", "Options", "build_model", "model_options"]


class _Kind(NamedTuple):
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
    return _KINDS[name].network(options)


def model_options(name: str, size: str = "paper", **overrides: Any) -> Options:
    """Checked options of the network that `build_model` would build."""
    if name not in _KINDS:
        raise DefocusError(f"model {name!r}: {nearest_name(name, MODELS)}")
    if size not in SIZES:
        raise DefocusError(f"size {size!r} of {name}: {nearest_name(size, SIZES)}")
    kind = _KINDS[name]
    try:
        return validated(kind.options, (kind.small if size == "small" else {}) | overrides, ConfigError)
    except ConfigError as error:
        raise DefocusError(f"{name}: {error}") from error
