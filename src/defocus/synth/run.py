"""Leading a run: draw the candidates, choose the sharpest, make them, until every split has its pairs.

Everything that was done stands in the ledger, so a run that was killed goes on where it stopped: what is chosen follows
from what is in the ledger alone. A split's pairs are the first of its candidates, the sharpest first, that can be made;
where a lens refuses, the next candidate takes the place. Shards keep a list of what belongs in them, so that each is
written once and whole.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from .. import __version__
from ..errors import DatasetError
from ..files.stores import Store
from .candidates import candidate_numbers
from .finish import finish_folder, prepare_folder
from .ledger import Ledger
from .lens_pool import LensPool, find_lenses
from .patches import sharpest
from .places import placeless
from .plan import Plan, SplitName
from .reasons import merged_reasons
from .sources import SourceName, files_sum, find_sources, missing_depths
from .work import Job, Result, Task

REASONS = 3  # that a summary tells
DRAWN_AT_ONCE = 128  # candidates of one task at most
MADE_AT_ONCE = {"cpu": 8, "gpu": 128}  # pairs of one task: a GPU wants many PSFs together; bytes do not depend on it


class Engine(Protocol):
    """Whoever runs tasks. `run` gives each task to some worker and yields results as they come, in any order."""

    name: str
    workers: int

    def device(self) -> str: ...

    def run(self, job: Job, tasks: Iterator[Task]) -> Iterator[Result]: ...

    def close(self) -> None: ...


@dataclass
class Progress:
    """Where a run stands, for whoever shows it."""

    stage: str = ""
    done: int = 0  # pairs that are finished, those of earlier runs included
    wanted: int = 0
    ends_at: int = 0  # pairs at which this run stops: those wanted, or a limit
    drawn: int = 0
    candidates: int = 0
    rejected: int = 0
    failed: int = 0
    made_now: int = 0  # pairs of this run
    started: float = field(default_factory=time.monotonic)
    first_made: float | None = None  # when the first task of pairs was finished, and how many it made
    made_at_first: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Pairs per second, counted from the first finished task: compiling is over then."""
        if self.first_made is None:
            return 0.0
        return (self.made_now - self.made_at_first) / max(time.monotonic() - self.first_made, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """None until there is something to tell it from."""
        return max(self.ends_at - self.done, 0) / self.rate if self.rate > 0.0 else None


Watcher = Callable[[Progress], None]
Record = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """What a run left behind."""

    pairs: dict[SplitName, int]
    wanted: dict[SplitName, int]
    rejected: int
    failed: int
    seconds: float
    complete: bool
    limited: bool
    reasons: tuple[tuple[str, int], ...] = ()  # examples of why candidates were not made into pairs
    left_out: tuple[str, ...] = ()  # photographs without depth


def run_plan(
    plan: Plan,
    folder: str | Path,
    engine: Engine,
    *,
    limit: int | None = None,
    replan: bool = False,
    ledger_file: Path | None = None,
    watch: Watcher | None = None,
) -> Summary:
    """Make the data set of a plan in `folder`, or go on with it. `limit`: stop after so many pairs of this folder."""
    store, path = prepare_folder(folder, ledger_file)
    progress = Progress(stage="checking sources and lenses")
    tell = watch or (lambda _: None)
    tell(progress)
    sources = find_sources(plan)
    with Ledger(path) as ledger, _ledger_errors(path):
        if ledger_file is not None:
            _require_target(ledger, store)
        store.sweep()  # what a killed run left; nobody else writes here now
        moved = ledger.begin(plan, folder=store.folder, replan=replan)
        lenses = find_lenses(plan)
        if moved or replan:
            progress.stage = "comparing photographs and lenses"
            tell(progress)
            _require_same_files(ledger, sources, lenses, replan)
        images = {split: [s.name for s in group] for split, group in sources.items()}
        _require_same(ledger, {"images": images, "lenses": {k: list(v) for k, v in lenses.of_split.items()}}, replan)
        ledger.keep(plan, store.folder)
        begun = ledger.fact("version")
        if begun not in (None, __version__) and not replan:
            raise DatasetError(
                f"this folder was begun with defocus {begun}, this is {__version__}, which may differ: go on with "
                "that version, take another folder, or ask for --replan",
                file=path.parent,
            )
        ledger.put("version", __version__)
        ledger.put("rejected_lenses", json.dumps(lenses.rejected))
        job = Job(plan, str(folder), lenses, {s.name: s for group in sources.values() for s in group})
        started = time.time()
        number = ledger.start_run(started, engine.name, engine.workers, engine.device())
        ledger.reopen()
        progress.candidates = sum(plan.candidates(split) for split in plan.splits)
        progress.wanted = sum(plan.split(split).pairs for split in plan.splits)
        progress.ends_at = progress.wanted if limit is None else min(progress.wanted, limit)
        try:
            _draw(plan, ledger, job, sources, engine, progress, tell)
            limited = _make(plan, ledger, job, engine, progress, tell, limit)
        finally:
            engine.close()
            ledger.end_run(number, time.time(), progress.made_now, progress.seconds)
        progress.stage = "writing the metadata"
        tell(progress)
        for split in plan.splits:
            if ledger.counts(split).get("done", 0) >= plan.split(split).pairs:
                ledger.set_aside(split, _surplus(plan, split, ledger))
        finish_folder(plan, store, ledger)
        return _summary(plan, ledger, time.time() - started, limited)


@contextmanager
def _ledger_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise DatasetError(f"the ledger cannot be read or written: {error}; is the disk full?", file=path) from error


def _require_target(ledger: Ledger, store: Store) -> None:
    """A ledger that is kept elsewhere goes with one folder: pictures that are in no ledger are removed at the end."""
    told = ledger.fact("target")
    if told is not None and told != store.root:
        raise DatasetError(f"this ledger is that of {told}: take another for {store.root}", file=ledger.path)
    ledger.put("target", store.root)


def _require_same(ledger: Ledger, now: dict[str, dict[SplitName, list[str]]], replan: bool) -> None:
    """Images and lenses stay in the splits that they were in: one that is new or gone would move the others."""
    for what, names in now.items():
        told = ledger.fact(f"split/{what}")
        if told is None or (before := json.loads(told)) == names:
            continue
        if replan:
            ledger.forget()
            break
        old, new = ({name for part in parts.values() for name in part} for parts in (before, names))
        changes = [f"{name} is new" for name in sorted(new - old)] + [f"{name} is gone" for name in sorted(old - new)]
        shown = "; ".join(changes[:5]) or "they are divided differently"
        raise DatasetError(
            f"the {what} are not those that this folder was begun with ({shown}): restore them, take another folder, "
            "or ask for --replan",
            file=ledger.path.parent,
        )
    for what, names in now.items():
        ledger.put(f"split/{what}", json.dumps(names))


def _require_same_files(
    ledger: Ledger, sources: dict[SplitName, tuple[SourceName, ...]], lenses: LensPool, replan: bool
) -> None:
    """Folders that lie elsewhere now hold what the candidates were drawn from; what is gone is told by others.

    To plan anew, it is the files that count, wherever they lie: one that was changed in its place is a reason, too.
    """
    photos = {source.name: source for group in sources.values() for source in group if source.photo is not None}
    drawn: dict[tuple[str, str], str] = {}
    for _, _, _, record in ledger.items():
        drawn |= {(what, record[what]): record[f"{what}_sha256"] for what in ("source", "lens") if what in record}
    for (what, name), digest in drawn.items():
        if what == "source":
            same = name not in photos or files_sum(photos[name]) == digest
        else:
            same = name not in lenses.lenses or lenses.lenses[name].sha256 == digest
        if same:
            continue
        if replan:
            ledger.forget()
            return
        words = "the photograph or its depth is" if what == "source" else "the lens is"
        raise DatasetError(
            f"the plan's folders lie elsewhere than when this folder was begun, and {name} is another one there: "
            f"{words} not what the candidates were drawn from. Take the old ones, take another folder, or ask for "
            "--replan",
            file=ledger.path.parent,
        )


def _draw(
    plan: Plan,
    ledger: Ledger,
    job: Job,
    sources: dict[SplitName, tuple[SourceName, ...]],
    engine: Engine,
    progress: Progress,
    tell: Watcher,
) -> None:
    """First pass: every candidate of every split."""
    progress.stage = "drawing candidates"
    finished = ledger.finished()
    tasks = [task for split in plan.splits for task in _draw_tasks(plan, split, sources[split])]
    progress.drawn = sum(len(t.numbers) for t in tasks if t.name in finished)
    _count(plan, ledger, progress)
    tell(progress)
    for result in _results(engine, job, (t for t in tasks if t.name not in finished)):
        ledger.take(result.task.name, result.outcomes, result.seconds)
        progress.drawn += len(result.outcomes)
        _add(progress, result)
        tell(progress)


def _draw_tasks(plan: Plan, split: SplitName, sources: tuple[SourceName, ...]) -> Iterator[Task]:
    for source, numbers in zip(sources, candidate_numbers(plan, split, len(sources)), strict=True):
        for start in range(0, len(numbers), DRAWN_AT_ONCE):
            part = numbers[start : start + DRAWN_AT_ONCE]
            yield Task(f"draw/{split}/{part[0]}", "draw", split, (source.name,), numbers=tuple(part))


def _make(
    plan: Plan, ledger: Ledger, job: Job, engine: Engine, progress: Progress, tell: Watcher, limit: int | None
) -> bool:
    """Second pass, in as many rounds as refusals make necessary. Whether the limit ended it."""
    progress.stage = "making pairs"
    while True:
        _count(plan, ledger, progress)
        tell(progress)
        made = ledger.counts().get("done", 0)
        room = None if limit is None else limit - made
        if room is not None and room <= 0:
            return made < progress.wanted
        tasks: list[Task] = []
        for split in plan.splits:
            left = None if room is None else room - sum(len(t.records) for t in tasks)
            tasks += _make_tasks(plan, split, ledger, left)
        if not tasks:
            return False
        before = progress.done
        for result in _results(engine, job, iter(tasks)):
            ledger.take(result.task.name, result.outcomes, result.seconds)
            done = sum(o.status == "done" for o in result.outcomes)
            progress.made_now += done
            progress.done += done
            if progress.first_made is None:
                progress.first_made, progress.made_at_first = time.monotonic(), progress.made_now
            _add(progress, result)
            tell(progress)
        if room is not None and progress.done - before >= room:
            return progress.done < progress.wanted


def _make_tasks(plan: Plan, split: SplitName, ledger: Ledger, room: int | None) -> Iterator[Task]:
    """What is still to be made of a split, neighbours in a photograph together."""
    wanted = plan.split(split).pairs
    drawn = _drawn(ledger, split)
    if plan.output.layout == "webdataset":
        yield from _shard_tasks(plan, split, ledger, drawn, wanted, room)
        return
    chosen = [record for record, status in _ranked(plan, drawn) if status in ("drawn", "done")]
    numbers = {record["id"] for record, status in drawn if status == "drawn"}
    todo = sorted((r for r in chosen[:wanted] if r["id"] in numbers), key=lambda r: r["index"])
    todo = todo if room is None else todo[:room]
    at_once = MADE_AT_ONCE["cpu" if jax.default_backend() == "cpu" else "gpu"]
    for start in range(0, len(todo), at_once):
        part = todo[start : start + at_once]
        yield _make_task(f"make/{split}/{part[0]['index']}", split, part, None)


def _surplus(plan: Plan, split: SplitName, ledger: Ledger) -> list[str]:
    """Pairs that stood in for failures of an earlier run which are mended now: the least sharp beyond the number."""
    drawn = _drawn(ledger, split)
    done = [record["id"] for record, status in _ranked(plan, drawn) if status == "done"]
    return done[plan.split(split).pairs :]


def _shard_tasks(
    plan: Plan, split: SplitName, ledger: Ledger, drawn: list[tuple[Record, str]], wanted: int, room: int | None
) -> Iterator[Task]:
    """Shards of lists that are kept in the ledger from the moment that they are made."""
    key = f"shards/{split}"
    shards: list[list[str]] = json.loads(ledger.fact(key) or "[]")
    finished = ledger.finished()
    names = [f"make/{split}/shard/{number}" for number in range(len(shards))]
    if all(name in finished for name in names):
        # Those drawn that stand in a finished shard's list failed in an earlier run, and are tried again.
        done = sum(status == "done" for _, status in drawn)
        fresh = [r["id"] for r, status in _ranked(plan, drawn) if status == "drawn"]
        fresh = sorted(fresh[: wanted - done])
        size = plan.output.pairs_per_shard
        shards += [fresh[start : start + size] for start in range(0, len(fresh), size)]
        names = [f"make/{split}/shard/{number}" for number in range(len(shards))]
        ledger.put(key, json.dumps(shards))
    records = {record["id"]: record for record, _ in drawn}
    made = 0
    for number, (name, ids) in enumerate(zip(names, shards, strict=True)):
        if name not in finished and (room is None or made < room):
            made += len(ids)
            yield _make_task(name, split, [records[one] for one in ids], number)


def _make_task(name: str, split: SplitName, records: list[Record], shard: int | None) -> Task:
    sources = tuple(dict.fromkeys(r["source"] for r in records))
    return Task(name, "make", split, sources, records=tuple(records), shard=shard)


def _drawn(ledger: Ledger, split: SplitName) -> list[tuple[Record, str]]:
    """The candidates of a split that there is a record of, each with its status."""
    return [(record, status) for _, status, _, record in ledger.items(split) if record]


def _ranked(plan: Plan, drawn: list[tuple[Record, str]]) -> list[tuple[Record, str]]:
    """The candidates with the sharpest first, or in their own order."""
    if not drawn or not plan.select.sharpness:
        return drawn
    order = sharpest(np.array([record["sharpness"] for record, _ in drawn]), len(drawn))
    return [drawn[i] for i in order]


def _results(engine: Engine, job: Job, tasks: Iterator[Task]) -> Iterator[Result]:
    """Reasons name files by their place below the plan's folders: a ledger that is passed on tells of no others."""
    places = job.plan.as_json()
    for result in engine.run(job, tasks):
        if result.fatal:
            raise DatasetError(
                f"{result.fatal}; what is finished is safe: mend this and run the same command again to go on "
                "(where photographs or lenses are others now, --replan makes everything anew)"
            )
        yield replace(result, outcomes=tuple(replace(o, reason=placeless(o.reason, places)) for o in result.outcomes))


def _add(progress: Progress, result: Result) -> None:
    progress.rejected += sum(o.status == "rejected" for o in result.outcomes)
    progress.failed += sum(o.status == "failed" for o in result.outcomes)
    for stage, seconds in result.seconds.items():
        progress.seconds[stage] = progress.seconds.get(stage, 0.0) + seconds


def _count(plan: Plan, ledger: Ledger, progress: Progress) -> None:
    counts = ledger.counts()
    progress.rejected, progress.failed = (counts.get(s, 0) for s in ("rejected", "failed"))
    progress.done = sum(_standing(plan, split, ledger) for split in plan.splits)


def _standing(plan: Plan, split: SplitName, ledger: Ledger) -> int:
    """Finished pairs that stay: not those that stood in for failures which are tried again."""
    wanted = plan.split(split).pairs
    if plan.output.layout == "webdataset":
        return min(ledger.counts(split).get("done", 0), wanted)
    drawn = _drawn(ledger, split)
    statuses = [status for _, status in _ranked(plan, drawn) if status in ("drawn", "done")]
    return statuses[:wanted].count("done")


def _summary(plan: Plan, ledger: Ledger, seconds: float, limited: bool) -> Summary:
    pairs = {split: ledger.counts(split).get("done", 0) for split in plan.splits}
    wanted = {split: plan.split(split).pairs for split in plan.splits}
    counts = ledger.counts()
    complete = all(pairs[split] >= wanted[split] for split in pairs)
    rejected, failed = counts.get("rejected", 0), counts.get("failed", 0)
    reasons = tuple((example, count) for _, count, example in merged_reasons(ledger.reasons().items()))[:REASONS]
    left_out = tuple(missing_depths(plan))
    return Summary(pairs, wanted, rejected, failed, seconds, complete, limited, reasons, left_out)
