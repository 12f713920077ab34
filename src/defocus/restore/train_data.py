"""The pairs of each step, on the device: read and cut by loader workers, or cut there from a cache.

A worker makes a whole part of a batch, so that with any number of them the same pairs come in the same order. Pictures
travel as whole numbers, a quarter of the bytes, and become display values on the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ..errors import ConfigError, DatasetError, DefocusError, TrainingError
from ..files.randomness import generator
from ..synth.plan import Plan, load_plan
from .batches import Ask, Batches
from .config import TrainConfig
from .curriculum import blur_curriculum
from .data import OnTheFlyDataset, PairDataset
from .pair_cache import PairCache, Told, Values, as_display, whole_numbers
from .picture_check import check_pictures
from .schedules import Stages
from .similarity import WINDOW_PX
from .views import View, draw_view, seen

Batch = tuple[torch.Tensor, torch.Tensor]  # input and target, [pairs, 3, rows, cols], 0..1
ON_THE_FLY_VALIDATION = 64  # pairs, where the settings do not say how many


class Source(Protocol):
    """Pairs that can be asked for again and again; loader workers have copies."""

    def __len__(self) -> int: ...

    def name(self, ask: Ask) -> str: ...

    def pictures(self, asks: Sequence[Ask]) -> list[tuple[Values, Values]]:
        """Blurred and sharp, whole numbers."""

    def identity(self) -> str:
        """Changes with the pairs."""


class FolderSource:
    """One folder of pairs."""

    def __init__(self, folder: str, split: str) -> None:
        self.data = PairDataset(folder, split)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.data)

    def name(self, ask: Ask) -> str:
        return self.data.pairs[ask.number].id

    def pictures(self, asks: Sequence[Ask]) -> list[tuple[Values, Values]]:
        read = (self.data.pictures(ask.number, ("blurred", "sharp")) for ask in asks)
        return [(one["blurred"], one["sharp"]) for one in read]

    def identity(self) -> str:
        return self.data.identity()


class CachedSource:
    """Pairs of a folder that are decoded in memory: those from `first` on."""

    def __init__(self, folder: FolderSource, cache: PairCache, first: int) -> None:
        self._cache, self._first, self._length = cache, first, len(folder)
        self._identity = folder.identity()

    def __len__(self) -> int:
        return self._length

    def name(self, ask: Ask) -> str:
        return self._cache.names[self._first + ask.number]

    def pictures(self, asks: Sequence[Ask]) -> list[tuple[Values, Values]]:
        return [self._cache.pair(self._first + ask.number) for ask in asks]

    def identity(self) -> str:
        return self._identity


class SynthesisSource:
    """Pairs that are made while they are asked for; each lap makes others."""

    def __init__(self, plan: Plan, split: str, length: int, **options: Any) -> None:
        self._data = OnTheFlyDataset(plan, split, length, **options)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._data)

    def name(self, ask: Ask) -> str:
        return f"pair {ask.number} of epoch {ask.lap}"

    def pictures(self, asks: Sequence[Ask]) -> list[tuple[Values, Values]]:
        made: dict[Ask, tuple[Values, Values]] = {}
        for lap in dict.fromkeys(ask.lap for ask in asks):
            mine = [ask for ask in asks if ask.lap == lap]
            for ask, (_, one) in zip(mine, self._data.pictures([ask.number for ask in mine], lap), strict=True):
                made[ask] = one["blurred"], one["sharp"]
        return [made[ask] for ask in asks]

    def identity(self) -> str:
        return self._data.identity()


class TrainData(Dataset[Any]):
    """What each process takes in each part of each step. Item (step, part): whole numbers of both pictures."""

    def __init__(self, config: TrainConfig, sources: Sequence[Source], process: int = 0, processes: int = 1) -> None:
        self.stages = Stages.of(config)
        for stage in self.stages.stages:
            parts = processes * (stage.accumulate or 1)
            if stage.batch % parts:
                raise ConfigError(
                    f"a batch of {stage.batch} pairs cannot be shared by {processes} processes in "
                    f"{stage.accumulate} equal parts each: change batch or accumulate"
                )
        self._sources, self._config = list(sources), config
        self._batches = Batches(config.seed, [len(s) for s in sources], self.stages, config.data.weights)
        self._process, self._processes = process, processes

    def names(self, step: int) -> list[str]:
        """Of all pairs of a step."""
        return [self._sources[ask.source].name(ask) for ask in self._batches.of_step(step)]

    def asks(self, step: int, part: int) -> list[Ask]:
        return self._batches.share(step, part, self._process, self._processes)

    def view(self, ask: Ask, size: tuple[int, int], crop: int) -> View:
        """A pure function of the seed and of what is asked for."""
        augment = self._config.augment
        random = generator(self._config.seed, "view", *ask)
        return draw_view(
            random, size, crop, self._sources[ask.source].name(ask), flip=augment != "no", turn=augment == "turns"
        )

    def __getitem__(self, place: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor] | DefocusError:
        """Errors are returned: raised in a worker they would come out with its whole traceback for a message."""
        try:
            return self._made(*place)
        except DefocusError as error:
            return error

    def _made(self, step: int, part: int) -> tuple[torch.Tensor, torch.Tensor]:
        asks, crop = self.asks(step, part), self.stages.at(step).crop
        pairs: list[tuple[Values, Values] | None] = [None] * len(asks)
        for number, source in enumerate(self._sources):
            mine = [n for n, ask in enumerate(asks) if ask.source == number]
            for n, pair in zip(mine, source.pictures([asks[n] for n in mine]) if mine else (), strict=True):
                view = self.view(asks[n], (pair[0].shape[0], pair[0].shape[1]), crop)
                pairs[n] = seen(pair[0], view), seen(pair[1], view)
        cut = [pair for pair in pairs if pair is not None]
        bits = max(8 * values.dtype.itemsize for pair in cut for values in pair)
        blurred, sharp = (torch.stack([whole_numbers(pair[side], bits) for pair in cut]) for side in (0, 1))
        return blurred, sharp


class _Places:
    """(step, part) from some step on, for a loader."""

    def __init__(self, stages: Stages, first: int, end: int) -> None:
        self._stages, self._first, self._end = stages, first, end

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for step in range(self._first, self._end):
            for part in range(self._stages.at(step).accumulate or 1):
                yield step, part


def loaded_batches(
    data: TrainData, config: TrainConfig, first: int, device: torch.device
) -> Generator[Batch, None, None]:
    """The parts of all steps from `first` on, by loader workers."""
    workers = config.data.workers
    # Workers live as long as the training. "spawn": JAX does not survive a fork, nor do threads that hold a lock.
    options: dict[str, Any] = (
        {"multiprocessing_context": "spawn", "prefetch_factor": config.data.prefetch} if workers else {}
    )
    pinned = device.type == "cuda"
    places: Any = _Places(data.stages, first, config.steps)
    loader = DataLoader(data, batch_size=None, sampler=places, num_workers=workers, pin_memory=pinned, **options)
    for made in _watched(loader):
        if isinstance(made, DefocusError):
            raise made
        blurred, sharp = (as_display(x.to(device, non_blocking=True)).permute(0, 3, 1, 2) for x in made)
        yield blurred, sharp


def _watched(loader: Any) -> Iterator[Any]:
    """Batches of a loader; a worker that died is an error of ours."""
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise TrainingError(
            f"{str(error).splitlines()[0]} Often the memory is used up: lower data.workers or data.prefetch; the same "
            "command goes on"
        ) from error


def cut_batches(
    data: TrainData, cache: PairCache, starts: Sequence[int], config: TrainConfig, first: int
) -> Generator[Batch, None, None]:
    """The same from a cache on the device; `starts`: the number in it of each source's first pair."""
    for step, part in _Places(data.stages, first, config.steps):
        asks = data.asks(step, part)
        numbers = [starts[ask.source] + ask.number for ask in asks]
        crop = data.stages.at(step).crop
        yield cache.cut(numbers, [data.view(ask, cache.sizes[n], crop) for ask, n in zip(asks, numbers, strict=True)])


class Feed:
    """The data of a training: opened once, then batches from any step on."""

    def __init__(
        self, config: TrainConfig, device: torch.device, process: int, processes: int, told: Told | None = None
    ) -> None:
        self._config, self._device = config, device
        self._cache: PairCache | None = None
        self._starts: list[int] = []
        sources = open_sources(config)
        self.identity = _fingerprint(sources)
        crop = max(stage.crop for stage in config.stages)
        every = [(s.data, number) for s in sources if isinstance(s, FolderSource) for number in range(len(s))]
        check_pictures(every, crop, f"a crop of {crop}: lower crop, or leave such pictures out", told)
        if config.data.cache != "no":
            folders = [source for source in sources if isinstance(source, FolderSource)]
            where = device if config.data.cache == "device" else torch.device("cpu")
            self._cache = PairCache([folder.data for folder in folders], where, told)
            self._starts = [0, *np.cumsum([len(folder) for folder in folders]).tolist()][:-1]
            if where.type == "cpu":
                sources = [CachedSource(f, self._cache, s) for f, s in zip(folders, self._starts, strict=True)]
        self.data = TrainData(config, sources, process, processes)
        self.pairs = sum(len(source) for source in sources)

    def batches(self, first: int) -> Generator[Batch, None, None]:
        if self._cache is not None and self._config.data.cache == "device":
            return cut_batches(self.data, self._cache, self._starts, self._config, first)
        return loaded_batches(self.data, self._config, first, self._device)


def _fingerprint(sources: Sequence[Source]) -> str:
    return hashlib.sha256("\n\n".join(source.identity() for source in sources).encode()).hexdigest()


def open_sources(config: TrainConfig) -> list[Source]:
    """The folders or the plan of the settings."""
    data = config.data
    if data.kind == "synthesis":
        if data.plan is None:
            raise ConfigError('data.kind = "synthesis" needs data.plan, a plan of `defocus synth`')
        plan = load_plan(data.plan)
        crop = max(stage.crop for stage in config.stages)
        if plan.patch.size < crop:
            raise ConfigError(
                f"pairs of {plan.patch.size}×{plan.patch.size} pixels do not hold a crop of {crop}: lower crop, or "
                "raise the plan's patch.size",
                file=data.plan,
            )
        blur = blur_curriculum(config, plan.blur.proposals)
        return [SynthesisSource(plan, data.split, data.length, seed=config.seed, blur=blur, kept=data.kept)]
    if not data.folders:
        raise ConfigError('no data: give data.folders (or --data FOLDER), or data.plan with kind = "synthesis"')
    return [FolderSource(folder, data.split) for folder in data.folders]


def _validation_folders(config: TrainConfig) -> list[Source]:
    """Raises where there are none, or where they are those to learn from and nobody asked for that."""
    wanted, data = config.validation, config.data
    places = wanted.folders or data.folders
    try:
        sources = [FolderSource(folder, wanted.split) for folder in places]
    except DatasetError as error:
        raise DatasetError(
            f"{error.message}. Pairs to validate with are wanted: validation.folders names others, "
            "validation.every = 0 does without",
            file=error.file,
        ) from error
    if wanted.split != data.split:
        for place, source in zip(places, sources, strict=True):
            learnt = FolderSource(place, data.split).data.pairs if place in data.folders else []
            if learnt and learnt == source.data.pairs:  # a folder of one split has it under every name
                raise DatasetError(
                    "its pairs to validate with are those to learn from: give validation.folders, or the folder that "
                    "holds both splits; validation.every = 0 does without",
                    file=place,
                )
    return list(sources)


class ValidationPairs:
    """Pairs that the network is judged by: whole pictures, always the same. What is made, or cached, is kept.

    `identity` changes with the pairs: scores of others cannot be compared.
    """

    def __init__(self, config: TrainConfig, told: Told | None = None) -> None:
        wanted, data = config.validation, config.data
        self._sources: list[Source]
        if data.kind == "synthesis" and not wanted.folders:
            assert data.plan is not None
            plan = load_plan(Path(data.plan))
            self._sources = [SynthesisSource(plan, wanted.split, wanted.pairs or ON_THE_FLY_VALIDATION)]
        else:
            self._sources = _validation_folders(config)
        everything = [Ask(n, index, 0) for n, source in enumerate(self._sources) for index in range(len(source))]
        count = min(wanted.pairs or len(everything), len(everything))
        self.asks = [everything[n * len(everything) // count] for n in range(count)]
        self.identity = hashlib.sha256(f"{_fingerprint(self._sources)} {self.asks}".encode()).hexdigest()
        opened = {n: s.data for n, s in enumerate(self._sources) if isinstance(s, FolderSource)}
        mine = [(opened[ask.source], ask.number) for ask in self.asks if ask.source in opened]
        check_pictures(
            mine, WINDOW_PX, f"the {WINDOW_PX} pixels that SSIM needs: take larger ones to validate with", told
        )
        self._keep = data.kind == "synthesis" or data.cache != "no"
        self._kept: dict[Ask, tuple[Values, Values]] = {}

    def __len__(self) -> int:
        return len(self.asks)

    def name(self, number: int) -> str:
        ask = self.asks[number]
        return self._sources[ask.source].name(ask)

    def pair(self, number: int) -> tuple[Values, Values]:
        ask = self.asks[number]
        if ask not in self._kept:
            (pair,) = self._sources[ask.source].pictures([ask])
            if not self._keep:
                return pair
            self._kept[ask] = pair
        return self._kept[ask]
