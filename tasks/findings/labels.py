"""What people say of findings, and the success rate that is left after it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import excerpt
from astra_core.files import read_json, record_digest, write_json
from astra_core.metrics.statistics import Interval
from astra_parts.metrics.detection import proportion
from tasks.findings.archive import ARCHIVE, EVALUATION, ArchivedFinding, lock, read_rows

FOLDER = "labels"
Verdict = Literal["confirmed", "false_positive"]


@dataclass(frozen=True, slots=True)
class FindingLabel:
    """One person's label of one finding.

    ``label``: ``confirmed`` or ``false_positive``; ``at``: when, in UTC.
    """

    finding_id: str
    label: str
    by: str
    at: str


def write_label(finding_id: str, label: str, *, by: str | None, archive: Path = ARCHIVE) -> None:
    """Keeps a label, in the place of an earlier one by the same person.

    Raises ConfigurationError if the label is none of the two, or nobody's.
    """
    if label not in get_args(Verdict):
        msg = f"a label must be {' or '.join(get_args(Verdict))}, got {excerpt(label)}; name one"
        raise ConfigurationError(msg)
    if by is None or not by.strip():
        msg = "--by must name the person who labels, got nothing; add --by NAME"
        raise ConfigurationError(msg)
    # A file for each person: two who label at once lose nothing.
    path = archive / FOLDER / finding_id / f"{record_digest(by)[:16]}.json"
    with lock(archive):
        write_json(asdict(FindingLabel(finding_id, label, by, _now())), path)


def read_labels(archive: Path = ARCHIVE) -> dict[str, FindingLabel]:
    """The newest label of each finding.

    Raises DataError if a file holds none.
    """
    found = []
    for path in sorted((archive / FOLDER).glob("*/*.json")):
        try:
            found.append(_check(FindingLabel(**read_json(path))))
        except (OSError, TypeError, ValueError, RecursionError) as error:
            msg = f"{path} must hold a label, got {type(error).__name__}; delete it, label again"
            raise DataError(msg) from error
    return {each.finding_id: each for each in sorted(found, key=lambda own: own.at)}


def _check(found: FindingLabel) -> FindingLabel:
    if found.label not in get_args(Verdict) or {*map(type, asdict(found).values())} != {str}:
        raise ValueError
    return found


def newest_label(
    finding: ArchivedFinding, labels: Mapping[str, FindingLabel]
) -> FindingLabel | None:
    """The newest label of a finding or of one that is nearly the same."""
    own = [labels[each] for each in (finding.finding_id, *finding.others) if each in labels]
    return max(own, key=lambda each: each.at, default=None)


def without_false(
    findings: Iterable[ArchivedFinding], labels: Mapping[str, FindingLabel]
) -> list[ArchivedFinding]:
    """Those that no person calls a false positive."""
    told = ((each, newest_label(each, labels)) for each in findings)
    return [each for each, label in told if label is None or label.label != "false_positive"]


def of_last_evaluation(
    findings: Collection[ArchivedFinding], evaluation_key: str, archive: Path = ARCHIVE
) -> list[ArchivedFinding]:
    """Those that the examination with this key found with the attacker of this project."""
    from astra_core.models.pretrained import weights_digest

    run = record_digest([evaluation_key, weights_digest(Path("models/attacker"))])[:16]
    own = {each.finding_id for each in read_rows(archive / f"{EVALUATION}-{run}.parquet")}
    return [each for each in findings if not own.isdisjoint((each.finding_id, *each.others))]


def held_share(
    findings: Collection[ArchivedFinding], labels: Mapping[str, FindingLabel]
) -> tuple[Interval, int]:
    """Share of the labelled findings that people confirmed, and how many have a label."""
    found = [newest_label(each, labels) for each in findings]
    own = [each.label for each in found if each]
    return proportion(own.count("confirmed"), len(own)), len(own)


def corrected_by_people(rate: Interval, held: Interval) -> Interval:
    """A success rate without the share that people found to be false.

    What the judge passed is not looked at, so this bounds the rate from below. The ends are those
    of both intervals together, so it is wider than it need be.
    """
    return Interval(rate.value * held.value, rate.low * held.low, rate.high * held.high)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
