"""Light waves integrated over pixels: what ever more points per pixel come to."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus import Camera
from defocus.lens import load_lens
from defocus.psf.pixel_integral import is_cheaper, pixel_intensity
from defocus.psf.propagate import intensity
from defocus.stored_program import QUICK

LENS = "zeiss-tessar-50-f3.5"


@pytest.mark.parametrize("field", [(0.0, 0.0), (0.8, 0.3)])
def test_points_converge_to_the_integral(field: tuple[float, float]) -> None:
    camera = Camera(load_lens(LENS), focus_m=2.0, pixel_um=20.0)
    pupil = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), camera.wavefronts([2.2], [field], "d").pupil)

    def at_pixels(function: Any, **options: Any) -> Any:
        # One program instead of hundreds, each for one sum.
        run = jax.jit(partial(function, samples=256, size=16, **options), compiler_options=QUICK)
        return run(pupil, jnp.array(20e-3))

    whole = at_pixels(pixel_intensity)
    errors = {}
    for points in (5, 15, 45):
        summed = at_pixels(intensity, supersample=points)
        errors[points] = float(np.abs(summed.pixels - whole.pixels).sum())
    # Fringes of 2 µm: five points on a pixel of 20 miss them, and 45 leave what the slant moves between thirds of one.
    assert errors[5] > 10 * errors[45]
    assert errors[45] < 1e-3
    assert float(whole.inside) == pytest.approx(float(summed.inside), abs=1e-4)
    assert float(whole.light) == pytest.approx(float(summed.light))
    assert float(whole.strehl) == pytest.approx(float(summed.strehl), rel=0.1)  # each between its own points
    double = at_pixels(pixel_intensity, dtype=jnp.dtype(jnp.float64))
    assert float(np.abs(whole.pixels - double.pixels).sum()) < 1e-5


def test_it_is_taken_where_points_cost_more() -> None:
    samples = np.array([768, 1024, 1024, 4096, 8192])
    points = np.array([5, 5, 25, 9, 9])
    assert is_cheaper(samples, points, 64).tolist() == [False, False, True, False, False]
    assert is_cheaper(samples, points, 256).tolist() == [True, True, True, True, False]
    assert not is_cheaper(samples, np.zeros_like(points), 256).any()  # rays
