"""The sharp pictures that are photographed: scenes, and visitors' own with a depth map, a network's depth or a plane.

A picture has two sizes: small for previews, and the one of the finished photograph, which a scene computes when it is
first asked for. `arguments` are those of `defocus blur` that name the same picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from ..photo import (
    SRGB,
    Photo,
    RawPhoto,
    SensorColour,
    encode,
    highlight_power,
    read_photo,
    reduced,
    saturation_mask,
    synthesise_saturation,
)
from ..scene.depth_files import read_depth
from ..scene.depth_maps import DepthMap
from ..scene.procedural import SCENES, make_scene
from .preview import LONGEST

FULL_LONGEST = 960  # pixels on the long side of the finished photograph
SCENE_SIZE, SMALL_SCENE_SIZE = (960, 640), (240, 160)
SMALL_SAMPLES = 16  # rays of a pixel of a small scene

Light = Float[np.ndarray, "rows cols 3"]
Depth = Float[np.ndarray, "rows cols"]


@dataclass(frozen=True)
class SharpPicture:
    """Linear light and depth (m) in two sizes, and where they come from."""

    name: str
    about: str
    arguments: tuple[str, ...]  # of `defocus blur`
    focus_m: float  # to begin with
    size: tuple[int, int]  # width and height of the finished photograph
    small: tuple[Light, Depth]
    make_full: Callable[[], tuple[Light, Depth]] = field(repr=False)
    colour: SensorColour | None = None  # of a RAW file's camera
    saturation: float = 0.0
    notes: tuple[str, ...] = ()

    @cached_property
    def full(self) -> tuple[Light, Depth]:
        """Light and depth of the finished photograph."""
        return self.make_full()

    @property
    def nearest_m(self) -> float:
        """The nearest depth."""
        return float(self.small[1].min())

    @property
    def farthest_m(self) -> float:
        """The farthest depth; inf is one."""
        return float(self.small[1].max())

    def depth_at(self, x: float, y: float) -> float:
        """Depth in metres at a place in fractions of the picture, from its upper left."""
        rows, columns = self.small[1].shape
        row, column = (min(max(int(at * n), 0), n - 1) for at, n in ((y, rows), (x, columns)))
        return float(self.small[1][row, column])


def scene_focus(name: str) -> float:
    """The distance in metres at which a scene's subject stands."""
    return make_scene(name, SMALL_SCENE_SIZE).lens.focus_m


@lru_cache(len(SCENES))
def scene_picture(name: str) -> SharpPicture:
    """A procedural scene."""
    scene = make_scene(name, SMALL_SCENE_SIZE)
    small = scene.picture(SMALL_SAMPLES)

    def make_full() -> tuple[Light, Depth]:
        sharp = make_scene(name, SCENE_SIZE).picture()
        return sharp.linear, sharp.depth_m

    size = "x".join(map(str, SCENE_SIZE))
    arguments = (f"scene:{name}", "--size", size)
    return SharpPicture(
        name, scene.about, arguments, scene.lens.focus_m, SCENE_SIZE, (small.linear, small.depth_m), make_full
    )


@dataclass(frozen=True)
class PlaneByHand:
    """A plane that stands before the camera, tilted towards or away from it: its depth at the bottom and at the top."""

    bottom_m: float
    top_m: float

    def depth(self, size: tuple[int, int]) -> Depth:
        """Depth of each pixel of a picture of `size` = (width, height): in perspective its inverse grows evenly."""
        for name, value in (("bottom", self.bottom_m), ("top", self.top_m)):
            if not value >= 0.05:
                raise DefocusError(f"depth at the {name} {value} m; expected 0.05 m or more")
        inverse = np.linspace(1.0 / self.top_m, 1.0 / self.bottom_m, size[1])
        return np.broadcast_to((1.0 / inverse).astype(np.float32)[:, None], size[::-1]).copy()


def own_picture(
    photo: Path, depth: Path | str | PlaneByHand, place_of_plane: Callable[[], Path] | None = None
) -> SharpPicture:
    """A visitor's photograph; `depth` is a file, the name of a network, or a plane, stored at `place_of_plane`."""
    read = read_photo(photo)
    linear, size = read.linear(), read.size
    depth_map, named = _depth_of(read, linear, depth, place_of_plane)
    depth_map = depth_map.fitted(size, resize=True)
    long_side = max(size)

    def at(longest: int) -> tuple[Light, Depth]:
        if long_side <= longest:
            return linear, depth_map.depth_m
        smaller = (max(1, round(size[0] * longest / long_side)), max(1, round(size[1] * longest / long_side)))
        return reduced(linear, smaller), depth_map.fitted(smaller, resize=True).depth_m

    full, small = at(FULL_LONGEST), at(LONGEST)
    if min(small[1].shape) < 16:
        raise DefocusError(f"{photo.name}: {size[0]}×{size[1]} pixels; expected sides that differ less, and 16 or more")
    power = 0.0
    if not isinstance(read, RawPhoto) and read.colour is None:
        power = highlight_power(float((saturation_mask(full[0]) > 0.0).mean()))
        small = (np.asarray(synthesise_saturation(small[0], power)), small[1])
    rows, columns = small[1].shape
    return SharpPicture(
        photo.name,
        f"{size[0]}×{size[1]} pixels",
        (photo.name, "--depth", named, "--resize-depth", "--max-side", str(FULL_LONGEST)),
        float(small[1][rows // 2, columns // 2]),
        full[1].shape[::-1],
        small,
        lambda: full,
        read.colour,
        power,
        (*read.notes, *depth_map.notes),
    )


def _depth_of(
    read: Photo, linear: Light, depth: Path | str | PlaneByHand, place_of_plane: Callable[[], Path] | None
) -> tuple[DepthMap, str]:
    """The depth map, and what the command line calls it."""
    if isinstance(depth, PlaneByHand):
        from ..scene.depth_files import write_depth

        rows, columns = linear.shape[:2]
        plane = depth.depth((columns, rows))
        if place_of_plane is not None:
            write_depth(place_of_plane(), plane)
        return DepthMap(plane, np.zeros(plane.shape, bool), notes=("a plane placed by hand",)), "depth.npz"
    if isinstance(depth, Path):
        return read_depth(depth), depth.name
    from ..scene.depth_models import DepthNetwork, focal_length_px

    exif = read.exif
    lengths = {"focal_mm": exif.focal_mm, "focal_35mm": exif.focal_35mm, "pixel_um": exif.pixel_um}
    srgb = np.clip(np.asarray(encode(linear, SRGB), np.float32), 0.0, 1.0)
    return DepthNetwork(depth).estimate(srgb, focal_length_px(read.size, **lengths)).depth, depth
