"""The results of a benchmark: figures with limits, costs of several ways, and equalities."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.timing import Cost
from tasks.machine.tables import markdown


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        name: What was measured.
        value: The measured value.
        unit: The unit of value and limit.
        limit: The value must stay below it; None if nothing is promised.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def is_kept(self) -> bool:
        """True if the limit is kept, or there is none."""
        return self.limit is None or self.value < self.limit


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one benchmark.

    Attributes:
        tables: Tables in Markdown.
        figures: Figures with limits; results that must be equal are figures below a tolerance.
        ratios: Ratios for the last lines of the whole run.
    """

    tables: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)


def table(figures: Iterable[Figure]) -> str:
    """The figures as Markdown."""
    rows = []
    for figure in figures:
        limit = "" if figure.limit is None else f"< {figure.limit:g} {figure.unit}".rstrip()
        verdict = "" if figure.limit is None else ("kept" if figure.is_kept else "EXCEEDED")
        rows.append((figure.name, f"{figure.value:.3g} {figure.unit}".rstrip(), limit, verdict))
    return markdown(("what", "value", "limit", ""), rows)


def cost_table(what: str, found: Sequence[Cost], *, threads: int) -> str:
    """The costs as Markdown; every ratio is to the first of them."""
    first = found[0]
    header = (what, f"wall s, {threads} threads", "x", "CPU s, 1 thread", "x", "repetitions")
    rows = [
        (
            cost.name,
            f"{cost.wall_s:.3g}",
            f"{cost.wall_s / first.wall_s:.1f}",
            "" if cost.cpu_s is None else f"{cost.cpu_s:.3g}",
            "" if not cost.cpu_s or not first.cpu_s else f"{cost.cpu_s / first.cpu_s:.1f}",
            str(cost.repetitions),
        )
        for cost in found
    ]
    return markdown(header, rows)


def in_percent(interval: Mapping[str, float]) -> str:
    """A rate and its interval, in percent."""
    value, low, high = (100.0 * interval[name] for name in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"
