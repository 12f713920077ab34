"""What a step is, as pure functions of its number: its learning rate, and the sizes of its batch and crops.

cosine: rate r from the first step; from step c·T on  floor + (r − floor)·(1 + cos π(t − cT)/(T − cT))/2.
steps: r·factor of the last milestone that has passed.
Both rise evenly from 0 over the first part `warmup` of the steps. Nothing of this has a state, so a training that goes
on needs the number of its step alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from .config import Schedule, Stage, TrainConfig


def rate_at(schedule: Schedule, rate: float, step: int, steps: int) -> float:
    """The learning rate of a step, counted from 0, of so many."""
    if schedule.kind == "cosine":
        begin = schedule.constant * steps
        part = max(0.0, step - begin) / (steps - begin)
        value = schedule.floor + (rate - schedule.floor) * 0.5 * (1.0 + math.cos(math.pi * part))
    elif schedule.kind == "steps":
        passed = bisect_right(milestone_steps(schedule, steps), step)
        value = rate * (schedule.factors[passed - 1] if passed else 1.0)
    else:
        value = rate
    rising = round(schedule.warmup * steps)
    return value * min(1.0, (step + 1) / rising) if rising else value


def milestone_steps(schedule: Schedule, steps: int) -> list[int]:
    """The steps from which on each factor holds."""
    return [round(part * steps) for part in schedule.milestones]


@dataclass(frozen=True)
class Stages:
    """The sizes of batches and crops over the steps, and how many pairs were seen before each step."""

    stages: tuple[Stage, ...]
    starts: tuple[int, ...]  # first step of each stage
    seen: tuple[int, ...]  # pairs before it

    @staticmethod
    def of(config: TrainConfig) -> Stages:
        starts = tuple(round(stage.start * config.steps) for stage in config.stages)
        seen = [0]
        for stage, first, end in zip(config.stages[:-1], starts[:-1], starts[1:], strict=True):
            seen.append(seen[-1] + stage.batch * (end - first))
        return Stages(config.stages, starts, tuple(seen))

    def at(self, step: int) -> Stage:
        return self.stages[bisect_right(self.starts, step) - 1]

    def seen_before(self, step: int) -> int:
        """Pairs of all steps before this one."""
        number = bisect_right(self.starts, step) - 1
        return self.seen[number] + self.stages[number].batch * (step - self.starts[number])
