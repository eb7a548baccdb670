"""What people say of findings, and the success rate that is left after it."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import excerpt
from astra_core.files import read_json, record_digest, write_json
from astra_core.metrics.statistics import Interval
from astra_parts.metrics.detection import proportion
from tasks.findings.archive import ARCHIVE, ArchivedFinding

FOLDER = "labels"
Verdict = Literal["confirmed", "false_positive"]


@dataclass(frozen=True, slots=True)
class FindingLabel:
    """One person's label of one finding.

    Attributes:
        finding_id: The finding.
        label: ``confirmed`` or ``false_positive``.
        by: The person's name.
        at: When, in UTC.
    """

    finding_id: str
    label: str
    by: str
    at: str


def write_label(finding_id: str, label: str, *, by: str | None, archive: Path = ARCHIVE) -> None:
    """Keeps a label, in the place of an earlier one by the same person.

    Raises:
        ConfigurationError: The label is none of the two, or nobody's.
    """
    if label not in get_args(Verdict):
        msg = f"a label must be {' or '.join(get_args(Verdict))}, got {excerpt(label)}; name one"
        raise ConfigurationError(msg)
    if by is None or not by.strip():
        msg = "--by must name the person who labels, got nothing; add --by NAME"
        raise ConfigurationError(msg)
    # A file for each person: two who label at once lose nothing.
    path = archive / FOLDER / finding_id / f"{record_digest(by)[:16]}.json"
    write_json(asdict(FindingLabel(finding_id, label, by, _now())), path)


def read_labels(archive: Path = ARCHIVE) -> dict[str, FindingLabel]:
    """The newest label of each finding.

    Raises:
        DataError: A file holds none.
    """
    found = []
    for path in sorted((archive / FOLDER).glob("*/*.json")):
        try:
            found.append(FindingLabel(**read_json(path)))
        except (OSError, TypeError, ValueError, RecursionError) as error:
            msg = f"{path} must hold a label, got {type(error).__name__}; delete it, label again"
            raise DataError(msg) from error
    return {each.finding_id: each for each in sorted(found, key=lambda own: own.at)}


def held_share(
    findings: Collection[ArchivedFinding], labels: Mapping[str, FindingLabel]
) -> tuple[Interval, int]:
    """Share of the labelled findings that people confirmed, and how many have a label."""
    own = [labels[each.finding_id].label for each in findings if each.finding_id in labels]
    return proportion(own.count("confirmed"), len(own)), len(own)


def corrected_by_people(rate: Interval, held: Interval) -> Interval:
    """A success rate without the share that people found to be false.

    What the judge passed is not looked at, so this bounds the rate from below. The ends are those
    of both intervals together, so it is wider than it need be.
    """
    return Interval(rate.value * held.value, rate.low * held.low, rate.high * held.high)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
