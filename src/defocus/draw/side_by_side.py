"""Pictures side by side: restorations with enlarged parts, what networks see in them (the paper's figures S10 and
S15), pairs of a data set, a photograph and its depth.

Pictures are uint8, uint16, or display values 0..1."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from jaxtyping import Float, Int, Shaped
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from ..errors import DefocusError
from ..render.photograph import Photograph
from . import style
from .sheet import MARGIN, Sheet, frame, show_picture

PANEL = 2.3  # inches: width of a panel
EDGE, GAP, INNER, BELOW = 0.25, 0.14, 0.05, 0.2  # inches: around, between, between crops, between bands
HEAD, TITLE = 0.36, 0.45  # inches: two lines above a picture, and the figure's title
LARGEST_ASPECT = 1.6  # of height to width; taller pictures are made narrower
CROP_COLOURS = (style.YELLOW, style.SKY, style.PURPLE, style.GREEN)
SAMPLE, SAMPLE_EDGE, SAMPLE_GAP, SAMPLE_BETWEEN, CAPTION = 1.5, 0.2, 0.025, 0.2, 0.24  # inches
DEPTH_WIDTH = 9.6  # inches
DEPTH_PER_CENT = (1.0, 99.0)  # of the inverse depths that span the colours
ERRORS, DISPARITIES = "magma", "viridis"
TOP_PER_CENT = 99.0  # of the largest row's errors, where the colours end
PAINT = 0.6  # of a segment's colour over the picture
GOLDEN = 0.618034  # of a turn between the hues of two segments: neighbours differ

Photo = Shaped[np.ndarray, "rows cols 3"]
Crop = tuple[int, int, int]  # top, left and side, pixels


@dataclass(frozen=True)
class Panel:
    """A picture, its name, and a line below the name such as its measures."""

    name: str
    below: str
    picture: Photo


@style.look()
def draw_comparison(
    panels: Sequence[Panel], crops: Sequence[Crop], title: str, *, columns: int = 6, width: float = PANEL
) -> Figure:
    """Pictures of one size with the same parts of each enlarged below; at most `columns` of them in a band.

    `width` is that of a panel, in inches.
    """
    if not panels:
        raise DefocusError("no pictures to compare")
    shape = panels[0].picture.shape
    if any(panel.picture.shape != shape for panel in panels):
        sizes = ", ".join(f"{p.name}: {p.picture.shape[1]}×{p.picture.shape[0]}" for p in panels)
        raise DefocusError(f"pictures of several sizes cannot be compared: {sizes}")
    columns = min(columns, len(panels))
    bands = -(-len(panels) // columns)
    aspect = shape[0] / shape[1]
    wide, high = (width, width * aspect) if aspect <= LARGEST_ASPECT else (width * LARGEST_ASPECT / aspect, width * 1.6)
    side = (width - INNER * (len(crops) - 1)) / max(len(crops), 1)
    band = HEAD + high + (INNER + side if crops else 0.0)
    sheet = Sheet(2 * EDGE + columns * (width + GAP) - GAP, TITLE + bands * (band + BELOW) - BELOW + EDGE)
    room = sheet.width - 2 * EDGE
    sheet.text(EDGE, sheet.height - 0.28, title, room=room, fontsize=style.LARGE, fontweight="bold")
    for number, panel in enumerate(panels):
        left = EDGE + (number % columns) * (width + GAP)
        top = sheet.height - TITLE - (number // columns) * (band + BELOW)
        sheet.text(left, top - 0.13, panel.name, room=width, fontsize=style.NORMAL, fontweight="bold")
        sheet.text(left, top - 0.28, panel.below, room=width, color=style.FAINT)
        axes = sheet.axes((left + (width - wide) / 2.0, top - HEAD - high, wide, high), bare=True)
        show_picture(axes, panel.picture)
        for place, (row, column, size) in enumerate(crops):
            colour = CROP_COLOURS[place % len(CROP_COLOURS)]
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=colour, linewidth=1.0))
            inner = sheet.axes((left + place * (side + INNER), top - HEAD - high - INNER - side, side, side))
            show_picture(inner, panel.picture[row : row + size, column : column + size], pixels=True)
            frame(inner, colour, 1.4)
    return sheet.figure


def draw_depth_errors(
    title: str,
    pictures: Mapping[str, Photo],
    errors: Mapping[str, Float[np.ndarray, "rows cols"]],
    truth: Float[np.ndarray, "rows cols"],
    measures: Mapping[str, str],
) -> Figure:
    """Pictures by name, and below each the error of its depth (0: black), one scale for all.

    The picture without errors is the sharp one: below it is the disparity that counts as true, near in yellow.
    """
    top = max((float(np.percentile(error, TOP_PER_CENT)) for error in errors.values()), default=0.0)
    panels = [Panel(name, measures.get(name, ""), picture) for name, picture in pictures.items()]
    for name in pictures:
        if name in errors:
            panels.append(Panel("error of depth", f"0 … {top:.3g}", _shades(errors[name], 0.0, top, ERRORS)))
        else:
            low, high = float(truth.min()), float(truth.max())
            panels.append(
                Panel("its depth", f"disparity {low:.3g} … {high:.3g}", _shades(truth, low, high, DISPARITIES))
            )
    return draw_comparison(panels, (), title, columns=len(pictures))


def draw_segments(
    title: str,
    pictures: Mapping[str, Photo],
    labels: Mapping[str, Int[np.ndarray, "rows cols"]],
    measures: Mapping[str, str],
) -> Figure:
    """Pictures by name, and below each its segments in colours; a label below 0 is no segment."""
    panels = [Panel(name, measures.get(name, ""), picture) for name, picture in pictures.items()]
    panels += [Panel("segments", "", _painted(picture, labels[name])) for name, picture in pictures.items()]
    return draw_comparison(panels, (), title, columns=len(pictures))


def _shades(values: Float[np.ndarray, "rows cols"], low: float, high: float, colours: str) -> Photo:
    level = np.clip((values - low) / max(high - low, 1e-12), 0.0, 1.0)
    return matplotlib.colormaps[colours](level)[..., :3]


def _painted(picture: Photo, labels: Int[np.ndarray, "rows cols"]) -> Photo:
    count = int(labels.max(initial=-1)) + 1
    palette = np.array([colorsys.hsv_to_rgb(GOLDEN * n % 1.0, 0.75, 1.0) for n in range(count)] or [(0.0, 0.0, 0.0)])
    grey = np.repeat(np.asarray(picture, float).mean(-1, keepdims=True), 3, axis=-1)
    share = PAINT * (labels >= 0)[..., None]
    return grey * (1.0 - share) + palette[np.maximum(labels, 0)] * share


def plot_photograph(photograph: Photograph) -> Figure:
    """The sharp and the blurred photograph side by side."""
    report = photograph.report
    low, high = report["coc_px"]
    taken = style.setting(report["f_number"], report["focus_m"])
    about = f"{taken} · {style.minus(f'blur {low:.1f} … {high:.1f} px')}"
    panels = [Panel("sharp", "", photograph.sharp.srgb), Panel("blurred", about, photograph.blurred.srgb)]
    return draw_comparison(panels, (), str(report["lens"]), width=4.6)


@style.look()
def draw_samples(pairs: Sequence[tuple[Photo, Photo, str]]) -> Figure:
    """Pairs of a data set (blurred, sharp, caption) in squares of one size, about as many columns as rows.

    A line at the top says which is which.
    """
    if not pairs:
        raise DefocusError("no pairs to draw: the data set holds none")
    columns = max(1, min(4, round(math.sqrt(len(pairs)))))
    rows = -(-len(pairs) // columns)
    width, height = 2.0 * SAMPLE + SAMPLE_GAP, SAMPLE + CAPTION
    sheet = Sheet(
        2.0 * SAMPLE_EDGE + columns * (width + SAMPLE_BETWEEN) - SAMPLE_BETWEEN,
        2.0 * SAMPLE_EDGE + CAPTION + rows * (height + SAMPLE_BETWEEN / 2.0) - SAMPLE_BETWEEN / 2.0,
    )
    sheet.text(SAMPLE_EDGE, sheet.height - SAMPLE_EDGE, "left: blurred, right: sharp", fontsize=style.SMALL)
    size = min(style.fitted_size(caption, style.SMALL, 0.97 * width) for _, _, caption in pairs)
    for number, (blurred, sharp, caption) in enumerate(pairs):
        row, column = divmod(number, columns)
        left = SAMPLE_EDGE + column * (width + SAMPLE_BETWEEN)
        bottom = sheet.height - SAMPLE_EDGE - CAPTION - SAMPLE - row * (height + SAMPLE_BETWEEN / 2.0)
        for place, picture in enumerate((blurred, sharp)):
            box = (left + place * (SAMPLE + SAMPLE_GAP), bottom, SAMPLE, SAMPLE)
            show_picture(sheet.axes(box, bare=True), picture)
        sheet.text(left, bottom - 0.14, caption, fontsize=size, color=style.FAINT)
    return sheet.figure


@style.look()
def draw_depth(srgb: Photo, depth_m: Float[np.ndarray, "rows cols"], name: str, below: str = "") -> Figure:
    """A photograph beside its depth, near (yellow) to far (violet), coloured evenly in inverse depth as blur is."""
    rows, cols = depth_m.shape
    wide = (DEPTH_WIDTH - 1.6) / 2
    high = wide * rows / cols
    sheet = Sheet(DEPTH_WIDTH, high + 1.1)
    sheet.title(name, below)
    show_picture(sheet.axes((MARGIN, MARGIN, wide, high), bare=True), srgb)
    inverse = 1.0 / depth_m
    low, top = np.percentile(inverse, DEPTH_PER_CENT)
    axes = sheet.axes((MARGIN + wide + 0.15, MARGIN, wide, high), bare=True)
    image = axes.imshow(inverse, cmap="viridis", vmin=float(low), vmax=float(max(top, low + 1e-9)))
    metres = FuncFormatter(lambda v, _: f"{1.0 / v:.3g} m" if v > 1e-6 else "∞")
    sheet.figure.colorbar(image, cax=sheet.axes((MARGIN + 2 * wide + 0.27, MARGIN, 0.14, high)), format=metres)
    return sheet.figure
