"""Pairs as PyTorch's data loaders want them: from a folder, or made while a network learns.

Both are map-style: item `index` is a pure function of the seed, the epoch and the index, whichever process asks, so
that any sampler and any number of workers give the same items. Pictures are float32 [3, rows, cols], display values
from 0 to 1. `set_epoch` reaches workers that are running, as persistent ones do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from ..errors import DatasetError, DefocusError, MissingExtraError
from ..files.pair_folders import PairReader, find_pairs, identity
from ..files.pictures import decode_picture
from ..files.randomness import generator
from ..synth.plan import Plan, SplitName, load_plan, make_plan
from .views import draw_view, seen

try:
    import torch
    from torch.utils.data import Dataset
except ModuleNotFoundError as error:
    raise MissingExtraError("data sets for PyTorch", "train") from error

if TYPE_CHECKING:  # whoever reads folders alone needs no JAX
    from ..synth.on_demand import BlurLevels

Item = dict[str, Any]  # "input" and "target", with dual pixels "left" and "right", all tensors; "id", text
NAMES = {"blurred": "input", "sharp": "target", "left": "left", "right": "right"}
Values = Shaped[np.ndarray, "rows cols 3"]


class PairDataset(Dataset[Item]):
    """The pairs of one split of a folder that `defocus synth run` made, in any layout, or of a DPDD-like one.

    `crop`: a random square of so many pixels; `augment`: random flips; `turn`: random quarter turns. Where there are
    dual-pixel views, a flip from left to right exchanges them; a quarter turn would make them views of above and below,
    and is refused.
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
    ) -> None:
        if crop is not None and crop < 1:
            raise DatasetError(f"a crop of {crop} pixels; expected 1 or more")
        self._folder, self._split = str(folder), split
        store, self.pairs = find_pairs(folder, split)
        self._reader = PairReader(store)
        self._crop, self._augment, self._turn, self._seed = crop, augment, turn, seed
        if turn and any("left" in pair.pictures for pair in self.pairs):
            raise DatasetError("pairs with dual-pixel views cannot be turned by a quarter", file=folder)
        self._epoch = _shared_number()

    def __repr__(self) -> str:
        return f"PairDataset({self._folder!r}, {self._split!r}: {len(self)} pairs)"

    def set_epoch(self, epoch: int) -> None:
        """Other crops and flips."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Item:
        pair = self.pairs[index]
        return _item(self._changed(self.pictures(index), index % len(self.pairs), pair.id), pair.id)

    def pictures(self, index: int, roles: Sequence[str] | None = None) -> dict[str, Values]:
        """A pair as it is in the folder, by role ("blurred", "sharp", ...): whole numbers of 8 or 16 bits."""
        pair = self.pairs[index]
        wanted = {role: pair.pictures[role] for role in roles or pair.pictures}
        pictures = {role: decode_picture(self._reader.read(p), self._reader.place(p)) for role, p in wanted.items()}
        first = pictures["blurred"]
        for role, picture in pictures.items():
            if picture.shape != first.shape:
                told = " and ".join(f"{p.shape[1]}×{p.shape[0]}" for p in (first, picture))
                raise DatasetError(
                    f"the blurred and the {role} picture have {told} pixels",
                    file=self._reader.place(pair.pictures[role]),
                )
        return pictures

    def size(self, index: int, role: str = "blurred") -> tuple[int, int, int]:
        """Rows, columns and bits of a picture, without decoding it."""
        return self._reader.size(self.pairs[index].pictures[role])

    def place(self, index: int, role: str = "blurred") -> str:
        """Where a picture is, for messages."""
        return self._reader.place(self.pairs[index].pictures[role])

    @property
    def is_local(self) -> bool:
        return self._reader.is_local

    def prepare(self) -> None:
        """For many threads that ask for sizes at once."""
        self._reader.prepare([picture for pair in self.pairs for picture in pair.pictures.values()])

    def identity(self) -> str:
        """Changes with the pairs; see `pair_folders.identity`."""
        return identity(self._reader, self.pairs)

    def _changed(self, pictures: dict[str, Values], index: int, name: str) -> dict[str, Values]:
        random = generator(self._seed, "pairs", int(self._epoch), index)
        size = pictures["blurred"].shape
        view = draw_view(random, (size[0], size[1]), self._crop, name, flip=self._augment, turn=self._turn)
        changed = {role: seen(picture, view) for role, picture in pictures.items()}
        if view.mirrored and "left" in changed and "right" in changed:
            changed["left"], changed["right"] = changed["right"], changed["left"]
        return changed


class OnTheFlyDataset(Dataset[Item]):
    """`length` pairs for each epoch, made when they are asked for; `plan` is a plan, its settings, or a plan file.

    `seed` (the plan's by default) decides what is drawn, not which photographs and lenses belong to the split. `blur`
    takes the place of the plan's blur levels, for curricula: one for all epochs, or a function of the epoch (which
    loader workers must be able to unpickle). Each process keeps `kept` photographs, of about 30 MB at the paper's size;
    neighbouring pairs are cut from the same one, so the order of the numbers reads least.

    Loader workers need the start method "spawn" or "forkserver": JAX does not survive a fork. Batches are made in one
    go. Set JAX_PLATFORMS=cpu to leave the GPU to the network.
    """

    def __init__(
        self,
        plan: Plan | Mapping[str, Any] | str | Path,
        split: SplitName,
        length: int,
        *,
        seed: int | None = None,
        blur: BlurLevels = None,
        kept: int = 16,
    ) -> None:
        if length < 1:
            raise DatasetError(f"a length of {length} pairs; expected 1 or more")
        from ..synth.on_demand import Maker

        self._length = length
        self._maker = Maker(_opened(plan), split, seed=seed, blur=blur, kept=kept)
        self._epoch = _shared_number()
        self._process = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._process = os.getpid()

    def __repr__(self) -> str:
        plan = self._maker.plan.name or "plan"
        return f"OnTheFlyDataset({plan!r}, {self._maker.split!r}: {self._length} pairs an epoch)"

    def set_epoch(self, epoch: int) -> None:
        """Other pairs."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Item:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """A whole batch, as loaders ask for it."""
        return [_item(pictures, name) for name, pictures in self.pictures(indices, int(self._epoch))]

    def pictures(self, indices: Sequence[int], epoch: int) -> list[tuple[str, dict[str, Values]]]:
        """Pairs of any epoch, their names and pictures by role ("blurred", "sharp", ...): whole numbers."""
        self._check_process()
        made = self._maker.pairs([self._number(index) for index in indices], epoch)
        return [(one.recipe.id, {str(role): p for role, p in one.pictures.items()}) for one in made]

    def identity(self) -> str:
        """Changes with the plan, with how many pairs an epoch has, and with what lies in the plan's folders."""
        return "\n".join([f"{self._maker.plan.fingerprint} {self._length}", *self._maker.material()])

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # never pickled on its way here
            raise DefocusError(
                "this loader worker was forked from a process that uses JAX, and would hang: give the DataLoader "
                'multiprocessing_context="spawn" (or "forkserver")'
            )

    def _number(self, index: int) -> int:
        if not -self._length <= index < self._length:
            raise IndexError(f"pair {index} of {self._length}")
        return index % self._length


def _opened(plan: Plan | Mapping[str, Any] | str | Path) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, Mapping):
        return make_plan(dict(plan))
    if isinstance(plan, str | Path):
        return load_plan(plan)
    raise DatasetError(f"a plan of type {type(plan).__name__}; expected a Plan, a dict of settings or a plan file")


def _item(pictures: dict[str, Values], name: str) -> Item:
    return {NAMES[role]: _tensor(values) for role, values in pictures.items()} | {"id": name}


def _tensor(values: Values) -> torch.Tensor:
    top = np.float32(np.iinfo(values.dtype).max)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1), np.float32) / top)


def _shared_number() -> torch.Tensor:
    """One that all processes see that the data set is sent to."""
    return torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
