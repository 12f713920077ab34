"""The CODE V reader, on samples of our own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from defocus.errors import LensFileError, UnsupportedLensError
from defocus.glass import find_glass, model_glass, tabulated_glass
from defocus.lens.formats import parse_lens
from defocus.lens.prescription import Aperture, Field


@pytest.fixture(scope="module")
def triplet(samples: Path) -> str:
    return (samples / "triplet.seq").read_text()


def parse(text: str):
    return parse_lens(text.encode(), "lens.seq")


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_triplet(triplet: str, sample) -> None:
    lens = parse(triplet)
    assert lens.name == 'Sample triplet; with a "quoted" mark!'
    assert lens.surfaces[5].aspheric == ((4, 1e-6), (6, -2e-9))
    assert lens.surfaces[5].medium == model_glass(1.62041, 60.32)
    assert lens.surfaces[0].semi_diameter == 9.5  # the clear aperture, not the edge
    assert lens.surfaces[0].label == "front element"
    assert lens.surfaces[-1].thickness == pytest.approx(46.32)  # the image's defocus included
    assert lens.stop == 4
    assert lens.wavelengths_nm == (656.2725, 587.5618, 486.1327)
    assert lens.primary_wavelength == 1
    assert lens.field == Field("angle_deg", ((0.0, 0.0), (0.0, 14.0), (0.0, 20.0)))
    assert lens.aperture == Aperture("entrance_pupil_diameter", 12.0)
    assert math.isinf(lens.object_distance)
    twin = sample("triplet.zmx")
    assert [s.radius for s in lens.surfaces] == [s.radius for s in twin.surfaces]
    assert [s.medium for s in lens.surfaces] == [s.medium for s in twin.surfaces]
    assert [s.conic for s in lens.surfaces] == [s.conic for s in twin.surfaces]


def test_relay_in_inches_and_curvatures(sample, gaussian) -> None:
    lens = sample("private.seq")
    assert lens.surfaces[0].radius == pytest.approx(25.4 / 0.3)
    assert lens.surfaces[0].thickness == pytest.approx(0.25 * 25.4)
    assert lens.surfaces[0].semi_diameter == pytest.approx(12.7)
    table = tabulated_glass("myglass", [656.3, 587.6, 486.1, 435.8], [1.5145, 1.5170, 1.5225, 1.5270])
    assert lens.surfaces[0].medium == table
    assert lens.object_distance == pytest.approx(8.0 * 25.4)
    assert lens.field == Field("object_height", ((0.0, 0.0), (0.0, 0.2 * 25.4), (0.0, 0.3 * 25.4)))
    assert lens.primary_wavelength == 1  # the middle one
    optics = gaussian(lens)
    assert optics.defocus == pytest.approx(0.0, abs=0.01)
    slope = abs(optics.magnification) / 8.0  # f/4 at the image
    assert lens.aperture.value == pytest.approx(math.sin(math.atan(slope)))


def test_zoom_positions_become_states(sample, gaussian) -> None:
    lens = sample("zoom.seq")
    assert lens.state_names == ("zoom 1", "zoom 2", "zoom 3")
    assert lens.in_state("zoom 3").aperture == Aperture("f_number", 5.6)
    for name, focal in zip(lens.state_names, (78.83, 125.74, 248.62), strict=True):
        optics = gaussian(lens.in_state(name))
        assert optics.focal_length == pytest.approx(focal, abs=0.01)
        assert optics.defocus == pytest.approx(0.0, abs=0.01)


def test_zoomed_image_and_object(samples: Path) -> None:
    text = (samples / "zoom.seq").read_text()
    more = changed(text, "ZOO FNO", "ZOO THI SI 0 0.1 0.2\nZOO THI SO 1e13 2000 3000\nZOO FNO")
    lens = parse(more)
    assert lens.states[2].thickness[-1] == (6, pytest.approx(239.77))
    assert lens.states[2].object_distance == 3000.0
    with pytest.raises(UnsupportedLensError, match="ZOO YAN"):
        parse(changed(text, "ZOO FNO", "ZOO YAN F2 1 2 3\nZOO FNO"))
    with pytest.raises(LensFileError, match="2 values for 3 positions"):
        parse(changed(text, "ZOO FNO 4.0 4.5 5.6", "ZOO FNO 4.0 4.5"))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("YIM 0 10", "paraxial_image_height"),
        ("YRI 0 10", "real_image_height"),
        ("XAN 3 4; YAN 0 10", "angle_deg"),
    ],
)
def test_fields(triplet: str, line: str, kind: str) -> None:
    base = changed(changed(triplet, "XAN   0.0 0.0 0.0\n", ""), "YAN   0.0 14.0&\n   20.0", line)
    lens = parse(base)
    assert lens.field.kind == kind
    assert lens.field.points[1][1] == 10.0
    assert lens.image_radius == (10.0 if "image" in kind else None)


def test_apertures(triplet: str, gaussian) -> None:
    assert parse(changed(triplet, "EPD   12.0", "FNO 4")).aperture == Aperture("f_number", 4.0)
    na = parse(changed(triplet, "EPD   12.0", "NA 0.1")).aperture
    assert (na.kind, na.value) == ("f_number", pytest.approx(0.5 / math.tan(math.asin(0.1))))
    near = changed(triplet, "SO    0.0 0.1e14", "SO 0 400")
    assert parse(changed(near, "EPD   12.0", "NAO 0.02")).aperture == Aperture("object_na", 0.02)
    for wrong in ("NAO 0.02", "EPD 0", "FNO x", "NA 1.5"):
        with pytest.raises(LensFileError):
            parse(changed(triplet, "EPD   12.0", wrong))


def test_radius_mode(triplet: str) -> None:
    """RDM decides; without it the size of the numbers does, and a mixture is refused."""
    bare = changed(triplet, "RDM;LEN", "LEN")
    lens = parse(bare)
    assert lens.surfaces[0].radius == 23.4
    assert any("RDM" in note and "radii" in note for note in lens.notes)
    curvatures = "TIT 'x'\nEPD 1\nWL 550\nSO 0 1e11\nS 0.1 1 N-BK7\nS -0.05 15\nSI 0 0\n"
    lens = parse(curvatures)
    assert [s.radius for s in lens.surfaces] == [10.0, -20.0]
    assert any("curvatures" in note for note in lens.notes)
    with pytest.raises(LensFileError, match="RDM"):
        parse(curvatures.replace("S -0.05", "S -20"))
    assert parse("RDM N\n" + curvatures.replace("S -0.05", "S -20")).surfaces[1].radius == -0.05


def test_defaults_are_noted() -> None:
    lens = parse("RDM Y; EPD 5; WL 486 588 656 700\nSO 0 1e10\nS 50 5 N-BK7\nS -50 40")
    assert lens.stop == 0
    assert lens.primary_wavelength == 1
    assert lens.name == "lens"
    assert lens.field is None
    assert any("STO" in note for note in lens.notes)
    assert any("SI" in note for note in lens.notes)


def test_surface_qualifiers(triplet: str) -> None:
    lens = parse(changed(triplet, "GO ", "THI S2 7.5\nCIR S3 5.5\nRDY S4 21\nGLA S1 N-BK7\nTHI SI 0\nGO"))
    assert lens.surfaces[1].thickness == 7.5
    assert lens.surfaces[2].semi_diameter == 5.5
    assert lens.surfaces[3].radius == 21.0
    assert lens.surfaces[0].medium == find_glass("N-BK7")
    assert lens.surfaces[-1].thickness == 46.42
    with pytest.raises(LensFileError, match="no such surface"):
        parse(changed(triplet, "GO ", "THI S99 7.5\n"))


@pytest.mark.parametrize(
    ("line", "keyword"),
    [
        ("YDE 1.5", "YDE"), ("ADE 45", "ADE"), ("DAR", "DAR"), ("REV", "REV"), ("BEN", "BEN"),
        ("DIF DOE", "DIF"), ("SPS XYP", "SPS"), ("REX 3.0", "REX"), ("CYL", "CYL"), ("CIR OBS 1.0", "CIR OBS"),
        ("RMD REFL", "REFL"), ("GLA REFL", "REFL"),
    ],
)  # fmt: skip
def test_refused_keywords(triplet: str, line: str, keyword: str) -> None:
    with pytest.raises(UnsupportedLensError, match=f"surface 4: {keyword}") as caught:
        parse(changed(triplet, "S     20.6 4.7\n", f"S     20.6 4.7\n  {line}\n"))
    assert caught.value.surface == 4


def test_unknown_commands_are_noted(triplet: str) -> None:
    lens = parse(changed(triplet, "  CUF 0.0\n", "  CUF 0.0\n  QQQ 3\n"))
    assert any("QQQ" in note for note in lens.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("S     20.6 4.7", "S     nan 4.7", r"surface 4: radius"),
        ("S     20.6 4.7", "S     20.6 1e9", r"surface 4: thickness"),
        ("SO    0.0 0.1e14\n", "", "before the object"),
        ("  STO\n", "  STO\nSTO S1\n", "STO"),
        ("WL    656.2725 587.5618 486.1327", "WL 5", "wavelengths"),
        ("REF   2", "REF 7", "REF 7"),
        ("  K   -0.25", "  K x", r"surface 3: K"),
        ("GO ", "S 1 2 3\n", "behind the image"),
        ("DIM   M", "DIM Q", "DIM"),
        ("620410.603200", "NOSUCHGLASS_ACME", r"surface 6.*NOSUCHGLASS"),
    ],
)
def test_what_is_wrong_is_named(triplet: str, old: str, new: str, message: str) -> None:
    with pytest.raises(LensFileError, match=message):
        parse(changed(triplet, old, new))


def test_private_glass_by_formula_is_refused(samples: Path) -> None:
    text = (samples / "private.seq").read_text()
    with pytest.raises(UnsupportedLensError, match="PRV table is not given by indices"):
        parse(changed(text, "'MYGLASS' 1.5145", "'MYGLASS' LAU 1.5145"))
    unused = changed(changed(text, "'MYGLASS' 1.5145", "'MYGLASS' LAU 1.5145"), "0.25 'myglass'", "0.25 N-BK7")
    assert parse(unused).surfaces[0].medium == find_glass("N-BK7")
