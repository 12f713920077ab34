"""Pairs that are decoded once: whole numbers of all pictures in two long tensors, in memory that loader workers share,
or on the GPU, where crops are cut and turned for a whole batch at once.

The pixels of picture n are the rows `starts[n]` to `starts[n + 1]` of a tensor [pixels, 3]; pictures may differ in
size. 8 bits are kept as they are; where one picture has 16, all have (v·257 of 8 bits is the same colour), as the int16
of the same bits, since PyTorch indexes no uint16 on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import TrainingError

if TYPE_CHECKING:
    from .data import CropView, Pair, Report, Values

Batch = tuple[torch.Tensor, torch.Tensor]  # input and target, [pairs, 3, rows, cols], 0..1


def as_display(values: torch.Tensor) -> torch.Tensor:
    """float32 display values 0..1 [batch, 3, rows, cols] of whole numbers [batch, rows, cols, 3] as they are kept."""
    if values.dtype == torch.uint8:
        return values.to(torch.float32).div_(255.0).permute(0, 3, 1, 2)
    return (values.to(torch.int32) & 0xFFFF).to(torch.float32).div_(65535.0).permute(0, 3, 1, 2)


def stacked(pairs: Sequence[Pair]) -> Batch:
    """Pairs of one size as two tensors [pairs, rows, cols, 3] of the whole numbers that are kept."""
    bits = max(8 * values.dtype.itemsize for pair in pairs for values in pair)
    blurred, sharp = (torch.stack([_whole_numbers(pair[side], bits) for pair in pairs]) for side in (0, 1))
    return blurred, sharp


def _whole_numbers(values: Values, bits: int) -> torch.Tensor:
    """A copy as it is kept: uint8, or the int16 of the bits of uint16."""
    if values.dtype == np.uint8 and bits == 8:
        return torch.from_numpy(np.array(values, order="C"))
    deep = values if values.dtype == np.uint16 else values.astype(np.uint16) * np.uint16(257)
    return torch.from_numpy(np.array(deep, order="C").view(np.int16))


class DecodedPairs:
    """Pairs with `sizes` (rows, columns, bits of each) on a device; on the CPU in shared memory."""

    def __init__(
        self,
        pairs: Iterable[Pair],
        sizes: Sequence[tuple[int, int, int]],
        device: torch.device,
        report: Report | None = None,
    ) -> None:
        self.sizes, self._device = [size[:2] for size in sizes], device
        self._bits = max(bits for *_, bits in sizes)
        starts = np.cumsum([0, *(rows * cols for rows, cols in self.sizes)])
        self._starts = [int(start) for start in starts]
        self._sides = (self._room(), self._room())  # blurred and sharp
        for number, pair in enumerate(pairs):
            for side, values in zip(self._sides, pair, strict=True):
                self._rows(side, number).copy_(_whole_numbers(values, self._bits).reshape(-1, 3))
            if report is not None:
                report("decoding pairs", number + 1, len(sizes))
        self._table = torch.tensor([[start, cols] for start, (_, cols) in zip(starts, self.sizes, strict=False)])

    def pair(self, number: int) -> Pair:
        """The blurred and the sharp picture of a pair in memory; of 16 bits where any has as many."""
        kind = np.uint8 if self._bits == 8 else np.uint16
        size = (*self.sizes[number], 3)
        blurred, sharp = (self._rows(side, number).numpy().view(kind).reshape(size) for side in self._sides)
        return blurred, sharp

    def crops(self, numbers: Sequence[int], views: Sequence[CropView]) -> Batch:
        """Views of pairs, all of one size, as display values [batch, 3, rows, cols] on the device."""
        rows, cols = views[0].rows, views[0].cols
        table = torch.cat((self._table[torch.tensor(numbers)], torch.tensor(views, dtype=torch.int64)), 1)
        start, width, top, left, _, _, mirrored, flipped, turned = (
            column[:, None, None] for column in table.to(self._device, non_blocking=True).unbind(1)
        )
        i = torch.arange(rows, device=self._device)[None, :, None]
        j = torch.arange(cols, device=self._device)[None, None, :]
        # Where each pixel comes from: the steps of `CropView.of`, backwards.
        a, b = torch.where(turned > 0, j, i), torch.where(turned > 0, i, j)
        a = torch.where(flipped > 0, rows - 1 - a, a)
        b = torch.where(mirrored > 0, cols - 1 - b, b)
        source = start + (top + a) * width + left + b
        blurred, sharp = (as_display(side[source]) for side in self._sides)
        return blurred, sharp

    def _rows(self, side: torch.Tensor, number: int) -> torch.Tensor:
        return side[self._starts[number] : self._starts[number + 1]]

    def _room(self) -> torch.Tensor:
        kind = torch.uint8 if self._bits == 8 else torch.int16
        try:
            room = torch.empty((self._starts[-1], 3), dtype=kind, device=self._device)
            return room.share_memory_() if self._device.type == "cpu" else room
        except (RuntimeError, MemoryError) as error:
            size = 2 * self._starts[-1] * 3 * self._bits / 8e9
            raise TrainingError(
                f"{len(self.sizes)} pairs take {size:.1f} GB of {self._device.type} memory, which cannot be had: "
                'choose another data.cache ("no", "memory", "device")'
            ) from error
