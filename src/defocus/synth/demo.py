"""A small data set that shows what there is: procedural scenes, lenses of very different blur, a report to look at."""

from __future__ import annotations

from typing import Any

from .plan import Plan, make_plan

DEMO: dict[str, Any] = {
    "name": "Defocus demo",
    "seed": 1,
    "sources": [{"kind": "scenes", "count": 6, "names": ["portrait", "street", "twigs", "table", "leaves", "letters"]}],
    # They have passed the survey; measuring them again would take longer than the demo.
    "lenses": {
        "survey": False,
        "only": ["canon-*", "leica-*", "minolta-*", "nikon-*", "sigma-*", "sony-*", "voigtlander-*", "zeiss-*"],
    },
    "train": {"pairs": 8, "image_fraction": 0.66, "lens_fraction": 0.6},
    "validation": {"pairs": 2, "image_fraction": 0.17, "lens_fraction": 0.2},
    "test": {"pairs": 2, "image_fraction": 0.17, "lens_fraction": 0.2},
    "patch": {"size": 192, "kernel": 64, "photograph": [480, 320]},
    "limits": {"samples": 6000},  # few and large pixels: the paper's limit would leave slow lenses only
    "blur": {"levels_px": [3, 8, 15], "weights": [1, 2, 2]},
    "psf": {"bands": "rgb", "exact": False},
    "select": {"surplus": 0.25},
}


def demo_plan() -> Plan:
    return make_plan(DEMO)
