"""Which rays of a field point get through the lens.

The chief ray is found from the inside out. A ray through the centre of the stop is one number, p = n·sin(angle): it is
traced forwards to the image and backwards to the object, and p is chosen so that it lands on the wanted image height
or leaves at the wanted field angle. Nothing has to be aimed, so fisheyes and strongly aberrated pupils work like any
other lens, and a height that no ray reaches is known to be one.

Everything here works in the meridional plane of +y images; the field's azimuth is a rotation that the caller applies.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..errors import TraceError
from ..lens.prescription import Lens
from .batch import over_lenses
from .paraxial import FirstOrder, first_order
from .system import System
from .trace import Rays, Trace, to_plane, trace

SCAN = 65  # values of p per round
ROUNDS = 8  # each narrows the bracket by SCAN − 1: 64⁸ is beyond float64

FieldBy = Literal["image_height", "angle"]


class ChiefRay(eqx.Module):
    """The ray through the centre of the stop, for one field point on the meridian."""

    position: Float[Array, "*batch 3"]  # mm, on the first surface, in its vertex's frame
    direction: Float[Array, "*batch 3"]  # in object space
    image_height: Float[Array, "*batch"]  # mm, y on the plane where it was asked for
    image_slope: Float[Array, "*batch"]  # dy/dz in image space
    angle: Float[Array, "*batch"]  # radians from the axis in object space; above π/2 for the widest fisheyes
    found: Bool[Array, "*batch"]
    reach: Float[Array, "*batch"]  # the largest image height (mm) or angle (radians) that any such ray has


def chief_ray(
    system: System,
    target: Float[Array, ""],
    by: FieldBy | Bool[Array, ""],
    image_z: Float[Array, ""] | float = 0.0,
) -> ChiefRay:
    """The chief ray whose image height is `target` mm (≥ 0), or whose object-space angle is `target` radians.

    The height is measured on the plane `image_z` mm behind the prescription's image plane. The ray is found for light
    that lands at +y; whether clear apertures let it pass plays no part. `by` may also be an array: true for an angle.
    """
    by_angle = jnp.asarray(by == "angle" if isinstance(by, str) else by)
    halves = jax.tree.map(lambda *leaves: jnp.stack(leaves), *_split(system))
    aim = _Aim(halves, jnp.asarray(target, float), by_angle, jnp.asarray(image_z, float))
    limit = 0.9999 * jnp.minimum(system.index[system.stop], system.index[system.stop + 1])
    # The search itself has no derivative: it sees the numbers alone.
    p, end = _search_ray(*jax.lax.stop_gradient((aim, limit)))
    stop_ray = _StopRay(p, end.position, end.direction, end.image_height, end.image_slope, end.angle)
    ray = _follow(stop_ray, aim)
    side = jnp.where(ray.height < 0.0, -1.0, 1.0)
    value = jnp.where(by_angle, ray.angle, jnp.abs(ray.height))
    # Out of the frame mirrored in z; and the half traced backwards left the stop upwards too, where the ray that goes
    # on upwards to the image came from below.
    flip = jnp.array([1.0, -side, -1.0])
    return ChiefRay(
        position=ray.position * flip,
        direction=-ray.direction * flip,
        image_height=jnp.abs(ray.height),
        image_slope=side * ray.slope,
        angle=ray.angle,
        found=end.found & (jnp.abs(value - target) <= 1e-6 + 1e-6 * jnp.abs(target)),
        reach=end.reach,
    )


class _Aim(eqx.Module):
    """Where a ray from the centre of the stop is wanted to go."""

    halves: System  # the lens from the stop backwards, and forwards
    target: Float[Array, ""]  # mm or radians
    by_angle: Bool[Array, ""]
    image_z: Float[Array, ""]  # mm

    def rays(
        self, p: Float[Array, " p"]
    ) -> tuple[Trace, Trace, Float[Array, " p"], Float[Array, " p"], Bool[Array, " p"]]:
        """The two half rays, image height, object-space angle and whether both halves live."""
        both = over_lenses(lambda half: trace(half, _from_stop(p / half.index[0])), self.halves)
        backwards, forwards = (jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
        height = to_plane(forwards, self.image_z)[1]
        angle = jnp.arctan2(jnp.abs(backwards.direction[1]), backwards.direction[2])
        lives = forwards.alive & backwards.alive & (forwards.direction[2] > 1e-6)
        return backwards, forwards, height, angle, lives

    def ray(self, p: Float[Array, ""]) -> _StopRay:
        """One of them."""
        backwards, forwards, height, angle, _ = self.rays(p[None])
        slope = forwards.direction[1, 0] / forwards.direction[2, 0]
        return _StopRay(p, backwards.position[:, 0], backwards.direction[:, 0], height[0], slope, angle[0])


class _StopRay(eqx.Module):
    """A ray from the centre of the stop, in the frames of the halves of the lens."""

    p: Float[Array, ""]  # n·sin(angle) at the stop
    position: Float[Array, "3"]
    direction: Float[Array, "3"]
    height: Float[Array, ""]
    slope: Float[Array, ""]
    angle: Float[Array, ""]


def _search_ray(aim: _Aim, limit: Float[Array, ""]) -> tuple[Float[Array, ""], ChiefRay]:
    """p of the ray that reaches its aim, or comes nearest, below a limit; and the ray, in the frames of the halves."""

    def narrow(_: Int[Array, ""], state: tuple[Array, Array, ChiefRay]) -> tuple[Array, Array, ChiefRay]:
        """A narrower bracket of p, and the ray at its lower end."""
        low, high, last = state
        p = low + (high - low) * jnp.linspace(0.0, 1.0, SCAN)
        backwards, forwards, heights, angles, lives = aim.rays(p)
        # Rays that leave the stop upwards may land at −y: follow |y|, and put the answer on the right side in the end.
        values = jnp.where(aim.by_angle, angles, jnp.abs(heights))
        lives = jnp.cumprod(lives.astype(int)).astype(bool)  # the stretch from the axis outwards
        reached = lives & (values >= aim.target)
        # Where no living ray reaches the target, the last of them and the first dead one bracket the edge.
        upper = jnp.where(jnp.any(reached), jnp.argmax(reached), jnp.minimum(jnp.sum(lives), SCAN - 1))
        lower = jnp.maximum(upper - 1, 0)
        reach = jnp.maximum(last.reach, jnp.max(jnp.where(lives, values, 0.0)))
        slopes = forwards.direction[1] / forwards.direction[2]
        every = (backwards.position, backwards.direction, heights, slopes, angles, lives)
        position, direction, height, slope, angle, alive = (one[..., lower] for one in every)
        return p[lower], p[upper], ChiefRay(position, direction, height, slope, angle, alive, reach)

    zero = jnp.zeros(())
    blank = ChiefRay(jnp.zeros(3), jnp.zeros(3), zero, zero, zero, jnp.zeros((), bool), zero)
    p, _, end = jax.lax.fori_loop(0, ROUNDS, narrow, (zero, limit, blank))
    return p, end


@jax.custom_jvp
def _follow(ray: _StopRay, aim: _Aim) -> _StopRay:
    """The ray that was found, with the derivative of the implicit function theorem: p follows the aim and the lens."""
    return ray


@_follow.defjvp
def _follow_derivative(primals: tuple[_StopRay, _Aim], tangents: tuple[Any, Any]) -> tuple[_StopRay, _StopRay]:
    """The ray comes from `_follow` itself, so the rule can be differentiated again."""
    (_, aim), (_, change) = primals, tangents
    ray = _follow(*primals)
    _, moved = jax.jvp(lambda aim: aim.ray(ray.p), (aim,), (change,))
    _, rates = jax.jvp(aim.ray, (ray.p,), (jnp.ones_like(ray.p),))
    # A ray that grazes the edge may have none.
    rates = jax.tree.map(lambda rate: jnp.where(jnp.isfinite(rate), rate, 0.0), rates)
    side = jnp.where(ray.height < 0.0, -1.0, 1.0)
    value, rate = (jnp.where(aim.by_angle, v.angle, side * v.height) for v in (moved, rates))
    step = (change.target - value) / jnp.where(jnp.abs(rate) > 1e-9, rate, 1.0)
    return ray, jax.tree.map(lambda own, along: own + along * step, moved, rates)


def axial_ray() -> ChiefRay:
    """The chief ray of a point on the axis: the axis."""
    zero = jnp.zeros(())
    return ChiefRay(jnp.zeros(3), jnp.array([0.0, 0.0, 1.0]), zero, zero, zero, jnp.ones((), bool), zero)


def _from_stop(sine: Float[Array, " rays"]) -> Rays:
    """Rays in the y–z plane from the centre of the stop."""
    zero = jnp.zeros_like(sine)
    direction = jnp.stack([zero, sine, jnp.sqrt(1.0 - sine**2)])
    return Rays(jnp.zeros_like(direction), direction, zero)


def _split(system: System) -> tuple[System, System]:
    """The lens from the stop's centre backwards to the object (mirrored in z), and forwards to the image.

    Both start with the stop as a plane that refracts nothing: at its centre a curved stop bends a ray as a plane does,
    which the conserved n·sin(angle) takes care of.
    """
    number = jnp.arange(system.surfaces)
    behind = system.stop + number
    rear = _reorder(
        system,
        behind,
        system.active[jnp.minimum(behind, system.surfaces - 1)] & (behind < system.surfaces),
        1.0,
    )
    ahead = system.stop - number
    front = _reorder(system, ahead, ahead >= 0, -1.0)
    return front, rear


def _reorder(system: System, order: Int[Array, " surfaces"], used: Bool[Array, " surfaces"], side: float) -> System:
    """The surfaces in `order` as a system of their own; `side` −1 mirrors it in z. The first is made a plane."""
    safe = jnp.clip(order, 0, system.surfaces - 1)
    number = jnp.arange(system.surfaces)
    keep = used & (number > 0)

    def pick(values: Float[Array, "surfaces *more"]) -> Float[Array, "surfaces *more"]:
        mask = keep.reshape(-1, *([1] * (values.ndim - 1)))
        return jnp.where(mask, side * values[safe], 0.0)

    if side > 0:
        thickness = jnp.where(used, system.thickness[safe], 0.0)
        media = jnp.concatenate([system.index[safe[:1] + 1], system.index[safe + 1]])
    else:
        # Mirrored, the space after surface i is the one that stood in front of it; the last leads nowhere.
        thickness = jnp.where(used & (safe > 0), system.thickness[jnp.maximum(safe - 1, 0)], 0.0)
        media = jnp.concatenate([system.index[safe[:1]], system.index[safe]])
    return System(
        curvature=pick(system.curvature),
        conic=jnp.where(keep, system.conic[safe], 0.0),
        even=pick(system.even),
        odd=pick(system.odd),
        scale=system.scale[safe],
        thickness=thickness,
        semi_diameter=jnp.full_like(system.semi_diameter, jnp.inf),
        index=media,
        active=used,
        stop=jnp.zeros_like(system.stop),
    )


class Bundle(eqx.Module):
    """A square grid of rays around a chief ray, on the plane through its point and normal to it.

    The grid's points are centre + half · (u, v), mm on that plane from the chief ray: u sagittal, v meridional. Rays at
    −u are the mirror images of those at u, which alone are traced: with its `weight` a ray stands for both.
    """

    centre: Float[Array, "*batch 2"]
    half: Float[Array, "*batch 2"]
    found: Bool[Array, "*batch"]  # whether any ray gets through
    x: Float[Array, "*batch rays"]  # mm, sagittal, 0 or more
    y: Float[Array, "*batch rays"]  # mm, meridional
    weight: Float[Array, "*batch rays"]  # 1 on the meridian, else 2
    traced: Trace


def launch(
    chief: ChiefRay,
    x: Float[Array, " rays"],
    y: Float[Array, " rays"],
    vergence: Float[Array, ""] | float = 0.0,
    index: Float[Array, ""] | float = 1.0,
) -> Rays:
    """Rays of one object point through the points (x, y) mm of the plane normal to the chief ray.

    `vergence` is 1 / distance (1/mm) of the object from that plane along the chief ray; 0: infinity. Optical paths are
    counted from the object's wavefront through the chief ray's point, in object space of refractive index `index`.
    """
    sagittal = jnp.array([1.0, 0.0, 0.0])
    meridional = jnp.cross(chief.direction, sagittal)
    offset = sagittal[:, None] * x + meridional[:, None] * y
    rho2 = x**2 + y**2
    stretch = jnp.sqrt(1.0 + rho2 * vergence**2)
    direction = (chief.direction[:, None] + offset * vergence) / stretch
    path = index * rho2 * vergence / (1.0 + stretch)
    return Rays(chief.position[:, None] + offset, direction, path)


def find_bundle(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""] | float = 0.0,
    *,
    samples: int = 33,
    rounds: int = 3,
    data: FirstOrder | None = None,
) -> Bundle:
    """The rays of one object point that get through: half of a samples × samples grid (odd) that just holds them all.

    The first grid covers twice the paraxial entrance pupil around the chief ray; each further one covers the rays of
    the last that passed, and one cell more. The last is returned traced. `data` is the lens's first-order data, if they
    are at hand.
    """
    # Cell centres, so that no row of rays lies on the rim and each ray stands for the same area.
    g = (2 * np.arange(samples) + 1 - samples) / samples
    u, v = (jnp.asarray(w.ravel()) for w in np.meshgrid(g[samples // 2 :], g))
    weight = jnp.asarray(np.tile(np.where(g[samples // 2 :] > 0.0, 2.0, 1.0), samples))
    cell = 2.0 / samples

    def grid(centre: Float[Array, "2"], half: Float[Array, "2"]) -> Bundle:
        x, y = half[0] * u, centre[1] + half[1] * v
        traced = trace(system, launch(chief, x, y, vergence, system.index[0]))
        return Bundle(centre, half, jnp.any(traced.passes), x, y, weight, traced)

    def refine(_: Int[Array, ""], last: Bundle) -> Bundle:
        def outermost(w: Float[Array, " rays"]) -> Float[Array, ""]:
            return jnp.where(last.found, jnp.max(jnp.where(last.traced.passes, w, -jnp.inf)) + cell, 1.0)

        width, low, high = outermost(u), -outermost(-v), outermost(v)
        centre = last.centre[1] + (low + high) / 2.0 * last.half[1]
        half = last.half * jnp.stack([width, (high - low) / 2.0])
        return grid(jnp.stack([jnp.zeros(()), centre]), half)

    # Round 0 is a refinement of "everything passed" over the first box, shrunk by the cell that it adds.
    data = first_order(system) if data is None else data
    reach = 2.0 * data.entrance_pupil_radius / (1.0 + cell)
    blank = jax.eval_shape(grid, jnp.zeros(2), jnp.zeros(2))
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank)
    start = eqx.tree_at(
        lambda b: (b.half, b.found, b.traced.alive, b.traced.clip),
        start,
        (jnp.full(2, reach), jnp.array(True), jnp.ones_like(start.traced.alive), -jnp.ones_like(start.x)),
    )
    return jax.lax.fori_loop(0, rounds, refine, start)


class AxialBeam(eqx.Module):
    """The light of a point on the axis as a meridional fan of rays that fill the beam up to its rim, by Gauss' rule.

    Sums over them are converged, where a square grid over the pupil has a jagged rim and errors of per cents.
    """

    y: Float[Array, "*batch rays"]  # mm, on the plane of the first vertex
    area: Float[Array, "*batch rays"]  # that each ray stands for, up to a factor
    rim: Float[Array, "*batch"]  # mm, y of the outermost ray that passes
    traced: Trace


def axial_beam(
    system: System, vergence: Float[Array, ""] | float = 0.0, *, rings: int = 24, data: FirstOrder | None = None
) -> AxialBeam:
    """2 × `rings` rays of a point on the axis; the beam's rim is searched for from the axis outwards."""
    data = first_order(system) if data is None else data
    axis = axial_ray()

    def send(y: Float[Array, " rays"]) -> Trace:
        return trace(system, launch(axis, jnp.zeros_like(y), y, vergence, system.index[0]))

    def narrow(_: Int[Array, ""], bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        radius = low + (high - low) * jnp.linspace(0.0, 1.0, SCAN)
        inside = jnp.sum(jnp.cumprod(send(radius).passes.astype(int)))
        return radius[jnp.maximum(inside - 1, 0)], radius[jnp.minimum(inside, SCAN - 1)]

    rim, _ = jax.lax.fori_loop(0, 5, narrow, (jnp.zeros(()), 2.0 * data.entrance_pupil_radius))
    node, share = np.polynomial.legendre.leggauss(rings)
    radius = rim * jnp.sqrt(jnp.asarray(node + 1.0) / 2.0)
    y = jnp.concatenate([-radius, radius])
    return AxialBeam(y, jnp.tile(jnp.asarray(share), 2) * rim**2, rim, send(y))


def pupil_half_widths(system: System, chief: ChiefRay, vergence: Float[Array, ""] | float = 0.0) -> Float[Array, "2"]:
    """Half widths (mm) of the stop seen along the chief ray: sagittal and meridional, to first order."""
    delta = 1e-4 * system.semi_diameter[system.stop]
    offsets = jnp.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) * delta
    at = trace(system, launch(chief, offsets[0], offsets[1], vergence)).stop_position
    stretch = jnp.stack([jnp.abs(at[0, 1] - at[0, 0]), jnp.abs(at[1, 2] - at[1, 0])]) / delta
    return system.semi_diameter[system.stop] / jnp.maximum(stretch, 1e-3)


@jax.jit
def chief_ray_at_angle(system: System, angle: Float[Array, ""], image_z: Float[Array, ""] | float = 0.0) -> ChiefRay:
    """`chief_ray` by an angle (radians), compiled."""
    return chief_ray(system, angle, "angle", image_z)


def image_radius_of(lens: Lens, system: System) -> float:
    """Half diagonal of the image (mm): the prescription's own, or what its outermost field point gives.

    Angles are traced by the real chief ray, object heights by the paraxial magnification.
    """
    if lens.image_radius is not None:
        return lens.image_radius
    if lens.field is None or lens.field.radius == 0.0:
        raise TraceError(f"{lens.name}: no image radius and no field away from the axis; give one in the prescription")
    radius = lens.field.radius
    if lens.field.kind in ("real_image_height", "paraxial_image_height"):
        return radius
    if lens.field.kind == "object_height":
        data = first_order(system)
        from_focus = lens.object_distance + float(data.front_focal_distance)
        return abs(radius * float(data.focal_length) / from_focus)
    chief = chief_ray_at_angle(system, jnp.array(math.radians(radius)))
    if not bool(chief.found):
        raise TraceError(
            f"{lens.name}: no ray of the outermost field, {radius:.4g}°, crosses the stop's centre; "
            f"the widest that does comes from {math.degrees(float(chief.reach)):.4g}°"
        )
    return float(chief.image_height)


def vergence_of(chief: ChiefRay, object_distance: Float[Array, ""] | float) -> Float[Array, ""]:
    """1 / distance (1/mm) along the chief ray from its point on the first surface to an object plane.

    `object_distance` is in mm from the object plane to the first vertex; inf gives 0.
    """
    return chief.direction[2] / (object_distance + chief.position[2])


def field_radius(lens: Lens, system: System) -> float:
    """The image radius (mm); 0 for a lens without a field, of which only the axis can be traced."""
    if lens.image_radius is None and (lens.field is None or lens.field.radius == 0.0):
        return 0.0
    return image_radius_of(lens, system)
