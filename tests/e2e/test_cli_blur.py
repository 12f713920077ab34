"""`defocus blur` and `defocus refocus` from the outside, on pictures of a few pixels."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus.cli import run
from defocus.photo import reduced

ONE_PSF = ["--bands", "d", "--nodes", "1x1"]
LENS = ["--lens", "leica-summicron-50-f2", *ONE_PSF]
FAST_LENS = ["--lens", "canon-rf-85-f1.2", *ONE_PSF]  # two pixels of blur in a scene of 48×32 pixels


def picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)).astype(float) / 255.0


def through(path: Path) -> tuple[Image.Exif, dict[int, object]]:
    """EXIF entries of a picture whose colours are said to be sRGB, and the part on the exposure."""
    with Image.open(path) as image:
        assert b"sRGB" in image.info["icc_profile"] or "sRGB".encode("utf-16-be") in image.info["icc_profile"]
        return image.getexif(), dict(image.getexif().get_ifd(0x8769))


def detail(seen: np.ndarray) -> float:
    """How much neighbouring pixels differ: less in a blurred picture, more in a noisy one."""
    around = seen[2:, 1:-1] + seen[:-2, 1:-1] + seen[1:-1, 2:] + seen[1:-1, :-2]
    return float(np.abs(4.0 * seen[1:-1, 1:-1] - around).mean())


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chequered photograph of 96×64 pixels; its right half is far away. The depth map is half as large."""
    folder = tmp_path_factory.mktemp("photo")
    rows, columns = np.mgrid[0:64, 0:96] // 4
    grey = np.where((rows + columns) % 2 == 0, 40, 210).astype(np.uint8)
    exif = Image.Exif()
    exif[0x010F], exif[0x8769] = "Maker", {0x829D: 11.0, 0x8827: 200, 0xA434: "Kit lens", 0x927C: b"of the kit lens"}
    Image.fromarray(np.stack([grey] * 3, -1)).save(folder / "photo.png", exif=exif)
    depth = np.where(np.arange(48) < 24, 0.5, np.inf) * np.ones((32, 1))
    depth[3, 5] = np.nan
    np.savez(folder / "photo.npz", depth_m=depth.astype(np.float32))
    return folder / "photo.png"


def test_a_scene_needs_nothing_but_a_lens(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out, sharp, raw, report = (tmp_path / name for name in ("b.png", "s.png", "b.npz", "b.json"))
    files = ["--out", str(out), "--sharp", str(sharp), "--raw", str(raw), "--report", str(report)]
    geometry = ["--vignetting", "--distortion", "--source-map", str(tmp_path / "map.npy")]
    asked = ["--size", "48x32", "--dual-pixel", *geometry, "--noise", *files]
    assert run(["blur", "scene:portrait:2", *FAST_LENS, *asked]) == 0
    shown = capsys.readouterr().out
    assert "fills the lens's image circle" in shown
    told = json.loads(report.read_text())
    assert told["size"] == [48, 32]
    assert told["nodes"] == [1, 1]
    assert told["noise"] is not None
    assert any("procedural scene" in note for note in told["notes"])
    assert any("neutral" in note for note in told["notes"])
    assert picture(out).shape == (32, 48, 3)
    assert detail(picture(out)) < 0.6 * detail(picture(sharp))  # noise alone would add detail
    assert told["parts"] == 1
    lens, inner = through(out)
    assert inner[0xA434] == told["lens"]
    assert lens[0x0131].startswith("defocus ")
    assert not through(sharp)[1]  # no lens took it
    source_map = np.load(tmp_path / "map.npy")
    assert source_map.shape == (32, 48, 2)
    assert np.abs(source_map - np.stack(np.mgrid[0:32, 0:48][::-1], -1)).max() < 1.0  # an 85 mm lens
    with np.load(raw) as kept:
        assert kept["mosaic"].shape == (32, 48)
        assert str(kept["pattern"]) == "RGGB"
    for side in ("left", "right"):
        assert picture(tmp_path / f"b-{side}.png").shape == (32, 48, 3)
        assert told["halves"][side]["node_light_mm2"][0] == pytest.approx(told["node_light_mm2"][0] / 2.0, rel=1e-2)


def test_a_photograph_with_a_depth_file(photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "blurred.png"
    common = ["blur", str(photo), "--depth", str(photo.with_suffix(".npz")), *LENS, "--out", str(out)]
    asked = [*common, "--focus-m", "0.5", "--max-side", "48"]
    assert run(asked) == 2
    assert "ask for resizing" in capsys.readouterr().err
    assert run([*asked, "--resize-depth", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["size"] == [48, 32]
    assert told["farthest_m"] == "inf"
    camera, exposure = through(out)
    assert camera[0x010F] == "Maker"
    assert exposure[0x8827] == 200
    assert exposure[0xA434] == told["lens"]
    assert exposure[0x829D] == pytest.approx(told["f_number"], abs=1e-3)
    assert exposure[0x920A] == pytest.approx(50.0, abs=2.0)
    assert exposure[0x9206] == 0.5
    assert 0x927C not in exposure  # of the other lens
    assert not any("neutral" in note for note in told["notes"])  # no mosaic where none was asked for
    assert any("without depth" in note for note in told["notes"])
    assert any("reduced from 96×64" in note for note in told["notes"])
    near, far = picture(out)[4:-4, 4:18], picture(out)[4:-4, 30:-4]
    assert near.std() > 2.0 * far.std()  # the chequers, two pixels wide, are lost beyond the focus
    at_pixel = [*common, "--max-side", "48", "--resize-depth", "--json", "--focus-at"]
    before = out.read_bytes()
    assert run([*at_pixel, "20,9"]) == 0
    assert json.loads(capsys.readouterr().out)["focus_m"] == 0.5
    assert out.read_bytes() == before
    assert run([*at_pixel, "10,6"]) == 2
    assert "--focus-at 10,6: the depth map has no depth there; the nearest pixel with one is" in capsys.readouterr().err
    assert run([*at_pixel, "96,0"]) == 2
    assert "no pixel of it: X goes from 0 to 95, Y to 63" in capsys.readouterr().err


def test_clipped_highlights_of_pictures_are_spread(photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    white = tmp_path / "white.png"
    values = np.array(Image.open(photo))
    values[30:34, 70:74] = 255
    Image.fromarray(values).save(white)
    out = str(tmp_path / "b.png")
    common = ["blur", str(white), "--depth", str(photo.with_suffix(".npz")), *LENS, "--out", out, "--focus-m", "0.5"]
    asked = [*common, "--max-side", "48", "--resize-depth", "--json"]
    assert run(asked) == 0
    bright, report = picture(tmp_path / "b.png"), json.loads(capsys.readouterr().out)
    assert report["saturation"] == 2.0
    assert any("0.26% of its pixels are clipped: they count as up to 3 times white" in n for n in report["notes"])
    assert run([*asked, "--saturation", "none"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["saturation"] == 0.0
    assert not any("clipped:" in note for note in report["notes"])
    assert (bright - picture(tmp_path / "b.png"))[10:22, 30:42].max() > 0.02


def test_what_blur_refuses(photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = ["--out", str(tmp_path / "x.png")]
    depth = ["--depth", str(photo.with_suffix(".npz")), "--resize-depth"]
    empty = tmp_path / "empty.npz"
    np.savez(empty, depth_m=np.full((64, 96), np.nan, np.float32))
    for arguments, message in (
        ([str(photo), *LENS, *out, "--focus-m", "1"], "give its --depth"),
        ([f"{photo}.x", *LENS, *out, "--focus-m", "1"], "no such file"),
        ([str(photo), *LENS, *out, *depth], "give --focus-m"),
        (["scene:portrait", *LENS, *out, "--focus-m", "1", "--focus-at", "3,4"], "or --focus-at, not both"),
        ([str(photo), *LENS, *out, "--depth", str(empty), "--focus-m", "1"], "none of its 6144 pixels has a depth"),
        (["scene:portrait", *LENS, *out, *depth], "a scene brings its own depth"),
        (["scene:portrait:x", *LENS, *out], "scene:NAME:SEED"),
        (["scene:portrait", *LENS, *out, "--source-map", str(tmp_path / "m.npy")], "without --distortion every pixel"),
        (["scene:portrait", *LENS, *out, "--patch"], "--nodes is for --full-field"),
        (["scene:portrait", *LENS, *out, "--field", "0.5,0"], "--field is for --patch"),
        (["scene:portrait", *LENS, *out, "--saturation", "bright"], "--saturation bright"),
        (["scene:portrait", *LENS, "--size", "48x32", *out, "--pixel-um", "exif"], "EXIF data do not tell"),
        (["scene:portrait", *LENS, *out, "--report", str(tmp_path / "r.txt")], "ends in .json"),
        (["scene:portrait", *LENS, *out, "--size", "big"], "--size big"),
        (["scene:portrait", *LENS, *out, "--max-side", "90"], "--max-side: for photographs"),
        (["scene:portrait", *LENS, *out, "--resize-depth", "--scale-m", "1"], "--resize-depth and --scale-m: for phot"),
        ([str(photo), *LENS, *out, *depth, "--focus-m", "1", "--size", "48x32"], "--size is for scenes"),
        (["scene:portrait", *LENS, *out, "--blades", "7", "--size", "48x32"], "blades at its full aperture"),
        (["scene:portrait", *LENS, *out, "--focus-m", "0.04", "--size", "48x32"], "within its front focal point"),
    ):  # fmt: skip
        assert run(["blur", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_inputs_are_never_replaced(photo: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    mine, depth, lens = tmp_path / "mine.png", tmp_path / "mine.npz", tmp_path / "lens.json"
    for path, source in ((mine, photo), (depth, photo.with_suffix(".npz"))):
        path.write_bytes(source.read_bytes())
    assert run(["lens", "convert", "leica-summicron-50-f2", str(lens)]) == 0
    (tmp_path / "symbolic.png").symlink_to(mine)
    (tmp_path / "hard.png").hardlink_to(mine)
    (tmp_path / "mine-left.png").write_bytes(mine.read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    blur = ["blur", str(mine), "--depth", str(depth), "--focus-m", "1", "--lens", str(lens)]
    half = ["blur", str(tmp_path / "mine-left.png"), *blur[2:], "--out", str(mine), "--dual-pixel"]
    refocus = ["refocus", *blur[1:3], str(depth), "--lens", str(lens), "--focus-m", "1"]
    spelling = str(tmp_path / "." / ".." / tmp_path.name / "mine.png")
    for arguments in (
        [*blur, "--out", str(mine)],
        [*blur, "--out", spelling],
        [*blur, "--out", str(tmp_path / "symbolic.png")],
        [*blur, "--out", str(tmp_path / "hard.png")],
        [*blur, "--out", str(depth)],
        [*blur, "--out", str(tmp_path / "b.png"), "--sharp", str(mine)],
        [*blur, "--out", str(tmp_path / "b.png"), "--report", str(lens)],
        half,
        [*refocus, "--out", str(mine)],
        ["develop", str(mine), "--out", str(mine)],
        ["develop", str(mine), "--out", str(tmp_path / "symbolic.png")],
        ["depth", str(mine), "--out", str(mine), "--scale-m", "0.001"],
    ):
        assert run(arguments) == 2
        assert "is not replaced" in capsys.readouterr().err, arguments
    assert run([*blur, "--out", str(tmp_path / "b.png"), "--sharp", str(tmp_path / "b.png")]) == 2
    assert "two results" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_results_appear_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for name, arguments in {
        "s.png": ["scene", "portrait", "--size", "48x32", "--out"],
        "s.npz": ["psf", "leica-summicron-50-f2", "--bands", "d", "--size", "8", "--method", "disk", "--out"],
        "p.png": ["psf", "leica-summicron-50-f2", "--bands", "d", "--size", "8", "--method", "disk", "--out"],
    }.items():
        (tmp_path / name).write_bytes(b"old")
        assert run([*arguments, str(tmp_path / name)]) == 2
        assert f"{name}: cannot be written: the disk is full" in capsys.readouterr().err
        assert (tmp_path / name).read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_focus_sweep(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    common = ["refocus", "scene:portrait", *LENS, "--size", "48x32", "--focus-m", "1.5,6"]
    assert run([*common, "--out", str(tmp_path / "sweep.png")]) == 0
    assert "focus 6 m: blur radii" in capsys.readouterr().out
    strip = picture(tmp_path / "sweep.png")
    assert strip.shape == (32, 2 * 48 + 6, 3)
    assert 0x9206 not in through(tmp_path / "sweep.png")[1]  # it has no one focus
    assert np.abs(strip[:20, :48] - strip[:20, 54:]).mean() > 0.003
    assert run([*common, "--out", str(tmp_path / "sweep.gif"), "--no-captions"]) == 0
    with Image.open(tmp_path / "sweep.gif") as animation:
        assert animation.n_frames == 2
    assert run([*common, "--out", str(tmp_path / "sweep.mov")]) == 2
    assert "ends in .gif" in capsys.readouterr().err
    assert run([*common[:-2], "--out", str(tmp_path / "sweep.png")]) == 2
    assert "or --focus-at, a pixel" in capsys.readouterr().err
    wrong = [*common[:-1], "1,-2", "--out", str(tmp_path / "sweep.png")]
    assert run(wrong) == 2
    assert "expected distances" in capsys.readouterr().err


def test_a_focus_pull_and_an_aperture_sweep(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    common = ["refocus", "scene:portrait", *FAST_LENS, "--method", "disk", "--size", "48x32"]
    pull, report = tmp_path / "pull.webp", tmp_path / "pull.json"
    smooth = ["--focus-m", "1,inf", "--frames", "5", "--breathing", "--f-number", "4", "--report", str(report)]
    assert run([*common, *smooth, "--out", str(pull)]) == 0
    assert "focus 1.333 m: blur radii" in capsys.readouterr().out
    facts = json.loads(report.read_text())
    assert [float(f["focus_m"]) for f in facts] == pytest.approx([1.0, 4 / 3, 2.0, 4.0, math.inf])  # even in dioptres
    assert [f["f_number"] for f in facts] == pytest.approx([4.0] * 5, abs=1e-3)
    zooms = [f["zoom"] for f in facts]
    assert zooms[-1] == 1.0
    assert np.all(np.diff(zooms) < 0.0)
    with Image.open(pull) as animation:
        assert animation.n_frames == 8
        animation.load()
        assert animation.info["duration"] == 40
    capsys.readouterr()
    assert run([*common, "--f-number", "1.2,2.8,8", "--json", "--out", str(tmp_path / "stops.png")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [f["f_number"] for f in facts] == pytest.approx([1.2, 2.8, 8.0], abs=0.01)
    widths = [max(map(abs, f["coc_px"])) for f in facts]
    assert widths[0] / widths[2] == pytest.approx(8.0 / facts[0]["f_number"], rel=0.01)
    assert picture(tmp_path / "stops.png").shape == (32, 3 * 48 + 12, 3)
    for options, message in {
        ("--focus-m", "1,2", "--f-number", "2,4"): "one at a time",
        ("--focus-m", "1", "--frames", "4"): "--frames lie between several",
        ("--focus-m", "1,2", "--f-number", "2,x"): "expected f-numbers",
    }.items():
        assert run([*common, *options, "--out", str(tmp_path / "x.gif")]) == 2
        assert message in capsys.readouterr().err
    assert run([*common, "--focus-m", "1,2", "--frames", "4", "--out", str(tmp_path / "x.png")]) == 2
    assert "--frames are for an animation" in capsys.readouterr().err


def test_a_reduced_picture_keeps_its_light() -> None:
    light = np.random.default_rng(0).random((30, 45, 3)).astype(np.float32)
    smaller = reduced(light, (15, 10))
    assert np.allclose(smaller, light.reshape(10, 3, 15, 3, 3).mean((1, 3)), atol=1e-6)
