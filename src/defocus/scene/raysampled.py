"""The truth for rendering: pictures of procedural scenes by casting rays, with exact visibility.

`pinhole_picture` looks through a pinhole, or behind the first surface for the judgement of what is filled in there;
`ray_sampled` through many points of a finite pupil, every ray on its own way past whatever stands before it (geometry:
`thin_lens`). A pixel is the mean over its area: each pupil point has its own place in the pixel, evenly spread, so that
a thousand points also smooth a thousand ways.

A ray has four coordinates, two in the pupil and two in its pixel. They are the columns of one Sobol sequence with a
digital shift (Owen's book, ch. 15-17): any two or more of them fill their square evenly together. Against a sunflower
spiral with its own sequence in the pixel, edges come out with less than half the error at 1024 rays. Counts that are
powers of two are best. Coordinates of the pupil are as seen from behind the camera, x to the right and y up, in units
of the radius of the round pupil; a pupil of another shape has its area, π.

Cost: about surfaces × pixels × points; 256×256 pixels and 1024 points take some ten seconds on one core.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt

from ..errors import DefocusError
from .shapes import SceneShape
from .thin_lens import PinholeView, ThinLens

BAND_PIXELS = 1 << 17  # rays that are followed at once: their arrays stay in the cache
AXIS = (0.0, 0.0)
SPARSE = 0.15  # share of a window's pixels below which they are read one by one
APART = np.float32(1.0 - 1e-5)  # strips of one floor overlap by a hair: they are not behind each other
FARTHEST = np.float32(np.finfo(np.float32).max)  # stands for infinitely far, where inf stands for nothing met


BITS = 30  # of the Sobol numbers
SOBOL = (((1,), (1,) * BITS), ((1,), (1,)), ((1, 1), (1, 3)), ((0, 1, 1), (1, 3, 1)))  # polynomials, first numbers
SHIFT = (0x2545F491, 0x1B873593, 0x0DEADBE5, 0x3C6EF372)  # random bits, one number for each coordinate


@dataclass(frozen=True)
class PinholePicture:
    """A pinhole picture: linear RGB, smoothed over each pixel; depth (inf: infinitely far) and number of the surface at
    the middle of each pixel, −1 and nan where `valid` is false because there is no surface."""

    linear: Float[np.ndarray, "height width 3"]
    depth_m: Float[np.ndarray, "height width"]
    surface: Int[np.ndarray, "height width"]
    valid: Bool[np.ndarray, "height width"]


def pinhole_picture(
    surfaces: Sequence[SceneShape], view: PinholeView, samples: int = 64, *, hidden: bool = False
) -> PinholePicture:
    """The scene through a pinhole, each pixel the mean of `samples` rays.

    With `hidden`, what the pinhole would see if the surface in the middle of each pixel, and all that is nearer, were
    not there. Where there is nothing behind, `valid` is false, the colour 0 and the depth nan.
    """
    linear = np.zeros((view.height, view.width, 3), dtype=np.float32)
    depth = np.empty((view.height, view.width), dtype=np.float32)
    number = np.empty((view.height, view.width), dtype=np.int32)
    for rows in _bands(view):
        depth[rows], number[rows], _ = _cast(surfaces, view, rows, AXIS, 0.0, AXIS, coloured=False)
        behind = (depth[rows].copy(), number[rows].copy()) if hidden else None
        if hidden:
            depth[rows], number[rows], _ = _cast(surfaces, view, rows, AXIS, 0.0, AXIS, behind=behind, coloured=False)
        met = np.zeros(number[rows].shape, dtype=np.float32)
        for offset in pixel_offsets(samples):
            _, index, colour = _cast(surfaces, view, rows, AXIS, 0.0, _pair(offset), behind=behind)
            if not hidden:
                _refuse_nothing(index, view)
            met += index >= 0
            linear[rows] += colour
        linear[rows] /= np.maximum(met, 1.0)[..., None]
    valid = number >= 0
    return PinholePicture(np.where(valid[..., None], linear, 0.0), _public_depth(depth), number, valid)


def ray_sampled(
    surfaces: Sequence[SceneShape],
    view: PinholeView,
    lens: ThinLens,
    pupil: Float[np.ndarray, "points 2"] | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> Float[np.ndarray, "height width 3"]:
    """The scene through a finite pupil: linear RGB, the mean over the rays from all `pupil` points.

    Pupil points are in units of the pupil's radius, as seen from behind the camera; 1024 over a disc by default. Points
    that are sorted by place (rows of a grid) would alias with the places in the pixel: mix them.
    """
    points = disc(1024) if pupil is None else np.asarray(pupil, dtype=np.float64)
    if len(points) < 1 or not np.all(np.isfinite(points)):
        raise DefocusError(f"{len(points)} pupil points, or some that are not finite; expected at least one")
    linear = np.zeros((view.height, view.width, 3), dtype=np.float64)
    offsets = pixel_offsets(len(points))
    radius_m, per_focus = lens.pupil_radius_mm * 1e-3, 1.0 / lens.focus_m
    bands = _bands(view)
    for k, rows in enumerate(bands):
        for i, (point, offset) in enumerate(zip(points, offsets, strict=True)):
            _, met, colour = _cast(surfaces, view, rows, _pair(point * radius_m), per_focus, _pair(offset))
            _refuse_nothing(met, view)
            linear[rows] += colour
            if progress is not None:
                progress((k + (i + 1) / len(points)) / len(bands))
    return (linear / len(points)).astype(np.float32)


def _bands(view: PinholeView) -> list[slice]:
    step = max(1, BAND_PIXELS // view.width)
    return [slice(top, min(top + step, view.height)) for top in range(0, view.height, step)]


def _pair(values: Float[np.ndarray, "2"]) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _public_depth(depth: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Inside, inf is "nothing there" and the largest number is infinitely far."""
    return np.where(depth == FARTHEST, np.float32(np.inf), np.where(np.isinf(depth), np.float32(np.nan), depth))


def _refuse_nothing(met: Int[np.ndarray, "rows columns"], view: PinholeView) -> None:
    if met.min() < 0:
        row, column = np.argwhere(met < 0)[0]
        raise DefocusError(
            f"a ray of pixel row {row}, column {column} of {view.width}×{view.height} meets no surface: "
            "give the scene a backdrop, or a larger one"
        )


def _window(
    surface: SceneShape,
    view: PinholeView,
    rows: slice,
    a: tuple[float, float],
    per_focus: float,
    offset: tuple[float, float],
) -> tuple[slice, slice]:
    """Rows (counted from the band's first) and columns that the surface can appear in."""
    outline = surface.outline()
    if outline is None or outline[:, 2].min() <= 0.0:
        return slice(0, rows.stop - rows.start), slice(0, view.width)
    x, y = (((outline[:, k] - a[k]) / outline[:, 2] + a[k] * per_focus) * view.focal_px for k in (0, 1))
    column = (view.width - 1) / 2 - offset[0] + x
    row = (view.height - 1) / 2 - offset[1] - y
    return (
        slice(*(int(i) - rows.start for i in np.clip([row.min(), row.max() + 2.0], rows.start, rows.stop))),
        slice(*(int(i) for i in np.clip([column.min(), column.max() + 2.0], 0, view.width))),
    )


def _cast(
    surfaces: Sequence[SceneShape],
    view: PinholeView,
    rows: slice,
    a: tuple[float, float],
    per_focus: float,
    offset: tuple[float, float],
    *,
    behind: tuple[np.ndarray, np.ndarray] | None = None,
    coloured: bool = True,
) -> tuple[Float[np.ndarray, "rows width"], Int[np.ndarray, "rows width"], Float[np.ndarray, "rows width 3"]]:
    """One ray per pixel from the pupil point `a` (metres), `offset` pixels (right, down) from its middle.

    Returns the depth of the nearest surface, its number (−1: none) and, if asked for, its colour. `behind` holds for
    each pixel a depth and the number of a surface: only others that are farther count.
    """
    x = np.arange(view.width) + (offset[0] - (view.width - 1) / 2)
    y = (view.height - 1) / 2 - offset[1] - np.arange(rows.start, rows.stop)
    dx = (x / view.focal_px - a[0] * per_focus)[None, :].astype(np.float32)
    dy = (y / view.focal_px - a[1] * per_focus)[:, None].astype(np.float32)
    depth = np.full((dy.size, dx.size), np.inf, dtype=np.float32)
    number = np.full(depth.shape, -1, dtype=np.int32)
    colour = np.zeros((*depth.shape, 3), dtype=np.float32)
    met = []
    for index in sorted(range(len(surfaces)), key=lambda k: surfaces[k].nearest_m):
        surface = surfaces[index]
        window = _window(surface, view, rows, a, per_focus, offset)
        so_far = depth[window]
        if so_far.size == 0 or so_far.max() < surface.nearest_m:
            continue
        hit = surface.hit(a, dx[:, window[1]], dy[window[0]])
        nearer = hit.depth_m < so_far
        if behind is not None:
            nearer &= (hit.depth_m * APART > behind[0][window]) & (behind[1][window] != index)
        np.copyto(so_far, hit.depth_m, where=nearer)
        np.copyto(number[window], np.int32(index), where=nearer)
        met.append((index, window, hit))
    for index, window, hit in met if coloured else []:
        visible = number[window] == index
        part = colour[window]
        if hit.column.shape[0] == 1 and hit.row.shape[1] == 1 and visible.mean() > SPARSE:
            np.copyto(part, surfaces[index].colour(hit.column, hit.row), where=visible[..., None])
        else:
            column, row = (np.broadcast_to(v, visible.shape)[visible] for v in (hit.column, hit.row))
            part[visible] = surfaces[index].colour(column, row)
    return depth, number, colour


def _square(count: int, columns: slice, variant: int) -> Float[np.ndarray, "{count} 2"]:
    """Two of the four coordinates, in 0..1."""
    if count < 1:
        raise DefocusError(f"{count} pupil points; expected at least one")
    shift = np.array(SHIFT, dtype=np.uint64)[columns] * np.uint64(2 * variant + 1) % np.uint64(1 << BITS)
    return ((_sobol(count)[:, columns] ^ shift) + 0.5) / 2.0**BITS


def _sobol(count: int) -> UInt[np.ndarray, "{count} 4"]:
    """Whole numbers below 2**BITS: Sobol's sequence in Gray code's order, with the directions of Joe and Kuo (2008).

    SciPy's `qmc` gives the same, and takes half a second to import.
    """
    bit = np.arange(BITS)
    numbers = np.zeros((count, 4), np.uint64)
    index = np.arange(count)
    gray = (index ^ (index >> 1))[:, None] >> bit & 1
    for axis, (taps, first) in enumerate(SOBOL):
        direction = list(first)
        for k in range(len(first), BITS):
            degree = len(taps)
            value = direction[k - degree] ^ (direction[k - degree] << degree)
            for step, tap in enumerate(taps[:-1], 1):
                value ^= tap * direction[k - step] << step
            direction.append(value)
        scaled = np.array([m << (BITS - 1 - k) for k, m in enumerate(direction)], np.uint64)
        numbers[:, axis] = np.bitwise_xor.reduce(np.where(gray == 1, scaled, np.uint64(0)), axis=1)
    return numbers


def disc(count: int, variant: int = 0) -> Float[np.ndarray, "{count} 2"]:
    """The round pupil. Another `variant` is another set, as even: their difference tells the error of the sum."""
    x, y = (2.0 * _square(count, slice(0, 2), variant) - 1.0).T
    # Squares about the centre become circles (Shirley and Chiu, 1997): area stays, and neighbours stay neighbours.
    flat = np.abs(x) > np.abs(y)
    radius = np.where(flat, x, y)
    angle = math.pi / 4.0 * np.where(flat, y / np.where(flat, x, 1.0), 2.0 - x / np.where(flat, 1.0, y))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def polygon(count: int, blades: int, rotation_deg: float = 90.0, variant: int = 0) -> Float[np.ndarray, "{count} 2"]:
    """A regular polygon with the area of the round pupil.

    `rotation_deg` is where a corner shows in the blur of points nearer than the focus, counter-clockwise from the
    right; farther points show it turned by 180°. It is the convention of `Camera`'s blades.
    """
    if not 3 <= blades <= 64:
        raise DefocusError(f"{blades} blades; expected 3 to 64")
    square = _square(count, slice(0, 2), variant)
    corner = math.sqrt(2.0 * math.pi / (blades * math.sin(2.0 * math.pi / blades)))
    # The near blur is the pupil turned by 180°: so is the angle of its corner.
    angle = math.radians(rotation_deg + 180.0) + 2.0 * math.pi * np.arange(blades + 1) / blades
    corners = corner * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    side = np.floor(square[:, 0] * blades).astype(int)
    along = (square[:, :1] * blades) - side[:, None]
    return np.sqrt(square[:, 1:]) * ((1.0 - along) * corners[side] + along * corners[side + 1])


def pixel_offsets(count: int, variant: int = 0) -> Float[np.ndarray, "{count} 2"]:
    """Places in a pixel, from −0.5 to 0.5 to the right and down, for rays with these pupil points."""
    return _square(count, slice(2, 4), variant) - 0.5
