"""The wavefront that a lens sends to the sensor, as a spectrum of waves that meet there.

Let X be a point of the sensor, the centre of the window that will be looked at, and let a sphere about X pass through
the centre of the exit pupil, R away. A ray reaches it at q with the optical path L. From there a wavelet goes to a
point x near X by |x − q| = R + s·(x − X) + …, with s = (X − q) / R.

    W(s) = L + R        and        E(x) = ∬ A(s) exp(2πi [W(s) + s_x (x − X_x) + s_y (y − X_y)] / λ) ds_x ds_y

with s_x, s_y in the sensor's frame. Aberrations and defocus are both in W: they are one smooth function, and on a blur
of any size it is only as large as the blur is wide. Rays fill the traced rim of the pupil, so that W is fitted where
light passes and nowhere else. Of what the dots leave out, (|x − X|² − (s·(x − X))²) / 2R, most is the same for all s,
and what is linear in s moves x a little: `psf.propagate` allows for it.

Debye's integral takes the ray's own direction for s: R is infinite. The rim then shines from infinity, which moves the
fringes of a blur in the ratio of defocus to R; and where rays cross behind the lens, two of them may share one
direction, and W is no function of s any more. On the sphere through the exit pupil they mostly stay apart. Where they
do not, at the edge of the field of some phone lenses, R is made larger, by steps, until they do: every sphere in the
image's space is as good as any other, as long as no caustic touches it, and only the rim's fringes shift by the little
said above.

Energy: the light that enters through dA leaves into ds_x ds_y and lands on the sensor whatever its angle. For |E|² to
be the irradiance, |A|² = dA / ds_x ds_y without a further 1/s_z: with that the sum over the sensor would exceed what
entered, and a large blur would differ from the density of its rays. The derivative is exact, by ray differentials.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .focus import meeting_point
from .paraxial import FirstOrder, first_order
from .pupil import ChiefRay, launch
from .reference_sphere import least_stretch, on_sphere, open_radius, stretch_on_sphere, trace_differentials
from .rim import Iris, Rim, find_rim
from .system import System
from .trace import Moved, Trace, mirrored, to_plane, trace
from .zernike import basis, cosine_modes

DEGREE = 15  # of the wavefront: 136 Zernike modes, 72 of them even about the meridian
AMPLITUDE_DEGREE = 8
RINGS = 20
SPOKES = 65  # of the rim's directions, one in two
TABLE = 1024  # steps of the rim's radius over a turn
RIDGE = 1e-13
STRONGEST = 3.0  # amplitude over the pupil's median


class Wavefront(eqx.Module):
    """One point's wavefront in the meridional frame: +y points from the axis to the image point.

    The pupil lies in the plane of direction cosines: centre + (x, y) · radius, |(x, y)| ≤ about 1.
    """

    phase: Float[Array, "*batch modes"]  # Zernike coefficients of W, waves
    amplitude: Float[Array, "*batch amplitude_modes"]  # Zernike coefficients of A, mm
    centre: Float[Array, "*batch 2"]  # direction cosines
    radius: Float[Array, "*batch"]  # of the circle about the pupil, direction cosines
    rim: Float[Array, "*batch table"]  # radius of the pupil in direction cosines about `centre`, over ψ = −π … π
    chief: Float[Array, "*batch"]  # direction cosine s_y of the chief ray
    focus: Float[Array, "*batch 3"]  # mm, in the image plane's frame; where the rays come nearest to meeting
    image_height: Float[Array, "*batch"]  # mm; y of the window's centre X
    blur: Float[Array, "*batch 2 2"]  # mm; lowest and highest intercept of the rays about X, in x and y
    core: Float[Array, "*batch"]  # mm; radius that holds half of the rays
    area: Float[Array, "*batch"]  # of the pupil in direction cosines: the illumination that it gives
    residual_rms: Float[Array, "*batch"]  # waves
    residual_max: Float[Array, "*batch"]  # waves
    wavelength: Float[Array, "*batch"]  # mm, in the medium of the image
    bend: Float[Array, "*batch"]  # 1/mm; 1 / R of the sphere, 0 for plane waves
    apart: Float[Array, "*batch"]  # least ds / dA over its median; negative where rays cross before the sphere
    found: Bool[Array, "*batch"]  # a chief ray and light


class PupilRays(eqx.Module):
    """Rays that fill half a pupil up to its rim, the rim's own last, and what of the lens they were traced through."""

    rim: Rim
    offset: Float[Array, "2 rays"]  # mm, in the launch plane
    traced: Trace  # optical paths in lengths of the image's medium
    moved: Moved
    weight: Float[Array, " rays"]  # the area that each stands for, up to a factor
    obliquity: Float[Array, " rays"]  # light of a near source per launched area
    origin: Float[Array, "3"]  # mm; X, the window's centre
    exit_pupil: Float[Array, "3"]  # mm; its centre, in the image plane's frame
    focus: Float[Array, "3"]  # mm; where the rays come nearest to meeting


Strength = Callable[[PupilRays, Float[Array, " rays"]], Float[Array, " rays"]]  # A at the rays, from ds_x ds_y / dA


def trace_pupil(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
    landing: Float[Array, ""],
    data: FirstOrder,
) -> PupilRays:
    """Rays of one object point; arguments as those of `find_wavefront`."""
    rim = find_rim(system, chief, vergence, data=data)
    x, y = _ray_points(rim)
    offset = jnp.stack([x, y])
    origin = jnp.stack([jnp.zeros(()), landing, sensor_z])
    traced, moved = trace_differentials(system, chief, offset, vergence)
    traced = eqx.tree_at(lambda t: t.path, traced, traced.path / system.index[-1])
    return PupilRays(
        rim=rim,
        offset=offset,
        traced=traced,
        moved=moved,
        weight=_weights(rim),
        obliquity=(1.0 + jnp.sum(offset**2, axis=0) * vergence**2) ** -1.5,
        origin=origin,
        exit_pupil=jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane]),
        focus=jnp.where(rim.found, meeting_point(mirrored(traced)), origin),
    )


def energy_strength(rays: PupilRays, stretch: Float[Array, " rays"]) -> Float[Array, " rays"]:
    """A = √(dA / ds_x ds_y): what the light carries."""
    return jnp.sqrt(rays.obliquity / jnp.maximum(jnp.abs(stretch), 1e-30))


def find_wavefront(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
    landing: Float[Array, ""],
    wavelength: Float[Array, ""],
    *,
    data: FirstOrder | None = None,
    iris: Iris | None = None,
    azimuth: Float[Array, ""] | float = 0.0,
    strength: Strength = energy_strength,
) -> Wavefront:
    """Trace one object point's pupil and fit its wavefront.

    `vergence` is 1 / distance of the object along the chief ray (1/mm), `sensor_z` the sensor's place in the frame of
    the prescription's image plane (mm), `landing` the height y of the window's centre X on it (mm), `wavelength` in mm.
    `chief` may be another wavelength's chief ray: it only says where the object is and where to look for its pupil.
    `iris` gives the stop a shape; it is fixed to the camera, so that `azimuth`, the direction of the image point in the
    photograph, matters too.
    """
    data = first_order(system) if data is None else data
    if iris is not None:
        # Fitted is what a round stop about the blades passes; the blades then only shape the rim.
        system = eqx.tree_at(lambda s: s.semi_diameter, system, system.semi_diameter.at[system.stop].set(iris.outer))
    rays = trace_pupil(system, chief, vergence, sensor_z, landing, data)
    radius = open_radius(rays.traced, rays.moved, rays.origin, rays.exit_pupil)
    stretch = stretch_on_sphere(rays.traced, rays.moved, rays.origin, radius)

    def on_reference(traced: Trace) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
        """The waves' directions s and their optical path W (mm)."""
        s, t = on_sphere(traced.position, traced.direction, rays.origin, radius)
        return s, traced.path + t + radius

    table = None
    if iris is not None:
        blades = find_rim(system, chief, vergence, data=data, iris=iris, azimuth=azimuth)
        x, y = blades.radius * jnp.sin(blades.angle), blades.centre + blades.radius * jnp.cos(blades.angle)
        edge = trace(system, launch(chief, x, y, vergence, system.index[0]))
        table = on_reference(edge)[0][:2]
    return fit_wavefront(
        rays,
        *on_reference(rays.traced),
        strength(rays, stretch),
        chief,
        wavelength / system.index[-1],
        bend=1.0 / radius,
        apart=least_stretch(stretch),
        edge=table,
    )


def fit_wavefront(
    rays: PupilRays,
    s: Float[Array, "3 rays"],
    w: Float[Array, " rays"],
    strength: Float[Array, " rays"],
    chief: ChiefRay,
    wavelength: Float[Array, ""],
    *,
    bend: Float[Array, ""],
    apart: Float[Array, ""],
    edge: Float[Array, "2 points"] | None = None,
) -> Wavefront:
    """The wavefront with directions `s`, paths `w` (mm) and amplitudes at the rays; `wavelength` of the medium, mm.

    `edge` are points of the rim in direction cosines, in any order, where it is not that of the rays.
    """
    own_edge = s[:2, -len(rays.rim.angle) :]
    low, high = jnp.min(own_edge[1]), jnp.max(own_edge[1])
    centre = jnp.stack([jnp.zeros(()), (low + high) / 2.0])
    # Fitted is on a circle about the pupil, however narrow that is: turned to the photograph's frame, the polynomials
    # are evaluated over a whole square, and one of degree 15 that fits a narrow ellipse tightly grows by the fifteenth
    # power of its aspect in the corners. At 8 to 1 its coefficients reached 1e8 waves, and PSFs were noise.
    radius = jnp.maximum(jnp.max(jnp.abs(own_edge[0])), (high - low) / 2.0)  # the half rim may lie on either side
    radius = jnp.where(radius > 0.0, radius, 1.0)
    u, v = (s[:2] - centre[:, None]) / radius
    modes = basis(u, v, DEGREE)
    phase, residual = zernike_fit(modes, (w - jnp.mean(w)) / wavelength, rays.weight)
    # Where a caustic touches the sphere the amplitude is infinite, on a line that carries no light to speak of.
    strength = jnp.minimum(strength, STRONGEST * jnp.median(jax.lax.stop_gradient(strength)))
    amplitude, _ = zernike_fit(modes[:, : len(cosine_modes(AMPLITUDE_DEGREE))], strength, rays.weight)
    if edge is None:
        edge = jnp.concatenate([own_edge, own_edge * jnp.array([[-1.0], [1.0]])], axis=1)
    table = rim_table(edge, centre)
    blur, core = _extent(to_plane(rays.traced, rays.origin[2]) - rays.origin[:2, None], rays.weight)
    slope = chief.image_slope
    return Wavefront(
        phase=phase,
        amplitude=amplitude,
        centre=centre,
        radius=radius,
        rim=table,
        chief=slope / jnp.sqrt(1.0 + slope**2),
        focus=rays.focus,
        image_height=rays.origin[1],
        blur=blur,
        core=core,
        area=jnp.trapezoid(table**2 / 2.0, rim_angles()),
        residual_rms=jnp.sqrt(jnp.sum(rays.weight * residual**2) / jnp.sum(rays.weight)),
        residual_max=jnp.max(jnp.abs(residual)),
        wavelength=wavelength,
        bend=bend,
        apart=apart,
        found=rays.rim.found & chief.found & jnp.all(rays.traced.alive),
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


def _extent(
    hits: Float[Array, "2 rays"], weight: Float[Array, " rays"]
) -> tuple[Float[Array, "2 2"], Float[Array, ""]]:
    """How far the rays of the whole pupil reach on the sensor, and the radius about their mean that holds half.

    They say how finely to sample, and have no derivatives.
    """
    hits, weight = jax.lax.stop_gradient((hits, weight))
    reach = jnp.max(jnp.abs(hits[0]))
    low, high = jnp.min(hits[1]), jnp.max(hits[1])
    share = weight / jnp.sum(weight)
    distance = jnp.hypot(hits[0], hits[1] - jnp.sum(share * hits[1]))
    order = jnp.argsort(distance)
    core = distance[order][jnp.argmax(jnp.cumsum(share[order]) >= 0.5)]
    return jnp.stack([jnp.stack([-reach, reach]), jnp.stack([low, high])]), core


def zernike_fit(
    modes: Float[Array, "rays modes"], values: Float[Array, " rays"], weight: Float[Array, " rays"]
) -> tuple[Float[Array, " modes"], Float[Array, " rays"]]:
    """Weighted least squares in a Zernike basis; coefficients and residual.

    Normal equations with a ridge far below the data, and one step of refinement: on a vignetted pupil the modes are
    nearly dependent, and which of the equal fits is taken does not matter where light passes.
    """
    root = jnp.sqrt(weight / jnp.sum(weight))
    coefficients = _least_squares(modes * root[:, None], values * root)
    return coefficients, values - modes @ coefficients


@jax.custom_jvp
def _least_squares(a: Float[Array, "rays modes"], target: Float[Array, " rays"]) -> Float[Array, " modes"]:
    solve = _normal_solver(a)
    coefficients = solve(a.T @ target)
    return coefficients + solve(a.T @ (target - a @ coefficients))


@_least_squares.defjvp
def _least_squares_derivative(primals, tangents):  # type: ignore[no-untyped-def]
    """Aᵀ(A c − t) = 0 stays: no derivative of the factors is needed."""
    (a, target), (moved, change) = primals, tangents
    coefficients = _least_squares(a, target)
    residual = target - a @ coefficients
    return coefficients, _normal_solver(a)(a.T @ (change - moved @ coefficients) + moved.T @ residual)


def _normal_solver(a: Float[Array, "rays modes"]) -> Callable[[Float[Array, " modes"]], Float[Array, " modes"]]:
    gram = a.T @ a
    factor = jax.scipy.linalg.cho_factor(gram + RIDGE * jnp.trace(gram) * jnp.eye(len(gram)))
    return lambda right: jax.scipy.linalg.cho_solve(factor, right)


def rim_angles() -> Float[Array, " table"]:
    """The angles ψ of the rim's table, from the meridian of +y towards +x."""
    return jnp.linspace(-jnp.pi, jnp.pi, TABLE + 1)


def rim_table(edge: Float[Array, "2 points"], centre: Float[Array, "2"]) -> Float[Array, " table"]:
    """The rim's radius about `centre` in the plane of direction cosines, from points on it in any order."""
    x, y = edge - centre[:, None]
    return jnp.interp(rim_angles(), jnp.arctan2(x, y), jnp.hypot(x, y), period=2.0 * jnp.pi)
