"""The Fraunhofer ("FFT") PSF: the Fourier transform of the aberrated pupil, for comparison (the paper's S2.7).

The pupil function is that of the traced rays: their optical path on the sphere about the focus F through the centre of
the exit pupil, their rim, and their energy. On the way from F to the sensor, d behind it, Debye's exact phase d s_z
becomes its parabola about the direction c of the chief ray,

    s_z ≈ c_z − c·δ / c_z − (δ² + (c·δ)² / c_z²) / 2 c_z,        δ = (s − c) in x and y,

on the axis 1 − (s_x² + s_y²) / 2. What is left out grows with the fourth power of the numerical aperture.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..optics.pupil import vergence_of
from ..optics.reference_sphere import sphere_radius, stretch_on_sphere
from ..optics.system import System
from ..optics.wavefront import Wavefront, energy_strength, fit_wavefront, trace_pupil
from .method import PsfMethod
from .paper import on_exit_sphere
from .poses import Points, Pose


def fraunhofer_wavefront(system: System, pose: Pose, point: Points, wavelength: Float[Array, ""]) -> Wavefront:
    """Wavefront on the exit-pupil sphere about the focus, with a parabola for the defocus; `wavelength` in mm."""
    data, chief = pose.data, pose.chief
    vergence = vergence_of(chief, point.depth - data.entrance_pupil)
    rays = trace_pupil(system, chief, vergence, pose.sensor_z, pose.landing, data)
    s, w = on_exit_sphere(rays, rays.traced)
    radius = sphere_radius(rays.focus, rays.exit_pupil)
    defocus = rays.origin[2] - rays.focus[2]
    return fit_wavefront(
        rays,
        s,
        w + defocus * (_parabola(s, (rays.focus - rays.exit_pupil) / radius) - s[2]),
        energy_strength(rays, stretch_on_sphere(rays.traced, rays.moved, rays.focus, radius)),
        chief,
        wavelength / system.index[-1],
        bend=jnp.zeros(()),
        apart=jnp.ones(()),
    )


def _parabola(s: Float[Array, "3 rays"], centre: Float[Array, "3"]) -> Float[Array, " rays"]:
    """s_z to the second order about the direction `centre`."""
    step = (s - centre[:, None])[:2]
    slope = jnp.sum(centre[:2, None] * step, axis=0) / centre[2]
    return centre[2] - slope - (jnp.sum(step**2, axis=0) + slope**2) / (2.0 * centre[2])


FRAUNHOFER = PsfMethod(fraunhofer_wavefront)
