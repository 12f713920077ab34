"""The PSF of one point as a pure function: what `jax.grad`, `jax.vmap` and `jax.jit` go through.

The same stations as in `engine`, without grouping: the numbers of samples are part of the program. A point that has no
PSF, which cannot be said by an error here, has one of nan.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..optics.batch import over_lenses
from ..optics.system import System
from .bands import Bands
from .engine import WORST_RESIDUAL, fold_bands
from .poses import find_pose
from .propagate import Intensity, intensity
from .pupil_function import PupilFunction
from .requests import Points
from .wavefronts import point_wavefronts


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
    """The PSF, each band summing to 1, and its report; `index` holds the media at all wavelengths of the bands."""
    waves = jnp.asarray(bands.every_nm) * 1e-6
    pose = find_pose(system, point.height, point.focus, point.shift)
    optics = point_wavefronts(system, index, waves, point, pose)

    def propagate(pupil: PupilFunction) -> Intensity:
        pupil = eqx.tree_at(lambda p: p.side, pupil, jnp.full_like(pupil.side, side))
        return intensity(pupil, point.pixel, samples=samples, size=size, supersample=supersample, dtype=dtype)

    light = over_lenses(propagate, optics.pupil)
    mixed = jnp.stack(fold_bands(light.pixels[None], bands), axis=1)[0]
    inside = jnp.stack(fold_bands(light.inside[None], bands), axis=1)[0]
    wavefront = optics.wavefront
    fine = optics.in_front & pose.chief.found & jnp.all(wavefront.found)
    fine &= jnp.max(wavefront.residual_rms) <= WORST_RESIDUAL
    psf = mixed / jnp.sum(mixed, axis=(1, 2), keepdims=True)
    return jnp.where(fine, psf, jnp.nan), {
        "energy_outside": 1.0 - jnp.min(inside),
        "residual_waves": jnp.max(wavefront.residual_rms),
        "strehl": jnp.mean(light.strehl),
        "pupil_area": jnp.mean(wavefront.area),
        "light_mm2": jnp.mean(light.light),
        "image_height_mm": wavefront.image_height[0],
        "field_deg": jnp.degrees(pose.chief.angle),
        "sensor_z_mm": pose.sensor_z,
        "blur_mm": jnp.max(jnp.abs(wavefront.blur)),
    }
