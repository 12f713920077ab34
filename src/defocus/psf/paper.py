"""The paper's own PSF, complete, for comparison and for its data set (its sections 3 and S1–S3).

It takes the optical path on the sphere about the focus F through the centre of the exit pupil, the sphere's radial
direction for s, and plane waves from F to the sensor (Debye's integral); a constant amplitude with the factor 1/cos θ;
one polynomial of degree 5 for the largest clipping of all surfaces, whose zero is the rim; N = 2 N_inf samples; u = 5
points per pixel and axis; and the chirp-z transform. Near the focus, where N_inf vanishes, it takes 256 samples, as
many as the published program has there, and as in that program the window is dark beyond one period of the sum: with
N = 2 N_inf that is twice the circle of confusion, less than the kernel.

Where it differs from the default: the largest clipping has creases where one surface takes over from another, so that
its polynomial misses the true rim; the amplitude leaves out how rays spread; the fringes are those of an infinitely
distant rim; light beyond a period is folded into it. Each is measured in docs/validation.md.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..optics.pupil import Bundle, find_bundle, vergence_of
from ..optics.reference_sphere import on_sphere, sphere_radius
from ..optics.system import System
from ..optics.trace import Trace
from ..optics.wavefront import PupilRays, Wavefront, fit_wavefront, rim_angles, trace_pupil, zernike_fit
from ..optics.zernike import basis
from .method import PsfMethod
from .poses import Points, Pose
from .propagate import chirp_z
from .sampling import paper_bound
from .wavefronts import Wavefronts

CLIP_DEGREE = 5
SUPERSAMPLE = 5
SAMPLES_PER_BOUND = 2.0
FEWEST = 256  # samples near the focus


def paper_wavefront(system: System, pose: Pose, point: Points, wavelength: Float[Array, ""]) -> Wavefront:
    """Wavefront on the exit-pupil sphere about the focus; `wavelength` in mm."""
    data, chief = pose.data, pose.chief
    vergence = vergence_of(chief, point.depth - data.entrance_pupil)
    rays = trace_pupil(system, chief, vergence, pose.sensor_z, pose.landing, data)
    s, w = on_exit_sphere(rays, rays.traced)
    bundle = find_bundle(system, chief, vergence, samples=65, data=data)
    return fit_wavefront(
        rays,
        s,
        w,
        1.0 / jnp.maximum(s[2], 1e-3),
        chief,
        wavelength / system.index[-1],
        bend=jnp.zeros(()),
        apart=jnp.ones(()),
        edge=_fitted_rim(bundle, on_exit_sphere(rays, bundle.traced)[0], s[:2, -len(rays.rim.angle) :]),
    )


def on_exit_sphere(rays: PupilRays, traced: Trace) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
    """Directions s from the sphere to the focus, and W (mm) to the window's centre: from the focus on, plane waves."""
    radius = sphere_radius(rays.focus, rays.exit_pupil)
    s, t = on_sphere(traced.position, traced.direction, rays.focus, radius)
    return s, traced.path + t + radius + jnp.sum(s * (rays.origin - rays.focus)[:, None], axis=0)


def _fitted_rim(
    bundle: Bundle, s: Float[Array, "3 rays"], own_edge: Float[Array, "2 directions"]
) -> Float[Array, "2 points"]:
    """Points where one polynomial, fitted to the largest clipping of all surfaces, changes its sign."""
    low, high = jnp.min(own_edge[1]), jnp.max(own_edge[1])
    centre = jnp.stack([jnp.zeros(()), (low + high) / 2.0])
    half = jnp.stack([jnp.max(jnp.abs(own_edge[0])), (high - low) / 2.0])
    u, v = (s[:2] - centre[:, None]) / half[:, None]
    traced = bundle.traced
    near = traced.alive & (traced.clip < 1.0)
    clip, _ = zernike_fit(basis(u, v, CLIP_DEGREE), jnp.where(near, traced.clip, 0.0), near * bundle.weight)
    psi, r = rim_angles(), jnp.linspace(0.0, 1.3, 131)[:, None]
    values = basis(r * jnp.sin(psi), r * jnp.cos(psi), CLIP_DEGREE) @ clip
    inside = jnp.cumprod((values < 0.0).astype(int), axis=0)
    last = jnp.clip(jnp.sum(inside, axis=0) - 1, 0, len(r) - 2)
    before, after = (jnp.take_along_axis(values, (last + i)[None], axis=0)[0] for i in (0, 1))
    part = jnp.clip(-before / jnp.where(after > before, after - before, 1.0), 0.0, 1.0)
    radius = (last + part) * (r[1, 0] - r[0, 0])
    return jnp.stack([radius * jnp.sin(psi) * half[0], radius * jnp.cos(psi) * half[1]]) + centre[:, None]


def paper_samples(
    waves: Wavefronts,
    window: Float[Array, "requests 1"],
    wavelength: Float[Array, "requests waves"],
    rim: Float[Array, ""],
) -> Float[Array, "requests waves"]:
    """2 N_inf of the distance from each traced focus to the sensor, whatever the window."""
    defocus = waves.wavefront.focus[..., 2] - waves.pose.sensor_z[:, None]
    return jnp.maximum(SAMPLES_PER_BOUND * paper_bound(waves.pose.data.na[:, None], defocus, wavelength), FEWEST)


PAPER = PsfMethod(paper_wavefront, paper_samples, SUPERSAMPLE, chirp_z, one_period=True)
