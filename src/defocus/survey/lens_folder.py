"""A folder of lens files in, one row per lens out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import DefocusError, LensFileError, UnsupportedLensError
from ..files.stores import write_file
from ..lens.formats import LENS_SUFFIXES, read_lens
from ..lens.prescription import Lens
from .criteria import Category, Criteria, judge
from .measurement import Measurement, measure

Status = Literal["kept", "rejected", "unsupported", "unreadable"]  # unsupported: mirrors, gratings, tilts, ...

NUMBERS = (
    "focal_length_mm",
    "f_number",
    "na",
    "image_radius_mm",
    "total_track_mm",
    "stop_radius_mm",
    "half_field_deg",
    "axial_rms_mm",
    "phase_range_axis_waves",
    "phase_range_edge_waves",
    "tsc_mm",
    "cc_mm",
    "tac_mm",
)
COLUMNS = ("file", "name", "status", "category", "reasons", *NUMBERS)


@dataclass(frozen=True, slots=True)
class SurveyRow:
    """One lens of the survey. `file` is relative to the folder, with @state where a state was measured."""

    file: str
    name: str
    status: Status
    category: Category
    reasons: tuple[str, ...]
    measurement: Measurement


def lens_files(folder: Path) -> list[Path]:
    """Every file below `folder` whose name says that it is a lens, in alphabetical order."""
    if not folder.is_dir():
        raise LensFileError("is not a folder", file=folder)
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in LENS_SUFFIXES and p.is_file())


def survey_folder(
    folder: str | Path,
    *,
    criteria: Criteria | None = None,
    states: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[SurveyRow]:
    """Read and judge every lens file below `folder`.

    `states` adds a row for each named state of a lens. `progress` is called with lenses done and lenses in all. A file
    that cannot be read, or whose kind of lens is not simulated, is a row of its own, never an exception.
    """
    folder = Path(folder)
    names: list[str] = []
    lenses: list[Lens] = []
    rows: list[SurveyRow] = []
    for path in lens_files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            lens = read_lens(path)
            variants = [(name, lens)]
            if states:
                variants += [(f"{name}@{state}", lens.in_state(state)) for state in lens.state_names]
        except DefocusError as error:
            status: Status = "unsupported" if isinstance(error, UnsupportedLensError) else "unreadable"
            rows.append(SurveyRow(name, "", status, "", (str(error),), Measurement()))
            continue
        names += [n for n, _ in variants]
        lenses += [v for _, v in variants]

    for name, lens, measured in zip(names, lenses, measure(lenses, progress=progress), strict=True):
        verdict = judge(measured, criteria)
        status = "kept" if verdict.kept else "rejected"
        rows.append(SurveyRow(name, lens.name, status, verdict.category, verdict.reasons, measured))
    return sorted(rows, key=lambda row: row.file)


def write_csv(rows: Iterable[SurveyRow], path: str | Path) -> None:
    """Write the survey as CSV; what could not be measured is left empty, reasons are joined by '; '."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in rows:
        head: Sequence[str] = (row.file, row.name, row.status, row.category, "; ".join(row.reasons))
        writer.writerow([*head, *(_number(getattr(row.measurement, column)) for column in NUMBERS)])
    # A file's name need not be text: bytes that are none are written as \udcNN.
    write_file(path, text.getvalue().encode("utf-8", "backslashreplace"))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.9g}"
