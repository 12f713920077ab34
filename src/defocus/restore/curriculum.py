"""A curriculum over blur: pairs that are made on the way, of little blur first and of more later, or in any order.

The data know epochs, the settings parts of all steps; an epoch belongs to the lesson in which its first pair is seen.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..errors import ConfigError
from ..synth.plan import Blur
from .config import TrainConfig
from .schedules import Stages


@dataclass(frozen=True)
class BlurCurriculum:
    """The blur levels of each epoch. Can be pickled, as loader workers need."""

    first_epochs: tuple[int, ...]
    levels: tuple[Blur, ...]

    def __call__(self, epoch: int) -> Blur:
        return self.levels[bisect_right(self.first_epochs, epoch) - 1]


def blur_curriculum(config: TrainConfig, proposals: int = 64) -> BlurCurriculum | None:
    """Of the settings; None without lessons. Raises `ConfigError` where a lesson is shorter than an epoch."""
    if not config.curriculum:
        return None
    stages = Stages.of(config)
    starts = [round(lesson.start * config.steps) for lesson in config.curriculum]
    firsts = [-(-stages.seen_before(step) // config.data.length) for step in starts]  # the epoch that begins next
    ends = [*firsts[1:], -(-stages.seen_before(config.steps) // config.data.length)]
    for lesson, first, end in zip(config.curriculum, firsts, ends, strict=True):
        if first >= end:
            raise ConfigError(
                f"the lesson of the curriculum that starts at {lesson.start:g} has no epoch of its own: an epoch has "
                f"{config.data.length} pairs; lower data.length"
            )
    return BlurCurriculum(tuple(firsts), tuple(_levels(lesson.blur_px, proposals) for lesson in config.curriculum))


def _levels(blur_px: tuple[float, float], proposals: int) -> Blur:
    low, high = blur_px
    if low == 0.0:
        return Blur(levels_px=(high,), weights=(1.0,), proposals=proposals)
    return Blur(levels_px=(low, high), weights=(0.0, 1.0), proposals=proposals)
