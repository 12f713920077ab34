"""Real photographs with a truth: where one picture of a scene is blurred, another, focused elsewhere, is sharp.

Pictures of one scene have names that differ in their last number alone (c_01_1, c_01_2; pcb_001, pcb_002, …). The one
before and the one after a picture in that order are registered on it (shift, rotation, scale), and at each pixel the
one with more fine contrast is taken for the truth; pictures farther away are blurred beyond restoring. Fine contrast is
the root mean square, over a neighbourhood of σ 8 pixels, of what lies between Gaussians of σ 1 and 2.

A pixel counts where the truth has at least twice the fine contrast of the picture, is textured, lies more than 12
pixels from where that is not so (near a depth edge the truth holds the blurred other side), and is in view of every
picture that was registered. The light of the truth is made that of the picture by one gain for each colour, from means
over σ 16 pixels where it counts.

Where both are textured and equally sharp, their PSNR is what noise, light and registration leave: about the most that a
restoration can reach elsewhere.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

from ..errors import DatasetError, DefocusError
from ..restore.similarity import Mask, grey, psnr
from .images import Image, ReducedImage, Values
from .photometry import cell_means, grey_of, to_linear
from .registration import Similarity, middle_of, register, warped

BAND_PX = (1.0, 2.0)  # σ of the Gaussians whose difference is fine contrast
NEIGHBOURHOOD_PX = 8.0  # σ
CONTRAST_RATIO = 2.0  # of the truth to the picture, where it counts
EQUAL_RATIO = 1.15  # most, where both are sharp
TEXTURE = 0.01  # least fine contrast of the truth, display values
MARGIN_PX = 12
LEAST_PIXELS = 2000  # of a picture that counts, and of one where both are sharp
LIGHT_PX = 16.0  # σ over which light is compared
LARGE_PX = 1024  # pictures with a shorter side of so much are registered at half their size, which tells as well
MOVED_PX = 0.05  # registrations that move nothing by more leave pixels as they are
# Least share of blocks that follow one similarity. Pictures of one scene have 0.59 to 1, of two scenes none.
AGREEING = 0.1


def find_scenes(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of pictures by their scene, which is the name without its last number, in the order of that number. Names
    without one are left out."""
    scenes: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if match := re.fullmatch(r"(.+)_(\d+)", name):
            scenes.setdefault(match[1], []).append((int(match[2]), name))
    return {scene: [name for _, name in sorted(numbered)] for scene, numbered in scenes.items()}


@dataclass(frozen=True)
class TruthFit:
    """How the other pictures of a scene make the truth of one, and where it counts."""

    similarities: tuple[Similarity | None, ...]  # of the other pictures; None: it does not lie on this one
    gains: tuple[float, ...]  # of red, green and blue
    packed_mask: UInt8[np.ndarray, "bytes"]  # eight pixels in one
    shape: tuple[int, int]  # rows and columns
    pixels: int  # that count
    both_sharp_db: float | None  # PSNR where both are equally sharp; None where those are too few pixels


@dataclass(frozen=True)
class MultiFocusTruth:
    """The truth of a picture that others of its scene, focused elsewhere, make; it counts within a mask alone.

    What registration finds is kept; the pictures themselves are not.
    """

    image: Image
    others: tuple[Image, ...]

    @property
    def place(self) -> str:
        return " and ".join(other.place for other in self.others)

    def size(self) -> tuple[int, int]:
        """Width and height of the other pictures; of several sizes, one that the picture does not have."""
        own = self.image.size()
        return next((size for size in (other.size() for other in self.others) if size != own), own)

    @cached_property
    def fit(self) -> TruthFit:
        """Registration, light and mask. Seconds of work for a picture of some megapixels."""
        image, others = self.image.read(), [other.read() for other in self.others]
        shape = (image.shape[0], image.shape[1])
        try:
            similarities = tuple(_registration(image, other) for other in others)
        except DefocusError as error:
            raise DatasetError(str(error), file=self.image.place) from error
        moved = _moved(others, similarities)
        if not moved:
            return TruthFit(similarities, (1.0,) * 3, np.packbits(np.zeros(shape, bool)), shape, 0, None)
        truth, sharpness = _sharpest(moved)
        own, textured = fine_contrast(image), sharpness > TEXTURE
        view = np.logical_and.reduce([_view(one, shape) for one in similarities if one is not None])
        mask = view & _eroded((sharpness > CONTRAST_RATIO * own) & textured)
        both = view & _eroded((sharpness < EQUAL_RATIO * own) & (own < EQUAL_RATIO * sharpness) & textured)
        gains = _gains(image, truth, mask)
        both_sharp_db = psnr(image, _lit(truth, gains), mask=both) if both.sum() >= LEAST_PIXELS else None
        return TruthFit(similarities, gains, np.packbits(mask), shape, int(mask.sum()), both_sharp_db)

    @property
    def mask(self) -> Mask:
        """Pixels that count."""
        shape = self.fit.shape
        return np.unpackbits(self.fit.packed_mask, count=math.prod(shape)).reshape(shape).astype(bool)

    @property
    def share(self) -> float:
        """Share of the pixels that count."""
        return self.fit.pixels / math.prod(self.fit.shape)

    @property
    def moved_px(self) -> float:
        """How far registration moves any of the other pictures, in the corners and the middle, pixels."""
        return max((_largest_shift(s, self.fit.shape) for s in self.fit.similarities if s is not None), default=0.0)

    @property
    def fault(self) -> str:
        """Why the picture cannot be judged; empty if it can."""
        if not any(one is not None for one in self.fit.similarities):
            return "no other picture of the scene lies on it"
        if self.fit.pixels < LEAST_PIXELS:
            return f"fewer than {LEAST_PIXELS:,} pixels are blurred where another picture is sharp"
        return ""

    def read(self) -> Values:
        """Display values 0..1; they are a truth within the mask alone."""
        moved = _moved([other.read() for other in self.others], self.fit.similarities)
        if not moved:
            raise DatasetError(self.fault, file=self.image.place)
        return _lit(_sharpest(moved)[0], self.fit.gains)

    def digest(self) -> str:
        fit = self.fit
        pictures = [one.digest() for one in (self.image, *self.others)]
        digest = hashlib.sha256(f"{pictures} {fit.similarities} {fit.gains}".encode())
        digest.update(fit.packed_mask.tobytes())
        return digest.hexdigest()

    def reduced(self, factor: int) -> MultiFocusTruth:
        """The truth that the pictures make at this fraction of their size."""
        return MultiFocusTruth(
            ReducedImage(self.image, factor), tuple(ReducedImage(other, factor) for other in self.others)
        )


def fine_contrast(image: Values) -> Float[np.ndarray, "rows cols"]:
    """Root mean square of a band of fine detail over a neighbourhood, display values."""
    luma = grey(image) / 255.0
    band = ndimage.gaussian_filter(luma, BAND_PX[0]) - ndimage.gaussian_filter(luma, BAND_PX[1])
    return np.sqrt(ndimage.gaussian_filter(band**2, NEIGHBOURHOOD_PX))


def _registration(image: Values, other: Values) -> Similarity | None:
    """How the other picture lies on this one; None if too little of it does."""
    factor = 2 if min(image.shape[:2]) >= LARGE_PX else 1
    light = (cell_means(grey_of(to_linear(one)), factor) for one in (other, image))
    registration = register(*light)
    return registration.similarity.scaled(factor) if registration.agreeing.mean() >= AGREEING else None


def _largest_shift(similarity: Similarity, shape: tuple[int, ...]) -> float:
    """How far a similarity moves the corners and the middle of a picture of these rows and columns, at most, pixels."""
    height, width = shape[:2]
    x, y = (np.array(v, np.float64) for v in ([0, width, 0, width, width / 2], [0, 0, height, height, height / 2]))
    return float(np.hypot(*similarity.displacement(x, y, middle_of((width, height)))).max())


def _view(similarity: Similarity, shape: tuple[int, int]) -> Mask:
    """Pixels of a picture of these rows and columns whose content is within the other picture, too."""
    height, width = shape
    y, x = np.indices(shape, np.float64)
    right, down = similarity.displacement(x, y, middle_of((width, height)))
    return (x >= right) & (x - right <= width - 1) & (y >= down) & (y - down <= height - 1)


def _moved(others: Sequence[Values], similarities: Sequence[Similarity | None]) -> list[Values]:
    """The pictures that were registered, each where its content lies in the one that is judged."""
    return [
        warped(other, one) if _largest_shift(one, other.shape) > MOVED_PX else other
        for other, one in zip(others, similarities, strict=True)
        if one is not None
    ]


def _sharpest(pictures: Sequence[Values]) -> tuple[Values, Float[np.ndarray, "rows cols"]]:
    """At each pixel the picture with most fine contrast, and that contrast."""
    contrasts = np.stack([fine_contrast(one) for one in pictures])
    sharpest = contrasts.argmax(0)
    return np.take_along_axis(np.stack(pictures), sharpest[None, ..., None], 0)[0], contrasts.max(0)


def _gains(image: Values, truth: Values, mask: Mask) -> tuple[float, ...]:
    """What brings the light of the truth nearest to that of the picture, colour by colour, where it counts."""
    if not mask.any():
        return (1.0,) * 3
    light = (ndimage.gaussian_filter(one, (LIGHT_PX, LIGHT_PX, 0.0))[mask] for one in (image, truth))
    own, others = (one.astype(np.float64) for one in light)
    return tuple(float(gain) for gain in (own * others).sum(0) / (others**2).sum(0))


def _lit(truth: Values, gains: tuple[float, ...]) -> Values:
    return np.clip(truth * np.array(gains, np.float32), 0.0, 1.0)


def _eroded(mask: Mask) -> Mask:
    """A mask without what lies within the margin of its edge, or of the picture's."""
    distance = ndimage.distance_transform_edt(np.pad(mask, 1))
    return distance[1:-1, 1:-1] > MARGIN_PX
