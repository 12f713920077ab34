"""Pictures of a focus sweep: side by side in one picture, or as an animated GIF, each with its distance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from ..errors import DefocusError

STRIPS = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
GAP_PX = 6
COLOURS = 256


def check_sweep_path(path: Path) -> None:
    """Refuse a name that no sweep can be written to."""
    if path.suffix.lower() not in (*STRIPS, ".gif"):
        raise DefocusError(f"{path}: expected a name that ends in .gif (animated) or {', '.join(STRIPS)}")
    if not path.resolve().parent.is_dir():
        raise DefocusError(f"{path}: cannot be written: there is no folder {path.parent}")


def write_sweep(
    path: Path, pictures: Sequence[Float[np.ndarray, "rows cols 3"]], captions: Sequence[str], *, seconds: float = 0.6
) -> None:
    """Write display values 0..1 of equal size; a GIF goes there and back."""
    frames = [_captioned(picture, text) for picture, text in zip(pictures, captions, strict=True)]
    if path.suffix.lower() == ".gif":
        order = frames + frames[-2:0:-1]
        # One palette for all, or still parts of the picture would flicker.
        palette = _strip(frames).quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
        shown = [frame.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for frame in order]
        shown[0].save(path, save_all=True, append_images=shown[1:], duration=round(1000 * seconds), loop=0)
    else:
        _strip(frames).save(path)


def _strip(frames: Sequence[Image.Image]) -> Image.Image:
    width, height = frames[0].size
    strip = Image.new("RGB", (len(frames) * (width + GAP_PX) - GAP_PX, height), "white")
    for number, frame in enumerate(frames):
        strip.paste(frame, (number * (width + GAP_PX), 0))
    return strip


def _captioned(picture: Float[np.ndarray, "rows cols 3"], text: str) -> Image.Image:
    frame = Image.fromarray((np.clip(picture, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8))
    if not text:
        return frame
    size = max(10, frame.height // 20)
    draw = ImageDraw.Draw(frame)
    place = (size // 2, frame.height - size - size // 2)
    draw.text(place, text, "white", ImageFont.load_default(size), stroke_width=max(1, size // 12), stroke_fill="black")
    return frame


__all__ = ["check_sweep_path", "write_sweep"]
