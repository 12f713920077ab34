"""Pairs as PyTorch's data loaders want them: from a folder, or made while a network learns.

Both are map-style: item `index` is a pure function of the seed, the epoch and the index, whichever process asks, so
that any sampler and any number of workers give the same items. Pictures are float32 [3, rows, cols], display values
from 0 to 1; labels are planes [1, rows, cols] in their own units and a stack [pictures, 3, rows, cols]. `set_epoch`
reaches workers that are running, as persistent ones do. A training asks for `batch`, whole pictures as they are stored,
and cuts them itself; it may have them decoded once (`DecodedPairs`).

As tensors, 8 bits are kept as they are; where one picture has 16, all have (v·257 of 8 bits is the same colour), as the
int16 of the same bits, since PyTorch indexes no uint16 on a GPU.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Shaped

from ..errors import DatasetError, DefocusError, TrainingError
from ..files.pair_folders import (
    AT_ONCE,
    PLANES,
    ROLES,
    THREADS,
    PairReader,
    decode_role,
    find_pairs,
    identity,
    record_fields,
)
from ..files.randomness import generator
from ..synth.plan import PlanLike, SplitName
from ._torch import Dataset, Tensor, torch

if TYPE_CHECKING:  # whoever reads folders alone needs no JAX
    from ..synth.on_demand import BlurLevels
    from ..synth.pairs import Pair as SynthPair

Item = dict[str, Any]  # "input", "target", "left", "right", "depth", "blur_radius", "shift_x", "shift_y", "stack", …
Values = Shaped[np.ndarray, "rows cols 3"]  # whole numbers of 8 or 16 bits
Raster = Shaped[np.ndarray, "rows cols *colours"]  # these, or a plane of float32
Transform = Callable[[Item], Item]
Pair = tuple[Values, Values]  # blurred and sharp
Batch = tuple[Tensor, Tensor]  # input and target: whole numbers [pairs, rows, cols, 3], or display values [pairs, 3, …]
Report = Callable[[str, int, int], None]  # a stage, how many are done, how many there are
ITEM_NAMES = {"blurred": "input", "sharp": "target", "left": "left", "right": "right"}

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def as_display(values: Tensor) -> Tensor:
    """float32 display values 0..1 [batch, 3, rows, cols] of whole numbers [batch, rows, cols, 3] as they are kept;
    display values stay what they are."""
    if values.dtype == torch.float32:
        return values
    if values.dtype == torch.uint8:
        return values.to(torch.float32).div_(255.0).permute(0, 3, 1, 2)
    return (values.to(torch.int32) & 0xFFFF).to(torch.float32).div_(65535.0).permute(0, 3, 1, 2)


def stacked(pairs: Sequence[Pair]) -> Batch:
    """Pairs of one size as two tensors [pairs, rows, cols, 3] of the whole numbers that are kept."""
    bits = max(8 * values.dtype.itemsize for pair in pairs for values in pair)
    blurred, sharp = (torch.stack([_whole_numbers(pair[side], bits) for pair in pairs]) for side in (0, 1))
    return blurred, sharp


def _whole_numbers(values: Values, bits: int) -> Tensor:
    """A copy as it is kept: uint8, or the int16 of the bits of uint16."""
    if values.dtype == np.uint8 and bits == 8:
        return torch.from_numpy(np.array(values, order="C"))
    deep = values if values.dtype == np.uint16 else values.astype(np.uint16) * np.uint16(257)
    return torch.from_numpy(np.array(deep, order="C").view(np.int16))


class CropView(NamedTuple):
    """A window of a picture, then mirrored left to right, flipped top to bottom, rows and columns exchanged, in this
    order."""

    top: int
    left: int
    rows: int
    cols: int
    mirrored: bool
    flipped: bool
    turned: bool

    def of(self, picture: Raster) -> Shaped[np.ndarray, "view_rows view_cols *colours"]:
        """This view of a picture or a plane; nothing is copied."""
        part = picture[self.top : self.top + self.rows, self.left : self.left + self.cols]
        part = part[:: -1 if self.flipped else 1, :: -1 if self.mirrored else 1]
        return part.swapaxes(0, 1) if self.turned else part

    def of_vector(self, x: Raster, y: Raster) -> tuple[Raster, Raster]:
        """Views of a vector's two planes as a vector: what points to the right points to the left in a mirror."""
        x, y = (-v if turned else v for v, turned in ((x, self.mirrored), (y, self.flipped)))
        return (y, x) if self.turned else (x, y)


def draw_view(
    random: np.random.Generator, size: tuple[int, ...], crop: int | None, name: str, *, flip: bool, turn: bool
) -> CropView:
    """A random view of a picture of `size` rows and columns. Flips with an exchange of rows and columns make all
    quarter turns. Raises `DatasetError` with the pair's `name` where the picture is smaller than the crop."""
    rows, cols = size[:2]
    top = left = 0
    if crop is not None:
        if min(rows, cols) < crop:
            raise DatasetError(f"{name}: {cols}×{rows} pixels do not hold a crop of {crop}: lower crop")
        top, left = (int(random.integers(n - crop + 1)) for n in (rows, cols))
        rows = cols = crop
    mirrored, flipped = (bool(x) for x in random.random(2) < 0.5) if flip else (False, False)
    turned = bool(random.random() < 0.5) if turn else False
    return CropView(top, left, rows, cols, mirrored, flipped, turned)


class PairSource(Dataset[Item]):
    """So many pairs for each epoch."""

    def __init__(self, length: int) -> None:
        self._length = length
        # A number that all processes see that the data set is sent to.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """Give other pairs, or other crops and flips of them, from now on."""
        self._epoch.fill_(epoch)

    @abstractmethod
    def batch(self, indices: Sequence[int], epoch: int = 0) -> list[Pair]:
        """Blurred and sharp pictures of some pairs of an epoch, whole, as they are stored."""

    @abstractmethod
    def name(self, index: int, epoch: int = 0) -> str:
        """Name of a pair, for messages."""

    @abstractmethod
    def identity(self) -> str:
        """A text that changes with the pairs."""


class PairDataset(PairSource):
    """The pairs of one split of a folder that `defocus synth run` made, in any layout, or of a DPDD-like one.

    `crop`: a random square of so many pixels; `augment`: random flips; `turn`: random quarter turns, of pictures and
    labels alike. Where there are dual-pixel views, a flip from left to right exchanges them; a quarter turn would make
    them views of above and below, and is refused.

    Items hold the labels that the folder has, unless `labels` is false, and these fields of the pair's record as
    "metadata". `transform` is called with the whole item, after crop and flips, and returns what the loader gets.
    """

    def __init__(
        self,
        folder: str | Path,
        split: SplitName = "train",
        *,
        crop: int | None = None,
        augment: bool = False,
        turn: bool = False,
        seed: int = 0,
        labels: bool = True,
        metadata: Sequence[str] = (),
        transform: Transform | None = None,
    ) -> None:
        if crop is not None and crop < 1:
            raise DatasetError(f"a crop of {crop} pixels; expected 1 or more")
        self.folder, self.split = str(folder), split
        store, self.pairs = find_pairs(folder, split, metadata)
        super().__init__(len(self.pairs))
        self._reader = PairReader(store)
        self._crop, self._augment, self._turn, self._seed = crop, augment, turn, seed
        self._labels, self._transform = labels, transform
        if turn and any("left" in pair.pictures for pair in self.pairs):
            raise DatasetError("pairs with dual-pixel views cannot be turned by a quarter", file=folder)

    def __repr__(self) -> str:
        return f"PairDataset({self.folder!r}, {self.split!r}: {len(self)} pairs)"

    def __getitem__(self, index: int) -> Item:
        pair = self.pairs[index]
        pictures = self.pictures(index, [role for role in pair.pictures if self._labels or role in ROLES])
        random = generator(self._seed, "pairs", int(self._epoch), index % len(self))
        view = draw_view(random, pictures["blurred"].shape, self._crop, pair.id, flip=self._augment, turn=self._turn)
        if view.mirrored and "left" in pictures and "right" in pictures:
            pictures["left"], pictures["right"] = pictures["right"], pictures["left"]
        views = {role: view.of(picture) for role, picture in pictures.items()}
        if "shift_x" in views:
            views["shift_x"], views["shift_y"] = view.of_vector(views["shift_x"], views["shift_y"])
        return _item(views, pair.id, pair.metadata, self._transform)

    def pictures(self, index: int, roles: Sequence[str] = ()) -> dict[str, Raster]:
        """The pictures and labels of a pair as they are in the folder, by role ("blurred", ...), all unless `roles`."""
        files, reader = self.pairs[index].pictures, self._reader
        files = {role: files[role] for role in roles} if roles else files
        pictures = {role: decode_role(role, reader.read(file), reader.place(file)) for role, file in files.items()}
        for role, picture in pictures.items():
            self._check_alike(index, role, pictures["blurred"].shape[:2], picture.shape[:2])
        return pictures

    def name(self, index: int, epoch: int = 0) -> str:
        return self.pairs[index].id

    def batch(self, indices: Sequence[int], epoch: int = 0) -> list[Pair]:
        """Blurred and sharp pictures of some pairs, as they are in the folder; in every epoch the same."""
        pictures = (self.pictures(index, ("blurred", "sharp")) for index in indices)
        return [(one["blurred"], one["sharp"]) for one in pictures]

    def sizes(self, indices: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Rows, columns and bits of both pictures of some pairs, without decoding them. Raises `DatasetError` where
        they differ in size."""

        def size(index: int) -> tuple[int, int, int]:
            files = self.pairs[index].pictures
            blurred, sharp = (self._reader.size(files[role]) for role in ("blurred", "sharp"))
            self._check_alike(index, "sharp", blurred[:2], sharp[:2])
            return *blurred[:2], max(blurred[2], sharp[2])

        self._reader.prepare([picture for pair in self.pairs for picture in pair.pictures.values()])
        return in_threads(size, indices, AT_ONCE)

    def check_sizes(self, indices: Sequence[int], least_px: int, need: str, report: Report | None = None) -> None:
        """Raise `DatasetError` for a pair whose pictures are none, differ in size, or are less than `least_px` high or
        wide; `need` says what needs so many pixels, and what to do.

        Only the heads of files of this machine are read: elsewhere each would be a request. Without this look such a
        picture would end a training when its turn comes, hours later.
        """
        if not self._reader.is_local:
            return
        small = []
        for done, (index, (rows, cols, _)) in enumerate(zip(indices, self.sizes(indices), strict=True), 1):
            if min(rows, cols) < least_px:
                small.append((min(rows, cols), index, f"{cols}×{rows}"))
            if report is not None and (done % AT_ONCE == 0 or done == len(indices)):
                report("checking pictures", done, len(indices))
        if small:
            _, index, size = min(small)
            count = f"; so it is with {len(small)} of {len(indices)} pairs, this is the smallest"
            raise DatasetError(
                f"{size} pixels do not hold {need}{count if len(small) > 1 else ''}",
                file=self._reader.place(self.pairs[index].pictures["blurred"]),
            )

    def identity(self) -> str:
        """A text that changes with the pairs: see `pair_folders.identity`."""
        return identity(self._reader, self.pairs)

    def _check_alike(self, index: int, role: str, blurred: tuple[int, ...], other: tuple[int, ...]) -> None:
        if blurred != other:
            sizes = " and ".join(f"{size[1]}×{size[0]}" for size in (blurred, other))
            file = self._reader.place(self.pairs[index].pictures[role])
            raise DatasetError(f"the blurred and the {role} picture have {sizes} pixels", file=file)


class DecodedPairs:
    """The pairs of a folder decoded once, on a device; on the CPU in memory that loader workers share.

    The pixels of picture n are the rows `starts[n]` to `starts[n + 1]` of a tensor [pixels, 3]; pictures may differ in
    size. On a GPU, crops are cut and turned for a whole batch at once.
    """

    def __init__(self, source: PairDataset, device: torch.device, report: Report | None = None) -> None:
        numbers = range(len(source))
        sizes = list(source.sizes(numbers))
        self.name, self.sizes, self._device = source.name, [size[:2] for size in sizes], device
        self._bits = max(bits for *_, bits in sizes)
        self._starts = [int(start) for start in np.cumsum([0, *(rows * cols for rows, cols in self.sizes)])]
        self._sides = (self._room(), self._room())  # blurred and sharp
        for number, (pair,) in enumerate(in_threads(lambda number: source.batch([number]), numbers)):
            for side, values in zip(self._sides, pair, strict=True):
                self._rows(side, number).copy_(_whole_numbers(values, self._bits).reshape(-1, 3))
            if report is not None:
                report("decoding pairs", number + 1, len(source))
        self._table = torch.tensor([[start, cols] for start, (_, cols) in zip(self._starts, self.sizes, strict=False)])

    def __len__(self) -> int:
        return len(self.sizes)

    def batch(self, indices: Sequence[int], epoch: int = 0) -> list[Pair]:
        """Blurred and sharp pictures of some pairs in memory; of 16 bits where any has as many."""
        kind, pairs = np.uint8 if self._bits == 8 else np.uint16, []
        for index in indices:
            size = (*self.sizes[index], 3)
            blurred, sharp = (self._rows(side, index).numpy().view(kind).reshape(size) for side in self._sides)
            pairs.append((blurred, sharp))
        return pairs

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
        return as_display(self._sides[0][source]), as_display(self._sides[1][source])

    def _rows(self, side: Tensor, number: int) -> Tensor:
        return side[self._starts[number] : self._starts[number + 1]]

    def _room(self) -> Tensor:
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


class OnTheFlyDataset(PairSource):
    """`length` pairs for each epoch, made when they are asked for; `plan` is a plan, its settings, or a plan file.

    `seed` (the plan's by default) decides what is drawn, not which photographs and lenses belong to the split. `blur`
    takes the place of the plan's blur levels, for curricula: one for all epochs, or a function of the epoch (which
    loader workers must be able to unpickle). Each process keeps `kept` photographs, of about 30 MB at the paper's size;
    neighbouring pairs are cut from the same one, so the order of the numbers reads least.

    Items hold the labels of the plan, and as "metadata" these fields of what would be the pair's record; `transform` as
    of `PairDataset`.

    Loader workers need the start method "spawn" or "forkserver": JAX does not survive a fork. Batches are made in one
    go. Set JAX_PLATFORMS=cpu to leave the GPU to the network.
    """

    def __init__(
        self,
        plan: PlanLike,
        split: SplitName,
        length: int,
        *,
        seed: int | None = None,
        blur: BlurLevels = None,
        kept: int = 16,
        metadata: Sequence[str] = (),
        transform: Transform | None = None,
    ) -> None:
        if length < 1:
            raise DatasetError(f"a length of {length} pairs; expected 1 or more")
        from ..synth.on_demand import OnDemandPairs

        super().__init__(length)
        self._maker = OnDemandPairs(plan, split, seed=seed, blur=blur, cache_size=kept)
        self._process = os.getpid()
        self._metadata, self._transform = tuple(metadata), transform

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"OnTheFlyDataset({self._maker.plan.name!r}, {self._maker.split!r}: {len(self)} pairs an epoch)"

    def __getitem__(self, index: int) -> Item:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """A whole batch of items, as loaders ask for it."""
        return [
            _item(pair.pictures, pair.recipe.id, record_fields(pair.record, self._metadata), self._transform)
            for pair in self._pairs(indices, int(self._epoch))
        ]

    def name(self, index: int, epoch: int = 0) -> str:
        return f"pair {index} of epoch {epoch}"

    def batch(self, indices: Sequence[int], epoch: int = 0) -> list[Pair]:
        return [(pair.pictures["blurred"], pair.pictures["sharp"]) for pair in self._pairs(indices, epoch)]

    def identity(self) -> str:
        """A text that changes with the plan, with the pairs of an epoch, and with what lies in the plan's folders."""
        return "\n".join([f"{self._maker.plan.fingerprint} {len(self)}", *self._maker.material()])

    def _pairs(self, indices: Sequence[int], epoch: int) -> list[SynthPair]:
        if os.getpid() != self._process:  # never pickled on its way here
            raise DefocusError(
                "this loader worker was forked from a process that uses JAX, and would hang: give the DataLoader "
                'multiprocessing_context="spawn" (or "forkserver")'
            )
        for index in indices:
            if not -len(self) <= index < len(self):
                raise IndexError(f"pair {index} of {len(self)}")
        return self._maker.pairs([index % len(self) for index in indices], epoch)


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item], at_once: int = 1) -> Iterator[_Result]:
    """Results of `work` for each item, in order; a thread takes `at_once` items at a time."""
    threads = ThreadPoolExecutor(THREADS)
    parts = [items[first : first + at_once] for first in range(0, len(items), at_once)]
    try:
        for results in threads.map(lambda part: [work(item) for item in part], parts):
            yield from results
    finally:
        threads.shutdown(cancel_futures=True)


def _item(pictures: Mapping[str, Raster], name: str, metadata: Mapping[str, Any], transform: Transform | None) -> Item:
    """The item of a pair: its pictures as display values, its labels, its name and its metadata."""
    displays = {
        role: as_display(_whole_numbers(values, 8 * values.itemsize)[None])[0].contiguous()
        for role, values in pictures.items()
        if role not in PLANES
    }
    item: Item = {ITEM_NAMES[role]: display for role, display in displays.items() if role in ITEM_NAMES}
    item |= {role: torch.from_numpy(np.array(pictures[role], order="C"))[None] for role in PLANES if role in pictures}
    stack = [displays[role] for role in sorted(displays) if role not in ITEM_NAMES]
    item |= ({"stack": torch.stack(stack)} if stack else {}) | {"id": name}
    item |= {"metadata": dict(metadata)} if metadata else {}
    return item if transform is None else transform(item)
