"""A sweep of focus or aperture: its pictures side by side, or one after the other as a GIF, WebP or MP4.

GIFs and WebPs run to the end and back, without a jump where they begin again; an MP4 runs once.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from ..errors import MissingExtraError
from ..files.exif import Metadata, srgb_profile
from ..files.pictures import KINDS, PICTURES, encoded
from ..files.stores import check_output, write_file, writing_file
from .pages import eight_bits

ANIMATIONS = (".gif", ".webp", ".mp4")
STRIP_GAP_PX = 6
PALETTE_FRAMES = 8  # of a GIF, that its colours are taken from
WEBP_QUALITY = 90
VIDEO_RATE = 25  # pictures per second that players expect at least
VIDEO_QUALITY = 17  # x264's constant rate factor; smaller is better, and from about 17 on nobody sees the difference


def is_animation(path: Path) -> bool:
    """Whether a sweep of this name is shown one picture after the other."""
    return path.suffix.lower() in ANIMATIONS


def check_sweep_path(path: Path) -> None:
    """Refuse a name that no sweep can be written to, and a video where its package is missing."""
    check_output(path, (*ANIMATIONS, *PICTURES))
    if path.suffix.lower() == ".mp4":
        try:
            import av  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"{path}: a video (.gif and .webp need nothing)", "video") from error


def write_sweep(
    path: Path,
    pictures: Sequence[Float[np.ndarray, "rows cols 3"]],
    captions: Sequence[str],
    metadata: Metadata | None = None,
    *,
    seconds: float = 0.6,
) -> None:
    """Write pictures of equal size (display values 0..1) as a strip, or as an animation, each for so many seconds.

    A strip carries the metadata, without any those of sRGB; animations have no place for them.
    """
    frames = [_captioned(picture, text) for picture, text in zip(pictures, captions, strict=True)]
    suffix = path.suffix.lower()
    if suffix == ".mp4":
        write_file(path, _video(frames, seconds))
        return
    if suffix not in ANIMATIONS:
        metadata = metadata or Metadata(profile=srgb_profile())
        write_file(path, encoded(np.asarray(_strip(frames)), KINDS[suffix], metadata)[0])
        return
    order = frames + frames[-2:0:-1]
    options: dict[str, Any] = {"quality": WEBP_QUALITY, "method": 4, "minimize_size": True}
    if suffix == ".gif":
        # One palette for all, or still parts of the picture would flicker.
        palette = _strip(frames[:: -(-len(frames) // PALETTE_FRAMES)]).quantize(256, method=Image.Quantize.MEDIANCUT)
        order = [image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for image in order]
        options = {}
    first, *rest = order
    with writing_file(path) as file:
        options |= {"duration": round(1e3 * seconds), "loop": 0}
        first.save(file, suffix[1:].upper(), save_all=True, append_images=rest, **options)


def _strip(frames: Sequence[Image.Image]) -> Image.Image:
    """The pictures side by side."""
    width, height = frames[0].size
    strip = Image.new("RGB", (len(frames) * (width + STRIP_GAP_PX) - STRIP_GAP_PX, height), "white")
    for number, image in enumerate(frames):
        strip.paste(image, (number * (width + STRIP_GAP_PX), 0))
    return strip


def _video(frames: Sequence[Image.Image], seconds: float) -> bytes:
    """An MP4 (H.264, 4:2:0, BT.709) that shows each picture for so many seconds.

    Players know whole pictures of 4:2:0 alone: those of an odd width or height lose their last column or row.
    """
    import av
    from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc

    repeats = max(1, round(seconds * VIDEO_RATE))
    width, height = (side - side % 2 for side in frames[0].size)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        rate = Fraction(repeats / seconds).limit_denominator(1000)
        stream = container.add_stream("libx264", rate, options={"crf": str(VIDEO_QUALITY), "preset": "medium"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        context = stream.codec_context
        context.colorspace, context.color_range = Colorspace.ITU709, ColorRange.MPEG
        context.color_primaries, context.color_trc = ColorPrimaries.BT709, ColorTrc.IEC61966_2_1
        for image in frames:
            picture = av.VideoFrame.from_ndarray(np.asarray(image)[:height, :width], format="rgb24")
            coded = picture.reformat(
                format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
            )
            for _ in range(repeats):
                coded.pts = None
                container.mux(stream.encode(coded))
        container.mux(stream.encode(None))
    return file.getvalue()


def _captioned(picture: Float[np.ndarray, "rows cols 3"], text: str) -> Image.Image:
    image = Image.fromarray(eight_bits(picture))
    if text:
        size = max(10, image.height // 20)
        place = (size // 2, image.height - size - size // 2)
        font, width = ImageFont.load_default(size), max(1, size // 12)
        ImageDraw.Draw(image).text(place, text, "white", font, stroke_width=width, stroke_fill="black")
    return image
