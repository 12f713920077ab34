"""One pair again from its metadata alone, and what it was made of: patch, depth, layers, PSFs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DatasetError, PlanError
from ..files.pair_folders import pictures_of
from ..files.png import png_bytes
from ..files.settings import settings_difference
from .folder import PairFolder, open_folder
from .layer_psfs import LayerBlur, find_layer_psfs
from .lens_pool import PoolLens, load_pool_lens
from .pairs import Made, make_pairs, patch_of
from .places import apart_from_places
from .plan import Plan, completed, make_plan
from .recipe import Recipe
from .sources import Sharp, find_source, read_source


@dataclass(frozen=True)
class Shown:
    """A pair that was made again."""

    record: dict[str, Any]
    made: Made
    files: dict[str, bytes]
    same: bool  # bit for bit what the folder holds
    differing: tuple[str, ...]
    linear: np.ndarray
    depth_m: np.ndarray
    layer_of: np.ndarray
    coc_px: np.ndarray
    layer_coc_px: np.ndarray
    layer_depth_m: np.ndarray
    psfs: np.ndarray


def show_pair(folder: str | Path, identity: str, plan: Plan | None = None) -> Shown:
    """Make one pair of a folder again. Raises `DatasetError` if there is none of that name.

    `plan`: the folder's, where photographs or lenses lie elsewhere than the folder tells; `PlanError` if they are not
    found.
    """
    opened = open_folder(folder)
    try:
        record = next((r for r in opened.records() if r["id"] == identity), None)
        if record is None:
            some = [r["id"] for r, _ in zip(opened.records(), range(3), strict=False)]
            raise DatasetError(
                f"no pair {identity!r}; there are {', '.join(some) or 'none'}, ...", file=opened.store.root
            )
        plan = make_plan(opened.plan) if plan is None else _same(plan, opened)
        _, held = next(pictures_of(opened.store, [record], record["files"]))
    finally:
        opened.close()
    recipe = Recipe.from_json(record)
    try:
        sharp = read_source(find_source(plan, recipe.source), plan)
        lens = load_pool_lens(plan, recipe.lens)
    except PlanError as error:
        raise PlanError(f"{error.message}: if its files lie elsewhere now, give the plan (--plan)") from error
    made = make_pairs(plan, [recipe], {sharp.name: sharp}, {lens.name: lens})[0]
    files: dict[str, bytes] = {role: png_bytes(values) for role, values in made.pictures.items()}
    # Both what was written once and what is there now.
    differing = tuple(
        role
        for role, about in record["files"].items()
        if files.get(role) != held[role] or hashlib.sha256(files[role]).hexdigest() != about["sha256"]
    )
    return _shown(plan, record, recipe, sharp, lens, made, files, differing)


def _same(plan: Plan, opened: PairFolder) -> Plan:
    """The given plan, if it differs from the folder's in places alone."""
    told = settings_difference(apart_from_places(completed(opened.plan)), apart_from_places(plan.as_json()))
    if told:
        raise DatasetError(f"was made by another plan than the given one ({'; '.join(told)})", file=opened.store.root)
    return plan


def _shown(
    plan: Plan,
    record: dict[str, Any],
    recipe: Recipe,
    sharp: Sharp,
    lens: PoolLens,
    made: Made,
    files: dict[str, bytes],
    differing: tuple[str, ...],
) -> Shown:
    linear, depth, coc, layers = patch_of(plan, recipe, sharp, lens)
    used = np.asarray(layers.used)
    coc_of, depth_of = np.asarray(layers.coc_px), np.asarray(layers.depth_m)
    (found,) = find_layer_psfs(plan, [LayerBlur(recipe, lens, coc_of, depth_of, used)])[None]
    psfs = found.kernels(len(used))
    return Shown(
        record, made, files, not differing, differing, linear, depth, np.asarray(layers.position), coc,
        coc_of[used], depth_of[used], psfs[used],
    )  # fmt: skip


__all__ = ["Shown", "show_pair"]
