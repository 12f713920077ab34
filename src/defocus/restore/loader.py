"""The batch of a step: which pairs, cut how, on the device.

A step is a pure function of the seed and its number: the sizes of batch and crops, its pairs, and their blur where they
are made on the way. A training that goes on at step s, on any number of processes, therefore asks for what it would
have asked for. All pairs are seen once before any is seen again, in a new order each time. With several folders a round
has as many places as there are pairs, shared out by weight and shuffled; each folder fills its places with its own
pairs in order.

Pairs are read and cut by loader workers, or cut on the device from decoded ones. A worker makes a whole part of a
batch, so that with any number of them the same pairs come in the same order. Pictures travel as whole numbers, a
quarter of the bytes, and become display values on the device.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, DefocusError, TrainingError, first_line
from ..files.randomness import generator, seed_for
from ..synth.plan import Blur, Labels, load_plan
from ._torch import DataLoader, Dataset, torch
from .config import TrainConfig
from .data import (
    Batch,
    CropView,
    DecodedPairs,
    OnTheFlyDataset,
    Pair,
    PairDataset,
    PairSource,
    Report,
    as_display,
    draw_view,
    stacked,
)
from .degradations import degraded
from .lens_defocus import as_tensor

Numbers = Int[np.ndarray, "n"]


class PairRequest(NamedTuple):
    """A pair of one of the sources, for the `epoch`-th time (from 0)."""

    source: int
    number: int
    epoch: int


class Batches:
    """The pairs of every step. `sizes`: pairs of each source, whose shares are by the settings' weights, or by size."""

    def __init__(self, config: TrainConfig, sizes: Sequence[int]) -> None:
        self._config, self._sizes = config, tuple(sizes)
        self._places = _shares(sum(sizes), config.data.weights or tuple(map(float, sizes)))

    def of_step(self, step: int) -> list[PairRequest]:
        """All pairs of a step, those of all processes."""
        first = self._config.pairs_before(step)
        return [self._request(place) for place in range(first, first + self._config.stage_at(step).batch)]

    def share(self, step: int, part: int, process: int, processes: int) -> list[PairRequest]:
        """Pairs that one process takes in one of the parts of a step."""
        stage = self._config.stage_at(step)
        size = stage.batch // (stage.parts * processes)
        first = (process * stage.parts + part) * size
        return self.of_step(step)[first : first + size]

    def _request(self, place: int) -> PairRequest:
        number, rest = divmod(place, sum(self._places))
        sources, ranks = _round(self._config.seed, self._places, number)
        source = int(sources[rest])
        epoch, rank = divmod(number * self._places[source] + int(ranks[rest]), self._sizes[source])
        return PairRequest(source, int(_order(self._config.seed, source, epoch, self._sizes[source])[rank]), epoch)


@lru_cache(maxsize=16)
def _round(seed: int, places: tuple[int, ...], number: int) -> tuple[Numbers, Numbers]:
    """For each place of a round its source, and how many places the source had before."""
    sources = np.repeat(np.arange(len(places)), places)
    if len(places) > 1:
        sources = generator(seed, "folders", number).permutation(sources)
    ranks = np.empty_like(sources)
    for source, count in enumerate(places):
        ranks[sources == source] = np.arange(count)
    return sources, ranks


@lru_cache(maxsize=16)
def _order(seed: int, source: int, epoch: int, size: int) -> Numbers:
    return generator(seed, "order", source, epoch).permutation(size)


def _shares(total: int, weights: tuple[float, ...]) -> tuple[int, ...]:
    """Whole numbers in proportion to the weights that sum to `total`, by largest remainders; one at least."""
    exact = [total * weight / sum(weights) for weight in weights]
    places = [max(1, int(share)) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda n: places[n] - exact[n])
    for n in by_rest[: max(0, total - sum(places))]:
        places[n] += 1
    return tuple(places)


@dataclass(frozen=True)
class BlurCurriculum:
    """Blur levels of each epoch of pairs that are made on the way. Can be pickled, as loader workers need.

    The data know epochs, the settings parts of all steps: an epoch belongs to the lesson in which its first pair is
    seen.
    """

    first_epochs: tuple[int, ...]
    levels: tuple[Blur, ...]

    def __call__(self, epoch: int) -> Blur:
        return self.levels[bisect_right(self.first_epochs, epoch) - 1]

    @staticmethod
    def of(config: TrainConfig, proposals: int = 64) -> BlurCurriculum | None:
        """The curriculum of the settings, None without lessons. Raises `ConfigError` for one shorter than an epoch."""
        if not config.curriculum:
            return None
        length = config.data.length
        starts = [round(lesson.start * config.steps) for lesson in config.curriculum]
        firsts = [-(-config.pairs_before(step) // length) for step in (*starts, config.steps)]
        levels = []
        for lesson, (first, end) in zip(config.curriculum, pairwise(firsts), strict=True):
            if first >= end:
                raise ConfigError(
                    f"the lesson of the curriculum that starts at {lesson.start:g} has no epoch of its own: an epoch "
                    f"has {length} pairs; lower data.length"
                )
            low, high = lesson.blur_px
            levels_px, weights = ((high,), (1.0,)) if low == 0.0 else ((low, high), (0.0, 1.0))
            levels.append(Blur(levels_px=levels_px, weights=weights, proposals=proposals))
        return BlurCurriculum(tuple(firsts[:-1]), tuple(levels))


class TrainLoader(Dataset[Any]):
    """The data of a training: opened once, then batches from any step on.

    Raises `ConfigError` or `DatasetError` for settings and pictures that cannot be learnt from. As a data set its item
    (step, part) is what this process takes in one of the parts of a step, whole numbers of both pictures.
    """

    def __init__(
        self,
        config: TrainConfig,
        device: torch.device,
        process: int = 0,
        processes: int = 1,
        report: Report | None = None,
    ) -> None:
        self.config, self._device, self._share = config, device, (process, processes)
        for stage in config.stages:
            if stage.batch % (processes * stage.parts):
                raise ConfigError(
                    f"a batch of {stage.batch} pairs cannot be shared by {processes} processes in "
                    f"{stage.parts} equal parts each: change batch or accumulate"
                )
        if config.data.kind == "bank" and processes > 1:  # JAX would put all of their banks on the first GPU
            raise ConfigError(f'data.kind = "bank" is for one process, not for {processes}: launch one')
        self._bank = BankBatches(config, device) if config.data.kind == "bank" else None
        if self._bank is not None:
            self.identity, self.pairs = self._bank.identity, self._bank.settings
            return
        sources = open_sources(config)
        self.identity = fingerprint(sources)
        sizes = [len(source) for source in sources]
        self.pairs, self._batches = sum(sizes), Batches(config, sizes)
        self._sources: list[PairSource | DecodedPairs] = list(sources)
        crop = max(stage.crop for stage in config.stages)
        for number, source in enumerate(sources):
            if isinstance(source, PairDataset):
                need = f"a crop of {crop}: lower crop, or leave such pictures out"
                source.check_sizes(range(len(source)), crop, need, report)
                if config.data.cache != "no":
                    place = device if config.data.cache == "device" else torch.device("cpu")
                    self._sources[number] = DecodedPairs(source, place, report)

    def names(self, step: int) -> list[str]:
        """Names of all pairs of a step."""
        if self._bank is not None:
            return [f"pair {number} of step {step}" for number in range(self.config.stage_at(step).batch)]
        requests = self._batches.of_step(step)
        return [self._sources[request.source].name(request.number, request.epoch) for request in requests]

    def view(self, request: PairRequest, size: tuple[int, ...], crop: int) -> CropView:
        """Crop, flips and turn of a pair: a pure function of the seed and the request."""
        augment, source = self.config.augment, self._sources[request.source]
        random = generator(self.config.seed, "view", *request)
        name = source.name(request.number, request.epoch)
        return draw_view(random, size, crop, name, flip=augment != "no", turn=augment == "turns")

    def batches(self, first: int) -> Generator[Batch, None, None]:
        """The parts of all steps from `first` on, as display values on the device."""
        data, steps = self.config.data, range(first, self.config.steps)
        places = [(step, part) for step in steps for part in range(self.config.stage_at(step).parts)]
        workers = 0 if data.cache == "device" or self._bank is not None else data.workers
        # Workers live as long as the training. "spawn": JAX does not survive a fork, nor do threads that hold a lock.
        options: dict[str, Any] = {"multiprocessing_context": "spawn", "prefetch_factor": data.prefetch}
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=places,
            num_workers=workers,
            pin_memory=self._device.type == "cuda" and data.cache != "device" and self._bank is None,
            **(options if workers else {}),
        )
        try:
            for place, batch in zip(places, loader, strict=True):
                if isinstance(batch, DefocusError):
                    raise batch
                blurred, sharp = (as_display(values.to(self._device, non_blocking=True)) for values in batch)
                names, fused = (self.config.seed, *place, self._share[0]), self.config.compute.compile
                yield degraded((blurred, sharp), self.config.degrade, *names, fused=fused)
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise TrainingError(
                f"{first_line(error)} Often the memory is used up: lower data.workers or data.prefetch; the "
                "same command goes on"
            ) from error

    def __getitem__(self, place: tuple[int, int]) -> Batch | DefocusError:
        """Errors are returned: raised in a worker they would come out with its whole traceback for a message."""
        try:
            return self._cut(*place)
        except DefocusError as error:
            return error

    def _cut(self, step: int, part: int) -> Batch:
        """Whole numbers of the pairs of this process; those of one source and epoch are asked for in one go."""
        if self._bank is not None:
            return self._bank.batch(self.config, step, part)
        crop, groups = self.config.stage_at(step).crop, dict[tuple[int, int], dict[int, PairRequest]]()
        for place, request in enumerate(self._batches.share(step, part, *self._share)):
            groups.setdefault((request.source, request.epoch), {})[place] = request
        pairs, batches = dict[int, Pair](), list[Batch]()
        for (number, epoch), requests in groups.items():
            source, numbers = self._sources[number], [request.number for request in requests.values()]
            if self.config.data.cache == "device" and isinstance(source, DecodedPairs):
                views = [self.view(request, source.sizes[request.number], crop) for request in requests.values()]
                batches.append(source.crops(numbers, views))
                continue
            for (place, request), (blurred, sharp) in zip(requests.items(), source.batch(numbers, epoch), strict=True):
                view = self.view(request, blurred.shape, crop)
                pairs[place] = view.of(blurred), view.of(sharp)
        if not batches:
            return stacked([pairs[place] for place in sorted(pairs)])
        order = torch.tensor([place for requests in groups.values() for place in requests]).argsort().to(self._device)
        blurred, sharp = (torch.cat([batch[side] for batch in batches])[order] for side in (0, 1))
        return blurred, sharp


class BankBatches:
    """Batches of a bank of PSFs (`synth.bank`), made on the device a batch ahead of the step that takes it.

    A part of a step is a pure function of the seed, the step and the part.
    """

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        import jax

        from ..synth.bank import Bank
        from ..synth.engines import leave_room

        leave_room()  # JAX and PyTorch share the GPU
        if not config.data.folders:
            raise ConfigError('data.kind = "bank" needs the folder of a bank: data.folders, or --data FOLDER')
        folder = Path(config.data.folders[0])
        bank = Bank.load(folder)
        facts = folder / "bank.json"
        self.identity = hashlib.sha256(facts.read_bytes()).hexdigest() if facts.is_file() else ""
        self.settings = len(bank.psfs)
        self._device, self._bank = device, jax.device_put(bank)
        self._ahead: dict[tuple[int, int], tuple[Any, Any]] = {}

    def batch(self, config: TrainConfig, step: int, part: int) -> Batch:
        """Whole numbers [pairs, crop, crop, 3], blurred and sharp, on the device of the training."""
        following = (step, part + 1) if part + 1 < config.stage_at(step).parts else (step + 1, 0)
        own = self._ahead.pop((step, part), None) or self._ask(config, (step, part))
        self._ahead = {}
        if following[0] < config.steps:
            self._ahead[following] = self._ask(config, following)
        blurred, sharp = (as_tensor(array, self._device) for array in own)
        return blurred, sharp

    def _ask(self, config: TrainConfig, place: tuple[int, int]) -> tuple[Any, Any]:
        from ..synth.bank import bank_batch

        stage = config.stage_at(place[0])
        seed = seed_for(config.seed, "bank", *place, 0)
        return bank_batch(self._bank, seed, count=stage.batch // stage.parts, crop=stage.crop)


def open_sources(config: TrainConfig) -> list[PairSource]:
    """The folders or the plan of the settings."""
    data = config.data
    if data.kind == "pairs":
        if not data.folders:
            raise ConfigError('no data: give data.folders (or --data FOLDER), or data.plan with kind = "synthesis"')
        return [PairDataset(folder, data.split) for folder in data.folders]
    if data.plan is None:
        raise ConfigError('data.kind = "synthesis" needs data.plan, a plan of `defocus synth`')
    plan = load_plan(data.plan).model_copy(update={"labels": Labels()})  # no network is trained on them
    crop = max(stage.crop for stage in config.stages)
    if plan.patch.size < crop:
        raise ConfigError(
            f"pairs of {plan.patch.size}×{plan.patch.size} pixels do not hold a crop of {crop}: lower crop, or "
            "raise the plan's patch.size",
            file=data.plan,
        )
    blur = BlurCurriculum.of(config, plan.blur.proposals)
    return [OnTheFlyDataset(plan, data.split, data.length, seed=config.seed, blur=blur, kept=data.kept)]


def fingerprint(sources: Sequence[PairSource]) -> str:
    """A sum that changes with the pairs of any source."""
    return hashlib.sha256("\n\n".join(source.identity() for source in sources).encode()).hexdigest()
