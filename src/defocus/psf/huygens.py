"""The slow truth: a Rayleigh–Sommerfeld (Huygens) sum over the reference sphere.

The sphere is centred on the focus F and passes through the centre of the exit pupil, or is larger where a caustic would
touch it (`optics.reference_sphere`). Each of its patches dS shines with
the light dA that it carries:

    E(x) = Σ √(dA dS) exp(2πi (L + |x − q|) / λ) / |x − q| · √s_z

√s_z turns |E|², an energy density, into the irradiance on the sensor, as in `optics.wavefront`. The patches come from
traced rays, with nothing fitted. The cost is patches times points. Phases are taken relative to the window's centre, in
a form without cancellation, so that float32 holds them.

The light of single pixels costs as little as they are few: drawn at random, they tell how far a PSF is from the sum
where the whole window would take minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import TraceError
from ..optics.focus import meeting_point
from ..optics.paraxial import FirstOrder
from ..optics.pupil import ChiefRay, launch, vergence_of
from ..optics.reference_sphere import on_sphere, open_radius, trace_differentials
from ..optics.rim import Rim, find_rim
from ..optics.system import System
from ..optics.trace import Trace, trace
from .bands import Bands
from .engine import Report, fold_bands, light_refusal
from .poses import Requests
from .propagate import window_axis
from .pupil_function import grid_axis, to_meridian
from .sampling import bucket, needed_samples
from .wavefronts import wavefronts_of

RAYS_AT_ONCE = 2**18  # traced together
WAVELETS_AT_ONCE = 4096  # summed together
MOST_RAYS = 4096  # across the pupil
MARGIN = 1.25  # rays over the samples of the fast way
RIM = 36.0  # as of `needed_samples`: here a patch that the rim cuts counts by its part inside
REPLICAS = 0.15  # its margin


class Patches(eqx.Module):
    """The reference sphere in pieces, in the meridional frame; lengths in mm."""

    back: Float[Array, "patches 3"]  # from the piece to the window's centre
    waves: Float[Array, " patches"]  # optical path to the window's centre, in wavelengths, up to a constant
    weight: Float[Array, " patches"]  # √(dA dS s_z) / distance, over the area of a cell of the incoming beam
    wavelength: Float[Array, ""]
    light: Float[Array, ""] | float = 1.0  # Σ dA over the square of that area, 1/mm²


def huygens_psf(
    requests: Requests, row: int, bands: Bands, size: int, *, supersample: int = 5, rays: int | None = None
) -> tuple[Float[np.ndarray, "bands size size"], Report]:
    """The PSF of one request, with nothing fitted, and its report; `rays` across the pupil.

    Raises `TraceError` where no light arrives.
    """
    patches, report = sphere_patches(requests, row, bands, size, rays=rays)
    pixel, azimuth = (jnp.asarray(v[row]) for v in (requests.points.pixel, requests.points.azimuth))
    light = [huygens(own, pixel, azimuth, size=size, supersample=supersample) for own in patches]
    psf = fold_bands(np.stack(jax.device_get(light)).reshape(1, -1, size, size), bands)[0]
    inside = psf.sum((1, 2), keepdims=True)
    report |= {"supersample": supersample, "energy_outside": float(1.0 - inside.min())}
    return (psf / inside).astype(np.float32), report


def sphere_patches(
    requests: Requests, row: int, bands: Bands, size: int, *, rays: int | None = None
) -> tuple[list[Patches], Report]:
    """The patches of one request at each wavelength, enough for a window of `size` pixels, and a report of them.

    Raises `TraceError` where no light arrives.
    """
    packed, points = requests.lenses[requests.lens[row]], requests.points.take([row])
    one = Requests((packed,), np.zeros(1, int), points)
    one_row = wavefronts_of(one, bands, few=True)
    pose, fitted = jax.tree.map(lambda leaf: leaf[0], (one_row.pose, one_row.wavefront))
    if refusal := light_refusal(one_row, 0):
        raise TraceError(f"{packed.lens.name}: {refusal}")
    window = jnp.asarray(points.pixel[0]) * size
    needed = float(jnp.max(needed_samples(fitted.radius, fitted.blur, window, fitted.wavelength, RIM, REPLICAS)))
    rays = min(bucket(MARGIN * needed), MOST_RAYS) if rays is None else rays
    waves = bands.every_nm
    patches = []
    for wave, index in zip(waves, packed.indices(waves), strict=True):
        coloured = eqx.tree_at(lambda s: s.index, packed.system, index)
        rim, vergence = _rim_and_vergence(coloured, pose.data, pose.chief, jnp.asarray(points.depth[0]))
        patches.append(
            patches_from_rays(
                coloured, pose.data, pose.chief, rim, vergence, pose.sensor_z, pose.landing, jnp.asarray(wave * 1e-6),
                rays=rays,
            )
        )  # fmt: skip
    return patches, {
        "status": "ok",
        "samples": rays,
        "samples_needed": needed,
        "image_height_mm": float(pose.landing),
        "field_deg": math.degrees(float(pose.chief.angle)),
        "sensor_z_mm": float(pose.sensor_z),
        "blur_mm": float(np.abs(fitted.blur).max()),
    }


@jax.jit
def _rim_and_vergence(
    system: System, data: FirstOrder, chief: ChiefRay, depth: Float[Array, ""]
) -> tuple[Rim, Float[Array, ""]]:
    vergence = vergence_of(chief, depth - data.entrance_pupil)
    return find_rim(system, chief, vergence, data=data), vergence


@partial(jax.jit, static_argnames=("rays",))
def patches_from_rays(
    system: System,
    data: FirstOrder,
    chief: ChiefRay,
    rim: Rim,
    vergence: Float[Array, ""],
    sensor_z: Float[Array, ""],
    landing: Float[Array, ""],
    wavelength: Float[Array, ""],
    *,
    rays: int,
) -> Patches:
    """rays × rays of them over the rectangle about the rim; those that are blocked weigh nothing."""
    reach_x = jnp.max(rim.radius * jnp.sin(rim.angle)) * 1.02
    edge = rim.radius * jnp.cos(rim.angle)
    low, high = jnp.min(edge), jnp.max(edge)
    middle, reach_y = rim.centre + (low + high) / 2.0, (high - low) / 2.0 * 1.02
    g = grid_axis(rays)
    x, y = (w.ravel() for w in jnp.meshgrid(reach_x * g, middle + reach_y * g))
    wavelength = wavelength / system.index[-1]
    some_rays, spread = trace_differentials(system, chief, _inside(rim), vergence)
    focus = meeting_point(some_rays)
    pupil = jnp.stack([jnp.zeros(()), jnp.zeros(()), data.exit_pupil - data.image_plane])
    radius = jnp.abs(open_radius(some_rays, spread, focus, pupil))
    centre = jnp.stack([jnp.zeros(()), landing, sensor_z])

    def some(offset: Float[Array, "2 rays"]) -> tuple[Array, Array, Array, Array, Array]:
        """Points on the sphere, path to the window's centre (waves), amplitude, light and clipping of some rays."""

        def point(offset: Float[Array, "2 rays"]) -> tuple[Float[Array, "3 rays"], tuple[Trace, Float[Array, " rays"]]]:
            traced = trace(system, launch(chief, offset[0], offset[1], vergence, system.index[0]))
            _, t = on_sphere(traced.position, traced.direction, focus, radius)
            return traced.position + t * traced.direction, (traced, traced.path / system.index[-1] + t)

        def differential(tangent: Float[Array, "2"]) -> tuple[Array, tuple[Array, tuple[Trace, Array]]]:
            q, moved, rest = jax.jvp(
                point, (offset,), (jnp.broadcast_to(tangent[:, None], offset.shape),), has_aux=True
            )
            return moved, (q, rest)

        moved, (q, (traced, path)) = jax.vmap(differential, out_axes=(0, None))(jnp.eye(2))
        surface = jnp.linalg.norm(jnp.cross(moved[0], moved[1], axis=0), axis=0)  # dS / dA
        distance = jnp.linalg.norm(centre[:, None] - q, axis=0)
        obliquity = (1.0 + jnp.sum(offset**2, axis=0) * vergence**2) ** -1.5
        amplitude = jnp.sqrt(surface * obliquity * jnp.maximum(traced.direction[2], 0.0)) / distance
        clip = jnp.where(traced.alive, jnp.minimum(traced.clip, 1.0), 1.0)
        return q, (path + distance) / wavelength, amplitude, obliquity, clip

    pad = -len(x) % min(RAYS_AT_ONCE, len(x))
    parts = jnp.pad(jnp.stack([x, y]), ((0, 0), (0, pad)), mode="edge").reshape(2, -1, min(RAYS_AT_ONCE, len(x)))
    q, *rest = jax.lax.map(some, jnp.moveaxis(parts, 1, 0))
    q = jnp.moveaxis(q, 0, 1).reshape(3, -1)[:, : len(x)]
    waves, amplitude, light, clip = (v.reshape(-1)[: len(x)] for v in rest)
    clip = clip.reshape(rays, rays)
    slope_y, slope_x = jnp.gradient(clip)
    width = jnp.maximum(jnp.abs(slope_x) + jnp.abs(slope_y), 1e-12)
    coverage = jnp.clip(0.5 - clip / width, 0.0, 1.0).ravel()
    # A blocked ray may lead anywhere, and have no derivative: it must not weigh, and not put a nan into the sum.
    shines = coverage > 0.0
    return Patches(
        back=jnp.where(shines, centre[:, None] - q, radius).T,
        waves=jnp.where(shines, waves, 0.0),
        weight=jnp.where(shines, amplitude * coverage, 0.0),
        wavelength=wavelength,
        light=jnp.sum(jnp.where(shines, light * coverage, 0.0)) * rays**2 / (4.0 * reach_x * reach_y),
    )


@partial(jax.jit, static_argnames=("size", "supersample"))
def huygens(
    patches: Patches,
    pixel: Float[Array, ""],
    azimuth: Float[Array, ""] | float = jnp.pi / 2.0,
    places: Int[Array, "pixels 2"] | None = None,
    *,
    size: int,
    supersample: int,
) -> Float[Array, " pixels"]:
    """The light of pixels as a part of all that leaves the patches: |E|² / λ² is the irradiance.

    `places` are rows and columns of the window; without them it is all of its pixels, row by row. The image point
    appears at `azimuth` (radians from +x towards +y).
    """
    places = jnp.indices((size, size)).reshape(2, -1).T if places is None else places
    axis = window_axis(size, pixel, supersample).reshape(size, supersample)
    y, x = -axis[places[:, 0], :, None], axis[places[:, 1], None, :]
    x, y = (w.ravel() for w in jnp.broadcast_arrays(x, y))
    fine = _irradiance(patches, x, y, azimuth).reshape(len(places), supersample**2)
    return fine.sum(axis=1) * (pixel / supersample) ** 2


def _irradiance(
    patches: Patches, x: Float[Array, " points"], y: Float[Array, " points"], azimuth: Float[Array, ""] | float
) -> Float[Array, " points"]:
    """Parts of the patches' light per mm² at points (mm from the window's centre, in the photograph's orientation)."""
    waves = patches.waves - patches.waves[jnp.argmax(patches.weight)]
    waves = (waves - jnp.round(waves)).astype(jnp.float32)
    brightest = jnp.max(patches.weight)
    weight = (patches.weight / brightest).astype(jnp.float32)
    meridian = jnp.stack([jnp.cos(azimuth), jnp.sin(azimuth)])
    points = jnp.stack(to_meridian(x, y, meridian)).astype(jnp.float32)
    density = _sum_wavelets(points, patches.back.astype(jnp.float32), waves, weight, patches.wavelength)
    return density * (brightest / patches.wavelength) ** 2 / patches.light


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
    at_once = min(WAVELETS_AT_ONCE, len(waves))
    pad = -len(waves) % at_once

    def chunks(values: Float[Array, "rays *more"], fill: float) -> Float[Array, "chunks some_rays *more"]:
        padded = jnp.pad(values, [(0, pad)] + [(0, 0)] * (values.ndim - 1), constant_values=fill)
        return padded.reshape(-1, at_once, *values.shape[1:])

    def add(field: tuple[Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        back, waves, weight = chunk
        length = jnp.linalg.norm(back, axis=1)
        # |x − q| − |X − q| = (|d|² + 2 d·(X − q)) / (|x − q| + |X − q|), d = x − X.
        dot = x[:, None] * (2.0 * back[:, 0] + x[:, None]) + y[:, None] * (2.0 * back[:, 1] + y[:, None])
        distance = jnp.sqrt(length**2 + dot)
        phase = waves + dot / (distance + length) * inverse
        cosine, sine = _cosine_and_sine(phase - jnp.round(phase))
        weight = weight * (length / distance)  # it was that of the window's centre
        real, imaginary = field
        # Sums, not matrix products: they fuse with what they add up, and nothing of size points × rays is stored.
        real = real + jnp.sum(cosine * weight, axis=1)
        return (real, imaginary + jnp.sum(sine * weight, axis=1)), None

    zero = jnp.zeros_like(x)
    parts = (chunks(back, 1.0), chunks(waves, 0.0), chunks(weight, 0.0))
    (real, imaginary), _ = jax.lax.scan(add, (zero, zero), parts)
    return real**2 + imaginary**2


def _even_polynomial(function: Callable[[np.ndarray], np.ndarray], degree: int) -> np.ndarray:
    """The coefficients in p² of the even `function` for |p| ≤ 1/2, the highest first."""
    chebyshev = np.polynomial.Chebyshev.interpolate(lambda square: function(np.sqrt(square)), degree, (0.0, 0.25))
    return chebyshev.convert(kind=np.polynomial.Polynomial).coef[::-1]


_COSINE = _even_polynomial(lambda p: np.cos(2.0 * np.pi * p), 7)
_SINE = _even_polynomial(lambda p: 2.0 * np.pi * np.sinc(2.0 * p), 6)


def _cosine_and_sine(phase: Float[Array, "*any"]) -> tuple[Float[Array, "*any"], Float[Array, "*any"]]:
    """Cosine and sine of 2π times the phase (waves, at most half of one), to float32's 1e-6.

    With XLA's own functions a processor takes 2.6 times as long for the sum.
    """
    square, zero = phase**2, jnp.zeros((), np.float32)
    cosine, sine = (reduce(lambda sum_, c: sum_ * square + np.float32(c), own, zero) for own in (_COSINE, _SINE))
    return cosine, phase * sine


def _inside(rim: Rim) -> Float[Array, "2 rays"]:
    """A few rays inside the rim, mirrored about the meridian, for the focus and the sphere."""
    part = jnp.linspace(0.2, 1.0 - 1e-9, 5)[:, None]
    r = part * rim.radius
    x, y = r * jnp.sin(rim.angle), rim.centre + r * jnp.cos(rim.angle)
    return jnp.stack([jnp.concatenate([x.ravel(), -x.ravel()]), jnp.concatenate([y.ravel(), y.ravel()])])
