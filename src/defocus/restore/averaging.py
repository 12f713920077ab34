"""The exponential moving average of a network's weights, w̄ ← d·w̄ + (1 − d)·w after each step; and the network that is
judged and kept: of these weights, or of the last ones where no average is asked for.

The decay d rises with the steps, (1 + s)/(10 + s) at most, so that the random first weights are soon forgotten.
Buffers (the statistics of batch norms) are taken as they are. torch's AveragedModel would do, but asks the device for
its own count of steps at each one, for which the host has to wait.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Average:
    """A copy of a network beside it. Made before the network is wrapped for many GPUs or mixed precision."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = deepcopy(network).eval().requires_grad_(False)

    def update(self, network: nn.Module, step: int) -> None:
        """Take in the weights after the step of this number, counted from 0."""
        update = get_ema_multi_avg_fn(min(self.decay, (1.0 + step) / (10.0 + step)))
        update(list(self.network.parameters()), [p.detach() for p in network.parameters()], step)

    def refreshed(self, network: nn.Module) -> nn.Module:
        """The network to judge, with the buffers of now."""
        with torch.no_grad():
            for own, other in zip(self.network.buffers(), network.buffers(), strict=True):
                own.copy_(other)
        return self.network
