"""The slow truth: a Rayleigh–Sommerfeld (Huygens) sum over traced rays, with nothing fitted.

Rays fill a grid over the pupil; each is followed to the reference sphere about the focus F through the centre of the
exit pupil, where it stands for a patch dS that shines with the light dA it carries:

    E(x) = Σ √(dA dS) exp(2πi (L + |x − q|) / λ) / |x − q| · √s_z

√s_z turns |E|², an energy density, into the irradiance on the sensor, as in `optics.wavefront`. The cost is rays times
points. Phases are taken relative to the window's centre, in a form without cancellation, so that float32 holds them.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..optics.focus import meeting_point
from ..optics.paraxial import FirstOrder
from ..optics.pupil import ChiefRay, launch
from ..optics.rim import Rim
from ..optics.system import System
from ..optics.trace import Trace, trace
from .propagate import window_axis

RAYS_AT_ONCE = 4096


@partial(jax.jit, static_argnames=("rays", "size", "supersample"))
def huygens(
    system: System,
    data: FirstOrder,
    chief: ChiefRay,
    rim: Rim,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
    landing: Float[Array, ""],
    wavelength: Float[Array, ""],
    pixel: Float[Array, ""],
    *,
    rays: int,
    size: int,
    supersample: int,
) -> Float[Array, "size size"]:
    """A PSF that sums to 1, for an image point on the meridian of +y (row 0 is farthest from the axis).

    `rays` × `rays` of them cover the rim's rectangle; lengths in mm.
    """
    reach_x = jnp.max(rim.radius * jnp.sin(rim.angle)) * 1.02
    edge = rim.radius * jnp.cos(rim.angle)
    low, high = jnp.min(edge), jnp.max(edge)
    middle, reach_y = rim.centre + (low + high) / 2.0, (high - low) / 2.0 * 1.02
    g = (jnp.arange(rays) + 0.5) / rays * 2.0 - 1.0
    x, y = (w.ravel() for w in jnp.meshgrid(reach_x * g, middle + reach_y * g))
    cell = (2.0 * reach_x / rays, 2.0 * reach_y / rays)

    rows = x.reshape(rays, -1), y.reshape(rays, -1)
    coarse = trace(system, launch(chief, *_inside(rim), vergence))
    focus = meeting_point(coarse)
    pupil = jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane])
    radius = jnp.linalg.norm(focus - pupil)
    centre = jnp.stack([jnp.zeros(()), landing, sensor_z])

    def patch(row: tuple[Float[Array, " rays"], Float[Array, " rays"]]) -> tuple[Array, Array, Array, Array]:
        """Points on the sphere, path to the window's centre (waves), amplitude and clipping of a row of rays."""

        def point(offset: Float[Array, "2 rays"]) -> tuple[Float[Array, "3 rays"], tuple[Trace, Float[Array, " rays"]]]:
            traced = trace(system, launch(chief, offset[0], offset[1], vergence, system.index[0]))
            away = traced.position - focus[:, None]
            along = jnp.sum(traced.direction * away, axis=0)
            t = -along - jnp.sqrt(jnp.maximum(along**2 - jnp.sum(away**2, axis=0) + radius**2, 0.0))
            return traced.position + t * traced.direction, (traced, traced.path + t)

        offset = jnp.stack(row)

        def differential(tangent: Float[Array, "2"]) -> tuple[Array, tuple[Array, tuple[Trace, Array]]]:
            q, moved, rest = jax.jvp(
                point, (offset,), (jnp.broadcast_to(tangent[:, None], offset.shape),), has_aux=True
            )
            return moved, (q, rest)

        moved, (q, (traced, path)) = jax.vmap(differential, out_axes=(0, None))(jnp.eye(2))
        surface = jnp.linalg.norm(jnp.cross(moved[0], moved[1], axis=0), axis=0)  # dS / dA
        distance = jnp.linalg.norm(centre[:, None] - q, axis=0)
        waves = (path + distance) / wavelength
        amplitude = jnp.sqrt(surface * traced.direction[2]) / distance
        clip = jnp.where(traced.alive, jnp.minimum(traced.clip, 1.0), 1.0)
        return q, waves, jnp.where(traced.alive, amplitude, 0.0), clip

    q, waves, amplitude, clip = jax.lax.map(patch, rows)
    slope_y, slope_x = jnp.gradient(clip)
    width = jnp.maximum(jnp.abs(slope_x) + jnp.abs(slope_y), 1e-12)
    coverage = jnp.clip(0.5 - clip / width, 0.0, 1.0)
    weight = amplitude * coverage * cell[0] * cell[1]
    q = jnp.moveaxis(q, 1, -1).reshape(-1, 3)
    waves = (waves - jnp.mean(waves)).ravel()
    waves = (waves - jnp.round(waves)).astype(jnp.float32)
    weight = (weight / jnp.max(weight)).ravel().astype(jnp.float32)

    axis = window_axis(size, pixel, supersample)
    points = jnp.stack([w.ravel() for w in jnp.meshgrid(axis, axis[::-1])]).astype(jnp.float32)
    fine = _sum_wavelets(points, (centre[None, :] - q).astype(jnp.float32), waves, weight, wavelength)
    pixels = fine.reshape(size, supersample, size, supersample).sum(axis=(1, 3))
    return pixels / jnp.sum(pixels)


def _sum_wavelets(
    points: Float[Array, "2 points"],
    back: Float[Array, "rays 3"],
    waves: Float[Array, " rays"],
    weight: Float[Array, " rays"],
    wavelength: Float[Array, ""],
) -> Float[Array, " points"]:
    """|Σ weight · exp(2πi (waves + (|x − q| − |X − q|) / λ))|² at points x − X (mm); `back` is X − q (mm)."""
    x, y = points
    inverse = (1.0 / wavelength).astype(jnp.float32)
    pad = -len(waves) % RAYS_AT_ONCE

    def chunks(values: Float[Array, "rays *more"], fill: float) -> Float[Array, "chunks rays *more"]:
        padded = jnp.pad(values, [(0, pad)] + [(0, 0)] * (values.ndim - 1), constant_values=fill)
        return padded.reshape(-1, RAYS_AT_ONCE, *values.shape[1:])

    def add(field: tuple[Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        back, waves, weight = chunk
        length = jnp.linalg.norm(back, axis=1)
        # |x − q| − |X − q| = (|d|² + 2 d·(X − q)) / (|x − q| + |X − q|), d = x − X.
        dot = x[:, None] * (2.0 * back[:, 0] + x[:, None]) + y[:, None] * (2.0 * back[:, 1] + y[:, None])
        phase = waves + dot / (jnp.sqrt(length**2 + dot) + length) * inverse
        angle = 2.0 * jnp.pi * (phase - jnp.round(phase))
        real, imaginary = field
        # Sums, not matrix products: they fuse with what they add up, and nothing of size points × rays is stored.
        real = real + jnp.sum(jnp.cos(angle) * weight, axis=1)
        return (real, imaginary + jnp.sum(jnp.sin(angle) * weight, axis=1)), None

    zero = jnp.zeros_like(x)
    parts = (chunks(back, 1.0), chunks(waves, 0.0), chunks(weight, 0.0))
    (real, imaginary), _ = jax.lax.scan(add, (zero, zero), parts)
    return real**2 + imaginary**2


def _inside(rim: Rim) -> tuple[Float[Array, " rays"], Float[Array, " rays"]]:
    """A few rays inside the rim, mirrored about the meridian, for the focus."""
    part = jnp.linspace(0.2, 0.98, 5)[:, None]
    r = part * rim.radius
    x, y = r * jnp.sin(rim.angle), rim.centre + r * jnp.cos(rim.angle)
    return jnp.concatenate([x.ravel(), -x.ravel()]), jnp.concatenate([y.ravel(), y.ravel()])
