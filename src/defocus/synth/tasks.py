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

from .candidates import candidate_numbers, identity
from .ledger import Ledger
from .patches import sharpest
from .plan import Plan, SplitName
from .recipe import Outcome
from .sources import SourceName

CANDIDATES_PER_TASK = 128
PAIRS_PER_TASK = {"cpu": 8, "gpu": 128}  # a GPU wants many PSFs together; bytes do not depend on it

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A handful of candidates of one photograph to draw, or of recipes to make into pairs."""

    name: str
    kind: Literal["draw", "make"]
    split: SplitName
    sources: tuple[str, ...]
    numbers: tuple[int, ...] = ()  # draw
    records: tuple[Record, ...] = ()  # make
    shard: int | None = None  # make all into this shard

    @property
    def ids(self) -> list[str]:
        return [str(r["id"]) for r in self.records] or [identity(self.split, n) for n in self.numbers]

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


def make_tasks(plan: Plan, ledger: Ledger, room: int | None = None) -> list[Task]:
    """The pairs that are still to be made of all splits, at most `room` of them or the shards that hold so many."""
    tasks: list[Task] = []
    for split in plan.splits:
        left = None if room is None else room - sum(len(task.records) for task in tasks)
        make = _shard_tasks if plan.output.layout == "webdataset" else _pair_tasks
        tasks += make(plan, split, ledger, left)
    return tasks


def standing_pairs(plan: Plan, split: SplitName, ledger: Ledger) -> int:
    """Finished pairs of a split that stay: not those that stood in for failures which are tried again."""
    pairs = plan.split(split).pairs
    if plan.output.layout == "webdataset":
        return min(ledger.counts(split).get("done", 0), pairs)
    return [status for _, status in _ranked(plan, split, ledger, "drawn", "done")[:pairs]].count("done")


def surplus_pairs(plan: Plan, split: SplitName, ledger: Ledger) -> list[str]:
    """Pairs that stood in for failures of an earlier run which are mended now: the least sharp beyond the number."""
    done = [record["id"] for record, _ in _ranked(plan, split, ledger, "done")]
    return done[plan.split(split).pairs :]


def _ranked(plan: Plan, split: SplitName, ledger: Ledger, *statuses: str) -> list[tuple[Record, str]]:
    """Candidates of a split with a record, and their status: the sharpest first, or in their own order."""
    items = [(record, status) for _, status, _, record in ledger.items(split) if record]
    if items and plan.select.sharpness:
        order = sharpest(np.array([record["sharpness"] for record, _ in items]), len(items))
        items = [items[i] for i in order]
    return [item for item in items if item[1] in statuses]


def _pair_tasks(plan: Plan, split: SplitName, ledger: Ledger, room: int | None) -> Iterator[Task]:
    """Neighbours in a photograph together."""
    best = _ranked(plan, split, ledger, "drawn", "done")[: plan.split(split).pairs]
    records = sorted((record for record, status in best if status == "drawn"), key=lambda r: r["index"])[:room]
    size = PAIRS_PER_TASK["cpu" if jax.default_backend() == "cpu" else "gpu"]
    for start in range(0, len(records), size):
        part = records[start : start + size]
        yield _make_task(f"make/{split}/{part[0]['index']}", split, part)


def _shard_tasks(plan: Plan, split: SplitName, ledger: Ledger, room: int | None) -> Iterator[Task]:
    """Shards of lists that are in the ledger from the moment that they are made."""
    key = f"shards/{split}"
    shards: list[list[str]] = json.loads(ledger.fact(key) or "[]")
    finished = ledger.finished()
    if all(f"make/{split}/shard/{number}" in finished for number in range(len(shards))):
        # Those drawn that stand in a finished shard's list failed in an earlier run, and are tried again.
        missing = plan.split(split).pairs - ledger.counts(split).get("done", 0)
        ids = sorted([r["id"] for r, _ in _ranked(plan, split, ledger, "drawn")][: max(missing, 0)])
        size = plan.output.pairs_per_shard
        shards += [ids[start : start + size] for start in range(0, len(ids), size)]
        ledger.put(key, json.dumps(shards))
    records = {identity: record for identity, _, _, record in ledger.items(split) if record}
    pairs = 0
    for number, ids in enumerate(shards):
        name = f"make/{split}/shard/{number}"
        if name not in finished and (room is None or pairs < room):
            pairs += len(ids)
            yield _make_task(name, split, [records[one] for one in ids], number)


def _make_task(name: str, split: SplitName, records: list[Record], shard: int | None = None) -> Task:
    sources = tuple(dict.fromkeys(r["source"] for r in records))
    return Task(name, "make", split, sources, records=tuple(records), shard=shard)
