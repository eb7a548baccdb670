"""Findings for a person: chosen by what they are, and shown with as much of the text as asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import excerpt
from astra_core.redaction import mask
from astra_parts.metrics.categories import label_of
from tasks.findings.archive import MINIMISED, TRAINING, ArchivedFinding
from tasks.findings.labels import FindingLabel
from tasks.records.prompt_table import spelled_metadata

Detail = Literal["figures", "masked", "probes", "full"]
"""Of the text: nothing; masked words; the attacker's side in clear; everything in clear."""
_WIDTH = 64
_SHORT = 8


@dataclass(frozen=True, slots=True)
class Choosing:
    """Which findings; what is None or 0 chooses all.

    Attributes:
        category: The prompt's category.
        min_score: The lowest score.
        target: The beginning of the target's digest.
        version: Digest of a version's attacker, and the key of the training that made it.
    """

    category: str | None = None
    min_score: float = 0.0
    target: str | None = None
    version: tuple[str, str] | None = None

    def of(self, findings: Sequence[ArchivedFinding]) -> list[ArchivedFinding]:
        """Those that are chosen.

        Raises ConfigurationError if no finding is of the category.
        """
        known = {label_of(each.category) for each in findings}
        if self.category and not {self.category, label_of(self.category)} & known:
            told = ", ".join(sorted(known))
            msg = f"--category must be one of {told}, got {excerpt(self.category)}; name one"
            raise ConfigurationError(msg)
        return [each for each in findings if self._has(each)]

    def _has(self, each: ArchivedFinding) -> bool:
        if self.version is not None:
            digest, run_key = self.version
            of_training = each.source == TRAINING and run_key.startswith(each.run)
            if not (of_training or (digest and digest == each.attacker)):
                return False
        return (
            self.category in {None, each.category, label_of(each.category)}
            and each.score >= self.min_score
            and each.target.startswith(self.target or "")
        )


def the_one(findings: Sequence[ArchivedFinding], wanted: str) -> ArchivedFinding:
    """The finding whose id, or that of one that is nearly the same, begins so.

    Raises DataError if there is none, or there are several.
    """
    found = [
        each
        for each in findings
        if wanted and any(own.startswith(wanted) for own in (each.finding_id, *each.others))
    ]
    if len(found) != 1:
        got = f"{len(found)} findings" if found else "none"
        msg = f"ID must begin as one finding does, got {excerpt(wanted)}: {got}; see astra findings"
        raise DataError(msg)
    return found[0]


def detail_of(name: str) -> Detail:
    """The level of detail with this name.

    Raises ConfigurationError if there is none.
    """
    if name in get_args(Detail):
        return cast("Detail", name)
    msg = f"--detail must be one of {', '.join(get_args(Detail))}, got {excerpt(name)}; name one"
    raise ConfigurationError(msg)


def limit_detail(finding: ArchivedFinding, detail: Detail) -> ArchivedFinding:
    """The finding with as much of its text as this level of detail shows."""
    if detail == "full":
        return finding

    def hidden(text: str) -> str:
        return "" if detail == "figures" else mask(text)

    def own(text: str) -> str:
        return text if detail == "probes" else hidden(text)

    category = finding.columns.get("category")
    kept = {} if category is None else {"category": label_of(category)}
    return replace(
        finding,
        prompt=own(finding.prompt),
        metadata=finding.metadata if detail == "probes" else spelled_metadata(kept),
        probes=tuple(map(own, finding.probes)),
        replies=tuple(map(hidden, finding.replies)),
        rationale=hidden(finding.rationale),
    )


def line_of(finding: ArchivedFinding, label: FindingLabel | None) -> str:
    """A finding in one line: id, score, turn, origin, category, counts, label, last probe."""
    origin = finding.source + (f" {finding.iteration}" if finding.source == TRAINING else "")
    cells = (
        finding.finding_id,
        f"{finding.score:.2f}",
        f"turn {finding.turn}",
        f"{origin:<12}",
        f"{finding.times}x +{finding.alike}".ljust(7),
        *([finding.category] if finding.category else []),
        *([label.label] if label else []),
    )
    probe = finding.probes[-1]
    return "  ".join(cells) + f"  {probe if len(probe) <= _WIDTH else probe[: _WIDTH - 1] + '…'}"


def conversation_lines(finding: ArchivedFinding, label: FindingLabel | None) -> list[str]:
    """A finding with its whole conversation."""
    where = {TRAINING: f"step {finding.iteration} of training {finding.run}"}
    where[MINIMISED] = f"made shorter from {finding.run}"
    told: Mapping[str, str] = {
        "finding": finding.finding_id,
        "score": f"{finding.score:.2f} by {finding.judge}, at turn {finding.turn}",
        "found in": where.get(finding.source, f"{finding.source} {finding.run}")
        + f", {finding.times} times; {finding.alike} others are nearly the same",
        "attacker": finding.attacker[:_SHORT],
        "target": finding.target[:_SHORT],
        "category": finding.category,
        "label": f"{label.label} by {label.by}, {label.at}" if label else "",
        "prompt": finding.prompt,
    }
    lines = [f"{name:<13}{value}" for name, value in told.items() if value]
    for probe, reply in zip(finding.probes, finding.replies, strict=True):
        lines += [f"{'probe':<13}{probe}", f"{'reply':<13}{reply}"]
    return [*lines, f"{'judge':<13}{finding.rationale}"] if finding.rationale else lines
