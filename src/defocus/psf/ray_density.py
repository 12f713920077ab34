"""Large blurs from their rays: the density of the rays on the sensor, with the diffraction of the pupil's edge.

Far from the focus and on pixels much wider than an Airy disc, a PSF is what the rays of its wavefront bring: the light
of the pupil's cell at s lands at λ ∇W(s), on the area that its second derivatives say. That alone is off by 4 % in
relative L1, for the edge of a blur is no step: it is that of light which passed a straight edge, with its fringes and
its light in the shadow. Across the rim the wavefront is a parabola; in Fresnel's units

    ξ = √(2κ) · (distance to the rim), κ the second derivative of W (waves) along the rim's normal,

a cell at ξ shines with ½ [(½ + C(ξ))² + (½ + S(ξ))²], its mean over the cell; cells in the shadow beyond the rim shine,
too. Some hundred thousand cells take the place of millions of samples; `docs/validation.md` tells how far that holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..optics.batch import any_lens, over_lenses
from ..optics.wavefront import AMPLITUDE_DEGREE, DEGREE
from ..optics.zernike import chebyshev
from .propagate import Intensity
from .pupil_function import PupilFunction, grid_axis, inside_part, on_grid, rim_of, rim_points

SHADOW = 4.0  # in Fresnel's units: how far beyond the rim the shadow is lit
SHADOW_STEPS = 24
PIECE = 2  # steps of the rim's table that make a piece of its shadow
FARTHEST = 12.0  # where fringes end
STEPS = 4096  # of the table over ± FARTHEST
CELLS_PER_PIXEL = 3.5  # of blur radius, across the pupil: cells are no larger than a pixel
RIM_CELLS = 3000.0  # times the blur radius is the square of their number: the rim's cells leave an error of 0.003
CELL_BUCKETS = {"cpu": (256, 384, 512, 768, 1024, 1536, 2048), "gpu": (512, 1024, 2048)}
ROWS_AT_ONCE = 64  # of cells, on a processor: they stay in its cache
Window = int | Int[Array, ""]  # pixels across
LIGHT_UNIT = 2.0**-40  # of about all light: it is added up in whole parts, so that the order does not matter


@lru_cache
def _fresnel_light() -> Float[np.ndarray, " steps"]:
    """∫ of the light behind a straight edge, from −FARTHEST to each step, less ξ above 0."""
    from scipy.special import fresnel

    xi = np.linspace(-FARTHEST, FARTHEST, 64 * STEPS + 1)
    s, c = fresnel(xi)
    light = 0.5 * ((0.5 + c) ** 2 + (0.5 + s) ** 2)
    total = np.concatenate([[0.0], np.cumsum((light[1:] + light[:-1]) / 2.0) * (xi[1] - xi[0])])
    return (total - np.maximum(xi, 0.0))[::64]


def _edge_light(xi: Float[Array, "*cells"], width: Float[Array, "*#cells"] | float) -> Float[Array, "*cells"]:
    """The mean light of cells around ξ of this width (in its units)."""
    table = jnp.asarray(_fresnel_light(), xi.dtype)

    def total(at: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        place = jnp.clip((at + FARTHEST) * (STEPS / (2.0 * FARTHEST)), 0.0, STEPS)
        lower = jnp.minimum(place.astype(jnp.int32), STEPS - 1)
        return table[lower] + (table[lower + 1] - table[lower]) * (place - lower) + jnp.maximum(at, 0.0)

    return jnp.maximum((total(xi + width / 2.0) - total(xi - width / 2.0)) / width, 0.0)


@lru_cache
def _derivative(degree: int) -> Float[np.ndarray, "orders orders"]:
    """Chebyshev coefficients of the derivative, from those of a polynomial."""
    from numpy.polynomial import chebyshev as polynomials

    columns = polynomials.chebder(np.eye(degree + 1))
    return np.concatenate([columns, np.zeros((1, degree + 1))])


class Landing(eqx.Module):
    """Where rays land on the sensor (pixels, y up), and how that changes with their direction cosines."""

    x: Float[Array, "*cells"]
    y: Float[Array, "*cells"]
    xx: Float[Array, "*cells"]
    xy: Float[Array, "*cells"]
    yy: Float[Array, "*cells"]

    def curvature(self, x: Float[Array, "*cells"], y: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        """The derivative in a direction, along it."""
        return x**2 * self.xx + 2.0 * x * y * self.xy + y**2 * self.yy


def _land(
    pupil: PupilFunction, evaluate: Callable[[Float[Array, "orders orders"]], Float[Array, "*cells"]], pixel: Array
) -> Landing:
    """λ ∇W and its derivatives by `evaluate`, which takes the coefficients of a polynomial."""
    scale = -pupil.wavelength / pixel / pupil.half
    d = jnp.asarray(_derivative(DEGREE))
    c = pupil.phase
    c_x, c_y = c @ d.T, d @ c
    half_x, half_y = pupil.half
    return Landing(
        evaluate(c_x * scale[0]),
        evaluate(c_y * scale[1]),
        evaluate(c_x @ d.T * (scale[0] / half_x)),
        evaluate(d @ c_x * (scale[0] / half_y)),
        evaluate(d @ c_y * (scale[1] / half_y)),
    )


def needed_cells(blur_px: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """Cells across the pupil for a blur of this radius in pixels.

    A cell that the rim cuts is a rectangle on the sensor, too; against 1536 cells, N of them are off by about 10 times
    the radius over N² in relative L1 (canon-rf-85-f1.2, radii of 12 to 45 pixels).
    """
    return np.maximum(CELLS_PER_PIXEL * blur_px, np.sqrt(RIM_CELLS * blur_px))


class Cells(eqx.Module):
    """Cells of the pupil on the sensor: their light, and rectangles no larger than a pixel (pixels, y up)."""

    light: Float[Array, " cells"]
    x: Float[Array, " cells"]
    y: Float[Array, " cells"]
    wide: Float[Array, " cells"]
    high: Float[Array, " cells"]


class RayLight(eqx.Module):
    """What the cells so far have brought: their light on the pixels, and sums over them."""

    counts: Int[Array, "places 4"]  # of a pixel and those to its right, below, and both; with a border of one
    light: Float[Array, ""]  # of all cells, wherever it lands
    energy: Float[Array, ""]  # Σ A² within the rim
    amplitude: Float[Array, ""]  # Σ A

    @staticmethod
    def empty(size: int) -> RayLight:
        """No light on size × size pixels."""
        return RayLight(jnp.zeros(((size + 2) ** 2, 4), jnp.int64), *jnp.zeros(3))

    def with_cells(self, cells: Cells, unit: Float[Array, ""], window: Window) -> RayLight:
        """More light, counted in whole units."""
        edge = math.isqrt(self.counts.shape[0])
        most, centre = (jnp.asarray(v, cells.light.dtype) for v in (window, window // 2 + 0.5))

        def parts(middle: Array, width: Array) -> tuple[Int[Array, " cells"], Float[Array, "cells 2"]]:
            """The pixel where a cell begins, counted from a border of one, and the cell's parts in it and the next."""
            width = jnp.clip(width, 1e-3, 1.0)
            begin = middle - width / 2.0
            first = jnp.floor(jnp.clip(begin, -1.0, most))
            part = jnp.clip((first + 1.0 - begin) / width, 0.0, 1.0)
            return first.astype(jnp.int32) + 1, jnp.stack([part, 1.0 - part], axis=-1)

        column, across = parts(cells.x + centre, cells.wide)
        row, down = parts(centre - cells.y, cells.high)
        scaled = cells.light * (1.0 / unit).astype(cells.light.dtype)
        shares = (down[:, :, None] * across[:, None, :] * scaled[:, None, None]).reshape(-1, 4)
        counts = self.counts.at[row * edge + column].add(jnp.round(shares).astype(jnp.int64), mode="drop")
        return replace(self, counts=counts, light=self.light + jnp.sum(cells.light, dtype=jnp.float64))

    def pixels(self, unit: Float[Array, ""], window: Window) -> Float[Array, "size size"]:
        """The light on each pixel as a part of all; none beyond the window."""
        edge = math.isqrt(self.counts.shape[0])
        own = self.counts.reshape(edge, edge, 4)
        inner = own[1:-1, 1:-1, 0] + own[1:-1, :-2, 1] + own[:-2, 1:-1, 2] + own[:-2, :-2, 3]
        if not isinstance(window, int):
            within = jnp.arange(edge - 2) < window
            inner = jnp.where(within[:, None] & within, inner, 0)
        return inner * (unit / self.light)


class _PupilOnSensor:
    """One pupil, and what its light does on a window of pixels (pitch in mm), cut into `samples` × `samples` cells."""

    def __init__(
        self, pupil: PupilFunction, pixel: Float[Array, ""], window: Window, samples: int, dtype: jnp.dtype
    ) -> None:
        self.pupil, self.pixel, self.window, self.samples, self.dtype = pupil, pixel, window, samples, dtype
        self.columns = grid_axis(samples).astype(dtype)
        self.cell_x, self.cell_y = pupil.half.astype(dtype) * (2.0 / samples)

    def shadow(self) -> tuple[Cells, Float[Array, " pieces"]]:
        """Steps beyond each piece of the rim, as cells, and A² along the rim."""
        pupil, dtype = self.pupil, self.dtype
        points = rim_points(pupil)[:, ::PIECE]
        middle, along = (points[:, 1:] + points[:, :-1]) / 2.0, points[:, 1:] - points[:, :-1]
        length = jnp.hypot(*along)
        n_x, n_y = (v.astype(dtype) for v in jnp.stack([-along[1], along[0]]) / jnp.maximum(length, 1e-12))
        t_x, t_y = (chebyshev(v, DEGREE) for v in (middle - pupil.centre[:, None]) / pupil.half[:, None])
        edge = _land(pupil, lambda c: _at(c, t_x, t_y).astype(dtype), self.pixel)
        units = self._fresnel(edge.curvature(n_x, n_y))
        xi = (jnp.arange(SHADOW_STEPS, dtype=dtype) + 0.5)[:, None] * (SHADOW / SHADOW_STEPS)
        step = SHADOW / SHADOW_STEPS / units
        beyond = xi / units
        towards_x, towards_y = edge.xx * n_x + edge.xy * n_y, edge.xy * n_x + edge.yy * n_y
        bright = _at(pupil.amplitude, *(t[:, : AMPLITUDE_DEGREE + 1] for t in (t_x, t_y))).astype(dtype) ** 2
        area = length.astype(dtype) * step / (self.cell_x * self.cell_y)
        dark = bright * area * _edge_light(-xi, SHADOW / SHADOW_STEPS)
        dark *= self._one_side(middle[0].astype(dtype), edge)
        piece_x, piece_y = (jnp.abs(v).astype(dtype) for v in along)
        cells = self._bent(
            dark,
            edge.x + towards_x * beyond,
            edge.y + towards_y * beyond,
            jnp.abs(towards_x) * step + jnp.abs(edge.xx) * piece_x + jnp.abs(edge.xy) * piece_y,
            jnp.abs(towards_y) * step + jnp.abs(edge.xy) * piece_x + jnp.abs(edge.yy) * piece_y,
        )
        return cells, bright

    def with_rows(self, light: RayLight, rows: Float[Array, " rows"], unit: Float[Array, ""]) -> RayLight:
        """The light with that of some rows of cells: those within the rim, and those that it cuts."""
        pupil, columns, cell_x, cell_y = self.pupil, self.columns, self.cell_x, self.cell_y
        land = _land(pupil, lambda c: on_grid(c, rows, columns, DEGREE), self.pixel)
        amplitude = on_grid(pupil.amplitude, rows, columns, AMPLITUDE_DEGREE)
        rim = rim_of(pupil, rows, columns)
        width = jnp.abs(rim.normal_x) * cell_x + jnp.abs(rim.normal_y) * cell_y
        units = self._fresnel(land.curvature(rim.normal_x, rim.normal_y))
        # A cell that the rim cuts has its part within, whose middle lies deeper.
        within = jnp.maximum(rim.inside, (rim.inside + width / 2.0) / 2.0)
        lit = amplitude**2 * jnp.clip(0.5 + rim.inside / width, 0.0, 1.0)
        lit *= _edge_light(within * units, jnp.minimum(width, 2.0 * within + 1e-9) * units)
        half_x = pupil.half[0].astype(self.dtype)
        lit *= self._one_side((pupil.centre[0].astype(self.dtype) + half_x * columns)[None, :], land)
        wide = jnp.abs(land.xx) * cell_x + jnp.abs(land.xy) * cell_y
        high = jnp.abs(land.xy) * cell_x + jnp.abs(land.yy) * cell_y
        passed = amplitude * inside_part(pupil, rim, columns, self.samples)
        light = light.with_cells(self._bent(lit, land.x, land.y, wide, high), unit, self.window)
        energy, total = (jnp.sum(v, dtype=jnp.float64) for v in (amplitude * passed, passed))
        return replace(light, energy=light.energy + energy, amplitude=light.amplitude + total)

    def _fresnel(self, curvature: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        """Fresnel's units per direction cosine, from a derivative of places."""
        to_waves = (-self.pixel / self.pupil.wavelength).astype(self.dtype)  # to a derivative of W
        return jnp.sqrt(2.0 * jnp.abs(curvature * to_waves)) + 1e-6

    def _one_side(self, x: Float[Array, "*#cells"], land: Landing) -> Float[Array, "*cells"]:
        """The light beside the split of a lens's halves; 1 for a whole lens."""
        units, side = self._fresnel(land.xx), self.pupil.side.astype(self.dtype)
        xi = (x - self.pupil.split.astype(self.dtype)) * side * units
        light = jax.lax.cond(
            any_lens(side != 0.0), lambda: _edge_light(xi, self.cell_x * units), lambda: jnp.ones_like(xi)
        )
        return jnp.where(side == 0.0, 1.0, light)

    def _bent(self, light: Array, x: Array, y: Array, wide: Array, high: Array) -> Cells:
        """Cells where light that comes in at a slant brings them (`propagate.unbend`)."""
        bend = (self.pupil.bend * self.pixel).astype(self.dtype)
        slant = 1.0 + bend[0] * x + bend[1] * y
        values = (light, x * slant, y * slant, wide, high)
        return Cells(*(jnp.broadcast_to(v, x.shape).ravel() for v in values))


def ray_intensity(
    pupil: PupilFunction,
    pixel: Float[Array, ""],
    window: Int[Array, ""] | None = None,
    *,
    samples: int,
    size: int,
    dtype: jnp.dtype = jnp.float32,
) -> Intensity:
    """One PSF from `samples` × `samples` cells of the pupil; `pixel` in mm.

    With a `window` no larger than `size`, a number and not a shape, it fills the first pixels of so many rows and
    columns, and the others are dark: one program serves all windows.
    """
    across = size if window is None else window
    cells = _PupilOnSensor(pupil, pixel, across, samples, dtype)
    shadow, bright = cells.shadow()
    unit = jnp.mean(bright, dtype=jnp.float64) * samples**2 * LIGHT_UNIT
    light = RayLight.empty(size).with_cells(shadow, unit, across)
    rows = cells.columns.reshape(-1, ROWS_AT_ONCE if jax.default_backend() == "cpu" else samples)
    if len(rows) == 1:
        light = cells.with_rows(light, rows[0], unit)
    else:
        light = jax.lax.fori_loop(0, len(rows), lambda k, sum: cells.with_rows(sum, rows[k], unit), light)
    pixels = light.pixels(unit, across).astype(dtype)
    cell = (cells.cell_x * cells.cell_y).astype(jnp.float64)
    strehl = jnp.max(pixels) * (pupil.wavelength / pixel) ** 2 * light.energy / (cell * light.amplitude**2)
    return Intensity(pixels, jnp.sum(pixels, dtype=jnp.float64), strehl, light.energy * cell)


def _at(
    coefficients: Float[Array, "orders orders"], t_x: Float[Array, "points orders"], t_y: Float[Array, "points orders"]
) -> Float[Array, " points"]:
    return jnp.sum(jnp.matmul(t_y, coefficients, precision="highest") * t_x, axis=1)


def fresnel_numbers(pupil: PupilFunction, samples: int = 32) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """How far a pupil is from focusing anywhere: the least and the largest curvature of its wavefront in any direction,
    in waves, over half its width; the least is 0 where some of its rays have met and others have not."""
    g = grid_axis(samples)
    land = _land(pupil, lambda c: on_grid(c, g, g, DEGREE), pupil.wavelength)
    waves = jnp.max(pupil.half) ** 2
    xx, xy, yy = land.xx * waves, land.xy * waves, land.yy * waves
    inside = rim_of(pupil, g, g).inside > 0.0
    middle, spread = (xx + yy) / 2.0, jnp.sqrt((xx - yy) ** 2 / 4.0 + xy**2)
    low = jnp.min(jnp.where(inside, middle - spread, jnp.inf))
    high = jnp.max(jnp.where(inside, middle + spread, -jnp.inf))
    return jnp.maximum(jnp.maximum(low, -high), 0.0), jnp.maximum(high, -low)


def ray_extent(pupil: PupilFunction, samples: int = 48) -> tuple[Float[Array, "2 2"], Float[Array, ""]]:
    """Lowest and highest place of a pupil's rays in x and y, and the radius that holds half of them; mm."""
    g = grid_axis(samples)
    land = _land(pupil, lambda c: on_grid(c, g, g, DEGREE), jnp.ones(()))
    cell = 2.0 * jnp.max(pupil.half) / samples
    inside = rim_of(pupil, g, g).inside > -cell / 2.0  # cells that the rim cuts belong to it
    spread = [[jnp.min(v, where=inside, initial=jnp.inf), jnp.max(v, where=inside, initial=-jnp.inf)]
              for v in (land.x, land.y)]  # fmt: skip
    count = jnp.maximum(jnp.sum(inside), 1)
    mean_x, mean_y = (jnp.sum(v, where=inside) / count for v in (land.x, land.y))
    distance = jnp.where(inside, jnp.hypot(land.x - mean_x, land.y - mean_y), jnp.inf)
    return jnp.asarray(spread), jnp.sort(distance.ravel())[count // 2]


def ray_error(
    pupils: PupilFunction, fringes: Float[Array, "requests waves"], counts: Int[Array, "2"]
) -> Float[Array, "requests waves"]:
    """About how far the PSFs of rays are off, in relative L1, on pixels that hold so many of the finest `fringes`.

    `counts` are the requests and wavelengths that a processor computes; others may be anything.
    Light from opposite edges of a pupil with Fresnel number F interferes with a contrast of 1 / √F, and a pixel takes
    the mean over its fringes. Where the curvature changes much over the pupil, it does so within a fringe of the rim,
    and the parabola there is no longer one. Found by comparison with light waves, which are 0.005 from it at the best.
    """
    least, largest = over_lenses(
        lambda row: over_lenses(fresnel_numbers, row, count=counts[1]), pupils, count=counts[0]
    )
    return jnp.maximum(1.0, largest / least / 2.0) / (jnp.sqrt(least) * fringes)
