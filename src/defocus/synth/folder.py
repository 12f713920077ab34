"""A finished folder of pairs, opened to read: its plan, its records, its pictures."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.stores import Store, open_store
from .layouts import read_shard
from .ledger import NAME as LEDGER
from .ledger import Ledger
from .metadata import JSON_LINES, PLAN, Record, read_jsonl
from .places import found_places


@dataclass(frozen=True, slots=True)
class PairFolder:
    """Records come from the ledger where there is one, else from the lines of JSON. The plan has whole paths again."""

    store: Store
    plan: dict[str, Any]
    ledger: Ledger | None

    def records(self) -> Iterator[dict[str, Any]]:
        """Of all pairs, in the order of splits and numbers."""
        if self.ledger is None:
            yield from read_jsonl(self.store.read(JSON_LINES), self.store.place(JSON_LINES))
            return
        try:
            for _, _, _, record in self.ledger.items(status="done"):
                yield record
        except (sqlite3.Error, ValueError) as error:
            raise DatasetError(f"the ledger is damaged: {error}", file=self.ledger.path) from error

    def close(self) -> None:
        if self.ledger is not None:
            self.ledger.close()


def is_pair_folder(store: Store) -> bool:
    """Whether `defocus synth run` made it: it holds a ledger or lines of JSON beside its plan."""
    return store.exists(LEDGER) or (store.exists(JSON_LINES) and store.exists(PLAN))


def open_folder(folder: str | Path) -> PairFolder:
    """Raises `DatasetError` if it is no folder that `defocus synth run` made."""
    store = open_store(folder)
    if store.folder is not None and not store.folder.is_dir():
        raise DatasetError("there is no such folder", file=store.root)
    if not is_pair_folder(store):
        raise DatasetError(f"no data set made by `defocus synth run`: it holds no {LEDGER}", file=store.root)
    local = store.folder is not None and store.exists(LEDGER)
    ledger = Ledger(Path(store.root) / LEDGER, read_only=True) if local else None
    try:
        plan = ledger.plan if ledger is not None else None
    except (sqlite3.Error, ValueError) as error:
        raise DatasetError(f"the ledger is damaged: {error}", file=store.place(LEDGER)) from error
    if plan is None:
        try:
            plan = json.loads(store.read(PLAN))
        except ValueError as error:
            raise DatasetError(f"no JSON: {error}", file=store.place(PLAN)) from error
        if isinstance(plan, dict):  # among what is said of the program
            plan = plan.get("plan", plan)
    if not isinstance(plan, dict):
        raise DatasetError("no plan: it is no JSON object", file=store.place(PLAN))
    return PairFolder(store, found_places(plan, store.folder), ledger)


def pictures_of(
    store: Store, records: Iterable[Record], roles: Iterable[str]
) -> Iterator[tuple[Record, dict[str, bytes]]]:
    """Each record with the files of its pictures; of a shard, read once for all pairs that follow each other in it."""
    roles = tuple(roles)
    shard: tuple[str, dict[str, bytes]] = ("", {})
    for record in records:
        found: dict[str, bytes] = {}
        for role in roles:
            about = record["files"].get(role)
            if about is None:
                continue
            path = about["path"]
            if "member" not in about:
                found[role] = store.read(path)
                continue
            if shard[0] != path:
                shard = path, read_shard(store.read(path), store.place(path))
            if about["member"] not in shard[1]:
                raise DatasetError(f"the shard holds no {about['member']}", file=store.place(path))
            found[role] = shard[1][about["member"]]
        yield record, found
