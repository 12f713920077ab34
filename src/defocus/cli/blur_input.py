"""What `defocus blur` and `defocus refocus` read: a sharp photograph with its depth, or a procedural scene."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DefocusError

if TYPE_CHECKING:
    import numpy as np

    from ..photo import Photo, SensorColour
    from ..scene.depth_maps import DepthMap
    from .progress import StageBar

ESTIMATORS = ("depth-pro", "depth-anything-indoor", "depth-anything-outdoor")
SCENE = "scene:"


@dataclass(frozen=True)
class SharpInput:
    """A sharp photograph in linear light with its depth."""

    linear: np.ndarray
    depth_m: np.ndarray
    focus_m: float
    colour: SensorColour | None
    exif_pixel_um: float | None  # of the reduced photograph
    notes: tuple[str, ...]

    def pitch_um(self, text: str | None) -> float | None:
        """Pixel pitch that --pixel-um asks for; None: the photograph fills the image circle."""
        if text is None:
            return None
        if text == "exif":
            if self.exif_pixel_um is None:
                raise DefocusError("--pixel-um exif: the photograph's EXIF data do not tell its pixel pitch; give it")
            return self.exif_pixel_um
        try:
            pitch = float(text)
        except ValueError:
            pitch = math.nan
        if not 0.05 <= pitch <= 10_000.0:
            raise DefocusError(f"--pixel-um {text}: expected exif or a number of µm")
        return pitch

    def pixel_from(self, text: str | None) -> str:
        """Where the pixel pitch comes from, in words."""
        if text is None:
            return "the photograph fills the lens's image circle"
        return "EXIF" if text == "exif" else "given"


@dataclass(frozen=True)
class Asked:
    """Options that only a photograph has, or only a scene; None where they were not given."""

    max_side: int | None
    size: str | None
    resize_depth: bool
    scale_m: float | None

    def for_photographs(self) -> list[str]:
        """Those that were given and that a scene would have to ignore."""
        given = {
            "--max-side": self.max_side is not None,
            "--resize-depth": self.resize_depth,
            "--scale-m": self.scale_m is not None,
        }
        return [name for name, is_given in given.items() if is_given]


def read_sharp(
    photo: str,
    depth: str | None,
    focus_m: float | None,
    asked: Asked,
    *,
    longest: int,
    scene_size: str,
    bar: StageBar,
) -> SharpInput:
    """Read the photograph and its depth, reduced where it is larger than asked; or make the scene."""
    if photo.startswith(SCENE):
        if depth is not None:
            raise DefocusError(f"{photo}: a scene brings its own depth; leave --depth out")
        if asked.for_photographs():
            names = " and ".join(asked.for_photographs())
            raise DefocusError(f"{photo}: {names}: for photographs and their depth maps; a scene's size is --size")
        return _scene(photo.removeprefix(SCENE), asked.size or scene_size, focus_m, bar)
    if asked.size is not None:
        raise DefocusError(f"{photo}: --size is for scenes; a photograph is reduced by --max-side")
    if depth is None:
        raise DefocusError(f"{photo}: give its --depth, a file or one of {', '.join(ESTIMATORS)}")
    if focus_m is None:
        raise DefocusError(f"{photo}: give --focus-m, the focus distance in metres")
    from ..photo import read_photo, reduced

    bar("reading")
    read = read_photo(Path(photo))
    linear = read.linear()
    found = _depth(depth, read, linear, asked.scale_m, bar).fitted(read.size, resize=asked.resize_depth)
    notes = [*read.notes, *found.notes]
    long_side, most = max(read.size), longest if asked.max_side is None else asked.max_side
    exif = read.exif.pixel_um
    if most and long_side > most:
        width, height = (max(1, round(side * most / long_side)) for side in read.size)
        linear, found = reduced(linear, (width, height)), found.fitted((width, height), resize=True)
        notes = [*read.notes, *found.notes, f"reduced from {read.size[0]}×{read.size[1]}, each pixel a mean of light"]
        exif = None if exif is None else exif * long_side / max(width, height)
    return SharpInput(linear, found.depth_m, focus_m, read.colour, exif, tuple(notes))


def two_numbers(text: str, option: str, expected: str) -> tuple[int, int]:
    """The two whole numbers of 3x5."""
    found = re.fullmatch(r"(\d+)[xX×](\d+)", text)
    if found is None:
        raise DefocusError(f"{option} {text}: expected {expected}")
    return int(found[1]), int(found[2])


def _scene(text: str, size: str, focus_m: float | None, bar: StageBar) -> SharpInput:
    from ..scene.procedural import make_scene

    name, _, seed = text.partition(":")
    if seed and not seed.isdigit():
        raise DefocusError(f"scene:{text}: expected scene:NAME or scene:NAME:SEED")
    bar("making the scene")
    made = make_scene(name, two_numbers(size, "--size", "WIDTHxHEIGHT such as 960x640"), int(seed or 0))
    sharp = made.picture()
    return SharpInput(
        sharp.linear, sharp.depth_m, made.lens.focus_m if focus_m is None else focus_m, None, None,
        (f"a procedural scene with exact depth: {made.about}",),
    )  # fmt: skip


def _depth(text: str, read: Photo, linear: np.ndarray, scale_m: float | None, bar: StageBar) -> DepthMap:
    if text not in ESTIMATORS:
        from ..scene.depth_files import read_depth

        return read_depth(Path(text), scale_m=scale_m)
    import numpy as np

    from ..photo import SRGB, encode
    from ..scene.depth_models import estimate_depth, focal_length_px

    if scale_m is not None:
        raise DefocusError(f"--scale-m is for depth files; {text} gives metres")
    exif = read.exif
    focal = focal_length_px(read.size, focal_mm=exif.focal_mm, focal_35mm=exif.focal_35mm, pixel_um=exif.pixel_um)
    bar(text)
    srgb = np.clip(np.asarray(encode(linear, SRGB), dtype=np.float32), 0.0, 1.0)
    return estimate_depth(srgb, text, focal_px=focal).depth


__all__ = ["ESTIMATORS", "Asked", "SharpInput", "read_sharp", "two_numbers"]
