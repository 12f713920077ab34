"""Lenses and their chief rays, computed once for all physics tests."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FIELDS = (0.0, 0.7, 1.0)  # of the image radius
RINGS = ((0.0, 1), (0.5, 3), (0.85, 4), (0.99, 5), (1.3, 3))  # radius over the pupil's, rays


@dataclass
class Launched:
    """Lenses with their chief rays [lens, field] and rays over the pupil [lens, field, 3, ray], as numpy."""

    lenses: list[Any]
    names: list[str]
    chief: Any
    position: np.ndarray
    direction: np.ndarray
    path: np.ndarray


def pupil_points() -> tuple[np.ndarray, np.ndarray]:
    """Points of rings around (0, 0); they lie off the meridian, so that most rays are skew."""
    x, y = [], []
    for number, (radius, count) in enumerate(RINGS):
        angle = 2 * np.pi * (np.arange(count) + 0.3 * number) / count + 0.1
        x.append(radius * np.cos(angle))
        y.append(radius * np.sin(angle))
    return np.concatenate(x), np.concatenate(y)


@functools.cache
def _launcher() -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    from defocus.optics.batch import over_lenses
    from defocus.optics.pupil import chief_ray, launch, pupil_half_widths
    from defocus.stored_program import QUICK

    u, v = (jnp.asarray(w) for w in pupil_points())

    def one(system, height):  # type: ignore[no-untyped-def]
        chief = chief_ray(system, height, "image_height")
        half = pupil_half_widths(system, chief)
        return chief, launch(chief, half[0] * u, half[1] * v)

    def fields(system, heights):  # type: ignore[no-untyped-def]
        return over_lenses(lambda height: one(system, height), heights)

    return jax.jit(lambda systems, heights: over_lenses(fields, systems, heights), compiler_options=QUICK)


def launch_all(lenses: Sequence[Any], names: Sequence[str]) -> Launched:
    """Chief rays and pupil rays of all lenses at three fields; 8 lenses at a time."""
    import jax
    import jax.numpy as jnp

    from defocus.optics.system import pack

    from .harness import LARGE, LENSES

    launcher = _launcher()
    blocks = []
    for start in range(0, len(lenses), LENSES):
        rows = [min(start + i, len(lenses) - 1) for i in range(LENSES)]
        radius = jnp.array([lenses[row].image_radius for row in rows])
        block = launcher(pack([lenses[row] for row in rows], bucket=LARGE), radius[:, None] * jnp.array(FIELDS))
        kept = min(LENSES, len(lenses) - start)
        blocks.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[:kept], block))
    chief, rays = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
    return Launched(list(lenses), list(names), chief, rays.position, rays.direction, rays.path)


@pytest.fixture(scope="session")
def launch_rays() -> Callable[..., Launched]:
    return launch_all


@pytest.fixture(scope="session")
def sample_rays(launch_rays: Callable[..., Launched]) -> Launched:
    from .samples import all_samples

    samples = all_samples()
    return launch_rays(samples, [lens.name for lens in samples])


def stratum(name: str, lens: Any) -> str:
    """The kind of lens, for a selection that leaves no kind out."""
    powers = {power for s in lens.surfaces for power, _ in s.aspheric}
    if name.startswith("phone/"):
        if 2 in powers:
            return "phone with r²"
        return "phone, curved stop" if np.isfinite(lens.surfaces[lens.stop].radius) else "phone"
    if "fish" in name:
        return "fisheye"
    kind = "odd asphere" if any(p % 2 for p in powers) else "even asphere" if powers else "sphere"
    zoom = name.rsplit(".", 1)[0].endswith(("_wide", "_tele"))
    return f"{kind}, {'zoom' if zoom else 'prime'}"


QUOTA = {
    "phone with r²": 2,
    "phone, curved stop": 3,
    "phone": 14,
    "fisheye": 7,
    "odd asphere, prime": 5,
    "odd asphere, zoom": 5,
    "even asphere, prime": 7,
    "even asphere, zoom": 7,
    "sphere, prime": 6,
    "sphere, zoom": 6,
}


@pytest.fixture(scope="session")
def index_rows(shared: Path) -> list[dict[str, str]]:
    with (shared / "lenses" / "INDEX.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def collection(shared: Path, index_rows: list[dict[str, str]]) -> dict[str, Any]:
    """All lenses of the reference collection by their file's name."""
    from defocus.lens.formats import read_lens

    return {row["file"]: read_lens(shared / "lenses" / row["file"]) for row in index_rows}


@pytest.fixture(scope="session")
def selection(collection: dict[str, Any]) -> dict[str, Any]:
    """A stratified selection of the collection, evenly spread within each kind."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(collection):
        kinds.setdefault(stratum(name, collection[name]), []).append(name)
    chosen: dict[str, Any] = {}
    for kind, quota in QUOTA.items():
        names = kinds[kind]
        for i in np.unique(np.linspace(0, len(names) - 1, quota).round().astype(int)):
            chosen[names[i]] = collection[names[i]]
    return chosen


@pytest.fixture(scope="session")
def selection_rays(selection: dict[str, Any], launch_rays: Callable[..., Launched]) -> Launched:
    return launch_rays(list(selection.values()), list(selection))
