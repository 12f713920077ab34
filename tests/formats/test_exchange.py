"""Lenses for other programs: what we write is the lens, and the programs themselves find it so where they are here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from defocus.errors import LensError
from defocus.glass import AIR, model_glass
from defocus.lens import load_lens
from defocus.lens.first_order import f_number
from defocus.lens.formats import parse_lens, write_lens
from defocus.lens.formats.codev_write import codev_text
from defocus.lens.formats.deeplens_write import deeplens_text
from defocus.lens.formats.optiland_write import optiland_text
from defocus.lens.prescription import Lens, Surface

NAMES = ("leica-summilux-35-f1.4", "canon-rf-50-f1.2", "phone-us9316811", "zeiss-tessar-50-f3.5")


@pytest.mark.parametrize("name", [*NAMES, "canon-ef-70-200-f2.8@tele"])
def test_a_codev_file_is_read_as_the_same_lens(name: str) -> None:
    lens = load_lens(name)
    again = parse_lens(codev_text(lens).encode(), "lens.seq")
    assert [replace(s, medium=AIR) for s in again.surfaces] == [replace(s, medium=AIR) for s in lens.surfaces]
    assert (again.stop, again.wavelengths_nm, again.name) == (lens.stop, lens.wavelengths_nm, lens.name)
    assert again.image_radius == lens.image_radius
    assert f_number(again) == pytest.approx(f_number(lens), rel=1e-12)
    for one, other in zip(again.surfaces, lens.surfaces, strict=True):
        for wavelength in (430.0, 486.1327, 587.5618, 650.0):
            assert one.medium.index(wavelength) == pytest.approx(other.medium.index(wavelength), abs=2e-6)


def test_zoom_positions_of_a_codev_file(sample) -> None:
    lens = replace(sample("zoom.seq"), name="zoom")
    again = parse_lens(codev_text(lens).encode(), "lens.seq")
    assert again.states == lens.states != ()


def test_the_numbers_of_deeplens(gaussian: Callable[[Lens], object]) -> None:
    for name in NAMES:
        lens = load_lens(name)
        data = json.loads(deeplens_text(lens))
        again = replace(lens, surfaces=tuple(map(surface_of_deeplens, data["surfaces"])))
        assert gaussian(again) == pytest.approx(gaussian(lens), rel=1e-9)
        assert data["foclen"] == pytest.approx(gaussian(lens).focal_length, rel=1e-9)
        assert data["foclen"] / data["enpd"] == pytest.approx(data["fnum"], rel=1e-9)
        assert [s.get("is_aperture", False) for s in data["surfaces"]].index(True) == lens.stop


def test_a_stop_within_glass_is_no_aperture_of_deeplens() -> None:
    """DeepLens's `Aperture` has air on both sides: the Hologon would lose half of its middle element."""
    lens = load_lens("zeiss-hologon-15-f8")
    stop = json.loads(deeplens_text(lens))["surfaces"][lens.stop]
    assert (stop["type"], stop["c"], stop["is_aperture"]) == ("Spheric", 0.0, True)
    assert stop["mat2"] == "1.713/53.89"
    tessar = load_lens("zeiss-tessar-50-f3.5")
    assert json.loads(deeplens_text(tessar))["surfaces"][tessar.stop]["type"] == "Aperture"


def surface_of_deeplens(record: dict) -> Surface:
    index, _, abbe = record["mat2"].partition("/")
    medium = AIR if index == "air" else model_glass(float(index), float(abbe))
    terms = tuple((2 * i, a) for i, a in enumerate(record.get("ai", ()), start=1) if a)
    curvature = record.get("c", 0.0)
    radius = 1.0 / curvature if curvature else float("inf")
    return Surface(radius, record["d_next"], medium, record["r"], record.get("k", 0.0), terms)


def test_what_other_programs_cannot_hold() -> None:
    with pytest.raises(LensError, match=r"holds one state; convert LENS@STATE\. Its states: wide, tele"):
        optiland_text(load_lens("canon-ef-70-200-f2.8"))
    odd = load_lens("fujifilm-gfx100rf-35-f4")
    with pytest.raises(LensError, match=r"surface 14: an aspheric term r\^5"):
        codev_text(odd)
    with pytest.raises(LensError, match=r"surface 14: an aspheric term r\^5"):
        deeplens_text(odd)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", [".zmx", ".optiland.json", ".seq"])
@pytest.mark.parametrize("program", ["optiland", "rayoptics"])
@pytest.mark.filterwarnings("ignore")
def test_a_program_finds_the_same_lens(
    program: str, suffix: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaussian
) -> None:
    pytest.importorskip(program)
    if (program, suffix) in (("optiland", ".seq"), ("rayoptics", ".optiland.json")):
        pytest.skip("does not read the glasses of the format, or not the format")
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2] / "benchmarks")])
    monkeypatch.chdir(tmp_path)  # for the logs of ray-optics
    import exchange

    lens = load_lens(name)
    write_lens(lens, tmp_path / f"lens{suffix}")
    numbers = getattr(exchange, f"with_{program}")(tmp_path / f"lens{suffix}")
    assert numbers == pytest.approx((gaussian(lens).focal_length, f_number(lens)), rel=1e-6)
