"""One surface: its sag and slope, and where a ray meets it.

    z(r) = c r² / (1 + √(1 − (1 + κ) c² r²)) + Σ_k e_k r^(2k) + Σ_k o_k r^(2k+1)

The polynomial is evaluated by Horner's rule in r / scale. A ray meets the conic in closed form; an asphere by a fixed
number of Newton steps from there or from a better start. The derivative of the intersection is that of the implicit
function theorem, of any order, so neither mode of differentiation goes through the iteration.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .batch import any_lens, computed_once

NEWTON_STEPS = 12  # with the last, which a conic has, too
LONGEST_STEP = 0.25  # of the surface's scale, so that an inflection does not throw a ray away
LEAST_RATE = 0.05  # growth of a ray's height above the surface; less is grazing, negative is the surface's back
TOLERANCE = 1e-9  # mm; a ray whose last Newton step was longer has not converged


class Shape(eqx.Module):
    """One surface: the fields of `System` without the surface axis, or all surfaces of a lens with it in front."""

    curvature: Float[Array, "*surfaces"]
    conic: Float[Array, "*surfaces"]
    even: Float[Array, "*surfaces even"]
    odd: Float[Array, "*surfaces odd"]
    scale: Float[Array, "*surfaces"]

    @property
    def has_terms(self) -> bool:
        """Whether the bucket has aspheric terms at all."""
        return self.even.shape[-1] + self.odd.shape[-1] > 0

    @property
    def is_aspheric(self) -> Bool[Array, "*surfaces"]:
        """Whether any of the terms is there."""
        return jnp.any(self.even != 0.0, axis=-1) | jnp.any(self.odd != 0.0, axis=-1)

    @property
    def base(self) -> Shape:
        """The conic alone."""
        return Shape(self.curvature, self.conic, self.even[..., :0], self.odd[..., :0], self.scale)


def sag(
    shape: Shape, r2: Float[Array, "*rays"]
) -> tuple[Float[Array, "*rays"], Float[Array, "*rays"], Bool[Array, "*rays"]]:
    """Sag z (mm), (dz/dr)/r (1/mm) and whether the surface exists there, at squared radius r2 (mm²)."""
    argument = 1.0 - (1.0 + shape.conic) * shape.curvature**2 * r2
    exists = argument > 0.0
    root = jnp.sqrt(jnp.where(exists, argument, 1.0))
    z = shape.curvature * r2 / (1.0 + root)
    slope = shape.curvature / root
    if shape.even.shape[-1]:
        u = r2 / shape.scale**2
        orders = jnp.arange(1, shape.even.shape[-1] + 1)
        scaled = shape.even * shape.scale ** (2 * orders)
        value, derivative = _horner(scaled, u)  # Σ a_k u^(k−1) and its derivative in u
        z = z + u * value
        slope = slope + 2.0 / shape.scale**2 * (value + u * derivative)
    if shape.odd.shape[-1]:
        u = r2 / shape.scale**2
        rho = jnp.sqrt(jnp.where(u > 0.0, u, 1.0)) * (u > 0.0)  # differentiable at the vertex
        orders = jnp.arange(1, shape.odd.shape[-1] + 1)
        scaled = shape.odd * shape.scale ** (2 * orders + 1)
        value, derivative = _horner(scaled, u)  # Σ b_k u^(k−1), terms b_k ρ^(2k+1)
        z = z + rho * u * value
        slope = slope + rho / shape.scale**2 * (3.0 * value + 2.0 * u * derivative)
    return z, slope, exists


def _horner(
    coefficients: Float[Array, " terms"], u: Float[Array, "*rays"]
) -> tuple[Float[Array, "*rays"], Float[Array, "*rays"]]:
    """Σ_k a_k u^k, k from 0, and its derivative."""
    value = jnp.zeros_like(u)
    derivative = jnp.zeros_like(u)
    for k in range(coefficients.shape[-1] - 1, -1, -1):
        derivative = derivative * u + value
        value = value * u + coefficients[k]
    return value, derivative


def intersect(
    shape: Shape, position: Float[Array, "3 *rays"], direction: Float[Array, "3 *rays"]
) -> tuple[Float[Array, "*rays"], Float[Array, "*rays"], Bool[Array, "*rays"]]:
    """Distance t along the rays to the surface (mm), (dz/dr)/r there (1/mm), and whether each ray meets it.

    Positions are in the frame of the surface's vertex. Of a conic's two intersections the one on the vertex's sheet
    is taken, for light that travels towards +z.
    """
    x, y, z = position
    l, m, n = direction
    c, k = shape.curvature, 1.0 + shape.conic
    quadratic = c * (1.0 + shape.conic * n * n)
    linear = c * (x * l + y * m + k * z * n) - n
    constant = c * (x * x + y * y + k * z * z) - 2.0 * z
    discriminant = linear * linear - quadratic * constant
    hits = discriminant > 1e-18  # a grazing ray has no derivative
    denominator = -linear + jnp.sqrt(jnp.where(hits, discriminant, 1.0))
    safe = jnp.where(jnp.abs(denominator) > 1e-12, denominator, 1.0)
    t = constant / safe
    hits = hits & (jnp.abs(denominator) > 1e-12)
    if not shape.has_terms:
        r2 = (x + t * l) ** 2 + (y + t * m) ** 2
        height, slope, exists = sag(shape, r2)
        # The far side of a sphere and the second sheet of a hyperboloid solve the squared equation, not the sag's.
        on_sheet = jnp.abs(z + t * n - height) < 1e-6
        return t, slope, hits & exists & on_sheet

    start = jax.lax.stop_gradient(jnp.where(hits, t, 0.0))
    t, slope, shift = _meet(shape, position, direction, start)
    return t, slope, jnp.abs(shift) < TOLERANCE


def bending(shape: Shape, r2: Float[Array, "*rays"]) -> Float[Array, "*rays"]:
    """Derivative of (dz/dr)/r by r² (1/mm³) at squared radius r2 (mm²)."""

    def derivative(shape: Shape, r2: Float[Array, "*rays"]) -> Float[Array, "*rays"]:
        return jax.jvp(lambda r2: sag(shape, r2)[1], (r2,), (jnp.ones_like(r2),))[1]

    if not shape.has_terms:
        return derivative(shape, r2)
    return jax.lax.cond(any_lens(shape.is_aspheric), derivative, lambda s, r2: derivative(s.base, r2), shape, r2)


@jax.custom_jvp
def _meet(
    shape: Shape,
    position: Float[Array, "3 *rays"],
    direction: Float[Array, "3 *rays"],
    start: Float[Array, "*rays"],
) -> tuple[Float[Array, "*rays"], Float[Array, "*rays"], Float[Array, "*rays"]]:
    """Where the rays meet an asphere, from a start on its base conic; the slope there, and the last Newton step.

    The step is inf where there is no surface.
    """

    def polish(shape: Shape, position: Array, direction: Array, start: Array) -> tuple[Array, Array, Array]:
        above, rate, slope, exists = _above(shape.base, position, direction, start)
        shift = above / jnp.where(jnp.abs(rate) > 1e-9, rate, 1.0)
        return start - shift, slope, jnp.where(exists, shift, jnp.inf)

    # Only surfaces that have terms are iterated on; where lenses are mapped one by one, this saves most of the work.
    return jax.lax.cond(any_lens(shape.is_aspheric), _iterate, polish, shape, position, direction, start)


@_meet.defjvp
def _meet_derivative(primals, tangents):  # type: ignore[no-untyped-def]
    """dt = −dF / F_t for F(shape, ray, t) = 0; t comes from `_meet` itself, so the rule can be differentiated again."""
    t, slope, shift = _meet(*primals)
    shape, position, direction, _ = primals

    def height_and_slope(shape: Shape, position: Array, direction: Array, t: Array) -> tuple[Array, Array]:
        above, _, slope, _ = _above(shape, position, direction, t)
        return above, slope

    at = (*primals[:-1], t)
    _, (moved, steeper) = jax.jvp(height_and_slope, at, (*tangents[:-1], jnp.zeros_like(t)))
    x, y, _ = position + t * direction
    along = x * direction[0] + y * direction[1]
    rate = direction[2] - slope * along
    change = -moved / jnp.where(jnp.abs(rate) > 1e-9, rate, 1.0)
    steeper = steeper + 2.0 * bending(shape, x * x + y * y) * along * change
    return (t, slope, shift), (change, steeper, jnp.zeros_like(shift))


def _iterate(
    shape: Shape,
    position: Float[Array, "3 *rays"],
    direction: Float[Array, "3 *rays"],
    start: Float[Array, "*rays"],
) -> tuple[Float[Array, "*rays"], Float[Array, "*rays"], Float[Array, "*rays"]]:
    """Newton's iteration for the meeting with the front side of the surface: t, the slope there, the last step.

    A polynomial may fold back outside its clear aperture, and the ray leave it again through its back. On the front
    side the ray's height above the surface grows with t, so steps are taken as if it always did. Of the base conic,
    the vertex plane, the plane at the sag below the ray's foot, and the ray's own point, iteration starts where the
    height above the front side is least.
    """
    x, y, z = position
    l, m, n = direction
    forward = jnp.where(jnp.abs(n) > 1e-12, n, 1.0)
    plane = -z / forward
    longest = LONGEST_STEP * shape.scale
    starts, last = 4, 3 + NEWTON_STEPS
    is_aspheric = shape.is_aspheric  # a batch may have lenses without terms here: they end as `polish` does

    # Starts are tried and steps taken in one loop: the compiler sees the surface's polynomial once.
    def step(i: Int[Array, ""], state: tuple[Array, ...]) -> tuple[Array, ...]:
        t, best, least, _slope, _shift = state
        px, py = x + t * l, y + t * m
        r2 = px * px + py * py
        height, slope, exists = computed_once(i >= 0, sag, shape, r2)
        above, rate = z + t * n - height, n - slope * (px * l + py * m)
        missed = jnp.where(exists & (rate > LEAST_RATE) & ~jnp.isnan(above), jnp.abs(above), jnp.inf)
        better = (missed < least) & (i < starts) & is_aspheric
        best, least = jnp.where(better, t, best), jnp.where(better, missed, least)
        shift = jnp.clip(above / jnp.maximum(rate, LEAST_RATE), -longest, longest)
        foot = (t * n - above) / forward  # from the vertex plane: the sag below there
        moved = t - jnp.where(is_aspheric | (i == last), shift, 0.0)
        t = jax.lax.select_n(jnp.minimum(i, starts), plane, foot, jnp.zeros_like(t), best, moved)
        return t, best, least, slope, jnp.where(exists, shift, jnp.inf)

    state = start, start, jnp.full_like(start, jnp.inf), jnp.zeros_like(start), jnp.zeros_like(start)
    # A GPU reads and writes every ray's numbers for each turn of a loop.
    at_once = 1 if jax.default_backend() == "cpu" else 4
    t, _, _, slope, shift = jax.lax.fori_loop(0, last + 1, step, state, unroll=at_once)
    return t, slope, shift


def _above(
    shape: Shape,
    position: Float[Array, "3 *rays"],
    direction: Float[Array, "3 *rays"],
    t: Float[Array, "*points"],
) -> tuple[Float[Array, "*points"], Float[Array, "*points"], Float[Array, "*points"], Bool[Array, "*points"]]:
    """Height (mm) above the surface of the rays' points at t, its growth with t, the slope, and whether it is there."""
    x, y, z = position
    l, m, n = direction
    px, py = x + t * l, y + t * m
    height, slope, exists = sag(shape, px * px + py * py)
    return z + t * n - height, n - slope * (px * l + py * m), slope, exists
