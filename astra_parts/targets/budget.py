"""The budget of a target: calls, tokens and money, counted so that a kill loses nothing."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import Field

from astra_core.config import Count, NonNegative, Positive, Section


class Prices(Section):
    """Prices of a million tokens, in the currency of ``budget.money``."""

    input: NonNegative = 0.0
    output: NonNegative = 0.0

    def cost(self, tokens_in: int, tokens_out: int) -> float:
        """The cost of these tokens."""
        return (self.input * tokens_in + self.output * tokens_out) / 1e6


class Budget(Section):
    """The most that may be spent under a name, over all runs in this folder; null is no limit."""

    name: str = Field("default", min_length=1, description="A new name counts from 0.")
    calls: Count | None = Field(None, description="Retries count; kept replies do not.")
    tokens: Count | None = Field(None, description="Tokens read and written, together.")
    money: Positive | None = Field(None, description="By the prices, which must be given.")
    evaluation_share: float = Field(
        0.25,
        ge=0.0,
        lt=1.0,
        description="Of each limit, kept for evaluations: rollouts leave it alone.",
    )


@dataclass(frozen=True, slots=True)
class Spent:
    """The amounts spent under the name of a budget."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class Purse:
    """Keeps track of which limits hold at the moment."""

    def __init__(self, budget: Budget, prices: Prices) -> None:
        self.name = budget.name
        self._budget, self._prices = budget, prices
        self._reserved = budget.evaluation_share

    def reached_limit(self, spent: Spent, *, calls: int = 1) -> str:
        """The limit that leaves no room for this many calls, in words; empty if none does."""
        limits = (self._budget.calls, self._budget.tokens, self._budget.money)
        # Rounded: 0.9 * 100 must be 90 calls.
        most_calls, most_tokens, most_money = (
            math.inf if each is None else round(each * (1.0 - self._reserved), 9) for each in limits
        )
        if spent.calls + calls > most_calls:
            return f"{spent.calls} of {most_calls:.0f} calls made and {calls} more to make"
        tokens = spent.tokens_in + spent.tokens_out
        if tokens >= most_tokens:
            return f"{tokens} of {most_tokens:.0f} tokens used"
        money = self._prices.cost(spent.tokens_in, spent.tokens_out)
        return f"{money:.4g} of {most_money:.4g} spent" if money >= most_money else ""

    @property
    def reserve(self) -> str:
        """What of the budget is kept for evaluations now, in words; empty for nothing."""
        share = self._reserved
        return f"; evaluation_share keeps {share:.0%} of it for evaluations" if share else ""

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A scope in which the share of evaluations may be spent."""
        before, self._reserved = self._reserved, 0.0
        try:
            yield
        finally:
            self._reserved = before
