"""What a camera's PSFs can do: sampling, irises, half pupils, other methods, Zemax."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from defocus.errors import TraceError
from defocus.lens import Lens, load_lens
from defocus.lens.formats import read_lens
from defocus.psf.baselines import fraunhofer
from defocus.render import Blades, Camera

from .zemax import relative_l1


@pytest.fixture(scope="module")
def summicron() -> Lens:
    return load_lens("leica-summicron-50-f2")


def share(psf: np.ndarray, inside: np.ndarray) -> float:
    return float(psf[inside].sum() / psf.sum())


def centre_of(psf: np.ndarray) -> tuple[float, float]:
    """(x, y) in pixels from pixel size // 2, x to the right and y up."""
    k = np.arange(len(psf)) - len(psf) // 2
    return float((psf.sum(axis=0) * k).sum() / psf.sum()), float(-(psf.sum(axis=1) * k).sum() / psf.sum())


def corner(psf: np.ndarray, corners: int) -> float:
    """Direction of a corner of the bright polygon, degrees from the right, within one part of the turn."""
    bright = np.where(psf > 0.3 * np.quantile(psf[psf > 0.1 * psf.max()], 0.5), 1.0, 0.0)
    x, y = centre_of(bright)
    k = np.arange(len(psf)) - len(psf) // 2
    xx, yy = np.meshgrid(k - x, -k - y)
    moment = np.sum(bright * (xx + 1j * yy) ** corners)
    return float(np.degrees(np.angle(moment)) / corners % (360.0 / corners))


@pytest.mark.parametrize("size", [32, 33])
def test_the_point_sits_in_the_middle_pixel(summicron: Lens, size: int) -> None:
    psf = Camera(summicron, focus_m=2.0).psf(2.0, size=size, bands="d").array[0]
    assert np.unravel_index(np.argmax(psf), psf.shape) == (size // 2, size // 2)
    assert np.hypot(*centre_of(psf)) < 0.01


def test_points_per_pixel_are_enough(summicron: Lens) -> None:
    """In focus on large pixels, five points per pixel would miss the Airy disc or count it several times."""
    camera = Camera(summicron, focus_m=2.0, f_number=4.0)
    psf = camera.psf(2.0, size=32, bands="d")
    finer = camera.psf(2.0, size=32, bands="d", supersample=45, sampling=768)
    assert psf.report["supersample"] > 5
    assert np.abs(psf.array - finer.array).sum() < 0.01
    assert abs(psf.report["energy_outside"] - finer.report["energy_outside"]) < 1e-3


def test_an_iris_has_corners(summicron: Lens) -> None:
    """Foreground blur shows the polygon upright, background blur turned by 180°; its area is the round stop's."""
    blades = Blades(5, rotation_deg=90.0)
    camera = Camera(summicron, focus_m=2.0, f_number=2.8, blades=blades, pixel_um=4.0)
    round_stop = Camera(summicron, focus_m=2.0, f_number=2.8, pixel_um=4.0)
    options = {"size": 97, "bands": "d", "sampling": 768}
    near, far = (camera.psf(depth, **options) for depth in (1.6, 2.7))
    assert near.report["light_mm2"] == pytest.approx(round_stop.psf(1.6, **options).report["light_mm2"], rel=5e-3)
    assert corner(near.array[0], 5) == pytest.approx(90.0 % 72.0, abs=2.0)
    assert corner(far.array[0], 5) == pytest.approx((90.0 + 180.0) % 72.0, abs=2.0)


def test_an_iris_keeps_its_orientation_over_the_field(summicron: Lens) -> None:
    """The blades are fixed to the camera: at a field to the right the corner still points up."""
    camera = Camera(summicron, focus_m=2.0, f_number=5.6, blades=Blades(3, rotation_deg=90.0), pixel_um=2.0)
    for field in ((0.0, 0.0), (0.3, 0.0), (0.0, -0.3)):
        psf = camera.psf(1.7, field, size=97, bands="d", sampling=768).array[0]
        assert corner(psf, 3) == pytest.approx(90.0, abs=4.0)


def test_half_the_lens_gives_half_the_blur(summicron: Lens) -> None:
    """Light of the right half of the lens, seen from behind, falls right for points beyond the focus."""
    camera = Camera(summicron, focus_m=2.0)
    for depth, sign in ((4.0, 1.0), (1.3, -1.0)):
        whole, left, right = (camera.psf(depth, size=48, bands="d", side=s) for s in (None, "left", "right"))
        assert sign * centre_of(right.array[0])[0] > 2.0
        assert centre_of(left.array[0])[0] == pytest.approx(-centre_of(right.array[0])[0], abs=1e-3)
        assert np.abs(left.array[0][:, 1:] - right.array[0][:, :0:-1]).sum() < 1e-3
        both = left.report["light_mm2"] + right.report["light_mm2"]
        assert both == pytest.approx(whole.report["light_mm2"], rel=1e-3)
        assert np.abs((left.array + right.array) / 2.0 - whole.array).sum() < 0.1


def test_the_huygens_sum_agrees(summicron: Lens) -> None:
    """Nothing fitted, and at an azimuth along no axis."""
    camera = Camera(summicron, focus_m=2.0, pixel_um=8.0)
    options = {"size": 8, "bands": "d", "supersample": 3}
    exact = camera.psf(2.08, (0.3, 0.4), method="huygens", **options).array
    fast = camera.psf(2.08, (0.3, 0.4), **options)
    assert np.abs(fast.array - exact).sum() < 1e-3
    assert np.abs(fast.array - exact[..., ::-1]).sum() > 0.5  # its shape tells the sides apart
    assert fast.report["residual_waves"] < 1e-5


def test_baselines(summicron: Lens) -> None:
    camera = Camera(summicron, focus_m=2.0)
    radius = camera.circle_of_confusion_px(3.0)
    k = np.arange(33) - 16.0
    xx, yy = np.meshgrid(k, k)
    made = {
        m: camera.psf(3.0, size=33, bands="d", method=m).array[0].astype(float)
        for m in ("gaussian", "disk", "fraunhofer")
    }
    for psf in made.values():
        assert psf.sum() == pytest.approx(1.0, abs=1e-5)
        assert np.hypot(*centre_of(psf)) < 1e-3
        assert np.abs(psf - psf.T).max() < 1e-5
    assert (made["gaussian"] * xx**2).sum() == pytest.approx((radius / 2.0) ** 2 + 1.0 / 12.0, rel=2e-3)
    assert (made["disk"] * (xx**2 + yy**2)).sum() == pytest.approx(radius**2 / 2.0 + 1.0 / 6.0, rel=1e-2)
    assert made["disk"].max() == pytest.approx(1.0 / (np.pi * radius**2), rel=2e-3)
    # The Fraunhofer pattern spreads over the same disc.
    assert share(made["fraunhofer"], np.hypot(xx, yy) < radius + 1.0) > 0.97
    assert np.abs(made["fraunhofer"] - made["disk"]).sum() < 0.35


def test_fraunhofer_in_focus_is_airy() -> None:
    psf = fraunhofer(0.05, 0.0, 587.5618, 1.0, 65)
    k = np.arange(65) - 32.0
    inside = np.hypot(*np.meshgrid(k, k)) < 0.6098 * 0.5875618 / 0.05
    assert psf[inside].sum() == pytest.approx(0.838, abs=0.03)


def test_an_object_inside_the_lens_is_refused(summicron: Lens) -> None:
    with pytest.raises(TraceError, match="inside the lens"):
        Camera(summicron, focus_m=2.0).psf(0.004, size=32, bands="d")


def test_the_papers_choices_are_there(summicron: Lens) -> None:
    camera = Camera(summicron, focus_m=2.0)
    best = camera.psf(2.5, (0.0, 0.9), size=32, bands="d", supersample=3).array
    options = {"clipping": "fit", "amplitude": "constant", "form": "exit-pupil"}
    other = camera.psf(2.5, (0.0, 0.9), size=32, bands="d", supersample=3, **options).array
    assert 1e-3 < np.abs(other - best).sum() < 0.3
    paper = camera.psfs([2.5], [(0.0, 0.0)], 32, "d", supersample=3, sampling="paper")
    assert paper.reports[0]["samples"] >= 2.0 * paper.reports[0]["sampling_bound"]


@pytest.mark.shared
def test_zemax(shared: Path) -> None:
    """Zemax OpticStudio's Huygens PSFs of EP 3 029 504 Example 4, f/1.4, 0.2 mm behind the image plane.

    Zemax gives each ray of a grid in the stop the same weight; with that amplitude the agreement is closer still, and
    closer than that of another program's Huygens sum (0.079, 0.041, 0.028).
    """
    lens = read_lens(shared / "lenses" / "interchangeable" / "leica-summilux-tl-35mm-f14-asph.json")
    camera = Camera(lens, sensor_shift_mm=0.2, pixel_um=2.0)
    bounds = {
        "energy": ((0.12, 0.098, 0.083), (0.115, 0.086, 0.055)),
        "stop": ((0.08, 0.042, 0.057), (0.078, 0.037, 0.024)),
    }
    for amplitude, (raw, blurred) in bounds.items():
        batch = camera.psfs(
            [math.inf] * 3, [(0.0, 0.0)] * 3, 128, "d", height=[0.0, 9.94, 14.2], supersample=1, amplitude=amplitude,
            relative_illumination=False,
        )  # fmt: skip
        for i in range(3):
            with np.load(shared / "reference" / "zemax" / f"EP3029504_Example04P__f{i + 1}.npz") as file:
                theirs = file["psf"]
            ours = batch.psf[i, 0].astype(float)
            assert relative_l1(ours, theirs) < raw[i], (amplitude, i)
            assert relative_l1(ours, theirs, 1.0) < blurred[i], (amplitude, i)
