"""The pairs of each step, on the device: read and cut by loader workers, or cut there from decoded pairs.

A worker makes a whole part of a batch, so that with any number of them the same pairs come in the same order. Pictures
travel as whole numbers, a quarter of the bytes, and become display values on the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from ..errors import ConfigError, DefocusError, TrainingError
from ..files.randomness import generator
from ..synth.plan import load_plan
from .config import TrainConfig
from .data import CropView, OnTheFlyDataset, Pair, PairDataset, Report, draw_view
from .decoded import Batch, as_display, stacked
from .steps import Batches, PairRequest, Stages, blur_curriculum

PairSource = PairDataset | OnTheFlyDataset


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
        self._config, self._device, self._share = config, device, (process, processes)
        self.stages = Stages.of(config)
        for stage in config.stages:
            if stage.batch % (processes * stage.parts):
                raise ConfigError(
                    f"a batch of {stage.batch} pairs cannot be shared by {processes} processes in "
                    f"{stage.parts} equal parts each: change batch or accumulate"
                )
        self._sources = open_sources(config)
        self.identity = fingerprint(self._sources)
        self.pairs = sum(len(source) for source in self._sources)
        self._batches = Batches(config.seed, [len(s) for s in self._sources], self.stages, config.data.weights)
        crop = max(stage.crop for stage in config.stages)
        folders = [source for source in self._sources if isinstance(source, PairDataset)]
        for folder in folders:
            need = f"a crop of {crop}: lower crop, or leave such pictures out"
            folder.check_sizes(range(len(folder)), crop, need, report)
        for folder in folders if config.data.cache != "no" else ():
            folder.decode(device if config.data.cache == "device" else torch.device("cpu"), report)

    def names(self, step: int) -> list[str]:
        """Names of all pairs of a step."""
        requests = self._batches.of_step(step)
        return [self._sources[request.source].name(request.number, request.epoch) for request in requests]

    def view(self, request: PairRequest, size: tuple[int, ...], crop: int) -> CropView:
        """Crop, flips and turn of a pair: a pure function of the seed and the request."""
        augment, source = self._config.augment, self._sources[request.source]
        random = generator(self._config.seed, "view", *request)
        name = source.name(request.number, request.epoch)
        return draw_view(random, size, crop, name, flip=augment != "no", turn=augment == "turns")

    def batches(self, first: int) -> Generator[Batch, None, None]:
        """The parts of all steps from `first` on, as display values on the device."""
        if self._config.data.cache == "device":
            for step, part in self._places(first):
                yield self._cut_there(step, part)
            return
        data = self._config.data
        # Workers live as long as the training. "spawn": JAX does not survive a fork, nor do threads that hold a lock.
        options: dict[str, Any] = (
            {"multiprocessing_context": "spawn", "prefetch_factor": data.prefetch} if data.workers else {}
        )
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=self._places(first),
            num_workers=data.workers,
            pin_memory=self._device.type == "cuda",
            **options,
        )
        try:
            for batch in loader:
                if isinstance(batch, DefocusError):
                    raise batch
                blurred, sharp = (as_display(values.to(self._device, non_blocking=True)) for values in batch)
                yield blurred, sharp
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise TrainingError(
                f"{str(error).splitlines()[0]} Often the memory is used up: lower data.workers or data.prefetch; the "
                "same command goes on"
            ) from error

    def __getitem__(self, place: tuple[int, int]) -> Batch | DefocusError:
        """Errors are returned: raised in a worker they would come out with its whole traceback for a message."""
        try:
            return self._cut(*place)
        except DefocusError as error:
            return error

    def _places(self, first: int) -> Iterator[tuple[int, int]]:
        """Step and part, from a step on."""
        for step in range(first, self._config.steps):
            for part in range(self.stages.at(step).parts):
                yield step, part

    def _groups(self, step: int, part: int) -> dict[tuple[int, int], dict[int, PairRequest]]:
        """By source and epoch: the requests of this process, by their places in the batch."""
        groups: dict[tuple[int, int], dict[int, PairRequest]] = {}
        for place, request in enumerate(self._batches.share(step, part, *self._share)):
            groups.setdefault((request.source, request.epoch), {})[place] = request
        return groups

    def _cut(self, step: int, part: int) -> Batch:
        """Whole numbers, cut from what the sources give."""
        crop, pairs = self.stages.at(step).crop, dict[int, Pair]()
        for (source, epoch), requests in self._groups(step, part).items():
            whole = self._sources[source].batch([request.number for request in requests.values()], epoch)
            for (place, request), (blurred, sharp) in zip(requests.items(), whole, strict=True):
                view = self.view(request, blurred.shape, crop)
                pairs[place] = view.of(blurred), view.of(sharp)
        return stacked([pairs[place] for place in sorted(pairs)])

    def _cut_there(self, step: int, part: int) -> Batch:
        """Display values, cut on the device from decoded pairs."""
        crop, places, parts = self.stages.at(step).crop, list[int](), list[Batch]()
        for (source, _), requests in self._groups(step, part).items():
            decoded = self._sources[source].decoded
            assert decoded is not None
            views = [self.view(r, decoded.sizes[r.number], crop) for r in requests.values()]
            parts.append(decoded.crops([request.number for request in requests.values()], views))
            places += requests
        if len(parts) == 1:
            return parts[0]
        order = torch.tensor(places).argsort().to(self._device)
        blurred, sharp = (torch.cat([part[side] for part in parts])[order] for side in (0, 1))
        return blurred, sharp


def open_sources(config: TrainConfig) -> list[PairSource]:
    """The folders or the plan of the settings."""
    data = config.data
    if data.kind == "pairs":
        if not data.folders:
            raise ConfigError('no data: give data.folders (or --data FOLDER), or data.plan with kind = "synthesis"')
        return [PairDataset(folder, data.split) for folder in data.folders]
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
    return [OnTheFlyDataset(plan, data.split, data.length, seed=config.seed, blur=blur, kept=data.kept)]


def fingerprint(sources: Sequence[PairSource]) -> str:
    """A sum that changes with the pairs of any source."""
    return hashlib.sha256("\n\n".join(source.identity() for source in sources).encode()).hexdigest()
