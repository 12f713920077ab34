"""The optical transfer function as the overlap of a pupil with itself.

For a spatial frequency ν (1/mm) and s the direction cosines of the light,

    OTF(ν) = ∬ P(s + λν/2) P*(s − λν/2) ds / ∬ |P(s)|² ds,        P = A exp(2πi W / λ)

which needs no PSF, no window and no pixel. Only the difference of the two phases oscillates, as often as the blur is
wide in periods of the pattern, so that a few dozen points across the pupil do. They lie on chords along the shift: cut
by half a shift at either end these are the overlap, and Gauss' rule on each and over them knows no jagged rim. The rim
may have any shape that no chord leaves and enters again. The number of points is doubled until nothing changes any
more. Along a chord, phases are polynomials of degree 15 and products of two amplitudes of degree 16: both are evaluated
at 17 points of it, which one matrix takes to any number.

A sensor dz farther away adds dz s_z − dz² s_z² / 2R to W, and light from a sphere of radius R spreads by 1 − s_z dz/R
(the terms that `optics.wavefront` drops, at x = 0).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from ..errors import TraceError
from ..optics.batch import over_lenses
from ..optics.wavefront import AMPLITUDE_DEGREE, DEGREE, TABLE, Wavefront
from ..optics.zernike import chebyshev
from ..psf.pupil_function import PupilFunction
from ..stored_program import StoredProgram

SAGITTAL, TANGENTIAL = 0, 1  # the pattern's lines lie along the radius, or across it: its frequency across, or along
POINTS = (24, 48, 96, 192, 384, 768)  # on a chord, and chords: as many as convergence asks for
TOLERANCE = 6e-4  # of the OTF, between so many points and half as many
AT_ONCE = 2048  # overlaps of one program
PUPILS = 64  # of one program
NODES = max(DEGREE, 2 * AMPLITUDE_DEGREE) + 1  # on a chord, at which polynomials are evaluated


class Strips(eqx.Module):
    """Pupils cut into chords along v, one beside the other along u, both in direction cosines."""

    phase: Float[Any, "pupils orders orders"]  # Chebyshev coefficients of W in waves, v first
    amplitude: Float[Any, "pupils amplitude_orders amplitude_orders"]
    centre: Float[Any, "pupils 2"]  # v, u
    half: Float[Any, "pupils 2"]
    wavelength: Float[Any, " pupils"]  # mm
    bend: Float[Any, " pupils"]  # 1/mm
    u: Float[Any, "pupils chords"]
    weight: Float[Any, "pupils chords"]  # du
    low: Float[Any, "pupils chords"]  # ends of the chords
    high: Float[Any, "pupils chords"]


def cut_strips(
    pupil: PupilFunction, bend: Float[np.ndarray, " rows"], along: Int[np.ndarray, " rows"], chords: int
) -> Strips:
    """Pupils of a point above the centre, each cut along x (`along` 0: sagittal) or y (1: tangential); numpy leaves."""
    turn = np.linspace(-np.pi, np.pi, TABLE + 1)
    rim = np.stack([pupil.rim * np.sin(turn), pupil.rim * np.cos(turn)]) + pupil.pupil_centre.T[:, :, None]
    rows = np.arange(len(along))
    v, u = rim[along, rows], rim[1 - along, rows]
    first, last = u.min(axis=1), u.max(axis=1)
    # Chords shrink like a root towards the sides: u = sin θ, and Gauss' rule in θ.
    node, share = _gauss_rule(chords)
    theta = node * np.pi / 2.0
    middle, radius = (first + last)[:, None] / 2.0, (last - first)[:, None] / 2.0
    at = middle + radius * np.sin(theta)
    low, high = np.stack([chord_ends(*row) for row in zip(u, v, at, strict=True)], axis=1)
    swap = along[:, None, None] == SAGITTAL
    order = np.stack([along, 1 - along], axis=1)
    return Strips(
        phase=np.where(swap, pupil.phase.swapaxes(1, 2), pupil.phase),
        amplitude=np.where(swap, pupil.amplitude.swapaxes(1, 2), pupil.amplitude),
        centre=np.take_along_axis(pupil.centre, order, axis=1),
        half=np.take_along_axis(pupil.half, order, axis=1),
        wavelength=pupil.wavelength,
        bend=bend,
        u=at,
        weight=share * np.pi / 2.0 * np.cos(theta) * radius,
        low=low,
        high=high,
    )


@cache
def _gauss_rule(count: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Nodes and weights of Gauss' rule on [−1, 1], by Newton's method: numpy's eigenvalues take a second for 384."""
    node = np.cos(np.pi * (np.arange(count, 0, -1) - 0.25) / (count + 0.5))
    for _ in range(4):
        before, value = np.ones(count), node
        for degree in range(2, count + 1):
            before, value = value, ((2 * degree - 1) * node * value - (degree - 1) * before) / degree
        slope = count * (before - node * value) / (1.0 - node**2)
        node = node - value / slope
    return node, 2.0 / ((1.0 - node**2) * slope**2)


def chord_ends(
    u: Float[np.ndarray, " table"], v: Float[np.ndarray, " table"], at: Float[np.ndarray, " chords"]
) -> tuple[Float[np.ndarray, " chords"], Float[np.ndarray, " chords"]]:
    """Least and largest v where chords at u = `at` cross a closed rim."""
    u, v = (np.roll(side[:-1], -np.argmin(u[:-1])) for side in (u, v))  # the last point is the first
    turn = int(np.argmax(u))
    crossings = []
    for way in (slice(None, turn + 1), np.r_[0, len(u) - 1 : turn - 1 : -1]):  # from the least u to the largest
        first = np.maximum.accumulate(u[way])
        last = np.minimum.accumulate(u[way][::-1])[::-1]  # another one where the rim is dented
        crossings += [np.interp(at, first, v[way]), np.interp(at, last, v[way])]
    return np.min(crossings, axis=0), np.max(crossings, axis=0)


def _overlap(strips: Strips, frequency: Float[Array, ""], dz: Float[Array, ""]) -> Complex[Array, ""]:
    """∬ P(s + λν/2) P*(s − λν/2) ds of one pupil, for a frequency along v (1/mm) and a sensor dz (mm) farther away."""
    chords = strips.u.shape[0]
    points, share = _gauss_rule(chords)
    node, to_points = _interpolation(points)
    spread = 1.0 - jnp.sqrt(1.0 - jnp.sum(strips.centre**2)) * dz * strips.bend
    shear = strips.wavelength * frequency / spread
    length = jnp.maximum(strips.high - strips.low - shear, 0.0)
    v = (strips.high + strips.low) / 2.0 + length / 2.0 * node[:, None]  # [node, chord]
    across = (strips.u - strips.centre[1]) / strips.half[1]

    def light(v: Float[Array, "nodes chords"]) -> tuple[Array, Array]:
        """Amplitude, and phase in waves."""
        place = (v - strips.centre[0]) / strips.half[0]
        amplitude, phase = (
            _polynomials(c @ chebyshev(across, c.shape[0] - 1).T, place) for c in (strips.amplitude, strips.phase)
        )
        s_z = jnp.sqrt(jnp.maximum(1.0 - strips.u**2 - v**2, 0.0))
        return amplitude, phase + (s_z - s_z**2 * dz * strips.bend / 2.0) * dz / strips.wavelength

    (a, w), (b, other) = light(v + shear / 2.0), light(v - shear / 2.0)
    strength, waves = (
        jnp.matmul(to_points, values.astype(jnp.float32), precision="highest")
        for values in (a * b * strips.weight * length / 2.0, w - other)
    )
    angle = 2.0 * jnp.pi * (waves - jnp.round(waves))
    sums = (share @ jnp.sum(strength * part(angle), axis=1, dtype=float) for part in (jnp.cos, jnp.sin))
    return jax.lax.complex(*sums)


def _interpolation(
    points: Float[np.ndarray, " points"],
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, "points nodes"]]:
    """Chebyshev's nodes on [−1, 1], and what takes a polynomial's values there to its values at `points`."""
    node = np.polynomial.chebyshev.chebpts1(NODES)
    values, basis = (np.polynomial.chebyshev.chebvander(at, NODES - 1) for at in (points, node))
    return node, (values @ np.linalg.inv(basis)).astype(np.float32)


def _polynomials(
    coefficients: Float[Array, "orders chords"], t: Float[Array, "points chords"]
) -> Float[Array, "points chords"]:
    """Σ c_j T_j(t), each column with its own coefficients, by Clenshaw's recurrence."""
    last = later = jnp.zeros_like(t)
    for c in coefficients[:0:-1]:
        last, later = c + 2.0 * t * last - later, last
    return coefficients[0] + t * last - later


def _overlaps(
    strips: Strips,
    pupil: Int[Array, " batch"],
    frequency: Float[Array, " batch"],
    dz: Float[Array, " batch"],
    count: Int[Array, ""],
) -> Complex[Array, " batch"]:
    def one(pupil: Int[Array, ""], frequency: Float[Array, ""], dz: Float[Array, ""]) -> Complex[Array, ""]:
        return _overlap(jax.tree.map(lambda leaf: leaf[pupil], strips), frequency, dz)

    return over_lenses(one, pupil, frequency, dz, count=count)


_PROGRAM = StoredProgram(_overlaps)


def transfer(
    pupil: PupilFunction,
    wavefront: Wavefront,
    row: Int[np.ndarray, " requests"],
    along: Int[np.ndarray, " requests"],
    frequency: Float[np.ndarray, " requests"],
    dz: Float[np.ndarray, " requests"],
) -> Complex[np.ndarray, " requests"]:
    """The OTF about the window's centre at frequencies (1/mm) along x or y (`along`), of pupils and wavefronts `row`.

    Raises `TraceError` where not even the most points suffice.
    """
    # The phases' difference goes through as many waves as periods fit the rays' extent: three points for each.
    slant = np.linalg.norm(pupil.half, axis=1)[row]
    extent = np.ptp(wavefront.blur, axis=2)[row, along] + 2.0 * slant * np.abs(dz)
    start = np.searchsorted(POINTS[:-3], 16.0 + 3.0 * extent * frequency)
    answer = np.full(len(row), np.nan + 0j)
    numbers, before = np.arange(0), np.zeros(0, complex)  # requests that are under way, and their values
    for level, points in enumerate(POINTS):
        fresh = np.flatnonzero(start == level)
        every = np.concatenate([numbers, fresh])
        after = _ratios(
            pupil, np.asarray(wavefront.bend), row[every], along[every], frequency[every], dz[every], points
        )
        before = np.concatenate([before, np.full(len(fresh), np.inf)])
        settled = np.abs(after - before) < TOLERANCE
        answer[every[settled]] = after[settled]
        numbers, before = every[~settled], after[~settled]
    if len(numbers):
        raise TraceError(
            f"the OTF at {frequency[numbers[0]]:g} lp/mm does not converge with {POINTS[-1]} points on a chord: the "
            "lens is too much out of focus for it; ask for lower frequencies"
        )
    return answer


def _ratios(
    pupil: PupilFunction,
    bend: Float[np.ndarray, " rows"],
    row: Int[np.ndarray, " requests"],
    along: Int[np.ndarray, " requests"],
    frequency: Float[np.ndarray, " requests"],
    dz: Float[np.ndarray, " requests"],
    points: int,
) -> Complex[np.ndarray, " requests"]:
    """Overlaps over those at frequency 0, with so many points on so many chords."""
    values = np.zeros(len(row), complex)
    if not len(row):
        return values
    whole = np.ones(len(row))
    keys, which = np.unique(np.stack([row, along]), axis=1, return_inverse=True)
    for start in range(0, keys.shape[1], PUPILS):
        rows, axes = keys[:, start : start + PUPILS]
        strips = cut_strips(jax.tree.map(lambda leaf, at=rows: leaf[at], pupil), bend[rows], axes, points)
        strips = jax.tree.map(lambda leaf: np.resize(leaf, (PUPILS, *leaf.shape[1:])), strips)
        mine = np.flatnonzero((which >= start) & (which < start + PUPILS))
        own = which[mine] - start
        number = np.arange(len(rows))
        zero = np.zeros(len(rows))
        at, at_frequency, at_dz = (
            np.concatenate(pair) for pair in ((number, own), (zero, frequency[mine]), (zero, dz[mine]))
        )
        parts = []
        for first in range(0, len(at), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            columns = [np.pad(c[part], (0, max(0, AT_ONCE - len(c[part])))) for c in (at, at_frequency, at_dz)]
            count = len(at[part])
            parts.append(np.asarray(_PROGRAM(strips, *columns, np.asarray(count)))[:count])
        every = np.concatenate(parts)
        values[mine], whole[mine] = every[len(rows) :], every[: len(rows)].real[own]
    return values / whole
