"""Arrays of numbers in files of numpy, from whoever made them: nothing is unpickled, and no header is believed.

A header of a few bytes may promise terabytes: kind, size and the bytes that are there are compared before anything is
allocated. numpy raises whatever a damaged header means to Python's parser, and zip whatever a damaged archive means to
it; here that is one error with the file's name.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import FileError

MOST_VALUES = 2**29  # of an array: more than any photograph has
LONGEST_HEAD = 10_000  # bytes


def read_npy(file: str | Path, failure: type[FileError] = FileError) -> np.ndarray:
    """The array of numbers in a .npy file."""
    path = Path(file)
    try:
        with path.open("rb") as stream:
            return _array(stream, path.stat().st_size)
    except Exception as error:
        raise failure(f"not a readable .npy file: {error}", file=path) from error


def read_npz(
    file: str | Path, names: Sequence[str], failure: type[FileError] = FileError, *, optional: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The arrays of these names in an .npz archive, and of the `optional` ones those that it has."""
    path = Path(file)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            arrays = {}
            for name in (*names, *optional):
                if name in members:
                    with archive.open(members[name]) as stream:
                        arrays[name] = _array(stream, members[name].file_size)
    except Exception as error:  # a damaged archive raises errors of zip and zlib, EOF, value and runtime errors
        raise failure(f"not a readable .npz archive: {error}", file=path) from error
    for name in names:
        if name not in arrays:
            raise failure(f"no array `{name}`; it holds {', '.join(members) or 'nothing'}", file=path)
    return arrays


def _array(stream: IO[bytes], size: int) -> np.ndarray:
    """The array of a stream of `size` bytes."""
    form = np.lib.format
    version = form.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of numpy's format; expected 1.0 or 2.0")
    read_head = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    shape, fortran, kind = read_head(stream, max_header_size=LONGEST_HEAD)
    if kind.kind not in "biuf" or kind.shape:
        raise ValueError(f"values of {kind}; expected numbers")
    if any(n < 0 for n in shape) or math.prod(shape) > MOST_VALUES:
        raise ValueError(f"an array of {' × '.join(map(str, shape))} values; {MOST_VALUES:,} at most are read")
    count = math.prod(shape) * kind.itemsize
    if count > size:
        raise ValueError(f"an array of {list(shape)} takes {count} bytes, and there are {size}")
    data = stream.read(count)
    if len(data) != count:
        raise ValueError(f"truncated: {len(data)} of {count} bytes are there")
    return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")
