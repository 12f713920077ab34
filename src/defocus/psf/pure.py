"""The PSF of one point as a pure function, which `jax.grad`, `jax.vmap` and `jax.jit` go through."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..optics.batch import over_lenses
from ..optics.system import System
from ..tracing import concrete
from .bands import Bands
from .engine import WORST_RESIDUAL, fold_bands
from .poses import Points, find_pose
from .propagate import Intensity, intensity
from .pupil_function import PupilFunction
from .sampling import MOST_SAMPLES, bucket, needed_samples
from .stored_gradient import StoredGradient
from .wavefronts import backend_kind, point_wavefronts

GRADIENT_ROWS = 16  # of a pupil that a processor's gradient samples at a time


@partial(jax.jit, static_argnames=("bands", "samples", "size", "supersample", "dtype"))
def point_psf(
    system: System,
    index: Float[Array, "waves media"],
    point: Points,
    *,
    bands: Bands,
    samples: int,
    size: int,
    supersample: int,
    side: Float[Array, ""] | float = 0.0,
    dtype: jnp.dtype = jnp.float64,
) -> tuple[Float[Array, "bands size size"], dict[str, Array]]:
    """The PSF, each band summing to 1, and its report; `index` holds the media at all wavelengths of the bands.

    The stations are those of the engine, without grouping: the numbers of samples are part of the program. A point that
    has no PSF, which cannot be said by an error here, has one of nan.
    """
    pupils, report, _ = _point_pupils(system, index, point, bands=bands)
    psf, about_light = _light_of_pupils(
        pupils, point.pixel, bands=bands, samples=samples, size=size, supersample=supersample, side=side, dtype=dtype
    )
    psf = jnp.where(report.pop("found") > 0.0, psf, jnp.nan)
    return psf, about_light | report | {"samples": jnp.asarray(float(samples))}


def _point_pupils(
    system: System, index: Float[Array, "waves media"], point: Points, *, bands: Bands
) -> tuple[PupilFunction, dict[str, Array], tuple[Array, Array]]:
    """The pupils of one point at all wavelengths, what is reported of them, and their radii and blurs, which decide how
    many samples they take. `found` is 1 or, without a PSF, 0."""
    pose = find_pose(system, point.height, point.focus, point.shift)
    optics = point_wavefronts(system, index, jnp.asarray(bands.every_nm) * 1e-6, point, pose)
    wavefront = optics.wavefront
    fine = optics.in_front & pose.chief.found & jnp.all(wavefront.found)
    fine &= jnp.max(wavefront.residual_rms) <= WORST_RESIDUAL
    report = {
        "found": fine.astype(float),
        "residual_waves": jnp.max(wavefront.residual_rms),
        "pupil_area": jnp.mean(wavefront.area),
        "image_height_mm": wavefront.image_height[0],
        "field_deg": jnp.degrees(pose.chief.angle),
        "sensor_z_mm": pose.sensor_z,
        "blur_mm": jnp.max(jnp.abs(wavefront.blur)),
    }
    return optics.pupil, report, (wavefront.radius, wavefront.blur)


def _light_of_pupils(
    pupils: PupilFunction,
    pixel: Float[Array, ""],
    *,
    bands: Bands,
    samples: int,
    size: int,
    supersample: int,
    side: Float[Array, ""] | float,
    dtype: jnp.dtype,
) -> tuple[Float[Array, "bands size size"], dict[str, Array]]:
    """The PSF of the pupils of all wavelengths, each band summing to 1, and what is reported of its light."""

    rows = math.gcd(samples, GRADIENT_ROWS) if backend_kind() == "cpu" else None

    def propagate(pupil: PupilFunction) -> Intensity:
        pupil = eqx.tree_at(lambda p: p.side, pupil, jnp.full_like(pupil.side, side))
        return intensity(pupil, pixel, samples=samples, size=size, supersample=supersample, dtype=dtype, rows=rows)

    light = over_lenses(propagate, pupils)
    mixed = fold_bands(light.pixels[None], bands)[0]
    inside = fold_bands(light.inside[None], bands)[0]
    return mixed / jnp.sum(mixed, axis=(1, 2), keepdims=True), {
        "energy_outside": 1.0 - jnp.min(inside),
        "strehl": jnp.mean(light.strehl),
        "light_mm2": jnp.mean(light.light),
    }


@cache
def differentiated_psf(
    *, bands: Bands, samples: int | None, most_samples: int, size: int, **facts: Any
) -> Callable[..., tuple[Array, dict[str, Array]]]:
    """`point_psf` with these keyword arguments, for `jax.grad` and `jax.jvp` outside of `jax.jit`: stored programs.

    Without `samples` they are those that the point needs, as in the engine, `most_samples` at most: known here, since
    pupils and light are programs of their own.
    """
    pupils_of = StoredGradient(_point_pupils, bands=bands)

    @cache
    def light_of(count: int) -> StoredGradient:
        return StoredGradient(_light_of_pupils, quick=False, bands=bands, samples=count, size=size, **facts)

    def psf(system: System, index: Float[Any, "waves media"], point: Points) -> tuple[Array, dict[str, Array]]:
        pupils, report, spans = pupils_of(system, index, point)
        if samples is None:
            radius, blur = concrete(spans)
            count = min(most_samples, _enough_samples(radius, blur, size * concrete(point.pixel), bands))
        else:
            count = samples
        array, about_light = light_of(count)(pupils, point.pixel)
        psf = jnp.where(report.pop("found") > 0.0, array, jnp.nan)
        return psf, about_light | report | {"samples": jnp.asarray(float(count))}

    return psf


def _enough_samples(
    radius: Float[np.ndarray, " waves"], blur: Float[np.ndarray, "waves 2 2"], window: float, bands: Bands
) -> int:
    """Samples that these pupils need in a window of so many mm; for pupils of nothing the fewest."""
    needed = needed_samples(radius, blur, np.asarray(window), np.asarray(bands.every_nm) * 1e-6)
    return bucket(float(np.nan_to_num(needed, nan=0.0, posinf=MOST_SAMPLES).max()))
