"""`defocus blur`: a sharp photograph as a lens would have taken it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import DefocusError
from .options import (
    BitsOption,
    BladesOption,
    JsonOption,
    StopOption,
    check_outputs,
    json_text,
    lens_names,
    make_camera,
    numbers,
    point,
    print_result,
    whole_pair,
    write_photo,
)
from .progress import ProgressBar

if TYPE_CHECKING:
    import numpy as np

    from .. import Camera
    from ..files.exif import Metadata
    from ..photo import Photo, SensorColour
    from ..render import Photograph
    from ..scene.depth_maps import DepthMap

ESTIMATORS = ("depth-pro", "depth-anything-indoor", "depth-anything-outdoor")
SCENE = "scene:"
LONGEST, SWEEP_LONGEST = 1680, 960  # pixels on the long side; the first is the paper's, the second refocus's
SCENE_SIZE, SWEEP_SCENE_SIZE = "960x640", "480x320"


@dataclass(frozen=True)
class SharpPhotograph:
    """A sharp photograph in linear light with its depth."""

    linear: np.ndarray
    depth_m: np.ndarray
    focus_m: float
    colour: SensorColour | None
    exif_pixel_um: float | None  # of the reduced photograph
    notes: tuple[str, ...]
    white: float = 0.0  # share of pixels that a display-referred file clips to white
    metadata: Metadata | None = None  # of the file, for copies in sRGB


@dataclass(frozen=True)
class SharpOptions:
    """Where the sharp photograph and its depth come from."""

    photo: Annotated[str, typer.Argument(help="A RAW file, a PNG, JPEG or TIFF in sRGB, or scene:NAME[:SEED].")]
    depth: Annotated[str | None, f"A depth map, or {', '.join(ESTIMATORS)}. A scene has its own."] = None
    max_side: Annotated[
        int | None,
        typer.Option(
            help="Larger photographs are reduced to this many pixels on their long side; 0: never. "
            f"[default: {LONGEST}; refocus: {SWEEP_LONGEST}]",
            min=0,
        ),
    ] = None
    size: Annotated[
        str | None,
        f"WIDTHxHEIGHT of a scene. [default: {SCENE_SIZE}; refocus: {SWEEP_SCENE_SIZE}]",
    ] = None
    resize_depth: Annotated[bool, "A depth map of another size is resized."] = False
    scale_m: Annotated[float | None, "Metres of one unit of the depth map."] = None
    focus_at: Annotated[
        str | None, "Focus on what a pixel of the photograph shows: X,Y, from the left and the top, from 0."
    ] = None

    def read(self, focus_m: float | None, longest: int, scene_size: str, bar: ProgressBar) -> SharpPhotograph:
        """Read the photograph and its depth, reduced where it is larger than asked; or make the scene."""
        if self.photo.startswith(SCENE):
            return self._scene(focus_m, scene_size, bar)
        if self.size is not None:
            raise DefocusError(f"{self.photo}: --size is for scenes; a photograph is reduced by --max-side")
        if not Path(self.photo).is_file():
            raise DefocusError(f"{self.photo}: no such file; a scene is called {SCENE}NAME")
        if self.depth is None:
            raise DefocusError(f"{self.photo}: give its --depth, a file or one of {', '.join(ESTIMATORS)}")
        if focus_m is None and self.focus_at is None:
            raise DefocusError(
                f"{self.photo}: give --focus-m, the focus distance in metres, or --focus-at, a pixel of the photograph"
            )
        from ..photo import RawPhoto, copied_metadata, read_photo, reduced, saturation_mask

        bar("reading")
        photo = read_photo(Path(self.photo))
        linear = photo.linear()
        depth = self._depth(self.depth, photo, linear, bar).fitted(photo.size, resize=self.resize_depth)
        focus_m = self._focus_at(depth.depth_m, depth.filled) if focus_m is None else focus_m
        notes = [*photo.notes, *depth.notes]
        long_side, most = max(photo.size), longest if self.max_side is None else self.max_side
        pixel_um = photo.exif.pixel_um
        if most and long_side > most:
            width, height = (max(1, round(side * most / long_side)) for side in photo.size)
            linear, depth = reduced(linear, (width, height)), depth.fitted((width, height), resize=True)
            size = f"{photo.size[0]}×{photo.size[1]}"
            notes = [*photo.notes, *depth.notes, f"reduced from {size}, each pixel a mean of light"]
            pixel_um = None if pixel_um is None else pixel_um * long_side / max(width, height)
        display = not isinstance(photo, RawPhoto) and photo.colour is None
        white = float((saturation_mask(linear) > 0.0).mean()) if display else 0.0
        metadata = copied_metadata(photo, (linear.shape[1], linear.shape[0]))
        return SharpPhotograph(linear, depth.depth_m, focus_m, photo.colour, pixel_um, tuple(notes), white, metadata)

    def _focus_at(self, depth_m: np.ndarray, holes: np.ndarray | None = None) -> float:
        """The depth of the pixel that --focus-at names, in metres; `holes` is true where the map has none."""
        import numpy as np

        assert self.focus_at is not None
        expected, (height, width) = "a pixel X,Y such as 812,440", depth_m.shape
        x, y = numbers("--focus-at", self.focus_at, expected, 2)
        if (x, y) != (int(x), int(y)):
            raise DefocusError(f"--focus-at {self.focus_at}: expected {expected}")
        x, y = int(x), int(y)
        if not (0 <= x < width and 0 <= y < height):
            raise DefocusError(
                f"{self.photo}: --focus-at {x},{y} is no pixel of it: X goes from 0 to {width - 1}, Y to {height - 1}"
            )
        if holes is not None and holes[y, x]:
            rows, columns = np.nonzero(~holes)
            nearest = int(np.argmin((rows - y) ** 2 + (columns - x) ** 2))
            raise DefocusError(
                f"{self.photo}: --focus-at {x},{y}: the depth map has no depth there; the nearest pixel with one is "
                f"{columns[nearest]},{rows[nearest]}"
            )
        return float(depth_m[y, x])

    def _scene(self, focus_m: float | None, scene_size: str, bar: ProgressBar) -> SharpPhotograph:
        if self.depth is not None:
            raise DefocusError(f"{self.photo}: a scene brings its own depth; leave --depth out")
        others = {
            "--max-side": self.max_side is not None,
            "--resize-depth": self.resize_depth,
            "--scale-m": self.scale_m is not None,
        }
        if any(others.values()):
            names = " and ".join(name for name, used in others.items() if used)
            raise DefocusError(f"{self.photo}: {names}: for photographs and their depth maps; a scene's size is --size")
        from ..scene.procedural import make_scene

        name, _, seed = self.photo.removeprefix(SCENE).partition(":")
        if seed and not seed.isdigit():
            raise DefocusError(f"{self.photo}: expected scene:NAME or scene:NAME:SEED")
        bar("making the scene")
        size = whole_pair("--size", self.size or scene_size, "WIDTHxHEIGHT such as 960x640")
        scene = make_scene(name, size, int(seed or 0))
        sharp = scene.picture()
        if focus_m is None:
            focus_m = scene.lens.focus_m if self.focus_at is None else self._focus_at(sharp.depth_m)
        note = f"a procedural scene with exact depth: {scene.about}"
        return SharpPhotograph(sharp.linear, sharp.depth_m, focus_m, None, None, (note,))

    def _depth(self, source: str, photo: Photo, linear: np.ndarray, bar: ProgressBar) -> DepthMap:
        if source not in ESTIMATORS:
            from ..scene.depth_files import read_depth

            return read_depth(Path(source), scale_m=self.scale_m)
        from ..scene.depth_models import DepthNetwork
        from .photo import estimated_depth

        if self.scale_m is not None:
            raise DefocusError(f"--scale-m is for depth files; {source} gives metres")
        bar(source)
        return estimated_depth(photo, linear, DepthNetwork(source)).depth


@dataclass(frozen=True)
class BlurOptions:
    """The lens that blurs, the sensor behind it, and how much work goes into it."""

    lens: Annotated[str, typer.Option(help="A built-in lens or a lens file.", autocompletion=lens_names)]
    blades: BladesOption = None
    pixel_um: Annotated[
        str | None, "Pixel pitch, or exif. By default the photograph fills the lens's image circle."
    ] = None
    bands: Annotated[
        str, "rgb: a wavelength per colour; rgb-full: three per colour; d: one for all; or three in nm."
    ] = "rgb"
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Sensor noise, drawn as in the paper.")] = False
    saturation: Annotated[
        str,
        "Light beyond white in clipped highlights: none, paper (drawn), its power, or auto: 2 where a picture that is "
        "no RAW file is clipped, in at most a twentieth of its pixels.",
    ] = "auto"
    seed: Annotated[int, typer.Option(help="Seed of noise and highlights.", min=0)] = 0
    full_field: Annotated[
        bool, typer.Option("--full-field/--patch", help="PSFs that change over the picture, or one for all of it.")
    ] = True
    field: Annotated[str, "Of --patch: X,Y, right and up, of the image radius."] = "0,0"
    nodes: Annotated[str | None, "Of --full-field: ROWSxCOLUMNS of PSFs. [default: 3x5]"] = None
    sensor: Annotated[
        bool | None,
        typer.Option(
            "--sensor/--no-sensor",
            help="Through a mosaic and its development. [default: where the camera's colours are known, or for noise]",
        ),
    ] = None
    vignetting: Annotated[bool, "Also the lens's fall-off of light."] = False
    distortion: Annotated[bool, "Also the lens's distortion: the photograph is taken for rectilinear."] = False
    parts: Annotated[
        int,
        typer.Option(help="Parts of the pupil followed separately at depth edges; 4: better, slower.", min=1, max=16),
    ] = 1
    max_kernel: Annotated[int, typer.Option(help="Largest PSF in pixels.", min=32, max=2048)] = 256
    exact: Annotated[bool, "PSFs with the diffraction of their wavelength: slow."] = False
    method: Annotated[
        Literal["wave", "paper", "fraunhofer", "gaussian", "disk"], "Of the PSFs; all but wave are for comparison."
    ] = "wave"

    def arguments(self) -> dict[str, Any]:
        """Arguments of `Camera.photograph`, but for the sensor's."""
        from ..psf.bands import picture_bands

        picture_bands(self.bands)
        if not self.full_field and self.nodes is not None:
            raise DefocusError("--nodes is for --full-field; --patch has one PSF for the whole picture")
        place = point(self.field)
        if self.full_field and place != (0.0, 0.0):
            raise DefocusError("--field is for --patch; with --full-field the picture's middle is the lens's axis")
        return {
            "bands": self.bands,
            "patch": None if self.full_field else place,
            "nodes": None if self.nodes is None else whole_pair("--nodes", self.nodes, "ROWSxCOLUMNS such as 3x5"),
            "saturation": self._saturation(),
            "noise": paper_noise(self.seed) if self.noise else None,
            "seed": self.seed,
            "relative_illumination": self.vignetting,
            "distortion": self.distortion,
            "parts": self.parts,
            "most_kernel_px": self.max_kernel,
            "exact": self.exact,
            "method": self.method,
        }

    def camera(self, sharp: SharpPhotograph, focus_m: float, f_number: float | None) -> Camera:
        """The camera that takes the photograph: with the pitch of the options, or filled by the photograph."""
        rows, columns = sharp.depth_m.shape
        options: dict[str, Any] = {"focus_m": focus_m, "f_number": f_number, "blades": self.blades}
        if self.pixel_um is None:
            return make_camera(self.lens, pixels=(columns, rows), **options)
        if self.pixel_um == "exif":
            if sharp.exif_pixel_um is None:
                raise DefocusError("--pixel-um exif: the photograph's EXIF data do not tell its pixel pitch; give it")
            return make_camera(self.lens, pixel_um=sharp.exif_pixel_um, **options)
        (pitch,) = numbers("--pixel-um", self.pixel_um, "exif or a number of µm", 1, 0.05, 10_000.0)
        return make_camera(self.lens, pixel_um=pitch, **options)

    def light_arguments(self, sharp: SharpPhotograph) -> dict[str, Any]:
        """The power of the highlights, the sensor's colours, and whether there is one.

        A mosaic of colours that are not the camera's adds its artefacts and nothing else, so it must be asked for.
        """
        from ..photo import highlight_power

        by_default = sharp.colour is not None or self.noise
        sensor = by_default if self.sensor is None else self.sensor
        power = highlight_power(sharp.white) if self.saturation == "auto" else 0.0
        highlights = {"saturation": power} if power else {}
        return {"colour": sharp.colour, "sensor": sensor} | highlights

    def report(self, photo: str, sharp: SharpPhotograph, photograph: Photograph) -> dict[str, Any]:
        """The report of a photograph, with where its light and its pixels come from."""
        sources = {None: "the photograph fills the lens's image circle", "exif": "EXIF"}
        report = {"photo": photo, "pixel_from": sources.get(self.pixel_um, "given")} | photograph.report
        notes = [*sharp.notes]
        if self.saturation == "auto" and report["saturation"]:
            notes.append(
                f"{sharp.white:.2%} of its pixels are clipped: they count as up to {1 + report['saturation']:g} times "
                "white, for the blur to spread (--saturation none leaves them)"
            )
        return report | {"notes": [*notes, *photograph.report["notes"]]}

    def _saturation(self) -> float:
        if self.saturation in ("auto", "none"):
            return 0.0
        if self.saturation == "paper":
            import jax

            from ..photo import draw_saturation

            return float(draw_saturation(jax.random.fold_in(jax.random.key(self.seed), 2)))
        return numbers("--saturation", self.saturation, "auto, none, paper, or a number from 0 to 100", 1, 0.0, 100.0)[
            0
        ]


def paper_noise(seed: int) -> Any:
    """Sensor noise as the paper draws it."""
    import jax

    from ..photo import draw_noise

    return draw_noise(jax.random.fold_in(jax.random.key(seed), 0))


def lens_metadata(light: SharpPhotograph, camera: Camera, focus_m: float | None = None) -> Metadata:
    """Metadata of a photograph that this camera's lens took; a sweep has no one focus."""
    from .. import __version__
    from ..files.exif import Metadata, through_lens

    focal_mm, software = abs(float(camera.first_order.focal_length)), f"defocus {__version__}"
    before = light.metadata or Metadata()
    return through_lens(before, software, camera.lens.name, focal_mm, float(camera.f_number), focus_m)


def blur(
    source: SharpOptions,
    options: BlurOptions,
    out: Annotated[Path, "The picture: .png, .jpg, .tif; or linear light: .npy."],
    focus_m: Annotated[float | None, "Focus distance in metres; inf is allowed. A scene has its own."] = None,
    f_number: StopOption = None,
    dual_pixel: Annotated[bool, "Also what the left and right half of the lens see: OUT-left, -right."] = False,
    bits: BitsOption = 8,
    sharp: Annotated[Path | None, "Also the sharp picture, through the same sensor."] = None,
    raw: Annotated[Path | None, "Also the blurred mosaic, 0..1, with its colours: .npz."] = None,
    source_map: Annotated[
        Path | None, "Of --distortion: column and row of the sharp picture that each pixel shows: .npy."
    ] = None,
    report: Annotated[Path | None, "Also the report: .json."] = None,
    as_json: JsonOption = False,
) -> None:
    """Blur a sharp photograph as a lens would have."""
    import numpy as np

    from ..files.stores import write_file, writing_file
    from ..photo import check_picture_path

    picture = functools.partial(check_picture_path, bits=bits)
    halves = {side: out.with_stem(f"{out.stem}-{side}") for side in ("left", "right") if dual_pixel}
    pictures = [(path, picture) for path in (out, sharp, *halves.values())]
    inputs = [source.photo, source.depth, options.lens]
    check_outputs(*pictures, (raw, ".npz"), (source_map, ".npy"), (report, ".json"), inputs=inputs)
    if source_map is not None and not options.distortion:
        raise DefocusError("--source-map: without --distortion every pixel shows itself")
    if focus_m is not None and source.focus_at is not None:
        raise DefocusError("give --focus-m or --focus-at, not both")
    if raw is not None and options.sensor is False:
        raise DefocusError("--raw: with --no-sensor there is no mosaic")
    arguments = options.arguments()
    with ProgressBar() as bar:
        light = source.read(focus_m, LONGEST, SCENE_SIZE, bar)
        camera = options.camera(light, light.focus_m, f_number)
        arguments |= options.light_arguments(light) | {"progress": bar} | ({"sensor": True} if raw is not None else {})
        photograph = camera.photograph(light.linear, light.depth_m, **arguments)
        results = {out: photograph.blurred} | ({} if sharp is None else {sharp: photograph.sharp})
        facts = options.report(source.photo, light, photograph)
        for side, path in halves.items():
            half = camera.photograph(light.linear, light.depth_m, side=side, **arguments)
            results[path] = half.blurred
            sides = facts.setdefault("halves", {})
            sides[side] = {"node_light_mm2": half.report["node_light_mm2"], "notes": half.report["notes"]}
    through = lens_metadata(light, camera, light.focus_m)
    for path, result in results.items():
        write_photo(path, result.linear, bits, result.srgb, light.metadata if path == sharp else through)
    if raw is not None:
        _write_mosaic(raw, photograph, light)
    if source_map is not None:
        with writing_file(source_map) as file:
            np.save(file, np.asarray(photograph.source_map))
    if report is not None:
        write_file(report, json_text(facts).encode() + b"\n")
    print_result(facts, *results, raw, source_map, report, as_json=as_json, lines=_lines(facts), width=12)


def _write_mosaic(path: Path, photograph: Photograph, light: SharpPhotograph) -> None:
    import numpy as np

    from ..files.stores import writing_file
    from ..photo import SensorColour

    colour = light.colour or SensorColour.make()
    assert photograph.blurred.raw is not None
    with writing_file(path) as file:
        np.savez_compressed(
            file,
            mosaic=photograph.blurred.raw,
            pattern=np.array(colour.pattern),
            white_balance=np.asarray(colour.white_balance),
            camera_to_srgb=np.asarray(colour.camera_to_srgb),
        )


def _lines(facts: dict[str, Any]) -> dict[str, str]:
    (low, high), (width, height), (rows, columns) = facts["coc_px"], facts["size"], facts["nodes"]
    return {
        "lens": f"{facts['lens']}, f/{facts['f_number']:.3g}, focus {facts['focus_m']:g} m",
        "picture": f"{width}×{height}, pixels of {facts['pixel_um']:.3g} µm ({facts['pixel_from']})",
        "depth": f"{facts['nearest_m']:.3g} … {facts['farthest_m']:.3g} m",
        "blur radii": f"{low:.1f} … {high:.1f} px in {facts['layers']} layers",
        "PSFs": f"{facts['psfs_computed']} of {facts['kernel_px']} px or less at {rows}×{columns} nodes, "
        + ", ".join(facts["bands"])
        + ("" if facts["method"] == "wave" else f", by the method {facts['method']}"),
        "time": ", ".join(f"{name} {value:.1f} s" for name, value in facts["seconds"].items()),
    }
