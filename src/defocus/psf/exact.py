"""PSFs by the Huygens sum over traced rays: slow, with nothing fitted. One request at a time."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import TraceError
from ..lens.prescription import Lens
from ..optics.field import vergence_of
from ..optics.paraxial import FirstOrder
from ..optics.pupil import ChiefRay, FieldBy
from ..optics.rim import Rim, find_rim
from ..optics.system import System, pack_one
from .huygens import huygens, patches_from_rays
from .sampling import bucket, needed_samples
from .spectrum import Bands, parse_bands
from .wavefronts import wavefront_batch

MOST_RAYS = 4096  # across the pupil
MARGIN = 1.25  # rays over the samples that the fast way needs


@jax.jit
def _prepare(
    system: System, data: FirstOrder, chief: ChiefRay, depth: Float[Array, ""]
) -> tuple[Rim, Float[Array, ""]]:
    vergence = vergence_of(chief, depth - data.entrance_pupil)
    return find_rim(system, chief, vergence, data=data), vergence


def huygens_psf(
    lens: Lens,
    *,
    height_mm: float,
    azimuth: float,
    depth_mm: float,
    focus_mm: float,
    pixel_um: float,
    size: int,
    bands: str | tuple[float, ...] | Bands = "d",
    sensor_shift_mm: float = math.nan,
    by: FieldBy = "image_height",
    supersample: int = 5,
    rays: int | None = None,
) -> tuple[Float[np.ndarray, "bands size size"], dict[str, Any]]:
    """The PSF and its report; arguments as those of `psf_batch`, each for one point. `rays` across the pupil."""
    parsed = parse_bands(bands)
    found = wavefront_batch(
        [lens], height_mm=[height_mm], azimuth=[azimuth], depth_mm=[depth_mm], focus_mm=[focus_mm],
        sensor_shift_mm=[sensor_shift_mm], bands=parsed, by=by,
    )  # fmt: skip
    # On the host: taken on a device, the first of every array would be a program of its own.
    pose, fitted = jax.tree.map(lambda leaf: leaf[0], jax.device_get((found.pose, found.wavefront)))
    data, sensor_z, chief, landing = pose.data, pose.sensor_z, pose.chief, pose.landing
    if not bool(chief.found):
        raise TraceError(f"{lens.name}: no chief ray: the farthest reaches {float(chief.reach):.4g}")
    waves = [w for band in parsed.wavelengths_nm for w in band]
    if not bool(np.all(fitted.found)):
        raise TraceError(f"{lens.name}: no light gets through at this field")
    window = jnp.asarray(pixel_um * size * 1e-3)
    needed = float(jnp.max(needed_samples(fitted.half, fitted.blur, window, fitted.wavelength)))
    rays = min(bucket(MARGIN * needed), MOST_RAYS) if rays is None else rays
    seen = []
    for wave in waves:
        coloured = pack_one(lens, wave)
        rim, vergence = _prepare(coloured, data, chief, jnp.asarray(depth_mm))
        patches = patches_from_rays(
            coloured, data, chief, rim, vergence, sensor_z, landing, jnp.asarray(wave * 1e-6), rays=rays
        )
        seen.append(
            np.asarray(huygens(patches, jnp.asarray(pixel_um * 1e-3), azimuth, size=size, supersample=supersample))
        )
    psf, first = [], 0
    for weights in parsed.weights:
        mixed = np.tensordot(np.array(weights), np.stack(seen[first : first + len(weights)]), axes=1)
        psf.append(mixed / mixed.sum())
        first += len(weights)
    return np.stack(psf).astype(np.float32), {
        "status": "ok",
        "samples": rays,
        "samples_needed": needed,
        "supersample": supersample,
        "image_height_mm": float(landing),
        "field_deg": math.degrees(float(chief.angle)),
        "sensor_z_mm": float(sensor_z),
    }
