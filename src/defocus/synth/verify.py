"""Whether a folder of pairs is whole: one that `defocus synth run` made, or any other in the usual layouts.

Problems are collected, not raised; only a folder that cannot be looked at at all is an error.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.pictures import decode_picture
from ..files.png import png_bits
from ..files.stores import Store, open_store
from .folder import PairFolder, is_pair_folder, open_folder
from .layouts import read_shard
from .metadata import CHECKSUMS, JSON_LINES, TABLE, Record, jsonl_bytes, read_checksums, table_bytes
from .verify_foreign import verify_foreign

Progress = Callable[[int, int], None]
_NEEDED = ("id", "split", "source", "lens", "patch_px", "files")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was looked at, how often, and what is wrong."""

    counts: dict[str, int]
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems


def verify_folder(folder: str | Path, *, pictures: bool = True, progress: Progress | None = None) -> Verdict:
    """Check every file of a data set.

    `pictures`: read and decode them too (files are always looked for). `progress` is called with pieces of work done
    and in all. A folder without metadata is checked as DPDD or as input and target folders.
    """
    store = open_store(folder)
    if store.folder is not None and not store.folder.is_dir():
        raise DatasetError("there is no such folder", file=store.root)
    if not is_pair_folder(store):
        counts, problems = verify_foreign(store, pictures=pictures, progress=progress)
        return Verdict(counts, problems)
    opened = open_folder(folder)
    try:
        return _verify_own(opened, pictures, progress)
    finally:
        opened.close()


def _verify_own(opened: PairFolder, pictures: bool, progress: Progress | None) -> Verdict:
    store = opened.store
    records = list(opened.records())
    problems = _incomplete_records(records)
    if problems:
        return Verdict({"pairs": len(records)}, problems)
    problems += _metadata(opened, records)
    problems += _splits(records)
    there = set(store.listing())
    paths = [about["path"] for record in records for about in record["files"].values()]
    promised = set(paths)
    problems += [f"{path}: missing" for path in sorted(promised - there)]
    doubled = [path for path, times in Counter(paths).items() if times > 1 and path.endswith(".png")]
    problems += [f"{path}: belongs to several pairs" for path in doubled]
    extra = {p for p in there - promised if p.endswith((".png", ".tar")) and "/" in p}
    problems += [f"{path}: belongs to no pair" for path in sorted(extra)]
    listed = read_checksums(store.read(CHECKSUMS).decode("utf-8", "replace")) if CHECKSUMS in there else {}
    problems += _checksums(store, records, there, listed)
    bits = int(opened.plan["output"]["bits"])
    counts: Counter[str] = Counter(pairs=len(records), files=len(promised))
    for record in records:
        counts[f"{record['split']} pairs"] += 1
    if pictures:
        work = [list(group) for _, group in groupby(records, _place)]
        present = [group for group in work if _place(group[0]) in there]
        for told, seen in _in_parallel(lambda group: _pictures(store, group, bits, listed), present, progress):
            problems += told
            counts["pictures decoded"] += seen
    return Verdict(dict(counts), problems)


def _place(record: Record) -> str:
    """A record's shard, or its first picture."""
    return next(about["path"] for about in record["files"].values())


def _incomplete_records(records: list[dict[str, Any]]) -> list[str]:
    told = []
    for number, record in enumerate(records, 1):
        missing = [key for key in _NEEDED if key not in record]
        roles = {"blurred", "sharp"} - set(record.get("files", {}))
        if missing or roles:
            name = record.get("id", f"record {number}")
            told.append(f"{name}: its record lacks {', '.join([*missing, *sorted(f'files.{r}' for r in roles)])}")
    return told


def _metadata(opened: PairFolder, records: list[dict[str, Any]]) -> list[str]:
    """The lines of JSON and the table say what the ledger says, byte for byte."""
    told = []
    for name, make in ((JSON_LINES, jsonl_bytes), (TABLE, table_bytes)):
        if not opened.store.exists(name):
            told.append(f"{name}: missing")
        elif opened.store.read(name) != make(records):
            of = "the ledger" if opened.ledger is not None else JSON_LINES
            told.append(f"{name}: does not say what {of} says")
    if opened.ledger is not None:
        unfinished = opened.ledger.counts().get("drawn", 0)
        if unfinished:
            told.append(f"{unfinished} chosen pairs are not made yet: run the same `defocus synth run` again")
        for split in ("train", "validation", "test"):
            wanted = int(opened.plan.get(split, {}).get("pairs", 0))
            made = sum(record["split"] == split for record in records)
            if made < wanted:
                told.append(f"{split}: {made} of the {wanted} planned pairs")
    return told


def _splits(records: list[dict[str, Any]]) -> list[str]:
    told = []
    for what, key in (("image", "source"), ("lens", "lens")):
        where: dict[str, set[str]] = {}
        for record in records:
            where.setdefault(record[key], set()).add(record["split"])
        told += [
            f"the {what} {name} is in several splits: {', '.join(sorted(splits))}"
            for name, splits in sorted(where.items())
            if len(splits) > 1
        ]
    return told


def _checksums(store: Store, records: list[dict[str, Any]], there: set[str], listed: dict[str, str]) -> list[str]:
    """The list of checksums is there, complete, and agrees with the records and small files; shards are read later."""
    if CHECKSUMS not in there:
        return [f"{CHECKSUMS}: missing"]
    sums = {about["path"]: about["sha256"] for r in records for about in r["files"].values() if "member" not in about}
    shards = {about["path"] for r in records for about in r["files"].values() if "member" in about}
    told = [f"{CHECKSUMS}: does not list {path}" for path in sorted((set(sums) | shards) - set(listed))]
    for path, digest in listed.items():
        if path in sums:
            if sums[path] != digest:
                told.append(f"{CHECKSUMS}: another sum for {path} than its record holds")
        elif path not in there:
            told += [f"{path}: missing, though {CHECKSUMS} lists it"] if path not in shards else []
        elif path not in shards and hashlib.sha256(store.read(path)).hexdigest() != digest:
            told.append(f"{path}: not what {CHECKSUMS} says")
    return told


def _pictures(store: Store, records: list[dict[str, Any]], bits: int, listed: dict[str, str]) -> tuple[list[str], int]:
    """Problems of the pictures of one shard, or of one pair, and how many were decoded."""
    told: list[str] = []
    seen = 0
    members: dict[str, bytes] | None = None
    if "member" in records[0]["files"]["blurred"]:
        path = _place(records[0])
        try:
            shard = store.read(path)
            if listed.get(path, "") not in ("", hashlib.sha256(shard).hexdigest()):
                told.append(f"{path}: not what {CHECKSUMS} says")
            members = read_shard(shard, path)
        except DatasetError as error:
            return [str(error)], 0
        promised = {about["member"] for record in records for about in record["files"].values()}
        lines = {name.partition(".")[0] + ".json" for name in promised}
        told += [f"{path}: {name} belongs to no pair" for name in members if name not in promised | lines]
        told += [f"{path}: holds no {name}" for name in sorted(lines - set(members))]
    for record in records:
        shapes = {}
        for role, about in record["files"].items():
            name = about["path"] if members is None else f"{about['path']}: {about['member']}"
            try:
                data = store.read(about["path"]) if members is None else members[about["member"]]
            except (DatasetError, KeyError):
                told += [] if members is None else [f"{about['path']}: holds no {about['member']}"]
                continue  # a missing file is told already
            problem, shape = _picture(data, about, bits)
            told += [f"{name}: {problem}"] if problem else []
            if shape is not None:
                seen, shapes[role] = seen + 1, shape
        wanted = int(record["patch_px"])
        told += [
            f"{record['id']}: the {role} picture has {width}×{height} pixels; expected {wanted}×{wanted}"
            for role, (height, width) in shapes.items()
            if (height, width) != (wanted, wanted)
        ]
    return told, seen


def _picture(data: bytes, about: dict[str, Any], bits: int) -> tuple[str, tuple[int, int] | None]:
    """What is wrong with a picture's bytes (empty: nothing), and its height and width."""
    if len(data) != about["bytes"]:
        return f"{len(data):,} bytes; expected {about['bytes']:,}", None
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        return "its sha256 is not that of the record: damaged or changed", None
    if png_bits(data) != bits:
        return f"a PNG of {png_bits(data)} bits; the plan promises {bits}", None
    try:
        values = decode_picture(data)
    except DatasetError as error:
        return error.message, None
    return "", (values.shape[0], values.shape[1])


def _in_parallel(
    check: Callable[[Any], tuple[list[str], int]], work: Iterable[Any], progress: Progress | None
) -> Iterator[tuple[list[str], int]]:
    """Hashing, unpacking and reading run outside Python's lock, so threads are enough. Results in order."""
    pieces = list(work)
    with ThreadPoolExecutor(max_workers=min(32, os.cpu_count() or 1)) as threads:
        for done, result in enumerate(threads.map(check, pieces), 1):
            if progress is not None:
                progress(done, len(pieces))
            yield result
