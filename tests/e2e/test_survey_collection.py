"""The survey over the reference collection: every lens measured, classified as its folder says, nothing raised."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from defocus.survey import SurveyRow, survey_folder, write_csv

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[SurveyRow]:
    return survey_folder(shared / "lenses")


@pytest.fixture(scope="module")
def index(shared: Path) -> dict[str, dict[str, str]]:
    with (shared / "lenses" / "INDEX.csv").open(encoding="utf-8") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def test_every_lens_is_measured(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    assert len(index) == 667
    assert {row.file for row in rows} == set(index)
    assert not [row.file for row in rows if row.status == "unreadable"]


def test_focal_lengths_agree_with_the_index(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    for row in rows:
        printed = index[row.file]["focal_length_mm"]
        rounding = 0.5 * 10.0 ** -len(printed.partition(".")[2])
        assert row.measurement.focal_length_mm == pytest.approx(float(printed), rel=1e-6, abs=rounding), row.file


def test_categories_agree_with_the_folders(rows: list[SurveyRow], index: dict[str, dict[str, str]]) -> None:
    agree = sum(row.category == index[row.file]["category"] for row in rows)
    assert agree / len(rows) >= 0.99


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
