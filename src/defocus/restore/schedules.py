"""What a step is, as pure functions of its number: its learning rate, the sizes of its batch and crops, and the blur of
its pairs where they are made on the way.

cosine: rate r from the first step; from step c·T on  floor + (r − floor)·(1 + cos π(t − cT)/(T − cT))/2.
steps: r·factor of the last milestone that has passed.
Both rise evenly from 0 over the first part `warmup` of the steps. torch's schedulers are chains whose next rate follows
from the last one: after a change of `steps` a resumed training would leave the curve. Nothing here has a state.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from ..errors import ConfigError
from ..synth.plan import Blur
from .config import TrainConfig, TrainStage


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
        for stage, first, end in zip(config.stages, starts, starts[1:], strict=False):
            pairs.append(pairs[-1] + stage.batch * (end - first))
        return Stages(config.stages, starts, tuple(pairs))

    def at(self, step: int) -> TrainStage:
        return self.stages[bisect_right(self.starts, step) - 1]

    def pairs_before(self, step: int) -> int:
        """Number of pairs of all steps before this one."""
        number = bisect_right(self.starts, step) - 1
        return self.pairs[number] + self.stages[number].batch * (step - self.starts[number])


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
    for lesson, first, end in zip(config.curriculum, firsts, firsts[1:], strict=False):
        if first >= end:
            raise ConfigError(
                f"the lesson of the curriculum that starts at {lesson.start:g} has no epoch of its own: an epoch has "
                f"{config.data.length} pairs; lower data.length"
            )
    return BlurCurriculum(
        tuple(firsts[:-1]), tuple(_levels(*lesson.blur_px, proposals) for lesson in config.curriculum)
    )


def _levels(low: float, high: float, proposals: int) -> Blur:
    if low == 0.0:
        return Blur(levels_px=(high,), weights=(1.0,), proposals=proposals)
    return Blur(levels_px=(low, high), weights=(0.0, 1.0), proposals=proposals)
