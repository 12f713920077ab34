"""What lens people look at: closed forms of MTF, foci and spots, and that sagittal and tangential are what they say."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from defocus import Camera, DefocusError
from defocus.analysis import Analysis
from defocus.analysis.pupil_overlap import chord_ends
from defocus.draw.analysis_card import monotone_curve
from defocus.psf.bands import Bands
from defocus.psf.pupil_function import sample_pupil

from .samples import INF, double_gauss, lens
from .test_psf import perfect

FIELDS = (0.0, 0.35, 0.7)


@pytest.fixture(scope="module")
def gauss() -> Analysis:
    return Analysis(Camera(double_gauss(), sensor_shift_mm=0.0), fields=FIELDS)


@pytest.fixture(scope="module")
def green(gauss: Analysis) -> Analysis:
    """The double Gauss at one wavelength."""
    return Analysis(gauss.camera, fields=FIELDS, bands=Bands(("main",), ((555.0,),), ((1.0,),)))


@pytest.fixture(scope="module")
def flawless() -> Analysis:
    """On the axis of a perfect lens; out of focus for spots."""
    return Analysis(Camera(perfect(100.0, 3.0), sensor_shift_mm=0.0), fields=(0.0,))


def test_mtf_of_a_perfect_lens(flawless: Analysis) -> None:
    na = np.sqrt(flawless.wavefronts.wavefront.area[0] / math.pi)
    frequency = np.linspace(0.0, 110.0, 12)
    q = np.minimum(frequency[:, None] * flawless.wavelengths_nm * 1e-6 / (2.0 * na), 1.0)
    closed = 2.0 / math.pi * (np.arccos(q) - q * np.sqrt(1.0 - q**2)) @ flawless.weights
    mtf = flawless.mtf(frequency.tolist())
    for curve in (mtf.sagittal[0], mtf.tangential[0]):
        np.testing.assert_allclose(curve, closed, rtol=0.0, atol=1e-3)
    assert flawless.encircled_energy().strehl[0] == pytest.approx(1.0, abs=2e-3)


def test_mtf_is_the_autocorrelation_of_the_sampled_pupil(gauss: Analysis, green: Analysis) -> None:
    row, wave, cells = 2, 2, 1024
    pupil = jax.tree.map(lambda leaf: leaf[row, wave], gauss.wavefronts.pupil)
    field, energy, _ = map(np.asarray, sample_pupil(jax.tree.map(jnp.asarray, pupil), cells))
    for axis, name in ((1, "sagittal"), (0, "tangential")):
        steps = 18
        frequency = steps * 2.0 * pupil.half[1 - axis] / cells / pupil.wavelength
        ahead, behind = np.delete(field, range(steps), axis), np.delete(field, range(cells - steps, cells), axis)
        value = abs(np.vdot(behind, ahead)) / energy
        curve = getattr(green.mtf([float(frequency)]), name)
        assert curve[row, 0] == pytest.approx(value, abs=1e-3)


def test_chords_end_at_the_rim_also_beyond_a_dent() -> None:
    turn = np.linspace(-np.pi, np.pi, 4097)
    u, v = np.cos(turn), np.sin(turn)
    at = np.linspace(-0.99, 0.99, 45)
    for end, sign in zip(chord_ends(u, v, at), (-1.0, 1.0), strict=True):
        np.testing.assert_allclose(end, sign * np.sqrt(1.0 - at**2), atol=1e-5)
    dented = np.where((np.abs(v) < 0.6) & (u < 0.0), -0.7 - 0.1 * np.abs(v) / 0.6, u)  # its corners at u = −0.8
    low, high = chord_ends(dented, v, np.array([-0.78, 0.0]))
    np.testing.assert_allclose(high, np.sqrt(1.0 - np.array([0.78, 0.0]) ** 2), atol=1e-5)
    np.testing.assert_allclose(low, -high, atol=1e-5)


def test_sagittal_and_tangential_patterns_are_sharp_at_their_own_foci() -> None:
    slow = lens("singlet", [(60.0, 3.0, 1.5), (-60.0, 1.0, 1.0), (INF, 57.0, 1.0)], 2, 0.8, image_radius=14.0)
    analysis = Analysis(Camera(slow, sensor_shift_mm=0.0), fields=FIELDS)
    foci = analysis.field_curvature()
    shift = np.linspace(-4.0, 0.5, 46)
    curves = analysis.through_focus(20.0, shift.tolist(), None)
    for focus, mtf in ((foci.sagittal_mm, curves.sagittal), (foci.tangential_mm, curves.tangential)):
        assert shift[np.argmax(mtf[2])] == pytest.approx(focus[2, 2], abs=0.15)
    assert foci.astigmatism_mm[2, 2] < -0.4  # the tangential focus lies nearer to the lens


def test_through_focus_agrees_with_a_sensor_that_was_moved(gauss: Analysis) -> None:
    moved = Analysis(gauss.camera.shifted(0.08), fields=FIELDS)
    here, there = gauss.through_focus(30.0, [0.08], None), moved.mtf([30.0])
    np.testing.assert_allclose(here.sagittal, there.sagittal, rtol=0.0, atol=1e-3)
    np.testing.assert_allclose(here.tangential, there.tangential, rtol=0.0, atol=1e-3)


def test_foci_of_one_surface_are_coddingtons() -> None:
    n, r = 1.5, 30.0
    ball = lens("ball", [(r, n * r / (n - 1.0), n)], 0, 0.5, image_radius=20.0)
    foci = Analysis(Camera(ball, sensor_shift_mm=0.0), fields=FIELDS).field_curvature()
    sine = np.sin(np.arctan(foci.field_mm / (n * r / (n - 1.0))))  # behind the surface, whose vertex is the stop
    cosine, before = np.sqrt(1.0 - sine**2), np.sqrt(1.0 - (n * sine) ** 2)
    power = (n * cosine - before) / r
    np.testing.assert_allclose(foci.sagittal_mm[:, 0], n / power * cosine - n * r / (n - 1.0), atol=1e-9)
    np.testing.assert_allclose(foci.tangential_mm[:, 0], n * cosine**3 / power - n * r / (n - 1.0), atol=1e-9)


def test_spots_out_of_focus(flawless: Analysis) -> None:
    blurred = Analysis(flawless.camera.shifted(20.0), fields=(0.0,))
    spots, energy = blurred.spot_sizes(), blurred.encircled_energy()
    radius = 20.0 * math.tan(math.asin(float(blurred.camera.first_order.na)))
    assert spots.rms_mm[0] == pytest.approx(radius / math.sqrt(2.0), rel=1e-3)
    assert spots.best_focus_mm[0] == pytest.approx(-20.0, abs=1e-2)
    inside = np.minimum((energy.radius_mm / radius) ** 2, 1.0)
    np.testing.assert_allclose(energy.geometric[0], inside, atol=0.08)  # rings of rays
    np.testing.assert_allclose(energy.diffraction[0], inside, atol=0.06)  # fringes


def test_light_in_circles_of_sharp_and_blurred_fields_together(green: Analysis) -> None:
    """One axis of radii for all: the cells of the sharpest field are several times as wide as its Airy disc."""
    energy = green.encircled_energy()
    assert energy.diffraction.max() <= 1.001
    np.testing.assert_allclose(energy.diffraction[:, 20:], energy.geometric[:, 20:], atol=0.03)
    assert (np.diff(energy.diffraction, axis=1) > -1e-6).all()


def test_light_and_heights_over_the_field(gauss: Analysis) -> None:
    light, bent, colour = gauss.illumination(), gauss.distortion(), gauss.lateral_colour()
    assert light.unvignetted[0] == pytest.approx(1.0, abs=1e-6)
    assert light.relative[0] == 1.0
    assert light.relative[2] < light.unvignetted[2] < 1.0
    np.testing.assert_allclose(bent.field_mm, gauss.field_mm, atol=1e-6)
    assert 0.0 < abs(bent.percent[2]) < 3.0
    assert (colour.shift_mm[:, gauss.main] == 0.0).all()
    fans = gauss.ray_fans(None)
    slope = np.gradient(fans.opd_waves[1, 2, 1] * 555e-6, fans.pupil[1, 2, 1])
    inner = slice(4, -4)  # a ray lands where the slope of its optical path tells it to
    assert np.corrcoef(fans.transverse_mm[1, 2, 1, inner], slope[inner])[0, 1] > 0.995


def test_a_field_without_light_has_no_numbers() -> None:
    front = lens("tube", [(INF, 70.0, 1.0, 0.0, {}, 3.0), (50.0, 3.0, 1.5), (INF, 98.0, 1.0)], 1, 3.0, 30.0)
    analysis = Analysis(Camera(front, sensor_shift_mm=0.0), fields=FIELDS)
    assert analysis.lit.tolist() == [True, False, False]
    assert np.isnan(analysis.mtf().tangential[1:]).all()
    assert np.isnan(analysis.spot_sizes().rms_mm[1:]).all()
    assert analysis.illumination().numbers()["relative"] == [1.0, None, None]


def test_fields_and_bands_that_are_none() -> None:
    camera = Camera(double_gauss())
    with pytest.raises(DefocusError, match="fractions of the image radius from 0"):
        Analysis(camera, fields=(0.5, 1.0))


@pytest.mark.parametrize("points", [3, 4, 17])
def test_drawn_curves_are_scipys_monotone_cubics(points: int) -> None:
    random = np.random.default_rng(points)
    x = np.cumsum(random.random(points) + 0.05)
    fine = np.linspace(x[0], x[-1], 121)
    for y in (random.normal(size=points), np.cumsum(random.random(points)), np.round(random.normal(size=points))):
        np.testing.assert_allclose(monotone_curve(x, y, fine), PchipInterpolator(x, y)(fine), atol=1e-12)
