"""Glass names and codes as lens files write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from defocus.errors import LensError, UnknownGlassError
from defocus.glass import AIR, catalogue_names, find_glass, parse_glass_code
from defocus.glass.catalogue import load_catalogue, name_key
from defocus.glass.lookup import ALIASES, CATALOGUES

SHARED = Path(__file__).parents[2].parent / "shared"

SPELLINGS = [
    # as written, catalogue, name there
    ("N-BK7", "schott", "N-BK7"),
    ("n-bk7", "schott", "N-BK7"),
    ("NBK7", "schott", "N-BK7"),
    ("NBK7_SCHOTT", "schott", "N-BK7"),
    ("nbk7_schott", "schott", "N-BK7"),
    ("N-BK7_SCHOTT", "schott", "N-BK7"),
    ("SCHOTT:N-BK7", "schott", "N-BK7"),
    ("SCHOTT_N-BK7", "schott", "N-BK7"),
    ("N-BK7 (SCHOTT)", "schott", "N-BK7"),
    (" 'N-BK7' ", "schott", "N-BK7"),
    ("NSK16", "schott", "N-SK16"),
    ("F2", "schott", "F2"),
    ("F2_HIKARI", "hikari", "F2"),
    ("F2_NIKON", "hikari", "F2"),
    ("SF5", "schott", "SF5"),
    ("SLAL8_OHARA", "ohara", "S-LAL8"),
    ("S-NBH 5", "ohara", "S-NBH5"),
    ("J-LAK14", "hikari", "J-LAK14"),
    ("E-LAFH3", "hikari", "E-LAFH3"),
    ("K-SSK1", "sumita", "K-SSK1"),
    ("k-lafk50", "sumita", "K-LaFK50"),
    ("LAC7", "hoya", "LAC7"),
    ("TAF3", "hoya", "TAF3"),
    ("H-ZF88", "cdgm", "H-ZF88"),
    ("H-K9L*", "cdgm", "H-K9Lstar"),
    ("B270", "schott", "B270"),
    ("CAF2", "crystal", "CaF2"),
    ("CAF2_DAIMON-20", "crystal", "CaF2-Daimon-20"),
    ("F_SILICA", "silica", "fused-silica"),
    ("SILICA", "silica", "fused-silica"),
    ("PMMA", "plastic", "PMMA"),
    ("POLYSTYR", "plastic", "polystyrene"),
    ("COC", "plastic", "COC"),
    ("E48R", "plastic", "ZEONEX-E48R"),
    ("WATER", "liquid", "water"),
    ("SEAWATER", "liquid", "seawater"),
]

SUBSTITUTIONS = [
    # as written, name that is taken, part of the note
    ("BK7", "N-BK7", "BK7 → N-BK7 (discontinued; nd differs by"),
    ("BK10", "N-BK10", "BK10 → N-BK10"),
    ("FK51", "N-FK51", "FK51 → N-FK51"),
    ("BAFN10", "N-BAF10", "BAFN10 → N-BAF10"),
    ("LAK10", "N-LAK10", "nd differs by +0.00003, vd by +0.21"),
    ("KZFS4", "KZFSN4", "KZFS4 → KZFSN4"),
    ("FD2_HOYA", "E-FD2", "FD2 → E-FD2"),
    ("LAFN21", "LAFN21", "nd 1.78831 and vd 47.39 as published"),
    ("SK19_Schott", "SK19", "nd 1.61342 and vd 57.41 as published"),
    ("SF53", "SF53", "nd 1.72830"),
    ("FK54", "FK54", "nd 1.43700"),
    ("BK1", "BK1", "nd 1.51009"),
    ("NBFD5", "NBFD5", "nd 1.76200"),
    ("FDS9", "FDS9", "nd 1.84666"),
    ("S-LAH98", "S-LAH98", "partial dispersion of TAFD45"),
    ("COC", "COC", "nd 1.53373"),
    ("C79-80", "fused-silica", "Corning 7980"),
    ("D-ZK3M", "D-ZK3", "moulding"),
    ("L-TIM28_MOLD", "L-TIM28", "moulding"),
    ("QUARTZ", "quartz-o", "ordinary ray"),
]


@pytest.mark.parametrize(("written", "catalogue", "name"), SPELLINGS)
def test_spellings(written, catalogue, name):
    medium = find_glass(written)
    assert (medium.catalogue, medium.name) == (catalogue, name)


@pytest.mark.parametrize(("written", "name", "note"), SUBSTITUTIONS)
def test_a_substitution_is_told(written, name, note):
    medium = find_glass(written)
    assert medium.name == name
    assert note in medium.note


def test_originals_are_preferred_to_successors():
    for name in (
        "F2",
        "F5",
        "K7",
        "K10",
        "SF1",
        "SF6",
        "SF11",
        "SF66",
        "LLF1",
        "KZFSN4",
        "LAFN7",
        "LASFN9",
        "BAFN6",
        "LF7",
    ):
        medium = find_glass(name)
        assert (medium.name, medium.catalogue, medium.note) == (name, "schott", "")


def test_every_glass_is_found_by_its_own_name():
    loaded = load_catalogue()
    for glass in loaded.glasses:
        medium = find_glass(glass.name, catalogue=glass.catalogue)
        assert (medium.name, medium.catalogue, medium.note) == (glass.name, glass.catalogue, "")
        assert medium.nd == pytest.approx(glass.nd, abs=1e-8)
        assert find_glass(f"{name_key(glass.name)}_{glass.catalogue.upper()}").name == glass.name


def test_every_published_glass_and_alias_is_found():
    for glass in load_catalogue().published.values():
        medium = find_glass(glass.name, catalogue=glass.catalogue)
        assert medium.note.startswith(glass.name)
        assert medium.catalogue == glass.catalogue
        assert medium.nd == pytest.approx(glass.nd, abs=5e-4)
        assert medium.vd == pytest.approx(glass.vd, abs=0.5)
        if not glass.successor:
            assert (medium.name, medium.nd, medium.vd) == (glass.name, glass.nd, glass.vd)
    for key, (catalogue, name, remark) in ALIASES.items():
        medium = find_glass(key)
        assert (medium.catalogue, medium.name) == (catalogue, name), key
        assert not remark or medium.note == remark
    assert {c for ours in CATALOGUES.values() for c in ours} == set(load_catalogue().catalogues)


def test_catalogue_and_preference():
    assert find_glass("SK16").catalogue == "schott"
    assert find_glass("SK16", preferred=["HIKARI", "SCHOTT"]).catalogue == "hikari"
    assert find_glass("SK16", preferred="hikari").catalogue == "hikari"
    assert find_glass("SK16", preferred=["MY_OWN", "OHARA_210226_CATALOG"]).catalogue == "schott"
    assert find_glass("SK16", catalogue="Nikon").catalogue == "hikari"
    assert find_glass("BK10").nd == pytest.approx(1.49782, abs=1e-5)  # SCHOTT's, not LZOS's of the same name
    assert find_glass("BK10", catalogue="lzos").nd == pytest.approx(1.5688, abs=1e-4)


def test_the_error_names_the_glass_and_similar_ones():
    with pytest.raises(UnknownGlassError) as caught:
        find_glass("N-BK77")
    assert str(caught.value) == (
        "no glass 'N-BK77' in any catalogue; similar names: N-BK7, " + str(caught.value).split("N-BK7, ")[1]
    )
    assert str(caught.value).endswith("give them instead, as nd:vd (1.5168:64.17)")
    with pytest.raises(UnknownGlassError, match="in the catalogue hoya"):
        find_glass("N-BK7", catalogue="hoya")
    with pytest.raises(UnknownGlassError, match="S-LAL18"):
        find_glass("S-LAL1_OHARA")
    with pytest.raises(UnknownGlassError, match=r"no glass catalogue 'zeiss'.*schott, ohara"):
        find_glass("N-BK7", catalogue="zeiss")


@settings(max_examples=150, deadline=None)
@given(st.text() | st.text("NSKFBLA-_0123456789 ()*:'", max_size=20) | st.sampled_from(["MOLD" * 5000, "_SCHOTT"]))
def test_any_text_gives_a_glass_or_unknown_glass(text):
    try:
        answer = find_glass(text).name
    except UnknownGlassError as error:
        answer = str(error)
    assert 0 < len(answer) < 600


@settings(max_examples=150, deadline=None)
@given(st.text() | st.from_regex(r"[0-9]{1,8}[.:][0-9]{1,8}([.:][0-9]{1,3})?", fullmatch=True))
@example("0.6:0")
def test_any_text_gives_a_glass_code_or_none(text):
    try:
        medium = parse_glass_code(text)
    except LensError:
        medium = None
    assert medium is None or 1.0 <= medium.nd <= 5.0


@pytest.mark.parametrize(
    ("code", "nd", "vd"),
    [
        ("517000.520000", 1.517, 52.0),
        ("500.700", 1.5, 70.0),
        ("569.631", 1.569, 63.1),
        ("516800.641673", 1.5168, 64.1673),
        ("001.291", 2.001, 29.1),
        ("333044.558", 1.333044, 55.8),
        ("1.5168:64.17", 1.5168, 64.17),
        ("1.9:35", 1.9, 35.0),
        (" 517.642 ", 1.517, 64.2),
    ],
)
def test_glass_codes(code, nd, vd):
    medium = parse_glass_code(code)
    assert medium is not None
    assert medium.name == code.strip()
    assert medium.nd == nd
    assert medium.vd == vd


@pytest.mark.parametrize("text", ["", "N-BK7", "1.5168", "1.5", "51.7", "517", "517642", "1,5:60", "٥١٧.٦٤٢", "1.5:"])
def test_what_is_no_glass_code(text):
    assert parse_glass_code(text) is None


def test_absurd_codes_are_refused():
    assert parse_glass_code("1.0:60.0") is AIR
    for text in ("517.05", "1.5168:641.7", "64.17:1.5168"):
        with pytest.raises(LensError, match="no glass has"):
            parse_glass_code(text)


def _glass_names_in_shared_files() -> Iterator[str]:
    """Names on GLAS lines, in the fourth column of S lines, and in the last column of Optical Bench lines."""
    folders = (SHARED / kind for kind in ("zmx", "seq", "opticalbench"))
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.is_file()):
        raw = path.read_bytes()
        text = raw.decode("utf-16") if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else raw.decode("utf-8", "replace")
        kind = path.relative_to(SHARED).parts[0]
        if kind == "zmx" and path.suffix.lower() == ".zmx":
            yield from re.findall(r"^\s*GLAS (\S+)", text, re.MULTILINE)
        elif kind == "seq" and path.suffix.lower() == ".seq":
            rows = [line.split(";")[0].split() for line in text.splitlines()]
            yield from (r[3] for r in rows if len(r) > 3 and r[0].upper() in ("S", "SO") and r[3] != "!")
        elif kind == "opticalbench":
            lens_data = text.split("[lens data]")[-1].split("[")[0]
            yield from (c[6].strip() for c in (row.split("\t") for row in lens_data.splitlines()) if len(c) > 6)


@pytest.mark.shared
def test_names_in_real_lens_files():
    if not SHARED.is_dir():
        pytest.skip("the reference data are not beside the checkout")
    names = set(_glass_names_in_shared_files()) - {"MIRROR", "REFL", "refl", "___BLANK", ""}
    private = {"'E48'"}  # defined by a PRV table in the file that uses it
    assert len(names) > 140
    for name in sorted(names - private):
        assert (parse_glass_code(name) or find_glass(name)).nd > 1.3


def test_catalogue_names_can_all_be_looked_up():
    for catalogue in load_catalogue().catalogues:
        for name in catalogue_names(catalogue)[::7]:
            assert find_glass(name, catalogue=catalogue).nd > 1.3
