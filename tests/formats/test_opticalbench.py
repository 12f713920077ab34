"""The Optical Bench reader, on a sample of our own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from defocus.errors import LensFileError
from defocus.glass import AIR, find_glass, model_glass
from defocus.lens.formats import parse_lens
from defocus.lens.prescription import Aperture


@pytest.fixture(scope="module")
def zoom(samples: Path) -> str:
    return (samples / "zoom.txt").read_text()


def parse(text: str):
    return parse_lens(text.encode(), "lens.txt")


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_first_column_is_the_lens(zoom: str) -> None:
    lens = parse(zoom)
    assert lens.name == "Sample zoom (made up)"
    assert [s.radius for s in lens.surfaces[:4]] == [84.0, -140.0, -44.0, 30.0]
    assert [s.thickness for s in lens.surfaces] == [5.0, 2.0, 1.5, 20.0, 1.0, 4.0, 114.4, 0.5, 1.0, 0.872]
    assert lens.surfaces[0].medium == model_glass(1.5168, 64.2)
    assert lens.surfaces[1].medium == AIR
    assert lens.surfaces[0].semi_diameter == 25.0  # the file gives diameters
    assert lens.surfaces[5].conic == -0.5
    assert lens.surfaces[5].aspheric == ((4, -1.2e-6), (6, 2.5e-10))
    assert lens.surfaces[7].label == "field stop"
    assert math.isinf(lens.surfaces[8].radius)
    assert lens.surfaces[8].medium == model_glass(1.5168, 64.2)
    assert lens.stop == 4
    assert lens.aperture == Aperture("stop_radius", 10.2)
    assert lens.image_radius == 21.6  # half of the diagonal
    assert math.isinf(lens.object_distance)


def test_columns_become_states(zoom: str, gaussian) -> None:
    lens = parse(zoom)
    assert lens.state_names == (
        "78.83mm", "125.7mm", "248.6mm", "78.83mm m=-0.05", "125.7mm m=-0.05", "248.6mm m=-0.05"
    )  # fmt: skip
    near = lens.in_state("125.7mm m=-0.05")
    assert near.object_distance == 2400.0
    assert near.aperture == Aperture("stop_radius", 11.55)
    assert near.surfaces[4].semi_diameter == 11.55
    for name, focal in zip(lens.state_names[:3], (78.83, 125.74, 248.62), strict=True):
        optics = gaussian(lens.in_state(name))
        assert optics.focal_length == pytest.approx(focal, abs=0.01)
        assert optics.defocus == pytest.approx(0.0, abs=0.01)


def test_single_column_has_no_states(zoom: str) -> None:
    lines = zoom.split("\n")
    start, end = lines.index("[variable distances]"), lines.index("[lens data]")
    for i in range(start + 1, end):
        lines[i] = "\t".join(lines[i].split("\t")[:2])
    assert parse("\n".join(lines)).states == ()


def test_state_names_without_focal_lengths(zoom: str) -> None:
    lens = parse(changed(zoom, "Focal Length", "Unfocal Length"))
    assert lens.state_names[:2] == ("column 1", "column 2")
    assert lens.state_names[3:] == ("m=-0.05", "m=-0.05 (2)", "m=-0.05 (3)")
    lens = parse(changed(changed(zoom, "Focal Length", "Unfocal Length"), "Magnification", "None"))
    assert lens.state_names[3] == "d0=1500mm"


def test_aperture_without_a_stop_diameter(zoom: str) -> None:
    lens = parse(changed(changed(zoom, "AS\t1.0\t\t20.4", "AS\t1.0\t\t"), "Aperture Diameter", "Unused"))
    assert lens.aperture == Aperture("f_number", 4.0)
    assert lens.in_state("248.6mm").aperture == Aperture("f_number", 5.6)


def test_glass_by_name_only(zoom: str) -> None:
    lens = parse(changed(zoom, "84.0\t5.0\t1.5168\t50\t64.2\tN-BK7", "84.0\t5.0\t\t50\t\tN-BK7"))
    assert lens.surfaces[0].medium == find_glass("N-BK7")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-44.0\t1.5", "x\t1.5", "surface 3: radius"),
        ("-44.0\t1.5", "-44.0\td99", "surface 3: thickness"),
        ("-44.0\t1.5", "-44.0\tNaN", "surface 3: thickness"),
        ("3\t-44.0", "2\t-44.0", "occurs twice"),
        ("3\t-44.0", "three\t-44.0", "surface number"),
        ("5\tAS", "5\tInfinity", "aperture stops"),
        ("1.6204\t34\t60.3", "60.3\t34\t1.6204", "surface 3"),
        ("1.6204\t34", "abc\t34", "surface 3: nd"),
        ("6\t52.0\t-0.5", "66\t52.0\t-0.5", "no surface '66'"),
        ("-1.2E-06", "1e400", "surface 6: .*coefficient"),
        ("d2\t2.0\t8.0", "d2\tundefined\t8.0", "surface 2: thickness"),
        ("d2\t2.0\t8.0", "d2\t2.0\tundefined", "surface 2: thickness"),
        ("[lens data]", "[lens]", "lens data"),
    ],
)
def test_what_is_wrong_is_named(zoom: str, old: str, new: str, message: str) -> None:
    with pytest.raises(LensFileError, match=message):
        parse(changed(zoom, old, new))
