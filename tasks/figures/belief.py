"""How far an evaluation's judge can be trusted: rates corrected for its errors, or confirmed.

A correction needs a calibration of the same judge at the same threshold. A confirmation needs a
second judge, which rates the same exchanges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from astra_core.config import Choice, EvaluationConfiguration
from astra_core.errors import ConfigurationError
from astra_core.metrics.statistics import Interval, bootstrap_mean, rate_interval
from astra_core.rollout import Graph
from astra_parts.executors.scoring import Scoring
from astra_parts.metrics.agreement import agreement
from astra_parts.metrics.correction import Corrected, Verdicts, corrected_rate
from astra_parts.metrics.detection import Confusion
from astra_parts.metrics.verdicts import (
    confirmed_rate,
    num_unjudged,
    reply_verdicts,
    turn_verdicts,
    verdict_pairs,
)
from astra_parts.second_judge import second_scores
from tasks.records.calibration import CalibrationRecord, usable_calibration
from tasks.records.evaluation import Belief, CalibrationNote

if TYPE_CHECKING:
    # Imported late: naming a stage must not load torch.
    from astra_core.evaluator import Evaluation

LOCAL = Choice(name="local")


@dataclass(frozen=True, slots=True)
class Believer:
    """What is computed for every final evaluation, beside the judge's own rates.

    Attributes:
        calibration: The judge's calibration; None corrects nothing.
        second: The second judge and its executor; None confirms nothing.
        trees_at_once: Number of trees that it judges as one batch; 0 takes all.
    """

    evaluation: EvaluationConfiguration
    seed: int
    calibration: CalibrationRecord | None = None
    second: Scoring | None = None
    trees_at_once: int = 0

    @classmethod
    def of(
        cls,
        evaluation: EvaluationConfiguration,
        *,
        seed: int,
        executor: Choice = LOCAL,
        trees_at_once: int = 0,
    ) -> Self:
        """A Believer with the calibration and the second judge that the settings name."""
        path, choice = evaluation.calibration, evaluation.second_judge
        known = None if path is None else usable_calibration(path, threshold=evaluation.threshold)
        second = None if choice is None else Scoring.of(choice, executor)
        return cls(evaluation, seed, calibration=known, second=second, trees_at_once=trees_at_once)

    @property
    def _second_threshold(self) -> float:
        own = self.evaluation.second_threshold
        return self.evaluation.threshold if own is None else own

    def key(self) -> list[Any]:
        """What belongs into an examination's key: the second judge does, a correction does not."""
        return [] if self.second is None else [self.second.version, self._second_threshold]

    def check(self, judge: str) -> None:
        """Checks that calibration and second judge fit the judge of the evaluation.

        Raises ConfigurationError if the calibration is of another version, or the judges are the
        same.
        """
        if self.calibration is not None and self.calibration.judge != judge:
            msg = (
                f"evaluation.calibration must be of the judge '{judge}', got one of "
                f"'{self.calibration.judge}'; run 'astra judge-check' on your labelled file"
            )
            raise ConfigurationError(msg)
        if self.second is not None and self.second.version == judge:
            msg = (
                f"evaluation.second_judge must be another judge than '{judge}', got the same; "
                "its agreement with itself says nothing"
            )
            raise ConfigurationError(msg)

    def with_rates(self, found: "Evaluation") -> "Evaluation":
        """The evaluation with corrected and confirmed rates, as far as asked for."""
        if self.calibration is not None:
            corrected = self._corrected_rates(found, self.calibration.confusion)
            found = replace(found, intervals={**found.intervals, **corrected})
        return found if self.second is None else self._with_confirmed(found, self.second)

    def belief(self, trained: "Evaluation", untrained: "Evaluation") -> Belief | None:
        """The belief for the record, beside the rates; None where nothing was asked for."""
        known, second = self.calibration, self.second
        if known is None and second is None:
            return None
        return Belief(
            calibration=_note(known) if known else None,
            corrected_lift=(
                self._corrected_lift(trained, untrained, known.confusion) if known else None
            ),
            second_judge=second.version if second else None,
            confirmed_lift=self._confirmed_lift(trained, untrained) if second else None,
        )

    def _turns(self, graphs: Sequence[Graph]) -> list[list[Verdicts] | None]:
        return [turn_verdicts(graph, threshold=self.evaluation.threshold) for graph in graphs]

    def _corrected_rates(self, found: "Evaluation", errors: Confusion) -> dict[str, Interval]:
        threshold = self.evaluation.threshold
        replies = [reply_verdicts(graph, threshold=threshold) for graph in found.graphs]
        rollouts = {"corrected_attempt_success_rate": replies}
        if self.evaluation.num_responses == 1:
            rollouts["corrected_attack_success_rate"] = self._turns(found.graphs)
        known = {name: [each for each in own if each is not None] for name, own in rollouts.items()}
        return {
            name: self._rate(own, errors).interval(confidence=self.evaluation.confidence)
            for name, own in known.items()
            if own
        }

    def _corrected_lift(
        self, trained: "Evaluation", untrained: "Evaluation", errors: Confusion
    ) -> Interval | None:
        # A turn of several replies counts by their mean score, for which there is no calibration.
        if self.evaluation.num_responses > 1:
            return None
        sides = zip(self._turns(trained.graphs), self._turns(untrained.graphs), strict=True)
        both = [(own, other) for own, other in sides if own is not None and other is not None]
        if not both:
            return None
        after = self._rate([own for own, _ in both], errors)
        before = self._rate([other for _, other in both], errors)
        return after.gain_over(before, confidence=self.evaluation.confidence)

    def _rate(self, rollouts: Sequence[list[Verdicts]], errors: Confusion) -> Corrected:
        resamples = self.evaluation.num_resamples
        return corrected_rate(rollouts, errors, num_resamples=resamples, seed=self.seed)

    def _with_confirmed(self, found: "Evaluation", second: Scoring) -> "Evaluation":
        limits = {
            "threshold": self.evaluation.threshold,
            "second_threshold": self._second_threshold,
        }
        scores = second_scores(second, found.graphs, trees_at_once=self.trees_at_once)
        judged = list(zip(found.graphs, scores, strict=True))
        rates = found.prompt_means([confirmed_rate(graph, own, **limits) for graph, own in judged])
        pairs = [verdict_pairs(graph, own, **limits) for graph, own in judged]
        agreed = agreement(pairs, **self.bootstrap)
        intervals = {
            "confirmed_attack_success_rate": rate_interval(rates, **self.bootstrap),
            "judge_agreement": agreed.raw,
            "judge_kappa": agreed.kappa,
        }
        figures = {
            "second_judge_replies": float(agreed.num_replies),
            "second_judge_unjudged": float(num_unjudged(scores)),
        }
        return replace(
            found,
            intervals={**found.intervals, **intervals},
            figures={**found.figures, **figures},
            confirmed=rates,
        )

    def _confirmed_lift(self, trained: "Evaluation", untrained: "Evaluation") -> Interval:
        pairs = zip(trained.confirmed, untrained.confirmed, strict=True)
        return bootstrap_mean([after - before for after, before in pairs], **self.bootstrap)

    @property
    def bootstrap(self) -> dict[str, Any]:
        """How intervals over prompts are drawn."""
        chosen = self.evaluation.model_dump(include={"num_resamples", "confidence"})
        return chosen | {"seed": self.seed}


def _note(record: CalibrationRecord) -> CalibrationNote:
    return CalibrationNote(
        judge=record.judge,
        labelled=record.labelled.digest,
        num_rows=record.confusion.num_bad + record.confusion.num_harmless,
        sensitivity=record.sensitivity,
        specificity=record.specificity,
    )
