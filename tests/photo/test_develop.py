"""`defocus develop` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus.cli import run
from defocus.files.exif import srgb_profile
from defocus.photo import SensorColour, encode, inverse_isp, read_picture

from ..dng import write_dng


@pytest.fixture(scope="module")
def raw(smooth: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RAW file of the smooth image, taken by the camera that the file describes."""
    from defocus.photo import read_photo

    folder = tmp_path_factory.mktemp("raw")
    camera = read_photo(write_dng(folder / "probe.dng", np.full(smooth.shape[:2], 4000))).colour
    assert isinstance(camera, SensorColour)
    mosaic = np.asarray(inverse_isp(smooth, camera))
    return write_dng(folder / "photo.dng", np.round(512 + mosaic * (15872 - 512)), orientation=3)


def test_a_raw_file_to_pictures(raw: Path, smooth: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    upright = smooth[::-1, ::-1]
    assert run(["develop", str(raw), "--out", str(tmp_path / "a.png"), "--bits", "16", "--demosaic", "malvar"]) == 0
    shown = capsys.readouterr().out
    assert "RAW, BGGR" in shown
    assert "128×96" in shown
    assert "2.000 1.000 1.600" in shown
    back, exif, notes = read_picture(tmp_path / "a.png")
    assert (exif.make, notes) == ("Canon", [])
    with Image.open(tmp_path / "a.png") as image:
        assert image.info["icc_profile"] == srgb_profile()
    assert np.abs(back - np.asarray(encode(upright)))[8:-8, 8:-8].max() < 2e-3
    assert (
        run(["develop", str(raw), "--out", str(tmp_path / "a.npz"), "--exposure-ev", "1", "--demosaic", "malvar"]) == 0
    )
    with np.load(tmp_path / "a.npz") as data:
        assert np.abs(data["linear"] / 2.0 - upright)[8:-8, 8:-8].max() < 1e-3
        assert json.loads(str(data["report"]))["pattern"] == "BGGR"
    options = ["--response", "linear", "--orientation", "1", "--white-balance", "4,2,3.2", "--demosaic", "malvar"]
    assert run(["develop", str(raw), "--out", str(tmp_path / "b.png"), *options]) == 0
    back, _, _ = read_picture(tmp_path / "b.png")
    with Image.open(tmp_path / "b.png") as image:
        assert "icc_profile" not in image.info  # not the curve of sRGB
    assert np.abs(back - smooth)[8:-8, 8:-8].max() < 4e-3


def test_noise_and_report(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def develop(name: str, *options: str) -> tuple[np.ndarray, dict]:
        command = ["develop", str(raw), "--out", str(tmp_path / name), "--json", "--demosaic", "malvar", *options]
        assert run(command) == 0
        return np.load(tmp_path / name), json.loads(capsys.readouterr().out)

    clean, report = develop("clean.npy")
    assert report["noise_added"] is None
    assert report["exif"]["make"] == "Canon"
    noisy, report = develop("noisy.npy", "--noise", "1e-3,1e-4", "--seed", "3")
    assert report["noise_added"] == pytest.approx([1e-3, 1e-4])
    again, _ = develop("again.npy", "--noise", "1e-3,1e-4", "--seed", "3")
    np.testing.assert_array_equal(noisy, again)
    assert 0.01 < np.std(noisy - clean) < 0.2
    _, report = develop("paper.npy", "--noise", "paper")
    assert all(0.5e-5 <= n <= 1.5e-5 for n in report["noise_added"])


def test_an_srgb_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from defocus.photo import write_picture

    display = np.random.default_rng(0).uniform(0, 1, (20, 30, 3)).astype(np.float32)
    write_picture(tmp_path / "in.png", display)
    assert run(["develop", str(tmp_path / "in.png"), "--out", str(tmp_path / "out.png")]) == 0
    assert "note            an sRGB file" in capsys.readouterr().out
    np.testing.assert_array_equal(read_picture(tmp_path / "out.png")[0], read_picture(tmp_path / "in.png")[0])
    for options, words in (
        (["--noise", "paper"], "has no mosaic to add it to"),
        (["--white-balance", "daylight"], "needs a mosaic"),
    ):
        assert run(["develop", str(tmp_path / "in.png"), "--out", str(tmp_path / "x.png"), *options]) == 2
        assert words in capsys.readouterr().err


def test_a_bare_mosaic(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    values = np.random.default_rng(0).integers(600, 4000, (96, 128)).astype("<u2")
    values.tofile(tmp_path / "a.raw")
    numbers = ["--mosaic", "128,96,RGGB,600,4095", "--white-balance", "1,1,1", "--demosaic", "malvar"]
    assert run(["develop", str(tmp_path / "a.raw"), "--out", str(tmp_path / "a.npy"), *numbers]) == 0
    assert "taken for sRGB's" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(tmp_path / "a.npy")[0, 0, 0], (values[0, 0] - 600) / 3495, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "a.gif"], "expected a name that ends in .png"),
        (["--out", "a.jpg", "--bits", "16"], "a JPEG has 8 bits"),
        (["--out", "a.png", "--white-balance", "1,2"], "three numbers"),
        (["--out", "a.png", "--white-balance", "1,-2,1"], "three positive gains"),
        (["--out", "a.png", "--noise", "loud"], "expected none, paper, or two numbers"),
        (["--out", "a.png", "--noise", "7,0"], "expected 0 to 1"),
        (["--out", "a.png", "--response", "wild"], "expected srgb"),
        (["--out", "a.png", "--demosaic", "bilinear"], "malvar"),
        (["--out", "a.npy", "--bits", "16"], "linear light has no"),
        (["--out", "a.png", "--mosaic", "1,2"], "expected WIDTH,HEIGHT,PATTERN,BLACK,WHITE"),
        (["--out", "a.png", "--orientation", "9"], "'--orientation'"),
        ([], "Missing option '--out'"),
    ],
)
def test_wrong_use_is_told(
    raw: Path,
    options: list[str],
    words: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["develop", str(raw), *options]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
