"""Depth maps: formats there and back, scales, holes, sizes, and files that are not what they say."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from defocus.errors import DefocusError, DepthError, MissingPackageError
from defocus.scene.depth_files import check_depth_path, read_depth, write_depth
from defocus.scene.depth_maps import complete_depth

FLOATS = [".npz", ".npy", ".pfm", ".dpt", ".exr"]


@pytest.fixture
def depth() -> np.ndarray:
    made = np.linspace(0.3, 40.0, 12 * 16, dtype=np.float32).reshape(12, 16)
    made[0, :4] = np.inf
    return made


@pytest.mark.parametrize("kind", FLOATS)
def test_there_and_back(tmp_path: Path, depth: np.ndarray, kind: str) -> None:
    if kind == ".exr":
        pytest.importorskip("OpenEXR", reason="the package OpenEXR is not installed")
    write_depth(tmp_path / f"d{kind}", depth)
    read = read_depth(tmp_path / f"d{kind}")
    np.testing.assert_array_equal(read.depth_m, depth)  # rows the right way up, infinity kept
    assert read.depth_m.dtype == np.float32
    assert not read.filled.any()
    assert read.notes == ()
    assert read.size == (16, 12)


def test_sixteen_bit_png_with_its_scale(tmp_path: Path, depth: np.ndarray) -> None:
    finite = np.where(np.isinf(depth), np.float32(np.nan), depth)
    write_depth(tmp_path / "d.png", finite, scale_m=0.001)
    read = read_depth(tmp_path / "d.png", scale_m=0.001)
    assert read.filled.sum() == 4
    np.testing.assert_allclose(read.depth_m[~read.filled], finite[~read.filled], atol=0.00051)
    with pytest.raises(DepthError, match=r"d\.png: a PNG holds whole numbers; say how many metres one is"):
        read_depth(tmp_path / "d.png")
    with pytest.raises(DepthError, match=r"do not fit 65535 steps of 0.001 m"):
        write_depth(tmp_path / "e.png", depth, scale_m=0.001)  # infinity
    with pytest.raises(DepthError, match=r"from 1\.13141 to 40 m do not fit"):
        write_depth(tmp_path / "e.png", finite, scale_m=0.0001)
    with pytest.raises(DepthError, match="say how many metres"):
        write_depth(tmp_path / "e.png", finite)
    assert not (tmp_path / "e.png").exists()


def test_intrinsics_and_scales(tmp_path: Path, depth: np.ndarray) -> None:
    write_depth(tmp_path / "d.npz", depth, intrinsics=(500.0, 501.0, 7.5, 5.5))
    assert read_depth(tmp_path / "d.npz").intrinsics == (500.0, 501.0, 7.5, 5.5)
    with pytest.raises(DepthError, match=r"`depth_m` is in metres; a scale of 0\.001"):
        read_depth(tmp_path / "d.npz", scale_m=0.001)
    np.save(tmp_path / "mm.npy", np.full((4, 5), 1500, dtype=np.uint16))
    np.testing.assert_allclose(read_depth(tmp_path / "mm.npy", scale_m=0.001).depth_m, 1.5)
    with pytest.raises(DepthError, match=r"whole numbers \(uint16\); say how many metres one is"):
        read_depth(tmp_path / "mm.npy")
    with pytest.raises(DepthError, match=r"a scale of -1\.0 m per unit"):
        read_depth(tmp_path / "mm.npy", scale_m=-1.0)
    np.savez(tmp_path / "bad.npz", depth_m=depth, intrinsics=np.array([0.0, 1.0, 2.0, 3.0]))
    with pytest.raises(DepthError, match="expected fx, fy, cx, cy"):
        read_depth(tmp_path / "bad.npz")


def test_big_endian_pfm_and_the_sign_of_its_scale(tmp_path: Path) -> None:
    values = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=np.float32)
    # Written bottom row first; the size of the scale (Middlebury writes 1/255) does not apply.
    (tmp_path / "d.pfm").write_bytes(b"Pf\n3 2\n0.003922\n" + values[::-1].astype(">f4").tobytes())
    np.testing.assert_array_equal(read_depth(tmp_path / "d.pfm").depth_m, values)


def test_holes_take_the_nearest_depth_and_are_reported() -> None:
    depth = np.full((9, 11), 2.0, dtype=np.float32)
    depth[:, 6:] = 8.0
    depth[:, 4:8] = np.nan
    depth[0, 0], depth[8, 10], depth[8, 9], depth[4, 10] = 0.0, -3.0, -np.inf, np.inf
    made = complete_depth(depth)
    np.testing.assert_array_equal(made.depth_m[2, 4:8], [2.0, 2.0, 8.0, 8.0])  # no depth between the two
    assert made.depth_m[0, 0] == 2.0
    assert made.depth_m[8, 10] == 8.0
    assert np.isinf(made.depth_m[4, 10])  # infinitely far is no hole
    assert set(np.unique(made.depth_m)) == {2.0, 8.0, np.inf}
    assert made.filled.sum() == 36 + 3
    assert "39 pixels without depth (39.39%: 36 NaN, the others zero or negative)" in made.notes[0]
    assert "at most 2 px away" in made.notes[0]
    with pytest.raises(DepthError, match="none of its 12 pixels has a depth"):
        complete_depth(np.full((3, 4), np.nan, dtype=np.float32))


def test_another_size_is_an_error_unless_resizing_is_asked_for() -> None:
    x = np.arange(40) + np.zeros((30, 1))
    plane = 1.0 / (0.2 + 0.01 * x)  # a slanted plane: straight in inverse depth
    plane[:, 25:] = 50.0
    made = complete_depth(plane.astype(np.float32), intrinsics=(100.0, 100.0, 19.5, 14.5))
    assert made.fitted((40, 30)) is made
    with pytest.raises(DepthError, match="has 40×30 pixels, the photograph 80×60; ask for resizing"):
        made.fitted((80, 60))
    with pytest.raises(DepthError, match="not the same proportions"):
        made.fitted((60, 80), resize=True)
    large = made.fitted((80, 60), resize=True)
    assert large.size == (80, 60)
    assert "resized from 40×30" in large.notes[-1]
    assert large.intrinsics == pytest.approx((200.0, 200.0, 39.5, 29.5))
    new = (np.arange(80) + 0.5) / 2 - 0.5
    inside = slice(1, 48)
    np.testing.assert_allclose(large.depth_m[10, inside], 1.0 / (0.2 + 0.01 * new[inside]), rtol=1e-5)
    # At the edge one of the two depths, none between.
    assert np.all((large.depth_m < 2.4) & (large.depth_m > 1.0) | (large.depth_m[...] > 2.2))
    assert set(np.unique(large.depth_m[:, 50:])) == {50.0}
    between = (large.depth_m > 5.1) & (large.depth_m < 49.9)
    assert not between.any()
    far = complete_depth(np.full((4, 4), np.inf, dtype=np.float32)).fitted((7, 7), resize=True)
    assert np.isposinf(far.depth_m).all()


def _png_head(width: int, height: int) -> bytes:
    """A 16-bit grey PNG without pixels."""
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 0)), (b"IDAT", b"")):
        data += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return data


def test_files_that_are_not_what_they_say(tmp_path: Path, depth: np.ndarray) -> None:
    def broken(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    write_depth(tmp_path / "whole.npz", depth)
    np.savez(tmp_path / "other.npz", disparity=depth)
    np.save(tmp_path / "rgb.npy", np.ones((4, 5, 3), dtype=np.float32))
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    from PIL import Image

    Image.fromarray(np.ones((4, 5), dtype=np.uint8)).save(tmp_path / "eight.png")
    cases = {
        tmp_path / "missing.npz": "no such file",
        tmp_path / "depth.jpg": "a depth map is a file that ends in",
        tmp_path / "other.npz": "no array `depth_m`; it holds disparity",
        broken("cut.npz", (tmp_path / "whole.npz").read_bytes()[:60]): "not a readable .npz",
        broken("empty.npy", b""): "not a readable .npy",
        tmp_path / "rgb.npy": r"shape \(4, 5, 3\); expected one number per pixel",
        tmp_path / "text.npy": "expected numbers",
        tmp_path / "eight.png": "expected 16-bit grey",
        broken("junk.png", b"not a picture"): "not a picture",
        broken("huge.png", _png_head(60_000, 60_000)): "pixels",
        broken("head.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n"): "not a readable .npy",
        broken("junk.pfm", b"P6\n2 2\n255\n"): "no PFM header",
        broken("rgb.pfm", b"PF\n1 1\n-1.0\n" + bytes(12)): "three colours",
        broken("cut.pfm", b"Pf\n4 4\n-1.0\n" + bytes(12)): "12 bytes of depth; 4×4 pixels take 64",
        broken("cut.dpt", struct.pack("<fii", 202021.25, 4, 4)): "0 bytes of depth; 4×4 pixels take 64",
        broken("junk.dpt", b"abc"): "that of a Sintel depth file 202021.25",
        broken("nan.npy", b""): "not a readable",
    }
    for path, message in cases.items():
        with pytest.raises(DepthError, match=message) as caught:
            read_depth(path, scale_m=0.001 if path.suffix == ".png" else None)
        assert str(path) in str(caught.value)
    with pytest.raises(DepthError, match="there is no folder"):
        check_depth_path(tmp_path / "no" / "d.npz", writable=True)


def test_no_more_is_unpacked_than_a_photograph_has(
    tmp_path: Path, depth: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = np.lib.format.header_data_from_array_1_0(depth) | {"shape": (2**20, 2**20)}
    with (tmp_path / "promise.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, head)
        file.write(depth.tobytes())
    with pytest.raises(DepthError, match=r"promise\.npy: not a readable"):
        read_depth(tmp_path / "promise.npy")
    monkeypatch.setattr("defocus.scene.depth_files.MAX_PIXELS", 50)
    np.savez_compressed(tmp_path / "bomb.npz", depth_m=np.zeros((100, 100), np.float32))
    np.save(tmp_path / "large.npy", np.ones((10, 10), np.float32))
    for name in ("bomb.npz", "large.npy"):
        with pytest.raises(DepthError, match=f"{name}: .* more than the 50 that are read"):
            read_depth(tmp_path / name)


def test_a_full_disk_keeps_the_old_depth_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for name in ("d.npz", "d.npy", "d.pfm", "d.dpt", "d.png"):
        (tmp_path / name).write_bytes(b"old")
        with pytest.raises(DefocusError, match=f"{name}: .*the disk is full"):
            write_depth(tmp_path / name, np.ones((4, 5)), scale_m=0.001 if name == "d.png" else None)
        assert (tmp_path / name).read_bytes() == b"old"


def test_no_more_of_an_exr_is_unpacked_than_a_photograph_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is looked at before the package, which would unpack all channels, is asked."""

    def unpack(*_: object, **__: object) -> None:
        pytest.fail("unpacked")

    def header(width: int, channels: int, before: bytes = b"") -> bytes:
        names = b"".join(b"c%d\0" % n + struct.pack("<4i", 2, 0, 1, 1) for n in range(channels)) + b"\0"
        listed = b"channels\0chlist\0" + struct.pack("<i", len(names)) + names
        return (
            b"v/1\x01\x02\0\0\0" + before + listed + b"dataWindow\0box2i\0" + struct.pack("<5i", 16, 0, 0, width - 1, 4)
        )

    monkeypatch.setitem(sys.modules, "OpenEXR", SimpleNamespace(File=unpack))
    monkeypatch.setattr("defocus.scene.depth_files.MAX_PIXELS", 50)
    file = tmp_path / "d.exr"
    for data, message in (
        (header(11, 1), "55 pixels are more than the 50"),
        (header(5, 3), "75 pixels are more than the 50"),
        (header(-(2**31) + 1, 1), "more than the 50"),
        (header(5, 1, b"comment\0string\0" + bytes(2**16)), "its header has no size"),
        (b"", "its header has no size"),
    ):
        file.write_bytes(data)
        with pytest.raises(DepthError, match=rf"d\.exr: .*{message}"):
            read_depth(file)
    file.write_bytes(header(5, 2))
    with pytest.raises(pytest.fail.Exception):
        read_depth(file)


def test_a_png_that_is_too_short_for_its_pixels(tmp_path: Path) -> None:
    """Pillow would take what is missing for holes: 100 million of them in 100 bytes."""
    write_depth(tmp_path / "a.png", np.full((4, 6), 2.0, np.float32), scale_m=0.001)
    data = (tmp_path / "a.png").read_bytes()
    head = b"IHDR" + struct.pack(">II", 6, 2**24) + data[24:29]
    (tmp_path / "a.png").write_bytes(data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:])
    with pytest.warns(), pytest.raises(DepthError, match=r"a\.png: truncated: \d+ bytes cannot hold 6×16777216 pixels"):
        read_depth(tmp_path / "a.png", scale_m=0.001)


def test_missing_exr_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "OpenEXR", None)
    (tmp_path / "d.exr").write_bytes(b"v/1\x01")
    with pytest.raises(MissingPackageError, match="pip install OpenEXR"):
        read_depth(tmp_path / "d.exr")


@pytest.mark.shared
def test_real_depth_maps(shared: Path) -> None:
    files = sorted((shared / "photos" / "depth").glob("*.npz"))
    assert len(files) >= 6
    for file in files:
        read = read_depth(file)
        assert np.all(read.depth_m > 0.0)
        assert read.depth_m.max() < 1000.0
        assert (read.intrinsics is None) == ("intrinsics are NaN" in " ".join(read.notes))
        from PIL import Image

        with Image.open(file.with_suffix(".png")) as photo:
            assert photo.size == read.size
