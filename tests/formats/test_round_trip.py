"""Reading back what was written gives an equal lens."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from defocus.errors import LensError
from defocus.glass import AIR, Medium, constant_index, find_glass, model_glass, tabulated_glass
from defocus.lens.formats import parse_lens, read_lens, write_lens
from defocus.lens.formats.json_format import json_text
from defocus.lens.formats.zemax_write import zemax_text
from defocus.lens.prescription import Aperture, Field, Lens, State, Surface

FORMATS = [(json_text, ".json"), (zemax_text, ".zmx")]
SAMPLES = sorted((Path(__file__).parent / "samples").iterdir())

lengths = st.floats(min_value=-1e3, max_value=1e3)
sizes = st.floats(min_value=1e-3, max_value=1e3)
radii = st.just(math.inf) | st.floats(min_value=1e-3, max_value=1e9) | st.floats(min_value=-1e9, max_value=-1e-3)
names = st.from_regex(r"[A-Za-z0-9é°][A-Za-z0-9 é°/.,=-]{0,20}[A-Za-z0-9é°]", fullmatch=True).map(
    lambda text: " ".join(text.split())
)
media = st.sampled_from(
    [
        AIR,
        model_glass(1.5168, 64.17),
        model_glass(1.8467, 23.8),
        constant_index(1.6133114659206547),
        constant_index(1.33, "brine"),
        find_glass("N-BK7"),
        find_glass("S-FPL53"),
        find_glass("CaF2"),
        tabulated_glass("my glass", [486.1, 587.6, 656.3, 800.0, 1000.0], [1.63, 1.62, 1.617, 1.61, 1.605]),
        tabulated_glass("one line", [546.1], [1.52]),
    ]
)
terms = st.dictionaries(
    st.integers(2, 40), st.floats(-1.0, 1.0).filter(bool), max_size=6
).map(lambda d: tuple(sorted(d.items())))  # fmt: skip


def apertures(kind: str) -> st.SearchStrategy[Aperture]:
    return st.builds(Aperture, st.just(kind), st.floats(1e-3, 0.99) if kind == "object_na" else sizes)


@st.composite
def surfaces(draw) -> Surface:
    return Surface(
        radius=draw(radii),
        thickness=draw(lengths),
        medium=draw(media),
        semi_diameter=draw(st.none() | sizes),
        conic=draw(st.floats(-1e3, 1e3)),
        aspheric=draw(st.just(()) | terms),
        label=draw(st.just("") | names),
    )


@st.composite
def fields(draw, kind: str, count: int) -> Field:
    values = st.floats(-80.0, 80.0)
    return Field(kind, tuple((draw(values), draw(values)) for _ in range(count)))


@st.composite
def lenses(draw) -> Lens:
    parts = draw(st.lists(surfaces(), min_size=1, max_size=6))
    distance = draw(st.just(math.inf) | st.floats(1e-3, 1e9))
    kinds = ["stop_radius", "entrance_pupil_diameter", "f_number"]
    kind = draw(st.sampled_from(kinds if math.isinf(distance) else [*kinds, "object_na"]))
    field_kinds = ["angle_deg", "paraxial_image_height", "real_image_height"]
    field_kind = draw(st.sampled_from(field_kinds if math.isinf(distance) else [*field_kinds, "object_height"]))
    count = draw(st.integers(1, 4))
    wavelengths = draw(st.lists(st.floats(400.0, 700.0), min_size=1, max_size=4))
    lens = Lens(
        name=draw(names),
        surfaces=tuple(parts),
        stop=draw(st.integers(0, len(parts) - 1)),
        aperture=draw(apertures(kind)),
        field=draw(st.none() | fields(field_kind, count)),
        image_radius=draw(st.none() | sizes),
        object_distance=distance,
        object_medium=draw(media),
        wavelengths_nm=tuple(wavelengths),
        primary_wavelength=draw(st.integers(0, len(wavelengths) - 1)),
        patent=draw(st.just("") | names),
        image_format=draw(st.sampled_from(["", "aps-c"])),
    )
    states = []
    for name in draw(st.lists(names, max_size=3, unique=True)):
        indices = st.lists(st.integers(0, len(parts) - 1), unique=True).map(sorted)
        state = State(
            name=name,
            thickness=tuple((i, draw(lengths)) for i in draw(indices)),
            semi_diameter=tuple((i, draw(sizes)) for i in draw(indices)),
            object_distance=draw(st.none() | st.just(math.inf) | st.floats(1e-3, 1e9))
            if kind != "object_na" and field_kind != "object_height"
            else None,
            aperture=draw(st.none() | apertures(kind)),
            field=draw(st.none() | fields(field_kind, count)) if lens.field else None,
            image_radius=draw(st.none() | sizes),
        )
        states.append(_reduced(state, lens))
    return replace(lens, states=tuple(states))


def _reduced(state: State, lens: Lens) -> State:
    """A state holds what differs from the lens."""
    return replace(
        state,
        thickness=tuple((i, v) for i, v in state.thickness if v != lens.surfaces[i].thickness),
        semi_diameter=tuple((i, v) for i, v in state.semi_diameter if v != lens.surfaces[i].semi_diameter),
        object_distance=None if state.object_distance == lens.object_distance else state.object_distance,
        aperture=None if state.aperture == lens.aperture else state.aperture,
        field=None if state.field == lens.field else state.field,
        image_radius=None if state.image_radius == lens.image_radius else state.image_radius,
    )


@pytest.mark.parametrize(("write", "suffix"), FORMATS)
@given(lens=lenses())
@settings(max_examples=120, deadline=2000)
def test_any_lens(write, suffix: str, lens: Lens) -> None:
    assert parse_lens(write(lens).encode(), f"lens{suffix}") == lens


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
@pytest.mark.parametrize("suffix", [".json", ".zmx"])
def test_samples(path: Path, suffix: str, tmp_path: Path) -> None:
    lens = read_lens(path)
    write_lens(lens, tmp_path / f"written{suffix}")
    again = read_lens(tmp_path / f"written{suffix}")
    assert again == lens
    assert again.source == str(tmp_path / f"written{suffix}")
    assert [p.name for p in tmp_path.iterdir()] == [f"written{suffix}"]


def test_notes_survive_in_json(sample, tmp_path: Path) -> None:
    lens = sample("triplet.zmx")
    write_lens(lens, tmp_path / "a.json")
    assert read_lens(tmp_path / "a.json").notes == lens.notes != ()


def test_unicode_names_make_utf16(sample, tmp_path: Path) -> None:
    lens = replace(sample("doublet.json"), name="Objektiv für 35 mm, Ø 20 レンズ")
    write_lens(lens, tmp_path / "a.zmx")
    assert (tmp_path / "a.zmx").read_bytes().startswith(b"\xff\xfe")
    assert read_lens(tmp_path / "a.zmx") == lens


@pytest.mark.parametrize("suffix", [".json", ".zmx"])
def test_numbers_and_names_of_other_kinds(sample, tmp_path: Path, suffix: str) -> None:
    """NumPy's scalars are written as numbers, and no name can break a line of the file."""
    lens = sample("doublet.json")
    surfaces = tuple(
        replace(s, radius=np.float64(s.radius), thickness=np.float32(2.5), semi_diameter=np.float64(9.0))
        for s in lens.surfaces
    )
    odd = replace(lens, name="a\nSURF 0\ud800", surfaces=surfaces, stop=np.int64(1))
    write_lens(odd, tmp_path / f"a{suffix}")
    again = read_lens(tmp_path / f"a{suffix}")
    assert again.surfaces == odd.surfaces
    assert again.stop == 1
    assert again.name.startswith("a SURF 0")


def test_what_cannot_be_written(sample, tmp_path: Path) -> None:
    lens = sample("doublet.json")
    with pytest.raises(LensError, match=r"written as .*\.seq, not as \.txt"):
        write_lens(lens, tmp_path / "a.txt")
    with pytest.raises(LensError, match="cannot be written"):
        write_lens(lens, tmp_path / "absent" / "a.json")
    mixed = replace(lens, states=(State("a", aperture=Aperture("f_number", 2.0)),))
    with pytest.raises(LensError, match="one kind"):
        write_lens(mixed, tmp_path / "a.zmx")
    fields = replace(lens, states=(State("a", field=Field("angle_deg", ((0.0, 1.0),))),))
    with pytest.raises(LensError, match="field"):
        write_lens(fields, tmp_path / "a.zmx")
    strange = Medium("strange", 1.5, 60.0, 2, (0.0, 1.2, 0.01), (400.0, 700.0), "elsewhere")
    for suffix in (".json", ".zmx"):
        odd = replace(lens, surfaces=(lens.surfaces[0], replace(lens.surfaces[1], medium=strange), *lens.surfaces[2:]))
        with pytest.raises(LensError, match="surface 1: the medium 'strange'") as caught:
            write_lens(odd, tmp_path / f"a{suffix}")
        assert caught.value.surface == 1
    assert not list(tmp_path.iterdir())


def test_an_entrance_pupil_that_was_changed_elsewhere_counts(sample) -> None:
    text = zemax_text(sample("zoom.txt"))
    assert "FLOA" not in text
    written = next(line.split()[1] for line in text.splitlines() if line.startswith("ENPD"))
    again = parse_lens(text.replace(f"ENPD {written}", "ENPD 20.0").encode(), "lens.zmx")
    assert again.aperture == Aperture("entrance_pupil_diameter", 20.0)
    assert any("ENPD counts" in note for note in again.notes)


def test_our_remarks_are_checked(sample) -> None:
    text = zemax_text(sample("zoom.txt"))
    for old, new in [
        ("defocus:version 1", "defocus:version 2"),
        ("defocus:image_radius 21.6", "defocus:image_radius -1"),
        ("defocus:state 2 125.7mm\n", "defocus:stat 2 125.7mm\n"),
        ("NOTE 0 defocus:state 2 125.7mm\n", ""),
    ]:
        assert old in text
        with pytest.raises(LensError.__base__):
            parse_lens(text.replace(old, new).encode(), "lens.zmx")
