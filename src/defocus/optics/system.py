"""The lens as arrays: a pytree padded to a fixed number of surfaces and aspheric terms.

Lenses whose padded shapes agree form a bucket; every function of this package compiles once per bucket, whatever the
lens. Padding surfaces are inactive: the trace passes rays through them untouched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..lens.prescription import D_LINE_NM, Lens
from .surfaces import Shape

SURFACE_BUCKETS = (16, 32, 64, 128, 200)
TERM_BUCKETS = (0, 10, 20)  # even terms r^2, r^4, ...; odd terms r^3, r^5, ...


class Bucket(NamedTuple):
    """The padded shape that a lens compiles to: surfaces, even and odd aspheric terms."""

    surfaces: int
    even: int
    odd: int

    def holds(self, other: Bucket) -> bool:
        """Whether what fits into another bucket fits into this one."""
        return all(own >= size for own, size in zip(self, other, strict=True))


COMMON_BUCKETS = (Bucket(64, 10, 0), Bucket(64, 10, 10), Bucket(200, 20, 20))  # nearly every lens fits into the first


class System(eqx.Module):
    """One lens at one wavelength, or a batch of them with leading axes on every leaf."""

    curvature: Float[Any, "*batch surfaces"]  # 1/mm
    conic: Float[Any, "*batch surfaces"]
    even: Float[Any, "*batch surfaces even"]  # coefficients of r^2, r^4, ... in mm^(1 − power)
    odd: Float[Any, "*batch surfaces odd"]  # coefficients of r^3, r^5, ...
    scale: Float[Any, "*batch surfaces"]  # mm; aspheric terms are evaluated in r / scale
    thickness: Float[Any, "*batch surfaces"]  # mm; 0 for padding
    semi_diameter: Float[Any, "*batch surfaces"]  # mm; inf where nothing clips
    index: Float[Any, "*batch media"]  # media = surfaces + 1, object space first
    active: Bool[Any, "*batch surfaces"]  # False: padding
    stop: Int[Any, "*batch"]  # index of the stop surface

    @property
    def surfaces(self) -> int:
        """Number of surfaces, padding included."""
        return self.curvature.shape[-1]

    @property
    def vertex_curvature(self) -> Float[Array, "*batch surfaces"]:
        """Curvature that paraxial rays see, 1/mm: the r² term belongs to it."""
        if self.even.shape[-1] == 0:
            return self.curvature
        return self.curvature + 2.0 * self.even[..., 0]

    @property
    def shapes(self) -> Shape:
        """The surfaces without the spaces and media between them."""
        return Shape(self.curvature, self.conic, self.even, self.odd, self.scale)

    def __getitem__(self, lens: int) -> System:
        """One lens of a batch."""
        return _one_of(self, lens)


@jax.jit
def _one_of(batch: System, lens: int | Int[Array, ""]) -> System:
    return jax.tree.map(lambda leaf: leaf[lens], batch)


def bucket_of(lens: Lens) -> Bucket:
    """The smallest bucket that holds the lens. A conic without terms counts as an asphere without terms."""
    powers = [p for s in lens.surfaces for p, _ in s.aspheric]
    even = max((p // 2 for p in powers if p % 2 == 0), default=0)
    odd = max(((p - 1) // 2 for p in powers if p % 2), default=0)
    sizes = ((len(lens.surfaces), SURFACE_BUCKETS), (even, TERM_BUCKETS), (odd, TERM_BUCKETS))
    return Bucket(*(next(size for size in steps if size >= count) for count, steps in sizes))


def common_bucket(lens: Lens) -> Bucket:
    """The smallest of COMMON_BUCKETS that holds the lens."""
    own = bucket_of(lens)
    return next(bucket for bucket in COMMON_BUCKETS if bucket.holds(own))


def group_by_bucket(lenses: Sequence[Lens], fewest: int = 150) -> list[tuple[Bucket, list[int]]]:
    """Positions of the lenses by bucket, so that each group compiles once.

    Where fewer than `fewest` lenses share a bucket they join one of COMMON_BUCKETS: a compilation costs more than the
    padding, and the next call with other lenses finds its program compiled.
    """
    buckets = [bucket_of(lens) for lens in lenses]
    counts = Counter(buckets)
    groups: dict[Bucket, list[int]] = {}
    for position, (lens, own) in enumerate(zip(lenses, buckets, strict=True)):
        groups.setdefault(own if counts[own] >= fewest else common_bucket(lens), []).append(position)
    return sorted(groups.items())


def refractive_indices(lens: Lens, wavelength_nm: float) -> Float[np.ndarray, " media"]:
    """Refractive indices of object space and of the medium behind each surface."""
    media = (lens.object_medium, *(s.medium for s in lens.surfaces))
    if wavelength_nm == D_LINE_NM:
        return np.array([medium.nd for medium in media])
    by_medium = {id(medium): medium for medium in media}  # a medium may be there many times
    indices = {key: float(medium.index(wavelength_nm)) for key, medium in by_medium.items()}
    return np.array([indices[id(medium)] for medium in media])


def pack(lenses: Sequence[Lens], wavelength_nm: float = D_LINE_NM, bucket: Bucket | None = None) -> System:
    """A batch of lenses as one `System` with a leading axis, padded to `bucket` (default: one that holds them all).

    The stop's semi-diameter is what the lens's aperture asks for; other unknown semi-diameters become inf.
    """
    return jax.device_put(_packed(lenses, wavelength_nm, bucket))


def _packed(lenses: Sequence[Lens], wavelength_nm: float, bucket: Bucket | None) -> System:
    """`pack` in numpy: each operation of JAX outside a program is a program of its own, and compiles."""
    if bucket is None:
        bucket = Bucket(*map(max, zip(*map(bucket_of, lenses), strict=True)))
    shape = (len(lenses), bucket.surfaces)
    arrays = {
        "curvature": np.zeros(shape),
        "conic": np.zeros(shape),
        "even": np.zeros((*shape, bucket.even)),
        "odd": np.zeros((*shape, bucket.odd)),
        "scale": np.ones(shape),
        "thickness": np.zeros(shape),
        "semi_diameter": np.full(shape, np.inf),
        "index": np.ones((len(lenses), bucket.surfaces + 1)),
        "active": np.zeros(shape, bool),
        "stop": np.array([lens.stop for lens in lenses], int),
    }
    for row, lens in enumerate(lenses):
        typical = max(sum(abs(s.thickness) for s in lens.surfaces) / 4.0, 1e-3)  # where no semi-diameter is known
        for i, surface in enumerate(lens.surfaces):
            arrays["curvature"][row, i] = surface.curvature
            arrays["conic"][row, i] = surface.conic
            arrays["thickness"][row, i] = surface.thickness
            arrays["active"][row, i] = True
            arrays["scale"][row, i] = surface.semi_diameter or typical
            if surface.semi_diameter is not None:
                arrays["semi_diameter"][row, i] = surface.semi_diameter
            for power, coefficient in surface.aspheric:
                if power % 2 == 0:
                    arrays["even"][row, i, power // 2 - 1] = coefficient
                else:
                    arrays["odd"][row, i, (power - 3) // 2] = coefficient
        arrays["index"][row] = padded_indices(lens, wavelength_nm, bucket.surfaces)
    arrays["semi_diameter"][np.arange(len(lenses)), arrays["stop"]] = _stop_radii(arrays, lenses, bucket)
    return System(**arrays)


def padded_indices(lens: Lens, wavelength_nm: float, surfaces: int) -> Float[np.ndarray, " media"]:
    """`refractive_indices`, the last one repeated up to a bucket's number of media."""
    indices = refractive_indices(lens, wavelength_nm)
    return np.concatenate([indices, np.full(surfaces + 1 - len(indices), indices[-1])])


def _stop_radii(arrays: dict[str, np.ndarray], lenses: Sequence[Lens], bucket: Bucket) -> Float[np.ndarray, " lenses"]:
    """The stop radii that the apertures ask for; always at the d line, so that no stop changes with colour."""
    from .paraxial import stop_radius_for

    by_radius = [lens.aperture.kind == "stop_radius" for lens in lenses]
    radii = np.array([x.aperture.value if own else math.nan for x, own in zip(lenses, by_radius, strict=True)], float)
    if np.isnan(radii).any():
        index = np.stack([padded_indices(lens, D_LINE_NM, bucket.surfaces) for lens in lenses])
        at_d_line = System(**(arrays | {"index": index}))
        radii = np.where(np.isnan(radii), stop_radius_for(at_d_line, lenses), radii)
    return radii


def pack_one(lens: Lens, wavelength_nm: float = D_LINE_NM) -> System:
    """A single lens without a batch axis, in a common bucket: what compiles for one lens serves the next."""
    return jax.device_put(_packed_one(lens, wavelength_nm))


def _packed_one(lens: Lens, wavelength_nm: float = D_LINE_NM) -> System:
    return jax.tree.map(lambda leaf: np.asarray(leaf[0]), _packed([lens], wavelength_nm, common_bucket(lens)))


class PackedLens(eqx.Module):
    """A prescription and its numbers as arrays of numpy, at the d line; single numbers may have been changed since."""

    lens: Lens = eqx.field(static=True)
    system: System

    @staticmethod
    def of(lens: Lens) -> PackedLens:
        """The lens in a common bucket."""
        return PackedLens(lens, _packed_one(lens))

    def indices(self, wavelengths_nm: Sequence[float], surfaces: int | None = None) -> Float[Any, "waves media"]:
        """Refractive indices at each wavelength, padded to so many surfaces (as many as the system has).

        A change of the system's own indices, at the d line, moves those of all wavelengths alike.
        """
        count = self.system.surfaces if surfaces is None else surfaces
        if not isinstance(self.system.index, np.ndarray):
            return self._indices(wavelengths_nm, count)
        key = ("indices", tuple(wavelengths_nm), count)
        return self._kept(key, lambda: self._indices(wavelengths_nm, count))

    def _indices(self, wavelengths_nm: Sequence[float], surfaces: int) -> Float[Any, "waves media"]:
        table = np.stack([padded_indices(self.lens, wave, surfaces) for wave in wavelengths_nm])
        change = self.system.index - padded_indices(self.lens, D_LINE_NM, self.system.surfaces)
        if not isinstance(change, np.ndarray):
            return table + change
        return table + np.pad(change, (0, surfaces + 1 - len(change)), mode="edge") if change.any() else table

    def _kept(self, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """A value that is computed once: a data set asks a lens for the same arrays thousands of times."""
        cache = self.__dict__.setdefault("_cache", {})
        if key not in cache:
            cache[key] = compute()
        return cache[key]

    def padded(self, bucket: Bucket) -> System:
        """The system in a bucket at least as large as its own, of numpy."""
        shape = (bucket.surfaces, bucket.even, bucket.odd)
        return self._kept(("padded", *shape), lambda: self._padded(bucket))

    def _padded(self, bucket: Bucket) -> System:
        more = bucket.surfaces - self.system.surfaces
        fills = {"scale": 1.0, "semi_diameter": np.inf}

        def wider(name: str, leaf: np.ndarray) -> np.ndarray:
            if leaf.ndim == 0:
                return leaf
            widths = [(0, more)]
            if name in ("even", "odd"):
                widths.append((0, getattr(bucket, name) - leaf.shape[1]))
            if name == "index":
                return np.pad(leaf, widths, mode="edge")
            return np.pad(leaf, widths, constant_values=fills.get(name, 0))

        return System(**{f.name: wider(f.name, getattr(self.system, f.name)) for f in fields(System)})


def stack_systems(packed: Sequence[PackedLens], bucket: Bucket) -> System:
    """Many lenses as one batch of numpy."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(one.padded(bucket) for one in packed))
