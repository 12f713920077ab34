"""PSFs beside those that Zemax exported (the paper's S2.6): pictures, their difference, and how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ..camera import Camera, psfs
from ..errors import DefocusError, LensFileError
from ..lens import load_lens
from ..lens.formats import LENS_SUFFIXES
from ..lens.prescription import Lens
from ..point_requests import Field
from ..psf.agreement import Agreement, compare_psfs
from ..psf.bands import parse_bands
from ..psf.method import Method
from ..psf.zemax_psf import ZemaxPsf, read_zemax_psf
from . import style
from .psf_grid import GAP, RIGHT, TOP, method_text
from .psf_plot import TILE, paint_psf, paint_reason, psf_scale_bar, row_label
from .sheet import MARGIN, Sheet, frame, head, show_picture

SIDE = TILE / style.DPI  # inches, of a tile
LEFT, NUMBERS, BOTTOM = 1.9, 1.5, 0.35  # inches
DIFFERENCES = "RdBu_r"
WAVELENGTH_NM = 0.06  # listings have four decimals of a µm


@dataclass(frozen=True)
class ZemaxComparison:
    """One exported PSF, the camera that should have it, and how well they agree; None where there is no PSF."""

    export: ZemaxPsf
    camera: Camera
    field: Field
    wavelength_nm: float
    agreement: Agreement | None
    status: str

    @property
    def row(self) -> dict[str, Any]:
        """What a table says of it."""
        good = self.agreement
        return {
            "file": self.export.file.name,
            "lens": self.camera.lens.name,
            "field_x": round(self.field[0], 6),
            "field_y": round(self.field[1], 6),
            "wavelength_nm": self.wavelength_nm,
            "pixel_um": self.export.spacing_um,
            "size": len(self.export.psf),
            "relative_l1": None if good is None else round(good.l1, 5),
            "relative_l1_blurred": None if good is None else round(good.blurred_l1, 5),
            "correlation": None if good is None else round(good.correlation, 6),
            "status": self.status,
        }


def compare_with_zemax(
    folder: str | Path,
    *,
    lens: str | None = None,
    depth_m: float | None = None,
    sensor_shift_mm: float = 0.0,
    method: Method = "wave",
    **options: Any,
) -> list[ZemaxComparison]:
    """Our PSFs beside those of a folder's listings (*.txt), with Zemax's pixels: samples of the light at points.

    Each listing names its lens file, which lies beside it in any format that we read, unless all are of one `lens`. The
    object is as far away as the lens file says, or `depth_m`; the sensor stands `sensor_shift_mm` behind its image
    plane. `options` go to `psfs`. Nothing is raised for one PSF that we do not have; its status says why.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DefocusError(f"{root}: no folder of exported PSFs")
    exports = [read_zemax_psf(path) for path in sorted(root.glob("*.txt"))]
    if not exports:
        raise DefocusError(f"{root}: no .txt file; export PSFs from Zemax as text")
    cameras: dict[tuple[str, float], Camera] = {}
    groups: dict[tuple[int, float], list[ZemaxPsf]] = {}
    for export in exports:
        key = export.lens_name.lower(), export.spacing_um
        if key not in cameras:
            own = load_lens(lens or _lens_file(root, export))
            cameras[key] = Camera(own, pixel_um=export.spacing_um, sensor_shift_mm=sensor_shift_mm)
        waves = cameras[key].lens.wavelengths_nm
        exact = [wave for wave in waves if abs(wave - export.wavelength_nm) <= WAVELENGTH_NM]
        groups.setdefault((len(export.psf), (*exact, export.wavelength_nm)[0]), []).append(export)
    comparisons = []
    for (size, wave), members in groups.items():
        own_cameras = [cameras[export.lens_name.lower(), export.spacing_um] for export in members]
        fields = [_field(export, camera) for export, camera in zip(members, own_cameras, strict=True)]
        depths = [_depth_m(camera) if depth_m is None else depth_m for camera in own_cameras]
        sampled: dict[str, Any] = {} if method in ("gaussian", "disk") else {"supersample": 1}
        batch = psfs(own_cameras, depths, fields, size, [wave], method=method, **sampled, **options)
        for export, camera, field, psf, report in zip(
            members, own_cameras, fields, batch.psf, batch.reports, strict=True
        ):
            good = report["status"] == "ok"
            agreement = compare_psfs(psf[0].astype(float), export.psf) if good else None
            comparisons.append(ZemaxComparison(export, camera, field, wave, agreement, report["status"]))
    return sorted(comparisons, key=lambda one: one.export.file)


def _lens_file(root: Path, export: ZemaxPsf) -> str:
    """The file in the folder with the name, or the stem, of the lens that the listing names."""
    files = [path for path in sorted(root.iterdir()) if path.suffix.lower() in LENS_SUFFIXES and path.suffix != ".txt"]
    stem = Path(export.lens_name).stem.lower()
    for path in files:
        if stem and path.stem.lower() == stem:
            return str(path)
    if len(files) == 1 and not stem:
        return str(files[0])
    name = export.lens_name or "none"
    raise LensFileError(
        f"names {name} as its lens, which is not beside it: copy it there, or give --lens", file=export.file
    )


def _field(export: ZemaxPsf, camera: Camera) -> Field:
    """Where the point appears, of the image radius."""
    if export.angle_deg is not None:
        x, y = (math.tan(math.radians(angle)) for angle in export.angle_deg)
        height = camera.field_of_angle(math.degrees(math.atan(math.hypot(x, y))))[1]
        azimuth = math.atan2(y, x)
        return height * math.cos(azimuth), height * math.sin(azimuth)
    assert export.height_mm is not None
    kind = camera.lens.field.kind if camera.lens.field is not None else ""
    if kind == "object_height":
        raise LensFileError("its field is an object height: export the Huygens PSF of field angles", file=export.file)
    return export.height_mm[0] / float(camera.image_radius_mm), export.height_mm[1] / float(camera.image_radius_mm)


def _depth_m(camera: Camera) -> float:
    """How far from the entrance pupil the lens file's object stands."""
    lens: Lens = camera.lens
    return (lens.object_distance + float(camera.first_order.entrance_pupil)) * 1e-3


@style.look()
def draw_zemax_comparison(comparisons: Sequence[ZemaxComparison], method: Method = "wave") -> Figure:
    """A row for each exported PSF: Zemax's, ours where it agrees best, the difference, and the numbers."""
    rows = len(comparisons)
    sheet = Sheet(LEFT + 3 * (SIDE + GAP) + NUMBERS + RIGHT, TOP + rows * (SIDE + GAP) - GAP + BOTTOM)
    sheet.title("PSFs beside Zemax's", f"as exported, samples of the light at points{method_text(method)}")
    for row, one in enumerate(comparisons):
        bottom = sheet.height - TOP - row * (SIDE + GAP) - SIDE
        boxes = [sheet.axes((LEFT + column * (SIDE + GAP), bottom, SIDE, SIDE)) for column in range(3)]
        bands = parse_bands([one.wavelength_nm])
        paint_psf(boxes[0], one.export.psf[None].astype(np.float32), bands, {})
        if one.agreement is None:
            paint_reason(boxes[1], one.status)
        else:
            paint_psf(boxes[1], one.agreement.ours[None].astype(np.float32), bands, {})
            half = 0.5 * float(one.agreement.theirs.max())
            shade = np.clip((one.agreement.ours - one.agreement.theirs) / half, -1.0, 1.0)
            show_picture(boxes[2], matplotlib.colormaps[DIFFERENCES](0.5 + 0.5 * shade)[..., :3], pixels=True)
        frame(boxes[2])
        if row == 0:
            for axes, name in zip(boxes, ("Zemax", "Defocus", "difference"), strict=True):
                head(axes, name)
        _words(sheet, one, bottom)
        psf_scale_bar(
            sheet, MARGIN, bottom + 0.24, SIDE, len(one.export.psf) * one.export.spacing_um, one.export.spacing_um
        )
    sheet.footnote(
        "pictures scaled to their own maximum; difference: red where ours is brighter, blue where Zemax's is, full at "
        "half of Zemax's maximum",
        0.12,
    )
    return sheet.figure


def _words(sheet: Sheet, one: ZemaxComparison, bottom: float) -> None:
    """Beside a row: what was compared, and how well it agrees."""
    x, y = one.field
    about = [style.minus(f"field ({x:.3g}, {y:.3g})"), f"{one.wavelength_nm:.5g} nm", one.export.file.name]
    row_label(sheet, one.camera.lens.name, about, bottom + SIDE - 0.1, LEFT - MARGIN - 0.1)
    if one.agreement is None:
        return
    numbers = (
        ("relative L1", one.agreement.l1),
        ("after a blur of 1 px", one.agreement.blurred_l1),
        ("correlation", one.agreement.correlation),
    )
    left = LEFT + 3 * (SIDE + GAP) + 0.1
    for number, (text, value) in enumerate(numbers):
        y = bottom + SIDE - 0.15 - 0.36 * number
        sheet.text(left, y, text, color=style.FAINT, va="center")
        sheet.text(left, y - 0.15, f"{value:.4f}", va="center")
