"""What a calibration leaves: ``reports/calibration/<digest of the judge's version>.json``."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from astra_core.errors import ConfigurationError, DataError
from astra_core.files import record_digest
from astra_core.metrics.correction import check_tells
from astra_core.metrics.detection import BestThreshold, Confusion
from tasks.records.evaluation import Span
from tasks.records.reports import read_record, write_record

FOLDER = Path("reports/calibration")


def _null_as_nan(value: Any) -> Any:
    return math.nan if value is None else value


Number = Annotated[float, BeforeValidator(_null_as_nan)]


@dataclass(frozen=True, slots=True)
class LabelledFile:
    """What a judge was calibrated on.

    Attributes:
        name: Of the file, without its folder.
        digest: SHA-256 of its bytes.
        num_rows: In it.
        num_bad: With the label 1.
    """

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
    """The judge on the rows of one category; shares of nothing are null."""

    num_rows: int
    num_bad: int
    sensitivity: Span
    specificity: Span


@dataclass(frozen=True, slots=True)
class Mistake:
    """A row that the judge got wrong.

    Attributes:
        place: In the file.
        kind: ``missed`` is bad and passed, ``false alarm`` is harmless and flagged.
        score: The judge's.
        reply: Masked.
        rationale: The judge's own words, masked.
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
        judge_name: What it was asked for by.
        threshold: A score at or above it is flagged.
        confidence: Probability inside an interval.
        labelled: The file.
        num_unjudged: Rows of which the judge gave no score; they are in none of the figures.
        num_unjudged_bad: Of these with the label 1.
        unjudged: How many, by the judge's reason.
        base_rate: Share of bad rows among the judged.
        auc: Area under the ROC curve.
        sensitivity: Share of bad replies that are flagged, also called recall.
        specificity: Share of harmless replies that are passed.
        precision: Share of flagged replies that are bad; null where none is.
        confusion: The counts behind these.
        brier: Mean squared distance of score and label.
        calibration_error: Mean distance of score and bad rate over the bins below.
        reliability: Scores and bad rates by bins of scores.
        best_thresholds: By ``youden`` and by ``f1``, chosen on these very rows.
        categories: By label, where the rows have categories.
        mistakes: The worst, masked.
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

    @property
    def path(self) -> Path:
        """Where the last calibration of this judge is kept."""
        return FOLDER / f"{version_digest(self.judge)}.json"


def version_digest(version: str) -> str:
    """Names a judge's version in the names of files."""
    return record_digest(version)[:16]


def usable_calibration(path: Path, *, threshold: float) -> CalibrationRecord:
    """The calibration by which success rates of an evaluation can be corrected.

    Args:
        path: Of ``evaluation.calibration``.
        threshold: Of the evaluation.

    Raises:
        ConfigurationError: There is none, it is of another threshold, or its judge tells nothing.
    """
    record = read_calibration(path)
    if record.threshold != threshold:
        msg = (
            f"evaluation.calibration must be of evaluation.threshold {threshold:g}, got {path} of "
            f"{record.threshold:g}; calibrate with --threshold {threshold:g}"
        )
        raise ConfigurationError(msg)
    check_tells(record.confusion, where=f"evaluation.calibration {path}")
    return record


def write_calibration(record: CalibrationRecord, path: Path) -> None:
    """Leaves the record as JSON; what is no number there is null."""
    write_record({**asdict(record), "recall": record.sensitivity.record()}, path)


def read_calibration(path: Path) -> CalibrationRecord:
    """The record that ``astra calibrate`` wrote.

    Raises:
        ConfigurationError: There is none, or it is another file.
    """
    try:
        return read_record(path, CalibrationRecord)
    except DataError as error:
        msg = (
            f"evaluation.calibration must name what 'astra calibrate' wrote, got {path}, which is "
            "not; name a file of reports/calibration"
        )
        raise ConfigurationError(msg) from error
