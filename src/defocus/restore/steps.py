"""What a step is, as pure functions of the seed and its number: its learning rate, the sizes of batch and crops, its
pairs, and their blur where they are made on the way. A training that goes on at step s, on any number of processes,
therefore asks for what it would have asked for.

Rate, cosine: r from the first step; from step c·T on  floor + (r − floor)·(1 + cos π(t − cT)/(T − cT))/2.
Rate, steps: r·factor of the last milestone that has passed.
Both rise evenly from 0 over the first part `warmup` of the steps. torch's schedulers are chains whose next rate follows
from the last one: after a change of `steps` a resumed training would leave the curve. Nothing here has a state.

Pairs: all are seen once before any is seen again, in a new order each time. With several folders a round has as many
places as there are pairs, shared out by weight and shuffled; each folder fills its places with its own pairs in order.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ..errors import ConfigError
from ..files.randomness import generator
from ..synth.plan import Blur
from .config import TrainConfig, TrainStage

Numbers = Int[np.ndarray, "n"]


def rate_at(config: TrainConfig, step: int) -> float:
    """Learning rate of a step, counted from 0."""
    schedule, rate = config.schedule, config.optimizer.rate
    if schedule.kind == "cosine":
        begin = schedule.constant * config.steps
        part = max(0.0, step - begin) / (config.steps - begin)
        rate = schedule.floor + (rate - schedule.floor) * 0.5 * (1.0 + math.cos(math.pi * part))
    elif schedule.kind == "steps":
        rate *= (1.0, *schedule.factors)[bisect_right(milestone_steps(config), step)]
    rise = round(schedule.warmup * config.steps)
    return rate * min(1.0, (step + 1) / rise) if rise else rate


def milestone_steps(config: TrainConfig) -> list[int]:
    """First step of each factor of the learning rate."""
    return [round(part * config.steps) for part in config.schedule.milestones]


@dataclass(frozen=True)
class Stages:
    """Sizes of batches and crops over the steps."""

    stages: tuple[TrainStage, ...]
    starts: tuple[int, ...]  # first step of each stage
    pairs: tuple[int, ...]  # of all steps before it

    @staticmethod
    def of(config: TrainConfig) -> Stages:
        starts = tuple(round(stage.start * config.steps) for stage in config.stages)
        pairs = [0]
        for stage, (first, end) in zip(config.stages, pairwise(starts), strict=False):
            pairs.append(pairs[-1] + stage.batch * (end - first))
        return Stages(config.stages, starts, tuple(pairs))

    def at(self, step: int) -> TrainStage:
        return self.stages[bisect_right(self.starts, step) - 1]

    def pairs_before(self, step: int) -> int:
        """Number of pairs of all steps before this one."""
        number = bisect_right(self.starts, step) - 1
        return self.pairs[number] + self.stages[number].batch * (step - self.starts[number])


class PairRequest(NamedTuple):
    """A pair of one of the sources, for the `epoch`-th time (from 0)."""

    source: int
    number: int
    epoch: int


class Batches:
    """The pairs of every step. `sizes`: pairs of each source; `weights`: their shares, by default the sizes."""

    def __init__(self, seed: int, sizes: Sequence[int], stages: Stages, weights: Sequence[float] = ()) -> None:
        self._seed, self._sizes, self._stages = seed, tuple(sizes), stages
        self._places = _shares(sum(sizes), tuple(weights) or tuple(map(float, sizes)))

    def of_step(self, step: int) -> list[PairRequest]:
        """All pairs of a step, those of all processes."""
        first = self._stages.pairs_before(step)
        return [self._request(place) for place in range(first, first + self._stages.at(step).batch)]

    def share(self, step: int, part: int, process: int, processes: int) -> list[PairRequest]:
        """Pairs that one process takes in one of the parts of a step."""
        stage = self._stages.at(step)
        size = stage.batch // (stage.parts * processes)
        first = (process * stage.parts + part) * size
        return self.of_step(step)[first : first + size]

    def _request(self, place: int) -> PairRequest:
        number, rest = divmod(place, sum(self._places))
        sources, ranks = _round(self._seed, self._places, number)
        source = int(sources[rest])
        epoch, rank = divmod(number * self._places[source] + int(ranks[rest]), self._sizes[source])
        return PairRequest(source, int(_order(self._seed, source, epoch, self._sizes[source])[rank]), epoch)


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
    """Blur levels of each epoch of pairs that are made on the way. Can be pickled, as loader workers need."""

    first_epochs: tuple[int, ...]
    levels: tuple[Blur, ...]

    def __call__(self, epoch: int) -> Blur:
        return self.levels[bisect_right(self.first_epochs, epoch) - 1]


def blur_curriculum(config: TrainConfig, proposals: int = 64) -> BlurCurriculum | None:
    """The curriculum of the settings, or None where they have no lessons.

    The data know epochs, the settings parts of all steps: an epoch belongs to the lesson in which its first pair is
    seen. Raises `ConfigError` where a lesson is shorter than an epoch.
    """
    if not config.curriculum:
        return None
    stages = Stages.of(config)
    starts = [round(lesson.start * config.steps) for lesson in config.curriculum]
    firsts = [-(-stages.pairs_before(step) // config.data.length) for step in (*starts, config.steps)]
    for lesson, (first, end) in zip(config.curriculum, pairwise(firsts), strict=True):
        if first >= end:
            raise ConfigError(
                f"the lesson of the curriculum that starts at {lesson.start:g} has no epoch of its own: an epoch has "
                f"{config.data.length} pairs; lower data.length"
            )
    ranges = [
        ((high,), (1.0,)) if low == 0.0 else ((low, high), (0.0, 1.0))
        for low, high in (lesson.blur_px for lesson in config.curriculum)
    ]
    levels = [Blur(levels_px=px, weights=weights, proposals=proposals) for px, weights in ranges]
    return BlurCurriculum(tuple(firsts[:-1]), tuple(levels))
