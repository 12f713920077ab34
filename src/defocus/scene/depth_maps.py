"""A depth map in metres that a renderer can use: positive everywhere, without holes, of the photograph's size.

Holes are NaN, zero, negative numbers and −inf; +inf is no hole but infinitely far. A hole takes the depth of the
nearest pixel (in the picture) that has one. That invents no depth: smoother fillings put surfaces between foreground
and background where there are none, and these would show as rings of false blur. Resizing follows the same thought: it
is bilinear in inverse depth, in which planes are straight, but takes the nearest pixel where the four around differ by
more than a tenth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DepthError

EDGE = 1.1  # ratio of neighbouring depths from which they belong to two surfaces
PROPORTIONS = 0.02  # by how much the two scales of a resized map may differ
Intrinsics = tuple[float, float, float, float]


@dataclass(frozen=True)
class DepthMap:
    """Depth from the entrance pupil, in metres; inf: infinitely far."""

    depth_m: Float[np.ndarray, "height width"]  # float32, positive
    filled: Bool[np.ndarray, "height width"]  # where there was a hole
    intrinsics: Intrinsics | None = None  # fx, fy, cx, cy in pixels; the middle of pixel (0, 0) is (0, 0)
    notes: tuple[str, ...] = ()  # what was repaired, and by which rule
    file: Path | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.depth_m.shape[1], self.depth_m.shape[0]

    def fitted(self, size: tuple[int, int], *, resize: bool = False) -> DepthMap:
        """The same map for a photograph of `size` = (width, height): another size is an error unless `resize`."""
        if size == self.size:
            return self
        (width, height), (old_width, old_height) = size, self.size
        if not resize:
            raise DepthError(
                f"the depth map has {old_width}×{old_height} pixels, the photograph {width}×{height}; "
                "ask for resizing if both show the same view",
                file=self.file,
            )
        across, down = width / old_width, height / old_height
        if abs(math.log(across / down)) > PROPORTIONS:
            raise DepthError(
                f"the depth map has {old_width}×{old_height} pixels, the photograph {width}×{height}: these are "
                "not the same proportions, so they do not show the same view; crop or turn one of them",
                file=self.file,
            )
        row, column = _centres(height, old_height), _centres(width, old_width)
        nearest = np.ix_(np.round(row).astype(int), np.round(column).astype(int))
        note = f"resized from {old_width}×{old_height}: bilinear in inverse depth, the nearest pixel at depth edges"
        return replace(
            self,
            depth_m=_resized(self.depth_m, row, column, self.depth_m[nearest]),
            filled=self.filled[nearest],
            intrinsics=None if self.intrinsics is None else _scaled(self.intrinsics, across, down),
            notes=(*self.notes, note),
        )


def complete_depth(
    depth_m: np.ndarray,
    *,
    intrinsics: Intrinsics | None = None,
    file: str | Path | None = None,
    notes: tuple[str, ...] = (),
) -> DepthMap:
    """Fill the holes of a depth map, and say so."""
    path = None if file is None else Path(file)
    depth = np.asarray(depth_m, dtype=np.float32)
    if depth.ndim != 2 or depth.size == 0:
        raise DepthError(f"an array of shape {depth.shape}; expected one number per pixel, [height, width]", file=path)
    holes = ~(depth > 0.0)
    if not holes.any():
        return DepthMap(depth, holes, intrinsics, notes, path)
    if holes.all():
        raise DepthError(f"none of its {depth.size} pixels has a depth: all are NaN, zero or negative", file=path)
    from scipy.ndimage import distance_transform_edt

    distance, (row, column) = distance_transform_edt(holes, return_indices=True)
    note = (
        f"{int(holes.sum())} pixels without depth ({holes.mean():.2%}: {int(np.isnan(depth).sum())} NaN, the others "
        f"zero or negative) took the depth of the nearest pixel that has one, at most {distance.max():.0f} px away"
    )
    return DepthMap(depth[row, column], holes, intrinsics, (*notes, note), path)


def _centres(new: int, old: int) -> Float[np.ndarray, " {new}"]:
    """Where the middles of the new pixels lie among the old ones."""
    return np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0.0, old - 1.0)


def _resized(
    depth: Float[np.ndarray, "old_height old_width"],
    row: Float[np.ndarray, " height"],
    column: Float[np.ndarray, " width"],
    nearest: Float[np.ndarray, "height width"],
) -> Float[np.ndarray, "height width"]:
    top, left = np.floor(row).astype(int), np.floor(column).astype(int)
    bottom, right = np.minimum(top + 1, depth.shape[0] - 1), np.minimum(left + 1, depth.shape[1] - 1)
    fy, fx = (row - top).astype(np.float32)[:, None], (column - left).astype(np.float32)[None, :]
    inverse = 1.0 / depth
    corners = [inverse[np.ix_(j, i)] for j, i in ((top, left), (top, right), (bottom, left), (bottom, right))]
    smooth = (1 - fy) * ((1 - fx) * corners[0] + fx * corners[1]) + fy * ((1 - fx) * corners[2] + fx * corners[3])
    one_surface = np.maximum.reduce(corners) <= EDGE * np.minimum.reduce(corners)
    with np.errstate(divide="ignore"):
        return np.where(one_surface, 1.0 / smooth, nearest).astype(np.float32)


def _scaled(intrinsics: Intrinsics, across: float, down: float) -> Intrinsics:
    fx, fy, cx, cy = intrinsics
    return fx * across, fy * down, (cx + 0.5) * across - 0.5, (cy + 0.5) * down - 0.5
