"""What stands behind the page: rays of previews against light waves, the line of jobs, files of visitors, settings."""

from __future__ import annotations

import json
import math
import shlex
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from defocus import Camera, load_lens
from defocus.app import point_view
from defocus.app.darkroom import NETWORKS, Darkroom
from defocus.app.focus_ring import focus_of_ring, focus_of_text, ring_of_focus, text_of_focus
from defocus.app.job_line import JobLine, JobStopped, Report
from defocus.app.lens_view import LensFilter, first_lens, kinds_of, lens_choices
from defocus.app.pencils import Pencils, splat
from defocus.app.private_files import PrivateFolder, check_lens_upload, check_photo_upload, short_message
from defocus.app.server import check_host
from defocus.app.sharp_pictures import PlaneByHand, own_picture, scene_picture
from defocus.app.shots import Setting, Shot, settled
from defocus.cli import root_command, run
from defocus.errors import DefocusError, LensFileError, PhotoError
from defocus.lens import list_lenses
from defocus.scene.depth_files import read_depth, write_depth

LENS = "leica-summicron-50-f2"


@pytest.fixture(scope="module")
def folder() -> PrivateFolder:
    return PrivateFolder()


@pytest.fixture(scope="module")
def darkroom(folder: PrivateFolder) -> Darkroom:
    return Darkroom(JobLine(), folder)


# Rays


HEIGHTS = (0.0, 0.3, 0.6, 1.0)


def _portrait_camera() -> Camera:
    return Camera(load_lens("sigma-85-f1.4"), focus_m=2.0, pixels=(240, 160))


def _compare_with_waves(pencils: Pencils, camera: Camera, number: int, azimuth: float, depth_m: float) -> None:
    z = pencils.sensor_z_mm(camera)
    assert z == pytest.approx(float(camera.sensor_z_mm), abs=0.03)  # a fiftieth of a pixel of blur
    psf = pencils.psf(camera, number, azimuth, depth_m, z, 33)[1]  # green is next to the d line
    at = 0.9999 * HEIGHTS[number]
    waves = camera.psf(depth_m, (at * math.cos(azimuth), at * math.sin(azimuth)), 33, "d", coarse=True).array[0]
    assert np.abs(psf - waves).sum() < 0.2
    assert np.abs(psf[:, ::-1] - waves).sum() > 0.3  # mirrored it would be another


def test_rays_of_a_preview_agree_with_light_waves() -> None:
    """Orientation, vignetting and defocus."""
    camera = _portrait_camera()
    _compare_with_waves(Pencils.of(camera, HEIGHTS, 0.5), camera, 3, -2.5, 1.0)


@pytest.mark.long
def test_rays_of_a_preview_agree_with_light_waves_behind_the_focus_and_with_blades() -> None:
    camera = _portrait_camera()
    pencils = Pencils.of(camera, HEIGHTS, 0.5)
    _compare_with_waves(pencils, camera, 2, 0.3, 4.0)
    _compare_with_waves(pencils, camera.stopped(2.4, 7), 3, -2.5, 1.0)


def test_blades_show_a_corner_upwards_before_the_focus_and_downwards_behind_it() -> None:
    camera = _portrait_camera().stopped(2.0, 5)
    pencils = Pencils.of(camera, HEIGHTS, 0.5)
    z = pencils.sensor_z_mm(camera)
    for depth, turn in ((1.0, 1.0), (6.0, -1.0)):
        light = pencils.psf(camera, 0, 0.7, depth, z, 33)[1].sum(1)
        rows = light[light > 1e-4]
        top, bottom = rows[:3].sum(), rows[-3:].sum()
        assert (bottom / top) ** turn > 1.5  # a corner is narrow, a side is wide


def test_light_that_is_shared_among_pixels_keeps_its_place_and_its_sum() -> None:
    x, y = np.array([0.25, -3.5, 40.0]), np.array([-0.5, 2.0, 0.0])
    pixels = splat(x[:2], y[:2], np.ones(2), 17)
    at = np.arange(17) - 8
    assert pixels.sum() == pytest.approx(1.0)
    assert pixels.sum(0) @ at == pytest.approx(np.mean([0.25, -3.5]), abs=1e-5)
    assert pixels.sum(1) @ -at == pytest.approx(np.mean([-0.5, 2.0]), abs=1e-5)
    assert splat(x[2:], y[2:], np.ones(1), 17)[8, 15:].sum() == pytest.approx(1.0, abs=1e-4)  # beyond: at the border


def test_a_preview_is_like_the_photograph_of_the_same_size() -> None:
    picture = scene_picture("portrait")
    shot = Shot(settled(LENS, 2.0, 0, 2.0)[0], picture)
    linear, depth = picture.small
    camera = shot.setting.camera(depth.shape[::-1])
    finished = camera.photograph(linear, depth, sensor=False, method="disk").blurred.srgb  # small, and no bad lens
    blurred = np.abs(finished - shot.preview()).mean()
    other = np.abs(finished - Shot(settled(LENS, 2.0, 0, 6.0)[0], picture).preview()).mean()
    assert blurred < 0.008 < 0.5 * other


def test_tiles_of_points_have_their_numbers() -> None:
    tiles = point_view.quick_tiles(Setting(LENS, 2.0, 0, 2.0))
    assert len(tiles.rows) == 3
    assert len(tiles.rows[0]) == len(point_view.FIELDS)
    text = tiles.rows[0][0].numbers(tiles.pixel_um)
    assert "1 m, axis, blur radius −14.9 px" in text
    assert "RMS radius" in text
    spread = float(text.partition("RMS radius ")[2].partition(" µm")[0]) / tiles.pixel_um
    assert spread == pytest.approx(15.0 / math.sqrt(2.0), rel=0.1)  # of a disc: its radius over √2
    page = tiles.html("log")
    assert page.count("<img") == 12
    assert page.count("tabindex") == 12


# The line of jobs


def test_jobs_run_one_after_the_other_and_the_others_are_told() -> None:
    line, go = JobLine(), threading.Event()

    def slow(report: object) -> str:
        go.wait(30.0)
        return "first"

    first = line.ask("a", "picture", slow)
    second = line.ask("b", "picture", lambda report: "second")
    state = next(iter(line.states(second)))
    assert "another picture is being made before yours" in state.text
    assert second.is_stopped  # its reader went away
    third = line.ask("b", "picture", lambda report: "third")
    go.set()
    assert first.ended.wait(30.0)
    assert third.ended.wait(30.0)
    assert (first.result, second.result, third.result) == ("first", None, "third")


def _endless(began: threading.Event, report: Report) -> None:
    """A job that only a stop ends."""
    while True:
        began.set()
        report("PSFs", 0.5)
        time.sleep(0.001)


def test_a_new_job_takes_the_place_of_the_visitors_last_one() -> None:
    line, began = JobLine(), threading.Event()
    old = line.ask("a", "picture", partial(_endless, began))
    assert began.wait(30.0)
    new = line.ask("a", "picture", lambda report: 7)
    assert all("before yours" not in state.text for state in line.states(new))
    assert new.result == 7
    assert isinstance(old.error, JobStopped)


def test_a_job_ends_at_its_time_limit_with_advice() -> None:
    line = JobLine(deadline_s=0.0)

    def work(report: object) -> None:
        time.sleep(0.01)
        report("PSFs", 0.5)  # type: ignore[operator]

    job = line.ask("a", "picture", work)
    assert job.ended.wait(30.0)
    assert "not done within 0 s (PSFs): stop the lens down" in str(job.error)


def test_a_line_that_is_closed_ends_its_jobs_and_its_thread() -> None:
    others = set(threading.enumerate())
    line, began = JobLine(), threading.Event()
    (own,) = set(threading.enumerate()) - others
    running, waiting = (line.ask(visitor, "picture", partial(_endless, began)) for visitor in ("a", "b"))
    assert began.wait(30.0)
    line.close()
    assert isinstance(running.error, JobStopped)
    assert isinstance(waiting.error, JobStopped)
    assert not own.is_alive()


# Settings


def test_settings_fit_the_lens_and_say_what_was_changed() -> None:
    setting, notes = settled(LENS, 1.0, 7, 0.01)
    assert setting.is_open
    assert setting.camera((240, 160)).iris is None
    assert [note.partition(":")[0] for note in notes] == [
        "Leica Summicron-M 50 mm f/2 opens to f/2, not f/1",
        "0.01 m lies within the front focal point of Leica Summicron-M 50 mm f/2",
        "wide open the blades are out of the way",
    ]
    stopped, notes = settled(LENS, 4.0, 7, math.inf)
    assert not notes
    assert stopped.arguments == ["--lens", LENS, "--focus-m", "inf", "--f-number", "4", "--blades", "7"]
    assert float(stopped.camera((240, 160)).f_number) == pytest.approx(4.0)


def test_the_command_line_parses_and_names_the_same_camera() -> None:
    shot = Shot(settled(LENS, 2.83, 9, 1.2345)[0], scene_picture("night"))
    words = shlex.split(shot.command)
    context = root_command().make_context("defocus", words[1:], resilient_parsing=False)
    name, command, rest = root_command().resolve_command(context, words[1:])
    parameters = command.make_context(name, rest).params
    assert parameters["photo"] == "scene:night"
    assert parameters["focus_m"] == shot.setting.focus_m == 1.234
    assert (parameters["f_number"], parameters["blades"], parameters["lens"]) == (2.83, 9, LENS)
    assert json.loads(shot.settings_json)["command"] == shot.command


def test_the_focus_ring_goes_both_ways() -> None:
    for focus in (0.2, 0.5, 1.8, 7.0, 90.0):
        assert focus_of_ring(ring_of_focus(focus)) == pytest.approx(focus, rel=0.01)
    assert focus_of_ring(ring_of_focus(math.inf)) == math.inf
    assert focus_of_text(" 2,4 m ") == 2.4
    assert focus_of_text(text_of_focus(math.inf)) == math.inf
    for text in ("far", "-1", "0", "nan", ""):
        with pytest.raises(DefocusError, match="expected metres"):
            focus_of_text(text)


# Lenses


def test_the_library_is_searched_by_words_kind_and_numbers() -> None:
    every = lens_choices(LensFilter())
    assert len({name for _, name in every}) == len(every) > len(list_lenses())  # zooms have their states
    fast = {name for _, name in lens_choices(LensFilter(widest=1.4, shortest_mm=80.0, longest_mm=90.0))}
    assert fast == {"canon-rf-85-f1.2", "sigma-85-f1.4"}
    old = lens_choices(LensFilter(last_year=1900))
    assert [name for _, name in old] == ["cooke-142-f8"]
    assert {name for _, name in lens_choices(LensFilter("leica summicron"))} == {LENS}
    assert all("@" in name for _, name in lens_choices(LensFilter(kind="zoom")))
    kinds = {entry.name: kinds_of(entry) for entry in list_lenses()}
    assert kinds[LENS] == {"standard"}
    assert "wide angle" in kinds["nikon-nikkor-21-f4"]
    assert "telephoto" in kinds["canon-ef-400-f2.8"]
    assert lens_choices(LensFilter("nonsense")) == []
    assert first_lens(every, LENS) == LENS
    assert first_lens(old, LENS) == "cooke-142-f8"


def test_without_gradio_the_command_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert run(["explore", "--no-open"]) == 2
    message = capsys.readouterr().err.strip()
    assert message == "defocus: the page to play with needs the extra [web]: pip install 'defocus[web]'"


# Photographs and files


def _write_photo(path: Path, size: tuple[int, int] = (300, 200)) -> Path:
    pixels = np.random.default_rng(1).integers(0, 200, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def test_a_plane_by_hand_is_a_plane_and_a_depth_map_that_the_command_reads(
    darkroom: Darkroom, folder: PrivateFolder
) -> None:
    photo = _write_photo(folder.place("v", "cat.png"))
    key = darkroom.keep_photograph("v", str(photo), PlaneByHand(1.0, 4.0))
    picture = darkroom.picture(key)
    inverse = 1.0 / picture.full[1]
    assert np.allclose(np.diff(inverse, axis=0), (1.0 - 0.25) / 199.0, rtol=1e-3)  # straight in perspective
    assert picture.depth_at(0.5, 0.999) == pytest.approx(1.0, rel=0.02)
    assert picture.arguments == ("cat.png", "--depth", "depth.npz", "--resize-depth", "--max-side", "960")
    stored = read_depth(folder.place("v", "depth.npz"))
    assert np.array_equal(stored.depth_m, picture.full[1])
    assert picture.size == (300, 200)
    assert picture.small[1].shape == (160, 240)


def test_a_photograph_with_its_depth_map_is_reduced(folder: PrivateFolder) -> None:
    photo = _write_photo(folder.place("v", "large.jpg"), (1920, 1280))
    depth = folder.place("v", "large.npy")
    write_depth(depth, np.full((128, 192), 3.0, np.float32))
    picture = own_picture(photo, depth)
    assert picture.size == (960, 640)
    assert picture.full[0].shape == (640, 960, 3)
    assert picture.focus_m == pytest.approx(3.0)


def test_wrong_files_are_refused_in_one_line(darkroom: Darkroom, folder: PrivateFolder, tmp_path: Path) -> None:
    text = folder.place("v", "holiday.txt")
    text.write_text("nothing")
    with pytest.raises(PhotoError, match=r"holiday.txt: neither a PNG, JPEG or TIFF nor a RAW file"):
        check_photo_upload(text)
    with pytest.raises(LensFileError, match=r"ends in .zmx"):
        check_lens_upload(_write_photo(folder.place("v", "lens.png")))
    large = folder.place("v", "large.zmx")
    large.write_bytes(b" " * (3 * 2**20))
    with pytest.raises(LensFileError, match=r"3.0 MB are more than a lens file has"):
        check_lens_upload(large)
    with pytest.raises(DefocusError) as refusal:
        darkroom.read_lens(str(text))
    message = short_message(refusal.value)
    assert "holiday.txt" in message
    assert str(folder.path) not in message
    with pytest.raises(DefocusError, match="drop a photograph first"):
        darkroom.keep_photograph("v", None, PlaneByHand(1.0, 2.0))
    with pytest.raises(DefocusError, match="drop its depth map"):
        darkroom.keep_photograph("v", str(text), None)
    with pytest.raises(DefocusError, match=r"expected 0.05 m or more"):
        PlaneByHand(0.0, 2.0).depth((30, 20))


def test_more_pixels_than_the_page_reads_are_refused_by_the_head_of_the_file(
    folder: PrivateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("defocus.app.private_files.MOST_PIXELS", 10_000)
    with pytest.raises(PhotoError, match=r"more than the 0 that this page reads: make it smaller"):
        check_photo_upload(_write_photo(folder.place("v", "many.png")))


@pytest.mark.parametrize("name", ["/etc/passwd", "../lens/data/index.json", "", "no-such-lens"])
def test_no_file_of_the_machine_is_a_lens_or_a_photograph(darkroom: Darkroom, name: str) -> None:
    with pytest.raises(DefocusError, match="drop"):
        darkroom.lens(name)
    with pytest.raises(DefocusError, match="drop"):
        darkroom.keep_photograph("v", name, PlaneByHand(1.0, 2.0))
    if name not in NETWORKS and name:
        photo = _write_photo(darkroom.folder.place("v", "own.png"))
        with pytest.raises(DefocusError, match="drop"):
            darkroom.keep_photograph("v", str(photo), name)


def test_files_of_visitors_are_removed() -> None:
    folder = PrivateFolder()
    assert folder.path.stat().st_mode & 0o077 == 0
    file = folder.place("a/../b", "x.png")
    file.write_bytes(b"x")
    assert file.is_relative_to(folder.path)
    folder.sweep(older_than_s=3600.0)
    assert file.is_file()
    folder.sweep(older_than_s=-1.0)
    assert not file.exists()
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.long
def test_the_command_line_makes_the_same_picture(
    darkroom: Darkroom, folder: PrivateFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a photograph that was dropped, with a plane placed by hand: what one saves is enough to make it again."""
    visitor = "again"
    photo = _write_photo(folder.place(visitor, "cat.png"), (64, 48))
    picture = darkroom.picture(darkroom.keep_photograph(visitor, str(photo), PlaneByHand(1.5, 3.0)))
    shot = Shot(settled(LENS, 4.0, 0, 2.0)[0], picture)
    saved, settings, depth = darkroom.write_downloads(visitor, shot, shot.photograph(lambda stage, done: None))
    assert depth is not None
    for file in (photo, Path(depth)):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(json.loads(Path(settings).read_text("utf-8"))["command"])[1:]) == 0
    assert np.array_equal(np.asarray(Image.open("photograph.png")), np.asarray(Image.open(saved)))


def test_an_address_of_another_machine_is_refused_at_once() -> None:
    check_host("127.0.0.1")
    with pytest.raises(DefocusError, match=r"--host 192\.0\.2\.1: this machine cannot listen there"):
        check_host("192.0.2.1")  # of the block for documentation
