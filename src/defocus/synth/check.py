"""Before any work: are sources and lenses there, is there room on the disk, and what will be made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DefocusError, PlanError
from .lens_pool import LensPool, find_lenses
from .plan import Plan, PlanLike, SplitName, as_plan
from .sources import SourceName, find_sources, missing_depths, read_source

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
    problems = [f"{name}: no depth file" for name in missing_depths(plan)]
    files = [s for group in sources.values() for s in group if s.photo is not None]
    if read:
        unreadable: dict[str, str] = {}
        for number, source in enumerate(files):
            progress("reading photographs", number / len(files))
            unreadable |= _problem(source, plan)
        problems += unreadable.values()
        for split, group in sources.items():
            if all(source.name in unreadable for source in group):
                raise PlanError(
                    f"{split}: none of its {len(group)} photographs can be read, the first: {unreadable[group[0].name]}"
                )
    lenses: LensPool = find_lenses(plan, lambda done, total: progress("surveying lenses", done / total))
    roles = 4 if plan.sensor.dual_pixel else 2
    pairs = {split: plan.split(split).pairs for split in plan.splits}
    needed = int(sum(pairs.values()) * roles * plan.patch.size**2 * BYTES_PER_PIXEL[plan.output.bits])
    return PlanPreview(
        {split: len(names) for split, names in sources.items()},
        {split: len(names) for split, names in lenses.of_split.items()},
        pairs,
        {split: plan.candidates(split) for split in plan.splits},
        lenses.rejected,
        tuple(problems),
        needed,
        None if folder is None else _free(folder),
    )


def _problem(source: SourceName, plan: Plan) -> dict[str, str]:
    """Why a photograph cannot be read, by its name; empty if it can."""
    try:
        read_source(source, plan)
    except DefocusError as error:
        return {source.name: str(error)}
    return {}


def _free(folder: Path) -> int:
    parent = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(parent).free
