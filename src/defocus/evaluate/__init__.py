"""How good restorations and data sets are: measures, tables, the ablation, ground truths, downstream tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .ablation import AblationStudy, run_ablation
    from .downstream import DisparityEstimator, Segmenter, judge
    from .evaluation import Comparison, compare_pictures, evaluate_table
    from .ground_truth import analyse_pair
    from .ground_truth_page import write_ground_truth
    from .measures import Measure, make_measure
    from .results import Results, compare, latex
    from .table_file import EvaluationTable, load_table
    from .test_sets import open_test_set

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

__getattr__, __dir__ = lazy_names(__name__)
