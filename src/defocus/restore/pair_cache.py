"""Pairs that are decoded once: whole numbers of all pictures in two long tensors, in memory that loader workers share,
or on the GPU, where crops are cut and turned for a whole batch at once.

The pixels of picture n are the rows `starts[n]` to `starts[n + 1]` of a tensor [pixels, 3]; pictures may differ in
size. 8 bits are kept as they are; where one picture has 16, all have (v·257 of 8 bits is the same colour), as the int16
of the same bits, since PyTorch indexes no uint16 on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Shaped

from ..errors import TrainingError
from .data import PairDataset
from .views import View

ROLES = ("blurred", "sharp")
Values = Shaped[np.ndarray, "rows cols 3"]
Told = Callable[[str, int, int], None]  # a stage, how many are done, how many there are


def as_display(values: torch.Tensor) -> torch.Tensor:
    """float32 display values 0..1 of uint8, or of uint16 that is kept as int16."""
    if values.dtype == torch.uint8:
        return values.to(torch.float32) / 255.0
    return (values.to(torch.int32) & 0xFFFF).to(torch.float32) / 65535.0


def whole_numbers(values: Values, bits: int) -> torch.Tensor:
    """A copy as it is kept: uint8, or the int16 of the bits of uint16."""
    if values.dtype == np.uint8 and bits == 8:
        return torch.from_numpy(np.array(values, order="C"))
    deep = values if values.dtype == np.uint16 else values.astype(np.uint16) * np.uint16(257)
    return torch.from_numpy(np.array(deep, order="C").view(np.int16))


class PairCache:
    """All pairs of some folders, numbered through. On the CPU its tensors are in shared memory."""

    def __init__(self, folders: Sequence[PairDataset], device: torch.device, told: Told | None = None) -> None:
        self.device = device
        self.names = [pair.id for folder in folders for pair in folder.pairs]
        places = [(folder, index) for folder in folders for index in range(len(folder))]
        threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1))
        try:
            sizes = list(threads.map(lambda place: place[0].size(place[1]), places))
            self.bits = max(bits for *_, bits in sizes)
            self.sizes = [(rows, cols) for rows, cols, _ in sizes]
            self.starts = np.concatenate(([0], np.cumsum([rows * cols for rows, cols in self.sizes])))
            self.values = {role: self._room() for role in ROLES}

            def read(place: tuple[PairDataset, int]) -> dict[str, torch.Tensor]:
                pictures = place[0].pictures(place[1], ROLES)
                return {role: whole_numbers(pictures[role], self.bits) for role in ROLES}

            for number, pictures in enumerate(threads.map(read, places)):
                for role, values in pictures.items():
                    self._rows(role, number).copy_(values.reshape(-1, 3))
                if told is not None:
                    told("decoding pairs", number + 1, len(places))
        finally:
            threads.shutdown(cancel_futures=True)
        self._table = torch.tensor(
            [[start, cols] for start, (_, cols) in zip(self.starts[:-1], self.sizes, strict=True)], dtype=torch.int64
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def pair(self, number: int) -> tuple[Values, Values]:
        """The blurred and the sharp picture, as they were in the folder; for a cache in memory."""
        kind = np.uint8 if self.bits == 8 else np.uint16
        first, second = (self._rows(role, number).numpy().view(kind).reshape(*self.sizes[number], 3) for role in ROLES)
        return first, second

    def cut(self, numbers: Sequence[int], views: Sequence[View]) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of pairs, all of one size: display values [batch, 3, rows, cols] on the cache's device."""
        rows, cols = views[0].rows, views[0].cols
        table = torch.cat((self._table[torch.tensor(numbers)], torch.tensor(views, dtype=torch.int64)), 1)
        start, width, top, left, _, _, mirrored, flipped, turned = (
            column[:, None, None] for column in table.to(self.device, non_blocking=True).unbind(1)
        )
        i = torch.arange(rows, device=self.device)[None, :, None]
        j = torch.arange(cols, device=self.device)[None, None, :]
        # Where each pixel comes from: the steps of `seen`, backwards.
        a, b = torch.where(turned > 0, j, i), torch.where(turned > 0, i, j)
        a = torch.where(flipped > 0, rows - 1 - a, a)
        b = torch.where(mirrored > 0, cols - 1 - b, b)
        source = start + (top + a) * width + left + b
        blurred, sharp = (as_display(self.values[role][source]).permute(0, 3, 1, 2) for role in ROLES)
        return blurred, sharp

    def _rows(self, role: str, number: int) -> torch.Tensor:
        return self.values[role][int(self.starts[number]) : int(self.starts[number + 1])]

    def _room(self) -> torch.Tensor:
        pixels = int(self.starts[-1])
        kind = torch.uint8 if self.bits == 8 else torch.int16
        try:
            room = torch.empty((pixels, 3), dtype=kind, device=self.device)
            return room.share_memory_() if self.device.type == "cpu" else room
        except (RuntimeError, MemoryError) as error:
            size = len(ROLES) * pixels * 3 * self.bits / 8e9
            raise TrainingError(
                f"{len(self)} pairs take {size:.1f} GB of {self.device.type} memory, which cannot be had: "
                'choose another data.cache ("no", "memory", "device")'
            ) from error
