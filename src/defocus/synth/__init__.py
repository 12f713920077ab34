"""Data sets of sharp and blurred pairs. The road of a pair: plan, sources, lens_pool, candidates, pairs, writer; `run`
leads it, and engines do the work.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Public names and where they live, imported on first use.
_EXPORTS = {
    "Plan": "plan",
    "load_plan": "plan",
    "make_plan": "plan",
    "demo_plan": "example_plans",
    "PlanPreview": "check",
    "preview_plan": "check",
    "Progress": "run",
    "RunSummary": "run",
    "run_plan": "run",
    "LocalEngine": "engines.local",
    "RayEngine": "engines.ray",
    "Maker": "on_demand",
    "PairInspection": "show",
    "show_pair": "show",
    "verify_folder": "verify",
    "write_report": "report",
}

__all__ = [
    "LocalEngine",
    "Maker",
    "PairInspection",
    "Plan",
    "PlanPreview",
    "Progress",
    "RayEngine",
    "RunSummary",
    "demo_plan",
    "load_plan",
    "make_plan",
    "preview_plan",
    "run_plan",
    "show_pair",
    "verify_folder",
    "write_report",
]

if TYPE_CHECKING:
    from .check import PlanPreview, preview_plan
    from .engines.local import LocalEngine
    from .engines.ray import RayEngine
    from .example_plans import demo_plan
    from .on_demand import Maker
    from .plan import Plan, load_plan, make_plan
    from .report import write_report
    from .run import Progress, RunSummary, run_plan
    from .show import PairInspection, show_pair
    from .verify import verify_folder


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
