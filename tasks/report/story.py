"""What a report says about a version, in words and figures; the page only lays it out."""

from dataclasses import asdict, dataclass
from typing import Any

from astra_core.metrics.statistics import Interval
from tasks.findings.labels import corrected_by_people
from tasks.records.evaluation import EvaluationRecord, bandit_told, ways_told
from tasks.records.reports import nan_as_null
from tasks.records.training import KEPT_UNTRAINED
from tasks.report.facts import attack_facts, cost
from tasks.report.material import Material
from tasks.report.provocation import provocation_note
from tasks.report.tables import percent, tables
from tasks.tracking.registry.card import belief_lines

_P_VALUE = (
    "p is the probability of a gain as large as this one if the true gain were exactly at the "
    "bound; the gate promotes only where it is at most the share of the error that this duel may "
    "spend."
)
_NEVER_CALIBRATED = (
    "Nobody has compared this judge with labels by people, so its error rate is unknown. "
    "astra judge-check measures it and corrects the figures."
)
_NOT_HARM = (
    "Success means that the judge's score was at or above the threshold, which is not the same as "
    "harm. Figures hold for this target, these prompts and these sampling settings only."
)


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the figures at the top of the report.

    Attributes:
        value: The trained attacker's value, or the difference.
        detail: Its interval, and the untrained attacker's value.
        spans: Intervals in [0, 1] to draw, by owner; empty if the figure is not a rate.
    """

    label: str
    value: str
    detail: str
    spans: tuple[tuple[str, Interval], ...] = ()


def title(material: Material) -> str:
    """The version and its target."""
    name = (material.evaluation.target or {}).get("name", "")
    return f"{material.name} against {name}" if name else material.name


def lead(material: Material) -> str:
    """The result in a sentence or two."""
    found = material.evaluation
    after, before = found.rate(), found.rate("baseline")
    side = "above 0" if found.lift.low > 0 else "below 0" if found.lift.high < 0 else "around 0"
    refused, plain = found.over_refusal, found.plain
    beside = f" Beside that, {refused.words()}." if refused else ""
    if plain is not None:
        asked = f"The best of {plain.num_tried} plain questions {percent(plain.best_rate)}"
        beside = f" {asked}: a gain of {plain.lift.points()} over it.{beside}"
    if bandit := bandit_told(found):
        beside = f" {bandit[0].upper()}{bandit[1:]}.{beside}"
    if material.training.is_untrained:
        beside = f" {KEPT_UNTRAINED}{beside}"
    return (
        f"Of {found.num_prompts} test prompts with {found.num_rollouts} rollouts each, the trained "
        f"attacker succeeded in {percent(after)} of rollouts, the untrained one in "
        f"{percent(before)}: a gain of {found.lift.points()}, an interval {side}. Intervals are "
        f"bootstrap intervals over prompts at {found.confidence:.0%}.{beside}"
    )


def headlines(material: Material) -> list[Headline]:
    """The figures at the top of the report, as far as they exist."""
    found = material.evaluation
    after, before = found.rate(), found.rate("baseline")
    drawn = (("trained", after), ("untrained", before))
    told = [
        Headline("Attack success", f"{after.value:.1%}", ends(after), drawn),
        Headline("Gain, percentage points", f"{100 * found.lift.value:+.1f}", ends(found.lift)),
    ]
    names = {
        "unique_attacks": ("Different hits", ",.0f"),
        "strategies": ("Strategies: ways to succeed", ".1f"),
    }
    for name, (label, form) in names.items():
        own, other = (figures.get(name) for figures in (found.attacker, found.baseline))
        if own is not None:
            against = "" if other is None else f"untrained {_value(other):{form}}"
            told.append(Headline(label, f"{_value(own):{form}}", against))
    if found.over_refusal is not None:
        rate, count = found.over_refusal.rate, found.over_refusal.num_safe
        detail = f"of {count} requests, {ends(rate)}"
        told.append(Headline("Harmless requests refused", f"{rate.value:.1%}", detail))
    return told


def decision(material: Material) -> list[str]:
    """The gate's decision in sentences."""
    summary = material.lineage.summary
    openings = {
        "promoted": "Promoted to champion: every rule of the gate held.",
        "refused": "Not promoted: a rule of the gate did not hold.",
        "rolled_back": "Rolled back: it was champion and was withdrawn.",
    }
    opening = openings.get(summary.decision)
    if opening is None:
        return ["Not decided yet; astra promote decides."]
    reasons = summary.reasons[:1].upper() + summary.reasons[1:]
    told = [opening, *([f"{reasons.rstrip('.')}."] if reasons else [])]
    return [*told, _P_VALUE] if ", p " in reasons else told


def limits(material: Material) -> list[str]:
    """How far the figures can be trusted, in sentences."""
    found = material.evaluation
    belief = found.belief
    told = belief_lines(found)
    told.append(_strategies_told(found))
    kind = provocation_note(found)
    if kind is not None:
        told.append(f"{kind[0].upper()}{kind[1:]}.")
    if belief is None or belief.calibration is None:
        told.append(
            _people_line(found, *material.confirmed) if material.confirmed else _NEVER_CALIBRATED
        )
    share = found.attacker.get("unjudged_rate")
    if isinstance(share, int | float) and share > 0:
        told.append(f"The judge could not judge {share:.1%} of the replies; they count nowhere.")
    filtered = found.attacker.get("filtered_reply_rate")
    if isinstance(filtered, int | float) and filtered > 0:
        told.append(f"A filter of the target cut {filtered:.1%} of the replies.")
    if found.selection is not None:
        chosen, excess = found.selection.attack_success_rate, found.selection.optimism
        told.append(
            f"On the {found.selection.num_prompts} dev prompts that chose the checkpoint, success "
            f"was {chosen.value:.1%}: {excess.points()} against the figure above. Well above zero "
            "it would say that choosing the checkpoint flatters it."
        )
    for warning in (material.training.kl_warning, material.training.signal_warning):
        if warning:
            told.append(f"Warning of the training: {warning}.")
    ways = {
        "categories (prompts.category_column)": found.categories,
        "what is refused though harmless (evaluation.benign_prompts)": found.over_refusal,
        "other targets (evaluation.transfer)": found.transfer,
        "untrained attackers at equal cost (astra baselines)": material.baselines,
        "hardened targets (astra harden)": material.hardening,
    }
    absent = [way for way, measured in ways.items() if not measured]
    if absent:
        told.append(f"Not measured: {', '.join(absent)}.")
    return [*told, _NOT_HARM]


def _people_line(found: EvaluationRecord, held: Interval, number: int) -> str:
    """What labels of its findings leave of a version's success rate."""
    left = corrected_by_people(found.rate(), held)
    return (
        f"People labelled {number} of its findings and confirmed {percent(held)}: that leaves "
        f"{percent(left)} of its success. What the judge passed, nobody looked at."
    )


def _strategies_told(found: EvaluationRecord) -> str:
    """How strategies were told from each other, and whether both attackers' compare."""
    own, other = ways_told(found.attacker), ways_told(found.baseline)
    asked, hits = (found.attacker.get(name) for name in ("strategy_hits_asked", "num_hits"))
    about = f" about {asked:.0f} of {hits:.0f} hits" if asked and hits else ""
    rest = "" if own == other else f", those of the untrained one {other}: the two do not compare"
    return f"Strategies of the trained attacker are told {own}{about}{rest}."


def story(material: Material) -> dict[str, Any]:
    """The whole report as JSON, with the figures themselves."""
    summary = material.lineage.summary
    return {
        "version": summary.version,
        "model_name": material.model_name,
        "run_id": summary.run_id,
        "title": title(material),
        "lead": lead(material),
        "decision": decision(material),
        "rules": [*material.rules],
        "attacked": dict(attack_facts(material)),
        "cost": dict(cost(material)),
        "limits": limits(material),
        "lineage": material.lineage.record(),
        "examination": material.examination,
        "figures": material.evaluation.final_figures(),
        "turns": material.turns and asdict(material.turns),
        "hardening": material.hardening and nan_as_null(asdict(material.hardening)),
        "tables": [asdict(table) for table in tables(material)],
        "findings": [asdict(finding) for finding in material.findings],
    }


def ends(span: Interval) -> str:
    """The interval alone, in percent or points."""
    return f"interval {100 * span.low:.1f} to {100 * span.high:.1f}"


def _value(figure: Interval | float) -> float:
    return figure.value if isinstance(figure, Interval) else float(figure)
