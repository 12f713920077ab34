"""What is still to be done of a data set, in pieces that are small enough to send anywhere.

The pieces follow from the plan and the ledger alone. A split's pairs are the first of its candidates, the sharpest
first, that can be made; where a lens refuses, the next candidate takes the place. Shards keep a list of what belongs in
them, so that each is written once and whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Int

from .candidates import candidate_numbers
from .ledger import Ledger
from .patches import sharpest
from .plan import Plan, SplitName
from .recipe import Outcome, pair_id
from .sources import SourceName

CANDIDATES_PER_TASK = 128
PAIRS_PER_TASK = {"cpu": 8, "gpu": 128}  # at least; bytes do not depend on it
# Of a GPU: the more lenses there are, the more alike are those of a batch, which pays for all.
MOST_PAIRS_PER_TASK = 512
TASKS_LEFT = 12  # of a GPU, at least, while tasks are larger than they must be: so the last ones end together
PATCH_PLANES = {False: 8, True: 64}  # floats of a GPU for each pixel of a patch; of composed scenes with their surfaces


@dataclass(frozen=True)
class Task:
    """A handful of candidates of one photograph to draw, or of recipes to make into pairs."""

    name: str
    kind: Literal["draw", "make"]
    split: SplitName
    sources: tuple[str, ...]
    numbers: tuple[int, ...] = ()  # draw
    records: tuple[dict[str, Any], ...] = ()  # make
    shard: int | None = None  # make all into this shard

    @property
    def ids(self) -> list[str]:
        return [str(r["id"]) for r in self.records] or [pair_id(self.split, n) for n in self.numbers]

    def failed(self, reason: str) -> TaskResult:
        """The result of a task that nobody could do."""
        records = {str(r["id"]): r for r in self.records}
        return TaskResult(tuple(Outcome(one, "failed", reason, records.get(one)) for one in self.ids))


@dataclass(frozen=True)
class TaskResult:
    """What became of a task's candidates, and the seconds of each stage."""

    outcomes: tuple[Outcome, ...]
    seconds: dict[str, float] = field(default_factory=dict)


def draw_tasks(plan: Plan, split: SplitName, sources: Sequence[SourceName]) -> Iterator[Task]:
    """All candidates of a split, photograph after photograph."""
    for source, numbers in zip(sources, candidate_numbers(plan, split, len(sources)), strict=True):
        for start in range(0, len(numbers), CANDIDATES_PER_TASK):
            part = numbers[start : start + CANDIDATES_PER_TASK]
            yield Task(f"draw/{split}/{part[0]}", "draw", split, (source.name,), numbers=tuple(part))


def make_tasks(plan: Plan, ledger: Ledger, room: int | None = None) -> Iterator[Task]:
    """The pairs that are still to be made of all splits, at most `room` of them or the shards that hold so many.

    Those that were made before and are lost come first. Records are read as tasks are asked for.
    """
    planned = 0
    for split in plan.splits:
        if plan.output.layout == "webdataset":
            parts = _shards_to_make(split, ledger)
        else:
            numbers = _pairs_to_make(plan, split, ledger)[: None if room is None else max(room - planned, 0)]
            ends = np.cumsum(task_sizes(len(numbers), most_pairs_per_task(plan)))
            own = [part.tolist() for part in np.split(numbers, ends[:-1]) if len(part)]
            parts = [(f"make/{split}/{part[0]}", None, part) for part in own]
        for name, shard, numbers_of_task in parts:
            if room is not None and planned >= room:
                return
            planned += len(numbers_of_task)
            records = ledger.records(split, numbers_of_task)
            sources = tuple(dict.fromkeys(record["source"] for record in records))
            yield Task(name, "make", split, sources, records=tuple(records), shard=shard)


def most_pairs_per_task(plan: Plan) -> int:
    """Pairs of the largest task: on a GPU as many as have their patches in a fortieth of its memory."""
    if jax.default_backend() == "cpu":
        return PAIRS_PER_TASK["cpu"]
    memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)
    is_composed = any(source.kind == "composed" for source in plan.sources)
    patch = 4 * plan.patch.size**2 * PATCH_PLANES[is_composed]
    most = min(memory // 40 // patch, MOST_PAIRS_PER_TASK)
    return max(most // PAIRS_PER_TASK["gpu"], 1) * PAIRS_PER_TASK["gpu"]


def task_sizes(pairs: int, most: int) -> list[int]:
    """Pairs of each of the tasks that make so many: a small one, which compiles, large ones, and small ones again."""
    least = min(PAIRS_PER_TASK["gpu"], most)
    sizes = [least] if pairs else []
    left = pairs - least
    while left > 0:
        sizes.append(min(max(left // TASKS_LEFT // least * least, least), most))
        left -= sizes[-1]
    return sizes


def standing_pairs(plan: Plan, split: SplitName, ledger: Ledger) -> int:
    """Finished pairs of a split that stay: not those that stood in for failures which are tried again."""
    pairs = plan.split(split).pairs
    if plan.output.layout == "webdataset":
        return min(ledger.counts(split).get("done", 0), pairs)
    ranking, order = _ranked(plan, split, ledger)
    return int(ranking.done[order[(ranking.done | ranking.drawn)[order]][:pairs]].sum())


def surplus_pairs(plan: Plan, split: SplitName, ledger: Ledger) -> list[dict[str, Any]]:
    """Records of pairs that stood in for failures of an earlier run which are mended now: the least sharp beyond the
    number."""
    ranking, order = _ranked(plan, split, ledger)
    surplus = order[ranking.done[order]][plan.split(split).pairs :]
    return ledger.records(split, ranking.numbers[surplus].tolist())


def _ranked(plan: Plan, split: SplitName, ledger: Ledger) -> tuple[Any, Int[np.ndarray, " n"]]:
    """The candidates of a split that have a recipe, and their order: the sharpest first, or as they are numbered."""
    ranking = ledger.ranking(split)
    count = len(ranking.numbers)
    return ranking, sharpest(ranking.sharpness, count) if count and plan.select.sharpness else np.arange(count)


def _pairs_to_make(plan: Plan, split: SplitName, ledger: Ledger) -> Int[np.ndarray, " n"]:
    """Numbers of the best candidates that are not pairs yet, neighbours in a photograph together."""
    ranking, order = _ranked(plan, split, ledger)
    best = order[(ranking.done | ranking.drawn)[order]][: plan.split(split).pairs]
    best = best[ranking.drawn[best]]
    return ranking.numbers[best[np.lexsort((ranking.numbers[best], ~ranking.lost[best]))]]


def plan_shards(plan: Plan, ledger: Ledger) -> bool:
    """Where all shards of a split are finished and pairs are missing, list what belongs in more; whether any are new.

    The lists are in the ledger from the moment that they are made.
    """
    changed = False
    for split in plan.splits if plan.output.layout == "webdataset" else ():
        if _shards_to_make(split, ledger):
            continue
        # Those drawn that stand in a finished shard's list failed in an earlier run, and are tried again.
        missing = plan.split(split).pairs - ledger.counts(split).get("done", 0)
        ranking, order = _ranked(plan, split, ledger)
        best = sorted(ranking.numbers[order[ranking.drawn[order]][: max(missing, 0)]].tolist())
        size, shards = plan.output.pairs_per_shard, _shards(split, ledger)
        for k in range(0, len(best), size):
            number = next((number for number, ids in enumerate(shards) if not ids), len(shards))
            shards[number : number + 1] = [[pair_id(split, n) for n in best[k : k + size]]]
        ledger.put(f"shards/{split}", json.dumps(shards))
        changed = changed or bool(best)
    return changed


def _shards(split: SplitName, ledger: Ledger) -> list[list[str]]:
    """Names of the pairs that belong in each shard."""
    return json.loads(ledger.fact(f"shards/{split}") or "[]")


def _shards_to_make(split: SplitName, ledger: Ledger) -> list[tuple[str, int | None, list[int]]]:
    """Name, number and pairs of the shards that are listed and not finished."""
    finished = ledger.finished()
    return [
        (f"make/{split}/shard/{number}", number, [int(one.rpartition("-")[2]) for one in ids])
        for number, ids in enumerate(_shards(split, ledger))
        if ids and f"make/{split}/shard/{number}" not in finished
    ]
