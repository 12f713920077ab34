"""The lens data model: immutable, comparable, strict."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from defocus.errors import LensError
from defocus.glass import model_glass
from defocus.lens import Aperture, Field, Lens, State, Surface, load_lens


def singlet(**changes: object) -> Lens:
    lens = Lens(
        name="singlet",
        surfaces=(
            Surface(radius=50.0, thickness=5.0, medium=model_glass(1.5168, 64.17), semi_diameter=10.0),
            Surface(radius=-50.0, thickness=45.0, semi_diameter=10.0),
        ),
        stop=0,
        aperture=Aperture("stop_radius", 5.0),
        image_radius=10.0,
    )
    return dataclasses.replace(lens, **changes)  # type: ignore[arg-type]


def with_surface(index: int, **changes: object) -> Lens:
    lens = singlet()
    surfaces = list(lens.surfaces)
    surfaces[index] = dataclasses.replace(surfaces[index], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(lens, surfaces=tuple(surfaces))


def test_is_a_value() -> None:
    assert singlet() == singlet()
    assert hash(singlet()) == hash(singlet())
    assert singlet() != with_surface(0, thickness=5.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        singlet().stop = 1  # type: ignore[misc]


def test_notes_and_source_do_not_count_in_comparisons() -> None:
    assert singlet(notes=("read from a bad copy",), source="a.zmx") == singlet()


@pytest.mark.parametrize(
    ("index", "changes", "message"),
    [
        (1, {"radius": 0.0}, "surface 1: radius 0.0"),
        (0, {"radius": math.nan}, "surface 0: radius nan"),
        (0, {"thickness": math.inf}, "surface 0: thickness inf"),
        (1, {"thickness": math.nan}, "surface 1: thickness nan"),
        (0, {"semi_diameter": -1.0}, "semi-diameter -1.0"),
        (0, {"conic": math.nan}, "conic constant nan"),
        (1, {"aspheric": ((1, 0.1),)}, "surface 1: aspheric term r\\^1"),
        (1, {"aspheric": ((4, math.inf),)}, "coefficient of r\\^4 is inf"),
        (1, {"aspheric": ((6, 1.0), (4, 1.0))}, "ascending"),
    ],
)
def test_impossible_surfaces_are_refused_by_number(index: int, changes: dict[str, object], message: str) -> None:
    with pytest.raises(LensError, match=message) as caught:
        with_surface(index, **changes)
    assert caught.value.surface == index


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surfaces": ()}, "0 surfaces"),
        ({"stop": 2}, "the stop is surface 2"),
        ({"object_distance": -1.0}, "object distance -1.0"),
        ({"image_radius": 0.0}, "image radius 0.0"),
        ({"aperture": Aperture("f_number", 0.0)}, "aperture f_number = 0.0"),
        ({"aperture": Aperture("object_na", 0.1)}, "finite object distance"),
        ({"wavelengths_nm": ()}, "wavelengths"),
        ({"primary_wavelength": 7}, "primary wavelength 7"),
        ({"field": Field("angle_deg", ((0.0, math.nan),))}, "field point"),
        ({"field": Field("angle_deg", ())}, "singlet: a field without points; give at least one"),
        ({"field": Field("furlongs", ((0.0, 1.0),))}, "unknown kind of field 'furlongs'"),  # type: ignore[arg-type]
        ({"states": (State("a", field=Field("angle_deg", ())),)}, "state 'a': a field without points"),
        ({"states": (State("a", thickness=((5, 1.0),)),)}, "state 'a' sets surface 5"),
        ({"states": (State("a"), State("a"))}, "must differ"),
    ],
)
def test_impossible_lenses_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LensError, match=message) as caught:
        singlet(**changes)
    assert caught.value.surface is None


def test_states_override_the_prescription() -> None:
    lens = singlet(
        states=(
            State("infinity"),
            State("1 m", thickness=((1, 47.5),), object_distance=950.0, aperture=Aperture("stop_radius", 4.0)),
        )
    )
    near = lens.in_state("1 m")
    assert [s.thickness for s in near.surfaces] == [5.0, 47.5]
    assert near.object_distance == 950.0
    assert near.aperture.value == 4.0
    assert near.states == ()
    assert lens.in_state(1).surfaces == near.surfaces
    assert lens.in_state("infinity").surfaces == lens.surfaces


def test_unknown_state_names_the_known_ones() -> None:
    with pytest.raises(LensError, match="'infinity', 'near'"):
        singlet(states=(State("infinity"), State("near"))).in_state("wide")


def test_repr_is_one_short_line() -> None:
    lens = singlet(states=(State("infinity"), State("near")))
    text = repr(lens)
    assert len(text) < 160
    assert all(word in text for word in ("singlet", "49.21 mm", "2 surfaces", "infinity", "near"))
    assert "f/" not in repr(singlet(aperture=Aperture("object_na", 0.1), object_distance=100.0))


def test_fingerprint_is_that_of_earlier_data_sets() -> None:
    """Data sets and ledgers record it: another text under the hash would make every lens a stranger."""
    lens = load_lens("canon-rf-50-f1.2")
    assert lens.fingerprint() == "fe3cc97bf3991fc84963b52588dd7ede6ff627a8854cca3d042298438e94b038"
    assert lens.fingerprint(named=False) == "ceaeaf4fa0e0ed585584288e841cee519f0001a6d1425aabad34c6c284d80de2"
    assert dataclasses.replace(lens, source="elsewhere.json", notes=("a copy",)).fingerprint() == lens.fingerprint()
    renamed = dataclasses.replace(lens, name="another name")
    assert renamed.fingerprint() != lens.fingerprint()
    assert renamed.fingerprint(named=False) == lens.fingerprint(named=False)


def test_lens_draws_and_saves_itself(tmp_path: Path) -> None:
    lens = singlet()
    page = lens._repr_html_()
    assert "singlet" in page
    assert "<svg" in page
    for name in ("lens.json", "lens.zmx"):
        lens.save(tmp_path / name)
        assert load_lens(tmp_path / name) == lens
    lens.save(tmp_path / "lens.svg")
    assert "<svg" in (tmp_path / "lens.svg").read_text()
    with pytest.raises(LensError, match=r"\.json"):
        lens.save(tmp_path / "lens.docx")


def test_lens_that_cannot_be_drawn_still_has_a_page() -> None:
    bare = tuple(dataclasses.replace(s, semi_diameter=None) for s in singlet().surfaces)
    assert "cannot be drawn" in singlet(surfaces=bare, image_radius=500.0)._repr_html_()
