"""One PSF on a page: pictures, cross sections, encircled energy and the numbers of its report.

Sections run through the centroid, along the meridian (positive away from the centre of the photograph) and across it,
and show the share of a band's light that each pixel holds.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import DefocusError
from ..psf.energy import UP, EncircledEnergy, encircled_energy, sections
from ..psf.psf_value import Psf
from . import style
from .psf_picture import DECADES, light_bar, paint_psf, psf_scale_bar
from .sheet import Sheet, plain_plot

WIDTH, HEIGHT = 10.4, 6.6  # inches
PICTURE = 3.0
PLOT_WIDTH, PLOT_HEIGHT = 2.5, 1.75
NUMBERS = (  # of a report: name, key, format, unit, factor
    ("image height", "image_height_mm", ".4g", " mm", 1.0),
    ("field angle", "field_deg", ".3g", "°", 1.0),
    ("relative illumination", "relative_illumination", ".3f", "", 1.0),
    ("samples across the pupil", "samples", ".0f", "", 1.0),
    ("samples needed", "samples_needed", ".0f", "", 1.0),
    ("sampling bound (paper)", "sampling_bound", ".0f", "", 1.0),
    ("fit residual, RMS", "residual_waves", ".2g", " waves", 1.0),
    ("fit residual, largest", "residual_max_waves", ".2g", " waves", 1.0),
    ("light outside the window", "energy_outside", ".2f", " %", 100.0),
)


@style.look()
def draw_psf(psf: Psf, title: str, *, azimuth: float = UP, decades: float = DECADES) -> Figure:
    """A PSF in linear and log scale with sections, encircled energy and report.

    `azimuth` is the direction (radians from +x towards +y) from the centre of the photograph to the point.
    """
    if np.ndim(psf.array) != 3:
        raise DefocusError(f"a PSF of shape {psf.array.shape}; one at a time can be drawn, (bands, rows, columns)")
    lost = psf.report.get("energy_outside_bands", [0.0] * len(psf.array))
    energy = encircled_energy(psf.array, psf.pixel_um, np.clip(1.0 - np.asarray(lost, float), 0.0, 1.0))
    count, rows, columns = psf.array.shape
    names = ", ".join(psf.bands.names) if count <= 4 else f"{count} bands"
    sheet = Sheet(WIDTH, HEIGHT)
    sheet.title(title, f"{rows} × {columns} pixels of {psf.pixel_um:.3g} µm · {names}")
    bottom, second = HEIGHT - 0.85 - PICTURE, 0.3 + PICTURE + 0.35
    paint_psf(sheet.axes((0.3, bottom, PICTURE, PICTURE)), psf.array, psf.bands, {})
    psf_scale_bar(sheet, 0.3, bottom - 0.12, PICTURE, columns * psf.pixel_um, psf.pixel_um)
    paint_psf(sheet.axes((second, bottom, PICTURE, PICTURE)), psf.array, psf.bands, {}, "log", decades)
    sheet.text(second, bottom - 0.1, "of maximum", va="center")
    light_bar(sheet, (second + 0.9, bottom - 0.14, PICTURE - 0.9, 0.08), count, "log", decades)
    for number, (name, value) in enumerate(caption(psf, energy)):
        y = HEIGHT - 0.95 - 0.215 * number
        sheet.text(second + PICTURE + 0.45, y, name, color=style.FAINT, va="center")
        sheet.text(WIDTH - 0.35, y, value, ha="right", va="center")
    _paint_plots(sheet, psf, energy, azimuth)
    return sheet.figure


def caption(psf: Psf, energy: EncircledEnergy) -> list[tuple[str, str]]:
    """Names and values for the caption: what the report has of them."""
    lines = [
        (name, style.minus(f"{value * factor:{form}}{unit}"))
        for name, key, form, unit, factor in NUMBERS
        if isinstance(value := psf.report.get(key), int | float) and math.isfinite(value)
    ]
    radii = [(share, energy.radius_of(share)) for share in (0.5, 0.8)]
    lines += [(f"{100 * share:.0f} % of the light within", f"{r:.3g} µm") for share, r in radii if math.isfinite(r)]
    return [*lines, ("largest share of a pixel", f"{100.0 * float(psf.array.max()):.3g} %")]


def _paint_plots(sheet: Sheet, psf: Psf, energy: EncircledEnergy, azimuth: float) -> None:
    """Two sections and the encircled energy, side by side along the lower edge."""
    place, along, across = sections(psf.array, azimuth)
    radius = energy.radius_of(0.95)
    largest = psf.pixel_um * max(psf.array.shape[-2:]) / 2.0
    extent = max(min(largest, 1.6 * radius if math.isfinite(radius) else largest), 3.0 * psf.pixel_um)
    places = place * psf.pixel_um
    peak = 105.0 * float(np.nanmax([along, across]))
    plots = (
        (places, along, (-extent, extent), peak, "µm from the centroid, along the meridian", "light per pixel, %"),
        (places, across, (-extent, extent), peak, "µm from the centroid, across the meridian", "light per pixel, %"),
        (
            energy.radius_um, energy.share, (0.0, min(float(energy.radius_um[-1]), 2.0 * extent)), 102.0,
            "radius about the centroid, µm", "encircled energy, %",
        ),
    )  # fmt: skip
    for number, (x, lines, limits, top, x_label, y_label) in enumerate(plots):
        axes = sheet.axes((0.75 + number * (PLOT_WIDTH + 0.75), 0.5, PLOT_WIDTH, PLOT_HEIGHT))
        for line, colour, name in zip(lines, band_colours(psf), psf.bands.names, strict=True):
            axes.plot(x, 100.0 * line, color=colour, linewidth=1.1, label=name)
        axes.set(xlim=limits, ylim=(0.0, top))
        axes.set_xlabel(x_label, fontsize=style.SMALL)
        axes.set_ylabel(y_label, fontsize=style.SMALL)
        plain_plot(axes)
        axes.tick_params(length=2.5, width=0.5)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(6))
    if 1 < len(psf.bands.names) <= 6:
        axes.legend(loc="lower right", handlelength=1.2)


def band_colours(psf: Psf) -> list[str]:
    """One colour per band: ink for a single one, by wavelength for two or three, else from the palette."""
    count = len(psf.bands.names)
    if count == 1:
        return [style.INK]
    by_wavelength = style.wavelength_colours(psf.bands.mean_nm)
    return by_wavelength if len(set(by_wavelength)) == count else style.field_colours(count)
