"""The built-in lenses: how many and how varied they are, and that each is what the index says."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import defocus
from defocus.camera import NOMINAL
from defocus.errors import DefocusError, LensError, LensFileError, UnknownLensError
from defocus.lens import Lens, LibraryEntry, list_lenses, load_lens, save_lens
from defocus.lens.library import DATA

if TYPE_CHECKING:
    from defocus.survey import Measurement

ENTRIES = list_lenses()
NAMES = [entry.name for entry in ENTRIES]
INTERCHANGEABLE = [entry for entry in ENTRIES if entry.category == "interchangeable"]
PHONES = [entry for entry in ENTRIES if entry.category == "phone"]
HISTORIC = {"zeiss-planar-50-f1.4"}  # aberrations at the edge beyond the survey's limit


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Measurement]]:
    """Each lens as it stands, then in each of its states; all measured in one go."""
    from defocus.survey import measure

    variants = [(e.name, load_lens(e.name, state=state)) for e in ENTRIES for state in (None, *e.states)]
    results: dict[str, list[Measurement]] = {}
    for (name, _), one in zip(variants, measure([lens for _, lens in variants]), strict=True):
        results.setdefault(name, []).append(one)
    return results


# What there is.


def test_there_are_enough() -> None:
    assert len(INTERCHANGEABLE) >= 40
    assert len(PHONES) >= 10
    assert len([e for e in ENTRIES if e.states]) >= 5


def test_names_are_unique_sorted_and_plain() -> None:
    assert sorted(set(NAMES)) == NAMES
    assert all(name == name.lower() and not set(name) & set("@/\\ _") for name in NAMES)
    assert {p.stem for p in DATA.glob("*.json")} == {*NAMES, "index"}


def test_focal_lengths_and_apertures_cover_photography() -> None:
    focal_lengths = [f for e in INTERCHANGEABLE for f in (e.focal_length_mm, *e.state_focal_lengths_mm)]
    f_numbers = [n for e in INTERCHANGEABLE for n in (e.f_number, *e.state_f_numbers)]
    assert min(focal_lengths) <= 16
    assert max(focal_lengths) >= 580
    assert min(f_numbers) <= 0.95
    assert max(f_numbers) >= 8
    for low, high in ((7, 12), (12, 20), (20, 30), (30, 45), (45, 60), (60, 100), (100, 200), (200, 450), (450, 620)):
        assert any(low <= f < high for f in focal_lengths), f"no lens from {low} to {high} mm"


KINDS = (
    *("Tessar", "triplet", "Heliar", "Sonnar", "Biogon", "Hologon", "double Gauss", "symmetric wide-angle"),
    *("retrofocus", "telephoto", "fisheye", "fisheye zoom", "wide-angle zoom", "standard zoom", "telephoto zoom"),
    *("macro", "mirrorless", "compact", "large format", "medium format"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_there(kind: str) -> None:
    assert [e.name for e in INTERCHANGEABLE if kind in e.type]


def test_formats_and_times_are_varied() -> None:
    years = sorted(e.year for e in ENTRIES if e.year)
    assert years[0] <= 1895
    assert years[-1] >= 2025
    assert {year // 10 for year in years} >= {189, 190, 193, 195, 196, 197, 198, 199, 200, 201, 202}
    assert {round(e.image_radius_mm, 1) for e in INTERCHANGEABLE} >= {10.8, 14.2, 21.6, 27.4, 34.9, 50.5, 81.3}
    assert len({e.type for e in PHONES}) >= 4  # three to eight elements
    assert len({e.maker for e in INTERCHANGEABLE}) >= 12


def test_the_reference_lens_is_there() -> None:
    lens = load_lens("leica-summilux-35-f1.4")
    assert lens.patent == "EP 3 029 504 A1 Example 4"
    assert lens.aperture.value == 9.845  # mm, with which the reference PSFs were made
    assert len(lens.surfaces) == 23


def test_the_air_spaces_of_the_cooke_lens_follow_its_patents_rule() -> None:
    """US 540,122: a beam parallel or slightly divergent behind the second doublet, no distortion behind the third."""
    from defocus.optics.paraxial import first_order
    from defocus.optics.system import pack_one
    from defocus.survey import measure_one

    lens = load_lens("cooke-142-f8")
    unit = 150.0  # mm; the patent's own lengths are parts of it
    assert lens.surfaces[0].radius == pytest.approx(0.144 * unit)
    front = dataclasses.replace(lens, surfaces=lens.surfaces[:6], stop=0)
    assert float(first_order(pack_one(front)).focal_length) < -1000.0 * unit
    data = first_order(pack_one(lens))
    assert float(data.focal_length) == pytest.approx(0.949 * unit, rel=1e-3)
    last = dataclasses.replace(lens.surfaces[-1], thickness=float(data.back_focal_distance))
    surfaces, height = (*lens.surfaces[:-1], last), float(data.focal_length) * math.tan(math.radians(20.0))
    focused = measure_one(dataclasses.replace(lens, surfaces=surfaces, image_radius=height))
    assert focused.half_field_deg == pytest.approx(20.0, rel=9e-5)  # within 1e-4 of the height
    # (n_D − 1)/(n_G' − n_D), as the patent prints it for its three glasses
    for surface, ratio in ((0, 29.1), (1, 55.63), (3, 25.2)):
        medium = lens.surfaces[surface].medium
        sodium, hydrogen = float(medium.index(589.294)), float(medium.index(434.047))
        assert (sodium - 1.0) / (hydrogen - sodium) == pytest.approx(ratio, rel=2e-3)


# That each is what the index says.


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_lens_loads_in_every_state(entry: LibraryEntry) -> None:
    lens = load_lens(entry.name)
    assert lens.name == entry.title
    assert lens.patent == entry.patent
    assert any(c.isdigit() for c in entry.patent)
    assert lens.image_radius == entry.image_radius_mm
    assert lens.has_clear_apertures
    assert lens.state_names == entry.states
    for state in entry.states:
        assert load_lens(f"{entry.name}@{state}") == load_lens(entry.name, state=state) == lens.in_state(state)
        assert load_lens(entry.name.upper(), state=state).has_clear_apertures


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_lens_measures_as_the_index_says(entry: LibraryEntry, measured: dict[str, list[Measurement]]) -> None:
    from defocus.survey import judge

    whole, *states = measured[entry.name]
    said = [(entry.focal_length_mm, entry.f_number)]
    said += zip(entry.state_focal_lengths_mm, entry.state_f_numbers, strict=True)
    for one, (focal_length, f_number) in zip((whole, *states), said, strict=True):
        assert one.focal_length_mm == pytest.approx(focal_length, rel=1e-5)
        assert one.f_number == pytest.approx(f_number, rel=1e-3)
        verdict = judge(one)
        assert verdict.category == entry.category
        assert verdict.kept or entry.name in HISTORIC, verdict.reasons
    assert bool(entry.remark) == (entry.name in HISTORIC)
    if states:
        assert whole.focal_length_mm == states[0].focal_length_mm


def test_every_lens_accepts_the_f_number_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    from defocus.cli.options import make_camera

    for entry in INTERCHANGEABLE:
        (engraved,) = (float(part[1:]) for part in entry.name.split("-") if re.fullmatch(r"f\d+(\.\d+)?", part))
        assert engraved > entry.f_number * 1.001 * NOMINAL, entry.name
        if engraved < 0.97 * entry.f_number:
            camera = defocus.Camera(load_lens(entry.name), f_number=engraved)
            assert float(camera.f_number) == pytest.approx(entry.f_number, rel=1e-3), entry.name
    assert float(make_camera("leica-summilux-35-f1.4", f_number=1.4).f_number) == pytest.approx(1.472, rel=1e-3)
    assert "f/1.4 is its full aperture as engraved; in truth f/1.472" in capsys.readouterr().err
    with pytest.raises(DefocusError, match=r"f/1\.3 is wider than its full aperture, f/1\.472"):
        make_camera("leica-summilux-35-f1.4", f_number=1.3)


def test_a_lens_alone_measures_as_among_others(measured: dict[str, list[Measurement]]) -> None:
    """One program measures both: the same to the bit."""
    from defocus.survey import measure_one

    for name in ("zeiss-tessar-50-f3.5", "phone-us9316811"):
        assert measure_one(load_lens(name)) == measured[name][0]


@pytest.mark.parametrize("suffix", [".json", ".zmx"])
def test_lenses_survive_a_round_trip(suffix: str, tmp_path: Path) -> None:
    for name in NAMES if suffix == ".json" else NAMES[::8]:
        lens = load_lens(name)
        save_lens(lens, tmp_path / f"lens{suffix}")
        again = load_lens(tmp_path / f"lens{suffix}")
        assert again.surfaces == lens.surfaces, name
        assert again.states == lens.states or suffix == ".zmx", name
        if suffix == ".json":
            assert again == lens


def test_data_are_small_and_readable() -> None:
    files = sorted(DATA.glob("*.json"))
    assert sum(p.stat().st_size for p in files) < 500_000
    for path in files:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
        assert str(DATA.parent) not in text
        assert max(map(len, text.splitlines())) < 700  # one line per surface: a change shows as a change


# How they are found.


def test_a_lens_is_found_by_name_path_and_state(tmp_path: Path) -> None:
    lens = load_lens("Zeiss-Hologon-15-F8")
    assert lens == load_lens("zeiss-hologon-15-f8") == defocus.load_lens("zeiss-hologon-15-f8")
    zoom = load_lens("minolta-35-70-f4")
    path = tmp_path / "zoom@home.json"
    save_lens(zoom, path)
    assert load_lens(path) == load_lens(str(path)) == zoom
    assert load_lens(f"{path}@tele") == load_lens(path, state="tele") == zoom.in_state("tele")
    assert load_lens(Path(f"{path}@tele")) == zoom.in_state("tele")
    assert load_lens("minolta-35-70-f4@1") == zoom.in_state("tele")


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("zeiss-hologon", "zeiss-hologon-15-f8"),
        ("zeiss-hologen-15-f8", "zeiss-hologon-15-f8"),
        ("noct", "nikon-noct-58-f0.95"),
        ("tessar 50", "zeiss-tessar-50-f3.5"),
        ("minolta-35-70@tele", "minolta-35-70-f4"),
    ],
)
def test_an_unknown_name_is_answered_with_close_ones(name: str, close: str) -> None:
    with pytest.raises(UnknownLensError, match="defocus lens list") as caught:
        load_lens(name)
    assert repr(name) in str(caught.value)
    assert close in str(caught.value)


@pytest.mark.parametrize("name", ["", "@", "@tele", "???", "nothing-like-it" * 20, "a\x00b", "."])
def test_nonsense_names_are_refused(name: str) -> None:
    with pytest.raises(DefocusError):
        load_lens(name)


def test_wrong_states_and_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(LensError, match="its states: 'wide', 'tele'"):
        load_lens("minolta-35-70-f4@middle")
    with pytest.raises(LensError, match="its states: none"):
        load_lens("zeiss-hologon-15-f8", state="tele")
    with pytest.raises(LensError, match="give one"):
        load_lens("minolta-35-70-f4@wide", state="tele")
    with pytest.raises(LensFileError, match=r"missing\.json"):
        load_lens(tmp_path / "missing.json")
    with pytest.raises(UnknownLensError):
        load_lens(Path("zeiss-hologon-15-f8"))  # a Path is a file


def test_entries_are_values() -> None:
    assert list_lenses() is ENTRIES
    assert all(isinstance(e, LibraryEntry) and dataclasses.asdict(e) for e in ENTRIES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ENTRIES[0].name = "other"  # type: ignore[misc]
    assert isinstance(load_lens(NAMES[0]), Lens)


def test_listing_is_quick_and_light() -> None:
    code = """
import sys, time
from defocus.lens import list_lenses
start = time.perf_counter()
count = len(list_lenses())
heavy = {"jax", "numpy", "scipy", "matplotlib", "typer", "defocus.lens.formats"} & set(sys.modules)
print(count, time.perf_counter() - start, *sorted(heavy - {"numpy"}))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, seconds, *heavy = result.stdout.split()
    assert int(count) == len(ENTRIES)
    assert not heavy
    assert float(seconds) < 0.05


def test_loading_one_lens_is_quick() -> None:
    load_lens(NAMES[0])  # the glass catalogue is read once
    start = time.perf_counter()
    for name in NAMES[:10]:
        load_lens(name)
    assert time.perf_counter() - start < 1.0


def test_documentation_lists_them_all() -> None:
    page = Path(__file__).parents[2] / "docs" / "lenses.md"
    text = page.read_text(encoding="utf-8")
    for mark in ("lenses", "mtf"):  # two tables
        table = text.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0]
        assert [name for name in NAMES if f"\n| `{name}`" not in table] == []
        assert table.count("\n| `") == len(NAMES)
