"""Depth and segments of restored pictures: the real loading and inference, with tiny random networks."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[depth]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'defocus[depth]'")

from defocus.errors import DatasetError, DefocusError, DepthError  # noqa: E402
from defocus.evaluate.downstream import (  # noqa: E402  # noqa: E402  # noqa: E402
    DisparityEstimator,
    Judgement,
    Judgements,
    MaskChoice,
    Segmenter,
    disparity_rmse,
    overlap,
    restored_pictures,
    without_doubles,
)
from defocus.evaluate.test_sets import FileImage, TestImage  # noqa: E402

ANY = MaskChoice(
    points_per_side=3, least_score=-9.0, least_stability=0.0, largest_overlap=0.9
)  # random networks are unsure


def picture(seed: int = 0) -> np.ndarray:
    image = ndimage.gaussian_filter(np.random.default_rng(seed).uniform(size=(48, 64, 3)), (3, 3, 0))
    return ((image - image.min()) / np.ptp(image)).astype(np.float32)


@pytest.fixture(scope="module")
def depth_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = transformers.DepthAnythingConfig(
        backbone_config={
            "model_type": "dinov2", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 16, "mlp_ratio": 1, "patch_size": 14, "image_size": 56,
            "out_features": ["stage1", "stage2"], "reshape_hidden_states": False,
        },
        patch_size=14, reassemble_hidden_size=16, reassemble_factors=[2, 1], neck_hidden_sizes=[8, 8],
        fusion_hidden_size=8, head_hidden_size=8, depth_estimation_type="relative",
    )  # fmt: skip
    network = transformers.DepthAnythingForDepthEstimation(config)
    with torch.no_grad():  # as initialised, layer after layer shrinks the signal to the last bits of a float
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, math.sqrt(2.0 / parameter[0].numel()))
        network.head.conv3.weight.abs_()  # what is below zero is cut off
        network.head.conv3.bias.fill_(0.5)
    folder = tmp_path_factory.mktemp("depth_anything")
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sam_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    backbone = {
        "model_type": "sam2_hiera_det_model", "hidden_size": 8, "image_size": [64, 64],
        "blocks_per_stage": [1, 1, 2, 1], "embed_dim_per_stage": [8, 16, 32, 64],
        "num_attention_heads_per_stage": [1, 1, 1, 1], "window_size_per_stage": [4, 4, 4, 2],
        "global_attention_blocks": [3], "window_positional_embedding_background_size": [4, 4], "initializer_range": 0.3,
    }  # fmt: skip
    config = transformers.Sam2Config(
        vision_config={
            "model_type": "sam2_vision_model", "backbone_config": backbone, "backbone_channel_list": [64, 32, 16, 8],
            "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]], "fpn_hidden_size": 32, "initializer_range": 0.3,
        },
        prompt_encoder_config={"hidden_size": 32, "image_size": 64, "patch_size": 16, "mask_input_channels": 4},
        mask_decoder_config={
            "hidden_size": 32, "mlp_dim": 32, "num_attention_heads": 2, "iou_head_hidden_dim": 16,
        },
        initializer_range=0.3,
    )  # fmt: skip
    network = transformers.Sam2Model(config)
    with torch.no_grad():  # small random weights give masks of a single sign
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 1.0 / math.sqrt(parameter[0].numel()))
        network.mask_decoder.conv_s0.weight.mul_(20.0)  # what differs over the picture decides
    folder = tmp_path_factory.mktemp("sam2")
    network.save_pretrained(folder)
    return folder


# Depth


def test_scale_and_shift_do_not_count_when_aligned() -> None:
    truth = np.random.default_rng(0).uniform(1.0, 5.0, (20, 30))
    assert disparity_rmse(0.5 * truth + 3.0, truth, aligned=True) == pytest.approx(0.0, abs=1e-12)
    assert disparity_rmse(truth + 0.25, truth, aligned=False) == pytest.approx(0.25)
    noisy = 2.0 * (truth + np.random.default_rng(1).normal(0.0, 0.1, truth.shape)) - 1.0
    best = min(
        math.sqrt(np.square(s * noisy + t - truth).mean())
        for s in np.linspace(0.45, 0.52, 71)
        for t in np.linspace(0.3, 0.7, 81)
    )
    assert disparity_rmse(noisy, truth, aligned=True) == pytest.approx(best, rel=1e-3)
    assert disparity_rmse(np.ones_like(truth), truth, aligned=True) == pytest.approx(truth.std())
    with pytest.raises(DefocusError, match="expected the same"):
        disparity_rmse(truth, truth[:5], aligned=True)


def test_disparities_are_those_of_the_network(depth_folder: Path) -> None:
    estimate = DisparityEstimator(str(depth_folder), "cpu")
    made = estimate(picture())
    assert made.shape == (48, 64)
    assert made.std() > 0.5
    network = transformers.DepthAnythingForDepthEstimation.from_pretrained(depth_folder).eval()
    pixels = torch.from_numpy(picture()).permute(2, 0, 1)[None]
    scaled = torch.nn.functional.interpolate(pixels, (42, 56), mode="bicubic", antialias=True).clamp(0, 1)
    mean, spread = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.inference_mode():
        expected = network(pixel_values=(scaled - mean) / spread).predicted_depth[None]
    expected = torch.nn.functional.interpolate(expected, (48, 64), mode="bilinear")[0, 0].numpy()
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_wrong_models_are_told(depth_folder: Path, sam_folder: Path, tmp_path: Path) -> None:
    import json

    with pytest.raises(DepthError, match="is a model of kind sam2, not depth_anything"):
        DisparityEstimator(str(sam_folder))
    with pytest.raises(DefocusError, match="is a model of kind depth_anything, not sam2"):
        Segmenter(str(depth_folder))
    with pytest.raises(DefocusError, match="neither a folder nor a model in the cache; `hf download nobody/sam`"):
        Segmenter("nobody/sam")
    config = json.loads((depth_folder / "config.json").read_text()) | {"depth_estimation_type": "metric"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DepthError, match="gives metres; use a relative model"):
        DisparityEstimator(str(tmp_path))


# Segments


def test_overlap_and_doubles() -> None:
    masks = np.zeros((4, 10, 10), bool)
    masks[0, :5], masks[1, :6], masks[2, 7:], masks[3, :, :2] = True, True, True, True
    assert overlap(masks[0], masks[1]) == pytest.approx(5 / 6)
    assert overlap(masks[0], masks[2]) == 0.0
    assert overlap(np.zeros((2, 2), bool), np.zeros((2, 2), bool)) == 1.0
    assert without_doubles(masks, np.array([0.8, 0.9, 0.7, 0.95]), 0.7) == [3, 1, 2]
    assert without_doubles(masks, np.array([0.9, 0.8, 0.7, 0.95]), 0.9) == [3, 0, 1, 2]
    assert without_doubles(masks[:0], np.zeros(0), 0.7) == []


@pytest.mark.parametrize("prompt", ["masks", "points"])
def test_the_same_picture_has_the_same_segments_and_another_has_others(sam_folder: Path, prompt: str) -> None:
    segmenter = Segmenter(str(sam_folder), "cpu")
    seen = segmenter.embed(picture())
    prompts = segmenter.automatic_prompts(seen, ANY)
    assert len(prompts) > 1
    assert prompts.logits.shape == (len(prompts), 16, 16)
    truth = list(segmenter.answers(seen, prompts, prompt))
    assert all(mask.shape == (48, 64) for mask in truth)
    assert any(0 < mask.sum() < mask.size for mask in truth)
    again = list(segmenter.answers(segmenter.embed(picture()), prompts, prompt))
    assert all(overlap(a, b) > 0.99 for a, b in zip(truth, again, strict=True))
    other = list(segmenter.answers(segmenter.embed(picture(5)), prompts, prompt))
    assert np.mean([overlap(a, b) for a, b in zip(truth, other, strict=True)]) < 0.98


def test_prompts_in_batches_are_those_alone(sam_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prompt is answered by itself, whatever else is asked."""
    from defocus.evaluate import downstream

    segmenter = Segmenter(str(sam_folder), "cpu")
    seen = segmenter.embed(picture())
    prompts = segmenter.automatic_prompts(seen, ANY)
    for prompt in ("masks", "points"):
        together = list(segmenter.answers(seen, prompts, prompt))
        monkeypatch.setattr(downstream, "AT_ONCE", 1)
        alone = list(segmenter.answers(seen, prompts, prompt))
        monkeypatch.undo()
        assert np.mean([overlap(a, b) for a, b in zip(together, alone, strict=True)]) > 0.99


def test_the_grid_is_asked_as_the_library_asks(sam_folder: Path) -> None:
    """A point of the picture, prepared by the library's own processor, gives the same masks."""
    segmenter = Segmenter(str(sam_folder), "cpu")
    seen = segmenter.embed(picture())
    made = segmenter.point_answers(seen, np.array([[0.25, 0.5]], np.float32), several=True)
    network = transformers.Sam2Model.from_pretrained(sam_folder).eval()
    pixels = torch.nn.functional.interpolate(
        torch.from_numpy(picture()).permute(2, 0, 1)[None], (64, 64), mode="bilinear", antialias=True
    )
    mean, spread = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.inference_mode():
        # A pixel's own number, from 0, whose middle is half a pixel farther.
        expected = network(
            pixel_values=(pixels - mean) / spread, input_points=torch.tensor([[[[15.5, 31.5]]]]), multimask_output=True
        )
    np.testing.assert_allclose(made.pred_masks.detach().numpy(), expected.pred_masks.numpy(), rtol=1e-3, atol=1e-4)


def test_strict_choices_leave_nothing_and_say_so(sam_folder: Path) -> None:
    segmenter = Segmenter(str(sam_folder), "cpu")
    prompts = segmenter.automatic_prompts(segmenter.embed(picture()), MaskChoice(points_per_side=2, least_score=99.0))
    assert len(prompts) == 0
    assert list(segmenter.answers(segmenter.embed(picture()), prompts)) == []


# The whole


def save(file: Path, display: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.clip(display, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)).save(file)


def test_results_of_others_are_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from defocus.cli import run
    from defocus.files.ownership import OwnedFolder

    for part in ("input", "target"):
        save(tmp_path / "set" / part / "a.png", picture())
    (tmp_path / "foreign").mkdir()
    OwnedFolder(tmp_path / "own", "judgement").write("downstream.csv", b"ours")
    for file, message in (
        (tmp_path / "foreign" / "downstream.md", "foreign: holds downstream.md and was not made for a judgement"),
        (tmp_path / "own" / "downstream.csv", "downstream.csv: was not made by this program, or was changed since"),
        (tmp_path / "own" / "downstream.md", "downstream.md: was not made by this program, and is left as it is"),
    ):
        before = file.read_bytes() if file.exists() else b""
        file.write_text("mine")
        assert run(["downstream", str(tmp_path / "set"), "--out", str(file.parent), "--device", "cpu"]) == 2
        assert message in capsys.readouterr().err
        assert file.read_text() == "mine"
        file.write_bytes(before)


def test_command_line(depth_folder: Path, sam_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from defocus.cli import run

    for name in ("a", "b"):
        sharp = picture(ord(name))
        save(tmp_path / "set" / "target" / f"{name}.png", sharp)
        save(tmp_path / "set" / "input" / f"{name}.png", ndimage.gaussian_filter(sharp, (6, 6, 0)))
        save(tmp_path / "good" / f"{name}.png", np.roll(sharp, 1, axis=0) * 0.97)
        save(tmp_path / "same" / f"{name}.png", sharp)
    out = tmp_path / "out"
    arguments = ["downstream", str(tmp_path / "set"), "--out", str(out), "--depth-model", str(depth_folder)]
    arguments += ["--segmentation-model", str(sam_folder), "--points", "3", "--least-score", "-9", "--device", "cpu"]
    arguments += ["--least-stability", "0", "--restored", f"good={tmp_path / 'good'}"]
    assert run([*arguments, "--restored", f"same={tmp_path / 'same'}"]) == 0
    told = capsys.readouterr().out
    with (out / "downstream.csv").open() as file:
        rows = {(row["row"], row["image"]): row for row in csv.DictReader(file)}
    assert set(rows) == {(row, name) for row in ("input", "good", "same", "sharp") for name in "ab"}
    for name in "ab":
        for row in ("same", "sharp"):  # the sharp picture itself, as a file and as the truth
            assert float(rows[row, name]["rmse"]) == pytest.approx(0.0, abs=1e-4)
            assert float(rows[row, name]["iou"]) == pytest.approx(1.0, abs=1e-3)
        blurred = rows["input", name]
        assert float(blurred["rmse"]) > 0.1
        assert float(blurred["rmse_aligned"]) <= float(blurred["rmse"])
        assert int(blurred["prompts"]) > 0
    assert "| same | **0.000** | **0.000** | **1.000** |" in told  # against a depth of order 1
    assert str(sam_folder) in (out / "downstream.md").read_text()
    names = {f"{name}-{task}.png" for name in "ab" for task in ("depth", "segments")}
    assert {file.name for file in (out / "figures").iterdir()} == names
    # One restored picture of another size: that picture is left out for all, and told.
    save(tmp_path / "good" / "b.png", picture()[:40])
    assert run([*arguments, "--task", "depth"]) == 1
    captured = capsys.readouterr()
    assert "not judged: b: " in captured.err
    assert "64×40 and 64×48 pixels" in captured.err
    assert "iou" not in captured.out.lower()
    for wrong, words in (
        (["--restored", "nothing"], "expected NAME=FOLDER"),
        (["--restored", f"other={tmp_path / 'nowhere'}"], "there is no such folder"),
        (["--task", "driving"], "segmentation"),
        (["--prompt", "words"], "points"),
    ):
        assert run([*arguments, *wrong]) == 2
        assert words in capsys.readouterr().err


def test_figures_show_where_depth_is_wrong_and_whose_a_pixel_is() -> None:
    from defocus.draw import draw_depth_errors, draw_segments

    def images(figure: Any) -> list[np.ndarray]:
        return [np.asarray(axes.images[0].get_array()) for axes in figure.axes]

    rows = {"input": picture(), "sharp": picture()}
    truth = np.linspace(1.0, 2.0, 48)[:, None] * np.ones(64)
    error = np.zeros((48, 64))
    error[10:20, 30:40] = 0.5
    _, _, wrong, depth = images(draw_depth_errors("a", rows, {"input": error}, truth, {"input": "RMSE 0.072"}))
    assert np.ptp(wrong[:5].reshape(-1, 3), axis=0).max() == 0.0
    assert wrong[15, 35].sum() > wrong[0, 0].sum() + 1.0
    assert np.ptp(depth[0], axis=0).max() == 0.0
    assert np.abs(depth[0, 0] - depth[-1, 0]).max() > 0.5
    labels = np.full((48, 64), -1)
    labels[:24], labels[:4, :4] = 1, 0
    _, _, painted, _ = images(draw_segments("a", rows, {"input": labels, "sharp": labels}, {}))
    assert np.ptp(painted[30:], axis=-1).max() == pytest.approx(0.0)  # no segment: grey
    first, second = painted[1, 1] - painted[1, 1].min(), painted[20, 20] - painted[20, 20].min()
    assert np.abs(first - second).max() > 0.3


def test_tables_mark_the_best_restored_row() -> None:
    judgements = Judgements(
        [
            Judgement("1", "input", 0.3, 0.6, 0.7, 5),
            Judgement("1", "ours", 0.25, 0.2, 0.9, 5),
            Judgement("1", "theirs", 0.2, 0.3, 0.8, 5),
            Judgement("1", "sharp", 0.0, 0.0, 1.0, 5),
        ],
        [("2", "no sharp picture")],
    )
    text = judgements.markdown("Title")
    assert "| ours | <u>0.250</u> | **0.200** | **0.900** |" in text
    assert "| theirs | **0.200** | <u>0.300</u> | <u>0.800</u> |" in text
    assert "- 2: no sharp picture" in text


def test_restored_pictures_have_the_ids_of_their_pairs_or_the_names_of_the_blurred_files(tmp_path: Path) -> None:
    folder = tmp_path / "restored"
    folder.mkdir()
    images = [TestImage(f"test-{name}", FileImage(tmp_path / "source" / f"{name}.png")) for name in ("001", "002")]
    with pytest.raises(DatasetError, match="2 of 2 pictures are not there, such as test-001 or 001"):
        restored_pictures(folder, images)
    for name in ("001.png", "test-002.jpg", "002.png"):
        (folder / name).touch()
    found = restored_pictures(folder, images)
    assert {name: one.path.name for name, one in found.items()} == {"test-001": "001.png", "test-002": "test-002.jpg"}
