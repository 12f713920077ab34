"""The network and the loss that settings ask for, checked as a training would, before anything is built.

NAFNet's channel means are taken over windows while it restores (`local_pool_px`). They belong to what it learnt from:
unless the settings name a window, it is the largest crop, whatever crop that is.
"""

from __future__ import annotations

from typing import Any

from ..errors import WeightsError
from .config import TrainConfig
from .losses import OWN_LOSS, build_loss, check_loss
from .models import model_options

POOL = "local_pool_px"
SMALLEST_POOL_PX = 16


def network_overrides(config: TrainConfig) -> dict[str, Any]:
    """What is changed of the network's size, the window of its means included."""
    overrides = dict(config.model.overrides)
    if config.model.name == "nafnet" and POOL not in overrides:
        overrides[POOL] = max(SMALLEST_POOL_PX, *(stage.crop for stage in config.stages))
    return overrides


def loss_name(config: TrainConfig) -> str:
    """The loss of the settings, or the network's own. Raises `DefocusError` where it is of another network."""
    model_options(config.model.name, config.model.size, **config.model.overrides)  # an unknown name has no own one
    name = config.loss.name or OWN_LOSS[config.model.name]
    check_loss(name, config.model.name)
    return name


def check_build(config: TrainConfig) -> list[str]:
    """Raise `DefocusError` for a network or a loss that cannot be built. What else is worth knowing, in sentences."""
    notes = []
    name = loss_name(config)
    overrides = network_overrides(config)
    if POOL in overrides and POOL not in config.model.overrides:
        notes.append(f"model.overrides.{POOL} is {overrides[POOL]}, by the largest crop, unless it is given")
    try:
        build_loss(name, **config.loss.options)
    except WeightsError as error:
        if config.loss.options.get("lpips") is not None:
            raise
        notes.append(f"a training would stop here: {error}")  # the weights may be where the training is to run
    return notes
