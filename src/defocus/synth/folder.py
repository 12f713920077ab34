"""A folder that `defocus synth run` made, opened to read: its plan, its records, its ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.pair_folders import LEDGER, PLAN, existing_store, is_pair_folder, read_records
from ..files.stores import Store
from .ledger import Ledger
from .places import absolute_places


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

    def __exit__(self, *_: object) -> None:
        if self.ledger is not None:
            self.ledger.close()


def open_folder(folder: str | Path) -> PairFolder:
    """The data set in a folder. Raises `DatasetError` if `defocus synth run` did not make it."""
    store = existing_store(folder)
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
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"no JSON: {error}", file=store.place(PLAN)) from error
        if isinstance(plan, dict):  # among what is said of the program
            plan = plan.get("plan", plan)
    if not isinstance(plan, dict):
        raise DatasetError("no plan: it is no JSON object", file=store.place(PLAN))
    return PairFolder(store, absolute_places(plan, store.folder), ledger)
