"""PSFs for comparison that are computed one at a time, asked for as those of the engine are.

Huygens' sum traces its own rays; a Gaussian and a disc know the paraxial blur radius alone (`psf.simple`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from ..errors import TraceError
from .bands import Bands
from .engine import Progress, PsfBatch, PsfOptions, Report, TracedRequests
from .huygens import huygens_psf
from .method import WAVE, Method
from .poses import Requests
from .simple import disk, disk_outside, gaussian, gaussian_outside
from .window import spill_refusal

SLOW_SUPERSAMPLE = 5  # points per pixel of Huygens' sum


class ComparisonRequests(TracedRequests):
    """Requests without wavefronts; each has its paraxial blur radius (pixels), nan where nothing has an image."""

    def __init__(self, requests: Requests, bands: Bands, name: Method, coc_px: Sequence[float]) -> None:
        self.requests, self.bands, self.name, self.coc_px = requests, bands, name, coc_px
        self.method, self.blocks = WAVE, []

    def psfs(
        self,
        size: int,
        options: PsfOptions,
        rows: Sequence[int] | None = None,
        progress: Progress | None = None,
        points: int | None = None,
    ) -> PsfBatch:
        """PSFs of some of the requests (all), in the order of `rows`; `points` per pixel are for light waves."""
        numbers = range(len(self.requests)) if rows is None else rows
        pitch = np.asarray(self.requests.points.pixel, float)[list(numbers)]
        arrays = np.zeros((len(numbers), len(self.bands.names), size, size), np.float32)
        reports: list[Report] = []
        for array, row, pixel in zip(arrays, numbers, pitch, strict=True):
            report = self._psf(array, row, size, options.supersample or SLOW_SUPERSAMPLE)
            if report["status"] == "ok":
                reach = report["blur_mm"] / float(pixel)
                report["status"] = spill_refusal(report["energy_outside"], reach, size) or "ok"
            if report["status"] != "ok":
                array[:] = 0.0
            reports.append(report)
            if progress is not None:
                progress(1.0)
        return PsfBatch(arrays, self.bands, pitch * 1e3, tuple(reports))

    def _psf(self, array: Float[np.ndarray, "bands size size"], row: int, size: int, supersample: int) -> Report:
        """Fill in one PSF; its report."""
        radius = float(self.coc_px[row])
        if np.isnan(radius):
            return {"status": "the point lies within the front focal point of the lens, where nothing has an image"}
        if self.name == "huygens":
            try:
                array[:], report = huygens_psf(self.requests, row, self.bands, size, supersample=supersample)
            except TraceError as error:
                return {"status": str(error)}
            return report
        array[:] = _shape(self.name, abs(radius), size)
        outside = (gaussian_outside if self.name == "gaussian" else disk_outside)(radius, size)
        blur_mm = abs(radius) * float(np.asarray(self.requests.points.pixel)[row])
        return {"status": "ok", "circle_of_confusion_px": radius, "energy_outside": outside, "blur_mm": blur_mm}


@lru_cache(16)  # the fields of one depth have one blur radius
def _shape(name: Method, radius: float, size: int) -> Float[np.ndarray, "size size"]:
    return (gaussian if name == "gaussian" else disk)(radius, size)
