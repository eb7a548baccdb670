"""Promotion: the candidate becomes champion if the gate's rules find it better; rollback undoes it.

Only an alias is moved, so a promotion costs nothing and ``models:/attacker@champion`` is always
complete. The order of the writes makes a kill between them harmless: reasons, then ``previous``,
then ``champion``, then the word "promoted"; running the same command again completes the rest.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from astra_core.rollout import Prompt
from tasks.params.schema import Params
from tasks.promotion.bands import GateRule
from tasks.promotion.duels import Draw, Evaluate, draw_with, judge
from tasks.promotion.gate import Comparison, Verdict
from tasks.serving.smoke import why_unusable
from tasks.tracking.errors import TrackingError
from tasks.tracking.registry.registered import has_version, version_numbered
from tasks.tracking.registry.versions import CANDIDATE, CHAMPION, PREVIOUS, aliases_of, set_alias
from tasks.tracking.store import alone_with, connect, project_root, store_errors

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

# Two processes that decide at once on this machine would write the same tags; the second waits.
DECISIONS = Path(".astra/decisions")
DECISION_TAG = "promotion.decision"
REASONS_TAG = "promotion.reasons"
RULES_TAG = "promotion.rules"
PREVIOUS_TAG = "promotion.previous"
PROMOTED, REFUSED, ROLLED_BACK = "promoted", "refused", "rolled_back"


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """What was decided about the candidate.

    ``changed``: whether it was decided otherwise before, or not at all; ``previous_version``: what
    ``rollback`` would return to, if there is one.
    """

    promoted: bool
    changed: bool
    reasons: tuple[str, ...]
    model_name: str
    candidate_version: str
    champion_version: str | None
    previous_version: str | None
    comparison: Comparison | None

    def summary(self) -> str:
        """One line."""
        word = "is champion" if self.promoted else "is not promoted"
        return (
            f"{self.model_name} version {self.candidate_version} {word}: {'; '.join(self.reasons)}"
        )


@dataclass(frozen=True, slots=True)
class Rollback:
    """The result of a rollback.

    ``withdrawn_version``: the champion before it; None if an interrupted change was completed.
    """

    model_name: str
    champion_version: str
    withdrawn_version: str | None
    previous_version: str | None

    def summary(self) -> str:
        """One line."""
        before = f" instead of {self.withdrawn_version}" if self.withdrawn_version else ""
        return f"{self.model_name} version {self.champion_version} is champion again{before}"


def promote_attacker(
    params: Params,
    *,
    evaluate: Evaluate | None = None,
    draw: Draw | None = None,
    client: "MlflowClient | None" = None,
) -> PromotionDecision:
    """The gate's decision about the candidate; a refusal is a result, not an error.

    A candidate within the bands must beat the champion on fresh prompts; while there is no
    champion, it must beat the untrained attacker on the test prompts.

    Args:
        params: ``promotion`` holds the rules and ``registration`` the model's name.
        evaluate: Gives the record and the per-prompt table of the attacker in a folder;
            ``tasks.stages.evaluation.evaluate_checkpoint`` by default.
        draw: Gives the prompts of a duel; fresh ones by default.

    Raises TrackingError if there is no candidate, or the registry did not answer; DataError if the
    candidate's or the champion's examination cannot be used.
    """
    with store_errors():
        client = client or connect()
        with alone_with(project_root() / DECISIONS):
            evaluate = evaluate or _evaluate_with(params)
            draw = draw or draw_with(client, params)
            return _promote(client, params, evaluate=evaluate, draw=draw)


def make_candidate(model_name: str, version: str, *, client: "MlflowClient | None" = None) -> None:
    """Moves the alias ``candidate`` to the version, which the next decision is then about.

    Raises ConfigurationError if the registry has no such version; the alias stays where it is,
    TrackingError if the registry did not answer.
    """
    with store_errors():
        client = client or connect()
        with alone_with(project_root() / DECISIONS):
            if not version.isdigit() or not has_version(client, model_name, version):
                msg = (
                    f"--version must be the number of a version of '{model_name}', got "
                    f"{excerpt(version)}; 'astra history' lists them"
                )
                raise ConfigurationError(msg)
            set_alias(client, model_name, CANDIDATE, version=version)


def rollback(model_name: str, *, client: "MlflowClient | None" = None) -> Rollback:
    """The result of making the champion before the last promotion champion again.

    The version that is withdrawn is refused by later promotions until its tag
    ``promotion.decision`` is removed, so that a schedule does not bring it back.

    Raises TrackingError if there is no such model, champion or previous version.
    """
    with store_errors():
        client = client or connect()
        with alone_with(project_root() / DECISIONS):
            return _roll_back(client, model_name)


def _promote(
    client: "MlflowClient", params: Params, *, evaluate: Evaluate, draw: Draw
) -> PromotionDecision:
    name = params.registration.model_name
    aliases = aliases_of(client, name)
    candidate = _version(client, name, CANDIDATE, aliases=aliases)
    champion_number = aliases.get(CHAMPION)
    if candidate.tags.get(DECISION_TAG) == ROLLED_BACK:
        reason = (
            f"version {candidate.version} was rolled back; register another candidate, "
            f"or remove its tag {DECISION_TAG}"
        )
        return _decision(client, candidate, (reason,), comparison=None)
    if champion_number == str(candidate.version):
        return _confirm(client, candidate)
    champion = client.get_model_version(name, champion_number) if champion_number else None
    comparison, verdict = judge(
        client, candidate, champion, params=params, evaluate=evaluate, draw=draw
    )
    if verdict.passed:
        verdict = _smoke_tested(client, candidate, verdict)
    _tag(client, candidate, {RULES_TAG: json.dumps([asdict(rule) for rule in verdict.rules])})
    if not verdict.passed:
        told = {DECISION_TAG: REFUSED, REASONS_TAG: "; ".join(verdict.reasons)}
        is_new = not told.items() <= candidate.tags.items()
        _tag(client, candidate, told)
        return _decision(client, candidate, verdict.reasons, comparison=comparison, changed=is_new)
    _move(client, candidate, champion=champion_number, verdict=verdict)
    return _decision(client, candidate, verdict.reasons, comparison=comparison, changed=True)


def _move(
    client: "MlflowClient", candidate: "ModelVersion", *, champion: str | None, verdict: Verdict
) -> None:
    name, version = candidate.name, str(candidate.version)
    _tag(client, candidate, {REASONS_TAG: "; ".join(verdict.reasons), PREVIOUS_TAG: champion or ""})
    if champion:
        # Before the champion moves: afterwards it would be unknown what it was.
        set_alias(client, name, PREVIOUS, version=champion)
    set_alias(client, name, CHAMPION, version=version)
    _tag(client, candidate, {DECISION_TAG: PROMOTED})


def _confirm(client: "MlflowClient", champion: "ModelVersion") -> PromotionDecision:
    """The decision about a candidate that is champion; completes the tag of a killed promotion."""
    if champion.tags.get(DECISION_TAG) != PROMOTED:
        _tag(client, champion, {DECISION_TAG: PROMOTED})
    reasons = (champion.tags.get(REASONS_TAG) or "it is champion already",)
    return _decision(client, champion, reasons, comparison=None)


def _smoke_tested(client: "MlflowClient", candidate: "ModelVersion", verdict: Verdict) -> Verdict:
    """The verdict, or a refusal if the candidate does not load and write as it would be served."""
    problem = why_unusable(client, candidate)
    tried = (*verdict.rules, GateRule("smoke test", "failed", "", "loads and writes", held=False))
    return Verdict(passed=False, reasons=(problem,), rules=tried) if problem else verdict


def _roll_back(client: "MlflowClient", name: str) -> Rollback:
    aliases = aliases_of(client, name)
    champion = _version(client, name, CHAMPION, aliases=aliases)
    target = _version(client, name, PREVIOUS, aliases=aliases)
    is_unfinished = champion.version == target.version
    if not is_unfinished:
        # Written first: a kill after the move would leave a version that may be promoted again.
        _tag(client, champion, {DECISION_TAG: ROLLED_BACK})
    # A kill after this leaves champion and previous on one version: the same command resumes here.
    set_alias(client, name, CHAMPION, version=str(target.version))
    before = _standing(client, name, target.tags.get(PREVIOUS_TAG))
    if before:
        set_alias(client, name, PREVIOUS, version=before)
    else:
        client.delete_registered_model_alias(name, PREVIOUS)
    return Rollback(
        model_name=name,
        champion_version=str(target.version),
        withdrawn_version=None if is_unfinished else str(champion.version),
        previous_version=before,
    )


def _standing(client: "MlflowClient", name: str, version: str | None) -> str | None:
    """The version; None if it was deleted or withdrawn since it was champion."""
    found = version_numbered(client, name, version) if version else None
    return version if found and found.tags.get(DECISION_TAG) != ROLLED_BACK else None


def _version(
    client: "MlflowClient", name: str, alias: str, *, aliases: Mapping[str, str]
) -> "ModelVersion":
    ways_out = {
        CANDIDATE: "run the stage registration first",
        CHAMPION: "promote a candidate first",
        PREVIOUS: "there is nothing to go back to",
    }
    if alias not in aliases:
        msg = (
            f"model '{name}' must have a version with alias '{alias}', got aliases "
            f"{sorted(aliases)}; {ways_out[alias]}"
        )
        raise TrackingError(msg)
    return client.get_model_version(name, aliases[alias])


def _tag(client: "MlflowClient", version: "ModelVersion", tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        client.set_model_version_tag(version.name, version.version, key, value)


def _decision(
    client: "MlflowClient",
    candidate: "ModelVersion",
    reasons: tuple[str, ...],
    *,
    comparison: Comparison | None,
    changed: bool = False,
) -> PromotionDecision:
    aliases = aliases_of(client, candidate.name)
    return PromotionDecision(
        promoted=aliases.get(CHAMPION) == str(candidate.version),
        changed=changed,
        reasons=reasons,
        model_name=candidate.name,
        candidate_version=str(candidate.version),
        champion_version=aliases.get(CHAMPION),
        previous_version=aliases.get(PREVIOUS),
        comparison=comparison,
    )


def _evaluate_with(params: Params) -> Evaluate:
    def evaluate(folder: Path, prompts: list[Prompt]) -> "tuple[Mapping[str, Any], pd.DataFrame]":
        from tasks.stages.evaluation import evaluate_checkpoint

        return evaluate_checkpoint(folder, params, prompts=prompts)

    return evaluate
