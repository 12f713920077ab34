"""Networks of a few weights whose reach is known, and pictures of noise, for tests of tiles and of files."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Plain(nn.Module):
    """Three convolutions of 5×5: reach 6."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = (3, 4, 4, 3)
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2) for a, b in pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Strided(nn.Module):
    """Down by 4 and up again, with a skip: aligned to multiples of 4, reach 4·(1 + ½) + 4·1 + 4 < 15."""

    multiple = 4

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.down1, self.down2 = nn.Conv2d(3, 6, 2, 2), nn.Conv2d(6, 8, 2, 2)
        self.middle = nn.Conv2d(8, 48, 3, padding=1)
        self.up = nn.PixelShuffle(4)
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(x.shape))
        rows, cols = x.shape[-2:]
        padded = F.pad(x, (0, -cols % 4, 0, -rows % 4), mode="reflect")
        result = padded + self.up(self.middle(torch.tanh(self.down2(torch.tanh(self.down1(padded))))))
        return result[..., :rows, :cols]


class Brighter(nn.Module):
    """Half way to white: what a file held can be told from the result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x + 0.5


def noise(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(rows, cols, 3)).astype(np.float32)


def whole(model: nn.Module, image: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(image).permute(2, 0, 1)[None])[0].permute(1, 2, 0).numpy()
