"""Candidates: patches of photographs with a lens, a focus distance and a field position for each.

A candidate is a pure function of the plan, its split and its number. Those of one photograph have consecutive
numbers, so that it is read once. A patch for which no lens is safe is rejected with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import DefocusError
from ..files.randomness import generator, seed_for
from ..optics.paraxial import ParaxialCamera
from . import focus_draws
from .lens_pool import PoolLens, largest_coc_px, safe_lenses
from .patches import PatchMeasures, Place, depth_at, fitting_place, measure_patch, measure_patches
from .plan import Plan, SplitName
from .recipe import Outcome, Placement, Recipe, pair_id
from .sources import Sharp

AT_ONCE = 32
LAYER_ROOM = (16, 32, 48, 72, 104, 136)


@dataclass(frozen=True)
class LensChoice:
    """The lenses of one split."""

    lenses: tuple[PoolLens, ...]
    table: ParaxialCamera  # their cameras to first order, one row each, of numpy

    @classmethod
    def of(cls, lenses: Sequence[PoolLens]) -> LensChoice:
        """The lenses with their table."""
        return cls(
            tuple(lenses), jax.tree.map(lambda *leaves: np.stack(leaves), *(one.camera.paraxial for one in lenses))
        )


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
    for (n, placement), measures in zip(placements.items(), _measure(plan, sharp, [*placements.values()]), strict=True):
        try:
            recipe = _recipe(plan, split, n, sharp, choice, placement, measures)
        except DefocusError as error:
            outcomes[n] = Outcome(pair_id(split, n), "rejected", str(error))
        else:
            outcomes[n] = Outcome(recipe.id, "drawn", record=recipe.to_json())
    return [outcomes[n] for n in numbers]


def _measure(plan: Plan, sharp: Sharp, placements: Sequence[Placement]) -> list[PatchMeasures]:
    """A processor takes one patch after the other, a GPU many; neither result depends on the others."""
    if not placements:
        return []
    linear, depth = jnp.asarray(sharp.linear), jnp.asarray(sharp.depth_m)
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


def _recipe(
    plan: Plan,
    split: SplitName,
    number: int,
    sharp: Sharp,
    choice: LensChoice,
    placement: Placement,
    measures: PatchMeasures,
) -> Recipe:
    name = (plan.seed, split, number)
    depths = (float(measures.nearest_m), float(measures.farthest_m))
    places = focus_draws.focus_places(depths, np.flatnonzero(measures.occupied), plan.focus)
    stack = focus_draws.stack_distances(plan, depths)
    distances = (*focus_draws.reach(places, plan.focus), *stack)
    table = choice.table.filled(plan.sensor.pixels_across(choice.table.image_radius, sharp.diagonal_px))
    safe = np.flatnonzero(safe_lenses(table, plan, depths, (min(distances), max(distances))))
    if not len(safe):
        raise DefocusError(
            f"none of {len(choice.lenses)} lenses is safe: depths of {depths[0]:.3g} to {depths[1]:.3g} m blur all of "
            f"them by more than {plan.coc_limit_px:g} px or take more than {plan.limits.samples:g} samples"
        )
    single_m = None
    if plan.depth.mode == "single":
        column, line = generator(*name, "depth").integers(0, plan.patch.size, 2).tolist()
        single_m = depth_at(sharp.depth_m, placement, plan.patch.size, column, line)
    rendered = depths if single_m is None else (single_m, single_m)
    row, distance = _lens_and_focus(
        plan, name, table, safe, places, depths if plan.blur.counts == "patch" else rendered
    )
    lens, camera = choice.lenses[row], jax.tree.map(lambda leaf: leaf[row], table).focused(distance)
    coc = camera.circle_of_confusion_px(np.array(rendered))
    room = layer_room(plan, coc)
    for other in stack:  # rejects what could not be rendered later
        layer_room(plan, camera.focused(other).circle_of_confusion_px(np.array(rendered)))
    random = generator(*name, "field")
    radius, turn = plan.psf.field_radius * math.sqrt(random.random()), random.uniform(0.0, 2.0 * math.pi)
    random = generator(*name, "sensor")
    power = float(random.uniform(0.0, plan.sensor.saturation))
    shot, read = (random.uniform(0.5, 1.5, 2) * plan.sensor.noise).tolist()
    return Recipe(
        id=pair_id(split, number),
        split=split,
        index=number,
        seed=seed_for(*name, "noise"),
        source=sharp.name,
        source_sha256=sharp.sha256,
        **placement._asdict(),
        patch_px=plan.patch.size,
        lens=lens.name,
        lens_sha256=lens.sha256,
        state=lens.state,
        field=(radius * math.cos(turn), radius * math.sin(turn)),
        focus_m=distance,
        pixel_um=float(camera.pixel) * 1e3,
        f_number=float(lens.camera.f_number),
        depth_m=depths,
        coc_px=(float(coc.min()), float(coc.max())),
        layers=room,
        saturation=power if plan.sensor.isp else 0.0,
        noise=(shot, read) if plan.sensor.isp else (0.0, 0.0),
        single_m=single_m,
        stack_m=stack,
        sharpness=tuple(float(v) for v in measures.sharpness),
    )


def layer_room(plan: Plan, coc_px: np.ndarray) -> int:
    """How many layers a patch has room for whose blur radii lie between two. Raises `DefocusError` for too many."""
    needed = math.ceil(abs(float(coc_px[1] - coc_px[0])) / plan.depth.step_px) + 2
    room = next((n for n in LAYER_ROOM if n >= needed), None)
    if room is None:
        raise DefocusError(f"{needed} layers of {plan.depth.step_px:g} px are more than {LAYER_ROOM[-1]}")
    return room


def _lens_and_focus(
    plan: Plan,
    name: tuple[int, str, int],
    table: ParaxialCamera,
    safe: np.ndarray,
    places: np.ndarray,
    depths: tuple[float, float],
) -> tuple[int, float]:
    """The row of a safe lens and a focus distance; of many proposals the one nearest to a wanted blur level."""
    random = generator(*name, "lens")

    def propose() -> tuple[int, float]:
        return int(random.choice(safe)), focus_draws.draw_focus(places, plan.focus, random)

    if not plan.blur.levels_px:
        return propose()
    weights = np.array(plan.blur.weights) / sum(plan.blur.weights)
    level = int(generator(*name, "blur").choice(len(weights), p=weights))
    low = 0.0 if level == 0 else plan.blur.levels_px[level - 1]
    target_px = float(generator(*name, "blur", "within").uniform(low, plan.blur.levels_px[level]))
    rows, distances = map(np.array, zip(*(propose() for _ in range(plan.blur.proposals)), strict=True))
    largest = largest_coc_px(table, rows, depths, distances)
    best = int(np.argmin(np.abs(largest - target_px)))
    return int(rows[best]), float(distances[best])
