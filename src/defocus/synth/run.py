"""Leading a run: draw the candidates, make the sharpest into pairs, until every split has its number.

Everything that was done stands in the ledger, so a run that was killed goes on where it stopped: what is to be done
next follows from the ledger alone (`tasks`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..errors import DatasetError
from ..files.stores import Store
from .engines import Engine, Failure, Start, leave_room
from .engines.local import LocalEngine
from .folder import Lead, keep_facts, open_ledger, prepare_folder
from .layer_psfs import compile_psfs
from .ledger import Ledger, merged_reasons
from .lens_pool import find_lenses
from .metadata import is_metadata_of, write_metadata
from .places import placeless
from .plan import Plan, PlanLike, SplitName, as_plan
from .resume import Resumption
from .sources import find_sources, missing_depths
from .tasks import Task, TaskResult, draw_tasks, make_tasks, plan_shards, standing_pairs, surplus_pairs
from .worker import PairWorker, WorkOrder

REASONS = 3  # that a summary tells


@dataclass
class Progress:
    """Where a run stands, for whoever shows it."""

    stage: str = ""
    done: int = 0  # pairs that are finished, those of earlier runs included
    planned: int = 0
    ends_at: int = 0  # pairs at which this run stops: those planned, or a limit
    drawn: int = 0
    candidates: int = 0
    rejected: int = 0
    failed: int = 0
    pairs_now: int = 0  # pairs of this run
    seconds: dict[str, float] = field(default_factory=dict)  # by stage, of all workers
    notices: list[str] = field(default_factory=list)  # what is removed, made again or left as it is, before it happens
    _first: tuple[float, int] | None = None  # when the first task of pairs ended, and how many pairs it made

    @property
    def rate(self) -> float:
        """Pairs per second, counted from the first finished task: compiling is over then."""
        if self._first is None:
            return 0.0
        return (self.pairs_now - self._first[1]) / max(time.monotonic() - self._first[0], 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at this rate; None until there is one."""
        return max(self.ends_at - self.done, 0) / self.rate if self.rate > 0.0 else None

    def show(self, stage: str, watch: Watcher) -> None:
        """Tell whoever watches that a stage begins."""
        self.stage = stage
        watch(self)

    def add(self, task: Task, result: TaskResult) -> None:
        """Count what became of a task."""
        statuses = [outcome.status for outcome in result.outcomes]
        self.rejected += statuses.count("rejected")
        self.failed += statuses.count("failed")
        self.drawn += len(statuses) if task.kind == "draw" else 0
        self.pairs_now += statuses.count("done")
        self.done += statuses.count("done")
        if self._first is None and task.kind == "make":
            self._first = time.monotonic(), self.pairs_now
        for stage, seconds in result.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


Watcher = Callable[[Progress], None]


@dataclass(frozen=True)
class RunSummary:
    """What a run left behind."""

    pairs: dict[SplitName, int]
    planned: dict[SplitName, int]
    rejected: int
    failed: int
    seconds: float
    complete: bool
    limited: bool
    reasons: tuple[tuple[str, int], ...] = ()  # examples of why candidates were not made into pairs
    left_out: tuple[str, ...] = ()  # photographs without depth
    notices: tuple[str, ...] = ()  # what was removed, made again or left as it is


def run_plan(
    plan: PlanLike,
    folder: str | Path,
    engine: Engine | None = None,
    *,
    limit: int | None = None,
    replan: bool = False,
    sums: bool = False,
    ledger_file: Path | None = None,
    watch: Watcher | None = None,
) -> RunSummary:
    """Make the data set of a plan in `folder`, or go on with it.

    `engine`: who works, without one this process. `limit`: stop at so many pairs of this folder. `replan`: where plan,
    photographs or lenses are others now, remove the pairs that are there. Pictures that are missing or have another
    size than their record says are made again, with `sums` also those that have another sum. `watch` is called with
    the progress.
    """
    engine = engine or LocalEngine(1)
    if not engine.in_process:
        leave_room()  # this process looks at lenses with JAX, too, perhaps on a worker's GPU
    plan, began = as_plan(plan), time.time()
    store, path = prepare_folder(folder, ledger_file)
    progress, watch = Progress("checking sources and lenses"), watch or (lambda _: None)
    watch(progress)

    def notice(text: str) -> None:
        progress.notices.append(text)
        watch(progress)

    sources = find_sources(plan)
    ledger, mark = open_ledger(store, path)
    with ledger:
        lead = Lead.take(store)
        resumption = Resumption(plan, store, ledger, replan, notice)
        resumption.recover()
        compiled = _compile_ahead(plan, engine, ledger)
        lenses = find_lenses(plan)
        progress.show("comparing with what is there", watch)
        resumption.begin(sources, lenses)
        lost = resumption.check_pictures(sums=sums)
        number = ledger.start_run(time.time(), engine.name, engine.workers, engine.device())
        ledger.reopen()
        try:
            by_name = {source.name: source for group in sources.values() for source in group}
            order = WorkOrder(plan, replace(lead, replans=resumption.replans), mark, lenses, by_name)
            start = partial(PairWorker, order, ahead=not engine.in_process)
            leader = _Leader(plan, store, ledger, engine, start, progress, watch)
            leader.draw([task for split in plan.splits for task in draw_tasks(plan, split, sources[split])])
            compiled.result()
            limited = leader.make(limit)
            while resumption.settle(lead, leader.failures):
                lost, limited = True, leader.make(limit)
        finally:
            engine.close()
            ledger.end_run(number, time.time(), progress.pairs_now, progress.seconds)
        progress.show("writing the metadata", watch)
        _tidy_up(lead, engine)
        resumption.set_aside()
        changed = lost or progress.pairs_now > 0 or not is_metadata_of(plan, store, ledger)
        for split in plan.splits:
            if ledger.counts(split).get("done", 0) >= plan.split(split).pairs:
                surplus = surplus_pairs(plan, split, ledger)
                resumption.remove([record] for record in surplus)
                ledger.set_aside(split, surplus)
                changed = changed or bool(surplus)
        if changed:
            write_metadata(plan, store, ledger)
        lead.give_back()
        return _summary(plan, ledger, time.time() - began, limited, progress.notices)


def _tidy_up(lead: Lead, engine: Engine) -> None:
    """Where workers were lost, remove what they were writing, if the lead is still ours."""
    lead.require()
    if engine.losses:
        lead.store.sweep()


def _compile_ahead(plan: Plan, engine: Engine, ledger: Ledger) -> Future[None]:
    """Begin to compile where this process works and there is something to make: lenses are surveyed meanwhile. Other
    workers do so themselves, while candidates are drawn."""
    planned = sum(plan.split(split).pairs for split in plan.splits)
    if not engine.in_process or ledger.counts().get("done", 0) >= planned:
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing
    return ThreadPoolExecutor(1, thread_name_prefix="compile").submit(compile_psfs, plan)


@dataclass
class _Leader:
    """Gives out tasks, and writes what became of them into the ledger as it comes."""

    plan: Plan
    store: Store
    ledger: Ledger
    engine: Engine
    start: Start
    progress: Progress
    watch: Watcher
    failures: list[str] = field(default_factory=list)  # tasks that may have written something and have no result

    def draw(self, tasks: list[Task]) -> None:
        """First pass: every candidate of every split."""
        finished = self.ledger.finished()
        self.progress.candidates = sum(len(task.numbers) for task in tasks)
        self.progress.drawn = sum(len(task.numbers) for task in tasks if task.name in finished)
        self.progress.planned = sum(self.plan.split(split).pairs for split in self.plan.splits)
        self.progress.ends_at = self.progress.planned
        self._show("drawing candidates")
        self._do(task for task in tasks if task.name not in finished)

    def make(self, limit: int | None) -> bool:
        """Second pass, in as many rounds as refusals make necessary. Whether the limit ended it."""
        if limit is not None:
            self.progress.ends_at = min(self.progress.planned, limit)
        while True:
            self._show("making pairs")
            pairs = self.ledger.counts().get("done", 0)
            if limit is not None and pairs >= limit:
                return pairs < self.progress.planned
            if plan_shards(self.plan, self.ledger):
                keep_facts(self.store, self.ledger)
            if not self._do(make_tasks(self.plan, self.ledger, None if limit is None else limit - pairs)):
                return False

    def _do(self, tasks: Iterable[Task]) -> int:
        """Do tasks; how many there were.

        Reasons name files by their place below the plan's folders: a ledger that is passed on tells of no others.
        """
        places, count = self.plan.as_json(), 0
        try:
            for task, result in self.engine.run(self.start, tasks):
                if isinstance(result, Failure):
                    self.failures.append(task.name)
                    result = task.failed(result.reason)  # noqa: PLW2901
                outcomes = [replace(o, reason=placeless(o.reason, places)) for o in result.outcomes]
                self.ledger.take(task.name, outcomes, result.seconds)
                self.progress.add(task, result)
                self.watch(self.progress)
                count += 1
        except DatasetError as error:
            raise DatasetError(
                f"{error}; what is finished is safe: mend this and run the same command again to go on (where "
                "photographs or lenses are others now, --replan makes everything anew)"
            ) from error
        return count

    def _show(self, stage: str) -> None:
        counts = self.ledger.counts()
        self.progress.rejected, self.progress.failed = (counts.get(s, 0) for s in ("rejected", "failed"))
        self.progress.done = sum(standing_pairs(self.plan, split, self.ledger) for split in self.plan.splits)
        self.progress.show(stage, self.watch)


def _summary(plan: Plan, ledger: Ledger, seconds: float, limited: bool, notices: list[str]) -> RunSummary:
    pairs = {split: ledger.counts(split).get("done", 0) for split in plan.splits}
    planned = {split: plan.split(split).pairs for split in plan.splits}
    counts = ledger.counts()
    return RunSummary(
        pairs,
        planned,
        counts.get("rejected", 0),
        counts.get("failed", 0),
        seconds,
        complete=all(pairs[split] >= planned[split] for split in pairs),
        limited=limited,
        reasons=tuple((text, n) for _, n, text in merged_reasons(ledger.reasons().items()))[:REASONS],
        left_out=tuple(missing_depths(plan)),
        notices=tuple(notices),
    )
