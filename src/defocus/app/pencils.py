"""PSFs of a preview: where real rays land, at once for any focus, f-number and blades.

One trace of a lens at full aperture, at some image heights, serves every preview with it. Between the depths that were
traced, a ray's landing is a polynomial of the inverse depth; a stop that is closed takes those rays whose point in the
stop it leaves; a sensor that moves meets them elsewhere along their directions. There is no diffraction, and rays are a
lattice of some thousand: good for blurs of up to some thirty pixels, which is what a small picture has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..camera import Camera
from ..errors import TraceError
from ..lens.prescription import D_LINE_NM
from ..optics.paraxial import first_order
from ..optics.pupil import chief_ray, find_bundle, launch
from ..optics.system import System
from ..optics.trace import forward_part, to_plane, trace
from ..psf.bands import picture_bands
from ..stored_program import StoredProgram

SAMPLES = 49  # rays across the pupil's box; odd
DEPTHS = 3  # that are traced, at Chebyshev's nodes of the inverse depth
WAVELENGTHS_NM = (D_LINE_NM, *picture_bands("rgb").mean_nm)  # the d line focuses


class Landings(eqx.Module):
    """Rays behind the lens, y away from the axis, mm on the prescription's image plane."""

    lit: Bool[Any, " heights"]
    at: Float[Any, "heights waves depths 2 rays"]  # from the chief ray
    slope: Float[Any, "heights waves depths 2 rays"]  # dx/dz, dy/dz, less the chief ray's
    passes: Float[Any, "heights waves depths rays"]  # 1 or 0, at full aperture
    stop: Float[Any, "heights 2 rays"]  # mm, in the stop


def _trace_pencils(
    system: System,
    index: Float[Array, "waves media"],
    heights: Float[Array, " heights"],
    inverse_mm: Float[Array, " depths"],
) -> Landings:
    data = first_order(system)

    def of_height(height: Float[Array, ""]) -> Landings:
        chief = chief_ray(system, height, "image_height", derivative=False)

        def vergence(inverse: Float[Array, ""]) -> Float[Array, ""]:
            # 1 / (distance + z) with distance = 1 / inverse − entrance pupil, finite at infinity
            return chief.direction[2] * inverse / (1.0 + inverse * (chief.position[2] - data.entrance_pupil))

        bundle = find_bundle(system, chief, vergence(inverse_mm[DEPTHS // 2]), samples=SAMPLES, rounds=3, data=data)
        x, y = (jnp.append(v, 0.0) for v in (bundle.x, bundle.y))  # and the chief ray

        def of_wave(index: Float[Array, " media"]) -> tuple[Array, ...]:
            own = eqx.tree_at(lambda s: s.index, system, index)

            def of_depth(inverse: Float[Array, ""]) -> tuple[Array, ...]:
                traced = trace(own, launch(chief, x, y, vergence(inverse), index[0]))
                slope = traced.direction[:2] / forward_part(traced)
                return to_plane(traced), slope, traced.passes.astype(jnp.float32), traced.stop_position

            return jax.lax.map(of_depth, inverse_mm)

        at, slope, passes, stop = jax.lax.map(of_wave, index)
        # All colours count from the chief ray of the d line, which is the same from every depth.
        at, slope = (v[..., :-1] - v[0, 0, :, -1:] for v in (at, slope))
        return Landings(chief.found & bundle.found, at, slope, passes[..., :-1], stop[0, DEPTHS // 2, :, :-1])

    return jax.lax.map(of_height, heights)


_PROGRAM = StoredProgram(_trace_pencils)


@dataclass(frozen=True)
class Pencils:
    """The rays of one lens at some image heights, from infinity to a nearest depth."""

    rays: Landings
    heights: tuple[float, ...]  # of the image radius
    nearest_m: float

    @staticmethod
    def of(camera: Camera, heights: tuple[float, ...], nearest_m: float) -> Pencils:
        """Trace the lens of a camera at full aperture. `TraceError` where no light lands on the axis."""
        full = camera.stopped(None)
        theta = np.pi * (np.arange(DEPTHS) + 0.5) / DEPTHS
        inverse = (1.0 + np.cos(theta)) / 2.0 / (nearest_m * 1e3)
        rays = _PROGRAM(
            full.optics.system,
            full.optics.indices(WAVELENGTHS_NM),
            np.array(heights) * float(full.image_radius_mm),
            inverse,
        )
        rays = jax.device_get(rays)
        if not rays.lit[0]:
            raise TraceError(f"{camera.lens.name}: no light on the axis; check its aperture and clear apertures")
        return Pencils(rays, heights, nearest_m)

    def _weights(self, depth_m: float) -> Float[np.ndarray, " depths"]:
        """What each traced depth counts at another: Σ over k of T_k(x) T_k(x_j)."""
        x = math.acos(min(max(2.0 * self.nearest_m / depth_m - 1.0, -1.0), 1.0))
        theta = np.pi * (np.arange(DEPTHS) + 0.5) / DEPTHS
        order = np.arange(1, DEPTHS)
        return (1.0 + 2.0 * np.cos(x * order) @ np.cos(order[:, None] * theta)) / DEPTHS

    def _pass(self, camera: Camera, number: int, azimuth: float) -> Float[np.ndarray, " rays"]:
        """1 where the camera's stop lets a ray of a height pass, 0 where not, and between on the rim."""
        stop, optics = self.rays.stop[number], camera.optics.system
        if camera.iris is None:
            clip = np.sum(stop**2, axis=0) / float(optics.semi_diameter[int(optics.stop)]) ** 2 - 1.0
        else:
            clip = np.asarray(_iris_clip(camera.iris, stop, azimuth))
        return np.clip(0.5 - clip * SAMPLES / 8.0, 0.0, 1.0)

    def sensor_z_mm(self, camera: Camera) -> float:
        """Place of the sensor behind the prescription's image plane: least RMS spot of the axial beam."""
        weights, share = self._weights(float(camera.focus_m)), self._pass(camera, 0, 0.0)
        at, slope = (np.tensordot(weights, v[0, 0], 1) for v in (self.rays.at, self.rays.slope))
        share = share * np.clip(weights @ self.rays.passes[0, 0], 0.0, 1.0)
        at, slope = (v - (v @ share)[:, None] / share.sum() for v in (at, slope))
        return -float(((at * slope) @ share).sum() / ((slope * slope) @ share).sum())

    def psf(
        self, camera: Camera, number: int, azimuth: float, depth_m: float, sensor_z_mm: float, size: int
    ) -> Float[np.ndarray, "3 size size"]:
        """The PSF in photograph orientation of a point that appears at height `number` in the direction `azimuth`."""
        weights, share = self._weights(depth_m), self._pass(camera, number, azimuth)
        pixel = float(camera.pixel_um) * 1e-3
        cos, sin = math.cos(azimuth), math.sin(azimuth)
        psf = np.zeros((3, size, size), np.float32)
        for band in range(3):
            rays = (v[number, 1 + band] for v in (self.rays.at, self.rays.slope, self.rays.passes))
            at, slope, passes = (np.tensordot(weights, v, 1) for v in rays)
            across, along = (at + sensor_z_mm * slope) / pixel
            light = share * np.clip(passes, 0.0, 1.0)
            psf[band] = splat(along * cos + across * sin, along * sin - across * cos, light, size)
        return psf


@jax.jit
def _iris_clip(iris: Any, stop: Float[Array, "2 rays"], azimuth: Float[Array, ""]) -> Float[Array, " rays"]:
    return iris.clip(stop, azimuth)


def splat(
    x: Float[np.ndarray, " rays"], y: Float[np.ndarray, " rays"], light: Float[np.ndarray, " rays"], size: int
) -> Float[np.ndarray, "size size"]:
    """Light at places (pixels from the middle, y up) on size × size pixels (odd), shared among neighbours.

    Its sum is 1. What falls outside is brought to the border. Without light: all of it in the middle.
    """
    reach = size // 2
    if not light.sum() > 0.0:
        x, y, light = np.zeros(1), np.zeros(1), np.ones(1)
    column, row = (np.clip(v + reach, 0.0, size - 1 - 1e-6) for v in (x, -y))
    left, top = column.astype(np.int64), row.astype(np.int64)
    right, below = column - left, row - top
    first = top * size + left
    places = np.concatenate([first, first + 1, first + size, first + size + 1])
    shares = [(1 - below) * (1 - right), (1 - below) * right, below * (1 - right), below * right]
    weights = np.concatenate([light * share for share in shares])
    counts = np.bincount(places, weights, minlength=size * size + size + 2)[: size * size]
    return (counts / counts.sum()).reshape(size, size).astype(np.float32)
