"""Pictures as files: PNG, JPEG and TIFF of 8 or 16 bits in sRGB, and linear light as .npy, .npz or float TIFF.

Reading gives display values 0..1, upright. Grey becomes RGB; transparency is dropped with a note; an embedded colour
profile other than sRGB is converted where the file has 8 bits, and named in a note where it has 16.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from ..errors import MissingPackageError, PhotoError, UnsupportedPhotoError
from .exif import Exif, read_exif
from .png16 import png_bits, read_png16, write_png16

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
LINEAR = (".npy", ".npz")


def read_picture(
    path: str | Path, orientation: int | None = None, *, to_srgb: bool = True
) -> tuple[Float[np.ndarray, "h w 3"], Exif, list[str]]:
    """Display values 0..1 as float32, upright; EXIF data; notes on what was changed.

    Without `to_srgb` the values stay in the colours of the file's own profile, for a copy that keeps the profile.
    """
    path = Path(path)
    exif, note = read_exif(path)
    notes = [note] if note else []
    if path.stat().st_size == 0:
        raise PhotoError("the file is empty", file=path)
    deep = _deep(path)
    if deep is None:
        array = _read_8(path, notes, exif.orientation, to_srgb)
    else:
        array = deep
        notes += _other_profile(path) if to_srgb else []
    if array.shape[0] < 1 or array.shape[1] < 1:
        raise PhotoError("it has no pixels", file=path)
    if array.shape[2] in (2, 4):
        notes.append("transparency was dropped")
        array = array[..., :-1]
    if array.shape[2] not in (1, 3):
        raise UnsupportedPhotoError(f"{array.shape[2]} channels; expected grey or RGB", file=path)
    scale = np.float32(1.0 / np.iinfo(array.dtype).max)
    rgb = np.broadcast_to(array, (*array.shape[:2], 3)).astype(np.float32) * scale
    return turned(rgb, exif.orientation if orientation is None else orientation), exif, notes


def _deep(path: Path) -> Shaped[np.ndarray, "h w channels"] | None:
    """The values of a 16-bit file; None if it has fewer bits."""
    if png_bits(path) == 16:
        return read_png16(path)
    with path.open("rb") as file:
        if file.read(4) not in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            return None
    try:
        import tifffile
    except ModuleNotFoundError as error:
        raise MissingPackageError("reading TIFF files", "tifffile") from error
    try:
        with tifffile.TiffFile(path) as tiff:
            page: Any = tiff.pages[0]
            if page.dtype == np.uint8 or page.dtype is None:
                return None
            if page.dtype != np.uint16 or page.photometric.name not in ("RGB", "MINISBLACK"):
                kind = f"{page.dtype} {page.photometric.name}"
                raise UnsupportedPhotoError(f"a TIFF of {kind} values; expected 8 or 16-bit RGB or grey", file=path)
            array = np.asarray(page.asarray())
            planar = page.planarconfig.name == "SEPARATE" and array.ndim == 3
    except PhotoError:
        raise
    except Exception as error:  # tifffile raises whatever a damaged file leads it to
        hint = "; save it uncompressed" if "imagecodecs" in str(error) else ""
        raise PhotoError(f"the TIFF cannot be read: {error}{hint}", file=path) from error
    if planar:
        array = np.moveaxis(array, 0, -1)
    return array if array.ndim == 3 else array[..., None]


def _other_profile(path: Path) -> list[str]:
    """A note where a 16-bit file has a colour profile other than sRGB."""
    from PIL import Image, ImageCms

    try:
        with Image.open(path) as image:
            profile = image.info.get("icc_profile")
        name = profile and ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile))).strip()
    except (OSError, SyntaxError, ValueError, ImageCms.PyCMSError):
        name = "of unknown kind"
    if not name or "srgb" in name.lower():
        return []
    return [f"the embedded profile {name!r} was not applied: values of 16 bits are taken for sRGB"]


def _read_8(path: Path, notes: list[str], orientation: int, to_srgb: bool) -> Shaped[np.ndarray, "h w channels"]:
    """The values as they are stored, of 8 bits."""
    from PIL import Image, ImageCms, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            opened.load()
            image: Image.Image = opened
            # Pillow turns TIFF files on its own, and then forgets their orientation.
            was_turned = orientation != 1 and opened.getexif().get(0x0112, 1) == 1
            if image.mode in ("P", "PA", "1", "CMYK", "YCbCr", "LAB", "HSV"):
                image = image.convert("RGBA" if "transparency" in image.info else "RGB")
            if image.mode not in ("L", "LA", "RGB", "RGBA"):
                raise UnsupportedPhotoError(f"pixels of kind {image.mode}; expected 8 or 16-bit RGB", file=path)
            profile = image.info.get("icc_profile")
            if profile and to_srgb and image.mode in ("RGB", "RGBA"):
                given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
                name = ImageCms.getProfileDescription(given).strip()
                if "srgb" not in name.lower():
                    srgb = ImageCms.createProfile("sRGB")
                    image = ImageCms.profileToProfile(image, given, srgb, outputMode=image.mode) or image
                    notes.append(f"colours were converted from the embedded profile {name!r} to sRGB")
            array = np.asarray(image)
    except PhotoError:
        raise
    except UnidentifiedImageError as error:
        raise PhotoError("not a photograph: neither LibRaw nor Pillow know this format", file=path) from error
    except Image.DecompressionBombError as error:
        raise PhotoError(str(error), file=path) from error
    except (OSError, SyntaxError, ValueError, ImageCms.PyCMSError) as error:
        raise PhotoError(f"damaged or truncated: {error}", file=path) from error
    array = array if array.ndim == 3 else array[..., None]
    return turned(array, {6: 8, 8: 6}.get(orientation, orientation)) if was_turned else array


def check_picture_path(path: str | Path, *, linear: bool = True, bits: int = 8) -> Path:
    """Refuse, before the long work, a name that no picture can be written to, with `linear` no linear light either."""
    path = Path(path)
    known = (*PICTURES, *(LINEAR if linear else ()))
    if path.suffix.lower() not in known:
        raise PhotoError(f"expected a name that ends in {', '.join(known)}", file=path)
    if not path.resolve().parent.is_dir():
        raise PhotoError(f"cannot be written: there is no folder {path.parent}", file=path)
    if path.is_dir():
        raise PhotoError("cannot be written: it is a folder", file=path)
    if bits not in (8, 16):
        raise PhotoError(f"{bits} bits; a picture has 8 or 16", file=path)
    if bits == 16 and path.suffix.lower() in (".jpg", ".jpeg"):
        raise PhotoError("a JPEG has 8 bits; write a PNG or TIFF for 16", file=path)
    return path


def write_picture(path: str | Path, display: Float[np.ndarray, "h w 3"], *, bits: int = 8, quality: int = 95) -> None:
    """Write display values 0..1 as PNG, TIFF (8 or 16 bits) or JPEG (8)."""
    from PIL import Image

    path = check_picture_path(path, linear=False, bits=bits)
    kind = path.suffix.lower()
    top = 2**bits - 1
    values = np.asarray(display, np.float32)
    if not np.all(np.isfinite(values)):
        raise PhotoError(f"{np.count_nonzero(~np.isfinite(values))} values are not finite; nothing written", file=path)
    whole = np.round(np.clip(values, 0.0, 1.0) * top).astype(np.uint8 if bits == 8 else np.uint16)
    if bits == 8:
        jpeg: dict[str, Any] = {"quality": quality, "subsampling": 0} if kind in (".jpg", ".jpeg") else {}
        Image.fromarray(whole).save(path, **jpeg)
    elif kind == ".png":
        write_png16(path, whole)
    else:
        try:
            import tifffile
        except ModuleNotFoundError as error:
            raise MissingPackageError("writing 16-bit TIFF files", "tifffile") from error
        tifffile.imwrite(path, whole, photometric="rgb", compression="zlib", predictor=True)


def write_linear(path: str | Path, linear: Float[np.ndarray, "h w 3"], **extra: object) -> None:
    """Write linear sRGB as it is, float32: .npy, or .npz as `linear` beside whatever else is given."""
    path = check_picture_path(path)
    values = np.asarray(linear, np.float32)
    if path.suffix.lower() == ".npy":
        np.save(path, values)
    elif path.suffix.lower() == ".npz":
        np.savez_compressed(path, linear=values, **extra)  # type: ignore[arg-type]
    else:
        raise PhotoError("linear light is written as .npy or .npz", file=path)


def turned(array: Shaped[np.ndarray, "h w *channels"], orientation: int) -> Shaped[np.ndarray, "h2 w2 *channels"]:
    """The array upright, from how the camera stored it: `orientation` 1 to 8 as EXIF counts them."""
    if orientation not in range(1, 9):
        raise PhotoError(f"orientation {orientation}; EXIF knows 1 to 8")
    if orientation >= 5:
        array = np.swapaxes(array, 0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)
