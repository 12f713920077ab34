"""How the light and colour of a blurred photograph differ from those of the sharp one of the same scene.

Changing the aperture changes the exposure, the fall-off of light towards the corners, and through both the colours that
a camera chooses. Blur keeps the light of a neighbourhood, so means over cells that are larger than the blur can be
compared, in linear light, after the sharp picture was laid on the blurred one:

    blurred ≈ 2^(corner · r²) · (M · sharp + offset)          r: distance from the middle, 1 at the corners

fitted with weights that fall off for cells that do not follow (moved things, blur across an edge), without cells that
touch black or white. Distances of histograms (earth mover's, in levels of 0..255) are those that a person would see: of
display values as they are, and of the cells alone, where blur has no part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DefocusError
from ..srgb import from_srgb, to_srgb

LUMINANCE = (0.2126, 0.7152, 0.0722)  # of linear sRGB
CLIPPED = (0.001, 0.98)  # linear light beyond which a pixel tells nothing
FEWEST = 12  # cells


@dataclass(frozen=True)
class Photometry:
    """The light of the blurred picture against that of the sharp one."""

    exposure_ev: float  # stops; positive: the blurred one is brighter
    gains: tuple[float, float, float]  # of each colour alone
    corner_ev: float  # what the corners gained against the middle
    matrix: Float[np.ndarray, "3 3"]
    offset: Float[np.ndarray, "3"]
    before: float  # root mean square difference of cells, in levels of 255
    after: float  # of what the fit leaves

    def applied(self, linear: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w 3"]:
        """The sharp picture in the light and colours of the blurred one; linear, not clipped."""
        height, width = linear.shape[:2]
        fall = np.exp2(self.corner_ev * _radius2(height, width)).astype(np.float32)
        return ((linear @ self.matrix.T.astype(np.float32)) + self.offset.astype(np.float32)) * fall[..., None]

    def exposed(self, linear: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w 3"]:
        """The sharp picture in the exposure of the blurred one."""
        return linear * np.float32(2.0**self.exposure_ev)


def to_linear(display: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Linear light of sRGB values, cut to 0..1."""
    return from_srgb(np.clip(np.asarray(display, np.float32), 0.0, 1.0)).astype(np.float32)


def to_display(linear: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """sRGB values of linear light, cut to 0..1."""
    return to_srgb(np.clip(np.asarray(linear, np.float32), 0.0, 1.0)).astype(np.float32)


def grey_of(linear: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w"]:
    """Luminance of linear sRGB."""
    return linear @ np.array(LUMINANCE, np.float32)


def match_light(
    sharp: Float[np.ndarray, "h w 3"],
    blurred: Float[np.ndarray, "h w 3"],
    usable: Bool[np.ndarray, "h w"] | None = None,
    *,
    cell_px: int = 32,
) -> Photometry | None:
    """The light of two linear pictures, the sharp one already where its content lies in the blurred one; None where too
    few cells can be compared."""
    if sharp.shape != blurred.shape:
        raise DefocusError(f"pictures of shapes {sharp.shape} and {blurred.shape}; expected the same")
    height, width = sharp.shape[:2]
    cell = max(4, min(cell_px, min(height, width) // 4))
    a, b = cell_means(sharp, cell), cell_means(blurred, cell)
    good = np.ones((height, width), bool) if usable is None else usable
    for one in (sharp, blurred):
        good = good & np.all((one > CLIPPED[0]) & (one < CLIPPED[1]), axis=-1)
    share = cell_means(good.astype(np.float32), cell)
    good_cells = share > 0.97
    if good_cells.sum() < FEWEST:
        return None
    radius2 = cell_means(_radius2(height, width), cell)
    s, t, r2 = (values[good_cells] for values in (a, b, radius2))
    light = np.array(LUMINANCE)
    # Stops, from the ratios of luminances; bright cells count more, as their noise is less.
    dark, bright = s @ light, t @ light
    exposure, corner = _robust_fit(np.stack([np.ones_like(r2), r2], axis=-1), np.log2(bright / dark), np.sqrt(dark))
    flat = t * np.exp2(-corner * r2)[:, None]
    noise = np.sqrt(s)
    gains = [_robust_fit(noise[:, c, None], flat[:, c] / noise[:, c])[0] for c in range(3)]
    matrix, offset = _affine(s, flat, np.diag(gains))
    fitted = (s @ matrix.T + offset) * np.exp2(corner * r2)[:, None]
    return Photometry(
        exposure, (gains[0], gains[1], gains[2]), corner, matrix, offset, _levels(s, t), _levels(fitted, t)
    )


def cell_means(image: Float[np.ndarray, "h w *c"], cell: int) -> Float[np.ndarray, "rows cols *c"]:
    """Means of whole cells of so many pixels; none of a picture that is smaller than a cell."""
    rows, cols = image.shape[0] // cell, image.shape[1] // cell
    part = image[: rows * cell, : cols * cell]
    return part.reshape(rows, cell, cols, cell, *image.shape[2:]).mean((1, 3), dtype=np.float64)


def histogram_distance(a: Float[np.ndarray, "h w 3"], b: Float[np.ndarray, "h2 w2 3"]) -> tuple[float, float, float]:
    """Earth mover's distance of the display values 0..1 of each colour, in levels of 255."""
    distances = []
    for c in range(3):
        sums = [np.cumsum(np.histogram(one[..., c], 256, (0.0, 1.0))[0] / one[..., c].size) for one in (a, b)]
        distances.append(float(np.abs(sums[0] - sums[1]).sum() * 255.0 / 256))
    return distances[0], distances[1], distances[2]


def _radius2(height: int, width: int) -> Float[np.ndarray, "h w"]:
    y, x = np.meshgrid(np.linspace(-1.0, 1.0, height), np.linspace(-1.0, 1.0, width), indexing="ij")
    aspect = height / width
    return (x**2 + (aspect * y) ** 2) / (1.0 + aspect**2)


def _robust(residual: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Weights that fall off beyond a few times the usual (Tukey's)."""
    width = max(4.685 * 1.4826 * float(np.median(np.abs(residual))), 1e-6)
    return np.square(np.maximum(1.0 - np.square(residual / width), 0.0))


def _robust_fit(
    design: Float[np.ndarray, "n unknowns"], target: Float[np.ndarray, "n"], base: Float[np.ndarray, "n"] | float = 1.0
) -> list[float]:
    """What brings the design nearest to the target, by squares weighted with `base`, less for outliers; from the median
    of their ratio in the first unknown."""
    solution = np.zeros(design.shape[1])
    solution[0] = np.median(target / design[:, 0])
    for _ in range(15):
        root = np.sqrt(base * _robust(target - design @ solution))
        solution = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
    return [float(value) for value in solution]


def _affine(
    s: Float[np.ndarray, "n 3"], t: Float[np.ndarray, "n 3"], start: Float[np.ndarray, "3 3"]
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]]:
    """What a matrix and an offset add to the gains. Where the scene's colours do not tell them, they add nothing."""
    design = np.concatenate([s, np.full((len(s), 1), float(s.mean()))], axis=1)
    change = np.zeros((4, 3))
    for _ in range(15):
        rest = t - s @ start.T - design @ change
        weight = _robust(np.linalg.norm(rest, axis=1) / np.sqrt(s.mean(axis=1))) / s.mean(axis=1)
        normal = design.T @ (weight[:, None] * design)
        normal += np.eye(4) * 1e-4 * np.trace(normal) / 4.0
        change = np.linalg.solve(normal, design.T @ (weight[:, None] * (t - s @ start.T)))
    return start + change[:3].T, change[3] * float(s.mean())


def _levels(a: Float[np.ndarray, "n 3"], b: Float[np.ndarray, "n 3"]) -> float:
    return float(255.0 * np.sqrt(np.square(to_display(a) - to_display(b)).mean()))
