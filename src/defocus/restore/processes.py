"""The processes and devices of a training: what accelerate makes of the settings, and how their failures are told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from ..errors import ConfigError, MissingExtraError, TrainingError
from .config import ComputeSettings

if TYPE_CHECKING:
    from accelerate import Accelerator


def open_accelerator(compute: ComputeSettings) -> Accelerator:
    """accelerate's handle on the processes that were started. Raises where it knows of others."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ModuleNotFoundError as error:
        raise MissingExtraError("training", "train") from error
    if compute.precision == "fp16" and not torch.cuda.is_available():
        raise ConfigError('compute.precision = "fp16" needs a GPU; here take "no" or "bf16"')
    AcceleratorState._reset_state(reset_partial_state=False)  # another training of this process had its own settings
    started = int(os.environ.get("WORLD_SIZE") or 1)
    accelerator = Accelerator(
        mixed_precision=compute.precision,
        dynamo_backend="inductor" if compute.compile else "no",
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
