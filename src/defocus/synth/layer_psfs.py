"""The PSFs of many patches at once: one for each layer that has pixels, lenses and patches mixed in full batches.

Each is computed in the smallest window that holds it (`psf.window`) and set into the plan's kernel. One that the kernel
does not hold, or that the lens refuses, rejects its pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from ..camera import Camera
from ..lens import load_lens
from ..point_requests import make_requests
from ..psf.bands import Bands, picture_bands
from ..psf.comparison import ComparisonRequests
from ..psf.engine import FittedPsf, PsfOptions, Side, TracedRequests
from ..psf.method import WAVE, Method
from ..psf.paper import PAPER
from ..psf.poses import PoseCache
from ..psf.sampling import SAMPLE_BUCKETS
from ..psf.window import points_per_pixel
from ..render.composite import embedded
from .plan import Plan
from .recipe import Recipe

OFFSET_WINDOW, SMOOTH_PX = 32, 1.5
COMMON_WINDOWS = (16, 64)  # of layers, besides that of the offset
ANY_LENS = "leica-summicron-50-f2"
METHODS = {"lens": WAVE, "paper": PAPER}  # of `psf.kind`
SHAPES: dict[str, Method] = {"gaussian": "gaussian", "disk": "disk"}  # that know the blur radius alone


@dataclass(frozen=True)
class LayerBlur:
    """The camera of one patch and the layers that it blurs."""

    lens: str
    field: tuple[float, float]
    camera: Camera
    coc_px: Float[np.ndarray, " layers"]
    depth_m: Float[np.ndarray, " layers"]
    used: Bool[np.ndarray, " layers"]


@dataclass
class PatchPsfs:
    """The PSFs of one patch in their own windows, or why there are none."""

    bands: Bands
    kernel: int
    psfs: dict[int, Float[np.ndarray, "bands _ _"]] = field(default_factory=dict)
    refusal: str = ""
    energy_outside: float = 0.0
    residual_waves: float = 0.0
    samples: int = 0

    def kernels(self, layers: int) -> Float[np.ndarray, "layers bands kernel kernel"]:
        """Kernels of all layers; those without pixels get a point, through which nothing is seen."""
        point = np.ones((len(self.bands.names), 1, 1), np.float32)
        return embedded([self.psfs.get(layer, point) for layer in range(layers)], self.kernel)

    def add(self, layer: int, lens: str, psf: FittedPsf) -> None:
        """Take in the PSF of one layer, or the reason why it has none."""
        if psf.array is None:
            self.refusal = self.refusal or f"{lens}: {psf.report['status']}"
            return
        self.psfs[layer] = psf.array
        self.energy_outside = max(self.energy_outside, psf.report["energy_outside"])
        self.residual_waves = max(self.residual_waves, psf.report.get("residual_waves", 0.0))
        self.samples = max(self.samples, psf.report.get("samples", 0))

    def record(self, plan: Plan) -> dict[str, Any]:
        """The numbers for the pair's record."""
        return {
            "kind": plan.psf.kind,
            "bands": dict(zip(self.bands.names, map(list, self.bands.wavelengths_nm), strict=True)),
            "energy_outside": round(self.energy_outside, 6),
            "residual_waves": round(self.residual_waves, 6),
            "samples": self.samples,
            "kernel_px": self.kernel,
        }


def find_layer_psfs(
    plan: Plan, blurs: Sequence[LayerBlur], sides: Sequence[Side | None] = (None,), poses: PoseCache | None = None
) -> dict[Side | None, list[PatchPsfs]]:
    """For every patch the PSFs of the layers that have pixels, through the whole lens or its halves.

    `poses` are those of the same cameras and fields, as far as they were found before.
    """
    bands, kernel = picture_bands(plan.psf.bands), plan.patch.kernel
    patches: dict[Side | None, list[PatchPsfs]] = {side: [PatchPsfs(bands, kernel) for _ in blurs] for side in sides}
    rows = [(p, int(k)) for p, blur in enumerate(blurs) for k in np.flatnonzero(blur.used)]
    if not rows:
        return patches
    traced = _trace(plan, blurs, rows, poses)
    radii = [float(blurs[p].coc_px[k]) for p, k in rows]
    for side, own in patches.items():
        # The paper computes every PSF in the whole kernel; its samples, not its window, tell what is dark.
        least = 0 if plan.psf.kind == "lens" else kernel
        fitted = traced.fitted_psfs(radii, kernel, _options(plan, side), least)
        for (p, k), psf in zip(rows, fitted, strict=True):
            own[p].add(k, blurs[p].lens, psf)
    return patches


def compile_psfs(plan: Plan) -> None:
    """Compile the programs of a GPU that nearly every plan of PSFs takes, side by side, on the PSF of any lens.

    They do not wait for the lenses of the plan; whatever else it takes is compiled as it comes.
    """
    if jax.default_backend() == "cpu" or plan.psf.kind != "lens":
        return
    requests = make_requests([Camera(load_lens(ANY_LENS))], [float("inf")], [(0.0, 0.0)])
    traced = TracedRequests(requests, picture_bands(plan.psf.bands))
    options = replace(_options(plan), samples=SAMPLE_BUCKETS["gpu"][0])
    windows = [window for window in (OFFSET_WINDOW, *COMMON_WINDOWS) if window <= plan.patch.kernel]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda window: traced.psfs(window, options, points=points_per_pixel(window)), windows))


def find_offsets(
    plan: Plan, recipes: Sequence[Recipe], cameras: Sequence[Camera], poses: PoseCache | None = None
) -> list[tuple[float, float] | None]:
    """By how many pixels, to the right and down, each lens moves what is in focus; None where there is no PSF.

    Coma throws the light to one side of the chief ray, by half a pixel where it is strong. What counts is where the
    blurred picture agrees best with the sharp one. For pictures whose gradients are as strong at every scale that is
    the highest point of the PSF, here of the sharpest one and smoothed a little: photographs are not sharper than that.
    """
    if plan.psf.kind in SHAPES:
        return [(0.0, 0.0)] * len(recipes)
    blurs = [
        LayerBlur(recipe.lens, recipe.field, camera, np.zeros(1), np.array([recipe.focus_m]), np.ones(1, bool))
        for recipe, camera in zip(recipes, cameras, strict=True)
    ]
    traced = _trace(plan, blurs, [(p, 0) for p in range(len(blurs))], poses)
    fitted = traced.fitted_psfs([0.0] * len(blurs), plan.patch.kernel, _options(plan), least_px=OFFSET_WINDOW)
    return [None if psf.array is None else highest(psf.array.mean(0)) for psf in fitted]


def _options(plan: Plan, side: Side | None = None) -> PsfOptions:
    return PsfOptions(side=side, exact=plan.psf.exact, coarse=not plan.psf.exact)


def highest(psf: Float[np.ndarray, "size size"]) -> tuple[float, float]:
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


def _trace(
    plan: Plan, blurs: Sequence[LayerBlur], rows: Sequence[tuple[int, int]], poses: PoseCache | None
) -> TracedRequests:
    """The requests of (patch, layer) pairs, with their wavefronts where the plan's PSFs have any."""
    own = [blurs[p] for p, _ in rows]
    depths = [float(blurs[p].depth_m[k]) for p, k in rows]
    requests = make_requests([b.camera for b in own], depths, [b.field for b in own])
    bands, kind = picture_bands(plan.psf.bands), plan.psf.kind
    if kind in SHAPES:
        return ComparisonRequests(requests, bands, SHAPES[kind], [float(blurs[p].coc_px[k]) for p, k in rows])
    return TracedRequests(requests, bands, METHODS[kind], poses=poses)
