"""The exponential moving average of a network's weights, w̄ ← d·w̄ + (1 − d)·w after each step; and the network that is
judged and kept: of these weights, or of the last ones where no average is asked for.

The decay d rises with the steps, (1 + s)/(10 + s) at most, so that the random first weights are soon forgotten.
Buffers (the statistics of batch norms) are taken as they are.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn


class Average:
    """A copy of a network beside it. Made before the network is wrapped for many GPUs or mixed precision."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def update(self, model: nn.Module, step: int) -> None:
        """After the step of this number, counted from 0."""
        if not self.decay:
            return
        decay = min(self.decay, (1.0 + step) / (10.0 + step))
        torch._foreach_lerp_(list(self.model.parameters()), [p.detach() for p in model.parameters()], 1.0 - decay)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def refreshed(self, model: nn.Module) -> nn.Module:
        """The network to judge, up to date."""
        if not self.decay:
            for mine, other in zip(self.model.parameters(), model.parameters(), strict=True):
                mine.copy_(other)
        for mine, other in zip(self.model.buffers(), model.buffers(), strict=True):
            mine.copy_(other)
        return self.model
