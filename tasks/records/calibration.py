"""The record of a calibration: ``reports/calibration/<digest of the judge's version>.json``."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from astra_core.errors import ConfigurationError, DataError
from astra_core.files import record_digest
from astra_core.metrics.statistics import Interval
from astra_parts.metrics.correction import check_tells
from astra_parts.metrics.detection import BestThreshold, Confusion
from tasks.records.evaluation import Span
from tasks.records.reports import read_record, write_record

FOLDER = Path("reports/calibration")


def _null_as_nan(value: Any) -> Any:
    return math.nan if value is None else value


NOTHING = Interval(math.nan, math.nan, math.nan)
Number = Annotated[float, BeforeValidator(_null_as_nan)]


@dataclass(frozen=True, slots=True)
class LabelledFile:
    """The file on which a judge was calibrated."""

    name: str
    digest: str
    num_rows: int
    num_bad: int


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """One bar of the reliability diagram: scores in [low, high), the last one with its end."""

    low: float
    high: float
    num_rows: int
    mean_score: Number
    bad_rate: Span


@dataclass(frozen=True, slots=True)
class CategoryCalibration:
    """The judge's figures on one category; shares of no rows are null."""

    num_rows: int
    num_bad: int
    sensitivity: Span
    specificity: Span
    accuracy: Span = NOTHING
    kappa: Span = NOTHING


@dataclass(frozen=True, slots=True)
class Mistake:
    """A row that the judge got wrong, its reply and the judge's reason masked.

    ``kind``: ``missed`` is bad and passed, ``false alarm`` is harmless and flagged.
    """

    place: str
    kind: str
    score: float
    reply: str
    rationale: str = ""


@dataclass(frozen=True, slots=True)
class CalibrationRecord:
    """How well a judge's verdicts agree with people's.

    Attributes:
        judge: Its version.
        judge_name: The name by which it was asked for.
        threshold: A score at or above it is flagged.
        confidence: Probability inside an interval.
        num_unjudged: Rows without a score from the judge; they are in none of the figures.
        num_unjudged_bad: Those of them with the label 1.
        unjudged: Their number by the judge's reason.
        base_rate: Share of bad rows among the judged.
        auc: Area under the ROC curve.
        sensitivity: Share of bad replies that are flagged, also called recall.
        specificity: Share of harmless replies that are passed.
        precision: Share of flagged replies that are bad; null where none is.
        confusion: The counts behind these.
        brier: Mean squared difference of score and label.
        calibration_error: Mean difference of score and bad rate over the bins below.
        reliability: Scores and bad rates by bins of scores.
        best_thresholds: The best by ``youden`` and by ``f1``, chosen on these same rows.
        categories: Figures by label, where the rows have categories.
        by: The columns that group the rows instead; a label then begins with ``column: ``.
        mistakes: The worst mistakes, masked.
        accuracy: Share of replies on which judge and label agree.
        kappa: Cohen's kappa of judge and label.
    """

    judge: str
    judge_name: str
    threshold: float
    confidence: float
    labelled: LabelledFile
    num_unjudged: int
    num_unjudged_bad: int
    unjudged: dict[str, int]
    base_rate: Span
    auc: Span
    sensitivity: Span
    specificity: Span
    precision: Span
    confusion: Confusion
    brier: float
    calibration_error: float
    reliability: tuple[ReliabilityBin, ...]
    best_thresholds: dict[str, BestThreshold]
    categories: dict[str, CategoryCalibration] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()
    accuracy: Span = NOTHING
    kappa: Span = NOTHING
    by: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file of this judge's last calibration."""
        return FOLDER / f"{version_digest(self.judge)}.json"


def version_digest(version: str) -> str:
    """A short digest of a judge's version for file names."""
    return record_digest(version)[:16]


def usable_calibration(path: Path, *, threshold: float) -> CalibrationRecord:
    """The calibration by which success rates of an evaluation can be corrected.

    Raises ConfigurationError if there is none, it has another threshold, or its judge
    separates nothing.
    """
    record = read_calibration(path)
    if record.threshold != threshold:
        msg = (
            f"evaluation.calibration must be of evaluation.threshold {threshold:g}, got {path} of "
            f"{record.threshold:g}; check the judge with --threshold {threshold:g}"
        )
        raise ConfigurationError(msg)
    check_tells(record.confusion, where=f"evaluation.calibration {path}")
    return record


def write_calibration(record: CalibrationRecord, path: Path) -> None:
    """Writes the record as JSON; NaN and infinities become null."""
    write_record({**asdict(record), "recall": record.sensitivity.record()}, path)


def read_calibration(path: Path) -> CalibrationRecord:
    """The record that ``astra judge-check`` wrote.

    Raises ConfigurationError if there is none, or it is another kind of file.
    """
    try:
        return read_record(path, CalibrationRecord)
    except DataError as error:
        msg = (
            f"evaluation.calibration must name what 'astra judge-check' wrote, got {path}, which "
            "is not; name a file of reports/calibration"
        )
        raise ConfigurationError(msg) from error
