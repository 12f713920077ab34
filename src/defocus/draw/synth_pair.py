"""One pair of a data set and what it was made of: pictures, depth, layers, and the layers' PSFs from far to near."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..files.pair_folders import stack_role
from ..psf.bands import Bands
from . import style
from .psf_plot import paint_psf, psf_scale_bar
from .sheet import MARGIN, Box, Sheet, frame, head, note, show_picture

SIDE = 2.4  # inches of a picture: 384 pixels at style.DPI
GAP, TITLE, CAPTION, BAR = 0.12, 0.78, 0.24, 0.4  # inches; BAR: below the pictures, for colour bars
STRIP_TOP, STRIP_BOTTOM, SCALE = 0.46, 0.5, 1.0
MOST_TILES, MOST_OF_STACK = 12, 6
DEPTH_MAP, LAYER_MAP = "viridis_r", "RdBu_r"  # near is bright; beyond the focus red, before it blue, in focus white
HEADS = {
    "blurred": "blurred",
    "sharp": "sharp",
    "left": "left half-pixels",
    "right": "right half-pixels",
}

Depth = Float[np.ndarray, "h w"]
PerLayer = Float[np.ndarray, " layers"]
LayerPsfs = Float[np.ndarray, "layers bands size size"]


@style.look()
def draw_pair(
    record: Mapping[str, Any],
    pictures: Mapping[str, Shaped[np.ndarray, "h w *colours"]],
    *,
    depth_m: Depth,
    coc_px: Depth,
    layer_depth_m: PerLayer,
    layer_coc_px: PerLayer,
    psfs: LayerPsfs,
    verdict: str = "",
) -> Figure:
    """A figure of one pair.

    `record` is the pair's metadata; `pictures` are uint8 or uint16 by role (of a focal stack six at most are drawn;
    planes are not); layers are those with pixels, from far to near. `verdict` stands in the lower right corner.
    """
    stack = [f"focused at {_distance(focus_m)}" for focus_m in record.get("stack_m", ())]
    some = {round(k) for k in np.linspace(0, len(stack) - 1, min(len(stack), MOST_OF_STACK))}
    heads = HEADS | {stack_role(number): stack[number] for number in sorted(some)}
    roles = [role for role in heads if role in pictures]
    panels = len(roles) + 2
    columns = panels if panels <= 4 else 3
    rows = -(-panels // columns)
    width = 2 * MARGIN + columns * (SIDE + GAP) - GAP
    tile, layers = _tiles(layer_coc_px, width - 2 * MARGIN)
    sheet = Sheet(width, TITLE + rows * (CAPTION + SIDE) + BAR + STRIP_TOP + tile + STRIP_BOTTOM)
    name, about, place = _title(record)
    sheet.title(name, about)
    room = width - 2 * MARGIN
    sheet.text(MARGIN, sheet.height - 0.68, place, room=room, fontsize=style.NORMAL, color=style.FAINT)
    boxes = [_box(sheet, number, columns) for number in range(panels)]
    for role, box in zip(roles, boxes, strict=False):
        show_picture(_panel(sheet, box, heads[role]), pictures[role])
    _paint_depth(sheet, boxes[-2], depth_m)
    _paint_layers(sheet, boxes[-1], coc_px, layer_coc_px)
    _paint_strip(sheet, record, psfs[layers], layer_depth_m[layers], layer_coc_px[layers], tile)
    what = f"PSFs of {len(layers)} of {len(layer_coc_px)} layers" if len(layers) < len(layer_coc_px) else "PSFs"
    what += " with depth and blur radius, each scaled to its maximum, in sRGB as a photograph"
    last = " · ".join(text for text in (what, verdict) if text)
    free = room - SCALE  # beside the words of the scale bar
    sheet.text(width - MARGIN, 0.2, last, room=free, ha="right", fontsize=style.SMALL - 0.5, color=style.FAINT)
    return sheet.figure


def _title(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Three lines: which pair, how it was taken, and how its patch lies in which photograph."""
    state = f", {record['state']}" if record["state"] else ""
    lens = str(record["lens"]).partition("@")[0]
    x, y = (style.minus(f"{v:+.2f}") for v in record["field"])
    shot, read = record["noise"]
    noise = "no noise" if shot == 0.0 == read else f"noise variance {shot:.1e} × light + ({read:.1e})²"
    near, far = record["depth_m"]
    about = [
        f"f/{record['f_number']:.2g}, focused at {_distance(record['focus_m'])}",
        f"field ({x}, {y})",
        f"depth {near:.3g} to {far:.3g} m",
        f"pixel {record['pixel_um']:.3g} µm",
        noise,
    ]
    if record["saturation"]:
        about.append(f"highlights +{record['saturation']:.2g}")
    view = []
    if record["rotation_rad"]:
        view.append(style.minus(f"turned by {math.degrees(record['rotation_rad']):.0f}°"))
    if record["scale"] != 1.0:
        view.append(f"scaled by {record['scale']:.2f}")
    if record["flip"]:
        view.append("mirrored")
    if record["exposure"] != 1.0:
        view.append(f"exposure × {record['exposure']:.2f}")
    place = " · ".join(text for text in (str(record["source"]), ", ".join(view)) if text)
    return f"{record['id']} · {lens}{state}", " · ".join(about), place


def _distance(metres: float) -> str:
    return style.distance(float(f"{metres:.3g}"))


def _box(sheet: Sheet, number: int, columns: int) -> Box:
    row, column = divmod(number, columns)
    top = TITLE + row * (CAPTION + SIDE) + CAPTION
    return MARGIN + column * (SIDE + GAP), sheet.height - top - SIDE, SIDE, SIDE


def _panel(sheet: Sheet, box: Box, name: str) -> Axes:
    axes = sheet.axes(box)
    frame(axes)
    note(axes, name, (0.0, 1.0), ha="left", fontweight="bold")
    return axes


def _paint_depth(sheet: Sheet, box: Box, depth_m: Depth) -> None:
    near, far = float(depth_m.min()), float(depth_m.max())
    if far < near * 1.05:  # a wall: some room, so that the bar has numbers
        near, far = near / 1.5, far * 1.5
    norm = LogNorm(near, far)
    _panel(sheet, box, "depth").imshow(depth_m, cmap=DEPTH_MAP, norm=norm, interpolation="nearest")
    edge = (far / near) ** 0.04  # room for the number
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(10, 100), range(100, 1000)):
        powers = range(math.floor(math.log10(near)) - 2, math.ceil(math.log10(far)) + 1)
        ticks = [d * 10.0**p for p in powers for d in digits if near * edge <= d * 10.0**p <= far / edge]
        if len(ticks) >= 3:
            break
    colours = ScalarMappable(norm, matplotlib.colormaps[DEPTH_MAP])
    _bar(sheet, box, colours, ticks[:: -(-len(ticks) // 6)], "{:.3g} m")


def _paint_layers(sheet: Sheet, box: Box, coc_px: Depth, layer_coc_px: PerLayer) -> None:
    """Each pixel in the colour of the layer whose blur is nearest to its own."""
    ordered = np.sort(layer_coc_px)
    between = (ordered[1:] + ordered[:-1]) / 2.0
    own = ordered[np.searchsorted(between, coc_px)]
    most = max(float(np.abs(ordered).max()), 1.0)
    norm: Normalize = TwoSlopeNorm(0.0, -most, most)
    axes = _panel(sheet, box, f"{len(layer_coc_px)} layers, by their blur radius")
    axes.imshow(own, cmap=LAYER_MAP, norm=norm, interpolation="nearest")
    # The bar shows the layers that there are, as steps.
    steps = np.r_[ordered[0] - 0.5, between, ordered[-1] + 0.5]
    colours = ListedColormap(matplotlib.colormaps[LAYER_MAP](norm(ordered)))
    step = style.nice_length((steps[-1] - steps[0]) / 4.0)
    edge = 0.04 * (steps[-1] - steps[0])  # room for the number
    ticks = np.arange(math.ceil((steps[0] + edge) / step), math.floor((steps[-1] - edge) / step) + 1) * step
    mappable = ScalarMappable(BoundaryNorm(steps, len(ordered)), colours)
    _bar(sheet, box, mappable, ticks.tolist(), "{:g} px", spacing="proportional")


def _bar(sheet: Sheet, box: Box, colours: ScalarMappable, ticks: list[float], form: str, **options: Any) -> None:
    """A colour bar below a picture, with some ticks."""
    left, bottom, width, _ = box
    axis = sheet.colour_bar((left, bottom - 0.16, width, 0.1), colours, **options).ax.xaxis
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: style.minus(form.format(value))))


def _tiles(layer_coc_px: PerLayer, room: float) -> tuple[float, list[int]]:
    """Side of a tile in inches, and which layers have one: both ends, the sharpest, and others evenly between."""
    count = len(layer_coc_px)
    layers = sorted({round(k) for k in np.linspace(0, count - 1, min(count, MOST_TILES))})
    sharpest = int(np.argmin(np.abs(layer_coc_px)))
    if sharpest not in layers:
        inner = layers[1:-1] or layers
        layers.remove(min(inner, key=lambda k: abs(k - sharpest)))
        layers = sorted([*layers, sharpest])
    fitting = (room - (len(layers) - 1) * GAP / 2) / len(layers)
    return min(fitting, 1.25), layers


def _paint_strip(
    sheet: Sheet, record: Mapping[str, Any], psfs: LayerPsfs, depth_m: PerLayer, coc_px: PerLayer, tile: float
) -> None:
    """The PSFs in one window that holds them all, so that their sizes compare."""
    waves = {name: tuple(values) for name, values in record["psf"]["bands"].items()}
    bands = Bands(tuple(waves), tuple(waves.values()), tuple((1.0 / len(w),) * len(w) for w in waves.values()))
    half, middle = _half_window(psfs), psfs.shape[-1] // 2
    inside = slice(middle - half, middle + half + 1)
    for number, psf in enumerate(psfs[..., inside, inside]):
        axes = sheet.axes((MARGIN + number * (tile + GAP / 2), STRIP_BOTTOM, tile, tile))
        paint_psf(axes, psf, bands, {})
        head(axes, _distance(depth_m[number]), f"{style.signed(coc_px[number], 1)} px")
    pixel_um = float(record["pixel_um"])
    psf_scale_bar(sheet, MARGIN, 0.37, tile, (2 * half + 1) * pixel_um, pixel_um)


def _half_window(psfs: LayerPsfs) -> int:
    """Half of the smallest window around the middle that shows all but a thousandth of each PSF's brightest light."""
    bright = psfs.max(axis=1)
    visible = (bright > 1e-3 * bright.max(axis=(1, 2), keepdims=True)).any(axis=0)
    middle = psfs.shape[-1] // 2
    far = np.abs(np.argwhere(visible) - middle).max() if visible.any() else 0
    return int(min(max(far + 1, 4), middle - 1))
