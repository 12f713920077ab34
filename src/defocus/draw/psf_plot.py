"""One PSF on a page: pictures, cross sections, encircled energy and the numbers of its report.

Sections run through the centroid, along the meridian (positive away from the centre of the photograph) and across it,
and show the share of a band's light that each pixel holds. Encircled energy counts from the centroid; light that fell
outside the window counts as missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.ndimage import map_coordinates

from ..render.camera import Psf
from . import style
from .psf_picture import DECADES, Scale, length_label, mappable, paint_picture, picture, tidy_bar

WIDTH, HEIGHT = 10.4, 6.6  # inches
PICTURE = 3.0
PLOT_WIDTH, PLOT_HEIGHT = 2.5, 1.75
FINE = 1024  # subdivided pixels across the window, for encircled energy
UP = math.pi / 2.0


@dataclass(frozen=True, slots=True)
class EncircledEnergy:
    """Share of the light within a radius (µm) of the centroid, as far as the window surrounds it."""

    radius_um: Float[np.ndarray, " radii"]
    share: Float[np.ndarray, "bands radii"]

    def radius_of(self, share: float) -> float:
        """The radius (µm) that holds this share of the light of all bands; nan where the window does not."""
        mean = self.share.mean(axis=0)
        if not mean[-1] >= share:
            return math.nan
        at = int(np.argmax(mean >= share))
        if at == 0:
            return float(self.radius_um[0])
        low, high = mean[at - 1], mean[at]
        part = (share - low) / (high - low) if high > low else 1.0
        return float(self.radius_um[at - 1] + part * (self.radius_um[at] - self.radius_um[at - 1]))


def centroid(psf: Float[np.ndarray, "*bands rows columns"]) -> tuple[float, float]:
    """Row and column of the centre of all light, in pixels; pixel centres are whole numbers."""
    light = np.asarray(psf, float).reshape(-1, *psf.shape[-2:]).sum(axis=0)
    total = light.sum()
    rows, columns = np.arange(light.shape[0]), np.arange(light.shape[1])
    return float(light.sum(axis=1) @ rows / total), float(light.sum(axis=0) @ columns / total)


def sections(
    psf: Float[np.ndarray, "bands rows columns"], azimuth: float = UP
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, "bands steps"], Float[np.ndarray, "bands steps"]]:
    """Places (pixels from the centroid) and the PSF there, along the azimuth (radians from +x to +y) and across it."""
    row, column = centroid(psf)
    size = max(psf.shape[-2:])
    place = np.arange(-size, size + 0.25, 0.25)
    along = _line(psf, row, column, place, azimuth)
    across = _line(psf, row, column, place, azimuth - UP)
    return place, along, across


def _line(
    psf: Float[np.ndarray, "bands rows columns"], row: float, column: float, place: np.ndarray, angle: float
) -> Float[np.ndarray, "bands steps"]:
    """Bilinear values on a line through a place; nan outside the window."""
    where = np.stack([row - place * math.sin(angle), column + place * math.cos(angle)])
    return np.stack([map_coordinates(np.asarray(band, float), where, order=1, cval=np.nan) for band in psf])


def encircled_energy(
    psf: Float[np.ndarray, "bands rows columns"], pixel_um: float, inside: Float[np.ndarray, " bands"] | None = None
) -> EncircledEnergy:
    """Encircled energy about the common centroid; `inside` is the share of each band's light that fell on the window.

    Every pixel is divided into equal parts, each inside or outside a circle as its centre is.
    """
    bands, rows, columns = psf.shape
    row, column = centroid(psf)
    parts = max(1, min(9, FINE // max(rows, columns)))
    offset = (np.arange(parts) + 0.5) / parts - 0.5
    y = (np.arange(rows)[:, None] + offset).ravel() - row
    x = (np.arange(columns)[:, None] + offset).ravel() - column
    r = np.hypot(y[:, None], x[None, :])
    reach = max(min(row + 0.5, rows - 0.5 - row, column + 0.5, columns - 0.5 - column), 0.5)
    edges = np.linspace(0.0, reach, 1 + max(16, math.ceil(4 * reach)))
    share = np.ones(bands) if inside is None else inside
    sums = []
    for band, part in zip(psf, share, strict=True):
        fine = np.repeat(np.repeat(np.asarray(band, float), parts, axis=0), parts, axis=1) / parts**2
        within, _ = np.histogram(r, edges, weights=fine)
        sums.append(part * np.concatenate([[0.0], np.cumsum(within)]) / max(float(band.sum()), 1e-30))
    return EncircledEnergy(edges * pixel_um, np.stack(sums))


def draw_psf(psf: Psf, title: str, *, azimuth: float = UP, decades: float = DECADES) -> Figure:
    """A PSF in linear and log scale with sections, encircled energy and report.

    `azimuth` is the direction (radians from +x towards +y) from the centre of the photograph to the point.
    """
    lost = psf.report.get("energy_outside_bands", [0.0] * len(psf.array))
    energy = encircled_energy(psf.array, psf.pixel_um, np.clip(1.0 - np.asarray(lost, float), 0.0, 1.0))
    lines = caption(psf, energy)
    with style.look():
        figure = Figure(figsize=(WIDTH, HEIGHT))
        rows, columns = psf.array.shape[1:]
        names = ", ".join(psf.bands.names) if len(psf.bands.names) <= 4 else f"{len(psf.bands.names)} bands"
        below = f"{rows} × {columns} pixels of {psf.pixel_um:.3g} µm · {names}"
        style.title(figure, title, below, (WIDTH, HEIGHT))
        bottom = HEIGHT - 0.85 - PICTURE
        _paint_picture(figure, psf, "linear", decades, 0.3, bottom)
        _paint_picture(figure, psf, "log", decades, 0.3 + PICTURE + 0.35, bottom)
        _paint_caption(figure, lines, 0.4 + 2 * (PICTURE + 0.35) + 0.1, HEIGHT - 0.95)
        _paint_plots(figure, psf, energy, azimuth)
    return figure


def _paint_picture(figure: Figure, psf: Psf, scale: Scale, decades: float, left: float, bottom: float) -> None:
    """A picture, its axis of symmetry unmarked, with a scale bar or, for the log scale, a colour bar below."""
    axes = figure.add_axes((left / WIDTH, bottom / HEIGHT, PICTURE / WIDTH, PICTURE / HEIGHT))
    paint_picture(axes, picture(psf.array, psf.bands, scale, decades))
    size = psf.array.shape[-1]
    if scale == "linear":
        bar = style.nice_length(0.5 * size * psf.pixel_um)
        unit = size / PICTURE  # pixels per inch
        y = size - 0.5 + 0.12 * unit
        style.scale_bar(axes, -0.5, y, bar / psf.pixel_um, "", tick=0.07 * unit)
        axes.text(
            bar / psf.pixel_um + 0.1 * unit - 0.5,
            y,
            length_label(bar, psf.pixel_um),
            va="center",
            fontsize=style.SMALL,
            clip_on=False,
        )
        axes.set_xlim(-0.5, size - 0.5)
        axes.set_ylim(psf.array.shape[-2] - 0.5, -0.5)
        return
    box = ((left + 0.9) / WIDTH, (bottom - 0.14) / HEIGHT, (PICTURE - 0.9) / WIDTH, 0.08 / HEIGHT)
    colour = figure.add_axes(box)
    drawn = figure.colorbar(mappable(len(psf.array), scale, decades), cax=colour, orientation="horizontal")
    tidy_bar(drawn, decades)
    figure.text(left / WIDTH, (bottom - 0.1) / HEIGHT, "of maximum", fontsize=style.SMALL, va="center")


def caption(psf: Psf, energy: EncircledEnergy) -> list[tuple[str, str]]:
    """Names and values for the caption: what the report has of them."""
    report = psf.report

    def number(key: str, form: str, unit: str = "", factor: float = 1.0) -> str | None:
        value = report.get(key)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return f"{value * factor:{form}}{unit}".replace("-", "−")

    radius = [energy.radius_of(part) for part in (0.5, 0.8)]
    known = (
        ("image height", number("image_height_mm", ".4g", " mm")),
        ("field angle", number("field_deg", ".3g", "°")),
        ("relative illumination", number("relative_illumination", ".3f")),
        ("samples across the pupil", number("samples", ".0f")),
        ("samples needed", number("samples_needed", ".0f")),
        ("sampling bound (paper)", number("sampling_bound", ".0f")),
        ("fit residual, RMS", number("residual_waves", ".2g", " waves")),
        ("fit residual, largest", number("residual_max_waves", ".2g", " waves")),
        ("light outside the window", number("energy_outside", ".2f", " %", 100.0)),
        ("50 % of the light within", None if math.isnan(radius[0]) else f"{radius[0]:.3g} µm"),
        ("80 % of the light within", None if math.isnan(radius[1]) else f"{radius[1]:.3g} µm"),
        ("largest share of a pixel", f"{100.0 * float(psf.array.max()):.3g} %"),
    )
    return [(name, value) for name, value in known if value is not None]


def _paint_caption(figure: Figure, lines: list[tuple[str, str]], left: float, top: float) -> None:
    right = WIDTH - 0.35
    for i, (name, value) in enumerate(lines):
        y = (top - 0.215 * i) / HEIGHT
        figure.text(left / WIDTH, y, name, fontsize=style.SMALL, color=style.FAINT, va="center")
        figure.text(right / WIDTH, y, value, fontsize=style.SMALL, ha="right", va="center")


def _paint_plots(figure: Figure, psf: Psf, energy: EncircledEnergy, azimuth: float) -> None:
    place, along, across = sections(psf.array, azimuth)
    radius = energy.radius_of(0.95)
    largest = psf.pixel_um * max(psf.array.shape[-2:]) / 2.0
    extent = min(largest, 1.6 * radius if math.isfinite(radius) else largest)
    extent = max(extent, 3.0 * psf.pixel_um)
    peak = 105.0 * float(np.nanmax([along, across]))
    colours = band_colours(psf)
    lefts = (0.75, 0.75 + PLOT_WIDTH + 0.75, 0.75 + 2 * (PLOT_WIDTH + 0.75))
    axes = [figure.add_axes((x / WIDTH, 0.5 / HEIGHT, PLOT_WIDTH / WIDTH, PLOT_HEIGHT / HEIGHT)) for x in lefts]
    for one, values, name in ((axes[0], along, "along the meridian"), (axes[1], across, "across the meridian")):
        for line, colour in zip(values, colours, strict=True):
            one.plot(place * psf.pixel_um, 100.0 * line, color=colour, linewidth=1.1)
        one.set_xlim(-extent, extent)
        one.set_ylim(0.0, peak)
        one.set_xlabel(f"µm from the centroid, {name}", fontsize=style.SMALL)
        one.set_ylabel("light per pixel, %", fontsize=style.SMALL)
    for line, colour, name in zip(energy.share, colours, psf.bands.names, strict=True):
        axes[2].plot(energy.radius_um, 100.0 * line, color=colour, linewidth=1.1, label=name)
    axes[2].set_xlim(0.0, min(float(energy.radius_um[-1]), 2.0 * extent))
    axes[2].set_ylim(0.0, 102.0)
    axes[2].set_xlabel("radius about the centroid, µm", fontsize=style.SMALL)
    axes[2].set_ylabel("encircled energy, %", fontsize=style.SMALL)
    if 1 < len(psf.bands.names) <= 6:
        axes[2].legend(loc="lower right", handlelength=1.2)
    for one in axes:
        _tidy(one)


def band_colours(psf: Psf) -> list[str]:
    """One colour per band: ink for a single one, by wavelength for two or three, else from the palette."""
    count = len(psf.bands.names)
    if count == 1:
        return [style.INK]
    by_wavelength = style.wavelength_colours(psf.bands.mean_nm)
    return by_wavelength if len(set(by_wavelength)) == count else style.field_colours(count)


def _tidy(axes: Axes) -> None:
    axes.grid(color=style.GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=2.5, width=0.5)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(6))
