"""Whether a folder that was begun may be gone on with, and what of it is there.

The plan, the photographs, the lenses and the version are those that it was begun with; what differs is refused with
advice, or, when all is planned anew, forgotten. A lost ledger is made anew from the folder's own records. Pictures that
are lost or damaged are made again. Nothing is removed but what our records name, while it has the sum that they say;
whatever stands in the way of a picture is named and left. Workers of a killed run may still write: until all is made,
none of their pictures is removed (`Resumption.settle`).
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import DatasetError
from ..files.ownership import listed
from ..files.pair_folders import JSON_LINES, read_lines, shard_index
from ..files.settings import settings_difference
from ..files.stores import Store
from .folder import ASIDE, Lead, keep_facts, read_facts, read_tasks, task_paths
from .layouts import expected_files, is_picture_path, picture_number, shard_bytes
from .ledger import Ledger
from .metadata import write_lines
from .places import absolute_places, apart_from_places, ledger_places, same_places
from .plan import Plan, SplitName
from .recipe import Outcome, record_fault

if TYPE_CHECKING:
    from .lens_pool import LensPool
    from .sources import SourceName

AT_ONCE = 1000  # records that are taken together

Notice = Callable[[str], None]


@dataclass(frozen=True)
class Resumption:
    """A folder of ours that a run goes on with; `notice` is called with what its user should know."""

    plan: Plan
    store: Store
    ledger: Ledger
    replan: bool
    notice: Notice

    @property
    def replans(self) -> int:
        """How often all pairs were made anew."""
        return int(self.ledger.fact("replans") or 0)

    def recover(self) -> None:
        """Bring the ledger up to what the folder holds: after a kill, or where the ledger was lost."""
        self.store.sweep()
        if self.ledger.plan is None:
            self._restore_ledger()
        self._take_tasks()

    def set_aside(self, *names: str) -> None:
        """Move files beside the pictures that somebody changed out of the way of new ones: these, or all."""
        sums = json.loads(self.ledger.fact("metadata") or "{}")
        sums = {name: digest for name, digest in sums.items() if not names or name in names}
        changed = [name for name, digest in sums.items() if self.store.digest(name) not in (None, digest)]
        for name in changed:
            self.store.move(name, f"{ASIDE}/{name}")
        if changed:
            self.notice(f"changed since they were written, and in {ASIDE} now: {listed(changed)}")

    def begin(self, sources: dict[SplitName, tuple[SourceName, ...]], lenses: LensPool) -> None:
        """Take the plan, or raise `DatasetError` for what is not as the folder was begun with."""
        moved = self._require_same_plan()
        if moved or self.replan:
            self._require_same_files(sources, lenses)
        self._require_same_names(
            {
                "images": {split: [source.name for source in group] for split, group in sources.items()},
                "lenses": {split: list(names) for split, names in lenses.of_split.items()},
            }
        )
        version = self.ledger.fact("version")
        if version not in (None, __version__) and not self.replan:
            self._refuse(
                f"this folder was begun with defocus {version}, this is {__version__}, which may differ",
                "go on with that version",
            )
        self.ledger.put("plan", json.dumps(ledger_places(self.plan.as_json(), self.store.folder), sort_keys=True))
        self.ledger.put("format", "1")
        self.ledger.put("version", __version__)
        self.ledger.put("rejected_lenses", json.dumps(lenses.rejected))
        keep_facts(self.store, self.ledger)

    def check_pictures(self, *, sums: bool = False) -> bool:
        """Plan to make again what is lost: files that are missing or have another size, and with `sums` another sum.

        Whether there are any. Raises `DatasetError` where a file that no record names stands in the way.
        """
        paths, lost = self._lost_pictures(sums)
        strangers = [path for path in self.store.listing() if is_picture_path(path) and path not in paths]
        if strangers:
            strangers = sorted(set(strangers) - self._pictures_of_tasks(task_paths(self.store)).keys())
        if strangers and self._take_lines(set(strangers)):
            return self.check_pictures(sums=sums)
        in_the_way = [path for path in strangers if self._may_write(path)]
        if in_the_way:
            raise DatasetError(
                f"no record of this data set names {listed(in_the_way)}, where pairs are to be written: move it away",
                file=self.store.root,
            )
        if strangers:
            self.notice(f"left as they are, since no record names them: {listed(strangers)}")
        if lost:
            self._make_again(lost)
        return bool(lost)

    def settle(self, lead: Lead, failures: Iterable[str]) -> bool:
        """Look at what tasks that failed, and workers of an earlier start, wrote; whether pairs are to be made again.

        Pictures of pairs that did not come to be are removed; pairs whose pictures such a worker, with another plan,
        replaced are made again.
        """
        own, failed = lead.task_path(), {lead.task_path(task) for task in failures}
        looked_at = [path for path in task_paths(self.store) if not path.startswith(own) or path in failed]
        pictures, lost = self._pictures_of_tasks(looked_at), dict[str, list[str]]()
        for records in self._groups() if pictures else ():
            for path in expected_files(records):
                if pictures.pop(path, None) and not is_intact(self.store, path, records):
                    lost[path] = [record["id"] for record in records]
        self.remove(pictures.values())
        if lost:
            self._make_again(lost)
        else:
            for path in looked_at:
                self.store.remove(path)
        return bool(lost)

    def remove(self, groups: Iterable[list[dict[str, Any]]]) -> None:
        """Remove the pictures of the pairs of shards, or of single pairs; what is not what was written is left."""
        left = sorted({path for records in groups for path in remove_pictures(self.store, records)})
        if left:
            self.notice(f"left as they are, since they are not what was written: {listed(left)}")

    # --- after a kill ---

    def _restore_ledger(self) -> None:
        """The facts and the pairs of a data set whose ledger is lost; candidates are drawn again."""
        facts = read_facts(self.store)
        if "plan" not in facts:
            return
        self.notice("the ledger is empty: it is made anew from the folder's own records")
        records = self._lines()
        shards: dict[str, list[str]] = defaultdict(list)
        while part := list(islice(records, AT_ONCE)):
            for record in part:
                for path in {about["path"] for about in record["files"].values() if "member" in about}:
                    shards[path].append(record["id"])
            self._take_records(part)
        for path, ids in shards.items():
            if f"shards/{path.partition('/')[0]}" not in facts:
                self._list_shard(path, ids)
        for key, value in facts.items():
            self.ledger.put(key, value)

    def _take_records(self, records: list[dict[str, Any]]) -> None:
        """Pairs that other records than the ledger's name are done."""
        self.ledger.take(JSON_LINES, [Outcome(record["id"], "done", record=record) for record in records])
        for path in {about["path"] for record in records for about in record["files"].values() if "member" in about}:
            self.ledger.take(_shard_task(path), ())

    def _list_shard(self, path: str, ids: list[str]) -> None:
        """Note which pairs belong in a shard."""
        _, split, _, number = _shard_task(path).split("/")
        lists = json.loads(self.ledger.fact(f"shards/{split}") or "[]")
        lists += [[] for _ in range(int(number) + 1 - len(lists))]
        lists[int(number)] = ids
        self.ledger.put(f"shards/{split}", json.dumps(lists))

    def _take_tasks(self) -> None:
        """Pairs of a killed run whose pictures are all there are done; records that name others, too, are kept."""
        size_of, folded = self.store.size_lookup(), []
        for path, task in read_tasks(self.store, task_paths(self.store)):
            if task.replans != self.replans:
                continue
            broken: set[str] = set()
            for records in task.groups():
                if any(size_of(file) != size for file, size in expected_files(records).items()):
                    broken |= {record["id"] for record in records}
            if not broken or "/shard/" not in task.task:
                self.ledger.take(task.task, [one for one in task.outcomes if one.id not in broken], task.seconds)
            if not broken:
                folded.append(path)
        if folded:
            self.set_aside(JSON_LINES)
            write_lines(self.store, self.ledger)
            for path in folded:
                self.store.remove(path)

    def _pictures_of_tasks(self, paths: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """The files that records of tasks name, each with the records of its pair or shard."""
        tasks = (task for _, task in read_tasks(self.store, paths))
        return {path: records for task in tasks for records in task.groups() for path in expected_files(records)}

    def _take_lines(self, strangers: set[str]) -> bool:
        """Take pairs that the lines of JSON name and an old copy of the ledger does not; whether there are any."""
        if read_facts(self.store).get("plan") != self.ledger.fact("plan"):
            return False
        records = [r for r in self._lines() if any(about["path"] in strangers for about in r["files"].values())]
        self._take_records(records)
        return bool(records)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Records of the lines of JSON, if there are any. Raises `DatasetError` for a damaged one."""
        for record in read_lines(self.store) if self.store.exists(JSON_LINES) else ():
            if fault := record_fault(record):
                raise DatasetError(f"{record['id']}: {fault}", file=self.store.place(JSON_LINES))
            yield record

    # --- the same as when it was begun ---

    def _require_same_plan(self) -> bool:
        """Whether the plan's own folders lie elsewhere than they did, and nothing else differs."""
        old, new = self.ledger.plan, self.plan.as_json()
        if old is None:
            return False
        difference = settings_difference(apart_from_places(old), apart_from_places(new))
        if not difference:
            return not same_places(absolute_places(old, self.store.folder), new)
        if not self.replan:
            raise DatasetError(
                f"this folder was begun with another plan ({'; '.join(difference)}): take another folder, or ask for "
                "--replan, which removes the pairs that are here and makes all of them anew",
                file=self.store.root,
            )
        self._forget()
        return False

    def _require_same_files(self, sources: dict[SplitName, tuple[SourceName, ...]], lenses: LensPool) -> None:
        """Photographs and lenses are, byte for byte, those that the candidates were drawn from, wherever they lie now.

        Ones that are gone are left to `_require_same_names`. To plan anew, a file that was changed in its place is a
        reason to forget everything.
        """
        photos = {source.name: source for group in sources.values() for source in group if source.files}
        sums: dict[tuple[str, str], str] = {}
        for _, _, _, record in self.ledger.items():
            sums |= {(what, record[what]): record[f"{what}_sha256"] for what in ("source", "lens") if what in record}
        for (what, name), digest in sums.items():
            if what == "source":
                same = name not in photos or photos[name].sha256() == digest
            else:
                same = name not in lenses.lenses or lenses.lenses[name].sha256 == digest
            if same:
                continue
            if self.replan:
                return self._forget()
            words = "the photograph or its depth is" if what == "source" else "the lens is"
            self._refuse(
                f"the plan's folders lie elsewhere than when this folder was begun, and {name} is another one there: "
                f"{words} not what the candidates were drawn from",
                "take the old ones",
            )
        return None

    def _require_same_names(self, names: dict[str, dict[SplitName, list[str]]]) -> None:
        """Images and lenses stay in the splits that they were in: one that is new or gone would move the others."""
        for what, now in names.items():
            fact = self.ledger.fact(f"split/{what}")
            if fact is None or (before := json.loads(fact)) == now:
                continue
            if self.replan:
                self._forget()
                break
            old, new = ({name for part in parts.values() for name in part} for parts in (before, now))
            changes = [f"{name} is new" for name in sorted(new - old)]
            changes += [f"{name} is gone" for name in sorted(old - new)]
            self._refuse(
                f"the {what} are not those that this folder was begun with "
                f"({'; '.join(changes[:5]) or 'they are divided differently'})",
                "restore them",
            )
        for what, now in names.items():
            self.ledger.put(f"split/{what}", json.dumps(now))

    def _refuse(self, reason: str, remedy: str) -> None:
        raise DatasetError(f"{reason}: {remedy}, take another folder, or ask for --replan", file=self.store.root)

    def _forget(self) -> None:
        """Remove the pictures of all pairs, then the records of them."""
        pairs = self.ledger.counts().get("done", 0)
        self.notice(f"--replan: the pictures of {pairs:,} pairs are removed, and all pairs are made anew")
        self.ledger.put("replans", str(self.replans + 1))
        self.remove(self._groups())
        self.store.remove(JSON_LINES)
        self.ledger.forget()

    # --- what is there ---

    def _lost_pictures(self, sums: bool) -> tuple[set[str], dict[str, list[str]]]:
        """Paths that the records name; and those that are not what the records say, with the pairs that they hold."""
        size_of, paths = self.store.size_lookup(), set[str]()
        lost: dict[str, list[str]] = {}
        for records in self._groups():
            for path, size in expected_files(records).items():
                paths.add(path)
                if size_of(path) != size or (sums and not is_intact(self.store, path, records)):
                    lost[path] = [record["id"] for record in records]
        return paths, lost

    def _groups(self) -> Iterator[list[dict[str, Any]]]:
        """The records of each shard together; those of pairs with files of their own one by one."""
        shards: dict[str, array[int]] = defaultdict(lambda: array("q"))
        for record in self.ledger.done():
            about = next(iter(record["files"].values()))
            if "member" in about:
                shards[about["path"]].append(record["index"])
            else:
                yield [record]
        for path, numbers in shards.items():
            yield self.ledger.records(path.partition("/")[0], numbers)

    def _make_again(self, lost: dict[str, list[str]]) -> None:
        """Let the pairs of lost files be made again; a damaged file is set aside, whoever made it what it is."""
        damaged = [path for path in sorted(lost) if self.store.size(path)]
        for path in damaged:
            self.store.move(path, f"{ASIDE}/{path}")
        ids = {identity for own in lost.values() for identity in own}
        pairs = "1 pair is" if len(ids) == 1 else f"{len(ids):,} pairs are"
        self.notice(f"{pairs} made again: lost or damaged are {listed(sorted(lost))}")
        if damaged:
            self.notice(f"what was damaged is in {ASIDE} now: {listed(damaged)}")
        shards = {path: own for path, own in lost.items() if picture_number(path, "webdataset")}
        for path, own in shards.items():
            self._list_shard(path, own)
        self.ledger.make_again(ids, [_shard_task(path) for path in shards])

    def _may_write(self, path: str) -> bool:
        """Whether a run of the plan may come to write a file of this name."""
        split, number = picture_number(path, self.plan.output.layout) or ("", 0)
        return any(split == name and number < self.plan.candidates(name) for name in self.plan.splits)


def is_intact(store: Store, path: str, records: list[dict[str, Any]]) -> bool:
    """Whether a file of these records is there and is, byte for byte, what they say."""
    sums = {about["path"]: about["sha256"] for r in records for about in r["files"].values() if "member" not in about}
    if path in sums:
        return store.digest(path) == sums[path]
    if store.size(path) != expected_files(records)[path]:
        return False
    data, members = store.read(path), []
    try:
        spans = shard_index(store, path)
        for record in records:
            places = {role: spans[about["member"]] for role, about in record["files"].items()}
            members.append((record["id"], {role: data[at : at + n] for role, (at, n) in places.items()}, record))
    except (DatasetError, KeyError):
        return False
    again, facts = shard_bytes(members)
    return again == data and all(
        about["sha256"] == facts[record["id"]][role]["sha256"]
        for record in records
        for role, about in record["files"].items()
    )


def remove_pictures(store: Store, records: list[dict[str, Any]]) -> list[str]:
    """Remove the files of a shard's pairs, or of one pair, as far as they are what the records say; what is left."""
    left = []
    for path in expected_files(records):
        if is_intact(store, path, records):
            store.remove(path)
        elif store.exists(path):
            left.append(path)
    return left


def _shard_task(path: str) -> str:
    """Name of the task that makes a shard."""
    place = picture_number(path, "webdataset")
    if place is None:
        raise DatasetError("not the path of a shard", file=path)
    return f"make/{place[0]}/shard/{place[1]}"
