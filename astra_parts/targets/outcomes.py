"""The base of targets that are asked call by call: from kept replies to outcomes."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation
from astra_core.rollout import Failure
from astra_core.target import Answer, Outcome, Reply, Target, Usage
from astra_parts.targets.calls import Calls, Question
from astra_parts.targets.kept import Kept

Asker = Callable[[Conversation, bytes], Question]


class CalledTarget(Target):
    """A target whose replies are asked for one by one, kept, counted and limited.

    ``calls``: makes the calls; set when the target is built.
    """

    calls: Calls

    @abstractmethod
    def asker(self, generation: GenerationConfiguration) -> Asker:
        """A function that makes the question whose answer is the reply to a conversation."""

    def respond(
        self,
        conversations: Sequence[Conversation],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> list[Outcome]:
        """One outcome per conversation, in order; a failed call fails its conversation alone.

        Raises:
            BudgetError: The rest of the budget does not cover what must be asked.
            ChangedTargetError: The server answers with another model than before.
            ConfigurationError: The program cannot be started.
        """
        del tokens_per_batch
        question = self.asker(generation)
        talks = zip(conversations, keys, strict=True)
        asked = [question(conversation, key) for conversation, own in talks for key in own]
        found = iter(self.calls.answers(asked))
        return [_outcome(self.calls, [next(found) for _ in own]) for own in keys]

    @property
    def account(self) -> str:
        """The account under which its replies are counted now."""
        return self.calls.account

    def account_for(self, account: str) -> AbstractContextManager[None]:
        """A scope whose replies are counted under a name; see ``Calls``."""
        return self.calls.account_for(account)

    def evaluating(self) -> AbstractContextManager[None]:
        """A scope in which the budget's share of evaluations may be spent."""
        return self.calls.purse.evaluating()

    def figures(self) -> Mapping[str, float]:
        """What the account has used: calls, tokens, cost, seconds per call."""
        return self.calls.figures()


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
