"""What PSFs are computed of: points, each seen by one lens on one sensor.

    requests ─▶ poses ─▶ wavefronts ─▶ propagation ─▶ bands

Each station has a module of its name; `engine` leads from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from ..optics.rim import Iris
from ..optics.system import PackedLens

Number = Float[Any, "*rows"]


class Points(eqx.Module):
    """Points of the scene and the sensors that see them; lengths in mm, angles in radians."""

    height: Number  # of the image above the axis
    azimuth: Number  # direction of the image in the photograph, from +x towards +y
    depth: Number  # from the entrance pupil, inf allowed
    focus: Number  # likewise
    shift: Number  # of the sensor behind the prescription's image plane; nan: it is focused
    pixel: Number
    iris: Iris | None = None

    def take(self, rows: Sequence[int] | Int[np.ndarray, " rows"]) -> Points:
        """Some of the rows."""
        return jax.tree.map(lambda leaf: leaf[np.asarray(rows)], self)


class Requests(eqx.Module):
    """One PSF for each row of `points`, through `lenses[lens[row]]`. Arrays are numpy's, so that choosing is cheap."""

    lenses: tuple[PackedLens, ...]
    lens: Int[np.ndarray, " rows"]
    points: Points

    def __len__(self) -> int:
        return len(self.lens)


def stack_irises(irises: Sequence[Iris | None]) -> Iris | None:
    """Many irises as one; None where there are none. All must be there, or none."""
    if all(iris is None for iris in irises):
        return None
    if any(iris is None for iris in irises):
        raise ValueError("cameras with and without blades in one call")
    leaves: Any = irises
    return jax.tree.map(lambda *values: np.stack([np.asarray(v) for v in values]), *leaves)
