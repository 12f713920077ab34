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

SAMPLES = 65  # rays across the pupil's box; odd
SEARCH = 25  # likewise, where the box is looked for
DEPTHS = 3  # that are traced, at Chebyshev's nodes of the inverse depth
WAVELENGTHS_NM = (D_LINE_NM, *picture_bands("rgb").mean_nm)  # the d line focuses


class Landings(eqx.Module):
    """Rays behind the lens, y away from the axis, mm on the prescription's image plane."""

    lit: Bool[Any, " heights"]
    at: Float[Any, "heights waves depths 2 rays"]  # from the chief ray
    slope: Float[Any, "heights waves depths 2 rays"]  # dx/dz, dy/dz, less the chief ray's
    clip: Float[Any, "heights waves depths rays"]  # r² / rim² − 1 at the surface that cuts most, at full aperture
    stop: Float[Any, "heights depths 2 rays"]  # mm, in the stop, of the d line


def _trace_pencils(
    system: System,
    index: Float[Array, "waves media"],
    heights: Float[Array, " heights"],
    inverse_mm: Float[Array, " depths"],
) -> Landings:
    data = first_order(system)

    def of_height(height: Float[Array, ""]) -> Landings:
        chief = chief_ray(system, height, "image_height")

        def vergence(inverse: Float[Array, ""]) -> Float[Array, ""]:
            # 1 / (distance + z) with distance = 1 / inverse − entrance pupil, finite at infinity
            return chief.direction[2] * inverse / (1.0 + inverse * (chief.position[2] - data.entrance_pupil))

        # On the plane where rays start, the beam of a near point is narrower than that of a far one, or wider.
        ends = [
            find_bundle(system, chief, vergence(inverse_mm[k]), samples=SEARCH, rounds=3, data=data) for k in (0, -1)
        ]
        low = jnp.minimum(*(end.centre - end.half for end in ends))
        high = jnp.maximum(*(end.centre + end.half for end in ends))
        u, v = (at.ravel() for at in jnp.meshgrid(*[(jnp.arange(SAMPLES) + 0.5) / SAMPLES] * 2))
        x, y = (
            jnp.append(a + (b - a) * t, 0.0) for a, b, t in zip(low, high, (u, v), strict=True)
        )  # and the chief ray

        def of_wave(index: Float[Array, " media"]) -> tuple[Array, ...]:
            own = eqx.tree_at(lambda s: s.index, system, index)

            def of_depth(inverse: Float[Array, ""]) -> tuple[Array, ...]:
                traced = trace(own, launch(chief, x, y, vergence(inverse), index[0]))
                slope = traced.direction[:2] / forward_part(traced)
                return to_plane(traced), slope, jnp.where(traced.alive, traced.clip, 1.0), traced.stop_position

            return jax.lax.map(of_depth, inverse_mm)

        at, slope, clip, stop = jax.lax.map(of_wave, index)
        # All colours count from the chief ray of the d line, which is the same from every depth.
        at, slope = (v[..., :-1] - v[0, 0, :, -1:] for v in (at, slope))
        lit = chief.found & ends[0].found & ends[1].found
        return Landings(lit, at, slope, clip[..., :-1], stop[0, ..., :-1])

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

    def _light(
        self, camera: Camera, number: int, azimuth: float, wave: int, weights: Float[np.ndarray, " depths"]
    ) -> Float[np.ndarray, " rays"]:
        """1 where the lens and the camera's stop let a ray pass, 0 where not, and between on the rim."""
        stop, optics = np.tensordot(weights, self.rays.stop[number], 1), camera.optics.system
        if camera.iris is None:
            clip = np.sum(stop**2, axis=0) / float(optics.semi_diameter[int(optics.stop)]) ** 2 - 1.0
        else:
            clip = np.asarray(_iris_clip(camera.iris, stop, azimuth))
        clip = np.maximum(clip, weights @ self.rays.clip[number, wave])
        return np.clip(0.5 - clip * SAMPLES / 8.0, 0.0, 1.0)

    def sensor_z_mm(self, camera: Camera) -> float:
        """Place of the sensor behind the prescription's image plane: least RMS spot of the axial beam."""
        at, slope, share = self._axial_beam(camera)
        at, slope = (v - (v @ share)[:, None] / share.sum() for v in (at, slope))
        return -float(((at * slope) @ share).sum() / ((slope * slope) @ share).sum())

    def axial_radii_mm(self, camera: Camera, sensor_z_mm: float) -> tuple[float, float]:
        """RMS and largest radius of the axial spot at the focus distance, of the d line, on a sensor at a place."""
        at, slope, share = self._axial_beam(camera)
        square = np.sum((at + sensor_z_mm * slope) ** 2, axis=0)
        return math.sqrt(float(square @ share / share.sum())), math.sqrt(float(square[share > 0.5].max()))

    def _axial_beam(self, camera: Camera) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Landings, slopes and light of the axial rays of the d line from the focus distance."""
        weights = self._weights(float(camera.focus_m))
        at, slope = (np.tensordot(weights, v[0, 0], 1) for v in (self.rays.at, self.rays.slope))
        return at, slope, self._light(camera, 0, 0.0, 0, weights)

    def psf(
        self, camera: Camera, number: int, azimuth: float, depth_m: float, sensor_z_mm: float, size: int
    ) -> Float[np.ndarray, "3 size size"]:
        """The PSF in photograph orientation of a point that appears at height `number` in the direction `azimuth`."""
        weights = self._weights(depth_m)
        pixel = float(camera.pixel_um) * 1e-3
        cos, sin = math.cos(azimuth), math.sin(azimuth)
        psf = np.zeros((3, size, size), np.float32)
        for band in range(3):
            at, slope = (np.tensordot(weights, v[number, 1 + band], 1) for v in (self.rays.at, self.rays.slope))
            across, along = (at + sensor_z_mm * slope) / pixel
            light = self._light(camera, number, azimuth, 1 + band, weights)
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
