"""The ledger: what became of every candidate of a data set, in an SQLite file that survives any kill.

Only the process that leads a run writes it, a transaction for each finished task. Files are written before their pairs
are marked as done, so that whatever the ledger calls done was there; what was written and not yet marked is known from
the record of its task (`folder`).
"""

from __future__ import annotations

import json
import re
import sqlite3
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import DatasetError
from .plan import SPLITS, completed
from .recipe import Outcome, Recipe

FORMAT = 1
AT_ONCE = 500  # records that are asked for together
_NUMBER = re.compile(r"(?<![\w.\-])[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w\-])", re.IGNORECASE)  # not in a name

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS items (
  id TEXT PRIMARY KEY, split TEXT NOT NULL, number INTEGER NOT NULL, status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '', record TEXT
);
CREATE INDEX IF NOT EXISTS items_by_split ON items (split, number);
CREATE TABLE IF NOT EXISTS tasks (name TEXT PRIMARY KEY, seconds TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
  id INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, engine TEXT NOT NULL, workers INTEGER NOT NULL,
  device TEXT NOT NULL, pairs INTEGER NOT NULL DEFAULT 0, seconds TEXT NOT NULL DEFAULT '{}'
);
"""


class Ranking(NamedTuple):
    """The candidates of a split that have a recipe, by number."""

    numbers: Int[np.ndarray, " n"]
    done: Bool[np.ndarray, " n"]
    drawn: Bool[np.ndarray, " n"]
    lost: Bool[np.ndarray, " n"]  # drawn, and made once before
    sharpness: Float[np.ndarray, "n scales"]


def ledger_failure(error: Exception, path: Path | str) -> DatasetError:
    """What SQLite says of a ledger, and what to do."""
    reason = " ".join(str(error).split())  # it may cite what is stored
    full = isinstance(error, sqlite3.OperationalError) and not re.search("malformed|decode", reason)
    advice = (
        "is the disk full?"
        if full
        else "a damaged one can be moved away: `defocus synth run` makes it anew from the folder's own records"
    )
    return DatasetError(f"the ledger cannot be read or written: {reason}; {advice}", file=path)


class Ledger:
    """The ledger of one data set: `items` are candidates, `tasks` the pieces of work that are finished."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._alone: sqlite3.Connection | None = None
        try:
            if read_only:
                if not path.is_file():
                    raise DatasetError(
                        "there is no ledger here: this is no data set made by `defocus synth run`", file=path
                    )
                self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)
            else:
                require_ledger(path)
                self._alone = _alone(path)
                self._db = sqlite3.connect(path, timeout=30.0)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            raise ledger_failure(error, path) from error

    def close(self) -> None:
        if self._alone is not None:
            with suppress(sqlite3.Error):  # while somebody reads it stays as it is
                # A log beside the file could not be opened in a folder that may only be read.
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        if self._alone is not None:
            self._alone.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):  # the latter of text that is no UTF-8
            raise ledger_failure(error, self.path) from error

    # --- facts ---

    @property
    def plan(self) -> dict[str, Any] | None:
        """The plan that the folder was begun with, as JSON; its places as `ledger_places` makes them."""
        text = self.fact("plan")
        try:
            return None if text is None else completed(json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise DatasetError(f"the ledger is damaged: its plan is none: {error}", file=self.path) from error

    def fact(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def facts(self) -> dict[str, str]:
        """All facts: the plan, the version, which names the splits have, what belongs in which shard."""
        return dict(self._db.execute("SELECT key, value FROM facts ORDER BY key").fetchall())

    def put(self, key: str, value: str) -> None:
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    def forget(self) -> None:
        """Remove all candidates, and whatever follows from them; not the plan, nor whose ledger this is."""
        with self._db:
            for table in ("items", "tasks"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM facts WHERE key NOT IN ('plan', 'format', 'folder', 'replans')")

    # --- the work ---

    def finished(self) -> set[str]:
        """Names of the tasks that need not be done again."""
        return {row[0] for row in self._db.execute("SELECT name FROM tasks")}

    def take(self, task: str, outcomes: Iterable[Outcome], seconds: dict[str, float] | None = None) -> None:
        """Note a finished task: either all of it is in the ledger, or nothing.

        Candidates that are drawn once more stay what they have become meanwhile.
        """
        rows = []
        for outcome in outcomes:
            split, _, number = outcome.id.rpartition("-")
            record = None if outcome.record is None else json.dumps(outcome.record, sort_keys=True)
            rows.append((outcome.id, split, int(number), outcome.status, outcome.reason, record))
        conflict = "IGNORE" if task.startswith("draw/") else "REPLACE"
        with self._db:
            self._db.executemany(f"INSERT OR {conflict} INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?)", (task, json.dumps(seconds or {})))

    def set_aside(self, split: str, surplus: Iterable[dict[str, Any]] = ()) -> None:
        """Candidates that a complete split did not need are spare, and so are pairs that it has beyond its number."""
        recipes = [Recipe.from_json(record).to_json() for record in surplus]
        with self._db:
            self._db.execute("UPDATE items SET status = 'spare' WHERE split = ? AND status = 'drawn'", (split,))
            self._db.executemany(
                "UPDATE items SET status = 'spare', record = ? WHERE id = ?",
                [(json.dumps(recipe, sort_keys=True), recipe["id"]) for recipe in recipes],
            )

    def make_again(self, ids: Iterable[str], tasks: Iterable[str] = ()) -> None:
        """Pairs whose pictures are lost are candidates again, and shards tasks again; their records stay."""
        with self._db:
            self._db.executemany("UPDATE items SET status = 'drawn' WHERE id = ?", [(one,) for one in ids])
            self._db.executemany("DELETE FROM tasks WHERE name = ?", [(task,) for task in tasks])

    def reopen(self) -> None:
        """Before a run goes on: spare candidates count again, and failures are tried again.

        Failures may have a cause that is gone by now, such as a drive that was not there.
        """
        starts: dict[str, list[int]] = defaultdict(list)
        for name in self.finished():
            kind, _, rest = name.partition("/")
            if kind == "draw":
                split, _, number = rest.partition("/")
                starts[split].append(int(number))
        for numbers in starts.values():
            numbers.sort()
        with self._db:
            self._db.execute("UPDATE items SET status = 'drawn' WHERE status = 'spare'")
            self._db.execute(
                "UPDATE items SET status = 'drawn', reason = '' WHERE status = 'failed' AND record IS NOT NULL"
            )
            lost = set()
            for split, number in self._db.execute("SELECT split, number FROM items WHERE status = 'failed'"):
                # The task that drew it begins at the largest number not above it.
                if place := bisect_right(starts[split], number):
                    lost.add((f"draw/{split}/{starts[split][place - 1]}",))
            self._db.executemany("DELETE FROM tasks WHERE name = ?", list(lost))
            self._db.execute("DELETE FROM items WHERE status = 'failed'")

    def counts(self, split: str | None = None) -> dict[str, int]:
        """How many candidates there are of each status."""
        where, values = ("", ()) if split is None else (" WHERE split = ?", (split,))
        rows = self._db.execute(f"SELECT status, COUNT(*) FROM items{where} GROUP BY status", values)
        return dict(rows.fetchall())

    def reasons(self) -> dict[str, int]:
        """Why candidates were not made into pairs, and how many, the most frequent first."""
        rows = self._db.execute(
            "SELECT reason, COUNT(*) FROM items WHERE status IN ('rejected', 'failed') GROUP BY reason ORDER BY 2 DESC"
        )
        return dict(rows.fetchall())

    def items(
        self, split: str | None = None, status: str | None = None
    ) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """(id, status, reason, record) in the order of splits and numbers."""
        for one in SPLITS if split is None else (split,):  # the index has their order: nothing is sorted
            rows = self._db.execute(
                "SELECT id, status, reason, record FROM items "
                "WHERE split = ?1 AND (?2 IS NULL OR status = ?2) ORDER BY number",
                (one, status),
            )
            for identity, state, reason, record in rows:
                yield identity, state, reason, json.loads(record) if record else {}

    def done(self) -> Generator[dict[str, Any], None, None]:
        """Records of all pairs, in the order of splits and numbers."""
        return (record for _, _, _, record in self.items(status="done"))

    def ranking(self, split: str) -> Ranking:
        """What decides which candidates of a split become pairs, without their records."""
        rows = self._db.execute(
            "SELECT number, status, json_extract(record, '$.sharpness'), json_type(record, '$.files') FROM items "
            "WHERE split = ? AND record IS NOT NULL ORDER BY number",
            (split,),
        )
        numbers, states, measures = array("q"), array("b"), array("d")
        for number, status, sharpness, files in rows:
            numbers.append(number)
            states.append({"done": 1, "drawn": 2 if files is None else 3}.get(status, 0))
            measures.extend(json.loads(sharpness or "[0]"))
        status = np.array(states, np.int8)
        measured = np.array(measures, float).reshape(len(numbers), -1) if numbers else np.zeros((0, 1))
        return Ranking(np.array(numbers, np.int64), status == 1, status >= 2, status == 3, measured)

    def records(self, split: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Records of some candidates of a split, in the order of their numbers."""
        records: list[dict[str, Any]] = []
        ordered = sorted(int(number) for number in numbers)
        for start in range(0, len(ordered), AT_ONCE):
            part = ordered[start : start + AT_ONCE]
            marks = ", ".join("?" * len(part))
            rows = self._db.execute(
                f"SELECT record FROM items WHERE split = ? AND number IN ({marks}) ORDER BY number", (split, *part)
            )
            records += [json.loads(row[0]) for row in rows]
        return records

    # --- what the runs did ---

    def start_run(self, started: float, engine: str, workers: int, device: str) -> int:
        with self._db:
            cursor = self._db.execute(
                "INSERT INTO runs (started, engine, workers, device) VALUES (?, ?, ?, ?)",
                (started, engine, workers, device),
            )
        return int(cursor.lastrowid or 0)

    def end_run(self, run: int, ended: float, pairs: int, seconds: dict[str, float]) -> None:
        with self._db:
            self._db.execute(
                "UPDATE runs SET ended = ?, pairs = ?, seconds = ? WHERE id = ?",
                (ended, pairs, json.dumps(seconds), run),
            )

    def runs(self) -> list[dict[str, Any]]:
        """Begun and ended (None: killed), engine, workers, pairs made, seconds by stage."""
        columns = ("started", "ended", "engine", "workers", "device", "pairs", "seconds")
        rows = self._db.execute(f"SELECT {', '.join(columns)} FROM runs ORDER BY id")
        return [dict(zip(columns, row, strict=True)) | {"seconds": json.loads(row[-1])} for row in rows]


def merged_reasons(reasons: Iterable[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Reasons that differ in their numbers alone as one: (text with n for numbers, count, an example), most first."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for reason, count in reasons:
        merged = _NUMBER.sub("n", reason) or "no reason given"
        counts[merged] += count
        examples.setdefault(merged, reason)
    return [(text, count, examples[text]) for text, count in counts.most_common()]


def require_ledger(path: Path) -> None:
    """Raise `DatasetError` for a database of something else, which is not to be written to."""
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as db:
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            ours = {"facts", "items", "tasks", "runs"} <= tables
            columns = {row[1] for row in db.execute("PRAGMA table_info(items)")} if ours else set()
    except sqlite3.Error as error:
        raise ledger_failure(error, path) from error
    if tables and not {"id", "split", "number", "status", "reason", "record"} <= columns:
        raise DatasetError(f"no ledger of a data set: a database with {sorted(tables)[0]}; move it away", file=path)


def _alone(path: Path) -> sqlite3.Connection:
    """A lock beside the ledger, which goes with the process: two runs would remove each other's files."""
    lock = sqlite3.connect(path.with_name(f".{path.name}.lock"), timeout=0.0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise DatasetError("another run is at work here: wait for its end, or stop it", file=path.parent) from error
    return lock
