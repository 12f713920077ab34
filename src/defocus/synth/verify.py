"""Whether a folder of pairs is whole: one that `defocus synth run` made, or any other in the usual layouts.

Problems are collected, not raised; only a folder that cannot be looked at at all is an error. Records are read one
after the other, and no picture is read whose file has not the size that its record says.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Shaped

from ..errors import DatasetError
from ..files.pair_folders import (
    JSON_LINES,
    LONGEST_LINE,
    PLAN,
    PLANES,
    decode_role,
    existing_store,
    find_sides,
    is_pair_folder,
    match_names,
    shard_index,
    sharp_name,
)
from ..files.pictures import decode_picture
from ..files.png import png_bits
from ..files.stores import Store
from .folder import PairFolder, open_folder
from .layouts import record_size, shard_line, shard_size
from .metadata import CHECKSUMS, TABLE, is_table_of, json_line, read_checksums
from .plan import SPLITS
from .recipe import record_fault

SHARPER = 1.25  # a blurred picture with so many times the fine contrast of its sharp one is the sharper
AT_ONCE = 256  # pairs or shards whose pictures are looked at together
Progress = Callable[[int, int], None]
Record = dict[str, Any]


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
    store, progress = existing_store(folder), progress or (lambda *_: None)
    if not is_pair_folder(store):
        return _verify_foreign(store, pictures, progress)
    with open_folder(folder) as pairs:
        return _OwnFolder(pairs).verify(pictures, progress)


# --- folders of ours ---


class _OwnFolder:
    """What the records of a folder name, and what is wrong with it."""

    def __init__(self, opened: PairFolder) -> None:
        self.opened, self.store = opened, opened.store
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter(pairs=0, files=0)
        self.sizes: dict[str, int] = {}  # bytes of each file that the records name
        self.shards: Counter[str] = Counter()  # pairs of each shard
        self.homes: dict[str, dict[str, set[str]]] = {key: defaultdict(set) for key in ("source", "lens")}
        self.there = set(self.store.listing())
        self.sums: dict[str, str] = {}  # what is listed, less what is compared already
        if CHECKSUMS in self.there:
            self.sums = read_checksums(self.store.read(CHECKSUMS).decode("utf-8", "replace"))

    def verify(self, pictures: bool, progress: Progress) -> Verification:
        """All checks, one after the other; records that are damaged end them."""
        bits = self._plan_number("output", "bits")
        if self._read_records():
            self._check_lines_and_table()
            self._check_plan()
            intact = self._check_files()
            if pictures:
                self._check_pictures(intact, bits, progress)
            self._check_other_sums()
        return Verification(dict(self.counts), self.problems)

    def _read_records(self) -> bool:
        """Count what the records name; whether all of them say what other checks need."""
        sizes: Counter[str] = Counter()
        faults = []
        for record in self.opened.records():
            self.counts["pairs"] += 1
            if fault := record_fault(record):
                faults.append(f"{record['id']}: {fault}")
                continue
            self.counts[f"{record['split']} pairs"] += 1
            for key, home in self.homes.items():
                home[record[key]].add(record["split"])
            path = record["files"]["blurred"]["path"]
            if "member" in record["files"]["blurred"]:
                self.shards[path] += 1
                sizes[path] += record_size(record)
            else:
                self._count_files(record)
        self.sizes |= {path: shard_size(size) for path, size in sizes.items()}
        self.counts["files"] = len(self.sizes)
        self.problems += faults
        return not faults

    def _count_files(self, record: Record) -> None:
        """The files of a pair, each of which belongs to no other and is in the list of checksums."""
        for about in record["files"].values():
            path, listed = about["path"], self.sums.pop(about["path"], None)
            if path in self.sizes:
                self.problems.append(f"{path}: belongs to several pairs")
            elif CHECKSUMS in self.there and listed is None:
                self.problems.append(f"{CHECKSUMS}: does not list {path}")
            elif listed not in (None, about["sha256"]):
                self.problems.append(f"{CHECKSUMS}: another sum for {path} than its record holds")
            self.sizes[path] = about["bytes"]

    def _check_lines_and_table(self) -> None:
        """The lines of JSON and the table say what the ledger says."""
        checks: dict[str, Callable[[BinaryIO], bool]] = {
            JSON_LINES: self._are_lines,
            TABLE: lambda file: is_table_of(file, self.opened.records()),
        }
        for name, is_same in checks.items():
            if name not in self.there:
                self.problems.append(f"{name}: missing")
                continue
            with self.store.open(name) as file:
                if not is_same(file):
                    of = "the ledger" if self.opened.ledger is not None else f"a sound {JSON_LINES}"
                    self.problems.append(f"{name}: does not say what {of} says")

    def _are_lines(self, file: BinaryIO) -> bool:
        lines = iter(lambda: file.readline(LONGEST_LINE), b"")
        try:
            if self.opened.ledger is None:  # then the records are these lines
                return all(line == json_line(json.loads(line)) for line in lines)
            return all(line == other for line, other in zip_longest(lines, map(json_line, self.opened.records())))
        except DatasetError:  # a number that is not finite
            return False

    def _check_plan(self) -> None:
        """Pairs are as many as planned, and no image and no lens is in two splits."""
        if self.opened.ledger is not None:
            unfinished = self.opened.ledger.counts().get("drawn", 0)
            if unfinished:
                self.problems.append(
                    f"{unfinished} chosen pairs are not made yet: run the same `defocus synth run` again"
                )
            for split in SPLITS:
                planned, count = self._plan_number(split, "pairs"), self.counts[f"{split} pairs"]
                if count < planned:
                    self.problems.append(f"{split}: {count} of the {planned} planned pairs")
        for key, words in (("source", "image"), ("lens", "lens")):
            self.problems += [
                f"the {words} {name} is in several splits: {', '.join(sorted(splits))}"
                for name, splits in sorted(self.homes[key].items())
                if len(splits) > 1
            ]

    def _plan_number(self, part: str, key: str) -> int:
        """A whole number of the folder's plan. Raises `DatasetError` where it says none."""
        try:
            return int(self.opened.plan[part][key])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DatasetError(f"the plan says no {part}.{key}", file=self.store.place(PLAN)) from error

    def _check_files(self) -> set[str]:
        """Every file is there and as long as it should be, and no other; those that are."""
        size_of, intact = self.store.size_lookup(), set()
        for path, expected in sorted(self.sizes.items()):
            size = size_of(path)
            if size is None:
                self.problems.append(f"{path}: missing")
            elif size != expected:
                self.problems.append(f"{path}: {size:,} bytes; expected {expected:,}")
            else:
                intact.add(path)
        others = {
            path for path in self.there - set(self.sizes) if path.endswith((".png", ".tif", ".tar")) and "/" in path
        }
        self.problems += [f"{path}: belongs to no pair" for path in sorted(others)]
        return intact

    def _check_pictures(self, intact: set[str], bits: int, progress: Progress) -> None:
        """Every picture of files that are as long as they should be is what its record says."""
        groups, done = self._groups(intact), 0
        total = len(self.shards) or self.counts["pairs"]
        # Hashing, unpacking and reading run outside Python's lock, so threads are enough.
        with ThreadPoolExecutor(max_workers=min(32, os.cpu_count() or 1)) as threads:
            while part := list(islice(groups, AT_ONCE)):
                for faults, decoded in threads.map(lambda group: self._pictures(group, intact, bits), part):
                    self.problems += faults
                    self.counts["pictures decoded"] += decoded
                    done += 1
                    progress(done, total)

    def _groups(self, intact: set[str]) -> Iterator[list[Record]]:
        """The records of each shard together, as soon as the last is read; of pairs with files of their own each."""
        shards: dict[str, list[Record]] = defaultdict(list)
        for record in self.opened.records():
            path = record["files"]["blurred"]["path"]
            if path not in self.shards:
                yield [record]
            elif path in intact:
                shards[path].append(record)
                if len(shards[path]) == self.shards[path]:
                    yield shards.pop(path)

    def _pictures(self, records: list[Record], intact: set[str], bits: int) -> tuple[list[str], int]:
        """Problems of the pictures of one shard, or of one pair, and how many were decoded."""
        path, problems, decoded = records[0]["files"]["blurred"]["path"], [], 0
        shard, spans = b"", {}
        if path in self.shards:
            try:
                shard, spans = self.store.read(path), shard_index(self.store, path)
            except DatasetError as error:
                return [str(error)], 0
            problems += self._shard(path, shard, spans, records)
        for record in records:
            for role, about in record["files"].items():
                if path not in self.shards:
                    if about["path"] not in intact:
                        continue  # among the problems already
                    name, data = about["path"], self.store.read(about["path"])
                elif about.get("member") in spans:
                    start, size = spans[about["member"]]
                    name, data = f"{path}: {about['member']}", shard[start : start + size]
                else:
                    problems.append(f"{path}: holds no {about.get('member')}")
                    continue
                problem, shape = _picture(data, about, role, bits)
                problems += [f"{name}: {problem}"] if problem else []
                if shape is None:
                    continue
                decoded, side = decoded + 1, record["patch_px"]
                if shape != (side, side):
                    size_text = f"{shape[1]}×{shape[0]} pixels; expected {side}×{side}"
                    problems.append(f"{record['id']}: the {role} picture has {size_text}")
        return problems, decoded

    def _shard(self, path: str, data: bytes, spans: dict[str, tuple[int, int]], records: list[Record]) -> list[str]:
        """Problems of a shard as a whole: its sum, members that no record names, lines that are missing."""
        problems = []
        listed = self.sums.pop(path, None)
        if listed is None and CHECKSUMS in self.there:
            problems.append(f"{CHECKSUMS}: does not list {path}")
        elif listed not in (None, hashlib.sha256(data).hexdigest()):
            problems.append(f"{path}: not what {CHECKSUMS} says")
        promised = {about.get("member", "") for record in records for about in record["files"].values()}
        lines = {f"{record['id'].rpartition('-')[2]}.json": record for record in records}
        problems += [f"{path}: {name} belongs to no pair" for name in spans if name not in promised | lines.keys()]
        for name, record in lines.items():
            start, size = spans.get(name, (0, 0))
            if data[start : start + size] != shard_line(record):
                problems.append(f"{path}: {name} is missing, or does not say what the pair's record says")
        return problems

    def _check_other_sums(self) -> None:
        """The list of checksums is there, and what it lists beside pictures is what it says."""
        if CHECKSUMS not in self.there:
            self.problems.append(f"{CHECKSUMS}: missing")
        for path, digest in self.sums.items():
            if path in self.shards:
                continue
            if path not in self.there:
                self.problems.append(f"{path}: missing, though {CHECKSUMS} lists it")
            elif self.store.digest(path) != digest:
                self.problems.append(f"{path}: not what {CHECKSUMS} says")


def _picture(data: bytes, about: Record, role: str, bits: int) -> tuple[str, tuple[int, int] | None]:
    """What is wrong with a picture's bytes (empty: nothing), and its height and width."""
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        return "its sha256 is not that of the record: damaged or changed", None
    if role not in PLANES and png_bits(data) != bits:
        return f"a PNG of {png_bits(data)} bits; the plan promises {bits}", None
    try:
        values = decode_role(role, data)
    except DatasetError as error:
        return error.message, None
    return "", (values.shape[0], values.shape[1])


# --- folders that others made, without metadata ---


def _verify_foreign(store: Store, pictures: bool, progress: Progress) -> Verification:
    """Whether all pairs are there, whole, and the right way round. Raises `DatasetError` where there are none."""
    problems: list[str] = []
    pairs: list[tuple[str, str]] = []
    sides = find_sides(store, eyes=True)
    for side in sides:
        if not side.sharp:
            problems.append(f"{side.blurred}: there is no folder {sharp_name(side.blurred)} with its sharp pictures")
        elif not side.blurred:
            problems.append(f"{side.sharp}: there is no folder with its blurred pictures")
        else:
            matching = match_names(side.blurred_files, side.sharp_files)
            pairs += [(side.blurred_files[blurred], side.sharp_files[sharp]) for blurred, sharp in matching.pairs]
            blurred_alone = [side.blurred_files[name] for name in matching.blurred_alone]
            sharp_alone = [side.sharp_files[name] for name in matching.sharp_alone]
            problems += [f"{path}: no sharp picture of this name" for path in blurred_alone]
            problems += [f"{path}: no blurred picture of this name" for path in sharp_alone]
    if not sides:
        raise DatasetError(
            "no pairs here: expected source and target folders (DPDD), input and target folders, or a folder that "
            "`defocus synth run` made",
            file=store.root,
        )
    counts = {"pairs": len(pairs), "folders": sum(bool(side.blurred) for side in sides)}
    if pictures:
        counts["pictures decoded"] = 0
        for number, (blurred, sharp) in enumerate(pairs, 1):
            faults, decoded = _check_pair(store, blurred, sharp)
            problems += faults
            counts["pictures decoded"] += decoded
            progress(number, len(pairs))
    return Verification(counts, problems)


def fine_contrast(picture: Shaped[np.ndarray, "h w 3"]) -> float:
    """Root mean square of the steps between neighbours, over the mean; at half the size, where noise counts little."""
    grey = picture.astype(np.float32).mean(axis=2)
    height, width = (n - n % 2 for n in grey.shape)
    half = grey[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
    steps = np.square(np.diff(half, axis=0)).mean() + np.square(np.diff(half, axis=1)).mean()
    return float(np.sqrt(steps) / max(float(half.mean()), 1e-6))


def _check_pair(store: Store, blurred: str, sharp: str) -> tuple[list[str], int]:
    """Problems of a pair, and how many of its pictures could be decoded."""
    faults, values, bits = [], [], []
    for path in (blurred, sharp):
        try:
            data = store.read(path)
            values.append(decode_picture(data, path))
            bits.append(png_bits(data))
        except DatasetError as error:
            faults.append(f"{path}: {error.message}")
    if len(values) < 2:
        return faults, len(values)
    a, b = values
    if a.shape != b.shape:
        faults.append(f"{blurred}: {a.shape[1]}×{a.shape[0]} pixels, but {sharp} has {b.shape[1]}×{b.shape[0]}")
        return faults, 2
    if bits[0] != bits[1]:
        faults.append(f"{blurred}: {bits[0]} bits, but {sharp} has {bits[1]}")
    if min(a.shape[:2]) < 8:
        return faults, 2
    if np.array_equal(a, b):
        faults.append(f"{blurred}: the same picture as {sharp}")
    ratio = fine_contrast(a) / max(fine_contrast(b), 1e-9)
    if ratio > SHARPER:
        faults.append(f"{blurred}: {ratio:.2f} times the fine contrast of {sharp}: blurred and sharp look exchanged")
    return faults, 2
