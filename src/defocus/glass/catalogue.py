"""The glass data in the package: read once, on the first lookup.

`data/catalogue.json` holds dispersion formulas, nearly all from the CC0 refractiveindex.info database; its
header names the sources and versions, and `tools/build_glass_catalogue.py` makes it. `data/published.csv`
holds nd and vd of glasses that the database lacks: withdrawn ones, newer ones, plastics.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import LensError
from .medium import Medium, formula_glass

MAKERS = ("schott", "ohara", "hoya", "hikari", "sumita", "cdgm")


@dataclass(frozen=True, slots=True)
class Glass:
    """A catalogue entry; nd and vd follow from its formula."""

    catalogue: str
    name: str
    current: bool  # False: the maker has withdrawn it
    formula: int
    range_nm: tuple[float, float]
    coefficients: tuple[float, ...]
    nd: float
    vd: float
    published: tuple[float, float] | None  # (nd, vd) as the maker prints them
    source: str  # a key of the header's sources

    def medium(self, note: str = "") -> Medium:
        """The glass as a medium."""
        return formula_glass(
            self.name, self.formula, self.coefficients, self.range_nm, catalogue=self.catalogue, note=note
        )


class PublishedGlass(NamedTuple):
    """A glass known by its maker's nd and vd alone."""

    catalogue: str
    name: str
    nd: float
    vd: float
    successor: str  # catalogue glass that stands in for it, or ""


class Catalogue(NamedTuple):
    """All glasses, and the same by (catalogue, key of the name)."""

    glasses: tuple[Glass, ...]
    by_key: dict[tuple[str, str], Glass]
    published: dict[tuple[str, str], PublishedGlass]
    catalogues: tuple[str, ...]  # in the order of preference
    header: dict[str, object]


def name_key(name: str) -> str:
    """A glass name reduced to its letters and digits, in capitals: what spellings have in common."""
    return re.sub(r"[^A-Z0-9]", "", name.upper().replace("*", "STAR"))


@cache
def load_catalogue() -> Catalogue:
    """Read the packed files (once per process)."""
    data = Path(__file__).parent / "data"
    content = json.loads((data / "catalogue.json").read_text(encoding="utf-8"))
    glasses = []
    for catalogue, name, current, formula, span, coefficients, nd, vd, *published, source in content["glasses"]:
        low, high = map(float, span)
        printed = None if published[0] is None else (published[0], published[1])
        shape = (formula, (low, high), tuple(map(float, coefficients)))
        glasses.append(Glass(catalogue, name, bool(current), *shape, nd, vd, printed, source))
    by_key = {(g.catalogue, name_key(g.name)): g for g in glasses}
    text = (data / "published.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    published = {
        (row["catalogue"], name_key(row["name"])): PublishedGlass(
            row["catalogue"], row["name"], float(row["nd"]), float(row["vd"]), row["successor"]
        )
        for row in rows
    }
    catalogues = tuple(dict.fromkeys(g.catalogue for g in glasses))
    return Catalogue(tuple(glasses), by_key, published, catalogues, content["header"])


def catalogue_names(catalogue: str | None = None) -> tuple[str, ...]:
    """Names of the glasses of one catalogue ("schott", "ohara", ...), or of all.

    First those with a dispersion formula, then those known by nd and vd alone.
    """
    loaded = load_catalogue()
    if catalogue is not None and catalogue.lower() not in loaded.catalogues:
        raise LensError(f"no glass catalogue {catalogue!r}; there are {', '.join(loaded.catalogues)}")
    every = [(g.catalogue, g.name) for g in loaded.glasses]
    every += [(g.catalogue, g.name) for g in loaded.published.values()]
    return tuple(name for where, name in every if catalogue is None or where == catalogue.lower())
