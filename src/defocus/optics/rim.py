"""The shape of a pupil, found by tracing its rim.

Seen from a point inside, the vignetted pupil of a photographic lens is star shaped: along each direction there is one
ray that just grazes some aperture, or just is not totally reflected. That ray is searched for along each of many
directions, on the plane normal to the chief ray. No clipping function has to be fitted, whichever surface clips and
for whatever reason, and every ray that is traced later lies inside.

The pupil of a round stop is mirror symmetric about the meridian, so half the directions do. An iris of blades is fixed
to the camera: it takes the whole turn, and the field's azimuth matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..errors import DefocusError
from .paraxial import FirstOrder
from .pupil import ChiefRay, find_bundle, launch
from .system import System
from .trace import trace

DIRECTIONS = 129  # over half a turn
STEPS = 7  # radii per round, between the two that are known
ROUNDS = 6  # at most; mostly four
CROWDED = (-0.16, -0.04, -0.01, 0.0, 0.01, 0.04, 0.16)  # radii about a crossing, in parts of what lies between the two
NARROW = 3.1e-5  # of the first radius: the last two lie so close, after five rounds of evenly spaced ones, too
CLOSE = 1e-4  # of a radius, from the rim to where the clipping is 0; farther, the ray died there of something else
BLADE_DIRECTIONS = 721  # over a whole turn; corners want them


@dataclass(frozen=True, slots=True)
class Blades:
    """The iris that closes when a lens is stopped down: a polygon of the same area as the round stop would have.

    `roundness` bends its sides, from straight (0) to a circle (1); `rotation_deg` is where a corner shows in the blur
    of points nearer than the focus, from the right counter-clockwise. Farther points show it turned by 180°.
    """

    count: int
    roundness: float = 0.0
    rotation_deg: float = 90.0

    def __post_init__(self) -> None:
        if not (isinstance(self.count, int) and 3 <= self.count <= 64):
            raise DefocusError(f"{self.count!r} blades; expected a whole number from 3 to 64")
        if not 0.0 <= self.roundness <= 1.0:
            raise DefocusError(f"roundness {self.roundness}; expected 0 (straight sides) to 1 (a circle)")


class Iris(eqx.Module):
    """A stop closed by blades: a polygon with as many corners, its sides bent towards the circle of equal area.

    Wide open, the blades leave the round stop behind; hence `outer`, the circle that holds the polygon or the round
    stop, whichever is smaller.
    """

    radius: Float[Array, "*batch"]  # mm, of the circle of equal area: what the F-number says
    blades: Float[Array, "*batch"]  # at least 3
    roundness: Float[Array, "*batch"]  # 0: straight sides, 1: a circle
    rotation: Float[Array, "*batch"]  # radians from +x towards +y, where a corner shows in foreground blur
    outer: Float[Array, "*batch"]  # mm

    @staticmethod
    def make(radius: float, full: float, blades: int, roundness: float, rotation: float) -> Iris:
        """An iris in a lens whose round stop has the radius `full` (mm)."""
        open_iris = Iris(*(jnp.asarray(float(v)) for v in (radius, blades, roundness, rotation, full)))
        corner = radius * float(_shape(open_iris, jnp.asarray(float(rotation))))
        return eqx.tree_at(lambda i: i.outer, open_iris, jnp.asarray(min(full, corner)))

    def shape(self, angle: Float[Array, "*any"]) -> Float[Array, "*any"]:
        """Distance of the rim from the centre in the direction `angle`, in units of `radius`."""
        sector = 2.0 * jnp.pi / self.blades

        def bent(angle: Float[Array, "*any"]) -> Float[Array, "*any"]:
            straight = jnp.cos(sector / 2.0) / jnp.cos(jnp.mod(angle, sector) - sector / 2.0)
            return straight + (1.0 - straight) * self.roundness

        sample = (jnp.arange(64) + 0.5) / 64.0 * sector
        return bent(angle - self.rotation) / jnp.sqrt(jnp.mean(bent(sample) ** 2))

    def clip(self, at_stop: Float[Array, "2 rays"], azimuth: Float[Array, ""] | float) -> Float[Array, " rays"]:
        """r² / rim² − 1 at points (mm) of the stop in the meridional frame of an image point at `azimuth`."""
        across, along = at_stop
        cos, sin = jnp.cos(azimuth), jnp.sin(azimuth)
        # The image-side frame: the meridian of +y turned to the azimuth, as for the directions of the light.
        angle = jnp.arctan2(along * sin - across * cos, along * cos + across * sin)
        return (across**2 + along**2) / (self.radius * self.shape(angle)) ** 2 - 1.0


_shape = jax.jit(Iris.shape)


class Rim(eqx.Module):
    """The rim of a pupil on the plane normal to the chief ray: centre + radius · (sin ψ, cos ψ)."""

    centre: Float[Array, "*batch"]  # mm, along the meridian from the chief ray
    angle: Float[Array, "*batch directions"]  # radians from the meridian of +y
    radius: Float[Array, "*batch directions"]  # mm
    found: Bool[Array, "*batch"]  # whether any light gets through


def find_rim(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""] | float = 0.0,
    *,
    data: FirstOrder | None = None,
    iris: Iris | None = None,
    azimuth: Float[Array, ""] | float = 0.0,
) -> Rim:
    """The rim of the pupil of one object point; over half a turn, or with an `iris` over a whole one.

    Its radii have the derivatives of where the light is cut, about a centre that stays (`cut_radii`).
    """
    light = Light(system, chief, jnp.asarray(vergence, float), iris, jnp.asarray(azimuth, float))
    rim = _search_rim(*jax.lax.stop_gradient((light, data)))
    return eqx.tree_at(lambda r: r.radius, rim, cut_radii(rim, light))


class Light(eqx.Module):
    """Light of one object point on its way through a lens with its iris."""

    system: System
    chief: ChiefRay
    vergence: Float[Array, ""]
    iris: Iris | None
    azimuth: Float[Array, ""]

    def clipping(
        self, x: Float[Array, " rays"], y: Float[Array, " rays"]
    ) -> tuple[Float[Array, " rays"], Bool[Array, " rays"]]:
        """Largest clipping of rays from points of the launch plane, and whether they live."""
        traced = trace(self.system, launch(self.chief, x, y, self.vergence))
        if self.iris is None:
            return traced.clip, traced.alive
        return jnp.maximum(traced.clip, self.iris.clip(traced.stop_position, self.azimuth)), traced.alive


@jax.custom_jvp
def cut_radii(rim: Rim, light: Light) -> Float[Array, " directions"]:
    """The radii of a rim. Where the clipping c(r) changes its sign, c = 0 stays: dr = −dc / c'(r)."""
    return rim.radius


@cut_radii.defjvp
def _cut_radii_jvp(
    primals: tuple[Rim, Light], tangents: tuple[Any, Any]
) -> tuple[Float[Array, " directions"], Float[Array, " directions"]]:
    rim, light = primals
    radius = cut_radii(rim, light)  # not the rim's own: in derivatives of this one, it moves

    def clipping(radius: Float[Array, " directions"], light: Light) -> Float[Array, " directions"]:
        return light.clipping(radius * jnp.sin(rim.angle), rim.centre + radius * jnp.cos(rim.angle))[0]

    clip, slope = jax.jvp(lambda radius: clipping(radius, light), (radius,), (jnp.ones_like(radius),))
    _, moved = jax.jvp(lambda light: clipping(radius, light), (light,), (tangents[1],))
    moves = jnp.isfinite(slope) & (jnp.abs(clip) < CLOSE * slope * radius)
    return radius, jnp.where(moves, -moved / jnp.where(moves, slope, 1.0), 0.0)


class _Bracket(eqx.Module):
    """Radii along each direction between which the rim lies, and the clipping there."""

    rounds: Int[Array, ""]  # of the search
    low: Float[Array, " directions"]  # mm
    high: Float[Array, " directions"]
    low_clip: Float[Array, " directions"]
    high_clip: Float[Array, " directions"]
    has_shrunk: Bool[Array, " directions"]  # in the last round, as much as evenly spaced radii do


def _search_rim(light: Light, data: FirstOrder | None) -> Rim:
    bundle = find_bundle(light.system, light.chief, light.vergence, samples=25, rounds=2, data=data)
    share = bundle.traced.passes * bundle.weight
    centre = jnp.sum(share * bundle.y) / jnp.maximum(jnp.sum(share), 1)
    start, directions = (0.0, DIRECTIONS) if light.iris is None else (-jnp.pi, BLADE_DIRECTIONS)
    angle = jnp.linspace(start, jnp.pi, directions)
    reach = 2.0 * jnp.hypot(bundle.half[0], bundle.half[1])
    even, crowded = jnp.linspace(0.0, 1.0, STEPS + 2)[1:-1, None], jnp.asarray(CROWDED)[:, None]

    def is_unfinished(bracket: _Bracket) -> Bool[Array, ""]:
        return (bracket.rounds < ROUNDS) & jnp.any(bracket.high - bracket.low > NARROW * reach)

    def narrow(bracket: _Bracket) -> _Bracket:
        low, high, low_clip, high_clip = bracket.low, bracket.high, bracket.low_clip, bracket.high_clip
        # Between close radii the clipping is nearly a straight line. Not so where another surface begins to cut, or the
        # outer ray died: radii are evenly spaced wherever the last round has gained little.
        straight = bracket.has_shrunk & jnp.isfinite(high_clip) & (high_clip > low_clip)
        crossing = -low_clip / jnp.where(straight, high_clip - low_clip, 1.0)
        about = jnp.sort(jnp.clip(crossing + crowded, 0.0, 1.0), axis=0)
        radius = low + (high - low) * jnp.where(straight, about, even)
        x, y = radius * jnp.sin(angle), centre + radius * jnp.cos(angle)
        clip, alive = light.clipping(x.ravel(), y.ravel())
        clip = jnp.where(alive, clip, jnp.inf).reshape(radius.shape)
        upper = 1 + jnp.sum(jnp.cumprod((clip < 0.0).astype(int), axis=0), axis=0)
        radius = jnp.concatenate([low[None], radius, high[None]])
        clip = jnp.concatenate([low_clip[None], clip, high_clip[None]])

        def pick(
            values: Float[Array, "steps directions"], row: Int[Array, " directions"]
        ) -> Float[Array, " directions"]:
            return jnp.take_along_axis(values, row[None], axis=0)[0]

        below, above = pick(radius, upper - 1), pick(radius, upper)
        has_shrunk = above - below < 1.01 * (high - low) / (STEPS + 1)
        return _Bracket(bracket.rounds + 1, below, above, pick(clip, upper - 1), pick(clip, upper), has_shrunk)

    zero = jnp.zeros(directions)
    last = jax.lax.while_loop(
        is_unfinished, narrow, _Bracket(jnp.zeros((), int), zero, zero + reach, zero - 1.0, zero + 1.0, zero > 0.0)
    )
    low, high, low_clip, high_clip = last.low, last.high, last.low_clip, last.high_clip
    # A straight line between the last two radii, unless the outer ray died.
    smooth = jnp.isfinite(high_clip) & (high_clip > low_clip)
    part = jnp.where(smooth, -low_clip / jnp.where(smooth, high_clip - low_clip, 1.0), 0.0)
    radius = low + (high - low) * jnp.clip(part, 0.0, 1.0)
    return Rim(centre, angle, radius, bundle.found & jnp.all(radius > 0.0))
