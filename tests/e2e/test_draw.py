"""Figures: what is drawn is geometrically sound, the rays are real, the files are written, nothing leaks."""

from __future__ import annotations

import base64
import itertools
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib import _pylab_helpers

from defocus import Camera
from defocus.analysis import Mtf
from defocus.draw import (
    check_figure_path,
    draw_card,
    draw_diversity,
    draw_layout,
    draw_spots,
    html_image,
    plot_camera,
    plot_curves,
    save,
)
from defocus.draw.geometry import Element, cross_section, ray_paths
from defocus.errors import DefocusError, TraceError
from defocus.glass import AIR, model_glass
from defocus.lens.formats import read_lens
from defocus.lens.prescription import D_LINE_NM, Aperture, Field, Lens, Surface
from defocus.optics.apertures import with_clear_apertures
from defocus.optics.beams import refracting
from defocus.optics.spot_diagram import spot_diagram
from defocus.survey.lens_folder import SurveyRow
from defocus.survey.measurement import Measurement, measure_one

CROWN, FLINT = model_glass(1.62041, 60.3), model_glass(1.58144, 40.8)


def tessar() -> Lens:
    """A four-element lens with a cemented pair and unequal clear apertures, after CH 314 381."""
    rows = (
        (15.1504, 3.059, CROWN, 8.5),
        (380.5629, 3.1735, None, 7.5),
        (-34.9075, 0.889, model_glass(1.59551, 39.2), 6.2),
        (12.7473, 1.75, None, 6.0),
        (math.inf, 0.7165, None, 5.73),
        (329.5545, 0.8605, FLINT, 6.1),
        (10.8813, 6.2136, model_glass(1.67003, 47.2), 6.3),
        (-24.3598, 41.23, None, 7.0),
    )
    surfaces = tuple(
        Surface(radius=r, thickness=t, semi_diameter=a, **({"medium": g} if g else {})) for r, t, g, a in rows
    )
    return Lens("Tessar <50> $3.5$", surfaces, 4, Aperture("stop_radius", 5.73), image_radius=21.63)


def buried_stop() -> Lens:
    """A small conic lens whose stop stands 0.1 mm behind the front vertex, and a cover glass."""
    surfaces = (
        Surface(thickness=-0.1, semi_diameter=0.6),
        Surface(2.0, 0.9, model_glass(1.544, 56.0), 0.9, conic=-0.5),
        Surface(-8.0, 2.4, semi_diameter=0.8, conic=-1.0),
        Surface(thickness=0.3, medium=model_glass(1.517, 64.2), semi_diameter=1.5),
        Surface(thickness=0.4, semi_diameter=1.5),
    )
    return Lens("singlet", surfaces, 0, Aperture("stop_radius", 0.6), image_radius=1.2)


def profiles(element: Element) -> tuple[np.ndarray, np.ndarray]:
    """The front and back of an outline, each as (z, y) with y ascending."""
    edge = int(np.argmax(element.outline[:, 1]))
    front, back = element.outline[: edge + 1], element.outline[edge + 1 :][::-1]
    assert np.all(np.diff(front[:, 1]) > 0.0)
    assert np.all(np.diff(back[:, 1]) > 0.0)
    return front, back


def assert_in_order(lens: Lens) -> None:
    """No outline crosses itself or another one, and none is empty."""
    elements = cross_section(lens).elements
    sides = [profiles(e) for e in elements]
    for element, (front, back) in zip(elements, sides, strict=True):
        assert np.all(np.isfinite(element.outline)), (lens.name, element.front)
        y = np.union1d(front[:, 1], back[:, 1])
        assert y[0] == -y[-1]
        gap = np.interp(y, *back.T[::-1]) - np.interp(y, *front.T[::-1])
        assert gap.min() >= -1e-9, (lens.name, element.front)
        assert gap.max() > 0.0, (lens.name, element.front)
    y = np.union1d(np.linspace(0.0, max(front[-1, 1] for front, _ in sides), 400), [f[-1, 1] for f, _ in sides])
    fronts, backs = (
        np.array([np.interp(y, *side[k].T[::-1], left=np.nan, right=np.nan) for side in sides]) for k in (0, 1)
    )
    furthest = np.fmax.accumulate(backs, axis=0)  # of all elements so far
    assert not np.any(fronts[1:] < furthest[:-1] - 1e-9), lens.name


def crossings(a: np.ndarray, b: np.ndarray) -> int:
    """How many edges of one closed polygon properly cross edges of another."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])

    p, q = a[:, None], np.roll(a, -1, axis=0)[:, None]
    r, s = b[None], np.roll(b, -1, axis=0)[None]
    tiny = 1e-9
    left, right = side(p, q, r), side(p, q, s)
    up, down = side(r, s, p), side(r, s, q)
    apart = (np.minimum(left, right) < -tiny) & (np.maximum(left, right) > tiny)
    return int(np.sum(apart & (np.minimum(up, down) < -tiny) & (np.maximum(up, down) > tiny)))


@pytest.mark.parametrize("make", [tessar, buried_stop])
def test_outlines_are_simple_polygons_that_do_not_cross(make):
    lens = make()
    assert_in_order(lens)
    outlines = [e.outline for e in cross_section(lens).elements]
    for a, b in itertools.combinations_with_replacement(outlines, 2):
        assert crossings(a, b) == 0


def test_crossings_are_seen_by_the_test_itself():
    square = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    assert crossings(square, square + np.array([1.0, 1.0])) == 2
    assert crossings(square, square + np.array([5.0, 0.0])) == 0


def test_elements_reach_the_larger_clear_aperture_and_close_with_a_flat():
    lens = tessar()
    first, second, *cemented = cross_section(lens).elements
    assert first.outline[:, 1].max() == pytest.approx(8.5)
    front, back = profiles(second)  # concave behind, 6.0 of 6.2 mm: a flat annulus
    flat = back[back[:, 1] >= 6.0]
    assert np.ptp(flat[:, 0]) == 0.0
    assert front[-1, 1] == back[-1, 1] == pytest.approx(6.2)
    glue = [profiles(cemented[0])[1], profiles(cemented[1])[0]]  # the pair shares its interface
    y = np.linspace(-6.0, 6.0, 25)
    assert np.array_equal(np.interp(y, *glue[0].T[::-1]), np.interp(y, *glue[1].T[::-1]))


def test_clear_apertures_that_let_glass_overlap_are_narrowed_and_reported():
    lens = tessar()
    thin = replace(lens, surfaces=(replace(lens.surfaces[0], thickness=1.0), *lens.surfaces[1:]))
    geometry = cross_section(thin)
    assert set(geometry.narrowed) == {0, 1}
    assert_in_order(thin)
    assert "surfaces 0, 1" in texts(draw_layout(thin))


def test_an_asphere_is_not_drawn_outside_its_clear_aperture():
    wild = ((4, -0.01), (20, 1e3))  # runs away just beyond 0.7 mm
    lens = buried_stop()
    surfaces = list(lens.surfaces)
    surfaces[1] = replace(surfaces[1], aspheric=wild, semi_diameter=0.62)
    (asphere, _), (element, *_) = (g := cross_section(replace(lens, surfaces=tuple(surfaces)))).aspheres, g.elements
    assert np.abs(asphere[:, 1]).max() == pytest.approx(0.62)
    assert np.ptp(element.outline[:, 0]) < 1.2


def test_only_missing_clear_apertures_are_solved_for(monkeypatch: pytest.MonkeyPatch):
    lens = tessar()
    solved = lens.with_semi_diameters(dict.fromkeys(range(8), 5.0))
    monkeypatch.setattr("defocus.optics.apertures.solve_clear_apertures", lambda _: solved)
    surfaces = (*lens.surfaces[:6], *(replace(s, semi_diameter=None) for s in lens.surfaces[6:]))
    filled = with_clear_apertures(replace(lens, surfaces=surfaces))
    assert [s.semi_diameter for s in filled.surfaces] == [8.5, 7.5, 6.2, 6.0, 5.73, 6.1, 5.0, 5.0]
    assert with_clear_apertures(lens) is lens
    assert_in_order(replace(lens, surfaces=surfaces))


@pytest.mark.parametrize("make", [tessar, buried_stop])
def test_rays_run_forwards_to_the_image_plane(make):
    lens = make()
    geometry = cross_section(lens)
    for fan in ray_paths(lens, (0.0, 0.7, 1.0), rays=9):
        assert fan.paths.shape == (9, len(refracting(lens)) + 2, 2)
        assert np.abs(fan.paths[:, -1, 0] - geometry.image[0]).max() < 1e-6
        assert np.all(np.diff(fan.paths[:, :, 0], axis=1) > 0.0)  # also where the stop stands behind the vertex
        semi = [lens.surfaces[i].semi_diameter for i in refracting(lens)]
        assert np.all(np.abs(fan.paths[:, 1:-1, 1]) <= np.array(semi) * (1.0 + 1e-9))


def test_objects_are_above_the_axis_and_images_below_at_the_right_height():
    for fan in ray_paths(tessar()):
        start, end = fan.paths[:, 0, 1].mean(), fan.paths[:, -1, 1]
        if fan.lit.beam.field:
            assert fan.paths[4, 0, 1] - fan.paths[4, 1, 1] > 0.0  # comes down from above
            assert np.min(np.abs(end + fan.lit.beam.field * 21.63)) < 1e-5  # the chief ray
        else:
            assert abs(start) < 1e-4


def test_rim_rays_graze_and_the_chief_ray_crosses_the_stop():
    lens = tessar()
    z = sum(s.thickness for s in lens.surfaces[:4])
    axis, *_, edge = ray_paths(lens)

    def at_stop(paths: np.ndarray) -> np.ndarray:
        (z0, y0), (z1, y1) = paths[:, 4].T, paths[:, 5].T  # the surfaces before and behind the stop
        return y0 + (z - z0) / (z1 - z0) * (y1 - y0)

    assert np.abs(at_stop(axis.paths)[[0, -1]]) == pytest.approx(5.73, abs=1e-5)
    assert np.abs(at_stop(edge.paths)).min() < 1e-6
    semi = np.array([lens.surfaces[i].semi_diameter for i in refracting(lens)])
    for rim in edge.paths[[0, -1]]:  # something limits each of them
        tightest = max((np.abs(rim[1:-1, 1]) / semi).max(), abs(at_stop(rim[None])[0]) / 5.73)
        assert tightest == pytest.approx(1.0, abs=1e-5)


def test_a_field_without_light_is_replaced_and_named():
    darker = ray_paths(tessar().with_semi_diameters({0: 3.0, 7: 2.0}), (0.0, 0.7, 1.0))
    assert [fan.lit.requests for fan in darker] == [(0.0,), (0.7, 1.0)]
    lens = tessar().with_semi_diameters({0: 4.0, 7: 3.0})
    fans = ray_paths(lens, (0.0, 0.7, 1.0))
    assert 0.7 < fans[-1].lit.beam.field < 1.0
    assert fans[-1].lit.dark == [1.0]
    assert "none at 1" in fans[-1].lit.label
    assert "none at 1" in texts(draw_layout(lens))
    assert "no light at 1" in texts(draw_spots(lens, fields=(0.0, 1.0)))


def test_senseless_requests_are_refused():
    with pytest.raises(ValueError, match="fractions of the image radius"):
        draw_layout(tessar(), fields=(-0.5, 1.0))
    with pytest.raises(ValueError, match="fractions of the image radius"):
        draw_spots(tessar(), fields=())
    with pytest.raises(ValueError, match="at least 2"):
        draw_layout(tessar(), rays=1)


def test_no_light_at_all_is_an_error():
    with pytest.raises(TraceError, match="not even on the axis"):
        draw_layout(tessar().with_semi_diameters({7: 1e-6, 0: 1e-6}))


def test_what_forms_no_image_is_an_error():
    plane = [replace(s, radius=math.inf) for s in tessar().surfaces]
    with pytest.raises(TraceError, match="focal length is infinite"):
        draw_spots(replace(tessar(), surfaces=tuple(plane)))
    air = replace(tessar(), surfaces=tuple(replace(s, medium=AIR) for s in tessar().surfaces))
    for draw in (draw_layout, draw_spots, draw_card):
        with pytest.raises(TraceError, match="no surface refracts light"):
            draw(air)


def test_a_lens_without_a_field_shows_its_axis():
    lens = replace(tessar(), image_radius=None, field=Field("angle_deg", ((0.0, 0.0),)))
    figure = draw_layout(lens)
    assert "axis only" in texts(figure)


def test_finite_objects_send_diverging_rays():
    lens = replace(tessar(), object_distance=500.0)
    (axis,) = ray_paths(lens, (0.0,))
    (z0, y0), (z1, y1) = axis.paths[0, :2]
    assert y0 - (y1 - y0) / (z1 - z0) * (z0 + 500.0) == pytest.approx(0.0, abs=1e-6)


def texts(figure) -> str:
    """All words of a figure."""
    found = figure.findobj(matplotlib.text.Text)
    return "\n".join(t.get_text() for t in found)


def test_figures_are_written_and_the_same_every_time(tmp_path: Path):
    figures = [draw_layout(tessar()), draw_layout(tessar())]
    for suffix, head in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        written = []
        for name, figure in zip("ab", figures, strict=True):
            path = tmp_path / f"{name}{suffix}"
            save(figure, path)
            written.append(path.read_bytes())
        assert written[0].startswith(head)
        assert len(written[0]) > 5000
        assert written[0] == written[1]
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag.endswith("svg")
    assert not any("nan" in path.get("d", "") for path in root.iter("{http://www.w3.org/2000/svg}path"))


def test_unknown_suffix_and_bad_folder_say_what_to_do(tmp_path: Path):
    with pytest.raises(DefocusError, match=r"\.png, \.svg, \.pdf"):
        save(draw_layout(tessar()), tmp_path / "lens.bmp")
    with pytest.raises(DefocusError, match="ends in"):
        check_figure_path("lens")
    with pytest.raises(DefocusError, match="no folder"):
        check_figure_path(tmp_path / "nowhere" / "lens.png")
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(DefocusError, match="cannot be written"):
        save(draw_layout(tessar()), tmp_path / "taken.png")
    with pytest.raises(DefocusError, match="cannot be written"):
        save(draw_layout(tessar()), tmp_path / "nowhere" / "lens.png")


def test_a_camera_is_drawn_as_it_is_stopped_down():
    figure = plot_camera(Camera(tessar(), focus_m=3.0, f_number=8.0))
    assert "focused at 3 m" in texts(figure)
    axis = np.array(figure.axes[0].collections[0].get_segments())
    focal_length = measure_one(tessar()).focal_length_mm
    assert axis[:, 0, 1].max() == pytest.approx(focal_length / 16.0, rel=0.01)


def test_a_figure_as_html():
    figure = draw_layout(tessar())
    head, _, data = html_image(figure).partition("base64,")
    assert head.startswith("<img ")
    assert base64.b64decode(data.partition('"')[0]).startswith(b"\x89PNG")


def test_nothing_leaks_into_matplotlib(tmp_path: Path):
    before = dict(matplotlib.rcParams)
    save(draw_spots(tessar(), fields=(0.0,)), tmp_path / "spots.svg")
    assert dict(matplotlib.rcParams) == before
    assert _pylab_helpers.Gcf.get_all_fig_managers() == []


def test_a_user_style_changes_nothing(tmp_path: Path):
    save(draw_layout(tessar()), tmp_path / "plain.png")
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "axes.facecolor": "red", "savefig.dpi": 30}):
        save(draw_layout(tessar()), tmp_path / "styled.png")
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "styled.png").read_bytes()


def test_spots_agree_with_the_survey_and_with_geometry():
    lens = tessar()
    diagram = spot_diagram(lens, fields=(0.0, 1.0), wavelengths_nm=(D_LINE_NM,))
    measured = measure_one(lens)
    axis, edge = diagram.spots
    assert diagram.focus_mm == pytest.approx(measured.best_focus_mm, abs=1e-4)
    assert axis.rms(diagram.focus_mm) == pytest.approx(measured.axial_rms_mm, rel=0.05)
    assert axis.rms(diagram.focus_mm) < min(axis.rms(diagram.focus_mm + d) for d in (-0.01, 0.01))
    # Far from focus the spot is the pupil's disk, whose RMS radius is its radius / √2.
    assert axis.rms(5.0) == pytest.approx(5.0 * math.tan(math.asin(measured.na)) / math.sqrt(2.0), rel=0.05)
    assert edge.rms(diagram.focus_mm) > axis.rms(diagram.focus_mm)
    x, y = edge.at(0.0)[0]
    assert abs(x.mean()) < 1e-9  # symmetric about the meridional plane
    assert abs(y.mean()) < 1e-12


def test_spots_point_outwards():
    """Up in a panel is away from the axis: the points themselves lie at positive heights."""
    edge = spot_diagram(tessar(), fields=(1.0,), wavelengths_nm=(D_LINE_NM,)).spots[0]
    assert edge.landing[0][1].mean() == pytest.approx(21.63, abs=0.2)


def test_spot_figure_says_plane_and_scale():
    words = texts(draw_spots(tessar(), defocus_mm=(-0.05, 0.0, 0.05)))
    assert "axial best focus at the d line" in words
    assert "µm" in words
    assert words.count("RMS ") >= 15
    assert "the prescription's image plane;" in texts(draw_spots(tessar(), fields=(0.0,), at_best_focus=False))


def test_card_shows_the_measured_numbers():
    lens = tessar()
    words = texts(draw_card(lens))
    focal_length = f"{measure_one(lens).focal_length_mm:.4g} mm"
    for text in (lens.name, focal_length, "total track", "tangential coma", "axis", "Airy disk"):
        assert text in words, text


def test_curves_over_the_field_cross_the_axis_level():
    """Contrast is an even function of image height: a round lens has no side."""
    field, frequency = np.array([0.0, 0.3, 0.6, 1.0]), np.array([30.0])
    contrast = 0.5 + 0.4 / (1.0 + (field[:, None] / 0.25) ** 2)
    mtf = Mtf(frequency, field, 20.0 * field, "diffraction", contrast, contrast)
    height, drawn = plot_curves(mtf).axes[0].lines[0].get_data()
    assert np.interp(20.0 * field, height, drawn) == pytest.approx(contrast[:, 0], abs=1e-3)
    assert abs((drawn[1] - drawn[0]) / height[1]) < 0.3 * abs((drawn[-1] - drawn[0]) / height[-1])


def test_diversity_figures(tmp_path: Path):
    def row(name, status, category, reasons=(), **numbers):
        return SurveyRow(name, name, status, category, reasons, Measurement(**numbers))

    numbers = {"focal_length_mm": 50.0, "stop_radius_mm": 9.0, "tsc_mm": -0.1, "cc_mm": 0.02, "tac_mm": 0.0}
    rows = [
        row("a", "kept", "interchangeable", **numbers),
        row("b", "rejected", "phone", ("f_number 9 > 8", "na 0.7 >= 0.6"), **numbers),
        row("c", "rejected", "", ("c: no image radius",)),
        row("d", "unreadable", "", ("d.zmx: truncated",)),
        row("e", "unsupported", "", ("e.zmx: MIRROR",)),
        row("f", "rejected", "", ("na 0.7 >= 0.6",), **{**numbers, "tsc_mm": 1e11}),
    ]
    for some in (rows, rows[3:5], []):
        figures = draw_diversity(some)
        assert [name for name, _ in figures] == ["focal_length_and_stop", "aberrations", "reasons"]
        for name, figure in figures:
            save(figure, tmp_path / f"{name}.png")
            assert (tmp_path / f"{name}.png").stat().st_size > 3000
    reasons = draw_diversity(rows)[2][1]
    save(reasons, tmp_path / "reasons.svg")  # tick labels exist once they are drawn
    words = texts(reasons)
    for text in (
        "F-number too large",
        "numerical aperture",
        "cannot be traced",
        "file cannot be read",
        "not a lens",
        "1 kept",
    ):
        assert text in words
    aberrations = draw_diversity(rows)[1][1]
    assert "1 lens beyond the axes" in texts(aberrations)
    assert aberrations.axes[0].get_xlim()[1] < 1.0


@pytest.mark.shared
def test_outlines_of_the_collection_are_in_order(shared: Path):
    files = sorted((shared / "lenses").glob("*/*.json"))
    assert len(files) == 667
    for path in files[::12]:
        assert_in_order(read_lens(path))


@pytest.mark.shared
def test_no_outline_of_some_lenses_crosses_any_other(shared: Path):
    for path in sorted((shared / "lenses").glob("*/*.json"))[10::200]:
        outlines = [e.outline for e in cross_section(read_lens(path)).elements]
        for k, a in enumerate(outlines):
            for b in outlines[k : k + 2]:
                assert crossings(a, b) == 0, path.name


@pytest.mark.shared
def test_rays_of_many_lenses_reach_the_image(shared: Path):
    lenses = [read_lens(path) for path in sorted((shared / "lenses/interchangeable").glob("*.json"))]
    simple = [lens for lens in lenses if len(lens.surfaces) <= 16 and not any(s.aspheric for s in lens.surfaces)]
    for lens in simple[::6]:
        z = sum(s.thickness for s in lens.surfaces)
        fans = ray_paths(lens)
        assert fans[0].lit.beam.field == 0.0
        for fan in fans:
            assert len(fan.paths) == 7, lens.name
            assert np.abs(fan.paths[:, -1, 0] - z).max() < 1e-6
            assert np.all(np.diff(fan.paths[:, 1:, 0], axis=1) > -1e-9), lens.name
