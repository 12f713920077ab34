"""The PSFs of many patches at once: one for each layer that has pixels, lenses and patches mixed in full batches.

A PSF is computed in the smallest of a few windows that should hold it and set into the plan's kernel; where light
leaves the window, in a larger one. One that the kernel does not hold, or that the lens refuses, rejects its pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..psf.baselines import disk, gaussian
from ..psf.compute import Side, Traced, trace_requests
from ..psf.spectrum import Bands
from ..render.node_psfs import FRINGE_PX, MOST_SPILL, SPILL, window_for
from ..render.photograph import photo_bands
from .lens_pool import PoolLens
from .plan import Plan
from .recipe import Recipe

# Windows, and points per pixel and axis in each; the kernel itself comes last. Small windows hold sharp PSFs, whose
# core is finer than a pixel; the fringes of large blurs are faint. Few shapes: each of them compiles.
WINDOWS = {16: 25, 32: 9, 64: 9, 96: 5}
KERNEL_POINTS = 5  # the paper's
OFFSET_WINDOW, SMOOTH_PX = 32, 1.5
SAMPLES = (768, 1536, 3072, 4096)


@dataclass(frozen=True)
class LayerBlur:
    """What the PSFs of one patch depend on."""

    recipe: Recipe
    lens: PoolLens
    coc_px: Float[np.ndarray, " layers"]
    depth_m: Float[np.ndarray, " layers"]
    used: Bool[np.ndarray, " layers"]


@dataclass
class PatchPsfs:
    """The PSFs of one patch in their own windows, or why there are none."""

    bands: Bands
    kernel: int
    psfs: dict[int, Float[np.ndarray, "bands size size"]] = field(default_factory=dict)
    refused: str = ""
    energy_outside: float = 0.0
    residual_waves: float = 0.0
    samples: int = 0

    def kernels(self, layers: int) -> Float[np.ndarray, "layers bands kernel kernel"]:
        """For all layers; those without pixels get a point, through which nothing is seen."""
        made = np.zeros((layers, len(self.bands.names), self.kernel, self.kernel), np.float32)
        made[:, :, self.kernel // 2, self.kernel // 2] = 1.0
        for layer, psf in self.psfs.items():
            first = self.kernel // 2 - psf.shape[-1] // 2
            inside = slice(first, first + psf.shape[-1])
            made[layer] = 0.0
            made[layer][:, inside, inside] = psf
        return made

    def told(self, plan: Plan) -> dict[str, Any]:
        """For the pair's record."""
        return {
            "kind": plan.psf.kind,
            "bands": dict(zip(self.bands.names, map(list, self.bands.wavelengths_nm), strict=True)),
            "energy_outside": round(self.energy_outside, 6),
            "residual_waves": round(self.residual_waves, 6),
            "samples": self.samples,
            "kernel_px": self.kernel,
        }


def find_layer_psfs(
    plan: Plan, blurs: Sequence[LayerBlur], sides: Sequence[Side | None] = (None,)
) -> dict[Side | None, list[PatchPsfs]]:
    """For every patch the PSFs of the layers that have pixels, through the whole lens or its halves."""
    bands, kernel = photo_bands(plan.psf.bands), plan.patch.kernel
    made: dict[Side | None, list[PatchPsfs]] = {side: [PatchPsfs(bands, kernel) for _ in blurs] for side in sides}
    wanted = [(p, int(k)) for p, blur in enumerate(blurs) for k in np.flatnonzero(blur.used)]
    if plan.psf.kind != "lens":
        shape = gaussian if plan.psf.kind == "gaussian" else disk
        for patches in made.values():
            for p, k in wanted:
                one = shape(float(blurs[p].coc_px[k]), kernel).astype(np.float32)
                patches[p].psfs[k] = np.broadcast_to(one, (len(bands.names), kernel, kernel))
        return made
    traced = _trace(plan, blurs, wanted)
    for side, patches in made.items():
        groups: dict[int, list[int]] = {}
        for row, (p, k) in enumerate(wanted):
            groups.setdefault(_window(plan, float(blurs[p].coc_px[k])), []).append(row)
        for window in (*WINDOWS, kernel):
            if window in groups:
                larger = _propagate(plan, blurs, wanted, traced, groups.pop(window), window, side, patches)
                groups.setdefault(_next_window(plan, window), []).extend(larger)
    return made


def find_offsets(plan: Plan, recipes: Sequence[Recipe], lenses: Sequence[PoolLens]) -> list[tuple[float, float] | None]:
    """By how many pixels, to the right and down, each lens moves what is in focus; None where there is no PSF.

    Coma throws the light to one side of the chief ray, by half a pixel where it is strong. What counts is where the
    blurred picture agrees best with the sharp one. For pictures whose gradients are as strong at every scale that is
    the highest point of the PSF, here of the sharpest one and smoothed a little: photographs are not sharper than that.
    """
    if plan.psf.kind != "lens":
        return [(0.0, 0.0)] * len(recipes)
    first = min(OFFSET_WINDOW, plan.patch.kernel)
    blurs = [
        LayerBlur(r, lens, np.zeros(1), np.array([r.focus_m]), np.ones(1, bool))
        for r, lens in zip(recipes, lenses, strict=True)
    ]
    made = [PatchPsfs(photo_bands(plan.psf.bands), plan.patch.kernel) for _ in recipes]
    wanted = [(p, 0) for p in range(len(blurs))]
    traced = _trace(plan, blurs, wanted)
    larger = _propagate(plan, blurs, wanted, traced, [*range(len(wanted))], first, None, made)
    _propagate(plan, blurs, wanted, traced, larger, plan.patch.kernel, None, made)
    return [_highest(patch.psfs[0].mean(0)) if 0 in patch.psfs else None for patch in made]


def _highest(psf: Float[np.ndarray, "size size"]) -> tuple[float, float]:
    """Where a smoothed PSF is highest, to the right of and below its middle: a parabola through the logarithms."""
    from scipy.ndimage import gaussian_filter  # slow to import

    smooth = np.log(np.maximum(gaussian_filter(psf.astype(np.float64), SMOOTH_PX, mode="constant"), 1e-12))
    row, col = (int(np.clip(v, 1, psf.shape[0] - 2)) for v in np.unravel_index(np.argmax(smooth), smooth.shape))

    def peak(before: float, here: float, after: float) -> float:
        bend = before - 2.0 * here + after
        return 0.5 * (before - after) / bend if bend < 0.0 else 0.0

    right = col - psf.shape[0] // 2 + peak(*smooth[row, col - 1 : col + 2])
    down = row - psf.shape[0] // 2 + peak(*smooth[row - 1 : row + 2, col])
    return round(float(right), 3), round(float(down), 3)  # nobody sees less than a thousandth


def _window(plan: Plan, coc: float) -> int:
    needed = window_for(coc)
    return next((w for w in WINDOWS if needed <= w < plan.patch.kernel), plan.patch.kernel)


def _next_window(plan: Plan, window: int) -> int:
    """At least twice as large, or the kernel."""
    return next((w for w in WINDOWS if 2 * window <= w < plan.patch.kernel), plan.patch.kernel)


def _trace(plan: Plan, blurs: Sequence[LayerBlur], wanted: list[tuple[int, int]]) -> Traced | None:
    """The rays of (patch, layer) pairs; None where there are none."""
    if not wanted:
        return None
    chosen = [blurs[p] for p, _ in wanted]
    return trace_requests(
        [b.lens.lens for b in chosen],
        height_mm=[math.hypot(*b.recipe.field) * b.lens.image_radius_mm for b in chosen],
        azimuth=[math.atan2(b.recipe.field[1], b.recipe.field[0]) for b in chosen],
        depth_mm=[float(b.depth_m[k]) * 1e3 for b, (_, k) in zip(chosen, wanted, strict=True)],
        focus_mm=[b.recipe.focus_m * 1e3 for b in chosen],
        bands=photo_bands(plan.psf.bands),
    )


def _propagate(
    plan: Plan,
    blurs: Sequence[LayerBlur],
    wanted: list[tuple[int, int]],
    traced: Traced | None,
    rows: list[int],
    window: int,
    side: Side | None,
    made: list[PatchPsfs],
) -> list[int]:
    """Compute the PSFs of some rows of `wanted` into `made`; returns those that need a larger window."""
    if not rows or traced is None:
        return []
    batch = traced.psfs(
        rows,
        pixel_um=[blurs[wanted[row][0]].recipe.pixel_um for row in rows],
        size=window,
        supersample=WINDOWS.get(window, KERNEL_POINTS),
        sample_sizes=SAMPLES,
        fringe_px=None if plan.psf.exact else FRINGE_PX,
        side=side,
    )
    larger: list[int] = []
    for row, psf, report in zip(rows, batch.psf, batch.reports, strict=True):
        p, k = wanted[row]
        patch, lens = made[p], blurs[p].recipe.lens
        if report["status"] != "ok":
            patch.refused = patch.refused or f"{lens}: {report['status']}"
            continue
        spill = report["energy_outside"]
        if spill > SPILL and window < plan.patch.kernel:
            larger.append(row)
            continue
        if spill > MOST_SPILL:
            patch.refused = patch.refused or f"{lens}: {spill:.0%} of the light falls outside the kernel"
            continue
        patch.psfs[k] = psf
        patch.energy_outside = max(patch.energy_outside, spill)
        patch.residual_waves = max(patch.residual_waves, report["residual_waves"])
        patch.samples = max(patch.samples, report["samples"])
    return larger
