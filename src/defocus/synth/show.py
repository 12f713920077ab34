"""One pair again from its metadata alone, and what it was made of: patch, depth, layers, PSFs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DatasetError, PlanError
from ..files.pair_folders import pictures_of
from ..files.settings import settings_difference
from .folder import PairFolder, open_folder
from .layer_psfs import LayerBlur, find_layer_psfs
from .lens_pool import load_pool_lens
from .pairs import make_pairs, patch_of
from .places import apart_from_places
from .plan import Plan, PlanLike, as_plan, completed, make_plan
from .recipe import Recipe
from .sources import find_source, read_source
from .writer import picture_files


@dataclass(frozen=True)
class PairInspection:
    """A pair that was made again, with what it was made of. Pictures in pixels of the patch, blur radii signed."""

    record: dict[str, Any]
    pictures: dict[str, np.ndarray]
    files: dict[str, bytes]
    differing: tuple[str, ...]  # roles whose bytes are not those of the folder
    linear: np.ndarray
    depth_m: np.ndarray
    coc_px: np.ndarray
    layer_coc_px: np.ndarray
    layer_depth_m: np.ndarray
    psfs: np.ndarray  # of each layer

    @property
    def same(self) -> bool:
        """Whether the pair is bit for bit what the folder holds."""
        return not self.differing


def show_pair(folder: str | Path, identity: str, plan: PlanLike | None = None) -> PairInspection:
    """Make one pair of a folder again. Raises `DatasetError` if there is none of that name.

    `plan`: the folder's, where photographs or lenses lie elsewhere than the folder tells; `PlanError` if they are not
    there.
    """
    with open_folder(folder) as pairs:
        record = next((r for r in pairs.records() if r["id"] == identity), None)
        if record is None:
            some = ", ".join(r["id"] for r in islice(pairs.records(), 3)) or "none"
            raise DatasetError(f"no pair {identity!r}; there are {some}, ...", file=pairs.store.root)
        plan = make_plan(pairs.plan) if plan is None else _same_plan(as_plan(plan), pairs)
        _, stored = next(pictures_of(pairs.store, [record], record["files"]))
    recipe = Recipe.from_json(record)
    try:
        sharp = read_source(find_source(plan, recipe.source), plan)
        lens = load_pool_lens(plan, recipe.lens)
    except PlanError as error:
        raise PlanError(f"{error.message}: if its files lie elsewhere now, give the plan (--plan)") from error
    (pair,) = make_pairs(plan, [recipe], {sharp.name: sharp}, {lens.name: lens})
    files = picture_files(pair)
    # Both what was written once and what is there now.
    differing = tuple(
        role
        for role, file in record["files"].items()
        if files.get(role) != stored[role] or hashlib.sha256(files[role]).hexdigest() != file["sha256"]
    )
    linear, depth, coc, layers = patch_of(plan, recipe, sharp, lens)
    used, layer_coc, layer_depth = (np.asarray(v) for v in (layers.used, layers.coc_px, layers.depth_m))
    camera = lens.camera_for(recipe.pixel_um, recipe.focus_m)
    blur = LayerBlur(recipe.lens, recipe.field, camera, layer_coc, layer_depth, used)
    (psfs,) = find_layer_psfs(plan, [blur])[None]
    return PairInspection(
        record, pair.pictures, files, differing, linear, depth, coc,
        layer_coc[used], layer_depth[used], psfs.kernels(len(used))[used],
    )  # fmt: skip


def _same_plan(plan: Plan, pairs: PairFolder) -> Plan:
    """The plan, if it differs from the folder's in places alone."""
    difference = settings_difference(apart_from_places(completed(pairs.plan)), apart_from_places(plan.as_json()))
    if difference:
        raise DatasetError(
            f"was made by another plan than the given one ({'; '.join(difference)})", file=pairs.store.root
        )
    return plan
