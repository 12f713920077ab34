"""Which pairs a step sees: a pure function of the seed and the step.

All pairs are seen once before any is seen again, in a new order each time. With several folders a round has as many
places as there are pairs, shared out by weight and shuffled; each folder fills its places with its own pairs in order.
A training that goes on at step s, on any number of processes, therefore asks for what it would have asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ..files.randomness import generator
from .schedules import Stages

Numbers = Int[np.ndarray, "n"]


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
