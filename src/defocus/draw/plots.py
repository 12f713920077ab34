"""The figures behind `.plot()`: what a person wants to see first of a PSF, a camera and a photograph."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from ..camera import Camera
from ..files.stores import writing_file
from ..lens.prescription import Aperture
from ..psf.energy import UP
from ..psf.psf_value import Psf
from ..render.photograph import Photograph
from . import style
from .layout import LARGEST, legend_height, paint_layout, paint_legend, plan_layout
from .psf_plot import draw_psf
from .sheet import Sheet, plain_plot
from .side_by_side import Panel, draw_comparison
from .style import save

CHART = 1.5  # inches: height of the blur chart of a camera
DEPTHS = 200  # points of its curve


def plot_psf(psf: Psf, **options: Any) -> Figure:
    """A PSF in linear and log scale with sections, encircled energy and report; `options` as for `draw_psf`."""
    lens, method = psf.report.get("lens"), psf.report.get("method", "wave")
    title = "point spread function" if lens is None else f"{lens}: {method}"
    x, y = psf.report.get("field", (0.0, 0.0))
    azimuth = math.atan2(y, x) if (x, y) != (0.0, 0.0) else UP
    return draw_psf(psf, title, azimuth=azimuth, **options)


def save_psf(psf: Psf, path: str | Path) -> None:
    """Write a PSF as .npz (psf, wavelengths_nm, pixel_um, and the report as JSON), or its figure as .png, .svg or .pdf.

    The suffix says which.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        save(plot_psf(psf), path)
        return
    waves, report = np.array(psf.bands.mean_nm), np.array(json.dumps(psf.report))
    with writing_file(path) as file:
        np.savez_compressed(file, psf=psf.array, wavelengths_nm=waves, pixel_um=np.asarray(psf.pixel_um), report=report)


@style.look()
def plot_camera(camera: Camera) -> Figure:
    """The layout of a camera's lens as it is stopped down, and its paraxial blur radius over depth."""
    layout = plan_layout(replace(camera.lens, aperture=Aperture("stop_radius", float(camera.first_order.stop_radius))))
    width, height = layout.scaled(LARGEST[0], LARGEST[1] - CHART)
    full_width = max(width, 6.4) + 0.6
    sheet = Sheet(full_width, height + CHART + 2.1 + legend_height(layout, full_width))
    setting = style.setting(camera.f_number, camera.focus_m)
    sheet.title(camera.lens.name, f"{setting} · pixels of {camera.pixel_um:.3g} µm")
    paint_layout(sheet, layout, sheet.height - 0.62 - height, (width, height))
    paint_legend(sheet, layout, CHART + 0.9)
    near, far = (camera.focus_m / 3.0, camera.focus_m * 8.0) if math.isfinite(camera.focus_m) else (1.0, 1000.0)
    depths = np.geomspace(near, far, DEPTHS)
    axes = sheet.axes((0.8, 0.6, sheet.width - 1.1, CHART))
    axes.plot(depths, np.abs(camera.circle_of_confusion_px(depths)), color=style.BLUE, linewidth=1.2)
    axes.set(xscale="log", xlim=(near, far), ylim=(0.0, None), xlabel="depth, m", ylabel="blur radius, pixels")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain_plot(axes)
    return sheet.figure


def plot_photograph(photograph: Photograph) -> Figure:
    """The sharp and the blurred photograph side by side."""
    report = photograph.report
    low, high = report["coc_px"]
    taken = style.setting(report["f_number"], report["focus_m"])
    about = f"{taken} · {style.minus(f'blur {low:.1f} … {high:.1f} px')}"
    panels = [Panel("sharp", "", photograph.sharp.srgb), Panel("blurred", about, photograph.blurred.srgb)]
    return draw_comparison(panels, (), str(report["lens"]), width=4.6)
