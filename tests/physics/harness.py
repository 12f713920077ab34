"""The product's trace as numpy arrays, in few compiled shapes: 8 lenses by 256 rays, whatever is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from defocus.lens.prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, Lens
from defocus.optics.batch import over_lenses
from defocus.optics.paraxial import first_order
from defocus.optics.system import Bucket, System, pack
from defocus.optics.trace import Rays, Trace, trace

WAVELENGTHS = (F_LINE_NM, D_LINE_NM, C_LINE_NM)
LENSES, RAYS = 8, 256
FIELDS = (
    "position",
    "direction",
    "path",
    "alive",
    "passes",
    "clip",
    "clip_surface",
    "stop_position",
    "clips",
    "points",
)  # of a Trace
PLAIN, SMALL, MEDIUM, LARGE = Bucket(16, 0, 0), Bucket(16, 10, 10), Bucket(32, 10, 0), Bucket(64, 10, 10)


first_order_batch = jax.jit(jax.vmap(first_order))


@eqx.filter_jit
def trace_batch(system: System, rays: Rays, *, record: bool = False) -> Trace:
    """`trace` over a batch of lenses: every leaf of `system` and `rays` has one leading axis."""
    return over_lenses(lambda s, r: trace(s, r, record=record), system, rays)


def trace_items(
    items: Sequence[tuple[Lens, float]],
    position: np.ndarray,
    direction: np.ndarray,
    path: np.ndarray,
    bucket: Bucket = SMALL,
) -> SimpleNamespace:
    """Trace [items, 3, rays] through (lens, wavelength in nm) items; the fields of `Trace` come back as numpy."""
    count, _, rays = position.shape
    assert rays <= RAYS
    blocks = []
    for start in range(0, count, LENSES):
        rows = [min(start + i, count - 1) for i in range(LENSES)]
        system = pack_items([items[row] for row in rows], bucket)
        fill = [min(i, rays - 1) for i in range(RAYS)]
        given = (position[rows][..., fill], direction[rows][..., fill], path[rows][..., fill])
        traced = trace_batch(system, Rays(*(jnp.asarray(v) for v in given)), record=True)
        kept = min(LENSES, count - start)
        blocks.append({name: np.asarray(getattr(traced, name))[:kept, ..., :rays] for name in FIELDS})
    return SimpleNamespace(**{name: np.concatenate([block[name] for block in blocks]) for name in FIELDS})


def pack_items(items: Sequence[tuple[Lens, float]], bucket: Bucket) -> System:
    """One `System` for lenses at wavelengths of their own."""
    systems = [pack([lens], wavelength, bucket) for lens, wavelength in items]
    # By numpy: JAX would compile for every shape and every number of lenses.
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *systems)


def trace_one(
    lens: Lens, position: np.ndarray, direction: np.ndarray, wavelength: float = D_LINE_NM, **more
) -> SimpleNamespace:
    """Trace [3, rays] through one lens."""
    path = np.zeros((1, position.shape[1]))
    traced = trace_items([(lens, wavelength)], position[None], direction[None], path, **more)
    return SimpleNamespace(**{name: value[0] for name, value in vars(traced).items()})


def unit(direction: np.ndarray) -> np.ndarray:
    """[3, rays] normalised."""
    return direction / np.linalg.norm(direction, axis=0)


def image_points(traced: SimpleNamespace, z: float = 0.0) -> np.ndarray:
    """x, y (mm) on the plane z of the image frame."""
    return (
        traced.position[..., :2, :]
        + (z - traced.position[..., 2:, :]) / traced.direction[..., 2:, :] * (traced.direction[..., :2, :])
    )
