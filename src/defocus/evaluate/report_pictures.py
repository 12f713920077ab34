"""Pictures of a report as text that a page can hold: JPEGs with arrows and blocks drawn over them, crops, curves."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from ..draw.pages import even_ticks
from .registration import Registration
from .residual_blur import BLURRED_PX, BlurMap

LARGEST_PX = 720
CROP_PX = 160
WIDTH, HEIGHT = 460.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 24.0, 38.0


def jpeg_uri(display: Float[np.ndarray, "h w 3"], largest_px: int = LARGEST_PX) -> str:
    """A copy of a picture of display values, reduced where it is large."""
    from PIL import Image

    picture = Image.fromarray((np.clip(display, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8))
    picture.thumbnail((largest_px, largest_px), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=88, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def over_picture(uri: str, size: tuple[int, int], marks: str, label: str) -> str:
    """Marks in the pixels of a picture of `size` = (width, height), drawn over its copy."""
    width, height = size
    return (
        f'<svg class="photo" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}">'
        f'<image href="{uri}" width="{width}" height="{height}" preserveAspectRatio="none"/>{marks}</svg>'
    )


def arrows(found: Registration, magnified: float) -> str:
    """What the similarity leaves in each block, magnified, no longer than to the next; framed if moved or different."""
    rest = found.residual_px
    unit = max(found.size) / 720.0
    parts = []
    for row, col in np.ndindex(found.known.shape):
        x, y = float(found.x[col]), float(found.y[row])
        kind = "moved" if found.moved[row, col] else "differs" if found.differs[row, col] else ""
        if kind:
            step = _spacing(found)
            parts.append(
                f'<rect class="{kind}" x="{x - step / 2:.0f}" y="{y - step / 2:.0f}" width="{step:.0f}" '
                f'height="{step:.0f}" stroke-width="{1.5 * unit:.1f}"/>'
            )
        if not found.known[row, col] or found.differs[row, col]:
            continue
        dx, dy = (float(v) * magnified for v in rest[row, col])
        shorter = min(1.0, 1.5 * _spacing(found) / max(float(np.hypot(dx, dy)), 1e-9))
        dx, dy = dx * shorter, dy * shorter
        parts.append(
            f'<line class="halo" x1="{x:.1f}" y1="{y:.1f}" x2="{x + dx:.1f}" y2="{y + dy:.1f}" '
            f'stroke-width="{3.4 * unit:.1f}"/><line class="arrow {kind}" x1="{x:.1f}" y1="{y:.1f}" '
            f'x2="{x + dx:.1f}" y2="{y + dy:.1f}" stroke-width="{1.8 * unit:.1f}"/>'
            f'<circle class="arrow-foot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{1.7 * unit:.1f}"/>'
        )
    return "".join(parts)


def _spacing(found: Registration) -> float:
    steps = [np.diff(v) for v in (found.x, found.y) if len(v) > 1]
    return float(np.concatenate(steps).mean()) if steps else float(found.block_px)


def blur_blocks(seen: BlurMap, size: tuple[int, int], widest_px: float = 4.0) -> str:
    """Blocks coloured by the width of their edges: clear where sharp, red where wide; without edges left dark."""
    rows, cols = seen.sigma_px.shape
    wide, high = size[0] / cols, size[1] / rows
    parts = []
    for row, col in np.ndindex(rows, cols):
        sigma = float(seen.sigma_px[row, col])
        place = f'x="{col * wide:.1f}" y="{row * high:.1f}" width="{wide:.1f}" height="{high:.1f}"'
        if not np.isfinite(sigma):
            parts.append(f'<rect {place} fill="#000" fill-opacity=".55"><title>no edges</title></rect>')
            continue
        part = min(max((sigma - 0.5) / (widest_px - 0.5), 0.0), 1.0)
        colour = "#d7191c" if sigma > BLURRED_PX else "#fdae61"
        parts.append(
            f'<rect {place} fill="{colour}" fill-opacity="{0.75 * part:.2f}"><title>σ {sigma:.2f} px</title></rect>'
        )
    return "".join(parts)


def worst_block(found: Registration) -> tuple[int, int] | None:
    """Row and column of the block that fits least: one that differs, else the one that moved farthest."""
    rest = np.hypot(found.residual_px[..., 0], found.residual_px[..., 1])
    if found.differs.any():
        value: Float[np.ndarray, "rows cols"] = np.where(found.differs, 1.0 - found.explained, -1.0)
    elif found.known.any():
        value = np.where(found.known, rest, -1.0)
    else:
        return None
    row, col = np.unravel_index(int(np.argmax(value)), value.shape)
    return int(row), int(col)


def crop_pair(
    sharp: Float[np.ndarray, "h w 3"], blurred: Float[np.ndarray, "h w 3"], middle: tuple[float, float]
) -> str:
    """The same place of both pictures side by side, with a cross to compare by; `middle` is (x, y)."""
    height, width = sharp.shape[:2]
    side = min(CROP_PX, height, width)
    left = int(min(max(middle[0] - side / 2, 0), width - side))
    top = int(min(max(middle[1] - side / 2, 0), height - side))
    cross = (
        f'<path class="cross" d="M{side / 3:.1f} 0V{side}M{2 * side / 3:.1f} 0V{side}'
        f'M0 {side / 3:.1f}H{side}M0 {2 * side / 3:.1f}H{side}" stroke-width=".5"/>'
    )
    made = []
    for name, image in (("sharp", sharp), ("blurred", blurred)):
        uri = jpeg_uri(image[top : top + side, left : left + side])
        made.append(f"<div>{over_picture(uri, (side, side), cross, name)}</div>")
    return f'<div class="crops">{"".join(made)}</div>'


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float], str]],
    label: str,
    unit: str,
    *,
    low: float | None = None,
    across: Sequence[float] | None = None,
) -> str:
    """Lines over a common axis: each of (x, y, class). `low`: where the upright axis begins; `across`: ticks of x."""
    xs = np.concatenate([np.asarray(x, float) for x, _, _ in series.values()])
    ys = np.concatenate([np.asarray(y, float) for _, y, _ in series.values()])
    ys = ys[np.isfinite(ys)]
    if not ys.size:
        return '<p class="none">nothing to show</p>'
    bottom, top = float(ys.min()) if low is None else low, float(ys.max())
    if top - bottom < 0.01:  # one value: not the steps of its rounding
        bottom, top = bottom if low is not None else bottom - 0.5, top + 0.5
    up = even_ticks(bottom, top, 3)
    bottom, top = up[0], up[-1]
    ticks = even_ticks(float(xs.min()), float(xs.max()), 5) if across is None else across
    begin, end = ticks[0], ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (y - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    base = HEIGHT - BOTTOM
    parts = []
    for value in up:
        at = place(begin, value)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{at + 3.5:.1f}">{value:.6g}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    for value in ticks:
        parts.append(f'<text class="tick" x="{place(value, bottom)[0]:.1f}" y="{base + 16}">{value:.6g}</text>')
    for name, (x, y, kind) in series.items():
        points = [place(float(a), float(b)) for a, b in zip(x, y, strict=True) if np.isfinite(b)]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline class="line {kind}" points="{line}"><title>{html.escape(name)}</title></polyline>')
    middle = (LEFT + WIDTH - RIGHT) / 2.0
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 4}">{html.escape(label)}</text>')
    parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{TOP - 12}">{html.escape(unit)}</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'
    )


def colour_histograms(sharp: Float[np.ndarray, "h w 3"], blurred: Float[np.ndarray, "h w 3"]) -> str:
    """Red, green and blue of both pictures: full lines sharp, broken ones blurred."""
    series: dict[str, tuple[Sequence[float], Sequence[float], str]] = {}
    for name, image, style in (("sharp", sharp, ""), ("blurred", blurred, " broken")):
        for c, colour in enumerate(("red", "green", "blue")):
            counts = np.histogram(image[..., c], 64, (0.0, 1.0))[0] / image[..., c].size
            x = (np.arange(64) + 0.5) * 255.0 / 64
            series[f"{name}, {colour}"] = (list(x), list(100.0 * counts), colour + style)
    return curves(series, "display value", "%", low=0.0, across=(0, 64, 128, 192, 255))
