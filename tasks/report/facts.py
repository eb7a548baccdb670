"""The tables of a report in two columns: what was attacked, its origin, and its cost."""

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.machine.time_words import duration
from tasks.records.evaluation import BANDIT, EvaluationRecord
from tasks.report.material import Material
from tasks.tracking.pages import run_page

_UNKNOWN = "unknown"
_SHORT = 16

Fact = tuple[str, str]
"""The label and the value of a row."""


def attack_facts(material: Material) -> list[Fact]:
    """What was attacked, by which attacker, and with which settings."""
    found, params = material.evaluation, material.params
    target = dict(found.target or {})
    name = target.get("name") or _source(params.get("models", {}), "target")
    system = params.get("system", {})
    kind = _of(system, "target", "name")
    judge = material.lineage.scorer or _UNKNOWN
    depth = "1 turn" if found.depth == 1 else f"{found.depth} turns"
    return [
        ("Target", _join(name, kind, material.lineage.target_digest[:_SHORT])),
        ("Judge", _join(judge, f"success at {found.threshold:g}")),
        ("Prompts", _join(_prompts(params), f"{found.num_prompts} test prompts")),
        ("Conversation", f"{found.num_rollouts} rollouts per prompt, {depth} deep"),
        ("Attacker", _source(params.get("models", {}), "attacker")),
        ("Training", _training(material)),
    ]


def links(material: Material) -> list[tuple[str, str]]:
    """Text and address of each page about this run; ``astra ui`` serves those of this machine."""
    own = (material.experiment_id, material.lineage.summary.run_id)
    kept = {
        "MLflow run": "",
        "Data Docs of the prompts": "data/prompts.html",
        "Data Docs of the first rollouts": "data/rollouts.html",
    }
    found = [
        (text, run_page(*own, artifact=file, server=material.server)) for text, file in kept.items()
    ]
    return [*found, ("Prefect run", material.flow_run)] if material.flow_run else found


def lineage(material: Material) -> list[Fact]:
    """What the version was made from, with the digests by which each part is found again."""
    summary = material.lineage.summary
    return [
        ("Registered", summary.created.replace("T", " ").replace("+00:00", " UTC")),
        ("Seed", summary.seed or _UNKNOWN),
        *((name.capitalize(), value) for name, value in material.lineage.facts()),
        ("Examination", material.examination[:_SHORT]),
        ("MLflow run", summary.run_id),
        ("Get it back", f"astra restore {summary.version}"),
    ]


def data_gates(material: Material) -> Iterator[Fact]:
    """The results of the data gates."""
    validation = material.data.get("validation", {})
    if "num_rows" in validation:
        rejected = validation.get("num_rejected", 0)
        yield "Prompts checked", f"{validation['num_rows']}, of which {rejected} rejected"
    rollouts = material.data.get("rollouts", {})
    if "num_turns" in rollouts:
        share = rollouts.get("success_rate")
        success = f", {share:.1%} of them succeeded" if isinstance(share, int | float) else ""
        yield "First rollouts", f"{rollouts['num_turns']} turns{success}"


def cost(material: Material) -> Iterator[Fact]:
    """The cost: updates, turns, tokens, time and money, as far as they were counted."""
    trained, steps = material.training, material.steps
    done = f"{trained.training_steps} training steps, {trained.optimizer_steps} updates"
    yield "Training", f"{done}; {trained.stopped_because}"
    if (turns := material.total("rollout/num_nodes")) is not None:
        yield "Turns rolled out", f"{turns:,.0f} in training"
    learned = material.total("rollout/num_replies")
    searched = material.evaluation.baseline.get(f"{BANDIT}_calls")
    if learned is not None and isinstance(searched, int | float):
        told = f"{learned:,.0f} for training, {searched:,.0f} for the bandit"
        yield "Replies, the first rollouts included", told
    if "train/num_tokens" in steps.columns:
        yield "Tokens learned from", f"{steps['train/num_tokens'].sum():,.0f}"
    if material.seconds is not None:
        yield "Time", f"{duration(material.seconds)} of training, from its first update"
    uses = {"in training": trained.target, "in the evaluation": _target_use(material.evaluation)}
    for where, used in uses.items():
        if used:
            shown = (f"{name.replace('_', ' ')} {value:,.6g}" for name, value in used.items())
            yield f"Target {where}", ", ".join(shown)
    if not any(uses.values()):
        yield "Money", "none: the target runs on this machine"


def _target_use(found: EvaluationRecord) -> dict[str, float]:
    start = "target_"
    return {
        name.removeprefix(start): value
        for name, value in found.attacker.items()
        if name.startswith(start) and isinstance(value, int | float)
    }


def _training(material: Material) -> str:
    summary, trained = material.lineage.summary, material.training
    return _join(
        f"{summary.algorithm or _UNKNOWN} from seed {summary.seed or _UNKNOWN}",
        f"{trained.optimizer_steps} updates",
        f"the {'first' if trained.is_untrained else trained.kept} checkpoint was kept",
    )


def _prompts(params: Mapping[str, Any]) -> str:
    own = params.get("prompts", {})
    return str(own.get("path") or own.get("repository") or own.get("source") or _UNKNOWN)


def _source(models: Mapping[str, Any], role: str) -> str:
    own = models.get(role) or {}
    named = own.get("path") or own.get("repository") or own.get("version") or ""
    return _join(str(own.get("source", _UNKNOWN)), str(named)) if own else _UNKNOWN


def _of(section: Mapping[str, Any], *path: str) -> str:
    value: Any = section
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
