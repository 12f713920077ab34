"""Lens files: Zemax, CODE V, Optical Bench text and our own JSON are read.

Written are our JSON, Zemax, CODE V, and the JSON of Optiland and DeepLens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...errors import DatasetError, LensError, LensFileError
from ...files.stores import write_file
from ...glass import Medium
from ..prescription import Lens
from .assemble import FallbackGlass
from .codev_lens import read_codev
from .codev_write import codev_text
from .deeplens_write import deeplens_text
from .json_format import json_text, read_json
from .opticalbench import read_opticalbench
from .optiland_write import optiland_text
from .text import decode, read_bytes
from .zemax_lens import read_zemax
from .zemax_write import zemax_text

__all__ = ["LENS_SUFFIXES", "read_lens", "write_lens"]

_Reader = Callable[[str, "str | Path", "FallbackGlass | None"], Lens]
_FORMATS: dict[str, tuple[str, _Reader]] = {
    ".zmx": ("a Zemax file", read_zemax),
    ".seq": ("a CODE V sequence file", read_codev),
    ".txt": ("an Optical Bench file", read_opticalbench),
    ".json": ("JSON", read_json),
}
LENS_SUFFIXES = tuple(_FORMATS)
# The first that a file's name ends with.
_WRITERS: dict[str, Callable[[Lens], str]] = {
    ".optiland.json": optiland_text,
    ".deeplens.json": deeplens_text,
    ".json": json_text,
    ".zmx": zemax_text,
    ".seq": codev_text,
}
_SNIFFED_LINES = 20_000


def read_lens(path: str | Path, *, fallback_glass: Medium | Callable[[str], Medium] | None = None) -> Lens:
    """Read a lens file; its content decides on the format, its name only if the content does not tell.

    `fallback_glass` (a medium, or a function from a glass name to one) replaces glasses that no catalogue
    holds; without it they raise UnknownGlassError. Every failure is a LensFileError. The lens's `notes`
    say what had to be decided.
    """
    return parse_lens(read_bytes(path), path, fallback_glass=fallback_glass)


def parse_lens(data: bytes, file: str | Path, *, fallback_glass: FallbackGlass | None = None) -> Lens:
    """The lens in the bytes of a file; `file` names it in messages."""
    text = decode(data, file)
    suffix = Path(file).suffix.lower()
    format_suffix = _sniff(text)
    if format_suffix is None and suffix not in _FORMATS:
        kinds = ", ".join(kind for kind, _ in _FORMATS.values())
        raise LensFileError(f"no lens in a known format; known are {kinds}", file=file)
    kind, reader = _FORMATS[format_suffix or suffix]
    lens = reader(text, file, fallback_glass)
    if format_suffix is not None and suffix in _FORMATS and format_suffix != suffix:
        return replace(lens, notes=(f"named {suffix}, but it is {kind}", *lens.notes))
    return lens


def _sniff(text: str) -> str | None:
    """The suffix that fits the content, or None."""
    start = text.lstrip()
    if start.startswith("{"):
        return ".json"
    keywords = set()
    for line in start.split("\n", _SNIFFED_LINES)[:_SNIFFED_LINES]:
        words = line.split(None, 1)
        if words:
            keywords.add(words[0].rstrip(";").upper())
            if words[0].startswith("[") and line.strip().lower() in ("[lens data]", "[variable distances]"):
                return ".txt"
    if "SURF" in keywords and keywords & {"UNIT", "MODE", "CURV", "DISZ"}:
        return ".zmx"
    if "SO" in keywords and keywords & {"S", "S1"}:
        return ".seq"
    return None


def write_lens(lens: Lens, path: str | Path) -> None:
    """Write a lens as .json, .zmx, .seq, .optiland.json or .deeplens.json, as the path's name says.

    Reading a .json or .zmx back gives an equal lens. A state is written as what differs from the lens; a file of a
    kind that cannot hold the lens raises LensError.
    """
    suffix = next((suffix for suffix in _WRITERS if Path(path).name.lower().endswith(suffix)), None)
    if suffix is None:
        kinds, other = ", ".join(_WRITERS), Path(path).suffix or "a file without suffix"
        raise LensError(f"{path}: lenses are written as {kinds}, not as {other}")
    text = _WRITERS[suffix](lens)
    data = text.encode("utf-8", "replace")
    if suffix == ".zmx":
        text = text.replace("\n", "\r\n")
        data = text.encode("ascii") if text.isascii() else b"\xff\xfe" + text.encode("utf-16-le")
    if not Path(path).absolute().parent.is_dir():
        raise LensError(f"{path}: cannot be written: there is no folder {Path(path).parent}")
    try:
        write_file(path, data)
    except DatasetError as error:
        raise LensError(str(error)) from error
