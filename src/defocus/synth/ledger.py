"""The ledger: what became of every candidate of a data set, in an SQLite file that survives any kill.

Only the process that leads a run writes it, a transaction for each finished task. Files are written before their pairs
are marked as done, so that whatever the ledger calls done is there; what was written and not yet marked is made again,
with the same bytes.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.settings import settings_difference
from .places import absolute_places, apart_from_places, ledger_places, same_places
from .plan import Plan, completed
from .recipe import Outcome

FORMAT = 1
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
                _require_ledger(path)
                self._alone = _alone(path)
                self._db = sqlite3.connect(path, timeout=30.0)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            raise DatasetError(f"the ledger cannot be opened: {error}", file=path) from error

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
        if isinstance(error, sqlite3.Error):
            raise DatasetError(
                f"the ledger cannot be read or written: {error}; is the disk full?", file=self.path
            ) from error

    # --- the plan ---

    @property
    def plan(self) -> dict[str, Any] | None:
        """The plan that the folder was begun with, as JSON; its places as `ledger_places` makes them."""
        text = self.fact("plan")
        return None if text is None else completed(json.loads(text))

    def begin(self, plan: Plan, *, folder: Path | None = None, replan: bool = False) -> bool:
        """Take the plan, or refuse one that differs from what the folder was begun with; `replan` starts anew.

        `folder` is the data set's. True where the plan's own folders lie elsewhere than they did, and nothing else
        differs: `keep` takes it after a look at what is in them.
        """
        old, new = self.plan, plan.as_json()
        if old is not None and (before := apart_from_places(old)) != apart_from_places(new):
            difference = "; ".join(settings_difference(before, apart_from_places(new)))
            if not replan:
                raise DatasetError(
                    f"this folder was begun with another plan ({difference}): take another folder, or ask for "
                    "--replan, which forgets the pairs that are here and makes all of them anew",
                    file=self.path.parent,
                )
            self.forget()
        elif old is not None:
            return not same_places(absolute_places(old, folder), new)
        self.keep(plan, folder)
        return False

    def keep(self, plan: Plan, folder: Path | None = None) -> None:
        """Write down the plan, with the ways from the data set's folder to its own."""
        with self._db:
            self._put("plan", json.dumps(ledger_places(plan.as_json(), folder), sort_keys=True))
            self._put("format", str(FORMAT))

    def forget(self) -> None:
        """Remove all candidates, and whatever follows from them; not the plan, nor where the pictures are."""
        with self._db:
            for table in ("items", "tasks"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM facts WHERE key NOT IN ('plan', 'format', 'target')")

    def fact(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: str, value: str) -> None:
        with self._db:
            self._put(key, value)

    def _put(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    # --- the work ---

    def finished(self) -> set[str]:
        """Names of the tasks that need not be done again."""
        return {row[0] for row in self._db.execute("SELECT name FROM tasks")}

    def take(self, task: str, outcomes: Iterable[Outcome], seconds: dict[str, float] | None = None) -> None:
        """Note a finished task: either all of it is in the ledger, or nothing."""
        rows = []
        for outcome in outcomes:
            split, _, number = outcome.id.rpartition("-")
            record = None if outcome.record is None else json.dumps(outcome.record, sort_keys=True)
            rows.append((outcome.id, split, int(number), outcome.status, outcome.reason, record))
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?)", (task, json.dumps(seconds or {})))

    def set_aside(self, split: str, surplus: Iterable[str] = ()) -> None:
        """Candidates that a complete split did not need are spare, and so are pairs that it has beyond its number."""
        with self._db:
            self._db.execute("UPDATE items SET status = 'spare' WHERE split = ? AND status = 'drawn'", (split,))
            self._db.executemany("UPDATE items SET status = 'spare' WHERE id = ?", [(one,) for one in surplus])

    def reopen(self) -> None:
        """Before a run goes on: spare candidates count again, and failures are tried again.

        Failures may have a cause that is gone by now, such as a drive that was not there.
        """
        with self._db:
            self._db.execute("UPDATE items SET status = 'drawn' WHERE status = 'spare'")
            self._db.execute(
                "UPDATE items SET status = 'drawn', reason = '' WHERE status = 'failed' AND record IS NOT NULL"
            )
            lost = self._db.execute("SELECT split, number FROM items WHERE status = 'failed'").fetchall()
            draws = [name for name in self.finished() if name.startswith("draw/")]
            for split, number in lost:
                # The task that drew it begins at the largest number not above it. Others of its task are lost, too:
                # looked for among all tasks, they come to the same one, not to the one before.
                starts = [int(name.rpartition("/")[2]) for name in draws if name.startswith(f"draw/{split}/")]
                before = [start for start in starts if start <= number]
                if before:
                    self._db.execute("DELETE FROM tasks WHERE name = ?", (f"draw/{split}/{max(before)}",))
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
        rows = self._db.execute(
            "SELECT id, status, reason, record FROM items "
            "WHERE (?1 IS NULL OR split = ?1) AND (?2 IS NULL OR status = ?2) "
            "ORDER BY CASE split WHEN 'train' THEN 0 WHEN 'validation' THEN 1 ELSE 2 END, number",
            (split, status),
        )
        for identity, state, reason, record in rows:
            yield identity, state, reason, json.loads(record) if record else {}

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


def _require_ledger(path: Path) -> None:
    """Raise `DatasetError` for a database of something else, which is not to be written to."""
    if not path.is_file():
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and not {"facts", "items"} <= tables:
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
