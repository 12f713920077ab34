"""Depth networks: the real loading and inference, with tiny random models of the same classes."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus.cli import run
from defocus.errors import DefocusError, DepthError, MissingExtraError
from defocus.scene import depth_models
from defocus.scene.depth_files import read_depth
from defocus.scene.depth_models import MODELS, depth_anything_size, estimate_depth, focal_length_px

PICTURE = np.random.default_rng(0).uniform(size=(48, 64, 3)).astype(np.float32)


def test_focal_length_from_exif() -> None:
    assert focal_length_px((6000, 4000), focal_35mm=50.0) == pytest.approx(50.0 / 36.0 * 6000.0)
    assert focal_length_px((4000, 3000), focal_mm=4.2, pixel_um=1.4) == pytest.approx(3000.0)
    assert focal_length_px((4000, 3000), focal_mm=4.2) is None
    assert focal_length_px((4000, 3000)) is None


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'defocus\[depth\]'"):
        estimate_depth(PICTURE)


def test_wrong_use_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(DefocusError, match="depth model 'midas'; known are depth-pro"):
        estimate_depth(PICTURE, "midas")
    with pytest.raises(DefocusError, match=r"focal length -3\.0 px"):
        estimate_depth(PICTURE, focal_px=-3.0)
    with pytest.raises(DefocusError, match="not finite"):
        estimate_depth(PICTURE * np.nan)


@pytest.fixture(scope="module")
def libraries():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[depth]'")
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'defocus[depth]'"
    )
    return torch, transformers


def vit(**more):
    return {
        "model_type": "dinov2",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "mlp_ratio": 1,
        "patch_size": 8,
        "image_size": 32,
    } | more


@pytest.fixture(scope="module")
def depth_pro(libraries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch, transformers = libraries
    torch.manual_seed(0)
    config = transformers.DepthProConfig(
        fusion_hidden_size=16,
        patch_size=32,
        intermediate_hook_ids=[1, 0],
        intermediate_feature_dims=[8, 8],
        scaled_images_ratios=[0.25, 0.5, 1.0],
        scaled_images_overlap_ratios=[0.0, 0.5, 0.25],
        scaled_images_feature_dims=[16, 16, 8],
        merge_padding_value=1,
        use_fov_model=True,
        image_model_config=vit(),
        patch_model_config=vit(),
        fov_model_config=vit(),
    )
    model = transformers.DepthProForDepthEstimation(config)
    with torch.no_grad():  # a random head may well say 0 (a field of view of nothing): give it something to say
        model.head.layers[-2].bias.fill_(0.3)
        model.fov_model.head.layers[-1].bias.fill_(50.0)
    folder = tmp_path_factory.mktemp("depth_pro")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def depth_anything(libraries, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch, transformers = libraries
    torch.manual_seed(1)
    config = transformers.DepthAnythingConfig(
        backbone_config=vit(
            patch_size=14, image_size=56, out_features=["stage1", "stage2"], reshape_hidden_states=False
        ),
        patch_size=14,
        reassemble_hidden_size=16,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[8, 8],
        fusion_hidden_size=8,
        head_hidden_size=8,
        depth_estimation_type="metric",
        max_depth=20,
    )
    folder = tmp_path_factory.mktemp("depth_anything")
    transformers.DepthAnythingForDepthEstimation(config).save_pretrained(folder)
    return folder


def test_depth_pro_scales_with_the_focal_length(depth_pro: Path) -> None:
    one = estimate_depth(PICTURE, weights=depth_pro, focal_px=100.0)
    two = estimate_depth(PICTURE, weights=depth_pro, focal_px=200.0)
    assert one.depth.depth_m.shape == (48, 64)
    assert np.all(np.isfinite(one.depth.depth_m) & (one.depth.depth_m > 0.0))
    assert one.depth.depth_m.std() > 0.0
    inside = one.depth.depth_m < 5e3  # not at the limit
    np.testing.assert_allclose(two.depth.depth_m[inside], 2.0 * one.depth.depth_m[inside], rtol=1e-4)
    assert one.focal_from == "given"
    assert one.depth.intrinsics == (100.0, 100.0, 31.5, 23.5)


def test_depth_pro_agrees_with_its_own_postprocessing(depth_pro: Path, libraries) -> None:
    torch, transformers = libraries
    made = estimate_depth(PICTURE, weights=depth_pro)
    model = transformers.DepthProForDepthEstimation.from_pretrained(depth_pro).eval()
    pixels = torch.nn.functional.interpolate(torch.tensor(PICTURE).permute(2, 0, 1)[None], (128, 128), mode="bilinear")
    with torch.inference_mode():
        output = model(pixel_values=pixels * 2.0 - 1.0)
    view = float(output.field_of_view)
    assert made.focal_from == "the network"
    assert made.focal_px == pytest.approx(32.0 / math.tan(math.radians(view) / 2.0))
    canonical = torch.nn.functional.interpolate(output.predicted_depth[None], (48, 64), mode="bilinear")[0, 0].numpy()
    expected = 1.0 / np.clip(canonical * 64.0 / made.focal_px, 1e-4, 1e4)
    np.testing.assert_allclose(made.depth.depth_m, expected, rtol=1e-4)


def test_depth_anything_gives_metres_within_its_range(depth_anything: Path) -> None:
    made = estimate_depth(PICTURE, "depth-anything-indoor", weights=depth_anything)
    assert made.depth.depth_m.shape == (48, 64)
    assert np.all((made.depth.depth_m > 0.0) & (made.depth.depth_m < 20.0))
    assert made.focal_from == "not used"
    again = estimate_depth(PICTURE, "depth-anything-indoor", weights=depth_anything)
    np.testing.assert_array_equal(made.depth.depth_m, again.depth.depth_m)


def test_a_folder_goes_on_where_it_was_stopped(
    depth_pro: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One loading for all photographs; depth maps that are there are kept; one bad photograph does not stop others."""
    loads = []
    load = depth_models._load
    monkeypatch.setattr(depth_models, "_load", lambda *source: loads.append(source) or load(*source))
    photos, out = tmp_path / "photos", tmp_path / "depth"
    photos.mkdir()
    stored = (PICTURE * 255).astype(np.uint8)
    for name in ("a", "b"):
        Image.fromarray(stored).save(photos / f"{name}.png")
    (photos / "c.png").write_bytes(b"no picture")
    command = ["depth", str(photos), "--out", str(out), "--weights", str(depth_pro)]
    assert run(command) == 1
    captured = capsys.readouterr()
    assert "2 of 3 depth maps made, 0 were there already" in captured.out
    assert "c.png" in captured.err
    assert len(loads) == 1
    made = read_depth(out / "a.npz").depth_m
    expected = estimate_depth(stored.astype(np.float32) / 255, weights=depth_pro).depth.depth_m
    np.testing.assert_allclose(made, expected, rtol=1e-3)
    (photos / "c.png").unlink()
    (out / "b.npz").unlink()
    kept = (out / "a.npz").stat().st_mtime_ns
    assert run(command) == 0
    assert "1 of 2 depth maps made, 1 were there already" in capsys.readouterr().out
    assert (out / "a.npz").stat().st_mtime_ns == kept
    assert run([*command, "--focal-px", "90"]) == 0
    assert "2 of 2 depth maps made" in capsys.readouterr().out
    (out / "b.npz").write_bytes(b"mine")
    assert run(command) == 2
    assert "b.npz: was not made by this program" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(480, 640), (640, 480), (333, 1000), (2000, 3000), (100, 60)])
def test_what_depth_anything_sees(size: tuple[int, int]) -> None:
    height, width = depth_anything_size(size, 518, 14)
    assert height % 14 == 0
    assert width % 14 == 0
    assert 518 in (height, width)
    assert width / height == pytest.approx(size[1] / size[0], rel=0.03)


def test_missing_weights_say_how_to_get_them(
    libraries, depth_pro: Path, depth_anything: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in tuple(MODELS):
        monkeypatch.setitem(MODELS, model, f"nobody/{model}-of-no-cache")
        with pytest.raises(DepthError, match=f"not in the cache; get them once with `hf download nobody/{model}-of-no"):
            estimate_depth(PICTURE, model)
    with pytest.raises(DepthError, match="neither a folder nor a model in the cache; `hf download nobody/else`"):
        estimate_depth(PICTURE, weights="nobody/else")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DepthError, match="no complete model is in this folder"):
        estimate_depth(PICTURE, weights=tmp_path / "empty")
    with pytest.raises(DepthError, match="is a model of kind depth_anything, not depth_pro"):
        estimate_depth(PICTURE, weights=depth_anything)


def test_incomplete_or_damaged_weights_are_errors(
    libraries, depth_pro: Path, depth_anything: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((depth_pro / file).read_bytes())
    weights = load_file(depth_pro / "model.safetensors")
    removed = sorted(name for name in weights if name.startswith("head."))[0]
    save_file({k: v for k, v in weights.items() if k != removed}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(DepthError, match=f"1 of its weights are missing, the first is {removed}"):
        estimate_depth(PICTURE, weights=tmp_path)
    (tmp_path / "model.safetensors").write_bytes((depth_pro / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(DepthError, match=str(tmp_path)):
        estimate_depth(PICTURE, weights=tmp_path)
    config = json.loads((depth_anything / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"depth_estimation_type": "relative"}))
    with pytest.raises(DepthError, match="gives relative depth, no metres"):
        estimate_depth(PICTURE, "depth-anything-outdoor", weights=tmp_path)


def test_command_line(depth_pro: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    from defocus.cli import run

    Image.fromarray((PICTURE * 255).astype(np.uint8)).save(tmp_path / "photo.png")
    arguments = ["depth", str(tmp_path / "photo.png"), "--weights", str(depth_pro), "--out"]
    out, plot = tmp_path / "depth.npz", tmp_path / "depth_plot.png"
    assert run([*arguments, str(out), "--focal-px", "70", "--plot", str(plot), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["size"], report["focal_px"], report["focal_from"]) == ([64, 48], 70.0, "given")
    from defocus.scene.depth_files import read_depth

    read = read_depth(out)
    assert read.size == (64, 48)
    assert read.intrinsics == (70.0, 70.0, 31.5, 23.5)
    assert float(read.depth_m.min()) == pytest.approx(report["nearest_m"])
    assert plot.stat().st_size > 5000
    assert run([*arguments, str(tmp_path / "d.png")]) == 2
    assert "--scale-m" in capsys.readouterr().err
    assert run([*arguments, str(tmp_path / "d.bmp")]) == 2
    assert "d.bmp: a depth map is a file that ends in" in capsys.readouterr().err
