"""How good restorations and data sets are: measures, tables, the ablation, ground truths, downstream tasks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Public names and where they live; imported on first use.
_EXPORTS = {
    "Comparison": "evaluation",
    "compare_pictures": "evaluation",
    "evaluate_table": "evaluation",
    "EvaluationTable": "table_file",
    "load_table": "table_file",
    "Measure": "measures",
    "make_measure": "measures",
    "Results": "results",
    "compare": "tables",
    "latex": "tables",
    "open_test_set": "test_sets",
    "AblationStudy": "ablation",
    "run_ablation": "ablation",
    "analyse_pair": "ground_truth",
    "write_ground_truth": "ground_truth_page",
    "DisparityEstimator": "downstream.disparity",
    "Segmenter": "downstream.segmentation",
    "judge": "downstream.judgement",
}

__all__ = [
    "AblationStudy",
    "Comparison",
    "DisparityEstimator",
    "EvaluationTable",
    "Measure",
    "Results",
    "Segmenter",
    "analyse_pair",
    "compare",
    "compare_pictures",
    "evaluate_table",
    "judge",
    "latex",
    "load_table",
    "make_measure",
    "open_test_set",
    "run_ablation",
    "write_ground_truth",
]

if TYPE_CHECKING:
    from .ablation import AblationStudy, run_ablation
    from .downstream.disparity import DisparityEstimator
    from .downstream.judgement import judge
    from .downstream.segmentation import Segmenter
    from .evaluation import Comparison, compare_pictures, evaluate_table
    from .ground_truth import analyse_pair
    from .ground_truth_page import write_ground_truth
    from .measures import Measure, make_measure
    from .results import Results
    from .table_file import EvaluationTable, load_table
    from .tables import compare, latex
    from .test_sets import open_test_set


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
