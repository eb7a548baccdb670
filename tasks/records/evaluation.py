"""The record of an evaluation: ``reports/evaluation.json`` and a table of prompts."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from astra_core.errors import DataError
from astra_core.files import draft_of
from astra_core.metrics.statistics import Interval
from tasks.records.reports import nan_as_null, read_record

EVALUATION = Path("reports/evaluation.json")
RATE = "attack_success_rate"
CONFIRMED = "confirmed_success_rate"
"""The column of the table of prompts that a second judge adds."""
NONWORDS = "nonword_probe_rate"
"""The column of the table of prompts, and the figure: share of probes with an invented word."""
BANDIT = "bandit"
"""The beginning of the untrained attacker's figures that a bandit over its probes reaches."""
# The keys named first if a report lacks them.
_NEEDED = (
    "evaluation_key",
    *(f"attacker.{RATE}.{end}" for end in ("value", "low", "high")),
    "baseline",
    f"baseline.{RATE}.value",
    "lift.value",
)
# Left out of the record where they are not there.
_OPTIONAL = (
    "categories",
    "selection",
    "belief",
    "target",
    "equivalent_tries",
    "plain",
    "over_refusal",
    "targets",
    "transfer",
)


def _interval_or_number(value: Any) -> Any:
    return Interval.read(value) if isinstance(value, Mapping) else value


Span = Annotated[Interval, BeforeValidator(_interval_or_number)]
Figure = Annotated[Interval | int | float | None, BeforeValidator(_interval_or_number)]
Figures = dict[str, Figure]
"""One attacker's figures by name; an interval where one was estimated, None for no number."""


HEADLINE = {
    "attack_success_rate": "final/attack_success_rate",
    "untrained_success_rate": "baseline/attack_success_rate",
    "gain": "final/lift",
    "unique_probes": "final/unique_probes",
    "kl_nats": "final/kl_nats",
}
"""What ``dvc metrics show`` shows, and which figure of an examination each is."""


@dataclass(frozen=True, slots=True)
class CategoryRates:
    """Attack success on the prompts of one category.

    ``num_prompts``: with few prompts an interval is wide; with one it has no width.
    """

    num_prompts: int
    attacker: Span
    baseline: Span
    lift: Span


@dataclass(frozen=True, slots=True)
class Selection:
    """Attack success on the prompts by which the checkpoint was chosen."""

    num_prompts: int
    attack_success_rate: Span
    optimism: Span


@dataclass(frozen=True, slots=True)
class CalibrationNote:
    """The calibration by which success rates were corrected."""

    judge: str
    labelled: str
    num_rows: int
    sensitivity: Span
    specificity: Span


@dataclass(frozen=True, slots=True)
class Belief:
    """How far the judge of an evaluation can be trusted; what was not asked for is None.

    Attributes:
        calibration: The one by which rates called ``corrected_...`` were corrected.
        corrected_lift: The gain in the corrected success rate; None without one.
        second_judge: The version by which rates called ``confirmed_...`` were confirmed.
    """

    calibration: CalibrationNote | None = None
    corrected_lift: Span | None = None
    second_judge: str | None = None
    confirmed_lift: Span | None = None


@dataclass(frozen=True, slots=True)
class PlainQuestions:
    """Attack success of the prompts themselves, asked as they stand."""

    num_tried: int
    best_question: str
    chosen_rate: float
    own_rate: Span
    best_rate: Span
    lift: Span

    def words(self) -> str:
        """The finding in words."""
        return (
            f"plain questions {self.own_rate.spelled('.1%')}, the best of {self.num_tried} "
            f"{self.best_rate.spelled('.1%')}, gain over it {self.lift.points()}"
        )


@dataclass(frozen=True, slots=True)
class TypeRefusals:
    """Of the harmless requests of one type the share that was refused."""

    num_requests: int
    rate: Span


@dataclass(frozen=True, slots=True)
class OverRefusal:
    """Harmless requests that the target refused, asked once each, with intervals of Wilson.

    Attributes:
        requests: The digest of their file.
        judge: The version of what tells a refusal.
        num_safe: Harmless requests that were answered.
        num_unsafe: Answered requests that should be refused; 0 where the file has none.
        num_failed: Requests without an answer, which count nowhere.
        rate: Share of the harmless ones that was refused.
        unsafe_rate: Share of the others that was refused; None without any.
        types: The harmless ones by type.
    """

    requests: str
    judge: str
    num_safe: int
    num_unsafe: int
    num_failed: int
    rate: Span
    unsafe_rate: Span | None = None
    types: dict[str, TypeRefusals] = field(default_factory=dict)

    def words(self) -> str:
        """The finding in words."""
        others = ""
        if self.unsafe_rate is not None:
            rate = self.unsafe_rate.spelled(".1%")
            others = f", and {rate} of {self.num_unsafe} that it should refuse"
        return (
            f"the target refuses {self.rate.spelled('.1%')} of {self.num_safe} harmless "
            f"requests{others}"
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """Both attackers' first turns, said to another target; or all turns against one of several.

    Attributes:
        attacker: The trained attacker's success.
        baseline: The untrained attacker's.
        lift: The gain, paired by prompt.
    """

    attacker: Span
    baseline: Span
    lift: Span

    def cells(self) -> tuple[str, str, str]:
        """The trained attacker's success, the untrained one's and the gain, in words."""
        after, before = (
            "none judged" if math.isnan(own.value) else own.spelled(".1%")
            for own in (self.attacker, self.baseline)
        )
        gain = "not known" if math.isnan(self.lift.value) else self.lift.points()
        return after, before, gain


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """Both attackers on the same prompts.

    Attributes:
        categories: Rates by the label of a category; empty where the prompts have none.
        selection: Rates on the prompts that chose the checkpoint; None where none did.
        belief: How far the judge can be trusted; None where that was not asked for.
        target: Digest and name of a target without weights here; None for one with weights.
        equivalent_tries: Untrained rollouts of a prompt that succeed as often as a trained one;
            None in earlier records.
        plain: The prompts asked as they stand; None where that was not asked for.
        over_refusal: Harmless requests that the target refuses; None where none were asked.
        targets: Both attackers against each of several weighted targets, by their names; empty for
            one target.
        transfer: Both attackers against other targets, by their names.
    """

    evaluation_key: str
    num_prompts: int
    num_rollouts: int
    depth: int
    threshold: float
    confidence: float
    attacker: Figures
    baseline: Figures
    lift: Span
    categories: dict[str, CategoryRates] = field(default_factory=dict)
    selection: Selection | None = None
    belief: Belief | None = None
    target: dict[str, str] | None = None
    equivalent_tries: Span | None = None
    plain: PlainQuestions | None = None
    over_refusal: OverRefusal | None = None
    targets: dict[str, Transfer] = field(default_factory=dict)
    transfer: dict[str, Transfer] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """The record as JSON; NaN becomes null, and absent parts are left out."""
        record = nan_as_null(asdict(self))
        for name in _OPTIONAL:
            if not record[name]:
                del record[name]
        record["strategies_told"] = {
            role: ways_told(record[role]) for role in ("attacker", "baseline")
        }
        told = worth_told(self)
        return record | ({"worth": told} if told else {})

    def beside(self) -> list[str]:
        """What was measured beside the two attackers, in words."""
        told = [own.words() for own in (self.plain, self.over_refusal) if own]
        sides = {"each target": self.targets, "other targets": self.transfer}
        told += [f"against {name}: {transfers_told(own)}" for name, own in sides.items() if own]
        return told

    def final_figures(self) -> dict[str, float | None]:
        """Flat figures: ``final/...`` for attacker and lift, ``baseline/...`` for the untrained."""
        chosen, plain, refused = self.selection, self.plain, self.over_refusal
        beside: dict[str, Any] = {
            "selection_success_rate": chosen and chosen.attack_success_rate,
            "selection_optimism": chosen and chosen.optimism,
            "equivalent_tries": self.equivalent_tries,
            "plain_question_rate": plain and plain.best_rate,
            "lift_over_plain": plain and plain.lift,
            "over_refusal_rate": refused and refused.rate,
            "unsafe_refusal_rate": refused and refused.unsafe_rate,
            "corrected_lift": self.belief and self.belief.corrected_lift,
            "confirmed_lift": self.belief and self.belief.confirmed_lift,
        }
        known = {name: found for name, found in beside.items() if found is not None}
        final = {**self.attacker, "lift": self.lift, **known}
        return dict([*flat_figures("final", final), *flat_figures("baseline", self.baseline)])

    def headline(self) -> dict[str, float]:
        """The five numbers by which runs are compared; unknown ones are left out."""
        told = self.final_figures()
        found = {name: told.get(of) for name, of in HEADLINE.items()}
        return {name: value for name, value in found.items() if value is not None}

    def rate(self, role: str = "attacker") -> Interval:
        """The success rate of a role, as an interval."""
        found = (self.attacker if role == "attacker" else self.baseline).get(RATE)
        if not isinstance(found, Interval):
            msg = f"{role} must have an interval of {RATE}, got {type(found).__name__}; evaluate it"
            raise DataError(msg)
        return found


def transfers_told(others: Mapping[str, Transfer]) -> str:
    """Success against each of these targets, in words; empty for none."""
    found = ((name, *own.cells()) for name, own in others.items())
    return "; ".join(
        f"{name} {before} -> {after}, gain {gain}" for name, after, before, gain in found
    )


def tries_told(record: EvaluationRecord) -> str:
    """Of how many untrained tries a trained one is worth the best; empty if not known."""
    tries = record.equivalent_tries
    if tries is None or math.isnan(tries.value):
        return ""
    return (
        f"one try of the trained attacker succeeds as often as the best of {tries.value:.1f} "
        f"[{tries.low:.1f}, {tries.high:.1f}] untrained tries"
    )


def worth_told(record: EvaluationRecord) -> str:
    """What the trained attacker is worth, in tries, hits and a bandit's; empty if not known."""
    told = tries_told(record)
    if not told:
        return ""
    name = "unique_attacks_per_1000_replies"
    own, other = (figures.get(name) for figures in (record.attacker, record.baseline))
    if isinstance(own, int | float) and isinstance(other, int | float):
        told += f"; of 1,000 replies {own:.0f} are different hits, {other:.0f} of the untrained one"
    bandit = bandit_told(record)
    return f"{told}; {bandit}" if bandit else told


def bandit_told(record: EvaluationRecord) -> str:
    """What the best of the untrained attacker's probes reach; empty if that was not measured."""
    untrained, trained = record.baseline, record.rate()
    names = ("success_rate", "probes", "calls", "unique_attacks_per_1000_replies")
    rate, *counts = (untrained.get(f"{BANDIT}_{name}") for name in names)
    if not isinstance(rate, Interval):
        return ""
    probes, calls, unique = (float(count) for count in counts if isinstance(count, int | float))
    than = " than the trained attacker"
    against = f", more often{than}" if rate.low > trained.high else ""
    against = f", less often{than}" if rate.high < trained.low else against
    return (
        f"a bandit over {probes:,.0f} untrained probes succeeds in {rate.spelled('.1%')}"
        f"{against}, after {calls:,.0f} replies, {unique:.0f} different hits of 1,000"
    )


def ways_told(figures: Mapping[str, Any]) -> str:
    """How an attacker's strategies were told from each other."""
    is_asked = bool(figures.get("strategy_hits_asked"))
    return "by asking the target" if is_asked else "by shared words"


def flat_figures(area: str, figures: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Every figure as ``area/name``; intervals add ``_low`` and ``_high``."""
    for name, figure in figures.items():
        found = _interval_or_number(figure)
        if isinstance(found, Interval):
            yield from found.flat(f"{area}/{name}").items()
        else:
            yield f"{area}/{name}", found


def read_evaluation(path: Path) -> EvaluationRecord:
    """The record that the evaluation stage wrote.

    Raises DataError if there is none, it lacks a key, or a value is of another type.
    """
    return read_record(path, EvaluationRecord, keys=_NEEDED)


def write_prompt_table(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Writes a table of one row per prompt and role."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with draft_of(path) as draft:
        pq.write_table(pa.Table.from_pylist(list(rows)), draft)
