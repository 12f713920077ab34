"""Survey of a lens collection: measure every lens, classify it, and say why it is kept or not.

The criteria are those of the paper's lens filtering; the diversity figure is drawn by `defocus.draw`.
"""

from .criteria import Criteria, Verdict, judge
from .measure import Measurement, measure, measure_one
from .run import SurveyRow, survey_folder, write_csv

__all__ = [
    "Criteria",
    "Measurement",
    "SurveyRow",
    "Verdict",
    "judge",
    "measure",
    "measure_one",
    "survey_folder",
    "write_csv",
]
