"""The wavefront that a lens sends to the sensor, as a plane-wave spectrum.

Each ray that leaves the lens at p with unit direction s and optical path L is a plane wave. About a point X on the
sensor, the centre of the window that will be looked at, its phase is

    W(s) = L + s·(X − p)        and        E(x) = ∬ A(s) exp(2πi [W(s) + s_x (x − X_x) + s_y (y − X_y)] / λ) ds_x ds_y

with s_x, s_y the direction cosines in the sensor's frame. Aberrations and defocus are both in W: they are one smooth
function, and on a blur of any size it is only as large as the blur is wide. Rays fill the traced rim of the pupil, so
that W is fitted where light passes and nowhere else.

Energy: the light that enters through dA leaves into ds_x ds_y and lands on the sensor whatever its angle. For |E|² to
be the irradiance, |A|² = dA / ds_x ds_y without a further 1/s_z: with that the sum over the sensor would exceed what
entered, and a large blur would differ from the density of its rays. The derivative is exact, by ray differentials.

The paper's form takes the optical path on the exit-pupil sphere about the focus F and the radial direction there
instead of the ray's own (`form="exit-pupil"`).
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .focus import meeting_point
from .paraxial import FirstOrder, first_order
from .pupil import ChiefRay, launch
from .rim import Rim, find_rim
from .system import System
from .trace import Trace, to_plane, trace
from .zernike import basis, cosine_modes

DEGREE = 15  # of the wavefront: 136 Zernike modes, 72 of them even about the meridian
AMPLITUDE_DEGREE = 8
RINGS = 20
SPOKES = 65  # of the rim's directions, one in two
TABLE = 512  # entries of the rim's radius over half a turn
RIDGE = 1e-13

Form = Literal["plane-wave", "exit-pupil"]


class Wavefront(eqx.Module):
    """One point's wavefront in the meridional frame: +y points from the axis to the image point.

    The pupil lies in the plane of direction cosines: centre + (x, y) · half, |(x, y)| ≤ about 1.
    """

    phase: Float[Array, "*batch modes"]  # Zernike coefficients of W, waves
    amplitude: Float[Array, "*batch amplitude_modes"]  # Zernike coefficients of A, mm
    centre: Float[Array, "*batch 2"]  # direction cosines
    half: Float[Array, "*batch 2"]
    rim: Float[Array, "*batch table"]  # radius of the pupil in direction cosines about `centre`, over ψ = 0 … π
    image_height: Float[Array, "*batch"]  # mm; y of the window's centre X
    blur: Float[Array, "*batch 2 2"]  # mm; lowest and highest intercept of the rays about X, in x and y
    area: Float[Array, "*batch"]  # of the pupil in direction cosines: the illumination that it gives
    residual_rms: Float[Array, "*batch"]  # waves
    residual_max: Float[Array, "*batch"]  # waves
    wavelength: Float[Array, "*batch"]  # mm
    found: Bool[Array, "*batch"]  # a chief ray and light


def find_wavefront(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
    landing: Float[Array, ""],
    wavelength: Float[Array, ""],
    *,
    data: FirstOrder | None = None,
    form: Form = "plane-wave",
    energy: bool = True,
) -> Wavefront:
    """Trace one object point's pupil and fit its wavefront.

    `vergence` is 1 / distance of the object along the chief ray (1/mm), `sensor_z` the sensor's place in the frame of
    the prescription's image plane (mm), `landing` the height y of the window's centre X on it (mm), `wavelength` in mm.
    `chief` may be another wavelength's chief ray: it only says where the object is and where to look for its pupil.
    `energy` False gives the paper's constant amplitude.
    """
    data = first_order(system) if data is None else data
    rim = find_rim(system, chief, vergence, data=data)
    x, y = _ray_points(rim)

    def send(offset: Float[Array, "2 rays"]) -> tuple[Float[Array, "2 rays"], Trace]:
        traced = trace(system, launch(chief, offset[0], offset[1], vergence, system.index[0]))
        return traced.direction[:2], traced

    def differential(tangent: Float[Array, "2"]) -> tuple[Float[Array, "2 rays"], Trace]:
        offset = jnp.stack([x, y])
        along = jnp.broadcast_to(tangent[:, None], offset.shape)
        _, moved, traced = jax.jvp(send, (offset,), (along,), has_aux=True)
        return moved, traced

    moved, traced = jax.vmap(differential, out_axes=(0, None))(jnp.eye(2))
    stretch = jnp.abs(moved[0, 0] * moved[1, 1] - moved[0, 1] * moved[1, 0])  # ds_x ds_y / dA
    obliquity = (1.0 + (x**2 + y**2) * vergence**2) ** -1.5  # of a near source, per area of the launch plane
    amplitude = jnp.sqrt(obliquity / jnp.maximum(stretch, 1e-30)) if energy else jnp.ones_like(x)

    origin = jnp.stack([jnp.zeros(()), landing, sensor_z])
    s, w = _spectrum(traced, origin, data, form, rim.found)
    edge = s[:2, -len(rim.angle) :]
    low, high = jnp.min(edge, axis=1), jnp.max(edge, axis=1)
    centre = jnp.stack([jnp.zeros(()), (low[1] + high[1]) / 2.0])
    half = jnp.stack([jnp.max(jnp.abs(edge[0])), (high[1] - low[1]) / 2.0])
    half = jnp.where(half > 0.0, half, 1.0)

    u, v = (s[0] - centre[0]) / half[0], (s[1] - centre[1]) / half[1]
    weight = _weights(rim)
    phase, residual = _fit(u, v, (w - jnp.mean(w)) / wavelength, weight, DEGREE)
    scale, _ = _fit(u, v, amplitude, weight, AMPLITUDE_DEGREE)
    table = _rim_table(edge, centre)
    hits = to_plane(traced, sensor_z) - origin[:2, None]
    reach = jnp.max(jnp.abs(hits[0]))
    blur = jnp.stack([jnp.stack([-reach, reach]), jnp.stack([jnp.min(hits[1]), jnp.max(hits[1])])])
    psi = jnp.linspace(0.0, jnp.pi, TABLE)
    return Wavefront(
        phase=phase,
        amplitude=scale,
        centre=centre,
        half=half,
        rim=table,
        image_height=landing,
        blur=blur,
        area=jnp.trapezoid(table**2, psi),
        residual_rms=jnp.sqrt(jnp.sum(weight * residual**2) / jnp.sum(weight)),
        residual_max=jnp.max(jnp.abs(residual)),
        wavelength=wavelength,
        found=rim.found & chief.found & jnp.all(traced.alive),
    )


def _ray_points(rim: Rim) -> tuple[Float[Array, " rays"], Float[Array, " rays"]]:
    """Rings of rays inside the rim, crowded towards it as a polynomial fit wants them, and last the rim itself."""
    rings = np.sin(np.pi / 2.0 * np.arange(1, RINGS) / RINGS)
    step = len(rim.angle) // (SPOKES - 1)
    inner = (jnp.asarray(rings)[:, None] * rim.radius[::step]).ravel()
    r = jnp.concatenate([inner, rim.radius * (1.0 - 1e-9)])
    angle = jnp.concatenate([jnp.tile(rim.angle[::step], RINGS - 1), rim.angle])
    return r * jnp.sin(angle), rim.centre + r * jnp.cos(angle)


def _weights(rim: Rim) -> Float[Array, " rays"]:
    """The area that each ray stands for, up to a factor."""
    edges = np.sin(np.pi / 2.0 * np.minimum((np.arange(RINGS + 1) + 0.5) / RINGS, 1.0)) ** 2
    ring = np.diff(edges)
    step = len(rim.angle) // (SPOKES - 1)

    def spokes(count: int) -> Float[np.ndarray, " spokes"]:
        share = np.full(count, 1.0 / (count - 1))
        share[[0, -1]] /= 2.0
        return share

    inner = (jnp.asarray(ring[:-1])[:, None] * rim.radius[::step] ** 2 * spokes(SPOKES)).ravel()
    return jnp.concatenate([inner, ring[-1] * rim.radius**2 * spokes(len(rim.angle))])


def _spectrum(
    traced: Trace, origin: Float[Array, "3"], data: FirstOrder, form: Form, lit: Bool[Array, ""]
) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
    """Directions of the plane waves and their optical path W (mm) about `origin`."""
    s, p, path = traced.direction, traced.position, traced.path
    if form == "plane-wave":
        return s, path + jnp.sum(s * (origin[:, None] - p), axis=0)
    focus = jnp.where(lit, meeting_point(traced), origin)
    pupil = jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane])
    radius = jnp.linalg.norm(focus - pupil)
    offset = p - focus[:, None]
    along = jnp.sum(s * offset, axis=0)
    t = -along - jnp.sqrt(jnp.maximum(along**2 - jnp.sum(offset**2, axis=0) + radius**2, 0.0))
    on_sphere = p + t * s
    radial = (focus[:, None] - on_sphere) / radius
    return radial, path + t + radius + jnp.sum(radial * (origin - focus)[:, None], axis=0)


def _fit(
    u: Float[Array, " rays"],
    v: Float[Array, " rays"],
    values: Float[Array, " rays"],
    weight: Float[Array, " rays"],
    degree: int,
) -> tuple[Float[Array, " modes"], Float[Array, " rays"]]:
    """Weighted least squares in the Zernike basis; coefficients and residual.

    Normal equations with a ridge far below the data, and one step of refinement: on a vignetted pupil the modes are
    nearly dependent, and which of the equal fits is taken does not matter where light passes.
    """
    b = basis(u, v, degree)
    root = jnp.sqrt(weight / jnp.sum(weight))
    a, target = b * root[:, None], values * root
    gram = a.T @ a
    gram = gram + RIDGE * jnp.trace(gram) * jnp.eye(len(cosine_modes(degree)))
    factor = jax.scipy.linalg.cho_factor(gram)
    coefficients = jax.scipy.linalg.cho_solve(factor, a.T @ target)
    coefficients = coefficients + jax.scipy.linalg.cho_solve(factor, a.T @ (target - a @ coefficients))
    return coefficients, values - b @ coefficients


def _rim_table(edge: Float[Array, "2 directions"], centre: Float[Array, "2"]) -> Float[Array, " table"]:
    """The rim's radius about `centre` in the plane of direction cosines, at equal steps of ψ from 0 to π."""
    psi = jnp.arctan2(jnp.abs(edge[0] - centre[0]), edge[1] - centre[1])
    rho = jnp.hypot(edge[0] - centre[0], edge[1] - centre[1])
    # Behind the lens the rim may run the other way round than in front of it.
    order = jnp.argsort(psi)
    return jnp.interp(jnp.linspace(0.0, jnp.pi, TABLE), psi[order], rho[order])
