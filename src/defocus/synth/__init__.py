"""Data sets of sharp and blurred pairs. The road of a pair: plan, sources, lens_pool, candidates, pairs, writer; `run`
leads it, and engines do the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .check import PlanPreview, preview_plan
    from .engines.local import LocalEngine
    from .engines.ray import RayEngine
    from .on_demand import OnDemandPairs
    from .plan import Plan, demo_plan, load_plan, make_plan
    from .report import write_report
    from .run import Progress, RunSummary, run_plan
    from .show import PairInspection, show_pair
    from .verify import verify_folder

__all__ = [
    "LocalEngine",
    "OnDemandPairs",
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

__getattr__, __dir__ = lazy_names(__name__)
