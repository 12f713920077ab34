"""One pair of a data set and what it was made of: pictures, depth, layers, and the layers' PSFs from far to near."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import matplotlib
import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..psf.spectrum import Bands
from . import style
from .psf_picture import bare, distance, paint_picture, picture, write_above

SIDE = 2.4  # inches of a picture: 384 pixels at style.DPI
MARGIN, GAP, TITLE, CAPTION, BAR = 0.3, 0.12, 0.78, 0.24, 0.4  # inches; BAR: below the pictures, for colour bars
STRIP_TOP, STRIP_BOTTOM = 0.46, 0.5
MOST_TILES = 12
DEPTH_MAP, LAYER_MAP = "viridis_r", "RdBu_r"  # near is bright; beyond the focus red, before it blue, in focus white
Role = Literal["blurred", "sharp", "left", "right"]
HEADS: dict[Role, str] = {
    "blurred": "blurred",
    "sharp": "sharp",
    "left": "left half-pixels",
    "right": "right half-pixels",
}


def draw_pair(
    record: Mapping[str, Any],
    pictures: Mapping[Role, Shaped[np.ndarray, "h w 3"]],
    *,
    depth_m: Float[np.ndarray, "h w"],
    coc_px: Float[np.ndarray, "h w"],
    layer_depth_m: Float[np.ndarray, " layers"],
    layer_coc_px: Float[np.ndarray, " layers"],
    psfs: Float[np.ndarray, "layers bands size size"],
    verdict: str = "",
) -> Figure:
    """A figure of one pair.

    `record` is the pair's metadata; `pictures` are uint8 or uint16 by role (blurred, sharp, left, right); layers are
    those with pixels, from far to near. `verdict` stands in the lower right corner.
    """
    roles = [role for role in HEADS if role in pictures]
    panels = len(roles) + 2
    columns = panels if panels <= 4 else 3
    rows = -(-panels // columns)
    width = 2 * MARGIN + columns * (SIDE + GAP) - GAP
    tile, shown = _tiles(layer_coc_px, width - 2 * MARGIN)
    height = TITLE + rows * (CAPTION + SIDE) + BAR + STRIP_TOP + tile + STRIP_BOTTOM
    size = width, height
    with style.look():
        figure = Figure(figsize=size)
        name, about, place = _title(record)
        style.title(figure, name, about, size, margin=MARGIN)
        small = style.fitted_size(place, style.NORMAL, width - 2 * MARGIN)
        figure.text(MARGIN / width, 1.0 - 0.68 / height, place, fontsize=small, color=style.FAINT)
        for number, role in enumerate(roles):
            axes = _panel(figure, number, columns, size, HEADS[role])
            axes.imshow(_eight_bits(pictures[role]), interpolation="antialiased")
        _paint_depth(figure, _panel(figure, panels - 2, columns, size, "depth"), depth_m, size)
        layers = _panel(figure, panels - 1, columns, size, f"{len(layer_coc_px)} layers, by their blur radius")
        _paint_layers(figure, layers, coc_px, layer_coc_px, size)
        _paint_strip(figure, record, psfs[shown], layer_depth_m[shown], layer_coc_px[shown], tile, size)
        what = f"PSFs of {len(shown)} of {len(layer_coc_px)} layers" if len(shown) < len(layer_coc_px) else "PSFs"
        what += ", each scaled to its maximum, in sRGB as a photograph"
        figure.text(
            1.0 - MARGIN / width, 0.2 / height, " · ".join(t for t in (what, verdict) if t),
            ha="right", fontsize=style.SMALL - 0.5, color=style.FAINT,
        )  # fmt: skip
    return figure


def _title(record: Mapping[str, Any]) -> tuple[str, str, str]:
    state = f", {record['state']}" if record["state"] else ""
    lens = str(record["lens"]).partition("@")[0]
    x, y = (f"{v:+.2f}".replace("-", "−") for v in record["field"])
    shot, read = record["noise"]
    noise = "no noise" if shot == 0.0 == read else f"noise variance {shot:.1e} × light + {read:.1e}"
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
    return f"{record['id']} · {lens}{state}", " · ".join(about), f"{record['source']}{_turned(record)}"


def _distance(metres: float) -> str:
    return distance(float(f"{metres:.3g}"))


def _turned(record: Mapping[str, Any]) -> str:
    """How the patch lies in its photograph."""
    parts = []
    if record["rotation_rad"]:
        parts.append(f"turned by {math.degrees(record['rotation_rad']):.0f}°".replace("-", "−"))
    if record["scale"] != 1.0:
        parts.append(f"scaled by {record['scale']:.2f}")
    if record["flip"]:
        parts.append("mirrored")
    if record["exposure"] != 1.0:
        parts.append(f"exposure × {record['exposure']:.2f}")
    return " · " + ", ".join(parts) if parts else ""


def _panel(figure: Figure, number: int, columns: int, size: tuple[float, float], head: str) -> Axes:
    row, column = divmod(number, columns)
    left, top = MARGIN + column * (SIDE + GAP), TITLE + row * (CAPTION + SIDE) + CAPTION
    axes = figure.add_axes((left / size[0], 1.0 - (top + SIDE) / size[1], SIDE / size[0], SIDE / size[1]))
    bare(axes)
    axes.annotate(
        head, (0.0, 1.0), xycoords="axes fraction", xytext=(0.0, 4.0), textcoords="offset points",
        fontsize=style.SMALL, fontweight="bold",
    )  # fmt: skip
    return axes


def _eight_bits(image: Shaped[np.ndarray, "h w 3"]) -> Shaped[np.ndarray, "h w 3"]:
    return (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else image


def _paint_depth(figure: Figure, axes: Axes, depth_m: Float[np.ndarray, "h w"], size: tuple[float, float]) -> None:
    near, far = float(depth_m.min()), float(depth_m.max())
    if far < near * 1.05:  # a wall: some room, so that the bar has numbers
        near, far = near / 1.5, far * 1.5
    norm = LogNorm(near, far)
    axes.imshow(depth_m, cmap=DEPTH_MAP, norm=norm, interpolation="nearest")
    bar = _bar(figure, axes, ScalarMappable(norm, matplotlib.colormaps[DEPTH_MAP]), size)
    edge = (far / near) ** 0.04  # room for the number
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(10, 100), range(100, 1000)):
        powers = range(math.floor(math.log10(near)) - 2, math.ceil(math.log10(far)) + 1)
        ticks = [d * 10.0**p for p in powers for d in digits if near * edge <= d * 10.0**p <= far / edge]
        if len(ticks) >= 3:
            break
    ticks = ticks[:: -(-len(ticks) // 6)]
    bar.xaxis.set_major_locator(FixedLocator(ticks))
    bar.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.3g} m"))


def _paint_layers(
    figure: Figure,
    axes: Axes,
    coc_px: Float[np.ndarray, "h w"],
    layer_coc_px: Float[np.ndarray, " layers"],
    size: tuple[float, float],
) -> None:
    """Each pixel in the colour of the layer whose blur is nearest to its own."""
    ordered = np.sort(layer_coc_px)
    own = ordered[np.searchsorted((ordered[1:] + ordered[:-1]) / 2.0, coc_px)]
    most = max(float(np.abs(ordered).max()), 1.0)
    norm: Normalize = TwoSlopeNorm(0.0, -most, most)
    axes.imshow(own, cmap=LAYER_MAP, norm=norm, interpolation="nearest")
    # The bar shows the layers that there are, as steps.
    low, high = float(ordered[0]), float(ordered[-1])
    steps = np.r_[low - 0.5, (ordered[1:] + ordered[:-1]) / 2.0, high + 0.5]
    colours = matplotlib.colormaps[LAYER_MAP](norm(ordered))
    bar = _bar(
        figure, axes, ScalarMappable(BoundaryNorm(steps, len(ordered)), matplotlib.colors.ListedColormap(colours)),
        size, spacing="proportional",
    )  # fmt: skip
    step = style.nice_length((steps[-1] - steps[0]) / 4.0)
    edge = 0.04 * (steps[-1] - steps[0])  # room for the number
    ticks = np.arange(math.ceil((steps[0] + edge) / step), math.floor((steps[-1] - edge) / step) + 1) * step
    bar.xaxis.set_major_locator(FixedLocator(ticks.tolist()))
    bar.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g} px".replace("-", "−")))


def _bar(figure: Figure, axes: Axes, colours: ScalarMappable, size: tuple[float, float], **how: Any) -> Axes:
    """A flat colour bar below a picture."""
    box = axes.get_position()
    bar = figure.add_axes((box.x0, box.y0 - 0.16 / size[1], box.width, 0.1 / size[1]))
    made = figure.colorbar(colours, cax=bar, orientation="horizontal", **how)
    made.outline.set_linewidth(0.4)
    bar.xaxis.set_minor_locator(NullLocator())
    bar.tick_params(labelsize=style.SMALL - 1.0, length=2.0, width=0.5, pad=1.5)
    return bar


def _tiles(layer_coc_px: Float[np.ndarray, " layers"], room: float) -> tuple[float, list[int]]:
    """Side of a tile in inches, and which layers are shown: both ends, the sharpest, and others evenly between."""
    count = len(layer_coc_px)
    shown = sorted({round(k) for k in np.linspace(0, count - 1, min(count, MOST_TILES))})
    sharpest = int(np.argmin(np.abs(layer_coc_px)))
    if sharpest not in shown:
        inner = shown[1:-1] or shown
        shown.remove(min(inner, key=lambda k: abs(k - sharpest)))
        shown = sorted([*shown, sharpest])
    fitting = (room - (len(shown) - 1) * GAP / 2) / len(shown)
    return min(fitting, 1.25), shown


def _paint_strip(
    figure: Figure,
    record: Mapping[str, Any],
    psfs: Float[np.ndarray, "layers bands size size"],
    depth_m: Float[np.ndarray, " layers"],
    coc_px: Float[np.ndarray, " layers"],
    tile: float,
    size: tuple[float, float],
) -> None:
    """The PSFs in one window that holds them all, so that their sizes compare."""
    told = record["psf"]["bands"]
    waves = tuple(tuple(v) for v in told.values())
    bands = Bands(tuple(told), waves, tuple((1.0 / len(v),) * len(v) for v in waves))
    half = _half_window(psfs)
    middle = psfs.shape[-1] // 2
    inside = slice(middle - half, middle + half + 1)
    for number, psf in enumerate(psfs[..., inside, inside]):
        left = MARGIN + number * (tile + GAP / 2)
        axes = figure.add_axes((left / size[0], STRIP_BOTTOM / size[1], tile / size[0], tile / size[1]))
        paint_picture(axes, picture(psf, bands))
        write_above(axes, _distance(depth_m[number]), 14.0, fontweight="bold")
        blur = f"{coc_px[number]:+.1f}".replace("-", "−")
        write_above(axes, f"CoC {'0' if float(f'{coc_px[number]:.1f}') == 0.0 else blur} px", 4.0, color=style.FAINT)
    span, pitch = 2 * half + 1, float(record["pixel_um"])
    bar = style.nice_length(0.75 * span)
    axes = style.bare_axes(figure, (MARGIN / size[0], 0.12 / size[1], tile / size[0], 0.34 / size[1]))
    axes.set_xlim(0.0, span)
    axes.set_ylim(0.0, 34.0)
    style.scale_bar(axes, 0.0, 25.0, bar, "", tick=6.0)
    label = f"{bar:g} px, {bar * pitch:.3g} µm"
    axes.text(0.0, 18.0, label, va="top", fontsize=style.SMALL - 0.5, clip_on=False)


def _half_window(psfs: Float[np.ndarray, "layers bands size size"]) -> int:
    """Half of the smallest window around the middle that shows all but a thousandth of each PSF's brightest light."""
    bright = psfs.max(axis=1)
    seen = (bright > 1e-3 * bright.max(axis=(1, 2), keepdims=True)).any(axis=0)
    middle = psfs.shape[-1] // 2
    far = np.abs(np.argwhere(seen) - middle).max() if seen.any() else 0
    return int(min(max(far + 1, 4), middle - 1))
