"""The result of a validation: which checks held, and the ids of the rows that did not pass.

A report names ids and never quotes a text. It has no time, so that equal rows give equal files.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from astra_core.errors import GateError
from tasks.expectations.advice import ADVICE, ROW_ADVICE
from tasks.records.data_profile import DataProfile

# critical stops the pipeline, row rejects the row, warning is for the person who reads the report.
Level = Literal["critical", "row", "warning"]


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation and how it went.

    Attributes:
        check: Its name; for a row-level check also the reason that a rejected row is given.
        column: The column that it checks; empty for the table as a whole.
        unexpected: The number of rows that are not, or for the table the value seen instead.
        limit: The bound of a check that has one, such as ``>= 20``.
        note: Set when the check could not be made, for example for want of its column.
        observed: What was seen of a table as a whole; None of a check of rows.
    """

    check: str
    column: str
    level: Level
    success: bool
    unexpected: float
    sample_ids: tuple[str, ...] = ()
    limit: str = ""
    note: str = ""
    rows: tuple[int, ...] = field(default=(), repr=False)
    observed: float | None = None
    num_checked: int = 0
    expectation: Any = field(default=None, repr=False, compare=False)

    def to_record(self) -> dict[str, Any]:
        """What a report file says about the check."""
        return {
            "check": self.check,
            "column": self.column,
            "level": self.level,
            "success": self.success,
            "unexpected": self.unexpected,
            "sample_ids": list(self.sample_ids),
            "limit": self.limit,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was left out, in a form that is safe to show.

    ``place``: in the user's file, such as ``prompts.csv line 3``; else the prompt's id.
    """

    place: str
    reasons: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """All checks of one set of rows.

    Attributes:
        reasons: How many rows each row-level check rejected; a row may count for several.
        plan: What duels the accepted rows allow; told in the line, not recorded.
    """

    subject: str
    num_rows: int
    checks: tuple[Check, ...]
    num_rejected: int = 0
    reasons: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    splits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    intake: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    rejected: tuple[RejectedRow, ...] = ()
    profile: DataProfile | None = None
    plan: tuple[str, ...] = ()

    @property
    def critical_failed(self) -> tuple[str, ...]:
        """Names of the checks that stop the pipeline."""
        return tuple(c.check for c in self.checks if c.level == "critical" and not c.success)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Names of the checks a person should look at."""
        return tuple(c.check for c in self.checks if c.level == "warning" and not c.success)

    @property
    def success(self) -> bool:
        """Whether the pipeline may go on."""
        return not self.critical_failed

    @property
    def advice(self) -> Mapping[str, str]:
        """What to do, by the failed check; row-level checks have no advice."""
        failed = (c.check for c in self.checks if c.level != "row" and not c.success)
        return {check: ADVICE[check] for check in failed if check in ADVICE}

    def summary(self) -> str:
        """One line for a person."""
        accepted = self.num_rows - self.num_rejected
        line = f"{accepted} of {self.num_rows} {self.subject} pass {len(self.checks)} checks"
        if self.num_rejected:
            most = sorted(self.reasons.items(), key=lambda entry: (-entry[1], entry[0]))[:3]
            line += "; rejected for " + ", ".join(f"{name} {count}" for name, count in most)
        if self.warnings:
            line += "; warnings: " + ", ".join(self.warnings)
        return "; ".join([line, *self.plan])

    def require_success(self, page: Path) -> None:
        """Checks that no critical check failed.

        ``page``: where a person reads more; named in the error.

        Its GateError names the first failed check, what it saw and the page.
        """
        if self.success:
            return
        first = next(c for c in self.checks if c.level == "critical" and not c.success)
        # A table's check saw a value, a row's check counted rows.
        rows = " rows that do not" if first.rows else ""
        seen = first.note or f"{first.unexpected:g}{rows}"
        limit = f" ({first.limit})" if first.limit else ""
        others = len(self.critical_failed) - 1
        more = f" and {others} more" if others else ""
        ids = f" (such as {', '.join(first.sample_ids[:3])})" if first.sample_ids else ""
        told = f"{self.subject} must pass '{first.check}'{limit}{more}, got {seen}{ids}"
        msg = "; ".join(filter(None, [told, self._way_out(first.check), f"see {page}"]))
        raise GateError(msg)

    def _way_out(self, check: str) -> str:
        """What to change in params.yaml; empty where only the page can say."""
        why = max(self.reasons, key=lambda name: self.reasons[name], default="")
        if self.num_rejected > self.num_rows / 4:
            most = f"most were rejected for {why} ({self.reasons[why]})"
            return ": ".join(filter(None, [most, ROW_ADVICE.get(why, "")]))
        if not check.endswith("_rows") or not self.splits:
            return ""
        return _way_to_enough(self.splits)

    def to_record(self) -> dict[str, Any]:
        """The report as JSON-like values."""
        return {
            "subject": self.subject,
            "success": self.success,
            "num_rows": self.num_rows,
            "num_rejected": self.num_rejected,
            "rejected_fraction": self.num_rejected / self.num_rows if self.num_rows else 0.0,
            "critical_failed": list(self.critical_failed),
            "warnings": list(self.warnings),
            "advice": dict(self.advice),
            "reasons": dict(self.reasons),
            "splits": dict(self.splits),
            "intake": dict(self.intake),
            "rejected": [asdict(row) for row in self.rejected],
            "profile": None if self.profile is None else asdict(self.profile),
            "checks": [check.to_record() for check in self.checks],
        }

    def to_markdown(self) -> str:
        """The report as a page for a person."""
        verdict = "passed" if self.success else "**failed**: " + ", ".join(self.critical_failed)
        lines = [
            f"# Validation of {self.subject}",
            "",
            f"{self.summary()}.",
            "",
            f"Gate {verdict}.",
        ]
        if self.splits:
            sizes = ", ".join(f"{split} {count}" for split, count in self.splits.items())
            lines += ["", f"Accepted rows: {sizes}."]
        lines += ["", "| check | limit | level | holds | seen | ids |", "|---|---|---|---|---|---|"]
        lines += [_table_row(check) for check in self.checks]
        if self.advice:
            lines += ["", "## What to do", ""]
            lines += [f"- `{check}`: {advice}." for check, advice in self.advice.items()]
        return "\n".join([*lines, *self._intake_lines(), *self._rejected_lines()]) + "\n"

    def _intake_lines(self) -> list[str]:
        if not self.intake:
            return []
        seen = {name: f"{value:g}" for name, value in self.intake.items()}
        share = f"{self.intake['duplicate_fraction']:.1%}"
        return [
            "",
            "## Duplicates and leaks, resolved",
            "",
            f"- Duplicate rows, dropped: {seen['num_duplicates']} of {seen['num_read']} ({share}).",
            f"- Rows with a text of the dev file, dropped: {seen['num_dev_duplicates']}.",
            f"- Near duplicates of the dev file, dropped: {seen['num_near_dev']}.",
            f"- Prompts kept with their near duplicates in a split: {seen['num_kept_together']}.",
        ]

    def _rejected_lines(self) -> list[str]:
        if not self.rejected:
            return []
        lines = ["", "## Rejected rows", ""]
        if self.num_rejected > len(self.rejected):
            lines += [f"The first {len(self.rejected)} of {self.num_rejected}.", ""]
        lines += ["| row | reasons | text, masked |", "|---|---|---|"]
        return lines + [
            _cells(row.place, ", ".join(row.reasons), row.text) for row in self.rejected
        ]


def _table_row(check: Check) -> str:
    holds = "yes" if check.success else "no"
    seen = check.note or f"{check.unexpected:g}"
    cells = (check.check, check.limit, check.level, holds, seen, ", ".join(check.sample_ids[:3]))
    return _cells(*cells)


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _way_to_enough(splits: Mapping[str, int]) -> str:
    """Values with which so few prompts pass, as far as any do."""
    least, total = min(splits.values()), sum(splits.values())
    fractions = "prompts.dev_fraction and prompts.test_fraction"
    if least:
        return f"set validation.min_prompts to {least}, or raise {fractions}, or bring more prompts"
    wanted = total // 8
    told = f"set {fractions} to 0.3 and validation.min_prompts to {wanted}, or " if wanted else ""
    return f"{told}bring more different prompts"
