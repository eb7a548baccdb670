"""The scores of one tree level: in one batch, or those of probes while the target answers."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from astra_core.models.language_model import Continuations
from astra_core.scorer import checked_scores
from astra_core.system import System


@dataclass(frozen=True, slots=True)
class ScoredAnswers:
    """What the target answered to the probes of a level, and what the scorer says of it.

    Attributes:
        answers: One per probe.
        reply_scores: For each probe one per reply.
        probe_scores: One per probe.
        waited_s: Seconds in which nothing but the scorer was waited for.
    """

    answers: tuple[Continuations, ...]
    reply_scores: tuple[tuple[float, ...], ...]
    probe_scores: tuple[float, ...]
    waited_s: float


def scored_answers(
    system: System, probes: Sequence[str], answer: Callable[[], Sequence[Continuations]]
) -> ScoredAnswers:
    """What ``answer`` returns, scored; the probes are scored meanwhile if that can overlap.

    The scorer never has two calls at once, and none when this returns or raises. Scores of probes
    are dropped if the target fails.

    Args:
        system: Whose scorer is used.
        probes: Of the level.
        answer: Makes the target answer, one answer per probe.

    Raises:
        ScorerError: The scorer could not be reached or gave something that is no score.
    """
    if not (probes and overlaps(system)):
        answers = tuple(answer())
        start = time.perf_counter()
        replies = _texts(answers)
        scores = checked_scores(system.scorer, [*replies, *probes])
        said, own = scores[: len(replies)], scores[len(replies) :]
    else:
        with ThreadPoolExecutor(max_workers=1) as worker:
            ahead = worker.submit(checked_scores, system.scorer, probes)
            answers = tuple(answer())
            start = time.perf_counter()
            own = ahead.result()
        said = checked_scores(system.scorer, _texts(answers))
    waited_s = time.perf_counter() - start
    stream = iter(said)
    by_answer = (tuple(next(stream) for _ in own.utterances) for own in answers)
    return ScoredAnswers(answers, tuple(by_answer), tuple(own), waited_s)


def overlaps(system: System) -> bool:
    """True when scorer and target do not share a processor, so that both can work at once."""
    place = system.scorer.works_on
    return place == "elsewhere" or (place == "cpu" and system.target.device.type != "cpu")


def _texts(answers: Sequence[Continuations]) -> list[str]:
    return [utterance.text for answer in answers for utterance in answer.utterances]
