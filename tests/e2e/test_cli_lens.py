"""`defocus lens` as a user types it."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from defocus.cli import run
from defocus.lens import list_lenses, load_lens

LENS = "zeiss-tessar-50-f3.5"
SHOWN = {
    "name",
    "focal_length_mm",
    "f_number",
    "na",
    "back_focal_distance_mm",
    "total_track_mm",
    "image_radius_mm",
    "half_field_deg",
    "entrance_pupil",
    "exit_pupil",
    "third_order",
    "states",
}


def test_list_shows_names_patents_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lens", "list"]) == 0
    everything = capsys.readouterr().out
    assert LENS in everything
    assert run(["lens", "list", "tessar"]) == 0
    some = capsys.readouterr().out
    assert LENS in some
    assert len(some.splitlines()) < len(everything.splitlines())
    assert run(["lens", "list", "--json"]) == 0
    assert {"name", "patent", "focal_length_mm"} <= set(json.loads(capsys.readouterr().out)[0])


def test_show_json_has_every_promised_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lens", "show", LENS, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) >= SHOWN
    assert facts["focal_length_mm"] == pytest.approx(50.0, rel=0.02)
    assert facts["f_number"] == pytest.approx(3.5, rel=0.02)
    assert set(facts["entrance_pupil"]) >= {"position_mm", "radius_mm"}
    assert set(facts["exit_pupil"]) >= {"position_mm", "radius_mm"}
    assert set(facts["third_order"]) == {"tsc_mm", "cc_mm", "tac_mm"}
    distance = facts["exit_pupil"]["distance_to_image_mm"]
    slope = facts["exit_pupil"]["radius_mm"] / (facts["back_focal_distance_mm"] - facts["exit_pupil"]["position_mm"])
    assert facts["na"] == pytest.approx(slope / (1 + slope**2) ** 0.5, rel=1e-9)
    assert distance > 0
    assert facts["axial_rms_mm"] == pytest.approx(0.0136452, rel=1e-4)  # converged: 12 rings of rays or 96
    assert facts["best_focus_mm"] == pytest.approx(0.0125248, rel=1e-4)


def test_show_prints_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lens", "show", LENS]) == 0
    text = capsys.readouterr().out
    assert "focal length / mm" in text
    assert "nan" not in text


def test_states_are_selected_with_an_at_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zoom = next(e for e in list_lenses() if len(e.states) > 1)
    lengths = []
    for state in zoom.states[:2]:
        assert run(["lens", "show", f"{zoom.name}@{state}", "--json"]) == 0
        lengths.append(json.loads(capsys.readouterr().out)["focal_length_mm"])
    assert abs(lengths[0] - lengths[1]) > 1.0
    path = tmp_path / "zoom.json"
    assert run(["lens", "convert", zoom.name, str(path)]) == 0
    capsys.readouterr()
    assert run(["lens", "show", f"{path}@{zoom.states[1]}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["focal_length_mm"] == pytest.approx(lengths[1], rel=1e-12)


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("command", ["draw", "spots"])
def test_pictures_are_written(command: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / f"picture.{suffix}"
    assert run(["lens", command, LENS, "--out", str(out)]) == 0
    head = out.read_bytes()[:300]
    assert head.startswith(b"\x89PNG") if suffix == "png" else b"<svg" in out.read_bytes()[:2000]
    assert str(out) in capsys.readouterr().out


def test_convert_there_and_back_is_lossless(tmp_path: Path) -> None:
    there, back = tmp_path / "lens.zmx", tmp_path / "lens.json"
    assert run(["lens", "convert", LENS, str(there)]) == 0
    assert run(["lens", "convert", str(there), str(back)]) == 0
    assert load_lens(str(back)) == load_lens(LENS)


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_survey_writes_a_row_for_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lenses"
    (folder / "deeper").mkdir(parents=True)
    run(["lens", "convert", LENS, str(folder / "tessar.json")])
    run(["lens", "convert", LENS, str(folder / "deeper" / "tessar.zmx")])
    (folder / "broken.zmx").write_text("VERS 1\nMODE SEQ\nSURF 0\n  TYPE BICONICX\n")
    tilted = (folder / "deeper" / "tessar.zmx").read_text().replace("TYPE STANDARD", "TYPE COORDBRK", 2)
    (folder / "tilted.zmx").write_text(tilted)
    out = tmp_path / "survey.csv"
    assert run(["lens", "survey", str(folder), "--out", str(out), "--plots", str(tmp_path / "plots")]) == 0
    rows = read_rows(out)
    assert ",".join(rows[0]) == (
        "file,name,status,category,reasons,focal_length_mm,f_number,na,image_radius_mm,total_track_mm,stop_radius_mm,"
        "half_field_deg,axial_rms_mm,phase_range_axis_waves,phase_range_edge_waves,tsc_mm,cc_mm,tac_mm"
    )
    assert [row["file"] for row in rows] == ["broken.zmx", "deeper/tessar.zmx", "tessar.json", "tilted.zmx"]
    assert (rows[0]["status"], rows[3]["status"]) == ("unreadable", "unsupported")
    assert rows[0]["reasons"]
    assert rows[1]["category"] == rows[2]["category"] == "interchangeable"
    assert float(rows[1]["focal_length_mm"]) == pytest.approx(float(rows[2]["focal_length_mm"]), rel=1e-9)
    assert list((tmp_path / "plots").glob("*.png"))

    assert run(["lens", "survey", str(folder), "--out", str(out), "--max-f-number", "2"]) == 0
    strict = read_rows(out)
    assert strict[1]["status"] == "rejected"
    assert re.search(r"f_number 3\.\d+ > 2", strict[1]["reasons"])


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text on this system")
def test_a_file_name_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lenses"
    folder.mkdir()
    run(["lens", "convert", LENS, str(tmp_path / "lens.json")])
    data = json.loads((tmp_path / "lens.json").read_text(encoding="utf-8"))
    del data["name"]
    path = folder / os.fsdecode(b"a\xffb.json")
    path.write_text(json.dumps(data), encoding="utf-8")
    assert load_lens(path).name == "a b"
    assert run(["lens", "survey", str(folder), "--out", str(tmp_path / "survey.csv")]) == 0
    assert [row["status"] for row in read_rows(tmp_path / "survey.csv")] == ["kept"]
    capsys.readouterr()


@pytest.mark.parametrize(
    "arguments",
    [
        ["lens", "show", "no-such-lens"],
        ["lens", "show"],
        ["lens", "show", LENS, "--nonsense"],
        ["lens", "show", f"{LENS}@no-such-state"],
        ["lens", "draw", LENS],
        ["lens", "draw", LENS, "--out", "picture.bmp"],
        ["lens", "spots", LENS, "--out", "no/such/folder/picture.png"],
        ["lens", "survey", ".", "--out", "."],
        ["lens", "survey", ".", "--max-f-number", "nan"],
        ["lens", "survey", ".", "--max-na", "-1"],
        ["lens", "survey", ".", "--plots", __file__],
        ["lens", "nothing"],
        ["lens", "survey", "/no/such/folder"],
        ["lens", "convert", LENS, "lens.xyz"],
        ["lens", "list", "no-such-word-anywhere"],
    ],
)
def test_wrong_use_ends_with_code_2_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith("defocus: ")
    assert len(said.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_results_replace_neither_their_input_nor_what_a_link_leads_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lens = tmp_path / "lens.json"
    run(["lens", "convert", LENS, str(lens)])
    content = lens.read_bytes()
    (tmp_path / "link.json").symlink_to(lens)
    (tmp_path / "same.json").hardlink_to(lens)
    figure = tmp_path / "lens.svg"
    figure.hardlink_to(lens)
    for arguments in (
        *(["convert", str(lens), str(tmp_path / name)] for name in ("lens.json", "link.json", "same.json")),
        ["draw", str(lens), "--out", str(figure)],
        ["survey", str(tmp_path), "--out", str(lens)],
        ["survey", str(tmp_path), "--out", str(figure)],
    ):
        capsys.readouterr()
        assert run(["lens", *arguments]) == 2
        assert re.search(r"(lens|link|same)\.(json|svg): is the file that is read here", capsys.readouterr().err)
        assert lens.read_bytes() == figure.read_bytes() == content
    # A name for the unfinished file that somebody guessed, with a link there.
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    monkeypatch.setattr("defocus.files.stores._temporary_name", lambda name: f".{name}.part")
    (tmp_path / ".new.json.part").symlink_to(victim)
    assert run(["lens", "convert", str(lens), str(tmp_path / "new.json")]) == 2
    assert "new.json" in capsys.readouterr().err
    assert victim.read_text() == "mine"


def test_a_survey_writes_figures_into_a_folder_of_its_own_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lenses").mkdir()
    run(["lens", "convert", LENS, str(tmp_path / "lenses" / "tessar.json")])
    plots = tmp_path / "plots"
    plots.mkdir()
    (plots / "wedding.png").write_text("mine")
    out, lenses = tmp_path / "survey.csv", tmp_path / "lenses"
    arguments = ["lens", "survey", str(lenses), "--out", str(out), "--plots", str(plots)]
    assert run(arguments) == 2
    assert "wedding.png" in capsys.readouterr().err
    assert [path.name for path in plots.iterdir()] == ["wedding.png"]
    assert not out.exists()


def test_a_misspelt_name_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lens", "show", "zeiss-tesar-50-f3.5"]) == 2
    assert LENS in capsys.readouterr().err


def test_the_installed_command_and_the_module_work() -> None:
    for command in ([str(Path(sys.executable).with_name("defocus"))], [sys.executable, "-m", "defocus"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("defocus 0.")
        wrong = subprocess.run([*command, "lens", "show", "nope"], capture_output=True, text=True, check=False)
        assert wrong.returncode == 2
        assert "Traceback" not in wrong.stderr


def test_analyse_prints_draws_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "card.png"
    assert run(["lens", "analyse", LENS, "--f-number", "5.6", "--out", str(out), "--json"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["f_number"] == pytest.approx(5.6)
    assert np.shape(numbers["mtf"]["sagittal"]) == (len(numbers["mtf"]["field_mm"]), 4)
    assert set(numbers) >= {"through_focus", "distortion", "ray_fans", "lateral_colour", "encircled_energy"}
    assert numbers["encircled_energy"]["strehl"][0] < 1.0
