"""A sharp photograph with its depth, as a lens would have taken it: `Camera.photograph` (the paper's section 4.3).

    linear light ─ highlights ─ layers by signed circle of confusion ─ a PSF per layer, band and node ─ compositing
                 ─ mosaic ─ noise ─ development ─ picture

The sharp photograph goes through the same sensor without noise: the pair differs by the lens and the noise alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from ..optics.paraxial import blur_radius, image_position
from ..photo import SRGB, Noise, Response, SensorColour, add_noise, encode, forward_isp, inverse_isp
from ..photo import synthesise_saturation as brighten
from ..psf.compute import Side
from ..psf.spectrum import CHANNELS_NM, Bands, parse_bands
from ..scene.inpaint import EDGE_PX, REACH_PX
from ..scene.layers import MOST_LAYERS, Layers, cut_layers
from .camera import Camera, front_focus_m
from .field import TILE_PX, render_photograph
from .node_psfs import NodePsfs, find_node_psfs, node_fields, window_for

MOST_KERNEL_PX = 256
NODES = (3, 5)  # along the short and the long side
PARTS = 1  # of the pupil, each composited by itself: see `composite`
PIECES = 4  # smallest picture, in pixels, whose mosaic can be developed

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Picture:
    """One photograph in three states; `raw` and what follows from it only where there is a sensor."""

    linear: Float[np.ndarray, "rows cols 3"]  # linear sRGB, not clipped
    raw: Float[np.ndarray, "rows cols"] | None  # the sensor's mosaic, 0..1
    srgb: Float[np.ndarray, "rows cols 3"]  # display values 0..1


@dataclass(frozen=True)
class Photograph:
    """The sharp and the blurred photograph, and a report: layers, blur radii, kernels, nodes, times, notes."""

    sharp: Picture
    blurred: Picture
    report: dict[str, Any]


def photo_bands(bands: str | tuple[float, ...] | Bands) -> Bands:
    """`"rgb"`: one wavelength for each colour, its mean; `"rgb-full"`: three for each; else as for PSFs."""
    if bands == "rgb":
        return Bands(tuple(CHANNELS_NM), tuple((mean,) for mean, _ in CHANNELS_NM.values()), ((1.0,),) * 3)
    parsed = parse_bands("rgb" if bands == "rgb-full" else bands)
    if len(parsed.names) not in (1, 3):
        raise DefocusError(f"{len(parsed.names)} bands; a photograph takes one for all colours or three")
    return parsed


def blur_radii_px(camera: Camera, depth_m: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Signed paraxial blur radii in pixels, positive beyond the focus; depth in metres, inf allowed."""
    data = camera.first_order
    depth = np.asarray(depth_m, np.float64) * 1e3
    nearest, front_focus = float(depth.min()) / 1e3, front_focus_m(data)
    if not nearest > front_focus:
        raise DefocusError(
            f"{camera.lens.name}: a depth of {nearest:.4g} m lies within its front focal point at {front_focus:.4g} m, "
            "where nothing has an image: is the depth map in metres?"
        )
    sensor = (
        image_position(data, jnp.asarray(camera.focus_m * 1e3))
        if camera.sensor_shift_mm is None
        else data.image_plane + camera.sensor_shift_mm
    )
    radius = blur_radius(data, jnp.asarray(depth), sensor)
    return (np.asarray(radius) / (camera.pixel_um * 1e-3)).astype(np.float32)


def take_photograph(
    camera: Camera,
    linear: Float[np.ndarray, "rows cols 3"],
    depth_m: Float[np.ndarray, "rows cols"],
    *,
    bands: str | tuple[float, ...] | Bands = "rgb",
    nodes: tuple[int, int] | None = None,
    patch: tuple[float, float] | None = None,
    step_px: float = 1.0,
    most_layers: int = MOST_LAYERS,
    most_kernel_px: int = MOST_KERNEL_PX,
    parts: int = PARTS,
    tile_px: int = TILE_PX,
    side: Side | None = None,
    relative_illumination: bool = False,
    saturation: float = 0.0,
    noise: Noise | None = None,
    seed: int = 0,
    colour: SensorColour | None = None,
    sensor: bool = True,
    response: Response = SRGB,
    exact: bool = False,
    progress: Progress | None = None,
) -> Photograph:
    """Blur a sharp photograph (linear sRGB) with its depth (metres, positive, inf allowed).

    PSFs vary over the field: they are known at `nodes` = (rows, columns), and the picture's centre is the lens's axis.
    `patch` = (x, y) takes instead the PSF of that one field position everywhere, as the paper does for its patches.
    `parts` of the pupil are followed separately at depth edges: 4 take about four times as long.
    Layers are `step_px` of blur apart; where that takes more than `most_layers` they are further apart, and a note says
    so. `saturation` is the power of the paper's highlights, `noise` the sensor's, drawn with `seed`. `colour` is
    that of the sensor, without it a neutral one; without `sensor` the light is only clipped and encoded. `exact` PSFs
    have the diffraction of their wavelength, at many times the cost where pixels are large (`node_psfs`).
    `progress` is told the stage and how much of it is done.
    """
    light, depth = np.asarray(linear, np.float32), np.asarray(depth_m, np.float32)
    _check(light, depth, patch, nodes)
    if noise is not None and not sensor:
        raise DefocusError("noise is the sensor's: it needs the step through the mosaic")
    parsed = photo_bands(bands)
    notes: list[str] = []
    seconds: dict[str, float] = {}
    rows, cols = depth.shape

    start = time.perf_counter()
    if saturation > 0.0:
        light = np.asarray(brighten(light, saturation))
    coc = blur_radii_px(camera, depth)
    _require_room(camera, coc, depth, most_kernel_px)
    layers = cut_layers(coc, depth, step_px=step_px, most=most_layers, merge=True)
    if float(layers.step_px) > step_px * 1.001:
        notes.append(f"{most_layers} layers hold this blur only {float(layers.step_px):.2f} px apart, not {step_px:g}")
    notes += hidden_note(coc)
    seconds["layers"] = time.perf_counter() - start

    start = time.perf_counter()
    grid = (1, 1) if patch is not None else nodes or (NODES if cols >= rows else NODES[::-1])
    fields = [[(float(patch[0]), float(patch[1]))]] if patch is not None else node_fields(camera, (cols, rows), grid)
    psfs = find_node_psfs(
        camera,
        fields,
        np.asarray(layers.coc_px),
        np.asarray(layers.depth_m),
        np.asarray(layers.used),
        bands=parsed,
        most_px=most_kernel_px,
        side=side,
        relative_illumination=relative_illumination,
        exact=exact,
        progress=None if progress is None else lambda done: progress("PSFs", done),
    )
    seconds["psfs"] = time.perf_counter() - start

    start = time.perf_counter()
    blurred = render_photograph(
        light,
        coc,
        layers,
        psfs.at,
        grid,
        tile_px=tile_px,
        parts=parts,
        progress=None if progress is None else lambda done: progress("blurring", done),
    )
    seconds["render"] = time.perf_counter() - start

    start = time.perf_counter()
    if sensor and colour is None:
        notes.append("no camera colours known: the sensor is a neutral one, its colours are those of linear sRGB")
    through = colour or SensorColour.make()
    pair = Photograph(
        _expose(light, through, response, sensor, None, seed),
        _expose(blurred, through, response, sensor, noise, seed),
        {},
    )
    seconds["sensor"] = time.perf_counter() - start
    report = _report(camera, coc, depth, layers, psfs, fields, grid)
    report |= {
        "patch": None if patch is None else list(patch),
        "side": side,
        "parts": parts,
        "exact": exact,
        "saturation": saturation,
        "noise": None if noise is None else [float(noise.shot), float(noise.read_variance)],
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "notes": [*notes, *psfs.notes],
    }
    return Photograph(pair.sharp, pair.blurred, report)


def _check(
    light: np.ndarray, depth: np.ndarray, patch: tuple[float, float] | None, nodes: tuple[int, int] | None
) -> None:
    if light.ndim != 3 or light.shape[2] != 3 or light.size == 0:
        raise DefocusError(f"a photograph of shape {light.shape}; expected [rows, columns, 3]")
    if depth.shape != light.shape[:2]:
        raise DefocusError(
            f"a depth map of {depth.shape[::-1]} pixels for a photograph of {light.shape[1::-1]}: resize one of them"
        )
    if not np.isfinite(light).all():
        bad = np.argwhere(~np.isfinite(light))[0]
        raise DefocusError(f"the light of pixel {tuple(map(int, bad))} is {light[tuple(bad)]}; expected finite numbers")
    if not (depth > 0.0).all():
        bad = np.argwhere(~(depth > 0.0))[0]
        raise DefocusError(
            f"the depth of pixel {tuple(map(int, bad))} is {depth[tuple(bad)]} m; expected a positive number or inf: "
            "fill the holes first (`scene.depth_maps.complete_depth`)"
        )
    if patch is not None and nodes is not None:
        raise DefocusError("a patch has one PSF for the whole picture; nodes are for the full field")
    if patch is not None and not math.hypot(*patch) <= 1.0:
        raise DefocusError(f"patch at field {patch}, outside the image circle of radius 1")
    if nodes is not None and not all(1 <= n <= 64 for n in nodes):
        raise DefocusError(f"{nodes} nodes; expected 1 to 64 rows and columns")


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
        stop = float(camera.first_order.f_number) / smaller
        raise DefocusError(
            f"{camera.lens.name} focused at {camera.focus_m:g} m: a point at {float(depth[at]):.4g} m has a blur "
            f"radius of {widest:.1f} px and needs a kernel of {needed} px, more than the {most_px} that are allowed: "
            f"stop down to f/{stop:.2g}, focus elsewhere, make the picture {1 / smaller:.2g} times smaller, or allow "
            "larger kernels"
        )


def _expose(
    linear: Float[np.ndarray, "rows cols 3"],
    colour: SensorColour,
    response: Response,
    sensor: bool,
    noise: Noise | None,
    seed: int,
) -> Picture:
    """The light on a sensor, and what is developed from it."""
    if not sensor:
        return Picture(linear, None, np.asarray(encode(linear, response)))
    rows, cols = linear.shape[:2]
    mosaic = inverse_isp(jnp.asarray(linear), colour)
    if noise is not None:
        mosaic = jnp.minimum(add_noise(jax.random.fold_in(jax.random.key(seed), 1), mosaic, noise), 1.0)
    # A mosaic of a few pixels has no neighbours to find colours from: it is continued by reflection and cut again.
    # The border is even, so the pattern keeps its phase.
    border = [(0, 2 * max(0, math.ceil((PIECES - n) / 2))) for n in (rows, cols)]
    wide = jnp.pad(mosaic, border, mode="symmetric") if any(after for _, after in border) else mosaic
    picture = forward_isp(wide, colour, response)[:rows, :cols]
    return Picture(linear, np.asarray(mosaic), np.asarray(picture))


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
        "f_number": round(float(camera.first_order.f_number), 3),
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
        "node_light_mm2": [round(light, 4) for row in psfs.light_mm2 for light in row],
        "psfs_computed": psfs.computed,
        "psfs_refused": list(psfs.refused),
        "largest_energy_outside": psfs.worst_spill,
    }
