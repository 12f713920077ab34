"""The rays of a layout: real ones, traced in the meridional plane, that reach the image plane.

Lengths are in mm; z counts from the first surface's vertex. Objects are above the axis and their images below, as in
the camera.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..lens.prescription import Lens
from .beams import Beam, Optics, field_label, lit_beams, optics_of, trace_rays
from .geometry import cross_section, with_clear_apertures
from .profiles import refracting, vertices

LEAD = 0.16  # of the lens's length: how far ahead of the glass rays begin


@dataclass(frozen=True, slots=True)
class Fan:
    """The rays of one field point."""

    asked: tuple[float, ...]  # fields that were asked for, as fractions of the image radius
    field: float  # the one that is drawn: the outermost with light, where one that was asked for has none
    label: str  # the field in words: fraction, image height, angle
    paths: Float[np.ndarray, "rays points 2"]  # (z, y) in mm, from in front of the lens to the image plane


def ray_paths(lens: Lens, fields: Sequence[float] = (0.0, 0.7, 1.0), *, rays: int = 7) -> list[Fan]:
    """Traced meridional rays, `rays` of each field (fractions of the image radius), at the d line.

    They run from in front of the lens to the prescription's image plane, through glass as it is drawn. A field that no
    light reaches is replaced by the outermost one inside it that has a beam; fields that come to the same are drawn
    once. Raises `TraceError` where not even the axis has light.
    """
    if rays < 2:
        raise ValueError(f"{rays} rays per field; expected at least 2, the rims of the beam")
    lens = with_clear_apertures(lens)
    optics = optics_of(lens.with_semi_diameters(cross_section(lens).narrowed))
    return [_fan(optics, asked, beam, rays) for asked, beam in lit_beams(optics, fields)]


def _fan(optics: Optics, asked: tuple[float, ...], beam: Beam, rays: int) -> Fan:
    y = np.linspace(beam.low, beam.high, rays)
    if beam.chief_passes and rays > 2:
        y[1 + np.argmin(np.abs(y[1:-1]))] = 0.0  # the chief ray itself
    traced = trace_rays(optics, beam, np.zeros_like(y), y)
    z0 = vertices(optics.lens)
    # A dummy or a stop that stands behind the next vertex lies on the line but not on the light's way.
    hits = np.stack([traced.points[i, 1:] + [[0.0], [z0[i]]] for i in refracting(optics.lens)])
    end = np.stack([traced.landing[1], np.full(len(y), z0[-1])])
    chief, lead = np.asarray(beam.chief.direction)[1:], LEAD * float(np.ptp(z0))
    start = _starts(optics.lens, hits[0], traced.heading[1:], chief, lead)
    paths = np.concatenate([start[None], hits, end[None]]).transpose(2, 0, 1)[traced.passes]
    below = -1.0 if paths[:, -1, 0].mean() > 0.0 else 1.0
    return Fan(
        asked=asked,
        field=beam.field,
        label=field_label(asked, beam),
        paths=paths[:, :, ::-1] * [1.0, below],
    )


def _starts(
    lens: Lens,
    hits: Float[np.ndarray, "2 rays"],
    heading: Float[np.ndarray, "2 rays"],
    chief: Float[np.ndarray, "2"],
    lead: float,
) -> Float[np.ndarray, "2 rays"]:
    """Where the drawn rays begin: on a line across the beam, `lead` mm ahead of the first of them to meet the glass."""
    along = chief @ hits
    before = along.min() - lead
    if math.isfinite(lens.object_distance):
        before = max(before, along.min() - 0.98 * lens.object_distance)
    return hits + (before - along) / (chief @ heading) * heading
