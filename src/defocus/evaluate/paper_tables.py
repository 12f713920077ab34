"""The paper's tables: which networks, training sets, test sets and measures, and the numbers that it prints.

`tables/paper-1.toml` and so on are tables as `defocus evaluate` reads them, with places relative to one folder: weights
at `runs/NETWORK-TRAINING/best.pt`, as `defocus train` leaves them, and test sets under `data`. `tables/published.csv`
has the numbers of tables 1, 2, 3, S1 and S4. Tables S2 and S3 are those of `defocus downstream`.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from pathlib import Path

from ..errors import DefocusError
from ..files.settings import nearest_name
from .table_file import EvaluationTable, TableRow, Test, load_table

TABLES = resources.files(__package__).joinpath("tables")
NAMES = ("1", "2", "3", "S1", "S4")


def paper_text(name: str) -> str:
    """The file of one of the paper's tables, to change it."""
    return _file(name).read_text(encoding="utf-8")


def paper_table(name: str, root: str | Path = ".", *, partial: bool = False) -> tuple[EvaluationTable, list[str]]:
    """One of the paper's tables with what of it is in a folder, and a line for everything that is not.

    `partial`: test sets may have fewer pictures than published, or of other sizes. Raises `DefocusError` where there is
    no network or no test set.
    """
    table = load_table(_file(name), root)
    rows = [row for row in table.rows if row.weights is None or row.weights.is_file()]
    tests = [test for test in table.tests if Path(test.folder).is_dir()]
    missing = [f"{row.title}: no weights {row.weights}" for row in table.rows if row not in rows]
    missing += [f"{test.label}: no folder {test.folder}" for test in table.tests if test not in tests]
    if not tests or not any(row.weights for row in rows):
        raise DefocusError(f"nothing of table {name} is here: {'; '.join(missing)}; --root names another folder")
    tests = [test.model_copy(update={"partial": partial}) for test in tests]
    return table.model_copy(update={"rows": tuple(rows), "tests": tuple(tests)}), missing


def published_values(row: TableRow, test: Test) -> dict[str, float]:
    """The paper's numbers of a row and a test set by measure; none where it has none."""
    return _published().get((test.label, row.label, row.trained_on), {})


def _file(name: str) -> Path:
    if name.upper() not in NAMES:
        raise DefocusError(f"--paper {name}: {nearest_name(name.upper(), NAMES)} (S2 and S3: defocus downstream)")
    return Path(str(TABLES.joinpath(f"paper-{name.lower()}.toml")))


@cache
def _published() -> dict[tuple[str, str, str], dict[str, float]]:
    text = TABLES.joinpath("published.csv").read_text(encoding="utf-8")
    values = {}
    for line in csv.DictReader(text.splitlines()):
        key = (line.pop("test"), line.pop("model"), line.pop("trained_on"))
        values[key] = {metric: float(cell) for metric, cell in line.items() if cell}
    return values
