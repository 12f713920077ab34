"""What a training is made of, before its first step: processes and device, network and loss, the average of weights.

NAFNet's channel means are taken over windows while it restores (`local_pool_px`). They belong to what it learnt from:
unless the settings name a window, it is 1.5 times the largest crop, as in the published test-time converter.

The average is w̄ ← d·w̄ + (1 − d)·w after each step; the decay d rises with the steps, (1 + s)/(10 + s) at most, so that
the random first weights are soon forgotten. torch's AveragedModel would do, but asks the device for its own count of
steps at each one, for which the host has to wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DefocusError, MissingExtraError, TrainingError, WeightsError
from ._torch import nn, torch
from .config import ComputeSettings, TrainConfig
from .losses import LOSSES, OWN_LOSS, build_loss
from .models import MODELS, model_options

if TYPE_CHECKING:
    from accelerate import Accelerator

POOL = "local_pool_px"
SMALLEST_POOL_PX = 16
POOL_CROPS = 1.5  # window of the means in crops


def network_overrides(config: TrainConfig) -> dict[str, Any]:
    """What is changed of the network's size, the window of its means included."""
    overrides = dict(config.model.overrides)
    if config.model.name == "nafnet" and POOL not in overrides:
        overrides[POOL] = max(SMALLEST_POOL_PX, *(int(POOL_CROPS * stage.crop) for stage in config.stages))
    return overrides


def loss_name(config: TrainConfig) -> str:
    """The loss of the settings, or the network's own. Raises `DefocusError` where it is of another network: two of them
    look at more than the picture."""
    model = config.model.name
    model_options(model, config.model.size, **config.model.overrides)  # an unknown name has no own one
    name = config.loss.name or OWN_LOSS[model]
    if name in MODELS and name != model:
        others = ", ".join(other for other in LOSSES if other not in MODELS)
        raise DefocusError(f"the loss {name!r} is of {name} alone; for {model} there are {others}")
    return name


def check_build(config: TrainConfig) -> list[str]:
    """Raise `DefocusError` for a network or a loss that cannot be built. What else is worth knowing, in sentences."""
    notes = []
    name = loss_name(config)
    overrides = network_overrides(config)
    if POOL in overrides and POOL not in config.model.overrides:
        notes.append(f"model.overrides.{POOL} is {overrides[POOL]}, 1.5 times the largest crop, unless it is given")
    try:
        build_loss(name, **config.loss.options)
    except WeightsError as error:
        if config.loss.options.get("lpips") is not None:
            raise
        notes.append(f"a training would stop here: {error}")  # the weights may be where the training is to run
    return notes


class Average:
    """A copy of a network beside it: what is judged and kept, its average or, without a decay, the network itself.

    Made when the network is where it stays, and before it is wrapped for many GPUs or mixed precision.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = deepcopy(network).eval().requires_grad_(False)
        # Listed once: a walk over all modules at each step costs the host a millisecond.
        self._parameters = list(self.network.parameters())
        self._others = list(network.parameters())  # not views of them: wrapping may give them other memory

    def update(self, step: int) -> None:
        """Take in the network's weights after the step of this number, counted from 0."""
        update = torch.optim.swa_utils.get_ema_multi_avg_fn(min(self.decay, (1.0 + step) / (10.0 + step)))
        update(self._parameters, self._others, step)

    def refreshed(self, network: nn.Module) -> nn.Module:
        """The network to judge, with the buffers of now (the statistics of batch norms)."""
        with torch.no_grad():
            for own, other in zip(self.network.buffers(), network.buffers(), strict=True):
                own.copy_(other)
        return self.network


def compile_blocks(network: nn.Module) -> None:
    """Compile the blocks that a network is made of, each kind and size once, instead of the whole network."""
    kinds = getattr(network, "block_types", ())
    if not kinds:
        raise ConfigError('compute.compile_mode = "blocks" is for nafnet; take "default"')
    torch._dynamo.config.recompile_limit = max(32, torch._dynamo.config.recompile_limit)  # sizes and layouts
    for module in network.modules():
        if isinstance(module, kinds):
            module.compile(dynamic=False)


def open_accelerator(compute: ComputeSettings) -> Accelerator:
    """accelerate's handle on the processes that were started. Raises where it knows of others."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
        from accelerate.utils import TorchDynamoPlugin
    except ModuleNotFoundError as error:
        raise MissingExtraError("training", "train") from error
    if compute.precision == "fp16" and not torch.cuda.is_available():
        raise ConfigError('compute.precision = "fp16" needs a GPU; here take "no" or "bf16"')
    AcceleratorState._reset_state(reset_partial_state=False)  # another training of this process had its own settings
    started = int(os.environ.get("WORLD_SIZE") or 1)
    whole = compute.compile and compute.compile_mode != "blocks"
    dynamo = {"backend": "inductor", "mode": compute.compile_mode} if whole else {"backend": "no"}
    accelerator = Accelerator(
        mixed_precision=compute.precision,
        dynamo_plugin=TorchDynamoPlugin(**dynamo),
        cpu=started > 1 and not torch.cuda.is_available(),  # else accelerate takes each for a training of its own
    )
    kind = accelerator.distributed_type.value
    if kind not in ("NO", "MULTI_GPU", "MULTI_CPU"):
        raise TrainingError(f"training is not made for accelerate's {kind}; choose one or many GPUs without it")
    if accelerator.num_processes != started:
        raise TrainingError(
            f"{started} processes were started (WORLD_SIZE), but accelerate knows of {accelerator.num_processes}: "
            "start them with accelerate launch or torchrun, or unset WORLD_SIZE for one alone"
        )
    return accelerator


@contextmanager
def lost_processes(count: int) -> Iterator[None]:
    """Where one of many processes ends, the others only see a connection that broke: one line, not its traceback."""
    try:
        yield
    except RuntimeError as error:
        broken = "gloo" in str(error) or "by peer" in str(error)
        if count == 1 or not (broken or isinstance(error, torch.distributed.DistError)):
            raise
        raise TrainingError("another process of this training ended; what it wrote says why") from error


@contextmanager
def quiet_device(device: torch.device) -> Iterator[None]:
    """Random numbers and settings of the process are afterwards as they were."""
    tuned = torch.backends.cudnn.benchmark
    with torch.random.fork_rng([device.index or 0] if device.type == "cuda" else []):
        try:
            torch.backends.cudnn.benchmark = True
            yield
        finally:
            torch.backends.cudnn.benchmark = tuned
