"""What is measured of real pairs, on pairs whose flaws are known: shift, rotation, scale, moved things, light, blur."""

from __future__ import annotations

import csv
import functools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage, signal

from defocus.draw.pages import curves
from defocus.errors import DatasetError, DefocusError, PhotoError
from defocus.evaluate.ground_truth import analyse_pair
from defocus.evaluate.ground_truth_page import write_ground_truth
from defocus.evaluate.photometry import histogram_distance, match_light, to_display, to_linear
from defocus.evaluate.registration import Similarity, register, warped
from defocus.evaluate.residual_blur import blur_map
from defocus.evaluate.test_sets import find_real_pairs
from defocus.restore.similarity import psnr

SIDE, FINE = 256, 4
BLOCK = 64


@functools.cache
def leaves(seed: int = 0) -> np.ndarray:
    """Discs upon discs, four samples to a pixel: linear light, structure of all sizes."""
    random = np.random.default_rng(seed)
    n = SIDE * FINE
    image = np.full((n, n), 0.4)
    for _ in range(900):
        x, y = random.uniform(0, n, 2)
        r = random.uniform(6.0, 70.0)
        top, left = max(0, int(y - r)), max(0, int(x - r))
        rows, cols = np.ogrid[top : int(y + r) + 1, left : int(x + r) + 1]
        part = image[top : int(y + r) + 1, left : int(x + r) + 1]
        inside = ((rows - y) ** 2 + (cols - x) ** 2 < r * r)[: part.shape[0], : part.shape[1]]
        part[inside] = random.uniform(0.05, 0.8)
    return image


def photograph(found: Similarity | None = None, blur: np.ndarray | None = None, seed: int = 0) -> np.ndarray:
    """The scene through pixels, its content moved as told; `blur` is a kernel in fine samples. A little noise."""
    fine = leaves(seed)
    if found is not None:
        middle = (SIDE * FINE - 1) / 2.0
        turn = np.linalg.inv(
            [[1.0 + found.scale, found.rotation], [-found.rotation, 1.0 + found.scale]]  # [row, column]
        )
        away = np.array([middle + FINE * found.down_px, middle + FINE * found.right_px])
        fine = ndimage.affine_transform(fine, turn, np.array([middle] * 2) - turn @ away, order=1, mode="mirror")
    if blur is not None:
        half = blur.shape[0] // 2
        fine = signal.fftconvolve(np.pad(fine, half, mode="reflect"), blur, "valid")
    made = fine.reshape(SIDE, FINE, SIDE, FINE).mean((1, 3))
    return made + np.random.default_rng(7).normal(0.0, 0.002, made.shape)


def disc(radius_px: float) -> np.ndarray:
    r = radius_px * FINE
    half = math.ceil(r) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    kernel = np.clip(r - np.hypot(x, y) + 0.5, 0.0, 1.0)
    return kernel / kernel.sum()


def gaussian(sigma_px: float) -> np.ndarray:
    half = math.ceil(4 * sigma_px * FINE)
    line = np.exp(-0.5 * np.square(np.arange(-half, half + 1) / (sigma_px * FINE)))
    return np.outer(line, line) / line.sum() ** 2


# Registration


@pytest.mark.parametrize("blur", ["none", "gaussian", "disc", "wide disc"])
def test_shifts_are_found_through_blur(blur: str) -> None:
    kernel = {"none": None, "gaussian": gaussian(1.5), "disc": disc(3.0), "wide disc": disc(6.0)}[blur]
    true = Similarity(0.37, -1.62)
    found = register(photograph(), photograph(true, kernel), block_px=BLOCK)
    assert abs(found.similarity.right_px - true.right_px) < 0.05
    assert abs(found.similarity.down_px - true.down_px) < 0.05
    assert found.reliable.mean() > 0.7
    assert not found.moved.any()
    assert not found.differs.any()
    if blur != "wide disc":  # as wide as a fifth of a block
        assert np.median(np.hypot(*np.moveaxis(found.residual_px[found.agreeing], -1, 0))) < 0.1


def test_the_sign_of_a_blur_that_reverses_contrast_does_not_matter() -> None:
    """The transfer of a disc of 6 pixels is negative between 0.10 and 0.19 cycles per pixel."""
    found = register(photograph(), photograph(None, disc(6.0)), block_px=BLOCK)
    reversed_ = (found.frequencies > 0.12) & (found.frequencies < 0.17)
    assert np.median(found.transfer[..., reversed_]) < -0.02
    assert np.median(found.transfer[..., 0]) > 0.7


def test_rotation_and_scale() -> None:
    true = Similarity(0.8, 0.3, 0.006, -0.004)
    found = register(photograph(), photograph(true, disc(2.0)), block_px=BLOCK).similarity
    assert found.rotation == pytest.approx(true.rotation, abs=2e-4)
    assert found.scale == pytest.approx(true.scale, abs=2e-4)
    assert found.right_px == pytest.approx(true.right_px, abs=0.05)
    assert found.down_px == pytest.approx(true.down_px, abs=0.05)


def test_warped_lays_the_sharp_picture_on_the_other() -> None:
    true = Similarity(2.3, -1.4, 0.01, 0.008)
    inner = np.s_[12:-12, 12:-12]
    made = warped(photograph(), true)[inner]
    other = photograph(true)[inner]
    assert np.sqrt(np.square(made - other).mean()) < 0.25 * np.sqrt(np.square(photograph()[inner] - other).mean())
    with pytest.raises(DefocusError, match="256×256 and 256×200 pixels cannot be a pair"):
        register(photograph(), photograph()[:200])


def test_what_moved_and_what_is_new_stand_out() -> None:
    """A thing of 80 pixels moves by (3, 2); another gives way to something else. The rest is shifted by 0.4."""
    sharp, blurred = photograph(), photograph(Similarity(0.4, 0.0), gaussian(1.2))
    away = photograph(Similarity(3.4, 2.0), gaussian(1.2))
    new = photograph(None, gaussian(1.2), seed=1)
    blurred[20:110, 20:110] = away[20:110, 20:110]
    blurred[150:240, 150:240] = new[150:240, 150:240]
    found = register(sharp, blurred, block_px=BLOCK)
    assert found.similarity.right_px == pytest.approx(0.4, abs=0.05)
    y, x = np.meshgrid(found.y, found.x, indexing="ij")
    inside_moved = (abs(y - 65) < 18) & (abs(x - 65) < 18)
    inside_new = (abs(y - 195) < 18) & (abs(x - 195) < 18)
    outside = (y - 65 > 75) & (x < 90)
    assert inside_moved.any()
    assert inside_new.any()
    assert found.moved[inside_moved].all()
    np.testing.assert_allclose(found.residual_px[inside_moved], [[3.0, 2.0]] * int(inside_moved.sum()), atol=0.3)
    assert found.differs[inside_new].all()
    assert not (found.moved | found.differs)[outside].any()


# Light


def colours() -> np.ndarray:
    return np.stack([photograph(seed=s) for s in (0, 1, 2)], axis=-1).astype(np.float32) * 0.8 + 0.02


def test_exposure_fall_off_and_colour_are_found_through_blur() -> None:
    sharp = colours()
    matrix = np.array([[0.95, 0.04, 0.01], [0.02, 1.0, -0.02], [0.0, 0.05, 0.9]])
    y, x = np.meshgrid(np.linspace(-1, 1, SIDE), np.linspace(-1, 1, SIDE), indexing="ij")
    fall = np.exp2(-0.25 + 0.3 * (x**2 + y**2) / 2.0)[..., None]
    blurred = (ndimage.gaussian_filter(sharp, (1.5, 1.5, 0)) @ matrix.T * fall).astype(np.float32)
    found = match_light(sharp, blurred, cell_px=32)
    assert found is not None
    assert found.corner_ev == pytest.approx(0.3, abs=0.04)
    light = np.array([0.2126, 0.7152, 0.0722])
    expected = np.log2((sharp @ matrix.T @ light).mean() / (sharp @ light).mean()) - 0.25
    assert found.exposure_ev == pytest.approx(expected, abs=0.03)
    np.testing.assert_allclose(found.matrix, matrix * 2**-0.25, atol=0.04)
    assert found.after < 0.25 * found.before
    made = to_display(found.applied(sharp))
    assert psnr(to_display(blurred), made) > psnr(to_display(blurred), to_display(sharp)) + 3.0


def test_equal_light_and_light_that_cannot_be_told() -> None:
    sharp = colours()
    found = match_light(sharp, sharp)
    assert found is not None
    assert abs(found.exposure_ev) < 1e-3
    np.testing.assert_allclose(found.matrix, np.eye(3), atol=2e-3)
    assert match_light(np.ones((64, 64, 3), np.float32), np.ones((64, 64, 3), np.float32)) is None
    levels = histogram_distance(np.full((8, 8, 3), 0.5), np.full((8, 8, 3), 0.5 + 16.0 / 255.0))
    assert levels == pytest.approx((16.0,) * 3, abs=1.0)
    values = np.linspace(0.0, 1.0, 101, dtype=np.float32)
    np.testing.assert_allclose(to_display(to_linear(values)), values, atol=1e-5)


# Blur of the truth


@pytest.mark.parametrize("sigma", [0.6, 1.0, 1.5, 2.5])
def test_edge_widths_of_known_blur(sigma: float) -> None:
    """A pixel's own area adds 0.29 in quadrature; dense scenes seem a little sharper where edges meet."""
    seen = blur_map(photograph(None, gaussian(sigma)).astype(np.float32), block_px=BLOCK)
    assert np.isfinite(seen.sigma_px).all()
    assert seen.quantile(0.5) == pytest.approx(math.hypot(sigma, 0.29), rel=0.15)


def test_a_half_that_is_not_sharp_is_seen() -> None:
    image = photograph()
    image[:, 128:] = photograph(None, disc(5.0))[:, 128:]
    seen = blur_map(image.astype(np.float32), block_px=BLOCK)
    assert np.all(seen.sigma_px[:, :2] < 0.8)
    assert np.all(seen.sigma_px[:, 2:] > 2.0)
    assert seen.blurred_share == pytest.approx(0.5)
    assert math.isnan(blur_map(np.full((64, 64), 0.3, np.float32)).quantile(0.5))


# PSNR


def display(linear: np.ndarray) -> np.ndarray:
    return to_display(np.repeat(linear[..., None], 3, axis=2))


def test_the_ceiling_is_what_a_perfect_restoration_scores_and_blur_raises_it() -> None:
    true = Similarity(0.9, 0.5)
    seen = analyse_pair(display(photograph()), display(0.9 * photograph(true, disc(3.0))), block_px=BLOCK)
    # The perfect restoration, from the scene itself and not from the truth's pixels.
    perfect, truth = display(0.9 * photograph(true)), display(photograph())
    inner = np.s_[6:-6, 6:-6]
    assert seen.bias.ceilings_db["all"] == pytest.approx(psnr(perfect[inner], truth[inner]), abs=0.6)
    geometry = psnr(display(photograph(true))[inner], truth[inner])
    assert seen.bias.ceilings_db["local"] == pytest.approx(geometry, abs=0.6)
    assert seen.bias.ceilings_db["exposure"] == pytest.approx(psnr(display(0.9 * photograph()), truth), abs=0.3)
    assert seen.bias.best_sigma_px > 0.0
    assert seen.bias.reward_db > 0.3
    assert seen.bias.corrected_db > seen.bias.input_db
    blurred = [psnr(ndimage.gaussian_filter(perfect, (s, s, 0))[inner], truth[inner]) for s in (0.0, 1.0)]
    assert blurred[1] > blurred[0]  # so it is, without our measurement


def test_a_flawless_pair_has_no_ceiling_to_speak_of() -> None:
    seen = analyse_pair(display(photograph()), display(photograph(None, disc(2.0))), block_px=BLOCK)
    assert min(seen.bias.ceilings_db.values()) > 38.0
    assert seen.bias.reward_db < 0.1
    row = seen.row()
    assert abs(row["exposure_ev"]) < 0.02
    assert row["moved_percent"] == row["differs_percent"] == 0.0
    assert row["local_rms_px"] < 0.12
    assert row["sharp_sigma_px"] < 0.6 < row["blurred_sigma_px"]


# Files


def save(file: Path, display_values: np.ndarray) -> None:
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.clip(display_values, 0, 1) * 255 + 0.5).astype(np.uint8)).save(file)


def test_report_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from defocus.cli import run

    truth = display(photograph())
    for name, shift in (("near", 0.2), ("far", 2.0)):
        save(tmp_path / "set" / "target" / f"{name}.png", truth)
        save(tmp_path / "set" / "input" / f"{name}.png", display(photograph(Similarity(shift, 0.0), disc(2.0))))
    page = tmp_path / "out" / "report.html"
    page.parent.mkdir()
    assert run(["groundtruth", str(tmp_path / "set"), "--out", str(page), "--block", str(BLOCK)]) == 0
    assert "2 pairs measured" in capsys.readouterr().out
    with page.with_suffix(".csv").open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert float(rows["far"]["shift_right_px"]) == pytest.approx(2.0, abs=0.05)
    assert float(rows["near"]["shift_right_px"]) == pytest.approx(0.2, abs=0.05)
    text = page.read_text()
    assert text.index("<h3>far</h3>") < text.index("<h3>near</h3>")  # the worst first
    assert text.count("data:image/jpeg;base64,") >= 8
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is fetched
    # One pair that cannot be measured, in two folders of any name.
    for side in ("a", "b"):
        save(tmp_path / side / "small.png", truth[:12, :12])
        save(tmp_path / side / "large.png", truth[:96, :96])
    both = [str(tmp_path / "a"), "--sharp", str(tmp_path / "b"), "--out", str(page)]
    assert run(["groundtruth", *both, "--block", str(BLOCK)]) == 1
    told = capsys.readouterr()
    assert "not measured: small: 12×12 pixels; at least 16×16" in told.err
    text = page.read_text()
    assert "small: 12×12" in text
    assert "<h1>a against b</h1>" in text
    assert "<p>1 pair.</p>" in text


def test_axes_have_round_numbers_that_differ() -> None:
    def ticks(chart: str) -> tuple[list[tuple[float, str]], list[str]]:
        upright = re.findall(r'<text class="tick end" x="[\d.]+" y="([\d.]+)">(.*?)</text>', chart)
        across = re.findall(r'<text class="tick" x="[\d.]+" y="[\d.]+">(.*?)</text>', chart)
        return [(float(y), text) for y, text in upright], across

    sigmas = [0.0, 1.0, 2.0, 4.0]
    upright, across = ticks(curves([("a", "a", sigmas, [30.62, 29.1, 26.4, math.inf])], "σ", "dB"))
    assert across == ["0", "1", "2", "3", "4"]
    assert [text for _, text in upright] == ["26", "28", "30", "32", "dB"]
    rows = sorted(y for y, _ in upright)
    assert min(np.diff(rows)) > 11.5  # no text lies over another: that is the size of the letters
    # All the same: one line, and an axis whose numbers differ.
    upright, _ = ticks(curves([("a", "a", sigmas, [28.1308] * 4)], "σ", "dB"))
    assert len({text for _, text in upright}) == len(upright) >= 4


def test_small_and_equal_pictures_do_not_cost_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from defocus.cli import run
    from defocus.evaluate.test_sets import FileImage

    truth, blurred = display(photograph()), display(photograph(None, gaussian(1.0)))
    for name, (rows, cols) in {"tiny": (16, 16), "flat": (17, 60), "tall": (70, 31)}.items():
        save(tmp_path / "b" / f"{name}.png", truth[:rows, :cols])
        save(tmp_path / "a" / f"{name}.png", blurred[:rows, :cols])
    for side in ("a", "b"):
        save(tmp_path / side / "equal.png", truth[:64, :64])
        save(tmp_path / side / "gone.png", truth[:64, :64])
    whole = FileImage.read

    def read(image: FileImage) -> np.ndarray:
        if image.path.stem == "gone":
            raise PhotoError("damaged", file=image.path)
        return whole(image)

    monkeypatch.setattr(FileImage, "read", read)
    page = tmp_path / "report.html"
    both = [str(tmp_path / "a"), "--sharp", str(tmp_path / "b"), "--block", "32", "--out"]
    assert run(["groundtruth", *both, str(page)]) == 1
    told = capsys.readouterr()
    assert f"not measured: gone: {tmp_path}/b/gone.png: damaged" in told.err
    text = page.read_text()
    assert "gone: gone.png: damaged" in text
    assert str(tmp_path) not in text  # the page may go to others
    assert "4 pairs measured" in told.out
    with page.with_suffix(".csv").open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert {name for name, row in rows.items() if row["histogram_levels_of_cells"] == ""} == {"tiny", "flat", "tall"}
    assert float(rows["equal"]["blur_reward_db"]) == 0.0
    own = tmp_path / "own.csv"
    own.write_text("my,own,numbers")
    assert run(["groundtruth", *both, str(tmp_path / "own.html")]) == 2
    assert "own.csv: holds no numbers of such a report" in capsys.readouterr().err
    assert own.read_text() == "my,own,numbers"
    text = page.read_text()
    assert "∞" in text
    assert not [word for word in (">inf", " inf", "−0.00", "+0.00", "nan ", "– px") if word in text]
    assert text.count("<h3>Where they fit least") == 4  # told as well where there is nothing to show
    # Where nothing can be written is said before the first pair is read.
    monkeypatch.setattr(FileImage, "read", lambda _: pytest.fail("read"))
    (tmp_path / "folder.html").mkdir()
    for place, message in (
        (page / "report.html", "a file stands where a folder"),
        (tmp_path / "folder.html", "is a f"),
    ):
        assert run(["groundtruth", *both, str(place)]) == 2
        assert message in capsys.readouterr().err


def test_wrong_folders_and_names(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there is no such folder"):
        find_real_pairs(tmp_path, sharp=tmp_path / "none")
    with pytest.raises(DatasetError, match="no pairs"):
        find_real_pairs(tmp_path)
    with pytest.raises(DatasetError, match=r"a name that ends in .html"):
        write_ground_truth([], tmp_path / "report.pdf")
    save(tmp_path / "input" / "a.png", np.zeros((20, 20, 3)))
    save(tmp_path / "target" / "b.png", np.zeros((20, 20, 3)))
    save(tmp_path / "target" / "c.png", np.zeros((20, 20, 3)))
    with pytest.raises(DatasetError, match="unpaired"):
        find_real_pairs(tmp_path / "input", sharp=tmp_path / "target")


def test_real_photographs(shared: Path) -> None:
    """Two focus settings of one light field: its views were registered when it was made."""
    from defocus.photo import read_picture

    folder = shared / "photos" / "real_defocus" / "lytro_pairs"
    seen = analyse_pair(*(read_picture(folder / f"c_07_{n}.png")[0] for n in (1, 2)))
    row = seen.row()
    assert math.hypot(row["shift_right_px"], row["shift_down_px"]) < 0.3
    assert abs(row["exposure_ev"]) < 0.02
    assert row["moved_percent"] + row["differs_percent"] < 5.0
