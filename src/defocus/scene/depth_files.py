"""Depth maps as files.

    .npz    `depth_m` in metres and, where known, `intrinsics` = fx, fy, cx, cy in pixels
    .npy    one array
    .png    16-bit grey; the metres of one step must be stated
    .pfm    portable float map, one channel; the sign of its scale is the byte order, its size is ignored (the
            files of stereo benchmarks write numbers there that do not apply)
    .dpt    Sintel: the number 202021.25, width, height, then floats
    .exr    one channel Z, Y or R; needs the package OpenEXR

Numbers are metres unless `scale_m` says how many metres one is. What is done about holes: `depth_maps`.
"""

from __future__ import annotations

import io
import math
import re
import struct
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DepthError, MissingPackageError
from ..files.arrays import read_npy, read_npz
from ..files.pictures import opened_image
from ..files.png import MAX_PIXELS
from ..files.stores import check_output, write_file, writing_file
from .depth_maps import DepthMap, Intrinsics, complete_depth

SINTEL = 202021.25
FORMATS = (".npz", ".npy", ".png", ".pfm", ".dpt", ".exr")
EXR_CHANNELS = ("Z", "Y", "R")
Plane = Float[np.ndarray, "height width"]


def read_depth(path: str | Path, *, scale_m: float | None = None) -> DepthMap:
    """Read a depth map in metres, its holes filled. `scale_m`: metres per unit of the file."""
    path = Path(path)
    kind = check_depth_path(path)
    if not path.is_file():
        raise DepthError("no such file", file=path)
    if scale_m is not None and not 0.0 < scale_m < math.inf:
        raise DepthError(f"a scale of {scale_m} m per unit; expected a positive number", file=path)
    intrinsics: Intrinsics | None = None
    notes: tuple[str, ...] = ()
    if kind == ".npz":
        stored, intrinsics, notes = _read_npz(path, scale_m)
    else:
        stored = _READERS[kind](path)
    if kind == ".png" and scale_m is None:
        raise DepthError(
            "a PNG holds whole numbers; say how many metres one is (0.001: millimetres; 1/256 = 0.00390625: KITTI)",
            file=path,
        )
    stored = np.asarray(stored)
    _check_size(path, stored.size)
    if stored.ndim == 3 and 1 in (stored.shape[0], stored.shape[2]):
        stored = stored[0] if stored.shape[0] == 1 else stored[..., 0]
    if stored.dtype.kind not in "fiu":
        raise DepthError(f"values of type {stored.dtype}; expected numbers", file=path)
    if stored.dtype.kind in "iu" and scale_m is None and kind == ".npy":
        raise DepthError(f"whole numbers ({stored.dtype}); say how many metres one is", file=path)
    metres = stored.astype(np.float32) * np.float32(scale_m or 1.0)
    return complete_depth(metres, intrinsics=intrinsics, file=path, notes=notes)


def depth_bytes(depth_m: Plane, intrinsics: Intrinsics | None = None) -> bytes:
    """A depth map in metres as an .npz file."""
    extra = {} if intrinsics is None else {"intrinsics": np.array(intrinsics, dtype=np.float64)}
    file = io.BytesIO()
    np.savez_compressed(file, depth_m=np.ascontiguousarray(depth_m, dtype=np.float32), **extra)  # type: ignore[arg-type]
    return file.getvalue()


def write_depth(
    path: str | Path,
    depth_m: Plane,
    *,
    intrinsics: Intrinsics | None = None,
    scale_m: float | None = None,
) -> None:
    """Write a depth map in metres; a PNG needs `scale_m`, the metres of one step. Only .npz keeps the intrinsics."""
    path = Path(path)
    kind = check_depth_path(path)
    depth = np.ascontiguousarray(depth_m, dtype=np.float32)
    if kind == ".png":
        _write_png(path, depth, scale_m)
        return
    if scale_m is not None:
        raise DepthError(f"{kind} files are written in metres; a scale is for .png alone", file=path)
    if kind == ".npz":
        write_file(path, depth_bytes(depth, intrinsics))
    elif kind == ".npy":
        with writing_file(path) as file:
            np.save(file, depth)
    elif kind == ".pfm":
        header = f"Pf\n{depth.shape[1]} {depth.shape[0]}\n-1.0\n".encode()
        write_file(path, header + depth[::-1].astype("<f4").tobytes())
    elif kind == ".dpt":
        header = struct.pack("<fii", SINTEL, depth.shape[1], depth.shape[0])
        write_file(path, header + depth.astype("<f4").tobytes())
    else:
        exr = _openexr("writing")
        with tempfile.TemporaryDirectory() as folder:  # the package writes to names alone
            name = Path(folder, "depth.exr")
            exr.File({"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}, {"Z": depth}).write(str(name))
            write_file(path, name.read_bytes())


def check_depth_path(path: str | Path, *, writable: bool = False) -> str:
    """The kind of a depth file by its name; with `writable`, also that it can be written."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise DepthError(f"a depth map is a file that ends in {', '.join(FORMATS)}", file=path)
    if writable:
        check_output(path, FORMATS, DepthError)
        if kind == ".exr":
            _openexr("writing")
    return kind


def _check_size(path: Path, pixels: int) -> None:
    if pixels > MAX_PIXELS:
        raise DepthError(f"{pixels:,} pixels are more than the {MAX_PIXELS:,} that are read", file=path)


def _read_npz(path: Path, scale_m: float | None) -> tuple[Plane, Intrinsics | None, tuple[str, ...]]:
    arrays = read_npz(path, ("depth_m",), DepthError, optional=("intrinsics",))
    if scale_m not in (None, 1.0):
        raise DepthError(f"`depth_m` is in metres; a scale of {scale_m:g} does not apply", file=path)
    intrinsics = arrays.get("intrinsics")
    if intrinsics is None:
        return arrays["depth_m"], None, ()
    values = np.asarray(intrinsics, dtype=np.float64).ravel()
    if values.size == 4 and np.isnan(values).all():
        return arrays["depth_m"], None, ("its intrinsics are NaN: taken as unknown",)
    if values.size != 4 or not np.all(np.isfinite(values)) or min(values[:2]) <= 0.0:
        raise DepthError(f"intrinsics {values.tolist()}; expected fx, fy, cx, cy in pixels", file=path)
    return arrays["depth_m"], (float(values[0]), float(values[1]), float(values[2]), float(values[3])), ()


def _read_png(path: Path) -> np.ndarray:
    with opened_image(path, path, DepthError) as image:
        mode, array = image.mode, np.asarray(image)
    if not mode.startswith("I"):
        raise DepthError(
            f"a PNG of kind {mode}; expected 16-bit grey: 8 bits or colours are a drawing of depth", file=path
        )
    return array


def _read_pfm(path: Path) -> np.ndarray:
    data = path.read_bytes()
    header = re.match(rb"(P[fF])\s+(\d+)\s+(\d+)\s+([-+]?[0-9.eE+-]+)\s", data[:200])
    if header is None:
        raise DepthError("no PFM header (Pf, width, height, scale)", file=path)
    if header[1] != b"Pf":
        raise DepthError("a PFM of three colours; expected one channel", file=path)
    try:
        order = "<f4" if float(header[4]) < 0.0 else ">f4"
    except ValueError as error:
        raise DepthError(f"PFM scale {header[4].decode()!r}; expected a number", file=path) from error
    return _floats(path, data[header.end() :], int(header[2]), int(header[3]), order)[::-1]


def _read_dpt(path: Path) -> np.ndarray:
    data = path.read_bytes()
    tag, width, height = struct.unpack("<fii", data[:12]) if len(data) >= 12 else (math.nan, 0, 0)
    if tag != SINTEL:
        raise DepthError(f"its first number is {tag:g}, that of a Sintel depth file {SINTEL}", file=path)
    return _floats(path, data[12:], width, height, "<f4")


def _floats(path: Path, data: bytes, width: int, height: int, order: str) -> np.ndarray:
    if width < 1 or height < 1 or len(data) != 4 * width * height:
        raise DepthError(
            f"{len(data)} bytes of depth; {width}×{height} pixels take {4 * max(width, 0) * max(height, 0)}", file=path
        )
    return np.frombuffer(data, order).reshape(height, width).astype(np.float32)


def _read_exr(path: Path) -> np.ndarray:
    exr = _openexr("reading")
    with path.open("rb") as file:
        head = file.read(2**16)
    windows = re.findall(rb"dataWindow\0box2i\0\x10\0\0\0(.{16})", head, re.DOTALL)
    if not windows:
        raise DepthError("not a readable EXR: its header has no size", file=path)
    # All channels are unpacked. The entry of one is its name and 16 bytes; an empty name ends the list.
    lists = re.findall(rb"channels\0chlist\0.{4}((?:[^\0]+\0.{16})*)", head, re.DOTALL)
    channels = max([1, *(len(re.findall(rb"[^\0]+\0.{16}", one, re.DOTALL)) for one in lists)])
    for window in windows:
        left, top, right, bottom = struct.unpack("<4i", window)
        _check_size(path, abs(right - left + 1) * abs(bottom - top + 1) * channels)
    try:
        planes = exr.File(str(path), separate_channels=True).channels()
    except Exception as error:  # OpenEXR's own exceptions have no common base
        raise DepthError(f"not a readable EXR: {error}", file=path) from error
    for name in EXR_CHANNELS:
        if name in planes:
            return np.asarray(planes[name].pixels)
    raise DepthError(f"channels {', '.join(planes)}; expected one of {', '.join(EXR_CHANNELS)}", file=path)


def _openexr(verb: str) -> Any:
    try:
        return import_module("OpenEXR")
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{verb} .exr depth maps", "OpenEXR") from error


def _write_png(path: Path, depth: Plane, scale_m: float | None) -> None:
    from PIL import Image

    if scale_m is None or not 0.0 < scale_m < math.inf:
        raise DepthError("a PNG holds whole numbers from 1 to 65535; say how many metres one is", file=path)
    steps = np.round(depth.astype(np.float64) / scale_m)
    steps = np.nan_to_num(steps, nan=0.0, posinf=math.inf, neginf=0.0)  # 0 in a PNG: unknown
    if steps.max() > 65535 or np.any((steps < 1) & (depth > 0.0)):
        near, far = depth[depth > 0.0].min(), depth[depth > 0.0].max()
        raise DepthError(
            f"depths from {near:g} to {far:g} m do not fit 65535 steps of {scale_m:g} m; "
            "choose another scale, or a format of floats such as .npz",
            file=path,
        )
    with writing_file(path) as file:
        Image.fromarray(steps.astype(np.uint16)).save(file, "PNG")


_READERS: dict[str, Callable[[Path], np.ndarray]] = {
    ".npy": lambda path: read_npy(path, DepthError),
    ".png": _read_png,
    ".pfm": _read_pfm,
    ".dpt": _read_dpt,
    ".exr": _read_exr,
}
