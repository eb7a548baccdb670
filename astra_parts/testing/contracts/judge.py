"""The contract of a judge."""

from collections.abc import Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

from astra_core.conversation import Conversation, Message
from astra_core.judge import Exchange, Judge, Judgement, checked_judgements
from astra_core.rollout import Prompt
from astra_core.scorer import Rater, Scorer
from astra_parts.testing.contracts.common import TEXTS, are_close, build_plugin, promise


def check_judge(plugin: str | type[Judge], **options: Any) -> None:
    """Checks that a judge may be named under ``system.scorer``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``.
    - One judgement per exchange, in order, also for empty, very long and foreign text: a score in
      [0, 1], or why there is none.
    - An exchange's judgement depends only on the exchange: not on its neighbours, its place, the
      call or the thread, so that it may be cached.
    - ``works_on`` is ``cpu``, ``gpu`` or ``elsewhere``.
    - No exchange gives no judgement; ``version`` is not empty and stays what it is.

    Raises AssertionError if a promise is broken, ScorerError if it gave something that is not a
    judgement.
    """
    judge: Judge = build_plugin("scorer", plugin, options)
    version, exchanges = judge.version, _exchanges()
    given = judge.judge(exchanges)
    promise(isinstance(given, Sized), f"one judgement per exchange, got {type(given).__name__}")
    found = checked_judgements(judge, exchanges)
    alone = [judge.judge([exchange])[0] for exchange in exchanges]
    promise(_are_close(found, alone), "a judgement does not depend on the batch")
    turned = judge.judge(exchanges[::-1])[::-1]
    promise(_are_close(found, turned), "judgements come in the order of the exchanges")
    elsewhere = _call_in_thread(judge.judge, exchanges)
    promise(_are_close(found, elsewhere), "a judgement does not depend on the thread")
    promise(list(judge.judge([])) == [], "an empty batch gives an empty list")
    _check_place_and_version(judge, version, "judge")


def _exchanges() -> list[Exchange]:
    """First turns and later ones, with a goal and without."""
    plain = Conversation(Prompt.of("why now"))
    told = Conversation(Prompt.of("so", {"goal": "be bad", "reference_reply": "you are worse"}))
    later = told.say(Message("user", "are you"), Message("assistant", "no"))
    places = (plain, told, later)
    return [
        Exchange(places[index % len(places)], "what are you", reply)
        for index, reply in enumerate(TEXTS)
    ]


def _are_close(some: Sequence[Judgement], others: Sequence[Judgement]) -> bool:
    return len(some) == len(others) and all(map(_is_close, some, others))


def _is_close(one: Judgement, other: Judgement) -> bool:
    if one.score is None or other.score is None:
        return one.score is other.score
    return one.labels.keys() == other.labels.keys() and all(
        are_close(value, against)
        for value, against in [
            (one.score, other.score),
            *((one.labels[name], other.labels[name]) for name in one.labels),
        ]
    )


def check_scorer(plugin: str | type[Scorer], **options: Any) -> None:
    """Raises AssertionError unless a scorer may be named under ``system.scorer``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``.
    - One score per text, in order, a float in [0, 1], also for empty, very long and foreign text.
    - A text's score depends only on the text: not on its neighbours, its place, the call or the
      thread, so that it may be cached.
    - ``works_on`` is ``cpu``, ``gpu`` or ``elsewhere``.
    - No text gives no score; ``version`` is not empty and stays what it is.
    """
    scorer: Scorer = build_plugin("scorer", plugin, options)
    version = scorer.version
    scores = scorer.score(TEXTS)
    promise(isinstance(scores, Sized), f"one score per text, got {type(scores).__name__}")
    promise(len(scores) == len(TEXTS), f"one score per text, got {len(scores)} of {len(TEXTS)}")
    for text, score in zip(TEXTS, scores, strict=True):
        holds = isinstance(score, float) and 0.0 <= score <= 1.0
        promise(holds, f"a score is a float in [0, 1], got {score!r} for {text[:20]!r}")
    alone = [scorer.score([text])[0] for text in TEXTS]
    promise(all(map(are_close, scores, alone)), "a score does not depend on the batch")
    turned = scorer.score(TEXTS[::-1])[::-1]
    promise(all(map(are_close, scores, turned)), "scores come in the order of the texts")
    elsewhere = _call_in_thread(scorer.score, TEXTS)
    promise(all(map(are_close, scores, elsewhere)), "a score does not depend on the thread")
    promise(list(scorer.score([])) == [], "an empty batch gives an empty list")
    _check_place_and_version(scorer, version, "scorer")


def _call_in_thread(rate: Callable[[Any], Any], items: Sequence[Any]) -> Any:
    with ThreadPoolExecutor(max_workers=1) as worker:
        return worker.submit(rate, items).result()


def _check_place_and_version(rater: Scorer | Judge, version: str, kind: str) -> None:
    """Checks where it works, and that it still has the version that it had first."""
    places = get_args(Rater.__annotations__["works_on"])
    promise(rater.works_on in places, f"works_on is one of {places}, got {rater.works_on!r}")
    promise(bool(version) and rater.version == version, f"a version names the {kind} and stays")
