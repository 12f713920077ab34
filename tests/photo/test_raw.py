"""RAW files: levels, patterns, visible area, orientation, colours; what is repaired and what is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import rawpy

from defocus.errors import PhotoError, UnsupportedPhotoError
from defocus.photo import RawPhoto, RgbPhoto, read_bare_mosaic, read_photo
from defocus.photo.demosaic import PATTERNS, turned
from defocus.photo.photos import choose_gains, choose_matrix, matrix_of_model

from ..dng import write_dng

SHAPE = (96, 128)
XTRANS = "GGRGGBGGBGGRBRGRBGGGBGGRGGRGGBRBGBRG"


@pytest.fixture(scope="module")
def stored() -> np.ndarray:
    return np.random.default_rng(0).integers(600, 15000, SHAPE)


def _grid(tile: tuple[int, ...]) -> np.ndarray:
    return np.tile(np.array(tile).reshape(2, 2), (SHAPE[0] // 2, SHAPE[1] // 2))


def test_levels_of_each_colour(stored: np.ndarray, tmp_path: Path) -> None:
    photo = read_photo(write_dng(tmp_path / "a.dng", stored, black=(500, 510, 520, 530)))
    assert isinstance(photo, RawPhoto)
    black = _grid((500, 510, 520, 530))
    np.testing.assert_allclose(photo.mosaic, (stored - black) / (15872 - black), atol=1e-6)
    assert photo.mosaic.dtype == np.float32
    assert photo.black == (500, 510, 530, 520)  # red, green, blue, second green
    assert photo.size == (128, 96)
    assert photo.notes == ()
    assert (photo.exif.make, photo.exif.model) == ("Canon", "Test")


def test_values_beyond_the_levels(stored: np.ndarray, tmp_path: Path) -> None:
    beyond = stored.copy()
    beyond[0, :2] = (16000, 400)
    mosaic = read_photo(write_dng(tmp_path / "a.dng", beyond)).mosaic
    assert mosaic[0, 0] == 1.0
    assert mosaic[0, 1] == pytest.approx((400 - 512) / (15872 - 512))  # noise about black keeps its mean


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_patterns_and_orientations(pattern: str, orientation: int, tmp_path: Path) -> None:
    """Each colour carries its own number: in the upright mosaic every pixel must still know its colour."""
    numbers = {"R": 4000, "G": 8000, "B": 12000}
    values = _grid(tuple(numbers[c] for c in pattern))
    values[:10, :10] = 1000  # a dark corner, to see the turn
    photo = read_photo(write_dng(tmp_path / "a.dng", values, pattern=pattern, orientation=orientation))
    expected = turned((values - 512) / (15872 - 512), orientation)
    np.testing.assert_allclose(photo.mosaic, expected, atol=1e-6)
    height, width = photo.mosaic.shape
    tile = np.array([*photo.pattern]).reshape(2, 2)
    for row, column in ((height // 2, width // 2), (height // 2 + 1, width // 2), (height // 2, width // 2 + 1)):
        wanted = (numbers[tile[row % 2, column % 2]] - 512) / (15872 - 512)
        assert photo.mosaic[row, column] == pytest.approx(wanted, abs=1e-6)
    assert photo.exif.orientation == orientation
    as_stored = read_photo(tmp_path / "a.dng", orientation=1)
    np.testing.assert_allclose(as_stored.mosaic, (values - 512) / (15872 - 512), atol=1e-6)


@pytest.mark.parametrize("active", [(4, 2, 96, 128), (5, 3, 95, 127), (4, 3, 94, 127), (7, 2, 96, 126)])
def test_the_visible_area_keeps_the_colours_in_place(active: tuple[int, int, int, int], tmp_path: Path) -> None:
    """The file's pattern begins at its active area, which may begin anywhere, even at odd pixels."""
    top, left, *_ = active
    numbers = {"R": 4000, "G": 8000, "B": 12000}
    whole = np.full(SHAPE, 100)  # masked pixels
    tile = np.array([numbers[c] for c in "GRBG"]).reshape(2, 2)
    whole[top:, left:] = np.tile(tile, (48, 64))[: SHAPE[0] - top, : SHAPE[1] - left]
    photo = read_photo(write_dng(tmp_path / "a.dng", whole, pattern="GRBG", active=active))
    assert photo.size[0] <= active[3] - left
    assert photo.size[1] <= active[2] - top
    assert min(photo.size) > 80
    planes = np.tile(np.array([*photo.pattern]).reshape(2, 2), (48, 64))[: photo.size[1], : photo.size[0]]
    for name, number in numbers.items():
        np.testing.assert_allclose(photo.mosaic[planes == name], (number - 512) / (15872 - 512), atol=1e-6)


def test_white_balance_and_matrix(stored: np.ndarray, tmp_path: Path) -> None:
    photo = read_photo(write_dng(tmp_path / "a.dng", stored))
    np.testing.assert_allclose(photo.colour.white_balance, (2.0, 1.0, 1.6), rtol=1e-4)
    matrix = np.asarray(photo.colour.camera_to_srgb)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(matrix[0], (1.8178, -0.9643, 0.1465), atol=1e-3)
    other = photo.balanced((3.0, 1.5, 2.25))
    np.testing.assert_allclose(other.colour.white_balance, (2.0, 1.0, 1.5), rtol=1e-5)
    assert photo.balanced("as-shot") is photo
    grey = photo.balanced("grey")
    means = [grey.mosaic[p].mean() for p in _planes(grey.pattern)]
    np.testing.assert_allclose(
        np.array(means) * grey.colour.white_balance, means[1] * grey.colour.white_balance[1], rtol=0.06
    )
    with pytest.raises(PhotoError, match="'sunny'"):
        photo.balanced("sunny")


def _planes(pattern: str) -> list[np.ndarray]:
    tiled = np.tile(np.array([*pattern]).reshape(2, 2), (SHAPE[0] // 2, SHAPE[1] // 2))
    return [tiled == c for c in "RGB"]


@pytest.mark.parametrize("neutral", [None, (0.0, 1.0, 1.0)])
def test_invalid_white_balance_becomes_daylight(
    neutral: tuple[float, ...] | None, stored: np.ndarray, tmp_path: Path
) -> None:
    photo = read_photo(write_dng(tmp_path / "a.dng", stored, neutral=neutral))
    np.testing.assert_allclose(photo.colour.white_balance, (2.651, 1.0, 1.389), atol=2e-3)
    (note,) = photo.notes
    assert "white balance (0, 1, 0) is invalid: the camera's daylight gains (2.651, 1.000, 1.389)" in note


@pytest.mark.parametrize("matrix", [None, np.zeros((3, 3))])
def test_a_zero_matrix_is_reported(matrix: np.ndarray | None, stored: np.ndarray, tmp_path: Path) -> None:
    photo = read_photo(write_dng(tmp_path / "a.dng", stored, matrix=matrix))
    np.testing.assert_array_equal(photo.colour.camera_to_srgb, np.eye(3))
    assert photo.notes == ("no valid colour matrix: the sensor's colours were taken for sRGB's",)
    with pytest.raises(PhotoError, match=r"a\.dng: its daylight gains are unknown"):
        photo.balanced("daylight")


def test_neither_white_balance_nor_matrix(stored: np.ndarray, tmp_path: Path) -> None:
    path = write_dng(tmp_path / "a.dng", stored, matrix=None, neutral=None)
    with pytest.raises(UnsupportedPhotoError, match=r"a\.dng: LibRaw knows neither .*`--mosaic`"):
        read_photo(path)


@pytest.mark.parametrize(
    ("camera", "daylight", "grey", "wanted"),
    [
        ((-1.0, 1.03, 2.7), (1.9, 0.9, 1.0), None, (1.9, 0.9, 1.0)),
        ((2.0, np.nan, 1.0), None, (1.5, 1.0, 2.0), (1.5, 1.0, 2.0)),
        ((np.inf, 1.0, 1.0), (0.0, 1.0, 1.0), (1.5, 1.0, 2.0), (1.5, 1.0, 2.0)),
        ((0.0, 0.0, 0.0), None, None, None),
    ],
)
def test_the_rules_for_white_balance(
    camera: tuple[float, ...], daylight: tuple | None, grey: tuple | None, wanted: tuple | None
) -> None:
    gains, note = choose_gains(np.array(camera), *(None if g is None else np.array(g) for g in (daylight, grey)))
    assert note is not None
    assert "invalid" in note
    assert (gains is None) if wanted is None else np.array_equal(gains, wanted)


def test_the_rules_for_the_matrix() -> None:
    zero = np.zeros((3, 3))
    # Adobe's matrix of the Canon EOS 30D; what follows from it is what LibRaw prints for that camera.
    model = np.array([[0.6257, -0.0303, -0.1], [-0.788, 1.5621, 0.2396], [-0.1714, 0.1904, 0.7046]])
    made = matrix_of_model(model)
    assert made is not None
    matrix, daylight = made
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    np.testing.assert_allclose(daylight, (2.19526, 0.93109, 1.25837), rtol=1e-4)
    chosen, gains, note = choose_matrix(zero, model)
    np.testing.assert_array_equal(chosen, matrix)
    np.testing.assert_array_equal(gains, daylight)
    assert note is None
    own = np.array([[1.2, -0.2, 0.0], [0.0, 1.0, 0.0], [0.1, -0.1, 1.0]])
    np.testing.assert_array_equal(choose_matrix(own, zero)[0], own)
    for broken in (np.full((3, 3), np.nan), np.full((3, 3), 1 / 3), 2 * own):
        assert choose_matrix(broken, zero)[0] is None


def test_an_already_demosaiced_file(tmp_path: Path) -> None:
    rgb = np.random.default_rng(1).integers(600, 9000, (*SHAPE, 3))
    photo = read_photo(write_dng(tmp_path / "a.dng", rgb, pattern=None, orientation=6, neutral=(1.0, 1.0, 1.0)))
    assert isinstance(photo, RgbPhoto)
    assert photo.size == (96, 128)
    assert "already demosaiced" in photo.notes[0]
    camera = (rgb - 512) / (15872 - 512)
    expected = turned(camera @ np.asarray(photo.colour.camera_to_srgb, float).T, 6)
    np.testing.assert_allclose(photo.linear(), expected, atol=1e-5)


def test_xtrans_is_refused(stored: np.ndarray, tmp_path: Path) -> None:
    path = write_dng(tmp_path / "a.dng", stored, pattern=XTRANS, repeat=(6, 6), make="Fujifilm")
    with pytest.raises(UnsupportedPhotoError, match=r"a\.dng: an X-Trans sensor"):
        read_photo(path)


def test_levels_that_cannot_be(stored: np.ndarray, tmp_path: Path) -> None:
    path = write_dng(tmp_path / "a.dng", stored, black=(4000,), white=3000)
    with pytest.raises(PhotoError, match=r"a\.dng: white levels .* not above the black levels"):
        read_photo(path)


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.9])
def test_a_truncated_file_is_named(part: float, stored: np.ndarray, tmp_path: Path) -> None:
    path = write_dng(tmp_path / "whole.dng", stored)
    data = path.read_bytes()
    cut = tmp_path / "cut.dng"
    cut.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(PhotoError, match=r"cut\.dng: .*(empty|truncated|cut short)"):
        read_photo(cut)


def test_pages_without_end(stored: np.ndarray, tmp_path: Path) -> None:
    """A page that follows itself: the first ones are looked at, not all of them."""
    file = write_dng(tmp_path / "loop.dng", stored)
    data = bytearray(file.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (tags,) = struct.unpack_from("<H", data, first)
    struct.pack_into("<I", data, first + 2 + 12 * tags, len(data))
    file.write_bytes(data + struct.pack("<HI", 0, len(data)))
    assert read_photo(file).size == (stored.shape[1], stored.shape[0])


def test_files_that_are_no_photographs(tmp_path: Path) -> None:
    with pytest.raises(PhotoError, match=r"none\.CR2: no such file"):
        read_photo(tmp_path / "none.CR2")
    with pytest.raises(PhotoError, match="a folder"):
        read_photo(tmp_path)
    text = tmp_path / "text.nef"
    text.write_text("not a photograph\n" * 100)
    with pytest.raises(UnsupportedPhotoError, match=r"text\.nef: no photograph"):
        read_photo(text)


def test_a_bare_mosaic(stored: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "bare.raw"
    stored.astype("<u2").tofile(path)
    photo = read_bare_mosaic(path, 128, 96, "gbrg", 500.0, 15500.0, (2.0, 1.0, 1.5))
    np.testing.assert_allclose(photo.mosaic, (stored - 500) / 15000, atol=1e-6)
    assert photo.pattern == "GBRG"
    np.testing.assert_allclose(photo.colour.white_balance, (2.0, 1.0, 1.5))
    assert "grey" in read_bare_mosaic(path, 128, 96, "GBRG", 500.0, 15500.0).notes[-1]
    with pytest.raises(PhotoError, match=r"24576 bytes; 100×96 numbers of 16 bits make 19200"):
        read_bare_mosaic(path, 100, 96, "RGGB", 0.0, 1.0)
    with pytest.raises(PhotoError, match="black 9"):
        read_bare_mosaic(path, 128, 96, "RGGB", 9.0, 1.0)


def _small(image: np.ndarray) -> np.ndarray:
    height, width = (side // 4 * 4 for side in image.shape[:2])
    return image[:height, :width].reshape(height // 4, 4, width // 4, 4, 3).mean(axis=(1, 3))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "least_db"),
    [
        ("canon_30d_IMG_0848.CR2", 55.0),
        ("canon_d30_RAW_CANON_D30_SRGB.CRW", 45.0),
        ("canon_kissx4_550d_colorchart.dng", 50.0),
        ("lg_g4_h815_skia_sample_1mp_linear.dng", 80.0),
    ],
)
def test_development_agrees_with_libraw(shared: Path, name: str, least_db: float) -> None:
    """Linear, the same white balance, no automatic brightness, after 4× downsampling."""
    path = shared / "photos" / "raw" / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    photo = read_photo(path)
    red, green, blue = (float(g) for g in photo.colour.white_balance)
    with rawpy.imread(str(path)) as raw:
        theirs = raw.postprocess(
            gamma=(1, 1),
            no_auto_bright=True,
            output_bps=16,
            user_wb=[red, green, blue, green],
            output_color=rawpy.ColorSpace.sRGB,
            adjust_maximum_thr=0.0,
        )
    ours = np.clip(photo.linear(), 0.0, 1.0)
    assert theirs.shape == ours.shape
    error = np.mean((_small(ours) - _small(theirs / 65535.0)) ** 2)
    assert -10.0 * np.log10(error) > least_db


@pytest.mark.shared
def test_real_files_and_their_defects(shared: Path) -> None:
    folder = shared / "photos" / "raw"
    if not folder.is_dir():
        pytest.skip("no RAW files here")
    photo = read_photo(folder / "canon_30d_IMG_0848.CR2")
    assert (photo.exif.model, photo.exif.focal_mm, photo.exif.f_number, photo.exif.iso) == (
        "Canon EOS 30D",
        55.0,
        7.1,
        100.0,
    )
    assert photo.exif.pixel_um == pytest.approx(6.4, abs=0.05)
    assert photo.notes == ()
    repaired = read_photo(folder / "canon_d30_RAW_CANON_D30_SRGB.CRW")
    assert "(-1, 1.027, 2.695) is invalid" in repaired.notes[0]
    assert repaired.exif.focal_mm == 100.0
    chart = read_photo(folder / "canon_kissx4_550d_colorchart.dng")
    assert chart.notes == ()  # LibRaw's table has no matrix for it, the file itself does
    with pytest.raises(UnsupportedPhotoError, match="guessed its camera"):
        read_photo(folder / "nikon_DSC_1339_768x512_rggb.raw")
    rose = read_bare_mosaic(folder / "nikon_DSC_1339_768x512_rggb.raw", 768, 512, "RGGB", 600.0, 16383.0)
    assert rose.size == (768, 512)
