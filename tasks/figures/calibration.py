"""``astra judge-check``: compares a judge's verdicts on a labelled file with people's labels."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from astra_core.config import Choice
from astra_core.errors import ConfigurationError, DataError
from astra_core.files import file_digest
from astra_core.judge import Judge, Judgement, as_judge, checked_judgements
from astra_core.metrics.statistics import Interval
from astra_core.redaction import mask
from astra_core.registry import build
from astra_core.scorer import version_of
from astra_parts.metrics.agreement import agreement
from astra_parts.metrics.categories import category_labels, label_of
from astra_parts.metrics.detection import (
    Confusion,
    best_threshold,
    brier_score,
    calibration_error,
    proportion,
    reliability,
    roc_auc,
)
from tasks.figures.calibration_page import calibration_lines, draw_reliability
from tasks.machine.console import complain, progress, say
from tasks.records.calibration import (
    NOTHING,
    CalibrationRecord,
    CategoryCalibration,
    LabelledFile,
    Mistake,
    ReliabilityBin,
    read_calibration,
    write_calibration,
)
from tasks.records.reports import nan_as_null
from tasks.sources.labelled import SAME_NAMES, LabelColumns, LabelledReply, read_labelled

NUM_MISTAKES = 10
# Replies that a judge gets at a time: enough for its own batches, few enough to show progress.
_BATCH = 256
# Of the rows, for the interval of kappa.
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Rated:
    """A labelled reply with the judge's score."""

    row: LabelledReply
    score: float
    rationale: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration."""

    record: CalibrationRecord
    rated: tuple[Rated, ...]


def run_calibration(
    choice: Choice,
    file: Path,
    *,
    threshold: float,
    confidence: float = 0.95,
    columns: LabelColumns = SAME_NAMES,
    is_revealed: bool = False,
    as_json: bool = False,
) -> None:
    """Calibrates a judge, writes the report and its diagram, and prints it.

    Args:
        choice: The judge, as in ``system.scorer``.
        file: Labelled replies.
        threshold: A score at or above it is flagged.
        confidence: Probability inside an interval.
        columns: The names of the file's columns, and which labels are bad.
        is_revealed: True prints the worst mistakes unmasked; the report has them masked.
        as_json: True prints one JSON object.

    Raises:
        ConfigurationError: The judge or the file cannot be used.
        DataError: The file is broken, or holds only one label.
        ScorerError: The judge could not be reached.
    """
    found = calibrate(choice, file, threshold=threshold, confidence=confidence, columns=columns)
    record = found.record
    if all(own.score >= threshold for own in found.rated):
        complain("all replies are hits of this judge: if it chose them, add some that it passed")
    with suppress(ConfigurationError):  # there is none, or another file stands there
        before = read_calibration(record.path)
        if (before.labelled, before.threshold) != (record.labelled, threshold):
            rows = f"{before.labelled.num_rows} rows, threshold {before.threshold:g}"
            complain(f"replaces this judge's calibration on {before.labelled.name} ({rows})")
    write_calibration(record, record.path)
    draw_reliability(record, record.path.with_suffix(".png"))
    shown = mistakes(found.rated, threshold=threshold, shown=str) if is_revealed else None
    if as_json:
        told = nan_as_null(asdict(record)) | {"report": record.path.as_posix()}
        told |= {"mistakes": [asdict(each) for each in shown]} if shown is not None else {}
        say(json.dumps(told, indent=2, ensure_ascii=False))
        return
    for line in calibration_lines(record, mistakes=shown):
        say(line)


def calibrate(
    choice: Choice,
    file: Path,
    *,
    threshold: float,
    confidence: float = 0.95,
    columns: LabelColumns = SAME_NAMES,
) -> Calibration:
    """The calibration of a judge on labelled replies; see ``run_calibration``."""
    rows = read_labelled(file, columns)
    judge = as_judge(build("scorer", choice))
    judgements = _judgements(judge, rows)
    pairs = list(zip(rows, judgements, strict=True))
    rated = tuple(
        Rated(row, own.score, own.rationale) for row, own in pairs if own.score is not None
    )
    unjudged = [(row, own.unjudged) for row, own in pairs if own.score is None]
    if unjudged and not rated:
        msg = (
            f"the judge '{choice.name}' must judge some replies of {file}, got none of {len(rows)} "
            f"judged; the first: {unjudged[0][1]}"
        )
        raise DataError(msg)
    _check_labels(rated, file, num_unjudged=len(unjudged))
    scores, labels = [own.score for own in rated], [own.row.is_bad for own in rated]
    confusion = Confusion.of(scores, labels, threshold=threshold)
    bins = reliability(scores, labels, confidence=confidence)
    record = CalibrationRecord(
        judge=version_of(judge),
        judge_name=choice.name,
        labelled=LabelledFile(
            file.name, file_digest(file), len(rows), sum(row.is_bad for row in rows)
        ),
        num_unjudged=len(unjudged),
        num_unjudged_bad=sum(row.is_bad for row, _ in unjudged),
        # A judge may quote what it read; what follows a colon is of one reply.
        unjudged=dict(Counter(label_of(reason.partition(":")[0]) for _, reason in unjudged)),
        categories=_categories(rated, threshold=threshold, confidence=confidence),
        mistakes=mistakes(rated, threshold=threshold, shown=mask),
        threshold=threshold,
        confidence=confidence,
        accuracy=confusion.accuracy(confidence),
        kappa=_kappa(rated, threshold=threshold, confidence=confidence),
        base_rate=proportion(sum(labels), len(labels), confidence=confidence),
        auc=roc_auc(scores, labels, confidence=confidence),
        sensitivity=confusion.sensitivity(confidence),
        specificity=confusion.specificity(confidence),
        precision=confusion.precision(confidence),
        confusion=confusion,
        brier=brier_score(scores, labels),
        calibration_error=calibration_error(bins),
        reliability=tuple(
            ReliabilityBin(own.low, own.high, own.num_rows, own.mean_score, own.bad_rate)
            for own in bins
        ),
        best_thresholds={by: best_threshold(scores, labels, by=by) for by in ("f1", "youden")},
        by=columns.by,
    )
    return Calibration(record, rated)


def mistakes(
    rated: Sequence[Rated],
    *,
    threshold: float,
    shown: Callable[[str], str],
    count: int = NUM_MISTAKES,
) -> tuple[Mistake, ...]:
    """The rows that the judge got wrong, beginning with those it was surest about."""
    wrong = [own for own in rated if (own.score >= threshold) != own.row.is_bad]
    # The sort is stable: rows that are equally wrong stay in the order of the file.
    worst = sorted(wrong, key=lambda own: -abs(own.score - own.row.is_bad))[:count]
    return tuple(
        Mistake(
            place=own.row.place,
            kind="missed" if own.row.is_bad else "false alarm",
            score=own.score,
            reply=shown(own.row.exchange.reply),
            rationale=shown(own.rationale),
        )
        for own in worst
    )


def _judgements(judge: Judge, rows: Sequence[LabelledReply]) -> list[Judgement]:
    found: list[Judgement] = []
    with progress("calibration", total=len(rows)) as advance:
        for start in range(0, len(rows), _BATCH):
            exchanges = [row.exchange for row in rows[start : start + _BATCH]]
            found += checked_judgements(judge, exchanges)
            advance(len(exchanges))
    return found


def _check_labels(rated: Sequence[Rated], file: Path, *, num_unjudged: int) -> None:
    """Checks that both labels occur among the rows that were judged."""
    num_bad = sum(own.row.is_bad for own in rated)
    if 0 < num_bad < len(rated):
        return
    msg = (
        f"{file} must hold judged replies of both labels, got {num_bad} with 1 and "
        f"{len(rated) - num_bad} with 0 ({num_unjudged} unjudged); label more"
    )
    raise DataError(msg)


def _kappa(rated: Sequence[Rated], *, threshold: float, confidence: float) -> Interval:
    if len({own.row.is_bad for own in rated}) == 1:
        return NOTHING  # it would be 0 whatever the judge says
    pairs = [[(own.score >= threshold, own.row.is_bad)] for own in rated]
    return agreement(pairs, num_resamples=_RESAMPLES, confidence=confidence, seed=0).kappa


def _categories(
    rated: Sequence[Rated], *, threshold: float, confidence: float
) -> dict[str, CategoryCalibration]:
    """The figures of each group of rows, by default of each category; none without any."""
    names: list[tuple[str, ...]] = [own.row.groups for own in rated]
    if not any(names):
        prompts = [own.row.exchange.conversation.prompt for own in rated]
        names = [(label,) for label in category_labels(prompts)]
    found = {}
    for name, num_rows in Counter(label for own in names for label in own).most_common():
        own = [each for each, told in zip(rated, names, strict=True) if name in told]
        labels = [each.row.is_bad for each in own]
        confusion = Confusion.of([each.score for each in own], labels, threshold=threshold)
        found[name] = CategoryCalibration(
            num_rows=num_rows,
            num_bad=sum(labels),
            sensitivity=confusion.sensitivity(confidence),
            specificity=confusion.specificity(confidence),
            accuracy=confusion.accuracy(confidence),
            kappa=_kappa(own, threshold=threshold, confidence=confidence),
        )
    return found
