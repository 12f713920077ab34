"""The Zemax reader, feature by feature, on samples of our own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from defocus.errors import LensFileError, UnknownGlassError, UnsupportedLensError
from defocus.glass import AIR, constant_index, find_glass, model_glass
from defocus.lens.formats import parse_lens
from defocus.lens.prescription import Aperture, Field


@pytest.fixture(scope="module")
def triplet(samples: Path) -> str:
    return (samples / "triplet.zmx").read_text()


@pytest.fixture(scope="module")
def phone(samples: Path) -> str:
    return (samples / "phone.zmx").read_text()


@pytest.fixture(scope="module")
def zoom(samples: Path) -> str:
    return (samples / "zoom.zmx").read_text()


def parse(text: str, **options):
    return parse_lens(text.encode(), "lens.zmx", **options)


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_triplet(triplet: str, gaussian) -> None:
    lens = parse(triplet)
    assert lens.name == "Sample triplet"
    assert lens.source == "lens.zmx"
    assert [s.radius for s in lens.surfaces] == [23.4, -402.0, -22.9, 20.6, math.inf, 84.0, -18.9]
    assert [s.thickness for s in lens.surfaces] == [3.6, 6.1, 1.2, 4.7, 0.3, 2.9, 46.32]
    assert [s.medium for s in lens.surfaces] == [
        find_glass("N-SK16"), AIR, find_glass("F2"), AIR, AIR, model_glass(1.62041, 60.32), AIR
    ]  # fmt: skip
    assert lens.surfaces[2].conic == -0.25
    assert lens.surfaces[0].label == "front element"
    assert lens.stop == 4
    assert lens.aperture == Aperture("entrance_pupil_diameter", 12.0)
    assert lens.field == Field("angle_deg", ((0.0, 0.0), (0.0, 14.0), (0.0, 20.0)))
    assert lens.wavelengths_nm == (486.1327, 587.5618, 656.2725)
    assert lens.primary_wavelength == 1
    assert lens.image_radius is None  # follows from the angles
    assert math.isinf(lens.object_distance)
    assert gaussian(lens).defocus == pytest.approx(0.0, abs=0.01)


def test_clear_apertures_prefer_circles_to_semi_diameters(triplet: str) -> None:
    sizes = [s.semi_diameter for s in parse(triplet).surfaces]
    assert sizes == [9.5, 8.75, 5.5, 5.25, 4.9, 7.0, 7.2]
    unknown = parse(changed(triplet, "DIAM 5.5 0", "DIAM 0 0"))
    assert unknown.surfaces[2].semi_diameter is None


def test_leading_dummies_are_left_out(triplet: str) -> None:
    lens = parse(triplet)
    assert lens.notes == ("dummy surfaces in front of the lens left out: 1",)
    near = parse(changed(triplet, "DISZ INFINITY", "DISZ 100.0"))
    assert near.object_distance == 105.0
    limiting = parse(changed(triplet, "DIAM 1.5E+1 0 0 0 1", "CLAP 0 15 0\n  DIAM 1.5E+1 0 0 0 1"))
    assert len(limiting.surfaces) == 8


def test_phone(phone: str, gaussian) -> None:
    lens = parse(phone)
    terms = [s.aspheric for s in lens.surfaces]
    assert terms[1] == ((4, 1e-3), (6, 2e-3))
    assert dict(terms[3]) == pytest.approx({4: -0.02, 6: 0.01})  # coefficients of (r / 2)^4 and (r / 2)^6
    assert terms[4] == ((3, 4e-3), (4, -1e-3))
    assert terms[5] == ((2, 4e-3), (4, -0.05))  # r² kept
    assert terms[6] == ((3, -2e-3), (4, -0.03))
    assert lens.surfaces[7].label == "cover plate"
    assert lens.surfaces[7].medium == model_glass(1.5168, 64.17)
    assert lens.aperture == Aperture("stop_radius", 0.95)
    assert lens.field == Field("real_image_height", ((0.0, 0.0), (0.0, 2.0), (0.0, 2.9)))
    assert lens.image_radius == 2.9
    assert gaussian(lens).defocus == pytest.approx(0.0, abs=0.01)


def test_r1_term_is_refused(phone: str) -> None:
    with pytest.raises(UnsupportedLensError, match=r"surface 5: ODDASPHE.*r\^1"):
        parse(changed(phone, "PARM 1 0\n  PARM 3", "PARM 1 0.01\n  PARM 3"))


@pytest.mark.parametrize(("unit", "mm"), [("CM", 10.0), ("IN", 25.4), ("METER", 1000.0)])
def test_units(phone: str, unit: str, mm: float) -> None:
    """Every length scales, an aspheric coefficient of r^p with length^(1−p): the sag is the same shape."""
    base, scaled = parse(phone), parse(changed(phone, "UNIT MM", f"UNIT {unit}"))
    for a, b in zip(base.surfaces, scaled.surfaces, strict=True):
        assert b.radius == pytest.approx(a.radius * mm)
        assert b.thickness == pytest.approx(a.thickness * mm)
        assert b.semi_diameter == pytest.approx(a.semi_diameter * mm)
        r = 0.4
        sag = sum(c * r**p for p, c in a.aspheric)
        assert sum(c * (r * mm) ** p for p, c in b.aspheric) == pytest.approx(sag * mm)
    assert scaled.aperture.value == pytest.approx(0.95 * mm)
    assert scaled.image_radius == pytest.approx(2.9 * mm)
    assert scaled.wavelengths_nm == base.wavelengths_nm


def test_apertures(triplet: str, gaussian) -> None:
    assert parse(changed(triplet, "ENPD 1.2E+1", "FNUM 4.5 0")).aperture == Aperture("f_number", 4.5)
    assert parse(changed(triplet, "ENPD 1.2E+1", "FNUM 4.5 1")).aperture == Aperture("f_number", 4.5)
    near = changed(triplet, "DISZ INFINITY", "DISZ 395.0")
    assert parse(changed(near, "ENPD 1.2E+1", "OBNA 0.02 0")).aperture == Aperture("object_na", 0.02)
    cone = parse(changed(near, "ENPD 1.2E+1", "OBNA 30 1")).aperture
    assert (cone.kind, cone.value) == ("object_na", pytest.approx(0.5))
    with pytest.raises(LensFileError, match="infinity"):
        parse(changed(triplet, "ENPD 1.2E+1", "OBNA 0.02 0"))
    # The paraxial working F-number: slope 1 / 2N at the image, hence m / 2N at the object.
    working = parse(changed(near, "ENPD 1.2E+1", "FNUM 4.5 1"))
    slope = abs(gaussian(working).magnification) / (2.0 * 4.5)
    assert working.aperture.kind == "object_na"
    assert working.aperture.value == pytest.approx(math.sin(math.atan(slope)))


def test_float_by_stop_size_without_a_size(phone: str) -> None:
    """Then the given clear apertures limit the axial beam: here surface 2, at height 1 for height 1 in the stop."""
    lens = parse(changed(phone, '  DIAM 0.95 1 0 0 1 ""\n', ""))
    assert lens.aperture.kind == "stop_radius"
    assert 0.9 < lens.aperture.value <= 1.0
    assert any("no size" in note for note in lens.notes)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(0, "angle_deg"), (2, "paraxial_image_height"), (3, "real_image_height"), (4, "angle_deg")],
)
def test_field_types(triplet: str, number: int, kind: str) -> None:
    lens = parse(changed(triplet, "FTYP 0", f"FTYP {number}"))
    assert lens.field == Field(kind, ((0.0, 0.0), (0.0, 14.0), (0.0, 20.0)))
    assert lens.image_radius == (20.0 if "image" in kind else None)


def test_object_heights_need_an_object(triplet: str) -> None:
    heights = changed(triplet, "FTYP 0", "FTYP 1")
    with pytest.raises(LensFileError, match="object heights"):
        parse(heights)
    assert parse(changed(heights, "DISZ INFINITY", "DISZ 300")).field.kind == "object_height"


def test_old_keywords(triplet: str) -> None:
    old = changed(changed(triplet, "XFLN", "XFLD"), "YFLN", "YFLD")
    lines = [line for line in old.split("\n") if not line.startswith("WAVM")]
    lens = parse("\n".join(["WAVL 0.45 0.55 0.65", *lines]))
    assert lens.field.radius == 20.0
    assert lens.wavelengths_nm == (450.0, 550.0, 650.0)


def test_media(triplet: str) -> None:
    constant = parse(changed(triplet, "GLAS ___BLANK 1 0 1.62041 6.032E+1", "GLAS ___BLANK 1 0 1.62 0"))
    assert constant.surfaces[5].medium == constant_index(1.62)
    unknown = changed(triplet, "GLAS F2 0", "GLAS NOSUCHGLASS 0")
    with pytest.raises(UnknownGlassError, match=r"surface 4.*NOSUCHGLASS") as caught:
        parse(unknown)
    assert (caught.value.file, caught.value.surface) == ("lens.zmx", 4)
    for fallback in (constant_index(1.6), lambda name: constant_index(1.6)):
        lens = parse(unknown, fallback_glass=fallback)
        assert lens.surfaces[2].medium == constant_index(1.6)
        assert any("surface 4" in n and "NOSUCHGLASS" in n for n in lens.notes)
    model = parse(changed(triplet, "GLAS F2 0 0 1.5 4.0E+1", "GLAS NOSUCHGLASS 1 0 1.62 36.3"))
    assert model.surfaces[2].medium == model_glass(1.62, 36.3)
    old = parse(changed(triplet, "GLAS N-SK16", "GLAS BK7"))
    assert old.surfaces[0].medium.nd == pytest.approx(1.5168, abs=1e-4)
    assert any("surface 2" in n and "BK7" in n for n in old.notes)
    wet = parse(changed(triplet, "DISZ INFINITY", "DISZ 100\n  GLAS ___BLANK 1 0 1.33 55.0 0 0"))
    assert wet.object_medium == model_glass(1.33, 55.0)


@pytest.mark.parametrize(
    "kind", ["BICONICX", "TOROIDAL", "COORDBRK", "DGRATING", "PARAXIAL", "TILTSURF", "QED_TYPE", "XPOLYNOM"]
)
def test_other_surfaces_are_refused(triplet: str, kind: str) -> None:
    text = changed(triplet, "TYPE STANDARD\n  CURV 4.85", f"TYPE {kind}\n  CURV 4.85")
    with pytest.raises(UnsupportedLensError, match=rf"surface 5: .*{kind}") as caught:
        parse(text)
    assert caught.value.surface == 5


def test_mirrors_and_odd_apertures_are_refused(triplet: str) -> None:
    with pytest.raises(UnsupportedLensError, match="surface 4: MIRROR"):
        parse(changed(triplet, "GLAS F2", "GLAS MIRROR"))
    for line in ("SQAP 5 5 0", "OBSC 0 1 0", "OBDC 0 2", "CLAP 1 8 0"):
        with pytest.raises(UnsupportedLensError, match=r"surface 4: .*aperture"):
            parse(changed(triplet, "DIAM 5.5 0", f"{line}\n  DIAM 5.5 0"))
    with pytest.raises(UnsupportedLensError, match="MODE"):
        parse(changed(triplet, "MODE SEQ", "MODE NSC"))


def test_configurations_become_states(zoom: str, gaussian) -> None:
    lens = parse(zoom)
    assert lens.state_names == ("config 1", "config 2", "config 3")
    assert lens.states[0].thickness == ()  # what the file shows
    second = lens.in_state("config 2")
    assert [second.surfaces[i].thickness for i in (1, 3, 6)] == [8.0, 12.0, 151.43]
    assert second.aperture == Aperture("f_number", 4.5)
    assert second.field == Field("angle_deg", ((0.0, 0.0), (0.0, 9.5)))
    for name, focal in zip(lens.state_names, (78.83, 125.74, 248.62), strict=True):
        optics = gaussian(lens.in_state(name))
        assert optics.focal_length == pytest.approx(focal, abs=0.01)
        assert optics.defocus == pytest.approx(0.0, abs=0.01)


def test_configurations_that_no_state_can_hold(zoom: str) -> None:
    with pytest.raises(UnsupportedLensError, match="PRAM 3"):
        parse(changed(zoom, "PRAM   3   2 0.0", "PRAM   3   2 1.0"))
    with pytest.raises(UnsupportedLensError, match="GLSS"):
        parse(zoom + "GLSS 1 1 N-BK7 0 0 0\nGLSS 1 2 F2 0 0 0\n")
    assert len(parse(zoom + "GLSS 1 1 N-BK7 0 0 0\nGLSS 1 2 N-BK7 0 0 0\n").states) == 3
    with pytest.raises(LensFileError, match="configuration 4"):
        parse(zoom + "THIC 2 4 1.0 0 0 0\n")
    with pytest.raises(LensFileError, match="surface 2: state 'config 3': thickness"):
        parse(changed(zoom, "THIC   2   3 1.400000000000E+001", "THIC   2   3 1.4E+9"))
    with pytest.raises(LensFileError, match="no surface 77"):
        parse(zoom + "THIC 77 1 1.0 0 0 0\n")


def test_object_distance_and_sizes_in_configurations(zoom: str) -> None:
    rows = "THIC 0 1 1.0E+10 0 0\nTHIC 0 2 2000 0 0\nSDIA 3 2 16.0 0 0\n"
    lens = parse(zoom + rows)
    assert lens.states[0].object_distance is None
    assert lens.states[1].object_distance == 2000.0
    assert lens.states[1].semi_diameter == ((2, 16.0),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DISZ 3.6", "DISZ NaN", r"line 45, surface 2: DISZ"),
        ("DISZ 3.6", "DISZ 1e9", r"surface 2: thickness"),
        ("DISZ 3.6\n", "\n", r"surface 2: no DISZ"),
        ("CURV 4.27", "CURV x4.27", r"surface 2: CURV"),
        ("CURV 4.273504273504273504E-002", "CURV 1e9", r"surface 2: radius"),
        ("  STOP\n", "", "marked STOP"),
        ("SURF 4", "SURF 5", "where SURF 4 should stand"),
        ("UNIT MM", "UNIT FURLONG", "UNIT"),
        ("ENPD 1.2E+1", "ENPD -3", "ENPD"),
        ("ENPD 1.2E+1\n", "", "no aperture"),
        ("ENPD 1.2E+1", "ENPD 3\nFNUM 2 0", "second aperture"),
        ("PWAV 2", "PWAV 9", "PWAV"),
        ("WAVM 2 5.8", "WAVM 2 5800", "wavelength"),
        ("MNUM 1 1", "MNUM 1000000000 1", "MNUM"),
        ("CONI -2.5E-1", "CONI 1e30", r"surface 4: conic"),
        ("GLAS ___BLANK 1 0 1.62041 6.032E+1", "GLAS ___BLANK 1 0 62 1.6", r"surface 7"),
        ("GLAS ___BLANK 1 0 1.62041 6.032E+1", "GLAS ___BLANK x", r"surface 7"),
        ("DISZ 0\n", "DISZ 1\n", "cut short"),
    ],
)
def test_what_is_wrong_is_named(triplet: str, old: str, new: str, message: str) -> None:
    with pytest.raises(LensFileError, match=message) as caught:
        parse(changed(triplet, old, new))
    assert caught.value.file == "lens.zmx"


def test_cut_files_are_not_shorter_lenses(triplet: str) -> None:
    """Wherever the surface list is cut, the file is refused."""
    end = triplet.index("SURF 9")
    for position in range(0, end, 7):
        with pytest.raises(LensFileError):
            parse(triplet[:position])
