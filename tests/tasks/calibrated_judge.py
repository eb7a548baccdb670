"""A calibration of a judge, as ``astra judge-check`` leaves it."""

import math

from astra_core.metrics.statistics import Interval
from astra_parts.metrics.detection import BestThreshold, Confusion
from tasks.records.calibration import (
    CalibrationRecord,
    CategoryCalibration,
    LabelledFile,
    Mistake,
    ReliabilityBin,
)

SPAN = Interval(0.5, 0.25, 0.75)
NOTHING = Interval(math.nan, math.nan, math.nan)


def calibration(**changes):
    """A record of a judge of sensitivity 0.8 and specificity 0.9."""
    values = {
        "judge": "a judge 1.0",
        "judge_name": "profanity",
        "threshold": 0.5,
        "confidence": 0.95,
        "labelled": LabelledFile("labelled.csv", "ab" * 32, num_rows=210, num_bad=104),
        "num_unjudged": 10,
        "num_unjudged_bad": 4,
        "unjudged": {"empty": 10},
        "base_rate": SPAN,
        "auc": SPAN,
        "sensitivity": Interval(0.8, 0.7, 0.9),
        "specificity": Interval(0.9, 0.8, 0.95),
        "precision": SPAN,
        "confusion": Confusion(80, 20, 90, 10),
        "brier": 0.1,
        "calibration_error": 0.05,
        "reliability": (
            ReliabilityBin(0.0, 0.5, 200, 0.25, SPAN),
            ReliabilityBin(0.5, 1.0, 0, math.nan, NOTHING),
        ),
        "best_thresholds": {
            name: BestThreshold(0.4, 0.7, sensitivity=0.85, specificity=0.85)
            for name in ("f1", "youden")
        },
        "categories": {"abuse": CategoryCalibration(3, 3, SPAN, NOTHING)},
        "mistakes": (Mistake("line 7", "missed", 0.1, "y·· f···"),),
    }
    return CalibrationRecord(**(values | changes))
