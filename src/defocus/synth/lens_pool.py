"""The lenses of a data set: found, surveyed, divided among the splits, and judged for each patch.

For each patch the paper asks which lenses are safe at every focus distance that may be drawn. Blur radius and samples
grow away from the focus, so the worst cases are the patch's nearest point with the focus farthest, and its farthest
point with the focus nearest. Both follow from first-order numbers, for all lenses at once.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ..camera import Camera
from ..errors import DefocusError, PlanError
from ..files.randomness import generator
from ..lens import list_lenses, load_lens
from ..lens.formats import read_lens
from ..lens.prescription import D_LINE_NM, Lens
from ..optics.apertures import solve_clear_apertures
from ..optics.paraxial_camera import ParaxialCamera
from ..psf.sampling import paper_bound
from ..survey.criteria import Criteria, judge
from ..survey.lens_folder import lens_files
from ..survey.measure import measure
from .plan import SPLITS, Plan, SplitName

PAPER_FACTOR = 4.0  # samples that the paper's filter takes for each of its N_inf


@dataclass(frozen=True)
class PoolLens:
    """One lens in one state, in a camera."""

    name: str  # what recipes call it: a built-in name or a path within its folder, with @state
    camera: Camera
    sha256: str

    @property
    def state(self) -> str:
        """The part of the name that says which zoom or focus state the lens is in."""
        return self.name.partition("@")[2]

    def camera_for(self, pixel_um: float, focus_m: float) -> Camera:
        """The camera with the pixels and the focus of one pair."""
        return self.camera.with_pixels(pixel_um=pixel_um).focused(focus_m)


@dataclass(frozen=True)
class LensPool:
    """All lenses that passed, and which split has which."""

    lenses: dict[str, PoolLens]
    rejected: tuple[tuple[str, str], ...]  # name and reasons
    of_split: dict[SplitName, tuple[str, ...]]


def find_lenses(plan: Plan, progress: Callable[[int, int], None] | None = None) -> LensPool:
    """Load, survey and divide the lenses of a plan. Raises `PlanError` where a split is left without any."""
    found: dict[str, Lens] = {}
    rejected: list[tuple[str, str]] = []
    for name, load in _wanted(plan):
        try:
            lens = load()
            found[name] = lens if lens.has_clear_apertures else solve_clear_apertures(lens)
        except DefocusError as error:
            rejected.append((name, str(error)))
    if not found and not rejected:
        raise PlanError("lenses: there are none: neither built in nor in the folders, or `only` fits none")
    kept = _surveyed(plan, found, rejected, progress)
    if not kept:
        first = "; ".join(f"{name}: {why}" for name, why in rejected[:3])
        raise PlanError(f"lenses: all {len(rejected)} were rejected, the first: {first}")
    pool: dict[str, PoolLens] = {}
    known: dict[str, str] = {}
    for name, lens in kept.items():
        # A copy under another name could come into another split.
        first = known.setdefault(lens.fingerprint(named=False), name)
        if first.partition("@")[0] != name.partition("@")[0]:
            rejected.append((name, f"the same prescription as {first}"))
            continue
        try:
            pool[name] = _measured(name, lens)
        except DefocusError as error:
            rejected.append((name, str(error)))
    if not pool:
        raise PlanError(
            f"lenses: all {len(rejected)} were rejected, the first: {'; '.join(map(': '.join, rejected[:3]))}"
        )
    return LensPool(pool, tuple(rejected), _divided(plan, sorted(pool)))


def load_pool_lens(plan: Plan, name: str) -> PoolLens:
    """One lens of a plan by its name, without the survey."""
    for known, load in _wanted(plan):
        if known == name:
            lens = load()
            return _measured(name, lens if lens.has_clear_apertures else solve_clear_apertures(lens))
    raise PlanError(f"lenses: {name} is neither built in nor in the plan's folders any more")


def paraxial_table(lenses: Sequence[PoolLens]) -> ParaxialCamera:
    """The cameras of many lenses to first order, one row each, of numpy."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(one.camera.paraxial for one in lenses))


def safe_lenses(
    table: ParaxialCamera,
    plan: Plan,
    diagonal_px: float,
    depth_m: tuple[float, float],
    focus_m: tuple[float, float],
) -> Bool[np.ndarray, " lenses"]:
    """Which lenses keep within the limits for every focus distance in `focus_m`, over a patch of `depth_m`.

    Both are (nearest, farthest); the photograph fills the image circle with `diagonal_px` pixels.
    """
    depth, focus = np.array(depth_m)[:, None], np.array(focus_m[::-1])[:, None]
    cameras = table.filled(diagonal_px).focused(focus)
    in_front = (depth.min() > table.front_focus_m) & (focus.min() > table.front_focus_m)
    radius, defocus = cameras.blur(depth)
    samples = PAPER_FACTOR * paper_bound(table.data.na, defocus, np.asarray(D_LINE_NM * 1e-6))
    small = (np.abs(radius) <= plan.coc_limit_px).all(0)
    return np.asarray(in_front & small & (samples <= plan.limits.samples).all(0))


def largest_coc_px(
    table: ParaxialCamera,
    rows: Int[np.ndarray, " n"],
    diagonal_px: float,
    depth_m: tuple[float, float],
    focus_m: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """The largest blur radius over a patch, for pairs of a lens (its row in the table) and a focus distance."""
    cameras = jax.tree.map(lambda leaf: leaf[rows], table).filled(diagonal_px).focused(focus_m[None])
    return np.abs(cameras.circle_of_confusion_px(np.array(depth_m)[:, None])).max(0)


def _wanted(plan: Plan) -> list[tuple[str, Callable[[], Lens]]]:
    """Names and how to load them, states included."""
    asked: list[tuple[str, Callable[[], Lens]]] = []
    if plan.lenses.builtin:
        for entry in list_lenses():
            states = entry.states if plan.lenses.states == "all" else entry.states[:1]
            asked += [(f"{entry.name}@{s}", _loader(entry.name, s)) for s in states]
            asked += [] if states else [(entry.name, _loader(entry.name, None))]
    for folder in plan.lenses.folders:
        if not folder.is_dir():
            raise PlanError(f"lenses.folders: {folder} is not a folder")
        for path in lens_files(folder):
            name = path.relative_to(folder).as_posix()
            asked += _of_file(name, path, plan)
    if plan.lenses.only:
        asked = [(n, f) for n, f in asked if any(_fits(n, pattern) for pattern in plan.lenses.only)]
    counts = Counter(name for name, _ in asked)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise PlanError(f"lenses: {twice[0]} is there twice: rename one, or take one of the folders away")
    return asked


def _fits(name: str, pattern: str) -> bool:
    """With its state or without."""
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name.partition("@")[0], pattern)


def _of_file(name: str, path: Path, plan: Plan) -> list[tuple[str, Callable[[], Lens]]]:
    try:
        lens = read_lens(path)
    except DefocusError:
        return [(name, lambda: read_lens(path))]  # said once more, where reasons are kept
    states = lens.state_names if plan.lenses.states == "all" else lens.state_names[:1]
    return [(f"{name}@{s}", partial(lens.in_state, s)) for s in states] or [(name, lambda: lens)]


def _loader(name: str, state: str | None) -> Callable[[], Lens]:
    return lambda: load_lens(name, state=state)


def _surveyed(
    plan: Plan,
    found: dict[str, Lens],
    rejected: list[tuple[str, str]],
    progress: Callable[[int, int], None] | None,
) -> dict[str, Lens]:
    if not plan.lenses.survey:
        return found
    criteria = Criteria(
        max_f_number=plan.lenses.max_f_number,
        max_na=plan.lenses.max_na,
        max_phase_range_waves=plan.lenses.max_phase_range_waves,
        max_axial_rms=plan.lenses.max_axial_rms,
    )
    kept: dict[str, Lens] = {}
    measurements = measure(list(found.values()), progress=progress)
    for (name, lens), measured in zip(found.items(), measurements, strict=True):
        verdict = judge(measured, criteria)
        if verdict.kept:
            kept[name] = lens
        else:
            rejected.append((name, "; ".join(verdict.reasons)))
    return kept


def _measured(name: str, lens: Lens) -> PoolLens:
    return PoolLens(name, Camera(lens), lens.fingerprint())


def _divided(plan: Plan, names: list[str]) -> dict[SplitName, tuple[str, ...]]:
    """One seeded permutation, sliced; or as the plan names them. States of one lens stay together."""
    return divide(
        plan,
        names,
        "lenses",
        {n: plan.split(n).lenses for n in SPLITS},
        {n: plan.split(n).lens_fraction for n in SPLITS},
    )


def divide(
    plan: Plan,
    names: list[str],
    what: str,
    patterns: dict[SplitName, tuple[str, ...]],
    fractions: dict[SplitName, float],
) -> dict[SplitName, tuple[str, ...]]:
    """Names for each split that has pairs, none in two. Lenses that differ after an @, in their state, go together."""

    def group_of(name: str) -> str:
        return name.partition("@")[0] if what == "lenses" else name

    groups = sorted({group_of(name) for name in names})
    made: dict[SplitName, tuple[str, ...]] = {}
    taken: dict[str, SplitName] = {}
    if any(patterns[split] for split in plan.splits):
        for split in plan.splits:
            mine = [
                g
                for g in groups
                if any(fnmatch.fnmatch(g, p) or fnmatch.fnmatch(Path(g).name, p) for p in patterns[split])
            ]
            for group in mine:
                if group in taken:
                    raise PlanError(
                        f"{split}.{what}: {group} is in {taken[group]} as well: no {what} may be in two splits"
                    )
                taken[group] = split
    else:
        order = [groups[i] for i in generator(plan.seed, "split", what).permutation(len(groups))]
        wanted = [split for split in plan.splits if fractions[split] > 0.0]
        ends = np.round(np.cumsum([fractions[split] for split in wanted]) * len(order)).astype(int)
        # Each split gets one at least, if there are enough.
        for k in range(len(wanted)):
            least = ends[k - 1] + 1 if k else 1
            ends[k] = min(max(ends[k], least), len(order) - (len(wanted) - 1 - k))
        for start, end, split in zip([0, *ends[:-1]], ends, wanted, strict=True):
            taken |= dict.fromkeys(order[start:end], split)
    for split in plan.splits:
        made[split] = tuple(name for name in names if taken.get(group_of(name)) == split)
        if not made[split]:
            raise PlanError(
                f"{split}: no {what} are left for it of {len(groups)}: give more, or other fractions or names"
            )
    return made
