"""The page itself: its components, and which function of the `Darkroom` fills them.

Left stands the camera (lens, stop, focus), right the tabs, each a view of that camera. Every change gives a quick
answer at once and asks the line of jobs for the fine one, whose state is told until it is there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from ..errors import DefocusError
from ..lens.formats import LENS_SUFFIXES
from ..scene.procedural import SCENES
from . import deblurring_view, lens_view, page_look, point_view
from .darkroom import FIRST_LENS, FIRST_SCENE, MAP, NETWORKS, PLANE, SECOND_LENS, Darkroom, enlarged
from .focus_ring import END, focus_of_ring, focus_of_text, ring_of_focus, text_of_focus
from .job_line import JobStopped, Report
from .lens_view import KINDS, LensFilter, first_lens, lens_choices
from .page_look import progress_line
from .private_files import check_photo_upload, short_message
from .sharp_pictures import PlaneByHand, scene_focus
from .shots import NARROWEST, Setting, Shot, lens_camera

PHOTOGRAPH, LENS, POINT, DEBLUR = "Photograph", "Lens", "Point", "Deblur"
PICTURE, COMPARISON, TWO = "Picture", "Before and after", "Two lenses"
ANYWHERE: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
PICTURE_LOOK: dict[str, Any] = {"format": "jpeg", "interactive": False, "buttons": ["fullscreen"]}
QUICK: dict[str, Any] = {"concurrency_id": "quick", "concurrency_limit": 4, **ANYWHERE}
FINE: dict[str, Any] = {"concurrency_id": "fine", "concurrency_limit": 64, **ANYWHERE}  # the line of jobs orders them
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What the page asks for: the values of its components."""

    tab: str
    view: str
    key: str  # of the sharp picture
    second: str
    scale: str
    lens: str
    f_number: float
    blades: float
    focus: str

    def focused(self, focus_m: float) -> Asked:
        """The same at another focus distance."""
        return replace(self, focus=text_of_focus(focus_m))


def visitor_of(request: gr.Request | None) -> str:
    """A name for who asks."""
    return str(getattr(request, "session_hash", None) or "nobody")


class Page:
    """Components and the functions that fill them; functions return what changes, by component."""

    def __init__(self, darkroom: Darkroom) -> None:
        self.darkroom = darkroom
        with gr.Blocks(
            title=page_look.TITLE, analytics_enabled=False, fill_width=True, delete_cache=(600, 3600)
        ) as self.blocks:
            gr.Markdown(page_look.INTRODUCTION)
            self.start_line = gr.HTML("", elem_id="start")
            self.status = gr.HTML(progress_line(""), elem_classes="defocus-status", elem_id="status")
            self.tab, self.view = gr.State(PHOTOGRAPH), gr.State(PICTURE)
            self.key, self.goes_on = gr.State(FIRST_SCENE), gr.State(True)
            with gr.Row(elem_id="desk"):
                with gr.Column(scale=1, min_width=300):
                    self._camera()
                with gr.Column(scale=3, min_width=320), gr.Tabs():
                    self._photograph_tab()
                    self._lens_tab()
                    self._point_tab()
                    self._deblur_tab()
            self._wire()

    # Components

    def _camera(self) -> None:
        choices = lens_choices(LensFilter())
        self.lens = gr.Dropdown(choices, value=FIRST_LENS, label=f"Lens ({len(choices)})", elem_id="lens")
        with gr.Accordion("Search the library", open=False):
            self.words = gr.Textbox(label="Words", placeholder="leica, double gauss, 1954 …", elem_id="words")
            self.kind = gr.Dropdown(list(KINDS), value="all", label="Kind", elem_id="kind")
            with gr.Row():
                self.shortest = gr.Number(None, label="Focal length from (mm)", min_width=120)
                self.longest = gr.Number(None, label="to (mm)", min_width=120)
            with gr.Row():
                self.first_year = gr.Number(None, label="Year from", precision=0, min_width=120)
                self.last_year = gr.Number(None, label="to", precision=0, min_width=120)
            self.widest = gr.Number(None, label="Opens to f/… or wider", min_width=120)
        with gr.Accordion("Your own lens", open=False):
            self.lens_file = gr.File(
                label=f"Drop a lens file ({', '.join(LENS_SUFFIXES)})", height=110, elem_id="lens-file"
            )
        full, focus_m = float(lens_camera(FIRST_LENS).f_number), scene_focus(FIRST_SCENE)
        self.f_number = gr.Slider(
            round(full, 1), NARROWEST, value=round(full, 1), step=0.1, label="Aperture, f/", elem_id="f-number"
        )
        self.blades = gr.Slider(
            0, 12, value=0, step=1, label="Blades of the iris", info="fewer than 5: a round opening", elem_id="blades"
        )
        self.ring = gr.Slider(
            0,
            END,
            value=ring_of_focus(focus_m),
            step=0.5,
            label="Focus ring",
            info="near … infinity",
            elem_id="ring",
        )
        self.focus = gr.Textbox(
            text_of_focus(focus_m),
            label="Focus distance in metres, or inf (Enter takes it)",
            max_lines=1,
            elem_id="focus",
        )

    def _photograph_tab(self) -> None:
        with gr.Tab(PHOTOGRAPH, id=PHOTOGRAPH) as self.photograph_tab:
            with gr.Tabs():
                with gr.Tab(PICTURE) as self.picture_tab:
                    self.image = gr.Image(
                        label="Click on what should be sharp",
                        elem_id="photograph",
                        alt_text="The photograph as the lens draws it; click to focus",
                        **PICTURE_LOOK,
                    )
                with gr.Tab(COMPARISON) as self.comparison_tab:
                    self.comparison = gr.ImageSlider(
                        label="Sharp | through the lens", elem_id="comparison", max_height=900, **PICTURE_LOOK
                    )
                with gr.Tab(TWO) as self.two_tab:
                    self.second = gr.Dropdown(
                        lens_choices(LensFilter()), value=SECOND_LENS, label="Second lens", elem_id="second"
                    )
                    with gr.Row():
                        self.images = [
                            gr.Image(
                                label=f"Lens {n}",
                                elem_id=f"lens-{n}",
                                min_width=300,
                                alt_text=f"The photograph as lens {n} draws it",
                                **PICTURE_LOOK,
                            )
                            for n in (1, 2)
                        ]
            self.scene = gr.Radio(list(SCENES), value=FIRST_SCENE, label="Scene", elem_id="scene")
            with gr.Accordion("Your own photograph", open=False, elem_id="own"):
                gr.Markdown("A RAW file, or a PNG, JPEG or TIFF; its depth says how far away things are.")
                with gr.Row():
                    self.photo_file = gr.File(label="Photograph", height=110, elem_id="photo-file")
                    self.depth_file = gr.File(label="Depth map, in metres", height=110, elem_id="depth-file")
                sources = [PLANE, MAP, *NETWORKS]
                self.depth_kind = gr.Radio(sources, value=PLANE, label="Its depth is that of", elem_id="depth-kind")
                with gr.Row():
                    self.bottom = gr.Number(1.5, label="Plane: metres at the bottom", elem_id="bottom")
                    self.top = gr.Number(6.0, label="and at the top", elem_id="top")
                self.take = gr.Button("Use this photograph", variant="primary", elem_id="take")
            with gr.Row():
                self.downloads = [
                    gr.DownloadButton(name, interactive=False, min_width=140, size="sm", elem_id=f"download-{number}")
                    for number, name in enumerate(("Save picture", "Save settings", "Save depth map"))
                ]
            self.command = gr.Textbox(
                label="The same on the command line", interactive=False, lines=2, buttons=["copy"], elem_id="command"
            )

    def _lens_tab(self) -> None:
        with gr.Tab(LENS, id=LENS) as self.lens_tab:
            self.layout = gr.HTML(elem_id="layout")
            with gr.Row(elem_id="charts"):
                self.mtf = gr.HTML(elem_id="mtf", min_width=300)
                self.distortion = gr.HTML(elem_id="distortion", min_width=300)
            self.numbers = gr.HTML(elem_id="numbers")

    def _point_tab(self) -> None:
        with gr.Tab(POINT, id=POINT) as self.point_tab:
            self.scale = gr.Radio(["linear", "log"], value="linear", label="Brightness", elem_id="scale")
            gr.Markdown("**Over field and depth**: nearer, in focus, infinitely far. Point at a tile for its numbers.")
            self.tiles = gr.HTML(elem_id="tiles")
            gr.Markdown(
                "**Through focus**: the sensor before, at and behind the sharpest plane; the middle of the picture."
            )
            self.strip = gr.HTML(elem_id="strip")
            self.pupils = gr.HTML(elem_id="pupils")
            self.wavefronts = gr.HTML(elem_id="wavefronts")
            self.point_tiles = gr.State(None)

    def _deblur_tab(self) -> None:
        why_not = deblurring_view.missing_network()
        with gr.Tab(DEBLUR, id=DEBLUR) as self.deblur_tab:
            gr.Markdown(why_not or page_look.DEBLUR_TEXT, elem_id="deblur-text")
            self.blurred_file = gr.File(label="Photograph", height=110, interactive=not why_not, elem_id="blurred-file")
            self.deblur_button = gr.Button("Deblur", variant="primary", interactive=not why_not, elem_id="deblur")
            self.deblurred = gr.ImageSlider(
                label="As it is | deblurred", elem_id="deblurred", max_height=900, **PICTURE_LOOK
            )
            self.deblurred_file = gr.DownloadButton(
                "Save picture", interactive=False, size="sm", elem_id="download-deblurred"
            )

    # Which event calls what

    def _wire(self) -> None:
        camera = [self.lens, self.f_number, self.blades, self.focus]
        asked = [self.tab, self.view, self.key, self.second, self.scale, *camera]
        shown = [
            self.status, self.key, self.lens, self.ring, self.focus, self.f_number, self.image, *self.images,
            self.tiles, self.command,
            self.goes_on, *self.downloads, self.layout, self.mtf, self.distortion, self.numbers, self.strip,
            self.wavefronts, self.pupils, self.comparison, self.point_tiles,
        ]  # fmt: skip

        def answer(events: Any, function: Any, more: list[Any]) -> None:
            """A quick answer, and the fine one after it."""
            gr.on(
                events, self._with_alert(function), [*more, *asked], shown, trigger_mode="always_last", **QUICK
            ).success(self._fine, [self.goes_on, *asked], shown, **FINE)

        answer([self.ring.input], self._ring, [self.ring])
        answer([self.image.select], self._click, [])
        answer([self.f_number.input, self.blades.input, self.focus.submit, self.second.input], self._quick, [])
        answer([self.lens.input], self._new_lens, [])
        answer([self.scene.input], self._new_scene, [self.scene])
        answer([self.take.click], self._own, [self.photo_file, self.depth_kind, self.depth_file, self.bottom, self.top])
        answer([self.lens_file.upload], self._own_lens, [self.lens_file])
        answer([self.blocks.load], self._quick, [])
        tabs = (self.photograph_tab, self.lens_tab, self.point_tab, self.deblur_tab)
        views = (self.picture_tab, self.comparison_tab, self.two_tab)
        for tab, name in zip((*tabs, *views), (PHOTOGRAPH, LENS, POINT, DEBLUR, PICTURE, COMPARISON, TWO), strict=True):
            state = self.tab if tab in tabs else self.view
            gr.on([tab.select], partial(_same, name), None, state, **ANYWHERE).success(
                self._with_alert(self._quick), asked, shown, **QUICK
            ).success(self._fine, [self.goes_on, *asked], shown, **FINE)
        self.scale.input(self._rescale, [self.scale, self.point_tiles], [self.tiles, self.strip], **QUICK)
        searched = [self.words, self.kind, self.shortest, self.longest, self.widest, self.first_year, self.last_year]
        gr.on(
            [self.words.input, *(box.input for box in searched[1:])],
            self._search,
            [*searched, self.lens],
            self.lens,
            **QUICK,
        )
        deblurred = [self.status, self.deblurred, self.deblurred_file]
        self.deblur_button.click(self._deblur, self.blurred_file, deblurred, **FINE)
        timer = gr.Timer(2.0)
        timer.tick(self._start_state, None, [self.start_line, timer], **ANYWHERE)

    # Quick answers

    def _with_alert(self, function: Any) -> Any:
        """The function, with what it refuses said in the status line, as the command line would say it."""

        @functools.wraps(function)
        def answer(*values: Any) -> dict[Any, Any]:
            try:
                return function(*values)
            except Exception as error:
                return {self.status: self._alert(error), self.goes_on: False}

        return answer

    def _alert(self, error: Exception) -> str:
        if not isinstance(error, DefocusError | OSError):
            _log.exception("an error that should not be")
        message = short_message(error)
        gr.Warning(message)
        return progress_line(message, alert=True)

    def _quick(self, *values: Any) -> dict[Any, Any]:
        return self._answer(Asked(*values))

    def _answer(self, asked: Asked) -> dict[Any, Any]:
        """What is there at once."""
        shot, notes = self.darkroom.shot(
            asked.lens, asked.f_number, asked.blades, focus_of_text(asked.focus), asked.key
        )
        setting = shot.setting
        changes: dict[Any, Any] = {
            self.ring: ring_of_focus(setting.focus_m),
            self.focus: text_of_focus(setting.focus_m),
            self.goes_on: asked.tab != DEBLUR,
        }
        text = " · ".join([setting.text, *notes])
        if asked.tab == PHOTOGRAPH:
            shots = self.darkroom.shots(shot, asked.second if asked.view == TWO else None)
            pictures = [enlarged(one.preview(), shot.picture.size) for one in shots]
            changes |= self._pictures(shots, pictures, "preview, by rays")
            changes |= {button: gr.update(value=None, interactive=False) for button in self.downloads}
            changes[self.command] = shot.command
            text = f"preview: {text}"
        elif asked.tab == POINT:
            tiles = point_view.quick_tiles(setting)
            changes |= {self.tiles: tiles.html(asked.scale), self.point_tiles: (tiles, None)}
            text = f"preview: {text}"
        return changes | {self.status: progress_line(text)}

    def _pictures(self, shots: list[Shot], pictures: list[Any], what: str) -> dict[Any, Any]:
        """The components that show one photograph or two."""
        if len(shots) == 1:
            return {self.image: gr.update(value=pictures[0], label=f"Click on what should be sharp ({what})")}
        return {
            image: gr.update(value=picture, label=f"{shot.setting.text} ({what})")
            for image, picture, shot in zip(self.images, pictures, shots, strict=True)
        }

    def _ring(self, ring: float, *values: Any) -> dict[Any, Any]:
        return self._answer(Asked(*values).focused(focus_of_ring(float(ring))))

    def _click(self, event: gr.SelectData, *values: Any) -> dict[Any, Any]:
        """Focus on what a click shows."""
        asked = Asked(*values)
        picture = self.darkroom.picture(asked.key)
        (x, y), (width, height) = event.index, picture.size
        return self._answer(asked.focused(picture.depth_at((x + 0.5) / width, (y + 0.5) / height)))

    def _new_lens(self, *values: Any) -> dict[Any, Any]:
        asked = Asked(*values)
        full = round(float(lens_camera(self.darkroom.lens(asked.lens)).f_number), 1)
        f_number = max(float(asked.f_number), full)
        stop = {self.f_number: gr.update(minimum=full, value=f_number)}
        return self._answer(replace(asked, f_number=f_number)) | stop

    def _new_scene(self, scene: str, *values: Any) -> dict[Any, Any]:
        asked = replace(Asked(*values), key=scene)
        return self._answer(asked.focused(self.darkroom.picture(scene).focus_m)) | {self.key: scene}

    def _own(self, request: gr.Request, photo: Any, kind: str, depth: Any, bottom: Any, top: Any, *values: Any) -> Any:
        source = PlaneByHand(bottom or 0.0, top or 0.0) if kind == PLANE else depth if kind == MAP else kind
        key = self.darkroom.keep_photograph(visitor_of(request), photo, source)
        asked = replace(Asked(*values), key=key)
        return self._answer(asked.focused(self.darkroom.picture(key).focus_m)) | {self.key: key}

    def _own_lens(self, file: str, *values: Any) -> dict[Any, Any]:
        label, path = self.darkroom.read_lens(file)
        full = round(float(lens_camera(path).f_number), 1)
        lens = gr.update(choices=[(label, path), *lens_choices(LensFilter())], value=path)
        changes = {self.lens: lens, self.f_number: gr.update(minimum=full, value=full)}
        return self._answer(replace(Asked(*values), lens=path, f_number=full)) | changes

    def _search(
        self, words: str, kind: str, shortest: Any, longest: Any, widest: Any, first: Any, last: Any, current: str
    ) -> Any:
        choices = lens_choices(LensFilter(words, kind, shortest, longest, widest, first, last))
        label = f"Lens ({len(choices)} match)" if choices else "Lens (none matches: look for something else)"
        return gr.update(choices=choices, value=first_lens(choices, current), label=label)

    def _rescale(self, scale: str, tiles: Any) -> tuple[Any, Any]:
        return tuple(gr.skip() if one is None else one.html(scale) for one in tiles or (None, None))  # type: ignore[return-value]

    def _start_state(self) -> tuple[Any, Any]:
        """What is compiled at the start; nothing is said any more once it is done."""
        text = self.darkroom.starting
        return (progress_line(text) if text else ""), gr.Timer(active=bool(text))

    # Fine answers

    def _fine(self, request: gr.Request, goes_on: bool, *values: Any) -> Iterator[dict[Any, Any]]:
        """The finished pictures: states of the job until it has ended, and then what it made."""
        yield {self.goes_on: gr.skip()}  # gradio empties every component after a generator that gave nothing
        if not goes_on:
            return
        asked, visitor = Asked(*values), visitor_of(request)
        try:
            shot, notes = self.darkroom.shot(
                asked.lens, asked.f_number, asked.blades, focus_of_text(asked.focus), asked.key
            )
            work, show = self._work(asked, shot, visitor)
            text = " · ".join([shot.setting.text, *notes])
            yield from self._states(visitor, "picture", work, show, text)
        except Exception as error:
            yield {self.status: self._alert(error)}

    def _work(self, asked: Asked, shot: Shot, visitor: str) -> tuple[Callable[[Report], Any], Callable[[Any], Any]]:
        """The job of a tab, and what shows its result."""
        if asked.tab == PHOTOGRAPH:
            shots = self.darkroom.shots(shot, asked.second if asked.view == TWO else None)
            return self.darkroom.photographs(shots), partial(self._show_photographs, visitor, shots)
        if asked.tab == LENS:
            return partial(_lens_pictures, shot.setting), self._show_lens
        return partial(_point_pictures, shot.setting), partial(self._show_points, asked.scale)

    def _states(
        self, visitor: str, kind: str, work: Callable[[Report], Any], show: Callable[[Any], Any], text: str
    ) -> Iterator[dict[Any, Any]]:
        """Where a job stands until it has ended, and then its result; nothing where another took its place."""
        line = self.darkroom.line
        job = line.ask(visitor, kind, work)
        for state in line.states(job):
            yield {self.status: progress_line(f"{state.text} · {text}", None if state.before else state.done)}
        if isinstance(job.error, JobStopped):
            return
        if job.error is not None:
            raise job.error
        yield {self.status: progress_line(text), **show(job.result)}

    def _show_photographs(self, visitor: str, shots: list[Shot], photographs: list[Any]) -> dict[Any, Any]:
        size = shots[0].picture.size
        pictures = [enlarged(photograph.blurred.srgb, size) for photograph in photographs]
        sharp = enlarged(photographs[0].sharp.srgb, size)
        files = self.darkroom.write_downloads(visitor, shots[0], photographs[0])
        changes = self._pictures(shots, pictures, "finished") | {self.comparison: (sharp, pictures[0])}
        for button, file in zip(self.downloads, files, strict=True):
            changes[button] = gr.update(value=file, interactive=file is not None)
        return changes

    def _show_lens(self, pictures: tuple[str, str, str, str]) -> dict[Any, Any]:
        return dict(zip((self.layout, self.mtf, self.distortion, self.numbers), pictures, strict=True))

    def _show_points(self, scale: str, pictures: tuple[Any, Any, str, str]) -> dict[Any, Any]:
        tiles, strip, wavefronts, pupils = pictures
        return {
            self.tiles: tiles.html(scale), self.strip: strip.html(scale), self.wavefronts: wavefronts,
            self.pupils: pupils, self.point_tiles: (tiles, strip),
        }  # fmt: skip

    def _deblur(self, file: str | None, request: gr.Request) -> Iterator[dict[Any, Any]]:
        visitor = visitor_of(request)
        try:
            if not file:
                raise DefocusError("drop a photograph first: a RAW file, or a PNG, JPEG or TIFF")
            path = check_photo_upload(self.darkroom.own_file(file))
            work, show = partial(deblurring_view.deblurred, path), partial(self._show_deblurred, visitor)
            yield from self._states(visitor, "deblur", work, show, path.name)
        except Exception as error:
            yield {self.status: self._alert(error)}

    def _show_deblurred(self, visitor: str, pictures: tuple[Any, Any]) -> dict[Any, Any]:
        file = self.darkroom.write_deblurred(visitor, pictures[1])
        return {self.deblurred: pictures, self.deblurred_file: gr.update(value=file, interactive=True)}


def _same(value: str) -> str:
    return value


def _lens_pictures(setting: Setting, report: Report) -> tuple[str, str, str, str]:
    """Layout, MTF, distortion and numbers of a lens."""
    camera = setting.camera(point_view.SIZE)
    report("layout", 0.1)
    layout = lens_view.layout_picture(camera)
    report("MTF and distortion", 0.4)
    mtf, distortion = lens_view.charts(camera)
    report("numbers", 0.9)
    return layout, mtf, distortion, lens_view.numbers_table(camera.lens)


def _point_pictures(setting: Setting, report: Report) -> tuple[Any, Any, str, str]:
    """Tiles over field and depth, the strip through focus, wavefronts and pupils."""
    tiles = point_view.fine_tiles(setting, report)
    strip = point_view.focus_strip(setting, report)
    report("wavefronts", 0.5)
    return tiles, strip, *point_view.pupil_pictures(setting)
