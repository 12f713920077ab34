"""Deblurring photographs: files with what they carry, folders that go on, whose files they are, and bad input."""

from __future__ import annotations

import functools
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")
from PIL import Image, ImageCms, TiffImagePlugin  # noqa: E402
from torch import nn  # noqa: E402

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

from .networks import Brighter  # noqa: E402


def restore(job: DeblurJob, model: nn.Module | None = None) -> list[str]:
    return deblur_photo(model or Brighter(), job, TileSettings(), DeblurFolder(job.out.parent, {}))


def test_public_names() -> None:
    import defocus.restore

    for name in defocus.restore.__all__:
        public = getattr(defocus.restore, name)
        assert public.__name__ == name, "a module of the same name would hide it"
        assert public.__doc__


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


# The command


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


def test_the_colours_of_published_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A published NRKNet that leaves orange as it is: x + Σ over scales of x − n·b, n = 3, 2, 1, with b half of the
    colour in the order blue, green, red. Fed with RGB it would make another colour of it."""
    from defocus.cli import run
    from defocus.restore.models import build_model

    colour = np.array([153, 102, 51], np.uint8)
    state = {
        key: torch.zeros_like(value) for key, value in build_model("nrknet", width=4, kernels=3).state_dict().items()
    }
    state["SummationLayer.conv.bias"] = torch.tensor(colour[::-1] / 510.0, dtype=torch.float32)
    torch.save(state, tmp_path / "published.pth")
    Image.fromarray(np.broadcast_to(colour, (32, 32, 3)).copy()).save(tmp_path / "orange.png")
    command = ["deblur", str(tmp_path / "orange.png"), "--weights", str(tmp_path / "published.pth")]
    command += ["--set", "width=4", "--set", "kernels=3", "--device", "cpu", "--out"]
    assert run([*command, str(tmp_path / "bgr")]) == 0
    assert "in the order bgr" in capsys.readouterr().err
    assert (np.array(Image.open(tmp_path / "bgr" / "orange.png")) == colour).all()
    assert run([*command, str(tmp_path / "rgb"), "--channels", "rgb"]) == 0
    assert not (np.array(Image.open(tmp_path / "rgb" / "orange.png")) == colour).all(-1).any()


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
        for overwrite in (False, True):
            with pytest.raises(PhotoError, match=r"out/a\.png: is not what was made here, and is left as it is"):
                run_jobs(jobs, overwrite=overwrite)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == tree, change.__name__
    (tmp_path / "out" / ".defocus.jsonl").unlink()
    for overwrite in (False, True):
        with pytest.raises(PhotoError, match=r"a.png: is there already, and nothing tells what made it"):
            run_jobs(jobs, overwrite=overwrite)


def test_a_result_stays_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between the journal's line and the file, the old result is there and is known by what made it."""
    (job,) = photographs(tmp_path, "a.png")
    run_jobs([job])
    before, second = job.out.read_bytes(), {"weights": "2", "tile": 64}

    def killed(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        assert "the disk is full" in run_jobs([job], second, Brighter(), overwrite=True).failed[0][1]
    assert job.out.read_bytes() == before
    assert len(run_jobs([job]).skipped) == 1
    with pytest.raises(PhotoError, match="was made with other weights"):
        run_jobs([job], second)
    assert len(run_jobs([job], second, Brighter(), overwrite=True).done) == 1
    assert job.out.read_bytes() != before


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
