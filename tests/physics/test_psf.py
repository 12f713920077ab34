"""PSFs against closed forms and their symmetries, on lenses whose PSF is known."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import j0, j1

from defocus import Camera
from defocus.errors import DefocusError, TraceError
from defocus.glass import constant_index
from defocus.lens import Aperture, Lens, Surface, load_lens
from defocus.optics.zernike import basis, chebyshev_nodes, to_chebyshev
from defocus.psf.bands import parse_bands
from defocus.psf.propagate import chirp_z, intensity_batch
from defocus.psf.pupil_function import PupilFunction

WAVELENGTH = 587.5618e-6  # mm
INDEX = 1.5


def perfect(focal_length: float, radius: float) -> Lens:
    """A plano-hyperbolic singlet: every ray from infinity on the axis meets in one point, with equal paths."""
    return Lens(
        name="perfect",
        surfaces=(
            Surface(thickness=3.0, medium=constant_index(INDEX), semi_diameter=radius),
            Surface(
                radius=-focal_length * (INDEX - 1.0),
                conic=-(INDEX**2),
                thickness=focal_length,
                semi_diameter=radius * 2,
            ),
        ),
        stop=0,
        aperture=Aperture("stop_radius", radius),
        image_radius=5.0,
    )


def point(
    lens: Lens, *, shift: float, pixel_um: float, size: int, **options: object
) -> tuple[np.ndarray, dict[str, object]]:
    psf = Camera(lens, pixel_um=pixel_um, sensor_shift_mm=shift).psf(math.inf, size=size, bands="d", **options)
    return psf.array[0].astype(float), psf.report


def test_airy_pattern() -> None:
    na = 3.0 / math.hypot(3.0, 100.0)
    pixel = 0.5
    psf, _ = point(perfect(100.0, 3.0), shift=0.0, pixel_um=pixel, size=129, supersample=1)
    r = (np.arange(129) - 64) * pixel * 1e-3
    v = 2.0 * np.pi * na * np.abs(r) / WAVELENGTH
    expected = np.where(v > 0, (2.0 * j1(np.maximum(v, 1e-9)) / np.maximum(v, 1e-9)) ** 2, 1.0)
    assert np.abs(psf[64] / psf[64, 64] - expected).max() < 1e-3
    around = np.abs(r - 0.61 * WAVELENGTH / na) < 2e-3
    zero = r[around][np.argmin(psf[64][around])]
    assert zero == pytest.approx(0.6098 * WAVELENGTH / na, abs=0.5e-3 * pixel)


def test_encircled_energy_of_the_airy_disc() -> None:
    """1 − J0² − J1², inside radii up to the second dark ring."""
    na = 3.0 / math.hypot(3.0, 100.0)
    pixel, size, fine = 0.25e-3, 201, 8
    psf, report = point(perfect(100.0, 3.0), shift=0.0, pixel_um=pixel * 1e3, size=size, supersample=3)
    x = ((np.arange(size * fine) + 0.5) / fine - 0.5 - size // 2) * pixel
    r = np.hypot(*np.meshgrid(x, x))
    for v in (2.0, 3.8317, 5.0, 7.0156):
        inside = r < v * WAVELENGTH / (2.0 * np.pi * na)
        part = inside.reshape(size, fine, size, fine).mean(axis=(1, 3))  # of each pixel
        share = (psf * part).sum() * (1.0 - float(report["energy_outside"]))
        assert share == pytest.approx(1.0 - j0(v) ** 2 - j1(v) ** 2, abs=1e-3)


def test_defocus_on_the_axis_follows_lommel() -> None:
    """sinc² of the path difference between rim and axis, and (f / (f + z))² for the way that the light has to go."""
    focal, radius = 100.0, 2.0
    lens = perfect(focal, radius)
    peak = None
    for shift in (0.0, 0.5, 1.0, 1.5):
        psf, report = point(lens, shift=shift, pixel_um=1.0, size=129, supersample=1)
        centre = psf[64, 64] * (1.0 - float(report["energy_outside"]))
        peak = centre if peak is None else peak
        # A sphere about the focus, seen from the axis `shift` behind it: the way from its rim less that from its pole.
        depth = focal - math.sqrt(focal**2 - radius**2)
        rim = math.hypot(radius, focal - depth + shift)
        path = rim - (focal + shift)
        expected = (focal / (focal + shift)) ** 2 * float(np.sinc(path / WAVELENGTH)) ** 2
        assert centre / peak == pytest.approx(expected, abs=1e-3)


def test_parseval_and_doubling() -> None:
    lens = perfect(50.0, 10.0)
    psf, report = point(lens, shift=0.2, pixel_um=2.0, size=97)
    twice, _ = point(lens, shift=0.2, pixel_um=2.0, size=97, samples=2 * int(report["samples"]))
    assert abs(float(report["energy_outside"])) < 5e-3
    assert np.abs(psf - twice).sum() < 1e-3


def test_the_axis_is_symmetric() -> None:
    psf, _ = point(perfect(50.0, 10.0), shift=0.2, pixel_um=2.0, size=97)
    for other in (psf[::-1], psf[:, ::-1], psf.T):
        assert np.abs(psf - other).sum() < 1e-4


def test_single_precision_agrees_with_double() -> None:
    lens = perfect(50.0, 10.0)
    exact, _ = point(lens, shift=0.2, pixel_um=2.0, size=97, double=True)
    psf, _ = point(lens, shift=0.2, pixel_um=2.0, size=97)
    assert np.abs(psf - exact).sum() < 1e-3


def tilted(axis: int) -> PupilFunction:
    """A round pupil with W = a·s_x, or a·s_y."""
    half = 0.05
    u, v = chebyshev_nodes(15)
    amplitude = to_chebyshev(jnp.ones(81), 8)
    tilt = 0.02  # mm
    phase = to_chebyshev(jnp.asarray((u, v)[axis] * half * tilt / WAVELENGTH), 15)
    return PupilFunction(
        centre=jnp.zeros(2),
        half=jnp.full(2, half),
        phase=phase,
        amplitude=amplitude,
        rim=jnp.full(1025, half),
        pupil_centre=jnp.zeros(2),
        meridian=jnp.array([0.0, 1.0]),
        wavelength=jnp.array(WAVELENGTH),
        bend=jnp.zeros(2),
        side=jnp.zeros(()),
        split=jnp.zeros(()),
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_a_tilt_moves_the_image(axis: int) -> None:
    """W = a·s_x brings the light to x = −a."""
    pupils, pixel = jax.tree.map(lambda leaf: leaf[None], (tilted(axis), jnp.array(2e-3)))
    picture = np.asarray(intensity_batch(pupils, pixel, samples=256, size=65).pixels[0])
    row, column = np.unravel_index(picture.argmax(), picture.shape)
    moved = (column - 32, 32 - row)[axis], (32 - row, column - 32)[axis]
    assert moved == (-10, 0)


def test_the_chirp_z_transform_is_the_matrix_product() -> None:
    pupils, pixel = jax.tree.map(lambda leaf: leaf[None], (tilted(0), jnp.array(2e-3)))
    options = {"samples": 256, "size": 65}
    product, chirp = (
        np.asarray(intensity_batch(pupils, pixel, **options, **how).pixels[0]) for how in ({}, {"transform": chirp_z})
    )
    assert np.abs(product - chirp).sum() < 1e-4 * product.sum()


def test_zernike_modes_are_orthonormal() -> None:
    g = np.linspace(-1.0, 1.0, 401)
    x, y = np.meshgrid(g, g)
    disk = x**2 + y**2 <= 1.0
    b = np.asarray(basis(jnp.asarray(x[disk]), jnp.asarray(y[disk]), 8))
    assert np.abs(b.T @ b / disk.sum() - np.eye(b.shape[1])).max() < 0.02


@pytest.fixture(scope="module")
def off_axis() -> dict[float, np.ndarray]:
    lens = load_lens("leica-summilux-35-f1.4")
    azimuths = [0.0, math.pi / 2.0, math.radians(37.0), math.radians(127.0)]
    fields = [(0.8 * math.cos(a), 0.8 * math.sin(a)) for a in azimuths]
    batch = Camera(lens, focus_m=2.0, pixel_um=8.0).psfs(4.0, fields, 33, "d")
    assert batch.ok.all(), batch.reports
    return dict(zip(azimuths, batch.psf[:, 0].astype(float), strict=True))


def test_a_turned_field_gives_the_turned_psf(off_axis: dict[float, np.ndarray]) -> None:
    right, up, slanting, further = off_axis.values()
    assert np.abs(np.rot90(right) - up).sum() < 2e-3
    assert np.abs(np.rot90(slanting) - further).sum() < 2e-3


def test_vignetting_points_away_from_the_edge_in_all_four_corners(off_axis: dict[float, np.ndarray]) -> None:
    """The blur is symmetric about the line to the centre of the photograph, and not along it."""
    right = off_axis[0.0]
    assert np.abs(right - right[::-1]).sum() < 2e-3
    assert np.abs(right - right[:, ::-1]).sum() > 0.1


def test_camera_reports_and_refuses() -> None:
    camera = Camera(load_lens("leica-summilux-35-f1.4"), focus_m=2.0)
    seen = camera.psf(4.0, (0.5, 0.3), size=48, bands="d")
    assert seen.array.shape == (1, 48, 48)
    assert seen.array.sum() == pytest.approx(1.0, abs=1e-5)
    assert {"samples", "sampling_bound", "residual_waves", "energy_outside", "relative_illumination"} <= set(
        seen.report
    )
    assert 0.1 < seen.report["relative_illumination"] < 1.0
    with pytest.raises(TraceError, match="outside 8 pixels; a window of about"):
        camera.psf(0.5, (0.0, 0.0), size=8, bands="d")
    with pytest.raises(DefocusError, match="outside the image circle"):
        camera.psf(4.0, (1.0, 1.0))
    with pytest.raises(DefocusError, match="wider than its full aperture"):
        Camera(load_lens("leica-summilux-35-f1.4"), f_number=0.9)


def test_holes_of_a_few_wavelengths_are_refused() -> None:
    lens = load_lens("leica-summilux-35-f1.4")
    data = Camera(lens).first_order
    limit = math.floor(float(data.stop_radius * data.f_number) / 5.875618e-3)
    assert float(Camera(lens, f_number=float(limit)).f_number) == pytest.approx(limit)
    with pytest.raises(DefocusError, match=f"leaves a hole of a few wavelengths.* f/{limit} at most"):
        Camera(lens, f_number=1.001 * limit)


def test_stopping_down_shrinks_the_blur() -> None:
    lens = load_lens("leica-summilux-35-f1.4")
    options = {
        "size": 129,
        "bands": "d",
        "supersample": 1,
        "samples": 128,
    }  # the rays tell their blur, however sampled
    wide, narrow = (Camera(lens, focus_m=2.0, f_number=f).psf(8.0, **options) for f in (None, 4.0))
    assert narrow.report["blur_mm"] < 0.5 * wide.report["blur_mm"]


def test_bands() -> None:
    assert parse_bands("d").wavelengths_nm == ((587.5618,),)
    assert parse_bands("rgb").names == ("red", "green", "blue")
    full, plain = parse_bands("rgb-full"), parse_bands("rgb")
    assert [len(waves) for waves in full.wavelengths_nm] == [3, 3, 3]
    assert full.mean_nm == pytest.approx(plain.mean_nm)
    assert parse_bands("486.1,656.3").mean_nm == (486.1, 656.3)
    with pytest.raises(DefocusError, match="expected 'd', 'rgb'"):
        parse_bands("purple")
