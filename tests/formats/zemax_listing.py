"""Listings of PSFs as Zemax exports them, made up."""

from __future__ import annotations

import numpy as np


def zemax_listing(psf: np.ndarray, spacing_um: float, field: str, lens: str, wavelength_um: float = 0.5876) -> str:
    """The text of a PSF whose `field` is such as '0.0000, 9.9400 mm' or '0.0000, 12.0000 (deg)'."""
    rows, columns = psf.shape
    heading = f"""Listing of HuygensPSF Data

File : {lens}
Title:
Date : 11/16/2026

Huygens PSF

{wavelength_um:.4f} µm at {field}.
Data spacing is {spacing_um:.3f} µm.
Data area is {columns * spacing_um:.3f} by {rows * spacing_um:.3f} µm.
Strehl ratio:    0.012
Pupil grid size: 512 by 512
Image grid size: {columns} by {rows}
Center point is: {columns // 2 + 1}, {rows // 2 + 1}
Values are relative intensity.

"""
    return heading + "".join("\t".join(f" {value:.6E}" for value in row) + "\n" for row in psf / psf.max())
