"""Photographs: RAW files, the camera's image pipeline forwards and backwards, sensor noise.

Everything but the reading of files is a pure function of float32 arrays; `jax.vmap` runs it over a batch.
"""

from ..files.exif import Exif
from ..files.pictures import check_picture_path, read_picture, write_linear, write_picture
from ..programs import keep_programs
from ..srgb import from_srgb, to_srgb
from .demosaic import METHODS, demosaic
from .isp import SensorColour, forward_isp, inverse_isp, partial_isp, stack_colours, without_mosaic
from .light import as_linear_light, draw_saturation, highlight_power, reduced, saturation_mask, synthesise_saturation
from .noise import Noise, add_noise, draw_noise, estimate_noise
from .photos import Photo, RawPhoto, RgbPhoto
from .reading import copied_metadata, read_bare_mosaic, read_photo
from .response import LINEAR, SRGB, Response, decode, encode, parse_response

__all__ = [
    "LINEAR",
    "METHODS",
    "SRGB",
    "Exif",
    "Noise",
    "Photo",
    "RawPhoto",
    "Response",
    "RgbPhoto",
    "SensorColour",
    "add_noise",
    "as_linear_light",
    "check_picture_path",
    "copied_metadata",
    "decode",
    "demosaic",
    "draw_noise",
    "draw_saturation",
    "encode",
    "estimate_noise",
    "forward_isp",
    "from_srgb",
    "highlight_power",
    "inverse_isp",
    "parse_response",
    "partial_isp",
    "read_bare_mosaic",
    "read_photo",
    "read_picture",
    "reduced",
    "saturation_mask",
    "stack_colours",
    "synthesise_saturation",
    "to_srgb",
    "without_mosaic",
    "write_linear",
    "write_picture",
]

keep_programs()
