"""A network over a photograph of any size, tile by tile, so that memory is bounded by one batch of tiles.

Along each axis the tiles are all of one size and start on the grid of the network's strides (`model.multiple`), so that
strided layers meet the same pixels as in the whole picture. They are spread evenly, neighbours share `overlap` pixels
or more, and the last tile ends where the picture, padded to that grid by reflection, ends.

With bᵢ the middle of what tiles i and i + 1 share, and S a smooth step over half of the overlap, tile i weighs
S(x − bᵢ₋₁) − S(x − bᵢ). These weights are never negative and add up to 1 everywhere. A quarter of the overlap at each
inner edge of a tile weighs nothing: where that is at least the network's reach (the radius of its receptive field), the
result is that of the whole picture; where not, what remains fades over the other half, without a seam.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from ..errors import DefocusError
from ._torch import Tensor, nn, torch
from .similarity import display_values

PRECISIONS = ("float32", "bf16")
TILE_PX = 512
BYTES_PER_PX = 8192  # of a whole picture: networks of the paper's size took 2,100 to 6,700 for 512×512 on a processor


@dataclass(frozen=True)
class Axis:
    """The tiles along one axis of a picture."""

    size: int  # of every tile
    starts: tuple[int, ...]
    weights: tuple[Float[np.ndarray, "size"], ...]  # of each tile


@dataclass(frozen=True)
class Tiles:
    """The tiles of a picture of `shape` = (rows, cols)."""

    shape: tuple[int, int]
    rows: Axis
    cols: Axis

    @property
    def places(self) -> list[tuple[int, int]]:
        """Row and column of the tiles, counted in tiles."""
        return list(product(range(len(self.rows.starts)), range(len(self.cols.starts))))

    def window(self, place: tuple[int, int]) -> tuple[slice, slice]:
        """Rows and columns of the picture under the tile at a place; the last ones may end beyond it."""
        top, left = self.rows.starts[place[0]], self.cols.starts[place[1]]
        return slice(top, top + self.rows.size), slice(left, left + self.cols.size)


def plan_tiles(shape: tuple[int, int], tile_px: int, overlap_px: int, multiple: int = 1) -> Tiles:
    """The tiles of a picture of `shape` = (rows, cols); tile and overlap are rounded up to the network's multiple."""
    if multiple < 1 or tile_px < 1 or overlap_px < 0:
        raise DefocusError(f"tiles of {tile_px} pixels that share {overlap_px}, multiple {multiple}; expected positive")
    if min(shape) < 1:
        raise DefocusError(f"a picture of {shape[1]}×{shape[0]} pixels; expected at least one")
    tile, overlap = (-(-n // multiple) for n in (tile_px, overlap_px))
    if 2 * overlap > tile:
        used = tile * multiple, overlap * multiple
        rounded = f" (in multiples of {multiple}, as this network needs them: {used[0]} and {used[1]})"
        raise DefocusError(
            f"tiles of {tile_px} pixels that share {overlap_px}{'' if used == (tile_px, overlap_px) else rounded}; "
            "they may share half at most: larger tiles, or less overlap"
        )
    return Tiles(shape, *(_axis(length, tile, overlap, multiple) for length in shape))


def _axis(length: int, tile: int, overlap: int, multiple: int) -> Axis:
    """Tiles along one axis; `tile` and `overlap` are counted in multiples, as the tiles' places are."""
    whole = -(-length // multiple)
    if whole <= tile:  # the network itself knows how to pad it
        return Axis(length, (0,), (np.ones(length, np.float32),))
    count = -(-(whole - overlap) // (tile - overlap))
    starts = [multiple * (i * (whole - tile) // (count - 1)) for i in range(count)]
    size, ramp = multiple * tile, 0.5 * multiple * overlap
    middles = [-np.inf, *(0.5 * (a + size + b) for a, b in pairwise(starts)), np.inf]
    weights = []
    for start, before, after in zip(starts, middles, middles[1:], strict=False):
        x = np.arange(start, start + size) + 0.5
        weights.append((_step(x - before, ramp) - _step(x - after, ramp)).astype(np.float32))
    return Axis(size, tuple(starts), tuple(weights))


def _step(x: Float[np.ndarray, "n"], width: float) -> Float[np.ndarray, "n"]:
    """A smooth step from 0 to 1 over `width` about 0."""
    if width <= 0.0:
        return (x > 0.0).astype(np.float64)
    t = np.clip(x / width + 0.5, 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def fitting_tile(shape: tuple[int, int], device: str | torch.device) -> int | None:
    """None where half of a device's memory holds a picture of (rows, cols) as a whole, else the side of the tiles."""
    device = torch.device(device)
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None if shape[0] * shape[1] * BYTES_PER_PX <= memory // 2 else TILE_PX


def check_precision(name: str) -> None:
    """Raise `DefocusError` for a precision that networks are not run in."""
    if name not in PRECISIONS:
        raise DefocusError(f"precision {name!r}; known are {', '.join(PRECISIONS)}")


def restored_tiles(
    model: nn.Module,
    image: Float[np.ndarray, "h w 3"],
    tiles: Tiles,
    *,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    batch: int = 1,
) -> Iterator[tuple[tuple[int, int], Float[np.ndarray, "th tw 3"]]]:
    """The place of each tile (row and column, counted in tiles) and what the network makes of it, one after the other.

    The model must be on `device` and in evaluation mode. No more than `batch` tiles are held at a time.
    """
    check_precision(precision)
    if batch < 1:
        raise DefocusError(f"a batch of {batch} tiles; expected 1 or more")
    if image.shape != (*tiles.shape, 3):
        raise DefocusError(f"a picture of shape {list(image.shape)}; expected [rows, cols, 3] as the tiles are planned")
    autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bf16")
    for first in range(0, len(tiles.places), batch):
        places = tiles.places[first : first + batch]
        blurred = torch.from_numpy(np.stack([_cut(image, tiles, place) for place in places])).to(device)
        with torch.inference_mode(), autocast:
            sharp = model(blurred)
        if not isinstance(sharp, Tensor) or sharp.shape != blurred.shape:
            shape = list(sharp.shape) if isinstance(sharp, Tensor) else type(sharp).__name__
            raise DefocusError(f"the network made {shape} of {list(blurred.shape)}; expected a picture of its size")
        for place, values in zip(places, sharp.float().cpu().numpy(), strict=True):
            yield place, values.transpose(1, 2, 0)


def _cut(image: Float[np.ndarray, "h w 3"], tiles: Tiles, place: tuple[int, int]) -> Float[np.ndarray, "3 th tw"]:
    part = image[tiles.window(place)]
    missing = tiles.rows.size - part.shape[0], tiles.cols.size - part.shape[1]
    part = np.pad(part, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="reflect")
    return np.ascontiguousarray(part.transpose(2, 0, 1), np.float32)


def deblur(
    model: nn.Module,
    image: Shaped[np.ndarray, "h w 3"],
    *,
    tile_px: int | None = TILE_PX,
    overlap_px: int = 64,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    batch: int = 1,
    progress: Callable[[int, int], Any] | None = None,
) -> Float[np.ndarray, "h w 3"]:
    """What a network makes of a photograph of display values 0..1, or of whole numbers up to their type's white; values
    are not clipped. Without `tile_px` it is taken as a whole. `progress` is called with the tiles done and all.
    """
    image = display_values(image)
    model = model.to(device).eval()
    tile_px, overlap_px = (max(image.shape[:2]), 0) if tile_px is None else (tile_px, overlap_px)
    tiles = plan_tiles(image.shape[:2], tile_px, overlap_px, int(getattr(model, "multiple", 1)))
    restored = np.zeros(image.shape, np.float32)
    outputs = restored_tiles(model, image, tiles, device=device, precision=precision, batch=batch)
    for number, (place, values) in enumerate(outputs, 1):
        part = restored[tiles.window(place)]
        height, width = part.shape[:2]
        down, across = tiles.rows.weights[place[0]][:height], tiles.cols.weights[place[1]][:width]
        part += np.multiply.outer(down, across)[..., None] * values[:height, :width]
        if progress is not None:
            progress(number, len(tiles.places))
    return restored
