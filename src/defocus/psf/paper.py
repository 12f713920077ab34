"""The paper's own PSF, complete, for comparison (its sections 3 and S1–S3).

It takes the optical path on the sphere about the focus F through the centre of the exit pupil, the sphere's radial
direction for s, and plane waves from F to the sensor (Debye's integral); a constant amplitude with the factor 1/cos θ;
one polynomial of degree 5 for the largest clipping of all surfaces, whose zero is the rim; N = 2 N_inf samples, and as
many more as keep the sum's replicas, λ / Δs apart, out of a window that is wider than that; u = 5 points per pixel and
axis; and the chirp-z transform.

Where it differs from `engine`: the largest clipping has creases where one surface takes over from another, so that its
polynomial misses the true rim; the amplitude leaves out how rays spread; the fringes are those of an infinitely distant
rim. Each is measured in docs/validation.md.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import TraceError
from ..optics.pupil import find_bundle, vergence_of
from ..optics.reference_sphere import on_sphere, sphere_radius
from ..optics.system import System
from ..optics.trace import Trace
from ..optics.wavefront import PupilRays, Wavefront, fit_wavefront, rim_angles, trace_pupil, zernike_fit
from ..optics.zernike import basis
from .bands import Bands
from .engine import Report, fold_bands
from .poses import Points, Pose, Requests, find_pose
from .propagate import Intensity, chirp_z, intensity
from .pupil_function import turn
from .sampling import MOST_SAMPLES, bucket, paper_bound

CLIP_DEGREE = 5
SUPERSAMPLE = 5
SAMPLES_PER_BOUND = 2.0


def paper_psf(requests: Requests, row: int, bands: Bands, size: int) -> tuple[Float[np.ndarray, "b h w"], Report]:
    """The PSF of one request and its report. Raises `TraceError` where the lens does not image the point."""
    packed, point = requests.lenses[requests.lens[row]], requests.points.take([row])
    point = jax.tree.map(lambda leaf: leaf[0], point)
    waves = bands.every_nm
    lights: list[Intensity] = []
    samples = 0
    for wave, index in zip(waves, packed.indices(waves), strict=True):
        wavelength = np.asarray(wave * 1e-6)
        wavefront, bound, found = jax.device_get(_wavefront(packed.system, index, wavelength, point))
        if not found:
            raise TraceError(f"{packed.lens.name}: no light gets through at this field")
        replicas = 2.0 * float(wavefront.radius) * size * float(point.pixel) / float(wavefront.wavelength)
        count = bucket(max(SAMPLES_PER_BOUND * float(bound), replicas))
        samples = max(samples, count)
        if samples > MOST_SAMPLES:
            raise TraceError(f"{packed.lens.name}: needs {samples} samples across the pupil, more than {MOST_SAMPLES}")
        lights.append(jax.device_get(_propagate(wavefront, point.azimuth, point.pixel, samples=count, size=size)))
    pixels = np.stack([np.asarray(light.pixels) for light in lights])[None]
    inside = np.array([float(light.inside) for light in lights])[None]
    psf = fold_bands(pixels, bands)[0]
    lost = 1.0 - fold_bands(inside, bands)[0]
    report = {
        "status": "ok",
        "samples": samples,
        "sampling_bound": float(bound),
        "supersample": SUPERSAMPLE,
        "energy_outside": float(lost.max()),
        "image_height_mm": float(wavefront.image_height),
        "blur_mm": float(np.abs(wavefront.blur).max()),
    }
    return (psf / psf.sum((1, 2), keepdims=True)).astype(np.float32), report


@jax.jit
def _wavefront(
    system: System, index: Float[Array, " media"], wavelength: Float[Array, ""], point: Points
) -> tuple[Wavefront, Float[Array, ""], Array]:
    """The wavefront of one colour, the paper's N_inf, and whether there is light."""
    pose = find_pose(system, point.height, point.focus, point.shift)
    coloured = eqx.tree_at(lambda s: s.index, system, index)
    wavefront = paper_wavefront(coloured, pose, point, wavelength)
    bound = paper_bound(pose.data.na, wavefront.focus[2] - pose.sensor_z, wavelength)
    return wavefront, bound, wavefront.found & (point.depth > pose.data.entrance_pupil)


def paper_wavefront(system: System, pose: Pose, point: Points, wavelength: Float[Array, ""]) -> Wavefront:
    """Wavefront on the exit-pupil sphere about the focus; `wavelength` in mm."""
    data, chief = pose.data, pose.chief
    vergence = vergence_of(chief, point.depth - data.entrance_pupil)
    rays = trace_pupil(system, chief, vergence, pose.sensor_z, pose.landing, data)
    s, w = _on_exit_sphere(rays, rays.traced)
    bundle = find_bundle(system, chief, vergence, samples=65, data=data).traced
    return fit_wavefront(
        rays,
        s,
        w,
        1.0 / jnp.maximum(s[2], 1e-3),
        chief,
        wavelength / system.index[-1],
        bend=jnp.zeros(()),
        apart=jnp.ones(()),
        edge=_fitted_rim(bundle, _on_exit_sphere(rays, bundle)[0], s[:2, -len(rays.rim.angle) :]),
    )


def _on_exit_sphere(rays: PupilRays, traced: Trace) -> tuple[Float[Array, "3 rays"], Float[Array, " rays"]]:
    """Directions s from the sphere to the focus, and W (mm) to the window's centre: from the focus on, plane waves."""
    radius = sphere_radius(rays.focus, rays.exit_pupil)
    s, t = on_sphere(traced.position, traced.direction, rays.focus, radius)
    return s, traced.path + t + radius + jnp.sum(s * (rays.origin - rays.focus)[:, None], axis=0)


def _fitted_rim(
    traced: Trace, s: Float[Array, "3 rays"], own_edge: Float[Array, "2 directions"]
) -> Float[Array, "2 points"]:
    """Points where one polynomial, fitted to the largest clipping of all surfaces, changes its sign."""
    low, high = jnp.min(own_edge[1]), jnp.max(own_edge[1])
    centre = jnp.stack([jnp.zeros(()), (low + high) / 2.0])
    half = jnp.stack([jnp.max(jnp.abs(own_edge[0])), (high - low) / 2.0])
    u, v = (s[:2] - centre[:, None]) / half[:, None]
    near = (traced.alive & (traced.clip < 1.0)).astype(float)
    clip, _ = zernike_fit(u, v, jnp.where(near > 0.0, traced.clip, 0.0), near, CLIP_DEGREE)
    psi, r = rim_angles(), jnp.linspace(0.0, 1.3, 131)[:, None]
    values = basis(r * jnp.sin(psi), r * jnp.cos(psi), CLIP_DEGREE) @ clip
    inside = jnp.cumprod((values < 0.0).astype(int), axis=0)
    last = jnp.clip(jnp.sum(inside, axis=0) - 1, 0, len(r) - 2)
    before, after = (jnp.take_along_axis(values, (last + i)[None], axis=0)[0] for i in (0, 1))
    part = jnp.clip(-before / jnp.where(after > before, after - before, 1.0), 0.0, 1.0)
    radius = (last + part) * (r[1, 0] - r[0, 0])
    return jnp.stack([radius * jnp.sin(psi) * half[0], radius * jnp.cos(psi) * half[1]]) + centre[:, None]


@partial(jax.jit, static_argnames=("samples", "size"))
def _propagate(
    wavefront: Wavefront, azimuth: Float[Array, ""], pixel: Float[Array, ""], *, samples: int, size: int
) -> Intensity:
    pupil = turn(wavefront, azimuth)
    return intensity(pupil, pixel, samples=samples, size=size, supersample=SUPERSAMPLE, transform=chirp_z)
