"""The folder of a data set: whose it is, its ledger, and the records of tasks whose pairs the ledger may not hold yet.

A data set's folder carries our mark (`files/ownership.py`), and its ledger names the mark's identity: a ledger goes
with one folder, wherever both lie. Before a worker writes the pictures of a task it writes a record of them, with the
sum of each, into a hidden folder: whatever a killed run leaves behind is known by name and sum, and a lost ledger can
be made anew from these records, `pairs.jsonl` and a hidden file of facts. At its end a run folds the records into
`pairs.jsonl`.

Workers may outlive their leader, on a cluster by half a minute. Each start of a run therefore takes the lead: a hidden
file names it, the records of its tasks bear its name, and a worker whose start has lost the lead writes no more. What
such a worker was writing at that moment is known by its record, and is the same bytes while the plan is the same.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.ownership import MARK, Mark, claim, read_mark, strangers
from ..files.pair_folders import LEDGER, PLAN, existing_store, is_pair_folder, read_records
from ..files.stores import Store, open_store
from .ledger import Ledger, ledger_failure, require_ledger
from .places import absolute_places
from .recipe import Outcome, record_fault

KIND = "data set"
# Hidden, in the data set's folder.
TASKS, FACTS, ASIDE, LEAD = ".defocus-tasks", ".defocus-run.json", ".defocus-damaged", ".defocus-lead"


# --- a folder to read ---


@dataclass(frozen=True, slots=True)
class PairFolder:
    """A data set with its plan, whose paths are whole again; the ledger is None where it lies elsewhere."""

    store: Store
    plan: dict[str, Any]
    ledger: Ledger | None

    def records(self) -> Iterator[dict[str, Any]]:
        """Records of all pairs, in the order of splits and numbers."""
        return read_records(self.store)

    def __enter__(self) -> PairFolder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.ledger is not None:
            self.ledger.__exit__(kind, error, trace)


def open_folder(folder: str | Path) -> PairFolder:
    """The data set in a folder. Raises `DatasetError` if `defocus synth run` did not make it."""
    store = existing_store(folder)
    if not is_pair_folder(store):
        raise DatasetError(f"no data set made by `defocus synth run`: it holds no {LEDGER}", file=store.root)
    local = store.folder is not None and store.exists(LEDGER)
    ledger = Ledger(Path(store.root) / LEDGER, read_only=True) if local else None
    try:
        plan = ledger.plan if ledger is not None else None
        plan = absolute_places(plan or read_plan(store)["plan"], store.folder)
    except sqlite3.Error as error:
        raise ledger_failure(error, store.place(LEDGER)) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        name = LEDGER if ledger is not None else PLAN
        raise DatasetError(f"the plan in it is damaged: {error}", file=store.place(name)) from error
    return PairFolder(store, plan, ledger)


def read_plan(store: Store) -> dict[str, Any]:
    """What `plan.json` says: the plan, and the version that made the pairs. Raises `DatasetError` for a damaged one."""
    try:
        about = json.loads(store.read(PLAN))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"no JSON: {error}", file=store.place(PLAN)) from error
    about = about if isinstance(about, dict) and "plan" in about else {"plan": about}  # of older versions
    if not isinstance(about["plan"], dict):
        raise DatasetError("no plan: it is no JSON object", file=store.place(PLAN))
    return about


# --- a folder to write ---


def prepare_folder(target: str | Path, ledger: Path | None = None) -> tuple[Store, Path]:
    """The store, which carries our mark from now on, and the ledger's file.

    An address that is no folder of this machine needs a ledger's file of its own: SQLite must be able to lock it.
    Raises `OwnershipError` for a folder that holds other things than a data set.
    """
    store = open_store(target)
    if store.folder is None and ledger is None:
        raise DatasetError("not a folder of this machine: say where to keep the ledger (--ledger)", file=store.root)
    file = ledger or Path(store.root) / LEDGER
    if read_mark(store) is None:
        fits = _fits_unmarked(store, file)
        if fits:
            store.write(MARK, Mark(KIND, uuid.uuid4().hex).as_bytes())
        elif not strangers(store):  # a place that is new stays as it is where the ledger is refused
            require_ledger(file)
            if fits is not None:
                raise _foreign_ledger(store, file)
    if store.folder is not None:
        try:
            store.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatasetError(f"cannot be made: {error.strerror}", file=store.folder) from error
    claim(store, KIND)
    store.check_writable()
    return store, file


def open_ledger(store: Store, file: Path) -> tuple[Ledger, Mark]:
    """The ledger of a folder and the folder's mark. Raises `DatasetError` for the ledger of another folder."""
    ledger = Ledger(file)
    mark = claim(store, KIND)
    try:
        identity = ledger.fact("folder")
        if identity is None and (ledger.plan is None or _goes_with(ledger, store)):
            ledger.put("folder", identity := mark.identity)
    except sqlite3.Error as error:
        ledger.close()
        raise ledger_failure(error, file) from error
    if identity != mark.identity:
        ledger.close()
        raise _foreign_ledger(store, file)
    return ledger, mark


def _foreign_ledger(store: Store, file: Path) -> DatasetError:
    return DatasetError(f"this ledger is that of another data set: take another for {store.root}", file=file)


def _fits_unmarked(store: Store, file: Path) -> bool | None:
    """Whether a ledger goes with a folder without a mark, as versions that set none left them; None without one."""
    if not file.is_file() or not file.stat().st_size:
        return None
    with suppress(sqlite3.Error, DatasetError, ValueError), Ledger(file, read_only=True) as ledger:
        if ledger.fact("folder") is not None:
            return False
        return None if ledger.plan is None else _goes_with(ledger, store)
    return None


def _goes_with(ledger: Ledger, store: Store) -> bool:
    """Whether a ledger that names no mark lies in the folder, or was kept for it."""
    inside = store.folder is not None and ledger.path.resolve().parent == store.folder.resolve()
    return ledger.fact("target") == store.root or (inside and ledger.fact("target") is None)


def keep_facts(store: Store, ledger: Ledger) -> None:
    """Write down beside the pictures what a ledger would have to be made anew from."""
    facts = {key: value for key, value in ledger.facts().items() if key not in ("folder", "target")}
    store.write(FACTS, json.dumps(facts, indent=1).encode())


def read_facts(store: Store) -> dict[str, str]:
    """What `keep_facts` wrote; of a data set that was passed on without it what `plan.json` says; else nothing."""
    if store.exists(FACTS):
        try:
            facts = {str(key): str(value) for key, value in json.loads(store.read(FACTS)).items()}
            for key, value in facts.items():
                if key != "version":
                    json.loads(value)
            return facts
        except (ValueError, AttributeError, RecursionError) as error:
            raise DatasetError(f"is damaged: {error}", file=store.place(FACTS)) from error
    if not store.exists(PLAN):
        return {}
    about = read_plan(store)
    facts = {"plan": json.dumps(about["plan"], sort_keys=True)}
    return facts | ({"version": str(about["defocus"])} if "defocus" in about else {})


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead of one start of a run over a folder, which the next start takes from it; can be pickled."""

    store: Store
    name: str
    replans: int = 0  # how often all pairs were made anew before: records of before are not taken for pairs of now

    @classmethod
    def take(cls, store: Store) -> Lead:
        """The lead of a new start: from now on workers of others write no more."""
        lead = cls(store, uuid.uuid4().hex[:12])
        store.write(LEAD, lead.name.encode())
        return lead

    def require(self) -> None:
        """Raise `DatasetError` if another start has the lead now, or this one gave it back."""
        if not self.store.exists(LEAD) or self.store.read(LEAD).decode("ascii", "replace") != self.name:
            raise DatasetError("another run has begun in this folder, and this one ends", file=self.store.root)

    def give_back(self) -> None:
        """Remove the records of its tasks, which are folded by now, and end it: its workers write no more either.

        A record that another wrote meanwhile is left to the next start.
        """
        for path in task_paths(self.store):
            if path.startswith(self.task_path()):
                self.store.remove(path)
        self.store.remove(LEAD)

    def task_path(self, task: str = "") -> str:
        """Path of the record of one of its tasks; without one, what those of all begin with."""
        return f"{TASKS}/{self.name}-" + (f"{task.replace('/', '-')}.json" if task else "")

    def write_task(self, task: str, outcomes: Iterable[Outcome], seconds: dict[str, float]) -> None:
        """Write down a task whose pictures are written next, while this start has the lead."""
        self.require()
        content: dict[str, Any] = {"task": task, "outcomes": [*map(asdict, outcomes)], "seconds": seconds}
        content |= {"replans": self.replans} if self.replans else {}
        self.store.write(self.task_path(task), json.dumps(content).encode())


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """What a worker wrote down of a task before it wrote the task's pictures."""

    task: str
    outcomes: tuple[Outcome, ...]
    seconds: dict[str, float]
    replans: int

    def groups(self) -> list[list[dict[str, Any]]]:
        """The records of its pairs: those of a shard together, others each alone."""
        records = [outcome.record for outcome in self.outcomes if outcome.status == "done" and outcome.record]
        in_shard = any("member" in about for record in records for about in record["files"].values())
        return [records] if in_shard else [[record] for record in records]


def task_paths(store: Store) -> list[str]:
    """Paths of the records of tasks that are not folded yet."""
    return [path for path in store.listing(TASKS, hidden=True) if path.endswith(".json")]


def read_tasks(store: Store, paths: Iterable[str]) -> Iterator[tuple[str, TaskRecord]]:
    """Records of tasks by their paths."""
    for path in paths:
        try:
            content = json.loads(store.read(path))
            outcomes = tuple(Outcome(**outcome) for outcome in content["outcomes"])
            for outcome in outcomes:
                if outcome.status == "done" and (fault := record_fault(outcome.record or {})):
                    raise ValueError(fault)
            replans = int(content.get("replans", 0))
            record = TaskRecord(str(content["task"]), outcomes, dict(content["seconds"]), replans)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DatasetError(
                f"the record of a task is damaged ({error}): remove it, and what it was about is told by name",
                file=store.place(path),
            ) from error
        yield path, record
