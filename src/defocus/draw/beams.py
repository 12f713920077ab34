"""Real beams for figures: which fields have light, and which rays of them pass.

One compiled program for the chief ray and one for a fixed number of rays serve every figure of a bucket of lenses;
the searches around them run on the host. Lengths are in mm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import TraceError
from ..lens.prescription import Lens
from ..optics.field import image_radius_of, vergence_of
from ..optics.focus import best_focus
from ..optics.paraxial import FirstOrder, first_order_batch
from ..optics.pupil import ChiefRay, chief_ray, launch
from ..optics.system import System, common_bucket, pack
from ..optics.trace import to_plane, trace
from .profiles import refracting

COUNT = 601  # rays per call; odd, so that the chief ray is one of a fan
WIDTH = 3.0  # half width of a search, in radii of the paraxial entrance pupil
ROUNDS = 3  # each narrows a rim three-hundredfold
STEPS = 50  # fields tried inwards, over the whole image radius, where there is no light
SAME_FIELD = 0.02  # of the image radius: a stand-in nearer than this to a field that is there already is left out
LEAST_BEAM = 0.1  # of the entrance pupil's diameter: the thinnest beam that stands in for a field without light

Heights = Float[np.ndarray, " rays"]


@dataclass(frozen=True, slots=True)
class Optics:
    """A lens ready to be traced at the d line."""

    lens: Lens
    system: System
    first_order: FirstOrder
    image_radius: float  # mm; 0: no field, only the axis

    @property
    def pupil_radius(self) -> float:
        """Of the paraxial entrance pupil, mm."""
        return float(self.first_order.entrance_pupil_radius)


@dataclass(frozen=True, slots=True)
class Beam:
    """What passes of one field point, in the meridional plane."""

    field: float  # fraction of the image radius
    chief: ChiefRay
    vergence: float  # 1/mm
    low: float  # mm from the chief ray, on the plane normal to it: the beam's rims; nan without light
    high: float
    chief_passes: bool

    @property
    def lit(self) -> bool:
        return math.isfinite(self.low)


@dataclass(frozen=True, slots=True)
class Traced:
    """Rays of a beam, as numpy arrays."""

    passes: Bool[np.ndarray, " rays"]
    heading: Float[np.ndarray, "3 rays"]  # direction in object space
    points: Float[np.ndarray, "surfaces 3 rays"]  # mm, where they meet each surface, in its vertex's frame
    landing: Float[np.ndarray, "2 rays"]  # mm, on the prescription's image plane
    slope: Float[np.ndarray, "2 rays"]  # dx/dz and dy/dz behind the lens
    focus: float  # mm from the prescription's image plane: where those that pass come together best


@eqx.filter_jit
def _chief(system: System, height: Float[Array, ""], distance: Float[Array, ""]) -> tuple[ChiefRay, Float[Array, ""]]:
    chief = chief_ray(system, height, "image_height")
    return chief, vergence_of(chief, distance)


@eqx.filter_jit
def _trace(
    system: System, chief: ChiefRay, vergence: Float[Array, ""], x: Float[Array, " rays"], y: Float[Array, " rays"]
) -> dict[str, Array]:
    rays = launch(chief, x, y, vergence)
    traced = trace(system, rays, record=True)
    assert traced.points is not None
    return {
        "passes": traced.passes,
        "heading": rays.direction,
        "points": traced.points,
        "landing": to_plane(traced),
        "slope": traced.direction[:2] / traced.direction[2],
        "focus": best_focus(traced),
    }


def optics_of(lens: Lens) -> Optics:
    """Pack a lens whose clear apertures are known."""
    if not refracting(lens):
        raise TraceError(f"{lens.name}: no surface refracts light; this is no lens")
    batch = pack([lens], bucket=common_bucket(lens))
    first = jax.tree.map(lambda leaf: leaf[0], first_order_batch(batch))
    return Optics(lens, batch[0], first, drawn_image_radius(lens, batch[0]))


def drawn_image_radius(lens: Lens, system: System) -> float:
    """The image radius (mm); 0 for a lens without a field, of which only the axis can be drawn."""
    if lens.image_radius is None and (lens.field is None or lens.field.radius == 0.0):
        return 0.0
    return image_radius_of(lens, system)


def trace_rays(optics: Optics, beam: Beam, x: Heights, y: Heights, *, system: System | None = None) -> Traced:
    """Trace at most COUNT rays of a beam, through points (x, y) mm from its chief ray on the plane normal to it.

    `system` is the lens at another wavelength; the object stays where it is.
    """
    count = len(y)
    blocked = np.full(COUNT - count, 1e3 * optics.pupil_radius)  # rays that fill up the call pass nothing
    padded = [jnp.asarray(np.concatenate([values, blocked])) for values in (x, y)]
    seen = _trace(system or optics.system, beam.chief, jnp.asarray(beam.vergence), *padded)
    focus = float(seen.pop("focus"))
    return Traced(**{name: np.asarray(value)[..., :count] for name, value in seen.items()}, focus=focus)


def find_beam(optics: Optics, field: float) -> Beam:
    """The beam of a field point (fraction of the image radius), its rims narrowed until they graze what limits them."""
    distance = jnp.asarray(optics.lens.object_distance)
    chief, vergence = _chief(optics.system, jnp.asarray(field * optics.image_radius), distance)
    dark = Beam(field, chief, float(vergence), math.nan, math.nan, False)
    if not bool(chief.found):
        return dark

    def passes(y: Heights) -> Bool[np.ndarray, " rays"]:
        return trace_rays(optics, dark, np.zeros_like(y), y).passes

    width = WIDTH * optics.pupil_radius
    y = np.linspace(-width, width, COUNT)
    through = passes(y)
    if not through.any():
        return dark
    first, last = _longest_run(through)
    step = y[1] - y[0]
    brackets = [(y[first], y[first] - step), (y[last], y[last] + step)]
    half = COUNT // 2
    for _ in range(ROUNDS):
        places = [np.linspace(inside, outside, half) for inside, outside in brackets]
        ok = passes(np.concatenate(places))
        brackets = [_border(w, ok[k * half : (k + 1) * half]) for k, w in enumerate(places)]
    return Beam(field, chief, float(vergence), brackets[0][0], brackets[1][0], bool(through[COUNT // 2]))


def _longest_run(through: Bool[np.ndarray, " rays"]) -> tuple[int, int]:
    """First and last index of the longest stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], through, [False]]).astype(int)))
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest]) - 1


def _border(w: Heights, passes: Bool[np.ndarray, " rays"]) -> tuple[float, float]:
    """The last of the places from the inside out that passes, and the next; the first one is known to pass."""
    fails = np.flatnonzero(~passes[1:])
    at = int(fails[0]) if len(fails) else len(w) - 2
    return float(w[at]), float(w[at + 1])


def lit_beam(optics: Optics, field: float) -> Beam:
    """The beam of a field point, or of the outermost one inside it that has a beam worth the name."""
    beam = find_beam(optics, field)
    if beam.lit:
        return beam

    def is_beam(beam: Beam) -> bool:
        return beam.lit and beam.high - beam.low >= LEAST_BEAM * 2.0 * optics.pupil_radius

    for step in range(math.ceil(field * STEPS) - 1, -1, -1):
        low, high = step / STEPS, min(field, (step + 1) / STEPS)
        best = find_beam(optics, low)
        if is_beam(best):
            for _ in range(6):
                middle = find_beam(optics, (low + high) / 2.0)
                if is_beam(middle):
                    best, low = middle, middle.field
                else:
                    high = middle.field
            return best
    raise TraceError(f"{optics.lens.name}: no light gets through, not even on the axis; its clear apertures block it")


def lit_beams(optics: Optics, fields: Sequence[float]) -> list[tuple[tuple[float, ...], Beam]]:
    """For each field (fractions of the image radius, from the axis outwards) its beam, or that of a stand-in.

    A field without light is replaced by the outermost inside it that has a beam; those that come to the same are one
    entry. Each comes with the fields that were asked for. A lens without a field has its axis only. Raises
    `TraceError` where not even the axis has light.
    """
    if not fields or not all(field >= 0.0 for field in fields):
        raise ValueError(f"fields {tuple(fields)}; expected fractions of the image radius, 0 or more")
    found: list[tuple[tuple[float, ...], Beam]] = []
    for asked in sorted(fields) if optics.image_radius > 0.0 else (0.0,):
        beam = lit_beam(optics, asked)
        if found and beam.field < asked and beam.field <= found[-1][1].field + SAME_FIELD:
            found[-1] = (*found[-1][0], asked), found[-1][1]
        else:
            found.append(((asked,), beam))
    return found


def field_label(asked: Sequence[float], beam: Beam, *, stand_in: str = "outermost with light") -> str:
    """A field in words: fraction, image height, angle; and, for a stand-in, what it stands for."""
    if beam.field == 0.0 and set(asked) == {0.0}:
        return "axis"
    height, angle = float(beam.chief.image_height), math.degrees(float(beam.chief.angle))
    text = f"field {beam.field:.2g}: {height:.4g} mm, {angle:.1f}°"
    lost = [f"{a:g}" for a in asked if a != beam.field]
    return f"{text} ({stand_in}; none at {' and '.join(lost)})" if lost else text
