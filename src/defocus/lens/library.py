"""The built-in lenses: real prescriptions from patents, found by name.

`data/` holds one JSON file per lens and `index.json`, from which lists are made without reading any lens. Both are
written by tools/build_library.py: the patents' own numbers, and clear apertures from our solver.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..errors import LensError, UnknownLensError
from .prescription import Lens

DATA = Path(__file__).parent / "data"
CLOSE_NAMES = 5  # how many an error offers


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """A built-in lens, as lists show it. A lens with states counts as it stands in the first of them."""

    name: str  # what `load_lens` takes
    title: str
    patent: str
    year: int | None  # in which the patent was published; None: not known for certain
    maker: str  # empty: not known
    category: Literal["interchangeable", "phone"]
    type: str  # "double Gauss", "telephoto", ...
    focal_length_mm: float
    f_number: float
    image_radius_mm: float  # half diagonal of the image
    states: tuple[str, ...]
    state_focal_lengths_mm: tuple[float, ...]  # one for each state
    state_f_numbers: tuple[float, ...]
    remark: str  # what one should know before using it


@functools.cache
def list_lenses() -> tuple[LibraryEntry, ...]:
    """The built-in lenses, in alphabetical order."""
    rows = json.loads((DATA / "index.json").read_text(encoding="utf-8"))
    names = [f.name for f in fields(LibraryEntry)]

    def frozen(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    return tuple(LibraryEntry(**{n: frozen(row[n]) for n in names}) for row in rows)


def load_lens(name_or_path: str | Path, *, state: str | None = None) -> Lens:
    """A built-in lens by name, in upper or lower case, or the lens in a file of any format that we read.

    `state`, or NAME@STATE, selects a state. Where a built-in lens and a file have the same name, a `Path` means the
    file. Raises UnknownLensError for a name that is neither, LensFileError for a file that cannot be read, LensError
    for a state that the lens does not have.
    """
    lens = _find(name_or_path)
    if lens is None:
        text, _, suffix = str(name_or_path).rpartition("@")
        lens = _find(type(name_or_path)(text)) if text else None
        if lens is None:
            raise _unknown(str(name_or_path))
        if state is not None and state != suffix:
            raise LensError(f"{name_or_path}: the name asks for state {suffix!r}, the call for {state!r}; give one")
        state = suffix
    return lens if state is None else lens.in_state(state)


def _find(name_or_path: str | Path) -> Lens | None:
    """The lens of exactly this name or path, without regard to states; None if there is none."""
    from .formats import LENS_SUFFIXES, read_lens

    path = Path(name_or_path)
    if isinstance(name_or_path, str) and name_or_path.lower() in _names():
        return read_lens(DATA / f"{name_or_path.lower()}.json")
    # A file that is missing, but was clearly meant, is the reader's business: its error names the reason.
    if os.path.isfile(path) or path.suffix.lower() in LENS_SUFFIXES:
        return read_lens(path)
    return None


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(entry.name for entry in list_lenses())


def _unknown(text: str) -> UnknownLensError:
    """The error for a name that is nowhere, with names that look or read like it."""
    name = text.rpartition("@")[0] or text
    words = [w for w in name.lower().replace("-", " ").replace("_", " ").split() if len(w) > 1]
    close = difflib.get_close_matches(name.lower(), sorted(_names()), n=CLOSE_NAMES, cutoff=0.5)
    close += [n for n in sorted(_names()) if words and all(w in n for w in words) and n not in close]
    offer = f"close names: {', '.join(close[:CLOSE_NAMES])}; " if close else ""
    return UnknownLensError(
        f"{text!r} is neither a built-in lens nor a lens file; {offer}'defocus lens list' shows the built-in ones"
    )


def save_lens(lens: Lens, path: str | Path) -> None:
    """Write a lens as .json, .zmx, .seq, .optiland.json or .deeplens.json, as the path's name says."""
    from .formats import write_lens

    write_lens(lens, path)
