"""One attacker's examination: it is loaded, rolled out on prompts and measured, under a key."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    MachineConfiguration,
    SystemConfiguration,
)
from astra_core.files import record_digest
from astra_core.metrics.statistics import rate_interval
from astra_core.rollout import Graph, Prompt
from astra_core.scorer import version_of
from astra_parts.metrics.invented_words import InventedWords
from astra_parts.metrics.strategies import Strategies, strategies_of, strategy_metrics
from tasks.figures.bandit import with_bandit
from tasks.figures.belief import Believer
from tasks.figures.target_use import target_figures
from tasks.pipeline.stage import Untracked
from tasks.promotion.drift import drift_between
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.evaluation import Selection
from tasks.records.models import read_model_paths
from tasks.records.reports import read_record

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation
    from astra_core.system import System

DRAWS = Path(".astra/draws")
"""Samples that services made for evaluations, kept so that none is paid for twice."""


@dataclass(frozen=True, slots=True)
class EvaluationParams:
    """The sections that decide an examination."""

    training_seed: int
    machine: MachineConfiguration
    system: SystemConfiguration
    reward: Choice
    evaluation: EvaluationConfiguration
    # Where the work is done does not change its result.
    executor: Untracked[Choice]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the models stage wrote its models, and the words that the run knows."""

    base: Path
    vocabulary: frozenset[str]


def examined(
    weights: Path | None,
    prompts: list[Prompt],
    params: EvaluationParams,
    *,
    places: Places,
    asked: Believer | None = None,
    first: Sequence[Graph] = (),
) -> tuple["Evaluation", str]:
    """An attacker's evaluation, and the key that equal examinations share.

    Args:
        weights: The attacker's folder; None is the untrained attacker.
        prompts: The prompts to examine it on.
        params: The settings of the examination.
        places: What earlier stages wrote.
        asked: Corrections and confirmations to make; None makes none, as in a training.
        first: The untrained attacker's rollouts, over which a bandit searches; none for no bandit.
    """
    from astra_core.agents import as_exported
    from astra_core.assembly import ModelFolders, build_evaluator, load_system
    from astra_core.models.pretrained import weights_digest
    from astra_parts.services.pointer import read_pointer, speak_from
    from astra_parts.services.speaker import check_here, check_plain

    evaluation, seed = params.evaluation, params.training_seed
    # If the weights are at a service, the folder has none: the base weights are loaded.
    pointer = read_pointer(weights) if weights else None
    own = None if pointer else weights
    folders = ModelFolders.of(read_model_paths(places.base), attacker=own)
    # A trained attacker plays the roles that it was trained in, whatever params.yaml says now.
    system = as_exported(params.system, weights) if weights else params.system
    loaded = load_system(
        system, folders, machine=params.machine, executor=params.executor, seed=seed
    )
    who = weights_digest(weights or folders.attacker)
    if pointer is not None:
        check_plain(system.probe)
        check_here(loaded, subject="an attacker whose weights stay at a service")
        kept, most = DRAWS / f"{who[:16]}.sqlite", evaluation.max_service_tokens
        speak_from(pointer, loaded.attacker, kept=kept, max_tokens=most)
    if asked is not None:
        asked.check(version_of(loaded.scorer))
    evaluator = build_evaluator(evaluation, params.reward, prompts=prompts, seed=seed)
    judging = asked.key() if asked is not None else []
    key = record_digest([loaded.digest(), *_asked_of_all(evaluation, prompts), seed, *judging])
    with loaded.target.accounted(f"evaluation {record_digest([key, who])[:16]}"):
        found = evaluator.evaluate(loaded)
        used = target_figures(loaded.target, found)
    # What a training's own prompts are examined for needs no strategies.
    budget = evaluation.strategy_calls if asked is not None else 0
    with loaded.target.accounted(f"strategies {record_digest([key, who])[:16]}"):
        strategies = _strategies(loaded, found, params, budget=budget)
    figures = used | strategy_metrics(
        found.graphs,
        strategies,
        threshold=evaluation.threshold,
        vocabulary=places.vocabulary,
        rarefied_to=evaluation.rarefied_to,
        seed=seed,
    )
    figures |= invented_words(params, places).metrics(found.graphs)
    if len(first):
        with loaded.target.accounted(f"bandit {record_digest([key, who])[:16]}"):
            words = places.vocabulary
            found = with_bandit(found, loaded, evaluator, first=first, vocabulary=words, seed=seed)
    found = replace(found, figures={**found.figures, **figures}, strategies=strategies.labels)
    return (asked.applied(found) if asked is not None else found), key


def _asked_of_all(
    evaluation: EvaluationConfiguration, prompts: Sequence[Prompt]
) -> tuple[dict[str, Any], list[Any]]:
    """What equal examinations ask, and of which prompts."""
    examination = evaluation.model_dump(
        mode="json", include={"num_rollouts", "num_responses", "depth", "threshold"}
    )
    # Judges read metadata: another secret under the same text is another examination.
    told = [
        [own.prompt_id, dict(own.metadata)] if own.metadata else own.prompt_id for own in prompts
    ]
    return examination, told


def invented_words(params: EvaluationParams, places: Places) -> InventedWords:
    """What counts as an invented word of a probe."""
    return InventedWords(places.vocabulary, params.system.probe.max_new_tokens)


def _strategies(
    system: "System",
    found: "Evaluation",
    params: EvaluationParams,
    *,
    budget: int,
) -> Strategies:
    from astra_parts.samplers.rewording import asking

    evaluation, seed = params.evaluation, params.training_seed
    threshold, drawn = evaluation.threshold, evaluation.num_responses
    ask = asking(system, found.graphs, threshold=threshold, num_responses=drawn, seed=seed)
    return strategies_of(
        found.graphs,
        threshold=threshold,
        seed=seed,
        ask=ask if budget else None,
        budget=budget // drawn,
    )


def rates(evaluation: "Evaluation") -> list[float]:
    """For each prompt the share of its rollouts that succeeded."""
    return [outcome.success_rate for outcome in evaluation.outcomes]


def bootstrap_options(params: EvaluationParams) -> dict[str, Any]:
    """How intervals over prompts are drawn."""
    chosen = params.evaluation.model_dump(include={"num_resamples", "confidence"})
    return chosen | {"seed": params.training_seed}


def was_selected(attacker: Path) -> bool:
    """Whether evaluations during training chose the attacker in this folder."""
    path = attacker / ATTACKER_FILE
    if not path.is_file():
        return False
    note = read_record(path, AttackerNote)
    return note.kept == "best" and note.value is not None


def optimism(
    chosen_on: Sequence[float],
    examined_on: Sequence[float],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Selection:
    """The success rate on the selection prompts, and its excess over the examination's.

    The two sets of prompts are disjoint, so the interval is for two independent means.

    Args:
        chosen_on: Success rate of each prompt by which the checkpoint was chosen.
        examined_on: The same for the prompts of the examination.
        num_resamples: Resamples of the bootstrap.
        confidence: Probability inside an interval.
        seed: Same seed, same interval.
    """
    rate = rate_interval(chosen_on, num_resamples=num_resamples, confidence=confidence, seed=seed)
    # A prompt without a judged reply says nothing.
    judged = [[rate for rate in own if not math.isnan(rate)] for own in (chosen_on, examined_on)]
    excess = drift_between(*judged, confidence=confidence)
    return Selection(num_prompts=len(chosen_on), attack_success_rate=rate, optimism=excess)
