"""Zernike polynomials, the half of them that a lens needs, and their exact change to a tensor Chebyshev basis.

A rotationally symmetric lens is mirror symmetric about the meridian of the field, so only R_n^m(ρ) cos(mψ), with ψ
counted from that meridian, occur: 72 of the 136 modes up to n = 15. A polynomial of degree n on a square is fixed by
its values on (n + 1)² Chebyshev nodes; from them follow coefficients c_ij of T_i(u) T_j(v), with which the polynomial
on an N × N grid is two small matrix products.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@lru_cache
def cosine_modes(degree: int) -> tuple[tuple[int, int], ...]:
    """(n, m) of the modes that are even about the meridian, m ≥ 0."""
    return tuple((n, m) for n in range(degree + 1) for m in range(n % 2, n + 1, 2))


@lru_cache
def _radial_table(degree: int) -> Float[np.ndarray, "modes powers"]:
    """Coefficients of (ρ²)^k in R_n^m / ρ^m, normalised to unit RMS on the disk."""
    modes = cosine_modes(degree)
    table = np.zeros((len(modes), degree // 2 + 1))
    for row, (n, m) in enumerate(modes):
        norm = math.sqrt((n + 1) * (1 if m == 0 else 2))
        for k in range((n - m) // 2 + 1):
            top = (-1) ** k * math.factorial(n - k)
            bottom = math.factorial(k) * math.factorial((n + m) // 2 - k) * math.factorial((n - m) // 2 - k)
            table[row, (n - m) // 2 - k] = norm * top / bottom
    return table


def basis(x: Float[Array, "*points"], y: Float[Array, "*points"], degree: int) -> Float[Array, "*points modes"]:
    """The modes that are even in x, at points of the unit disk, y along the meridian; each has unit RMS there."""
    rho2 = x * x + y * y

    # ρ^m cos(mψ) are the real parts of (y + ix)^m; what is left of each mode is a polynomial in ρ². A loop, not a
    # list: the compiler takes as long for each of its members as for the loop.
    def next_power(powers: Any, _: None) -> tuple[Any, Any]:
        real, imaginary, even = powers
        return (real * y - imaginary * x, imaginary * y + real * x, even * rho2), (real, even)

    one = jnp.ones_like(x)
    _, (real, even) = jax.lax.scan(next_power, (one, jnp.zeros_like(x), one), length=degree + 1)
    table = jnp.asarray(_radial_table(degree))
    radial = jnp.moveaxis(even[: table.shape[1]], 0, -1) @ table.T
    order = np.array([m for _, m in cosine_modes(degree)])
    return radial * jnp.moveaxis(real, 0, -1)[..., order]


@lru_cache
def _nodes(count: int) -> Float[np.ndarray, " nodes"]:
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


@lru_cache
def _analysis(count: int) -> Float[np.ndarray, "orders nodes"]:
    """Chebyshev coefficients from values on the nodes."""
    orders = np.arange(count)[:, None]
    matrix = 2.0 / count * np.cos(np.pi * orders * (np.arange(count) + 0.5) / count)
    matrix[0] /= 2.0
    return matrix


def chebyshev_nodes(degree: int) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The (degree + 1)² tensor nodes u, v in [−1, 1]², flattened with v along rows."""
    u, v = np.meshgrid(_nodes(degree + 1), _nodes(degree + 1))
    return u.ravel(), v.ravel()


def to_chebyshev(values: Float[Array, " points"], degree: int) -> Float[Array, "orders orders"]:
    """Coefficients c[j, i] of T_j(v) T_i(u) of the polynomial with these values on `chebyshev_nodes`."""
    matrix = jnp.asarray(_analysis(degree + 1))
    return matrix @ values.reshape(degree + 1, degree + 1) @ matrix.T


def chebyshev(u: Float[Array, " points"], degree: int) -> Float[Array, "points orders"]:
    """T_0 … T_degree at u, by the three-term recurrence."""
    columns = [jnp.ones_like(u), u]
    for _ in range(2, degree + 1):
        columns.append(2.0 * u * columns[-1] - columns[-2])
    return jnp.stack(columns[: degree + 1], axis=-1)
