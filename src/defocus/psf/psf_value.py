"""One point spread function as a value: an array, its bands and pixels, and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._lazy import drawn
from ..files.stores import writing_file
from .bands import Bands
from .engine import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Psf(eqx.Module):
    """One point spread function."""

    array: Float[Any, "*batch bands size size"]  # rows from the top; each band sums to 1
    bands: Bands = eqx.field(static=True)
    pixel_um: float | Float[Any, ""]
    report: Report

    def __repr__(self) -> str:
        size, outside = self.array.shape[-1], self.report.get("energy_outside")
        lost = "" if not isinstance(outside, float) else f", {max(outside, 0.0):.1%} of the light outside"
        return f"Psf({', '.join(self.bands.names)}; {size} × {size} pixels of {self.pixel_um:.3g} µm{lost})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.array, dtype)

    def plot(self, **options: Any) -> Figure:
        """A figure of the PSF: picture, profiles and encircled energy."""
        return drawn("draw_psf", self, **options)

    def save(self, path: str | Path) -> None:
        """Write an .npz file (psf, wavelengths_nm, pixel_um, report), or a figure as .png, .svg or .pdf."""
        if not str(path).lower().endswith(".npz"):
            drawn("save", self.plot(), path)
            return
        numbers = {"psf": self.array, "wavelengths_nm": self.bands.mean_nm, "pixel_um": self.pixel_um}
        with writing_file(path) as file:
            np.savez_compressed(file, **numbers, report=json.dumps(self.report))

    def _repr_html_(self) -> str:
        return drawn("html_image", self.plot())
