"""Before any work: are sources and lenses there, is there room on the disk, and how blurred will the pairs be."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DefocusError, PlanError
from ..files.pair_folders import PLANES
from .candidates import LensChoice, draw_candidates
from .lens_pool import LensPool, find_lenses
from .metadata import largest_blur_px
from .plan import Plan, PlanLike, SplitName, as_plan
from .sources import SourceName, find_sources, missing_depths, read_source

BYTES_PER_PIXEL = {8: 2.0, 16: 5.5}  # of a picture as PNG, about
PLANE_BYTES_PER_PIXEL = 3.6  # of a smooth depth map, measured; of the flat ones of procedural scenes less than 1
DRAWN_PHOTOGRAPHS, DRAWN_PATCHES = 6, 24  # of which the preview draws candidates, and how many of each
BLUR_EDGES_PX = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, np.inf)
LEAST_BLUR_PX = 1.0  # median of the largest blur radius below which a network has little to learn from
MOST_WITHOUT_DEPTH = 0.5
BAR = 40  # characters


@dataclass(frozen=True)
class PlanPreview:
    """What a plan will make."""

    images: dict[SplitName, int]
    lenses: dict[SplitName, int]
    pairs: dict[SplitName, int]
    candidates: dict[SplitName, int]
    rejected_lenses: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]  # files that will be left out, and why
    blur_px: tuple[float, ...]  # largest blur radius of each candidate that was drawn to see; none unless read
    unsafe: int  # of the candidates that were drawn, those for which no lens is safe
    warnings: tuple[str, ...]
    bytes_needed: int
    bytes_free: int | None

    @property
    def median_blur_px(self) -> float:
        """Median of the largest blur radii; nan where none was drawn."""
        return _median(self.blur_px)


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
    empty: dict[str, float] = {}
    photographs = [s for group in sources.values() for s in group if s.photo is not None] if read else []
    for number, source in enumerate(photographs):
        progress("reading photographs", number / len(photographs))
        try:
            empty[source.name] = read_source(source, plan).without_depth
        except DefocusError as error:
            unreadable[source.name] = str(error)
    for split, group in sources.items():
        if all(source.name in unreadable for source in group):
            raise PlanError(
                f"{split}: none of its {len(group)} photographs can be read, the first: {unreadable[group[0].name]}"
            )
    lenses = find_lenses(plan, lambda done, total: progress("surveying lenses", done / total))
    fine = [source for source in sources[plan.splits[0]] if source.name not in unreadable]
    blur, unsafe = draw_blur(plan, fine, lenses, progress) if read else ((), 0)
    pairs = {split: plan.split(split).pairs for split in plan.splits}
    planes = sum(role in PLANES for role in plan.labels.roles)
    pictures = (4 if plan.sensor.dual_pixel else 2) + len(plan.labels.roles) - planes
    bytes_per_pixel = pictures * BYTES_PER_PIXEL[plan.output.bits] + planes * PLANE_BYTES_PER_PIXEL
    return PlanPreview(
        images={split: len(names) for split, names in sources.items()},
        lenses={split: len(names) for split, names in lenses.of_split.items()},
        pairs=pairs,
        candidates={split: plan.candidates(split) for split in plan.splits},
        rejected_lenses=lenses.rejected,
        problems=(*(f"{name}: no depth file" for name in missing_depths(plan)), *unreadable.values()),
        blur_px=blur,
        unsafe=unsafe,
        warnings=(*_blur_warnings(blur), *_depth_warnings(empty)),
        bytes_needed=int(sum(pairs.values()) * plan.patch.size**2 * bytes_per_pixel),
        bytes_free=None if folder is None else _free_bytes(folder),
    )


def draw_blur(
    plan: Plan, sources: Sequence[SourceName], pool: LensPool, progress: Callable[[str, float], None]
) -> tuple[tuple[float, ...], int]:
    """The largest blur radii (pixels) of some candidates of the first split, and for how many no lens is safe."""
    split = plan.splits[0]
    choice = LensChoice.of([pool.lenses[name] for name in pool.of_split[split]])
    some = sources[:: max(1, -(-len(sources) // DRAWN_PHOTOGRAPHS))]
    blur: list[float] = []
    for number, source in enumerate(some):
        progress("drawing candidates", number / len(some))
        numbers = range(number * DRAWN_PATCHES, (number + 1) * DRAWN_PATCHES)
        outcomes = draw_candidates(plan, split, numbers, read_source(source, plan), choice)
        blur += [largest_blur_px(outcome.record) for outcome in outcomes if outcome.record is not None]
    return tuple(blur), len(some) * DRAWN_PATCHES - len(blur)


def blur_bars(blur_px: Sequence[float]) -> list[str]:
    """A histogram of blur radii (pixels) as lines of text."""
    counts, _ = np.histogram(blur_px, BLUR_EDGES_PX)
    last = int(np.flatnonzero(counts).max(initial=0))
    lines = []
    for low, high, count in zip(BLUR_EDGES_PX[: last + 1], BLUR_EDGES_PX[1:], counts, strict=False):
        label = f"{low:g} to {high:g} px" if np.isfinite(high) else f"above {low:g} px"
        bar = "█" * round(BAR * count / max(counts.max(), 1))
        lines.append(f"{label:>12} {bar}{' ' if bar else ''}{count / len(blur_px):.0%}")
    return lines


def _median(blur_px: Sequence[float]) -> float:
    return float(np.median(blur_px)) if blur_px else float("nan")


def _blur_warnings(blur_px: Sequence[float]) -> list[str]:
    median = _median(blur_px)
    if not median < LEAST_BLUR_PX:
        return []
    return [
        f"half of the pairs will be blurred by less than {median:.2g} px, nearly sharp: make pixels smaller "
        "(sensor.circle_px or sensor.pixel_um), take faster lenses, or ask for more (blur.levels_px)"
    ]


def _depth_warnings(without_depth: Mapping[str, float]) -> list[str]:
    poor = {name: part for name, part in without_depth.items() if part > MOST_WITHOUT_DEPTH}
    if not poor:
        return []
    worst = max(poor, key=lambda name: poor[name])
    return [
        f"{len(poor)} of {len(without_depth)} depth maps are mostly empty ({worst}: {poor[worst]:.0%}); what is "
        "missing takes the depth of the nearest pixel that has one"
    ]


def _free_bytes(folder: Path) -> int:
    parent = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(parent).free
