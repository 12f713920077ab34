"""Deblurring photographs: tiles that leave no seams, bounded memory, files with what they carry, and bad input."""

from __future__ import annotations

import functools
import json
import os
import struct
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")
from PIL import Image, ImageCms, TiffImagePlugin  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from defocus.errors import DefocusError, PhotoError  # noqa: E402
from defocus.files.exif import Metadata, read_metadata, upright  # noqa: E402
from defocus.files.pictures import encoded, quantise  # noqa: E402
from defocus.photo import read_picture  # noqa: E402
from defocus.restore.deblurring import (  # noqa: E402
    DeblurFolder,
    DeblurJob,
    DeblurSummary,
    TileSettings,
    choose_device,
    deblur_files,
    deblur_photo,
    plan_jobs,
)
from defocus.restore.tiles import deblur, plan_tiles, restored_tiles  # noqa: E402


class Plain(nn.Module):
    """Three convolutions of 5×5: reach 6."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = (3, 4, 4, 3)
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2) for a, b in pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Strided(nn.Module):
    """Down by 4 and up again, with a skip: aligned to multiples of 4, reach 4·(1 + ½) + 4·1 + 4 < 15."""

    multiple = 4

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.down1, self.down2 = nn.Conv2d(3, 6, 2, 2), nn.Conv2d(6, 8, 2, 2)
        self.middle = nn.Conv2d(8, 48, 3, padding=1)
        self.up = nn.PixelShuffle(4)
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(x.shape))
        rows, cols = x.shape[-2:]
        padded = F.pad(x, (0, -cols % 4, 0, -rows % 4), mode="reflect")
        result = padded + self.up(self.middle(torch.tanh(self.down2(torch.tanh(self.down1(padded))))))
        return result[..., :rows, :cols]


class Brighter(nn.Module):
    """Half way to white: what a file held can be told from the result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x + 0.5


def noise(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(rows, cols, 3)).astype(np.float32)


def whole(model: nn.Module, image: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(image).permute(2, 0, 1)[None])[0].permute(1, 2, 0).numpy()


def restore(job: DeblurJob, model: nn.Module | None = None) -> list[str]:
    return deblur_photo(model or Brighter(), job, TileSettings(), DeblurFolder(job.out.parent, {}))


# Tiles


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130, 199, 511, 512, 513, 1000, 1023])
@pytest.mark.parametrize(("tile", "overlap", "multiple"), [(64, 0, 1), (64, 32, 1), (96, 20, 8), (128, 64, 16)])
def test_weights_add_up_to_one_and_edges_of_tiles_count_nothing(
    length: int, tile: int, overlap: int, multiple: int
) -> None:
    axis = plan_tiles((length, 64), tile, overlap, multiple).rows
    total = np.zeros(max(axis.starts) + axis.size)
    for number, (start, weight) in enumerate(zip(axis.starts, axis.weights, strict=True)):
        assert start % multiple == 0
        assert weight.shape == (axis.size,)
        assert weight.min() >= 0.0
        total[start : start + axis.size] += weight
        if number:
            assert np.all(weight[: overlap // 4] == 0.0)
            assert axis.starts[number - 1] + axis.size - start >= overlap
        if number < len(axis.starts) - 1:
            assert np.all(weight[axis.size - overlap // 4 :] == 0.0)
    assert len(total) >= length
    np.testing.assert_allclose(total, 1.0, atol=1e-6)
    if len(axis.starts) > 1:
        assert len(total) - length < multiple


@pytest.mark.parametrize(("rows", "cols"), [(150, 231), (64, 300), (70, 66)])
def test_tiled_equals_whole_where_the_overlap_covers_the_reach(rows: int, cols: int) -> None:
    image = noise(rows, cols)
    for model, overlap in ((Plain(), 24), (Strided(), 32)):
        result = deblur(model, image, tile_px=80, overlap_px=overlap, batch=3)
        np.testing.assert_allclose(result, whole(model, image), atol=2e-6)


def test_a_tile_off_the_grid_would_be_seen() -> None:
    """What the multiple is for: the same network without it, cut at odd places, differs."""
    model, image = Strided(), noise(150, 231)
    true = whole(model, image)
    model.multiple = 1
    assert np.abs(deblur(model, image, tile_px=81, overlap_px=32) - true).max() > 1e-3


def test_too_little_overlap_leaves_no_seam() -> None:
    """Where a network reaches farther than the overlap, neighbouring tiles fade into each other."""

    class Mean(nn.Module):  # the whole tile matters everywhere
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3), keepdim=True).expand_as(x)

    image = noise(64, 400)
    image[:, 200:] *= 0.2
    result = deblur(Mean(), image, tile_px=128, overlap_px=64)[32, :, 0]
    assert np.ptp(result) > 0.2
    assert (
        np.abs(np.diff(result)).max() < 1.6 * np.ptp(result) / 32
    )  # the ramp is 32 pixels long, 1.5 / 32 its steepest


def test_tiles_have_one_shape_and_are_made_when_asked_for() -> None:
    model, image = Strided(), noise(150, 231)
    tiles = plan_tiles((150, 231), 80, 16, 4)
    results = restored_tiles(model, image, tiles, batch=1)
    assert not model.shapes
    next(results)
    assert len(model.shapes) == 1
    assert sum(1 for _ in results) == len(tiles.places) - 1
    assert set(model.shapes) == {(1, 3, 80, 80)}


def test_memory_is_that_of_the_result_and_a_few_tiles() -> None:
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    image = np.full((1600, 1600, 3), 0.5, np.float32)
    deblur(Nothing(), image[:64, :64])
    tracemalloc.start()
    result = deblur(Nothing(), image, tile_px=128, overlap_px=32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(result, image, atol=1e-6)
    assert peak < result.nbytes + 10 * 128 * 128 * 3 * 4


def test_smaller_than_anything_and_bf16() -> None:
    image = noise(5, 3)
    result = deblur(Brighter(), image)
    np.testing.assert_allclose(result, 0.5 * image + 0.5, atol=1e-6)
    model, image = Plain(), noise(100, 100)
    exact, rough = (deblur(model, image, tile_px=64, overlap_px=24, precision=p) for p in ("float32", "bf16"))
    assert 0.0 < np.abs(exact - rough).max() < 0.02


def test_whole_numbers_are_parts_of_their_white() -> None:
    for kind in (np.uint8, np.uint16):
        white = np.iinfo(kind).max
        image = (noise(20, 20) * white).astype(kind)
        np.testing.assert_allclose(deblur(Brighter(), image), 0.5 * image / white + 0.5, atol=1e-6)


def test_public_names() -> None:
    import defocus.restore

    for name in defocus.restore.__all__:
        public = getattr(defocus.restore, name)
        assert public.__name__ == name, "a module of the same name would hide it"
        assert public.__doc__


def test_wrong_tiles_are_refused() -> None:
    with pytest.raises(DefocusError, match=r"64 pixels that share 48; they may share half at most"):
        plan_tiles((100, 100), 64, 48)
    with pytest.raises(DefocusError, match=r"of 100 pixels that share 50 \(in multiples of 8, .*: 104 and 56\); they"):
        plan_tiles((100, 100), 100, 50, 8)
    with pytest.raises(DefocusError, match="precision 'half'; known are float32, bf16"):
        deblur(Plain(), noise(64, 64), precision="half")

    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[..., ::2, ::2]

    with pytest.raises(DefocusError, match=r"made \[1, 3, 32, 32\] of \[1, 3, 64, 64\]"):
        deblur(Halves(), noise(64, 64))


# Files


def camera_exif(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Maker", "Model 1", orientation
    rational = TiffImagePlugin.IFDRational
    exif[0x8769] = {
        0x829D: rational(28, 10),
        0x920A: rational(50),
        0x927C: b"maker's own \0\1\2",
        0xA002: 40,
        0xA003: 24,
    }
    exif[0x8825] = {1: "N", 2: (48.0, 30.0, 0.0)}
    return exif.tobytes()


def profile(name: str = "LAB") -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()


@functools.cache  # a profile tells the second in which it was made
def other_profile() -> bytes:
    """An RGB profile that is not called sRGB."""
    data = profile("sRGB").replace(b"sRGB", b"Wide").replace("sRGB".encode("utf-16-be"), "Wide".encode("utf-16-be"))
    assert data[16:20] == b"RGB "
    return data


SMALL = np.clip(np.add.outer(np.arange(24) * 3, np.arange(40) * 2)[..., None] + [0, 20, 40], 0, 255).astype(np.uint8)


@pytest.mark.parametrize("kind", ["jpg", "png", "tif"])
def test_exif_and_profile_are_kept_and_pixels_upright(tmp_path: Path, kind: str) -> None:
    more = {"quality": 95, "subsampling": 0} if kind == "jpg" else {}
    photo = tmp_path / f"photo.{kind}"
    Image.fromarray(SMALL).save(photo, exif=camera_exif(6), icc_profile=other_profile(), **more)
    (job,) = plan_jobs(photo, tmp_path / "out")
    assert restore(job) == []
    assert job.out == tmp_path / "out" / f"photo.{kind}"
    with Image.open(job.out) as image:
        assert image.size == (24, 40)  # turned by a quarter
        assert image.info["icc_profile"] == other_profile()
        exif = image.getexif()
        inner = exif.get_ifd(0x8769)
        assert exif.get(0x0112, 1) == 1
        assert (exif[0x010F], exif[0x0110]) == ("Maker", "Model 1")
        assert (float(inner[0x829D]), float(inner[0x920A])) == (2.8, 50.0)
        assert inner[0x927C] == b"maker's own \0\1\2"
        assert exif.get_ifd(0x8825)[2] == (48.0, 30.0, 0.0)
        if kind != "tif":
            assert (inner[0xA002], inner[0xA003]) == (24, 40)
        result = np.asarray(image.convert("RGB"))
    expected = np.rot90(0.5 * SMALL + 127.5, -1)
    assert np.abs(result - expected).max() <= (4 if kind == "jpg" else 1)


def test_the_preview_is_cut_off_and_damaged_exif_told(tmp_path: Path) -> None:
    block = camera_exif(8)[6:]
    order = "<" if block[:2] == b"II" else ">"
    (first,) = struct.unpack_from(order + "I", block, 4)
    after = first + 2 + 12 * struct.unpack_from(order + "H", block, first)[0]
    linked = bytearray(block)
    struct.pack_into(order + "I", linked, after, first)  # a second directory, as that of a preview
    result = upright(bytes(linked), (7, 9))
    assert len(result) == len(block)
    assert struct.unpack_from(order + "I", result, after) == (0,)
    changed = [i for i, (a, b) in enumerate(zip(result, linked, strict=True)) if a != b]
    assert len(changed) <= 2 + 4 + 4 + 4
    for bad in (b"", b"II*\0", b"XX" + block[2:], block[:20]):
        with pytest.raises((ValueError, struct.error)):
            upright(bad, (7, 9))
    Image.fromarray(SMALL).save(tmp_path / "a.png", exif=b"Exif\0\0" + block[:20])
    metadata = read_metadata(tmp_path / "a.png", (40, 24))
    assert metadata.exif is None
    assert "EXIF data are damaged" in metadata.notes[0]


def test_profiles_that_are_not_for_rgb_are_left_out(tmp_path: Path) -> None:
    Image.fromarray(SMALL).save(tmp_path / "a.png", icc_profile=profile("LAB"))
    metadata = read_metadata(tmp_path / "a.png", (40, 24))
    assert metadata.profile is None
    assert "is for Lab values" in metadata.notes[0]


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_sixteen_bits_stay(tmp_path: Path, kind: str) -> None:
    fine = np.linspace(0.2, 0.21, 30 * 50 * 3, dtype=np.float32).reshape(30, 50, 3)
    exif = Metadata(camera_exif(1)[6:], other_profile())
    data, notes = encoded(quantise(fine, 16), kind, exif)
    assert notes == []
    photo = tmp_path / f"deep.{kind}"
    photo.write_bytes(data)
    np.testing.assert_allclose(read_picture(photo, to_srgb=False)[0], fine, atol=1e-5)
    (job,) = plan_jobs(photo, tmp_path / "out")
    assert restore(job) == []
    result, read, _ = read_picture(job.out, to_srgb=False)
    np.testing.assert_allclose(result, 0.5 * fine + 0.5, rtol=0.0, atol=0.76 / 65535)  # ¼ and ½ of a step
    assert (read.make, read.f_number) == ("Maker", 2.8)
    with Image.open(job.out) as image:
        assert image.info["icc_profile"] == other_profile()
    (eight,) = plan_jobs(photo, tmp_path / "out8", bits=8)
    restore(eight)
    np.testing.assert_allclose(read_picture(eight.out, to_srgb=False)[0], 0.5 * fine + 0.5, atol=2e-3)


def test_raw_files_are_developed(shared: Path, tmp_path: Path) -> None:
    (job,) = plan_jobs(shared / "photos" / "raw" / "lg_g4_h815_skia_sample_1mp_linear.dng", tmp_path)
    assert job.out.suffix == ".png"
    restore(job)
    result, exif, _ = read_picture(job.out)
    assert result.shape[2] == 3
    assert result.min() >= 0.5 - 1e-4
    assert result.std() > 0.02
    assert exif.make is not None


def test_folders_resume_and_one_bad_file(tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "photos" / "out"
    (photos / "more").mkdir(parents=True)
    for name in ("b.png", "a.jpg", "more/c.png", ".hidden.png"):
        Image.fromarray(SMALL).save(photos / name)
    (photos / "broken.jpg").write_bytes((photos / "a.jpg").read_bytes()[:300])
    (photos / "notes.txt").write_text("no photograph")
    jobs = plan_jobs(photos, out, recursive=True)
    assert [job.out.relative_to(out).as_posix() for job in jobs] == ["a.jpg", "b.png", "broken.jpg", "more/c.png"]
    reports: list[tuple[str, float]] = []
    results = DeblurFolder(out, {})
    first = deblur_files(Brighter(), jobs, TileSettings(), results, progress=lambda *one: reports.append(one))
    assert len(first.done) == 3
    assert [photo.name for photo, _ in first.failed] == ["broken.jpg"]
    assert str(photos / "broken.jpg") in first.failed[0][1]
    assert not (out / "broken.jpg").exists()
    assert [part for _, part in reports] == sorted(part for _, part in reports)
    # What was made is not taken for photographs, and stays as it is.
    jobs = plan_jobs(photos, out, recursive=True)
    assert len(jobs) == 4
    before = {file: file.read_bytes() for file in first.done}
    again = deblur_files(nn.Identity(), jobs, TileSettings(), results)
    assert (len(again.done), len(again.skipped), len(again.failed)) == (0, 3, 1)
    assert all(file.read_bytes() == data for file, data in before.items())
    anew = deblur_files(nn.Identity(), jobs, TileSettings(), results, overwrite=True)
    assert len(anew.done) == 3
    assert (out / "b.png").read_bytes() != before[out / "b.png"]
    assert [file.name for file in out.rglob("*") if file.is_file() and file not in first.done] == [".defocus.jsonl"]


def test_a_network_that_gives_no_numbers_writes_nothing(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 0.0 - x / 0.0

    Image.fromarray(SMALL).save(tmp_path / "a.png")
    job = DeblurJob(tmp_path / "a.png", tmp_path / "out" / "a.png")
    with pytest.raises(PhotoError, match=r"a.png: of what the network made, 2880 values .* row 0;"):
        restore(job, Broken())
    assert not job.out.exists()


def test_wrong_names_are_refused_before_the_work(tmp_path: Path) -> None:
    Image.fromarray(SMALL).save(tmp_path / "a.png")
    with pytest.raises(PhotoError, match="would take this photograph's place"):
        plan_jobs(tmp_path, tmp_path)
    with pytest.raises(PhotoError, match="no such file or folder"):
        plan_jobs(tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PhotoError, match=r"no photographs here \(.png, .jpg.*--recursive"):
        plan_jobs(tmp_path / "empty", tmp_path / "out")
    Image.fromarray(SMALL).save(tmp_path / "a.jpg")
    with pytest.raises(PhotoError, match=r"a.png: and a.jpg would both become a.png"):
        plan_jobs(tmp_path, tmp_path / "out", kind="png")
    with pytest.raises(DefocusError, match="a JPEG has 8 bits"):
        plan_jobs(tmp_path, tmp_path / "out", kind="jpg", bits=16)
    with pytest.raises(PhotoError, match="results go to a folder"):
        plan_jobs(tmp_path, tmp_path / "a.png")
    assert plan_jobs(tmp_path / "a.jpg", tmp_path / "out", bits=16)[0].out.name == "a.png"
    with pytest.raises(DefocusError, match="device 'gpu7' cannot be used"):
        choose_device("gpu7")
    assert choose_device("auto") in ("cpu", "cuda")


# The networks


@pytest.fixture(scope="module")
def tiny_nafnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With weights that matter: fresh ones leave the picture as it is."""
    from defocus.restore.models import build_model
    from defocus.restore.models.checkpoints import save_weights

    torch.manual_seed(2)
    model = build_model("nafnet", "small", width=8, encoder_blocks=(1, 1), decoder_blocks=(1, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            if float(parameter.abs().max()) == 0.0:
                parameter.normal_(0.0, 0.1)
    file = tmp_path_factory.mktemp("weights") / "tiny.pth"
    save_weights(file, "nafnet", model.options.model_dump(), model.state_dict())
    return file


def test_nrknet_in_tiles_equals_the_whole() -> None:
    """Its reach over three scales is far larger than its tiles, but what lies far away counts little."""
    from defocus.restore.models import build_model

    torch.manual_seed(3)
    model = build_model("nrknet", "small", width=8, kernels=5).eval()
    image = noise(192, 320)
    true = whole(model, image)
    assert np.abs(true - image).mean() > 1e-3  # it does something
    result = deblur(model, image, tile_px=192, overlap_px=96)
    assert np.abs(result - true).max() < 1e-3


def test_nafnet_in_tiles_differs_by_its_global_means(tiny_nafnet: Path) -> None:
    """Its attention takes means over all of a picture; local means are the same in tiles as in the whole."""
    from defocus.restore.models.checkpoints import load_model

    image = noise(160, 256)
    image[:, 128:] *= 0.3  # tiles differ in their means
    model = load_model(tiny_nafnet)
    true = whole(model, image)
    spread = float(np.abs(true - image).mean())
    assert spread > 1e-3
    far = np.abs(deblur(model, image, tile_px=96, overlap_px=48) - true).max()
    assert far > 1e-3  # so a test can see it
    local = load_model(tiny_nafnet, local_pool_px=32)
    near = np.abs(deblur(local, image, tile_px=144, overlap_px=72) - whole(local, image)).max()
    assert near < 1e-3 < far


def test_command_line(tiny_nafnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from defocus.cli import run

    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    Image.fromarray(SMALL).save(photos / "a.jpg", exif=camera_exif(3))
    (photos / "b.png").write_bytes(b"no picture")
    arguments = ["deblur", str(photos), "--weights", str(tiny_nafnet), "--out", str(out), "--device", "cpu"]
    assert run([*arguments, "--precision", "bf16"]) == 1
    captured = capsys.readouterr()
    assert "b.png: cannot be decoded" in captured.err
    assert "1 of 2 photographs restored by nafnet" in captured.out
    (photos / "b.png").unlink()
    assert run([*arguments, "--precision", "bf16"]) == 0
    assert "1 were there already" in capsys.readouterr().out
    assert run([*arguments, "--bits", "16", "--overwrite"]) == 0
    assert sorted(file.name for file in out.iterdir()) == [".defocus.jsonl", "a.jpg", "a.png"]
    (tmp_path / "file").write_text("")
    for wrong, words in (
        (["--weights", str(tmp_path / "none.pth")], "none.pth: there is no such file"),
        (["--model", "restormer"], "holds weights of nafnet, not of restormer"),
        (["--precision", "int8"], "precision 'int8'; known are"),
        (["--tile", "64", "--overlap", "48"], "they may share half at most"),
        (["--device", "gpu7"], "device 'gpu7' cannot be used"),
        (["--format", "bmp"], "format 'bmp'; known are png, jpg, tif"),
        (["--out", str(tmp_path / "file" / "inner")], "cannot be written: a file stands where a folder is needed"),
        (["--set", "width"], "--set width: expected KEY=VALUE of the network"),
    ):
        assert run([*arguments, *wrong]) == 2
        assert words in capsys.readouterr().err
    weights = torch.load(tiny_nafnet)
    # Weights of others tell nothing of their sizes.
    torch.save(weights["state"], tmp_path / "foreign.pth")
    foreign = [*arguments, "--weights", str(tmp_path / "foreign.pth"), "--out", str(tmp_path / "of_others")]
    assert run([*foreign, "--set", "size=small"]) == 2
    assert "keys fit" in capsys.readouterr().err
    sizes = ("size=small", "width=8", "encoder_blocks=[1, 1]", "decoder_blocks=[1, 1]")
    assert run([*foreign, *(part for size in sizes for part in ("--set", size))]) == 0
    assert (tmp_path / "of_others" / "a.jpg").is_file()
    weights["state"].pop("intro.weight")
    torch.save(weights, tmp_path / "wrong.pth")
    assert run([*arguments, "--weights", str(tmp_path / "wrong.pth")]) == 2
    assert "1 missing: intro.weight" in capsys.readouterr().err


def photographs(folder: Path, *names: str) -> list[DeblurJob]:
    for name in names:
        Image.fromarray(SMALL).save(folder / name)
    return plan_jobs(folder, folder / "out")


def run_jobs(
    jobs: list[DeblurJob], by: dict[str, object] | None = None, model: nn.Module | None = None, **more: bool
) -> DeblurSummary:
    results = DeblurFolder(jobs[0].out.parent, by or {"weights": "1", "tile": 64})
    return deblur_files(model or nn.Identity(), jobs, TileSettings(), results, **more)


def test_results_of_other_weights_or_settings_are_not_taken_for_done(tmp_path: Path) -> None:
    jobs = photographs(tmp_path, "a.png", "b.png")
    lines, result = tmp_path / "out" / ".defocus.jsonl", jobs[0].out
    assert len(run_jobs(jobs, model=Brighter()).done) == 2
    again = run_jobs(jobs)
    assert (len(again.done), len(again.skipped)) == (0, 2)
    before = result.read_bytes()
    second: dict[str, object] = {"weights": "2", "tile": 64}
    with pytest.raises(PhotoError, match=r"a.png: was made with other weights: --overwrite makes it anew, or take"):
        run_jobs(jobs, second)
    with pytest.raises(PhotoError, match="was made with tile: 64 -> 96"):
        run_jobs(jobs, {"weights": "1", "tile": 96})
    assert result.read_bytes() == before
    # One of them made anew by others: each is known by what made it, also after damage and a line that was cut.
    assert len(run_jobs(jobs[:1], second, overwrite=True).done) == 1
    with lines.open("ab") as file:
        file.write(b'\xff\xfe{"result"\n{"result": "b.png", "by": 3}\n[]\n{"result": "b.p')
    assert len(run_jobs(jobs[:1], second).skipped) == 1
    assert len(run_jobs(jobs[:1], second, overwrite=True).done) == 1
    with pytest.raises(PhotoError, match=r"b.png: is there already, and nothing tells what made it"):
        run_jobs(jobs, second)
    jobs[1].out.unlink()
    assert len(run_jobs(jobs, second).done) == 1
    assert len(run_jobs(jobs, second).skipped) == 2


def test_files_that_are_not_ours_are_left(tmp_path: Path) -> None:
    """Whatever stands in the place of a result and is not what the journal says, with --overwrite or without."""
    jobs = photographs(tmp_path, "a.png", "b.png")
    for name in (".a.png.0123456789ab.part", ".thesis.0123456789ab.part", ".a.png.part"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_bytes(b"half a file")
    run_jobs(jobs)
    assert [path.name for path in sorted((tmp_path / "out").glob("*.part"))] == [
        ".a.png.part",
        ".thesis.0123456789ab.part",
    ]
    result, photo = jobs[0].out, jobs[0].photo

    def changed() -> None:
        result.write_bytes(b"the user's own retouching")

    def linked() -> None:
        result.unlink()
        result.symlink_to(photo)

    def hard_linked() -> None:
        result.unlink()
        os.link(photo, result)

    def a_folder() -> None:
        result.unlink()
        result.mkdir()
        (result / "wedding.jpg").write_bytes(b"mine")

    for change in (changed, linked, hard_linked, a_folder):
        change()
        tree = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(PhotoError, match=r"out/a\.png: is not what was made here, and is left as it is"):
            run_jobs(jobs, overwrite=True)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == tree, change.__name__
    (tmp_path / "out" / ".defocus.jsonl").unlink()
    for overwrite in (False, True):
        with pytest.raises(PhotoError, match=r"a.png: is there already, and nothing tells what made it"):
            run_jobs(jobs, overwrite=overwrite)


def test_no_result_takes_the_place_of_a_photograph(tmp_path: Path) -> None:
    photographs(tmp_path, "a.png", "b.png")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(PhotoError, match=r"a\.png: a result would take this photograph's place"):
        plan_jobs(tmp_path, tmp_path / "link")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a.png").symlink_to(tmp_path / "b.png")
    with pytest.raises(PhotoError, match=r"links/a\.png: a result would take this photograph's place"):
        plan_jobs(tmp_path, tmp_path / "links")


def test_results_of_a_photograph_that_was_replaced_are_not_taken_for_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from defocus.restore import deblurring as module

    reads: list[Path] = []
    file_sum = module.file_sum
    monkeypatch.setattr(module, "file_sum", lambda file: reads.append(file) or file_sum(file))
    jobs = photographs(tmp_path, "a.tif", "b.tif")
    photo, lines = jobs[0].photo, tmp_path / "out" / ".defocus.jsonl"
    assert len(run_jobs(jobs).done) == 2
    result, size = jobs[0].out.read_bytes(), photo.stat().st_size
    assert len(reads) == 2
    assert len(run_jobs(jobs).skipped) == 2
    assert len(reads) == 2  # skipped without reading the photographs
    # Touched, or copied back: read once more, and known from then on; its result is still ours.
    os.utime(photo, ns=(1, 1))
    assert [len(run_jobs(jobs).skipped) for _ in range(2)] == [2, 2]
    assert len(reads) == 3
    assert len(run_jobs(jobs, overwrite=True).done) == 2
    # Another one of the same name and size; the advice makes that one anew, and the other is skipped.
    Image.fromarray(255 - SMALL).save(photo)
    assert photo.stat().st_size == size
    with pytest.raises(PhotoError, match=r"out/a.tif: was made of another photograph than .*/a.tif is now: remove"):
        run_jobs(jobs)
    assert jobs[0].out.read_bytes() == result
    jobs[0].out.unlink()
    again = run_jobs(jobs)
    assert (again.done, again.skipped) == ([jobs[0].out], [jobs[1].out])
    assert jobs[0].out.read_bytes() != result
    # What older versions wrote tells nothing of the photograph, nor of the result, which is therefore not replaced.
    entries = [json.loads(line) for line in lines.read_text().splitlines()]
    older = [{key: entry[key] for key in ("result", "by")} for entry in entries]
    lines.write_text("".join(json.dumps(entry) + "\n" for entry in older))
    Image.fromarray(SMALL[:-1]).save(photo)
    assert len(run_jobs(jobs).skipped) == 2
    with pytest.raises(PhotoError, match="is not what was made here"):
        run_jobs(jobs, overwrite=True)


def test_ctrl_c_says_so(
    tiny_nafnet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from defocus.cli import run
    from defocus.restore import deblurring as module

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "deblur_files", stopped)
    Image.fromarray(SMALL).save(tmp_path / "a.png")
    arguments = ["deblur", str(tmp_path / "a.png"), "--weights", str(tiny_nafnet), "--out", str(tmp_path / "out")]
    assert run([*arguments, "--device", "cpu"]) == 130
    assert capsys.readouterr().err == "defocus: stopped\n"
