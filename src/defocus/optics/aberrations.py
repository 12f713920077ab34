"""Third-order aberrations, surface by surface, as Smith defines them (Modern Optical Engineering, chapter 6).

With the axial (marginal) ray y, u and the principal (chief) ray y_p, u_p of an object at infinity, i = c y + u,

    Inv = n (y_p u − y u_p)            h = Inv / (n_k' u_k')          B = n (n' − n) / (2 n' Inv) · y (u' + i)
    TSC = B i² h                       CC = 3 B i i_p h               TAC = B i_p² h

TSC is the transverse spherical aberration of the marginal ray, CC the tangential coma (three times Smith's sagittal
coma, the paper's 3CC) and TAC the transverse astigmatism, sagittal to tangential half-separation, at the edge of the
field, all in mm on the paraxial image plane. An aspheric surface adds the terms of its r⁴ deformation G from the
vertex sphere: W = 4 G (n' − n) / Inv, TSC += W y⁴ h, CC += 3 W y³ y_p h, TAC += W y² y_p² h.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .paraxial import FirstOrder, first_order, heights_and_angles
from .system import System


class ThirdOrder(eqx.Module):
    """Contributions of each surface in mm; padding contributes nothing. Sum over the last axis for the lens."""

    tsc: Float[Array, "*batch surfaces"]
    cc: Float[Array, "*batch surfaces"]
    tac: Float[Array, "*batch surfaces"]


def third_order(system: System, half_field: Float[Array, ""], data: FirstOrder | None = None) -> ThirdOrder:
    """Third-order aberrations of one lens at full aperture and `half_field` (radians, paraxial: its tangent counts).

    For a field beyond what a plane image can have, give the angle whose tangent is image radius / focal length. `data`
    is the lens's first-order data, if they are at hand.
    """
    data = first_order(system) if data is None else data
    n, n_behind = system.index[:-1], system.index[1:]
    y, nu, nu_behind = heights_and_angles(system, data.entrance_pupil_radius, jnp.zeros(()))
    u, u_behind = nu / n, nu_behind / n_behind
    slope = jnp.tan(half_field)
    y_p, nu_p, _ = heights_and_angles(system, -data.entrance_pupil * slope, n[0] * slope)
    u_p = nu_p / n
    c = system.vertex_curvature
    i, i_p = c * y + u, c * y_p + u_p
    invariant = n[0] * (y_p[0] * u[0] - y[0] * u_p[0])
    h = invariant / (n_behind[-1] * u_behind[-1])
    b = n * (n_behind - n) / (2.0 * n_behind * invariant) * y * (u_behind + i)
    fourth = system.even[:, 1] if system.even.shape[-1] > 1 else jnp.zeros_like(c)
    deformation = fourth + ((1.0 + system.conic) * system.curvature**3 - c**3) / 8.0
    w = 4.0 * deformation * (n_behind - n) / invariant
    return ThirdOrder(
        tsc=h * (b * i**2 + w * y**4),
        cc=3.0 * h * (b * i * i_p + w * y**3 * y_p),
        tac=h * (b * i_p**2 + w * y**2 * y_p**2),
    )
