"""What the tab of points shows: PSFs over field and depth and through focus as tiles whose numbers appear where one
points at them, wavefronts and pupils.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from ..camera import Camera, psfs
from ..draw import compute_psf_grid, draw_pupils, draw_wavefronts
from ..draw.pages import data_uri, eight_bits, page
from ..draw.psf_grid import field_name
from ..draw.psf_plot import picture
from ..draw.style import distance, signed
from ..files.png import png_bytes
from ..lens.prescription import D_LINE_NM
from ..psf.bands import Bands, picture_bands
from .job_line import Report
from .lens_view import picture_of
from .pencils import Pencils
from .shots import Setting, at_most, lens_camera

FIELDS = (0.0, 0.5, 0.7, 1.0)  # heights above the centre, of the image radius
STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of a strip through focus
SMALLEST_TILE = 17  # pixels of a PSF
WIDEST_PX, QUICK_WIDEST_PX = 40.0, 16.0  # blur radii of tiles: pixels are larger where the blur would be
STRIP_PX = 65  # of a tile of the strip
SIZE = (1680, 1120)  # pixels of the picture that the points are part of
NEAREST_M = 0.25


@dataclass(frozen=True)
class PsfTile:
    """A PSF, what it belongs to, and its report."""

    psf: Float[np.ndarray, "3 size size"]
    place: str
    report: dict[str, Any]

    @property
    def is_refused(self) -> bool:
        """Whether there is no PSF; the report says why."""
        return self.report.get("status", "ok") != "ok"

    def picture(self, bands: Bands, scale: str) -> str:
        """The PSF as a data URI; none where there is no PSF."""
        if self.is_refused:
            return ""
        colours = picture(self.psf, bands, "log" if scale == "log" else "linear")
        return data_uri(png_bytes(eight_bits(colours)), "png")

    def numbers(self, pixel_um: float) -> str:
        """What one reads on pointing at it."""
        if self.is_refused:
            return f"{self.place}: {self.report['status']}"
        light = self.psf.mean(0)
        at = np.arange(light.shape[0]) - light.shape[0] // 2
        total = max(float(light.sum()), 1e-30)
        x, y = float(light.sum(0) @ at) / total, float(light.sum(1) @ at) / total
        spread = math.sqrt(float((light * ((at - x) ** 2 + (at[:, None] - y) ** 2)).sum()) / total)
        parts = [self.place, f"RMS radius {spread * pixel_um:.3g} µm ({spread:.2g} px)"]
        parts.append(f"brightest pixel {100.0 * float(light.max()) / total:.3g} % of the light")
        illumination = self.report.get("relative_illumination")
        if illumination is not None:
            parts.append(f"light {100.0 * illumination:.0f} % of the axis'")
        return "; ".join(parts)


@dataclass(frozen=True)
class PointTiles:
    """Tiles in rows, [row][column], of one pixel pitch."""

    rows: tuple[tuple[PsfTile, ...], ...]
    heads: tuple[str, ...]
    pixel_um: float
    bands: Bands

    def html(self, scale: str) -> str:
        """A grid of pictures; the numbers of each are its text, shown where one points at it or tabs to it."""
        side = self.rows[0][0].psf.shape[-1] * self.pixel_um
        width = f"{side:.3g} µm" if side < 999.5 else f"{side * 1e-3:.3g} mm"
        return page(
            "psf_tiles.html",
            heads=self.heads,
            width=width,
            tiles=[(tile.numbers(self.pixel_um), tile.picture(self.bands, scale)) for row in self.rows for tile in row],
        )


def depths_around(focus_m: float) -> tuple[float, float, float]:
    """Depths of the rows: nearer, at the focus, farther."""
    return (2.0, 10.0, math.inf) if math.isinf(focus_m) else (focus_m / 2.0, focus_m, math.inf)


def _camera_and_size(setting: Setting, depths_m: Sequence[float], widest_px: float) -> tuple[Camera, int]:
    """The camera with pixels so large that no blur radius is more than `widest_px`, and the pixels of a tile."""
    camera = setting.camera(SIZE)
    blur = max(abs(float(camera.circle_of_confusion_px(depth))) for depth in depths_m)
    larger = max(blur / widest_px, 1.0)
    camera = camera.with_pixels(pixel_um=float(camera.pixel_um) * larger)
    return camera, max(round(2.7 * blur / larger) + 4, SMALLEST_TILE) | 1  # of one scale, whatever the pixels


@lru_cache(16)
def _pencils(lens: str, nearest_m: float) -> Pencils:
    return Pencils.of(lens_camera(lens), FIELDS, nearest_m)


def pencils_of(setting: Setting) -> Pencils:
    """The rays of the lens at the fields that are shown."""
    return _pencils(setting.lens, min(at_most(depths_around(setting.focus_m)[0]), NEAREST_M))


def quick_tiles(setting: Setting) -> PointTiles:
    """PSFs over field and depth at once, of rays alone."""
    depths, pencils = depths_around(setting.focus_m), pencils_of(setting)
    camera, size = _camera_and_size(setting, depths, QUICK_WIDEST_PX)
    z = pencils.sensor_z_mm(camera)

    def tile(depth: float, number: int) -> PsfTile:
        lit = bool(pencils.rays.lit[number])
        psf = pencils.psf(camera, number, math.pi / 2.0, depth, z, size)
        return PsfTile(psf, _place(depth, FIELDS[number], camera), {"status": "ok" if lit else "no light arrives"})

    rows = tuple(tuple(tile(depth, number) for number in range(len(FIELDS))) for depth in depths)
    return PointTiles(rows, tuple(map(field_name, FIELDS)), float(camera.pixel_um), picture_bands("rgb"))


def _place(depth_m: float, field: float, camera: Camera) -> str:
    blur = signed(float(camera.circle_of_confusion_px(depth_m)), 1)
    return f"{distance(depth_m)}, {field_name(field)}, blur radius {blur} px"


def fine_tiles(setting: Setting, report: Report) -> PointTiles:
    """PSFs over field and depth, as light waves."""
    depths = depths_around(setting.focus_m)
    camera, size = _camera_and_size(setting, depths, WIDEST_PX)
    count, done = len(FIELDS) * len(depths), 0.0

    def progress(more: float) -> None:
        nonlocal done
        done += more
        report("PSFs", min(done / count, 1.0))

    report("PSFs", 0.0)
    grid = compute_psf_grid(camera, fields=FIELDS, depths_m=depths, size=size, progress=progress)
    rows = tuple(
        tuple(
            PsfTile(grid.psf[i, j], _place(depth, field, camera), grid.reports[i][j]) for j, field in enumerate(FIELDS)
        )
        for i, depth in enumerate(depths)
    )
    return PointTiles(rows, tuple(map(field_name, FIELDS)), float(camera.pixel_um), grid.bands)


def focus_strip(setting: Setting, report: Report) -> PointTiles:
    """PSFs of a point on the axis with the sensor before, at and behind its focus, as light waves, in fine pixels."""
    camera, pencils = setting.camera(SIZE), pencils_of(setting)
    f_number, focus = float(camera.f_number), float(camera.sensor_z_mm)
    least = pencils.axial_radii_mm(camera, focus)[0]
    # Some waves of defocus, or what doubles the spot of a lens that is no better than that.
    reach = max(32.0 * f_number**2 * D_LINE_NM * 1e-6, 4.0 * f_number * least)
    shifts = [step * reach for step in STEPS]
    widest = max(pencils.axial_radii_mm(camera, focus + shift)[1] for shift in shifts)
    pixel_um = 1e3 * max(2.3 * widest, 20.0 * f_number * D_LINE_NM * 1e-6) / STRIP_PX
    camera = camera.with_pixels(pixel_um=pixel_um)
    report("through focus", 0.0)
    batch = psfs([camera.shifted(focus + shift) for shift in shifts], camera.focus_m, (0.0, 0.0), STRIP_PX)
    report("through focus", 1.0)
    texts = [f"{signed(shift * 1e3, 0)} µm" for shift in shifts]
    tiles = tuple(
        PsfTile(psf, f"sensor {text} from the focus", about)
        for psf, text, about in zip(batch.psf, texts, batch.reports, strict=True)
    )
    return PointTiles((tiles,), tuple(texts), pixel_um, batch.bands)


def pupil_pictures(setting: Setting) -> tuple[str, str]:
    """Wavefronts, and the shapes of the pupil, of the four fields for points at the focus distance."""
    camera = setting.camera(SIZE)
    options: dict[str, Any] = {"depth_m": setting.focus_m, "fields": FIELDS}
    name = camera.lens.name
    return (
        picture_of(draw_wavefronts(camera, **options), f"Wavefronts of {name} over the pupil at four fields"),
        picture_of(draw_pupils(camera, **options), f"Shapes of the pupil of {name} at four fields"),
    )
