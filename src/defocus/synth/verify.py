"""Whether a folder of pairs is whole: one that `defocus synth run` made, or any other in the usual layouts.

Problems are collected, not raised; only a folder that cannot be looked at at all is an error.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.pair_folders import JSON_LINES, PLAN, Record, existing_store, is_pair_folder, shard_index
from ..files.pictures import decode_picture
from ..files.png import png_bits
from ..files.stores import Store
from .folder import PairFolder, open_folder
from .metadata import CHECKSUMS, TABLE, is_table_of, jsonl_bytes, read_checksums
from .verify_foreign import verify_foreign

Progress = Callable[[int, int], None]
_TEXTS = ("id", "split", "source", "lens")
_NEEDED = (*_TEXTS, "patch_px", "files")


@dataclass(frozen=True, slots=True)
class Verification:
    """How many things of each kind were checked, and what is wrong with them."""

    counts: dict[str, int]
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems


def verify_folder(folder: str | Path, *, pictures: bool = True, progress: Progress | None = None) -> Verification:
    """Check every file of a data set.

    `pictures`: read and decode them too (files are always looked for). `progress` is called with pieces of work done
    and in all. A folder without metadata is checked as DPDD or as input and target folders.
    """
    store = existing_store(folder)
    if not is_pair_folder(store):
        return Verification(*verify_foreign(store, pictures=pictures, progress=progress))
    with open_folder(folder) as pairs:
        return _verify_own(pairs, pictures, progress)


def _verify_own(opened: PairFolder, pictures: bool, progress: Progress | None) -> Verification:
    store = opened.store
    records = list(opened.records())
    problems = _incomplete_records(records)
    if problems:
        return Verification({"pairs": len(records)}, problems)
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
    bits = _plan_number(opened, "output", "bits")
    counts: Counter[str] = Counter(pairs=len(records), files=len(promised))
    for record in records:
        counts[f"{record['split']} pairs"] += 1
    if pictures:
        groups = [list(group) for path, group in groupby(records, _place) if path in there]
        # Hashing, unpacking and reading run outside Python's lock, so threads are enough.
        with ThreadPoolExecutor(max_workers=min(32, os.cpu_count() or 1)) as threads:
            results = threads.map(lambda group: _pictures(store, group, bits, listed), groups)
            for number, (faults, decoded) in enumerate(results, 1):
                problems += faults
                counts["pictures decoded"] += decoded
                if progress is not None:
                    progress(number, len(groups))
    return Verification(dict(counts), problems)


def _plan_number(folder: PairFolder, part: str, key: str) -> int:
    """A whole number of the folder's plan. Raises `DatasetError` where it says none."""
    try:
        return int(folder.plan[part][key])
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"the plan says no {part}.{key}", file=folder.store.place(PLAN)) from error


def _place(record: Record) -> str:
    """A record's shard, or its first picture."""
    return next(about["path"] for about in record["files"].values())


def _incomplete_records(records: list[dict[str, Any]]) -> list[str]:
    """What records lack that the other checks need."""
    problems = []
    for number, record in enumerate(records, 1):
        name = record.get("id", f"record {number}")
        files = record.get("files")
        files = files if isinstance(files, dict) else {}
        missing = [key for key in _NEEDED if key not in record]
        missing += [f"files.{role}" for role in ("blurred", "sharp") if role not in files]
        for role, file in files.items():
            kinds = {"path": str, "sha256": str, "bytes": int}
            facts = file if isinstance(file, dict) else {}
            missing += [f"files.{role}.{key}" for key, kind in kinds.items() if not isinstance(facts.get(key), kind)]
        if not missing and not (
            isinstance(record["patch_px"], int) and all(isinstance(record[k], str) for k in _TEXTS)
        ):
            missing = [f"a number as patch_px, or text as {', '.join(_TEXTS)}"]
        problems += [f"{name}: its record lacks {', '.join(missing)}"] if missing else []
    return problems


def _metadata(opened: PairFolder, records: list[dict[str, Any]]) -> list[str]:
    """Problems of the lines of JSON and the table, which say what the ledger says, and of pairs that are missing."""
    problems = []
    same: dict[str, Callable[[bytes], bool]] = {
        JSON_LINES: lambda data: data == jsonl_bytes(records),
        TABLE: lambda data: is_table_of(data, records),
    }
    for name, is_same in same.items():
        if not opened.store.exists(name):
            problems.append(f"{name}: missing")
        elif not is_same(opened.store.read(name)):
            of = "the ledger" if opened.ledger is not None else JSON_LINES
            problems.append(f"{name}: does not say what {of} says")
    if opened.ledger is not None:
        unfinished = opened.ledger.counts().get("drawn", 0)
        if unfinished:
            problems.append(f"{unfinished} chosen pairs are not made yet: run the same `defocus synth run` again")
        for split in ("train", "validation", "test"):
            planned = _plan_number(opened, split, "pairs")
            count = sum(record["split"] == split for record in records)
            if count < planned:
                problems.append(f"{split}: {count} of the {planned} planned pairs")
    return problems


def _splits(records: list[dict[str, Any]]) -> list[str]:
    problems = []
    for what, key in (("image", "source"), ("lens", "lens")):
        where: dict[str, set[str]] = {}
        for record in records:
            where.setdefault(record[key], set()).add(record["split"])
        problems += [
            f"the {what} {name} is in several splits: {', '.join(sorted(splits))}"
            for name, splits in sorted(where.items())
            if len(splits) > 1
        ]
    return problems


def _checksums(store: Store, records: list[dict[str, Any]], there: set[str], listed: dict[str, str]) -> list[str]:
    """The list of checksums is there, complete, and agrees with the records and small files; shards are read later."""
    if CHECKSUMS not in there:
        return [f"{CHECKSUMS}: missing"]
    sums = {about["path"]: about["sha256"] for r in records for about in r["files"].values() if "member" not in about}
    shards = {about["path"] for r in records for about in r["files"].values() if "member" in about}
    problems = [f"{CHECKSUMS}: does not list {path}" for path in sorted((set(sums) | shards) - set(listed))]
    for path, digest in listed.items():
        if path in sums:
            if sums[path] != digest:
                problems.append(f"{CHECKSUMS}: another sum for {path} than its record holds")
        elif path not in there:
            problems += [f"{path}: missing, though {CHECKSUMS} lists it"] if path not in shards else []
        elif path not in shards and hashlib.sha256(store.read(path)).hexdigest() != digest:
            problems.append(f"{path}: not what {CHECKSUMS} says")
    return problems


def _pictures(store: Store, records: list[dict[str, Any]], bits: int, listed: dict[str, str]) -> tuple[list[str], int]:
    """Problems of the pictures of one shard, or of one pair, and how many were decoded."""
    problems: list[str] = []
    decoded = 0
    members: dict[str, bytes] | None = None
    if "member" in records[0]["files"]["blurred"]:
        path = _place(records[0])
        try:
            shard = store.read(path)
            if listed.get(path, "") not in ("", hashlib.sha256(shard).hexdigest()):
                problems.append(f"{path}: not what {CHECKSUMS} says")
            members = {name: shard[at : at + size] for name, (at, size) in shard_index(store, path).items()}
        except DatasetError as error:
            return [str(error)], 0
        promised = {about["member"] for record in records for about in record["files"].values()}
        lines = {name.partition(".")[0] + ".json" for name in promised}
        problems += [f"{path}: {name} belongs to no pair" for name in members if name not in promised | lines]
        problems += [f"{path}: holds no {name}" for name in sorted(lines - set(members))]
    for record in records:
        shapes = {}
        for role, about in record["files"].items():
            name = about["path"] if members is None else f"{about['path']}: {about['member']}"
            try:
                data = store.read(about["path"]) if members is None else members[about["member"]]
            except (DatasetError, KeyError):
                problems += [] if members is None else [f"{about['path']}: holds no {about['member']}"]
                continue  # a missing file is among the problems already
            problem, shape = _picture(data, about, bits)
            problems += [f"{name}: {problem}"] if problem else []
            if shape is not None:
                decoded, shapes[role] = decoded + 1, shape
        side = record["patch_px"]
        problems += [
            f"{record['id']}: the {role} picture has {width}×{height} pixels; expected {side}×{side}"
            for role, (height, width) in shapes.items()
            if (height, width) != (side, side)
        ]
    return problems, decoded


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
