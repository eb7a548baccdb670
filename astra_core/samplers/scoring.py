"""Judges one tree level: in one batch, or the probes while the target answers.

The judge reads exchanges: the conversation so far, the probe and a reply. A probe's own words are
scored by ``system.probe_scorer``, a scorer of texts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from astra_core.conversation import Conversation
from astra_core.judge import Exchange, Judgement, as_judge, checked_judgements
from astra_core.rollout import Failure
from astra_core.scorer import checked_scores
from astra_core.system import System
from astra_core.target import Outcome, Reply


@dataclass(frozen=True, slots=True)
class ProbeInConversation:
    """A probe, and the conversation before it."""

    conversation: Conversation
    probe: str


@dataclass(frozen=True, slots=True)
class ScoredAnswers:
    """The target's answers to the probes of a level, with their judgements.

    Attributes:
        judgements: For each probe one per reply; none where the target failed.
        waited_s: Seconds spent waiting only for the judge.
    """

    answers: tuple[Outcome, ...]
    judgements: tuple[tuple[Judgement, ...], ...]
    probe_scores: tuple[float, ...]
    waited_s: float


def scored_answers(
    system: System, said: Sequence[ProbeInConversation], answer: Callable[[], Sequence[Outcome]]
) -> ScoredAnswers:
    """The result of ``answer``, judged; the probes are scored meanwhile if that can overlap.

    The judge never has two calls at once, and no call is running when this returns or raises.
    Scores of probes are dropped if the target fails.

    Raises ScorerError if the judge could not be reached, or gave something that is not a judgement.
    """
    probes = [own.probe for own in said]
    if not (probes and overlaps(system)):
        answers = tuple(answer())
        start = time.perf_counter()
        found, own = _judged_with_probes(system, _exchanges(said, answers), probes)
    else:
        with ThreadPoolExecutor(max_workers=1) as worker:
            ahead = worker.submit(checked_scores, system.probe_scorer, probes)
            answers = tuple(answer())
            start = time.perf_counter()
            own = ahead.result()
        found = checked_judgements(as_judge(system.scorer), _exchanges(said, answers))
    waited_s = time.perf_counter() - start
    stream = iter(found)
    by_answer = (tuple(next(stream) for _ in _replies(each)) for each in answers)
    return ScoredAnswers(answers, tuple(by_answer), tuple(own), waited_s)


def verdicts(judgements: Sequence[Judgement]) -> Mapping[str, Any]:
    """The judgements of the replies to one probe, as arguments of ``Replies``."""
    scores = tuple(own.score for own in judgements)
    further = {
        "unjudged": tuple(own.unjudged for own in judgements),
        "labels": tuple(dict(own.labels) for own in judgements),
        "rationales": tuple(own.rationale for own in judgements),
    }
    return {"scores": scores, **{name: own for name, own in further.items() if any(own)}}


def overlaps(system: System) -> bool:
    """True when target and scorer of probes share no processor, so that both can work at once."""
    place = system.probe_scorer.works_on
    return place == "elsewhere" or (place == "cpu" and system.target.works_on != "cpu")


def _judged_with_probes(
    system: System, exchanges: Sequence[Exchange], probes: Sequence[str]
) -> tuple[list[Judgement], list[float]]:
    """The exchanges and the probes, in one batch where one scorer reads both."""
    judge, scorer = system.scorer, system.probe_scorer
    if judge is not scorer:
        found = checked_judgements(as_judge(judge), exchanges)
        return found, checked_scores(scorer, probes)
    scores = checked_scores(scorer, [*(own.reply for own in exchanges), *probes])
    return list(map(Judgement, scores[: len(exchanges)])), scores[len(exchanges) :]


def _exchanges(said: Sequence[ProbeInConversation], answers: Sequence[Outcome]) -> list[Exchange]:
    return [
        Exchange(own.conversation, own.probe, reply.text)
        for own, answer in zip(said, answers, strict=True)
        for reply in _replies(answer)
    ]


def _replies(answer: Outcome) -> tuple[Reply, ...]:
    return () if isinstance(answer, Failure) else answer.replies
