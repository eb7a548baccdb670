"""A judge rates exchanges: the goal, the conversation so far, the probe and the reply.

0 is harmless, 1 is the behaviour that the safety team looks for. A ``Scorer`` is a judge that reads
only the reply; ``system.scorer`` chooses either.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from astra_core.conversation import Conversation
from astra_core.errors import ScorerError
from astra_core.extensions.calls import describe, is_number, path_of, plugin_call
from astra_core.scorer import Rater, Scorer, checked_scores, is_score


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange that a judge reads.

    ``conversation``: the conversation before the probe; it knows the goal.
    """

    conversation: Conversation
    probe: str
    reply: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's judgement of an exchange.

    Attributes:
        score: The score in [0, 1]; None if the exchange could not be judged.
        labels: Further scores in [0, 1] by name: categories, or the parts of an ensemble. They go
            into the rollouts and the evidence of an evaluation.
        rationale: The judge's reason; masked wherever it is shown.
        unjudged: Why there is no score; never empty without one. Such exchanges are counted
            separately: they are neither a success nor a zero.
    """

    score: float | None
    labels: Mapping[str, float] = field(default_factory=dict)
    rationale: str = ""
    unjudged: str = ""

    @classmethod
    def none(cls, reason: str) -> Self:
        """A judgement without a score, with the reason."""
        return cls(None, unjudged=reason)


class Judge(Rater):
    """Rates exchanges. Scores are in [0, 1]; higher means worse behaviour of the target."""

    @abstractmethod
    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange, in order; an empty batch gives an empty list.

        An exchange has one judgement, at any time and in any batch, so judgements may be cached.
        Calls may come from different threads, but one at a time. An exchange that cannot be judged
        gets ``Judgement.none(reason)``.

        Raises ScorerError if the judge could not be reached at all.
        """


class TextJudge(Judge):
    """A judge that reads only the reply, by a scorer."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer.options)
        self.scorer = scorer
        self.works_on = scorer.works_on

    @property
    def version(self) -> str:
        """The scorer's own."""
        return self.scorer.version

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """The scorer's judgements of the replies."""
        replies = [exchange.reply for exchange in exchanges]
        return [Judgement(score) for score in checked_scores(self.scorer, replies)]


def as_judge(plugin: Scorer | Judge) -> Judge:
    """The choice of ``system.scorer`` as a judge."""
    return plugin if isinstance(plugin, Judge) else TextJudge(plugin)


def checked_judgements(judge: Judge, exchanges: Sequence[Exchange]) -> list[Judgement]:
    """The judge's judgements: for each exchange a score in [0, 1], or why there is none.

    Raises ScorerError if the judge could not be reached, or gave something else; PluginError if the
    judge failed.
    """
    if isinstance(judge, TextJudge):
        return judge.judge(exchanges)
    with plugin_call("scorer", judge, "judge"):
        given: Any = judge.judge(exchanges)
        found = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if found is None or len(found) != len(exchanges):
        got = describe(given) if found is None else f"{len(found)} for {len(exchanges)} exchanges"
    else:
        got = next(filter(None, map(problem_with, found)), "")
    if got:
        msg = (
            f"scorer '{path_of(judge)}' must give one Judgement per exchange, of a score in [0, 1] "
            f"or the reason for none, got {got}; see system.scorer"
        )
        raise ScorerError(msg)
    return list(map(_plain, found or ()))


def problem_with(found: Any) -> str:
    """What is wrong with a judgement; empty if nothing is."""
    if not isinstance(found, Judgement):
        given = describe(found)
        return f"the number {given}, not Judgement({given})" if is_number(found) else given
    if found.score is None:
        return "" if found.unjudged else "neither"
    if found.unjudged:
        return "both"
    labels: Any = found.labels
    if not isinstance(labels, Mapping):
        return f"labels that are {describe(labels)}"
    if not is_score(found.score):
        return describe(found.score)
    wrong = [name for name, value in labels.items() if not is_score(value)]
    return f"{describe(labels[wrong[0]])} for label {wrong[0]!r}" if wrong else ""


def _plain(found: Judgement) -> Judgement:
    """The judgement with Python's own numbers, whatever the plug-in computes with."""
    score = None if found.score is None else float(found.score)
    labels = {str(name): float(value) for name, value in found.labels.items()}
    return Judgement(score, labels, str(found.rationale), str(found.unjudged))
