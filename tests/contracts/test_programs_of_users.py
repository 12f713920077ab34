"""Five programs as users write them: what they import, what comes out, and what they are told when they mistype.

The README shows them; `benchmarks/user_programs.py` times them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from defocus import Camera, DefocusError, Photograph, Psf, PsfBatch, load_lens, psfs
from defocus.stored_program import QUICK

PLAN = """
name = "small"
seed = 3
psf.kind = "gaussian"
[[sources]]
count = 6
names = ["table", "letters"]
[lenses]
only = ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*"]
survey = false
[patch]
size = 48
kernel = 32
photograph = [120, 80]
[limits]
coc_px = 12
samples = 1e6
"""


def test_one_psf(tmp_path: Path) -> None:
    camera = Camera(load_lens("zeiss-tessar-50-f3.5"), focus_m=2.0)
    psf = camera.psf(3.0, (0.3, 0.4))
    assert isinstance(psf, Psf)
    assert psf.array.shape == (3, 16, 16)  # red, green, blue; the window follows from the blur
    np.testing.assert_allclose(psf.array.sum((1, 2)), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(psf), psf.array)
    assert 0.5 < psf.report["relative_illumination"] < 1.0
    assert "f/3.5" in repr(camera)
    assert "16 × 16 pixels" in repr(psf)
    assert psf.plot().axes
    psf.save(str(tmp_path / "psf.npz"))
    with np.load(tmp_path / "psf.npz") as file:
        np.testing.assert_array_equal(file["psf"], psf.array)
    with pytest.raises(DefocusError, match="supersample"):
        camera.psf(3.0, supersmaple=3)
    with pytest.raises(AttributeError):
        camera.focus_m = 3.0  # type: ignore[misc]


def test_many_lenses_in_one_array() -> None:
    names = ["zeiss-tessar-50-f3.5", "leica-summicron-50-f2", "canon-rf-50-f1.2"]
    cameras = [Camera(load_lens(name), focus_m=2.0) for name in names]
    batch = psfs(cameras, 3.0, (0.3, 0.4), size=32)
    assert isinstance(batch, PsfBatch)
    assert batch.psf.shape == (3, 3, 32, 32)
    assert batch.ok.all()
    assert repr(batch) == "PsfBatch(3 of 3 PSFs, red, green, blue, 32 px)"
    spread = [report["blur_mm"] for report in batch.reports]
    assert spread[0] < spread[1] < spread[2]  # f/3.5, f/2, f/1.2
    alone = cameras[0].psf(3.0, (0.3, 0.4), size=32).array
    assert float(np.abs(batch.psf[0] - alone).sum((1, 2)).max()) < 1e-4


def test_a_picture_with_depth_in_memory() -> None:
    camera = Camera(load_lens("leica-summicron-50-f2"), focus_m=2.0, pixel_um=40.0)
    rgb = np.random.default_rng(1).random((48, 64, 3))  # linear light
    depth = np.full((48, 64), 2.0)
    depth[:, 32:] = 4.0
    photograph = camera.photograph(rgb, depth, sensor=False)
    assert isinstance(photograph, Photograph)
    blurred = photograph.blurred.linear
    assert blurred.shape == rgb.shape
    assert "64 × 48 pixels" in repr(photograph)
    in_focus, behind = blurred[8:-8, 8:24].std(), blurred[8:-8, 40:-8].std()
    assert behind < 0.5 * in_focus
    np.testing.assert_allclose(photograph.sharp.linear, rgb, rtol=1e-6)
    with pytest.raises(DefocusError, match="uint8"):
        camera.photograph((rgb * 255).astype(np.uint8), depth)


@pytest.mark.parametrize("form", ["settings", "plan", "file"])
def test_pairs_on_the_fly(form: str, tmp_path: Path) -> None:
    from defocus.restore import OnTheFlyDataset
    from defocus.synth import make_plan

    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    settings = tomllib.loads(PLAN)
    pairs = OnTheFlyDataset({"settings": settings, "plan": make_plan(settings), "file": file}[form], "train", 16)
    assert len(pairs) == 16
    assert "16 pairs" in repr(pairs)
    item = pairs[0]
    assert item["input"].shape == item["target"].shape == (3, 48, 48)
    assert float((item["input"] - item["target"]).abs().mean()) > 1e-3


def test_a_gradient_through_a_psf() -> None:
    """By a curvature and by the focus: trace, focus, pupil, fits and propagation, against finite differences."""
    camera = Camera(load_lens("zeiss-tessar-50-f3.5"), focus_m=2.0)

    def loss(curvature: Float[Array, ""], focus_m: Float[Array, ""]) -> Float[Array, ""]:
        changed = camera.at("curvature", 0, curvature).focused(focus_m)
        psf = changed.psf(3.0, (0.3, 0.2), size=16, bands="d", samples=256, supersample=3)
        return jnp.sum(psf.array[0] ** 2)

    at = (float(camera.optics.system.curvature[0]), 2.0)
    gradient = jax.grad(loss, argnums=(0, 1))(*at)  # outside of jax.jit: stored programs, there and back
    # Few values are wanted: a program that compiles in half the time or less, and runs half as fast.
    pure = jax.jit(loss, compiler_options=QUICK)  # the same function in double precision
    for k, reach in enumerate((6e-6, 3e-3)):
        # The slope of a polynomial through many points: which rays are traced depends on the lens in small steps, and
        # leaves noise of 1e-9 in the loss.
        steps = np.linspace(-1.0, 1.0, 25)
        values = [float(pure(*(jnp.asarray(v + reach * s * (i == k)) for i, v in enumerate(at)))) for s in steps]
        difference = np.polynomial.polynomial.polyfit(steps, values, 5)[1] / reach
        assert float(gradient[k]) == pytest.approx(difference, rel=1e-5), k


def test_a_gradient_takes_the_samples_that_its_blur_needs() -> None:
    """As many as a PSF that nobody differentiates; within `jit`, where blurs are unknown, all that a window holds."""
    camera = Camera(load_lens("zeiss-tessar-50-f3.5"), focus_m=2.0)

    def loss(depth_m: Float[Array, ""], **options: int) -> tuple[Float[Array, ""], dict[str, Any]]:
        psf = camera.psf(depth_m, (0.3, 0.2), size=16, bands="d", supersample=3, **options)
        return (psf.array**2).sum(), psf.report

    (value, report), slope = jax.value_and_grad(loss, has_aux=True)(2.3)
    engine = camera.psf(2.3, (0.3, 0.2), size=16, bands="d", supersample=3).report
    assert int(report["samples"]) == engine["samples"] == 384
    (fine_value, fine), fine_slope = jax.value_and_grad(loss, has_aux=True)(2.3, samples=1024)
    assert int(fine["samples"]) == 1024
    assert float(value) == pytest.approx(float(fine_value), rel=0.01)
    assert float(slope) == pytest.approx(float(fine_slope), rel=0.02)
    assert int(jax.jit(lambda depth_m: loss(depth_m)[1]["samples"])(2.3)) == 512
