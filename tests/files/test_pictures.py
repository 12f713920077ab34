"""Pictures as files: 8 and 16 bits, orientation, colour profiles, damage."""

from __future__ import annotations

import io
import math
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from defocus.errors import DatasetError, PhotoError, UnsupportedPhotoError
from defocus.files.exif import Exif, metadata_of, srgb_profile, through_lens
from defocus.files.pictures import decode_picture, decode_plane, picture_size, plane_bytes, quantise, stored_bits
from defocus.files.png import SIGNATURE, decode_png16, png_bits, png_bytes
from defocus.photo import RgbPhoto, check_picture_path, decode, read_photo, read_picture, write_linear, write_picture


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    """Display values that 8 bits hold exactly."""
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.float32) / np.float32(255)


@pytest.mark.parametrize(("name", "bits"), [("a.png", 8), ("a.tif", 8), ("a.png", 16), ("a.tiff", 16)])
def test_written_and_read_again(picture: np.ndarray, name: str, bits: int, tmp_path: Path) -> None:
    fine = picture * 0.999 if bits == 16 else picture
    write_picture(tmp_path / name, fine, bits=bits)
    back, _, notes = read_picture(tmp_path / name)
    assert back.dtype == np.float32
    assert np.abs(back - fine).max() <= 0.5 / (2**bits - 1) + 1e-6
    assert notes == []
    photo = read_photo(tmp_path / name)
    assert isinstance(photo, RgbPhoto)
    assert photo.colour is None
    np.testing.assert_allclose(photo.linear(), decode(back), atol=2e-6)
    assert "sRGB file" in photo.notes[-1]


def test_jpeg(tmp_path: Path) -> None:
    y, x = np.mgrid[:40, :60] / 60.0
    display = np.stack([x, y, 1 - x], axis=-1).astype(np.float32)
    write_picture(tmp_path / "a.jpg", display)
    assert np.abs(read_picture(tmp_path / "a.jpg")[0] - display).max() < 0.03
    misnamed = tmp_path / "a.dat"
    misnamed.write_bytes((tmp_path / "a.jpg").read_bytes())
    assert read_photo(misnamed).size == (60, 40)


@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_exif_orientation_is_applied(orientation: int, tmp_path: Path) -> None:
    from PIL import ImageOps
    from PIL.TiffImagePlugin import IFDRational

    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (10, 16, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "Maker"
    ifd = exif.get_ifd(0x8769)
    ifd[0x920A], ifd[0x829D], ifd[0xA405] = IFDRational(35), IFDRational(9, 5), 52
    image.save(tmp_path / "a.tif", exif=exif)
    image.save(tmp_path / "a.jpg", exif=exif)
    back, read, _ = read_picture(tmp_path / "a.tif")
    with Image.open(tmp_path / "a.tif") as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened))
    np.testing.assert_allclose(back, upright / 255.0, atol=1e-6)
    assert read.orientation == orientation
    _, of_jpeg, _ = read_picture(tmp_path / "a.jpg")
    assert (of_jpeg.make, of_jpeg.focal_mm, of_jpeg.f_number, of_jpeg.focal_35mm) == ("Maker", 35.0, 1.8, 52.0)
    as_stored, _, _ = read_picture(tmp_path / "a.tif", 1)
    np.testing.assert_allclose(as_stored, np.asarray(image) / 255.0, atol=1e-6)


def _encoded(values: np.ndarray, rules: np.ndarray) -> bytes:
    """A 16-bit PNG with a chosen prediction rule for each row, written byte by byte from the specification."""
    height, width, channels = values.shape
    size = channels * 2
    rows = [bytes(row) for row in values.astype(">u2").reshape(height, -1).view(np.uint8)]
    packed = bytearray()
    for r, rule in enumerate(rules):
        packed.append(rule)
        for i, byte in enumerate(rows[r]):
            left = rows[r][i - size] if i >= size else 0
            above = rows[r - 1][i] if r else 0
            corner = rows[r - 1][i - size] if r and i >= size else 0
            guess = left + above - corner
            nearest = min((left, above, corner), key=lambda v, guess=guess: abs(guess - v))
            packed.append((byte - (0, left, above, (left + above) // 2, nearest)[rule]) % 256)
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    out = bytearray(SIGNATURE)
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(packed))), (b"IEND", b"")):
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return bytes(out)


@pytest.mark.parametrize("shape", [(23, 17, 3), (9, 40, 4), (12, 12, 1), (7, 1, 2), (1, 9, 3), (1, 1, 3)])
def test_every_prediction_rule_of_png(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 65536, shape)
    np.testing.assert_array_equal(decode_png16(_encoded(values, rng.integers(0, 5, shape[0])), "a.png"), values)


def test_transparency_grey_and_palettes(tmp_path: Path) -> None:
    grey = np.random.default_rng(4).integers(0, 256, (9, 11), np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    back, _, notes = read_picture(tmp_path / "grey.png")
    np.testing.assert_allclose(back, np.repeat(grey[..., None] / 255.0, 3, axis=-1), atol=1e-6)
    assert notes == []
    rgba = np.dstack([grey, grey, 255 - grey, grey])
    Image.fromarray(rgba).save(tmp_path / "rgba.png")
    back, _, notes = read_picture(tmp_path / "rgba.png")
    np.testing.assert_allclose(back, rgba[..., :3] / 255.0, atol=1e-6)
    assert notes == ["transparency was dropped"]
    Image.fromarray(rgba[..., :3]).quantize(16).save(tmp_path / "palette.png")
    assert read_picture(tmp_path / "palette.png")[0].shape == (9, 11, 3)


def test_other_colour_profiles_are_converted(tmp_path: Path) -> None:
    """A profile whose red is sRGB's blue and whose blue is sRGB's red."""
    values = np.random.default_rng(6).integers(0, 256, (8, 9, 3), np.uint8)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(values).save(tmp_path / "srgb.png", icc_profile=srgb)
    back, _, notes = read_picture(tmp_path / "srgb.png")
    np.testing.assert_allclose(back, values / 255.0, atol=1e-6)
    assert notes == []
    swapped = srgb.replace(b"rXYZ", b"????").replace(b"bXYZ", b"rXYZ").replace(b"????", b"bXYZ")
    swapped = swapped.replace("sRGB".encode("utf-16-be"), "Swap".encode("utf-16-be"))
    Image.fromarray(values).save(tmp_path / "swap.png", icc_profile=swapped)
    back, _, notes = read_picture(tmp_path / "swap.png")
    np.testing.assert_allclose(back, values[..., ::-1] / 255.0, atol=2.5 / 255.0)
    assert notes == ["colours were converted from the embedded profile 'Swap built-in' to sRGB"]
    deep = values.astype(np.uint16) * 257
    tifffile.imwrite(tmp_path / "swap.tif", deep, photometric="rgb", iccprofile=swapped)
    back, _, notes = read_picture(tmp_path / "swap.tif")
    np.testing.assert_allclose(back, values / 255.0, atol=1e-6)
    assert notes == ["the embedded profile 'Swap built-in' was not applied: values of 16 bits are taken for sRGB"]


def test_damage_is_named(picture: np.ndarray, tmp_path: Path) -> None:
    for name, bits in (("deep.png", 16), ("flat.png", 8), ("a.jpg", 8), ("deep.tif", 16), ("flat.tif", 8)):
        path = tmp_path / name
        write_picture(path, np.tile(picture, (4, 4, 1)), bits=bits)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(PhotoError, match=name.replace(".", r"\.")):
            read_photo(path)
    deep = tmp_path / "deep.png"
    write_picture(deep, picture, bits=16)
    data = bytearray(deep.read_bytes())
    data[len(data) // 2] ^= 0xFF
    deep.write_bytes(bytes(data))
    with pytest.raises(PhotoError, match=r"deep\.png: damaged: the checksum of its IDAT"):
        read_photo(deep)
    empty = tmp_path / "empty.jpg"
    empty.touch()
    with pytest.raises(PhotoError, match=r"empty\.jpg: the file is empty"):
        read_photo(empty)
    text = tmp_path / "text.png"
    text.write_text("hello")
    with pytest.raises(PhotoError, match=r"text\.png: .*not a picture"):
        read_photo(text)
    odd = tmp_path / "odd.tif"
    write_picture(odd, picture, bits=8)
    strips = struct.pack("<HH", 273, 4)  # where the strips lie, as whole numbers of 32 bits; as floats of 32 bits:
    assert strips in odd.read_bytes()
    odd.write_bytes(odd.read_bytes().replace(strips, struct.pack("<HH", 273, 11)))
    with pytest.raises(PhotoError, match=r"odd\.tif: cannot be decoded"):
        read_photo(odd)


def test_kinds_that_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "float.tif", np.zeros((8, 8, 3), np.float32), photometric="rgb")
    with pytest.raises(UnsupportedPhotoError, match=r"float\.tif: a TIFF of float32 RGB values"):
        read_photo(tmp_path / "float.tif")
    Image.fromarray(np.zeros((8, 8), np.int32)).save(tmp_path / "int.tif")
    with pytest.raises(UnsupportedPhotoError, match=r"int\.tif"):
        read_photo(tmp_path / "int.tif")


def test_planar_tiff(tmp_path: Path) -> None:
    values = np.random.default_rng(5).integers(0, 65536, (3, 8, 10)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="rgb", planarconfig="separate")
    np.testing.assert_allclose(read_picture(tmp_path / "a.tif")[0], np.moveaxis(values, 0, -1) / 65535.0, atol=1e-6)


def test_names_that_cannot_be_written(picture: np.ndarray, tmp_path: Path) -> None:
    for name, words in (("a.gif", "ends in"), ("no/a.png", "there is no folder"), ("a.npy", "ends in")):
        with pytest.raises(PhotoError, match=words):
            check_picture_path(tmp_path / name, linear=False)
    with pytest.raises(PhotoError, match="a JPEG has 8 bits"):
        write_picture(tmp_path / "a.jpg", picture, bits=16)
    with pytest.raises(PhotoError, match="12 bits"):
        write_picture(tmp_path / "a.png", picture, bits=12)
    with pytest.raises(PhotoError, match="1 values are not finite"):
        write_picture(tmp_path / "a.png", np.where(np.arange(1800).reshape(20, 30, 3) == 7, np.nan, picture))
    with pytest.raises(PhotoError, match=r"\.npy or \.npz"):
        write_linear(tmp_path / "a.png", picture)


def test_linear_light(picture: np.ndarray, tmp_path: Path) -> None:
    write_linear(tmp_path / "a.npy", picture * 3.0)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), picture * 3.0)
    write_linear(tmp_path / "a.npz", picture, depth_m=np.ones(3))
    with np.load(tmp_path / "a.npz") as data:
        assert set(data) == {"linear", "depth_m"}


# --- the pictures of pairs ---


def _texture() -> np.ndarray:
    """Display values with fine and coarse detail."""
    rng = np.random.default_rng(1)
    return np.clip(0.5 + np.cumsum(rng.normal(0.0, 0.03, (48, 48, 3)), axis=0), 0.0, 1.0).astype(np.float32)


@pytest.mark.parametrize("bits", [8, 16])
def test_png_round_trip_and_other_readers(bits: int) -> None:
    values = quantise(_texture()[:, :33], bits)
    data = png_bytes(values)
    assert data == png_bytes(values.copy())
    assert png_bits(data) == bits
    np.testing.assert_array_equal(decode_picture(data), values)
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.info["srgb"] == 0
        np.testing.assert_array_equal(np.asarray(picture), values if bits == 8 else values >> 8)


@pytest.mark.parametrize("kind", ["png", "jpg", "tif"])
def test_a_simulated_lens_takes_the_place_of_the_cameras(picture: np.ndarray, tmp_path: Path, kind: str) -> None:
    exif = Exif(make="Maker", lens="Kit lens", focal_mm=24.0, focal_35mm=36.0, f_number=11.0, iso=200.0)
    metadata = through_lens(metadata_of(exif), "defocus", "Tessar", 50.25, 3.5, math.inf)
    write_picture(tmp_path / f"a.{kind}", picture, metadata=metadata)
    _, told, notes = read_picture(tmp_path / f"a.{kind}")
    assert notes == []  # sRGB as it is
    assert told == Exif(make="Maker", lens="Tessar", focal_mm=50.25, f_number=3.5, iso=200.0)
    with Image.open(tmp_path / f"a.{kind}") as image:
        assert image.info["icc_profile"] == srgb_profile()
        assert image.getexif().get_ifd(0x8769)[0x9206].numerator == 0xFFFFFFFF


def test_the_profile_is_that_of_srgb_and_always_the_same() -> None:
    profile = srgb_profile()
    srgb_profile.cache_clear()
    time.sleep(1.1)  # Pillow writes the second
    assert srgb_profile() == profile
    colours = Image.fromarray(np.arange(0, 252, 7, dtype=np.uint8).reshape(3, 4, 3))
    own, theirs = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
    assert ImageCms.profileToProfile(colours, own, theirs).tobytes() == colours.tobytes()


def test_planes_lose_nothing_and_others_read_them(picture: np.ndarray, tmp_path: Path) -> None:
    plane = np.random.default_rng(3).normal(0.0, 1e3, (300, 50)).astype(np.float32)[:, ::-1]  # of two strips
    data = plane_bytes(plane)
    np.testing.assert_array_equal(decode_plane(data), plane)
    np.testing.assert_array_equal(tifffile.imread(io.BytesIO(data)), plane)
    write_picture(tmp_path / "a.tif", picture)
    infinite = plane_bytes(np.full((4, 4), np.inf, np.float32))
    huge = plane_bytes(np.zeros((1, 4000), np.float32)).replace(
        struct.pack("<II", 1, 4000), struct.pack("<II", 1, 10**7)
    )
    for wrong, words in (
        ((tmp_path / "a.tif").read_bytes(), "no plane"),
        (data[:-9], "not whole"),
        (data[:-1] + bytes([data[-1] ^ 1]), "damaged"),
        (infinite, "not finite"),
        (huge, "hold"),
    ):
        with pytest.raises(DatasetError, match=words):
            decode_plane(wrong)


def test_png_of_views_that_are_not_contiguous() -> None:
    values = np.random.default_rng(0).integers(0, 256, (9, 14, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode_picture(png_bytes(values[::2, ::-1])), values[::2, ::-1])


@pytest.mark.parametrize(("bits", "top"), [(8, 255), (16, 65535)])
def test_quantise_rounds_to_the_nearest_and_clips(bits: int, top: int) -> None:
    levels = np.arange(top + 1, dtype=np.float64)
    display = np.stack([(levels + shift) / top for shift in (-0.4, 0.0, 0.4)], axis=-1).astype(np.float32)[None]
    np.testing.assert_array_equal(quantise(display, bits), np.repeat(levels[None, :, None], 3, axis=2))
    outside = np.asarray([[[-1.0, 2.0, 0.5]]], np.float32)
    assert quantise(outside, bits).tolist() == [[[0, top, (top + 1) // 2]]]
    # More rows than are taken at a time.
    tall = np.random.default_rng(0).uniform(-0.1, 1.1, (600, 2, 3)).astype(np.float32)
    expected = np.rint(np.clip(tall, 0.0, 1.0).astype(np.float64) * top)
    np.testing.assert_allclose(quantise(tall, bits), expected, rtol=0.0, atol=0.0 if bits == 8 else 1.0)
    assert np.mean(quantise(tall, bits) != expected) < 0.01  # 16 bits and float32: some ties
    tall[300, 1, 0], tall[599, 0, 2] = np.nan, np.inf
    with pytest.raises(PhotoError, match=r"^2 values .* in row 300$"):
        quantise(tall, bits)
    with pytest.raises(PhotoError, match="12 bits"):
        quantise(outside, 12)
    with pytest.raises(PhotoError, match="uint8"):
        quantise(np.zeros((2, 2, 3), np.uint8), bits)


@pytest.mark.parametrize("bits", [8, 16])
def test_damaged_pictures_are_told(bits: int) -> None:
    data = png_bytes(quantise(_texture(), bits))
    for broken in (data[:200], b"", b"not a picture", data[:60] + b"\0" * 40 + data[100:]):
        with pytest.raises(DatasetError, match=r"^x\.png: "):
            decode_picture(broken, "x.png")
    with pytest.raises(PhotoError, match="expected uint8 or uint16"):
        png_bytes(np.zeros((4, 4, 3), np.float32))


@pytest.mark.parametrize("size", [(2**31 - 1, 2**31 - 1), (20_000, 20_000)])
def test_heads_that_promise_too_many_pixels_are_refused(size: tuple[int, int], tmp_path: Path) -> None:
    body = struct.pack(">IIBBBBB", *size, 16, 2, 0, 0, 0)
    data = SIGNATURE + struct.pack(">I", 13) + b"IHDR" + body + struct.pack(">I", zlib.crc32(b"IHDR" + body))
    for refused in (decode_picture, picture_size):
        with pytest.raises(DatasetError, match=f"x.png: {size[0]}×{size[1]} pixels"):
            refused(data, "x.png")
    (tmp_path / "x.png").write_bytes(data)
    with pytest.raises(PhotoError, match=f"{size[0]}×{size[1]} pixels"):
        read_photo(tmp_path / "x.png")


def test_bits_of_files(picture: np.ndarray, tmp_path: Path) -> None:
    for name, bits in (("a.png", 8), ("b.png", 16), ("a.jpg", 8), ("a.tif", 8), ("b.tif", 16)):
        write_picture(tmp_path / name, picture, bits=bits)
        assert stored_bits(tmp_path / name) == bits


def test_a_failed_write_keeps_the_old_picture(
    picture: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    names = ("a.png", "a.jpg", "a.tif", "a.npy", "a.npz")
    for name in names:
        (tmp_path / name).write_bytes(b"old")
    monkeypatch.setattr("os.fsync", full)
    for name in names:
        with pytest.raises(DatasetError, match=f"{name}: .*the disk is full"):
            (write_linear if name[2] == "n" else write_picture)(tmp_path / name, picture)
        assert (tmp_path / name).read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == len(names)
