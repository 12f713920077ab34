"""Procedural scenes with exact depth and known hidden surfaces: the demo of the project and the truth of its tests.

A scene is a set of painted surfaces (`shapes`) before a camera. It is a pure function of its name, a seed and the size
of the picture; larger pictures show the same scene with more detail. `Scene.picture` gives linear RGB and depth,
`Scene.hidden` what lies behind the first surface, `Scene.truth` the picture through a finite aperture by casting rays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from .compositions import COMPOSITIONS, FRAME_DIAGONAL_MM, Studio
from .raysampled import PinholePicture, pinhole_picture, ray_sampled
from .shapes import SceneShape
from .thin_lens import PinholeView, ThinLens

SCENES: tuple[str, ...] = tuple(COMPOSITIONS)
SMALLEST, LARGEST = 16, 3072  # pixels across


@dataclass(frozen=True)
class Scene:
    """Surfaces, the camera that looks at them, and a lens that suits them (focused on the subject)."""

    name: str
    about: str
    seed: int
    surfaces: tuple[SceneShape, ...]
    view: PinholeView
    lens: ThinLens
    focal_length_mm: float  # of a 24 × 36 mm frame's diagonal, for a camera with this field of view

    def picture(self, samples: int = 64, margin_px: int = 0) -> PinholePicture:
        """The sharp picture with its depth; `margin_px` adds what lies beyond the frame, on each side."""
        return pinhole_picture(self.surfaces, self.view.padded(margin_px), samples)

    def hidden(self, samples: int = 64, margin_px: int = 0) -> PinholePicture:
        """What lies behind the first surface of each pixel."""
        return pinhole_picture(self.surfaces, self.view.padded(margin_px), samples, hidden=True)

    def truth(
        self,
        lens: ThinLens | None = None,
        pupil: Float[np.ndarray, "points 2"] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Float[np.ndarray, "height width 3"]:
        """The picture through `lens` (by default the scene's own), summed over the points of its pupil."""
        return ray_sampled(self.surfaces, self.view, lens or self.lens, pupil, progress=progress)

    def circle_of_confusion_px(
        self, depth_m: Float[np.ndarray, "*shape"], lens: ThinLens | None = None
    ) -> Float[np.ndarray, "*shape"]:
        """Signed blur radius in this picture's pixels, positive beyond the focus."""
        return (lens or self.lens).circle_of_confusion_px(depth_m, self.view.focal_px)


def make_scene(name: str, size: tuple[int, int] = (480, 320), seed: int = 0) -> Scene:
    """Build a scene by name for a picture of `size` = (width, height) pixels."""
    if name not in COMPOSITIONS:
        raise DefocusError(f"scene {name!r}; known are {', '.join(SCENES)}")
    if not all(SMALLEST <= n <= LARGEST for n in size):
        raise DefocusError(f"a scene of {size[0]}×{size[1]} pixels; expected {SMALLEST} to {LARGEST} on each side")
    if not 1 / 3 <= size[0] / size[1] <= 3:
        raise DefocusError(f"a scene of {size[0]}×{size[1]} pixels; expected sides of at most 3 : 1")
    if seed < 0:
        raise DefocusError(f"seed {seed}; expected a number from 0")
    composition = COMPOSITIONS[name]
    focal_px = composition.focal_length_mm / FRAME_DIAGONAL_MM * float(np.hypot(*size))
    view = PinholeView(*size, focal_px)
    surfaces = composition.build(Studio(view, seed))
    lens = ThinLens(composition.pupil_radius_mm, composition.focus_m)
    return Scene(name, composition.about, seed, surfaces, view, lens, composition.focal_length_mm)
