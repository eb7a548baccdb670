"""The examination of an attacker: it is loaded, rolled out and measured, under a key."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from astra_core.config import EvaluationConfiguration
from astra_core.files import record_digest
from astra_core.metrics.statistics import rate_interval
from astra_core.models.folders import attacker_digest
from astra_core.registry import build
from astra_core.rollout import Graph, Prompt
from astra_core.scorer import version_of
from astra_parts.metrics.invented_words import InventedWords
from astra_parts.metrics.strategies import Strategies, strategies_of, strategy_metrics
from tasks.figures.bandit import with_bandit
from tasks.figures.belief import Believer
from tasks.figures.prompt_rows import target_figures, target_note
from tasks.findings.archive import ARCHIVE, EVALUATION, Origin, keep_findings
from tasks.pipeline.setup import SystemParams
from tasks.pipeline.stage import Dep, Metric, Out
from tasks.promotion.drift import drift_between
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.evaluation import Selection
from tasks.records.models import read_model_paths
from tasks.records.reports import read_record
from tasks.records.vocabulary import read_vocabulary

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation
    from astra_core.reward import Reward
    from astra_core.system import System

DRAWS = Path(".astra/draws")
"""Samples that services made for evaluations, kept so that none is paid for twice."""


@dataclass(frozen=True, slots=True)
class EvaluationParams(SystemParams):
    """The sections that decide an examination."""

    evaluation: EvaluationConfiguration


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """Prompts and models, and where reports, table, examples and replies go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    attacker: Dep = Path("models/attacker")
    rollouts: Dep = Path("data/rollouts")
    report: Out = Path("reports/evaluation.json")
    headline: Metric = Path("reports/headline.json")
    table: Out = Path("reports/evaluation_prompts.parquet")
    examples: Out = Path("reports/examples.md")
    evidence: Out = Path("data/evaluation")


@dataclass(frozen=True, slots=True)
class Examiner:
    """Examines every attacker in the same way.

    ``target``: digest and name of a target without weights here; None for one with weights.
    """

    params: EvaluationParams
    base: Path
    vocabulary: frozenset[str]
    reward: "Reward"
    believer: Believer
    target: dict[str, str] | None

    @classmethod
    def of(cls, params: EvaluationParams, files: EvaluationFiles = EvaluationFiles()) -> Self:
        """Examines in the precision that the attacker was trained in."""
        own = params.with_precision(files.attacker / ATTACKER_FILE)
        believer = Believer.of(
            own.evaluation,
            seed=own.training_seed,
            executor=own.executor,
            trees_at_once=own.machine.prompts_per_shard,
        )
        words, reward = read_vocabulary(files.valid), build("reward", own.reward)
        return cls(own, files.base, words, reward, believer, target_note(own.system))

    def examine(
        self,
        weights: Path | None,
        prompts: Sequence[Prompt],
        *,
        is_final: bool = True,
        first: Sequence[Graph] = (),
        loaded: tuple["System", str] | None = None,
    ) -> tuple["Evaluation", str]:
        """An attacker's evaluation, and the key that equal examinations share.

        Args:
            weights: The attacker's folder; None is the untrained attacker.
            first: The untrained attacker's rollouts, over which a bandit searches; none for no
                bandit.
            loaded: What ``load_attacker`` gave, if it is known.
        """
        from astra_core.evaluator import Evaluator

        evaluation, seed = self.params.evaluation, self.params.training_seed
        system, who = loaded or self.load_attacker(weights)
        if is_final:
            self.believer.check(version_of(system.scorer))
        evaluator = Evaluator(evaluation, prompts=prompts, reward=self.reward, seed=seed)
        key = self.key(system, prompts, is_final=is_final)
        with system.target.account_for(f"evaluation {record_digest([key, who])[:16]}"):
            found = evaluator.evaluate(system)
            used = target_figures(system.target, found)
        run = record_digest([key, who])
        digest = attacker_digest(weights) if weights else who
        origin = Origin.of(system, EVALUATION, run, attacker=digest)
        path = ARCHIVE / f"{EVALUATION}-{origin.run}.parquet"
        keep_findings(found.graphs, origin, path, threshold=evaluation.threshold)
        # What a training's own prompts are examined for needs no strategies.
        budget = evaluation.strategy_calls if is_final else 0
        with system.target.account_for(f"strategies {record_digest([key, who])[:16]}"):
            strategies = self._strategies(system, found, budget=budget)
        figures = used | self._strategy_figures(found.graphs, strategies)
        figures |= self.invented.metrics(found.graphs)
        if len(first):
            with system.target.account_for(f"bandit {record_digest([key, who])[:16]}"):
                words = self.vocabulary
                found = with_bandit(
                    found, system, evaluator, first=first, vocabulary=words, seed=seed
                )
        figures = {**found.figures, **figures}
        needs = self.reward.needs_with(self.reward.options)
        if "reference" in needs and system.reference is system.attacker:
            figures["reward_mean"] = math.nan
        found = replace(found, figures=figures, strategies=strategies.labels)
        return (self.believer.with_rates(found) if is_final else found), key

    def load_attacker(self, weights: Path | None) -> tuple["System", str]:
        """The System of an attacker, and the digest of its weights.

        ``weights``: the attacker's folder; None is the untrained attacker.
        """
        from astra_core.agents import as_exported
        from astra_core.models.pretrained import weights_digest
        from astra_parts.services.pointer import read_pointer, speak_from
        from astra_parts.services.speaker import check_here, check_plain

        if weights is None:
            who = weights_digest(read_model_paths(self.base)["attacker"])
            return self.params.load(self.base), who
        # If the weights are at a service, the folder has none: the base weights are loaded.
        pointer, who = read_pointer(weights), weights_digest(weights)
        # A trained attacker plays the roles that it was trained in, whatever params.yaml says now.
        own = replace(self.params, system=as_exported(self.params.system, weights))
        loaded = own.load(self.base, attacker=None if pointer else weights)
        if pointer is not None:
            check_plain(own.system.probe)
            check_here(loaded, subject="an attacker whose weights stay at a service")
            kept, most = DRAWS / f"{who[:16]}.sqlite", own.evaluation.max_service_tokens
            speak_from(pointer, loaded.attacker, kept=kept, max_tokens=most)
        return loaded, who

    def key(self, loaded: "System", prompts: Sequence[Prompt], *, is_final: bool = True) -> str:
        """The key that equal examinations share, whichever attacker they examine."""
        asked = self.params.evaluation.model_dump(
            mode="json", include={"num_rollouts", "num_responses", "depth", "threshold"}
        )
        # Judges read metadata: another secret under the same text is another examination.
        told = [
            [own.prompt_id, dict(own.metadata)] if own.metadata else own.prompt_id
            for own in prompts
        ]
        judging = self.believer.key() if is_final else []
        return record_digest([loaded.digest(), asked, told, self.params.training_seed, *judging])

    @property
    def invented(self) -> InventedWords:
        """What counts as an invented word of a probe."""
        return InventedWords(self.vocabulary, self.params.system.probe.max_new_tokens)

    def match_strategies(self, own: "Evaluation", other: "Evaluation") -> "Evaluation":
        """The other evaluation, its strategies by shared words where the first one's are."""
        if own.figures["strategy_hits_asked"] or not other.figures["strategy_hits_asked"]:
            return other
        evaluation, seed = self.params.evaluation, self.params.training_seed
        shared = strategies_of(other.graphs, threshold=evaluation.threshold, seed=seed)
        shared = replace(shared, calls=int(other.figures["strategy_calls"]))
        figures = {**other.figures, **self._strategy_figures(other.graphs, shared)}
        return replace(other, figures=figures, strategies=shared.labels)

    def _strategy_figures(self, graphs: Sequence[Graph], found: Strategies) -> dict[str, float]:
        evaluation = self.params.evaluation
        return strategy_metrics(
            graphs,
            found,
            threshold=evaluation.threshold,
            vocabulary=self.vocabulary,
            rarefied_to=evaluation.rarefied_to,
            seed=self.params.training_seed,
        )

    def _strategies(self, system: "System", found: "Evaluation", *, budget: int) -> Strategies:
        from astra_parts.samplers.rewording import asking

        evaluation, seed = self.params.evaluation, self.params.training_seed
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
    """
    rate = rate_interval(chosen_on, num_resamples=num_resamples, confidence=confidence, seed=seed)
    # A prompt without a judged reply says nothing.
    judged = [[rate for rate in own if not math.isnan(rate)] for own in (chosen_on, examined_on)]
    excess = drift_between(*judged, confidence=confidence)
    return Selection(num_prompts=len(chosen_on), attack_success_rate=rate, optimism=excess)
