"""A folder before and after the work: where the ledger lies, and what stands beside the pictures at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import DatasetError
from ..files.pair_folders import JSON_LINES, LEDGER, PLAN, pictures_of
from ..files.pictures import decode_picture
from ..files.stores import Store, open_store
from .dataset_card import card_text
from .layouts import is_picture_path
from .ledger import Ledger
from .metadata import CARD, CHECKSUMS, SAMPLE, TABLE, checksums_text, jsonl_bytes, table_bytes
from .places import published_places
from .plan import Plan

SAMPLES = 12  # pairs of the sample figure


def prepare_folder(target: str | Path, ledger: Path | None = None) -> tuple[Store, Path]:
    """The store and the ledger's file.

    An address that is no folder of this machine needs a ledger's file of its own: SQLite must be able to lock it.
    """
    store = open_store(target)
    if store.folder is None:
        if ledger is None:
            raise DatasetError(
                "not a folder of this machine: say where the ledger is to be kept (--ledger)", file=store.root
            )
        file = ledger
        strangers = [] if file.exists() else store.listing()
    else:
        try:
            store.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatasetError(f"cannot be made: {error.strerror}", file=store.folder) from error
        file = ledger or store.folder / LEDGER
        strangers = [p.name for p in store.folder.iterdir() if not p.name.startswith(".")]
    if strangers and not file.exists():
        raise DatasetError(
            f"the folder is not empty ({', '.join(sorted(strangers)[:3])}) and holds no ledger: take a new one",
            file=store.root,
        )
    store.check_writable()
    return store, file


def finish_folder(plan: Plan, store: Store, ledger: Ledger) -> None:
    """Plan, metadata, card, sample figure and checksums of what is done so far; the same bytes for the same pairs."""
    records = [record for _, _, _, record in ledger.items(status="done")]
    _remove_others(store, records)
    about = {
        "defocus": __version__,
        "fingerprint": plan.fingerprint,
        "plan": published_places(plan.as_json(), store.folder),
    }
    store.write(PLAN, json.dumps(about, indent=1).encode() + b"\n")
    store.write(JSON_LINES, jsonl_bytes(records))
    store.write(TABLE, table_bytes(records))
    written = [PLAN, JSON_LINES, TABLE]
    if records:
        store.write(SAMPLE, _sample(store, records))
        written.append(SAMPLE)
    store.write(CARD, card_text(plan, records, sample=bool(records)).encode())
    store.write(CHECKSUMS, checksums_text(store, records, [*written, CARD]).encode())


def _remove_others(store: Store, records: list[dict[str, Any]]) -> None:
    """Pictures that no pair has: of an older plan, or of a killed task whose pairs were not chosen again."""
    listed = {about["path"] for record in records for about in record["files"].values()}
    for path in store.listing():
        if is_picture_path(path) and path not in listed:
            store.remove(path)


def _sample(store: Store, records: list[dict[str, Any]]) -> bytes:
    from ..draw import draw_samples, figure_png

    step = max(1, len(records) // SAMPLES)
    shown = records[::step][:SAMPLES]
    pairs = []
    for record, files in pictures_of(store, shown, ("blurred", "sharp")):
        caption = (
            f"{record['lens']}, focus {record['focus_m']:.3g} m, blur up to {max(map(abs, record['coc_px'])):.1f} px"
        )
        pairs.append((decode_picture(files["blurred"]), decode_picture(files["sharp"]), caption))
    return figure_png(draw_samples(pairs))
