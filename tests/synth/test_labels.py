"""Labels of pairs: registered with the pictures, the camera's own numbers, made again byte by byte, loaded alike."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from torch.utils.data import DataLoader

from defocus.cli import run
from defocus.errors import DatasetError
from defocus.files.pair_folders import decode_role
from defocus.photo.isp import SensorColour
from defocus.restore.data import CropView, OnTheFlyDataset, PairDataset
from defocus.srgb import from_srgb
from defocus.synth.candidates import LensChoice, draw_candidates
from defocus.synth.check import preview_plan
from defocus.synth.engines.local import LocalEngine
from defocus.synth.focus_draws import stack_distances
from defocus.synth.lens_pool import find_lenses, load_pool_lens
from defocus.synth.pairs import Pair, make_pairs
from defocus.synth.patches import depth_at
from defocus.synth.plan import Plan, make_plan
from defocus.synth.recipe import Recipe
from defocus.synth.run import run_plan
from defocus.synth.sources import Sharp, find_source, find_sources, read_source
from defocus.synth.verify import fine_contrast, verify_folder

from ..physics.test_paraxial import chief_ray_scale
from .conftest import TINY, contents
from .fake_folder import LABELS, fake_folder

STACKED = TINY | {"labels": {"depth": True, "blur_radius": True, "focal_stack": 2}}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of `TINY` with all labels, made in two goes. Not to be changed."""
    folder = tmp_path_factory.mktemp("labelled") / "pairs"
    assert run_plan(STACKED, folder, LocalEngine(1), limit=3).limited
    assert run_plan(STACKED, folder, LocalEngine(1)).complete
    return folder


@pytest.fixture(scope="module")
def records(labelled: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (labelled / "pairs.jsonl").read_text().splitlines()]


def label(folder: Path, record: dict[str, Any], role: str) -> np.ndarray:
    return decode_role(role, (folder / record["files"][role]["path"]).read_bytes())


def test_room_is_reckoned_for_labels() -> None:
    needed = [preview_plan(plan, read=False).bytes_needed for plan in (TINY, STACKED)]
    assert needed[1] / needed[0] == pytest.approx((4 * 2.0 + 2 * 3.6) / (2 * 2.0), rel=1e-3)


def test_labels_change_no_picture(labelled: Path, reference_folder: Path) -> None:
    own, plain = contents(labelled), contents(reference_folder)
    pictures = [path for path in plain if path.endswith(".png") and "/" in path]
    assert len(pictures) == 20
    assert all(own[path] == plain[path] for path in pictures)
    assert len([path for path in own if "/" in path and path.endswith((".png", ".tif"))]) == 60
    assert verify_folder(labelled).problems == []
    assert {path.partition("/")[0] for path in own} == {path.partition("/")[0] for path in plain}


def test_depth_is_that_of_the_patch_and_blur_the_camera_s(labelled: Path, records: list[dict[str, Any]]) -> None:
    plan = make_plan(STACKED)
    for record in records[::3]:
        recipe, depth, blur = (
            Recipe.from_json(record),
            label(labelled, record, "depth"),
            label(labelled, record, "blur_radius"),
        )
        sharp = read_source(find_source(plan, recipe.source), plan)
        if recipe.split == "train":  # turned, scaled, mirrored
            cells = [(row, col) for row in range(0, 48, 5) for col in range(0, 48, 5)]
            expected = [depth_at(sharp.depth_m, recipe.placement, 48, col, row) for row, col in cells]
            # In single precision a pixel halfway between two may go to the other.
            assert np.mean([depth[cell] for cell in cells] != np.float32(expected)) < 0.03
        else:
            left, top = (round(v - 23.5) for v in recipe.centre)
            np.testing.assert_array_equal(depth, sharp.depth_m[top : top + 48, left : left + 48])
        assert (depth.min(), depth.max()) == pytest.approx(recipe.depth_m)
        camera = load_pool_lens(plan, recipe.lens).camera_for(recipe.pixel_um, recipe.focus_m)
        np.testing.assert_allclose(blur, camera.circle_of_confusion_px(depth.astype(float)), rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(blur > 0.0, depth > recipe.focus_m)
        assert (blur.min(), blur.max()) == pytest.approx(recipe.coc_px, abs=1e-5)


def test_a_stack_spans_the_depths_of_its_patch(labelled: Path, records: list[dict[str, Any]]) -> None:
    for record in records:
        assert record["stack_m"] == pytest.approx(record["depth_m"])
        assert [one["focus_m"] for one in record["stack"]] == record["stack_m"]
        low, high = (one["coc_px"] for one in record["stack"])
        assert (low[0], high[1]) == pytest.approx((0.0, 0.0), abs=1e-4)  # in focus: its nearest, its farthest depth
        assert len({record["seed"], *(one["seed"] for one in record["stack"])}) == 3
    thirds = make_plan(TINY | {"labels": {"focal_stack": 3}})
    assert stack_distances(thirds, (1.0, 3.0)) == pytest.approx((1.0, 1.5, 3.0))  # even in 1/d
    assert stack_distances(thirds, (0.1, 1e3)) == pytest.approx((0.2, 2 / (1 / 0.2 + 1 / 250), 250.0))
    assert stack_distances(make_plan(TINY), (1.0, 3.0)) == ()


def test_a_stack_says_how_its_lens_breathes(records: list[dict[str, Any]]) -> None:
    """Pictures of a stack have one magnification; the record has that of the lens, as chief rays near the axis do."""
    plan = make_plan(STACKED)
    for record in records:
        lens = load_pool_lens(plan, record["lens"])
        cameras = [lens.camera_for(record["pixel_um"], focus_m) for focus_m in record["stack_m"]]
        first, last = (chief_ray_scale(c.lens, c.first_order, float(c.paraxial.sensor)) for c in cameras)
        magnifications = [one["magnification"] for one in record["stack"]]
        assert magnifications == pytest.approx([1.0, last / first], rel=1e-6)
        assert magnifications[1] < 1.0  # things are shown smaller when the lens is focused farther away


def test_lenses_are_safe_at_all_distances_of_a_stack() -> None:
    stack_m, largest = [0.4, 1.0, 100.0], {}
    for name, labels in (("with", {"focal_stack_m": stack_m}), ("without", {})):
        plan = make_plan(TINY | {"labels": labels})
        pool, sharp = find_lenses(plan), read_source(find_sources(plan)["train"][0], plan)
        choice = LensChoice.of([pool.lenses[lens] for lens in pool.of_split["train"]])
        drawn = [one.record for one in draw_candidates(plan, "train", range(12), sharp, choice) if one.record]
        assert drawn
        largest[name] = [
            float(np.abs(pool.lenses[r["lens"]].camera_for(r["pixel_um"], m).circle_of_confusion_px(d)).max())
            for r in drawn
            for m in stack_m
            for d in [np.array(r["depth_m"])]
        ]
    assert max(largest["with"]) <= 12.0 < max(largest["without"])  # limits.coc_px


NEAR_M, FAR_M = 1.5, 3.0


def stack_of(noise: float, single_m: float | None = None, **sensor: Any) -> tuple[Plan, Pair]:
    """A pair of a texture whose left half is near and whose right half is far, focused on the near one."""
    random = np.random.default_rng(7)
    light = random.uniform(0.1, 0.6, (80, 120, 1)).astype(np.float32) * np.ones(3, np.float32)
    depth = np.where(np.arange(120) < 60, NEAR_M, FAR_M) * np.ones((80, 1))
    sharp = Sharp("grain", "rgb", "0" * 64, light, depth.astype(np.float32), SensorColour.make(), ())
    labels = {"depth": True, "blur_radius": True, "focal_stack_m": [NEAR_M, FAR_M]}
    mode = {"mode": "layers" if single_m is None else "single"}
    plan = make_plan(TINY | {"psf": {"kind": "disk"}, "labels": labels, "sensor": sensor, "depth": mode})
    lens = load_pool_lens(plan, "canon-rf-85-f1.2")
    recipe = Recipe(
        id="test-000000", split="test", index=0, seed=5, source="grain", source_sha256=sharp.sha256,
        centre=(59.5, 39.5), rotation_rad=0.0, scale=1.0, flip=False, exposure=1.0, patch_px=48, lens=lens.name,
        lens_sha256=lens.sha256, state="", field=(0.0, 0.0), focus_m=NEAR_M, pixel_um=150.0, f_number=1.2,
        depth_m=(NEAR_M, FAR_M), coc_px=(0.0, 7.66), layers=16, saturation=0.0, noise=(noise, noise),
        single_m=single_m, stack_m=(NEAR_M, FAR_M),
    )  # fmt: skip
    (pair,) = make_pairs(plan, [recipe], {"grain": sharp}, {lens.name: lens})
    assert not pair.refusal
    return plan, pair


def test_each_picture_of_a_stack_is_sharp_where_it_is_focused() -> None:
    _, pair = stack_of(0.0)
    blurred, near, far = (pair.pictures[role] for role in ("blurred", "stack_00", "stack_01"))
    np.testing.assert_allclose(near, blurred, atol=1)  # the same focus and no noise: the same picture
    left, right = np.s_[8:40, 2:14], np.s_[8:40, 34:46]
    assert fine_contrast(near[left]) > 3.0 * fine_contrast(far[left])
    assert fine_contrast(far[right]) > 3.0 * fine_contrast(near[right])
    np.testing.assert_array_equal(pair.pictures["depth"][0, [0, 23, 24, 47]], [NEAR_M, NEAR_M, FAR_M, FAR_M])
    radius = pair.pictures["blur_radius"]
    assert np.abs(radius[:, :24]).max() < 1e-3
    assert radius[:, 24:].min() > 2.0


def test_a_stack_has_noise_of_its_own_and_no_views() -> None:
    _, pair = stack_of(1e-2, dual_pixel=True)
    assert set(pair.pictures) == {"blurred", "sharp", "left", "right", *LABELS}
    step = pair.pictures["stack_00"].astype(float) - pair.pictures["blurred"]
    assert step.std() > 3.0
    assert abs(step.mean()) < 1.0


def test_with_one_depth_labels_are_of_what_is_rendered() -> None:
    plan, pair = stack_of(0.0, single_m=2.0)
    assert set(np.unique(pair.pictures["depth"])) == {2.0}
    camera = load_pool_lens(plan, pair.recipe.lens).camera_for(150.0, NEAR_M)
    np.testing.assert_allclose(pair.pictures["blur_radius"], camera.circle_of_confusion_px(2.0), rtol=1e-5)


def test_the_shift_leads_from_the_blurred_picture_to_the_target() -> None:
    """Dots through a wide-angle at the edge of its field: their centroids and the stored shift."""
    y, x = np.mgrid[0:160, 0:200]
    places = [(col, row) for col in (80, 95, 110, 125) for row in (62, 78, 94)]
    spots = sum(np.exp(-((x - c) ** 2 + (y - r) ** 2) / 4.5) for c, r in places)
    light = np.repeat(np.asarray(0.6 * spots, np.float32)[..., None], 3, axis=2)
    sharp = Sharp("dots", "rgb", "0" * 64, light, np.full((160, 200), 2.0, np.float32), SensorColour.make(), ())
    only = {"lenses": {"only": ["canon-rf-16-f2.8"], "survey": False}, "labels": {"distortion": True}}
    plan = make_plan(TINY | only | {"psf": {"kind": "disk"}})
    lens = load_pool_lens(plan, "canon-rf-16-f2.8")
    recipe = Recipe(
        id="test-000000", split="test", index=0, seed=5, source="dots", source_sha256=sharp.sha256,
        centre=(102.5, 78.5), rotation_rad=0.0, scale=1.0, flip=False, exposure=1.0, patch_px=48, lens=lens.name,
        lens_sha256=lens.sha256, state="", field=(0.35, -0.2), focus_m=2.0, pixel_um=150.0, f_number=2.8,
        depth_m=(2.0, 2.0), coc_px=(0.0, 0.0), layers=16, saturation=0.0, noise=(0.0, 0.0), single_m=None, stack_m=(),
    )  # fmt: skip
    (pair,) = make_pairs(plan, [recipe], {"dots": sharp}, {lens.name: lens})
    assert not pair.refusal
    shift = np.stack([pair.pictures["shift_x"], pair.pictures["shift_y"]], -1)
    assert np.abs(shift).max() > 1.0
    assert np.abs(shift[23:25, 23:25]).max() < 0.3
    shown = from_srgb(pair.pictures["blurred"] / 255.0)[..., 1]
    own = np.stack(np.mgrid[0:48, 0:48][::-1], -1) + shift
    checked = 0
    for col, row in places:
        target = np.array([col - 79.0, row - 55.0])
        distance = np.hypot(*np.moveaxis(own - target, -1, 0))
        r, c = np.unravel_index(np.argmin(distance), distance.shape)
        if 6 <= r < 42 and 6 <= c < 42:
            dy, dx = np.mgrid[-5:6, -5:6]
            window = shown[r - 5 : r + 6, c - 5 : c + 6]
            at = np.array([c + (window * dx).sum() / window.sum(), r + (window * dy).sum() / window.sum()])
            back = at + [map_coordinates(shift[..., k], at[::-1, None], order=1)[0] for k in (0, 1)]
            assert np.abs(back - target).max() < 0.1
            checked += 1
    assert checked >= 4
    (far,) = make_pairs(plan, [replace(recipe, centre=(24.0, 24.0))], {"dots": sharp}, {lens.name: lens})
    assert "beyond the photograph" in far.refusal


def test_flips_and_turns_turn_the_shift() -> None:
    x, y = np.full((3, 3), 2.0), np.full((3, 3), 5.0)
    for mirrored, flipped_, turned, expected in (
        (True, False, False, (-2.0, 5.0)),
        (False, True, False, (2.0, -5.0)),
        (True, False, True, (5.0, -2.0)),
    ):
        view = CropView(0, 0, 3, 3, mirrored, flipped_, turned)
        assert tuple(plane[0, 0] for plane in view.of_vector(view.of(x), view.of(y))) == expected


def test_lost_and_damaged_labels_are_made_again(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = Path(shutil.copytree(labelled, tmp_path / "pairs"))
    first, second, third = (
        sorted((folder / "train_c" / name).iterdir())[0] for name in ("depth", "stack_01", "blur_radius")
    )
    first.unlink()
    second.write_bytes(second.read_bytes()[:-7])
    summary = run_plan(STACKED, folder, LocalEngine(1))
    assert "are made again" in summary.notices[0] or "is made again" in summary.notices[0]
    third.write_bytes(third.read_bytes()[:-1] + b"x")  # as long as it was
    assert run(["synth", "verify", str(folder)]) == 1
    assert f"train_c/blur_radius/{third.name}: its sha256 is not that of the record" in capsys.readouterr().out
    assert run(["synth", "verify", str(folder), "--repair"]) == 0
    again = {path: data for path, data in contents(folder).items() if not path.startswith(".")}
    assert again == {path: data for path, data in contents(labelled).items() if not path.startswith(".")}


def test_shards_with_labels_are_made_again(tmp_path: Path) -> None:
    parts = {"output": {"layout": "webdataset", "pairs_per_shard": 1}, "train": {"pairs": 2}}
    plan = make_plan(STACKED | {"validation": {"pairs": 0}, "test": {"pairs": 0}} | parts)
    assert run_plan(plan, tmp_path, LocalEngine(1)).complete
    assert verify_folder(tmp_path).counts["pictures decoded"] == 12
    whole = contents(tmp_path)
    (tmp_path / "train/shard-000001.tar").unlink()
    run_plan(plan, tmp_path, LocalEngine(1))
    assert contents(tmp_path) == whole
    item = PairDataset(tmp_path)[1]
    assert item.keys() == {"input", "target", "depth", "blur_radius", "stack", "id"}


# --- for PyTorch ---


def flipped(item: dict[str, Any]) -> dict[str, Any]:
    """A transform; loader workers can pickle it."""
    return {key: value.flip(-1) if isinstance(value, torch.Tensor) else value for key, value in item.items()}


@pytest.mark.parametrize("layout", ["dpdd", "pairs", "webdataset"])
def test_items_keep_labels_and_pictures_together(layout: str, tmp_path: Path) -> None:
    """The fake labels are the red of the target, and the stack is both pictures, whatever is done with an item."""
    folder = fake_folder(tmp_path / "set", layout, 16, (6, 1, 1), roles=("blurred", "sharp", *LABELS))
    options = {"metadata": ("focus_m", "stack_m", "lens"), "transform": flipped}
    cut = PairDataset(folder, crop=20, augment=True, turn=True, seed=2, **options)  # type: ignore[arg-type]
    for epoch in range(4):
        cut.set_epoch(epoch)
        for item in cut:  # type: ignore[attr-defined]
            assert torch.equal(item["depth"][0], item["target"][0])
            assert torch.equal(item["blur_radius"], -item["depth"])
            assert torch.equal(item["stack"], torch.stack([item["input"], item["target"]]))
            assert item["depth"].shape == (1, 20, 20)
    plain = PairDataset(folder, labels=False)
    assert plain[0].keys() == {"input", "target", "id"}
    whole = PairDataset(folder, **options)  # type: ignore[arg-type]
    assert torch.equal(whole[3]["input"], plain[3]["input"].flip(-1))
    record = json.loads((folder / "pairs.jsonl").read_text().splitlines()[3])
    assert whole[3]["metadata"] == {name: record[name] for name in options["metadata"]}
    batch = next(iter(DataLoader(whole, batch_size=3)))
    assert batch["stack"].shape == (3, 2, 3, 48, 48)
    assert batch["metadata"]["focus_m"].shape == (3,)
    with pytest.raises(DatasetError, match=r"no metadata 'fokus_m': did you mean 'focus_m'\?"):
        PairDataset(folder, metadata=("fokus_m",))
    for name in ("pairs.jsonl", "ledger.sqlite"):
        (folder / name).unlink()
    if layout != "webdataset":
        assert PairDataset(folder)[0].keys() == {"input", "target", "id"}  # a folder like any other now
        with pytest.raises(DatasetError, match="no metadata here"):
            PairDataset(folder, metadata=("focus_m",))


def test_labels_of_pairs_made_on_the_way(labelled: Path, records: list[dict[str, Any]]) -> None:
    fields = ("focus_m", "lens")
    fresh = OnTheFlyDataset(STACKED, "train", 9, metadata=fields, transform=flipped)
    folder = PairDataset(labelled, metadata=fields, transform=flipped)
    expected, item = folder[1], fresh[records[1]["index"]]
    assert item.keys() == expected.keys() == {"input", "target", "depth", "blur_radius", "stack", "id", "metadata"}
    for key, value in expected.items():
        assert torch.equal(item[key], value) if isinstance(value, torch.Tensor) else item[key] == value
