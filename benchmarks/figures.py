"""What a benchmark tells: a figure, its unit, and the limit it must keep."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        name: What was measured.
        value: How much it was.
        unit: Of the value and the limit.
        limit: What it must stay below; None where nothing is promised.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def is_kept(self) -> bool:
        """True when the limit is kept, or there is none."""
        return self.limit is None or self.value < self.limit


def table(figures: Iterable[Figure]) -> str:
    """The figures as Markdown."""
    rows = ["| what | value | limit | |", "|---|---|---|---|"]
    for figure in figures:
        limit = "" if figure.limit is None else f"< {figure.limit:g} {figure.unit}"
        verdict = "" if figure.limit is None else ("kept" if figure.is_kept else "EXCEEDED")
        rows.append(f"| {figure.name} | {figure.value:.3g} {figure.unit} | {limit} | {verdict} |")
    return "\n".join(rows)
