"""Figures of PSFs: colours and orientation are right, numbers on the page are physics, failures are said.

All PSFs are of one lens, few at a time and of one size, so that few programs compile.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import TextPath

from defocus import Camera, Photograph, Psf
from defocus.cli import run
from defocus.draw import (
    compute_psf_gallery,
    compute_psf_grid,
    draw_psf,
    draw_psf_gallery,
    draw_psf_grid,
    draw_pupils,
    draw_through_focus,
    draw_wavefronts,
    plot_photograph,
    save,
)
from defocus.draw.psf_grid import PsfGrid
from defocus.draw.psf_plot import check_scale, colours, picture
from defocus.draw.pupils import wavefronts_of
from defocus.draw.style import text_width
from defocus.errors import DefocusError
from defocus.lens import load_lens
from defocus.optics.pupil_map import pupil_map
from defocus.psf.bands import parse_bands
from defocus.psf.energy import encircled_energy, sections
from defocus.render import Picture

LENS, SIZE = "zeiss-tessar-50-f3.5", 33
D, RGB = parse_bands("d"), parse_bands("rgb")


@pytest.fixture(scope="module")
def camera() -> Camera:
    return Camera(load_lens(LENS), focus_m=2.0, f_number=8.0)


@pytest.fixture(scope="module")
def grid(camera: Camera) -> PsfGrid:
    return compute_psf_grid(camera, fields=(-0.7, 0.7), depths_m=(math.inf,), size=SIZE, bands="d")


def test_the_width_of_a_text_is_that_of_its_outline() -> None:
    font = FontProperties(family="DejaVu Sans", size=9.0)
    for text in ("Ø 50 mm f/2 · gS@%&", "| I − L |"):
        outline = TextPath((0.0, 0.0), text, prop=font, usetex=False).get_extents()
        assert text_width(text, 9.0) == pytest.approx(outline.width / 72.0, rel=1e-12)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


def pictures(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


def blob(size: int, row: float, column: float, sigma: float) -> np.ndarray:
    y, x = np.mgrid[:size, :size]
    light = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2.0 * sigma**2))
    return (light / light.sum()).astype(np.float32)


def assert_on_page(figure: Figure) -> None:
    """No text is cut off at the page's edges."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    for text in figure.findobj(Text):
        if not text.get_text() or not text.get_visible():
            continue
        box = text.get_window_extent(canvas.get_renderer())
        inside = box.x0 >= 0.0 and box.y0 >= 0.0 and box.x1 <= width and box.y1 <= height
        assert inside, (text.get_text(), box, width, height)


# --- colours ---------------------------------------------------------------------------------------------------------


def test_the_maximum_is_white_and_light_is_encoded_as_srgb() -> None:
    one = np.zeros((1, 5, 5), np.float32)
    one[0, 1, 3], one[0, 2, 2] = 0.8, 0.4
    image = picture(one, D)
    assert image[1, 3] == pytest.approx([1.0, 1.0, 1.0])
    assert image[2, 2] == pytest.approx([0.7354] * 3, abs=1e-3)  # sRGB of half the light
    assert image[0, 0] == pytest.approx([0.0, 0.0, 0.0])
    assert picture(np.repeat(one, 3, axis=0), RGB)[1, 3] == pytest.approx([1.0, 1.0, 1.0])


def test_bands_become_the_colours_of_their_wavelengths() -> None:
    light = np.zeros((3, 2, 2), np.float32)
    light[0, 0, 0] = light[1, 0, 1] = light[2, 1, 0] = 1.0
    image = picture(light, RGB)
    assert image[0, 0] == pytest.approx([1.0, 0.0, 0.0])
    assert image[0, 1] == pytest.approx([0.0, 1.0, 0.0])
    assert image[1, 0] == pytest.approx([0.0, 0.0, 1.0])
    swapped = picture(light[::-1], parse_bands("462,535,604"))
    assert np.array_equal(swapped, image)
    # However many bands there are, equal ones are gray and no light is lost.
    for count in (1, 2, 4, 5):
        same = colours(np.full((count, 1, 1), 0.5), parse_bands(list(np.linspace(450.0, 650.0, count))))
        assert same == pytest.approx(np.full((1, 1, 3), 0.5))


def test_a_log_picture_counts_decades() -> None:
    light = np.zeros((3, 1, 3), np.float32)
    light[:, 0] = 1.0, 1e-2, 1e-5
    assert picture(light, RGB, "log", 4.0)[0, :, 0] == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)
    one = picture(light[:1], D, "log", 4.0)
    assert one[0, 0].sum() > one[0, 1].sum() > one[0, 2].sum()
    with pytest.raises(DefocusError, match="known are linear, log"):
        check_scale("cubic")


# --- numbers on the page ---------------------------------------------------------------------------------------------


def test_encircled_energy_of_a_gaussian() -> None:
    sigma, pixel = 6.0, 2.0
    energy = encircled_energy(blob(81, 42.3, 38.8, sigma)[None], pixel, np.array([0.9]))
    exact = 0.9 * (1.0 - np.exp(-((energy.radius_um / pixel) ** 2) / (2.0 * sigma**2)))
    assert np.abs(energy.share[0] - exact).max() < 5e-3
    assert energy.radius_of(0.45) == pytest.approx(pixel * sigma * math.sqrt(2.0 * math.log(2.0)), rel=0.01)
    assert math.isnan(energy.radius_of(0.95))
    assert energy.radius_um[-1] == pytest.approx(pixel * 38.2, rel=0.01)  # up to where the window ends


def test_sections_follow_the_meridian() -> None:
    y, x = np.mgrid[:81, :81] - 40.0
    up_right = (x - y) / math.sqrt(2.0)  # rows count down
    streak = np.exp(-(up_right**2) / 200.0 - ((x + y) / math.sqrt(2.0)) ** 2 / 8.0)[None]
    place, along, across = sections(streak, math.pi / 4.0)
    at = np.argmin(np.abs(place - 10.0))
    assert along[0, at] == pytest.approx(math.exp(-0.5), abs=0.02)
    assert across[0, at] < 1e-3


def test_a_removed_defocus_is_the_sensors(camera: Camera) -> None:
    focal_length, near = 50.0, 1000.0
    axis, edge = wavefronts_of(camera, 1.0, (0.0, 0.7))
    maps = {kind: pupil_map(axis, 0.0, kind) for kind in ("piston", "tilt", "defocus")}
    assert maps["piston"].rms * (1.0 + 1e-9) >= maps["tilt"].rms > 10.0 * maps["defocus"].rms
    # The image of a point at 1 m lies behind that of one at 2 m, so the sensor would have to move back.
    image = [1.0 / (1.0 / focal_length - 1.0 / d) for d in (near, 2.0 * near)]
    assert maps["defocus"].defocus_mm == pytest.approx(image[0] - image[1], rel=0.05)
    one = pupil_map(edge, 0.7)
    cell = (one.x[1] - one.x[0]) * (one.y[1] - one.y[0])
    assert one.inside.sum() * cell == pytest.approx(one.area, rel=0.01)
    assert 0.0 < one.rms < one.peak_to_valley
    assert np.ptp(one.rim[1]) < np.ptp(one.rim[0])  # foreshortened and vignetted along the meridian
    with pytest.raises(DefocusError, match="between -1 and 1"):
        wavefronts_of(camera, 1.0, (1.2,))
    with pytest.raises(DefocusError, match="depth -1"):
        wavefronts_of(camera, -1.0, (0.0,))


# --- figures ---------------------------------------------------------------------------------------------------------


def test_a_grid_stands_upright(grid: PsfGrid, tmp_path: Path) -> None:
    below, above = grid.psf[0, 0, 0], grid.psf[0, 1, 0]
    assert np.allclose(above, below[::-1], atol=1e-4 * above.max())
    assert np.abs(above - above[::-1]).max() > 0.02 * above.max()  # or the test would say nothing
    figure = draw_psf_grid(grid)
    images = pictures(figure)[:2]
    assert np.allclose(images[1], picture(grid.psf[0, 1], D))
    assert all(axes.get_ylim()[0] > axes.get_ylim()[1] for axes in figure.axes[:2])  # row 0 on top
    assert all(image.max() == pytest.approx(1.0) for image in images)
    words = " ".join(texts(figure))
    for word in ("Tessar", "field −0.7", "field 0.7", "∞", "CoC", "µm", "587.6 nm", "f/8", "focused at 2 m"):
        assert word in words, word
    for scale in ("linear", "log"):
        assert_on_page(draw_psf_grid(grid, scale=check_scale(scale)))
    for suffix in (".png", ".svg"):
        save(figure, tmp_path / f"grid{suffix}")
        assert 5_000 < (tmp_path / f"grid{suffix}").stat().st_size < 2_000_000
    assert ElementTree.parse(tmp_path / "grid.svg").getroot().tag.endswith("svg")


def test_a_tile_that_failed_says_why(grid: PsfGrid) -> None:
    reason = "no light gets through at this field, whatever the reason may be"
    failed = replace(grid, psf=grid.psf * 0.0, reports=(({"status": reason}, grid.reports[0][1]),))
    figure = draw_psf_grid(failed)
    assert reason in " ".join(" ".join(texts(figure)).split())
    lossy = replace(grid, reports=((grid.reports[0][0], grid.reports[0][1] | {"energy_outside": 0.31}),))
    assert "31 % outside" in texts(draw_psf_grid(lossy))
    assert_on_page(figure)


def test_a_column_of_refused_tiles_keeps_its_field(grid: PsfGrid) -> None:
    fine = grid.camera.with_pixels(pixel_um=0.1)
    refused = compute_psf_grid(fine, fields=(-0.7, 0.7), depths_m=(math.inf,), size=SIZE, bands="d")
    assert all("of the light falls outside" in report["status"] for report in refused.reports[0])
    assert refused.heads == grid.heads


def test_a_grid_without_fields_is_refused() -> None:
    with pytest.raises(DefocusError, match="at least one field"):
        compute_psf_grid(Camera(load_lens(LENS)), fields=(), depths_m=(1.0,))


def test_one_psf_with_its_report(grid: PsfGrid, tmp_path: Path) -> None:
    figure = draw_psf(Psf(grid.psf[0, 1], grid.bands, grid.camera.pixel_um, grid.reports[0][1]), "a title")
    assert_on_page(figure)
    words = " ".join(texts(figure))
    report = grid.reports[0][1]
    for word in ("a title", "relative illumination", f"{report['samples']}", "encircled energy", "waves"):
        assert word in words, word
    save(figure, tmp_path / "psf.png")
    # Three bands, and a report that knows little.
    light = np.stack([blob(SIZE, 16.0, 16.0, s) for s in (1.0, 2.0, 3.0)])
    assert_on_page(draw_psf(Psf(light, RGB, 4.0, {"status": "ok"}), "Gaussians"))


@pytest.fixture(scope="module")
def psf(camera: Camera) -> Psf:
    return camera.psf(math.inf, (0.0, 0.7), SIZE, "d")


@pytest.fixture(scope="module")
def photograph() -> Photograph:
    views = [Picture(light, None, light) for light in np.random.default_rng(0).random((2, 20, 30, 3))]
    report = {"lens": "a lens", "f_number": 2.0, "focus_m": math.inf, "coc_px": [-3.0, 1.0]}
    return Photograph(*views, report)


def test_a_psf_is_saved_as_its_suffix_says(psf: Psf, tmp_path: Path) -> None:
    psf.save(tmp_path / "psf.npz")
    with np.load(tmp_path / "psf.npz") as file:
        assert np.array_equal(file["psf"], psf.array)
        assert file["wavelengths_nm"] == pytest.approx([587.5618])
        assert file["pixel_um"] == psf.pixel_um
        report = json.loads(str(file["report"]))
    assert report["status"] == "ok"
    assert report["method"] == "wave"
    assert report["field"] == [0.0, 0.7]
    psf.save(str(tmp_path / "psf.svg"))
    assert ElementTree.parse(tmp_path / "psf.svg").getroot().tag.endswith("svg")
    with pytest.raises(DefocusError, match=r"\.svg"):
        psf.save(tmp_path / "psf.txt")
    with pytest.raises(DefocusError, match="one at a time"):
        Psf(psf.array[None], D, 4.0, {}).plot()


def test_everything_shows_itself_in_a_notebook(camera: Camera, psf: Psf, photograph: Photograph) -> None:
    for thing in (camera, psf, photograph):
        assert thing._repr_html_().startswith("<img ")
    assert "<svg" in camera.lens._repr_html_()


def test_progress_counts_psfs(camera: Camera) -> None:
    steps: list[float] = []
    compute_psf_grid(camera, fields=(0.0, 0.7), depths_m=(math.inf,), size=SIZE, bands="d", progress=steps.append)
    assert sum(steps) == pytest.approx(2.0)


def test_a_photograph_beside_its_sharp_one(photograph: Photograph) -> None:
    figure = plot_photograph(photograph)
    views = (photograph.sharp, photograph.blurred)
    assert_on_page(figure)
    assert [np.array_equal(shown, view.srgb) for shown, view in zip(pictures(figure), views, strict=True)] == [True] * 2
    assert "focused at infinity" in " ".join(texts(figure))


def test_wavefronts_pupils_and_a_strip(camera: Camera, tmp_path: Path) -> None:
    figures = {
        "wavefronts": draw_wavefronts(camera, depth_m=1.0, fields=(0.0, 0.7), remove="defocus"),
        "pupils": draw_pupils(camera, depth_m=1.0, fields=(0.0, 0.7)),
        "depths": draw_through_focus(camera, field=(0.0, 0.7), depths_m=(1.0, 2.0, math.inf), size=SIZE, bands="d"),
        "shifts": draw_through_focus(camera, sensor_shifts_mm=(-0.2, 0.0, 0.2), size=SIZE, bands="d", scale="log"),
    }
    for name, figure in figures.items():
        assert_on_page(figure)
        save(figure, tmp_path / f"{name}.svg")
        ElementTree.parse(tmp_path / f"{name}.svg")
    assert any(text.startswith("RMS") for text in texts(figures["wavefronts"]))
    areas = [text for text in texts(figures["pupils"]) if text.startswith("area")]
    assert areas[0].startswith("area 100 %")
    assert "+200 µm" in texts(figures["shifts"])
    sharp = [image.sum() for image in pictures(figures["shifts"])]
    assert sharp[1] < min(sharp[0], sharp[2])  # in focus the light is on the fewest pixels
    with pytest.raises(DefocusError, match="depths_m or sensor_shifts_mm"):
        draw_through_focus(camera)


def test_a_gallery_has_a_row_for_each_lens(camera: Camera, grid: PsfGrid) -> None:
    one = compute_psf_gallery([camera], math.inf, fields=(-0.7, 0.7), size=SIZE, bands="d")
    assert np.array_equal(one.psf, grid.psf)
    cameras = [camera, Camera(load_lens("canon-rf-85-f1.2"), focus_m=2.0, pixel_um=40.0)]
    gallery = compute_psf_gallery(cameras, 1.0, fields=(0.0, 0.5, 1.0), method="disk")
    radii = [abs(float(camera.circle_of_confusion_px(1.0))) for camera in cameras]
    for row, radius in enumerate(radii):
        tiles = gallery.cut(row)
        assert 2.0 * radius <= tiles.shape[-1] < gallery.psf.shape[-1] + row
        assert tiles.sum() == pytest.approx(9.0, rel=0.02)  # three fields in three colours
    figure = draw_psf_gallery(gallery)
    assert_on_page(figure)
    assert len(pictures(figure)) == 6
    words = texts(figure)
    assert sum("m, " in text and text.endswith(" px") for text in words) == 2  # each row has its own scale
    assert {"Zeiss Tessar 50 mm f/3.5", "axis", "field 0.5", "field 1"} <= set(words)
    assert any("method disk" in text for text in words)


# --- command line ----------------------------------------------------------------------------------------------------


def test_the_command_writes_figure_and_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot, out = tmp_path / "grid.png", tmp_path / "grid.npz"
    arguments = ["--fields", "-0.7", "--depths-m", "0.015,inf", "--focus-m", "2"]
    arguments += ["--size", str(SIZE), "--bands", "d", "--scale", "log", "--out", str(plot), "--out", str(out)]
    assert run(["psf-grid", LENS, *arguments]) == 0
    said = capsys.readouterr()
    assert f"wrote {plot}" in said.out
    assert "depth 0.015 m" in said.err  # far too near for a PSF: said, drawn and written
    assert plot.stat().st_size > 5_000
    with np.load(out) as stack:
        assert stack["psf"].shape == (2, 1, 1, SIZE, SIZE)
        assert stack["psf"][1].sum() == pytest.approx(1.0, rel=1e-4)
        assert not stack["psf"][0].any()
        assert stack["depths_m"].tolist() == [0.015, math.inf]
        tiles = json.loads(str(stack["report"]))["tiles"]
    assert tiles[0][0]["status"] != "ok"
    assert tiles[1][0]["status"] == "ok"


def test_figures_and_photographs_by_other_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, strip, blurred = tmp_path / "grid.npz", tmp_path / "strip.svg", tmp_path / "blurred.png"
    depths = ["--depths-m", "1,0.015", "--size", str(SIZE), "--method", "gaussian", "--bands", "d"]
    assert run(["psf-grid", LENS, "--focus-m", "2", "--fields", "0,0.5", *depths, "--out", str(out)]) == 0
    assert capsys.readouterr().err.count("nothing has an image") == 2
    with np.load(out) as stack:
        assert np.array_equal(*stack["psf"][0])
        assert json.loads(str(stack["report"]))["method"] == "gaussian"
    assert run(["through-focus", LENS, *depths, "--out", str(strip)]) == 0
    scene = ["scene:portrait:2", "--lens", "canon-rf-85-f1.2", "--size", "48x32", "--bands", "d", "--nodes", "1x1"]
    assert run(["blur", *scene, "--method", "gaussian", "--out", str(blurred)]) == 0
    assert "by the method gaussian" in capsys.readouterr().out
    assert "method gaussian" in strip.read_text()
    lenses = [LENS, "canon-rf-16-f2.8"]
    arguments = ["--fields", "0,1", "--depth-m", "0.03", "--focus-m", "0.1", "--method", "disk", "--size", "32"]
    assert run(["psf-gallery", *lenses, *arguments, "--out", str(strip)]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 4
    assert "note: Zeiss Tessar 50 mm f/3.5, field 0: the point lies within the front focal point" in notes[0]
    assert "of the light falls outside 32 pixels" in notes[3]


def test_the_default_picture_of_a_psf_is_filled_by_it(tmp_path: Path) -> None:
    out, figure = tmp_path / "psf.npz", tmp_path / "psf.svg"
    point = ["--focus-m", "2", "--depth-m", "3", "--field", "0,0.3", "--bands", "d", "--method", "disk"]
    assert run(["psf", LENS, *point, "--out", str(out), "--out", str(figure)]) == 0
    with np.load(out) as data:
        psf, pixel_um = data["psf"][0], float(data["pixel_um"])
    assert 0.6 * psf.shape[1] < (psf.sum(0) > 1e-3 * psf.sum(0).max()).sum() < psf.shape[1]
    camera = Camera(load_lens(LENS), focus_m=2.0)
    for focused in (camera, camera.focused(3.0)):  # in focus what counts is how the lens is corrected
        fine = focused.close_up(3.0, (0.0, 0.3), "d")
        blur = np.abs(fine.wavefronts([3.0], [(0.0, 0.3)], "d").wavefront.blur).max() * 1e3 / fine.pixel_um
        assert 20.0 < blur < 200.0
    assert pixel_um == pytest.approx(camera.close_up(3.0, (0.0, 0.3), "d").pixel_um)
    assert run(["psf", LENS, *point, "--size", "32", "--out", str(out)]) == 0
    with np.load(out) as data:
        assert float(data["pixel_um"]) == pytest.approx(camera.pixel_um)
    assert run(["psf", LENS, *point[:-4], "--depth-m", "0.01", "--out", str(out)]) == 2  # nothing has an image there


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--out", "x.gif"], ".svg"),
        (["--out", "nowhere/x.png"], "no folder nowhere"),
        (["--out", "nowhere/x.npz"], "no folder nowhere"),
        (["--out", "x.txt"], ".npz"),
        ([], "give --out"),
        (["--out", "x.png", "--fields", "0,half"], "--fields"),
        (["--out", "x.png", "--fields", "2"], "image circle"),
        (["--out", "x.png", "--depths-m", "1,,2"], "--depths-m"),
        (["--out", "x.png", "--depths-m", "-1"], "depth -1.0 m"),
        (["--out", "x.png", "--scale", "cubic"], "--scale"),
        (["--out", "x.png", "--bands", "green"], "wavelengths"),
        (["--out", "x.png", "--size", "0"], "--size"),
        (["--out", "x.png", "--f-number", "1"], "full aperture"),
    ],
)
def test_wrong_use_is_one_helpful_line(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["psf-grid", LENS, *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("defocus: ")
    assert said.err.count("\n") == 1
    assert hint in said.err
    assert not list(tmp_path.iterdir())
