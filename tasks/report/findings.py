"""The worst findings of a version, masked: of the archive, or of its page of examples."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval
from astra_core.redaction import mask
from tasks.findings.archive import ARCHIVE, EVALUATION, TRAINING, ArchivedFinding, read_archive
from tasks.findings.labels import FindingLabel, held_share, newest_label, read_labels
from tasks.findings.listing import Choosing, limit_detail

MAX_FINDINGS = 20
_HEAD = "score"
_RULE = "---"


@dataclass(frozen=True, slots=True)
class Finding:
    """One conversation whose last turn scored high.

    Attributes:
        score: That turn's score.
        prompt: The prompt's id.
        category: The prompt's category; empty where prompts have none.
        turns: What the attacker said and the target answered, masked.
        note: Its id in the archive, where it was found, and what people said; empty for none.
    """

    score: str
    prompt: str
    category: str
    turns: tuple[tuple[str, str], ...]
    note: str = ""


def archived_findings(
    keys: tuple[str, str], *, archive: Path = ARCHIVE, limit: int = MAX_FINDINGS
) -> tuple[Finding, ...]:
    """The findings of a version and of its training, highest first; none where no archive has any.

    Args:
        keys: Digest of the version's attacker, and the key of the training that made it.
        archive: On the machine of the run.
        limit: Of their number.
    """
    try:
        found, labels = read_archive(archive, Choosing(version=keys).of), read_labels(archive)
    except DataError:
        return ()
    return tuple(_finding_of(each, newest_label(each, labels)) for each in found[:limit])


def confirmed_share(digest: str, *, archive: Path = ARCHIVE) -> tuple[Interval, int] | None:
    """What people confirmed of what a version's examinations found, and of how many they spoke.

    None where they spoke of none.
    """
    try:
        found = read_archive(archive, Choosing(version=(digest, "")).of)
        labels = read_labels(archive)
    except DataError:
        return None
    told = held_share([each for each in found if each.source == EVALUATION], labels)
    return told if told[1] else None


def _finding_of(found: ArchivedFinding, label: FindingLabel | None) -> Finding:
    own = limit_detail(found, "masked")
    step = f" step {found.iteration}" if found.source == TRAINING else ""
    told = [found.finding_id, f"{found.source}{step}"]
    told += [f"{found.times} times"] if found.times > 1 else []
    told += [f"{found.alike} nearly the same"] if found.alike else []
    told += [f"{label.label.replace('_', ' ')} by a person"] if label else []
    turns = tuple(zip(own.probes, own.replies, strict=True))
    return Finding(f"{own.score:.2f}", own.prompt_id, own.category, turns, ", ".join(told))


def read_findings(page: str, *, limit: int = MAX_FINDINGS) -> tuple[Finding, ...]:
    """The turns of a page that ``examples_page`` made, highest first.

    Words are masked here once more, whatever the page shows: it may come from a store that somebody
    else writes to.
    """
    return tuple(islice(_findings(page), limit))


def _findings(page: str) -> Iterator[Finding]:
    columns: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif cells[0] == _HEAD:
            columns = cells
        elif columns and len(cells) == len(columns) and not cells[0].startswith(_RULE):
            row = dict(zip(columns, cells, strict=True))
            yield Finding(
                row["score"],
                row.get("prompt", ""),
                row.get("category", ""),
                ((mask(row.get("probe", "")), mask(row.get("response", ""))),),
            )
