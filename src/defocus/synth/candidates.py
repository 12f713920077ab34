"""Candidates: patches of photographs with a lens, a focus distance and a field position for each.

A candidate is a pure function of the plan, its split and its number. Those of one photograph have consecutive
numbers, so that it is read once. A patch for which no lens is safe is rejected with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock

import jax
import numpy as np

from ..errors import DefocusError
from ..files.randomness import generator, seed_for
from ..optics.paraxial import ParaxialCamera
from .focus_draws import FocusDistribution, focus_places, stack_distances
from .lens_pool import PoolLens, largest_coc_px, safe_lenses
from .patches import PatchMeasures, Place, depth_at, fitting_place, measure_patch, measure_patches
from .plan import Plan, SplitName
from .recipe import Outcome, Placement, Recipe, pair_id
from .sources import Sharp

AT_ONCE = 32
LAYER_ROOM = (16, 32, 48, 72, 104, 136)
# Threads side by side hand over to each other at every call into numpy, and gain nothing.
_one_by_one = Lock()


@dataclass(frozen=True)
class LensChoice:
    """The lenses of one split."""

    lenses: tuple[PoolLens, ...]
    table: ParaxialCamera  # their cameras to first order, one row each, of numpy
    cameras: tuple[ParaxialCamera, ...]  # its rows
    f_numbers: tuple[float, ...]

    @classmethod
    def of(cls, lenses: Sequence[PoolLens]) -> LensChoice:
        """The lenses with their table."""
        table = jax.tree.map(lambda *leaves: np.stack(leaves), *(one.camera.paraxial for one in lenses))
        rows = range(len(lenses))
        cameras = tuple(jax.tree.map(lambda leaf, k=k: leaf[k], table) for k in rows)
        return cls(tuple(lenses), table, cameras, tuple(float(one.camera.f_number) for one in lenses))


def candidate_numbers(plan: Plan, split: SplitName, sources: int) -> list[range]:
    """The numbers of the candidates of each photograph of a split."""
    ends = np.round(np.arange(sources + 1) * plan.candidates(split) / sources).astype(int)
    return [range(int(a), int(b)) for a, b in pairwise(ends)]


def draw_candidates(
    plan: Plan, split: SplitName, numbers: Sequence[int], sharp: Sharp, choice: LensChoice
) -> list[Outcome]:
    """One outcome per number: drawn, with its recipe, or rejected."""
    size, shape = plan.patch.size, sharp.depth_m.shape
    augment = plan.augment if plan.split(split).augment else None
    draws = ((n, fitting_place(size, shape, augment, generator(plan.seed, split, n, "place"))) for n in numbers)
    placements = {n: placement for n, placement in draws if placement is not None}
    too_small = f"{sharp.name}: {shape[1]}×{shape[0]} pixels do not hold a patch of {size}"
    outcomes = {n: Outcome(pair_id(split, n), "rejected", too_small) for n in numbers if n not in placements}
    if not placements:
        return [*outcomes.values()]
    measures = _measure(plan, sharp, [*placements.values()])
    with _one_by_one:
        for patch in _patches(plan, sharp, choice, placements, measures):
            try:
                recipe = _recipe(plan, split, sharp, choice, patch)
            except DefocusError as error:
                outcomes[patch.number] = Outcome(pair_id(split, patch.number), "rejected", str(error))
            else:
                outcomes[patch.number] = Outcome(recipe.id, "drawn", record=recipe.to_json())
    return [outcomes[n] for n in numbers]


@dataclass(frozen=True)
class _Patch:
    """A patch of a candidate, and what can be in focus and be taken with it."""

    number: int
    placement: Placement
    depths_m: tuple[float, float]  # nearest, farthest
    sharpness: tuple[float, ...]
    focus: FocusDistribution
    stack_m: tuple[float, ...]  # focus distances of its focal stack
    safe: np.ndarray  # rows of the lenses
    table: ParaxialCamera  # of all lenses, as the photograph fills their image circles


def _patches(
    plan: Plan, sharp: Sharp, choice: LensChoice, placements: dict[int, Placement], measures: list[PatchMeasures]
) -> Iterator[_Patch]:
    """The patches of a photograph; all lenses are judged for all of them at once."""
    depths = [(float(m.nearest_m), float(m.farthest_m)) for m in measures]
    cells = (np.flatnonzero(m.occupied) for m in measures)
    places = [focus_places(ends, own, plan.focus) for ends, own in zip(depths, cells, strict=True)]
    focus = [FocusDistribution.of(own, plan.focus) for own in places]
    table = choice.table.filled(plan.sensor.pixels_across(choice.table.image_radius, sharp.diagonal_px))
    stacks = [stack_distances(plan, ends) for ends in depths]
    distances = [(*one.reach_m, *stack) for one, stack in zip(focus, stacks, strict=True)]
    reach = np.array([(min(own), max(own)) for own in distances])
    safe = safe_lenses(table, plan, np.array(depths), reach)
    for k, (number, placement) in enumerate(placements.items()):
        sharpness = tuple(float(v) for v in measures[k].sharpness)
        yield _Patch(number, placement, depths[k], sharpness, focus[k], stacks[k], np.flatnonzero(safe[k]), table)


def _measure(plan: Plan, sharp: Sharp, placements: Sequence[Placement]) -> list[PatchMeasures]:
    """A processor takes one patch after the other, a GPU many; neither result depends on the others."""
    linear, depth = sharp.on_device
    options = {
        "size": plan.patch.size,
        "cluster": plan.focus.cluster,
        "nearest_focus_m": plan.focus.nearest_m,
        "farthest_focus_m": plan.focus.farthest_m,
    }
    places, count = Place.batch(placements), len(placements)
    if jax.default_backend() == "cpu":
        return [jax.device_get(measure_patch(linear, depth, places.row(k), **options)) for k in range(count)]
    measures: list[PatchMeasures] = []
    for start in range(0, count, AT_ONCE):
        rows = np.minimum(np.arange(start, start + AT_ONCE), count - 1)
        batch = jax.device_get(measure_patches(linear, depth, places.row(rows), **options))
        measures += [jax.tree.map(lambda leaf, k=k: leaf[k], batch) for k in range(min(AT_ONCE, count - start))]
    return measures


def _recipe(plan: Plan, split: SplitName, sharp: Sharp, choice: LensChoice, patch: _Patch) -> Recipe:
    name = (plan.seed, split, patch.number)
    depths = patch.depths_m
    if not len(patch.safe):
        raise DefocusError(
            f"none of {len(choice.lenses)} lenses is safe: depths of {depths[0]:.3g} to {depths[1]:.3g} m blur all of "
            f"them by more than {plan.coc_limit_px:g} px or take more than {plan.limits.samples:g} samples"
        )
    single_m = None
    if plan.depth.mode == "single":
        column, line = generator(*name, "depth").integers(0, plan.patch.size, 2).tolist()
        single_m = depth_at(sharp.depth_m, patch.placement, plan.patch.size, column, line)
    rendered = depths if single_m is None else (single_m, single_m)
    blurred = depths if plan.blur.counts == "patch" else rendered
    row, distance = _lens_and_focus(plan, name, patch, blurred)
    lens, camera = choice.lenses[row], choice.cameras[row]
    camera = camera.filled(plan.sensor.pixels_across(camera.image_radius, sharp.diagonal_px)).focused(distance)
    coc = camera.circle_of_confusion_px(np.array(rendered))
    surfaces = 0 if sharp.stack is None else len(sharp.stack.opacity)
    room = layer_room(plan, coc, surfaces)
    for other in patch.stack_m:  # rejects what could not be rendered later
        layer_room(plan, camera.focused(other).circle_of_confusion_px(np.array(rendered)), surfaces)
    random = generator(*name, "field")
    radius, turn = plan.psf.field_radius * math.sqrt(random.random()), random.uniform(0.0, 2.0 * math.pi)
    random = generator(*name, "sensor")
    power = float(random.uniform(0.0, plan.sensor.saturation))
    shot, read = (random.uniform(0.5, 1.5, 2) * plan.sensor.noise).tolist()
    return Recipe(
        id=pair_id(split, patch.number),
        split=split,
        index=patch.number,
        seed=seed_for(*name, "noise"),
        source=sharp.name,
        source_sha256=sharp.sha256,
        **patch.placement._asdict(),
        patch_px=plan.patch.size,
        lens=lens.name,
        lens_sha256=lens.sha256,
        state=lens.state,
        field=(radius * math.cos(turn), radius * math.sin(turn)),
        focus_m=distance,
        pixel_um=float(camera.pixel) * 1e3,
        f_number=choice.f_numbers[row],
        depth_m=depths,
        coc_px=(float(coc.min()), float(coc.max())),
        layers=room,
        saturation=power if plan.sensor.isp and sharp.stack is None else 0.0,  # composed scenes have their own
        noise=(shot, read) if plan.sensor.isp else (0.0, 0.0),
        single_m=single_m,
        stack_m=patch.stack_m,
        sharpness=patch.sharpness,
    )


def layer_room(plan: Plan, coc_px: np.ndarray, surfaces: int = 0) -> int:
    """How many layers a patch has room for whose blur radii lie between two. Raises `DefocusError` for too many.

    Each of the `surfaces` of a composed scene has layers of its own.
    """
    needed = math.ceil(abs(float(coc_px[1] - coc_px[0])) / plan.depth.step_px) + 2 + 2 * surfaces
    room = next((n for n in LAYER_ROOM if n >= needed), None)
    if room is None:
        raise DefocusError(f"{needed} layers of {plan.depth.step_px:g} px are more than {LAYER_ROOM[-1]}")
    return room


def _lens_and_focus(
    plan: Plan, name: tuple[int, str, int], patch: _Patch, depths: tuple[float, float]
) -> tuple[int, float]:
    """The row of a safe lens and a focus distance; of many proposals the one nearest to a wanted blur level."""
    random = generator(*name, "lens")
    count = plan.blur.proposals if plan.blur.levels_px else 1
    draws = [(random.integers(len(patch.safe)), random.random(), random.random()) for _ in range(count)]
    lens, *even = np.array(draws).T
    rows, distances = patch.safe[lens.astype(int)], patch.focus.distances_m(np.stack(even, axis=1))
    best = 0
    if plan.blur.levels_px:
        weights = np.array(plan.blur.weights) / sum(plan.blur.weights)
        level = int(generator(*name, "blur").choice(len(weights), p=weights))
        low = 0.0 if level == 0 else plan.blur.levels_px[level - 1]
        target_px = float(generator(*name, "blur", "within").uniform(low, plan.blur.levels_px[level]))
        best = int(np.argmin(np.abs(largest_coc_px(patch.table, rows, depths, distances) - target_px)))
    return int(rows[best]), float(distances[best])
