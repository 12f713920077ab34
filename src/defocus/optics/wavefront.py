"""The wavefront that a lens sends to the sensor, as a spectrum of waves that meet there.

Let X be a point of the sensor, the centre of the window that will be looked at, and let a sphere about X pass through
the centre of the exit pupil, R away. A ray reaches it at q with the optical path L. From there a wavelet goes to a
point x near X by |x − q| = R + s·(x − X) + …, with s = (X − q) / R.

    W(s) = L + R        and        E(x) = ∬ A(s) exp(2πi [W(s) + s_x (x − X_x) + s_y (y − X_y)] / λ) ds_x ds_y

with s_x, s_y in the sensor's frame. Aberrations and defocus are both in W: they are one smooth function, and on a blur
of any size it is only as large as the blur is wide. Rays fill the traced rim of the pupil, so that W is fitted where
light passes and nowhere else. Of what the dots leave out, (|x − X|² − (s·(x − X))²) / 2R, most is the same for all s,
and what is linear in s moves x a little: `psf.propagate` allows for it.

Debye's integral takes the ray's own direction for s and W = L + s·(X − p) for a ray through p: R is infinite
(`form="plane-wave"`). The rim then shines from infinity, which moves the fringes of a blur in the ratio of defocus to
R; and where rays cross behind the lens, two of them may share one direction, and W is no function of s any more. On
the sphere through the exit pupil they mostly stay apart. Where they do not, at the edge of the field of some phone
lenses, R is made larger, by steps, until they do: every sphere in the image's space is as good as any other, as long as
no caustic touches it, and only the rim's fringes shift by the little said above.

Energy: the light that enters through dA leaves into ds_x ds_y and lands on the sensor whatever its angle. For |E|² to
be the irradiance, |A|² = dA / ds_x ds_y without a further 1/s_z: with that the sum over the sensor would exceed what
entered, and a large blur would differ from the density of its rays. The derivative is exact, by ray differentials.

For comparison there are the paper's choices: the sphere through the exit pupil about the focus F instead of X, with
its radial direction, and from F to the sensor by plane waves (`form="exit-pupil"`), a constant amplitude, and a rim
from one polynomial for all clipping; and the amplitude of programs that give each ray of a grid in the stop the same
weight.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .focus import meeting_point
from .paraxial import FirstOrder, first_order
from .pupil import ChiefRay, find_bundle, launch
from .reference_sphere import (
    Moved,
    on_sphere,
    open_radius,
    signed_area,
    sphere_radius,
    stretch_on_sphere,
    trace_differentials,
)
from .rim import Iris, Rim, find_rim
from .system import System
from .trace import Trace, to_plane, trace
from .zernike import basis, cosine_modes

DEGREE = 15  # of the wavefront: 136 Zernike modes, 72 of them even about the meridian
AMPLITUDE_DEGREE = 8
RINGS = 20
SPOKES = 65  # of the rim's directions, one in two
TABLE = 1024  # steps of the rim's radius over a turn
CLIP_DEGREE = 5  # of the paper's polynomial for all clipping
RIDGE = 1e-13
STRONGEST = 3.0  # amplitude over the pupil's median

Form = Literal["sphere", "plane-wave", "exit-pupil"]
Amplitude = Literal["energy", "stop", "constant"]
FORMS: tuple[Form, ...] = ("sphere", "plane-wave", "exit-pupil")
AMPLITUDES: tuple[Amplitude, ...] = ("energy", "stop", "constant")
Clipping = Literal["rim", "fit"]


class Wavefront(eqx.Module):
    """One point's wavefront in the meridional frame: +y points from the axis to the image point.

    The pupil lies in the plane of direction cosines: centre + (x, y) · half, |(x, y)| ≤ about 1.
    """

    phase: Float[Array, "*batch modes"]  # Zernike coefficients of W, waves
    amplitude: Float[Array, "*batch amplitude_modes"]  # Zernike coefficients of A, mm
    centre: Float[Array, "*batch 2"]  # direction cosines
    half: Float[Array, "*batch 2"]
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


def find_wavefront(
    system: System,
    chief: ChiefRay,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
    landing: Float[Array, ""],
    wavelength: Float[Array, ""],
    *,
    data: FirstOrder | None = None,
    form: Form | Int[Array, ""] = "sphere",
    amplitude: Amplitude | Int[Array, ""] = "energy",
    clipping: Clipping = "rim",
    iris: Iris | None = None,
    azimuth: Float[Array, ""] | float = 0.0,
) -> Wavefront:
    """Trace one object point's pupil and fit its wavefront.

    `vergence` is 1 / distance of the object along the chief ray (1/mm), `sensor_z` the sensor's place in the frame of
    the prescription's image plane (mm), `landing` the height y of the window's centre X on it (mm), `wavelength` in mm.
    `chief` may be another wavelength's chief ray: it only says where the object is and where to look for its pupil.
    `amplitude` is what the light carries ("energy"), the same for every ray of a grid in the stop, or the paper's
    constant; `clipping` the traced rim, or the paper's fit. `iris` gives the stop a shape; it is fixed to the camera,
    so that `azimuth`, the direction of the image point in the photograph, matters too. `form` and `amplitude` may also
    be arrays, places in FORMS and AMPLITUDES: then one program serves all of them.
    """
    form = jnp.asarray(FORMS.index(form) if isinstance(form, str) else form)
    amplitude = jnp.asarray(AMPLITUDES.index(amplitude) if isinstance(amplitude, str) else amplitude)
    data = first_order(system) if data is None else data
    if iris is not None:
        # Fitted is what a round stop about the blades passes; the blades then only shape the rim.
        system = eqx.tree_at(lambda s: s.semi_diameter, system, system.semi_diameter.at[system.stop].set(iris.outer))
    rim = find_rim(system, chief, vergence, data=data)
    x, y = _ray_points(rim)
    offset = jnp.stack([x, y])
    origin = jnp.stack([jnp.zeros(()), landing, sensor_z])
    pupil = jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane])

    traced, moved = trace_differentials(system, chief, offset, vergence)
    radius = jnp.where(form == FORMS.index("sphere"), open_radius(traced, moved, origin, pupil), jnp.inf)
    stretch = stretch_on_sphere(traced, moved, origin, radius)
    image_index = system.index[-1]
    wavelength = wavelength / image_index
    traced = eqx.tree_at(lambda t: t.path, traced, traced.path / image_index)
    focus = jnp.where(rim.found, meeting_point(_whole(traced)), origin)

    def spectrum(traced: Trace) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
        return _spectrum(traced, origin, focus, pupil, radius, form)

    s, w = spectrum(traced)
    edge = s[:2, -len(rim.angle) :]
    low, high = jnp.min(edge[1]), jnp.max(edge[1])
    centre = jnp.stack([jnp.zeros(()), (low + high) / 2.0])
    half = jnp.stack([jnp.max(jnp.abs(edge[0])), (high - low) / 2.0])  # the half rim may lie on either side
    half = jnp.where(half > 0.0, half, 1.0)

    u, v = (s[0] - centre[0]) / half[0], (s[1] - centre[1]) / half[1]
    weight = _weights(rim)
    phase, residual = _fit(u, v, (w - jnp.mean(w)) / wavelength, weight, DEGREE)
    scale, _ = _fit(u, v, _strength(amplitude, offset, stretch, moved, vergence), weight, AMPLITUDE_DEGREE)
    if clipping == "fit":
        bundle = find_bundle(system, chief, vergence, samples=65, data=data).traced
        table = _fitted_rim(bundle, spectrum(bundle)[0], centre, half)
    elif iris is None:
        table = _rim_table(jnp.concatenate([edge, edge * jnp.array([[-1.0], [1.0]])], axis=1), centre)
    else:
        blades = find_rim(system, chief, vergence, data=data, iris=iris, azimuth=azimuth)
        bx, by = blades.radius * jnp.sin(blades.angle), blades.centre + blades.radius * jnp.cos(blades.angle)
        table = _rim_table(spectrum(trace(system, launch(chief, bx, by, vergence, system.index[0])))[0][:2], centre)
    hits = to_plane(traced, sensor_z) - origin[:2, None]
    blur, core = _extent(hits, weight)
    slope = chief.image_slope
    return Wavefront(
        phase=phase,
        amplitude=scale,
        centre=centre,
        half=half,
        rim=table,
        chief=slope / jnp.sqrt(1.0 + slope**2),
        focus=focus,
        image_height=landing,
        blur=blur,
        core=core,
        area=jnp.trapezoid(table**2 / 2.0, _turn()),
        residual_rms=jnp.sqrt(jnp.sum(weight * residual**2) / jnp.sum(weight)),
        residual_max=jnp.max(jnp.abs(residual)),
        wavelength=wavelength,
        bend=1.0 / radius,
        apart=jnp.min(stretch / jnp.median(stretch)),
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


def _strength(
    amplitude: Int[Array, ""],
    offset: Float[Array, "2 rays"],
    stretch: Float[Array, " rays"],
    moved: Moved,
    vergence: Float[Array, ""],
) -> Float[Array, " rays"]:
    """A(s) at the rays, from ds_x ds_y / dA and the derivative of the place in the stop."""
    stretch = jnp.maximum(jnp.abs(stretch), 1e-30)
    obliquity = (1.0 + jnp.sum(offset**2, axis=0) * vergence**2) ** -1.5  # of a near source, per launched area
    by_energy = jnp.sqrt(obliquity / stretch)
    by_stop = jnp.abs(signed_area(*moved.stop_position)) / stretch
    strength = jax.lax.select_n(amplitude, by_energy, by_stop, jnp.ones_like(stretch))  # the order of AMPLITUDES
    # Where a caustic touches the sphere the amplitude is infinite, on a line that carries no light to speak of.
    return jnp.minimum(strength, STRONGEST * jnp.median(strength))


def _extent(
    hits: Float[Array, "2 rays"], weight: Float[Array, " rays"]
) -> tuple[Float[Array, "2 2"], Float[Array, ""]]:
    """How far the rays of the whole pupil reach on the sensor, and the radius about their mean that holds half."""
    reach = jnp.max(jnp.abs(hits[0]))
    low, high = jnp.min(hits[1]), jnp.max(hits[1])
    share = weight / jnp.sum(weight)
    distance = jnp.hypot(hits[0], hits[1] - jnp.sum(share * hits[1]))
    order = jnp.argsort(distance)
    core = distance[order][jnp.argmax(jnp.cumsum(share[order]) >= 0.5)]
    return jnp.stack([jnp.stack([-reach, reach]), jnp.stack([low, high])]), core


def _whole(traced: Trace) -> Trace:
    """The rays of half the pupil together with their mirror images about the meridian."""
    mirror = jnp.array([-1.0, 1.0, 1.0])[:, None]

    def both(leaf: Float[Array, "*more rays"], other: Float[Array, "*more rays"]) -> Float[Array, "*more both"]:
        return jnp.concatenate([leaf, other], axis=-1)

    return eqx.tree_at(
        lambda t: (t.position, t.direction, t.alive, t.clip),
        traced,
        (
            both(traced.position, traced.position * mirror),
            both(traced.direction, traced.direction * mirror),
            jnp.tile(traced.alive, 2),
            jnp.tile(traced.clip, 2),
        ),
    )


def _spectrum(
    traced: Trace,
    origin: Float[Array, "3"],
    focus: Float[Array, "3"],
    pupil: Float[Array, "3"],
    radius: Float[Array, ""],
    form: Int[Array, ""],
) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
    """The waves' directions s and their optical path W (mm) about `origin`, the window's centre."""
    exit_pupil = form == FORMS.index("exit-pupil")
    centre = jnp.where(exit_pupil, focus, origin)
    radius = jnp.where(exit_pupil, sphere_radius(focus, pupil), jnp.where(jnp.isfinite(radius), radius, 1.0))
    s, t = on_sphere(traced.position, traced.direction, centre, radius)
    # On from the sphere's centre, if that is the focus, by plane waves.
    w = traced.path + t + radius + jnp.sum(s * (origin - centre)[:, None], axis=0)
    plane = form == FORMS.index("plane-wave")
    own = traced.path + jnp.sum(traced.direction * (origin[:, None] - traced.position), axis=0)
    return jnp.where(plane, traced.direction, s), jnp.where(plane, own, w)


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


def _turn() -> Float[Array, " table"]:
    """The angles ψ of the rim's table, from the meridian of +y towards +x."""
    return jnp.linspace(-jnp.pi, jnp.pi, TABLE + 1)


def _rim_table(edge: Float[Array, "2 points"], centre: Float[Array, "2"]) -> Float[Array, " table"]:
    """The rim's radius about `centre` in the plane of direction cosines, from points on it in any order."""
    x, y = edge - centre[:, None]
    return jnp.interp(_turn(), jnp.arctan2(x, y), jnp.hypot(x, y), period=2.0 * jnp.pi)


def _fitted_rim(
    traced: Trace, s: Float[Array, "3 rays"], centre: Float[Array, "2"], half: Float[Array, "2"]
) -> Float[Array, " table"]:
    """The paper's rim: where one polynomial, fitted to the largest clipping of all surfaces, changes its sign.

    That maximum has creases where one surface takes over from another, so the polynomial misses the true rim.
    """
    u, v = (s[:2] - centre[:, None]) / half[:, None]
    near = (traced.alive & (traced.clip < 1.0)).astype(float)
    clip, _ = _fit(u, v, jnp.where(near > 0.0, traced.clip, 0.0), near, CLIP_DEGREE)
    psi, r = _turn(), jnp.linspace(0.0, 1.3, 131)[:, None]
    values = basis(r * jnp.sin(psi), r * jnp.cos(psi), CLIP_DEGREE) @ clip
    inside = jnp.cumprod((values < 0.0).astype(int), axis=0)
    last = jnp.clip(jnp.sum(inside, axis=0) - 1, 0, len(r) - 2)
    before, after = (jnp.take_along_axis(values, (last + i)[None], axis=0)[0] for i in (0, 1))
    part = jnp.clip(-before / jnp.where(after > before, after - before, 1.0), 0.0, 1.0)
    radius = (last + part) * (r[1, 0] - r[0, 0])
    return _rim_table(
        jnp.stack([radius * jnp.sin(psi) * half[0], radius * jnp.cos(psi) * half[1]]) + centre[:, None], centre
    )
