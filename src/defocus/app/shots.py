"""A photograph as a visitor asks for it: the lens, its stop, its focus and a sharp picture; from that the camera, the
preview, the finished photograph, and the command line that makes the same.
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..camera import Camera
from ..lens import load_lens
from ..render import Photograph
from .job_line import Report
from .pencils import Pencils
from .preview import node_heights, take_preview
from .sharp_pictures import SharpPicture

FEWEST_BLADES = 5  # fewer on the slider: a round opening
NARROWEST = 22.0  # the f-number at which sliders end
LENSES_KEPT = 64


@lru_cache(LENSES_KEPT)
def lens_camera(lens: str) -> Camera:
    """A camera with a built-in lens, or one of a file (an absolute path), at full aperture."""
    return Camera(load_lens(Path(lens) if Path(lens).is_absolute() else lens))


@lru_cache(LENSES_KEPT)
def _pencils(lens: str, size: tuple[int, int], nearest_m: float) -> Pencils:
    return Pencils.of(lens_camera(lens), node_heights(size), nearest_m)


def at_most(nearest_m: float) -> float:
    """A power of two, no more than this depth: few different ones, so that rays are seldom traced again."""
    return 2.0 ** math.floor(math.log2(min(nearest_m, 64.0)))


@dataclass(frozen=True)
class Setting:
    """How a lens is set: f-number (no more open than it is), blades of its iris, focus distance in metres."""

    lens: str  # a built-in name, or the path of a file
    f_number: float
    blades: int
    focus_m: float

    @property
    def is_open(self) -> bool:
        """Whether the lens is wide open: the blades are out of the way."""
        return self.f_number <= float(lens_camera(self.lens).f_number) * 1.001

    @property
    def camera_options(self) -> dict[str, Any]:
        """The options of `Camera.stopped`."""
        if self.is_open:
            return {"f_number": None, "blades": None}
        return {"f_number": self.f_number, "blades": self.blades if self.blades >= FEWEST_BLADES else None}

    def camera(self, size: tuple[int, int]) -> Camera:
        """The camera whose picture of `size` = (width, height) fills the image circle."""
        return lens_camera(self.lens).with_pixels(size).stopped(**self.camera_options).focused(self.focus_m)

    @property
    def text(self) -> str:
        """The setting in words."""
        camera = lens_camera(self.lens)
        number = float(camera.f_number) if self.is_open else self.f_number
        distance = "infinity" if math.isinf(self.focus_m) else f"{self.focus_m:.3g} m"
        blades = f", {self.blades} blades" if self.blades >= FEWEST_BLADES and not self.is_open else ""
        return f"{camera.lens.name} · f/{number:.3g}{blades} · focused at {distance}"

    @property
    def arguments(self) -> list[str]:
        """The options of a command line that set the lens so."""
        name = Path(self.lens).name if Path(self.lens).is_absolute() else self.lens
        options = self.camera_options
        words = ["--lens", name, "--focus-m", f"{self.focus_m:g}"]
        for option in ("f_number", "blades"):
            if options[option] is not None:
                words += [f"--{option.replace('_', '-')}", f"{options[option]:g}"]
        return words


@dataclass(frozen=True)
class Shot:
    """One photograph: a setting of a lens and a sharp picture."""

    setting: Setting
    picture: SharpPicture

    def preview(self) -> Float[np.ndarray, "rows cols 3"]:
        """The small picture at once, as display values 0..1: PSFs of rays alone."""
        linear, depth = self.picture.small
        size = depth.shape[::-1]
        pencils = _pencils(self.setting.lens, size, at_most(self.picture.nearest_m))
        return take_preview(pencils, self.setting.camera(size), linear, depth)

    def photograph(self, report: Report) -> Photograph:
        """The finished photograph, as `defocus blur` takes it; `report` is called with stages and how far they are."""
        report("the sharp picture", 0.0)
        linear, depth = self.picture.full
        report("PSFs", 0.0)
        camera = self.setting.camera(depth.shape[::-1])
        colour = self.picture.colour
        options = {"saturation": self.picture.saturation, "colour": colour, "sensor": colour is not None}
        return camera.photograph(linear, depth, progress=report, **options)

    @property
    def command(self) -> str:
        """The command line that takes the same photograph."""
        return shlex.join(
            ["defocus", "blur", *self.picture.arguments, *self.setting.arguments, "--out", "photograph.png"]
        )

    @property
    def settings_json(self) -> str:
        """The settings as a file."""
        setting = self.setting
        facts = {
            "picture": self.picture.name,
            "lens": setting.arguments[1],
            "lens_name": lens_camera(setting.lens).lens.name,
            "focus_m": str(setting.focus_m) if math.isinf(setting.focus_m) else setting.focus_m,
            **setting.camera_options,
            "true_f_number": float(setting.camera((3, 2)).f_number),
            "command": self.command,
        }
        return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def settled(lens: str, f_number: float, blades: float, focus_m: float) -> tuple[Setting, list[str]]:
    """A setting that the lens can take, in numbers a command line can name exactly, and notes on what was changed."""
    camera, notes = lens_camera(lens), []
    full = float(camera.f_number)
    if f_number < full * 0.94:
        notes.append(f"{camera.lens.name} opens to f/{full:.3g}, not f/{f_number:.3g}: wide open")
    front = camera.first_order.nearest_m
    focus = float(f"{focus_m:.4g}")
    if not focus > front * 1.02:
        nearer = float(f"{front * 1.1 + 0.01:.3g}")
        notes.append(f"{focus:g} m lies within the front focal point of {camera.lens.name}: focused at {nearer:g} m")
        focus = nearer
    setting = Setting(lens, max(round(float(f_number), 2), 0.5), int(blades), focus)
    if setting.is_open and blades >= FEWEST_BLADES:
        notes.append("wide open the blades are out of the way: stop down to see them")
    return setting, notes
