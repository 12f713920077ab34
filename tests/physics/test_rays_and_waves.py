"""PSFs of rays with the diffraction of the pupil's edge, against light waves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus import Camera, load_lens, psfs
from defocus.psf import Psf
from defocus.psf.propagate import _program
from defocus.psf.pupil_function import _angle
from defocus.psf.ray_density import _edge_light, needed_cells


@pytest.fixture(scope="module")
def camera() -> Camera:
    return Camera(load_lens("zeiss-planar-50-f1.4"), focus_m=2.0, pixel_um=36.0)


def _off(a: Psf, b: Psf) -> float:
    return float(np.abs(np.asarray(a.array) - np.asarray(b.array)).sum((1, 2)).max())


@pytest.mark.parametrize(("depth_m", "field", "side"), [(0.8, (0.3, 0.4), None), (1.2, (0.0, 0.0), "left")])
def test_rays_agree_with_waves(camera: Camera, depth_m: float, field: tuple[float, float], side: str | None) -> None:
    fast = camera.psf(depth_m, field, 64, "d", side=side)
    exact = camera.psf(depth_m, field, 64, "d", side=side, exact=True)
    assert fast.report["propagation"] == "rays" != exact.report["propagation"]
    assert fast.report["ray_error"] <= 0.01
    assert _off(fast, exact) < 0.02
    # Not for want of contrast: the whole picture turned around or moved by half a pixel is far off.
    turned, moved = (np.asarray(exact.array)[:, ::-1, ::-1], np.roll(np.asarray(exact.array), 1, 2))
    blurry = (np.asarray(exact.array) + moved) / 2.0
    assert np.abs(np.asarray(fast.array) - blurry).sum() > 3.0 * _off(fast, exact)
    assert np.abs(np.asarray(fast.array) - turned).sum() > 3.0 * _off(fast, exact)
    assert fast.report["light_mm2"] == pytest.approx(exact.report["light_mm2"], rel=1e-3)
    assert fast.report["energy_outside"] == pytest.approx(exact.report["energy_outside"], abs=0.01)


def test_light_behind_a_straight_edge() -> None:
    """Fresnel's numbers: a quarter on the edge, 1.370 at its first fringe, all of it far inside, none in the dark."""
    xi = np.array([-11.0, 0.0, 1.2172, 11.9])
    edge_light = jax.jit(_edge_light)
    light = np.asarray(edge_light(jnp.asarray(xi), 1e-2))
    assert light[:3] == pytest.approx([0.0, 0.25, 1.3704], abs=3e-3)
    assert light[3] == pytest.approx(1.0, abs=0.04)  # a fringe there still has a contrast of 1 / 12π
    cells = jnp.asarray(np.arange(-11.75, 11.8, 0.5))
    # What the shadow has, the fringes lack: all the light is there.
    assert float(edge_light(cells, 0.5).sum()) * 0.5 == pytest.approx(12.0, abs=0.02)


def test_near_the_focus_light_waves_are_taken(camera: Camera) -> None:
    batch = psfs(camera, [2.0, 1.2, 1.1], size=64, bands="d")
    rays = [report["propagation"] == "rays" for report in batch.reports]
    assert rays == [False, True, True]
    errors = [report["ray_error"] for report in batch.reports]
    assert errors[0] > 0.01 >= max(errors[1:])
    assert batch.psf.sum((2, 3)) == pytest.approx(1.0, abs=1e-5)
    assert psfs(camera, [1.2], size=64, bands="d", samples=2048).reports[0]["propagation"] != "rays"


def test_angles_in_single_precision() -> None:
    turn = np.linspace(-np.pi, np.pi, 721)
    y, x = (np.array([[1e-6], [0.3], [40.0]]) * v for v in (np.sin(turn), np.cos(turn)))
    y, x = np.float32(y), np.float32(x)
    np.testing.assert_allclose(_angle(jnp.asarray(y), jnp.asarray(x)), np.arctan2(y, x), atol=1e-6)
    assert float(_angle(jnp.float32(0.0), jnp.float32(0.0))) == 0.0


def test_cells_of_a_blur_are_no_larger_than_pixels_and_fine_at_its_rim() -> None:
    radius = np.array([2.0, 20.0, 300.0])
    cells = needed_cells(radius)
    assert (2.0 * radius / cells < 1.0).all()
    assert (10.0 * radius / cells**2 < 0.004).all()


def test_one_program_of_rays_serves_all_windows(camera: Camera) -> None:
    large = camera.psf(1.2, (0.0, 0.0), 64, "d")
    programs = _program.cache_info().currsize
    small = camera.psf(1.2, (0.0, 0.0), 41, "d")
    assert small.report["propagation"] == "rays"
    assert _program.cache_info().currsize == programs
    middle = np.asarray(large.array)[:, 12:53, 12:53]
    np.testing.assert_allclose(small.array, middle / middle.sum(), rtol=1e-5, atol=1e-9)
