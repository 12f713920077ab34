"""Real beams of a lens: which fields have light, and which of their rays pass.

One compiled program for the chief ray and one for a fixed number of rays serve every lens of a bucket; the searches
around them run on the host. Lengths are in mm, fields are fractions of the image radius.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import TraceError
from ..lens.prescription import Lens
from .focus import best_focus
from .paraxial import FirstOrder, first_order
from .pupil import ChiefRay, chief_ray, field_radius, launch, vergence_of
from .system import System, pack_one
from .trace import to_plane, trace

COUNT = 601  # rays per call; odd, so that the chief ray is one of a fan
WIDTH = 3.0  # half width of a search, in radii of the paraxial entrance pupil
ROUNDS = 3  # each narrows a rim three-hundredfold
STEPS = 50  # fields tried inwards, over the whole image radius, where there is no light
SAME_FIELD = 0.02  # of the image radius: a substitute nearer than this to a field that is there already is left out
LEAST_BEAM = 0.1  # of the entrance pupil's diameter: the thinnest beam that replaces that of a field without light

Heights = Float[np.ndarray, " rays"]


def refracting(lens: Lens) -> list[int]:
    """Numbers of the surfaces that part two media: a stop in air and dummies are none."""
    media = (lens.object_medium, *(s.medium for s in lens.surfaces))
    return [
        i
        for i, (before, behind) in enumerate(itertools.pairwise(media))
        if (before.nd, before.vd) != (behind.nd, behind.vd)
    ]


@dataclass(frozen=True, slots=True)
class Beam:
    """What passes of one field point, in the meridional plane."""

    field: float
    chief: ChiefRay
    vergence: float  # 1/mm
    low: float  # mm from the chief ray, on the plane normal to it: the beam's rims; nan without light
    high: float
    chief_passes: bool

    @property
    def lit(self) -> bool:
        """Whether any light passes."""
        return math.isfinite(self.low)


@dataclass(frozen=True, slots=True)
class LitBeam:
    """A beam with light, and the fields that it was traced for: its own, or some further out that have none."""

    requests: tuple[float, ...]
    beam: Beam

    @property
    def dark(self) -> list[float]:
        """Fields without light that the beam replaces."""
        return [field for field in self.requests if field != self.beam.field]

    @property
    def label(self) -> str:
        """The field in words: fraction, image height, angle, and the fields without light that it replaces."""
        if set(self.requests) == {0.0}:
            return "axis"
        chief = self.beam.chief
        height, angle = float(chief.image_height), math.degrees(float(chief.angle))
        text = f"field {self.beam.field:.2g}: {height:.4g} mm, {angle:.1f}°"
        dark = " and ".join(f"{field:g}" for field in self.dark)
        return f"{text} (outermost with light; none at {dark})" if dark else text


@dataclass(frozen=True, slots=True)
class BeamRays:
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


@dataclass(frozen=True, slots=True)
class BeamTracer:
    """A lens with all its clear apertures, ready to be traced at the d line."""

    lens: Lens
    system: System
    first_order: FirstOrder
    image_radius: float  # mm; 0: no field, only the axis

    @classmethod
    def of(cls, lens: Lens) -> BeamTracer:
        """Pack a lens; `TraceError` where it is none."""
        if not refracting(lens):
            raise TraceError(f"{lens.name}: no surface refracts light; this is no lens")
        system = pack_one(lens)
        return cls(lens, system, first_order(system), field_radius(lens, system))

    @property
    def pupil_radius(self) -> float:
        """Radius of the paraxial entrance pupil, mm."""
        return float(self.first_order.entrance_pupil_radius)

    def rays(self, beam: Beam, x: Heights, y: Heights, *, system: System | None = None) -> BeamRays:
        """Trace at most COUNT rays of a beam, through points (x, y) mm from its chief ray on the plane normal to it.

        `system` is the lens at another wavelength; the object stays where it is.
        """
        count = len(y)
        blocked = np.full(COUNT - count, 1e3 * self.pupil_radius)  # rays that fill up the call pass nothing
        padded = [jnp.asarray(np.concatenate([values, blocked])) for values in (x, y)]
        arrays = _trace(system or self.system, beam.chief, jnp.asarray(beam.vergence), *padded)
        focus = float(arrays.pop("focus"))
        return BeamRays(**{name: np.asarray(value)[..., :count] for name, value in arrays.items()}, focus=focus)

    def beam(self, field: float) -> Beam:
        """The beam of a field point, its rims narrowed until they graze what limits them."""
        distance = jnp.asarray(self.lens.object_distance)
        chief, vergence = _chief(self.system, jnp.asarray(field * self.image_radius), distance)
        dark = Beam(field, chief, float(vergence), math.nan, math.nan, False)
        if not bool(chief.found):
            return dark

        def passes(y: Heights) -> Bool[np.ndarray, " rays"]:
            return self.rays(dark, np.zeros_like(y), y).passes

        width = WIDTH * self.pupil_radius
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

    def lit_beam(self, field: float) -> Beam:
        """The beam of a field point, or of the outermost one inside it that has a beam worth the name."""
        beam = self.beam(field)
        if beam.lit:
            return beam

        def is_beam(beam: Beam) -> bool:
            return beam.lit and beam.high - beam.low >= LEAST_BEAM * 2.0 * self.pupil_radius

        for step in range(math.ceil(field * STEPS) - 1, -1, -1):
            low, high = step / STEPS, min(field, (step + 1) / STEPS)
            best = self.beam(low)
            if is_beam(best):
                for _ in range(6):
                    middle = self.beam((low + high) / 2.0)
                    if is_beam(middle):
                        best, low = middle, middle.field
                    else:
                        high = middle.field
                return best
        raise TraceError(f"{self.lens.name}: no light gets through, not even on the axis; its clear apertures block it")

    def lit_beams(self, fields: Sequence[float]) -> list[LitBeam]:
        """The beams of some fields, from the axis outwards.

        A field without light is replaced by the outermost inside it that has a beam; those that come to the same are
        one entry. A lens without a field has its axis only. Raises `TraceError` where not even the axis has light.
        """
        if not fields or not all(field >= 0.0 for field in fields):
            raise ValueError(f"fields {tuple(fields)}; expected fractions of the image radius, 0 or more")
        beams: list[LitBeam] = []
        for field in sorted(fields) if self.image_radius > 0.0 else (0.0,):
            beam = self.lit_beam(field)
            if beams and beam.field < field and beam.field <= beams[-1].beam.field + SAME_FIELD:
                beams[-1] = LitBeam((*beams[-1].requests, field), beams[-1].beam)
            else:
                beams.append(LitBeam((field,), beam))
        return beams


def _longest_run(through: Bool[np.ndarray, " rays"]) -> tuple[int, int]:
    """First and last index of the longest stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], through, [False]]).astype(int)))
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest]) - 1


def _border(w: Heights, passes: Bool[np.ndarray, " rays"]) -> tuple[float, float]:
    """The last of the places from the inside out that passes, and the next; the first one passes."""
    fails = np.flatnonzero(~passes[1:])
    at = int(fails[0]) if len(fails) else len(w) - 2
    return float(w[at]), float(w[at + 1])
