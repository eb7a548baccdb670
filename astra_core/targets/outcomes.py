"""From kept replies to the outcome of each conversation."""

from collections.abc import Sequence
from typing import Any

from astra_core.rollout import Failure
from astra_core.target import Answer, Outcome, Reply, Usage
from astra_core.targets.calls import Calls, Question
from astra_core.targets.kept import Kept


def asked_for_each(calls: Calls, questions: Sequence[Sequence[Question]]) -> list[Outcome]:
    """The outcome of each conversation, whose questions are asked together with all others'."""
    found = iter(calls.answers([question for own in questions for question in own]))
    return [_outcome(calls, [next(found) for _ in own]) for own in questions]


def _outcome(calls: Calls, found: Sequence[Kept | Failure]) -> Outcome:
    """The answer, or the first failure: a turn has all of its replies or none."""
    kept: list[Kept] = []
    for each in found:
        if isinstance(each, Failure):
            return each
        kept.append(each)
    tokens = sum(each.tokens_in for each in kept), sum(each.tokens_out for each in kept)
    prices = calls.options.prices
    usage = Usage(
        calls=len(kept),
        tokens_in=tokens[0],
        tokens_out=tokens[1],
        seconds=sum(each.seconds for each in kept),
        cost=prices.cost(*tokens) if prices is not None else 0.0,
    )
    return Answer(tuple(_reply(each) for each in kept), usage=usage)


def _reply(kept: Kept) -> Reply:
    finish: Any = kept.finish
    return Reply(kept.text, finish_reason=finish, thinking=kept.thinking)
