"""Distortion: a rectilinear picture as the lens draws it.

A point that is seen under the angle θ lies at the height s·tan θ in a rectilinear picture; the lens draws it where its
chief ray meets the sensor, at the height h(θ). The scale s = lim h/tan θ is that of the lens itself at its focus, so
that the middle of the picture stays as it is. Chief rays are those of the d line, on which PSFs are centred, too. The
picture is drawn before it is blurred: PSFs belong to places of the lens's own image.

Other colours lie beside the d line by the lens's lateral colour. The PSFs of the nodes hold it, but kernels of pixels
move by less than a pixel only where they are large, and between nodes the picture is a bilinear mean. Colours are drawn
by so much aside as where PSFs put them differs from the truth, the chief rays of the band's wavelengths.

Where the lens sees more than the picture shows, there is no light. A lens of moderate barrel distortion has its frame
filled: the picture is enlarged by up to MOST_ZOOM. Over a focus pull s grows as the lens is focused nearer: it
breathes, and each picture is enlarged as its own s says. Light is interpolated by cubic splines, over several points
per pixel where the lens compresses the picture; depth takes the nearest pixel, so that no surface appears between
two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..lens.prescription import D_LINE_NM
from ..psf.bands import Bands
from .full_field import node_places

if TYPE_CHECKING:
    from ..camera import Camera
    from .node_psfs import NodePsfs

HEIGHTS = 32  # chief rays from the axis to the corner
NEAR_AXIS = 1e-3  # of the image radius; where the scale is measured
WIDEST = math.radians(89.9)  # beyond it a rectilinear picture shows nothing
MOST_ZOOM = 1.5
MOST_POINTS = 4  # per pixel and axis

Size = tuple[int, int]  # width and height


@dataclass(frozen=True)
class RadialDistortion:
    """Where a lens draws the points of a rectilinear picture, in pixels of both."""

    radius_px: Float[np.ndarray, " heights"]  # in the lens's image, from 0
    angle: Float[np.ndarray, " heights"]  # radians, of the chief ray
    scale_px: float  # of the rectilinear picture, per unit of tan θ
    zoom: float = 1.0  # by which the picture is enlarged

    def rectilinear_px(self, radius_px: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Distance from the picture's middle of what the lens draws at a radius; nan: nothing that a picture shows."""
        from scipy.interpolate import CubicSpline

        angle = CubicSpline(self.radius_px, self.angle, extrapolate=False)(radius_px)
        with np.errstate(invalid="ignore"):
            return np.where(angle <= WIDEST, self.scale_px / self.zoom * np.tan(angle), np.nan)

    def source_map(self, size: Size, shift: tuple[Any, Any] = (0.0, 0.0)) -> Float[np.ndarray, "rows cols 2"]:
        """Column and row of the rectilinear picture that each pixel (shifted by x, y) of the lens's image shows."""
        width, height = size
        x = np.arange(width)[None, :] - (width - 1.0) / 2.0 + shift[0]
        y = np.arange(height)[:, None] - (height - 1.0) / 2.0 + shift[1]
        radius = np.hypot(x, y)
        ratio = self.rectilinear_px(np.maximum(radius, 1e-6)) / np.maximum(radius, 1e-6)
        return np.stack([x * ratio + (width - 1.0) / 2.0, y * ratio + (height - 1.0) / 2.0], axis=-1)


@dataclass(frozen=True)
class LensDrawing:
    """How a lens draws rectilinear pictures of one size."""

    distortion: RadialDistortion
    size: Size
    source_map: Float[np.ndarray, "rows cols 2"]  # column and row in the rectilinear picture; nan: beyond it
    report: dict[str, Any]
    notes: tuple[str, ...]

    def depth(self, depth_m: Float[np.ndarray, "rows cols"]) -> Float[np.ndarray, "rows cols"]:
        """A picture's depth as the lens draws it; beyond the picture, that of its border."""
        from scipy.ndimage import map_coordinates

        places = self.distortion.source_map(self.size)
        nearest = np.where(np.isfinite(places), places, 0.0)[..., ::-1].transpose(2, 0, 1)
        return map_coordinates(depth_m, nearest, np.float32, order=0, mode="nearest")

    def light(
        self, light: Float[np.ndarray, "rows cols 3"], aside: Float[np.ndarray, "3 2 rows cols"] | None = None
    ) -> Float[np.ndarray, "rows cols 3"]:
        """A picture's light as the lens draws it, before any blur; each colour so many pixels (x, y) `aside`."""
        from scipy.ndimage import map_coordinates, spline_filter

        steps = [np.abs(np.diff(self.source_map, axis=axis)) for axis in (0, 1)]
        stretch = max((float(np.nanmax(step)) for step in steps if np.isfinite(step).any()), default=1.0)
        points = int(np.clip(math.ceil(stretch - 0.25), 1, MOST_POINTS))
        offsets = (np.arange(points) + 0.5) / points - 0.5
        total = np.zeros_like(light)
        for c in range(3):
            spline = spline_filter(light[..., c], order=3, output=np.float32, mode="mirror")
            x, y = (0.0, 0.0) if aside is None else aside[c]
            for dx, dy in product(offsets, offsets):
                at = self.distortion.source_map(self.size, (dx - x, dy - y))
                inside = within(at, self.size)
                row_col = np.where(inside, at[..., ::-1].transpose(2, 0, 1), 0.0)
                sample = map_coordinates(spline, row_col, np.float32, order=3, mode="mirror", prefilter=False)
                total[..., c] += np.where(inside, sample, 0.0)
        # Splines overshoot beside highlights; there is no light below none.
        return np.maximum(total / points**2, 0.0)


def find_drawing(camera: Camera, size: Size, *, bent: bool = True, zoom: float | None = None) -> LensDrawing:
    """How the camera's lens draws pictures of `size`; one that is not `bent` draws them rectilinear.

    `zoom` enlarges the picture before that; None: by what fills the frame.
    """
    distortion = find_distortion(camera, size) if bent else _straight(camera, size)
    distortion = distortion if zoom is None else replace(distortion, zoom=zoom)
    places = distortion.source_map(size)
    inside = within(places, size)
    beyond = 1.0 - float(inside.mean())
    text = f"{beyond:.1%} of the frame lies beyond the picture, which {camera.lens.name} sees past, and is black"
    last = float(distortion.radius_px[-1])
    corner = float(distortion.rectilinear_px(np.array(last))) * distortion.zoom
    report = {
        "corner": round(last / corner - 1.0, 5) if math.isfinite(corner) else None,
        "zoom": round(distortion.zoom, 5),
        "beyond": round(beyond, 5),
    }
    source_map = np.where(inside[..., None], places, np.nan).astype(np.float32)
    return LensDrawing(distortion, size, source_map, report, (text,) if beyond > 0.0 else ())


def breathing_zooms(cameras: Sequence[Camera], size: Size, *, bent: bool) -> list[float]:
    """By what each camera of a sweep enlarges one rectilinear picture: as its chief rays do, against the widest view.

    The widest view shows the picture as it is, or as far enlarged as fills every frame of lenses that draw it `bent`.
    """
    lenses = [radial_distortion(camera, math.hypot(*size) / 2.0) for camera in cameras]
    scale = min(lens.scale_px for lens in lenses)
    growth = [lens.scale_px / scale for lens in lenses]
    filling = max(_filling_zoom(lens, size) / factor for lens, factor in zip(lenses, growth, strict=True))
    whole = filling if bent and 1.0 < filling <= MOST_ZOOM else 1.0
    return [factor * whole for factor in growth]


def _straight(camera: Camera, size: Size) -> RadialDistortion:
    """A lens of the camera's scale without distortion."""
    scale = float(camera.paraxial.image_scale) / (float(camera.pixel_um) * 1e-3)
    radius = np.linspace(0.0, math.hypot(*size) / 2.0, HEIGHTS)
    return RadialDistortion(radius, np.arctan(radius / scale), scale)


def find_distortion(camera: Camera, size: Size) -> RadialDistortion:
    """The distortion of a camera's lens over a picture of `size`, which is filled where that takes little."""
    distortion = radial_distortion(camera, math.hypot(*size) / 2.0)
    zoom = _filling_zoom(distortion, size)
    return replace(distortion, zoom=zoom) if 1.0 < zoom <= MOST_ZOOM else distortion


def radial_distortion(camera: Camera, reach_px: float) -> RadialDistortion:
    """The distortion of a camera's lens as far from the axis as `reach_px`, or as its image circle goes."""
    pitch, radius = float(camera.pixel_um) * 1e-3, float(camera.image_radius_mm)
    corner = min(reach_px * pitch / radius, 1.0)
    fields = np.concatenate([[NEAR_AXIS * corner], np.linspace(0.0, corner, HEIGHTS)[1:]])
    angles, _ = camera.chief_rays(fields)
    scale = fields[0] * radius / pitch / math.tan(angles[0])
    reach = len(angles) if np.isfinite(angles).all() else int(np.argmin(np.isfinite(angles)))
    heights, angle = np.append(0.0, fields[1:reach] * radius / pitch), np.append(0.0, angles[1:reach])
    return RadialDistortion(heights, angle, scale)


def patch_shifts(camera: Camera, field: tuple[float, float], size: int) -> Float[np.ndarray, "2 size size"] | None:
    """How far (x, y, px) beside its own place each pixel of a square patch shows a rectilinear one, whose middle stays.

    None where the lens compresses the patch by more than MOST_ZOOM, or sees past any picture.
    """
    middle = np.array([field[0], -field[1]]) * float(camera.image_radius_mm) / (float(camera.pixel_um) * 1e-3)
    step = np.arange(size) - (size - 1.0) / 2.0
    own = np.stack(np.broadcast_arrays(step[None, :], step[:, None]))
    places = np.concatenate([(middle[:, None, None] + own).reshape(2, -1), middle[:, None]], axis=1)
    radius = np.maximum(np.hypot(*places), 1e-6)
    distortion = radial_distortion(camera, float(radius.max()))
    # A corner of the patch may lie a little outside the image circle, as far as the last chief ray.
    ratio = distortion.rectilinear_px(np.minimum(radius, distortion.radius_px[-1])) / np.minimum(
        radius, distortion.radius_px[-1]
    )
    sources = places * ratio
    shifts = (sources[:, :-1] - sources[:, -1:]).reshape(2, size, size) - own
    steps = [np.diff(shifts, axis=axis) for axis in (1, 2)]
    if not np.isfinite(shifts).all() or max(float(np.abs(step).max()) for step in steps) > MOST_ZOOM - 1.0:
        return None
    return shifts.astype(np.float32)


def lateral_colour_px(
    camera: Camera, bands: Bands, heights: Float[np.ndarray, " heights"]
) -> Float[np.ndarray, "bands heights"]:
    """How far outwards of the d line each band lands (pixels) of points that the d line has at field heights."""
    from scipy.interpolate import CubicSpline

    def landing(wavelength_nm: float) -> CubicSpline:
        """The height on the sensor over the angle of points."""
        angle, height = camera.chief_rays(np.linspace(0.0, float(heights.max()), HEIGHTS), wavelength_nm)
        good = np.isfinite(angle)
        return CubicSpline(angle[good], height[good])

    own = landing(D_LINE_NM)
    angle, _ = camera.chief_rays(heights)
    shifts = [
        sum(w * (landing(wave)(angle) - own(angle)) for wave, w in zip(waves, weights, strict=True))
        for waves, weights in zip(bands.wavelengths_nm, bands.weights, strict=True)
    ]
    return np.nan_to_num(np.array(shifts) / (float(camera.pixel_um) * 1e-3))


def colours_aside(
    camera: Camera, psfs: NodePsfs, layer: int, size: Size, nodes: tuple[int, int]
) -> Float[np.ndarray, "3 2 rows cols"] | None:
    """By how much (x, y, px) each colour is drawn aside for its PSFs to put it where its chief rays land.

    Where the PSFs of a layer (that of the focus) put a colour is the centroid of the nodes' kernels, less what is
    common to all colours: coma. None for one band, which has no lateral colour.
    """
    if len(psfs.bands.names) != 3:
        return None
    step = float(camera.pixel_um) * 1e-3 / float(camera.image_radius_mm)
    places = [node_places(n, count) for n, count in zip(size[::-1], nodes, strict=True)]
    grid = np.linspace(0.0, min(math.hypot(*size) / 2.0 * step, 1.0), HEIGHTS)
    shifts = lateral_colour_px(camera, psfs.bands, grid)

    def vectors(rows: Float[np.ndarray, " r"], cols: Float[np.ndarray, " c"]) -> Float[np.ndarray, "3 2 r c"]:
        y, x = np.meshgrid(rows - (size[1] - 1.0) / 2.0, cols - (size[0] - 1.0) / 2.0, indexing="ij")
        radius = np.maximum(np.hypot(x, y), 1e-6)
        outwards = np.array([np.interp(radius * step, grid, shift) for shift in shifts])
        return outwards[:, None] * np.stack([x, y]) / radius

    kernels = np.array([[_centroids(psfs.at(i, j)[layer]) for j in range(nodes[1])] for i in range(nodes[0])])
    at_nodes = np.moveaxis(kernels, (0, 1), (2, 3))
    at_nodes = at_nodes - np.mean(at_nodes - vectors(*places), axis=0)
    hats = [
        np.stack([np.interp(np.arange(n), at, row) for row in np.eye(len(at))]) if len(at) > 1 else np.ones((1, n))
        for n, at in zip(size[::-1], places, strict=True)
    ]
    truth = vectors(*(np.arange(float(n)) for n in size[::-1]))
    return truth - np.einsum("bvij,ir,jc->bvrc", at_nodes, *hats)


def _centroids(psf: Float[np.ndarray, "bands size size"]) -> Float[np.ndarray, "bands 2"]:
    """Where the light of each band lies from the kernel's pixel size // 2: columns, rows."""
    at = np.arange(psf.shape[-1]) - psf.shape[-1] // 2
    total = psf.sum((1, 2))
    return np.stack([(psf.sum(1) * at).sum(1), (psf.sum(2) * at).sum(1)], axis=-1) / total[:, None]


def within(places: Float[np.ndarray, "rows cols 2"], size: Size) -> Any:
    """Whether places (column, row) lie on a pixel of a picture."""
    ends = np.array(size) - 0.5
    with np.errstate(invalid="ignore"):
        return np.all((places >= -0.5) & (places < ends), axis=-1)


def _filling_zoom(distortion: RadialDistortion, size: Size) -> float:
    """By how much the picture must be enlarged for the lens's frame to hold nothing but picture; inf: by no factor."""
    half = (np.array(size) - 1.0) / 2.0
    places = distortion.source_map(size) - half
    border = np.concatenate([places[0], places[-1], places[:, 0], places[:, -1]])
    if not np.isfinite(border).all():
        return math.inf
    return float(np.max(np.abs(border) / np.maximum(half, 0.5)))
