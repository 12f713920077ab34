"""The weights of the package, a strength, and maps of the blur."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import convolve, gaussian_filter

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")
from PIL import Image  # noqa: E402

from defocus.cli import run  # noqa: E402
from defocus.errors import DefocusError, PhotoError, WeightsError  # noqa: E402
from defocus.files.ownership import file_sum  # noqa: E402
from defocus.restore import shipped  # noqa: E402
from defocus.restore.blur_maps import check_map_file, estimate_blur, write_blur_map  # noqa: E402
from defocus.restore.deblurring import DeblurWishes  # noqa: E402
from defocus.restore.models import build_model  # noqa: E402
from defocus.restore.models.checkpoints import load_model, save_weights  # noqa: E402
from defocus.restore.tiles import deblur as restore  # noqa: E402
from defocus.scene import make_scene  # noqa: E402
from defocus.srgb import to_srgb  # noqa: E402

SMALL = {"width": 4, "encoder_blocks": [1, 1], "middle_blocks": 1, "decoder_blocks": [1, 1], "local_pool_px": 48}


@pytest.fixture
def weights_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose shipped network is tiny, in half precision as shipped ones are."""
    torch.manual_seed(0)
    network = build_model("nafnet", **SMALL)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    folder = tmp_path / "weights"
    folder.mkdir()
    file = folder / "general.safetensors"
    state = {key: value.half() for key, value in network.state_dict().items()}
    save_weights(file, "nafnet", network.options.model_dump(mode="json"), state)
    (folder / "general.json").write_text(json.dumps({"name": "general", "sha256": file_sum(file)}))
    monkeypatch.setattr(shipped.shipped_weights, "__defaults__", (folder,))
    return folder


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    file = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 56, 3), dtype=np.uint8)).save(file)
    return file


def deblur(*arguments: str | Path) -> int:
    return run(["deblur", *map(str, arguments)])


def pixels(file: Path) -> np.ndarray:
    return np.asarray(Image.open(file)).astype(np.float32)


def test_deblur_takes_what_is_shipped(weights_folder: Path, photo: Path, tmp_path: Path) -> None:
    """Without --weights and with them the same; a strength lies between the photograph and the result; a map of it."""
    outs = {name: tmp_path / name for name in ("own", "named", "none", "half")}
    chart = tmp_path / "blur.tif"
    assert deblur(photo, "--out", outs["own"], "--blur-map", chart) == 0
    assert deblur(photo, "--out", outs["named"], "--weights", weights_folder / "general.safetensors") == 0
    assert deblur(photo, "--out", outs["none"], "--strength", "0") == 0
    assert deblur(photo, "--out", outs["half"], "--strength", "0.5") == 0
    before = pixels(photo)
    own, named, none, half = (pixels(out / photo.name) for out in outs.values())
    assert np.array_equal(own, named)
    assert np.array_equal(none, before)
    assert np.abs(own - before).mean() > 1.0
    inside = (own > 0) & (own < 255)  # elsewhere the whole result was clipped
    assert np.abs(half - 0.5 * (own + before))[inside].max() <= 1.0
    with Image.open(chart) as image:
        assert image.size == (56, 40)
        assert image.mode == "F"


def test_what_is_not_the_shipped_file_is_refused(weights_folder: Path) -> None:
    file = weights_folder / "general.safetensors"
    assert shipped.shipped_weights() == file
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(WeightsError, match="its checksum differs: give other weights"):
        shipped.shipped_weights()
    (weights_folder / "general.json").write_text("{")
    with pytest.raises(WeightsError, match="cannot be read"):
        shipped.shipped_weights()


def test_the_package_s_own_network() -> None:
    """Its size and card; and it undoes blur that it was not shown, on a picture that is no photograph."""
    file, card = shipped.shipped_weights(), shipped.model_card()
    assert file.stat().st_size <= 16 * 2**20
    network = load_model(file)
    assert sum(parameter.numel() for parameter in network.parameters()) <= 8_000_000
    assert card["sha256"] == file_sum(file)
    assert {"author", "file", "licence", "source"} == set(card["photographs"][0])
    assert all(one["licence"] for one in card["photographs"])
    light = np.asarray(make_scene("letters", (160, 128)).picture(16).linear)
    kernel = np.clip(4.0 - np.hypot(*np.mgrid[-4:5, -4:5]), 0.0, 1.0)  # a disc of radius 3.5 px
    colours = [convolve(light[..., c], kernel / kernel.sum(), mode="reflect") for c in range(3)]
    sharp, blurred = (to_srgb(np.clip(one, 0.0, 1.0)).astype(np.float32) for one in (light, np.stack(colours, -1)))

    def error(image: np.ndarray) -> float:
        return float(np.mean((image - sharp)[16:-16, 16:-16] ** 2))

    assert error(restore(network, blurred)) < 0.6 * error(blurred)  # 3.3 dB
    assert error(restore(network, sharp)) < 1e-4  # 40 dB


def test_no_weights_are_one_line(
    tmp_path: Path, photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shipped.shipped_weights, "__defaults__", (tmp_path / "nothing",))
    assert deblur(photo, "--out", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "this installation has no weights of its own: give other weights (--weights FILE)" in line
    assert not (tmp_path / "out").exists()


def test_a_strength_beyond_its_ends_is_refused() -> None:
    with pytest.raises(DefocusError, match=r"a strength of 1\.5"):
        DeblurWishes(1.5)


def test_a_map_tells_the_blur_that_was_undone() -> None:
    """Gaussians of σ px are discs of radius 2σ; where there is no detail, nothing."""
    sharp = np.random.default_rng(3).random((96, 160, 3)).astype(np.float32)
    sharp[:, 120:] = 0.5
    for sigma in (0.9, 2.5):
        image = np.stack([gaussian_filter(sharp[..., c], sigma) for c in range(3)], -1)
        chart = estimate_blur(image, sharp)
        assert np.median(chart[16:-16, 16:90]) == pytest.approx(2.0 * sigma, rel=0.15)
        assert np.isnan(chart[:, 150:]).all()
    same = estimate_blur(sharp, sharp)
    assert np.nanmax(same[:, :90]) < 0.5  # nothing was undone


def test_maps_as_files(tmp_path: Path, photo: Path) -> None:
    chart = np.array([[0.0, 4.0], [8.0, np.nan]], np.float32)
    write_blur_map(tmp_path / "map.png", chart)
    assert pixels(tmp_path / "map.png")[..., 0].tolist() == [[0.0, 64.0], [128.0, 0.0]]
    write_blur_map(tmp_path / "map.tif", chart)
    np.testing.assert_array_equal(pixels(tmp_path / "map.tif"), chart)
    with pytest.raises(PhotoError, match="a map is of one photograph, and here are 2"):
        check_map_file(tmp_path / "new.tif", [photo, photo])
    with pytest.raises(PhotoError, match=r"a \.tif"):
        check_map_file(tmp_path / "new.jpg", [photo])
    with pytest.raises(PhotoError, match="is there already"):
        check_map_file(tmp_path / "map.tif", [photo])
    check_map_file(tmp_path / "map.tif", [photo], overwrite=True)
    with pytest.raises(PhotoError, match="is there already"):
        check_map_file(photo, [photo], overwrite=True)
