"""The lenses of a data set: loaded, surveyed, divided among the splits, and judged for each patch.

For each patch the paper asks which lenses are safe at every focus distance that may be drawn. Blur radius and samples
grow away from the focus, so the worst cases are the patch's nearest point with the focus farthest, and its farthest
point with the focus nearest. Both follow from first-order numbers, for all lenses at once.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

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
from ..optics.paraxial import ParaxialCamera
from ..psf.sampling import paper_bound
from ..survey.criteria import Criteria, judge
from ..survey.lens_folder import lens_files
from ..survey.measurement import measure
from .lens_families import lens_families
from .plan import Plan, SplitName

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
    lenses: dict[str, Lens] = {}
    rejected: list[tuple[str, str]] = []
    for name, load in _loaders(plan).items():
        try:
            lenses[name] = load()
        except DefocusError as error:
            rejected.append((name, str(error)))
    if not lenses and not rejected:
        raise PlanError("lenses: there are none: neither built in nor in the folders, or `only` fits none")
    if plan.lenses.survey:
        rejected += _survey(plan, lenses, progress)
    pool: dict[str, PoolLens] = {}
    firsts: dict[str, str] = {}
    for name, lens in lenses.items():
        # A copy under another name could come into another split.
        first = firsts.setdefault(lens.fingerprint(named=False), name)
        if first.partition("@")[0] != name.partition("@")[0]:
            rejected.append((name, f"the same prescription as {first}"))
            continue
        try:
            pool[name] = PoolLens(name, Camera(lens), lens.fingerprint())
        except DefocusError as error:
            rejected.append((name, str(error)))
    if not pool:
        examples = "; ".join(f"{name}: {reason}" for name, reason in rejected[:3])
        raise PlanError(f"lenses: all {len(rejected)} were rejected, the first: {examples}")
    families: dict[str, str] = {}
    if plan.lenses.families:
        data = {name: one.camera.first_order for name, one in pool.items()}
        numbers = {name: (float(one.focal_length), float(one.f_number)) for name, one in data.items()}
        families = lens_families({name: lenses[name] for name in pool}, numbers)
    return LensPool(pool, tuple(rejected), divide(plan, sorted(pool), "lenses", families=families))


def load_pool_lens(plan: Plan, name: str) -> PoolLens:
    """One lens of a plan by its name, without the survey."""
    loaders = _loaders(plan)
    if name not in loaders:
        raise PlanError(f"lenses: {name} is neither built in nor in the plan's folders any more")
    lens = loaders[name]()
    return PoolLens(name, Camera(lens), lens.fingerprint())


def safe_lenses(
    table: ParaxialCamera,
    plan: Plan,
    depth_m: Float[np.ndarray, "*patches 2"] | tuple[float, float],
    focus_m: Float[np.ndarray, "*patches 2"] | tuple[float, float],
) -> Bool[np.ndarray, "*patches lenses"]:
    """Which lenses keep within the limits for every focus distance in `focus_m`, over patches of `depth_m`.

    Both are (nearest, farthest); the cameras of the table have the pixels of the patch.
    """
    depth, focus = np.asarray(depth_m)[..., None], np.asarray(focus_m)[..., ::-1, None]
    cameras = table.focused(focus)
    in_front = np.minimum(depth.min(-2), focus.min(-2)) * 1e3 > table.data.front_focus
    radius, defocus = cameras.blur(depth)
    samples = PAPER_FACTOR * paper_bound(table.data.na, defocus, np.asarray(D_LINE_NM * 1e-6))
    small = (np.abs(radius) <= plan.coc_limit_px).all(-2)
    return np.asarray(in_front & small & (samples <= plan.limits.samples).all(-2))


def largest_coc_px(
    table: ParaxialCamera,
    rows: Int[np.ndarray, " n"],
    depth_m: tuple[float, float],
    focus_m: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """The largest blur radius over a patch, for pairs of a lens (its row in the table) and a focus distance."""
    cameras = jax.tree.map(lambda leaf: leaf[rows], table).focused(focus_m[None])
    return np.abs(cameras.circle_of_confusion_px(np.array(depth_m)[:, None])).max(0)


def _loaders(plan: Plan) -> dict[str, Callable[[], Lens]]:
    """How to load each lens of a plan in each of its states, by name."""
    loaders: list[tuple[str, Callable[[], Lens]]] = []
    states = slice(None) if plan.lenses.states == "all" else slice(1)
    for entry in list_lenses() if plan.lenses.builtin else ():
        for state in entry.states[states] or (None,):
            loaders.append((_state_name(entry.name, state), partial(load_lens, entry.name, state=state)))
    for folder in plan.lenses.folders:
        if not folder.is_dir():
            raise PlanError(f"lenses.folders: {folder} is not a folder")
        for path in lens_files(folder):
            name = path.relative_to(folder).as_posix()
            try:
                lens = read_lens(path)
            except DefocusError:
                loaders.append((name, partial(read_lens, path)))  # raises once more, where reasons are collected
                continue
            for state in lens.state_names[states] or (None,):
                loaders.append((_state_name(name, state), partial(_in_state, lens, state)))
    if plan.lenses.only:
        loaders = [one for one in loaders if _fits(plan.lenses.only, one[0], one[0].partition("@")[0])]
    counts = Counter(name for name, _ in loaders)
    for name, count in counts.items():
        if count > 1:
            raise PlanError(f"lenses: {name} is there twice: rename one, or take one of the folders away")
    return {name: partial(_with_apertures, load) for name, load in loaders}


def _state_name(name: str, state: str | None) -> str:
    return name if state is None else f"{name}@{state}"


def _in_state(lens: Lens, state: str | None) -> Lens:
    return lens if state is None else lens.in_state(state)


def _fits(patterns: Sequence[str], *names: str) -> bool:
    """Whether one of the names fits one of the patterns."""
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns)


def _with_apertures(load: Callable[[], Lens]) -> Lens:
    lens = load()
    return lens if lens.has_clear_apertures else solve_clear_apertures(lens)


def _survey(
    plan: Plan, lenses: dict[str, Lens], progress: Callable[[int, int], None] | None
) -> Iterator[tuple[str, str]]:
    """Remove the lenses that do not pass the paper's filter; their names and the reasons."""
    limits = ("max_f_number", "max_na", "max_phase_range_waves", "max_axial_rms")
    criteria = Criteria(**{name: getattr(plan.lenses, name) for name in limits})
    measurements = measure(list(lenses.values()), progress=progress)
    for name, measurement in zip(list(lenses), measurements, strict=True):
        verdict = judge(measurement, criteria)
        if not verdict.kept:
            del lenses[name]
            yield name, "; ".join(verdict.reasons)


def divide(
    plan: Plan,
    names: list[str],
    what: Literal["lenses", "images"],
    settled: Mapping[str, SplitName] | None = None,
    families: Mapping[str, str] | None = None,
) -> dict[SplitName, tuple[str, ...]]:
    """Names for each split that has pairs, none in two: one seeded permutation, sliced; or as the plan names them.

    Lenses that differ after an @, in their state, go together, and those of one of the `families`. What is `settled`
    keeps its split unless the plan names its own.
    """

    def group_of(name: str) -> str:
        if families:
            return families[name]
        return name.partition("@")[0] if what == "lenses" else name

    patterns = {split: getattr(plan.split(split), what) for split in plan.splits}
    groups = sorted({group_of(name) for name in names})
    split_of: dict[str, SplitName] = {}
    if any(patterns.values()):
        for split in plan.splits:
            for group in (group for group in groups if _fits(patterns[split], group, Path(group).name)):
                if group in split_of:
                    raise PlanError(
                        f"{split}.{what}: {group} is in {split_of[group]} as well: no {what} may be in two splits"
                    )
                split_of[group] = split
    else:
        split_of = dict(settled or {})
        free = [group for group in groups if group not in split_of]
        order = [free[i] for i in generator(plan.seed, "split", what).permutation(len(free))]
        fraction = "lens_fraction" if what == "lenses" else "image_fraction"
        fractions = {split: getattr(plan.split(split), fraction) for split in plan.splits}
        sharing = [split for split in plan.splits if fractions[split] > 0.0]
        ends = np.round(np.cumsum([fractions[split] for split in sharing]) * len(order)).astype(int)
        # Each split gets one at least, if there are enough.
        for k in range(len(sharing) if order else 0):
            least = ends[k - 1] + 1 if k else 1
            ends[k] = min(max(ends[k], least), len(order) - (len(sharing) - 1 - k))
        for start, end, split in zip([0, *ends[:-1]], ends, sharing, strict=True):
            split_of |= dict.fromkeys(order[start:end], split)
    division = {split: tuple(name for name in names if split_of.get(group_of(name)) == split) for split in plan.splits}
    for split, own in division.items():
        if not own:
            raise PlanError(
                f"{split}: no {what} are left for it of {len(groups)}: give more, or other fractions or names"
            )
    return division
