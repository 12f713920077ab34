"""A sharp photograph with its depth, as a lens would have taken it: `Camera.photograph` (the paper's section 4.3).

    linear light ─ highlights ─ distortion ─ layers by signed circle of confusion ─ a PSF per layer, band and node
                 ─ compositing ─ mosaic ─ noise ─ development ─ picture

The sharp photograph goes through the same sensor without noise: the pair differs by the lens and the noise alone. With
distortion it stays rectilinear, and the photograph tells where each pixel of the blurred one lies in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._lazy import drawn
from ..errors import DefocusError
from ..photo import SRGB, Noise, Response, SensorColour, encode
from ..photo import synthesise_saturation as brighten
from ..photo.isp import expose, expose_sharp, noise_key
from ..photo.light import as_linear_light, check_power
from ..psf.bands import BandsLike, picture_bands
from ..psf.engine import PsfOptions, Side
from ..psf.method import Method
from ..psf.window import window_for
from ..scene.inpaint import EDGE_PX, REACH_PX
from ..scene.layers import MOST_LAYERS, Layers, cut_layers
from ..tracing import check_number
from .distortion import colours_aside, find_drawing
from .full_field import render_photograph
from .node_psfs import NodePsfs, find_node_psfs, node_fields

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..camera import Camera

MOST_KERNEL_PX = 256
NODES = (3, 5)  # along the short and the long side
PARTS = 1  # of the pupil, each composited by itself: see `composite`
WHOLE = (  # settings that are whole numbers, from, to
    ("most_layers", 2, 4096),
    ("most_kernel_px", 1, 4096),
    ("parts", 1, 64),
    ("tile_px", 16, 65536),
    ("seed", 0, 2**63 - 1),
)

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Picture:
    """One photograph in three states; `raw` only where there is a sensor."""

    linear: Float[np.ndarray, "rows cols 3"]  # linear sRGB, not clipped
    raw: Float[np.ndarray, "rows cols"] | None  # the sensor's mosaic, 0..1
    srgb: Float[np.ndarray, "rows cols 3"]  # display values 0..1


@dataclass(frozen=True)
class Photograph:
    """The sharp and the blurred photograph, and a report: layers, blur radii, kernels, nodes, times, notes."""

    sharp: Picture
    blurred: Picture
    report: dict[str, Any]
    # With distortion or a zoom, column and row of the sharp picture that each blurred pixel shows; nan: beyond it.
    source_map: Float[np.ndarray, "rows cols 2"] | None = None

    def __repr__(self) -> str:
        rows, cols = self.blurred.srgb.shape[:2]
        near, far = self.report["coc_px"]
        return f"Photograph({self.report['lens']!r}, {cols} × {rows} pixels, blur radii {near:.1f} … {far:.1f} px)"

    def plot(self, **options: Any) -> Figure:
        """A figure: sharp and blurred side by side."""
        return drawn("plot_photograph", self, **options)

    def save(self, path: str) -> None:
        """Write the blurred picture: .png, .jpg or .tif."""
        from ..photo import write_picture

        write_picture(path, self.blurred.srgb)

    def _repr_html_(self) -> str:
        return drawn("html_image", self.plot())


@dataclass(frozen=True)
class PhotographOptions:
    """How a photograph is taken.

    PSFs vary over the field: they are known at `nodes` = (rows, columns), and the picture's centre is the lens's axis.
    `patch` = (x, y) takes instead the PSF of that one field position everywhere, as the paper does for its patches.
    Tiles of `tile_px` are by default as large as the kernels want.
    `parts` of the pupil are followed separately at depth edges: 4 take about four times as long.
    Layers are `step_px` of blur apart; where that takes more than `most_layers` they are further apart, and a note says
    so. `saturation` is the power of the paper's highlights, `noise` the sensor's, drawn with `seed`. `colour` is
    that of the sensor, without it a neutral one; without `sensor` the light is only clipped and encoded. `exact` PSFs
    have the diffraction of their wavelength, at many times the cost where pixels are large (`psf.engine`).
    `method` is one of those of `Camera.psf` but for the slow "huygens". With `distortion` the light is a rectilinear
    picture, which the lens draws as it does (`render.distortion`). `zoom` enlarges the picture before it is blurred, as
    lenses that breathe do; None: not, or with distortion by what fills the frame.
    `progress` is called with the stage and how much of it is done.
    """

    bands: BandsLike = "rgb"
    nodes: tuple[int, int] | None = None
    patch: tuple[float, float] | None = None
    step_px: float = 1.0
    most_layers: int = MOST_LAYERS
    most_kernel_px: int = MOST_KERNEL_PX
    parts: int = PARTS
    tile_px: int | None = None
    side: Side | None = None
    relative_illumination: bool = False
    distortion: bool = False
    zoom: float | None = None
    saturation: float = 0.0
    noise: Noise | None = None
    seed: int = 0
    colour: SensorColour | None = None
    sensor: bool = True
    response: Response = SRGB
    exact: bool = False
    method: Method = "wave"
    progress: Progress | None = None

    def __post_init__(self) -> None:
        picture_bands(self.bands)
        PsfOptions(side=self.side, exact=self.exact)
        if self.method == "huygens":
            raise DefocusError("method 'huygens' takes minutes for a PSF, and a photograph has hundreds: take another")
        if self.relative_illumination and self.method in ("gaussian", "disk"):
            raise DefocusError(f"method {self.method!r} knows no fall-off of light over the field")
        for name, low, high in WHOLE:
            value = getattr(self, name)
            is_left_open = (name, value) == ("tile_px", None)
            if not is_left_open and not (isinstance(value, int | np.integer) and low <= value <= high):
                raise DefocusError(f"{name} {value!r}; expected a whole number from {low} to {high}")
        check_number("step_px", self.step_px, "", "a positive number", math.inf)
        check_power("saturation", self.saturation)
        if self.zoom is not None:
            check_number("zoom", self.zoom, "", "a number from 0.1 to 10", 10.0, 0.1)
        if self.patch is not None and self.distortion:
            raise DefocusError("distortion is that of a whole picture; a patch has one place of the field everywhere")
        if self.patch is not None and self.nodes is not None:
            raise DefocusError("a patch has one PSF for the whole picture; nodes are for the full field")
        if self.patch is not None and not (_is_pair(self.patch, float) and math.hypot(*self.patch) <= 1.0):
            raise DefocusError(f"patch at field {self.patch!r}, outside the image circle of radius 1 or no pair")
        if self.nodes is not None and not (_is_pair(self.nodes, int) and all(1 <= n <= 64 for n in self.nodes)):
            raise DefocusError(f"{self.nodes!r} nodes; expected 1 to 64 rows and columns")
        for name, kind in (("noise", Noise), ("colour", SensorColour), ("response", Response)):
            value = getattr(self, name)
            if not isinstance(value, kind) and (value is not None or name == "response"):
                raise DefocusError(f"{name} {value!r}; expected a {kind.__name__} of defocus.photo")
        if self.noise is not None and not self.sensor:
            raise DefocusError("noise is the sensor's: it needs the step through the mosaic")

    @property
    def psf_options(self) -> PsfOptions:
        """The options of its PSFs."""
        coarse = not self.exact and self.method in ("wave", "fraunhofer")
        return PsfOptions(side=self.side, exact=self.exact, coarse=coarse)

    def stage(self, name: str) -> Callable[[float], None] | None:
        """Progress of one stage."""
        call = self.progress
        return None if call is None else lambda done: call(name, done)


def take_photograph(
    camera: Camera,
    linear: np.ndarray,
    depth_m: np.ndarray,
    options: PhotographOptions,
) -> Photograph:
    """A sharp photograph (linear sRGB) with its depth (metres, positive, inf allowed), through the camera's lens."""
    light, depth = _check(linear, depth_m)
    bands = picture_bands(options.bands)
    notes: list[str] = []
    seconds: dict[str, float] = {}
    rows, cols = depth.shape

    patch = options.patch
    grid = (1, 1) if patch is not None else options.nodes or (NODES if cols >= rows else NODES[::-1])
    start = time.perf_counter()
    if options.saturation > 0.0:
        light = np.asarray(brighten(jnp.asarray(light), options.saturation))
    sharp, drawing = light, None
    if options.distortion or options.zoom not in (None, 1.0):
        drawing = find_drawing(camera, (cols, rows), bent=options.distortion, zoom=options.zoom)
    if drawing is not None:
        depth = drawing.depth(depth)
        notes += drawing.notes
    camera.require_imaged(depth)
    coc = np.asarray(camera.circle_of_confusion_px(depth), np.float32)
    _require_room(camera, coc, depth, options.most_kernel_px)
    layers = cut_layers(coc, depth, step_px=options.step_px, most=options.most_layers, merge=True)
    if float(layers.step_px) > options.step_px * 1.001:
        notes.append(
            f"{options.most_layers} layers hold this blur only {float(layers.step_px):.2f} px apart, not "
            f"{options.step_px:g}"
        )
    notes += hidden_note(coc)
    seconds["layers"] = time.perf_counter() - start

    start = time.perf_counter()
    fields = [[(float(patch[0]), float(patch[1]))]] if patch is not None else node_fields(camera, (cols, rows), grid)
    psfs = find_node_psfs(
        camera,
        fields,
        np.asarray(layers.depth_m),
        np.asarray(layers.used),
        bands=bands,
        most_px=options.most_kernel_px,
        options=options.psf_options,
        method=options.method,
        relative_illumination=options.relative_illumination,
        progress=options.stage("PSFs"),
    )
    seconds["psfs"] = time.perf_counter() - start

    if drawing is not None:
        start = time.perf_counter()
        sharpest = int(np.argmin(np.where(layers.used, np.abs(layers.coc_px), np.inf)))
        aside = colours_aside(camera, psfs, sharpest, (cols, rows), grid) if options.distortion else None
        light = drawing.light(light, aside)
        seconds["distortion"] = time.perf_counter() - start
    start = time.perf_counter()
    blurred = render_photograph(
        light,
        coc,
        layers,
        psfs.at,
        grid,
        tile_px=options.tile_px,
        parts=options.parts,
        progress=options.stage("blurring"),
    )
    seconds["render"] = time.perf_counter() - start

    start = time.perf_counter()
    if options.sensor and options.colour is None:
        notes.append("no camera colours known: the sensor is a neutral one, its colours are those of linear sRGB")
    pictures = _pictures(sharp, blurred, options)
    seconds["sensor"] = time.perf_counter() - start
    report = _report(camera, coc, depth, layers, psfs, fields, grid)
    report |= {
        "patch": None if patch is None else list(patch),
        "side": options.side,
        "parts": options.parts,
        "method": options.method,
        "exact": options.exact,
        "distortion": drawing.report if drawing is not None and options.distortion else None,
        "zoom": 1.0 if drawing is None else round(drawing.distortion.zoom, 6),
        "saturation": options.saturation,
        "noise": None if options.noise is None else [float(options.noise.shot), float(options.noise.read_deviation)],
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "notes": [*notes, *psfs.notes],
    }
    return Photograph(*pictures, report, None if drawing is None else drawing.source_map)


def _pictures(
    sharp: Float[np.ndarray, "rows cols 3"], blurred: Float[np.ndarray, "rows cols 3"], options: PhotographOptions
) -> tuple[Picture, Picture]:
    """The sharp and the blurred light as pictures: through the sensor (`photo.isp`), or encoded as they are."""
    if not options.sensor:
        plain = [Picture(light, None, np.asarray(encode(light, options.response))) for light in (sharp, blurred)]
        return plain[0], plain[1]
    colour = options.colour or SensorColour.make()
    key = None if options.noise is None else noise_key(options.seed, 1)
    mosaic, picture = expose(jnp.asarray(blurred), colour, options.response, options.noise, key)
    ideal = expose_sharp(jnp.asarray(sharp), colour, options.response)
    own_mosaic, _ = expose(jnp.asarray(sharp), colour, options.response)
    return (
        Picture(sharp, np.asarray(own_mosaic), np.asarray(ideal)),
        Picture(blurred, np.asarray(mosaic), np.asarray(picture)),
    )


def _check(linear: Any, depth_m: Any) -> tuple[np.ndarray, np.ndarray]:
    """Light and depth as float32. Raises `DefocusError` for what is no photograph."""
    light, depth = as_linear_light(linear), np.asarray(depth_m)
    if depth.dtype.kind != "f":
        raise DefocusError(
            f"depths of type {depth.dtype}; expected metres as floats: whole numbers of millimetres are depth * 1e-3"
        )
    depth = depth.astype(np.float32, copy=False)
    if depth.shape != light.shape[:2]:
        raise DefocusError(
            f"a depth map of {depth.shape[::-1]} pixels for a photograph of {light.shape[1::-1]}: resize one of them"
        )
    if not (depth > 0.0).all():
        bad = np.argwhere(~(depth > 0.0))[0]
        raise DefocusError(
            f"the depth of pixel {tuple(map(int, bad))} is {depth[tuple(bad)]} m; expected a positive number or inf: "
            "fill the holes first (`scene.depth_maps.complete_depth`)"
        )
    return light, depth


def _is_pair(value: Any, kind: type[float | int]) -> bool:
    numbers = (int, float, np.integer, np.floating) if kind is float else (int, np.integer)
    return np.shape(value) == (2,) and all(isinstance(number, numbers) for number in value)


def hidden_note(coc: Float[np.ndarray, "rows cols"]) -> list[str]:
    """What the report says where more of a hidden surface shows beside an edge than is looked for."""
    widest = 0.0
    for near, far in ((coc[1:], coc[:-1]), (coc[:, 1:], coc[:, :-1])):
        edges = np.abs(near - far) > EDGE_PX
        widest = max(widest, float(np.max(np.abs(near) + np.abs(far), initial=0.0, where=edges)))
    if widest <= REACH_PX:
        return []
    return [
        f"up to {widest:.0f} px of what is hidden shows beside a depth edge, the sum of both blur radii; it is filled "
        f"in for {REACH_PX} px, and farther in the picture is made of what else the lens sees there"
    ]


def _require_room(camera: Camera, coc: np.ndarray, depth: np.ndarray, most_px: int) -> None:
    """Refuse a blur that no allowed kernel holds, before the long work."""
    at = np.unravel_index(np.argmax(np.abs(coc)), coc.shape)
    widest = abs(float(coc[at]))
    needed = window_for(widest)
    if needed > most_px:
        smaller = most_px / (2.4 * widest + 6.0)
        stop = float(camera.f_number) / smaller
        raise DefocusError(
            f"{camera.lens.name} focused at {camera.focus_m:g} m: a point at {float(depth[at]):.4g} m has a blur "
            f"radius of {widest:.1f} px and needs a kernel of {needed} px, more than the {most_px} that are allowed: "
            f"stop down to f/{stop:.2g}, focus elsewhere, make the picture {1 / smaller:.2g} times smaller, or allow "
            "larger kernels"
        )


def _report(
    camera: Camera,
    coc: np.ndarray,
    depth: np.ndarray,
    layers: Layers,
    psfs: NodePsfs,
    fields: list[list[tuple[float, float]]],
    grid: tuple[int, int],
) -> dict[str, Any]:
    used = np.asarray(layers.used)
    rows, cols = depth.shape
    corner = math.hypot(cols, rows) / 2.0 * camera.pixel_um * 1e-3 / camera.image_radius_mm
    return {
        "lens": camera.lens.name,
        "f_number": round(float(camera.f_number), 3),
        "focus_m": camera.focus_m,
        "size": [cols, rows],
        "pixel_um": camera.pixel_um,
        "corner_field": round(corner, 4),
        "nearest_m": float(depth.min()),
        "farthest_m": float(depth.max()),
        "coc_px": [float(coc.min()), float(coc.max())],
        "layers": int(used.sum()),
        "layer_coc_px": [round(float(c), 3) for c in np.asarray(layers.coc_px)[used]],
        "layer_step_px": float(layers.step_px),
        "bands": dict(zip(psfs.bands.names, map(list, psfs.bands.wavelengths_nm), strict=True)),
        "kernel_px": psfs.kernel_px,
        "nodes": list(grid),
        "node_fields": [[round(x, 4), round(y, 4)] for row in fields for x, y in row],
        "node_light_mm2": [light and round(light, 4) for row in psfs.light_mm2 for light in row],
        "psfs_computed": psfs.computed,
        "psfs_refused": list(psfs.refused),
        "largest_energy_outside": psfs.worst_spill,
    }
