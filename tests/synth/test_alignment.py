"""Sharp and blurred pictures of a pair lie on each other: what is in focus agrees to a tenth of a pixel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import binary_erosion, gaussian_filter, laplace, shift

from defocus import psfs
from defocus.photo import Response, decode, encode
from defocus.photo.isp import SensorColour
from defocus.synth.layer_psfs import LayerBlur, find_layer_psfs
from defocus.synth.lens_pool import PoolLens, load_pool_lens
from defocus.synth.pairs import make_pairs, patch_of
from defocus.synth.plan import Plan, make_plan
from defocus.synth.recipe import Recipe
from defocus.synth.sources import Sharp

LENSES = ("leica-summicron-50-f2", "canon-rf-50-f1.2")
COMATIC = "canon-rf-50-f1.2"
PIXEL_UM = 2e3 * 21.63 / np.hypot(1680, 1120)  # that of the paper's photographs on 36×24 mm
FOCUS_M, FAR_M = 2.0, 2.4
FIELDS = {LENSES[0]: ((0.0, 0.0), (0.65, 0.0), (0.0, -0.5), (-0.45, 0.5)), COMATIC: ((0.0, -0.5),)}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan({
        "lenses": {"only": list(LENSES), "survey": False},
        "patch": {"size": 64, "kernel": 32, "photograph": [120, 80]},
        "sensor": {"noise": 0.0, "saturation": 0.0},
    })  # fmt: skip


@pytest.fixture(scope="module")
def sharp() -> Sharp:
    """Grey texture without the finest detail; the left half stands in focus, the right half far behind."""
    random = np.random.default_rng(11)
    grain = gaussian_filter(random.standard_normal((80, 120)), 1.2)
    light = np.clip(0.25 + 0.12 * grain / grain.std(), 0.02, 0.7)[..., None] * np.ones(3)
    depth = np.where(np.arange(120) < 60, FOCUS_M, FAR_M) * np.ones((80, 1))
    return Sharp("grain", "rgb", "0" * 64, light.astype(np.float32), depth.astype(np.float32), SensorColour.make(), ())


def recipe(number: int, field: tuple[float, float], lens: PoolLens, sharp: Sharp) -> Recipe:
    return Recipe(
        id=f"test-{number:06d}", split="test", index=number, seed=number, source=sharp.name,
        source_sha256=sharp.sha256, centre=(59.5, 39.5), rotation_rad=0.0, scale=1.0, flip=False, exposure=1.0,
        patch_px=64, lens=lens.name, lens_sha256=lens.sha256, state="", field=field, focus_m=FOCUS_M,
        pixel_um=float(PIXEL_UM), f_number=2.0, depth_m=(FOCUS_M, FAR_M), coc_px=(0.0, 2.6), layers=16, saturation=0.0,
        noise=(0.0, 0.0),
    )  # fmt: skip


def displacement(blurred: np.ndarray, sharp: np.ndarray, where: np.ndarray) -> tuple[float, float]:
    """By how many pixels (right, down) `blurred` lies off `sharp`, by least squares: gradients for the shift, a
    Laplacian for the loss of detail, and brightness."""
    total = np.zeros(2)
    for _ in range(6):
        moved = shift(sharp, total[::-1], order=5, mode="nearest")
        down, right = np.gradient(moved)
        columns = [-right, -down, laplace(moved), moved, np.ones_like(moved)]
        solution, *_ = np.linalg.lstsq(np.stack([c[where] for c in columns], -1), (blurred - moved)[where], rcond=None)
        total += solution[:2]
    return float(total[0]), float(total[1])


def grey(picture: np.ndarray) -> np.ndarray:
    return picture.astype(float).mean(-1) / 255.0


def test_the_measure_finds_known_displacements(sharp: Sharp) -> None:
    image = sharp.linear[8:72, 28:92].mean(-1).astype(float)
    inside = np.zeros((64, 64), bool)
    inside[8:-8, 8:-8] = True
    for right, down in ((0.3, -0.2), (0.05, 0.0), (-0.7, 0.4)):
        moved = gaussian_filter(shift(image, (down, right), order=5, mode="nearest"), 0.7)
        assert displacement(moved, image, inside) == pytest.approx((right, down), abs=0.01)


@pytest.fixture(scope="module")
def pairs(plan: Plan, sharp: Sharp) -> dict[tuple[str, tuple[float, float]], dict[str, Any]]:
    """A pair for each lens and field position, and where its sharpest layer lies."""
    lenses = {name: load_pool_lens(plan, name) for name in LENSES}
    cases = [(name, field) for name in LENSES for field in FIELDS[name]]
    recipes = [recipe(k, field, lenses[name], sharp) for k, (name, field) in enumerate(cases)]
    results = make_pairs(plan, recipes, {sharp.name: sharp}, lenses)
    assert not any(result.refusal for result in results), [result.refusal for result in results]
    by_case = {}
    for key, own, one in zip(cases, recipes, results, strict=True):
        _, _, coc, _ = patch_of(plan, own, sharp, lenses[key[0]])
        focused = binary_erosion(np.abs(coc) < 0.5, iterations=12, border_value=1)  # the far half's blur reaches over
        focused[:4] = focused[-4:] = False
        focused[:, :4] = False
        by_case[key] = {"pictures": one.pictures, "focused": focused, "coc": coc}
    return by_case


@pytest.mark.parametrize(("lens", "field"), [(lens, field) for lens in LENSES for field in FIELDS[lens]])
def test_what_is_in_focus_agrees_to_a_tenth_of_a_pixel(
    pairs: dict[tuple[str, tuple[float, float]], dict[str, Any]], lens: str, field: tuple[float, float]
) -> None:
    pair = pairs[lens, field]
    blurred, sharp = (grey(pair["pictures"][role]) for role in ("blurred", "sharp"))
    assert pair["focused"].sum() > 500
    assert np.abs(pair["coc"]).max() > 2.0  # and there is something out of focus
    right, down = displacement(blurred, sharp, pair["focused"])
    assert np.hypot(right, down) < 0.1, (right, down)


def test_a_pair_is_the_same_alone_and_among_others(
    pairs: dict[tuple[str, tuple[float, float]], dict[str, Any]], plan: Plan, sharp: Sharp
) -> None:
    lens = load_pool_lens(plan, COMATIC)
    field = FIELDS[COMATIC][0]
    number = list(pairs).index((COMATIC, field))
    alone = make_pairs(plan, [recipe(number, field, lens, sharp)], {sharp.name: sharp}, {COMATIC: lens})[0]
    for role, values in pairs[COMATIC, field]["pictures"].items():
        assert np.array_equal(alone.pictures[role], values), role


def test_a_plan_takes_the_papers_psfs(plan: Plan, sharp: Sharp) -> None:
    """Those of `method="paper"`, in the whole kernel, for every layer; they are not those of the default."""
    of_paper = plan.model_copy(update={"psf": plan.psf.model_copy(update={"kind": "paper"})})
    lens = load_pool_lens(plan, LENSES[0])
    one = recipe(0, (0.0, -0.5), lens, sharp)
    camera, depths = lens.camera_for(one.pixel_um, one.focus_m), np.array([FOCUS_M, FAR_M, 1.8])
    radii = np.array([camera.circle_of_confusion_px(float(depth)) for depth in depths])
    blur = LayerBlur(one.lens, one.field, camera, radii, depths, np.array([True, False, True]))
    patch = find_layer_psfs(of_paper, [blur])[None][0]
    assert (patch.refusal, sorted(patch.psfs), patch.record(of_paper)["kind"]) == ("", [0, 2], "paper")
    alone = psfs(camera, depths[[0, 2]], one.field, 32, "d", method="paper", relative_illumination=False)
    for psf, expected, report in zip(patch.psfs.values(), alone.psf, alone.reports, strict=True):
        np.testing.assert_allclose(psf, expected, atol=1e-6)
        assert report["supersample"] == 5
        assert report["samples"] >= max(2.0 * report["sampling_bound"], 256)
    best = psfs(camera, 1.8, one.field, 32, "d", relative_illumination=False).psf[0]
    assert 0.01 < np.abs(best - patch.psfs[2]).sum() < 0.3


def test_what_the_paper_does_otherwise_reaches_the_pictures(plan: Plan, sharp: Sharp) -> None:
    """Its compositing changes the blur of a slant, a response the target, and one depth makes the blur the same."""
    lens = load_pool_lens(plan, LENSES[0])
    slant = replace(sharp, depth_m=np.geomspace(1.4, 4.0, 120, dtype=np.float32)[None] * np.ones((80, 1), np.float32))
    one = replace(recipe(0, (0.0, 0.0), lens, slant), depth_m=(1.5, 3.5))

    def pictures(changes: dict[str, dict[str, Any]], recipe: Recipe = one) -> dict[str, np.ndarray]:
        settings = plan.as_json() | {"psf": {"kind": "disk"}}
        changed = make_plan(settings | {part: settings[part] | own for part, own in changes.items()})
        (pair,) = make_pairs(changed, [recipe], {slant.name: slant}, {lens.name: lens})
        assert not pair.refusal
        return pair.pictures

    ours = pictures({})
    paper = pictures({"depth": {"compositing": "far-to-near"}})
    np.testing.assert_array_equal(paper["sharp"], ours["sharp"])
    assert 0.02 < np.abs(paper["blurred"].astype(float) - ours["blurred"]).mean() < 8.0
    steep = pictures({"sensor": {"response": "contrast:1.5"}})
    expected = encode(decode(ours["sharp"].astype(np.float32) / 255.0), Response.contrast(1.5))
    np.testing.assert_allclose(steep["sharp"] / 255.0, expected, atol=0.02)
    assert np.abs(steep["sharp"].astype(float) - ours["sharp"]).max() > 8.0
    flat = pictures({"depth": {"mode": "single"}}, replace(one, single_m=FOCUS_M))
    assert grey(flat["blurred"]).std() > 1.02 * grey(ours["blurred"]).std()  # in focus all over
