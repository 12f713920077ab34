"""The PSFs of many patches at once: one for each layer that has pixels, lenses and patches mixed in full batches.

A PSF is computed in the smallest of three windows that should hold it and set into the plan's kernel; where light
leaves the window, in the kernel itself. One that does not fit there either, or that the lens refuses, rejects its pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..psf.baselines import disk, gaussian
from ..psf.compute import Side, psf_batch
from ..psf.spectrum import Bands
from ..render.node_psfs import FRINGE_PX, LARGE_BLUR_PX, MOST_SPILL, SPILL, SUPERSAMPLE, window_for
from ..render.photograph import photo_bands
from .lens_pool import PoolLens
from .plan import Plan
from .recipe import Recipe

WINDOWS = (32, 64)  # and the kernel


@dataclass
class PatchPsfs:
    """The PSFs of one patch, or why there are none."""

    psfs: Float[np.ndarray, "layers bands size size"]
    refused: str = ""
    energy_outside: float = 0.0
    residual_waves: float = 0.0
    samples: int = 0

    def told(self, plan: Plan, bands: Bands) -> dict[str, Any]:
        """For the pair's record."""
        return {
            "kind": plan.psf.kind,
            "bands": dict(zip(bands.names, map(list, bands.wavelengths_nm), strict=True)),
            "energy_outside": round(self.energy_outside, 6),
            "residual_waves": round(self.residual_waves, 6),
            "samples": self.samples,
            "kernel_px": plan.patch.kernel,
        }


def find_layer_psfs(
    plan: Plan,
    recipes: Sequence[Recipe],
    lenses: Sequence[PoolLens],
    coc_px: Float[np.ndarray, "patches layers"],
    depth_m: Float[np.ndarray, "patches layers"],
    used: Bool[np.ndarray, "patches layers"],
    side: Side | None = None,
) -> list[PatchPsfs]:
    """For every patch the PSFs of its layers; layers without pixels get a point, which nothing is seen through."""
    bands, kernel = photo_bands(plan.psf.bands), plan.patch.kernel
    layers = coc_px.shape[1]
    made = [PatchPsfs(np.zeros((layers, len(bands.names), kernel, kernel), np.float32)) for _ in recipes]
    for patch in made:
        patch.psfs[:, :, kernel // 2, kernel // 2] = 1.0
    wanted = [(int(p), int(k)) for p, k in np.argwhere(used)]
    if plan.psf.kind != "lens":
        shape = gaussian if plan.psf.kind == "gaussian" else disk
        for p, k in wanted:
            made[p].psfs[k] = shape(float(coc_px[p, k]), kernel)
        return made
    groups: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
    for p, k in wanted:
        groups.setdefault(_how(plan, float(coc_px[p, k])), []).append((p, k))
    again: list[tuple[int, int]] = []
    for (window, fine), pairs in sorted(groups.items(), key=str):
        again += _compute(plan, recipes, lenses, depth_m, pairs, window, fine, bands, side, made)
    if again:
        _compute(
            plan, recipes, lenses, depth_m, again, kernel, None if plan.psf.exact else SUPERSAMPLE, bands, side, made
        )
    return made


def _how(plan: Plan, coc: float) -> tuple[int, int | None]:
    """Window and points per pixel (None: as many as it takes)."""
    needed = window_for(coc)
    window = next((w for w in WINDOWS if needed <= w <= plan.patch.kernel), plan.patch.kernel)
    return window, SUPERSAMPLE if abs(coc) >= LARGE_BLUR_PX and not plan.psf.exact else None


def _compute(
    plan: Plan,
    recipes: Sequence[Recipe],
    lenses: Sequence[PoolLens],
    depth_m: Float[np.ndarray, "patches layers"],
    pairs: list[tuple[int, int]],
    window: int,
    fine: int | None,
    bands: Bands,
    side: Side | None,
    made: list[PatchPsfs],
) -> list[tuple[int, int]]:
    """Compute PSFs into `made`; returns those that need the whole kernel."""
    kernel = plan.patch.kernel
    batch = psf_batch(
        [lenses[p].lens for p, _ in pairs],
        height_mm=[math.hypot(*recipes[p].field) * lenses[p].image_radius_mm for p, _ in pairs],
        azimuth=[math.atan2(recipes[p].field[1], recipes[p].field[0]) for p, _ in pairs],
        depth_mm=[float(depth_m[p, k]) * 1e3 for p, k in pairs],
        focus_mm=[recipes[p].focus_m * 1e3 for p, _ in pairs],
        pixel_um=[recipes[p].pixel_um for p, _ in pairs],
        size=window,
        bands=bands,
        supersample=fine,
        fringe_px=None if plan.psf.exact else FRINGE_PX,
        side=side,
    )
    larger: list[tuple[int, int]] = []
    first = kernel // 2 - window // 2
    inside = slice(first, first + window)
    for (p, k), psf, report in zip(pairs, batch.psf, batch.reports, strict=True):
        patch, recipe = made[p], recipes[p]
        if report["status"] != "ok":
            patch.refused = patch.refused or f"{recipe.lens}: {report['status']}"
            continue
        spill = report["energy_outside"]
        if spill > SPILL and window < kernel:
            larger.append((p, k))
            continue
        if spill > MOST_SPILL:
            patch.refused = patch.refused or f"{recipe.lens}: {spill:.0%} of the light falls outside the kernel"
            continue
        patch.psfs[k] = 0.0
        patch.psfs[k][:, inside, inside] = psf
        patch.energy_outside = max(patch.energy_outside, spill)
        patch.residual_waves = max(patch.residual_waves, report["residual_waves"])
        patch.samples = max(patch.samples, report["samples"])
    return larger
