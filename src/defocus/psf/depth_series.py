"""Wavefronts of many depths from those of a few: a photograph asks for one point of the field at dozens of depths.

Along one chief ray, phase, amplitude and rim are smooth functions of the inverse depth. They are traced at Chebyshev's
nodes over the depths that are asked for, and taken from the polynomial through them (`NODES` of them, in place of a
trace for each depth). Its last coefficients tell how far off it is; where they are too large, because the light is cut
elsewhere or the reference sphere changes on the way, every depth is traced as it would be without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.polynomial import chebyshev as polynomials

from ..optics.batch import over_lenses
from ..optics.wavefront import TABLE
from ..stored_program import StoredProgram
from .bands import Bands
from .poses import Requests
from .pupil_function import PupilFunction
from .ray_density import ray_extent
from .wavefronts import FindWavefront, WavefrontBlock, Wavefronts, wavefront_blocks, wavefront_on_sphere

NODES = 6  # depths that are traced
SERIES_AT_ONCE = 64
LAST_PHASE = 0.1  # waves RMS over the pupil: the larger of the last two coefficients of the phase
RINGS, RIM_STEP = 8, 32  # where that is looked at
LAST_SHAPE = 2e-3  # likewise of the rim and of the amplitude, over their largest values
BLOCK_ROWS = 32  # blocks have this many rows times a power of two


def series_blocks(
    requests: Requests, bands: Bands, find: FindWavefront = wavefront_on_sphere
) -> Iterator[WavefrontBlock]:
    """The wavefronts of all requests, like `wavefront_blocks`; requests that differ in depth alone share their rays."""
    leaves = jax.tree.leaves(eqx.tree_at(lambda p: p.depth, requests.points, np.zeros(len(requests))))
    series: dict[tuple[Any, ...], list[int]] = {}
    for row in range(len(requests)):
        series.setdefault((int(requests.lens[row]), *(str(leaf[row]) for leaf in leaves)), []).append(row)
    long = [rows for rows in series.values() if len(rows) > NODES]
    others = [row for rows in series.values() if len(rows) <= NODES for row in rows]
    for start in range(0, len(long), SERIES_AT_ONCE):
        part = long[start : start + SERIES_AT_ONCE]
        block, smooth = _interpolated(requests, part, bands, find)
        others += [row for rows, fine in zip(part, smooth, strict=True) if not fine for row in rows]
        if block.rows:
            yield block
    if others:
        for block in wavefront_blocks(_some(requests, others), bands, find):
            yield replace(block, rows=[others[row] for row in block.rows])


def _some(requests: Requests, rows: Sequence[int] | Int[np.ndarray, " rows"]) -> Requests:
    return Requests(requests.lenses, requests.lens[np.asarray(rows)], requests.points.take(rows))


def _interpolated(
    requests: Requests, series: list[list[int]], bands: Bands, find: FindWavefront
) -> tuple[WavefrontBlock, Bool[np.ndarray, " series"]]:
    """A block of the series whose polynomials are good enough, and which those are."""
    theta = np.pi * (np.arange(NODES) + 0.5) / NODES
    inverse = [1.0 / requests.points.depth[rows] for rows in series]
    middle = np.array([(v.max() + v.min()) / 2.0 for v in inverse])
    half = np.array([max((v.max() - v.min()) / 2.0, 1e-12) for v in inverse])
    traced = _some(requests, np.repeat([rows[0] for rows in series], NODES))
    depth = 1.0 / (middle[:, None] + half[:, None] * np.cos(theta)).ravel()
    traced = eqx.tree_at(lambda r: r.points.depth, traced, depth)
    (block,) = wavefront_blocks(traced, bands, find)
    places = np.asarray(block.places)[np.argsort(block.rows)].reshape(len(series), NODES)
    nodes = eqx.tree_at(lambda w: w.pupil, block.arrays, _on_one_rectangle(block, places))
    smooth = _is_smooth(nodes, places, block.waves, theta)

    rows = [row for own, fine in zip(series, smooth, strict=True) if fine for row in own]
    number = [k for k, (own, fine) in enumerate(zip(series, smooth, strict=True)) if fine for _ in own]
    padding = [0] * (BLOCK_ROWS * (1 << max((len(rows) - 1) // BLOCK_ROWS, 0).bit_length()) - len(rows))
    which = np.array(number + padding, int)
    depths = requests.points.depth[np.array(rows + [series[0][0]] * len(padding), int)]
    at = np.arccos(np.clip((1.0 / depths - middle[which]) / half[which], -1.0, 1.0))
    # Σ over k of T_k(x) T_k(x_j): what each node counts at x.
    order = np.arange(1, NODES)
    weights = (1.0 + 2.0 * np.cos(at[:, None] * order) @ np.cos(order[:, None] * theta)) / NODES
    arrays = _at_depths(nodes, places[which], weights, depths)
    return WavefrontBlock(rows, list(range(len(rows))), block.waves, arrays), smooth


def _on_one_rectangle(block: WavefrontBlock, places: Int[np.ndarray, "series nodes"]) -> PupilFunction:
    """The pupils on the host, each series' polynomials on the one rectangle that holds all of its pupils.

    A pupil's own rectangle follows the outermost of the rays that were traced, which is no smooth function of depth.
    """
    pupil: PupilFunction = jax.tree.map(np.array, jax.device_get(block.arrays.pupil))
    at = places[:, :, None], np.arange(block.waves)
    centre, half = pupil.centre[at], pupil.half[at]  # [series, nodes, waves, 2]
    low, high = (centre - half).min(1, keepdims=True), (centre + half).max(1, keepdims=True)
    pupil.centre[at], pupil.half[at] = (low + high) / 2.0, (high - low) / 2.0
    shift, ratio = (pupil.centre[at] - centre) / half, pupil.half[at] / half
    for coefficients in (pupil.phase, pupil.amplitude):
        orders = coefficients.shape[-1]
        t = np.cos(np.pi * (np.arange(orders) + 0.5) / orders)
        there = polynomials.chebvander(shift[..., None] + ratio[..., None] * t, orders - 1)
        change = np.linalg.inv(polynomials.chebvander(t, orders - 1)) @ there
        coefficients[at] = change[..., 1, :, :] @ coefficients[at] @ np.swapaxes(change[..., 0, :, :], -1, -2)
    return pupil


def _is_smooth(
    nodes: Wavefronts, places: Int[np.ndarray, "series nodes"], waves: int, theta: Float[np.ndarray, " nodes"]
) -> Bool[np.ndarray, " series"]:
    """Whether light arrives from all nodes, and the last coefficients are small."""
    last = 2.0 / NODES * np.cos(np.arange(NODES - 2, NODES)[:, None] * theta)

    def of_series(leaf: Array) -> np.ndarray:
        return np.asarray(leaf)[:, :waves][places]

    def last_coefficients(leaf: Array) -> np.ndarray:
        return np.tensordot(of_series(leaf), last, (1, 1))  # [series, waves, …, 2]

    # The phase counts where light passes: beside a narrow pupil its polynomial is any.
    across, along = (of_series(nodes.pupil.rim)[:, 0, :, None, ::RIM_STEP] * turn for turn in _pupil_places())
    (m_x, m_y), middle, half, (c_x, c_y) = (
        np.moveaxis(of_series(leaf)[:, 0], -1, 0)[..., None, None]
        for leaf in (nodes.pupil.meridian, nodes.pupil.centre, nodes.pupil.half, nodes.pupil.pupil_centre)
    )
    x = (along * m_x + across * m_y + c_x - middle[0]) / half[0]
    y = (along * m_y - across * m_x + c_y - middle[1]) / half[1]
    orders = nodes.pupil.phase.shape[-1] - 1
    terms = polynomials.chebvander(y, orders), polynomials.chebvander(x, orders)
    phase = np.einsum("swrpi,swijk,swrpj->swrpk", terms[0], last_coefficients(nodes.pupil.phase), terms[1])
    smooth = of_series(nodes.wavefront.found).all((1, 2))
    smooth &= phase.std((2, 3)).max((1, 2)) <= LAST_PHASE
    for shape in (nodes.pupil.rim, nodes.wavefront.amplitude):
        largest = np.abs(of_series(shape)).max((1, 2, 3))
        smooth &= np.abs(last_coefficients(shape)).max((1, 2, 3)) <= LAST_SHAPE * largest
    return smooth


def _pupil_places() -> tuple[Float[np.ndarray, "rings angles"], Float[np.ndarray, "rings angles"]]:
    """Places in a pupil, across and along its meridian, in parts of the rim's radius in their directions."""
    ring = np.sqrt((np.arange(RINGS) + 0.5) / RINGS)[:, None]
    psi = np.linspace(-np.pi, np.pi, TABLE + 1)[::RIM_STEP]
    return ring * np.sin(psi), ring * np.cos(psi)


@StoredProgram
def _at_depths(
    nodes: Wavefronts,
    places: Int[Array, "requests nodes"],
    weights: Float[Array, "requests nodes"],
    depth: Float[Array, " requests"],
) -> Wavefronts:
    """Wavefronts between the nodes; `depth` in mm."""

    def one(places: Int[Array, " nodes"], weights: Float[Array, " nodes"], depth: Float[Array, ""]) -> Wavefronts:
        def between(leaf: Array) -> Array:
            own = leaf[places]
            return jnp.all(own, axis=0) if own.dtype == bool else jnp.tensordot(weights, own, 1)

        pose = jax.tree.map(lambda leaf: leaf[places[0]], nodes.pose)
        wavefront, pupil = jax.tree.map(between, (nodes.wavefront, nodes.pupil))
        blur, core = over_lenses(ray_extent, pupil)  # no smooth functions of depth: both are least at the focus
        wavefront = eqx.tree_at(lambda w: (w.blur, w.core), wavefront, (blur, core))
        return Wavefronts.of_point(pose, depth, wavefront, pupil)

    return over_lenses(one, places, weights, depth)
