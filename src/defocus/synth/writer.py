"""The pictures of pairs as files, in threads: first a record of what is written, with its sums, then the pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..files.pair_folders import PLANES
from ..files.pictures import plane_bytes
from ..files.png import png_bytes
from .folder import Lead
from .layouts import file_facts, pair_paths, shard_bytes, shard_path
from .pairs import Pair, Stopwatch
from .recipe import Outcome
from .tasks import Task

THREADS = min(max(6, os.cpu_count() or 1), 16)  # of each process, that compress and write pictures


class PairWriter:
    """Compresses the pictures of pairs and writes them in a layout, while its run has the lead over the folder."""

    def __init__(self, lead: Lead, layout: str) -> None:
        self._lead, self._layout = lead, layout
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="write")

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def write(self, task: Task, pairs: Sequence[Pair], watch: Stopwatch) -> list[Outcome]:
        """Write the pairs of a task; what became of each, with path, sha256 and bytes of its pictures."""
        good = [pair for pair in pairs if not pair.refusal]
        encoded = dict(zip((pair.recipe.id for pair in good), self._threads.map(picture_files, good), strict=True))
        watch.lap("encode")
        contents, files = self._laid_out(task, encoded, good)
        outcomes = [
            Outcome(pair.recipe.id, "rejected", pair.refusal, pair.recipe.to_json())
            if pair.refusal
            else Outcome(pair.recipe.id, "done", record=pair.record | {"files": files[pair.recipe.id]})
            for pair in pairs
        ]
        if contents:
            self._lead.write_task(task.name, outcomes, watch.seconds)
        for _ in self._threads.map(self._lead.store.write, contents.keys(), contents.values()):
            pass
        watch.lap("write")
        return outcomes

    def _laid_out(
        self, task: Task, encoded: dict[str, dict[str, bytes]], pairs: Sequence[Pair]
    ) -> tuple[dict[str, bytes], dict[str, dict[str, Any]]]:
        """Contents of each file by its path, and for each pair and role what its record says of the picture."""
        if task.shard is not None:
            path = shard_path(task.split, task.shard)
            data, index = shard_bytes((pair.recipe.id, encoded[pair.recipe.id], pair.record) for pair in pairs)
            files = {one: {role: about | {"path": path} for role, about in own.items()} for one, own in index.items()}
            return {path: data} if pairs else {}, files
        contents: dict[str, bytes] = {}
        files = {}
        for identity, pictures in encoded.items():
            paths = pair_paths(self._layout, identity, tuple(pictures))
            contents |= {path: pictures[role] for role, path in paths.items()}
            files[identity] = {role: {"path": path} | file_facts(pictures[role]) for role, path in paths.items()}
        return contents, files


def picture_files(pair: Pair) -> dict[str, bytes]:
    """The files of a pair's pictures, PNG, and of its planes, TIFF."""
    return {
        role: plane_bytes(values) if role in PLANES else png_bytes(values) for role, values in pair.pictures.items()
    }
