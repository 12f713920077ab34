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
NARROW = 3.1e-5  # of the first radius: between radii so close a straight line, or two, will do
CHORD, BRANCHES, EVENLY = range(3)  # how the radii of a round are chosen
KINKED = 0.05  # of the last two radii's distance: by so much the lines from outside cross 0 later than the chord
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
    """Radii along each direction between which the rim lies, one more on each side, and the clipping there."""

    rounds: Int[Array, ""]  # of the search
    radius: Float[Array, "4 directions"]  # mm, in ascending order; the light passes at the first two
    clip: Float[Array, "4 directions"]
    way: Int[Array, " directions"]  # CHORD, BRANCHES or EVENLY

    @property
    def width(self) -> Float[Array, " directions"]:
        return self.radius[2] - self.radius[1]

    def crossings(self) -> tuple[Float[Array, " directions"], Float[Array, " directions"]]:
        """Where the clipping is 0, as straight lines tell, in parts of what lies between: nan where they tell nothing.

        That of the chord; and, for where another surface begins to cut in between, the first of the lines through the
        two inner and through the two outer radii.
        """
        radius, clip = (self.radius - self.radius[1]) / self.width, self.clip
        rise, run = jnp.diff(clip, axis=0), jnp.diff(radius, axis=0)
        rises = jnp.isfinite(rise) & (rise > 0.0) & (run > 0.0)
        zero = radius[:-1] - clip[:-1] * jnp.where(rises, run, jnp.nan) / jnp.where(rises, rise, 1.0)
        return zero[1], jnp.fmin(zero[0], zero[2])


def _search_rim(light: Light, data: FirstOrder | None) -> Rim:
    bundle = find_bundle(light.system, light.chief, light.vergence, samples=25, rounds=2, data=data)
    share = bundle.traced.passes * bundle.weight
    centre = jnp.sum(share * bundle.y) / jnp.maximum(jnp.sum(share), 1)
    start, directions = (0.0, DIRECTIONS) if light.iris is None else (-jnp.pi, BLADE_DIRECTIONS)
    angle = jnp.linspace(start, jnp.pi, directions)
    reach = 2.0 * jnp.hypot(bundle.half[0], bundle.half[1])
    even, crowded = jnp.linspace(0.0, 1.0, STEPS + 2)[1:-1, None], jnp.asarray(CROWDED)[:, None]

    def is_unfinished(bracket: _Bracket) -> Bool[Array, ""]:
        return (bracket.rounds < ROUNDS) & jnp.any(bracket.width > NARROW * reach)

    def narrow(bracket: _Bracket) -> _Bracket:
        # Radii crowd about the crossing. Where that gains less than even spacing would, another surface begins to cut
        # in between; where the outer ray died, or neither helps, they are spaced evenly.
        chord, branches = bracket.crossings()
        crossing = jnp.where(bracket.way == BRANCHES, branches, chord)
        evenly = (bracket.way == EVENLY) | jnp.isnan(crossing)
        about = jnp.sort(jnp.clip(jnp.where(evenly, 0.0, crossing) + crowded, 0.0, 1.0), axis=0)
        radius = bracket.radius[1] + bracket.width * jnp.where(evenly, even, about)
        x, y = radius * jnp.sin(angle), centre + radius * jnp.cos(angle)
        clip, alive = light.clipping(x.ravel(), y.ravel())
        clip = jnp.where(alive, clip, jnp.inf).reshape(radius.shape)
        passing = jnp.sum(jnp.cumprod((clip < 0.0).astype(int), axis=0), axis=0)  # of the new radii
        rows = passing + jnp.arange(4)[:, None]

        def pick(outer: Float[Array, "4 directions"], own: Float[Array, "steps directions"]) -> Any:
            return jnp.take_along_axis(jnp.concatenate([outer[:2], own, outer[2:]]), rows, axis=0)

        found = _Bracket(bracket.rounds + 1, pick(bracket.radius, radius), pick(bracket.clip, clip), bracket.way)
        has_shrunk = found.width < 1.01 * bracket.width / (STEPS + 1)
        way = jnp.where(has_shrunk, jnp.where(evenly, CHORD, bracket.way), jnp.where(evenly, EVENLY, bracket.way + 1))
        return eqx.tree_at(lambda b: b.way, found, way)

    zero = jnp.zeros(directions)
    ends = jnp.stack([zero, zero, zero + reach, zero + reach])
    clips = jnp.stack([zero - 1.0, zero - 1.0, zero + 1.0, zero + 1.0])
    last = jax.lax.while_loop(
        is_unfinished, narrow, _Bracket(jnp.zeros((), int), ends, clips, jnp.full(directions, EVENLY))
    )
    chord, branches = last.crossings()
    part = jnp.where((branches > chord + KINKED) & (branches < 1.0), branches, jnp.nan_to_num(chord))  # nan: a ray died
    radius = last.radius[1] + last.width * jnp.clip(part, 0.0, 1.0)
    return Rim(centre, angle, radius, bundle.found & jnp.all(radius > 0.0))
