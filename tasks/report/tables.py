"""The tables of a report between its curves and its findings; one without rows is left out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from astra_core.metrics.statistics import Interval
from astra_parts.metrics.detection import proportion
from tasks.records.baselines import TRAINED, UNTRAINED, BaselineRecord
from tasks.records.evaluation import BANDIT, EvaluationRecord, Figure, Transfer, tries_told
from tasks.records.reports import table_cell
from tasks.report.material import Material

_PER_THOUSAND = "unique_attacks_per_1000_replies"
_SIDES = ("Trained", "Untrained")
_BY_TARGET = ("Target", *_SIDES, "Gain")
_NOTHING = 1e-5
# Figures of diversity by name: what they are called, and how they are written.
_DIVERSITY = {
    "unique_probes": ("Probes that differ", ".1%"),
    "distinct_2": ("Pairs of words that differ", ".1%"),
    "unique_attacks": ("Different hits", ",.0f"),
    "strategies": ("Strategies: ways to succeed", ".1f"),
    "top_strategy_share": ("Hits of the most frequent strategy", ".1%"),
    "kl_nats": ("KL to the reference, nats", ".2f"),
    "probe_perplexity": ("Perplexity of the probes", ".1f"),
}

_NOTE = (
    "Success is of rollouts on the same test prompts, or of prompts where that is said. Replies "
    "before are what training or search asked of the target first."
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        title: Its heading.
        head: Of its columns; the first names the rows, the others are numbers.
        rows: As many texts each.
        note: What a reader must know about it; empty for nothing.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(material: Material) -> list[Table]:
    """The tables of one version."""
    found = material.evaluation
    own = [
        Table("By category", ("Category", "Prompts", *_SIDES, "Gain"), tuple(_categories(found))),
        Table("By turn", ("Success by then", *_SIDES), tuple(_turns(material))),
        Table("Diversity", ("Figure", *_SIDES), tuple(_diversity(found)), _ways_note(found)),
        _baselines(material),
        _refusals(found),
        Table("Against each target", _BY_TARGET, tuple(_against(found.targets))),
        Table("Against other targets", _BY_TARGET, tuple(_against(found.transfer))),
    ]
    return [table for table in own if table.rows]


def _categories(found: EvaluationRecord) -> Iterator[tuple[str, ...]]:
    for label, own in found.categories.items():
        rates = (percent(own.attacker), percent(own.baseline), own.lift.points())
        yield label, str(own.num_prompts), *rates


def _turns(material: Material) -> Iterator[tuple[str, ...]]:
    if material.turns is not None and len(material.turns.attacker.success) > 1:
        sides = (material.turns.attacker.success, material.turns.baseline.success)
        for number, rates in enumerate(zip(*sides, strict=False), start=1):
            yield f"Turn {number}", *map(percent, rates)


def _diversity(found: EvaluationRecord) -> Iterator[tuple[str, ...]]:
    for name, (label, form) in _DIVERSITY.items():
        sides = [_number(figures.get(name)) for figures in (found.attacker, found.baseline)]
        if sides[0] is not None:
            yield label, *("" if own is None else f"{own:{form}}" for own in sides)


def _ways_note(found: EvaluationRecord) -> str:
    size = _number(found.attacker.get("num_hits_compared"))
    return f"Strategies are those expected in {size:.0f} successes." if size else ""


def _baselines(material: Material) -> Table:
    """What else reaches how much on the same prompts, and what was asked of the target for it."""
    found = material.evaluation
    trained, untrained = found.attacker, found.baseline
    count = found.num_rollouts
    replies = material.total("rollout/num_replies")
    learned = "" if replies is None else f"{replies:,.0f}"
    gain = found.lift.points()
    rows = [
        ("Trained attacker", percent(found.rate()), "", _hits(trained), learned),
        ("Untrained attacker", percent(found.rate("baseline")), gain, _hits(untrained), "0"),
    ]
    if count > 1:
        for label, role, before in (("T", "attacker", learned), ("Unt", "baseline", "0")):
            rate = _best_of(material.table, role, confidence=found.confidence)
            name = f"{label}rained, best of {count} rollouts of a prompt"
            rows.append((name, percent(rate), "", "", before))
    searched = untrained.get(f"{BANDIT}_success_rate")
    if isinstance(searched, Interval):
        calls = _number(untrained.get(f"{BANDIT}_calls")) or 0.0
        hits = _hits(untrained, f"{BANDIT}_")
        rows.append(("Bandit over untrained probes", percent(searched), "", hits, f"{calls:,.0f}"))
    if found.plain is not None:
        best, over = f"The best of {found.plain.num_tried} plain questions", found.plain.lift
        rows.append(("The prompts as they stand", percent(found.plain.own_rate), "", "", "0"))
        rows.append((best, percent(found.plain.best_rate), over.points(), "", ""))
    notes = [tries_told(found)]
    if material.baselines is not None:
        rows += _at_equal_cost(material.baselines)
        notes += [f"at equal cost: {own}" for own in material.baselines.notes()]
        for row in material.baselines.rows:
            if row.judged < row.replies:
                notes.append(f"{row.name}: {row.judged:,} of {row.replies:,} replies judged")
    head = ("Attacker", "Success", "Gain over it", "Different hits per 1,000 replies")
    told = [f"{note[0].upper()}{note[1:]}." for note in notes if note]
    return Table("Baselines", (*head, "Replies before"), tuple(rows), " ".join([_NOTE, *told]))


def _at_equal_cost(found: BaselineRecord) -> Iterator[tuple[str, str, str, str, str]]:
    """What others that nobody trained reach with as many replies as the evaluation."""
    for row in found.rows:
        if row.name not in (TRAINED, UNTRAINED):
            name, success, _, hits, gain, _ = row.cells()
            yield f"{name[0].upper()}{name[1:]}, at equal cost", success, gain, hits, "0"


def _best_of(table: pd.DataFrame, role: str, *, confidence: float) -> Interval:
    """Share of prompts of which one rollout at least succeeds."""
    rates = table.loc[table["role"] == role, "success_rate"].dropna()
    return proportion(int((rates > 0).sum()), len(rates), confidence=confidence)


def _hits(figures: Mapping[str, Figure], start: str = "") -> str:
    number = _number(figures.get(f"{start}{_PER_THOUSAND}"))
    return "" if number is None else f"{number:,.0f}"


def _refusals(found: EvaluationRecord) -> Table:
    """Harmless requests that the target refuses."""
    own = found.over_refusal
    rows: list[tuple[str, ...]] = []
    note = ""
    if own is not None:
        rows.append(("All harmless requests", str(own.num_safe), percent(own.rate)))
        kinds = own.types if len(own.types) > 1 else {}
        rows += [(kind, str(each.num_requests), percent(each.rate)) for kind, each in kinds.items()]
        if own.unsafe_rate is not None:
            label = "Requests that it should refuse"
            rows.append((label, str(own.num_unsafe), percent(own.unsafe_rate)))
        note = f"Told by {own.judge}, rules for English; each was asked once."
        if own.num_failed:
            note += f" {own.num_failed} had no answer and count nowhere."
    return Table("Harmless requests refused", ("Requests", "Asked", "Refused"), tuple(rows), note)


def _against(others: Mapping[str, Transfer]) -> Iterator[tuple[str, ...]]:
    for name, own in others.items():
        yield name, *own.cells()


def percent(span: Interval) -> str:
    """A rate with its interval, such as ``75.8% [71.5%, 80.0%]``."""
    return span.spelled(".1%")


def _number(figure: Figure) -> float | None:
    value = figure.value if isinstance(figure, Interval) else figure
    if value is None or math.isnan(value):
        return None
    # Rounding leaves a zero with a sign.
    return 0.0 if abs(value) < _NOTHING else float(value)


def markdown_table(table: Table) -> str:
    """The table in Markdown, below its heading."""
    lines: list[Sequence[str]] = [table.head, ["---"] * len(table.head), *table.rows]
    body = "\n".join(f"| {' | '.join(map(table_cell, own))} |" for own in lines)
    return f"## {table.title}\n{body}\n" + (f"\n{table.note}\n" if table.note else "")
