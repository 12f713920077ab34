"""Colour: which wavelengths a band is made of.

A Bayer sensor's channels, behind their infrared filter, are taken as normal distributions over wavelength. Means and
widths are typical of measured camera sensitivities. "rgb" takes the mean of each; "rgb-full" samples each by
three-point Gauss–Hermite quadrature (μ, μ ± √3 σ with weights 2/3, 1/6, 1/6), which is exact for everything that varies
with wavelength up to the fifth power, at three times the cost. The words mean the same for PSFs, photographs and pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import DefocusError
from ..lens.prescription import D_LINE_NM

CHANNELS_NM = {"red": (604.0, 27.0), "green": (535.0, 30.0), "blue": (462.0, 24.0)}  # mean and standard deviation


@dataclass(frozen=True, slots=True)
class Bands:
    """Bands of a PSF: each a name and its wavelengths (nm) with weights that sum to 1."""

    names: tuple[str, ...]
    wavelengths_nm: tuple[tuple[float, ...], ...]
    weights: tuple[tuple[float, ...], ...]

    @property
    def every_nm(self) -> list[float]:
        """Wavelengths of all bands, one after the other."""
        return [wave for band in self.wavelengths_nm for wave in band]

    @property
    def mean_nm(self) -> tuple[float, ...]:
        """Mean wavelength of each band."""
        return tuple(
            sum(w * v for w, v in zip(waves, weights, strict=True))
            for waves, weights in zip(self.wavelengths_nm, self.weights, strict=True)
        )


BandsLike = str | Sequence[float] | Bands


def parse_bands(bands: BandsLike) -> Bands:
    """`"d"` (587.5618 nm, as the paper), `"rgb"`, `"rgb-full"`, `"486.1,587.6"` or wavelengths in nm, one band each."""
    if isinstance(bands, Bands):
        return bands
    if isinstance(bands, str):
        if bands == "d":
            return parse_bands([D_LINE_NM])
        if bands == "rgb":
            return Bands(tuple(CHANNELS_NM), tuple((mean,) for mean, _ in CHANNELS_NM.values()), ((1.0,),) * 3)
        if bands == "rgb-full":
            step = math.sqrt(3.0)
            waves = tuple((m, m - step * s, m + step * s) for m, s in CHANNELS_NM.values())
            return Bands(tuple(CHANNELS_NM), waves, ((2 / 3, 1 / 6, 1 / 6),) * 3)
        try:
            return parse_bands([float(part) for part in bands.split(",")])
        except ValueError:
            raise DefocusError(
                f"bands {bands!r}: expected 'd', 'rgb', 'rgb-full' or wavelengths in nm such as '486.1,587.6'"
            ) from None
    try:
        every = [float(wave) for wave in bands]
    except (TypeError, ValueError):
        every = []
    if not every or not all(200.0 <= wave <= 2500.0 for wave in every):
        raise DefocusError(f"bands {bands!r}: expected wavelengths between 200 and 2500 nm")
    return Bands(tuple(f"{w:g} nm" for w in every), tuple((w,) for w in every), ((1.0,),) * len(every))


def picture_bands(bands: BandsLike) -> Bands:
    """Bands of a photograph: one for all colours, or three. Raises `DefocusError` for any other number."""
    parsed = parse_bands(bands)
    if len(parsed.names) not in (1, 3):
        raise DefocusError(f"{len(parsed.names)} bands; a photograph takes one for all colours or three")
    return parsed
