"""Large blurs from their rays: the density of the rays on the sensor, with the diffraction of the pupil's edge.

Far from the focus and on pixels much wider than an Airy disc, a PSF is what the rays of its wavefront bring: the light
of the pupil's cell at s lands at λ ∇W(s), on the area that its second derivatives say. That alone is off by 4 % in
relative L1, for the edge of a blur is no step: it is that of light which passed a straight edge, with its fringes and
its light in the shadow. Across the rim the wavefront is a parabola; in Fresnel's units

    ξ = √(2κ) · (distance to the rim), κ the second derivative of W (waves) along the rim's normal,

a cell at ξ shines with ½ [(½ + C(ξ))² + (½ + S(ξ))²], its mean over the cell; cells in the shadow beyond the rim shine,
too. Work is that of the rays, thousands of times fewer than light waves: see `docs/psf.md` for how far it holds.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..optics.batch import over_lenses
from ..optics.wavefront import AMPLITUDE_DEGREE, DEGREE
from .propagate import Intensity
from .pupil_function import PupilFunction, grid_axis, rim_of

BEYOND = 0.15  # of the pupil's half width: how far beyond it cells shine
SHADOW = -4.0  # in Fresnel's units: darkness from here on
FARTHEST = 12.0  # where fringes end
STEPS = 4096  # of the table over ± FARTHEST
CELLS_PER_PIXEL = 10.0  # of blur radius, across the pupil
CELL_BUCKETS = {"cpu": (256, 384, 512, 768, 1024, 1536, 2048), "gpu": (512, 1024, 2048)}
LIGHT_UNIT = 2.0**-40  # light is added up in whole parts of all of it, so that the order does not matter


@lru_cache
def _fresnel_light() -> Float[np.ndarray, " steps"]:
    """∫ of the light behind a straight edge, from −FARTHEST to each step, less ξ above 0."""
    from scipy.special import fresnel

    xi = np.linspace(-FARTHEST, FARTHEST, 64 * STEPS + 1)
    s, c = fresnel(xi)
    light = 0.5 * ((0.5 + c) ** 2 + (0.5 + s) ** 2)
    total = np.concatenate([[0.0], np.cumsum((light[1:] + light[:-1]) / 2.0) * (xi[1] - xi[0])])
    return (total - np.maximum(xi, 0.0))[::64]


def _edge_light(xi: Float[Array, "*cells"], width: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
    """The mean light of cells around ξ of this width (in its units)."""
    table = jnp.asarray(_fresnel_light(), xi.dtype)

    def total(at: Float[Array, "*cells"]) -> Float[Array, "*cells"]:
        place = jnp.clip((at + FARTHEST) * (STEPS / (2.0 * FARTHEST)), 0.0, STEPS)
        lower = jnp.minimum(place.astype(jnp.int32), STEPS - 1)
        return table[lower] + (table[lower + 1] - table[lower]) * (place - lower) + jnp.maximum(at, 0.0)

    return jnp.maximum((total(xi + width / 2.0) - total(xi - width / 2.0)) / width, 0.0)


@lru_cache
def _slopes(samples: int, degree: int, reach: float) -> tuple[np.ndarray, ...]:
    """T, T' and T'' of the Chebyshev polynomials on `samples` cells over ± `reach`."""
    from numpy.polynomial import chebyshev as polynomials

    g = ((np.arange(samples) + 0.5) / samples * 2.0 - 1.0) * reach
    each = np.eye(degree + 1)
    values = [polynomials.chebval(g, polynomials.chebder(each, order)) if order else polynomials.chebval(g, each)
              for order in range(3)]  # fmt: skip
    return tuple(value.T for value in values)


def _evaluate(
    coefficients: Float[Array, "orders orders"], rows: np.ndarray, columns: np.ndarray, dtype: jnp.dtype
) -> Float[Array, "rows columns"]:
    return jnp.matmul(
        jnp.matmul(jnp.asarray(rows, dtype), coefficients.astype(dtype), precision="highest"),
        jnp.asarray(columns, dtype).T,
        precision="highest",
    )


def ray_intensity(
    pupil: PupilFunction, pixel: Float[Array, ""], *, samples: int, size: int, dtype: jnp.dtype = jnp.float32
) -> Intensity:
    """One PSF from `samples` × `samples` cells of the pupil; `pixel` in mm."""
    reach = 1.0 + BEYOND
    g = grid_axis(samples).astype(dtype) * reach
    half = pupil.half.astype(dtype)
    t, slope, bend = _slopes(samples, DEGREE, reach)
    wave = partial(_evaluate, pupil.phase, dtype=dtype)
    w_x, w_y = wave(t, slope) / half[0], wave(slope, t) / half[1]
    w_xx, w_yy = wave(t, bend) / half[0] ** 2, wave(bend, t) / half[1] ** 2
    w_xy = wave(slope, slope) / (half[0] * half[1])
    flat = _slopes(samples, AMPLITUDE_DEGREE, reach)[0]
    strength = _evaluate(pupil.amplitude, flat, flat, dtype) ** 2

    rim = rim_of(pupil, g)
    n_x, n_y = rim.normal_x, rim.normal_y
    cell_x, cell_y = half * (2.0 * reach / samples)
    width = jnp.abs(n_x) * cell_x + jnp.abs(n_y) * cell_y
    fresnel = jnp.sqrt(2.0 * jnp.abs(n_x**2 * w_xx + 2.0 * n_x * n_y * w_xy + n_y**2 * w_yy)) + 1e-6
    shine = jnp.where(rim.inside * fresnel > SHADOW, _edge_light(rim.inside * fresnel, width * fresnel), 0.0)
    mask = jnp.clip(0.5 + rim.inside / width, 0.0, 1.0)
    from_split = ((pupil.centre[0] - pupil.split).astype(dtype) + half[0] * g)[None, :] * pupil.side.astype(dtype)
    across = jnp.sqrt(2.0 * jnp.abs(w_xx)) + 1e-6
    whole = pupil.side == 0.0
    shine *= jnp.where(whole, 1.0, _edge_light(from_split * across, cell_x * across))
    mask *= jnp.where(whole, 1.0, jnp.clip(0.5 + from_split / cell_x, 0.0, 1.0))
    light = strength * shine

    # Where the middle of each cell lands, in pixels, y up, and how wide it is there.
    scale = (pupil.wavelength / pixel).astype(dtype)
    x, y = -scale * w_x, -scale * w_y
    slant = (pupil.bend[0] * pixel).astype(dtype) * x + (pupil.bend[1] * pixel).astype(dtype) * y
    x, y = x * (1.0 + slant), y * (1.0 + slant)
    wide = scale * (jnp.abs(w_xx) * cell_x + jnp.abs(w_xy) * cell_y)
    high = scale * (jnp.abs(w_xy) * cell_x + jnp.abs(w_yy) * cell_y)
    pixels = _spread(light, x + size // 2 + 0.5, size // 2 + 0.5 - y, wide, high, size)

    cell = cell_x.astype(float) * cell_y
    energy = jnp.sum(strength * mask, dtype=jnp.float64)
    amplitude = jnp.sum(jnp.sqrt(strength) * mask, dtype=jnp.float64)
    strehl = jnp.max(pixels) * (pupil.wavelength / pixel) ** 2 * energy / (cell * amplitude**2)
    return Intensity(pixels, jnp.sum(pixels, dtype=jnp.float64), strehl, energy * cell)


def fresnel_number(pupil: PupilFunction, samples: int = 32) -> Float[Array, ""]:
    """How far a pupil is from focusing anywhere: the least curvature of its wavefront in any direction, in waves, over
    half its width; 0 where some of its rays have met and others have not."""
    t, slope, bend = _slopes(samples, DEGREE, 1.0)
    wave = partial(_evaluate, pupil.phase, dtype=jnp.float64)
    a, b = pupil.half / jnp.max(pupil.half)
    xx, xy, yy = wave(t, bend) / a**2, wave(slope, slope) / (a * b), wave(bend, t) / b**2
    inside = rim_of(pupil, grid_axis(samples)).inside > 0.0
    middle, spread = (xx + yy) / 2.0, jnp.sqrt((xx - yy) ** 2 / 4.0 + xy**2)
    low = jnp.min(jnp.where(inside, middle - spread, jnp.inf))
    high = jnp.max(jnp.where(inside, middle + spread, -jnp.inf))
    return jnp.maximum(jnp.maximum(low, -high), 0.0)


def ray_error(pupils: PupilFunction, fringes: Float[Array, "requests waves"]) -> Float[Array, "requests waves"]:
    """About how far the PSFs of rays are off, in relative L1, on pixels that hold so many of the finest `fringes`.

    Light from opposite edges of a pupil with Fresnel number F interferes with a contrast of 1 / √F, and a pixel takes
    the mean over its fringes. Found by comparison with light waves: at most twice this, and half of it mostly.
    """
    number = over_lenses(lambda row: over_lenses(fresnel_number, row), pupils)
    return 1.0 / (jnp.sqrt(number) * fringes)


def _spread(
    light: Float[Array, "rows columns"],
    x: Float[Array, "rows columns"],
    y: Float[Array, "rows columns"],
    wide: Float[Array, "rows columns"],
    high: Float[Array, "rows columns"],
    size: int,
) -> Float[Array, "size size"]:
    """The light on size × size pixels as a part of all; cells are rectangles no larger than a pixel."""
    total = jnp.sum(light, dtype=jnp.float64)

    def parts(middle: Array, width: Array) -> tuple[Int[Array, "*cells"], Float[Array, "*cells"]]:
        """The pixel where a cell begins, counted from a border of one, and the cell's part in it."""
        width = jnp.clip(width, 1e-3, 1.0)
        begin = middle - width / 2.0
        first = jnp.floor(jnp.clip(begin, -1.0, size))
        return first.astype(jnp.int32) + 1, jnp.clip((first + 1.0 - begin) / width, 0.0, 1.0)

    column, left = parts(x, wide)
    row, upper = parts(y, high)
    scaled = light * (1.0 / (total * LIGHT_UNIT)).astype(light.dtype)
    edge = size + 2
    first = row * edge + column
    places = jnp.stack([first, first + 1, first + edge, first + edge + 1])
    shares = jnp.stack([upper * left, upper * (1.0 - left), (1.0 - upper) * left, (1.0 - upper) * (1.0 - left)])
    counts = (
        jnp.zeros(edge * (edge + 1), jnp.int64)
        .at[places.ravel()]
        .add(jnp.round(shares * scaled).astype(jnp.int64).ravel(), mode="drop")
    )
    inner = counts[: edge * edge].reshape(edge, edge)[1:-1, 1:-1]
    return (inner * LIGHT_UNIT).astype(light.dtype)


@partial(jax.jit, static_argnames=("samples", "size", "dtype"))
def ray_intensity_batch(
    pupils: PupilFunction,
    pixel: Float[Array, " batch"],
    count: Int[Array, ""] | int | None = None,
    *,
    samples: int,
    size: int,
    **options: Any,
) -> Intensity:
    """`ray_intensity` over a batch, or on a processor over its first `count`."""
    return over_lenses(
        lambda p, d: ray_intensity(p, d, samples=samples, size=size, **options), pupils, pixel, count=count
    )
