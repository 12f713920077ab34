"""PSFs that Zemax exports as text: what is read, what is refused, and how they are compared with ours."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from defocus import Camera
from defocus.cli import run
from defocus.errors import LensFileError
from defocus.lens import load_lens
from defocus.psf.agreement import compare_psfs
from defocus.psf.simple import gaussian
from defocus.psf.zemax_psf import read_zemax_psf

from .zemax_listing import zemax_listing

PSF = np.arange(36.0).reshape(6, 6)
TEXT = zemax_listing(PSF, 1.5, "0.0000, 9.9400 mm", r"C:\Lenses\Triplet.ZMX")


def test_a_listing_tells_psf_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "psf.txt"
    for encoding in ("utf-16", "utf-8", "latin-1"):
        file.write_text(TEXT, encoding)
        export = read_zemax_psf(file)
        np.testing.assert_allclose(export.psf, PSF / PSF.sum(), rtol=1e-5)
        assert (export.wavelength_nm, export.spacing_um) == (pytest.approx(587.6), 1.5)
        assert (export.height_mm, export.angle_deg, export.lens_name) == ((0.0, 9.94), None, "Triplet.ZMX")
    centre = "Center coordinates  :   1.00000000E+00,  -2.00000000E+00 Millimeters\nValues are"
    file.write_text(TEXT.replace("9.9400 mm", "20.0000 (deg)").replace("Values are", centre))
    export = read_zemax_psf(file)
    assert (export.angle_deg, export.height_mm) == ((0.0, 20.0), (1.0, -2.0))
    # The area tells more of a spacing that was rounded.
    file.write_text(TEXT.replace("1.500 µm", "0.422 µm").replace("9.000 by 9.000", "2.531 by 2.531"))
    assert read_zemax_psf(file).spacing_um == pytest.approx(2.531 / 6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("PSF", "MTF", "not a PSF as Zemax lists it"),
        ("Values are relative intensity.", "", "not a PSF as Zemax lists it"),
        ("relative intensity", "log of intensity", "line 16: values are logarithms"),
        ("0.5876 µm", "0.4861 to 0.6563 µm", "line 9: a PSF of several wavelengths"),
        ("0.5876 µm at", "at", "does not tell a wavelength"),
        ("9.9400 mm", 300_000 * "1", "does not tell a wavelength"),  # minutes, if all of it were searched
        ("1.500 µm", "1.500 furlongs", "line 10: a data spacing of 1.500 furlongs"),
        ("Data spacing", "Spacing", "does not tell 'Data spacing"),
        ("Image grid size: 6 by 6", "Image grid size: 6 by 7", "line 14: a grid of 6 by 7, but 6 by 6 values follow"),
        (" 1.714286E-01\t", "", "line 19: 5 values; expected 6 as above"),
        (" 1.714286E-01", "-1.714286E-01", "line 19: a value that is negative or no number"),
        (" 1.714286E-01", " nan", "line 19: a value that is negative or no number"),
        (" 1.714286E-01", " 1.7x", "line 19: no numbers: '1.7x"),
    ],
)
def test_damage_is_refused_in_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "psf.txt"
    assert old in TEXT
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(LensFileError) as caught:
        read_zemax_psf(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flips_and_shifts_do_not_count() -> None:
    rng = np.random.default_rng(3)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(33), np.fft.fftfreq(33)))
    smooth = np.fft.ifft2(np.fft.fft2(rng.random((33, 33))) * np.exp(-((frequency / 0.2) ** 2))).real
    psf = gaussian(8.0, 33) * smooth
    same = compare_psfs(psf, np.roll(psf[::-1], 2, axis=1))
    assert same.l1 < 1e-3
    assert same.correlation > 0.9999
    assert compare_psfs(psf, gaussian(8.0, 33)).l1 > 0.05


def test_the_command_compares_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a Gaussian for a PSF, which is known without a lens program."""
    lens = load_lens("zeiss-tessar-50-f3.5")
    camera = Camera(lens, pixel_um=4.0, sensor_shift_mm=0.1)
    psf = gaussian(camera.circle_of_confusion_px(np.inf), 32)
    folder, plot, table = tmp_path / "exports", tmp_path / "figure.png", tmp_path / "table.csv"
    folder.mkdir()
    arguments = ["psf-compare", str(folder), "--method", "gaussian", "--sensor-shift-mm", "0.1"]
    assert run(arguments) == 2
    assert "no .txt file" in capsys.readouterr().err
    for name, field in (("axis", "0.0000, 0.0000 mm"), ("angle", "0.0000, 10.0000 (deg)")):
        (folder / f"{name}.txt").write_text(zemax_listing(psf, 4.0, field, "D:\\tessar.zmx"), "utf-16")
    assert run(arguments) == 2
    assert "names tessar.zmx as its lens, which is not beside it" in capsys.readouterr().err
    lens.save(folder / "Tessar.json")
    assert run([*arguments, "--out", str(plot), "--out", str(table)]) == 0
    assert capsys.readouterr().out.count(" 1.0000  a") == 2
    assert plot.stat().st_size > 5_000
    with table.open() as file:
        angle, axis = csv.DictReader(file)
    assert float(axis["relative_l1"]) < 1e-4
    assert float(axis["wavelength_nm"]) == 587.5618
    assert float(angle["field_y"]) == pytest.approx(camera.field_of_angle(10.0)[1], abs=1e-5)
    (folder / "axis.txt").write_text("cut")
    assert run(arguments) == 2
    assert "axis.txt: not a PSF as Zemax lists it" in capsys.readouterr().err
