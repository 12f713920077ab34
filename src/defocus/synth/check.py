"""Before any work: are sources and lenses there, is there room on the disk, and what will be made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DefocusError, PlanError
from .lens_pool import find_lenses
from .plan import PlanLike, SplitName, as_plan
from .sources import find_sources, missing_depths, read_source

BYTES_PER_PIXEL = {8: 2.0, 16: 5.5}  # of a picture as PNG, about


@dataclass(frozen=True)
class PlanPreview:
    """What a plan will make."""

    images: dict[SplitName, int]
    lenses: dict[SplitName, int]
    pairs: dict[SplitName, int]
    candidates: dict[SplitName, int]
    rejected_lenses: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]  # files that will be left out, and why
    bytes_needed: int
    bytes_free: int | None


def preview_plan(
    plan: PlanLike,
    folder: Path | None = None,
    *,
    read: bool = True,
    progress: Callable[[str, float], None] | None = None,
) -> PlanPreview:
    """Check a plan. With `read`, every photograph is opened once. Raises `PlanError` where nothing could be made."""
    plan, progress = as_plan(plan), progress or (lambda *_: None)
    sources = find_sources(plan)
    unreadable: dict[str, str] = {}
    photographs = [s for group in sources.values() for s in group if s.photo is not None] if read else []
    for number, source in enumerate(photographs):
        progress("reading photographs", number / len(photographs))
        try:
            read_source(source, plan)
        except DefocusError as error:
            unreadable[source.name] = str(error)
    for split, group in sources.items():
        if all(source.name in unreadable for source in group):
            raise PlanError(
                f"{split}: none of its {len(group)} photographs can be read, the first: {unreadable[group[0].name]}"
            )
    lenses = find_lenses(plan, lambda done, total: progress("surveying lenses", done / total))
    pairs = {split: plan.split(split).pairs for split in plan.splits}
    pictures = sum(pairs.values()) * (4 if plan.sensor.dual_pixel else 2)
    return PlanPreview(
        images={split: len(names) for split, names in sources.items()},
        lenses={split: len(names) for split, names in lenses.of_split.items()},
        pairs=pairs,
        candidates={split: plan.candidates(split) for split in plan.splits},
        rejected_lenses=lenses.rejected,
        problems=(*(f"{name}: no depth file" for name in missing_depths(plan)), *unreadable.values()),
        bytes_needed=int(pictures * plan.patch.size**2 * BYTES_PER_PIXEL[plan.output.bits]),
        bytes_free=None if folder is None else _free_bytes(folder),
    )


def _free_bytes(folder: Path) -> int:
    parent = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(parent).free
