"""Glass names and glass codes as lens files write them.

A name is compared by its letters and digits alone, in capitals, so that N-BK7, NBK7 and n-bk7 are one. A
maker before or after it (SCHOTT:N-BK7, NBK7_SCHOTT) limits the search to that maker.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ..errors import LensError, UnknownGlassError
from .aliases import ALIASES, CATALOGUES, MOULDED_REMARK, MOULDED_SUFFIX
from .catalogue import Catalogue, PublishedGlass, load_catalogue, name_key
from .medium import AIR, Medium
from .model import model_glass

LEAST_FRACTION = 0.28  # a glass code whose index would be below 1.28 means 2.something

_MAKER = "|".join(CATALOGUES)
_PREFIXED = re.compile(rf"({_MAKER})[:_ ](.+)", re.IGNORECASE)
_SUFFIXED = re.compile(rf"(.+)[_:@ ]\(?({_MAKER})\)?", re.IGNORECASE)
_CODE_V = re.compile(r"([0-9]{3,7})\.([0-9]{2,7})")
_PAIR = re.compile(r"([0-9]+\.[0-9]+):([0-9]+\.?[0-9]*)")


def find_glass(name: str, *, catalogue: str | None = None, preferred: Sequence[str] = ()) -> Medium:
    """The medium of this name.

    `catalogue` limits the search to one catalogue ("schott", ...). `preferred` names catalogues to be tried
    first, as a Zemax file's GCAT line does; names we do not have are ignored there. Substitutions are told in
    the medium's note. Raises UnknownGlassError.
    """
    return _find(name, catalogue, (preferred,) if isinstance(preferred, str) else tuple(preferred))


@lru_cache(maxsize=8192)
def _find(name: str, catalogue: str | None, preferred: tuple[str, ...]) -> Medium:
    text, loaded = name.strip().strip("'\""), load_catalogue()
    if name_key(text) == "AIR":
        return AIR
    limit = loaded.catalogues
    if catalogue is not None:
        limit = _known_catalogues(catalogue)
        if not limit:
            names = ", ".join(loaded.catalogues)
            raise UnknownGlassError(f"no glass catalogue {catalogue!r}, to look for {name!r}; there are {names}")
    first = [c for p in preferred for c in _known_catalogues(p)]
    for bare, makers in _readings(text):
        within = [c for c in limit if makers is None or c in makers]
        order = sorted(within, key=lambda c: first.index(c) if c in first else len(first))
        for candidate in order:
            medium = _in_catalogue(name_key(bare), candidate, loaded)
            if medium is not None:
                return medium
    raise UnknownGlassError(_advice(name, text, limit, loaded))


def _known_catalogues(name: str) -> tuple[str, ...]:
    """Our catalogues for a lens file's catalogue name, () for none; OHARA_210226_CATALOG is Ohara's."""
    upper = name.strip().upper()
    return next((ours for key, ours in CATALOGUES.items() if re.match(rf"{key}(?![A-Z])", upper)), ())


def _readings(text: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """(name, makers that it may come from) in the order in which to try them."""
    for pattern, bare, maker in ((_SUFFIXED, 1, 2), (_PREFIXED, 2, 1)):
        match = pattern.fullmatch(text)
        if match:
            yield match[bare], CATALOGUES[match[maker].upper()]
    yield text, None


def _in_catalogue(key: str, catalogue: str, loaded: Catalogue) -> Medium | None:
    """The glass with this key in one catalogue: itself, by its published numbers, or by another name."""
    glass = loaded.by_key.get((catalogue, key))
    if glass is not None:
        return glass.medium()
    published = loaded.published.get((catalogue, key))
    if published is not None:
        return _published(published, loaded)
    target, name, remark = ALIASES.get(key, ("", "", ""))
    if target == catalogue:
        medium = _in_catalogue(name_key(name), catalogue, loaded)
        return medium if medium is None or not remark else replace(medium, note=remark)
    unmoulded = loaded.by_key.get((catalogue, key.removesuffix(MOULDED_SUFFIX)))
    return None if unmoulded is None else unmoulded.medium(f"moulded {unmoulded.name}: {MOULDED_REMARK}")


def _published(glass: PublishedGlass, loaded: Catalogue) -> Medium:
    """A glass known by nd and vd: its successor if it has one, else a model glass."""
    if glass.successor:
        successor = loaded.by_key[glass.catalogue, name_key(glass.successor)]
        change = f"nd differs by {successor.nd - glass.nd:+.5f}, vd by {successor.vd - glass.vd:+.2f}"
        return successor.medium(f"{glass.name} → {successor.name} (discontinued; {change})")
    model = model_glass(glass.nd, glass.vd)
    note = f"{glass.name}: nd {glass.nd:.5f} and vd {glass.vd:.2f} as published; {model.note}"
    return replace(model, name=glass.name, catalogue=glass.catalogue, note=note)


def _advice(name: str, text: str, limit: Sequence[str], loaded: Catalogue) -> str:
    """The message of an UnknownGlassError, with close names."""
    names = {key: alias[1] for key, alias in ALIASES.items() if alias[0] in limit}
    names |= {key: glass.name for (where, key), glass in loaded.published.items() if where in limit}
    names |= {key: glass.name for (where, key), glass in loaded.by_key.items() if where in limit}
    bare = next(_readings(text))[0]
    close = difflib.get_close_matches(name_key(bare)[:40], names, n=5, cutoff=0.6)
    similar = f"; similar names: {', '.join(dict.fromkeys(names[k] for k in close))}" if close else ""
    where = "any catalogue" if len(limit) == len(loaded.catalogues) else f"the catalogue {', '.join(limit)}"
    advice = "Where nd and vd are known, give them instead, as nd:vd (1.5168:64.17)"
    return f"no glass {name[:80]!r} in {where}{similar}. {advice}"


def parse_glass_code(text: str) -> Medium | None:
    """The model glass of a numerical glass code, or None when the text is no such code.

    CODE V's fictitious glass NNNNNN.VVVVVV has nd = 1.NNNNNN and vd = VV.VVVV (517000.520000, or short
    500.700); an index that would be below 1.28 means 2.NNNNNN. The other form is nd:vd (1.5168:64.17). Raises
    LensError when no glass can have these numbers.
    """
    code, pair = _CODE_V.fullmatch(text.strip()), _PAIR.fullmatch(text.strip())
    if code:
        fraction = float(f"0.{code[1]}")
        nd = round(fraction + (1.0 if fraction >= LEAST_FRACTION else 2.0), len(code[1]))
        vd = float(f"{code[2][:2]}.{code[2][2:]}")
    elif pair:
        nd, vd = float(pair[1]), float(pair[2])
    else:
        return None
    if nd < 1.0:
        raise LensError(f"glass code {text.strip()[:40]!r}: no glass has nd = {nd}; expected 1 or more")
    medium = model_glass(nd, vd)
    return medium if medium.is_air else replace(medium, name=text.strip())
