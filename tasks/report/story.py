"""What a report says of a version, in words and figures; the page only lays it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import EvaluationRecord
from tasks.report.material import Material
from tasks.report.provocation import provocation_note
from tasks.tracking.card import belief_lines

_UNKNOWN = "not told"
_SHORT = 16
_NOTHING = 1e-5
_P_VALUE = (
    "p is the probability of a gain as large as this one if the true gain were exactly at the "
    "bound; the gate promotes only where it is at most the share of the error that this duel may "
    "spend."
)
_NEVER_CALIBRATED = (
    "Nobody has compared this judge with labels by people, so how often it errs is not known. "
    "astra calibrate measures it and corrects the figures."
)
_NOT_HARM = (
    "Success means that the judge's score was at or above the threshold, which is not the same as "
    "harm. Figures hold for this target, these prompts and these sampling settings only."
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of two columns."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the figures that people look at first.

    Attributes:
        label: What it is.
        value: Of the trained attacker, or the difference.
        detail: Interval, and the untrained attacker's.
        spans: Intervals in [0, 1] to draw, by owner; empty where the figure is no rate.
    """

    label: str
    value: str
    detail: str
    spans: tuple[tuple[str, Interval], ...] = ()


def title(material: Material) -> str:
    """The version, and what it attacked."""
    name = (material.evaluation.target or {}).get("name", "")
    return f"{material.name} against {name}" if name else material.name


def lead(material: Material) -> str:
    """The result in a sentence or two."""
    found = material.evaluation
    after, before = found.rate(), found.rate("baseline")
    word = "beyond chance" if found.lift.low > 0 or found.lift.high < 0 else "within chance"
    return (
        f"Of {found.num_prompts} test prompts with {found.num_rollouts} rollouts each, the trained "
        f"attacker succeeded in {percent(after)} of rollouts, the untrained one in "
        f"{percent(before)}: a gain of {points(found.lift)}, {word}. Intervals are bootstrap "
        f"intervals over prompts at {found.confidence:.0%}."
    )


def headlines(material: Material) -> list[Headline]:
    """The figures that people look at first, those that there are."""
    found = material.evaluation
    after, before = found.rate(), found.rate("baseline")
    drawn = (("trained", after), ("untrained", before))
    told = [
        Headline("Attack success", f"{after.value:.1%}", ends(after), drawn),
        Headline("Gain, percentage points", f"{100 * found.lift.value:+.1f}", ends(found.lift)),
    ]
    names = {
        "unique_probes": ("Unique probes", ".2f"),
        "strategies": ("Strategies among hits", ".1f"),
        "kl_nats": ("KL to the reference, nats", ".2f"),
    }
    for name, (label, form) in names.items():
        own, other = (figures.get(name) for figures in (found.attacker, found.baseline))
        if own is not None:
            against = "" if other is None else f"untrained {_value(other):{form}}"
            told.append(Headline(label, f"{_value(own):{form}}", against))
    return told


def attacked(material: Material) -> list[Fact]:
    """What was attacked, by whom, with what."""
    found, params = material.evaluation, material.params
    target = dict(found.target or {})
    name = target.get("name") or _source(params.get("models", {}), "target")
    system = params.get("system", {})
    turns = _of(system, "target", "name")
    return [
        Fact("Target", _joined(name, turns, material.lineage.target_digest[:_SHORT])),
        Fact(
            "Judge", _joined(material.lineage.scorer or _UNKNOWN, f"success at {found.threshold:g}")
        ),
        Fact("Prompts", _joined(_prompts(params), f"{found.num_prompts} test prompts")),
        Fact("Conversation", f"{found.num_rollouts} rollouts per prompt, {found.depth} turns deep"),
        Fact("Attacker", _source(params.get("models", {}), "attacker")),
        Fact("Training", _training(material)),
    ]


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


def lineage(material: Material) -> list[Fact]:
    """What it was made from, with the digests by which each part is found again."""
    found = material.lineage
    summary, code = found.summary, found.code
    dirty = ", with changes that were not committed" * (code.get("git.dirty") == "true")
    parts = [
        Fact(
            part.part.capitalize(),
            _joined(
                part.path,
                part.digest[:_SHORT],
                "" if part.num_rows is None else f"{part.num_rows} rows",
                f"DVC {part.dvc_md5}" if part.dvc_md5 else "",
            ),
        )
        for part in found.data
    ]
    parents = ", ".join(f"version {parent}" for parent in found.parents) or "none"
    libraries = [
        f"{key.removeprefix('version.')} {value}"
        for key, value in code.items()
        if key.startswith("version.")
    ]
    return [
        Fact("Registered", summary.created.replace("T", " ").replace("+00:00", " UTC")),
        Fact("Seed", summary.seed or _UNKNOWN),
        *parts,
        Fact("Examination", material.examination[:_SHORT]),
        Fact("Weights", found.checkpoint_digest[:_SHORT]),
        Fact("Parameters", f"run key {found.run_key[:_SHORT]}"),
        Fact("Code", f"commit {code.get('git.commit', 'unknown')[:_SHORT]}{dirty}"),
        Fact("Parents", parents),
        Fact("Libraries", ", ".join(libraries) or _UNKNOWN),
        Fact("MLflow run", summary.run_id),
        Fact("Get it back", f"astra lineage {summary.version}"),
    ]


def data_gates(material: Material) -> list[Fact]:
    """What the gates of the data said."""
    told = []
    validation = material.data.get("validation", {})
    if "num_rows" in validation:
        told.append(
            Fact(
                "Prompts",
                f"{validation['num_rows']} checked, {validation.get('num_rejected', 0)} rejected",
            )
        )
    rollouts = material.data.get("rollouts", {})
    if "num_turns" in rollouts:
        share = rollouts.get("success_rate")
        success = f", {share:.1%} of them succeeded" if isinstance(share, int | float) else ""
        told.append(Fact("First rollouts", f"{rollouts['num_turns']} turns{success}"))
    return told


def cost(material: Material) -> list[Fact]:
    """What it took: updates, turns, tokens, time and money, as far as they were counted."""
    trained, steps = material.training, material.steps
    told = [
        Fact(
            "Training",
            f"{trained.training_steps} training steps, {trained.optimizer_steps} updates; "
            f"{trained.stopped_because}",
        )
    ]
    if {"training_step", "rollout/num_nodes"} <= set(steps.columns):
        turns = steps.dropna(subset=["rollout/num_nodes"]).drop_duplicates("training_step")
        told.append(
            Fact("Turns rolled out", f"{turns['rollout/num_nodes'].sum():,.0f} in training")
        )
    if "train/num_tokens" in steps.columns:
        told.append(Fact("Tokens learned from", f"{steps['train/num_tokens'].sum():,.0f}"))
    if material.seconds is not None:
        told.append(Fact("Time", f"{duration(material.seconds)} from first update to registration"))
    uses = {"in training": trained.target, "in the evaluation": _target_use(material.evaluation)}
    for where, used in uses.items():
        if used:
            shown = ", ".join(
                f"{name.replace('_', ' ')} {value:,.6g}" for name, value in used.items()
            )
            told.append(Fact(f"Target {where}", shown))
    if not any(uses.values()):
        told.append(Fact("Money", "none: the target runs on this machine"))
    return told


def limits(material: Material) -> list[str]:
    """How far the figures can be believed, in sentences."""
    found = material.evaluation
    belief = found.belief
    told = belief_lines(found)
    kind = provocation_note(found)
    if kind is not None:
        told.append(f"{kind[0].upper()}{kind[1:]}.")
    if belief is None or belief.calibration is None:
        told.append(_NEVER_CALIBRATED)
    share = found.attacker.get("unjudged_rate")
    if isinstance(share, int | float) and share > 0:
        told.append(f"The judge could not judge {share:.1%} of the replies; they count nowhere.")
    if found.selection is not None:
        chosen, excess = found.selection.attack_success_rate, found.selection.optimism
        told.append(
            f"On the {found.selection.num_prompts} dev prompts that chose the checkpoint, success "
            f"was {chosen.value:.1%}: {points(excess)} against the figure above. Well above zero "
            "it would say that choosing the checkpoint flatters it."
        )
    if material.training.kl_warning:
        told.append(f"Warning of the training: {material.training.kl_warning}.")
    return [*told, _NOT_HARM]


def story(material: Material) -> dict[str, Any]:
    """Everything above as JSON, with the figures themselves."""
    summary = material.lineage.summary
    return {
        "version": summary.version,
        "model_name": material.model_name,
        "run_id": summary.run_id,
        "title": title(material),
        "lead": lead(material),
        "decision": decision(material),
        "attacked": _plain(attacked(material)),
        "cost": _plain(cost(material)),
        "limits": limits(material),
        "lineage": material.lineage.record(),
        "examination": material.examination,
        "figures": material.evaluation.final_figures(),
        "turns": None if material.turns is None else material.turns.record(),
        "findings": [finding.record() for finding in material.findings],
    }


def percent(span: Interval) -> str:
    """``75.8 % [71.5 %, 80.0 %]``, without the blanks."""
    return span.spelled(".1%")


def points(span: Interval) -> str:
    """A difference of rates in percentage points."""
    low, high = 100 * span.low, 100 * span.high
    return f"{100 * span.value:+.1f} points [{low:+.1f}, {high:+.1f}]"


def ends(span: Interval) -> str:
    """The interval alone, in percent or points."""
    return f"interval {100 * span.low:.1f} to {100 * span.high:.1f}"


def duration(seconds: float) -> str:
    """``75`` as ``1 min 15 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.0f} s"


def _plain(facts: list[Fact]) -> dict[str, str]:
    return {fact.label: fact.value for fact in facts}


def _value(figure: Interval | float) -> float:
    value = figure.value if isinstance(figure, Interval) else float(figure)
    # Rounding leaves a zero with a sign.
    return 0.0 if abs(value) < _NOTHING else value


def _target_use(found: EvaluationRecord) -> dict[str, float]:
    start = "target_"
    return {
        name.removeprefix(start): value
        for name, value in found.attacker.items()
        if name.startswith(start) and isinstance(value, int | float)
    }


def _training(material: Material) -> str:
    summary, trained = material.lineage.summary, material.training
    return _joined(
        f"{summary.algorithm or _UNKNOWN} from seed {summary.seed or _UNKNOWN}",
        f"{trained.optimizer_steps} updates",
        f"the {trained.kept} checkpoint was kept",
    )


def _prompts(params: Mapping[str, Any]) -> str:
    own = params.get("prompts", {})
    return str(own.get("path") or own.get("repository") or own.get("source") or _UNKNOWN)


def _source(models: Mapping[str, Any], role: str) -> str:
    own = models.get(role) or {}
    named = own.get("path") or own.get("repository") or own.get("version") or ""
    return _joined(str(own.get("source", _UNKNOWN)), str(named)) if own else _UNKNOWN


def _of(section: Mapping[str, Any], *path: str) -> str:
    value: Any = section
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
