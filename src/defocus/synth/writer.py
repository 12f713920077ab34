"""What is written into the folder of a data set: pictures as pairs are made, and what stands beside them at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import DatasetError
from ..files.pair_folders import JSON_LINES, LEDGER, PLAN, pictures_of
from ..files.pictures import decode_picture
from ..files.png import png_bytes
from ..files.stores import Store, open_store
from .dataset_card import card_text
from .layouts import file_facts, is_picture_path, pair_paths, shard_bytes, shard_path
from .ledger import Ledger
from .metadata import CARD, CHECKSUMS, SAMPLE, TABLE, checksums_text, jsonl_bytes, table_bytes
from .pairs import Pair, Stopwatch
from .places import published_places
from .plan import Plan
from .tasks import Task

SAMPLES = 12  # pairs of the sample figure
THREADS = 6  # that compress and write pictures


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


class PairWriter:
    """Compresses the pictures of pairs and writes them in a layout, in threads of its own."""

    def __init__(self, store: Store, layout: str) -> None:
        self._store, self._layout = store, layout
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="write")

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def write(self, task: Task, pairs: Sequence[Pair], watch: Stopwatch) -> dict[str, dict[str, Any]]:
        """Write the pairs of a task; for each id and role path, sha256 and bytes of its file or member of a shard."""
        ids = [pair.recipe.id for pair in pairs]
        encoded = list(self._threads.map(_encoded, pairs))
        watch.lap("encode")
        if task.shard is None:
            files = dict(zip(ids, self._threads.map(self._write_pair, ids, encoded), strict=True))
        elif pairs:
            path = shard_path(task.split, task.shard)
            data, index = shard_bytes(zip(ids, encoded, (pair.record for pair in pairs), strict=True))
            self._store.write(path, data)
            files = {one: {role: about | {"path": path} for role, about in own.items()} for one, own in index.items()}
        else:
            files = {}
        watch.lap("write")
        return files

    def _write_pair(self, identity: str, pictures: dict[str, bytes]) -> dict[str, Any]:
        paths = pair_paths(self._layout, identity, tuple(pictures))
        for role, path in paths.items():
            self._store.write(path, pictures[role])
        return {role: {"path": path} | file_facts(pictures[role]) for role, path in paths.items()}


def _encoded(pair: Pair) -> dict[str, bytes]:
    return {role: png_bytes(values) for role, values in pair.pictures.items()}


def finish_folder(plan: Plan, store: Store, ledger: Ledger) -> None:
    """Plan, metadata, card, sample figure and checksums of what is done so far; the same bytes for the same pairs."""
    records = [record for _, _, _, record in ledger.items(status="done")]
    # Pictures that no pair has: of an older plan, or of a killed task whose pairs were not chosen again.
    pictures = {about["path"] for record in records for about in record["files"].values()}
    for path in store.listing():
        if is_picture_path(path) and path not in pictures:
            store.remove(path)
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


def _sample(store: Store, records: list[dict[str, Any]]) -> bytes:
    from ..draw import draw_samples, figure_bytes

    step = max(1, len(records) // SAMPLES)
    shown = records[::step][:SAMPLES]
    pairs = []
    for record, files in pictures_of(store, shown, ("blurred", "sharp")):
        caption = (
            f"{record['lens']}, focus {record['focus_m']:.3g} m, blur up to {max(map(abs, record['coc_px'])):.1f} px"
        )
        pairs.append((decode_picture(files["blurred"]), decode_picture(files["sharp"]), caption))
    return figure_bytes(draw_samples(pairs), dpi=100.0)
