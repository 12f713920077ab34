"""Glass names and glass codes as lens files write them.

A name is compared by its letters and digits alone, in capitals, so that N-BK7, NBK7 and n-bk7 are one. A
maker before or after it (SCHOTT:N-BK7, NBK7_SCHOTT) limits the search to that maker. Other names of catalogue glasses
stand here; withdrawn glasses and their successors are in `data/published.csv`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ..errors import LensError, UnknownGlassError
from .catalogue import Catalogue, PublishedGlass, load_catalogue, name_key
from .medium import AIR, Medium
from .model import model_glass

# What lens files call a maker → our catalogue. Names that lead to several are catalogues of mixed materials.
CATALOGUES: dict[str, tuple[str, ...]] = {
    "SCHOTT": ("schott",),
    "OHARA": ("ohara",),
    "HOYA": ("hoya",),
    "HIKARI": ("hikari",),
    "NIKON": ("hikari",),
    "SUMITA": ("sumita",),
    "CDGM": ("cdgm",),
    "LZOS": ("lzos",),
    "MISC": ("silica", "crystal", "plastic", "liquid"),
    "INFRARED": ("silica", "crystal"),
    "CORNING": ("silica",),
    "HERAEUS": ("silica",),
    "SILICA": ("silica",),
    "CRYSTAL": ("crystal",),
    "PLASTIC": ("plastic",),
    "LIQUID": ("liquid",),
    "ZEON": ("plastic",),
    "TOPAS": ("plastic",),
    "LIGHTPATH": ("cdgm",),
    "RPO": ("ohara", "hoya", "cdgm"),
}

_FUSED_SILICA = "fused silica after Malitson (1965)"
_MOULDED = "data before moulding; precision moulding lowers nd by some 0.001 to 0.006"

# Key of the name (letters and digits, in capitals) → (catalogue, name there, remark). A remark becomes the
# medium's note; an empty one marks another spelling of the same material.
ALIASES: dict[str, tuple[str, str, str]] = {
    "SILICA": ("silica", "fused-silica", ""),
    "FSILICA": ("silica", "fused-silica", ""),
    "SIO2": ("silica", "fused-silica", ""),
    "C7980": ("silica", "fused-silica", f"Corning 7980 → {_FUSED_SILICA}; nd differs by less than 1e-5"),
    "HPFS": ("silica", "fused-silica", f"Corning HPFS → {_FUSED_SILICA}; nd differs by less than 1e-5"),
    "SUPRASIL": ("silica", "fused-silica", f"Suprasil → {_FUSED_SILICA}; nd differs by less than 2e-5"),
    "FLUORITE": ("crystal", "CaF2", ""),
    "SAPPHIRE": ("crystal", "sapphire-o", "ordinary ray of sapphire"),
    "AL2O3": ("crystal", "sapphire-o", "ordinary ray of sapphire"),
    "QUARTZ": ("crystal", "quartz-o", "ordinary ray of crystal quartz"),
    "ACRYLIC": ("plastic", "PMMA", ""),
    "POLYSTYR": ("plastic", "polystyrene", ""),
    "STYRENE": ("plastic", "polystyrene", ""),
    "PS": ("plastic", "polystyrene", ""),
    "POLYCARB": ("plastic", "polycarbonate", ""),
    "PC": ("plastic", "polycarbonate", ""),
    "E48R": ("plastic", "ZEONEX-E48R", ""),
    "480R": ("plastic", "ZEONEX-480R", ""),
    "330R": ("plastic", "ZEONEX-330R", ""),
    "5013LS01": ("plastic", "TOPAS-5013", ""),
    "H2O": ("liquid", "water", ""),
    "DZK3M": ("cdgm", "D-ZK3", f"D-ZK3M → D-ZK3 ({_MOULDED})"),
    "DLAK6M": ("cdgm", "D-LAK6", f"D-LAK6M → D-LAK6 ({_MOULDED})"),
    "DZLAF52LAM": ("cdgm", "D-ZLAF52LA", f"D-ZLAF52LAM → D-ZLAF52LA ({_MOULDED})"),
}

MOULDED_SUFFIX = "MOLD"  # the glass was moulded: the glass before moulding stands in for it
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
    return None if unmoulded is None else unmoulded.medium(f"moulded {unmoulded.name}: {_MOULDED}")


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
