"""Survey of a lens collection: measure every lens, classify it, and say why it is kept or not.

The criteria are those of the paper's lens filtering; the diversity figure is drawn by `defocus.draw`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .criteria import Criteria, LensVerdict, judge
    from .lens_folder import SurveyRow, survey_folder, write_csv
    from .measurement import Measurement, measure, measure_one

__all__ = [
    "Criteria",
    "LensVerdict",
    "Measurement",
    "SurveyRow",
    "judge",
    "measure",
    "measure_one",
    "survey_folder",
    "write_csv",
]

__getattr__, __dir__ = lazy_names(__name__)
