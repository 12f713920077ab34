"""Our own JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from defocus.errors import LensFileError, UnknownGlassError
from defocus.glass import AIR, constant_index, find_glass, model_glass, tabulated_glass
from defocus.lens.formats import parse_lens
from defocus.lens.formats.json_format import LensRecord, StateRecord, SurfaceRecord
from defocus.lens.prescription import Aperture, Field

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"


@pytest.fixture
def doublet(samples: Path) -> dict:
    return json.loads((samples / "doublet.json").read_text())


def parse(data: dict | str, **options):
    text = data if isinstance(data, str) else json.dumps(data)
    return parse_lens(text.encode(), "lens.json", **options)


def test_doublet(doublet: dict) -> None:
    lens = parse(doublet)
    assert lens.name == "Sample doublet"
    assert lens.patent == "none (made up)"
    assert lens.image_format == ""
    assert lens.image_radius == 10.0
    assert lens.aperture == Aperture("stop_radius", 12.14)
    assert [s.radius for s in lens.surfaces] == [58.3, -44.1, -133.0]
    assert [s.medium for s in lens.surfaces] == [model_glass(1.5168, 64.17), model_glass(1.6727, 32.25), AIR]
    assert lens.surfaces[2].aspheric == ((4, 1e-7), (5, -2e-9))
    assert lens.surfaces[2].semi_diameter is None
    assert lens.wavelengths_nm[lens.primary_wavelength] == 587.5618


def test_every_key(sample) -> None:
    lens = sample("everything.json")
    assert lens.surfaces[0].medium == find_glass("N-BK7")
    assert lens.surfaces[2].medium == tabulated_glass("MYGLASS", [486.1, 587.6, 656.3], [1.6270, 1.6204, 1.6176])
    assert lens.surfaces[5].aspheric == ((2, 1e-5), (4, -1.2e-6), (20, 1e-25))
    assert lens.aperture == Aperture("f_number", 4.0)
    assert lens.field == Field("angle_deg", ((0.0, 0.0), (0.0, 10.2)))
    assert lens.state_names == ("79mm", "126mm m=-0.05")
    near = lens.in_state(1)
    assert near.object_distance == 2400.0
    assert near.surfaces[4].semi_diameter == 11.5
    assert near.image_radius == 14.0
    assert lens.notes == ("made up for the tests",)


def test_media(doublet: dict) -> None:
    doublet["surfaces"][0] |= {"nd": 1.55, "vd": None}
    doublet["object_medium"] = {"nd": 1.33, "vd": 55.0}
    doublet["object"] = 500.0
    lens = parse(doublet)
    assert lens.surfaces[0].medium == constant_index(1.55)
    assert lens.object_medium == model_glass(1.33, 55.0)
    assert lens.object_distance == 500.0


def test_unknown_glass(doublet: dict) -> None:
    doublet["surfaces"][1] |= {"glass": "NOSUCHGLASS", "nd": None, "vd": None}
    with pytest.raises(UnknownGlassError, match=r"surface 1.*NOSUCHGLASS"):
        parse(doublet)
    assert parse(doublet, fallback_glass=constant_index(1.6)).surfaces[1].medium.nd == 1.6


def change(path: list, value: object):
    def apply(data: dict) -> None:
        for key in path[:-1]:
            data = data[key]
        if value is ...:
            del data[path[-1]]
        else:
            data[path[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["surfces"], [], "unknown key 'surfces'"),
        (["surfaces", 1, "radius"], 3.0, "surface 1: .*unknown key 'radius'"),
        (["surfaces"], ..., "surfaces is missing"),
        (["stop_surface"], ..., "stop_surface is missing"),
        (["stop_surface"], 17, "stop"),
        (["stop_surface"], 10**40, "stop"),
        (["stop_surface"], True, "stop_surface: .*integer"),
        (["stop_surface"], 2, "no aperture"),
        (["surfaces", 0, "radius_mm"], float("nan"), "surface 0: radius_mm"),
        (["surfaces", 0, "radius_mm"], 10**400, "surface 0: radius_mm"),
        (["surfaces", 0, "radius_mm"], "58.3", "surface 0: radius_mm"),
        (["surfaces", 0, "radius_mm"], 1e-9, "surface 0: radius"),
        (["surfaces", 0, "thickness_mm"], ..., "surface 0: thickness_mm"),
        (["surfaces", 0, "thickness_mm"], float("inf"), "surface 0: thickness_mm"),
        (["surfaces", 0, "thickness_mm"], 1e30, "surface 0: thickness"),
        (["surfaces", 0, "semi_diameter_mm"], -1.0, "surface 0: semi-diameter"),
        (["surfaces", 0, "nd"], 64.17, "surface 0: .*nd = 64.17"),
        (["surfaces", 0, "aspheric"], {"x": 1.0}, "surface 0: aspheric"),
        (["surfaces", 0, "aspheric"], {"1": 1.0}, r"surface 0: .*r\^1"),
        (["surfaces", 0, "aspheric"], [1.0], "surface 0: aspheric"),
        (["surfaces", 0, "glass"], "F2", "surface 0: nd is 1.5168"),
        (["surfaces", 0, "catalogue"], "schott", "surface 0: catalogue"),
        (["surfaces", 0, "table"], [[500.0]], "surface 0: table"),
        (["surfaces"], {}, "surfaces: .*array"),
        (["surfaces"], [[]] * 3, "surface 0: surface: expected an object"),
        (["surfaces"], [{"thickness_mm": 1.0}] * 5000, "surfaces: .*at most 200"),
        (["name"], ["x"], "name: .*string"),
        (["object"], "far", "object"),
        (["object"], -5.0, "object distance"),
        (["aperture"], {"kind": "radius", "value": 3.0}, "aperture, kind"),
        (["aperture"], {"kind": "f_number", "value": 0.0}, "aperture"),
        (["field"], {"kind": "angle_deg", "points": [[1.0]]}, "field"),
        (["field"], {"kind": "angle_deg", "points": []}, "field"),
        (["wavelengths_nm"], [5.0], "wavelengths"),
        (["primary_wavelength"], 0, "primary_wavelength"),
        (["states"], [{"name": ""}], "states, 0, name"),
        (["states"], [{"name": "a", "thickness_mm": {"x": 1.0}}], "surface numbers"),
        (["states"], [{"name": "a", "thickness_mm": {"9": 1.0}}], "state 'a'"),
        (["states"], [{"name": "a", "thickness_mm": {"0": 1e9}}], "state 'a'"),
        (["states"], [{"name": "a"}, {"name": "a"}], "state names"),
    ],
)
def test_what_is_wrong_is_named(doublet: dict, path: list, value: object, message: str) -> None:
    change(path, value)(doublet)
    with pytest.raises(LensFileError, match=message) as caught:
        parse(doublet)
    assert caught.value.file == "lens.json"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"name": "x",', "line 1: not valid JSON"),
        ("{" + '"a":[' * 200_000, "not valid JSON|nested too deeply"),
        ('{"name": "a", "name": "b"}', "occurs twice"),
        ('{"stop_surface": ' + "9" * 10_000 + "}", "digits"),
        ('{"name": "x"} trailing', "not valid JSON"),
        ("{}", "surfaces is missing"),
    ],
)
def test_broken_json(text: str, message: str) -> None:
    with pytest.raises(LensFileError, match=message):
        parse(text)


def test_names_are_one_printable_line(doublet: dict) -> None:
    doublet["name"] = " a\n\u0000b \ud800c "
    assert parse(doublet).name == "a b c"


def test_zero_terms_are_dropped(doublet: dict) -> None:
    doublet["surfaces"][0]["aspheric"] = {"4": 0.0, "6": 1e-9}
    assert parse(doublet).surfaces[0].aspheric == ((6, 1e-9),)


def test_far_objects_are_at_infinity(doublet: dict) -> None:
    doublet["object"] = 1e13
    assert math.isinf(parse(doublet).object_distance)


def test_the_documentation_knows_every_key() -> None:
    text = DOCUMENT.read_text()
    records = (LensRecord, SurfaceRecord, StateRecord)
    keys = {field.alias or name for record in records for name, field in record.model_fields.items()}
    missing = [k for k in keys if f"`{k}`" not in text]
    assert not missing
