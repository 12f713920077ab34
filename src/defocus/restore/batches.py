"""Which pairs a step sees: a pure function of the seed and the step.

All pairs are seen once before any is seen again, in a new order each time. With several folders a round has as many
places as there are pairs, shared out by weight and shuffled; each folder fills its places with its own pairs in order.
A training that goes on at step s, on any number of processes, therefore asks for what it would have asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..files.randomness import generator
from .schedules import Stages

KEPT = 8  # orders that are remembered


class Ask(NamedTuple):
    """A pair of one of the sources, for the `lap`-th time (from 0)."""

    source: int
    number: int
    lap: int


class Batches:
    """The pairs of every step. `sizes`: pairs of each source; `weights`: their shares, by default the sizes."""

    def __init__(self, seed: int, sizes: Sequence[int], stages: Stages, weights: Sequence[float] = ()) -> None:
        self._seed, self._sizes, self._stages = seed, tuple(sizes), stages
        self._places = _shares(sum(sizes), tuple(weights) or tuple(map(float, sizes)))
        self._orders: dict[tuple[int, int], np.ndarray] = {}
        self._rounds: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def of_step(self, step: int) -> list[Ask]:
        """All pairs of a step, those of all processes."""
        first = self._stages.seen_before(step)
        return [self._ask(place) for place in range(first, first + self._stages.at(step).batch)]

    def share(self, step: int, part: int, process: int, processes: int) -> list[Ask]:
        """What one process takes in one of the parts of a step."""
        stage = self._stages.at(step)
        parts = (stage.accumulate or 1) * processes
        size = stage.batch // parts
        first = (process * (stage.accumulate or 1) + part) * size
        return self.of_step(step)[first : first + size]

    def _ask(self, place: int) -> Ask:
        number, rest = divmod(place, sum(self._places))
        sources, ranks = self._round(number)
        source = int(sources[rest])
        lap, position = divmod(number * self._places[source] + int(ranks[rest]), self._sizes[source])
        return Ask(source, int(self._order(source, lap)[position]), lap)

    def _round(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """For each place of a round its source, and how many places the source had before."""
        if number not in self._rounds:
            sources = np.repeat(np.arange(len(self._places)), self._places)
            if len(self._places) > 1:
                sources = generator(self._seed, "folders", number).permutation(sources)
            ranks = np.empty_like(sources)
            for source, count in enumerate(self._places):
                ranks[sources == source] = np.arange(count)
            _forget(self._rounds)
            self._rounds[number] = (sources, ranks)
        return self._rounds[number]

    def _order(self, source: int, lap: int) -> np.ndarray:
        if (source, lap) not in self._orders:
            _forget(self._orders, KEPT * len(self._sizes))
            self._orders[source, lap] = generator(self._seed, "order", source, lap).permutation(self._sizes[source])
        return self._orders[source, lap]


def _forget(kept: dict, most: int = KEPT) -> None:  # type: ignore[type-arg]
    """Room for one more: the oldest goes."""
    while len(kept) >= most:
        del kept[next(iter(kept))]


def _shares(total: int, weights: tuple[float, ...]) -> tuple[int, ...]:
    """Whole numbers in proportion to the weights that sum to `total`, by largest remainders; one at least."""
    exact = [total * weight / sum(weights) for weight in weights]
    places = [max(1, int(share)) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda n: places[n] - exact[n])
    for n in by_rest[: max(0, total - sum(places))]:
        places[n] += 1
    return tuple(places)
