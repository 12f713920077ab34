"""Everything behind the page that is no component of it: who asks, for what, and what becomes of it.

One darkroom serves all visitors: a line of jobs, a private folder, the pictures that were dropped. Its methods take
plain values and give pictures, HTML and files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..draw.pages import eight_bits
from ..errors import DefocusError
from ..lens import load_lens
from ..render import Photograph
from ..scene.depth_models import MODELS
from ..scene.procedural import SCENES
from .job_line import JobLine, Report
from .lens_view import LensFilter, lens_choices
from .private_files import PrivateFolder, check_lens_upload, check_photo_upload
from .sharp_pictures import PlaneByHand, SharpPicture, own_picture, scene_picture
from .shots import Setting, Shot, lens_camera, settled

FIRST_LENS, SECOND_LENS = "sigma-85-f1.4", "leica-summicron-50-f2"
FIRST_SCENE = "portrait"
PLANE, MAP = "a plane placed by hand", "a depth map"
NETWORKS = tuple(MODELS)
PICTURES_KEPT = 24
WARMED = (FIRST_LENS, "phone-us9063319")  # one lens for each set of compiled shapes


@dataclass
class Darkroom:
    """The line of jobs, the private folder, visitors' pictures, and how far the start is."""

    line: JobLine
    folder: PrivateFolder
    pictures: dict[str, SharpPicture] = field(default_factory=dict)
    starting: str = ""  # what is compiled at present; empty: ready
    is_closed: bool = False
    _starter: threading.Thread | None = None

    def picture(self, key: str) -> SharpPicture:
        """A scene by name, or what a visitor dropped."""
        if key in self.pictures:
            return self.pictures[key]
        if key not in SCENES:
            raise DefocusError("this photograph is no longer kept: drop it again")
        return scene_picture(key)

    def keep_photograph(self, visitor: str, photo: str | None, depth: str | PlaneByHand | None) -> str:
        """Read a photograph with its depth: a file, a network's name or a plane. The key under which it is kept."""
        if not photo:
            raise DefocusError("drop a photograph first: a RAW file, or a PNG, JPEG or TIFF")
        if not depth:
            raise DefocusError("drop its depth map (.npz, .npy, .png, .pfm, .dpt or .exr), or place a plane by hand")
        path = self.own_file(photo)
        if isinstance(depth, str) and depth not in NETWORKS:
            depth_source: Any = self.own_file(depth)
        else:
            depth_source = depth
        picture = own_picture(check_photo_upload(path), depth_source, lambda: self.folder.place(visitor, "depth.npz"))
        self.pictures[visitor] = picture
        while len(self.pictures) > PICTURES_KEPT:
            self.pictures.pop(next(iter(self.pictures)), None)
        return visitor

    def own_file(self, name: str) -> Path:
        """A file that was dropped on the page; no other file of the machine is one."""
        path = Path(name)
        if not (path.is_absolute() and path.resolve().is_relative_to(self.folder.path.resolve()) and path.is_file()):
            raise DefocusError(f"{path.name!r} was not dropped here, or is no longer kept: drop it again")
        return path

    def lens(self, value: Any) -> str:
        """The lens that a page asks for, if it may: one of the library, or a file that was dropped here."""
        name = str(value or "")
        if name in {choice for _, choice in lens_choices(LensFilter())}:
            return name
        if name.startswith("/"):
            return str(self.own_file(name))
        raise DefocusError(f"no lens {name!r} here: choose one of the list, or drop its file")

    def read_lens(self, name: str) -> tuple[str, str]:
        """Label and path of a lens file that was dropped, once it was read and traced."""
        path = check_lens_upload(self.own_file(name))
        lens = load_lens(path)
        lens_camera(str(path)).focused(1e3)
        return f"{lens.name} (your file)", str(path)

    def shot(self, lens: Any, f_number: float, blades: float, focus_m: float, key: str) -> tuple[Shot, list[str]]:
        """The photograph that a visitor asks for, and notes."""
        setting, notes = self.setting(lens, f_number, blades, focus_m)
        return Shot(setting, self.picture(key)), notes

    def setting(self, lens: Any, f_number: float, blades: float, focus_m: float) -> tuple[Setting, list[str]]:
        """The setting that a visitor asks for, and notes."""
        return settled(self.lens(lens), float(f_number), float(blades), focus_m)

    def shots(self, shot: Shot, second: str | None) -> list[Shot]:
        """The photograph, and the same with a second lens as wide as that one opens."""
        if not second:
            return [shot]
        own = shot.setting
        return [shot, Shot(self.setting(second, own.f_number, own.blades, own.focus_m)[0], shot.picture)]

    def photographs(self, shots: list[Shot]) -> Callable[[Report], list[Photograph]]:
        """The job that takes them."""

        def work(report: Report) -> list[Photograph]:
            def numbered(number: int) -> Report:
                prefix = f"lens {number}: " if len(shots) > 1 else ""
                return lambda stage, done: report(prefix + stage, done)

            return [shot.photograph(numbered(number)) for number, shot in enumerate(shots, 1)]

        return work

    def write_downloads(self, visitor: str, shot: Shot, photograph: Photograph) -> tuple[str, str, str | None]:
        """Files of the photograph and of its settings, and the depth map of a plane placed by hand."""
        picture, settings = (self.folder.place(visitor, n) for n in ("photograph.png", "photograph.json"))
        photograph.save(str(picture))
        settings.write_text(shot.settings_json, encoding="utf-8")
        depth = self.folder.place(visitor, "depth.npz")
        own = "depth.npz" in shot.picture.arguments and depth.is_file()
        return str(picture), str(settings), str(depth) if own else None

    def write_deblurred(self, visitor: str, picture: np.ndarray) -> str:
        """The file of a deblurred photograph, display values 0..1."""
        from ..photo import write_picture

        file = self.folder.place(visitor, "deblurred.png")
        write_picture(file, picture)
        return str(file)

    def start(self, *, fine: bool = True) -> None:
        """Compile in the background what the first clicks need, so that they do not wait for it."""
        self._starter = threading.Thread(target=self._warm, args=(fine,), name="defocus start", daemon=True)
        self._starter.start()

    def close(self) -> None:
        """End the start and all jobs, and remove what visitors left."""
        self.is_closed = True
        self.line.close()
        if self._starter is not None:
            self._starter.join()
        self.folder.remove()

    def _warm(self, fine: bool) -> None:
        self.starting = "getting ready: the first pictures take longer"
        picture = scene_picture(FIRST_SCENE)
        # Lenses of each set of shapes, round and with blades; large and small kernels.
        every = [
            *((lens, 2.8, blades) for lens in WARMED for blades in (0, 7)),
            (FIRST_LENS, 1.4, 0),
            (FIRST_LENS, 5.6, 0),
        ]
        for lens, f_number, blades in every:
            if not self.is_closed:
                Shot(settled(lens, f_number, blades, picture.focus_m)[0], picture).preview()
        if fine and not self.is_closed:
            self.starting = "ready for previews; getting ready for finished pictures"
            _ = picture.full
            job = self.line.ask("start", "photograph", Shot(settled(FIRST_LENS, 2.8, 0, 2.0)[0], picture).photograph)
            job.ended.wait()
        self.starting = ""


def enlarged(display: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A picture of display values as bytes of `size` = (width, height), so that it takes the place of the final one."""
    from PIL import Image

    image = Image.fromarray(eight_bits(display))
    return np.asarray(image if image.size == size else image.resize(size, Image.Resampling.BICUBIC))
