"""Lenses as DeepLens's JSON (`GeoLens(filename=...)`).

Surfaces have a curvature `c`, a radius `r` of the clear aperture and a medium `mat2` "nd/vd"; the terms of an asphere
are those of r², r⁴, … DeepLens makes dispersion from nd and vd, so that colours other than the d line differ from ours.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ...errors import LensError
from ...glass import Medium
from ..first_order import entrance_pupil_diameter, f_number, focal_length
from ..prescription import Lens, Surface
from .assemble import power_series, refuse_states
from .text import clean


def deeplens_text(lens: Lens) -> str:
    """The JSON text that DeepLens opens; raises LensError for what it cannot hold."""
    refuse_states(lens, "DeepLens's JSON")
    if lens.image_radius is None:
        raise LensError("DeepLens wants an image radius; give the prescription one", lens=lens.name)
    diagonal = lens.image_radius * math.sqrt(2.0)
    data = {
        "info": clean(lens.name),
        "foclen": focal_length(lens),
        "fnum": f_number(lens),
        "enpd": entrance_pupil_diameter(lens),
        "r_sensor": lens.image_radius,
        "d_sensor": math.fsum(s.thickness for s in lens.surfaces),
        "sensor_size": [diagonal, diagonal],
        "surfaces": [_surface(lens, i, s) for i, s in enumerate(lens.surfaces)],
    }
    if math.isfinite(lens.object_distance):
        data["obj_depth"] = -lens.object_distance
    return json.dumps({k: v for k, v in data.items() if v is not None}, indent=1, default=float) + "\n"


def _surface(lens: Lens, i: int, s: Surface) -> dict[str, Any]:
    odd = [power for power, _ in s.aspheric if power % 2]
    if odd:
        raise LensError(f"an aspheric term r^{odd[0]}; DeepLens has even ones", lens=lens.name, surface=i)
    if s.semi_diameter is None:
        raise LensError("DeepLens wants a clear aperture of every surface", lens=lens.name, surface=i)
    before = lens.surfaces[i - 1].medium if i else lens.object_medium
    stop = {"r": lens.aperture.value if lens.aperture.kind == "stop_radius" else s.semi_diameter, "is_aperture": True}
    common = {"idx": i, "mat2": _medium(s.medium), "d_next": s.thickness}
    # An Aperture of DeepLens lies in air; a stop within glass is a plane that is the aperture.
    if i == lens.stop and not s.is_aspheric and math.isinf(s.radius) and before == s.medium and s.medium.is_air:
        return common | {"type": "Aperture", "is_square": False, "diffraction": False} | stop
    shape: dict[str, Any] = {"type": "Spheric", "r": s.semi_diameter, "c": s.curvature}
    if s.is_aspheric:
        shape |= {"type": "Aspheric", "k": s.conic, "ai": power_series(s)[1], "use_ai2": True}
    return common | shape | (stop if i == lens.stop else {})


def _medium(medium: Medium) -> str:
    return "air" if medium.is_air else f"{medium.nd!r}/{'inf' if medium.vd is None else repr(medium.vd)}"
