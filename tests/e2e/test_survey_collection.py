"""The survey over the reference collection: lenses measured, classified as their folder says, nothing raised.

Every seventh lens, by the program that the built-in ones are measured with; with DEFOCUS_LONG_TESTS all of them.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from defocus.survey import SurveyRow, survey_folder, write_csv

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.long, id="all"), 7])
def index(shared: Path, request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    """Lenses of the collection's index, all or some, by their file's name."""
    with (shared / "lenses" / "INDEX.csv").open(encoding="utf-8") as file:
        lenses = {row["file"]: row for row in csv.DictReader(file)}
    assert len(lenses) == 667
    return dict(list(lenses.items())[:: request.param])


@pytest.fixture(scope="module")
def rows(shared: Path, index: dict[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> list[SurveyRow]:
    folder = tmp_path_factory.mktemp("lenses")
    for name in index:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(shared / "lenses" / name, folder / name)
    return survey_folder(folder)


def test_every_lens_is_measured(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    assert {row.file for row in rows} == set(index)
    assert not [row.file for row in rows if row.status == "unreadable"]


def test_focal_lengths_agree_with_the_index(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    for row in rows:
        printed = index[row.file]["focal_length_mm"]
        rounding = 0.5 * 10.0 ** -len(printed.partition(".")[2])
        assert row.measurement.focal_length_mm == pytest.approx(float(printed), rel=1e-6, abs=rounding), row.file


def test_categories_agree_with_the_folders(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    others = [row.file for row in rows if row.category != index[row.file]["category"]]
    assert len(others) <= max(1, 0.01 * len(rows)), others


def test_axial_spots_agree_with_the_independent_trace(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    """The index was made with another pupil sampling, so single lenses differ; their median must not."""
    ratios = sorted(
        row.measurement.axial_rms_mm * 1e3 / float(index[row.file]["axial_rms_um"])
        for row in rows
        if float(index[row.file]["axial_rms_um"]) > 0.5
    )
    assert ratios[len(ratios) // 2] == pytest.approx(1.0, abs=0.05)


def test_a_rejected_lens_says_why(rows: list[SurveyRow]) -> None:
    for row in rows:
        assert bool(row.reasons) == (row.status == "rejected"), row.file
        assert all(any(c.isdigit() for c in reason) or "no light" in reason for reason in row.reasons)


def test_the_csv_holds_no_nan(rows: list[SurveyRow], tmp_path: Path) -> None:
    write_csv(rows, tmp_path / "survey.csv")
    assert "nan" not in (tmp_path / "survey.csv").read_text(encoding="utf-8").lower().replace("nano", "")
